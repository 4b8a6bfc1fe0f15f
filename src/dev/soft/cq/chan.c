/* SPDX-License-Identifier: MIT */
/*
 * chan.c - completion channels. A channel's fd is an eventfd used as a
 * semaphore; peers that complete receives hold a duplicate of it.
 *
 * Each CQ has one armed word. A thread that adds a completion while the word
 * asks for one turns it to FIRING, adds one count, and turns it to FIRED, by
 * CAS. If it stops or dies after the first step, nobody is held up: the next
 * thread that finds FIRING takes the other two steps. get_cq_event() takes a
 * count and then a CQ that is FIRING or FIRED; a count without one is
 * swallowed. If no thread rings any more, soft_peer_died() adds one more count.
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

uint32_t soft_bell_claim(_Atomic uint32_t *armed, bool solicited)
{
	uint32_t was = atomic_load_explicit(armed, memory_order_relaxed);
	uint32_t firing;

	do {
		switch (was & SHM_ARMED_STATE) {
		case SHM_ARMED_SOLICITED:
			if (!solicited)
				return 0;
			break;
		case SHM_ARMED_ANY:
		case SHM_ARMED_FIRING:
			break;
		default:
			return 0;
		}
		firing = (was & ~(uint32_t)SHM_ARMED_STATE) | SHM_ARMED_FIRING;
	} while (was != firing &&
		 !atomic_compare_exchange_strong(armed, &was, firing));
	return firing;
}

void soft_bell_count(_Atomic uint32_t *armed, int fd, uint32_t firing)
{
	env_bell(fd);
	/* If the CAS fails the event was taken, and the word perhaps armed
	 * again: another arming. */
	atomic_compare_exchange_strong(
		armed, &firing, firing - SHM_ARMED_FIRING + SHM_ARMED_FIRED);
}

void soft_bell_ring(_Atomic uint32_t *armed, int fd, bool solicited)
{
	uint32_t firing = soft_bell_claim(armed, solicited);

	if (firing)
		soft_bell_count(armed, fd, firing);
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

void soft_ring_again(struct ibv_comp_channel *ch)
{
	env_bell(ch->fd);
}

static bool take_one(struct soft_cq *cq)
{
	uint32_t was = atomic_load(&cq->shm->armed), state;

	do {
		state = was & SHM_ARMED_STATE;
		if (state != SHM_ARMED_FIRED && state != SHM_ARMED_FIRING)
			return false;
	} while (!atomic_compare_exchange_weak(&cq->shm->armed, &was,
					       was - state + SHM_ARMED_NOT));
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
	return NULL;
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
