package cluster

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"

	"fairway/lab/state"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/yaml"
	sigsyaml "sigs.k8s.io/yaml"
)

const (
	defaultMode = "nftables"
	configKey   = "fairway.yaml"
	dnsService  = "kube-dns"
)

// configMode returns the proxy mode that Fairway's configuration file asks
// for, or the default.
func configMode(file string) (string, error) {
	if file == "" {
		return defaultMode, nil
	}
	raw, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("configuration: %w", err)
	}
	var c struct {
		Proxy struct {
			Mode string `json:"mode"`
		} `json:"proxy"`
	}
	if err := sigsyaml.Unmarshal(raw, &c); err != nil {
		return "", fmt.Errorf("configuration %s: %w", file, err)
	}
	if c.Proxy.Mode == "" {
		return defaultMode, nil
	}
	return c.Proxy.Mode, nil
}

// substitute does to deploy/fairway.yaml what its reader is told to do by
// hand, and nothing else: the ConfigMap's server and proxy mode, with the
// lab's own configuration file in the place of the one in the ConfigMap if
// there is one, and the address of the DNS Service. Fairway as a plain process
// needs the same objects without the DaemonSet.
func substitute(manifest []byte, lab state.Lab) ([]byte, error) {
	docs := yaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(manifest)))
	var out [][]byte
	seen := map[string]bool{}
	for {
		doc, err := docs.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		edited, kind, err := edit(doc, lab)
		if err != nil {
			return nil, err
		}
		seen[kind] = true
		if lab.Fairway != "process" {
			out = append(out, edited)
			continue
		}
		plain, err := asProcess(edited, lab)
		if err != nil {
			return nil, err
		}
		out = append(out, plain...)
	}
	if !seen["ConfigMap"] || !seen["Service"] {
		return nil, fmt.Errorf("it has no ConfigMap %s or no Service %s in namespace %s",
			fairwayDaemonSet, dnsService, fairwayNamespace)
	}
	return bytes.Join(out, []byte("\n---\n")), nil
}

// edit changes one document and says which of the two it was, "" for others.
func edit(doc []byte, lab state.Lab) (edited []byte, kind string, err error) {
	var head v1.ConfigMap
	if err := sigsyaml.Unmarshal(doc, &head); err != nil || head.Namespace != fairwayNamespace {
		return doc, "", nil // not ours to judge: kubectl will say what is wrong with it
	}
	switch {
	case head.Kind == "ConfigMap" && head.Name == fairwayDaemonSet:
		config, err := editConfig(head.Data[configKey], lab)
		if err != nil {
			return nil, "", err
		}
		head.Data[configKey] = config
		edited, err := sigsyaml.Marshal(&head)
		return edited, head.Kind, err
	case head.Kind == "Service" && head.Name == dnsService:
		var object map[string]any
		if err := sigsyaml.Unmarshal(doc, &object); err != nil {
			return nil, "", err
		}
		spec, ok := object["spec"].(map[string]any)
		if !ok {
			return nil, "", fmt.Errorf("the Service %s has no spec", dnsService)
		}
		spec["clusterIP"] = lab.Family.DNS()[0]
		edited, err := sigsyaml.Marshal(object)
		return edited, head.Kind, err
	}
	return doc, "", nil
}

func editConfig(text string, lab state.Lab) (string, error) {
	if lab.Config != "" {
		raw, err := os.ReadFile(lab.Config)
		if err != nil {
			return "", fmt.Errorf("configuration: %w", err)
		}
		text = string(raw)
	}
	config := map[string]any{}
	if err := sigsyaml.Unmarshal([]byte(text), &config); err != nil {
		return "", fmt.Errorf("configuration: %w", err)
	}
	config["server"] = lab.Family.ServerURL()
	proxy, ok := config["proxy"].(map[string]any)
	if !ok {
		proxy = map[string]any{}
	}
	proxy["mode"] = lab.ProxyMode
	config["proxy"] = proxy
	out, err := sigsyaml.Marshal(config)
	return string(out), err
}
