/* SPDX-License-Identifier: MIT */
/*
 * slot.h - small messages: the root writes each one straight into the next slot
 * of every receiver's ring, without asking first. RDMC, section 4.6 ("Small
 * messages", after Derecho); docs/protocol/mcast.md, section 9.
 *
 * Every receiver has a ring of `count` slots and sends its address once. Small
 * message i goes to slot i mod count. The root has a ring of the same shape: it
 * puts a message together there once and sends it from there to all. The root
 * uses a slot again when every receiver has acknowledged the message in it and
 * all its WRITEs have ended. Until then the root waits.
 *
 * Thread rule: as eng.h.
 */
#ifndef SKEIN_MCAST_SLOT_H
#define SKEIN_MCAST_SLOT_H

#include "mcast/port.h"
#include "mcast/schedule/schedule.h"

/* Slots of a ring: the default, and the maximum. The maximum is half of a
 * connection's receive credits, because each slot may take one. */
#define MCAST_SLOT_COUNT 16u
#define MCAST_SLOT_MAX 32u
/* Messages per round; then other groups run. */
#define MCAST_SLOT_BURST 8u

struct mcast_eng;
struct mcast_nb;

/* One WRITE of the root to one receiver. */
struct mcast_slot_send {
	struct mcast_op op;
	struct mcast_eng *eng;
	uint32_t slot;
};

struct mcast_slots {
	uint32_t count; /* 0: this group has no slots */
	uint32_t stride;
	struct mcast_buf mem;
	void *handle;
	/* next: messages that the root has put into slots, or that have come to
	 * a receiver. taken: messages that the receiver has taken out. */
	uint64_t next, taken;
	/* Per slot. recs: the record that has come. seqs: the root: the last
	 * message in it. flying: the root: WRITEs under way. */
	struct mcast_rec *recs;
	uint64_t *seqs;
	uint32_t *flying;
	struct mcast_slot_send *sends; /* the root: [slot][neighbour] */
	uint32_t under_way;
	/* the root: neighbours to which the current message has gone */
	uint32_t to;
	bool filled; /* the root: the current message is in its slot */
};

static inline uint32_t mcast_slot_stride(uint32_t small_max)
{
	return (uint32_t)sizeof(struct mcast_rec) + ((small_max + 63) & ~63u);
}

/* 0 or -ENOMEM. The engine knows its neighbours. */
int mcast_slots_init(struct mcast_eng *e);
void mcast_slots_fini(struct mcast_eng *e);

/* Does a message of `size` bytes go by slots? */
bool mcast_slot_fits(const struct mcast_eng *e, uint64_t size);
/* The root begins with this message. */
void mcast_slot_start(struct mcast_eng *e, const struct skein_mcast_msg *msg,
		      const struct mcast_dest *dest);
/* One round. Returns how many things moved. */
int mcast_slot_step(struct mcast_eng *e);
bool mcast_slot_has_work(const struct mcast_eng *e);
/* A receiver: a small message has come and waits for messages before it. */
bool mcast_slot_waiting(const struct mcast_eng *e);
/* The application has finished with the current small message. */
void mcast_slot_block_done(struct mcast_eng *e, int status);

/* A receiver's RING has come. */
void mcast_slot_ring(struct mcast_eng *e, struct mcast_nb *nb,
		     const struct mcast_rec *rec);
void mcast_slot_fill_ring(const struct mcast_eng *e, struct mcast_rec *rec);
/* An immediate says that a small message is in this member's next slot.
 * byte_len counts record and payload. */
void mcast_slot_in(struct mcast_eng *e, uint32_t nb, uint32_t imm_value,
		   uint32_t byte_len, uint64_t now_ns);
/* May message msg be the next one that comes along the tree? Earlier small
 * messages may still be on their way. */
bool mcast_slot_may_precede(const struct mcast_eng *e, uint64_t msg);

#endif
