/* SPDX-License-Identifier: MIT */
/*
 * nic.c - the NIC file: its memory, its arena, its blocks of QPNs.
 *
 * The file only grows and is sealed against shrinking; each range is allocated
 * before anybody touches it, so that neither we nor a peer meet SIGBUS. Owner
 * and peers map SHM_SPAN of address space once; nothing is mapped again when
 * the file grows. The mapping is MADV_DONTFORK: a child cannot write into it
 * by mistake.
 */
#include "base/assert.h"
#include "dev/soft/soft.h"
#include "env/mem_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define NIC_AHEAD (256ull * 1024)

static int nic_reserve(struct soft *s, uint64_t off, uint64_t len)
{
	return mem_file_alloc(s->nic_fd, off, len);
}

static int fork_page_new(struct soft *s)
{
	uint64_t *p = mmap(NULL, SHM_PAGE, PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
		return -errno;
	if (madvise(p, SHM_PAGE, MADV_WIPEONFORK)) {
		int err = -errno;

		munmap(p, SHM_PAGE);
		return err;
	}
	*p = SOFT_HERE;
	s->here = (const _Atomic uint64_t *)p;
	return 0;
}

static int nic_map(struct soft *s)
{
	int err;

	s->nic_fd = memfd_create("skein-nic", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (s->nic_fd < 0)
		return -errno;
	err = nic_reserve(s, 0, SHM_MR_OFF);
	if (!err)
		err = mem_file_resize(s->nic_fd, SHM_ARENA_OFF);
	if (!err && fcntl(s->nic_fd, F_ADD_SEALS, F_SEAL_SHRINK))
		err = -errno;
	if (err)
		goto err_fd;
	s->base = mmap(NULL, SHM_SPAN, PROT_READ | PROT_WRITE,
		       MAP_SHARED | MAP_NORESERVE, s->nic_fd, 0);
	if (s->base == MAP_FAILED) {
		err = -errno;
		goto err_fd;
	}
	if (madvise(s->base, SHM_SPAN, MADV_DONTFORK)) {
		err = -errno;
		munmap(s->base, SHM_SPAN);
		goto err_fd;
	}
	madvise(s->base, SHM_SPAN, MADV_DONTDUMP); /* else cores are larger */
	s->nic_size = s->nic_end = SHM_ARENA_OFF;
	return 0;

err_fd:
	close(s->nic_fd);
	s->nic_fd = -1;
	s->base = NULL;
	return err;
}

int soft_nic_new(struct soft *s)
{
	int err;

	err = nic_map(s);
	if (err)
		return err;
	err = fork_page_new(s);
	if (err)
		goto err_map;
	skein_assert(s->base);
	s->nic = (struct shm_nic *)(void *)s->base;
	s->mr_table = (struct shm_mr *)(void *)(s->base + SHM_MR_OFF);
	s->nic->version = SHM_VERSION;
	s->nic->nic_id = env_random_u64(s->env) | 1;
	s->nic->qp_max = SHM_QP_MAX;
	s->nic->mr_max = SHM_MR_MAX;
	s->nic->ordered = true;
	s->nic->magic = SHM_MAGIC;
	return 0;

err_map:
	munmap(s->base, SHM_SPAN);
	close(s->nic_fd);
	s->base = NULL;
	s->nic_fd = -1;
	return err;
}

void soft_nic_free(struct soft *s)
{
	unsigned i, j;

	for (i = 0; i < SOFT_ARENAS; i++)
		for (j = 0; j < SOFT_ARENA_CLASSES; j++)
			free(s->arena[i][j].free);
	if (s->base)
		munmap(s->base, SHM_SPAN);
	if (s->here)
		munmap(soft_ptr((uintptr_t)s->here), SHM_PAGE);
	if (s->nic_fd >= 0)
		close(s->nic_fd);
}

/* A class for each number of pages up to EXACT, then for each power of two. */
#define EXACT 4u

static unsigned arena_class(size_t len, size_t *bytes)
{
	size_t pages = (len + SHM_PAGE - 1) / SHM_PAGE, size = EXACT;
	unsigned c = EXACT;

	if (pages && pages <= EXACT) {
		*bytes = pages * SHM_PAGE;
		return (unsigned)pages - 1;
	}
	for (; size < pages; size *= 2)
		c++;
	*bytes = size * SHM_PAGE;
	return c - 1;
}

/* Room for one more entry in the ring of free areas, taken at allocation so
 * that freeing cannot fail. */
static int class_grow(struct soft_arena_class *c)
{
	uint32_t cap = c->cap ? c->cap * 2 : 16;
	uint64_t *f = calloc(cap, sizeof(*f));
	uint32_t i;

	if (!f)
		return -ENOMEM;
	for (i = 0; i < c->count; i++)
		f[i] = c->free[(c->head + i) % c->cap];
	free(c->free);
	c->free = f;
	c->head = 0;
	c->cap = cap;
	return 0;
}

/* Grows the file by more than is asked for, so that peers do not have to ask
 * for its length again at each new QP. */
static int nic_grow(struct soft *s, size_t bytes)
{
	uint64_t end = s->nic_size + bytes, ahead = end + NIC_AHEAD;
	int err;

	if (end <= s->nic_end)
		return 0;
	err = -ENOMEM;
	if (ahead <= SHM_SPAN)
		err = nic_reserve(s, s->nic_end, ahead - s->nic_end);
	if (!err) {
		s->nic_end = ahead;
		return 0;
	}
	err = nic_reserve(s, s->nic_end, end - s->nic_end);
	if (!err)
		s->nic_end = end;
	return err;
}

int soft_arena_alloc(struct soft *s, enum soft_arena kind, size_t len,
		     uint64_t *off)
{
	size_t bytes;
	unsigned n = arena_class(len, &bytes);
	struct soft_arena_class *c;
	int err;

	if (n >= SOFT_ARENA_CLASSES)
		return -EINVAL;
	c = &s->arena[kind][n];
	if (c->count) {
		*off = c->free[c->head];
		c->head = (c->head + 1) % c->cap;
		c->count--;
		c->out++;
		return 0;
	}
	if (c->out + c->count + 1 > c->cap) {
		err = class_grow(c);
		if (err)
			return err;
	}
	if (s->nic_size + bytes > SHM_SPAN)
		return -ENOMEM;
	err = nic_grow(s, bytes);
	if (err)
		return err;
	*off = s->nic_size;
	s->nic_size += bytes;
	c->out++;
	return 0;
}

void soft_arena_free(struct soft *s, enum soft_arena kind, size_t len,
		     uint64_t off)
{
	size_t bytes;
	struct soft_arena_class *c;

	c = &s->arena[kind][arena_class(len, &bytes)];
	c->free[(c->head + c->count) % c->cap] = off;
	c->count++;
	c->out--;
}

int soft_mr_back(struct soft *s, uint32_t idx)
{
	uint64_t need = (uint64_t)(idx + 1) * sizeof(struct shm_mr);
	uint64_t top;
	int err;

	if (need <= s->mr_backed)
		return 0;
	top = (need + SHM_PAGE - 1) & ~(SHM_PAGE - 1);
	err = nic_reserve(s, SHM_MR_OFF + s->mr_backed, top - s->mr_backed);
	if (err)
		return err;
	s->mr_backed = top;
	/* release: entries below mr_top are zero or written */
	atomic_store_explicit(&s->nic->mr_top,
			      (uint32_t)(top / sizeof(struct shm_mr)),
			      memory_order_release);
	return 0;
}

int soft_block_name(uint32_t block, void *sockaddr_un)
{
	struct sockaddr_un *un = sockaddr_un;
	int n;

	memset(un, 0, sizeof(*un));
	un->sun_family = AF_UNIX;
	/* abstract: a leading zero byte, scoped to the network namespace */
	n = snprintf(un->sun_path + 1, sizeof(un->sun_path) - 1,
		     "skein0.qpn.%03x", block);
	return (int)offsetof(struct sockaddr_un, sun_path) + 1 + n;
}

int soft_block_new(struct soft *s)
{
	struct sockaddr_un un;
	struct soft_src *src = &s->listeners[s->n_blocks];
	int tries, err = -EADDRINUSE;
	uint32_t block;
	int fd, len;

	if (s->n_blocks == SHM_BLOCK_MAX)
		return -ENOSPC;
	fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	/* Block 0 has the reserved QPNs 0 and 1, the last block that of
	 * multicast. 16,384 tries find a free block as long as a thousandth of
	 * the blocks is free. */
	for (tries = 0; tries < 1 << 14 && err == -EADDRINUSE; tries++) {
		block = 1 + (uint32_t)(env_random_u64(s->env) %
				       (SHM_BLOCK_QPS - 2));
		len = soft_block_name(block, &un);
		err = bind(fd, (struct sockaddr *)&un, (socklen_t)len) ? -errno
								       : 0;
	}
	if (!err && listen(fd, 1024))
		err = -errno;
	if (err)
		goto err_fd;
	src->kind = SOFT_SRC_LISTEN;
	src->fd = fd;
	err = soft_src_add(s, src, 1 /* EPOLLIN */);
	if (err)
		goto err_fd;
	s->blocks[s->n_blocks++] = block;
	return 0;

err_fd:
	close(fd);
	return err;
}
