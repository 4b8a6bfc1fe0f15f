/* SPDX-License-Identifier: MIT */
/*
 * wire.c - records, the handshake section and checksums.
 */
#include "mcast/wire.h"

#include <errno.h>
#include <skein/error.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

uint32_t mcast_imm_value(const struct mcast_rec *rec)
{
	bool says = rec->type == MCAST_BLOCK || rec->type == MCAST_BEGIN ||
		    rec->type == MCAST_SMALL;
	uint64_t size = says ? rec->size : 0;

	if (size > MCAST_IMM_SIZE_MAX)
		size = MCAST_IMM_SIZE_MAX;
	return (uint32_t)rec->type << 24 | (uint32_t)size;
}

/* Are all fields 0 that this type does not use? */
static bool unused_zero(const struct mcast_rec *rec)
{
	bool msg = rec->type == MCAST_READY || rec->type == MCAST_BLOCK ||
		   rec->type == MCAST_ACK || rec->type == MCAST_CLOSE ||
		   rec->type == MCAST_BYE || rec->type == MCAST_BEGIN ||
		   rec->type == MCAST_HAVE || rec->type == MCAST_SMALL;
	bool block = rec->type == MCAST_READY || rec->type == MCAST_BLOCK;
	bool ring = rec->type == MCAST_RING;
	bool size = block || ring || rec->type == MCAST_BEGIN ||
		    rec->type == MCAST_HAVE || rec->type == MCAST_SMALL;
	bool sum = rec->type == MCAST_BLOCK || rec->type == MCAST_CLOSE ||
		   rec->type == MCAST_BYE || rec->type == MCAST_RUN ||
		   rec->type == MCAST_SUM || rec->type == MCAST_SMALL;
	bool rank = rec->type == MCAST_FAIL || rec->type == MCAST_ACK ||
		    rec->type == MCAST_HAVE || rec->type == MCAST_RUN;
	/* FAIL: how many blocks no member has. */
	bool number = block || rec->type == MCAST_ACK ||
		      rec->type == MCAST_HAVE || rec->type == MCAST_RUN ||
		      (rec->type == MCAST_FAIL && rec->err == ENODATA);

	return (msg || !rec->msg) && (sum || !rec->sum) &&
	       (size || !rec->size) &&
	       (block || ring || rec->type == MCAST_RUN ||
		rec->type == MCAST_HAVE || !rec->len) &&
	       (number || !rec->block) &&
	       (rec->type == MCAST_READY || ring || !rec->rkey) &&
	       (rank || !rec->rank) &&
	       (rec->type == MCAST_FAIL) == (rec->err != 0);
}

static bool channel_right(const struct mcast_rec *rec,
			  enum mcast_channel channel)
{
	return rec->type == MCAST_FAIL ||
	       (rec->type == MCAST_BLOCK) == (channel == MCAST_BLOCKS);
}

bool mcast_rec_valid(const struct mcast_rec *rec, enum mcast_channel channel,
		     uint32_t number, uint32_t imm_value)
{
	return rec->type >= MCAST_HELLO && rec->type < MCAST_TYPE_END &&
	       channel_right(rec, channel) && !rec->flags &&
	       rec->number == number && !rec->zero[0] && !rec->zero[1] &&
	       mcast_imm_value(rec) == imm_value && unused_zero(rec);
}

void mcast_section_put(const struct mcast_section *s, struct bytes_out *out)
{
	bytes_put_u16(out, MCAST_VERSION);
	bytes_put_u16(out, 0);
	bytes_put_u32(out, s->number);
	bytes_put_u64(out, s->list);
	bytes_put_u64(out, s->params);
	bytes_put_u32(out, s->from);
	bytes_put_u32(out, s->to);
	bytes_put_u64(out, s->addr);
	bytes_put_u32(out, s->rkey);
	bytes_put_u32(out, s->channel);
	bytes_put_u64(out, s->pair);
}

int mcast_section_get(struct mcast_section *s, struct bytes_in *in)
{
	unsigned version = bytes_get_u16(in), flags = bytes_get_u16(in);

	s->number = bytes_get_u32(in);
	s->list = bytes_get_u64(in);
	s->params = bytes_get_u64(in);
	s->from = bytes_get_u32(in);
	s->to = bytes_get_u32(in);
	s->addr = bytes_get_u64(in);
	s->rkey = bytes_get_u32(in);
	s->channel = bytes_get_u32(in);
	s->pair = bytes_get_u64(in);
	/* Sections of other versions may have other lengths. */
	if (version && version != MCAST_VERSION)
		return -SKEIN_EVERSION;
	if (!version || in->failed || bytes_left(in) || flags ||
	    s->channel >= MCAST_CHANNELS || s->from == s->to)
		return -SKEIN_EPEER;
	return 0;
}

uint64_t mcast_list_hash(const char *const *members, uint32_t n)
{
	uint64_t h = 0;

	/* Each hash seeds the next. The closing NULs keep the addresses apart,
	 * and no buffer for all of them is needed. */
	for (uint32_t i = 0; i < n; i++)
		h = XXH3_64bits_withSeed(members[i], strlen(members[i]) + 1, h);
	return h;
}

uint64_t mcast_params_hash(const struct mcast_params *p, const uint32_t *racks)
{
	uint8_t buf[24];
	struct bytes_out out = bytes_out(buf, sizeof(buf));
	uint64_t h;

	bytes_put_u32(&out, p->n);
	bytes_put_u32(&out, p->algorithm);
	bytes_put_u32(&out, p->block_size);
	bytes_put_u32(&out, p->flags);
	bytes_put_u32(&out, p->slots);
	bytes_put_u32(&out, p->small_max);
	h = XXH3_64bits(buf, sizeof(buf));
	return racks ? XXH3_64bits_withSeed(racks, p->n * sizeof(*racks), h)
		     : h;
}

uint64_t mcast_seed(uint64_t list, uint64_t msg)
{
	return XXH3_64bits_withSeed(&msg, sizeof(msg), list);
}

uint64_t mcast_sum(const void *data, size_t len, uint64_t seed, uint32_t block)
{
	return XXH3_64bits_withSeed(data, len, seed ^ block);
}
