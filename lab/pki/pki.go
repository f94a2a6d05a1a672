// Package pki makes the certificates, keys and kubeconfig files of one lab. In
// come the directory, the API server's addresses and the node names; out go
// PEM files and kubeconfigs that every component of the lab reads. It never
// talks to anything and never renews: a lab lives for hours, its certificates
// for a year.
package pki

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"time"
)

// Authority signs certificates; it is one key with its self-signed certificate.
type Authority struct {
	cert    *x509.Certificate
	key     *ecdsa.PrivateKey
	certPEM []byte
}

// Request says what a certificate is for. Names and IPs make it a serving
// certificate; without them it is a client certificate.
type Request struct {
	CommonName   string
	Organization string
	Names        []string
	IPs          []netip.Addr
}

// Pair is a certificate and its key, both PEM.
type Pair struct{ Cert, Key []byte }

const lifetime = 365 * 24 * time.Hour

// NewAuthority makes a certificate authority and writes name.crt and name.key
// to dir.
func NewAuthority(dir, name string) (*Authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("%s: generate key: %w", name, err)
	}
	tmpl, err := template(pkix.Name{CommonName: "fairway-lab-" + name})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	tmpl.IsCA, tmpl.BasicConstraintsValid = true, true
	tmpl.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &key.PublicKey, key)
	if err != nil {
		return nil, fmt.Errorf("%s: sign: %w", name, err)
	}
	pair, err := encode(der, key)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if err := pair.Write(dir, name); err != nil {
		return nil, err
	}
	return parse(name, pair)
}

// LoadAuthority reads back what NewAuthority wrote.
func LoadAuthority(dir, name string) (*Authority, error) {
	cert, err := os.ReadFile(filepath.Join(dir, name+".crt"))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	key, err := os.ReadFile(filepath.Join(dir, name+".key"))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return parse(name, Pair{Cert: cert, Key: key})
}

// Issue signs a certificate for a fresh key.
func (a *Authority) Issue(r Request) (Pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return Pair{}, fmt.Errorf("%s: generate key: %w", r.CommonName, err)
	}
	subject := pkix.Name{CommonName: r.CommonName}
	if r.Organization != "" {
		subject.Organization = []string{r.Organization}
	}
	tmpl, err := template(subject)
	if err != nil {
		return Pair{}, fmt.Errorf("%s: %w", r.CommonName, err)
	}
	tmpl.KeyUsage = x509.KeyUsageDigitalSignature
	tmpl.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	if len(r.Names)+len(r.IPs) > 0 {
		tmpl.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	}
	tmpl.DNSNames = r.Names
	for _, ip := range r.IPs {
		tmpl.IPAddresses = append(tmpl.IPAddresses, net.IP(ip.AsSlice()))
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, a.cert, &key.PublicKey, a.key)
	if err != nil {
		return Pair{}, fmt.Errorf("%s: sign: %w", r.CommonName, err)
	}
	return encode(der, key)
}

// Write stores the pair as name.crt and name.key, the key readable by the
// owner only.
func (p Pair) Write(dir, name string) error {
	if err := os.WriteFile(filepath.Join(dir, name+".crt"), p.Cert, 0o644); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	if err := os.WriteFile(filepath.Join(dir, name+".key"), p.Key, 0o600); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

func template(subject pkix.Name) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, fmt.Errorf("serial: %w", err)
	}
	now := time.Now()
	return &x509.Certificate{
		SerialNumber: serial,
		Subject:      subject,
		// An hour back: clocks of a machine and its guests may differ.
		NotBefore: now.Add(-time.Hour),
		NotAfter:  now.Add(lifetime),
	}, nil
}

// encode writes the key in the SEC 1 form ("EC PRIVATE KEY"): the API server
// refuses a PKCS#8 file as service account key.
func encode(der []byte, key *ecdsa.PrivateKey) (Pair, error) {
	raw, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return Pair{}, fmt.Errorf("encode key: %w", err)
	}
	return Pair{
		Cert: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		Key:  pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: raw}),
	}, nil
}

func parse(name string, p Pair) (*Authority, error) {
	certBlock, _ := pem.Decode(p.Cert)
	keyBlock, _ := pem.Decode(p.Key)
	if certBlock == nil || keyBlock == nil {
		return nil, fmt.Errorf("%s: not PEM", name)
	}
	cert, err := x509.ParseCertificate(certBlock.Bytes)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	key, err := x509.ParseECPrivateKey(keyBlock.Bytes)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return &Authority{cert: cert, key: key, certPEM: p.Cert}, nil
}
