package kernel_test

import (
	"context"
	"sync"
	"testing"

	"fairway/kernel"
	"fairway/loop"
	"fairway/proxy"
	"fairway/proxy/userspace"
	"fairway/server/stream"
	"fairway/test/netlab"
)

// userspaceMode opens a process's part anew each time: what was opened before on the same
// node is killed first, as its sockets would be with the process.
func userspaceMode() mode {
	var mu sync.Mutex
	running := map[*netlab.Host]*stream.Server{}
	return mode{
		name: "userspace",
		settings: func(c *proxy.Config) {
			c.LocalhostNodePorts = true
			*c = c.WithMode(proxy.Userspace)
		},
		open: func(t *testing.T, node *netlab.Host) loop.Backend {
			server := stream.New(stream.Settings{Enter: node.Do})
			mu.Lock()
			defer mu.Unlock()
			if old := running[node]; old != nil {
				kill(old)
			}
			running[node] = server
			t.Cleanup(func() { kill(server) })
			return loop.NewUserspace(server, loop.NewNFTables(kernel.NewNFTablesNamed(node.NS(), userspace.TableName)))
		},
		list: nftList,
	}
}

// kill closes everything at once.
func kill(s *stream.Server) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	s.Shutdown(ctx)
}

func TestUserspaceStories(t *testing.T) { runStories(t, userspaceMode()) }

func TestUserspaceRandomPackets(t *testing.T) { runRandom(t, userspaceMode(), 6) }
