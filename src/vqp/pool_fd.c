/* SPDX-License-Identifier: MIT */
/*
 * pool_fd.c - see pool_fd.h.
 */
#include "vqp/pool_fd.h"

#include "env/local.h"

#include <sys/epoll.h>

int pool_fd_get(struct pool_fd *f, struct skein_env *env, int source,
		bool timer)
{
	int err;

	if (f->w)
		return env_waiter_fd(env, f->w);
	f->env = env;
	f->timer = -1;
	f->armed = f->rung = false;
	err = env_waiter_new(env, ENV_WAIT_EVENT, &f->w);
	if (err)
		return err;
	if (timer)
		err = local_timer_new(&f->timer);
	if (!err && timer)
		err = pool_fd_watch(f, f->timer);
	if (!err)
		err = pool_fd_watch(f, source);
	if (!err)
		return env_waiter_fd(env, f->w);
	pool_fd_close(f);
	return err;
}

void pool_fd_close(struct pool_fd *f)
{
	if (!f->w)
		return;
	if (f->timer >= 0)
		close(f->timer);
	env_waiter_free(f->env, f->w);
	f->w = NULL;
	f->armed = false;
}

int pool_fd_watch(struct pool_fd *f, int fd)
{
	return env_waiter_watch(f->env, f->w, fd, EPOLLIN);
}

void pool_fd_unwatch(struct pool_fd *f, int fd)
{
	(void)env_waiter_unwatch(f->env, f->w, fd);
}

bool pool_fd_empty(struct pool_fd *f, int fd)
{
	bool ready = env_waiter_ready(f->env, f->w) &&
		     env_waiter_saw(f->env, f->w, fd);

	f->armed = true;
	f->rung = false;
	env_waiter_arm(f->env, f->w);
	return ready;
}

void pool_fd_due(struct pool_fd *f, uint64_t now_ns, uint64_t due_ns)
{
	/* One that is set for an earlier time costs no system call. */
	if (f->due_ns > now_ns && f->due_ns <= due_ns)
		return;
	f->due_ns = due_ns;
	local_timer_set(f->timer, due_ns);
}
