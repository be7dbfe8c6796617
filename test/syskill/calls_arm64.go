package syskill

func effectsWithoutDirectory() map[uint32]string { return nil }
