/* SPDX-License-Identifier: MIT */
/*
 * fuzz_ctlframe.c - the frames of the control link, from anybody.
 *
 * The input is the stream. Frames lie inside it, bodies decode or are refused,
 * and what decodes encodes to the same bytes.
 */
#include <string.h>

#include "base/assert.h"
#include "conn/peer/ctlframe.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void same(const struct ctlframe *f, const struct bytes_out *out)
{
	skein_assert(!out->failed);
	skein_assert(out->pos == CTLFRAME_HEAD + f->len);
	skein_assert(!memcmp(out->buf + CTLFRAME_HEAD, f->body, f->len));
}

static void body(const struct ctlframe *f)
{
	uint8_t buf[CTLFRAME_HEAD + CTLFRAME_BODY_MAX];
	struct bytes_out out = bytes_out(buf, sizeof(buf));
	struct ctlframe_region r;
	uint64_t seq;
	uint32_t v;

	switch (f->type) {
	case CTLFRAME_REGION_ADD:
		if (ctlframe_get_region(f, &r))
			return;
		skein_assert(r.len && r.addr + r.len >= r.addr);
		skein_assert(r.name[0] && memchr(r.name, 0, sizeof(r.name)));
		ctlframe_put_region(&out, &r);
		same(f, &out);
		return;
	case CTLFRAME_REGION_DEL:
		skein_assert(ctlframe_get_del(f, &seq, &v) == 0);
		ctlframe_put_del(&out, seq, v);
		same(f, &out);
		return;
	case CTLFRAME_REGION_ACK:
		skein_assert(ctlframe_get_ack(f, &seq) == 0);
		ctlframe_put_ack(&out, seq);
		same(f, &out);
		return;
	case CTLFRAME_CLOSE:
		skein_assert(ctlframe_get_close(f, &v) == 0);
		ctlframe_put_close(&out, f->conn, v);
		same(f, &out);
		return;
	default:
		return;
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	size_t pos = 0, used;
	struct ctlframe f;

	while (ctlframe_decode(data + pos, size - pos, &f, &used) == 1) {
		skein_assert(used == CTLFRAME_HEAD + f.len);
		skein_assert(used <= size - pos);
		skein_assert(f.body == data + pos + CTLFRAME_HEAD);
		skein_assert(f.len <= CTLFRAME_BODY_MAX);
		body(&f);
		pos += used;
	}
	return 0;
}
