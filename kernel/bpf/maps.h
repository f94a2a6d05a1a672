/* The maps. Sizes are those of a big node; a smaller one may be asked for at load. Maps
 * of the first group are written by the program and only read here; those of the second
 * are learned. */
#ifndef FAIRWAY_MAPS_H
#define FAIRWAY_MAPS_H

#include "layout.h"

#define WRITTEN(NAME, TYPE, KEY, VALUE, MAX)                                                                           \
	struct {                                                                                                       \
		__uint(type, TYPE);                                                                                    \
		__type(key, KEY);                                                                                      \
		__type(value, VALUE);                                                                                  \
		__uint(max_entries, MAX);                                                                              \
		__uint(map_flags, BPF_F_NO_PREALLOC);                                                                  \
		__uint(pinning, LIBBPF_PIN_BY_NAME);                                                                   \
	} NAME SEC(".maps")

#define LEARNED(NAME, KEY, VALUE, MAX)                                                                                 \
	struct {                                                                                                       \
		__uint(type, BPF_MAP_TYPE_LRU_HASH);                                                                   \
		__type(key, KEY);                                                                                      \
		__type(value, VALUE);                                                                                  \
		__uint(max_entries, MAX);                                                                              \
		__uint(pinning, LIBBPF_PIN_BY_NAME);                                                                   \
	} NAME SEC(".maps")

WRITTEN(frontends, BPF_MAP_TYPE_HASH, struct frontend_key, struct frontend, 262144);
WRITTEN(pools, BPF_MAP_TYPE_HASH, struct pool_key, struct pool, 262144);
WRITTEN(tables, BPF_MAP_TYPE_HASH, struct pool_key, struct table, 65536);
WRITTEN(ranges, BPF_MAP_TYPE_LPM_TRIE, struct range_key, __u32, 65536);
WRITTEN(fronts, BPF_MAP_TYPE_HASH, struct addr, __u32, 131072);
WRITTEN(vips, BPF_MAP_TYPE_HASH, struct addr, __u32, 131072);
WRITTEN(node_addrs, BPF_MAP_TYPE_HASH, struct addr, __u32, 4096);
WRITTEN(nics, BPF_MAP_TYPE_HASH, __u32, struct nic, 16384);

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__type(key, __u32);
	__type(value, struct settings);
	__uint(max_entries, 1);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
} settings SEC(".maps");

/* Until when (seconds since boot) some flow may pass whose ends hash to the place: most
 * packets are told by one look that there is none. 0 is never. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__type(key, __u32);
	__type(value, __u32);
	__uint(max_entries, RECENT);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
} recent SEC(".maps");

/* When (seconds since boot) flows began to be remembered: who talks in the midst of a
 * connection may have begun it before. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__type(key, __u32);
	__type(value, __u32);
	__uint(max_entries, 1);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
} began SEC(".maps");

LEARNED(flows, struct tuple, struct flow, 262144);
LEARNED(clients, struct client_key, struct client, 131072);
LEARNED(talks, struct talk_key, struct talk, 65536);
LEARNED(pieces, struct piece_key, struct piece, 8192);

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_HASH);
	__type(key, __u64);
	__type(value, struct count);
	__uint(max_entries, 131072);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
} counts SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__type(key, int);
	__type(value, struct peer);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
} peers SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__type(key, __u32);
	__type(value, struct name);
	__uint(max_entries, NAMES);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
} names SEC(".maps");

/* The cookie of the node's network namespace: its own sockets are told from pods' by it. */
const volatile __u64 node_netns = 0;

#endif
