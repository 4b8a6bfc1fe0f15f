/* SPDX-License-Identifier: MIT */
/*
 * chan.c - completion channels. A channel's fd is an eventfd used as a
 * semaphore; peers that complete receives hold a duplicate of it.
 *
 * It is readable only when an event is there: programs take EAGAIN of
 * get_cq_event() behind poll(2) as an error. Each CQ has one armed word. The
 * thread that turns it to FIRED by a completion has fired an event, and it alone
 * adds a count to the fd; after that it says so in `counted`. So there are never
 * more counts than events that nobody has taken, and get_cq_event(), which
 * takes a count first, finds an event for it.
 *
 * That thread may stop or die in between. The next thread that finds the word
 * FIRED and an event without a count asks the owner's control thread to look;
 * so does the death of a peer. If the count is not there after
 * BELL_PATIENCE_NS, the control thread adds it, says so, and adds one spare
 * event: a stopped thread that goes on later, or one that died behind its
 * count, makes the channel readable once more, and get_cq_event() returns the
 * CQ for that. What such a thread says then was said before; if 32 events were
 * fired meanwhile, one that has its count looks as if it had none, and the CQ
 * is returned once more. tests/model/chan.pml.
 *
 * A thread rings behind the completion. By then the owner may have polled it,
 * destroyed the CQ, and made another in its page, on another channel: what such
 * a thread takes would be lost there. So a CQ has a life, beside its armed word;
 * the thread reads it before it completes the receive, and fires no other.
 */
#include "dev/soft/cq/cq.h"

#include <errno.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/uio.h>
#include <unistd.h>

int soft_create_chan(struct dev *dev, struct ibv_comp_channel **ch)
{
	struct soft *s = soft_of_dev(dev);
	struct soft_chan *c;
	int fd;

	if (!soft_here(s))
		return -EPERM;
	c = env_alloc(s->env, sizeof(*c));
	if (!c)
		return -ENOMEM;
	fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK | EFD_SEMAPHORE);
	if (fd < 0) {
		int err = -errno;

		env_free(s->env, c);
		return err;
	}
	c->ch.context = &s->vctx.context;
	c->ch.fd = fd;
	pthread_mutex_init(&c->lock, NULL);
	list_init(&c->cqs);
	pthread_mutex_lock(&s->lock);
	c->id = ++s->chan_next;
	list_add_tail(&s->chans, &c->link);
	pthread_mutex_unlock(&s->lock);
	*ch = &c->ch;
	return 0;
}

int soft_destroy_chan(struct dev *dev, struct ibv_comp_channel *ch)
{
	struct soft *s = soft_of_dev(dev);
	struct soft_chan *c = container_of(ch, struct soft_chan, ch);

	if (!soft_here(s))
		return -EPERM;
	if (ch->refcnt)
		return -EBUSY;
	pthread_mutex_lock(&s->lock);
	list_del(&c->link);
	pthread_mutex_unlock(&s->lock);
	close(ch->fd);
	pthread_mutex_destroy(&c->lock);
	env_free(s->env, c);
	return 0;
}

#define BELL_PATIENCE_NS 10000000ull
/* Harsh mode adds counts late by intention. */
#define BELL_PATIENCE_HARSH_NS 1000000000ull

/* `counted` where all events have their counts. */
static uint32_t all_counted(uint64_t armed)
{
	/* 0 to n - 1 were fired */
	uint32_t n = (uint32_t)(armed / SHM_ARMED_EVENT);
	uint32_t below = (1u << n % 32) - 1;

	return n / 32 % 2 ? ~below : below;
}

/* Those of the last 32 events that have no count yet, each at its bit. */
static uint32_t uncounted(uint64_t armed, uint32_t counted)
{
	return all_counted(armed) ^ counted;
}

enum soft_bell_found soft_bell_claim(struct shm_cq *cq, uint64_t life,
				     bool solicited, uint32_t *event)
{
	uint64_t was = atomic_load_explicit(&cq->armed, memory_order_relaxed);
	uint32_t n;

	do {
		if ((was & SHM_ARMED_LIVES) != life)
			return SOFT_BELL_NONE;
		n = (uint32_t)(was / SHM_ARMED_EVENT);
		switch (was & SHM_ARMED_STATE) {
		case SHM_ARMED_SOLICITED:
			if (!solicited)
				return SOFT_BELL_NONE;
			break;
		case SHM_ARMED_ANY:
			break;
		case SHM_ARMED_FIRED:
			/* relaxed: an old value makes one look more */
			return uncounted(was, atomic_load_explicit(
						      &cq->counted,
						      memory_order_relaxed)) &
					       1u << (n - 1) % 32
				       ? SOFT_BELL_UNDER_WAY
				       : SOFT_BELL_NONE;
		default:
			return SOFT_BELL_NONE;
		}
	} while (!atomic_compare_exchange_strong(
		&cq->armed, &was,
		(n + 1) * SHM_ARMED_EVENT + life + SHM_ARMED_FIRED));
	*event = n;
	return SOFT_BELL_OURS;
}

void soft_bell_said(struct shm_cq *cq, uint32_t event)
{
	uint32_t bit = 1u << event % 32;

	/* release: pairs with uncounted_of(): the count is in the fd */
	if (event / 32 % 2)
		atomic_fetch_and_explicit(&cq->counted, ~bit,
					  memory_order_release);
	else
		atomic_fetch_or_explicit(&cq->counted, bit,
					 memory_order_release);
}

void soft_bell_count(struct shm_cq *cq, int fd, uint32_t event)
{
	env_bell(fd);
	soft_bell_said(cq, event);
}

bool soft_bell_ring(struct shm_cq *cq, int fd, uint64_t life, bool solicited)
{
	enum soft_bell_found found;
	uint32_t event;

	found = soft_bell_claim(cq, life, solicited, &event);
	if (found == SOFT_BELL_OURS)
		soft_bell_count(cq, fd, event);
	return unlikely(found == SOFT_BELL_UNDER_WAY);
}

void soft_cq_ring(struct soft_cq *c, bool solicited)
{
	if (soft_bell_ring(c->shm, c->ex.channel->fd, soft_bell_life(c->shm),
			   solicited))
		soft_bells_ask(c->s);
}

/* Whatever the flags of the fd: stock programs change them. */
static bool take_count(int fd)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};
	struct iovec iov;
	uint64_t one;
	ssize_t n;

	iov = (struct iovec){&one, sizeof(one)};
	n = preadv2(fd, &iov, 1, -1, RWF_NOWAIT);
	if (n > 0 || errno == EAGAIN)
		return n > 0;
	/* Linux before 5.8, or a sandbox: in two steps. */
	return poll(&p, 1, 0) == 1 && read(fd, &one, sizeof(one)) > 0;
}

static bool take_one(struct soft_cq *cq)
{
	uint64_t was = atomic_load(&cq->shm->armed);

	do {
		if ((was & SHM_ARMED_STATE) != SHM_ARMED_FIRED)
			return false;
	} while (!atomic_compare_exchange_weak(
		&cq->shm->armed, &was, was - SHM_ARMED_FIRED + SHM_ARMED_NOT));
	return true;
}

static struct soft_cq *take_fired(struct soft_chan *c)
{
	struct list_node *n;
	struct soft_cq *cq;

	for (n = c->cqs.next; n != &c->cqs; n = n->next) {
		cq = container_of(n, struct soft_cq, chan_link);
		if (cq->owed) {
			cq->owed--;
			return cq;
		}
		if (take_one(cq)) {
			/* to the end: none is starved */
			list_del(&cq->chan_link);
			list_add_tail(&c->cqs, &cq->chan_link);
			return cq;
		}
	}
	for (n = c->cqs.next; n != &c->cqs; n = n->next) {
		cq = container_of(n, struct soft_cq, chan_link);
		if (cq->spare) {
			cq->spare--;
			cq->spares_taken++;
			return cq;
		}
	}
	return NULL;
}

void soft_cq_arm(struct soft_cq *c, uint32_t want)
{
	uint64_t was = atomic_load(&c->shm->armed);
	bool locked = false;
	uint32_t state;

	do {
		state = was & SHM_ARMED_STATE;
		/* An event that is there stays: it is owed from now on, and no
		 * thread that takes a count may come between the two. */
		if (state == SHM_ARMED_FIRED && !locked) {
			pthread_mutex_lock(&c->chan->lock);
			locked = true;
			was = atomic_load(&c->shm->armed);
			state = was & SHM_ARMED_STATE;
		}
		if (state == SHM_ARMED_ANY)
			want = SHM_ARMED_ANY;
		/* seq_cst: the caller polls again after this. Either that poll
		 * sees a receive, or its poster, which has a fence between the
		 * receive and its look at this word, sees it armed. */
	} while (!atomic_compare_exchange_strong(&c->shm->armed, &was,
						 was - state + want));
	if (state == SHM_ARMED_FIRED)
		c->owed++;
	if (locked)
		pthread_mutex_unlock(&c->chan->lock);
}

static uint32_t uncounted_of(struct soft_cq *c)
{
	/* acquire, and first: an event that is fired in between is one more
	 * that is looked at again. Pairs with soft_bell_count(). */
	uint32_t counted =
		atomic_load_explicit(&c->shm->counted, memory_order_acquire);

	return uncounted(atomic_load(&c->shm->armed), counted);
}

void soft_chan_join(struct soft_cq *c, struct soft_chan *chan)
{
	c->chan = chan;
	c->bell_due_ns = ENV_NEVER;
	/* relaxed: what a thread still says of an event of the last CQ there is
	 * the same */
	atomic_store_explicit(&c->shm->counted,
			      all_counted(atomic_load(&c->shm->armed)),
			      memory_order_relaxed);
	pthread_mutex_lock(&chan->lock);
	list_add_tail(&chan->cqs, &c->chan_link);
	chan->ch.refcnt++;
	pthread_mutex_unlock(&chan->lock);
}

/* No thread fires this CQ any more. The events are
 * counted on. Returns what take_one() would. */
static bool life_ends(struct shm_cq *cq)
{
	uint64_t was = atomic_load(&cq->armed), life;

	do {
		life = (was + SHM_ARMED_LIFE) & SHM_ARMED_LIVES;
	} while (!atomic_compare_exchange_weak(&cq->armed, &was,
					       was / SHM_ARMED_EVENT *
							       SHM_ARMED_EVENT +
						       life + SHM_ARMED_NOT));
	return (was & SHM_ARMED_STATE) == SHM_ARMED_FIRED;
}

void soft_chan_leave(struct soft_cq *c)
{
	struct soft_chan *chan = c->chan;
	int64_t n;

	pthread_mutex_lock(&chan->lock);
	n = (int64_t)c->owed + c->spare + life_ends(c->shm);
	n -= __builtin_popcount(uncounted_of(c));
	for (; n > 0 && take_count(chan->ch.fd); n--)
		;
	list_del(&c->chan_link);
	chan->ch.refcnt--;
	pthread_mutex_unlock(&chan->lock);
}

void soft_bells_ask(struct soft *s)
{
	if (!atomic_exchange(&s->bells_asked, true))
		soft_kick(s);
}

void soft_bells_ask_cq(struct soft_cq *c)
{
	if (c->chan && uncounted_of(c))
		atomic_store(&c->s->bells_asked, true);
}

/* Adds the counts of late, and says so. */
static void make_up(struct soft_cq *c, uint32_t late)
{
	uint32_t n = (uint32_t)(atomic_load(&c->shm->armed) / SHM_ARMED_EVENT);
	uint32_t event;

	pthread_mutex_lock(&c->chan->lock);
	for (event = n - 32; event != n; event++) {
		if (!(late & 1u << event % 32))
			continue;
		c->spare++;
		soft_bell_count(c->shm, c->chan->ch.fd, event);
	}
	pthread_mutex_unlock(&c->chan->lock);
}

static uint64_t look_at(struct soft_cq *c, uint64_t now)
{
	uint32_t late = uncounted_of(c);

	c->bell_late &= late; /* the others have come after all */
	if (!late)
		return c->bell_due_ns = ENV_NEVER;
	if (!c->bell_late) {
		c->bell_late = late;
		return c->bell_due_ns =
			       now + (c->s->harsh ? BELL_PATIENCE_HARSH_NS
						  : BELL_PATIENCE_NS);
	}
	if (now < c->bell_due_ns)
		return c->bell_due_ns;
	make_up(c, c->bell_late);
	c->bell_late = 0;
	return look_at(c, now); /* one more may have come since */
}

uint64_t soft_bells_look(struct soft *s, uint64_t now)
{
	uint64_t due = ENV_NEVER, t;
	struct list_node *n;
	struct soft_cq *c;

	if (!atomic_exchange(&s->bells_asked, false) && now < s->bells_due_ns)
		return s->bells_due_ns;
	for (n = s->cqs.next; n != &s->cqs; n = n->next) {
		c = container_of(n, struct soft_cq, link);
		t = c->chan ? look_at(c, now) : ENV_NEVER;
		due = t < due ? t : due;
	}
	return s->bells_due_ns = due;
}

int soft_get_cq_event(struct dev *dev, struct ibv_comp_channel *ch,
		      struct ibv_cq **cq)
{
	struct soft *s = soft_of_dev(dev);
	struct soft_chan *c = container_of(ch, struct soft_chan, ch);
	struct soft_cq *q = NULL;

	if (!soft_here(s))
		return -EPERM;
	pthread_mutex_lock(&c->lock);
	while (!q && take_count(ch->fd))
		q = take_fired(c);
	if (q)
		atomic_fetch_add(&q->events, 1);
	pthread_mutex_unlock(&c->lock);
	if (!q)
		return -EAGAIN;
	*cq = (struct ibv_cq *)(void *)&q->ex;
	return 0;
}

void soft_ack_cq_events(struct dev *dev, struct ibv_cq *cq, unsigned n)
{
	struct soft *s = soft_of_dev(dev);

	if (!soft_here(s))
		return;
	pthread_mutex_lock(&s->async_lock);
	atomic_fetch_sub(&soft_cq_of(cq)->events, n);
	pthread_cond_broadcast(&s->acked);
	pthread_mutex_unlock(&s->async_lock);
}
