/* SPDX-License-Identifier: MIT */
/*
 * msg.c - headers of messages: their bytes, and the checks of them.
 */
#include "vqp/msg.h"

#include <errno.h>

#define MAGIC 0x33717673u /* "svq3" */
#define FLAG_IMM 1u

enum {
	H_MAGIC = 0,
	H_KIND = 4,  /* two bytes */
	H_FLAGS = 6, /* two bytes */
	H_SRC_TABLE_RKEY = 8,
	H_LEN = 12,
	H_DST_VQP = 16,
	H_DST_GEN = 20,
	H_DST_PORT = 24,   /* two bytes */
	H_SRC_DOMAIN = 26, /* two bytes */
	H_SRC_VQP = 28,
	H_SRC_GEN = 32,
	H_SRC_PORT = 36,
	H_SRC_GID = 40,
	H_SRC_DCTN = 56,
	H_SEQ = 60,
	H_SRC_KEY = 64,
	H_SRC_INCARNATION = 72,
	H_TAKEN = 80,
	H_IMM = 84,
	H_SRC_TABLE = 88,
};

void msg_head_encode(const struct msg_head *h, uint8_t *buf)
{
	memset(buf, 0, MSG_HEADER);
	put_le32(buf + H_MAGIC, MAGIC);
	buf[H_KIND] = (uint8_t)h->kind;
	buf[H_FLAGS] = h->with_imm ? FLAG_IMM : 0;
	put_le32(buf + H_SRC_TABLE_RKEY, h->src.table_rkey);
	put_le32(buf + H_LEN, h->len);
	put_le32(buf + H_DST_VQP, h->dst_vqp);
	put_le32(buf + H_DST_GEN, h->dst_gen);
	put_le32(buf + H_DST_PORT, h->dst_port | (uint32_t)h->src_domain << 16);
	put_le32(buf + H_SRC_VQP, h->src_vqp);
	put_le32(buf + H_SRC_GEN, h->src_gen);
	put_le32(buf + H_SRC_PORT, h->src.port);
	memcpy(buf + H_SRC_GID, h->src.gid, sizeof(h->src.gid));
	put_le32(buf + H_SRC_DCTN, h->src.dctn);
	put_le32(buf + H_SEQ, h->seq);
	put_le64(buf + H_SRC_KEY, h->src.key);
	put_le64(buf + H_SRC_INCARNATION, h->src.incarnation);
	put_le32(buf + H_TAKEN, h->taken);
	put_le32(buf + H_IMM, h->imm);
	put_le64(buf + H_SRC_TABLE, h->src.table);
}

static bool makes_sense(const uint8_t *buf, const struct msg_head *h,
			size_t len)
{
	if (get_le32(buf + H_MAGIC) != MAGIC || buf[H_KIND + 1] ||
	    buf[H_FLAGS] > FLAG_IMM || buf[H_FLAGS + 1] || h->src.table >> 56)
		return false;
	if (h->kind != MSG_KIND_DATA && h->kind != MSG_KIND_CREDIT)
		return false;
	if (!h->src_vqp || !h->src.port || h->src.port > UINT16_MAX ||
	    h->src.dctn > 0xffffff)
		return false;
	/* only an answer may do this: before it no other vqp is known */
	if (h->kind == MSG_KIND_CREDIT && (!h->dst_vqp || h->len))
		return false;
	return h->len <= MSG_PAYLOAD && h->len == len - MSG_HEADER;
}

int msg_head_decode(const uint8_t *buf, size_t len, struct msg_head *h)
{
	struct msg_head r = {0};

	if (len < MSG_HEADER)
		return -EBADMSG;
	r.kind = (enum msg_kind)buf[H_KIND];
	r.with_imm = buf[H_FLAGS] == FLAG_IMM;
	r.len = get_le32(buf + H_LEN);
	r.dst_vqp = get_le32(buf + H_DST_VQP);
	r.dst_gen = get_le32(buf + H_DST_GEN);
	r.dst_port = (uint16_t)get_le32(buf + H_DST_PORT);
	r.src_domain = (uint16_t)(get_le32(buf + H_DST_PORT) >> 16);
	r.src_vqp = get_le32(buf + H_SRC_VQP);
	r.src_gen = get_le32(buf + H_SRC_GEN);
	r.src.port = get_le32(buf + H_SRC_PORT);
	memcpy(r.src.gid, buf + H_SRC_GID, sizeof(r.src.gid));
	r.src.dctn = get_le32(buf + H_SRC_DCTN);
	r.seq = get_le32(buf + H_SEQ);
	r.src.key = get_le64(buf + H_SRC_KEY);
	r.src.incarnation = get_le64(buf + H_SRC_INCARNATION);
	r.taken = get_le32(buf + H_TAKEN);
	r.imm = get_le32(buf + H_IMM);
	r.src.table_rkey = get_le32(buf + H_SRC_TABLE_RKEY);
	r.src.table = get_le64(buf + H_SRC_TABLE);
	if (!makes_sense(buf, &r, len))
		return -EBADMSG;
	*h = r;
	return 0;
}
