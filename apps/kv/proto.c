/* SPDX-License-Identifier: MIT */
/*
 * proto.c - the codec of docs/kv.md "Wire".
 */
#include "kv/proto.h"

#include <errno.h>

static bool has_val(unsigned op)
{
	return op == KV_PUT || op == KV_UPDATE;
}

/* The 32 bits beside the lengths: an offset, a count, or nothing. */
static uint32_t aux_of(const struct kv_req *r)
{
	if (r->op == KV_UPDATE)
		return r->off;
	return r->op == KV_SCAN ? r->count : 0;
}

int kv_req_encode(const struct kv_req *r, void *buf, size_t cap, size_t *len)
{
	struct bytes_out out = bytes_out(buf, cap);

	if (r->op != KV_INFO) {
		bytes_put_u16(&out, (uint16_t)r->key_len);
		bytes_put_u16(&out, 0);
		bytes_put_u32(&out, aux_of(r));
		bytes_put_mem(&out, r->key, r->key_len);
	}
	if (has_val(r->op))
		bytes_put_mem(&out, r->val, r->val_len);
	if (out.failed)
		return -EMSGSIZE;
	*len = out.pos;
	return 0;
}

static bool req_allowed(const struct kv_req *r, uint32_t aux)
{
	if (!r->key_len || r->key_len > KV_KEY_MAX || r->val_len > KV_VAL_MAX)
		return false;
	if (!has_val(r->op) && r->val_len)
		return false; /* left over */
	switch (r->op) {
	case KV_SCAN:
		return aux && aux <= KV_SCAN_MAX;
	case KV_UPDATE:
		return true;
	default:
		return !aux;
	}
}

int kv_req_decode(unsigned op, const void *buf, size_t len, struct kv_req *r)
{
	struct bytes_in in = bytes_in(buf, len);
	struct kv_req req = {.op = (enum kv_op)op};
	uint32_t aux;

	if (op < KV_INFO || op >= KV_OP_END)
		return -EBADMSG;
	if (op == KV_INFO) {
		if (len)
			return -EBADMSG;
		*r = req;
		return 0;
	}
	req.key_len = bytes_get_u16(&in);
	if (bytes_get_u16(&in))
		return -EBADMSG;
	aux = bytes_get_u32(&in);
	req.key = bytes_get(&in, req.key_len);
	req.val_len = bytes_left(&in);
	req.val = bytes_get(&in, req.val_len);
	if (in.failed || !req_allowed(&req, aux))
		return -EBADMSG;
	req.off = op == KV_UPDATE ? aux : 0;
	req.count = op == KV_SCAN ? aux : 0;
	*r = req;
	return 0;
}

void kv_info_encode(const struct kv_info *info, void *buf)
{
	struct bytes_out out = bytes_out(buf, KV_INFO_LEN);

	bytes_put_u32(&out, info->version);
	bytes_put_u32(&out, info->shards);
	bytes_put_u64(&out, info->records);
	bytes_put_u64(&out, info->bytes);
	bytes_put_u64(&out, info->evicted);
}

int kv_info_decode(const void *buf, size_t len, struct kv_info *info)
{
	struct bytes_in in = bytes_in(buf, len);
	struct kv_info i;

	i.version = bytes_get_u32(&in);
	i.shards = bytes_get_u32(&in);
	i.records = bytes_get_u64(&in);
	i.bytes = bytes_get_u64(&in);
	i.evicted = bytes_get_u64(&in);
	if (in.failed || bytes_left(&in) || !i.shards || i.shards > UINT16_MAX)
		return -EBADMSG;
	*info = i;
	return 0;
}

void kv_scan_head_encode(void *buf, uint32_t count, bool more)
{
	struct bytes_out out = bytes_out(buf, KV_SCAN_HEAD);

	bytes_put_u32(&out, count);
	bytes_put_u32(&out, more);
}

void kv_item_encode(struct bytes_out *out, const struct kv_record *r)
{
	bytes_put_u16(out, r->key_len);
	bytes_put_u32(out, r->val_len);
	bytes_put_mem(out, kv_record_key(r), r->key_len);
	bytes_put_mem(out, kv_record_val(r), r->val_len);
}

int kv_scan_decode(const void *buf, size_t len, struct kv_scan_in *scan)
{
	struct kv_scan_in s = {.in = bytes_in(buf, len)};
	uint32_t more;

	s.left = bytes_get_u32(&s.in);
	more = bytes_get_u32(&s.in);
	if (s.in.failed || s.left > KV_SCAN_MAX || more > 1)
		return -EBADMSG;
	s.more = more;
	*scan = s;
	return 0;
}

int kv_scan_next(struct kv_scan_in *scan, struct kv_item *item)
{
	struct kv_item it;

	if (!scan->left)
		return bytes_left(&scan->in) ? -EBADMSG : 0;
	it.key_len = bytes_get_u16(&scan->in);
	it.val_len = bytes_get_u32(&scan->in);
	it.key = bytes_get(&scan->in, it.key_len);
	it.val = bytes_get(&scan->in, it.val_len);
	if (scan->in.failed || !it.key_len || it.key_len > KV_KEY_MAX ||
	    it.val_len > KV_VAL_MAX)
		return -EBADMSG;
	scan->left--;
	*item = it;
	return 1;
}
