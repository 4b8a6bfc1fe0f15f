/* SPDX-License-Identifier: MIT */
/*
 * cq.c - completion queues. Send completions are in a private ring, pushed by
 * this process only. Receives complete in their slots; poll merges: it looks at
 * the slots themselves while the CQ has few receive queues, else at the packed
 * ready words of marked groups (shm.h). A group stays marked while one of its
 * words differs from what was seen: a peer may complete a receive before
 * post_recv() has counted it.
 *
 * Neither kind starves: a poll takes sends first, then receives, but after
 * SENDS_IN_A_ROW sends in polls that these have filled it takes receives first.
 * Receives are not moved into the ring, because their places are the program's
 * again only when it has polled them; merge() moves them, and then those in the
 * ring are older than those in the slots and must leave first.
 *
 * An overflow is an error for good, as in IBA 11.6.3.1 (CQ_ERR, and the QPs
 * that use it to ERR). It can only happen, and polls only look for it, while
 * the queues on this CQ have more places than the CQ.
 */
#include "dev/soft/qp/qp.h"

#include "base/pow2.h"
#include "dev/soft/link/link.h"
#include "dev/soft/ud/ud.h"
#include "env/membarrier.h"

#include <errno.h>
#include <sched.h>
#include <string.h>

#define FEW_RQS 4
#define SENDS_IN_A_ROW 64

int soft_create_cq(struct dev *dev, int cqe, void *cq_context,
		   struct ibv_comp_channel *ch, struct ibv_cq **cq)
{
	struct soft *s = soft_of_dev(dev);
	struct soft_cq *c;
	int err = -ENOMEM;
	uint32_t n;

	if (!soft_here(s))
		return -EPERM;
	if (cqe < 1 || (uint32_t)cqe > SOFT_CQE_MAX)
		return -EINVAL;
	n = pow2_at_least((uint32_t)cqe);
	c = env_alloc_aligned(s->env, SHM_LINE, sizeof(*c));
	if (!c)
		return -ENOMEM;
	c->ring = env_alloc(s->env, n * sizeof(*c->ring));
	if (!c->ring)
		goto err_cq;
	c->s = s;
	c->mask = n - 1;
	c->ex.context = &s->vctx.context;
	c->ex.channel = ch;
	c->ex.cq_context = cq_context;
	c->ex.cqe = (int)n;
	atomic_init(&c->late_ns, ENV_NEVER);
	/* Biased until a QP that is not single-threaded uses it. */
	soft_lock_init(&c->lock, !membarrier_refused());
	pthread_mutex_lock(&s->lock);
	err = soft_arena_alloc(s, SOFT_ARENA_CQ, SHM_PAGE, &c->page[0]);
	if (!err) {
		c->shm = (struct shm_cq *)(void *)(s->base + c->page[0]);
		/* The first line is as soft_chan_leave() left it. */
		memset((char *)c->shm + SHM_LINE, 0, SHM_PAGE - SHM_LINE);
		list_add_tail(&s->cqs, &c->link);
		if (ch)
			soft_chan_join(c,
				       container_of(ch, struct soft_chan, ch));
	}
	pthread_mutex_unlock(&s->lock);
	if (err)
		goto err_ring;
	*cq = (struct ibv_cq *)(void *)&c->ex;
	return 0;

err_ring:
	env_free(s->env, c->ring);
err_cq:
	env_free(s->env, c);
	return err;
}

int soft_destroy_cq(struct dev *dev, struct ibv_cq *cq)
{
	struct soft *s = soft_of_dev(dev);
	struct soft_cq *c = soft_cq_of(cq);
	unsigned i;

	if (!soft_here(s))
		return -EPERM;
	pthread_mutex_lock(&s->lock);
	if (c->qps) {
		pthread_mutex_unlock(&s->lock);
		return -EBUSY;
	}
	list_del(&c->link);
	if (c->chan)
		soft_chan_leave(c);
	for (i = 0; i < SOFT_READY_PAGES; i++)
		if (c->page[i])
			soft_arena_free(s, SOFT_ARENA_CQ, SHM_PAGE, c->page[i]);
	pthread_mutex_unlock(&s->lock);
	soft_async_forget(s, &c->ex, &c->async_events);
	pthread_mutex_lock(&s->async_lock);
	while (atomic_load(&c->events))
		pthread_cond_wait(&s->acked, &s->async_lock);
	pthread_mutex_unlock(&s->async_lock);
	env_free(s->env, c->rqs);
	env_free(s->env, c->seen);
	env_free(s->env, c->ring);
	env_free(s->env, c);
	return 0;
}

/* The ready word of a position. */
static _Atomic uint32_t *ready_word(struct soft_cq *c, uint32_t pos)
{
	uint64_t page = c->page[pos / SHM_CQ_READY];

	return &((struct shm_cq *)(void *)(c->s->base + page))
			->ready[pos % SHM_CQ_READY];
}

/* For the user of q. The user of a single-threaded QP is the CQ's user as well,
 * and takes the CQ's lock as a poll does. */
static void enter(struct soft_cq *c, const struct soft_qp *q)
{
	if (q->flags & DEV_QP_SINGLE_THREADED)
		soft_lock(&c->lock);
	else
		soft_lock_revoke(&c->lock);
}

static void leave(struct soft_cq *c, const struct soft_qp *q)
{
	if (q->flags & DEV_QP_SINGLE_THREADED)
		soft_unlock(&c->lock);
	else
		soft_lock_return(&c->lock);
}

static int rqs_grow(struct soft_cq *c, const struct soft_qp *q)
{
	uint32_t cap = c->rq_cap ? c->rq_cap * 2 : 8;
	struct skein_env *env = c->s->env;
	struct soft_qp **rqs = env_alloc(env, cap * sizeof(struct soft_qp *));
	uint32_t *seen = env_alloc(env, cap * sizeof(*seen));

	if (!rqs || !seen) {
		env_free(env, rqs);
		env_free(env, seen);
		return -ENOMEM;
	}
	enter(c, q);
	if (c->rq_top) {
		memcpy(rqs, c->rqs, c->rq_top * sizeof(struct soft_qp *));
		memcpy(seen, c->seen, c->rq_top * sizeof(*seen));
	}
	env_free(env, c->rqs);
	env_free(env, c->seen);
	c->rqs = rqs;
	c->seen = seen;
	c->rq_cap = cap;
	leave(c, q);
	return 0;
}

int soft_cq_attach_recv(struct soft_cq *c, struct soft_qp *q)
{
	uint32_t pos, page;
	int err;

	for (pos = 0; pos < c->rq_top && c->rqs[pos]; pos++)
		;
	if (pos == c->rq_cap) {
		err = rqs_grow(c, q);
		if (err)
			return err;
	}
	page = pos / SHM_CQ_READY;
	if (page >= SOFT_READY_PAGES)
		return -ENOSPC;
	if (!c->page[page]) {
		err = soft_arena_alloc(c->s, SOFT_ARENA_CQ, SHM_PAGE,
				       &c->page[page]);
		if (err)
			return err;
		memset(c->s->base + c->page[page] + SHM_LINE, 0,
		       SHM_PAGE - SHM_LINE);
	}
	q->rq_pos = pos;
	shm_set(q->self->ready_off,
		(uint32_t)(((char *)ready_word(c, pos) - c->s->base) / 4));
	shm_set(q->self->cq_off, (uint32_t)(c->page[0] / SHM_PAGE));
	shm_set(q->self->rq_group, pos / SHM_CQ_GROUP);
	atomic_store(ready_word(c, pos), 0);
	enter(c, q);
	c->rqs[pos] = q;
	c->seen[pos] = 0;
	if (pos == c->rq_top)
		c->rq_top++;
	leave(c, q);
	return 0;
}

/* Drops the completions of q that nobody polled. Lock held. */
static void ring_forget(struct soft_cq *c, struct soft_qp *q, bool recv)
{
	uint32_t i, to;

	c->recvs_end = c->head;
	for (i = to = c->head; i != c->tail; i++) {
		struct soft_cqe *e = &c->ring[i & c->mask];

		if (e->qp == q && e->recv == recv)
			continue;
		c->ring[to++ & c->mask] = *e;
		if (e->recv)
			c->recvs_end = to;
	}
	c->tail = to;
}

void soft_cq_detach_send(struct soft_cq *c, struct soft_qp *q)
{
	enter(c, q);
	ring_forget(c, q, false);
	leave(c, q);
}

static void recv_forget(struct soft_cq *c, struct soft_qp *q)
{
	ring_forget(c, q, true);
	if (q->rq_flush)
		c->flushing--;
	q->rq_flush = false;
	if (q->srq && q->ud)
		soft_ud_srq_leave(q);
	else if (q->srq)
		soft_order_forget(q);
}

void soft_cq_detach(struct soft_cq *scq, struct soft_cq *c, struct soft_qp *q)
{
	if (scq != c)
		soft_cq_detach_send(scq, q);
	enter(c, q);
	if (scq == c)
		ring_forget(c, q, false);
	recv_forget(c, q);
	c->rqs[q->rq_pos] = NULL;
	while (c->rq_top && !c->rqs[c->rq_top - 1])
		c->rq_top--;
	leave(c, q);
}

void soft_cq_reset_recv(struct soft_cq *c, struct soft_qp *q)
{
	uint32_t i;

	enter(c, q);
	recv_forget(c, q);
	atomic_store(ready_word(c, q->rq_pos), 0);
	c->seen[q->rq_pos] = 0;
	q->rq_tail = 0;
	atomic_store(&q->rq_reap, 0);
	for (i = 0; i < q->rq_slots; i++)
		atomic_store(&soft_slot(q, i)->word, SHM_SLOT_FREE);
	if (q->ud)
		soft_ud_reset_recv(q);
	leave(c, q);
}

static void flush_begin(struct soft_cq *c, struct soft_qp *q)
{
	c->flushing += !q->rq_flush;
	q->rq_flush = true;
}

/* Starts to flush the receives of q. No peer completes them any more. */
void soft_cq_flush_recv(struct soft_cq *c, struct soft_qp *q, bool user)
{
	if (user) {
		enter(c, q);
		flush_begin(c, q);
		leave(c, q);
	} else {
		soft_lock_revoke(&c->lock);
		flush_begin(c, q);
		soft_lock_return(&c->lock);
	}
	soft_cq_fire(c);
}

void soft_cq_look(struct soft_cq *c, struct soft_qp *q)
{
	c->seen[q->rq_pos] = atomic_load(ready_word(c, q->rq_pos)) - 1;
	soft_cq_mark(c, q);
}

void soft_cq_mark(struct soft_cq *c, const struct soft_qp *q)
{
	shm_cq_mark(c->shm, q->rq_pos / SHM_CQ_GROUP);
}

void soft_cq_fire_any(struct soft_cq *c)
{
	if (c->ex.channel)
		soft_cq_ring(c, false);
}

void soft_cq_fire(struct soft_cq *c)
{
	if (c->ex.channel)
		soft_cq_ring(c, true);
}

void soft_cq_seen(struct soft_qp *q)
{
	soft_cq_of(q->ex.qp_base.recv_cq)->seen[q->rq_pos]++;
}

void soft_cq_set_ready(struct soft_qp *q, uint32_t n)
{
	struct soft_cq *c = soft_cq_of(q->ex.qp_base.recv_cq);

	atomic_store(ready_word(c, q->rq_pos), n);
	soft_cq_mark(c, q);
}

void soft_cq_add_ready(struct soft_qp *q)
{
	struct soft_cq *c = soft_cq_of(q->ex.qp_base.recv_cq);

	atomic_fetch_add(ready_word(c, q->rq_pos), 1);
	soft_cq_mark(c, q);
}

static void overflow(struct soft_cq *c)
{
	uint32_t i;

	if (c->error)
		return;
	/* relaxed: cq_broken() reads it without the lock, and nothing else of
	 * the CQ with it */
	__atomic_store_n(&c->error, true, __ATOMIC_RELAXED);
	soft_async(c->s, IBV_EVENT_CQ_ERR, &c->ex);
	env_log(c->s->env, ENV_LOG_ERROR,
		"skein0: a completion queue of %d entries overflowed; make it "
		"as large as all the queues on it",
		c->ex.cqe);
	/* Its QPs follow: the control thread finds them. */
	for (i = 0; i < c->rq_top; i++)
		if (c->rqs[i])
			soft_ask_service(c->s, c->rqs[i]->idx);
}

static bool ring_push(struct soft_cq *c, const struct soft_cqe *e)
{
	if (unlikely(c->tail - c->head > c->mask)) {
		overflow(c);
		return false;
	}
	c->ring[c->tail++ & c->mask] = *e;
	if (e->recv)
		c->recvs_end = c->tail;
	return true;
}

/* Adds e to the ring and wakes a thread that sleeps. The lock is held. False:
 * the ring is full. */
static bool push(struct soft_cq *c, const struct soft_cqe *e)
{
	bool ok = ring_push(c, e);

	if (c->ex.channel && unlikely(c->s->harsh))
		soft_harsh_cq_bell(c, !ok || e->status != IBV_WC_SUCCESS);
	else if (c->ex.channel)
		soft_cq_ring(c, !ok || e->status != IBV_WC_SUCCESS);
	return ok;
}

void soft_cq_shut(struct soft_cq *c)
{
	soft_lock_revoke(&c->lock);
}

void soft_cq_push_shut(struct soft_cq *c, const struct soft_cqe *e)
{
	bool ok = push(c, e);

	soft_lock_return(&c->lock);
	if (unlikely(!ok))
		soft_ask_service(c->s, e->qp->idx);
}

void soft_cq_push(struct soft_cq *c, const struct soft_cqe *e, bool held)
{
	bool ok;

	if (held)
		soft_lock_revoke(&c->lock);
	else
		soft_lock(&c->lock);
	ok = push(c, e);
	if (held)
		soft_lock_return(&c->lock);
	else
		soft_unlock(&c->lock);
	if (unlikely(!ok))
		soft_ask_service(c->s, e->qp->idx);
}

static inline void wc_fill(struct ibv_wc *wc, const struct soft_cqe *e)
{
	wc->wr_id = e->wr_id;
	wc->status = e->status;
	wc->opcode = e->opcode;
	wc->vendor_err = 0;
	wc->byte_len = e->byte_len;
	wc->imm_data = e->imm;
	wc->qp_num = e->qpn;
	wc->src_qp = e->recv ? e->src_qp : 0;
	wc->wc_flags = e->flags;
	wc->pkey_index = 0;
	wc->slid = 0;
	wc->sl = e->sl;
	wc->dlid_path_bits = 0;
}

static int pop(struct soft_cq *c, int n, struct ibv_wc *wc)
{
	int got = 0;

	while (got < n && c->head != c->tail) {
		const struct soft_cqe *e = &c->ring[c->head & c->mask];

		wc_fill(&wc[got++], e);
		/* release: pairs with the poster's acquire in post_send():
		 * the slot is free once its completion was taken */
		if (!e->recv)
			atomic_store_explicit(&e->qp->sq_done, e->pos + 1,
					      memory_order_release);
		c->head++;
	}
	return got;
}

/* Do the marks say where to look? Flushed receives have none. */
static inline bool by_marks(const struct soft_cq *c)
{
	return c->rq_top > FEW_RQS && !c->flushing;
}

/* Is there a reason to look at the slots of the queue at pos? */
static inline bool worth(struct soft_cq *c, uint32_t pos)
{
	if (!c->rqs[pos])
		return false;
	if (!by_marks(c))
		return true;
	/* relaxed: the slot's word carries the order */
	return atomic_load_explicit(ready_word(c, pos), memory_order_relaxed) !=
	       c->seen[pos];
}

static inline bool reap_one(struct soft_cq *c, uint32_t pos, struct soft_cqe *e)
{
	struct soft_qp *q = c->rqs[pos];

	if (unlikely(q->ud))
		return soft_ud_reap(q, e, ready_word(c, pos), &c->seen[pos]);
	if (!soft_reap(q, e))
		return false;
	if (e->status != IBV_WC_WR_FLUSH_ERR)
		c->seen[pos]++;
	return true;
}

/* Is any group marked? From here on those that are have to be taken. */
static inline bool marks_take(struct soft_cq *c)
{
	/* relaxed: mostly nothing is there, and a poll that comes a little too
	 * early is as one that came before */
	if (!atomic_load_explicit(&c->shm->any, memory_order_relaxed))
		return false;
	/* seq_cst: the looks at the groups come behind it. A plain store could
	 * wait in this core's buffer until a peer has marked a group that was
	 * looked at before, and then clear what the peer stored. */
	atomic_exchange(&c->shm->any, 0);
	return true;
}

/* The first marked group in [g, end), or some number that is not below end. */
static uint32_t group_next(const struct soft_cq *c, uint32_t g, uint32_t end)
{
	const _Atomic uint64_t *eight = (const void *)c->shm->group;
	uint64_t bytes;

	for (; g < end; g = (g | 7) + 1) {
		bytes = atomic_load_explicit(&eight[g / 8],
					     memory_order_relaxed) >>
			g % 8 * 8;
		if (bytes)
			return g + (uint32_t)__builtin_ctzll(bytes) / 8;
	}
	return g;
}

/* Takes the next marked group: its positions from *pos on and below to are
 * [*pos, *end). */
static bool group_take(struct soft_cq *c, uint32_t *pos, uint32_t *end,
		       uint32_t to)
{
	uint32_t g;

	if (*pos >= to)
		return false;
	g = group_next(c, *pos / SHM_CQ_GROUP,
		       (to + SHM_CQ_GROUP - 1) / SHM_CQ_GROUP);
	*end = (g + 1) * SHM_CQ_GROUP;
	if (*pos < g * SHM_CQ_GROUP)
		*pos = g * SHM_CQ_GROUP;
	if (*pos >= to)
		return false;
	if (*end > to)
		*end = to;
	/* seq_cst: the looks at its words come behind it, as above. */
	atomic_exchange(&c->shm->group[g], 0);
	return true;
}

static int reap_part(struct soft_cq *c, uint32_t pos, uint32_t to, int n,
		     struct ibv_wc *wc)
{
	struct soft_cqe e;
	uint32_t end, from;
	bool left;
	int got = 0;

	while (got < n && group_take(c, &pos, &end, to)) {
		left = false;
		for (from = pos; pos < end && got < n; pos++) {
			if (!worth(c, pos))
				continue;
			while (got < n && reap_one(c, pos, &e))
				wc_fill(&wc[got++], &e);
			left |= worth(c, pos);
		}
		if (got == n)
			c->rq_next = pos; /* the next one's turn */
		if (left || got == n)
			shm_cq_mark(c->shm, (pos - 1) / SHM_CQ_GROUP);
		else if (from % SHM_CQ_GROUP)
			/* Its first words are looked at last. */
			atomic_store_explicit(
				&c->shm->group[from / SHM_CQ_GROUP], 1,
				memory_order_relaxed);
	}
	return got;
}

/* The first groups last, with all of the one in which it began. */
static __attribute__((noinline)) int reap_marked(struct soft_cq *c, int n,
						 struct ibv_wc *wc)
{
	uint32_t from = c->rq_next < c->rq_top ? c->rq_next : 0, to;
	int got;

	if (n <= 0 || !marks_take(c))
		return 0;
	got = reap_part(c, from, c->rq_top, n, wc);
	to = (from + SHM_CQ_GROUP - 1) / SHM_CQ_GROUP * SHM_CQ_GROUP;
	if (to > c->rq_top)
		to = c->rq_top;
	return got + reap_part(c, 0, to, n - got, wc + got);
}

static int reap_rqs(struct soft_cq *c, int n, struct ibv_wc *wc)
{
	uint32_t i, pos = c->rq_next;
	struct soft_cqe e;
	int got = 0;

	if (by_marks(c))
		return reap_marked(c, n, wc);
	for (i = 0; i < c->rq_top; i++, pos++) {
		if (pos >= c->rq_top)
			pos = 0;
		if (!c->rqs[pos])
			continue;
		while (got < n && reap_one(c, pos, &e))
			wc_fill(&wc[got++], &e);
		if (got == n) {
			c->rq_next = pos + 1; /* the next one's turn */
			break;
		}
	}
	return got;
}

/* Moves all completed receives into the ring: an overflow shows there. */
static void merge(struct soft_cq *c)
{
	uint32_t pos = 0, end = c->rq_top;
	bool marks = by_marks(c), left;
	struct soft_cqe e;

	if (marks && !marks_take(c))
		return;
	while (marks ? group_take(c, &pos, &end, c->rq_top) : pos < c->rq_top) {
		for (left = false; pos < end; pos++) {
			while (worth(c, pos) && reap_one(c, pos, &e)) {
				if (!ring_push(c, &e))
					return; /* for good */
			}
			left |= worth(c, pos);
		}
		if (marks && left)
			shm_cq_mark(c->shm, (pos - 1) / SHM_CQ_GROUP);
	}
}

int soft_resize_cq(struct dev *dev, struct ibv_cq *cq, int cqe)
{
	struct soft *s = soft_of_dev(dev);
	struct soft_cq *c = soft_cq_of(cq);
	struct soft_cqe *ring, *old;
	uint32_t n, i, have;

	if (!soft_here(s))
		return -EPERM;
	if (cqe < 1 || (uint32_t)cqe > SOFT_CQE_MAX)
		return -EINVAL;
	n = pow2_at_least((uint32_t)cqe);
	ring = env_alloc(s->env, n * sizeof(*ring));
	if (!ring)
		return -ENOMEM;
	soft_lock_revoke(&c->lock);
	/* Receives in their slots count too. */
	if (n < c->mask + 1 && !c->error)
		merge(c);
	old = c->ring;
	have = c->tail - c->head;
	if (c->error || have > n) {
		soft_lock_return(&c->lock);
		env_free(s->env, ring);
		return -EINVAL;
	}
	for (i = 0; i < have; i++)
		ring[i] = old[(c->head + i) & c->mask];
	c->ring = ring;
	c->recvs_end -= c->head;
	c->head = 0;
	c->tail = have;
	c->mask = n - 1;
	c->ex.cqe = (int)n;
	soft_lock_return(&c->lock);
	env_free(s->env, old);
	return 0;
}

/* A spinning poller may occupy the only core that the control thread may use.
 * That thread could then take in the answer only after the poller's time slice:
 * milliseconds. Only while an answer is on its way, and not on the mapped
 * path. */
static __attribute__((noinline, cold)) void give_way(struct soft *s)
{
	uint32_t asks = atomic_load(&s->asking_qps);

	if (asks >= SOFT_LINK_ASKS)
		soft_link_poll(s);
	if (asks % SOFT_LINK_ASKS)
		sched_yield();
}

/* See the file head. */
static inline int poll_sends_first(struct soft_cq *c, int n, struct ibv_wc *wc)
{
	int got = c->head != c->tail ? pop(c, n, wc) : 0;

	if (got < n) {
		c->in_a_row = 0;
		return got + reap_rqs(c, n - got, wc + got);
	}
	c->in_a_row += (uint32_t)got;
	return got;
}

static __attribute__((noinline)) int poll_recvs_first(struct soft_cq *c, int n,
						      struct ibv_wc *wc)
{
	int got = 0;

	c->in_a_row = 0;
	if ((int32_t)(c->recvs_end - c->head) <= 0) {
		c->recvs_end = c->head; /* positions wrap */
		got = reap_rqs(c, n, wc);
	}
	return got < n ? got + pop(c, n - got, wc + got) : got;
}

int soft_poll_cq(struct ibv_cq *cq, int n, struct ibv_wc *wc)
{
	struct soft_cq *c = soft_cq_of(cq);
	int got;

	if (unlikely(!soft_here(c->s)))
		return -EPERM;
	soft_lock(&c->lock);
	if (unlikely(atomic_load_explicit(&c->load, memory_order_relaxed) >
		     (uint64_t)c->mask + 1))
		merge(c);
	if (unlikely(c->error)) {
		soft_unlock(&c->lock);
		return -EIO;
	}
	if (unlikely(c->in_a_row >= SENDS_IN_A_ROW))
		got = poll_recvs_first(c, n, wc);
	else
		got = poll_sends_first(c, n, wc);
	soft_unlock(&c->lock);
	if (got == 0 && unlikely(atomic_load_explicit(&c->s->asking_qps,
						      memory_order_relaxed)))
		give_way(c->s);
	return got;
}

int soft_req_notify_cq(struct ibv_cq *cq, int solicited_only)
{
	struct soft_cq *c = soft_cq_of(cq);

	if (unlikely(!soft_here(c->s)))
		return EPERM;
	if (!c->chan)
		return 0;
	soft_lock(&c->lock);
	soft_cq_arm(c, solicited_only ? SHM_ARMED_SOLICITED : SHM_ARMED_ANY);
	soft_unlock(&c->lock);
	if (unlikely(atomic_load(&c->s->asking_qps) >= SOFT_LINK_ASKS))
		soft_link_sleeps(c->s);
	return 0;
}
