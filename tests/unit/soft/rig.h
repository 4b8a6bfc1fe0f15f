/* SPDX-License-Identifier: MIT */
/*
 * rig.h - ends of RC connections on the software device, for its tests: each
 * end has a device of its own, so two of them in one process are as far apart
 * as two processes (own NIC file, own control thread, files mapped anew).
 */
#ifndef SKEIN_TESTS_SOFT_RIG_H
#define SKEIN_TESTS_SOFT_RIG_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "dev/dev.h"
#include "dev/mem.h"
#include "env/env.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

#define RIG_MEM (1u << 21)
#define RIG_WR 64
#define RIG_ACCESS                                          \
	(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | \
	 IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC)

struct rig_opts {
	unsigned flags;	       /* DEV_QP_* */
	enum ibv_qp_type type; /* default RC */
	bool sig_all;
	bool silent;	    /* of deaths, as a NIC */
	bool plain;	    /* the memory is ordinary */
	enum env_huge huge; /* what it is made of; RIG_MEM is a huge page */
	int cqe;	    /* default 256 */
	uint32_t wr;
	uint32_t sge; /* default 4 */
	struct dev_qp_opts qp;
	/* where the log goes, from any thread */
	void (*log)(void *arg, enum env_log_level level, const char *msg);
};

struct rig_end {
	struct rig_opts o;
	struct skein_env *env;
	struct dev *dev;
	struct ibv_pd *pd;
	struct ibv_comp_channel *ch;
	struct ibv_cq *cq; /* both directions */
	struct ibv_qp *qp;
	struct mem_region *mem;
	char *buf;
	uint32_t psn;
	uint32_t lkey; /* what posts name: the region's, unless changed */
};

/* What one end tells the other. */
struct rig_addr {
	struct dev_qp_addr qp;
	uint64_t buf;
	uint32_t rkey;
	pid_t pid;
};

void rig_open(struct rig_end *e, const struct rig_opts *o);
void rig_close(struct rig_end *e);
void rig_addr(struct rig_end *e, struct rig_addr *a);
struct ibv_qp *rig_qp(struct rig_end *e);
void rig_qp_addr(struct rig_end *e, struct ibv_qp *qp, struct dev_qp_addr *a);
/* RTR and RTS. */
void rig_connect(struct rig_end *e, const struct rig_addr *peer);
void rig_connect_qp(struct rig_end *e, struct ibv_qp *qp,
		    const struct dev_qp_addr *peer);
void rig_pair(struct rig_end *a, struct rig_end *b, const struct rig_opts *o);
void rig_unpair(struct rig_end *a, struct rig_end *b);

/* Posts one request from off on in e's memory; 0 or an errno. */
int rig_post(struct rig_end *e, enum ibv_wr_opcode op, uint64_t id, void *src,
	     uint32_t len, uint64_t raddr, uint32_t rkey, unsigned flags);
int rig_recv(struct rig_end *e, uint64_t id, void *dst, uint32_t len);
/* Polls until one completion came; fails the test after a minute. */
void rig_wait(struct rig_end *e, struct ibv_wc *wc);
/* As above, and asserts. */
void rig_expect(struct rig_end *e, uint64_t id, enum ibv_wc_status status);
/* True when nothing is there. */
bool rig_quiet(struct rig_end *e);
/* Waits for an asynchronous event, acknowledges it. */
void rig_async(struct rig_end *e, enum ibv_event_type type);
uint64_t rig_now_ns(void);
/* Open descriptors of this process. */
unsigned rig_fds(void);
void rig_until(bool (*done)(void *arg), void *arg);

/* From here on fork(2) waits until the control thread of dev is outside of its
 * device's lock, and so outside of malloc(). AddressSanitizer's allocator of
 * GCC 12, unlike libc's, does not make its locks whole for a child: a lock that
 * the control thread had at the fork stays taken there, and the first thread of
 * the child that allocates such a size waits for ever. rig_open() and
 * rig_close() call these two. */
void rig_guard(struct dev *dev);
void rig_unguard(struct dev *dev);

/* A child process joined by a socket; the child runs fn and exits 0. */
struct rig_child {
	pid_t pid;
	int sock;
};
void rig_fork(struct rig_child *c, void (*fn)(int sock, void *arg), void *arg);
/* Returns when it has stopped. */
void rig_stop(struct rig_child *c);
/* Exit status as of waitpid(2). */
int rig_join(struct rig_child *c);
void rig_put(int sock, const void *p, size_t len);
void rig_get(int sock, void *p, size_t len);
/* Opens, swaps addresses over the socket, connects. */
void rig_meet(struct rig_end *e, int sock, const struct rig_opts *o,
	      struct rig_addr *peer);

#endif
