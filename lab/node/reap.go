package node

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const reapEvery = 3 * time.Second

// reapOrphans collects processes that died after their parent: the node is
// process 1 of its namespace and inherits them. Children of our own are waited
// for at once by whoever started them, so only a zombie that is still there a
// whole round later is an orphan.
func reapOrphans(ctx context.Context) {
	before := map[int]bool{}
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(reapEvery):
		}
		now := map[int]bool{}
		for _, pid := range zombieChildren() {
			if !before[pid] {
				now[pid] = true
				continue
			}
			_, err := syscall.Wait4(pid, nil, syscall.WNOHANG, nil)
			for errors.Is(err, syscall.EINTR) {
				_, err = syscall.Wait4(pid, nil, syscall.WNOHANG, nil)
			}
		}
		before = now
	}
}

func zombieChildren() []int {
	files, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return nil
	}
	self := strconv.Itoa(os.Getpid())
	var pids []int
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		text := string(raw)
		fields := strings.Fields(text[strings.LastIndexByte(text, ')')+1:])
		if len(fields) < 2 || fields[0] != "Z" || fields[1] != self {
			continue
		}
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file))); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}
