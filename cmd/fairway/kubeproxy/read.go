package kubeproxy

import (
	stdjson "encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

// Warning is about a field or flag that reads well and does nothing, or something else,
// here.
type Warning struct {
	// Field is its path in the file (iptables.syncPeriod) or the flag's name with dashes.
	Field   string
	Message string
}

func (w Warning) String() string { return w.Field + ": " + w.Message }

// Find returns the KubeProxyConfiguration in data, nil when there is none: data itself, or
// an entry of the ConfigMap that kubeadm keeps (kubectl get configmap kube-proxy -o yaml).
func Find(data []byte) []byte {
	var head struct {
		metav1.TypeMeta `json:",inline"`
		Data            map[string]string `json:"data"`
	}
	if yaml.Unmarshal(data, &head) != nil {
		return nil
	}
	if is(head.TypeMeta) {
		return data
	}
	if head.APIVersion != "v1" || head.Kind != "ConfigMap" {
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(head.Data)) {
		var inner struct {
			metav1.TypeMeta `json:",inline"`
		}
		text := []byte(head.Data[name])
		if yaml.Unmarshal(text, &inner) == nil && is(inner.TypeMeta) {
			return text
		}
	}
	return nil
}

// is tells by the API group, so that a version that is not known here is refused by its
// name and not read as something else.
func is(t metav1.TypeMeta) bool {
	return t.Kind == Kind && strings.HasPrefix(t.APIVersion, "kubeproxy.config.k8s.io/")
}

// Read decodes a KubeProxyConfiguration. Like kube-proxy it goes on without the fields it
// does not know, or that are there twice, and warns of each.
func Read(data []byte) (*Config, []Warning, error) {
	var warnings []Warning
	text, err := yaml.YAMLToJSONStrict(data)
	if err != nil {
		first := err
		if text, err = yaml.YAMLToJSON(data); err != nil {
			return nil, nil, fmt.Errorf("%s: %w", Kind, err)
		}
		warnings = append(warnings, Warning{"a field", "is there twice, its last value counts: " + first.Error()})
	}
	c := &Config{}
	strict, err := json.UnmarshalStrict(text, c)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", Kind, atField(text, err))
	}
	if c.APIVersion != APIVersion {
		return nil, nil, fmt.Errorf("%s: apiVersion %s is not %s", Kind, c.APIVersion, APIVersion)
	}
	for _, a := range []**string{&c.HealthzBindAddress, &c.MetricsBindAddress} {
		if *a != nil && **a == "" { // kube-proxy's default, as if it were not there
			*a = nil
		}
	}
	for _, e := range strict {
		warnings = append(warnings, strictWarning(e))
	}
	return c, warnings, nil
}

// strictWarning takes the field's path out of the decoder's error.
func strictWarning(err error) Warning {
	text := err.Error()
	if inner := errors.Unwrap(err); inner != nil {
		text = inner.Error()
	}
	if what, rest, ok := strings.Cut(text, ` "`); ok {
		field, _, _ := strings.Cut(rest, `"`)
		if what == "unknown field" {
			return Warning{field, "no such field in a KubeProxyConfiguration of Kubernetes 1.37; it is ignored"}
		}
		return Warning{field, what + "; its last value counts"}
	}
	return Warning{"a field", text}
}

// atField names the field that err is about: what reads a duration does not know where it
// stands. It is the first one that alone cannot be read either.
func atField(text []byte, err error) error {
	var all map[string]any
	if json.UnmarshalCaseSensitivePreserveInts(text, &all) != nil {
		return err
	}
	if path := badField("", all, func(v any) any { return v }); path != "" && !strings.Contains(err.Error(), path) {
		return fmt.Errorf("%s: %w", path, err)
	}
	return err
}

// badField finds the value that cannot be read within what around puts about it.
func badField(path string, in map[string]any, around func(any) any) string {
	for _, name := range slices.Sorted(maps.Keys(in)) {
		whole := func(v any) any { return around(map[string]any{name: v}) }
		data, err := stdjson.Marshal(whole(in[name]))
		if err != nil || json.UnmarshalCaseSensitivePreserveInts(data, &Config{}) == nil {
			continue
		}
		here := strings.TrimPrefix(path+"."+name, ".")
		if inner, ok := in[name].(map[string]any); ok {
			if deeper := badField(here, inner, whole); deeper != "" {
				return deeper
			}
		}
		return here
	}
	return ""
}
