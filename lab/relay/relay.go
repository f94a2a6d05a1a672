// Package relay carries TCP connections from the host's loopback into the lab.
// In come listeners on the host and a function that says where to go now; out
// go connections made inside a network namespace of the lab. It never listens
// on anything but what it is given and looks at no byte it carries.
package relay

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"time"

	"fairway/lab/netspace"

	"k8s.io/klog/v2"
)

// dialLimit bounds how long the lab may take to accept a connection.
const dialLimit = 5 * time.Second

// Serve accepts connections until ctx ends and carries each to the address
// that target returns at that moment, dialled inside ns.
func Serve(ctx context.Context, l net.Listener, ns *os.File, target func(context.Context) string) error {
	stop := context.AfterFunc(ctx, func() { l.Close() })
	defer stop()
	for {
		conn, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return nil
		}
		if err != nil {
			klog.ErrorS(err, "Relay", "listener", l.Addr())
			time.Sleep(100 * time.Millisecond) // out of file descriptors, most likely
			continue
		}
		go carry(conn, ns, target(ctx))
	}
}

func carry(near net.Conn, ns *os.File, to string) {
	defer near.Close()
	var far net.Conn
	err := netspace.Do(ns, func() (err error) {
		far, err = net.DialTimeout("tcp", to, dialLimit)
		return err
	})
	if err != nil {
		klog.V(2).ErrorS(err, "Relay", "to", to)
		return
	}
	defer far.Close()
	done := make(chan struct{}, 2)
	go half(far, near, done)
	go half(near, far, done)
	<-done
	<-done
}

// half copies one direction and passes the end of it on, so that a request
// that ends before its answer begins is carried right.
func half(to, from net.Conn, done chan<- struct{}) {
	_, err := io.Copy(to, from)
	if c, ok := to.(interface{ CloseWrite() error }); ok && err == nil {
		_ = c.CloseWrite()
	} else {
		to.Close()
		from.Close()
	}
	done <- struct{}{}
}
