/* From a destination to a decision, and from a pool to an endpoint. */
#ifndef FAIRWAY_CHOOSE_H
#define FAIRWAY_CHOOSE_H

#include "maps.h"

enum action {
	PASS,
	FORWARD,
	REJECT,
	DROP,
};

inline_ __u32 now(void)
{
	return bpf_ktime_get_boot_ns() / 1000000000ull;
}

inline_ int same(const struct addr *a, const struct addr *b)
{
	return a->w[3] == b->w[3] && a->w[2] == b->w[2] && a->w[1] == b->w[1] && a->w[0] == b->w[0];
}

inline_ int is_v4(const struct addr *a)
{
	return a->w[0] == 0 && a->w[1] == 0 && a->w[2] == MAPPED;
}

inline_ void map_v4(struct addr *a, __u32 v4)
{
	a->w[0] = 0;
	a->w[1] = 0;
	a->w[2] = MAPPED;
	a->w[3] = v4;
}

inline_ int is_zero(const struct addr *a)
{
	return !(a->w[0] | a->w[1] | a->w[2] | a->w[3]);
}

inline_ int within(const struct addr *a, const struct cidr *c)
{
	if (is_zero(&c->mask))
		return 0;
	for (int i = 0; i < 4; i++)
		if ((a->w[i] & c->mask.w[i]) != c->addr.w[i])
			return 0;
	return 1;
}

inline_ const struct settings *get_settings(void)
{
	__u32 zero = 0;
	return bpf_map_lookup_elem(&settings, &zero);
}

inline_ __u32 mix(__u32 h, __u32 v)
{
	h ^= v * 0xcc9e2d51;
	h = (h << 13) | (h >> 19);
	return h * 5 + 0xe6546b64;
}

/* The same for the same flow on every node: no seed. */
inline_ __u32 hash_client(const struct addr *src)
{
	__u32 h = 0x9747b28c;
	for (int i = 0; i < 4; i++)
		h = mix(h, src->w[i]);
	h ^= h >> 16;
	h *= 0x85ebca6b;
	return h ^ (h >> 13);
}

inline_ __u32 hash_flow(const struct tuple *t)
{
	__u32 h = 0x1b873593;
	for (int i = 0; i < 4; i++) {
		h = mix(h, t->src.w[i]);
		h = mix(h, t->dst.w[i]);
	}
	h = mix(h, ((__u32)t->sport << 16) | t->dport);
	h = mix(h, t->proto);
	h ^= h >> 16;
	h *= 0x85ebca6b;
	return h ^ (h >> 13);
}

inline_ int same_endpoint(const struct endpoint *a, const struct endpoint *b)
{
	return a->port == b->port && same(&a->addr, &b->addr);
}

/* How many chunks are looked through for an endpoint. Beyond, it is taken to be there. */
#define LOOK 16

__noinline int is_member(__u64 id, const struct endpoint *ep)
{
	struct pool_key k = {.id = id};
	const struct pool *p;
	__u32 chunks = 1;

	if (!ep)
		return 0;
	for (__u32 c = 0; c < LOOK; c++) {
		if (c >= chunks)
			return 0;
		k.chunk = c;
		p = bpf_map_lookup_elem(&pools, &k);
		if (!p)
			return 0;
		if (c == 0)
			chunks = (p->count + CHUNK - 1) / CHUNK;
		for (int i = 0; i < CHUNK; i++)
			if (same_endpoint(&p->ep[i], ep))
				return 1;
	}
	return 1;
}

/* What choose is asked, and its answer. */
struct pick {
	__u64 pool, service;
	__u32 affinity;
	__u32 hash;
	__u32 by_hash; /* by the table rather than at random */
	__u32 zero;
	struct addr client;
	struct endpoint ep;
};

inline_ __u32 table_index(__u64 id, __u32 slots, __u32 hash)
{
	__u32 at = hash % slots;
	struct pool_key k = {.id = id, .chunk = at / TABLE};
	const struct table *t = bpf_map_lookup_elem(&tables, &k);
	return t ? t->slot[at & (TABLE - 1)] : hash;
}

/* One try: an element that is reused while it is read holds another pool's endpoints. */
inline_ int choose_once(struct pick *pk)
{
	struct pool_key k = {.id = pk->pool};
	const struct pool *p = bpf_map_lookup_elem(&pools, &k), *q;
	__u32 n, i;

	if (!p)
		return -1;
	n = p->count;
	if (!n)
		return -1;
	i = pk->by_hash ? pk->hash : bpf_get_prandom_u32();
	if (pk->by_hash && p->slots)
		i = table_index(pk->pool, p->slots, pk->hash);
	i %= n;
	if (i >= CHUNK) {
		k.chunk = i / CHUNK;
		q = bpf_map_lookup_elem(&pools, &k);
		if (q)
			p = q;
	}
	i &= CHUNK - 1;
	pk->ep = p->ep[i];
	if (!pk->ep.port)
		pk->ep = p->ep[0];
	return p->id == pk->pool && pk->ep.port ? 0 : -1;
}

__noinline int choose(struct pick *pk)
{
	struct client_key k = {};
	struct client fresh = {};
	struct client *known = 0;

	if (!pk || !pk->pool)
		return -1;
	if (pk->affinity) {
		k.service = pk->service;
		k.addr = pk->client;
		known = bpf_map_lookup_elem(&clients, &k);
		if (known && now() - known->seen <= pk->affinity) {
			pk->ep = known->ep;
			if (is_member(pk->pool, &pk->ep)) {
				known->seen = now();
				return 0;
			}
		}
	}
	if (choose_once(pk) && choose_once(pk) && choose_once(pk))
		return -1;
	if (pk->affinity) {
		fresh.ep = pk->ep;
		fresh.seen = now();
		bpf_map_update_elem(&clients, &k, &fresh, BPF_ANY);
	}
	return 0;
}

inline_ void count_connection(__u64 service)
{
	struct count *c = bpf_map_lookup_elem(&counts, &service), one = {.connections = 1};
	if (c)
		c->connections++;
	else
		bpf_map_update_elem(&counts, &service, &one, BPF_NOEXIST);
}

inline_ int node_flags(const struct addr *a)
{
	struct addr k = *a; /* keys on the stack: Linux 6.1 takes no others */
	__u32 *f = bpf_map_lookup_elem(&node_addrs, &k);

	return f ? *f : 0;
}

/* The frontend a destination belongs to: the address's own, else a node port. */
inline_ const struct frontend *find_frontend(const struct addr *dst, __be16 port, __u8 proto)
{
	struct frontend_key k = {.addr = *dst, .port = port, .proto = proto};
	const struct frontend *f = bpf_map_lookup_elem(&frontends, &k);

	if (f || !(node_flags(dst) & NODE_PORTS))
		return f;
	k.addr = (struct addr){};
	if (is_v4(dst))
		k.addr.w[2] = MAPPED;
	return bpf_map_lookup_elem(&frontends, &k);
}

inline_ int in_service_cidr(const struct settings *s, const struct addr *dst)
{
	for (__u32 i = 0; i < SERVICE_CIDRS; i++) {
		if (i >= s->service_cidrs)
			break;
		if (within(dst, &s->services[i]))
			return 1;
	}
	return 0;
}

/* What becomes of a destination that is no frontend. */
inline_ enum action unknown(const struct settings *s, const struct addr *dst)
{
	struct addr k = *dst;

	if (!(s->flags & SET_REJECT_UNKNOWN))
		return PASS;
	if (bpf_map_lookup_elem(&vips, &k))
		return REJECT;
	return in_service_cidr(s, dst) ? DROP : PASS;
}

inline_ int in_ranges(__u64 service, const struct addr *src)
{
	struct range_key k = {.bits = 64 + 128, .addr = *src};

	k.service[0] = service >> 32;
	k.service[1] = service;
	k.service[0] = bpf_htonl(k.service[0]);
	k.service[1] = bpf_htonl(k.service[1]);
	return bpf_map_lookup_elem(&ranges, &k) != 0;
}

#endif
