/* SPDX-License-Identifier: MIT */
/*
 * msg.h - the header of a message between vqps (docs/protocol/vqp.md,
 * "Messages"). It carries all that the receiver needs to answer the sender: for
 * a new sender nothing is looked up (KRCore, section 4.4). A message that is
 * longer than MSG_PAYLOAD is announced: in its place comes where its bytes are
 * (struct msg_announce). Pure.
 */
#ifndef SKEIN_VQP_MSG_H
#define SKEIN_VQP_MSG_H

#include "vqp/meta.h"

#include <stddef.h>

#define MSG_HEADER 96u
#define MSG_BUF 4096u /* of a receive */
#define MSG_PAYLOAD (MSG_BUF - MSG_HEADER - 32u)
#define MSG_MAX (1u << 30) /* of one that is announced */
#define MSG_PIECES 4u
#define MSG_ANNOUNCE_HEAD 24u
#define MSG_ANNOUNCE_PIECE 16u
#define MSG_ANNOUNCE_MAX (MSG_ANNOUNCE_HEAD + MSG_PIECES * MSG_ANNOUNCE_PIECE)

enum msg_kind {
	MSG_KIND_DATA = 1,
	MSG_KIND_CREDIT = 2, /* says only how many messages were taken */
	/* The receiver READs the message, which is at the sender. */
	MSG_KIND_ANNOUNCE = 3,
	/* The announced message `seq` is not READ: it has failed. If `asks`:
	 * the vqp that a message, or a question for credit, is for has failed,
	 * or is not there. */
	MSG_KIND_REFUSE = 4,
	/* The sender, which sent `seq` messages to the port, is freed. */
	MSG_KIND_END = 5,
};

struct msg_head {
	enum msg_kind kind;
	bool with_imm;
	bool asks; /* of credit: the receiver is to tell what was taken */
	uint32_t imm;
	uint32_t len; /* of the payload, or of the announced message */
	/* to a vqp, or (vqp 0) to the vqp that has bound the port */
	uint32_t dst_vqp, dst_gen;
	uint16_t dst_port;
	/* the sender */
	uint32_t src_vqp, src_gen;
	uint16_t src_domain;  /* of the sender's node; 0: none */
	struct meta_node src; /* beat is not sent */
	uint32_t seq;	      /* counts this sender's messages to this
			       * receiver */
	uint32_t taken;	      /* the receiver's messages that were taken */
};

/* The bytes of an announced message, and a word of the sender's that has this
 * value as long as the sender holds them. */
struct msg_announce {
	struct {
		uint64_t addr;
		uint32_t len; /* not 0 */
		uint32_t rkey;
	} piece[MSG_PIECES];
	unsigned n;
	uint64_t word_addr, word;
	uint32_t word_rkey;
};

void msg_head_encode(const struct msg_head *h, uint8_t *buf);
/* buf has len bytes, header and payload. -EBADMSG, -EPROTONOSUPPORT: of another
 * version. */
int msg_head_decode(const uint8_t *buf, size_t len, struct msg_head *h);
/* What comes behind the header of an announcement. Returns its bytes. */
size_t msg_announce_encode(const struct msg_announce *a, uint8_t *buf);
/* total: of the header, the bytes of all pieces. -EBADMSG. */
int msg_announce_decode(const uint8_t *buf, size_t len, uint32_t total,
			struct msg_announce *a);

#endif
