package dns

import (
	"hash/maphash"
	"maps"
)

// shardCount keeps one shard of 100,000 keys at about 200, which copies in
// microseconds.
const shardCount = 512

// index is an immutable map in shards: a changed one shares every shard that no
// changed key falls into with the one before it.
type index[K comparable, V any] struct {
	seed   maphash.Seed
	shards []map[K]V
}

func newIndex[K comparable, V any]() *index[K, V] {
	return &index[K, V]{seed: maphash.MakeSeed(), shards: make([]map[K]V, shardCount)}
}

func (x *index[K, V]) shard(k K) int { return int(maphash.Comparable(x.seed, k) % shardCount) }

func (x *index[K, V]) get(k K) (V, bool) {
	v, ok := x.shards[x.shard(k)][k]
	return v, ok
}

// edit starts a changed copy.
func (x *index[K, V]) edit() *indexEdit[K, V] {
	out := &index[K, V]{seed: x.seed, shards: make([]map[K]V, shardCount)}
	copy(out.shards, x.shards)
	return &indexEdit[K, V]{out: out}
}

// indexEdit owns the shards it has cloned, and out until it is handed on.
type indexEdit[K comparable, V any] struct {
	out   *index[K, V]
	owned [shardCount]bool
}

func (e *indexEdit[K, V]) own(k K) map[K]V {
	i := e.out.shard(k)
	if !e.owned[i] {
		e.owned[i] = true
		e.out.shards[i] = maps.Clone(e.out.shards[i])
		if e.out.shards[i] == nil {
			e.out.shards[i] = map[K]V{}
		}
	}
	return e.out.shards[i]
}

func (e *indexEdit[K, V]) set(k K, v V) { e.own(k)[k] = v }

func (e *indexEdit[K, V]) remove(k K) {
	if _, ok := e.out.get(k); ok {
		delete(e.own(k), k)
	}
}
