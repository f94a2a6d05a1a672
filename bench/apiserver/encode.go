package apiserver

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// encoded is an object in the form clients ask for; JSON, which is rare, is made anew
// for each.
type encoded struct {
	name    string
	raw     []byte // the protobuf message itself
	wrapped []byte // with its kind, as it is sent alone
	kind    *kind
	obj     Object
}

// magic begins every protobuf object of Kubernetes; runtime.Unknown follows it.
const magic = "k8s\x00"

func encode(k *kind, o Object) (*encoded, error) {
	raw, err := o.Marshal()
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", k.name, o.GetName(), err)
	}
	return &encoded{name: o.GetName(), raw: raw, wrapped: wrap(k.apiVersion, k.name, raw), kind: k, obj: o}, nil
}

func (e *encoded) json() []byte {
	text, err := json.Marshal(e.obj)
	if err != nil {
		return []byte("null")
	}
	return withType(e.kind, e.kind.name, text)
}

// withType adds what a typed object leaves out of its JSON.
func withType(k *kind, name string, text []byte) []byte {
	head := fmt.Sprintf(`{"kind":%q,"apiVersion":%q,`, name, k.apiVersion)
	return append([]byte(head), text[1:]...)
}

type encoding interface {
	contentType() string
	object(*encoded) []byte
	listOf(k *kind, items []*encoded, version int64) []byte
	event(what string, e *encoded) []byte
	bookmark(k *kind, version int64, initialEnd bool) []byte
}

// encodingOf takes the first form of an Accept header that is spoken here.
func encodingOf(accept string) encoding {
	for _, part := range strings.Split(accept, ",") {
		form, _, _ := strings.Cut(strings.TrimSpace(part), ";")
		switch form {
		case protobufType:
			return protobuf{}
		case jsonType:
			return inJSON{}
		}
	}
	return inJSON{}
}

// bookmarkMeta is the metadata of a bookmark, all it has.
func bookmarkMeta(version int64, initialEnd bool) metav1.ObjectMeta {
	m := metav1.ObjectMeta{ResourceVersion: strconv.FormatInt(version, 10)}
	if initialEnd {
		m.Annotations = map[string]string{metav1.InitialEventsAnnotationKey: "true"}
	}
	return m
}

type inJSON struct{}

func (inJSON) contentType() string      { return jsonType }
func (inJSON) object(e *encoded) []byte { return e.json() }

func (inJSON) listOf(k *kind, items []*encoded, version int64) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, `{"kind":"%sList","apiVersion":%q,"metadata":{"resourceVersion":"%d"},"items":[`, k.name, k.apiVersion, version)
	for i, e := range items {
		if i > 0 {
			b.WriteByte(',')
		}
		b.Write(e.json())
	}
	b.WriteString("]}")
	return b.Bytes()
}

func (inJSON) event(what string, e *encoded) []byte { return jsonEvent(what, e.json()) }

func jsonEvent(what string, obj []byte) []byte {
	return fmt.Appendf(nil, `{"type":%q,"object":%s}`+"\n", what, obj)
}

func (inJSON) bookmark(k *kind, version int64, initialEnd bool) []byte {
	text, err := json.Marshal(metav1.PartialObjectMetadata{ObjectMeta: bookmarkMeta(version, initialEnd)})
	if err != nil {
		return nil
	}
	return jsonEvent("BOOKMARK", withType(k, k.name, text))
}

type protobuf struct{}

func (protobuf) contentType() string { return protobufType }

// wrap puts the kind around a message, which is no part of it.
func wrap(apiVersion, name string, raw []byte) []byte {
	u := runtime.Unknown{TypeMeta: runtime.TypeMeta{APIVersion: apiVersion, Kind: name}, Raw: raw}
	data, err := u.Marshal()
	if err != nil {
		return nil
	}
	return append([]byte(magic), data...)
}

func (protobuf) object(e *encoded) []byte { return e.wrapped }

// listOf writes the list message by hand: field 1 is the ListMeta, field 2 each item.
// Every list type of Kubernetes has this form.
func (protobuf) listOf(k *kind, items []*encoded, version int64) []byte {
	meta := metav1.ListMeta{ResourceVersion: strconv.FormatInt(version, 10)}
	head, err := meta.Marshal()
	if err != nil {
		return nil
	}
	var b []byte
	b = append(binary.AppendUvarint(append(b, 1<<3|2), uint64(len(head))), head...)
	for _, e := range items {
		b = append(binary.AppendUvarint(append(b, 2<<3|2), uint64(len(e.raw))), e.raw...)
	}
	return wrap(k.apiVersion, k.name+"List", b)
}

func (protobuf) event(what string, e *encoded) []byte { return frame(what, e.wrapped) }

// frame is a WatchEvent with its length before it.
func frame(what string, obj []byte) []byte {
	data, err := (&metav1.WatchEvent{Type: what, Object: runtime.RawExtension{Raw: obj}}).Marshal()
	if err != nil {
		return nil
	}
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(data))), data...)
}

// bookmark: in every kind the metadata is field 1, so this stands for any of them.
func (protobuf) bookmark(k *kind, version int64, initialEnd bool) []byte {
	raw, err := (&metav1.PartialObjectMetadata{ObjectMeta: bookmarkMeta(version, initialEnd)}).Marshal()
	if err != nil {
		return nil
	}
	return frame("BOOKMARK", wrap(k.apiVersion, k.name, raw))
}
