// Package apiserver is a Kubernetes API of the few kinds a node's proxy follows, served
// from memory: typed objects come in by Put and Delete, LIST and WATCH answers go out in
// protobuf or JSON as the client asks, encoded once however many clients read them. A
// benchmark of proxies needs nothing else of an API server: both proxies get the same
// bytes in the same order at a known time, and on a machine with two processors the real
// one, with etcd and ten controllers behind it, would be measured more than they are. It
// defaults, validates, authorises and stores nothing: writes (events, leases) are taken
// and forgotten.
package apiserver

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	protobufType = "application/vnd.kubernetes.protobuf"
	jsonType     = "application/json"
)

// Server answers for the kinds it was made with. It is an http.Handler.
type Server struct {
	kinds map[string]*kind // by the path of the collection
}

// New makes a server without objects.
func New() *Server {
	s := &Server{kinds: map[string]*kind{}}
	for _, k := range kinds() {
		s.kinds[k.path] = k
	}
	return s
}

func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet {
		accept(w, r)
		return
	}
	if r.URL.Path == "/version" {
		w.Header().Set("Content-Type", jsonType)
		_, _ = io.WriteString(w, `{"major":"1","minor":"37","gitVersion":"v1.37.2"}`)
		return
	}
	k, name := s.find(r.URL.Path)
	if k == nil {
		status(w, http.StatusNotFound, metav1.StatusReasonNotFound, r.URL.Path)
		return
	}
	enc := encodingOf(r.Header.Get("Accept"))
	if name != "" {
		k.one(w, enc, name)
		return
	}
	q := r.URL.Query()
	// Other selectors (spec.clusterIP!=None and the like) take nothing away here.
	name, one := strings.CutPrefix(q.Get("fieldSelector"), "metadata.name=")
	if !one {
		name = ""
	}
	if q.Get("watch") == "true" || q.Get("watch") == "1" {
		k.watch(w, r, enc, name, q.Get("sendInitialEvents") == "true")
		return
	}
	k.list(w, enc, name)
}

// find tells which kind a path is of, and the object's name when it names one.
func (s *Server) find(path string) (*kind, string) {
	if k := s.kinds[path]; k != nil {
		return k, ""
	}
	for p, k := range s.kinds {
		if name, ok := strings.CutPrefix(path, p+"/"); ok && !strings.Contains(name, "/") {
			return k, name
		}
	}
	return nil, ""
}

// accept answers a write with what was written, as if it had been stored.
func accept(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost && r.Method != http.MethodPut {
		_, _ = io.Copy(io.Discard, r.Body)
		status(w, http.StatusNotFound, metav1.StatusReasonNotFound, r.URL.Path)
		return
	}
	var body bytes.Buffer
	if _, err := body.ReadFrom(r.Body); err != nil {
		status(w, http.StatusBadRequest, metav1.StatusReasonBadRequest, err.Error())
		return
	}
	w.Header().Set("Content-Type", r.Header.Get("Content-Type"))
	w.WriteHeader(http.StatusCreated)
	_, _ = w.Write(body.Bytes())
}

func status(w http.ResponseWriter, code int, reason metav1.StatusReason, message string) {
	w.Header().Set("Content-Type", jsonType)
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure,
		Reason: reason, Code: int32(code), Message: fmt.Sprintf("%s: not served here", message),
	})
}
