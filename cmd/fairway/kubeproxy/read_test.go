package kubeproxy

import (
	"strings"
	"testing"
)

// TestUnreadableField: the error names the field, how deep it may be.
func TestUnreadableField(t *testing.T) {
	for field, text := range map[string]string{
		"conntrack.tcpEstablishedTimeout": "conntrack: {maxPerCore: 1, tcpEstablishedTimeout: 12 hours}",
		"iptables.syncPeriod":             "iptables: {syncPeriod: soon}",
		"configSyncPeriod":                "configSyncPeriod: 1 minute",
	} {
		_, _, err := Read([]byte("apiVersion: " + APIVersion + "\nkind: " + Kind + "\n" + text + "\n"))
		if err == nil || !strings.Contains(err.Error(), field+": ") {
			t.Errorf("%s: %v", field, err)
		}
	}
}
