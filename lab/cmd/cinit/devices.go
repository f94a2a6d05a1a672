package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// device is a device file of the node to be made again for a privileged container.
type device struct {
	path string
	mode uint32
	rdev uint64
}

// nodeDevices lists the node's /dev; directories that are mounts of their own kind (pts, shm, mqueue) are left out.
func nodeDevices() []device {
	var out []device
	// A device that vanishes while we look is no reason to refuse the container.
	_ = filepath.WalkDir("/dev", func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return nil
		}
		if entry.IsDir() {
			return skipMounts(path)
		}
		info, err := entry.Info()
		if err != nil || info.Mode()&fs.ModeDevice == 0 {
			return nil
		}
		st := info.Sys().(*syscall.Stat_t)
		out = append(out, device{path, st.Mode, st.Rdev})
		return nil
	})
	return out
}

func skipMounts(path string) error {
	switch path {
	case "/dev/pts", "/dev/shm", "/dev/mqueue", "/dev/hugepages":
		return fs.SkipDir
	}
	return nil
}

// makeDevices makes what it may: where the machine itself is a container, some device numbers are refused.
func makeDevices(devices []device) error {
	unix.Umask(0)
	defer unix.Umask(0o022)
	for _, d := range devices {
		if err := os.MkdirAll(filepath.Dir(d.path), 0o755); err != nil {
			return err
		}
		_ = unix.Mknod(d.path, d.mode, int(d.rdev))
	}
	return nil
}
