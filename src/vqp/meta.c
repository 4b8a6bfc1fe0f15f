/* SPDX-License-Identifier: MIT */
/*
 * meta.c - records of nodes: their bytes, their places, and what a READ of them
 * says.
 */
#include "vqp/meta.h"

#include "base/assert.h"
#include "base/prng.h"

#include <errno.h>
#include <string.h>

/* Offsets of a record. */
enum {
	R_GID = 0,
	R_PORT = 16,
	R_UDQPN = 18,
	R_DCTN = 21,
	R_KEY = 24,
	R_INCARNATION = 32,
	R_BEAT = 40,
	R_TABLE_RKEY = 44,
	R_VERSION = 48, /* one byte, then seven of the table's address */
	R_SUM = 56,
};

enum {
	H_MAGIC = 0,
	H_GID = 8,
	H_DCTN = 24,
	H_PLACES = 28,
	H_KEY = 32,
	H_VERSION = 40,
	H_SUM = 56,
};

uint64_t meta_sum(const uint8_t *buf)
{
	uint64_t h = 0x9e3779b97f4a7c15ull;
	unsigned i;

	for (i = 0; i < R_SUM; i += 8)
		h = prng_mix(h ^ get_le64(buf + i)) + i;
	return h;
}

void meta_encode(const struct meta_node *n, uint8_t *buf)
{
	memset(buf, 0, META_RECORD);
	memcpy(buf + R_GID, n->gid, sizeof(n->gid));
	put_le32(buf + R_PORT, n->port);
	put_le24(buf + R_UDQPN, n->udqpn);
	put_le24(buf + R_DCTN, n->dctn);
	put_le64(buf + R_KEY, n->key);
	put_le64(buf + R_INCARNATION, n->incarnation);
	put_le32(buf + R_BEAT, n->beat);
	put_le32(buf + R_TABLE_RKEY, n->table_rkey);
	put_le64(buf + R_VERSION, n->table << 8 | META_VERSION);
	put_le64(buf + R_SUM, meta_sum(buf));
}

static bool all_zero(const uint8_t *buf)
{
	static const uint8_t zero[META_RECORD];

	return !memcmp(buf, zero, META_RECORD);
}

int meta_decode(const uint8_t *buf, struct meta_node *n)
{
	struct meta_node r;

	if (all_zero(buf))
		return -ENOENT;
	if (get_le64(buf + R_SUM) != meta_sum(buf))
		return -EBADMSG;
	memcpy(r.gid, buf + R_GID, sizeof(r.gid));
	r.port = get_le32(buf + R_PORT) & 0xffff;
	r.udqpn = get_le24(buf + R_UDQPN);
	r.dctn = get_le24(buf + R_DCTN);
	r.key = get_le64(buf + R_KEY);
	r.incarnation = get_le64(buf + R_INCARNATION);
	r.beat = get_le32(buf + R_BEAT);
	r.table_rkey = get_le32(buf + R_TABLE_RKEY);
	r.table = get_le64(buf + R_VERSION) >> 8;
	if (!r.port || buf[R_VERSION] != META_VERSION)
		return -EBADMSG;
	*n = r;
	return 0;
}

void meta_head_encode(const struct meta_head *h, uint8_t *buf)
{
	memset(buf, 0, META_RECORD);
	put_le64(buf + H_MAGIC, META_HEAD_MAGIC);
	memcpy(buf + H_GID, h->gid, sizeof(h->gid));
	put_le32(buf + H_DCTN, h->dctn);
	put_le32(buf + H_PLACES, h->places);
	put_le64(buf + H_KEY, h->key);
	put_le32(buf + H_VERSION, META_VERSION);
	put_le64(buf + H_SUM, meta_sum(buf));
}

int meta_head_decode(const uint8_t *buf, struct meta_head *h)
{
	struct meta_head r;

	if (get_le64(buf + H_MAGIC) != META_HEAD_MAGIC ||
	    get_le64(buf + H_SUM) != meta_sum(buf))
		return -EBADMSG;
	if (get_le32(buf + H_VERSION) != META_VERSION)
		return -EPROTONOSUPPORT;
	memcpy(r.gid, buf + H_GID, sizeof(r.gid));
	r.dctn = get_le32(buf + H_DCTN);
	r.places = get_le32(buf + H_PLACES);
	r.key = get_le64(buf + H_KEY);
	if (r.dctn > 0xffffff || r.places < 2 || r.places & (r.places - 1))
		return -EBADMSG;
	*h = r;
	return 0;
}

void meta_places(const uint8_t gid[16], uint32_t port, uint32_t places,
		 uint32_t at[2])
{
	uint64_t h;

	skein_assert(places >= 2 && !(places & (places - 1)));
	h = prng_mix(get_le64(gid) ^ prng_mix(get_le64(gid + 8) ^ port));
	at[0] = (uint32_t)h & (places - 1);
	at[1] = (uint32_t)(h >> 32) & (places - 1);
	if (at[1] == at[0])
		at[1] ^= 1;
}

bool meta_same(const struct meta_node *a, const uint8_t gid[16], uint32_t port)
{
	return a->port == port && !memcmp(a->gid, gid, sizeof(a->gid));
}

enum meta_found meta_find(const uint8_t *first, const uint8_t *second,
			  const uint8_t gid[16], uint32_t port,
			  struct meta_node *out)
{
	const uint8_t *buf[2] = {first, second};
	struct meta_node r, best = {0};
	bool found = false, torn = false;
	int i, err;

	for (i = 0; i < 2; i++) {
		err = meta_decode(buf[i], &r);
		torn |= err == -EBADMSG;
		if (err || !meta_same(&r, gid, port))
			continue;
		if (!found)
			best = r;
		found = true;
	}
	if (found) {
		*out = best;
		return META_FOUND;
	}
	return torn ? META_TORN : META_NOBODY;
}

/* 0: it may be overwritten. */
static int other_look(struct meta_owner *o, const struct meta_node *r,
		      uint64_t now_ns)
{
	bool known = o->incarnation == r->incarnation && o->key == r->key;

	if (known && o->beat == r->beat) {
		if (now_ns - o->since_ns >= META_BEATS_NS)
			return 0;
		return o->lives ? -EADDRINUSE : -EINPROGRESS;
	}
	*o = (struct meta_owner){.incarnation = r->incarnation,
				 .key = r->key,
				 .beat = r->beat,
				 .since_ns = now_ns,
				 .lives = o->since_ns != 0};
	return o->lives ? -EADDRINUSE : -EINPROGRESS;
}

int meta_place_own(const uint8_t *first, const uint8_t *second,
		   const struct meta_node *own, uint64_t now_ns,
		   struct meta_owner *other)
{
	const uint8_t *buf[2] = {first, second};
	int i, err, unused = -1, mine = -1;
	bool torn = false;
	struct meta_node r;

	for (i = 0; i < 2; i++) {
		err = meta_decode(buf[i], &r);
		torn |= err == -EBADMSG;
		if (err == -ENOENT && unused < 0)
			unused = i;
		if (err || !meta_same(&r, own->gid, own->port))
			continue;
		if (r.incarnation != own->incarnation || r.key != own->key) {
			err = other_look(other, &r, now_ns);
			if (err)
				return err;
		}
		mine = i;
	}
	if (mine >= 0) {
		*other = (struct meta_owner){0};
		return mine;
	}
	if (torn)
		return -EAGAIN;
	return unused >= 0 ? unused : -ENOSPC;
}
