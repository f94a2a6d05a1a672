/* What the maps hold. The Go side of these structures is fairway/proxy/ebpf, file
 * layout.go; a test compares the sizes. Addresses are 16 bytes in network order, IPv4 as
 * ::ffff:a.b.c.d, so that one set of maps and one set of functions serve both families.
 */
#ifndef FAIRWAY_LAYOUT_H
#define FAIRWAY_LAYOUT_H

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_endian.h>

#define inline_ static __always_inline

struct addr {
	__u32 w[4];
};

#define MAPPED bpf_htonl(0xffff) /* w[2] of an IPv4 address */

/* A frontend is an address, port and protocol clients send to; the address is zero for a
 * node port (mapped zero for IPv4). */
struct frontend_key {
	struct addr addr;
	__be16 port;
	__u8 proto;
	__u8 zero;
};

struct frontend {
	__u64 service; /* the Service port, for counters, clients and ranges */
	__u64 near;    /* the pool of clients on this node, 0: drop */
	__u64 far;     /* the pool of everybody else, 0: drop */
	__u32 affinity; /* seconds a client stays with its endpoint, 0: none */
	__u32 flags;
};

enum {
	FE_REJECT = 1,      /* no endpoint anywhere */
	FE_INTERNAL = 2,    /* a cluster address */
	FE_LOCAL = 4,       /* externalTrafficPolicy Local: sources are kept */
	FE_RESTRICTED = 8,  /* only sources in ranges */
	FE_ADMIT_SELF = 16, /* ... and the frontend's own address */
	FE_ADMIT_NODE = 32, /* ... and the node's primary address */
	FE_BY_CLIENT = 64,  /* the client's address alone decides */
};

#define CHUNK 16

/* A pool is a list of endpoints in chunks of 16; the first one has the number of all. */
struct pool_key {
	__u64 id;
	__u32 chunk;
	__u32 zero;
};

struct endpoint {
	struct addr addr;
	__be16 port;
	__u16 zero;
};

struct pool {
	__u64 id; /* again: tells a reader of an element that was reused under it */
	__u32 count;
	__u32 slots; /* size of the Maglev table, 0: none */
	struct endpoint ep[CHUNK];
};

#define TABLE 1024

/* A Maglev table in parts, found as pools are: indexes into the pool. */
struct table {
	__u16 slot[TABLE];
};

struct range_key {
	__u32 bits; /* 64 for the service, and the prefix length of a mapped address */
	__u32 service[2];
	struct addr addr;
};

enum {
	NODE_LOCAL = 1, /* an address of this node */
	NODE_PORTS = 2, /* node ports answer here */
};

struct cidr {
	struct addr addr, mask;
};

#define SERVICE_CIDRS 16

struct settings {
	__u32 flags;
	__u32 service_cidrs;
	struct addr primary[2]; /* the node's first address of IPv4 and IPv6, zero: none */
	struct cidr pods[2];	/* of this node, mask zero: none */
	struct cidr services[SERVICE_CIDRS];
};

enum {
	SET_MASQUERADE_ALL = 1,
	SET_DETECT = 2, /* and 4 for IPv6: local pods can be told from others */
	SET_BY_LINK = 8, /* by the interface they come in by */
	SET_REJECT_UNKNOWN = 16,
	SET_IDLE = 32, /* not in force yet, or not any more: only known flows go on */
};

/* What follows is learned at run time, and not compared with anything. */

/* An interface of the node. */
struct nic {
	__u32 flags;
	struct addr masquerade[2]; /* whose address packets leaving here get, zero: primary */
};

enum {
	NIC_POD = 1, /* local pods are behind it */
};

struct client_key {
	__u64 service;
	struct addr addr;
};

struct client {
	struct endpoint ep;
	__u32 seen; /* seconds since boot */
};

/* A tuple is how a packet looks at one of the node's doors. */
struct tuple {
	struct addr src, dst;
	__be16 sport, dport;
	__u8 proto;
	__u8 door;
	__u16 zero;
};

enum {
	IN = 0,	 /* arriving on an interface */
	OUT = 1, /* leaving by one */
};

/* A flow says what a packet that looks like its tuple is turned into. */
struct flow {
	struct addr src, dst;
	__be16 sport, dport;
	__u32 flags;
	__u32 seen;
	__u32 zero;
	__u64 service;
};

enum {
	FLOW_PENDING = 1, /* to be masqueraded: address and port are chosen at the door */
	FLOW_CLOSING = 2, /* FIN or RST was seen */
	FLOW_REPLY = 4,	  /* endpoint to client */
};

#define RECENT 65536

/* A datagram too big for a packet comes in fragments, of which only the first has ports:
 * the others are turned into what that was. */
struct piece_key {
	struct addr src, dst;
	__u32 id;
	__u8 proto;
	__u8 door;
	__u16 zero;
};

struct piece {
	struct addr src, dst;
};

/* What a UDP socket of the node itself sent where. */
struct talk_key {
	__u64 socket;
	struct addr addr;
	__be16 port;
	__u8 reply;
	__u8 zero;
	__u32 zero2;
};

struct talk {
	struct endpoint ep; /* where it goes, or for a reply, whom it seems to come from */
	__u32 seen;
};

/* The two ends of a translated connect. UDP sockets keep them, for datagrams must seem to
 * come from whom they were sent to; TCP sockets only want to name their peer, and have a
 * place by their number, which a later socket may take over. */
struct peer {
	struct endpoint vip, ep;
};

#define NAMES 131072

struct name {
	__u64 socket;
	struct peer peer;
};

struct count {
	__u64 connections, bytes_in, bytes_out;
};

#endif
