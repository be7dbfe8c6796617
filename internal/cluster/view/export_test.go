package view

import "machine-pivot/internal/author/authored"

// Merged returns the rendered MachineConfig that the pool would have; nil if there is none.
func (p PoolPlan) Merged() *authored.MachineConfig { return p.merged }
