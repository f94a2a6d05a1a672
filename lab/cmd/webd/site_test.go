package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"
)

func TestReadSite(t *testing.T) {
	dir := t.TempDir()
	s, err := readSite(dir)
	if err != nil || !reflect.DeepEqual(s, site{listen: []string{":80"}, text: defaultText}) {
		t.Errorf("empty: %v, %v", s, err)
	}
	conf := `
# listen 1;
server {
  listen 8080 default_server;
  listen [::]:8080;
  listen 127.0.0.1:81;
  location / {
    default_type text/plain;
    return 200 'I am $hostname\nyou asked $host$uri\n';
  }
}`
	if err := os.WriteFile(filepath.Join(dir, "default.conf"), []byte(conf), 0o644); err != nil {
		t.Fatal(err)
	}
	s, err = readSite(dir)
	want := site{listen: []string{":8080", "127.0.0.1:81"}, text: "I am $hostname\nyou asked $host$uri\n"}
	if err != nil || !reflect.DeepEqual(s, want) {
		t.Errorf("got %q, %v", s, err)
	}
	var short site
	short.read("server { listen 8080; listen *:8081; location / { return 200 'x'; } }")
	if want := (site{listen: []string{":8080", ":8081"}, text: "x"}); !reflect.DeepEqual(short, want) {
		t.Errorf("on one line: got %q", short)
	}
}

func TestAnswer(t *testing.T) {
	at := time.Date(2024, 5, 6, 7, 8, 9, 0, time.UTC)
	srv := httptest.NewServer(&answerer{site: site{text: defaultText}, hostname: "web-1", now: func() time.Time { return at }})
	defer srv.Close()
	req, err := http.NewRequest(http.MethodPut, srv.URL+"/cart?x=1", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Host = "shop.example.com:8080"
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	want := "srv : " + srv.Listener.Addr().String() + "\nhost: web-1\nuri : PUT shop.example.com /cart?x=1\ndate: 2024-05-06T07:08:09Z\n"
	if err != nil || string(body) != want {
		t.Errorf("got\n%s\nwant\n%s%v", body, want, err)
	}
}
