package kernel

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// recordDir holds, per network namespace, what the settings were before this program
// changed them. It goes with the machine's start, as they do.
const recordDir = "/run/fairway"

// setting is one changed setting.
type setting struct{ Path, Was, Set string }

// SetSysctl writes a setting (path under /proc/sys, or a whole path elsewhere) in the
// network namespace of the descriptor, 0 for the current one, unless it has the value
// already, and remembers what it was for RestoreSysctls.
func SetSysctl(netns int, path, value string) error {
	return inNetNS(netns, func() error {
		was, err := readSysctl(path)
		if err != nil {
			return err
		}
		if was == value {
			return nil
		}
		if err := os.WriteFile(sysctlPath(path), []byte(value), 0o644); err != nil {
			return fmt.Errorf("setting %s to %s: %w", path, value, reason(err))
		}
		remember(setting{Path: path, Was: was, Set: value})
		return nil
	})
}

// RestoreSysctls gives back the settings SetSysctl changed, the last one first, and
// returns their paths. One that somebody has changed since is left as it is.
func RestoreSysctls(netns int) (restored []string, err error) {
	err = inNetNS(netns, func() error {
		file := recordFile()
		list := recorded(file)
		var errs []error
		for _, s := range slices.Backward(list) {
			now, err := readSysctl(s.Path)
			if err != nil || now != s.Set {
				continue
			}
			if err := os.WriteFile(sysctlPath(s.Path), []byte(s.Was), 0o644); err != nil {
				errs = append(errs, fmt.Errorf("setting %s back to %s: %w", s.Path, s.Was, reason(err)))
				continue
			}
			restored = append(restored, s.Path)
		}
		if len(errs) == 0 && len(list) > 0 {
			errs = append(errs, os.Remove(file))
		}
		return errors.Join(errs...)
	})
	return restored, err
}

func sysctlPath(path string) string {
	if filepath.IsAbs(path) {
		return path
	}
	return filepath.Join("/proc/sys", path)
}

func readSysctl(path string) (string, error) {
	data, err := os.ReadFile(sysctlPath(path))
	if err != nil {
		return "", fmt.Errorf("reading %s: %w", path, reason(err))
	}
	return strings.Join(strings.Fields(string(data)), " "), nil
}

// reason is a path error's cause alone: the path is named already.
func reason(err error) error {
	var at *os.PathError
	if errors.As(err, &at) {
		return at.Err
	}
	return err
}

// remember keeps the first value of a setting; what cannot be written down is not given
// back later, which is what kube-proxy does with all of them.
func remember(s setting) {
	file := recordFile()
	list := recorded(file)
	if i := slices.IndexFunc(list, func(o setting) bool { return o.Path == s.Path }); i >= 0 {
		list[i].Set = s.Set
	} else {
		list = append(list, s)
	}
	data, err := json.Marshal(list)
	if err != nil || os.MkdirAll(recordDir, 0o755) != nil {
		return
	}
	next := file + ".new"
	if os.WriteFile(next, data, 0o644) == nil {
		_ = os.Rename(next, file)
	}
}

func recorded(file string) []setting {
	var list []setting
	data, err := os.ReadFile(file)
	if err != nil || json.Unmarshal(data, &list) != nil {
		return nil
	}
	return list
}

// recordFile names the network namespace by its cookie, which no other gets until the
// machine starts anew (Linux 5.14), else by its inode.
func recordFile() string {
	name := "settings"
	if fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0); err == nil {
		cookie, err := unix.GetsockoptUint64(fd, unix.SOL_SOCKET, unix.SO_NETNS_COOKIE)
		_ = unix.Close(fd)
		if err == nil {
			return filepath.Join(recordDir, fmt.Sprintf("%s-%d.json", name, cookie))
		}
	}
	if link, err := os.Readlink("/proc/thread-self/ns/net"); err == nil {
		name += "-" + strings.Trim(strings.TrimPrefix(link, "net:"), "[]")
	}
	return filepath.Join(recordDir, name+".json")
}
