/* SPDX-License-Identifier: MIT */
/*
 * harsh.c - harsh mode's side of a device: its seed, its QPs, and the threads
 * that take their steps. harsh/op.c has the steps.
 *
 * No step is lost. A thread that adds a step lowers the QP's due time, then the
 * device's; then it reads wake_ns and kicks the control thread if that sleeps
 * beyond the step. A thread that takes steps raises the device's due time, and
 * the control thread sets wake_ns to "never", before they read the QPs' due
 * times. All of these accesses are seq_cst, so of the adding and the taking
 * thread at least one sees the other's store. Without that a step could wait
 * until another step is added.
 */
#include "dev/soft/harsh/harsh.h"
#include "base/fence.h"
#include "base/prng.h"
#include "dev/soft/cq/cq.h"
#include "dev/soft/mw.h"
#include "dev/soft/soft.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define US 1000ull
#define MS 1000000ull
/* Polling threads come first; the control thread takes steps for programs that
 * sleep. */
#define GRACE_NS (30 * US)
/* After the last request it looks in often for a while: then posts need not
 * kick it. */
#define LINGER_NS (3 * MS)
#define TICK_NS (300 * US)

static void due_earlier(_Atomic uint64_t *at, uint64_t due)
{
	uint64_t was = atomic_load(at);

	while (due < was && !atomic_compare_exchange_weak(at, &was, due))
		;
}

/* A thread must come at due. */
static void wanted(struct soft *s, uint64_t due)
{
	due_earlier(&s->harsh->due_ns, due);
	if (atomic_load(&s->harsh->wake_ns) > due + TICK_NS + GRACE_NS)
		soft_kick(s);
}

int soft_harsh_open(struct soft *s, const char *seed_text)
{
	struct soft_harsh *h;
	unsigned long long seed;
	char *end;

	errno = 0;
	seed = strtoull(seed_text, &end, 0);
	if (errno || *end || end == seed_text || *seed_text == '-')
		return -EINVAL;
	h = env_alloc(s->env, sizeof(*h));
	if (!h)
		return -ENOMEM;
	h->seed = seed;
	list_init(&h->qps);
	atomic_init(&h->due_ns, ENV_NEVER);
	atomic_init(&h->wake_ns, 0);
	s->harsh = h;
	return 0;
}

void soft_harsh_close(struct soft *s)
{
	env_free(s->env, s->harsh);
	s->harsh = NULL;
}

void soft_harsh_caps(struct soft *s, struct dev_caps *caps)
{
	/* Every fourth seed: receivers that look for a tail are tested too. */
	caps->ordered_write = s->harsh->seed % 4 == 3;
	caps->ordered_read = false;
	caps->wake_on_write = false;
	caps->death_notice = false;
	caps->single_threaded = false;
	s->nic->ordered = caps->ordered_write;
}

void soft_harsh_begin(struct soft *s, uint64_t no)
{
	pthread_mutex_lock(&s->lock);
	s->harsh->made = prng_mix(no);
	pthread_mutex_unlock(&s->lock);
}

int soft_harsh_qp_new(struct soft_qp *q)
{
	struct soft_harsh *h = q->s->harsh;
	struct soft_harsh_qp *hq = env_alloc(q->s->env, sizeof(*hq));

	if (!hq)
		return -ENOMEM;
	hq->q = q;
	hq->rng = prng_mix(h->seed + prng_mix(++h->made));
	atomic_init(&hq->due_ns, ENV_NEVER);
	hq->bell_ns = ENV_NEVER;
	q->harsh = hq;
	list_add_tail(&h->qps, &hq->link);
	return 0;
}

void soft_harsh_qp_free(struct soft_qp *q)
{
	list_del(&q->harsh->link);
	env_free(q->s->env, q->harsh);
	q->harsh = NULL;
}

/* Each place is calm for some requests and rough for others. So a rare state
 * happens, for example a queue full of requests that all wait for their
 * completion. */
static void weather(struct soft_harsh_qp *hq)
{
	static const uint8_t rough[16] = {0, 0, 0, 0, 0, 0, 0, 0,
					  0, 1, 1, 1, 1, 1, 2, 2};
	uint64_t r;
	int i;

	if (hq->weather_left--)
		return;
	r = soft_harsh_draw(&hq->rng);
	hq->weather_left = 16 + (r & 127);
	for (i = 0; i < HARSH_PLACES; i++)
		hq->rough[i] = rough[r >> (8 + 4 * i) & 15];
}

/* Datagrams are lost, and so are messages on unreliable connections. */
static bool lost(const struct soft_qp *q, uint64_t r)
{
	switch (q->ex.qp_base.qp_type) {
	case IBV_QPT_UD:
		return r % 32 == 0;
	case IBV_QPT_UC:
		return r % 128 == 0;
	default:
		return false;
	}
}

void soft_harsh_post(struct soft_qp *q, struct soft_wqe *w)
{
	struct soft_harsh_qp *hq = q->harsh;
	uint64_t now = env_now_ns(q->s->env);

	weather(hq);
	w->park = SOFT_PARK_NONE;
	w->h.rng = soft_harsh_draw(&hq->rng);
	memcpy(w->h.rough, hq->rough, sizeof(w->h.rough));
	w->h.deadline_ns = ENV_NEVER;
	w->h.lost = lost(q, soft_harsh_draw(&w->h.rng) >> 8);
	w->h.due_ns =
		now + soft_harsh_delay(&w->h.rng, w->h.rough[HARSH_START]);
	atomic_store(&q->s->harsh->busy_ns, now);
	due_earlier(&hq->due_ns, w->h.due_ns);
	wanted(q->s, w->h.due_ns);
}

/* It is decided now whether the completion makes an event, as anywhere else;
 * only its count comes late. */
void soft_harsh_bell(struct soft_qp *q, struct shm_cq *cq, int fd,
		     uint64_t life, bool solicited)
{
	struct soft_harsh_qp *hq = q->harsh;
	uint32_t event;

	/* as in finish_slot(): the receive before the look at the word */
	fence_full();
	if (soft_bell_claim(cq, life, solicited, &event) != SOFT_BELL_OURS)
		return; /* none, or its time is set */
	soft_harsh_hush(q);
	hq->bell_cq = cq;
	hq->bell_event = event;
	hq->bell_fd = fd;
	hq->bell_ns = env_now_ns(q->s->env) +
		      soft_harsh_delay(&hq->rng, hq->rough[HARSH_BELL]);
	/* A datagram that waited for its peer's file arrives in no step. */
	due_earlier(&hq->due_ns, hq->bell_ns);
	wanted(q->s, hq->bell_ns);
}

void soft_harsh_hush(struct soft_qp *q)
{
	struct soft_harsh_qp *hq = q->harsh;

	if (hq->bell_cq)
		soft_bell_count(hq->bell_cq, hq->bell_fd, hq->bell_event);
	hq->bell_cq = NULL;
	hq->bell_ns = ENV_NEVER;
}

void soft_harsh_cq_bell(struct soft_cq *c, bool solicited)
{
	uint64_t rng = c->s->harsh->seed + c->tail, due;
	uint32_t event;

	if (soft_bell_claim(c->shm, soft_bell_life(c->shm), solicited,
			    &event) != SOFT_BELL_OURS)
		return; /* none, or its time is set */
	if (atomic_load(&c->late_ns) != ENV_NEVER) /* an earlier one's */
		soft_bell_count(c->shm, c->ex.channel->fd, c->late_event);
	c->late_event = event;
	due = env_now_ns(c->s->env) +
	      soft_harsh_delay(&rng, (uint8_t)(rng >> 5 & 1));
	atomic_store(&c->late_ns, due);
	wanted(c->s, due);
}

/* s->lock held. */
static void cq_bell(struct soft_cq *c)
{
	soft_lock_revoke(&c->lock);
	/* another thread may have counted it and set a later time */
	if (atomic_load(&c->late_ns) <= env_now_ns(c->s->env)) {
		atomic_store(&c->late_ns, ENV_NEVER);
		soft_bell_count(c->shm, c->ex.channel->fd, c->late_event);
	}
	soft_lock_return(&c->lock);
}

static uint64_t run_one(struct soft_qp *q, uint64_t now)
{
	uint64_t due;

	if (q->dying)
		return ENV_NEVER;
	soft_qp_hold(q);
	soft_mw_look(q);
	due = soft_harsh_run(q, now);
	soft_qp_release(q);
	return due;
}

/* Takes the steps that are due; s->lock held. The time of the next. Only QPs
 * with a due step are locked: a thread that spins on a queue holds its lock
 * most of the time, and may be preempted inside. */
static uint64_t run_all(struct soft *s, uint64_t now)
{
	struct soft_harsh_qp *hq;
	struct soft_cq *c;
	struct list_node *n;
	uint64_t due = ENV_NEVER, t;

	/* What is added from here on lowers it again. */
	atomic_store(&s->harsh->due_ns, ENV_NEVER);
	for (n = s->harsh->qps.next; n != &s->harsh->qps; n = n->next) {
		hq = container_of(n, struct soft_harsh_qp, link);
		t = atomic_load(&hq->due_ns);
		if (t <= now)
			t = run_one(hq->q, now);
		if (t < due)
			due = t;
	}
	for (n = s->cqs.next; n != &s->cqs; n = n->next) {
		c = container_of(n, struct soft_cq, link);
		t = atomic_load(&c->late_ns);
		if (t <= now)
			cq_bell(c);
		else if (t < due)
			due = t;
	}
	due_earlier(&s->harsh->due_ns, due);
	return due;
}

int soft_harsh_poll_cq(struct ibv_cq *cq, int n, struct ibv_wc *wc)
{
	struct soft *s = soft_cq_of(cq)->s;
	uint64_t now;

	if (!soft_here(s))
		return -EPERM;
	now = env_now_ns(s->env);
	/* The control path may hold it for long; its own round comes. */
	if (now >= atomic_load(&s->harsh->due_ns) &&
	    !pthread_mutex_trylock(&s->lock)) {
		run_all(s, now);
		pthread_mutex_unlock(&s->lock);
	}
	return soft_poll_cq(cq, n, wc);
}

void soft_harsh_thread(void)
{
	cpu_set_t all;

	memset(&all, 0xff, sizeof(all));
	sched_setaffinity(0, sizeof(all), &all); /* else it stays: slower */
}

uint64_t soft_harsh_round(struct soft *s)
{
	struct soft_harsh *h = s->harsh;
	uint64_t now = env_now_ns(s->env), due;

	/* seq_cst, and before the look: see the file head */
	atomic_store(&h->wake_ns, ENV_NEVER);
	due = run_all(s, now);
	if (due != ENV_NEVER)
		due += GRACE_NS;
	if (now - atomic_load(&h->busy_ns) < LINGER_NS && now + TICK_NS < due)
		due = now + TICK_NS;
	atomic_store(&h->wake_ns, due);
	return due;
}

void soft_harsh_barrier(struct soft *s)
{
	struct soft_harsh_qp *hq;
	struct list_node *n;

	for (n = s->harsh->qps.next; n != &s->harsh->qps; n = n->next) {
		hq = container_of(n, struct soft_harsh_qp, link);
		soft_qp_hold(hq->q);
		soft_qp_release(hq->q);
	}
}

/* Takes steps outside of a round: the control thread must come for the next
 * one. */
static void run_and_ask(struct soft_qp *q)
{
	wanted(q->s, soft_harsh_run(q, env_now_ns(q->s->env)));
}

void soft_harsh_progress(struct soft_qp *q)
{
	struct soft_wqe *w;

	for (w = q->parked; w; w = w->next)
		if (w->park == SOFT_PARK_XLAT || w->park == SOFT_PARK_FAR)
			w->h.due_ns = 0;
	run_and_ask(q);
}

void soft_harsh_no_file(struct soft_qp *q, int status)
{
	struct soft_wqe *w;

	for (w = q->parked; w; w = w->next) {
		if (w->park == SOFT_PARK_XLAT && !w->h.landed) {
			w->h.status = status;
			w->h.landed = true;
		}
	}
	run_and_ask(q);
}
