/* Answers to packets nobody serves: a reset, or an ICMP port unreachable, sent back the
 * way the packet came. What cannot be answered is dropped. */
#ifndef FAIRWAY_REJECT_H
#define FAIRWAY_REJECT_H

#include "packet.h"

inline_ __u16 fold(__s64 sum)
{
	__u64 s = (__u32)sum;

	s = (s & 0xffff) + (s >> 16);
	s = (s & 0xffff) + (s >> 16);
	return ~s;
}

inline_ int turn_mac(struct __sk_buff *skb, __u32 l3)
{
	__u8 mac[12], back[12];

	if (!l3)
		return 0;
	if (bpf_skb_load_bytes(skb, 0, mac, 12))
		return -1;
	__builtin_memcpy(back, mac + 6, 6);
	__builtin_memcpy(back + 6, mac, 6);
	return bpf_skb_store_bytes(skb, 0, back, 12, 0);
}

struct pseudo6 {
	struct addr src, dst;
	__be32 len, next;
};

struct pseudo4 {
	__be32 src, dst;
	__u8 zero, proto;
	__be16 len;
};

/* Writes an IP header from the packet's destination to its source. */
inline_ int write_ip(struct __sk_buff *skb, struct pkt *p, __u8 proto, __u16 len)
{
	struct iphdr v4 = {};
	struct ipv6hdr v6 = {};

	if (p->v6) {
		v6.version = 6;
		v6.payload_len = bpf_htons(len);
		v6.nexthdr = proto;
		v6.hop_limit = 64;
		__builtin_memcpy(&v6.saddr, &p->t.dst, 16);
		__builtin_memcpy(&v6.daddr, &p->t.src, 16);
		return bpf_skb_store_bytes(skb, p->l3, &v6, sizeof(v6), 0);
	}
	v4.version = 4;
	v4.ihl = 5;
	v4.tot_len = bpf_htons(len + sizeof(v4));
	v4.frag_off = bpf_htons(0x4000);
	v4.ttl = 64;
	v4.protocol = proto;
	v4.saddr = p->t.dst.w[3];
	v4.daddr = p->t.src.w[3];
	v4.check = fold(bpf_csum_diff(0, 0, (__be32 *)&v4, sizeof(v4), 0));
	return bpf_skb_store_bytes(skb, p->l3, &v4, sizeof(v4), 0);
}

inline_ __s64 pseudo_sum(struct pkt *p, __u8 proto, __u16 len)
{
	struct pseudo6 v6 = {.src = p->t.dst, .dst = p->t.src, .len = bpf_htonl(len), .next = bpf_htonl(proto)};
	struct pseudo4 v4 = {.src = p->t.dst.w[3], .dst = p->t.src.w[3], .proto = proto, .len = bpf_htons(len)};

	if (p->v6)
		return bpf_csum_diff(0, 0, (__be32 *)&v6, sizeof(v6), 0);
	return bpf_csum_diff(0, 0, (__be32 *)&v4, sizeof(v4), 0);
}

/* RFC 9293, 3.5.2: a reset takes its number from the acknowledgment, or acknowledges
 * what came. */
__noinline int send_reset(struct __sk_buff *skb, struct pkt *p)
{
	struct tcphdr in, out = {};
	__u32 data;

	if (!p || p->tcp_flags & TCP_RST || bpf_skb_load_bytes(skb, p->l4, &in, sizeof(in)))
		return TC_DROP;
	data = skb->len - p->l4 - in.doff * 4;
	out.source = in.dest;
	out.dest = in.source;
	out.doff = 5;
	out.rst = 1;
	if (in.ack) {
		out.seq = in.ack_seq;
	} else {
		out.ack = 1;
		out.ack_seq = bpf_htonl(bpf_ntohl(in.seq) + in.syn + in.fin + data);
	}
	if (bpf_skb_change_tail(skb, p->l4 + sizeof(out), 0))
		return TC_DROP;
	out.check = fold(bpf_csum_diff(0, 0, (__be32 *)&out, sizeof(out), pseudo_sum(p, IPPROTO_TCP, sizeof(out))));
	if (bpf_skb_store_bytes(skb, p->l4, &out, sizeof(out), 0) || write_ip(skb, p, IPPROTO_TCP, sizeof(out)) ||
	    turn_mac(skb, p->l3))
		return TC_DROP;
	return bpf_redirect(skb->ifindex, 0);
}

/* Sends the first bytes of the packet back: its IP header and the 8 bytes after it. */
__noinline int send_unreachable(struct __sk_buff *skb, struct pkt *p)
{
	struct {
		__u8 type, code;
		__u16 check;
		__u32 unused;
		__u8 packet[48];
	} icmp = {};
	__u32 kept, room;
	__s64 sum = 0;

	if (!p)
		return TC_DROP;
	if (p->v6) {
		if (bpf_skb_load_bytes(skb, p->l3, icmp.packet, 48))
			return TC_DROP;
		icmp.type = 1;
		icmp.code = 4;
		kept = 48;
		room = 48;
		sum = pseudo_sum(p, IPPROTO_ICMPV6, 56);
	} else {
		if (bpf_skb_load_bytes(skb, p->l3, icmp.packet, 28))
			return TC_DROP;
		icmp.type = ICMP_DEST_UNREACH;
		icmp.code = ICMP_PORT_UNREACH;
		kept = 28;
		room = 28;
	}
	/* What is not kept is zero, and adds nothing. */
	icmp.check = fold(bpf_csum_diff(0, 0, (__be32 *)&icmp, sizeof(icmp), sum));
	if (bpf_skb_change_tail(skb, p->l3 + kept, 0) || bpf_skb_adjust_room(skb, room, BPF_ADJ_ROOM_MAC, 0))
		return TC_DROP;
	if (p->v6) {
		if (bpf_skb_store_bytes(skb, p->l3 + 40, &icmp, 56, 0))
			return TC_DROP;
	} else if (bpf_skb_store_bytes(skb, p->l3 + 20, &icmp, 36, 0)) {
		return TC_DROP;
	}
	if (write_ip(skb, p, p->v6 ? IPPROTO_ICMPV6 : IPPROTO_ICMP, kept + 8) || turn_mac(skb, p->l3))
		return TC_DROP;
	return bpf_redirect(skb->ifindex, 0);
}

inline_ int send_refusal(struct __sk_buff *skb, struct pkt *p)
{
	if (!p->first)
		return TC_DROP;
	return p->t.proto == IPPROTO_TCP ? send_reset(skb, p) : send_unreachable(skb, p);
}

#endif
