package bootlab

import "encoding/json"

// Config is a MachineConfig to apply to a running machine.
type Config struct {
	Name  string
	Image string // "": the machine keeps its image
	Kargs []string
	Files map[string]string // content by path, in /etc or /var
	Units []Unit
}

// Unit is a systemd unit in a Config.
type Unit struct {
	Name     string `json:"name"`
	Enabled  bool   `json:"enabled"`
	Contents string `json:"contents,omitempty"` // "": the image has the unit
}

// JSON returns the MachineConfig as "pivot apply" reads it.
func (c Config) JSON() ([]byte, error) {
	type object = map[string]any
	files := []object{}
	for path, content := range c.Files {
		files = append(files, object{"path": path, "overwrite": true, "contents": object{"source": dataURL([]byte(content))}})
	}
	return json.Marshal(object{
		"apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfig",
		"metadata": object{"name": c.Name},
		"spec": object{
			"osImageURL": c.Image, "kernelArguments": append([]string{}, c.Kargs...),
			"config": object{
				"ignition": object{"version": "3.4.0"}, "storage": object{"files": files}, "systemd": object{"units": append([]Unit{}, c.Units...)},
			},
		},
	})
}
