/* SPDX-License-Identifier: MIT */
/*
 * shm.h - private System V shared memory (IPC_PRIVATE), which programs take for
 * huge pages, by memfds of our own. The ids mean something to this process
 * and its forked children only; segments with a key stay the kernel's.
 *
 * Thread rule: any thread.
 */
#ifndef SKEIN_BIND_VERBS_SHM_H
#define SKEIN_BIND_VERBS_SHM_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/shm.h>
#include <sys/types.h>

#define VB_SHM_SEGS 64u
#define VB_SHM_MAPS 256u
/* Above the ids that kernels give out, which consist of index and sequence. */
#define VB_SHM_ID 0x7fff0000

struct vb_shm_seg {
	bool used;
	bool doomed; /* IPC_RMID: goes with the last mapping */
	int fd;
	dev_t dev; /* of the file: see window.h */
	ino_t ino;
	size_t size;
	unsigned maps;
	uint16_t mode;
};

struct vb_shm_map {
	char *addr; /* NULL: free row */
	unsigned seg;
};

struct vb_shm {
	pthread_mutex_t lock;
	struct vb_shm_seg segs[VB_SHM_SEGS];
	struct vb_shm_map maps[VB_SHM_MAPS];
};

#define VB_SHM_INIT                               \
	{                                         \
		.lock = PTHREAD_MUTEX_INITIALIZER \
	}

static inline bool vb_shm_is_id(int id)
{
	return id >= VB_SHM_ID && id < VB_SHM_ID + (int)VB_SHM_SEGS;
}

/* These return as the calls do: -1 (or (void *)-1) with errno. vb_shm_detach()
 * returns false when addr is none of ours. */
int vb_shm_get(struct vb_shm *s, size_t size, int flags);
void *vb_shm_attach(struct vb_shm *s, int id, const void *addr, int flags);
bool vb_shm_detach(struct vb_shm *s, const void *addr);
int vb_shm_ctl(struct vb_shm *s, int id, int cmd, struct shmid_ds *ds);
/* The file behind addr..addr+len: 0 or -ENOENT. */
int vb_shm_file(struct vb_shm *s, const void *addr, size_t len, int *fd,
		uint64_t *off);

#endif
