/* SPDX-License-Identifier: MIT */
/*
 * peer.h - another soft device (perhaps this one) that our QPs are connected
 * to: its NIC file, its regions that are mapped here, its life. The list of
 * them and their references are under soft.lock; maps and sending under
 * peer.lock.
 */
#ifndef SKEIN_DEV_SOFT_PEER_H
#define SKEIN_DEV_SOFT_PEER_H

#include "dev/soft/soft.h"

#define SOFT_MAPS 64u /* buckets */

/* A peer's MR, mapped here. Owned by the peer's table. */
struct soft_map {
	struct soft_map *next;
	uint32_t key;
	uint32_t life; /* of the region that has the key */
	void *base;    /* NULL: ordinary memory, not mapped */
	size_t base_len;
	char *ptr; /* where start is */
	uint64_t len;
	bool refused; /* cannot be mapped, said once */
};

/* An eventfd of a peer's completion channel, as long as a QP or destination of
 * ours may ring it; the last one of a peer stays. Under soft.lock. */
struct soft_bell {
	struct list_node link;
	struct soft_peer *peer;
	uint32_t id;
	uint32_t refs;
	int fd;
};

/* So many are looked through for destinations that are gone. */
#define SOFT_BELLS_DUE 64u

/* Another soft device (perhaps this one) that our QPs are connected to. */
struct soft_peer {
	struct list_node link;
	struct soft *s;
	uint64_t nic_id;
	dev_t nic_dev; /* of its NIC file, which nobody can forge */
	ino_t nic_ino;
	char *base; /* its NIC file, SHM_SPAN of address space */
	struct shm_nic *nic;
	pid_t pid;
	int sock;   /* to its control thread */
	int pid_fd; /* -1 unknown */
	int kick_fd;
	int mem_fd; /* /proc/PID/mem; -1 not opened yet, -2 refused */
	uint32_t refs;
	uint32_t claimant; /* our id as a claimant of its receives */
	/* of its NIC file, when last seen; it only grows */
	_Atomic uint64_t size;
	_Atomic bool dead; /* found dead by the control thread */
	_Atomic bool gone; /* no thread of it runs any more */
	struct soft_src src_sock, src_pid;
	pthread_mutex_t lock; /* maps, mem_fd, sending on sock */
	struct soft_map *maps[SOFT_MAPS];
	struct list_node bells;
	struct soft_bell *idle_bell; /* the last that was let go: it is kept */
	uint32_t blocks[SHM_BLOCK_MAX]; /* of QPNs, that it has; 0: not known */
	uint32_t n_bells;
	uint32_t bells_due; /* with so many it is time to look */
};

static inline int soft_bell_fd(const struct soft_bell *b)
{
	return b ? b->fd : -1;
}

/* That of a channel of p, or NULL. s->lock held. */
struct soft_bell *soft_bell_find(struct soft_peer *p, uint32_t id);
void soft_bell_get(struct soft_bell *b); /* b may be NULL */
void soft_bell_put(struct soft *s, struct soft_bell *b);
/* Puts bells that destinations of UD QPs hold and no longer need, once p has
 * bells_due of them. No QP is held. */
void soft_bells_sweep(struct soft *s, struct soft_peer *p);

static inline bool soft_life(const struct shm_nic *nic)
{
	uint32_t w = atomic_load_explicit(&nic->life, memory_order_acquire);

	return w != 0 && !(w & SHM_LIFE_DIED);
}

/* peer.c: the asking end */
int soft_peer_connect(struct soft *s, struct soft_qp *q, uint32_t qpn,
		      struct soft_peer **peer, uint64_t *area,
		      struct soft_bell **bell);
/* dial.c: the same in two steps. As dev_ops.reach(). */
struct dev_reach;
int soft_reach_qp(struct dev *dev, struct ibv_qp *qp,
		  const struct dev_qp_addr *to, struct dev_reach *user);
/* Takes the answer about qpn, and its references: false when there is none, or
 * *err is what soft_peer_connect() would return. s->lock held. */
bool soft_reach_take(struct soft_qp *q, uint32_t qpn, int *err,
		     struct soft_peer **peer, uint64_t *area,
		     struct soft_bell **bell);
/* Forgets the question and the answer: no answer comes any more. s->lock
 * held. */
void soft_reach_drop(struct soft_qp *q);
/* known.c: the same without asking, where that is possible; takes the same
 * references. s->lock held. */
bool soft_peer_known(struct soft *s, uint32_t qpn, struct soft_peer **peer,
		     uint64_t *area, struct soft_bell **bell);
/* Is a process that has not answered for so long worth waiting for? */
bool soft_peer_patient(pid_t pid, unsigned waited_s);
/* Is it an answer to CONNECT, with a NIC file that the peer cannot shrink under
 * us? Sets st, the file's. -ETOOMANYREFS: no descriptor could be sent just now. */
struct msg;
struct stat;
int soft_peer_answer(const struct msg *r, uint32_t qpn, const int *fds,
		     int nfds, struct stat *st);
/* Takes that answer. s->lock held. Consumes of sock and fds what it sets to -1;
 * takes a reference, and one of the bell. */
int soft_peer_use(struct soft *s, const struct msg *r, int *sock, int *fds,
		  int nfds, const struct stat *st, struct soft_peer **peer,
		  uint64_t *area, struct soft_bell **bell);
void soft_peer_put(struct soft *s, struct soft_peer *p);
void soft_peer_event(struct soft *s, struct soft_peer *p);
/* Its descriptors leave the control thread's epoll set. */
void soft_peer_unwatch(struct soft *s, struct soft_peer *p);
void soft_peer_sweep(struct soft *s);
void soft_peers_free(struct soft *s);
/* Finds the mapping of a peer's MR: 0, or -EAGAIN when it was asked for. */
int soft_peer_map(struct soft_peer *p, uint32_t qpn, _Atomic uint32_t *asked,
		  uint32_t key, uint32_t life, struct soft_map **map);
int soft_peer_mem_fd(struct soft_peer *p);
/* Has every thread of it left user space? */
bool soft_peer_gone(struct soft_peer *p);

/* relaxed: only a bound, of a file that is mapped as far as it may grow; what
 * lies below it was there before the connection that leads to it */
static inline uint64_t soft_peer_size(const struct soft_peer *p)
{
	return atomic_load_explicit(&p->size, memory_order_relaxed);
}

/* service.c. s->lock held. */
void soft_peer_died(struct soft *s, struct soft_peer *p);
/* The same for one QP that has just gone to RTR: its peer may have died before
 * soft_peer_died() could find the QP. Takes s->lock. */
void soft_peer_late(struct soft_qp *q);

#endif
