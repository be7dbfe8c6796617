package syskill

func effectsWithoutDirectory() map[uint32]call { return nil }
