/* SPDX-License-Identifier: MIT */
/*
 * srq.c - UD QPs on an SRQ, at their owner. Their senders claim its receives as
 * they claim those of a QP's own queue (claim.h), and write into the receive
 * for which QP the message is; what they complete is handed out here, in the
 * order of positions, to a list of each QP.
 *
 * A sender claims, writes the name of the QP, and looks at that QP's gate
 * again. The owner shuts the gate, does a membarrier(2) and looks for claims of
 * that name. So either it sees claim and name, or the sender sees the gate shut
 * and gives the receive back unused (VOID). A name is 0 from post to claim, so
 * only the QP that a stopped sender means waits for that sender.
 *
 * Lock order: a receive CQ's lock, soft_srq_ud.lock, the SRQ's post_lock.
 */
#include "dev/soft/dc/dc.h"
#include "dev/soft/ud/ud.h"

#define BUCKETS 64u
#define NOT_SHUT false

struct soft_srq_ud {
	struct soft_srq *r;
	struct soft_lock lock;
	struct soft_outs outs;
	uint32_t *next; /* by slot: behind it in a QP's list */
	struct soft_ud *bucket[BUCKETS];
};

int soft_ud_srq_new(struct soft_srq *r)
{
	struct skein_env *env = r->s->env;
	struct soft_srq_ud *u;

	if (soft_srq_ud(r))
		return 0;
	u = env_alloc(env, sizeof(*u));
	if (!u)
		return -ENOMEM;
	u->r = r;
	soft_lock_init(&u->lock, false);
	u->next = env_alloc(env, r->c.slots * sizeof(*u->next));
	if (!u->next || outs_init(&u->outs, env, &r->c, true)) {
		env_free(env, u->next);
		env_free(env, u);
		return -ENOMEM;
	}
	outs_reset(&u->outs);
	/* release: pairs with soft_srq_ud(). A thread that still reads NULL
	 * moves a slot that no UD sender has claimed: the first QP is not in
	 * RTR yet. */
	atomic_store_explicit(&r->ud, u, memory_order_release);
	r->s->n_srq_uds++;
	return 0;
}

void soft_ud_srq_free(struct soft_srq *r)
{
	struct soft_srq_ud *u = soft_srq_ud(r);

	if (!u)
		return;
	outs_fini(&u->outs, r->s->env);
	env_free(r->s->env, u->next);
	env_free(r->s->env, u);
}

static struct soft_ud **bucket(struct soft_srq_ud *u, uint32_t dest)
{
	return &u->bucket[(dest ^ dest >> 6) % BUCKETS];
}

static struct soft_ud *find(struct soft_srq_ud *u, uint32_t dest)
{
	struct soft_ud *d = *bucket(u, dest);

	while (d && d->dest != dest)
		d = d->next;
	return d;
}

void soft_ud_srq_join(struct soft_qp *q)
{
	struct soft_srq_ud *u = soft_srq_ud(q->srq);
	struct soft_ud *d = q->ud;

	soft_lock(&u->lock);
	d->q = q;
	d->dest = q->srq_id;
	d->n_done = 0;
	d->fault = false;
	d->joined = true;
	d->next = *bucket(u, d->dest);
	*bucket(u, d->dest) = d;
	soft_unlock(&u->lock);
}

static void list_put(struct soft_srq_ud *u, struct soft_ud *d, uint32_t n)
{
	if (d->n_done++)
		u->next[d->last_done] = n;
	else
		d->first_done = n;
	d->last_done = n;
}

static bool list_get(struct soft_srq_ud *u, struct soft_ud *d, uint32_t *n)
{
	if (!d->n_done)
		return false;
	*n = d->first_done;
	d->first_done = u->next[*n];
	d->n_done--;
	return true;
}

/* All that is over, to those it is for. The lock is held. */
static void hand_out(struct soft_srq_ud *u)
{
	struct soft_srq *r = u->r;
	struct shm_slot *slot;
	struct soft_ud *d;
	uint32_t n;

	outs_gather(&u->outs);
	while ((n = outs_first(&u->outs, NOT_SHUT)) != r->c.slots) {
		outs_del(&u->outs, n);
		slot = soft_srq_slot(r, n);
		d = find(u, shm_once(slot->dest));
		if (!d || shm_once(slot->flags) & SHM_SLOT_VOID) {
			soft_srq_post_again_seen(r, n);
			continue;
		}
		d->fault |= shm_once(slot->status) != IBV_WC_SUCCESS;
		list_put(u, d, n);
	}
}

void soft_ud_srq_leave(struct soft_qp *q)
{
	struct soft_srq_ud *u = soft_srq_ud(q->srq);
	struct soft_ud **at, *d = q->ud;
	uint32_t n;

	soft_lock(&u->lock);
	if (d->joined) {
		hand_out(u);
		for (at = bucket(u, d->dest); *at != d; at = &(*at)->next)
			;
		*at = d->next;
		d->joined = false;
	}
	while (list_get(u, d, &n))
		soft_srq_give_back_seen(q->srq, n);
	soft_unlock(&u->lock);
}

static bool done_get(struct soft_qp *q, uint32_t *n)
{
	struct soft_srq_ud *u = soft_srq_ud(q->srq);
	bool got;

	soft_lock(&u->lock);
	if (!q->ud->n_done)
		hand_out(u);
	got = list_get(u, q->ud, n);
	soft_unlock(&u->lock);
	return got;
}

static void fill(const struct soft_qp *q, const struct shm_slot *slot,
		 uint32_t len, struct soft_cqe *e)
{
	if (soft_is_dct(q)) {
		soft_reap_fill(slot, len, e);
		return;
	}
	soft_ud_fill(slot, len, e);
	e->opcode = IBV_WC_RECV;
}

bool soft_ud_srq_reap(struct soft_qp *q, struct soft_cqe *e)
{
	struct soft_srq *r = q->srq;
	uint32_t n = 0;

	do {
		if (!done_get(q, &n))
			return false;
		fill(q, soft_srq_slot(r, n), r->recv[n].len, e);
		e->wr_id = r->recv[n].wr_id;
		/* again: somebody's word made another QP take it */
	} while (!soft_srq_give_back_seen(r, n));
	e->qpn = q->ex.qp_base.qp_num;
	e->qp = q;
	e->recv = true;
	return true;
}

bool soft_ud_srq_due(struct soft_qp *q)
{
	struct soft_srq_ud *u = soft_srq_ud(q->srq);
	bool due;

	soft_lock(&u->lock);
	due = q->ud->n_done > 0;
	soft_unlock(&u->lock);
	return due;
}

bool soft_ud_srq_fault(struct soft_qp *q)
{
	struct soft_srq_ud *u = soft_srq_ud(q->srq);
	bool fault;

	soft_lock(&u->lock);
	hand_out(u);
	fault = q->ud->fault;
	soft_unlock(&u->lock);
	return fault;
}

void soft_ud_srq_pass(struct soft_srq_ud *u, uint32_t slot)
{
	soft_lock(&u->lock);
	outs_gather(&u->outs);
	/* The list may hold it because of a word that a peer scribbled on. */
	outs_del(&u->outs, slot);
	soft_unlock(&u->lock);
}

bool soft_ud_srq_busy(const struct soft_srq *r, uint32_t dest, uint64_t since)
{
	const struct claim *c = &r->c;
	const struct shm_slot *slot;
	uint64_t word;
	uint32_t i;

	for (i = 0; i < c->slots; i++) {
		/* seq_cst: as in claim_busy() */
		word = atomic_load(&c->shm->cell[i].word);
		if (claim_state(word) != CLAIM_CLAIMED ||
		    !soft_ud_id(claim_id(word)) || claim_pos(word) >= since)
			continue;
		slot = (void *)(r->slots + (size_t)i * r->stride);
		if (!dest || shm_once(slot->dest) == dest)
			return true;
	}
	return false;
}

void soft_ud_srq_swept(struct soft_srq *r, uint32_t claimant)
{
	struct soft_srq_ud *u = soft_srq_ud(r);
	uint32_t n, from;

	if (!u)
		return;
	soft_lock(&u->lock);
	outs_gather(&u->outs);
	for (from = 0; claim_sweep(&r->c, claimant, from, &n); from = n + 1) {
		outs_del(&u->outs, n);
		soft_srq_post_again_seen(r, n);
	}
	/* It may have died before it said that one is given back. */
	hand_out(u);
	soft_unlock(&u->lock);
}

void soft_ud_srqs_service(struct soft *s)
{
	struct soft_srq_ud *u;
	struct list_node *n;
	struct soft_srq *r;

	if (!s->n_srq_uds)
		return;
	for (n = s->srqs.next; n != &s->srqs; n = n->next) {
		r = container_of(n, struct soft_srq, link);
		u = soft_srq_ud(r);
		/* acquire: pairs with give_back() in ud/send.c: it is DONE */
		if (!u || !atomic_exchange(&r->shm->voided, 0))
			continue;
		soft_lock(&u->lock);
		hand_out(u);
		soft_unlock(&u->lock);
	}
}
