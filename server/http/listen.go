package http

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"math/big"
	"net"
	"net/netip"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Listen opens the listeners; calling it again does nothing. It is apart from Serve
// so that the caller learns of an address in use before it reports ready.
func (s *Server) Listen(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.certificate != nil {
		return nil
	}
	cert, err := defaultCertificate()
	if err != nil {
		return fmt.Errorf("ingress: default certificate: %w", err)
	}
	if s.plain, err = s.open(ctx, s.cfg.HTTP); err != nil {
		return err
	}
	if s.secure, err = s.open(ctx, s.cfg.HTTPS); err != nil {
		closeAll(s.plain)
		return err
	}
	s.certificate = cert
	return nil
}

func (s *Server) open(ctx context.Context, addrs []netip.AddrPort) (out []net.Listener, err error) {
	lc := net.ListenConfig{Control: s.control}
	for _, a := range addrs {
		l, err := lc.Listen(ctx, "tcp", a.String())
		if err != nil {
			closeAll(out)
			return nil, fmt.Errorf("ingress %s: %w", a, err)
		}
		out = append(out, l)
	}
	return out, nil
}

func (s *Server) control(_, _ string, c syscall.RawConn) error {
	if !s.cfg.ReusePort {
		return nil
	}
	var failed error
	err := c.Control(func(fd uintptr) { failed = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEPORT, 1) })
	if err == nil {
		err = failed
	}
	return err
}

func closeAll(list []net.Listener) {
	for _, l := range list {
		l.Close()
	}
}

// Addrs are the addresses listened on, which matter when a port was 0.
func (s *Server) Addrs() (http, https []netip.AddrPort) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.plain {
		http = append(http, l.Addr().(*net.TCPAddr).AddrPort())
	}
	for _, l := range s.secure {
		https = append(https, l.Addr().(*net.TCPAddr).AddrPort())
	}
	return http, https
}

// tlsConfig asks the Table in force at every handshake, so a new certificate needs
// nothing but a new Table.
func (s *Server) tlsConfig() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12,
		NextProtos: []string{"h2", "http/1.1"},
		GetCertificate: func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
			if c := s.table.Load().table.Certificate(hello.ServerName); c != nil {
				return c.TLS, nil
			}
			return s.certificate, nil
		},
	}
}

// defaultCertificate is what clients see where no Secret fits: self-signed, made anew
// at each start, for no name.
func defaultCertificate() (*tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, err
	}
	tmpl := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: "Fairway default certificate", Organization: []string{"Fairway"}},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().AddDate(1, 0, 0),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		DNSNames: []string{"ingress.local"},
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &key.PublicKey, key)
	if err != nil {
		return nil, err
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, nil
}
