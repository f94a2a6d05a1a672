package cri

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// unmountBelow detaches every mount under dir in this mount namespace, the last made first.
func unmountBelow(dir string) error {
	text, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return err
	}
	points := mountPoints(string(text))
	slices.Reverse(points)
	for _, point := range points {
		if !strings.HasPrefix(point, dir+"/") {
			continue
		}
		if err := unix.Unmount(point, unix.MNT_DETACH); err != nil {
			return fmt.Errorf("unmount %s: %w", point, err)
		}
	}
	return nil
}

// mountPoints reads the fifth field of mountinfo (proc_pid_mountinfo(5)), where spaces and the like are octal escapes.
func mountPoints(mountinfo string) []string {
	unescape := strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)
	var out []string
	for line := range strings.Lines(mountinfo) {
		fields := strings.Fields(line)
		if len(fields) > 4 {
			out = append(out, unescape.Replace(fields[4]))
		}
	}
	return out
}
