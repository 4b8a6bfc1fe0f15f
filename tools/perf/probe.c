/* SPDX-License-Identifier: MIT */
/*
 * probe.c - cache-line, eventfd and memcpy yardsticks.
 *
 * The line probe and the operations use the same clock in the same places:
 * read before, read when the answer is seen, record outside of the two.
 */
#include "perf/probe.h"

#include "env/env.h"
#include "perf/ticks.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int shm_new(struct perf_shm **shm)
{
	void *p = mmap(NULL, sizeof(struct perf_shm), PROT_READ | PROT_WRITE,
		       MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
		return -errno;
	*shm = p;
	return 0;
}

void shm_free(struct perf_shm *shm)
{
	if (shm)
		munmap(shm, sizeof(*shm));
}

/*
 * Spins until *word is v, by the same round as the operations' own waits
 * (perf_spin()): a bare load loop holds up the very store that it waits for and
 * measures twice what a WRITE takes. Inlined in any build, for the spacing of
 * the loads decides the figure. The acquire pairs with the release store of the
 * other end, so that what was written before the word is seen too.
 */
static inline __attribute__((always_inline)) bool await(struct perf_worker *w,
							const uint64_t *word,
							uint64_t v)
{
	while (__atomic_load_n(word, __ATOMIC_ACQUIRE) != v)
		if (!perf_spin(w))
			return false;
	perf_spun(w);
	return true;
}

int probe_line_client(struct perf_worker *w, uint64_t n)
{
	struct perf_shm *s = w->p->shm;
	double scale = w->p->ns_per_tick;
	uint64_t base = s->ping;

	for (uint64_t i = 1; i <= n; i++) {
		uint64_t t0 = ticks_now(), t1;

		__atomic_store_n(&s->ping, base + i, __ATOMIC_RELEASE);
		if (!await(w, &s->pong, base + i))
			return w->rc;
		t1 = ticks_now();
		hist_record(w->lat, (uint64_t)((double)(t1 - t0) * scale));
	}
	return 0;
}

int probe_line_server(struct perf_worker *w, uint64_t n)
{
	struct perf_shm *s = w->p->shm;
	uint64_t base = s->pong;

	for (uint64_t i = 1; i <= n; i++) {
		if (!await(w, &s->ping, base + i))
			return w->rc;
		__atomic_store_n(&s->pong, base + i, __ATOMIC_RELEASE);
	}
	return 0;
}

/* poll() first, as an event loop does; the fd is nonblocking. */
static int event_take(struct perf_worker *w, int fd)
{
	struct pollfd pfd = {.fd = fd, .events = POLLIN};
	uint64_t v;
	int n;

	do
		n = poll(&pfd, 1, (int)(PERF_PATIENCE_NS / 1000000));
	while (n < 0 && errno == EINTR);
	if (n <= 0)
		return perf_fail(w->p, -ETIMEDOUT,
				 "eventfd probe: timed out: no answer from "
				 "the other end");
	if (read(fd, &v, sizeof(v)) != sizeof(v))
		return perf_fail(w->p, -errno, "eventfd probe: read: %s",
				 strerror(errno));
	return 0;
}

static int event_give(struct perf_worker *w, int fd)
{
	uint64_t v = 1;

	if (write(fd, &v, sizeof(v)) != sizeof(v))
		return perf_fail(w->p, -errno, "eventfd probe: write: %s",
				 strerror(errno));
	return 0;
}

int probe_event_client(struct perf_worker *w, uint64_t n)
{
	double scale = w->p->ns_per_tick;
	int rc = 0;

	for (uint64_t i = 0; i < n && !rc; i++) {
		uint64_t t0 = ticks_now(), t1;

		rc = event_give(w, w->p->event_fd[1]);
		if (!rc)
			rc = event_take(w, w->p->event_fd[0]);
		t1 = ticks_now();
		hist_record(w->lat, (uint64_t)((double)(t1 - t0) * scale));
	}
	return rc;
}

int probe_event_server(struct perf_worker *w, uint64_t n)
{
	int rc = 0;

	for (uint64_t i = 0; i < n && !rc; i++) {
		rc = event_take(w, w->p->event_fd[1]);
		if (!rc)
			rc = event_give(w, w->p->event_fd[0]);
	}
	return rc;
}

int probe_copy_new(struct perf *p, size_t len, struct probe_copy *c)
{
	int rc;

	memset(c, 0, sizeof(*c));
	rc = env_real_new(&c->env);
	if (rc)
		return perf_fail(p, rc, "memcpy probe: %s", strerror(-rc));
	c->len = len;
	rc = env_mem_alloc(c->env, "copy", len, &c->fd[0], &c->buf[0]);
	if (rc)
		goto err_env;
	rc = env_mem_alloc(c->env, "copy", len, &c->fd[1], &c->buf[1]);
	if (rc)
		goto err_mem;
	memset(c->buf[0], 1, len);
	memset(c->buf[1], 2, len);
	return 0;
err_mem:
	env_mem_free(c->env, c->fd[0], c->buf[0], len);
err_env:
	env_real_free(c->env);
	c->env = NULL;
	return perf_fail(p, rc, "memcpy probe: no memory for %zu bytes", len);
}

void probe_copy_free(struct probe_copy *c)
{
	if (!c->env)
		return;
	for (int i = 0; i < 2; i++)
		env_mem_free(c->env, c->fd[i], c->buf[i], c->len);
	env_real_free(c->env);
	c->env = NULL;
}

double probe_copy_run(struct perf *p, struct probe_copy *c, uint64_t n)
{
	struct hist *h = p->workers[0].lat;
	uint64_t t0 = ticks_now(), t1;

	hist_init(h);
	for (uint64_t i = 0; i < n; i++) {
		memcpy(c->buf[1], c->buf[0], c->len);
		/* nobody reads the copy: the compiler must not know */
		__asm__ volatile("" : : "r"(c->buf[1]) : "memory");
		t1 = ticks_now();
		hist_record(h, (uint64_t)((double)(t1 - t0) * p->ns_per_tick));
		t0 = t1;
	}
	return (double)hist_percentile(h, 50);
}
