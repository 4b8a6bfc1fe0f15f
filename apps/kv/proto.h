/* SPDX-License-Identifier: MIT */
/*
 * proto.h - the bytes of key-value requests and responses: docs/kv.md "Wire".
 *
 * One request is one RPC (or one TCP frame); its id says which operation. The
 * outcome of an operation is the call's status, so that a response holds
 * nothing but data. All integers are little-endian. Decoders never read
 * outside the buffer, refuse what is too long and what is left over.
 *
 * Pure: no I/O, no allocation.
 */
#ifndef KV_PROTO_H
#define KV_PROTO_H

#include "base/bytes.h"
#include "kv/store/record.h"

enum kv_op {
	KV_INFO = 0x4b00,
	KV_GET,	   /* key */
	KV_PUT,	   /* key, val */
	KV_UPDATE, /* key, off, val: overwrites a part of a value */
	KV_DELETE, /* key */
	KV_SCAN,   /* key, count: records at or after key, in order */
	KV_OP_END,
};

#define KV_PROTO_VERSION 2
#define KV_SCAN_MAX 10000u
/* the largest encoded request */
#define KV_REQ_MAX (16u + KV_KEY_MAX + KV_VAL_MAX)

struct kv_req {
	enum kv_op op;
	const void *key;
	size_t key_len;
	const void *val;
	size_t val_len;
	uint32_t off;
	uint32_t count;
};

/* Writes r to buf. *len of it; -EMSGSIZE when it does not fit. */
int kv_req_encode(const struct kv_req *r, void *buf, size_t cap, size_t *len);
/* key and val point into buf. -EBADMSG for anything that the page does not
 * allow. */
int kv_req_decode(unsigned op, const void *buf, size_t len, struct kv_req *r);

/* What a server says about itself. */
struct kv_info {
	uint32_t version;
	uint32_t shards;
	uint64_t records; /* of all shards, about now */
	uint64_t bytes;
	uint64_t evicted; /* records that a cache dropped */
};

#define KV_INFO_LEN 32
void kv_info_encode(const struct kv_info *info, void *buf);
int kv_info_decode(const void *buf, size_t len, struct kv_info *info);

/*
 * A SCAN's response: how many records, whether space ended before they did,
 * and the records.
 */
#define KV_SCAN_HEAD 8

struct kv_item {
	const uint8_t *key;
	const uint8_t *val;
	uint32_t val_len;
	uint16_t key_len;
};

/* What one record takes in it. */
static inline size_t kv_item_size(size_t key_len, size_t val_len)
{
	return 6 + key_len + val_len;
}

void kv_scan_head_encode(void *buf, uint32_t count, bool more);
void kv_item_encode(struct bytes_out *out, const struct kv_record *r);

struct kv_scan_in {
	struct bytes_in in;
	uint32_t left;
	bool more; /* the server has further records in the range */
};

/* -EBADMSG. */
int kv_scan_decode(const void *buf, size_t len, struct kv_scan_in *scan);
/* 1 and the next record, 0 after the last, -EBADMSG. */
int kv_scan_next(struct kv_scan_in *scan, struct kv_item *item);

#endif
