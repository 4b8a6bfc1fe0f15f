/* SPDX-License-Identifier: MIT */
/*
 * attach.h - messages on a node service's socket: attach, memory, wake-ups
 * (docs/vqp.md, "Node service"). One struct both ways; both ends are on one
 * host, so numbers are in its byte order. Pure.
 */
#ifndef SKEIN_VQP_NODE_ATTACH_H
#define SKEIN_VQP_NODE_ATTACH_H

#include <stddef.h>
#include <stdint.h>

#define ATTACH_MAGIC 0x316e7673u /* "svn1" */
#define ATTACH_VERSION 1u
#define ATTACH_LEN 128u

enum attach_kind {
	ATTACH_HELLO = 1, /* answer: descriptors of rings and life page */
	ATTACH_MEM,	  /* the answer has the memory's descriptor */
	ATTACH_MEM_FREE,  /* no answer */
	ATTACH_WAKE,	  /* to an end that sleeps: look; no answer */
	ATTACH_MEM_AGAIN, /* an earlier service's memory, with its descriptor */
};

struct attach_msg {
	uint32_t magic;
	uint16_t version;
	uint16_t kind;
	int32_t status;	 /* of an answer: 0 or a negative error */
	uint32_t id;	 /* of memory: its name in requests */
	uint64_t len;	 /* of memory, of the rings' file */
	uint32_t access; /* enum ibv_access_flags */
	uint32_t region; /* its name for peers; 0: they cannot reach it */
	uint8_t gid[16]; /* of the node */
	char addr[72];
	uint64_t region_addr; /* of memory: as peers name it */
};

_Static_assert(sizeof(struct attach_msg) == ATTACH_LEN, "no holes");
_Static_assert(offsetof(struct attach_msg, gid) == 32, "no holes");

void attach_fill(struct attach_msg *m, enum attach_kind kind);
/* 0; -EBADMSG; -SKEIN_EVERSION. */
int attach_decode(const void *buf, size_t len, struct attach_msg *m);

#endif
