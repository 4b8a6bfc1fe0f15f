/* SPDX-License-Identifier: MIT */
/*
 * ctlframe.c - encodes and decodes the frames of the control link.
 *
 * The limits of each type stand in one table; docs/protocol/control.md has the
 * same table and a test compares the two.
 */
#include "conn/peer/ctlframe.h"

#include <errno.h>

static const struct {
	uint32_t min, max;
} limits[] = {
	[CTLFRAME_SHAKE] = {8, CTLFRAME_BODY_MAX},
	[CTLFRAME_ALIVE] = {0, 0},
	[CTLFRAME_REGION_ADD] = {37, 36 + CTLFRAME_NAME_MAX},
	[CTLFRAME_REGION_DEL] = {12, 12},
	[CTLFRAME_REGION_ACK] = {8, 8},
	[CTLFRAME_CLOSE] = {4, 4},
	[CTLFRAME_CLOSE_ACK] = {0, 0},
};

static bool len_ok(uint8_t type, uint32_t len)
{
	if (type & CTLFRAME_OPTIONAL)
		return len <= CTLFRAME_BODY_MAX;
	if (type < CTLFRAME_SHAKE || type >= sizeof(limits) / sizeof(limits[0]))
		return false;
	return len >= limits[type].min && len <= limits[type].max;
}

int ctlframe_decode(const uint8_t *buf, size_t len, struct ctlframe *f,
		    size_t *used)
{
	struct bytes_in in = bytes_in(buf, len);
	uint32_t body = bytes_get_u32(&in);
	uint8_t type = bytes_get_u8(&in);
	uint8_t zero = bytes_get_u8(&in);
	uint16_t conn = bytes_get_u16(&in);

	if (in.failed) {
		*used = 0;
		return 0;
	}
	if (zero || !len_ok(type, body))
		return -EPROTO;
	*used = CTLFRAME_HEAD + body;
	if (len < *used)
		return 0;
	f->type = type;
	f->conn = conn;
	f->body = buf + CTLFRAME_HEAD;
	f->len = body;
	return 1;
}

void ctlframe_put(struct bytes_out *out, enum ctlframe_type type, uint16_t conn,
		  const void *body, uint32_t len)
{
	bytes_put_u32(out, len);
	bytes_put_u8(out, (uint8_t)type);
	bytes_put_u8(out, 0);
	bytes_put_u16(out, conn);
	bytes_put_mem(out, body, len);
}

int ctlframe_get_region(const struct ctlframe *f, struct ctlframe_region *r)
{
	struct bytes_in in = bytes_in(f->body, f->len);
	struct ctlframe_region v = {0};
	const uint8_t *name;
	size_t n;

	v.seq = bytes_get_u64(&in);
	v.addr = bytes_get_u64(&in);
	v.len = bytes_get_u64(&in);
	v.rkey = bytes_get_u32(&in);
	v.id = bytes_get_u32(&in);
	v.access = bytes_get_u32(&in);
	n = bytes_left(&in);
	name = bytes_get(&in, n);
	if (in.failed || !name || n < 1 || n > CTLFRAME_NAME_MAX ||
	    memchr(name, 0, n) || !v.len || v.addr + v.len < v.addr)
		return -EPROTO;
	memcpy(v.name, name, n);
	*r = v;
	return 0;
}

void ctlframe_put_region(struct bytes_out *out, const struct ctlframe_region *r)
{
	uint32_t n = (uint32_t)strlen(r->name);

	ctlframe_put(out, CTLFRAME_REGION_ADD, 0, NULL, 0);
	if (!out->failed) /* the length, now that it is known */
		out->buf[out->pos - CTLFRAME_HEAD] = (uint8_t)(36 + n);
	bytes_put_u64(out, r->seq);
	bytes_put_u64(out, r->addr);
	bytes_put_u64(out, r->len);
	bytes_put_u32(out, r->rkey);
	bytes_put_u32(out, r->id);
	bytes_put_u32(out, r->access);
	bytes_put_mem(out, r->name, n);
}

int ctlframe_get_del(const struct ctlframe *f, uint64_t *seq, uint32_t *id)
{
	struct bytes_in in = bytes_in(f->body, f->len);
	uint64_t s = bytes_get_u64(&in);
	uint32_t i = bytes_get_u32(&in);

	if (in.failed)
		return -EPROTO;
	*seq = s;
	*id = i;
	return 0;
}

void ctlframe_put_del(struct bytes_out *out, uint64_t seq, uint32_t id)
{
	ctlframe_put(out, CTLFRAME_REGION_DEL, 0, NULL, 0);
	if (!out->failed)
		out->buf[out->pos - CTLFRAME_HEAD] = 12;
	bytes_put_u64(out, seq);
	bytes_put_u32(out, id);
}

int ctlframe_get_ack(const struct ctlframe *f, uint64_t *seq)
{
	struct bytes_in in = bytes_in(f->body, f->len);
	uint64_t s = bytes_get_u64(&in);

	if (in.failed)
		return -EPROTO;
	*seq = s;
	return 0;
}

void ctlframe_put_ack(struct bytes_out *out, uint64_t seq)
{
	ctlframe_put(out, CTLFRAME_REGION_ACK, 0, NULL, 0);
	if (!out->failed)
		out->buf[out->pos - CTLFRAME_HEAD] = 8;
	bytes_put_u64(out, seq);
}

int ctlframe_get_close(const struct ctlframe *f, uint32_t *code)
{
	struct bytes_in in = bytes_in(f->body, f->len);
	uint32_t c = bytes_get_u32(&in);

	if (in.failed)
		return -EPROTO;
	*code = c;
	return 0;
}

void ctlframe_put_close(struct bytes_out *out, uint16_t conn, uint32_t code)
{
	ctlframe_put(out, CTLFRAME_CLOSE, conn, NULL, 0);
	if (!out->failed)
		out->buf[out->pos - CTLFRAME_HEAD] = 4;
	bytes_put_u32(out, code);
}
