/* SPDX-License-Identifier: MIT */
/*
 * meta.h - what the meta server keeps of a node: one record of 64 aligned bytes
 * in one of two places (docs/protocol/vqp.md, "Meta records"). Pure.
 *
 * No CPU serves a READ, and a READ has no order between cache lines or within:
 * the checksum tells a whole record from a torn one.
 */
#ifndef SKEIN_VQP_META_H
#define SKEIN_VQP_META_H

#include <endian.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define META_RECORD 64u
#define META_HEAD_MAGIC 0x6174656d6e6b73ull /* "skn meta" */
#define META_VERSION 4u

/* messages (msg.c) use these too */
static inline uint32_t get_le32(const uint8_t *p)
{
	uint32_t v;

	memcpy(&v, p, sizeof(v));
	return le32toh(v);
}

static inline uint64_t get_le64(const uint8_t *p)
{
	uint64_t v;

	memcpy(&v, p, sizeof(v));
	return le64toh(v);
}

static inline void put_le32(uint8_t *p, uint32_t v)
{
	v = htole32(v);
	memcpy(p, &v, sizeof(v));
}

static inline void put_le64(uint8_t *p, uint64_t v)
{
	v = htole64(v);
	memcpy(p, &v, sizeof(v));
}

static inline uint32_t get_le24(const uint8_t *p)
{
	return p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16;
}

static inline void put_le24(uint8_t *p, uint32_t v)
{
	p[0] = (uint8_t)v;
	p[1] = (uint8_t)(v >> 8);
	p[2] = (uint8_t)(v >> 16);
}

/* A node: its address, and what a request to it needs. */
struct meta_node {
	uint8_t gid[16];
	uint32_t port;	/* 1 to 65535 */
	uint32_t dctn;	/* 24 bits; 0: it has no DC */
	uint32_t udqpn; /* of the UD queue pair for rc.h; 24 bits; 0: none */
	uint64_t key;
	uint64_t incarnation; /* random: each process of the node has another */
	uint32_t beat;	      /* counts renewals */
	/* its table of regions (region.h): address below 2^56, rkey; 0: none */
	uint32_t table_rkey;
	uint64_t table;
};

/* The table's first record: how to reach and read it. */
struct meta_head {
	uint8_t gid[16];
	uint32_t dctn;
	uint32_t places; /* a power of two; records follow the head */
	uint64_t key;
};

/* The checksum of a record: of all before its last 8 bytes. */
uint64_t meta_sum(const uint8_t *buf);

/* Little endian, each field at its own offset. buf has META_RECORD bytes. */
void meta_encode(const struct meta_node *n, uint8_t *buf);
/* 0; -ENOENT: no node is there (all zero); -EBADMSG: torn, or nonsense. */
int meta_decode(const uint8_t *buf, struct meta_node *n);
void meta_head_encode(const struct meta_head *h, uint8_t *buf);
int meta_head_decode(const uint8_t *buf, struct meta_head *h);

/* The two candidate places of a node, never the same one. */
void meta_places(const uint8_t gid[16], uint32_t port, uint32_t places,
		 uint32_t at[2]);
bool meta_same(const struct meta_node *a, const uint8_t gid[16], uint32_t port);

/* What a look at both places says of a node. */
enum meta_found {
	META_FOUND,  /* *out */
	META_NOBODY, /* neither place has it, both are whole */
	META_TORN,   /* one place has to be read again */
};
enum meta_found meta_find(const uint8_t *first, const uint8_t *second,
			  const uint8_t gid[16], uint32_t port,
			  struct meta_node *out);

/* A record of this node's name that another process wrote, as first seen. No
 * order of incarnations, or of clocks, says which process is the later one. The
 * record does: a process that lives renews its own, each second. */
#define META_BEATS_NS 1500000000ull
struct meta_owner {
	uint64_t incarnation, key, since_ns;
	uint32_t beat;
	bool lives; /* it has been renewed, or written anew, since then */
};

/*
 * Where a node writes its own record, given both places as read: 0 or 1. A
 * record of its name that another process wrote is noted in *other, which is all
 * zero at first; it is overwritten if it stands still for META_BEATS_NS.
 * -EINPROGRESS: not known yet; -EADDRINUSE: it does not stand still. -ENOSPC:
 * both places belong to other nodes. -EAGAIN: torn, read again.
 */
int meta_place_own(const uint8_t *first, const uint8_t *second,
		   const struct meta_node *own, uint64_t now_ns,
		   struct meta_owner *other);

#endif
