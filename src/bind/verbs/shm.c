/* SPDX-License-Identifier: MIT */
/*
 * shm.c - segments and their mappings: two small tables under one lock.
 */
#include "bind/verbs/shm.h"

#include "bind/verbs/sys.h"
#include "env/mem_file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

static bool fd_ours(const struct vb_shm_seg *g)
{
	struct stat st;

	return !fstat(g->fd, &st) && st.st_dev == g->dev && st.st_ino == g->ino;
}

static void seg_drop(struct vb_shm_seg *g)
{
	if (!g->doomed || g->maps)
		return;
	if (fd_ours(g))
		close(g->fd);
	memset(g, 0, sizeof(*g));
}

/* A file of that size, all of it there. */
static int seg_open(size_t size, int flags, int *fd)
{
	unsigned huge = flags & SHM_HUGETLB ? MFD_HUGETLB : 0;
	int rc;

	/* the size of a huge page stands in the same bits of both flags */
	if (huge)
		huge |= (unsigned)flags & (0x3fu << 26);
	*fd = memfd_create("skein-shm", MFD_CLOEXEC | MFD_ALLOW_SEALING | huge);
	if (*fd < 0)
		return -errno;
	rc = mem_file_alloc(*fd, 0, size);
	if (!rc)
		rc = fcntl(*fd, F_ADD_SEALS,
			   F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
	if (!rc)
		return 0;
	close(*fd);
	return -ENOMEM; /* as shmget() says it */
}

int vb_shm_get(struct vb_shm *s, size_t size, int flags)
{
	struct vb_shm_seg *g;
	int rc = -ENOSPC, fd = -1;
	struct stat st;
	unsigned i;

	if (!size) {
		errno = EINVAL;
		return -1;
	}
	size = (size + 4095) & ~4095ul;
	pthread_mutex_lock(&s->lock);
	for (i = 0; i < VB_SHM_SEGS && s->segs[i].used; i++)
		;
	if (i < VB_SHM_SEGS)
		rc = seg_open(size, flags, &fd);
	if (!rc && fstat(fd, &st)) {
		rc = -errno;
		close(fd);
	}
	if (!rc) {
		g = &s->segs[i];
		g->dev = st.st_dev;
		g->ino = st.st_ino;
		g->used = true;
		g->fd = fd;
		g->size = size;
		g->mode = (uint16_t)(flags & 0777);
	}
	pthread_mutex_unlock(&s->lock);
	if (!rc)
		return VB_SHM_ID + (int)i;
	errno = -rc;
	return -1;
}

static struct vb_shm_map *map_row(struct vb_shm *s, const void *addr)
{
	unsigned i;

	for (i = 0; i < VB_SHM_MAPS; i++)
		if (s->maps[i].addr == addr)
			return &s->maps[i];
	return NULL;
}

void *vb_shm_attach(struct vb_shm *s, int id, const void *addr, int flags)
{
	int prot = flags & SHM_RDONLY ? PROT_READ : PROT_READ | PROT_WRITE;
	int fixed = addr ? (flags & SHM_REMAP ? MAP_FIXED : MAP_FIXED_NOREPLACE)
			 : 0;
	struct vb_shm_seg *g = &s->segs[id - VB_SHM_ID];
	struct vb_shm_map *m;
	void *p = MAP_FAILED;
	uintptr_t at = (uintptr_t)addr;

	if (flags & SHM_RND)
		at &= ~(uintptr_t)(SHMLBA - 1);
	pthread_mutex_lock(&s->lock);
	m = map_row(s, NULL);
	if (!g->used || !fd_ours(g))
		errno = EINVAL;
	else if (!m)
		errno = EMFILE;
	else
		p = sys_mmap((void *)at, g->size, prot, MAP_SHARED | fixed,
			     g->fd, 0);
	if (p != MAP_FAILED) {
		m->addr = p;
		m->seg = (unsigned)(id - VB_SHM_ID);
		g->maps++;
	}
	pthread_mutex_unlock(&s->lock);
	return p;
}

bool vb_shm_detach(struct vb_shm *s, const void *addr)
{
	struct vb_shm_map *m;
	struct vb_shm_seg *g;

	if (!addr)
		return false;
	pthread_mutex_lock(&s->lock);
	m = map_row(s, addr);
	if (m) {
		g = &s->segs[m->seg];
		sys_munmap(m->addr, g->size);
		m->addr = NULL;
		g->maps--;
		seg_drop(g);
	}
	pthread_mutex_unlock(&s->lock);
	return m;
}

int vb_shm_ctl(struct vb_shm *s, int id, int cmd, struct shmid_ds *ds)
{
	struct vb_shm_seg *g = &s->segs[id - VB_SHM_ID];
	int err = 0;

	pthread_mutex_lock(&s->lock);
	if (!g->used) {
		err = EINVAL;
	} else if (cmd == IPC_RMID) {
		g->doomed = true;
		seg_drop(g);
	} else if (cmd == IPC_STAT) {
		memset(ds, 0, sizeof(*ds));
		ds->shm_perm.uid = ds->shm_perm.cuid = geteuid();
		ds->shm_perm.gid = ds->shm_perm.cgid = getegid();
		ds->shm_perm.mode = g->mode;
		ds->shm_segsz = g->size;
		ds->shm_nattch = g->maps;
		ds->shm_cpid = ds->shm_lpid = getpid();
	} else if (cmd != SHM_LOCK && cmd != SHM_UNLOCK) {
		err = EPERM;
	}
	pthread_mutex_unlock(&s->lock);
	if (!err)
		return 0;
	errno = err;
	return -1;
}

int vb_shm_file(struct vb_shm *s, const void *addr, size_t len, int *fd,
		uint64_t *off)
{
	const struct vb_shm_map *m;
	int rc = -ENOENT;
	uintptr_t at;
	size_t size;

	pthread_mutex_lock(&s->lock);
	for (m = s->maps; m < s->maps + VB_SHM_MAPS; m++) {
		if (!m->addr || (uintptr_t)addr < (uintptr_t)m->addr)
			continue;
		at = (uintptr_t)addr - (uintptr_t)m->addr;
		size = s->segs[m->seg].size;
		if (at >= size || len > size - at || !fd_ours(&s->segs[m->seg]))
			continue;
		*fd = s->segs[m->seg].fd;
		*off = at;
		rc = 0;
		break;
	}
	pthread_mutex_unlock(&s->lock);
	return rc;
}
