package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// showTools lays the machine's programs under the root: the machine's own files read below, the container's writes
// above, in its tmpfs. Of /etc only what programs need to start is shown.
func showTools(scratch, root string) error {
	for _, dir := range []string{"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc/alternatives", "/etc/ssl"} {
		if err := showDir(scratch, root, dir); err != nil {
			return fmt.Errorf("show %s: %w", dir, err)
		}
	}
	for _, file := range []string{
		"bash.bashrc", "ca-certificates.conf", "debian_version", "ethertypes", "ld.so.cache", "ld.so.conf",
		"mime.types", "networks", "os-release", "profile", "protocols", "rpc", "services", "xattr.conf",
	} {
		if err := copyFile("/etc/"+file, filepath.Join(root, "etc", file)); err != nil {
			return err
		}
	}
	return nil
}

// showDir repeats a link as it is, overlays a directory, and passes over what the machine lacks.
func showDir(scratch, root, dir string) error {
	info, err := os.Lstat(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	target := filepath.Join(root, dir)
	if info.Mode()&fs.ModeSymlink != 0 {
		link, err := os.Readlink(dir)
		if err != nil {
			return err
		}
		return os.Symlink(link, target)
	}
	upper, work := filepath.Join(scratch, "upper", dir), filepath.Join(scratch, "work", dir)
	for _, d := range []string{target, upper, work} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			return err
		}
	}
	if err := hidePrivate(dir, upper); err != nil {
		return err
	}
	data := fmt.Sprintf("lowerdir=%s,upperdir=%s,workdir=%s", dir, upper, work)
	if err := unix.Mount("overlay", target, "overlay", 0, data); err != nil {
		return fmt.Errorf("overlay: %w", err)
	}
	return nil
}

// hidePrivate keeps the machine's keys out of containers: an opaque directory above hides the one below.
func hidePrivate(dir, upper string) error {
	if dir != "/etc/ssl" {
		return nil
	}
	private := filepath.Join(upper, "private")
	if err := os.Mkdir(private, 0o700); err != nil {
		return err
	}
	return unix.Setxattr(private, "trusted.overlay.opaque", []byte("y"), 0)
}

func copyFile(from, to string) error {
	text, err := os.ReadFile(from)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return os.WriteFile(to, text, 0o644)
}
