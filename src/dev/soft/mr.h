/* SPDX-License-Identifier: MIT */
/*
 * mr.h - memory regions of one device: what a local key covers. Regions are found
 * by key, without a lock: the owner of a region does not deregister it while it
 * posts with it.
 */
#ifndef SKEIN_DEV_SOFT_MR_H
#define SKEIN_DEV_SOFT_MR_H

#include "dev/soft/pd.h"
#include "dev/soft/soft.h"

struct soft_file;

struct soft_mr {
	struct ibv_mr mr;
	struct soft_pd *pd;
	uint32_t life;	/* shm_mr */
	uint64_t start; /* what requests name; else than mr.addr: it is moved */
	uint32_t access;
	int fd; /* -1: ordinary memory; near: the NIC file's; else file's */
	bool near;
	bool window; /* the place of a memory window, which no lkey names: mw.h */
	struct soft_file *file;
	uint64_t off;
};

/* What an entry of the table says. */
struct soft_entry {
	uint32_t life, key, access, pd, kind, qpn;
	uint64_t start, len, off, at, of;
};

/* False: it has no life. Of any device's table. */
bool soft_entry_read(const struct shm_mr *e, struct soft_entry *x);

/* What must be open for a key: a protection domain; and the peer
 * of QP qpn, where it is a window's of that QP. qpn 0: of none. */
struct soft_dest {
	uint32_t pd, qpn;
};

/* Is it memory here that a peer may use in this way? here: its address. */
bool soft_key_open(const struct soft *s, const struct soft_dest *to,
		   uint32_t key, uint64_t addr, uint64_t len, uint32_t access,
		   uint64_t *here);

/* A key that was not used for long, and its entry. s->lock held. */
int soft_key_new(struct soft *s, uint32_t *key);
/* A life that no entry of this device has. */
uint32_t soft_life_new(struct soft *s);
/* Waits for every poster that may be inside memory of this device: 0, or
 * -EBUSY: one is stopped there. s->lock held. */
int soft_quiesce_all(struct soft *s);

int soft_reg_mr(struct dev *dev, struct ibv_pd *pd, void *addr, size_t len,
		int access, int fd, uint64_t off, struct ibv_mr **mr);
int soft_new_mr(struct dev *dev, struct ibv_pd *pd, size_t len, int access,
		struct ibv_mr **mr);
int soft_dereg_mr(struct dev *dev, struct ibv_mr *mr);
int soft_rereg_mr(struct dev *dev, struct ibv_mr *mr, int flags,
		  struct ibv_pd *pd, void *addr, size_t len, int access, int fd,
		  uint64_t off);
int soft_quiesce_mr(struct dev *dev, struct ibv_mr *mr);
int soft_reg_mr_iova(struct dev *dev, struct ibv_pd *pd, void *addr, size_t len,
		     uint64_t iova, int access, int fd, uint64_t off,
		     struct ibv_mr **mr);
/* This process's address for one that a request names by the key. */
static inline uint64_t soft_mr_here(const struct soft *s, uint32_t key,
				    uint64_t addr)
{
	const struct soft_mr *m = s->mrs[key >> 16];

	return m && m->mr.lkey == key ? addr - m->start + (uintptr_t)m->mr.addr
				      : addr;
}

/* Local memory, by its address here: true when lkey covers it with the access asked for. */
static inline bool soft_mr_local(const struct soft *s, const struct soft_pd *pd,
				 uint32_t lkey, uint64_t addr, uint64_t len,
				 uint32_t access)
{
	const struct soft_mr *m = s->mrs[lkey >> 16];

	return likely(m && m->mr.lkey == lkey && m->pd == pd &&
		      (m->access & access) == access &&
		      addr >= (uintptr_t)m->mr.addr && len <= m->mr.length &&
		      addr - (uintptr_t)m->mr.addr <= m->mr.length - len);
}

#endif
