/* SPDX-License-Identifier: MIT */
/*
 * select.c - select() and pselect() where sockets are on streams: the sets of bits
 * become an array for wait_poll(), and what it says becomes bits. A call that
 * concerns no socket or set of ours, or is wrong, is the kernel's.
 */
#include "bind/socket/export.h"
#include "bind/socket/reach.h"
#include "bind/socket/set.h"
#include "bind/socket/wait.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/select.h>

/* Programs allocate larger sets than FD_SETSIZE. */
static unsigned long *word_of(const fd_set *set, int fd, unsigned long *bit)
{
	const int bits = 8 * (int)sizeof(unsigned long);

	*bit = 1ul << (fd % bits);
	return (unsigned long *)set + fd / bits;
}

static bool in_set(const fd_set *set, int fd)
{
	unsigned long bit, *word;

	if (!set)
		return false;
	word = word_of(set, fd, &bit);
	return *word & bit;
}

static void keep_in(fd_set *set, int fd, bool keep, int *count)
{
	unsigned long bit, *word;

	if (!set)
		return;
	word = word_of(set, fd, &bit);
	if (!(*word & bit))
		return;
	if (keep)
		++*count;
	else
		*word &= ~bit;
}

static bool set_reached(int n, const fd_set *set)
{
	size_t words = ((size_t)(n > 0 ? n : 0) + 63) / 64;

	return !set || reach_reads(set, 8 * words);
}

static bool select_concerns(int n, const fd_set *r, const fd_set *w,
			    const fd_set *e)
{
	int fd;

	if (!atomic_load(&st.on) || !set_reached(n, r) || !set_reached(n, w) ||
	    !set_reached(n, e))
		return false;
	for (fd = 0; fd < n && fd < FD_MAX; fd++)
		if ((sock_at(fd) || set_at(fd)) &&
		    (in_set(r, fd) || in_set(w, fd) || in_set(e, fd)))
			return true;
	return false;
}

/* A thread that is cancelled here frees fds. */
static int select_waits(struct pollfd *fds, nfds_t n, int64_t timeout_ns,
			const sigset_t *mask)
{
	int rc;

	pthread_cleanup_push(free, fds);
	rc = wait_poll(fds, n, timeout_ns, mask, "select");
	pthread_cleanup_pop(0);
	return rc;
}

static int select_by_poll(int n, fd_set *r, fd_set *w, fd_set *e,
			  int64_t timeout_ns, const sigset_t *mask)
{
	struct pollfd *fds = calloc((size_t)n, sizeof(*fds));
	int fd, rc, count = 0;
	nfds_t i, used = 0;

	if (!fds) {
		errno = ENOMEM;
		return -1;
	}
	for (fd = 0; fd < n; fd++) {
		short events = 0;

		if (in_set(r, fd))
			events |= POLLIN;
		if (in_set(w, fd))
			events |= POLLOUT;
		if (in_set(e, fd))
			events |= POLLPRI;
		if (events)
			fds[used++] = (struct pollfd){fd, events, 0};
	}
	rc = select_waits(fds, used, timeout_ns, mask);
	for (i = 0; i < used && rc >= 0; i++) {
		if (!(fds[i].revents & POLLNVAL))
			continue;
		errno = EBADF;
		rc = -1;
	}
	for (i = 0; i < used && rc >= 0; i++) {
		short got = fds[i].revents;

		keep_in(r, fds[i].fd, got & (POLLIN | POLLHUP | POLLERR),
			&count);
		keep_in(w, fds[i].fd, got & (POLLOUT | POLLERR), &count);
		keep_in(e, fds[i].fd, got & POLLPRI, &count);
	}
	free(fds);
	return rc < 0 ? -1 : count;
}

EXPORT(int, select, int n, fd_set *r, fd_set *w, fd_set *e,
       struct timeval *timeout)
{
	uint64_t begun;
	int64_t ns, left;
	int rc;

	if (!select_concerns(n, r, w, e) ||
	    (timeout && !reach_reads(timeout, sizeof(*timeout))) ||
	    (timeout && (timeout->tv_sec < 0 || timeout->tv_usec < 0)))
		return REAL(select)(n, r, w, e, timeout);
	if (!timeout)
		return select_by_poll(n, r, w, e, INT64_MAX, NULL);
	begun = state_now_ns();
	ns = wait_ns(timeout->tv_sec, timeout->tv_usec, 1000);
	rc = select_by_poll(n, r, w, e, ns, NULL);
	if (ns == INT64_MAX)
		return rc; /* centuries: as much is left */
	/* Linux says how much was left. */
	left = (ns - (int64_t)(state_now_ns() - begun)) / 1000;
	left = left < 0 ? 0 : left;
	timeout->tv_sec = left / 1000000;
	timeout->tv_usec = left % 1000000;
	return rc;
}

EXPORT(int, pselect, int n, fd_set *r, fd_set *w, fd_set *e,
       const struct timespec *timeout, const sigset_t *mask)
{
	int64_t ns;

	if (!select_concerns(n, r, w, e) || !wait_time(timeout, &ns))
		return REAL(pselect)(n, r, w, e, timeout, mask);
	return select_by_poll(n, r, w, e, ns, mask);
}
