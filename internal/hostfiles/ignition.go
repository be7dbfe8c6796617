package hostfiles

// IgnitionStamp is the file in /boot of the Fedora CoreOS family that makes the boot loader request Ignition. It may set
// how Ignition runs.
const IgnitionStamp = "ignition.firstboot"
