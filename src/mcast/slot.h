/* SPDX-License-Identifier: MIT */
/*
 * slot.h - small messages: the root writes each straight into the next slot of
 * every receiver's ring, round robin, without asking first. The paper, section
 * 4.6 ("Small messages", after Derecho); docs/protocol/mcast.md, section 9.
 *
 * Every receiver has a ring of `count` slots, which it names once; slot i takes
 * every count-th small message. The root has one ring of the same shape, where a
 * message is put together once and from where it goes to all. A slot is used
 * again when all have acknowledged the message that was in it and its WRITEs
 * have ended: a full window waits.
 *
 * Thread rule: the engine's (eng.h).
 */
#ifndef SKEIN_MCAST_SLOT_H
#define SKEIN_MCAST_SLOT_H

#include "mcast/port.h"
#include "mcast/schedule.h"

/* Slots of a ring, unless the application says; at most: half of the receive
 * credits of a connection, for as many may be owed. */
#define MCAST_SLOT_COUNT 16u
#define MCAST_SLOT_MAX 32u
/* Messages a round: others have a turn. */
#define MCAST_SLOT_BURST 8u

struct mcast_eng;
struct mcast_nb;

/* One WRITE of the root's. */
struct mcast_slot_send {
	struct mcast_op op;
	struct mcast_eng *eng;
	uint32_t slot;
};

struct mcast_slots {
	uint32_t count; /* 0: this group has none */
	uint32_t stride;
	struct mcast_buf mem;
	void *handle;
	/* The root: messages put into slots; receivers: that have come, and
	 * that have been taken out. */
	uint64_t next, taken;
	/* Of each slot: the record of what has come; the root: which message it
	 * was used for last, and its WRITEs under way. */
	struct mcast_rec *recs;
	uint64_t *seqs;
	uint32_t *flying;
	struct mcast_slot_send *sends; /* the root: a slot's, for each nb */
	uint32_t under_way;
	uint32_t to; /* the root: neighbours that have the current message */
	bool filled; /* ... it is put together */
};

static inline uint32_t mcast_slot_stride(uint32_t small_max)
{
	return (uint32_t)sizeof(struct mcast_rec) + ((small_max + 63) & ~63u);
}

/* 0 or -ENOMEM. The neighbours are known. */
int mcast_slots_init(struct mcast_eng *e);
void mcast_slots_fini(struct mcast_eng *e);

/* Does a message of so many bytes go by slots? */
bool mcast_slot_fits(const struct mcast_eng *e, uint64_t size);
/* The root: this is the message that it is at now. */
void mcast_slot_start(struct mcast_eng *e, const struct skein_mcast_msg *msg,
		      const struct mcast_dest *dest);
/* A round. Returns what moved. */
int mcast_slot_step(struct mcast_eng *e);
bool mcast_slot_has_work(const struct mcast_eng *e);
/* Receivers: one has come, and waits for those before it. */
bool mcast_slot_waiting(const struct mcast_eng *e);
/* The application is through with the small message that this member is at. */
void mcast_slot_block_done(struct mcast_eng *e, int status);

/* RING, of a receiver. */
void mcast_slot_ring(struct mcast_eng *e, struct mcast_nb *nb,
		     const struct mcast_rec *rec);
void mcast_slot_fill_ring(const struct mcast_eng *e, struct mcast_rec *rec);
/* An immediate says that a small message is in this member's next slot:
 * byte_len bytes, record and all. */
void mcast_slot_in(struct mcast_eng *e, uint32_t nb, uint32_t imm_value,
		   uint32_t byte_len, uint64_t now_ns);
/* May message msg be the next that comes along the tree? Those before it
 * may still be on their way through slots. */
bool mcast_slot_may_precede(const struct mcast_eng *e, uint64_t msg);

#endif
