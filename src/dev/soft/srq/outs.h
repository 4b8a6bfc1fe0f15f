/* SPDX-License-Identifier: MIT */
/*
 * outs.h - at the owner of claimed slots (claim.h): the slots that a producer
 * has claimed and the owner has not taken yet, in the order of their positions.
 * For a UD QP's own queue all of them; for an SRQ those that UD and DC senders
 * have claimed.
 *
 * Private memory throughout. What peers write into the words decides when a
 * slot is over, never where the list leads.
 */
#ifndef SKEIN_DEV_SOFT_OUTS_H
#define SKEIN_DEV_SOFT_OUTS_H

#include "dev/soft/srq/claim.h"

/* Ids of UD senders: of their control connections (serve.c). Those of an RC or
 * UC QP are below (shm_srq_id()), CLAIM_OWNER is above. */
#define SOFT_UD_ID (15u << 18)
/* Of the owner itself, for a message from another host. */
#define SOFT_LINK_ID (CLAIM_OWNER - 1)

static inline bool soft_ud_id(uint32_t id)
{
	return id >= SOFT_UD_ID && id != CLAIM_OWNER;
}

struct soft_out {
	uint32_t prev, next;
	bool in;
};

struct soft_outs {
	struct claim *c;
	bool shared;	      /* an SRQ's */
	uint64_t next;	      /* the first position not looked at */
	struct soft_out *out; /* by slot; [slots] is the list's head */
};

/* c has its slots, or is filled in before outs_reset(). -ENOMEM. */
int outs_init(struct soft_outs *o, struct skein_env *env, struct claim *c,
	      bool shared);
void outs_fini(struct soft_outs *o, struct skein_env *env);
/* Nothing is out; from the oldest position on that may be posted. */
void outs_reset(struct soft_outs *o);

/* All that was claimed up to now. */
void outs_gather(struct soft_outs *o);
/* The first slot that is DONE, or, with flush, the owner's; `slots` if there is
 * none. Slots that one sender completed are found in its order. */
uint32_t outs_first(const struct soft_outs *o, bool flush);
/* Slot n is over, or is to be claimed again; it need not be on the list. */
void outs_del(struct soft_outs *o, uint32_t n);

#endif
