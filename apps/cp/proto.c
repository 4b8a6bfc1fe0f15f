/* SPDX-License-Identifier: MIT */
/*
 * proto.c - calls and answers to bytes and back; see proto.h.
 */
#include "cp/proto.h"

#include "base/assert.h"

#include <errno.h>
#include <skein/mcast.h>
#include <stdlib.h>
#include <string.h>

#define PATIENCE_MAX_NS SKEIN_S(3600)

enum {
	ROUND_HEAD = 8 + 6 * 4 + 8,
};

static int end(const struct bytes_in *in)
{
	return in->failed || bytes_left(in) ? -EBADMSG : 0;
}

void cp_put_open(struct bytes_out *out, const struct cp_open *open)
{
	bytes_put_u16(out, CP_PROTO_VERSION);
	bytes_put_u16(out, open->flags);
	bytes_put_mem(out, open->id, CP_ID_LEN);
	bytes_put_u64(out, open->manifest_len);
	bytes_put_u16(out, open->path_len);
	bytes_put_mem(out, open->path, open->path_len);
}

int cp_get_open(struct bytes_in *in, struct cp_open *open)
{
	uint16_t version = bytes_get_u16(in);
	const uint8_t *id;

	open->flags = bytes_get_u16(in);
	id = bytes_get(in, CP_ID_LEN);
	open->manifest_len = bytes_get_u64(in);
	open->path_len = bytes_get_u16(in);
	open->path = (const char *)bytes_get(in, open->path_len);
	if (end(in) || version != CP_PROTO_VERSION)
		return -EBADMSG;
	if ((open->flags & ~CP_FLAGS) || open->path_len > CP_PATH_MAX ||
	    !open->manifest_len || open->manifest_len > CP_MANIFEST_MAX ||
	    memchr(open->path, 0, open->path_len))
		return -EBADMSG;
	memcpy(open->id, id, CP_ID_LEN);
	return 0;
}

void cp_put_status(struct bytes_out *out, const struct cp_status *st)
{
	size_t len = strnlen(st->text, sizeof(st->text));

	bytes_put_u8(out, (uint8_t)st->phase);
	bytes_put_u32(out, st->round);
	bytes_put_u32(out, (uint32_t)st->round_status);
	bytes_put_u32(out, (uint32_t)st->status);
	bytes_put_u64(out, st->have);
	bytes_put_u64(out, st->lacking);
	bytes_put_u16(out, (uint16_t)len);
	bytes_put_mem(out, st->text, len);
}

int cp_get_status(struct bytes_in *in, struct cp_status *st)
{
	uint8_t phase = bytes_get_u8(in);
	const uint8_t *text;
	uint16_t len;

	st->phase = (enum cp_phase)phase;
	st->round = bytes_get_u32(in);
	st->round_status = (int32_t)bytes_get_u32(in);
	st->status = (int32_t)bytes_get_u32(in);
	st->have = bytes_get_u64(in);
	st->lacking = bytes_get_u64(in);
	len = bytes_get_u16(in);
	text = bytes_get(in, len);
	if (end(in) || phase >= CP_PHASES || len >= sizeof(st->text))
		return -EBADMSG;
	memcpy(st->text, text, len);
	st->text[len] = 0;
	cp_text_clean(st->text);
	return 0;
}

void cp_put_opened(struct bytes_out *out, uint64_t session,
		   const struct cp_status *st)
{
	bytes_put_u64(out, session);
	cp_put_status(out, st);
}

int cp_get_opened(struct bytes_in *in, uint64_t *session, struct cp_status *st)
{
	uint64_t got = bytes_get_u64(in);
	int rc = cp_get_status(in, st);

	if (!rc)
		*session = got;
	return rc;
}

void cp_put_list(struct bytes_out *out, const struct cp_list *list)
{
	bytes_put_u64(out, list->session);
	bytes_put_u64(out, list->first);
	bytes_put_u32(out, list->count);
}

int cp_get_list(struct bytes_in *in, size_t item_len, uint32_t count_max,
		struct cp_list *list)
{
	list->session = bytes_get_u64(in);
	list->first = bytes_get_u64(in);
	list->count = bytes_get_u32(in);
	if (in->failed || list->count > count_max ||
	    bytes_left(in) != item_len * list->count)
		return -EBADMSG;
	return 0;
}

size_t cp_round_len(const struct cp_round *r)
{
	size_t len = ROUND_HEAD + 16 * (size_t)r->ranges;

	for (uint32_t i = 0; i < r->count; i++)
		len += 6 + strlen(r->members[i]);
	return len;
}

void cp_put_round(struct bytes_out *out, uint64_t session,
		  const struct cp_round *r)
{
	bytes_put_u64(out, session);
	bytes_put_u32(out, r->round);
	bytes_put_u32(out, r->number);
	bytes_put_u32(out, r->algorithm);
	bytes_put_u32(out, r->rank);
	bytes_put_u32(out, r->count);
	bytes_put_u32(out, r->ranges);
	bytes_put_u64(out, r->patience_ns);
	for (uint32_t i = 0; i < r->count; i++) {
		size_t len = strlen(r->members[i]);

		bytes_put_u32(out, r->racks ? r->racks[i] : 0);
		bytes_put_u16(out, (uint16_t)len);
		bytes_put_mem(out, r->members[i], len);
	}
	for (uint32_t i = 0; i < r->ranges; i++) {
		bytes_put_u64(out, r->range[i].first);
		bytes_put_u64(out, r->range[i].count);
	}
}

static int get_addr(struct bytes_in *in, const char **addr)
{
	uint16_t len = bytes_get_u16(in);
	const uint8_t *p = bytes_get(in, len);

	if (!p || !len || len > CP_MEMBER_MAX || memchr(p, 0, len))
		return -EBADMSG;
	*addr = strndup((const char *)p, len);
	return *addr ? 0 : -ENOMEM;
}

static int get_members(struct bytes_in *in, struct cp_round *r)
{
	int rc = 0;

	for (uint32_t i = 0; i < r->count && !rc; i++) {
		r->racks[i] = bytes_get_u32(in);
		rc = get_addr(in, &r->members[i]);
	}
	return rc;
}

static int get_ranges(struct bytes_in *in, uint64_t blocks, struct cp_round *r)
{
	uint64_t next = 0;

	for (uint32_t i = 0; i < r->ranges; i++) {
		struct cp_range *x = &r->range[i];

		x->first = bytes_get_u64(in);
		x->count = bytes_get_u64(in);
		if (in->failed || !x->count || x->first < next ||
		    x->first > blocks || x->count > blocks - x->first)
			return -EBADMSG;
		next = x->first + x->count;
	}
	return end(in);
}

int cp_get_round(struct bytes_in *in, uint64_t blocks, struct cp_round *r)
{
	struct cp_round new = {0};
	int rc = -ENOMEM;

	new.round = bytes_get_u32(in);
	new.number = bytes_get_u32(in);
	new.algorithm = bytes_get_u32(in);
	new.rank = bytes_get_u32(in);
	new.count = bytes_get_u32(in);
	new.ranges = bytes_get_u32(in);
	new.patience_ns = bytes_get_u64(in);
	if (in->failed || new.count < 2 ||
	    new.count > SKEIN_MCAST_MEMBERS_MAX || !new.rank ||
	    new.rank >= new.count || new.algorithm > SKEIN_MCAST_HYBRID ||
	    new.patience_ns > PATIENCE_MAX_NS || !new.ranges ||
	    new.ranges > bytes_left(in) / 16)
		return -EBADMSG;
	new.members = calloc(new.count, sizeof(*new.members));
	new.racks = calloc(new.count, sizeof(*new.racks));
	new.range = calloc(new.ranges, sizeof(*new.range));
	if (new.members &&new.racks &&new.range)
		rc = get_members(in, &new);
	if (!rc)
		rc = get_ranges(in, blocks, &new);
	if (rc) {
		cp_round_fini(&new);
		return rc;
	}
	*r = new;
	return 0;
}

uint32_t cp_put_members(struct bytes_out *out, uint64_t session,
			const char *const *v, uint32_t count)
{
	uint32_t n = 0;
	size_t len = 12;

	while (n < count && len + 2 + strlen(v[n]) <= CP_CHUNK)
		len += 2 + strlen(v[n++]);
	bytes_put_u64(out, session);
	bytes_put_u32(out, n);
	for (uint32_t i = 0; i < n; i++) {
		bytes_put_u16(out, (uint16_t)strlen(v[i]));
		bytes_put_mem(out, v[i], strlen(v[i]));
	}
	return n;
}

int cp_get_members(struct bytes_in *in, struct cp_members *m)
{
	struct cp_members new = {.count = bytes_get_u32(in)};
	int rc = 0;

	/* each takes three bytes at least */
	if (in->failed || !new.count || new.count > bytes_left(in) / 3)
		return -EBADMSG;
	new.v = calloc(new.count, sizeof(*new.v));
	if (!new.v)
		return -ENOMEM;
	for (uint32_t i = 0; i < new.count && !rc; i++)
		rc = get_addr(in, &new.v[i]);
	if (!rc)
		rc = end(in);
	if (rc) {
		cp_members_fini(&new);
		return rc;
	}
	*m = new;
	return 0;
}

void cp_members_fini(struct cp_members *m)
{
	for (uint32_t i = 0; m->v && i < m->count; i++)
		free((char *)m->v[i]);
	free(m->v);
	*m = (struct cp_members){0};
}

void cp_round_fini(struct cp_round *r)
{
	for (uint32_t i = 0; r->members && i < r->count; i++)
		free((char *)r->members[i]);
	free(r->members);
	free(r->racks);
	free(r->range);
	*r = (struct cp_round){0};
}

uint64_t cp_round_blocks(const struct cp_round *r)
{
	uint64_t n = 0;

	for (uint32_t i = 0; i < r->ranges; i++)
		n += r->range[i].count;
	return n;
}

uint64_t cp_round_block(const struct cp_round *r, uint64_t index)
{
	uint32_t i = 0;

	while (index >= r->range[i].count) {
		index -= r->range[i].count;
		i++;
		skein_assert(i < r->ranges);
	}
	return r->range[i].first + index;
}

uint64_t cp_round_bytes(const struct cp_round *r, uint64_t stream_len,
			uint32_t block_size)
{
	uint64_t len = cp_round_blocks(r) * block_size;
	const struct cp_range *last = &r->range[r->ranges - 1];
	uint64_t end_off = (last->first + last->count) * block_size;

	/* the stream's last block may be short, and is the message's last */
	return end_off > stream_len ? len - (end_off - stream_len) : len;
}
