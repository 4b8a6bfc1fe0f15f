/* SPDX-License-Identifier: MIT */
/*
 * counts.c - see counts.h.
 */
#include "dev/soft/link/counts.h"

#include "env/env.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

struct counts_page *counts_new(struct skein_env *env, int *fd)
{
	struct counts_page *p;
	void *mem;

	if (env_mem_alloc(env, COUNTS_NAME, sizeof(*p), fd, &mem)) {
		*fd = -1;
		mem = env_alloc(env, sizeof(*p));
	}
	p = mem;
	if (!p)
		return NULL;
	p->len = sizeof(*p);
	p->pid = (uint32_t)getpid();
	atomic_init(&p->rows, 1);
	/* pairs with counts_read() */
	atomic_store_explicit(&p->magic, COUNTS_MAGIC, memory_order_release);
	return p;
}

void counts_free(struct skein_env *env, int fd, struct counts_page *p)
{
	if (fd >= 0)
		env_mem_free(env, fd, p, sizeof(*p));
	else
		env_free(env, p);
}

struct counts_row *counts_peer(struct counts_page *p, const uint8_t addr[16])
{
	uint32_t n = atomic_load_explicit(&p->rows, memory_order_relaxed), i;

	for (i = COUNTS_REST + 1; i < n; i++)
		if (!memcmp(p->row[i].addr, addr, 16))
			return &p->row[i];
	if (n == COUNTS_ROWS)
		return &p->row[COUNTS_REST];
	memcpy(p->row[n].addr, addr, 16);
	/* pairs with counts_read() */
	atomic_store_explicit(&p->rows, n + 1, memory_order_release);
	return &p->row[n];
}

int counts_read(const struct counts_page *p, struct counts_record *out)
{
	/* acquire: pairs with counts_new() and counts_peer() */
	uint64_t magic = atomic_load_explicit(&p->magic, memory_order_acquire);
	uint32_t rows = atomic_load_explicit(&p->rows, memory_order_acquire);
	uint32_t i, what;

	if (!magic)
		return -EAGAIN;
	if (magic != COUNTS_MAGIC || p->len != sizeof(*p) || !rows ||
	    rows > COUNTS_ROWS)
		return -EINVAL;
	out->pid = p->pid;
	out->rows = rows;
	for (i = 0; i < rows; i++) {
		memcpy(out->row[i].addr, p->row[i].addr, 16);
		for (what = 0; what < COUNTS; what++)
			out->row[i].n[what] =
				counts_get(&p->row[i], (enum counts_kind)what);
	}
	return 0;
}
