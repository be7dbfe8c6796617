package hostfiles

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// passwordLock is the lock file of lckpwdf(3), with which passwd(1), usermod(8) and
// systemd-sysusers(8) exclude each other while they change accounts.
const passwordLock = "/etc/.pwd.lock"

// passwordWait is how long to wait for the lock, as in lckpwdf(3).
const passwordWait = 15 * time.Second

// SetPassword sets the password at a path returned by PasswordPath, in the running system with
// the given root directory. If password is nil, it locks the password. The file is replaced
// atomically; the caller must sync the directory to make the change durable. Other lines and
// the owner, mode and SELinux label of the file do not change, and the file is locked against
// changes by other programs. temp is an unused path on the same file system for the new file.
func SetPassword(ctx context.Context, disk Disk, root, name, temp string, password *File) (err error) {
	unlock, err := lockPasswords(ctx, root)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, unlock()) }()
	return replacePassword(disk, root, name, temp, password)
}

func replacePassword(disk Disk, root, name, temp string, password *File) error {
	shadow, _, err := Read(root, shadowPath)
	if err != nil {
		return err
	}
	file := filepath.Join(root, shadowPath)
	label, err := LabelOf(file)
	if err != nil {
		return err
	}
	hash := lockedHash
	if password != nil {
		hash = string(password.Content)
	}
	if shadow.Content, err = withPassword(shadow.Content, passwordOf(name), hash); err != nil {
		return err
	}
	err = disk.Make(temp, shadow, label)
	if err == nil {
		err = disk.Sync(temp)
	}
	if err == nil {
		err = disk.Rename(temp, file)
	}
	return err
}

// lockPasswords prevents other programs from changing accounts until unlock is called. It takes
// an open file description lock, which conflicts with the process lock taken by lckpwdf(3).
func lockPasswords(ctx context.Context, root string) (unlock func() error, err error) {
	file, err := os.OpenFile(filepath.Join(root, passwordLock), os.O_WRONLY|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, fmt.Errorf("cannot lock accounts: %w", err)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, passwordWait, fmt.Errorf("somebody else changes accounts for longer than %v", passwordWait))
	defer cancel()
	if err := WaitLock(ctx, file, ExclusiveLock); err != nil {
		return nil, errors.Join(fmt.Errorf("cannot lock accounts: %w", err), file.Close())
	}
	return file.Close, nil
}
