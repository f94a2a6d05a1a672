/* Sockets of this node are led to the endpoint when they connect or send, so that nothing
 * is translated on the way. Two kinds of traffic are left to the doors of the node (see
 * tc.h): datagrams of pods, for a connected UDP socket cannot be led elsewhere once its
 * endpoint is gone; and pods' connections to addresses with source ranges, for the
 * address a socket will have is not known when it connects. */
#ifndef FAIRWAY_SOCKET_H
#define FAIRWAY_SOCKET_H

#include <linux/in.h>

#include "choose.h"

#define EPERM 1
#define ECONNREFUSED 111

/* How long an unconnected UDP socket keeps its endpoint after its last datagram. */
#define TALK_IDLE 120

struct call {
	struct addr dst, src; /* src is zero while the socket has none */
	__be16 port;
	__u8 proto;
	__u8 node; /* a socket of the node itself */
	struct endpoint to;
};

/* Whoever has no address yet is known by its network namespace (100::/64 is nobody's). */
inline_ void name_client(struct bpf_sock_addr *ctx, struct call *c, struct addr *client)
{
	__u64 cookie;

	*client = c->src;
	if (!is_zero(&c->src) && !(is_v4(&c->src) && !c->src.w[3]))
		return;
	cookie = bpf_get_netns_cookie(ctx);
	client->w[0] = bpf_htonl(0x01000000);
	client->w[1] = 0;
	client->w[2] = cookie >> 32;
	client->w[3] = cookie;
}

inline_ enum action admit(const struct frontend *f, struct call *c)
{
	int known = !is_zero(&c->src) && !(is_v4(&c->src) && !c->src.w[3]);

	if (!(f->flags & FE_RESTRICTED))
		return FORWARD;
	if (!c->node)
		return PASS;
	if (!known)
		return f->flags & FE_ADMIT_NODE ? FORWARD : DROP;
	if (in_ranges(f->service, &c->src))
		return FORWARD;
	return f->flags & FE_ADMIT_SELF && same(&c->src, &c->dst) ? FORWARD : DROP;
}

inline_ enum action settle(struct bpf_sock_addr *ctx, struct call *c, const struct frontend *f, struct talk *kept)
{
	struct pick pk = {.pool = f->near, .service = f->service, .affinity = f->affinity};

	if (!pk.pool)
		return DROP;
	if (kept && now() - kept->seen <= TALK_IDLE && is_member(pk.pool, &kept->ep)) {
		kept->seen = now();
		c->to = kept->ep;
		return FORWARD;
	}
	name_client(ctx, c, &pk.client);
	if (f->flags & FE_BY_CLIENT) {
		pk.by_hash = 1;
		pk.hash = hash_client(&pk.client);
	}
	if (choose(&pk))
		return DROP;
	c->to = pk.ep;
	count_connection(pk.service);
	return FORWARD;
}

__noinline int decide_call(struct bpf_sock_addr *ctx, struct call *c, struct talk *kept)
{
	const struct settings *s = get_settings();
	const struct frontend *f;
	enum action a;

	if (!c || !s || s->flags & SET_IDLE)
		return PASS;
	f = find_frontend(&c->dst, c->port, c->proto);
	if (!f)
		return unknown(s, &c->dst);
	if (f->flags & FE_REJECT)
		return REJECT;
	a = admit(f, c);
	return a == FORWARD ? settle(ctx, c, f, kept) : a;
}

inline_ int refuse(enum action a)
{
	bpf_set_retval(a == REJECT ? -ECONNREFUSED : -EPERM);
	return 0;
}

/* Tells whether the socket layer has anything to do with the call. */
inline_ int ours(struct bpf_sock_addr *ctx, struct call *c)
{
	c->node = bpf_get_netns_cookie(ctx) == node_netns;
	c->proto = ctx->protocol;
	c->port = ctx->user_port;
	if (c->proto == IPPROTO_UDP)
		return c->node;
	return c->proto == IPPROTO_TCP;
}

inline_ struct name *name_of(__u64 socket)
{
	__u32 place = socket & (NAMES - 1);

	return bpf_map_lookup_elem(&names, &place);
}

inline_ void remember_peer(struct bpf_sock_addr *ctx, struct call *c)
{
	struct peer *p = 0, fresh = {};
	struct name *n;

	fresh.vip.addr = c->dst;
	fresh.vip.port = c->port;
	fresh.ep = c->to;
	if (c->proto == IPPROTO_TCP) {
		n = name_of(bpf_get_socket_cookie(ctx));
		if (n) {
			n->socket = bpf_get_socket_cookie(ctx);
			n->peer = fresh;
		}
		return;
	}
	if (ctx->sk)
		p = bpf_sk_storage_get(&peers, ctx->sk, &fresh, BPF_SK_STORAGE_GET_F_CREATE);
	if (p)
		*p = fresh; /* it may connect again */
}

inline_ int on_connect(struct bpf_sock_addr *ctx, struct call *c)
{
	enum action a = decide_call(ctx, c, 0);

	if (a == FORWARD)
		remember_peer(ctx, c);
	return a;
}

inline_ int on_send(struct bpf_sock_addr *ctx, struct call *c)
{
	struct talk_key k = {.socket = bpf_get_socket_cookie(ctx), .addr = c->dst, .port = c->port};
	struct talk *kept = bpf_map_lookup_elem(&talks, &k), fresh = {};
	enum action a = decide_call(ctx, c, kept);

	if (a != FORWARD)
		return a;
	if (kept && same_endpoint(&kept->ep, &c->to))
		return a;
	fresh.seen = now();
	fresh.ep = c->to;
	bpf_map_update_elem(&talks, &k, &fresh, BPF_ANY);
	fresh.ep.addr = k.addr;
	fresh.ep.port = k.port;
	k.addr = c->to.addr;
	k.port = c->to.port;
	k.reply = 1;
	bpf_map_update_elem(&talks, &k, &fresh, BPF_ANY);
	return a;
}

/* The frontend a socket believes to talk to, when it in truth talks to c->dst. */
inline_ int believed(struct bpf_sock_addr *ctx, struct call *c)
{
	struct talk_key k = {};
	struct endpoint seen = {.addr = c->dst, .port = c->port};
	struct peer *p = 0;
	struct talk *t;
	struct name *n;

	k.socket = bpf_get_socket_cookie(ctx);
	if (ctx->protocol == IPPROTO_TCP) {
		n = name_of(k.socket);
		if (!n || n->socket != k.socket || !same_endpoint(&n->peer.ep, &seen))
			return 0;
		c->to = n->peer.vip;
		return 1;
	}
	if (ctx->sk)
		p = bpf_sk_storage_get(&peers, ctx->sk, 0, 0);
	if (p && same_endpoint(&p->ep, &seen)) {
		c->to = p->vip;
		return 1;
	}
	k.addr = seen.addr;
	k.port = seen.port;
	k.reply = 1;
	t = bpf_map_lookup_elem(&talks, &k);
	if (!t)
		return 0;
	c->to = t->ep;
	return 1;
}

inline_ void dst4(struct bpf_sock_addr *ctx, struct call *c)
{
	map_v4(&c->dst, ctx->user_ip4);
}

inline_ void dst6(struct bpf_sock_addr *ctx, struct call *c)
{
	c->dst.w[0] = ctx->user_ip6[0];
	c->dst.w[1] = ctx->user_ip6[1];
	c->dst.w[2] = ctx->user_ip6[2];
	c->dst.w[3] = ctx->user_ip6[3];
}

inline_ void set4(struct bpf_sock_addr *ctx, struct call *c)
{
	ctx->user_ip4 = c->to.addr.w[3];
	ctx->user_port = c->to.port;
}

inline_ void set6(struct bpf_sock_addr *ctx, struct call *c)
{
	ctx->user_ip6[0] = c->to.addr.w[0];
	ctx->user_ip6[1] = c->to.addr.w[1];
	ctx->user_ip6[2] = c->to.addr.w[2];
	ctx->user_ip6[3] = c->to.addr.w[3];
	ctx->user_port = c->to.port;
}

inline_ void bound4(struct bpf_sock_addr *ctx, struct call *c)
{
	struct bpf_sock *sk = ctx->sk;

	if (sk)
		map_v4(&c->src, sk->src_ip4);
}

inline_ void bound6(struct bpf_sock_addr *ctx, struct call *c)
{
	struct bpf_sock *sk = ctx->sk;

	if (!sk)
		return;
	c->src.w[0] = sk->src_ip6[0];
	c->src.w[1] = sk->src_ip6[1];
	c->src.w[2] = sk->src_ip6[2];
	c->src.w[3] = sk->src_ip6[3];
}

SEC("cgroup/connect4")
int fw_connect4(struct bpf_sock_addr *ctx)
{
	struct call c = {};
	enum action a;

	if (!ours(ctx, &c))
		return 1;
	dst4(ctx, &c);
	bound4(ctx, &c);
	a = on_connect(ctx, &c);
	if (a == FORWARD)
		set4(ctx, &c);
	return a == PASS || a == FORWARD ? 1 : refuse(a);
}

SEC("cgroup/connect6")
int fw_connect6(struct bpf_sock_addr *ctx)
{
	struct call c = {};
	enum action a;

	if (!ours(ctx, &c))
		return 1;
	dst6(ctx, &c);
	bound6(ctx, &c);
	a = on_connect(ctx, &c);
	if (a == FORWARD)
		set6(ctx, &c);
	return a == PASS || a == FORWARD ? 1 : refuse(a);
}

SEC("cgroup/sendmsg4")
int fw_sendmsg4(struct bpf_sock_addr *ctx)
{
	struct call c = {};
	enum action a;

	if (!ours(ctx, &c))
		return 1;
	dst4(ctx, &c);
	map_v4(&c.src, ctx->msg_src_ip4);
	a = on_send(ctx, &c);
	if (a == FORWARD)
		set4(ctx, &c);
	return a == PASS || a == FORWARD ? 1 : refuse(a);
}

SEC("cgroup/sendmsg6")
int fw_sendmsg6(struct bpf_sock_addr *ctx)
{
	struct call c = {};
	enum action a;

	if (!ours(ctx, &c))
		return 1;
	dst6(ctx, &c);
	c.src.w[0] = ctx->msg_src_ip6[0];
	c.src.w[1] = ctx->msg_src_ip6[1];
	c.src.w[2] = ctx->msg_src_ip6[2];
	c.src.w[3] = ctx->msg_src_ip6[3];
	a = on_send(ctx, &c);
	if (a == FORWARD)
		set6(ctx, &c);
	return a == PASS || a == FORWARD ? 1 : refuse(a);
}

inline_ int seen4(struct bpf_sock_addr *ctx)
{
	struct call c = {};

	dst4(ctx, &c);
	c.port = ctx->user_port;
	if (believed(ctx, &c))
		set4(ctx, &c);
	return 1;
}

inline_ int seen6(struct bpf_sock_addr *ctx)
{
	struct call c = {};

	dst6(ctx, &c);
	c.port = ctx->user_port;
	if (believed(ctx, &c))
		set6(ctx, &c);
	return 1;
}

SEC("cgroup/recvmsg4")
int fw_recvmsg4(struct bpf_sock_addr *ctx)
{
	return seen4(ctx);
}

SEC("cgroup/recvmsg6")
int fw_recvmsg6(struct bpf_sock_addr *ctx)
{
	return seen6(ctx);
}

SEC("cgroup/getpeername4")
int fw_peername4(struct bpf_sock_addr *ctx)
{
	return seen4(ctx);
}

SEC("cgroup/getpeername6")
int fw_peername6(struct bpf_sock_addr *ctx)
{
	return seen6(ctx);
}

#endif
