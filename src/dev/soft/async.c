/* SPDX-License-Identifier: MIT */
/*
 * async.c - asynchronous events: a list, and the context's async_fd (an
 * eventfd used as a semaphore: one count an event).
 */
#include "dev/soft/qp/qp.h"

#include <errno.h>
#include <unistd.h>

/* The event's object counts the events that the program has taken. Returns that
 * counter, or NULL. */
static _Atomic uint32_t *event_count(const struct ibv_async_event *ev)
{
	switch (ev->event_type) {
	case IBV_EVENT_CQ_ERR:
		return &soft_cq_of(ev->element.cq)->async_events;
	case IBV_EVENT_QP_FATAL:
	case IBV_EVENT_QP_REQ_ERR:
	case IBV_EVENT_QP_ACCESS_ERR:
	case IBV_EVENT_COMM_EST:
	case IBV_EVENT_SQ_DRAINED:
	case IBV_EVENT_QP_LAST_WQE_REACHED:
		return &soft_qp_of(ev->element.qp)->async_events;
	case IBV_EVENT_SRQ_LIMIT_REACHED:
		return &soft_srq_of(ev->element.srq)->async_events;
	default:
		return NULL;
	}
}

static void push(struct soft *s, const struct ibv_async_event *ev)
{
	struct soft_event *e = env_alloc(s->env, sizeof(*e));

	if (!e) {
		env_log(s->env, ENV_LOG_ERROR,
			"skein0: no memory for an asynchronous event");
		return;
	}
	e->ev = *ev;
	pthread_mutex_lock(&s->async_lock);
	*s->events_end = e;
	s->events_end = &e->next;
	env_bell(s->vctx.context.async_fd);
	pthread_mutex_unlock(&s->async_lock);
}

void soft_async(struct soft *s, enum ibv_event_type type, void *obj)
{
	struct ibv_async_event ev = {.event_type = type};

	ev.element.qp = obj; /* a union of pointers */
	push(s, &ev);
}

void soft_async_port(struct soft *s, enum ibv_event_type type)
{
	struct ibv_async_event ev = {.event_type = type};

	ev.element.port_num = 1;
	push(s, &ev);
}

int soft_get_async(struct dev *dev, struct ibv_async_event *ev)
{
	struct soft *s = soft_of_dev(dev);
	struct soft_event *e;
	_Atomic uint32_t *count;
	uint64_t one;

	if (!soft_here(s))
		return -EPERM;
	pthread_mutex_lock(&s->async_lock);
	e = s->events;
	if (!e || read(s->vctx.context.async_fd, &one, sizeof(one)) < 0) {
		pthread_mutex_unlock(&s->async_lock);
		return -EAGAIN;
	}
	s->events = e->next;
	if (!s->events)
		s->events_end = &s->events;
	*ev = e->ev;
	count = event_count(ev);
	if (count)
		atomic_fetch_add(count, 1);
	pthread_mutex_unlock(&s->async_lock);
	env_free(s->env, e);
	return 0;
}

void soft_ack_async(struct dev *dev, struct ibv_async_event *ev)
{
	struct soft *s = soft_of_dev(dev);
	_Atomic uint32_t *count = event_count(ev);

	if (!soft_here(s) || !count)
		return;
	pthread_mutex_lock(&s->async_lock);
	atomic_fetch_sub(count, 1);
	pthread_cond_broadcast(&s->acked);
	pthread_mutex_unlock(&s->async_lock);
}

/* Before obj is freed: drops its events that nobody has taken, and waits for
 * those that were taken to be acknowledged, as the verbs do. */
void soft_async_forget(struct soft *s, void *obj, _Atomic uint32_t *taken)
{
	struct soft_event **at, *e;
	uint64_t one;
	ssize_t n;

	pthread_mutex_lock(&s->async_lock);
	at = &s->events;
	s->events_end = at;
	while ((e = *at)) {
		if ((void *)e->ev.element.qp == obj) {
			*at = e->next;
			n = read(s->vctx.context.async_fd, &one, sizeof(one));
			(void)n;
			env_free(s->env, e);
			continue;
		}
		at = &e->next;
		s->events_end = at;
	}
	while (atomic_load(taken))
		pthread_cond_wait(&s->acked, &s->async_lock);
	pthread_mutex_unlock(&s->async_lock);
}
