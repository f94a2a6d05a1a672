/* The doors of the node: every packet that arrives on an interface or leaves by one. As
 * the kernel's own translation does, the destination changes when a packet arrives, so
 * that it is routed, and filtered, as what it is; the source changes when it leaves. For
 * a connection from c to the frontend V that goes to the endpoint e there are
 *
 *   in   c > V   becomes  c' > e     c' has another port when c's is taken
 *   out  e > c'  becomes  V > c
 *
 * and, when it is masqueraded as the node n,
 *
 *   out  c' > e  becomes  n > e      made when the first packet leaves, and then
 *   in   e > n   becomes  e > c'
 */
#ifndef FAIRWAY_TC_H
#define FAIRWAY_TC_H

#include "packet.h"
#include "reject.h"

#define UDP_IDLE 120	 /* seconds; nf_conntrack_udp_timeout_stream */
#define TCP_IDLE 86400	 /* nf_conntrack_tcp_timeout_established of kube-proxy */
#define TCP_CLOSED 60	 /* TCP_TIMEWAIT_LEN: an end may know a closed connection so long */
#define FIRST_PORT 61000 /* above the default ip_local_port_range */
#define PORTS (65536 - FIRST_PORT)
#define LOWER_PORT 16384 /* when those are taken: below it, and below most node ports */
#define LOWER_PORTS (30000 - LOWER_PORT)

/* The same place for both directions. */
inline_ __u32 *place(const struct tuple *t)
{
	__u32 h = mix(mix(0x3c6ef372, t->src.w[3] ^ t->dst.w[3]), t->sport ^ t->dport);

	h ^= h >> 16;
	h &= RECENT - 1;
	return bpf_map_lookup_elem(&recent, &h);
}

inline_ __u32 lasts(__u8 proto)
{
	return 2 * (proto == IPPROTO_TCP ? TCP_IDLE : UDP_IDLE);
}

/* Tells whether no flow passes that looks like t. */
inline_ int unseen(const struct tuple *t)
{
	__u32 *until = place(t);

	return !until || !*until || *until < now();
}

/* Says that a flow that looks like t passes, or goes on to. */
inline_ void passes(const struct tuple *t)
{
	__u32 *until = place(t), time = now();

	if (until && *until < time + lasts(t->proto) - lasts(t->proto) / 4)
		*until = time + lasts(t->proto);
}

inline_ int idle(const struct flow *f, __u8 proto)
{
	return now() - f->seen > (proto == IPPROTO_TCP ? TCP_IDLE : UDP_IDLE);
}

/* Tells whether the ends of a flow may be given to another connection. Not right after
 * it closed: an end in TIME_WAIT refuses a stranger, whose clock is not its peer's. */
inline_ int over(const struct flow *f, __u8 proto)
{
	return idle(f, proto) || (f->flags & FLOW_CLOSING && now() - f->seen > TCP_CLOSED);
}

inline_ void turned(struct tuple *back, const struct flow *f, __u8 proto, __u8 door)
{
	back->src = f->dst;
	back->dst = f->src;
	back->sport = f->dport;
	back->dport = f->sport;
	back->proto = proto;
	back->door = door;
}

/* A reset closes the other direction too, which may say nothing any more. */
__noinline int reset(struct pkt *p, struct flow *f)
{
	struct tuple t = {};
	struct flow *back;

	if (!p || !f)
		return 0;
	turned(&t, f, p->t.proto, p->t.door == IN ? OUT : IN);
	back = bpf_map_lookup_elem(&flows, &t);
	if (back)
		back->flags |= FLOW_CLOSING;
	return 0;
}

inline_ void touch(struct __sk_buff *skb, struct pkt *p, struct flow *f)
{
	struct count *c;
	__u32 t = now();

	if (f->seen != t) {
		f->seen = t;
		passes(&p->t);
	}
	if (p->tcp_flags & (TCP_FIN | TCP_RST))
		f->flags |= FLOW_CLOSING;
	if (p->tcp_flags & TCP_RST)
		reset(p, f);
	if (!f->service)
		return;
	c = bpf_map_lookup_elem(&counts, &f->service);
	if (!c)
		return;
	if (f->flags & FLOW_REPLY)
		c->bytes_out += skb->len - p->l3;
	else
		c->bytes_in += skb->len - p->l3;
}

inline_ int from_pod(struct __sk_buff *skb, const struct settings *s, struct pkt *p)
{
	__u32 ifindex = skb->ifindex;
	struct nic *n;

	if (!(s->flags & SET_BY_LINK))
		return within(&p->t.src, &s->pods[p->v6 & 1]);
	n = bpf_map_lookup_elem(&nics, &ifindex);
	return n && n->flags & NIC_POD;
}

/* Who may go where: pool 0 in pk is drop. */
__noinline int decide(struct __sk_buff *skb, struct pkt *p, struct pick *pk, int *masq)
{
	const struct settings *s = get_settings();
	const struct frontend *f;
	int pod;

	if (!p || !pk || !masq || !s || s->flags & SET_IDLE)
		return PASS;
	f = find_frontend(&p->t.dst, p->t.dport, p->t.proto);
	if (!f)
		return unknown(s, &p->t.dst);
	if (f->flags & FE_REJECT)
		return REJECT;
	if (f->flags & FE_RESTRICTED && !in_ranges(f->service, &p->t.src) &&
	    !(f->flags & FE_ADMIT_SELF && same(&p->t.src, &p->t.dst)))
		return DROP;
	pod = from_pod(skb, s, p);
	pk->pool = f->near;
	*masq = 0;
	if (f->flags & FE_INTERNAL) {
		*masq = s->flags & SET_MASQUERADE_ALL || (s->flags & (SET_DETECT << (p->v6 & 1)) && !pod);
	} else if (!(f->flags & FE_LOCAL)) {
		*masq = 1;
	} else if (!pod) {
		if (node_flags(&p->t.src) & NODE_LOCAL)
			*masq = 1;
		else
			pk->pool = f->far;
	}
	pk->service = f->service;
	pk->affinity = f->affinity;
	pk->client = p->t.src;
	pk->by_hash = 1;
	if (f->flags & FE_BY_CLIENT)
		pk->hash = hash_client(&p->t.src);
	else if (!(f->flags & FE_INTERNAL) && !pod)
		pk->hash = hash_flow(&p->t);
	else
		pk->by_hash = 0;
	return pk->pool ? FORWARD : DROP;
}

/* Remembers a new connection from p to the endpoint in pk; returns what its packets are
 * turned into in go. */
__noinline int begin(struct pkt *p, struct pick *pk, struct flow *go, int masq)
{
	struct flow back = {.flags = FLOW_REPLY}, *old;
	struct tuple t = {};
	int taken = 1;

	if (!p || !pk || !go)
		return -1;
	back.src = p->t.dst;
	back.dst = p->t.src;
	back.sport = p->t.dport;
	back.dport = p->t.sport;
	go->src = p->t.src;
	go->sport = p->t.sport;
	go->dst = pk->ep.addr;
	go->dport = pk->ep.port;
	go->flags = 0;
	go->zero = 0;
	go->service = back.service = pk->service;
	go->seen = back.seen = now();
	if (same(&go->src, &go->dst))
		masq = 1; /* the endpoint itself: it must not answer itself */
	for (int i = 0; i < 4 && taken; i++) {
		if (i)
			go->sport = bpf_htons(FIRST_PORT + bpf_get_prandom_u32() % PORTS);
		turned(&t, go, p->t.proto, OUT);
		old = bpf_map_lookup_elem(&flows, &t);
		taken = old && !over(old, p->t.proto) &&
			!(old->sport == back.sport && old->dport == back.dport && same(&old->src, &back.src));
		if (masq && go->sport == go->dport && same(&go->src, &go->dst))
			taken = 1;
	}
	passes(&t);
	if (bpf_map_update_elem(&flows, &t, &back, BPF_ANY))
		return -1;
	t = p->t;
	back = *go;
	passes(&t);
	if (bpf_map_update_elem(&flows, &t, &back, BPF_ANY))
		return -1;
	t.door = OUT;
	t.src = go->src;
	t.dst = go->dst;
	t.sport = go->sport;
	t.dport = go->dport;
	if (!masq) {
		bpf_map_delete_elem(&flows, &t);
		return 0;
	}
	back = *go;
	back.flags = FLOW_PENDING;
	back.service = 0;
	return bpf_map_update_elem(&flows, &t, &back, BPF_ANY);
}

/* Tells whether a packet goes on with a known flow. A new connection does only as long
 * as its endpoint is still one. */
__noinline int goes_on(struct __sk_buff *skb, struct pkt *p, struct flow *f)
{
	struct tuple t = {};
	struct flow *back;
	struct pick pk = {};
	int masq = 0;

	if (!p || !f)
		return 0;
	if (!f->service) /* a masqueraded reply */
		return 1;
	if (p->t.proto == IPPROTO_UDP) {
		if (!idle(f, IPPROTO_UDP))
			return 1;
		turned(&t, f, IPPROTO_UDP, OUT);
		back = bpf_map_lookup_elem(&flows, &t);
		return back && !idle(back, IPPROTO_UDP);
	}
	if (!(p->tcp_flags & TCP_SYN) || p->tcp_flags & TCP_ACK)
		return 1;
	if (f->flags & FLOW_CLOSING)
		return 0;
	pk.ep.addr = f->dst;
	pk.ep.port = f->dport;
	return decide(skb, p, &pk, &masq) == FORWARD && is_member(pk.pool, &pk.ep);
}

__noinline int arrive_error(struct __sk_buff *skb, struct pkt *p, __u32 door)
{
	struct tuple outer = {}, t;
	struct flow *f, copy;
	__u32 inner = 0;

	if (!p || read_error(skb, p, &outer, &inner))
		return TC_PASS;
	t = p->t;
	t.door = door;
	f = bpf_map_lookup_elem(&flows, &t);
	if (!f || f->flags & FLOW_PENDING)
		return TC_PASS;
	copy = *f;
	rewrite_error(skb, p, &copy, &outer, inner);
	return TC_PASS;
}

/* Most packets are nobody's business here: their destination is neither a frontend's
 * address nor the node's, and so they are not replies to the node either; and no TCP
 * connection looks like them that outlived its frontend. */
inline_ int concerns(const struct addr *dst)
{
	return bpf_map_lookup_elem(&fronts, dst) || bpf_map_lookup_elem(&node_addrs, dst);
}

inline_ int pass_by(const struct addr *dst)
{
	const struct settings *s = get_settings();
	struct addr k = *dst;

	/* the ranges first: most packets are in none, and need no look-up */
	if (!s || !(s->flags & SET_REJECT_UNKNOWN) || !in_service_cidr(s, dst))
		return TC_PASS;
	return bpf_map_lookup_elem(&vips, &k) ? TC_PASS : TC_DROP;
}

/* What the next two return besides the fates of tc. */
#define REFUSE 1000 /* an answer is due */
#define NEW 1001    /* no known flow */

/* A packet to a frontend or to the node, up to whose ports p is read, that belongs to a
 * known flow. */
__noinline int go_on(struct __sk_buff *skb, struct pkt *p)
{
	struct tuple t;
	struct flow *f;

	if (!p)
		return TC_PASS;
	t = p->t;
	f = bpf_map_lookup_elem(&flows, &t);
	if (!f)
		return NEW;
	if (!goes_on(skb, p, f)) {
		/* what follows is not of it either, even if nobody here serves it */
		bpf_map_delete_elem(&flows, &t);
		return NEW;
	}
	touch(skb, p, f);
	rewrite(skb, p, f);
	return TC_PASS;
}

/* One that belongs to none. */
__noinline int serve(struct __sk_buff *skb, struct pkt *p)
{
	struct pick pk = {};
	struct flow go = {};
	int masq = 0;

	if (!p)
		return TC_PASS;
	switch (decide(skb, p, &pk, &masq)) {
	case PASS:
		return TC_PASS;
	case REJECT:
		return REFUSE;
	case DROP:
		return TC_DROP;
	}
	if (choose(&pk) || begin(p, &pk, &go, masq))
		return TC_DROP;
	count_connection(pk.service);
	rewrite(skb, p, &go);
	return TC_PASS;
}

/* Tells a packet of a TCP connection that may be older than the table of flows: the mode
 * before this one may know it. */
inline_ int older(const struct pkt *p)
{
	__u32 zero = 0, *since;

	if (p->t.proto != IPPROTO_TCP || (p->tcp_flags & (TCP_SYN | TCP_ACK)) == TCP_SYN)
		return 0;
	since = bpf_map_lookup_elem(&began, &zero);
	return since && now() - *since < TCP_IDLE;
}

inline_ int arrive(struct __sk_buff *skb, __u32 l3)
{
	struct pkt p = {};
	int fate, known;

	if (read_packet(skb, &p, l3))
		return TC_PASS;
	if (p.t.proto == IPPROTO_ICMP || p.t.proto == IPPROTO_ICMPV6)
		return arrive_error(skb, &p, IN);
	if (p.t.proto != IPPROTO_TCP && p.t.proto != IPPROTO_UDP)
		return TC_PASS;
	known = concerns(&p.t.dst);
	if (p.piece == PIECE_LATER)
		return known && rewrite_piece(skb, &p) ? TC_PASS : pass_by(&p.t.dst);
	if (read_transport(skb, &p))
		return known ? TC_PASS : pass_by(&p.t.dst);
	if (!known && (p.t.proto != IPPROTO_TCP || unseen(&p.t)))
		return pass_by(&p.t.dst);
	fate = go_on(skb, &p);
	if (fate == NEW)
		fate = older(&p) ? TC_PASS : serve(skb, &p);
	return fate == REFUSE ? send_refusal(skb, &p) : fate;
}

/* Chooses the address and a free port a connection leaves the node with. */
__noinline int masquerade(struct __sk_buff *skb, struct pkt *p, struct flow *f)
{
	const struct settings *s = get_settings();
	__u32 ifindex = skb->ifindex, seed = bpf_get_prandom_u32(), port;
	struct flow reply = {.seen = now()}, *old;
	struct tuple t = {.door = IN};
	struct nic *n = bpf_map_lookup_elem(&nics, &ifindex);
	__u32 oldest = ~0u;
	__be16 spare = 0;
	int done = 0;

	if (!p || !f || !s)
		return -1;
	t.proto = p->t.proto;
	t.src = reply.src = p->t.dst;
	t.sport = reply.sport = p->t.dport;
	reply.dst = p->t.src;
	reply.dport = p->t.sport;
	t.dst = s->primary[p->v6 & 1];
	if (n && !is_zero(&n->masquerade[p->v6 & 1]))
		t.dst = n->masquerade[p->v6 & 1];
	if (is_zero(&t.dst))
		return -1;
	for (int i = 0; i < 16 && !done; i++) {
		port = i < 8 ? FIRST_PORT + (seed + i * 577) % PORTS : LOWER_PORT + (seed + i * 1733) % LOWER_PORTS;
		t.dport = bpf_htons(port);
		old = bpf_map_lookup_elem(&flows, &t);
		if (!old) {
			done = !bpf_map_update_elem(&flows, &t, &reply, BPF_NOEXIST);
		} else if (over(old, p->t.proto)) {
			done = !bpf_map_update_elem(&flows, &t, &reply, BPF_ANY);
		} else if (old->flags & FLOW_CLOSING && old->seen < oldest) {
			oldest = old->seen;
			spare = t.dport;
		}
	}
	if (!done && spare) { /* rather than none, the one closed first */
		t.dport = spare;
		done = !bpf_map_update_elem(&flows, &t, &reply, BPF_ANY);
	}
	if (!done)
		return -1;
	f->src = t.dst;
	f->sport = t.dport;
	asm volatile("" ::: "memory");
	f->flags &= ~FLOW_PENDING;
	return 0;
}

inline_ int leave(struct __sk_buff *skb, __u32 l3)
{
	struct pkt p = {};
	struct flow *f, go;

	if (read_packet(skb, &p, l3))
		return TC_PASS;
	if (p.t.proto == IPPROTO_ICMP || p.t.proto == IPPROTO_ICMPV6)
		return arrive_error(skb, &p, OUT);
	p.t.door = OUT;
	if (p.piece == PIECE_LATER) {
		rewrite_piece(skb, &p);
		return TC_PASS;
	}
	if (read_transport(skb, &p) || unseen(&p.t))
		return TC_PASS;
	f = bpf_map_lookup_elem(&flows, &p.t);
	if (!f)
		return TC_PASS;
	if (f->flags & FLOW_PENDING && masquerade(skb, &p, f))
		return TC_DROP;
	touch(skb, &p, f);
	go = *f;
	rewrite(skb, &p, &go);
	return TC_PASS;
}

SEC("tc")
int fw_arrive(struct __sk_buff *skb)
{
	return arrive(skb, ETH_HLEN);
}

SEC("tc")
int fw_leave(struct __sk_buff *skb)
{
	return leave(skb, ETH_HLEN);
}

/* On interfaces whose packets begin with the IP header. */
SEC("tc")
int fw_arrive_ip(struct __sk_buff *skb)
{
	return arrive(skb, 0);
}

SEC("tc")
int fw_leave_ip(struct __sk_buff *skb)
{
	return leave(skb, 0);
}

#endif
