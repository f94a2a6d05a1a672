package stream

import (
	"net/netip"
	"sync"
	"time"
)

// sessionKey tells clients of a listener apart; asked is valid where the listener has
// more than one address.
type sessionKey struct {
	from   *udpListener
	client netip.AddrPort
	asked  netip.Addr
}

// sessions are all UDP sessions of a Server.
type sessions struct {
	mu      sync.Mutex
	at      map[sessionKey]*session
	evicted uint64 // ended to make room
}

// samples is how many sessions are looked at for the one idle longest.
const samples = 16

func (s *sessions) find(k sessionKey) *session {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.at[k]
}

func (s *sessions) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.at)
}

// add puts a session in; beyond most, another that has been idle for long gives way.
func (s *sessions) add(x *session, most int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.at) >= most {
		var oldest *session
		n := 0
		for _, o := range s.at { // begins anywhere
			if oldest == nil || o.last.Load() < oldest.last.Load() {
				oldest = o
			}
			if n++; n == samples {
				break
			}
		}
		if oldest != nil {
			s.evicted++
			s.remove(oldest)
		}
	}
	s.at[x.sessionKey] = x
}

// end ends the sessions that which says.
func (s *sessions) end(which func(*session) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, x := range s.at {
		if which(x) {
			s.remove(x)
		}
	}
}

// retire has the clients of the sessions that which says begin anew with their next
// datagram; an answer that is under way still gets to them.
func (s *sessions) retire(which func(*session) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, x := range s.at {
		if which(x) {
			delete(s.at, key)
			x.retired.Store(true)
			_ = x.up.SetReadDeadline(time.Now()) // its goroutine looks again how long to wait
		}
	}
}

// drop ends one session.
func (s *sessions) drop(x *session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.remove(x)
}

// remove closes a session's socket, which ends its goroutine.
func (s *sessions) remove(x *session) {
	if s.at[x.sessionKey] == x {
		delete(s.at, x.sessionKey)
	}
	_ = x.up.Close()
}
