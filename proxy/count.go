package proxy

// Count is what went through one ServicePort since some start that a backend chooses: it
// may begin at zero again (rules were rewritten, a process started anew), and never goes
// back otherwise.
type Count struct {
	Key
	// Connections is the number of flows begun, those refused or dropped not counted.
	Connections uint64
	// Measured tells whether the bytes are known: rules for the first packet of a flow
	// see no more of it.
	Measured bool
	// BytesIn went from clients to endpoints, BytesOut back: payload where this program
	// copies it, IP packets where the kernel counts them.
	BytesIn, BytesOut uint64
}
