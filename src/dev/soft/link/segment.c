/* SPDX-License-Identifier: MIT */
/*
 * segment.c - see segment.h.
 */
#include "dev/soft/link/segment.h"

bool segment_add(struct segment_run *r, size_t len)
{
	if (!r->n)
		r->len = len;
	else if (r->ended || len > r->len || r->n == SEGMENT_MAX ||
		 r->bytes + len > SEGMENT_BYTES)
		return false;
	r->n++;
	r->bytes += len;
	r->ended = len < r->len;
	return true;
}

void segment_iter(struct segment_iter *c, uint8_t *buf, size_t len, int seg)
{
	c->at = buf;
	c->left = len;
	c->seg = seg > 0 ? (size_t)seg : len;
}

uint8_t *segment_next(struct segment_iter *c, size_t *len)
{
	uint8_t *at = c->at;

	if (!c->left)
		return NULL;
	*len = c->left < c->seg ? c->left : c->seg;
	c->at += *len;
	c->left -= *len;
	return at;
}
