/* SPDX-License-Identifier: MIT */
/*
 * msg.c - headers of messages: their bytes, and the checks of them.
 */
#include "vqp/msg.h"

#include <errno.h>

#define MAGIC 0x36717673u /* "svq6" */
#define FLAG_IMM 1u
#define FLAG_ASKS 2u

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
	H_SRC_PORT = 36,  /* two bytes */
	H_SRC_UDQPN = 38, /* three bytes */
	H_SRC_DCTN = 41,  /* three bytes */
	H_SRC_GID = 44,
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
	buf[H_FLAGS] = (uint8_t)((h->with_imm ? FLAG_IMM : 0) |
				 (h->asks ? FLAG_ASKS : 0));
	put_le32(buf + H_SRC_TABLE_RKEY, h->src.table_rkey);
	put_le32(buf + H_LEN, h->len);
	put_le32(buf + H_DST_VQP, h->dst_vqp);
	put_le32(buf + H_DST_GEN, h->dst_gen);
	put_le32(buf + H_DST_PORT, h->dst_port | (uint32_t)h->src_domain << 16);
	put_le32(buf + H_SRC_VQP, h->src_vqp);
	put_le32(buf + H_SRC_GEN, h->src_gen);
	put_le32(buf + H_SRC_PORT, h->src.port);
	put_le24(buf + H_SRC_UDQPN, h->src.udqpn);
	put_le24(buf + H_SRC_DCTN, h->src.dctn);
	memcpy(buf + H_SRC_GID, h->src.gid, sizeof(h->src.gid));
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
	    buf[H_FLAGS] > FLAG_ASKS || buf[H_FLAGS + 1] || h->src.table >> 56)
		return false;
	if (h->kind < MSG_KIND_DATA || h->kind > MSG_KIND_END)
		return false;
	if (!h->src_vqp || !h->src.port ||
	    (h->asks && h->kind != MSG_KIND_CREDIT &&
	     h->kind != MSG_KIND_REFUSE))
		return false;
	if (h->kind == MSG_KIND_ANNOUNCE)
		return h->len && h->len <= MSG_MAX;
	if (h->kind == MSG_KIND_END)
		return !h->dst_vqp && !h->len && len == MSG_HEADER;
	/* only an answer may do this: before it no other vqp is known */
	if (h->kind != MSG_KIND_DATA &&
	    ((!h->dst_vqp && (h->kind != MSG_KIND_CREDIT || !h->asks)) ||
	     h->len))
		return false;
	return h->len <= MSG_PAYLOAD && h->len == len - MSG_HEADER;
}

int msg_head_decode(const uint8_t *buf, size_t len, struct msg_head *h)
{
	struct msg_head r = {0};

	if (len < MSG_HEADER)
		return -EBADMSG;
	if (get_le32(buf + H_MAGIC) != MAGIC &&
	    get_le24(buf) == MAGIC % (1u << 24))
		return -EPROTONOSUPPORT;
	r.kind = (enum msg_kind)buf[H_KIND];
	r.with_imm = buf[H_FLAGS] == FLAG_IMM;
	r.asks = buf[H_FLAGS] == FLAG_ASKS;
	r.len = get_le32(buf + H_LEN);
	r.dst_vqp = get_le32(buf + H_DST_VQP);
	r.dst_gen = get_le32(buf + H_DST_GEN);
	r.dst_port = (uint16_t)get_le32(buf + H_DST_PORT);
	r.src_domain = (uint16_t)(get_le32(buf + H_DST_PORT) >> 16);
	r.src_vqp = get_le32(buf + H_SRC_VQP);
	r.src_gen = get_le32(buf + H_SRC_GEN);
	r.src.port = get_le32(buf + H_SRC_PORT) & 0xffff;
	r.src.udqpn = get_le24(buf + H_SRC_UDQPN);
	memcpy(r.src.gid, buf + H_SRC_GID, sizeof(r.src.gid));
	r.src.dctn = get_le24(buf + H_SRC_DCTN);
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

/* --- announcements ------------------------------------------------------ */

enum {
	A_WORD_ADDR = 0,
	A_WORD = 8,
	A_WORD_RKEY = 16,
	A_PIECES = 20,
	/* of a piece */
	P_ADDR = 0,
	P_LEN = 8,
	P_RKEY = 12,
};

size_t msg_announce_encode(const struct msg_announce *a, uint8_t *buf)
{
	uint8_t *at = buf + MSG_ANNOUNCE_HEAD;
	unsigned i;

	put_le64(buf + A_WORD_ADDR, a->word_addr);
	put_le64(buf + A_WORD, a->word);
	put_le32(buf + A_WORD_RKEY, a->word_rkey);
	put_le32(buf + A_PIECES, a->n);
	for (i = 0; i < a->n; i++, at += MSG_ANNOUNCE_PIECE) {
		put_le64(at + P_ADDR, a->piece[i].addr);
		put_le32(at + P_LEN, a->piece[i].len);
		put_le32(at + P_RKEY, a->piece[i].rkey);
	}
	return (size_t)(at - buf);
}

int msg_announce_decode(const uint8_t *buf, size_t len, uint32_t total,
			struct msg_announce *a)
{
	const uint8_t *at = buf + MSG_ANNOUNCE_HEAD;
	struct msg_announce r = {0};
	uint64_t sum = 0;
	unsigned i;

	if (len < MSG_ANNOUNCE_HEAD)
		return -EBADMSG;
	r.word_addr = get_le64(buf + A_WORD_ADDR);
	r.word = get_le64(buf + A_WORD);
	r.word_rkey = get_le32(buf + A_WORD_RKEY);
	r.n = get_le32(buf + A_PIECES);
	if (!r.word || !r.n || r.n > MSG_PIECES ||
	    len != MSG_ANNOUNCE_HEAD + r.n * MSG_ANNOUNCE_PIECE)
		return -EBADMSG;
	for (i = 0; i < r.n; i++, at += MSG_ANNOUNCE_PIECE) {
		r.piece[i].addr = get_le64(at + P_ADDR);
		r.piece[i].len = get_le32(at + P_LEN);
		r.piece[i].rkey = get_le32(at + P_RKEY);
		if (!r.piece[i].len)
			return -EBADMSG;
		sum += r.piece[i].len;
	}
	if (sum != total)
		return -EBADMSG;
	*a = r;
	return 0;
}
