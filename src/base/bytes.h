/* SPDX-License-Identifier: MIT */
/*
 * bytes.h - bounded little-endian cursors for everything that is decoded from
 * or encoded for a peer.
 *
 * A cursor never reads or writes outside its buffer. The first violation makes
 * it fail for good: gets return zero, puts do nothing, and the caller checks
 * once at the end. Pure: no I/O, no allocation.
 */
#ifndef SKEIN_BASE_BYTES_H
#define SKEIN_BASE_BYTES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct bytes_in {
	const uint8_t *buf;
	size_t len, pos;
	bool failed;
};

struct bytes_out {
	uint8_t *buf;
	size_t cap, pos;
	bool failed;
};

static inline struct bytes_in bytes_in(const void *buf, size_t len)
{
	return (struct bytes_in){.buf = buf, .len = len};
}

static inline struct bytes_out bytes_out(void *buf, size_t cap)
{
	return (struct bytes_out){.buf = buf, .cap = cap};
}

/* The next len bytes in place, or NULL. */
static inline const uint8_t *bytes_get(struct bytes_in *in, size_t len)
{
	const uint8_t *p;

	if (in->failed || len > in->len - in->pos) {
		in->failed = true;
		return NULL;
	}
	p = in->buf + in->pos;
	in->pos += len;
	return p;
}

/* Room for the next len bytes, or NULL. */
static inline uint8_t *bytes_put(struct bytes_out *out, size_t len)
{
	uint8_t *p;

	if (out->failed || len > out->cap - out->pos) {
		out->failed = true;
		return NULL;
	}
	p = out->buf + out->pos;
	out->pos += len;
	return p;
}

static inline size_t bytes_left(const struct bytes_in *in)
{
	return in->failed ? 0 : in->len - in->pos;
}

#define BYTES_INT(bits)                                                     \
	static inline uint##bits##_t bytes_get_u##bits(struct bytes_in *in) \
	{                                                                   \
		const uint8_t *p = bytes_get(in, bits / 8);                 \
		uint##bits##_t v = 0;                                       \
		for (int i = bits / 8 - 1; p && i >= 0; i--)                \
			v = (uint##bits##_t)((uint64_t)v << 8 | p[i]);      \
		return v;                                                   \
	}                                                                   \
	static inline void bytes_put_u##bits(struct bytes_out *out,         \
					     uint##bits##_t v)              \
	{                                                                   \
		uint8_t *p = bytes_put(out, bits / 8);                      \
		for (int i = 0; p && i < bits / 8; i++)                     \
			p[i] = (uint8_t)((uint64_t)v >> (8 * i));           \
	}
BYTES_INT(8)
BYTES_INT(16)
BYTES_INT(32)
BYTES_INT(64)
#undef BYTES_INT

static inline void bytes_put_mem(struct bytes_out *out, const void *src,
				 size_t len)
{
	uint8_t *p = bytes_put(out, len);

	if (p && len)
		memcpy(p, src, len);
}

#endif
