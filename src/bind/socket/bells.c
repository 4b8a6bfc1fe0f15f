/* SPDX-License-Identifier: MIT */
/* bells.c - see bells.h. */
#include "bind/socket/bells.h"

#include "bind/socket/set.h"
#include "bind/socket/wait.h"
#include "env/env.h"

#include <errno.h>
#include <unistd.h>

/* Odd, as no program's data is; see set.c. */
static uint64_t word(void)
{
	return (uint64_t)(uintptr_t)&st.bells_fd | 1;
}

static int add(int epfd, uint32_t how)
{
	struct epoll_event ev = {.events = EPOLLIN | EPOLLEXCLUSIVE | how,
				 .data.u64 = word()};

	return REAL(epoll_ctl)(epfd, EPOLL_CTL_ADD, st.bells_fd, &ev);
}

void bells_open(struct stream_host *host)
{
	st.bells_fd = host->channel->fd;
	st.helper_set = epoll_create1(EPOLL_CLOEXEC);
	st.bells_shared = st.helper_set >= 0 && !add(st.helper_set, 0);
	st.host = host;
}

void bells_close(void)
{
	st.host = NULL;
	st.bells_fd = -1;
	if (st.helper_set >= 0)
		close(st.helper_set);
	st.helper_set = -1;
	st.bells_shared = false;
}

int bells_helper_fd(void)
{
	return st.bells_shared ? st.helper_set : st.bells_fd;
}

void bells_join(int epfd)
{
	if (!st.bells_shared || add(epfd, EPOLLET))
		return;
	/* Behind it. A bell of that moment is found when it is added. */
	REAL(epoll_ctl)(st.helper_set, EPOLL_CTL_DEL, st.bells_fd, NULL);
	if (!add(st.helper_set, 0))
		return;
	st.bells_shared = false;
	env_bell(st.wake_fd);
}

void bells_leave(int epfd)
{
	REAL(epoll_ctl)(epfd, EPOLL_CTL_DEL, st.bells_fd, NULL);
}

bool bells_are(uint64_t data)
{
	return data == word();
}

/* Something has come for a stream. Returns the set in which threads look again,
 * or NULL. */
static struct set *take_bell(struct stream *s, bool failed)
{
	struct sock *sock = s->user;

	if (!sock || sock->stream != s)
		return NULL;
	if (failed)
		sock->tcp_event = true;
	return wait_hear(sock);
}

void bells_woken(struct stream_qp *q, const struct set *mine, struct set **last)
{
	struct stream *s;

	while ((s = stream_qp_woken(q))) {
		struct set *set = take_bell(s, q->broken);

		if (!set || set == mine)
			continue;
		if (!last || *last)
			set_wake(set);
		else
			*last = set_wake_later(set);
	}
}

/* True: the helper has work. */
static bool take(const struct set *mine, struct set **last)
{
	bool work = false;
	struct stream_qp *q;

	while (st.host && (q = stream_host_event(st.host))) {
		stream_qp_poll(q);
		bells_woken(q, mine, last);
		work |= q->broken || !list_empty(&q->tending) ||
			!list_empty(&q->left);
	}
	return work;
}

void bells_take(struct set **last)
{
	*last = NULL;
	take(NULL, last);
}

void bells_hear(int epfd, const struct set *mine)
{
	if (atomic_load(&st.forked)) {
		/* The number may be another file's by now: then it fails. */
		if (!REAL(epoll_ctl)(epfd, EPOLL_CTL_DEL, st.bells_fd, NULL))
			env_bell(st.bells_fd);
		return;
	}
	if (take(mine, NULL))
		env_bell(st.wake_fd);
}
