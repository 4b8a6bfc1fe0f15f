/* SPDX-License-Identifier: MIT */
/*
 * msg.h - the header of a message between vqps (docs/protocol/vqp.md,
 * "Messages"). It carries all that the receiver needs to answer the sender: for
 * a new sender nothing is looked up (KRCore, section 4.4). Pure.
 */
#ifndef SKEIN_VQP_MSG_H
#define SKEIN_VQP_MSG_H

#include "vqp/meta.h"

#include <stddef.h>

#define MSG_HEADER 96u
#define MSG_BUF 4096u /* of a receive */
#define MSG_PAYLOAD (MSG_BUF - MSG_HEADER - 32u)

enum msg_kind {
	MSG_KIND_DATA = 1,
	MSG_KIND_CREDIT = 2, /* says only how many messages were taken */
};

struct msg_head {
	enum msg_kind kind;
	bool with_imm;
	uint32_t imm;
	uint32_t len; /* of the payload */
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

void msg_head_encode(const struct msg_head *h, uint8_t *buf);
/* buf has len bytes, header and payload. -EBADMSG. */
int msg_head_decode(const uint8_t *buf, size_t len, struct msg_head *h);

#endif
