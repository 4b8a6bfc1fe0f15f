/* SPDX-License-Identifier: MIT */
/*
 * dc.h - dynamically connected transport: one sending QP (a DCI) that reaches
 * any number of targets (DCTs), each named by its number and a 64-bit key.
 *
 * A DCI is a QP of RC's kind with a far side that changes: before the DCI
 * carries out a request it turns to the target of that request. Its requests
 * are done in the order of posting, whatever their targets. A DCT is a
 * receiving end as a UD QP on an SRQ is one: senders claim receives and write
 * its name into them. A refused request breaks its sender only, not the target.
 *
 * A sender is inside a target's memory while its word in the target's table
 * (struct dc_inside) is odd: the owner waits for these words as it waits for
 * the hazard of an RC peer. docs/soft.md, "Claimed slots".
 *
 * Locks: a DCI and its destinations under q->lock; destinations come and go
 * under soft.lock as well.
 */
#ifndef SKEIN_DEV_SOFT_DC_DC_H
#define SKEIN_DEV_SOFT_DC_DC_H

#include "dev/soft/qp/qp.h"
#include "dev/soft/ud/ah.h"

#define DC_INSIDE_MAX 1024u /* pairs of a DCI anywhere and a process */
#define DC_DEST_MAX 256u    /* destinations that a DCI remembers */

/* In the target's NIC file, one line a sender. */
struct dc_inside {
	/* a sender takes it by a CAS from 0 to its claimant's id */
	alignas(SHM_LINE) _Atomic uint32_t by;
	_Atomic uint32_t hazard; /* the sender's; odd: inside */
};

_Static_assert(sizeof(struct dc_inside) == SHM_LINE, "a line each");

enum dc_dest_state {
	DC_DEST_NEW,   /* the control thread is to dial */
	DC_DEST_DIALS, /* it does */
	DC_DEST_READY, /* its place is known */
	DC_DEST_NOBODY /* no such target: the next post looks again */
};

/* A target, at a DCI. */
struct dc_dest {
	struct list_node age; /* in soft_dci.age */
	uint32_t dctn;
	uint64_t key;
	enum dc_dest_state state;
	uint32_t refs; /* parked requests */
	/* READY: */
	struct soft_peer *peer; /* a reference */
	struct soft_bell *bell; /* a reference, or NULL */
	struct shm_qp *far;
	struct dc_inside *word; /* NULL: none was free */
};

struct soft_dci {
	struct list_node age; /* destinations, the last one used at the end */
	uint32_t n_dests;
	struct dc_dest *cur; /* the QP's far side is this target's */
	struct dc_dest *to;  /* of the requests that are being posted */
};

static inline bool soft_is_dct(const struct soft_qp *q)
{
	return q->ud && q->ex.qp_base.qp_type == IBV_QPT_DRIVER;
}

/* Is the target of its head still looked for? */
static inline bool soft_dc_dials(const struct soft_qp *q)
{
	return q->dc->cur && (q->dc->cur->state == DC_DEST_NEW ||
			      q->dc->cur->state == DC_DEST_DIALS);
}

int soft_create_dci(struct dev *dev, struct ibv_pd *pd,
		    struct ibv_qp_init_attr *attr,
		    const struct dev_qp_opts *opts, struct ibv_qp **qp);
int soft_create_dct(struct dev *dev, struct ibv_pd *pd, struct ibv_cq *cq,
		    struct ibv_srq *srq, uint64_t dc_key, int access,
		    const struct dev_qp_opts *opts, struct ibv_qp **qp);
int soft_post_dc(struct dev *dev, struct ibv_qp *qp, struct ibv_send_wr *wr,
		 struct ibv_ah *ah, uint32_t dctn, uint64_t dc_key);

/* dci.c; q->lock held */
void soft_dc_turn(struct soft_qp *q, struct dc_dest *d);
/* As soft_gate_check(). */
int soft_dc_gate(struct soft_qp *q);
/* The rest with soft.lock held. Dials for new destinations. */
void soft_dci_service(struct soft_qp *q);
/* A dial is over: peer is NULL where nobody was. */
void soft_dci_met(struct soft_qp *q, uint32_t qpn, struct soft_peer *peer,
		  uint64_t area, struct soft_bell *bell);
void soft_dci_free(struct soft_qp *q);

/* dct.c */
/* Waits until no sender is inside memory of this device; locked: soft.lock is
 * held. -EBUSY when one has stopped there. */
int soft_dc_quiesce(struct soft *s, bool locked);
bool soft_dc_quiet(struct soft *s);
/* The process of this claimant is gone. s->lock held. */
void soft_dc_swept(struct soft *s, uint32_t claimant);

#endif
