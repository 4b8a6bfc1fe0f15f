/* SPDX-License-Identifier: MIT */
/*
 * ctl.c - the control thread of a device: it sleeps in epoll until a peer
 * connects or dies, a timer of a parked request is due, or a peer asks for a
 * file or a QP's place.
 *
 * It never waits for a peer, so two control threads cannot wait for each other.
 * Its life word is a robust futex: the kernel marks it when this thread ends in
 * any way (kill, exec, the end of the process), and a forked child, which has
 * no such thread, does not keep it alive.
 */
#include "dev/soft/link/link.h"
#include "dev/soft/ud/ud.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

int soft_src_add(struct soft *s, struct soft_src *src, uint32_t events)
{
	struct epoll_event ev = {.events = events, .data.ptr = src};

	if (epoll_ctl(s->epoll_fd, EPOLL_CTL_ADD, src->fd, &ev))
		return -errno;
	return 0;
}

void soft_kick(struct soft *s)
{
	env_bell(s->kick_fd);
}

void soft_ask_service(struct soft *s, uint32_t idx)
{
	/* release: pairs with the exchange in service_all(): a control thread
	 * that sees the byte also sees what was written before it */
	atomic_store_explicit(&s->nic->attn[idx], 1, memory_order_release);
	soft_kick(s);
}

void soft_ring(struct soft_qp *q)
{
	uint32_t i = q->far_idx;

	if (!q->peer || i >= SHM_QP_MAX)
		return;
	/* release: as in soft_ask_service() */
	atomic_store_explicit(&q->peer->nic->attn[i], 1, memory_order_release);
	env_bell(q->peer->kick_fd);
}

static void service_all(struct soft *s)
{
	uint32_t top = s->n_blocks * SHM_BLOCK_QPS, i, j;
	uint64_t any;

	for (i = 0; i < top; i += 8) {
		any = atomic_load_explicit(
			(_Atomic uint64_t *)(void *)&s->nic->attn[i],
			memory_order_relaxed);
		for (j = i; any && j < i + 8; j++) {
			if (!atomic_exchange_explicit(&s->nic->attn[j], 0,
						      memory_order_acquire))
				continue;
			if (s->qps[j])
				soft_qp_service(s, s->qps[j]);
		}
	}
	if (atomic_exchange_explicit(&s->nic->sweep, 0, memory_order_acquire))
		soft_peer_sweep(s);
}

static void handle_kick(struct soft *s)
{
	uint64_t n;
	ssize_t r;

	r = read(s->kick_fd, &n, sizeof(n));
	(void)r;
	service_all(s);
	soft_srqs_service(s);
	soft_ud_srqs_service(s);
}

static void handle(struct soft *s, struct soft_src *src, uint32_t events)
{
	struct soft_peer *p = src->obj;

	switch (src->kind) {
	case SOFT_SRC_LISTEN:
		soft_conn_accept(s, src->fd);
		break;
	case SOFT_SRC_KICK:
		handle_kick(s);
		break;
	case SOFT_SRC_ADDR:
		soft_addr_event(s);
		break;
	case SOFT_SRC_CONN:
		soft_conn_event(s, src->obj, events);
		break;
	case SOFT_SRC_CONN_PID:
		soft_conn_died(s, src->obj);
		break;
	case SOFT_SRC_PEER_SOCK:
		soft_peer_event(s, p);
		break;
	case SOFT_SRC_DIAL:
		soft_dial_event(s, src->obj);
		break;
	case SOFT_SRC_DIAL_PID:
		soft_dial_died(s, src->obj);
		break;
	case SOFT_SRC_LINK:
		soft_link_event(s);
		break;
	case SOFT_SRC_PEER_PID:
		atomic_store(&p->gone, true);
		soft_peer_died(s, p);
		break;
	}
}

/* Sleeps until the deadline. True: something is to be handled before it. */
static bool sleep_until(struct soft *s, uint64_t deadline_ns)
{
	struct pollfd p = {.fd = s->epoll_fd, .events = POLLIN};
	struct timespec t = {0};
	uint64_t now;

	if (deadline_ns == ENV_NEVER)
		return poll(&p, 1, -1) > 0;
	now = env_now_ns(s->env);
	if (deadline_ns > now) {
		t.tv_sec = (time_t)((deadline_ns - now) / 1000000000ull);
		t.tv_nsec = (long)((deadline_ns - now) % 1000000000ull);
	}
	return ppoll(&p, 1, &t, NULL) > 0;
}

/* Runs the timers that are due. Returns when the next one is. */
static uint64_t timers(struct soft *s)
{
	uint64_t due, t;

	pthread_mutex_lock(&s->lock);
	due = soft_qps_timers(s, env_now_ns(s->env));
	t = soft_link_timers(s, env_now_ns(s->env));
	due = t < due ? t : due;
	t = soft_bells_look(s, env_now_ns(s->env));
	due = t < due ? t : due;
	if (s->harsh) {
		t = soft_harsh_round(s);
		due = t < due ? t : due;
	}
	pthread_mutex_unlock(&s->lock);
	return due;
}

static int life_begin(struct soft *s, struct robust_list_head *head,
		      struct robust_list *node)
{
	uint32_t tid = (uint32_t)syscall(SYS_gettid);

	/* The kernel walks head -> node at this thread's end and marks the
	 * word at node + futex_offset, if it holds this thread's id. */
	head->list.next = node;
	node->next = &head->list;
	head->futex_offset = (long)((char *)&s->nic->life - (char *)node);
	head->list_op_pending = NULL;
	atomic_store(&s->nic->life, tid);
	/* Without it peers would not learn that we are dead. */
	return syscall(SYS_set_robust_list, head, sizeof(*head)) ? -errno : 0;
}

static void life_up(struct soft *s, int err)
{
	pthread_mutex_lock(&s->async_lock);
	s->thread_up = true;
	s->thread_err = err;
	pthread_cond_broadcast(&s->acked);
	pthread_mutex_unlock(&s->async_lock);
}

/* The control thread's work is short, and a request waits for it: on a busy
 * core it asks to run first. Linux 6.12 gives a SCHED_OTHER thread the slice
 * that it asks for, and a shorter one is served sooner; before, this changes
 * nothing. */
#define CTL_SLICE_NS 100000u

struct slice_attr {
	uint32_t size, policy;
	uint64_t flags;
	int32_t nice;
	uint32_t priority;
	uint64_t runtime, deadline, period;
};

static void ctl_hasten(void)
{
	struct slice_attr a = {.size = sizeof(a)};

	/* Its nice value stays what it is. */
	if (syscall(SYS_sched_getattr, 0, &a, sizeof(a), 0) || a.policy != 0)
		return;
	a.size = sizeof(a);
	a.runtime = CTL_SLICE_NS;
	syscall(SYS_sched_setattr, 0, &a, 0);
}

static void *ctl_main(void *arg)
{
	struct robust_list_head head;
	struct robust_list node;
	struct soft *s = arg;
	struct epoll_event ev;
	int err;

	err = life_begin(s, &head, &node);
	ctl_hasten();
	if (s->harsh)
		soft_harsh_thread();
	life_up(s, err);
	while (!err && !atomic_load(&s->stop)) {
		if (!sleep_until(s, timers(s)))
			continue;
		pthread_mutex_lock(&s->lock);
		/* Sources leave the set and are freed under this lock, so an
		 * event fetched before the lock could name a freed source. One
		 * event at a time: handling one may free the source of
		 * another. */
		if (epoll_wait(s->epoll_fd, &ev, 1, 0) == 1)
			handle(s, ev.data.ptr, ev.events);
		pthread_mutex_unlock(&s->lock);
	}
	/* 0 tells peers that the device is closed: the kernel has nothing left
	 * to mark. */
	atomic_store(&s->nic->life, 0);
	syscall(SYS_set_robust_list, NULL, sizeof(head));
	return NULL;
}

int soft_ctl_start(struct soft *s)
{
	sigset_t all, old;
	int err;

	s->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	if (s->epoll_fd < 0)
		return -errno;
	s->kick_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	if (s->kick_fd < 0)
		return -errno;
	err = soft_spares_fill(s);
	if (err)
		return err;
	s->src_kick.kind = SOFT_SRC_KICK;
	s->src_kick.fd = s->kick_fd;
	err = soft_src_add(s, &s->src_kick, EPOLLIN);
	if (!err)
		err = soft_block_new(s);
	if (err)
		return err;
	err = soft_addr_watch(s);
	if (err) /* refused here: the table is as of now, and of each RTR */
		env_log(s->env, ENV_LOG_DEBUG,
			"skein0: changes of addresses are not told: %s",
			strerror(-err));
	/* The application's signals are not this thread's. */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	err = -pthread_create(&s->thread, NULL, ctl_main, s);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (err)
		return err;
	/* A QP that peers can find must have a living owner. */
	pthread_mutex_lock(&s->async_lock);
	while (!s->thread_up)
		pthread_cond_wait(&s->acked, &s->async_lock);
	err = s->thread_err;
	pthread_mutex_unlock(&s->async_lock);
	pthread_setname_np(s->thread, "skein-soft");
	return err;
}

void soft_ctl_stop(struct soft *s)
{
	uint32_t i;

	if (s->thread_up) {
		atomic_store(&s->stop, true);
		soft_kick(s);
		pthread_join(s->thread, NULL);
	}
	for (i = 0; i < s->n_blocks; i++)
		close(s->listeners[i].fd);
	if (s->kick_fd >= 0)
		close(s->kick_fd);
	if (s->src_addr.fd >= 0)
		close(s->src_addr.fd);
	while (soft_spare_give(s))
		;
	if (s->epoll_fd >= 0)
		close(s->epoll_fd);
	s->epoll_fd = -1;
}
