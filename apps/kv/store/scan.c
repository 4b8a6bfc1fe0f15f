/* SPDX-License-Identifier: MIT */
/*
 * scan.c - the merge of a SCAN; see scan.h.
 *
 * A part that ended for want of room says nothing about what follows its last
 * record: the merge ends there and says so.
 */
#include "kv/store/scan.h"

#include <errno.h>
#include <stdlib.h>

int kv_merge_init(struct kv_merge *m, unsigned parts)
{
	*m = (struct kv_merge){.parts_count = parts};
	m->parts = calloc(parts, sizeof(*m->parts));
	return m->parts ? 0 : -ENOMEM;
}

void kv_merge_fini(struct kv_merge *m)
{
	for (unsigned i = 0; m->parts && i < m->parts_count; i++)
		free(m->parts[i].buf);
	free(m->parts);
	free(m->items);
}

int kv_merge_start(struct kv_merge *m, uint32_t want)
{
	struct kv_item *p;

	m->want = want;
	m->count = 0;
	m->more = false;
	if (want <= m->items_cap)
		return 0;
	p = realloc(m->items, want * sizeof(*p));
	if (!p)
		return -ENOMEM;
	m->items = p;
	m->items_cap = want;
	return 0;
}

static int part_next(struct kv_scan_part *p)
{
	struct kv_item last = p->item;
	bool had = p->have;
	int rc = kv_scan_next(&p->in, &p->item);

	if (rc < 0)
		return rc;
	p->have = rc;
	if (rc && had &&
	    kv_key_cmp(last.key, last.key_len, p->item.key, p->item.key_len) >=
		    0)
		return -EBADMSG;
	return 0;
}

int kv_merge_add(struct kv_merge *m, unsigned part, const void *buf, size_t len)
{
	struct kv_scan_part *p = &m->parts[part];

	if (m->parts_count > 1) {
		if (len > p->cap) {
			free(p->buf);
			p->buf = malloc(len);
			p->cap = p->buf ? len : 0;
			if (!p->buf)
				return -ENOMEM;
		}
		if (len)
			memcpy(p->buf, buf, len);
		buf = p->buf;
	}
	p->have = false;
	return kv_scan_decode(buf, len, &p->in);
}

static struct kv_scan_part *lowest(struct kv_merge *m)
{
	struct kv_scan_part *low = NULL;

	for (unsigned i = 0; i < m->parts_count; i++) {
		struct kv_scan_part *p = &m->parts[i];

		if (p->have &&
		    (!low || kv_key_cmp(p->item.key, p->item.key_len,
					low->item.key, low->item.key_len) < 0))
			low = p;
	}
	return low;
}

int kv_merge_finish(struct kv_merge *m)
{
	struct kv_scan_part *p;
	int rc;

	for (unsigned i = 0; i < m->parts_count; i++) {
		rc = part_next(&m->parts[i]);
		if (rc)
			return rc;
	}
	while (m->count < m->want && (p = lowest(m))) {
		m->items[m->count++] = p->item;
		rc = part_next(p);
		if (rc)
			return rc;
		if (!p->have && p->in.more) {
			m->more = m->count < m->want;
			return 0;
		}
	}
	return 0;
}
