package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// site is what webd serves.
type site struct {
	listen []string // addresses for net.Listen
	text   string   // with nginx's variables
}

const defaultText = "srv : $server_addr:$server_port\n" +
	"host: $hostname\n" +
	"uri : $request_method $host $request_uri\n" +
	"date: $time_iso8601\n"

// readSite reads every *.conf in dir. Without any, or with none that listens, the site is on port 80.
func readSite(dir string) (site, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.conf"))
	if err != nil {
		return site{}, fmt.Errorf("configuration: %w", err)
	}
	s := site{text: defaultText}
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			return site{}, fmt.Errorf("configuration: %w", err)
		}
		s.read(string(text))
	}
	if len(s.listen) == 0 {
		s.listen = []string{":80"}
	}
	return s, nil
}

func (s *site) read(conf string) {
	comment := regexp.MustCompile(`(?m)^\s*#.*$`)
	conf = comment.ReplaceAllString(conf, "")
	listen := regexp.MustCompile(`(?m)(?:^|[;{}])\s*listen\s+([^\s;]+)`)
	for _, m := range listen.FindAllStringSubmatch(conf, -1) {
		s.addListen(m[1])
	}
	answer := regexp.MustCompile(`return\s+200\s+("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')`)
	if m := answer.FindStringSubmatch(conf); m != nil {
		s.text = unquote(m[1])
	}
}

// addListen turns nginx's forms "80", "*:80", "10.0.0.1:80", "[::]:80" into addresses; one socket serves both families.
func (s *site) addListen(value string) {
	address := value
	if !strings.Contains(value, ":") {
		address = ":" + value
	}
	for _, all := range []string{"*:", "[::]:", "0.0.0.0:"} {
		if port, ok := strings.CutPrefix(address, all); ok {
			address = ":" + port
		}
	}
	for _, have := range s.listen {
		if have == address {
			return
		}
	}
	s.listen = append(s.listen, address)
}

func unquote(text string) string {
	return strings.NewReplacer(`\n`, "\n", `\t`, "\t", `\"`, `"`, `\'`, `'`, `\\`, `\`).Replace(text[1 : len(text)-1])
}
