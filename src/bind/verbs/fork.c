/* SPDX-License-Identifier: MIT */
/*
 * fork.c - a forked child's own copy of the window.
 *
 * It makes only system calls that are allowed between fork() and exec() in a
 * process with several threads, and allocates nothing. Only what was ever
 * touched is copied (SEEK_DATA). vfork() and posix_spawn() do not come here and
 * need no copy.
 */
#include "bind/verbs/window.h"

#include "bind/verbs/sys.h"
#include "bind/verbs/window_fd.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

void window_fork_prepare(struct window *w)
{
	pthread_mutex_lock(&w->lock);
	w->pipe[0] = w->pipe[1] = -1;
	if (w->used && pipe2(w->pipe, O_CLOEXEC))
		w->pipe[0] = w->pipe[1] = -1;
}

void window_fork_parent(struct window *w)
{
	char c;

	if (w->pipe[0] >= 0) {
		close(w->pipe[1]);
		while (read(w->pipe[0], &c, 1) < 0 && errno == EINTR)
			;
		close(w->pipe[0]);
	}
	pthread_mutex_unlock(&w->lock);
}

/* The child cannot go on: it would share memory with its parent, or lose some. */
_Noreturn static void die(const char *words)
{
	ssize_t n = write(STDERR_FILENO, words, strlen(words));

	(void)n;
	_exit(127);
}

/* Copies off..end into the new file. */
static void copy(int to, const char *base, size_t off, size_t end)
{
	ssize_t n;

	while (off < end) {
		n = pwrite(to, base + off, end - off, (off_t)off);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0 && errno != EFAULT)
			die("libskein-verbs: no memory for the copy that a "
			    "forked child needs\n");
		/* EFAULT: the program keeps it from its children
		 * (MADV_DONTFORK) */
		off += n > 0 ? (size_t)n : WINDOW_PAGE;
	}
}

/* Copies what was ever touched of off..end. */
static void copy_data(int to, int from, const char *base, size_t off,
		      size_t end)
{
	off_t data, hole;

	while (off < end) {
		data = lseek(from, (off_t)off, SEEK_DATA);
		if (data < 0 && errno == ENXIO)
			return;
		hole = data < 0 ? -1 : lseek(from, data, SEEK_HOLE);
		if (hole < 0) { /* no descriptor is left: copy all of it */
			copy(to, base, off, end);
			return;
		}
		if ((size_t)data >= end)
			return;
		off = (size_t)hole < end ? (size_t)hole : end;
		copy(to, base, (size_t)data, off);
	}
}

static void copy_units(const struct window *w, int to, int from_fd,
		       const char *base)
{
	size_t units = w->top / WINDOW_UNIT, i, from;

	for (i = 0; i < units; i++) {
		from = i;
		while (i < units && (w->units[i].kind == WINDOW_HEAP ||
				     w->units[i].kind == WINDOW_MAP))
			i++;
		if (i > from)
			copy_data(to, from_fd, base, from * WINDOW_UNIT,
				  i * WINDOW_UNIT);
	}
}

void window_fork_child(struct window *w)
{
	uintptr_t at = atomic_load_explicit(&w->base, memory_order_relaxed);
	char *base = (char *)at;
	int fd, old = w->fd;
	size_t i;

	pthread_mutex_init(&w->lock, NULL);
	if (!base)
		return;
	if (!window_fd_ours(w))
		old = -1;
	fd = window_memfd(w);
	if (fd < 0)
		die("libskein-verbs: a forked child cannot make its copy: no "
		    "descriptor is left, or files may not be as large as the "
		    "window (ulimit -n, ulimit -f)\n");
	copy_units(w, fd, old, base);
	if (w->top &&
	    sys_mmap(base, w->top, PROT_READ | PROT_WRITE,
		     MAP_SHARED | MAP_FIXED | MAP_NORESERVE, fd, 0) != base)
		die("libskein-verbs: a forked child cannot map its copy\n");
	if (old >= 0)
		close(old);
	w->fd = fd;
	for (i = 0; i < w->top / WINDOW_UNIT; i++)
		if (w->units[i].kind == WINDOW_DIRTY ||
		    w->units[i].kind == WINDOW_LOST)
			w->units[i].kind = WINDOW_FREE;
	w->dirty = 0;
	if (w->pipe[0] >= 0) {
		close(w->pipe[0]);
		close(w->pipe[1]);
	}
}
