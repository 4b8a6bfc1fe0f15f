/* SPDX-License-Identifier: MIT */
/*
 * window.c - the window's units: giving them out, taking them back. First fit
 * from the lowest address, so that the part that is mapped stays small.
 * fork.c has the copy for a forked child.
 */
#include "bind/verbs/window.h"

#include "bind/verbs/sys.h"
#include "bind/verbs/window_fd.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>

/* Mapped at a time. */
#define GROW (64ul << 20)

static char *base_of(const struct window *w)
{
	/* relaxed: the lock is held, under which it was written */
	uintptr_t base = atomic_load_explicit(&w->base, memory_order_relaxed);

	return (char *)base;
}

static size_t unit_of(const struct window *w, const void *p)
{
	return (size_t)((const char *)p - base_of(w)) / WINDOW_UNIT;
}

/* Is our descriptor still our file? A program may have closed it past the calls
 * of numbers.c; the number may then name another file. */
bool window_fd_ours(const struct window *w)
{
	struct stat st;

	return w->fd >= 0 && !fstat(w->fd, &st) && st.st_dev == w->dev &&
	       st.st_ino == w->ino;
}

int window_memfd(struct window *w)
{
	struct rlimit files;
	struct stat st;
	int fd;

	/* For a file above the limit the kernel would send SIGXFSZ. */
	if (getrlimit(RLIMIT_FSIZE, &files) ||
	    (files.rlim_cur != RLIM_INFINITY && files.rlim_cur < w->span))
		return -1;
	fd = memfd_create("skein-verbs", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (fd < 0)
		return -1;
	if (ftruncate(fd, (off_t)w->span) ||
	    fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) ||
	    fstat(fd, &st)) {
		close(fd);
		return -1;
	}
	w->dev = st.st_dev;
	w->ino = st.st_ino;
	return fd;
}

/* Reserves addresses, aligned for any alignment that is given out. */
static char *reserve(size_t span)
{
	size_t len = span + WINDOW_ALIGN_MAX, skip;
	char *p = sys_mmap(NULL, len, PROT_NONE,
			   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (p == MAP_FAILED)
		return NULL;
	skip = -(uintptr_t)p & (WINDOW_ALIGN_MAX - 1);
	if (skip)
		sys_munmap(p, skip);
	if (skip < WINDOW_ALIGN_MAX)
		sys_munmap(p + skip + span, WINDOW_ALIGN_MAX - skip);
	return p + skip;
}

static bool window_make(struct window *w)
{
	char *base = NULL;

	w->off = true; /* unless all of this succeeds */
	w->span = WINDOW_SPAN_MAX;
	while (!base && w->span >= WINDOW_SPAN_MIN) {
		base = reserve(w->span);
		if (!base)
			w->span /= 2;
	}
	if (!base)
		return false;
	w->units = sys_mmap(NULL, w->span / WINDOW_UNIT * sizeof(*w->units),
			    PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (w->units == MAP_FAILED)
		goto err_base;
	w->fd = window_memfd(w);
	if (w->fd < 0)
		goto err_units;
	w->off = false;
	/* release: pairs with window_has() of threads without the lock, which
	 * must see the span */
	atomic_store_explicit(&w->base, (uintptr_t)base, memory_order_release);
	return true;

err_units:
	sys_munmap(w->units, w->span / WINDOW_UNIT * sizeof(*w->units));
err_base:
	sys_munmap(base, w->span);
	return false;
}

/* Maps the file at its place, whatever was there. */
static bool restore(struct window *w, size_t off, size_t len)
{
	char *at = base_of(w) + off;

	return window_fd_ours(w) &&
	       sys_mmap(at, len, PROT_READ | PROT_WRITE,
			MAP_SHARED | MAP_FIXED | MAP_NORESERVE, w->fd,
			(off_t)off) == at;
}

static bool grow(struct window *w, size_t end)
{
	size_t top = (end + GROW - 1) & ~(GROW - 1);

	if (end <= w->top)
		return true;
	if (top > w->span || !restore(w, w->top, top - w->top))
		return false;
	w->top = top;
	return true;
}

static bool is_free(const struct window_unit *u)
{
	return u->kind == WINDOW_FREE || u->kind == WINDOW_DIRTY;
}

/* The lowest run of n free units at a multiple of align units. */
static bool find(const struct window *w, size_t n, size_t align, size_t *first)
{
	size_t units = w->span / WINDOW_UNIT, at = 0, i;

	while (n <= units && at <= units - n) {
		for (i = at; i < at + n && is_free(&w->units[i]); i++)
			if (i * WINDOW_UNIT >= w->top)
				i = at + n - 1; /* free as far as it goes */
		if (i >= at + n) {
			*first = at;
			return true;
		}
		i += w->units[i].run ? w->units[i].run : 1;
		at = (i + align - 1) & ~(align - 1);
	}
	return false;
}

/* Gives the pages back; they read as zero from now on. */
static bool punch(struct window *w, size_t off, size_t len)
{
	if (!sys_madvise(base_of(w) + off, len, MADV_REMOVE))
		return true;
	/* Locked, or replaced by another mapping. */
	return window_fd_ours(w) &&
	       !fallocate(w->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
			  (off_t)off, (off_t)len) &&
	       restore(w, off, len);
}

/* off..off+len is the file's again and reads as zero. */
static bool reset(struct window *w, size_t off, size_t len)
{
	/* In this order: the program may have changed protections, or mapped a
	 * file of its own over it. */
	return restore(w, off, len) && punch(w, off, len);
}

static void set_kind(struct window *w, size_t first, size_t n,
		     enum window_kind kind)
{
	size_t i;

	for (i = first; i < first + n; i++) {
		if (w->units[i].kind == WINDOW_DIRTY)
			w->dirty -= WINDOW_UNIT;
		w->units[i].kind = (uint8_t)kind;
		w->units[i].run = 0;
		w->units[i].live = 0;
		if (kind == WINDOW_DIRTY)
			w->dirty += WINDOW_UNIT;
	}
}

static bool any_dirty(const struct window *w, size_t first, size_t n)
{
	size_t i;

	for (i = first; i < first + n; i++)
		if (w->units[i].kind == WINDOW_DIRTY)
			return true;
	return false;
}

static void mark_pages(struct window *w, size_t first, size_t len)
{
	size_t pages = (len + WINDOW_PAGE - 1) / WINDOW_PAGE, i;

	for (i = 0; i < pages; i++)
		w->units[first + i / 16].live |= (uint16_t)(1u << i % 16);
}

static void *take(struct window *w, size_t len, size_t align,
		  enum window_kind kind, bool zero)
{
	size_t n = (len + WINDOW_UNIT - 1) / WINDOW_UNIT, first;

	align = align < WINDOW_UNIT ? 1 : align / WINDOW_UNIT;
	if (!find(w, n, align, &first) || !grow(w, (first + n) * WINDOW_UNIT))
		return NULL;
	if (zero && any_dirty(w, first, n) &&
	    !punch(w, first * WINDOW_UNIT, n * WINDOW_UNIT))
		return NULL;
	set_kind(w, first, n, kind);
	w->used += n;
	if (kind == WINDOW_HEAP)
		w->units[first].run = (uint32_t)n;
	else
		mark_pages(w, first, len);
	return base_of(w) + first * WINDOW_UNIT;
}

void *window_alloc(struct window *w, size_t len, size_t align,
		   enum window_kind kind, bool zero)
{
	void *p = NULL;

	if (len > WINDOW_SPAN_MAX || align > WINDOW_ALIGN_MAX)
		return NULL;
	pthread_mutex_lock(&w->lock);
	if (!w->off && (base_of(w) || window_make(w)))
		p = take(w, len, align, kind, zero);
	pthread_mutex_unlock(&w->lock);
	return p;
}

/* The lock is held. Ends the process when p is no allocation: the heap is
 * already wrong. */
static size_t heap_unit(const struct window *w, const void *p)
{
	size_t at = unit_of(w, p);

	if ((const char *)p != base_of(w) + at * WINDOW_UNIT ||
	    w->units[at].kind != WINDOW_HEAP || !w->units[at].run) {
		static const char msg[] =
			"libskein-verbs: free(): invalid pointer\n";
		ssize_t n = write(STDERR_FILENO, msg, sizeof(msg) - 1);

		(void)n;
		abort();
	}
	return at;
}

/* The lock is held. */
static void release(struct window *w, size_t first, size_t n)
{
	bool keep = w->dirty + n * WINDOW_UNIT <= WINDOW_DIRTY_MAX;
	enum window_kind kind = WINDOW_DIRTY;

	if (!keep)
		kind = punch(w, first * WINDOW_UNIT, n * WINDOW_UNIT)
			       ? WINDOW_FREE
			       : WINDOW_LOST;
	set_kind(w, first, n, kind);
	w->used -= n;
}

void window_free(struct window *w, void *p)
{
	size_t first;

	pthread_mutex_lock(&w->lock);
	first = heap_unit(w, p);
	release(w, first, w->units[first].run);
	pthread_mutex_unlock(&w->lock);
}

size_t window_usable(struct window *w, const void *p)
{
	size_t first, n;

	pthread_mutex_lock(&w->lock);
	first = heap_unit(w, p);
	n = w->units[first].run;
	pthread_mutex_unlock(&w->lock);
	return n * WINDOW_UNIT;
}

/* The caller holds the lock. Takes the pages lo..hi out of a unit: has it no
 * page left? */
static bool drop_pages(struct window *w, size_t at, unsigned lo, unsigned hi)
{
	struct window_unit *u = &w->units[at];

	if (u->kind != WINDOW_MAP)
		return false;
	u->live &= (uint16_t) ~(((1u << (hi - lo)) - 1) << lo);
	if (!u->live)
		return true;
	reset(w, at * WINDOW_UNIT + lo * WINDOW_PAGE, (hi - lo) * WINDOW_PAGE);
	return false;
}

/* Units without a page left are free again. The lock is held. */
static void free_units(struct window *w, size_t first, size_t n)
{
	if (!n)
		return;
	set_kind(w, first, n,
		 reset(w, first * WINDOW_UNIT, n * WINDOW_UNIT) ? WINDOW_FREE
								: WINDOW_LOST);
	w->used -= n;
}

void window_unmap(struct window *w, void *addr, size_t len)
{
	size_t page, end, stop, at, first = 0, n = 0;

	pthread_mutex_lock(&w->lock);
	page = (size_t)((char *)addr - base_of(w)) / WINDOW_PAGE;
	end = page + (len + WINDOW_PAGE - 1) / WINDOW_PAGE;
	for (; page < end; page = stop) {
		at = page / 16;
		stop = (at + 1) * 16 < end ? (at + 1) * 16 : end;
		if (!drop_pages(w, at, (unsigned)(page % 16),
				(unsigned)(stop - at * 16))) {
			free_units(w, first, n);
			n = 0;
		} else if (!n++) {
			first = at;
		}
	}
	free_units(w, first, n);
	pthread_mutex_unlock(&w->lock);
}

int window_clean(struct window *w, void *addr, size_t len)
{
	off_t off = (off_t)((char *)addr - base_of(w));

	len = (len + WINDOW_PAGE - 1) & ~(WINDOW_PAGE - 1);
	/* What the program has mapped over it. */
	if (sys_madvise(addr, len, MADV_DONTNEED))
		return -errno;
	/* Through the file, for MADV_REMOVE would take the bytes of whatever
	 * file is mapped there. */
	if (window_fd_ours(w)
		    ? !fallocate(w->fd,
				 FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
				 off, (off_t)len)
		    : !sys_madvise(addr, len, MADV_REMOVE) || errno == EINVAL)
		return 0;
	return -errno;
}

/* Is off..off+len of the file mapped where it belongs? The kernel is asked:
 * programs map over, move and protect without our seeing it. */
static bool mapped(const struct window *w, size_t off, size_t len)
{
	uintptr_t want = (uintptr_t)base_of(w) + off, end = want + len;
	unsigned long lo, hi, at, ino;
	char line[512], perm[5];
	FILE *f = fopen("/proc/self/maps", "re");

	if (!f)
		return false;
	while (want < end && fgets(line, sizeof(line), f)) {
		if (sscanf(line, "%lx-%lx %4s %lx %*x:%*x %lu", &lo, &hi, perm,
			   &at, &ino) != 5 ||
		    hi <= want)
			continue;
		if (lo > want || ino != w->ino || perm[3] != 's' ||
		    at != lo - (uintptr_t)base_of(w))
			break;
		want = hi;
	}
	fclose(f);
	return want >= end;
}

int window_file(struct window *w, const void *addr, size_t len, int *fd,
		uint64_t *off)
{
	size_t at;
	int rc;

	if (!len || !window_has(w, addr))
		return -ENOENT;
	at = (size_t)((const char *)addr - base_of(w));
	/* The lock is not held, because stdio below may allocate. The caller
	 * keeps the memory while it registers it. */
	if (len > w->span - at || !window_fd_ours(w) || !mapped(w, at, len))
		return -ENOENT;
	/* A peer's copy must never wait for a page that is not there. */
	do
		rc = fallocate(w->fd, 0, (off_t)at, (off_t)len);
	while (rc && errno == EINTR);
	if (rc)
		return -ENOMEM;
	*fd = w->fd;
	*off = at;
	return 0;
}
