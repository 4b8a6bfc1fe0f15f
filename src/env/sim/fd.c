/* SPDX-License-Identifier: MIT */
/*
 * fd.c - a simulated process's descriptors, and descriptors that only count.
 */
#include "env/sim/world.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#define FD_FIRST 3 /* as if 0, 1 and 2 were open */

static int table_grow(struct sim_proc *p)
{
	unsigned cap = p->fds_cap ? 2 * p->fds_cap : 32;
	struct sim_fd **fds;

	if (cap > SIM_FDS_MAX)
		return -EMFILE;
	fds = realloc(p->fds, cap * sizeof(struct sim_fd *));
	if (!fds)
		return -ENOMEM;
	memset(fds + p->fds_cap, 0,
	       (cap - p->fds_cap) * sizeof(struct sim_fd *));
	p->fds = fds;
	p->fds_cap = cap;
	return 0;
}

int fd_open(struct sim_proc *p, struct sim_fd *fd)
{
	unsigned i = FD_FIRST;
	int rc;

	while (i < p->fds_cap && p->fds[i])
		i++;
	if (i >= p->fds_cap) {
		rc = table_grow(p);
		if (rc)
			return rc;
	}
	fd->num = (int)i;
	fd->proc = p;
	list_init(&fd->watches);
	p->fds[i] = fd;
	p->n_fds++;
	return 0;
}

struct sim_fd *fd_get(struct sim_proc *p, int num)
{
	return num >= 0 && (unsigned)num < p->fds_cap ? p->fds[num] : NULL;
}

void fd_forget(struct sim_fd *fd)
{
	waiter_forget_fd(fd);
	fd->proc->fds[fd->num] = NULL;
	fd->proc->n_fds--;
}

void fd_changed(struct sim_fd *fd)
{
	waiter_fd_changed(fd);
}

/* --- descriptors that count -------------------------------------------- */

struct count_fd {
	struct sim_fd fd;
	int count;
};

static uint32_t count_ready(struct sim_fd *fd)
{
	return container_of(fd, struct count_fd, fd)->count > 0 ? EPOLLIN : 0;
}

static void count_close(struct sim_fd *fd)
{
	fd_forget(fd);
	free(container_of(fd, struct count_fd, fd));
}

int sim_fd_new(struct sim_proc *proc, int *fd)
{
	struct count_fd *c = calloc(1, sizeof(*c));
	int rc;

	if (!c)
		return -ENOMEM;
	c->fd.ready = count_ready;
	c->fd.close = count_close;
	rc = fd_open(proc, &c->fd);
	if (rc) {
		free(c);
		return rc;
	}
	*fd = c->fd.num;
	return 0;
}

void sim_fd_add(struct sim_proc *proc, int fd, int n)
{
	struct sim_fd *f = fd_get(proc, fd);

	if (!f || f->ready != count_ready)
		return;
	container_of(f, struct count_fd, fd)->count += n;
	fd_changed(f);
}

void sim_fd_close(struct sim_proc *proc, int fd)
{
	struct sim_fd *f = fd_get(proc, fd);

	if (f)
		f->close(f);
}
