package authored

import (
	"cmp"
	"slices"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/machineconfig"
	"machine-pivot/internal/machineconfig/ignition"
	"machine-pivot/internal/osimage/imageref"
)

// Images are the default images of a merged MachineConfig.
type Images struct {
	OS         imageref.Reference // zero if there is no default
	Extensions imageref.Reference
}

// DefaultImage parses a default image; "" if there is none. The error of an unusable one says from where it is.
func DefaultImage(from, text string) (name imageref.Reference, err error) {
	if text == "" {
		return name, nil
	}
	if name, err = imageref.Written(text); err != nil {
		err = fault.New(fault.Usage, "cannot use %s: %w", from, err)
	}
	return name, err
}

// Select returns the MachineConfigs for a machine of a role. The roles master, worker and arbiter
// get only their own. Every other role is a custom pool of workers and gets those of worker, too.
func Select(all []*MachineConfig, role string) []*MachineConfig {
	roles := []string{role}
	if !slices.Contains([]string{"master", "worker", "arbiter"}, role) {
		roles = append(roles, workerRole)
	}
	var chosen []*MachineConfig
	for _, mc := range all {
		if slices.Contains(roles, mc.Role()) {
			chosen = append(chosen, mc)
		}
	}
	return chosen
}

const workerRole = "worker"

// Merge merges MachineConfigs like the machine-config operator: those of the role worker first, so
// that every other role overrides them; within that by name, in byte order. The result has no name.
// The arguments are not changed. An empty list is an error.
func Merge(all []*MachineConfig, base Images) (*MachineConfig, error) {
	if len(all) == 0 {
		return nil, fault.New(fault.BadInput, "cannot merge MachineConfigs: there are none for this role").
			WithHint("the label %s says which role a MachineConfig is for", RoleLabel)
	}
	merged := &MachineConfig{Spec: machineconfig.Spec{
		OSImageURL: base.OS, ExtensionsImage: base.Extensions, KernelType: "default",
		KernelArguments: []string{}, Extensions: []string{},
	}}
	var configs []ignition.Config
	for _, mc := range inOrder(all) {
		add(&merged.Spec, mc)
		if mc.Spec.Config != nil {
			configs = append(configs, *mc.Spec.Config)
		}
	}
	config := ignition.Merge(configs...)
	overwrite(&config)
	merged.Spec.Config = &config
	if !base.OS.IsZero() && merged.Spec.OSImageURL != base.OS {
		merged.Annotations = map[string]string{osImageOverridden: "true"}
	}
	return merged, nil
}

// osImageOverridden marks an OS image other than the default.
const osImageOverridden = "machineconfiguration.openshift.io/os-image-url-overridden"

// rank is the primary sort key for merging.
func rank(mc *MachineConfig) int {
	if mc.Role() == workerRole {
		return 0
	}
	return 1
}

// add merges everything except the Ignition config.
func add(s *machineconfig.Spec, mc *MachineConfig) {
	s.FIPS = s.FIPS || mc.Spec.FIPS
	s.KernelArguments = append(s.KernelArguments, mc.Spec.KernelArguments...)
	s.Extensions = append(s.Extensions, mc.Spec.Extensions...)
	if kind := mc.Spec.KernelType; kind == machineconfig.KernelRealtime || kind == machineconfig.Kernel64k {
		s.KernelType = kind
	}
	// The cluster's generated MachineConfigs do not override the default images.
	if mc.generated() {
		return
	}
	s.OSImageURL = cmp.Or(mc.Spec.OSImageURL, s.OSImageURL)
	s.ExtensionsImage = cmp.Or(mc.Spec.ExtensionsImage, s.ExtensionsImage)
}

// overwrite sets overwrite for each file that does not set it. For Ignition, files without contents
// only set the owner and mode of an existing file, and it refuses overwrite for them. On a running
// machine, they are written empty: by pivot apply, and by the machine-config daemon.
func overwrite(config *ignition.Config) {
	for i := range config.Storage.Files {
		if f := &config.Storage.Files[i]; f.Overwrite == nil && f.Contents.Source != nil {
			f.Overwrite = new(true)
		}
	}
}
