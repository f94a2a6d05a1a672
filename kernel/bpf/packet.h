/* Packets: reading them, and giving them another tuple with all checksums right. */
#ifndef FAIRWAY_PACKET_H
#define FAIRWAY_PACKET_H

#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/tcp.h>
#include <linux/udp.h>

#include "choose.h"

#define TC_PASS -1 /* TC_ACT_UNSPEC: on to the next filter, and then into the kernel */
#define TC_DROP 2  /* TC_ACT_SHOT */

#ifndef BPF_F_IPV6
#define BPF_F_IPV6 (1ULL << 7) /* since Linux 6.16: no IP checksum evens the sum out */
#endif

#define ICMP_DEST_UNREACH 3
#define ICMP_PORT_UNREACH 3

#define TCP_FIN 1
#define TCP_SYN 2
#define TCP_RST 4
#define TCP_ACK 16

struct pkt {
	struct tuple t;
	__u32 l3, l4; /* offsets */
	__u8 v6, tcp_flags;
	__u8 first; /* no headers lie between IP and transport */
	__u8 piece; /* of a datagram in fragments */
	__u32 icmp; /* where an ICMP error is: t is the reply to the packet it tells of */
	__u32 id;   /* of the datagram */
};

enum {
	PIECE_FIRST = 1, /* the one with the ports */
	PIECE_LATER = 2,
};

inline_ void load_v6(struct addr *a, const struct in6_addr *from)
{
	__builtin_memcpy(a, from, 16);
}

inline_ int read_ports(struct __sk_buff *skb, struct pkt *p, __u32 at)
{
	__be16 ports[2];

	if (p->t.proto != IPPROTO_TCP && p->t.proto != IPPROTO_UDP)
		return -1;
	if (bpf_skb_load_bytes(skb, at, ports, 4))
		return -1;
	p->t.sport = ports[0];
	p->t.dport = ports[1];
	p->l4 = at;
	return 0;
}

inline_ int take_v4(struct pkt *p, const struct iphdr *ip, __u32 at)
{
	if (ip->frag_off & bpf_htons(0x1fff))
		p->piece = PIECE_LATER;
	else if (ip->frag_off & bpf_htons(0x2000))
		p->piece = PIECE_FIRST;
	p->id = ip->id;
	map_v4(&p->t.src, ip->saddr);
	map_v4(&p->t.dst, ip->daddr);
	p->t.proto = ip->protocol;
	p->l4 = at + ip->ihl * 4;
	p->first = ip->ihl == 5;
	return 0;
}

inline_ int take_v6(struct __sk_buff *skb, struct pkt *p, const struct ipv6hdr *ip, __u32 at)
{
	__u8 next = ip->nexthdr, opt[4];
	__u32 id;

	load_v6(&p->t.src, &ip->saddr);
	load_v6(&p->t.dst, &ip->daddr);
	at += sizeof(*ip);
	p->first = 1;
	for (int i = 0; i < 4; i++) {
		if (next != 0 && next != 43 && next != 60 && next != 44)
			break;
		if (bpf_skb_load_bytes(skb, at, opt, 4))
			return -1;
		if (next == 44) {
			if (bpf_skb_load_bytes(skb, at + 4, &id, 4))
				return -1;
			p->id = id;
			p->piece = (opt[2] << 8 | opt[3]) & 0xfff8 ? PIECE_LATER : PIECE_FIRST;
		}
		at += next == 44 ? 8 : (opt[1] + 1) * 8;
		next = opt[0];
		p->first = 0;
		if (p->piece == PIECE_LATER)
			break; /* what follows is the middle of something */
	}
	p->t.proto = next;
	p->l4 = at;
	return 0;
}

/* The IP header of a packet, 0 when there is none. */
inline_ void *header(struct __sk_buff *skb, __u32 l3, __u32 size)
{
	void *at = (void *)(long)skb->data + l3;

	if (at + size <= (void *)(long)skb->data_end)
		return at;
	if (bpf_skb_pull_data(skb, l3 + size))
		return 0;
	at = (void *)(long)skb->data + l3;
	return at + size <= (void *)(long)skb->data_end ? at : 0;
}

/* Reads the header of the packet an ICMP error carries. */
__noinline int read_inner(struct __sk_buff *skb, struct pkt *p, __u32 at)
{
	struct ipv6hdr v6;
	struct iphdr v4;

	if (!p)
		return -1;
	if (p->v6)
		return bpf_skb_load_bytes(skb, at, &v6, sizeof(v6)) ? -1 : take_v6(skb, p, &v6, at);
	return bpf_skb_load_bytes(skb, at, &v4, sizeof(v4)) ? -1 : take_v4(p, &v4, at);
}

/* An ICMP error is known by the packet it carries, seen from the other side. The outer
 * addresses are returned in outer. */
inline_ int read_error(struct __sk_buff *skb, struct pkt *p, struct tuple *outer, __u32 *inner)
{
	__u32 at = p->l4;
	struct addr a;
	__be16 port;
	__u8 type;

	if (p->piece == PIECE_LATER || p->t.proto != (p->v6 ? IPPROTO_ICMPV6 : IPPROTO_ICMP) ||
	    bpf_skb_load_bytes(skb, at, &type, 1))
		return -1;
	if (p->v6 ? type < 1 || type > 4 : type != 3 && type != 11 && type != 12)
		return -1;
	*outer = p->t;
	*inner = at + 8;
	if (read_inner(skb, p, at + 8) || p->piece == PIECE_LATER || read_ports(skb, p, p->l4))
		return -1;
	a = p->t.src;
	p->t.src = p->t.dst;
	p->t.dst = a;
	port = p->t.sport;
	p->t.sport = p->t.dport;
	p->t.dport = port;
	p->icmp = at;
	return 0;
}

/* Reads a packet's IP header. */
inline_ int read_packet(struct __sk_buff *skb, struct pkt *p, __u32 l3)
{
	void *ip;

	p->l3 = l3;
	if (skb->protocol == bpf_htons(ETH_P_IPV6)) {
		p->v6 = 1;
		ip = header(skb, l3, sizeof(struct ipv6hdr));
		return ip ? take_v6(skb, p, ip, l3) : -1;
	}
	if (skb->protocol != bpf_htons(ETH_P_IP))
		return -1;
	ip = header(skb, l3, sizeof(struct iphdr));
	return ip ? take_v4(p, ip, l3) : -1;
}

inline_ int read_transport(struct __sk_buff *skb, struct pkt *p)
{
	if (read_ports(skb, p, p->l4))
		return -1;
	if (p->t.proto == IPPROTO_TCP)
		return bpf_skb_load_bytes(skb, p->l4 + 13, &p->tcp_flags, 1);
	return 0;
}

/* What a fragment's datagram is known by. */
inline_ void piece_name(const struct pkt *p, struct piece_key *k)
{
	k->src = p->t.src;
	k->dst = p->t.dst;
	k->id = p->id;
	k->proto = p->t.proto;
	k->door = p->t.door;
}

/* Writes a pair of addresses at the IP header at; returns what checksums over them
 * change by. */
inline_ __s64 write_addrs(struct __sk_buff *skb, __u32 at, int v6, struct addr *old, struct addr *new)
{
	__u32 from[2] = {old[0].w[3], old[1].w[3]}, to[2] = {new[0].w[3], new[1].w[3]};
	__s64 diff;

	if (v6) {
		bpf_skb_store_bytes(skb, at + 8, new, 32, 0);
		return bpf_csum_diff((__be32 *)old, 32, (__be32 *)new, 32, 0);
	}
	diff = bpf_csum_diff(from, 8, to, 8, 0);
	bpf_skb_store_bytes(skb, at + 12, to, 8, 0);
	bpf_l3_csum_replace(skb, at + 10, 0, diff, 0);
	return diff;
}

inline_ void fix_sum(struct __sk_buff *skb, __u32 at, __s64 diff, __u64 flags, int v6)
{
	if (v6 && (flags & BPF_F_PSEUDO_HDR) && !bpf_l4_csum_replace(skb, at, 0, diff, flags | BPF_F_IPV6))
		return;
	bpf_l4_csum_replace(skb, at, 0, diff, flags);
}

/* Says what the fragments after p are turned into, as p is by f. */
__noinline int keep_piece(struct pkt *p, struct flow *f)
{
	struct piece_key k = {};
	struct piece v = {};

	if (!p || !f)
		return -1;
	piece_name(p, &k);
	v.src = f->src;
	v.dst = f->dst;
	return bpf_map_update_elem(&pieces, &k, &v, BPF_ANY);
}

/* Turns a later fragment into what its first one was; tells whether that is known. The
 * sum of what it carries is in the first. */
__noinline int rewrite_piece(struct __sk_buff *skb, struct pkt *p)
{
	struct piece_key k = {};
	struct addr old[2], new[2];
	struct piece *v;

	if (!p)
		return 0;
	piece_name(p, &k);
	v = bpf_map_lookup_elem(&pieces, &k);
	if (!v)
		return 0;
	old[0] = k.src;
	old[1] = k.dst;
	new[0] = v->src;
	new[1] = v->dst;
	if (p->v6)
		bpf_skb_store_bytes(skb, p->l3 + 8, new, 32, BPF_F_RECOMPUTE_CSUM);
	else
		write_addrs(skb, p->l3, 0, old, new);
	return 1;
}

/* Gives the packet the tuple of f. */
__noinline int rewrite(struct __sk_buff *skb, struct pkt *p, struct flow *f)
{
	struct addr old[2], new[2];
	__u32 from, to, sum;
	__u64 flags = 0;
	__s64 diff;

	if (!p || !f)
		return -1;
	if (p->piece)
		keep_piece(p, f);
	old[0] = p->t.src;
	old[1] = p->t.dst;
	new[0] = f->src;
	new[1] = f->dst;
	from = p->t.sport | (__u32)p->t.dport << 16;
	to = f->sport | (__u32)f->dport << 16;
	sum = p->l4 + 16;
	if (p->t.proto == IPPROTO_UDP) {
		sum = p->l4 + 6;
		flags = BPF_F_MARK_MANGLED_0;
	}
	diff = write_addrs(skb, p->l3, p->v6, old, new);
	fix_sum(skb, sum, diff, flags | BPF_F_PSEUDO_HDR, p->v6);
	if (from != to) {
		diff = bpf_csum_diff(&from, 4, &to, 4, 0);
		bpf_skb_store_bytes(skb, p->l4, &to, 4, 0);
		fix_sum(skb, sum, diff, flags, p->v6);
	}
	return 0;
}

/* Gives the packet an ICMP error tells of, and the error itself, the tuple its sender
 * would know: f is what the reply to that packet is turned into. */
__noinline int rewrite_error(struct __sk_buff *skb, struct pkt *p, struct flow *f, struct tuple *outer, __u32 inner)
{
	struct addr old[2], new[2], was[2];
	__u32 from, to, sum;
	__s64 diff, ports;

	if (!p || !f || !outer)
		return -1;
	sum = p->icmp + 2;
	old[0] = p->t.dst;
	old[1] = p->t.src;
	new[0] = f->dst;
	new[1] = f->src;
	from = p->t.dport | (__u32)p->t.sport << 16;
	to = f->dport | (__u32)f->sport << 16;
	ports = bpf_csum_diff(&from, 4, &to, 4, 0);
	bpf_skb_store_bytes(skb, p->l4, &to, 4, 0);
	fix_sum(skb, sum, ports, 0, p->v6);
	diff = write_addrs(skb, inner, p->v6, old, new);
	if (p->v6)
		fix_sum(skb, sum, diff, 0, 1);
	was[0] = outer->src;
	was[1] = outer->dst;
	if (same(&outer->dst, &old[0]))
		outer->dst = new[0];
	if (same(&outer->src, &old[1]))
		outer->src = new[1];
	new[0] = outer->src;
	new[1] = outer->dst;
	diff = write_addrs(skb, p->l3, p->v6, was, new);
	if (p->v6)
		fix_sum(skb, sum, diff, BPF_F_PSEUDO_HDR, 1);
	return 0;
}

#endif
