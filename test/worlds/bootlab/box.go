package bootlab

import (
	"machine-pivot/test/box"
	"machine-pivot/test/worlds/vm"
)

// InBox makes a machine of the lab boot in a box from now on. The box reaches the lab's registry, and the given
// further ports of this host.
func (l *Lab) InBox(m *vm.Machine, ports ...int) *box.Box {
	return box.Use(m, append([]int{l.Registry.Port()}, ports...)...)
}
