package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"fairway/lab/cri/spec"

	"golang.org/x/sys/unix"
)

// buildRoot replaces the root of this process's mount namespace by one that shows what an image would. It first opens
// every source while the node's files are in sight, then turns the root, then places things by plain paths, so that
// links such as /var/run resolve inside the container.
func buildRoot(r *spec.Root) error {
	sources, err := openSources(r)
	if err != nil {
		return err
	}
	var devices []device
	if r.Privileged {
		devices = nodeDevices()
	}
	if err := enterRoot(r); err != nil {
		return err
	}
	if err := mountKernel(r); err != nil {
		return err
	}
	if err := makeDevices(devices); err != nil {
		return err
	}
	if err := writeFiles(r.Files); err != nil {
		return err
	}
	if err := placeSources(sources); err != nil {
		return err
	}
	return closeRoot(r)
}

// enterRoot makes the tmpfs, fills it and pivots into it. The upper layers lie beside the new root, out of its sight.
func enterRoot(r *spec.Root) error {
	root, err := mountScratch(r.Scratch)
	if err != nil {
		return err
	}
	if err := makeDirs(root); err != nil {
		return err
	}
	if r.Tools {
		if err := showTools(r.Scratch, root); err != nil {
			return err
		}
	}
	return pivot(root)
}

func enterEmptyRoot(scratch string) error {
	root, err := mountScratch(scratch)
	if err != nil {
		return err
	}
	return pivot(root)
}

func mountScratch(scratch string) (string, error) {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return "", fmt.Errorf("make / private: %w", err)
	}
	if err := unix.Mount("tmpfs", scratch, "tmpfs", 0, "mode=0755"); err != nil {
		return "", fmt.Errorf("mount the root on %s: %w", scratch, err)
	}
	root := filepath.Join(scratch, "root")
	if err := os.Mkdir(root, 0o755); err != nil {
		return "", err
	}
	if err := unix.Mount(root, root, "", unix.MS_BIND, ""); err != nil {
		return "", fmt.Errorf("bind the root: %w", err)
	}
	return root, nil
}

func pivot(root string) error {
	if err := os.Chdir(root); err != nil {
		return err
	}
	// With both arguments ".", the old root ends up on top of the new one and is taken off at once.
	if err := unix.PivotRoot(".", "."); err != nil {
		return fmt.Errorf("pivot_root: %w", err)
	}
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return fmt.Errorf("leave the node's root: %w", err)
	}
	return os.Chdir("/")
}

func makeDirs(root string) error {
	unix.Umask(0)
	dirs := []struct {
		path string
		mode os.FileMode
	}{
		{"dev", 0o755}, {"etc", 0o755}, {"home", 0o755}, {"media", 0o755}, {"mnt", 0o755}, {"opt", 0o755},
		{"proc", 0o555}, {"root", 0o700}, {"run", 0o755}, {"srv", 0o755}, {"sys", 0o555},
		{"tmp", 0o777 | os.ModeSticky}, {"usr", 0o755}, {"var", 0o755}, {"var/cache", 0o755},
		{"var/lib", 0o755}, {"var/log", 0o755}, {"var/spool", 0o755}, {"var/tmp", 0o777 | os.ModeSticky},
	}
	for _, d := range dirs {
		if err := os.Mkdir(filepath.Join(root, d.path), d.mode); err != nil {
			return err
		}
	}
	for name, target := range map[string]string{"var/run": "/run", "var/lock": "/run/lock", "etc/mtab": "/proc/mounts"} {
		if err := os.Symlink(target, filepath.Join(root, name)); err != nil {
			return err
		}
	}
	unix.Umask(0o022)
	return nil
}

func writeFiles(files []spec.File) error {
	for _, f := range files {
		if err := os.MkdirAll(filepath.Dir(f.Path), 0o755); err != nil {
			return fmt.Errorf("image file %s: %w", f.Path, err)
		}
		if err := writeFile(f); err != nil {
			return fmt.Errorf("image file %s: %w", f.Path, err)
		}
	}
	return nil
}

func writeFile(f spec.File) error {
	switch {
	case f.Dir:
		return os.MkdirAll(f.Path, 0o755)
	case f.Link != "":
		if err := os.Remove(f.Path); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		return os.Symlink(f.Link, f.Path)
	}
	return os.WriteFile(f.Path, []byte(f.Text), 0o644)
}
