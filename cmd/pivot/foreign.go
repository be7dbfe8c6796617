package main

import "machine-pivot/internal/cli"

// foreign returns what users of rpm-ostree, bootc, ostree and dnf type, and what does it here.
// What is natural here too, such as --json, exists instead. The arguments of "rpm-ostree kargs"
// are translated: see kargsCommand.
func foreign() []cli.Foreign {
	return append(foreignFlags(), []cli.Foreign{
		{Typed: []string{"update"}, Why: "upgrade moves the machine to the image that the tag which it follows names now", Call: "pivot upgrade -r"},
		{Typed: []string{"switch", "deploy"}, Why: "rebase moves the machine to another image", Call: "pivot rebase -r IMAGE"},
		{Typed: []string{"install"}, Why: "rebase adds extensions, by their names in a MachineConfig", Call: "pivot rebase --extension NAME"},
		{Typed: []string{"uninstall", "remove"}, Why: "apply removes the extensions that only the MachineConfig before requested", Call: "pivot apply MACHINECONFIG"},
		{Typed: []string{"apply-live"}, Why: "apply changes the running system where no reboot is needed", Call: "pivot apply --reboot=never MACHINECONFIG"},
		{Typed: []string{"pin"}, Why: "the running deployment is kept for a rollback; ostree keeps others", Call: "ostree admin pin INDEX"},
		{Typed: []string{"cleanup", "undeploy"}, Why: "each change removes the images that no deployment uses; ostree removes deployments", Call: "ostree admin undeploy INDEX"},
		{Typed: []string{"unlock", "usroverlay"}, Why: "ostree does, until the next boot", Call: "ostree admin unlock"},
		{Typed: []string{"list", "history"}, Why: "status shows the deployments, and the transactions before the last", Call: "pivot status"},
		{Typed: []string{"pull", "download"}, Why: "rebase downloads for a later change", Call: "pivot rebase --download-only IMAGE"},
		{Typed: []string{"import"}, Why: "it is one of the commands of image", Call: "pivot image import IMAGE --repo /ostree/repo"},
		{Typed: []string{"inspect"}, Why: "it is one of the commands of image", Call: "pivot image inspect IMAGE"},
		{Typed: []string{"check"}, Why: "verify compares the machine with what was requested", Call: "pivot verify"},
		{Typed: []string{"validate"}, Why: "pivotctl does, the program for authors and operators", Call: "pivotctl config validate FILE"},
		{Typed: []string{"merge"}, Why: "pivotctl does, the program for authors and operators", Call: "pivotctl config merge --role ROLE DIR"},
		{Typed: []string{"render"}, Why: "pivotctl does, the program for authors and operators", Call: "pivotctl config render --role ROLE DIR"},
	}...)
}

// foreignFlags returns the part of foreign that is about flags.
func foreignFlags() []cli.Foreign {
	return []cli.Foreign{
		{Typed: []string{"upgrade --check", "upgrade --preview"}, Why: "what shows whether there is an upgrade is --dry-run", Call: "pivot upgrade --dry-run"},
		{Typed: []string{"upgrade --apply"}, Why: "its name is --reboot", Call: "pivot upgrade --reboot"},
		{Typed: []string{"rebase --append", "rebase --append-if-missing", "rebase --karg", "rebase --kargs"}, Why: "its name is --append-karg", Call: "pivot rebase --append-karg ARG"},
		{Typed: []string{"rebase --delete", "rebase --delete-if-present"}, Why: "its name is --delete-karg", Call: "pivot rebase --delete-karg ARG"},
		{Typed: []string{"apply --append", "apply --append-karg", "apply --append-kargs"}, Why: "rebase changes kernel arguments without a MachineConfig", Call: "pivot rebase --append-karg ARG"},
		{Typed: []string{"apply --delete", "apply --delete-karg", "apply --delete-kargs"}, Why: "rebase changes kernel arguments without a MachineConfig", Call: "pivot rebase --delete-karg ARG"},
		{Typed: []string{"rebase --no-reboot"}, Why: "only -r reboots", Call: "pivot rebase IMAGE"},
		{Typed: []string{"apply --no-reboot"}, Why: "the reboot is left to you with", Call: "pivot apply --reboot=later MACHINECONFIG"},
		{Typed: []string{"rollback --no-reboot"}, Why: "only -r reboots", Call: "pivot rollback"},
		{Typed: []string{"rebase --preview"}, Why: "its name is --dry-run", Call: "pivot rebase --dry-run IMAGE"},
		{Typed: []string{"apply --preview"}, Why: "its name is --dry-run", Call: "pivot apply --dry-run MACHINECONFIG"},
		{Typed: []string{"firstboot --dry-run", "firstboot --preview"}, Why: "plan shows what a first boot would change", Call: "pivot plan"},
		{Typed: []string{"rollback --preview"}, Why: "its name is --dry-run", Call: "pivot rollback --dry-run"},
		{Typed: []string{"rebase --apply"}, Why: "its name is --reboot", Call: "pivot rebase --reboot IMAGE"},
		{Typed: []string{"rebase --install"}, Why: "extensions are what can be installed", Call: "pivot rebase --extension NAME"},
		{Typed: []string{"apply --image"}, Why: "rebase changes the image without a MachineConfig", Call: "pivot rebase IMAGE"},
		{Typed: []string{"firstboot --force"}, Why: "its name is --again", Call: "pivot firstboot --again"},
		{Typed: []string{"status --verbose", "status -v"}, Why: "everything there is to know is in", Call: "pivot status --json"},
	}
}
