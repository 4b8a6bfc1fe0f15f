/* SPDX-License-Identifier: MIT */
/*
 * mr.c - memory regions.
 *
 * A key is index << 16 | generation; lkey and rkey are the same. (A memory
 * window has an index, too, and the low byte of its keys moves: mw.c.) An index is
 * used again as late as possible, and its generation moves on, so an old key
 * meets a foreign region after 65,536 uses of one index at the earliest. The
 * shared entry is what peers check against; a peer's cached translation holds
 * a pointer to its life, which is another one for a region that was registered
 * again under its key.
 */
#include "base/fence.h"
#include "dev/soft/dc/dc.h"
#include "dev/soft/file.h"
#include "dev/soft/mw.h"
#include "dev/soft/ud/ud.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define REMOTE_ANY                                          \
	(IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | \
	 IBV_ACCESS_REMOTE_ATOMIC)
#define KNOWN (REMOTE_ANY | IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND)

/* As range_check(), without reading all mappings of the process, which takes a
 * millisecond where there are thousands. It serves short ranges of a file,
 * which has its pages already. False: not known. */
static bool file_range_good(uintptr_t addr, size_t len, bool write)
{
	uintptr_t lo = addr & ~(uintptr_t)(SHM_PAGE - 1);

	return len <= SOFT_POPULATE_MAX &&
	       !madvise(soft_ptr(lo), addr + len - lo,
			write ? MADV_POPULATE_WRITE : MADV_POPULATE_READ);
}

/* Is the range mapped here, with the rights that the NIC will use? A real one
 * pins the pages and fails likewise. */
static int range_check(uintptr_t addr, size_t len, bool write)
{
	uintptr_t lo, hi, want = addr, end = addr + len;
	char line[512], perm[5];
	int err = -EFAULT;
	FILE *f;

	f = fopen("/proc/self/maps", "re");
	if (!f && (errno == EMFILE || errno == ENFILE || errno == ENOMEM))
		return -errno;
	/* No /proc, or a sandbox that refuses it: the kernel still tells what
	 * is mapped, but not with which rights. */
	lo = addr & ~(uintptr_t)(SHM_PAGE - 1);
	if (!f)
		return msync(soft_ptr(lo), end - lo, MS_ASYNC) &&
				       errno == ENOMEM
			       ? -EFAULT
			       : 0;
	while (want < end && fgets(line, sizeof(line), f)) {
		if (sscanf(line, "%lx-%lx %4s", &lo, &hi, perm) != 3)
			continue;
		if (hi <= want)
			continue;
		if (lo > want || perm[0] != 'r' || (write && perm[1] != 'w'))
			break;
		want = hi;
	}
	if (want >= end)
		err = 0;
	fclose(f);
	return err;
}

/* s->lock held. */
static int mr_index(struct soft *s, uint32_t *idx)
{
	uint32_t n, i;

	while (s->n_mrs * 2 >= s->mr_window && s->mr_window < SHM_MR_MAX) {
		s->mr_next = s->mr_window;
		s->mr_window *= 2;
	}
	for (n = 0; n < s->mr_window; n++) {
		/* Round a window that grows with the number of regions: an
		 * index rests for as long as possible without backing all. */
		i = s->mr_next;
		s->mr_next = (i + 1) % s->mr_window;
		if (!s->mrs[i]) {
			*idx = i;
			return soft_mr_back(s, i);
		}
	}
	return -ENOMEM;
}

int soft_key_new(struct soft *s, uint32_t *key)
{
	uint32_t idx = 0;
	int err = mr_index(s, &idx);

	if (err)
		return err;
	/* Other hosts must not guess a key. */
	if (s->mr_gen[idx] == 0)
		s->mr_gen[idx] = (uint16_t)env_random_u64(s->env);
	if (++s->mr_gen[idx] == 0)
		s->mr_gen[idx] = 1;
	*key = idx << 16 | s->mr_gen[idx];
	return 0;
}

uint32_t soft_life_new(struct soft *s)
{
	uint32_t life;

	/* relaxed: a number, no more */
	do
		life = atomic_fetch_add_explicit(&s->mr_lives, 1,
						 memory_order_relaxed) +
		       1;
	while (!life);
	return life;
}

static bool is_moved(const struct soft_mr *m)
{
	return m->start != (uintptr_t)m->mr.addr;
}

/* s->lock held. */
static void mr_publish(struct soft *s, struct soft_mr *m, uint32_t key)
{
	uint32_t idx = key >> 16;
	struct shm_mr *e = &s->mr_table[idx];

	m->mr.lkey = m->mr.rkey = key;
	m->mr.handle = idx;
	m->life = soft_life_new(s);
	shm_set(e->key, key);
	shm_set(e->access, m->access);
	shm_set(e->pd, m->pd->id);
	shm_set(e->kind, m->fd < 0 ? SHM_MR_PLAIN
				   : (m->near ? SHM_MR_NEAR : SHM_MR_FILE));
	shm_set(e->start, m->start);
	shm_set(e->at, (uintptr_t)m->mr.addr);
	shm_set(e->len, m->mr.length);
	shm_set(e->off, m->off);
	shm_set(e->qpn, 0);
	shm_set(e->of, 0);
	s->mrs[idx] = m;
	if (is_moved(m))
		atomic_fetch_add(&s->moved_mrs, 1);
	/* release: a peer that sees the life also sees the fields */
	atomic_store_explicit(&e->life, m->life, memory_order_release);
}

bool soft_entry_read(const struct shm_mr *e, struct soft_entry *x)
{
	/* acquire: pairs with mr_publish() and publish() of mw.c */
	x->life = atomic_load_explicit(&e->life, memory_order_acquire);
	if (!x->life)
		return false;
	x->key = shm_once(e->key);
	x->access = shm_once(e->access);
	x->pd = shm_once(e->pd);
	x->kind = shm_once(e->kind);
	x->qpn = shm_once(e->qpn);
	x->start = shm_once(e->start);
	x->len = shm_once(e->len);
	x->off = shm_once(e->off);
	x->at = shm_once(e->at);
	x->of = shm_once(e->of);
	/* The fields are of this life if it is still there after them. */
	fence_acquire();
	return atomic_load_explicit(&e->life, memory_order_relaxed) == x->life;
}

/* Of a window: is its region the one that it was bound to? */
static bool region_lives(const struct soft *s, uint64_t of)
{
	struct soft_entry r;

	return soft_entry_read(&s->mr_table[(uint32_t)of >> 16], &r) &&
	       r.key == (uint32_t)of && r.life == of >> 32;
}

bool soft_key_open(const struct soft *s, const struct soft_dest *to,
		   uint32_t key, uint64_t addr, uint64_t len, uint32_t access,
		   uint64_t *here)
{
	struct soft_entry x;

	/* relaxed: of ours; what is not backed yet was never a key */
	if (key >> 16 >= atomic_load_explicit(&s->nic->mr_top,
					      memory_order_relaxed) ||
	    !soft_entry_read(&s->mr_table[key >> 16], &x))
		return false;
	if (x.kind == SHM_MR_WINDOW && !region_lives(s, x.of))
		return false;
	*here = x.at + (addr - x.start);
	return x.key == key && x.pd == to->pd && (!x.qpn || x.qpn == to->qpn) &&
	       (x.access & access) == access && addr >= x.start &&
	       len <= x.len && addr - x.start <= x.len - len;
}

static bool access_good(int access)
{
	return !(access & ~KNOWN) && (!(access & (IBV_ACCESS_REMOTE_WRITE |
						  IBV_ACCESS_REMOTE_ATOMIC)) ||
				      access & IBV_ACCESS_LOCAL_WRITE);
}

/* Is it memory that the NIC can use? Of memory on demand the region's maker says
 * so: a look would make its pages. */
static int mapped_good(void *addr, size_t len, int access, int fd)
{
	bool write = access & IBV_ACCESS_LOCAL_WRITE;

	if (access & IBV_ACCESS_ON_DEMAND)
		return fd < 0 ? -EINVAL : 0;
	if (fd >= 0 && file_range_good((uintptr_t)addr, len, write))
		return 0;
	return range_check((uintptr_t)addr, len, write);
}

static struct soft_mr *mr_make(struct soft *s, struct ibv_pd *pd, void *addr,
			       size_t len, int access)
{
	struct soft_mr *m = env_alloc(s->env, sizeof(*m));

	if (!m)
		return NULL;
	m->mr.context = &s->vctx.context;
	m->mr.pd = pd;
	m->mr.addr = addr;
	m->mr.length = len;
	m->start = (uintptr_t)addr;
	m->pd = soft_pd_of(pd);
	m->access = (uint32_t)access;
	return m;
}

/* One that nobody sees yet. */
static int mr_new(struct soft *s, struct ibv_pd *pd, void *addr, size_t len,
		  int access, int fd, uint64_t off, struct soft_mr **mr)
{
	struct soft_mr *m;
	int err;

	if (len == 0 || (uintptr_t)addr + len < (uintptr_t)addr ||
	    !access_good(access & ~IBV_ACCESS_ON_DEMAND))
		return -EINVAL;
	err = mapped_good(addr, len, access, fd);
	if (err)
		return err;
	m = mr_make(s, pd, addr, len, access);
	if (!m)
		return -ENOMEM;
	m->off = off;
	m->file = fd >= 0 ? soft_file_get(s, fd, off, len) : NULL;
	m->fd = m->file ? m->file->fd : -1;
	soft_pd_get(pd);
	*mr = m;
	return 0;
}

static void mr_free(struct soft *s, struct soft_mr *m)
{
	soft_pd_put(m->mr.pd);
	soft_file_put(s, m->file);
	env_free(s->env, m);
}

int soft_reg_mr_iova(struct dev *dev, struct ibv_pd *pd, void *addr, size_t len,
		     uint64_t iova, int access, int fd, uint64_t off,
		     struct ibv_mr **mr)
{
	struct soft *s = soft_of_dev(dev);
	struct soft_mr *m;
	uint32_t key;
	int err;

	if (!soft_here(s))
		return -EPERM;
	if (iova + len < iova)
		return -EINVAL;
	err = mr_new(s, pd, addr, len, access, fd, off, &m);
	if (err)
		return err;
	m->start = iova;
	pthread_mutex_lock(&s->lock);
	err = soft_key_new(s, &key);
	if (!err) {
		mr_publish(s, m, key);
		s->n_mrs++;
	}
	pthread_mutex_unlock(&s->lock);
	if (err) {
		mr_free(s, m);
		return err;
	}
	*mr = &m->mr;
	return 0;
}

int soft_reg_mr(struct dev *dev, struct ibv_pd *pd, void *addr, size_t len,
		int access, int fd, uint64_t off, struct ibv_mr **mr)
{
	return soft_reg_mr_iova(dev, pd, addr, len, (uintptr_t)addr, access, fd,
				off, mr);
}

/* Larger ones are worth a file of their own, and so is what would fill the NIC
 * file, where QPs have to go. */
#define NEAR_MAX (256u << 10)
#define NEAR_ALL (SHM_SPAN / 8)

/* Gives m a zeroed piece of the arena. s->lock held. */
static int near_place(struct soft *s, struct soft_mr *m)
{
	uint64_t end = s->nic_size;
	int err;

	if (m->mr.length > NEAR_MAX || s->near_len + m->mr.length > NEAR_ALL)
		return -E2BIG;
	err = soft_arena_alloc(s, SOFT_ARENA_MEM, m->mr.length, &m->off);
	if (err)
		return err;
	m->mr.addr = s->base + m->off;
	m->start = (uintptr_t)m->mr.addr;
	if (m->off < end) /* somebody had it */
		memset(m->mr.addr, 0, m->mr.length);
	s->near_len += m->mr.length;
	return 0;
}

static void near_unplace(struct soft *s, const struct soft_mr *m)
{
	soft_arena_free(s, SOFT_ARENA_MEM, m->mr.length, m->off);
	s->near_len -= m->mr.length;
}

int soft_new_mr(struct dev *dev, struct ibv_pd *pd, size_t len, int access,
		struct ibv_mr **mr)
{
	struct soft *s = soft_of_dev(dev);
	struct soft_mr *m;
	uint32_t key;
	int err;

	if (!soft_here(s))
		return -EPERM;
	if (!len || !access_good(access))
		return -EINVAL;
	m = mr_make(s, pd, NULL, len, access);
	if (!m)
		return -ENOMEM;
	m->fd = s->nic_fd;
	m->near = true;
	pthread_mutex_lock(&s->lock);
	err = near_place(s, m);
	if (!err) {
		err = soft_key_new(s, &key);
		if (err)
			near_unplace(s, m);
	}
	if (!err) {
		mr_publish(s, m, key);
		s->n_mrs++;
	}
	pthread_mutex_unlock(&s->lock);
	if (err) {
		env_free(s->env, m);
		return err;
	}
	soft_pd_get(pd);
	*mr = &m->mr;
	return 0;
}

int soft_quiesce_all(struct soft *s)
{
	struct list_node *n;
	struct soft_qp *q;
	uint32_t i;
	int err = 0;

	soft_barrier();
	for (i = 0; i < s->n_blocks * SHM_BLOCK_QPS && !err; i++) {
		q = s->qps[i];
		if (q && !q->ud)
			err = soft_quiesce(q);
		else if (q && !q->srq)
			err = soft_ud_quiesce(q, true);
	}
	for (n = s->srqs.next; n != &s->srqs && !err; n = n->next)
		err = soft_ud_srq_quiesce(
			container_of(n, struct soft_srq, link));
	return err ? err : soft_dc_quiesce(s, true);
}

static void tell_peers(struct soft *s)
{
	struct soft_peer *p;
	struct list_node *n;

	for (n = s->peers.next; n != &s->peers; n = n->next) {
		p = container_of(n, struct soft_peer, link);
		if (atomic_load(&p->dead))
			continue;
		/* release: the cleared key is seen by the sweeper */
		atomic_store_explicit(&p->nic->sweep, 1, memory_order_release);
		env_bell(p->kick_fd);
	}
}

/* Is another region on these pages? s->lock held. */
static bool shares_pages(struct soft *s, const struct soft_mr *m, uintptr_t lo,
			 uintptr_t hi)
{
	const struct soft_mr *o;
	uintptr_t at;
	uint32_t i;

	for (i = 0; i < s->mr_window; i++) {
		o = s->mrs[i];
		if (!o || o == m)
			continue;
		at = (uintptr_t)o->mr.addr;
		if (at < hi && at + o->mr.length > lo)
			return true;
	}
	return false;
}

/*
 * A stopped process holds its hazard. When it goes on it must not write into
 * the owner's memory. So the owner's mapping of the shared file is replaced by
 * a private copy with the file's last bytes: the poster writes into pages that
 * the owner no longer sees.
 */
static int mr_part(struct soft *s, struct soft_mr *m)
{
	/* a mapping of huge pages can be replaced by whole ones only */
	uintptr_t page = m->fd < 0 ? SHM_PAGE : env_mem_page(m->fd);
	uintptr_t lo = (uintptr_t)m->mr.addr & ~(page - 1);
	uintptr_t hi =
		((uintptr_t)m->mr.addr + m->mr.length + page - 1) & ~(page - 1);
	void *copy;

	if (m->fd < 0 || lo != (uintptr_t)m->mr.addr ||
	    hi != lo + m->mr.length || shares_pages(s, m, lo, hi))
		return -EBUSY;
	copy = mmap(NULL, hi - lo, PROT_READ | PROT_WRITE,
		    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (copy == MAP_FAILED)
		return -errno;
	memcpy(copy, soft_ptr(lo), hi - lo);
	if (mremap(copy, hi - lo, hi - lo, MREMAP_MAYMOVE | MREMAP_FIXED,
		   soft_ptr(lo)) == MAP_FAILED) {
		munmap(copy, hi - lo);
		return -EBUSY;
	}
	return 0;
}

/* The life is cleared, and peers come in no more: 0, and none is inside; -EBUSY:
 * one that is stopped may be. s->lock held. */
static int mr_empty(struct soft *s, const struct soft_mr *m)
{
	return m->access & REMOTE_ANY || s->n_qps ? soft_quiesce_all(s) : 0;
}

/* It is over. s->lock held. */
static void mr_sweep(struct soft *s, const struct soft_mr *m)
{
	if (is_moved(m))
		atomic_fetch_sub(&s->moved_mrs, 1);
	if (s->harsh)
		soft_harsh_barrier(s);
	if (m->fd >= 0)
		tell_peers(s);
}

int soft_dereg_mr(struct dev *dev, struct ibv_mr *mr)
{
	struct soft *s = soft_of_dev(dev);
	struct soft_mr *m = container_of(mr, struct soft_mr, mr);
	bool left;
	int err;

	if (!soft_here(s))
		return -EPERM;
	pthread_mutex_lock(&s->lock);
	if (!soft_mw_end(s, mr->lkey)) {
		pthread_mutex_unlock(&s->lock);
		return -EBUSY;
	}
	err = mr_empty(s, m);
	/* A piece of the arena is given up: nothing uses it again. */
	left = !m->near || err != -EBUSY;
	if (err == -EBUSY)
		err = m->near ? 0 : mr_part(s, m);
	if (!err) {
		if (m->near && left)
			near_unplace(s, m);
		s->mrs[mr->handle] = NULL;
		s->n_mrs--;
		mr_sweep(s, m);
	}
	pthread_mutex_unlock(&s->lock);
	if (err)
		return err;
	mr_free(s, m);
	return 0;
}

int soft_rereg_mr(struct dev *dev, struct ibv_mr *mr, int flags,
		  struct ibv_pd *pd, void *addr, size_t len, int access, int fd,
		  uint64_t off)
{
	struct soft *s = soft_of_dev(dev);
	struct soft_mr *m = container_of(mr, struct soft_mr, mr), *n, was;
	uint32_t key = mr->rkey;
	int err;

	if (!soft_here(s))
		return -EPERM;
	if (!flags || flags & ~IBV_REREG_MR_FLAGS_SUPPORTED || m->near)
		return -EINVAL;
	if (!(flags & IBV_REREG_MR_CHANGE_PD))
		pd = mr->pd;
	if (!(flags & IBV_REREG_MR_CHANGE_ACCESS))
		access = (int)m->access;
	if (!(flags & IBV_REREG_MR_CHANGE_TRANSLATION)) {
		addr = mr->addr;
		len = mr->length;
		fd = m->fd;
		off = m->off;
	}
	err = mr_new(s, pd, addr, len, access, fd, off, &n);
	if (err)
		return err;
	if (!(flags & IBV_REREG_MR_CHANGE_TRANSLATION))
		n->start = m->start;
	pthread_mutex_lock(&s->lock);
	if (!soft_mw_end(s, key)) {
		pthread_mutex_unlock(&s->lock);
		mr_free(s, n);
		return -EBUSY;
	}
	err = mr_empty(s, m);
	was = *m;
	*m = *n;
	*n = was;
	/* As on NICs the peers need no new key. */
	mr_publish(s, m, key);
	/* That it shares pages with another is no error: its life is over all
	 * the same. */
	if (err == -EBUSY)
		mr_part(s, n);
	mr_sweep(s, n);
	pthread_mutex_unlock(&s->lock);
	mr_free(s, n);
	return 0;
}

int soft_quiesce_mr(struct dev *dev, struct ibv_mr *mr)
{
	struct soft *s = soft_of_dev(dev);
	int err;

	if (!soft_here(s))
		return -EPERM;
	pthread_mutex_lock(&s->lock);
	err = soft_quiesce_all(s);
	pthread_mutex_unlock(&s->lock);
	return err;
}
