/* SPDX-License-Identifier: MIT */
/*
 * ring.h - the two rings between a client and its node service, in one file
 * that the service made: requests of 64-byte lines, completions of 32 bytes.
 *
 * The file: cursors (struct ring_heads), 256 lines at 4096, then 512
 * completions. Each line and completion begins with its number, from 1, which
 * is written last: so the other end reads one line only. The first line of a
 * request:
 *
 *	at  bytes
 *	4   1   1 new, 2 free, 3 connect, 4 stop connecting, 5 bind, 6 receive;
 *		from 7: 7 + enum ibv_wr_opcode
 *	5   1   flags, as enum ibv_send_flags
 *	6   1   lines that follow, at most 2: each a number and 60 bytes
 *	7   1   pieces, at most 4
 *	8   4   vqp: generation (16 bits) and place
 *	12  4   rkey, immediate, or port
 *	16  8   wr_id
 *	24  8   remote address; connect: the node's number; free: messages seen
 *	32  4   memory of the first piece
 *	36  4   its bytes, or those of inline data
 *	40  24  inline data; or the GID; or offset, compare or add, swap
 *
 * The rest of inline data, or 16 bytes for each further piece (memory, bytes,
 * offset), is in the lines that follow. A completion:
 *
 *	4   4   vqp
 *	8   8   wr_id
 *	16  4   kind (enum ring_kind), status, opcode, with immediate
 *	20  4   bytes; reply: the error
 *	24  4   immediate; reply to new: the vqp
 *	28  4   message: the sender's vqp; else how many requests are retired
 *
 * A vqp that a message made is freed only if the client has seen all its
 * messages. Neither end trusts what it reads: the service copies a request
 * first and checks the copy; each end checks the cursor that the other writes.
 *
 * Sleeping: an end sets its word, makes a fence, looks at its ring once more and
 * sleeps at its socket. The other end writes to the ring, makes a fence, and
 * sends a wake-up if the word is set. So does a client once in 224 completions
 * that it takes: the service may wait for room. A client that has found no room for
 * a request sets one word more: as long as it is set, the service sends the
 * wake-up also when it has taken lines.
 *
 * Thread rule: one thread at each end at a time.
 */
#ifndef SKEIN_VQP_NODE_RING_H
#define SKEIN_VQP_NODE_RING_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RING_LINE 64u
#define RING_LINES 256u /* powers of two */
#define RING_COMPS 512u
#define RING_MORE 2u	/* lines that follow the first at most */
#define RING_INLINE 24u /* bytes of inline data in the first line */
#define RING_NEXT 60u	/* bytes in each that follows */
#define RING_SGES 4u
#define RING_DATA 128u	 /* inline bytes at most */
#define RING_REPLIES 64u /* completions kept free for replies */
/* The service stops for want of room when the client has so many completions
 * not taken. The client checks once in half of them whether the service
 * sleeps. */
#define RING_FULL (RING_COMPS - RING_REPLIES)
#define RING_LOOK (RING_FULL / 2)

#define RING_AT_LINES 4096u
#define RING_AT_COMPS (RING_AT_LINES + RING_LINES * RING_LINE)
#define RING_LEN (RING_AT_COMPS + RING_COMPS * 32u)

/* The first page: two cursors, each in a cache line of its writer. */
struct ring_heads {
	_Atomic(uint32_t) lines_taken; /* the service's */
	_Atomic(uint32_t) closed;      /* the service has detached the client */
	uint32_t pad0[14];
	_Atomic(uint32_t) comps_taken; /* the client's */
	_Atomic(uint32_t) asleep;      /* the client waits at its socket */
	_Atomic(uint32_t) wants_room;  /* its ring of requests was full */
	uint32_t pad1[13];
};

struct ring_line {
	_Atomic(uint32_t) seq;
	uint8_t body[RING_NEXT];
};

struct ring_comp_line {
	_Atomic(uint32_t) seq;
	uint8_t body[28];
};

_Static_assert(offsetof(struct ring_heads, comps_taken) == 64, "a line");
_Static_assert(sizeof(struct ring_line) == RING_LINE, "a line");
_Static_assert(sizeof(struct ring_comp_line) == 32, "half a line");

enum ring_op {
	RING_OP_NEW = 1,
	RING_OP_FREE,
	RING_OP_CONNECT,
	RING_OP_STOP, /* the connect's deadline is over */
	RING_OP_BIND,
	RING_OP_RECV,
	RING_OP_SEND, /* and those of enum ibv_wr_opcode: op - RING_OP_SEND */
	RING_OPS = RING_OP_SEND + 8,
};

struct ring_sge {
	uint32_t mem; /* its lkey */
	uint32_t len;
	uint64_t off;
};

/* A decoded request. */
struct ring_req {
	uint8_t op, flags, num_sge;
	uint32_t vqp;
	/* the rkey; a message's immediate; the port of connect and bind */
	uint32_t rkey;
	uint64_t wr_id;
	/* FREE: messages that the client has seen; CONNECT: the node's
	 * number */
	uint64_t addr;
	uint64_t compare_add, swap;
	uint8_t gid[16];
	uint32_t data_len; /* inline */
	uint8_t data[RING_DATA];
	struct ring_sge sge[RING_SGES];
};

enum ring_kind {
	RING_REPLY = 1, /* to NEW, CONNECT, BIND */
	RING_DONE,	/* of a request */
	RING_RECV,	/* of a receive, on a connected vqp */
	RING_MESSAGE,	/* the same on a bound one */
	RING_ROOM,	/* only the count of retired requests */
};

struct ring_comp {
	uint8_t kind, status, opcode, with_imm;
	uint32_t vqp;
	uint64_t wr_id;
	uint32_t len; /* in a reply: the error, negated */
	uint32_t imm; /* in a reply: the id of what was made */
	/* in a message: its sender; else how many requests are retired */
	uint32_t value;
};

/* One end. */
struct ring {
	struct ring_heads *heads;
	struct ring_line *lines;
	struct ring_comp_line *comps;
	uint32_t line, comp; /* the next */
	uint32_t far;	     /* the other end's cursor as read last */
};

void ring_init(struct ring *r, void *mem);

/* The client's end. -EAGAIN: no room. */
int ring_put(struct ring *r, const struct ring_req *req);
/* Is there room for any request? */
static inline bool ring_has_room(const struct ring *r)
{
	uint32_t taken = atomic_load_explicit(&r->heads->lines_taken,
					      memory_order_relaxed);

	return r->line + RING_MORE - taken < RING_LINES;
}
bool ring_comp_take(struct ring *r, struct ring_comp *c);

/* The service's end. 0; -EAGAIN: nothing there; -EBADMSG: not a request. */
int ring_take(struct ring *r, struct ring_req *req);
/* Is there a request? One load. */
static inline bool ring_has(const struct ring *r)
{
	return atomic_load_explicit(&r->lines[r->line % RING_LINES].seq,
				    memory_order_relaxed) == r->line + 1;
}
static inline bool ring_comp_has(const struct ring *r)
{
	return atomic_load_explicit(&r->comps[r->comp % RING_COMPS].seq,
				    memory_order_relaxed) == r->comp + 1;
}
/* How many completions have room; -EBADMSG: the client's cursor is
 * impossible. */
int ring_comp_room(struct ring *r);
/* Puts a completion; the caller has checked the room. */
void ring_comp_put(struct ring *r, const struct ring_comp *c);

#endif
