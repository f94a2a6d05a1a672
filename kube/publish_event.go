package kube

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"strings"
	"time"

	"fairway/model"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

const (
	component = "fairway"
	// maxEventMessage is the API's limit in bytes (core/v1 Event validation).
	maxEventMessage = 1024
)

// apiVersion of the kinds a Problem can be about; "" is none of the API, as a file.
func apiVersion(kind string) string {
	switch kind {
	case "Service", "Node", "Namespace", "Pod", "Secret", "ConfigMap", "Endpoints":
		return "v1"
	case "Ingress", "IngressClass":
		return "networking.k8s.io/v1"
	case "EndpointSlice":
		return "discovery.k8s.io/v1"
	case "IPAddressPool", "L2Advertisement":
		return metallbVersion
	}
	return ""
}

// writeEvent tells one Problem as an event of type Warning. Its name follows from what
// it says, so that a restart, or the next leader, only moves the time of the same event.
func (p *Publisher) writeEvent(ctx context.Context, pr model.Problem) error {
	if apiVersion(pr.Object.Kind) == "" {
		return nil
	}
	e := p.event(pr, metav1.Now())
	client := p.Events.Events(e.Namespace)
	_, err := client.Create(ctx, e, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return p.seenAgain(ctx, e)
	}
	if apierrors.IsNotFound(err) || apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		return nil // the namespace is gone: so is the reader
	}
	if err != nil {
		return fmt.Errorf("%s: event: %w", pr.Object, err)
	}
	return nil
}

// seenAgain moves the time of an event that another run has told already.
func (p *Publisher) seenAgain(ctx context.Context, e *corev1.Event) error {
	patch, err := json.Marshal(map[string]any{"lastTimestamp": e.LastTimestamp})
	if err != nil {
		return err
	}
	if _, err = p.Events.Events(e.Namespace).Patch(ctx, e.Name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		return fmt.Errorf("event %s/%s: %w", e.Namespace, e.Name, err)
	}
	return nil
}

func (p *Publisher) event(pr model.Problem, now metav1.Time) *corev1.Event {
	ns := pr.Object.Namespace
	if ns == "" {
		ns = metav1.NamespaceDefault // where events of cluster objects live
	}
	message := pr.Message
	if pr.Field != "" {
		message = pr.Field + ": " + message
	}
	if len(message) > maxEventMessage {
		message = strings.ToValidUTF8(message[:maxEventMessage-3], "") + "..." // no half character
	}
	h := fnv.New64a()
	fmt.Fprint(h, pr.Object, pr.Object.UID, pr.Field, pr.Reason, pr.Message)
	now = metav1.NewTime(now.Truncate(time.Second))
	return &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: eventName(pr.Object.Name.Name, h.Sum(nil))},
		InvolvedObject: corev1.ObjectReference{
			Kind: pr.Object.Kind, APIVersion: apiVersion(pr.Object.Kind),
			Namespace: pr.Object.Namespace, Name: pr.Object.Name.Name, UID: types.UID(pr.Object.UID),
		},
		Type: corev1.EventTypeWarning, Reason: pr.Reason, Message: message,
		Source:         corev1.EventSource{Component: component, Host: p.Node},
		FirstTimestamp: now, LastTimestamp: now, Count: 1,
		ReportingController: component, ReportingInstance: p.Node,
	}
}

// eventName is the object's name and the hash, within the 253 bytes a name may have.
func eventName(object string, sum []byte) string {
	suffix := "." + hex.EncodeToString(sum)
	return strings.TrimRight(object[:min(len(object), 253-len(suffix))], ".-") + suffix
}
