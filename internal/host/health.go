package host

import (
	"cmp"
	"context"
	"fmt"
)

// Unhealthy returns a message for each unit in the setting "health" that is not active, and for
// settings or states that cannot be read.
func (h *Host) Unhealthy(ctx context.Context) (lacks []string) {
	settings, err := h.Settings()
	if err != nil {
		lacks = append(lacks, err.Error())
	}
	for _, unit := range settings.Health {
		if state, err := h.Services().State(ctx, unit); err != nil || state.Active != "active" {
			lacks = append(lacks, fmt.Sprintf("unit %s is %s", unit, cmp.Or(state.Active, "of an unknown state")))
		}
	}
	return lacks
}
