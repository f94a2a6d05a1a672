package kernel

import (
	"encoding/binary"

	"golang.org/x/sys/unix"
)

// attrs builds netlink attributes in place; numbers are in network order as nfnetlink
// wants them.
type attrs struct{ b []byte }

// open begins an attribute and gives the place for close.
func (a *attrs) open(typ uint16) int {
	at := len(a.b)
	a.b = append(a.b, 0, 0, 0, 0)
	binary.NativeEndian.PutUint16(a.b[at+2:], typ)
	return at
}

// close ends the attribute begun at at, with padding to 4 bytes.
func (a *attrs) close(at int) {
	binary.NativeEndian.PutUint16(a.b[at:], uint16(len(a.b)-at))
	for len(a.b)%4 != 0 {
		a.b = append(a.b, 0)
	}
}

func (a *attrs) bytes(typ uint16, v []byte) {
	at := a.open(typ)
	a.b = append(a.b, v...)
	a.close(at)
}

// data writes raw bytes, str a string with its final zero.
func (a *attrs) data(typ uint16, v string) {
	at := a.open(typ)
	a.b = append(a.b, v...)
	a.close(at)
}

func (a *attrs) str(typ uint16, v string) {
	at := a.open(typ)
	a.b = append(append(a.b, v...), 0)
	a.close(at)
}

func (a *attrs) u32(typ uint16, v uint32) {
	at := a.open(typ)
	a.b = binary.BigEndian.AppendUint32(a.b, v)
	a.close(at)
}

func (a *attrs) nest(typ uint16, fill func()) {
	at := a.open(typ | unix.NLA_F_NESTED)
	fill()
	a.close(at)
}

// udata is nft's own encoding of what the kernel only stores for it (libnftnl udata):
// type, length and value, numbers in the machine's order.
type udata struct{ b []byte }

func (u *udata) u32(typ byte, v uint32) {
	u.b = binary.NativeEndian.AppendUint32(append(u.b, typ, 4), v)
}

func (u *udata) str(typ byte, v string) {
	u.b = append(append(append(u.b, typ, byte(len(v)+1)), v...), 0)
}

func (u *udata) nest(typ byte, fill func(*udata)) {
	var in udata
	fill(&in)
	u.b = append(append(u.b, typ, byte(len(in.b))), in.b...)
}
