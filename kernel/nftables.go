package kernel

import (
	"errors"
	"fmt"
	"os"
	"time"

	"fairway/model"
	"fairway/proxy/nftables"

	nft "github.com/google/nftables"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// NFTables writes and reads the two tables of a name, fairway in its own mode, of one
// network namespace by netlink, without the nft program. Measured with the same layout,
// 10,000 Services of ten endpoints each: a first load takes 0.4 s by netlink and 1.2 s by
// nft, one more Service 0.5 ms and 7 to 12 ms; and versions of nft crash on tables that
// others have written, which only a person listing them risks here.
type NFTables struct {
	netns   int
	table   string
	limit   int
	commits uint32 // transactions the kernel took from here
	seen    sighting
	// writer stays open: when a socket closes, the kernel waits until what was deleted
	// is freed, some 20 ms during which nobody can write.
	writer *netlink.Conn
	buf    []byte // of the last transaction, to write the next into
}

const (
	// opsPerTransaction keeps a transaction under 1 MB, well below the 4 MB a socket
	// holds without privileges over the whole machine; the kernel takes about 10 ms for
	// it, and Services come into force as they are written.
	opsPerTransaction = 4000
	// elemsPerMessage keeps an attribute under its 64 KB.
	elemsPerMessage = 400
	socketBuffer    = 16 << 20
	answerTimeout   = 60 * time.Second
)

// NewNFTables works in the network namespace of the descriptor netns; 0 is the current
// one.
func NewNFTables(netns int) *NFTables { return NewNFTablesNamed(netns, nftables.TableName) }

// NewNFTablesNamed works on tables of another name, with the same layout.
func NewNFTablesNamed(netns int, table string) *NFTables {
	return &NFTables{netns: netns, table: table, limit: opsPerTransaction}
}

func (k *NFTables) conn() (*nft.Conn, error) {
	opts := []nft.ConnOption{nft.AsLasting(), nft.WithSockOptions(func(c *netlink.Conn) error {
		return c.SetDeadline(time.Now().Add(answerTimeout))
	})}
	if k.netns != 0 {
		opts = append(opts, nft.WithNetNSFd(k.netns))
	}
	c, err := nft.New(opts...)
	if err != nil {
		return nil, fmt.Errorf("nftables netlink socket: %w", err)
	}
	return c, nil
}

// Apply makes the Change, in its Steps when it is of ordinary size. A large one
// (a cold start) is cut into several that leave each Service whole, the API server's
// first. One that replaces a table of another shape is never cut: until the last part
// Services would be missing. After an error the kernel holds some of them: list it.
func (k *NFTables) Apply(change *nftables.Change) error {
	if !change.Small(k.limit) {
		if err := k.leave(); err != nil {
			return err
		}
	}
	defer func() { k.buf = nil }()
	return errors.Join(k.apply(change), k.rejoin())
}

func (k *NFTables) apply(change *nftables.Change) error {
	if change.Resets() {
		err := k.transaction(k.table, change.Whole().Ops)
		if !errors.Is(err, unix.EMSGSIZE) && !errors.Is(err, unix.ENOBUFS) {
			return err
		}
	}
	for part := range change.Chunks(k.limit, model.Name{Namespace: "default", Name: "kubernetes"}) {
		for _, step := range part.Steps() {
			if err := k.transaction(k.table, step.Ops); err != nil {
				return err
			}
		}
	}
	return nil
}

func (k *NFTables) transaction(table string, ops []nftables.Op) error {
	b, err := newRulesBatch(table, ops, k.buf)
	if err != nil {
		return err
	}
	if k.buf = nil; cap(b.b) < 2<<20 {
		k.buf = b.b
	}
	c, err := k.session()
	if err != nil {
		return err
	}
	if err := b.commit(c, ops); err != nil {
		k.close() // answers may be left in it
		return fmt.Errorf("nftables transaction of %d steps: %w", len(ops), err)
	}
	k.commits++
	return nil
}

// session is the socket to write by.
func (k *NFTables) session() (*netlink.Conn, error) {
	if k.writer == nil {
		c, err := k.dial()
		if err != nil {
			return nil, err
		}
		k.writer = c
		if err := k.remember(c); err != nil {
			return nil, err
		}
	}
	if err := k.writer.SetDeadline(time.Now().Add(answerTimeout)); err != nil {
		return nil, fmt.Errorf("nftables netlink socket: %w", err)
	}
	return k.writer, nil
}

func (k *NFTables) close() {
	if k.writer != nil {
		_ = k.writer.Close()
		k.writer = nil
	}
}

// Cleanup deletes both tables; that they are not there is no error.
func (k *NFTables) Cleanup() error {
	k.close()
	c, err := k.conn()
	if err != nil {
		return err
	}
	defer c.CloseLasting()
	var errs error
	for _, v6 := range []bool{false, true} {
		if err := deleteTable(c, k.tableOf(v6)); err != nil && !errors.Is(err, os.ErrNotExist) && !errors.Is(err, unix.EAFNOSUPPORT) {
			errs = errors.Join(errs, err)
		}
	}
	return errs
}

// deleteTable deletes the chains of the kernel's hooks first. While a table is deleted,
// packets meet rules whose sets are empty already, and where another mode serves them by
// now they would be refused.
func deleteTable(c *nft.Conn, t *nft.Table) error {
	chains, err := c.ListChainsOfTableFamily(t.Family)
	if err != nil {
		return fmt.Errorf("table %s: chains: %w", t.Name, err)
	}
	hooked := false
	for _, ch := range chains {
		if ch.Table.Name == t.Name && ch.Hooknum != nil {
			c.DelChain(ch)
			hooked = true
		}
	}
	if hooked {
		if err := c.Flush(); err != nil {
			return fmt.Errorf("table %s: chains: %w", t.Name, err)
		}
	}
	c.DelTable(t)
	if err := c.Flush(); err != nil {
		return fmt.Errorf("table %s: %w", t.Name, err)
	}
	return nil
}

func (k *NFTables) tableOf(v6 bool) *nft.Table {
	if v6 {
		return &nft.Table{Name: k.table, Family: nft.TableFamilyIPv6}
	}
	return &nft.Table{Name: k.table, Family: nft.TableFamilyIPv4}
}
