/* SPDX-License-Identifier: MIT */
/*
 * scan.h - merges what the shards answer to one SCAN into one ordered list.
 * Pure but for its buffers.
 *
 * Thread rule: one thread.
 */
#ifndef KV_STORE_SCAN_H
#define KV_STORE_SCAN_H

#include "kv/proto.h"

struct kv_scan_part {
	void *buf; /* a copy, when there are other parts to wait for */
	size_t cap;
	struct kv_scan_in in;
	struct kv_item item; /* the next one */
	bool have;
};

struct kv_merge {
	unsigned parts_count;
	uint32_t want;
	struct kv_scan_part *parts;
	struct kv_item *items; /* room for want */
	uint32_t items_cap;
	uint32_t count;
	bool more;
};

/* -ENOMEM. */
int kv_merge_init(struct kv_merge *m, unsigned parts);
void kv_merge_fini(struct kv_merge *m);
/* Begins a scan of at most want records. -ENOMEM. */
int kv_merge_start(struct kv_merge *m, uint32_t want);
/* One shard's response; it must stay until kv_merge_finish() when it is the
 * only one, else it is copied. -EBADMSG, -ENOMEM. */
int kv_merge_add(struct kv_merge *m, unsigned part, const void *buf,
		 size_t len);
/* All parts are there: items, count and more are set. -EBADMSG, also for parts
 * that are not in order. */
int kv_merge_finish(struct kv_merge *m);

#endif
