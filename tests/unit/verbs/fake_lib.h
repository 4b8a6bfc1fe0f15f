/* SPDX-License-Identifier: MIT */
/*
 * fake_lib.h - a libibverbs made up for tests: up to four devices, of which a
 * test says what they are and which calls fail. Every object is counted, so
 * that a failed open can be seen to have given all of them back.
 */
#ifndef SKEIN_TESTS_FAKE_LIB_H
#define SKEIN_TESTS_FAKE_LIB_H

#include "dev/verbs/lib.h"

#include <stdbool.h>

struct fake_device {
	const char *name;
	enum ibv_transport_type transport;
	int ports;
	enum ibv_port_state port_state[3]; /* of ports 1, 2 */
	bool gid_elsewhere; /* its GIDs are another namespace's */
	bool no_gid;
	int open_errno;
	uint32_t inline_limit; /* create_qp refuses more */
	int in_order;	       /* what query_qp_data_in_order says */
	int reg_errno;
	bool no_uc, no_ud;
	int srq_wr;   /* 0: no SRQs */
	uint16_t lid; /* not 0: its link layer is InfiniBand */
	uint32_t port_flags;
	int gid_index;	  /* not 0: of the one of port 1 */
	uint8_t gid_last; /* not 0: the last byte of its GID */
};

struct fake_lib {
	struct fake_device devices[4];
	int n;
	int list_errno;
	bool no_in_order; /* the library is older than that symbol */
	bool no_fork_query;
	enum ibv_fork_status fork;
	int fork_inits, fork_rc;
	int objects; /* alive: handles, lists, contexts, PDs, .. */
	int resize_rc, srq_errno;
	int qps_made;
	uint32_t qp_refusals;
	struct ibv_async_event event; /* what the next one is */
};

extern struct fake_lib fake;
extern const struct verbs_loader fake_loader;

/* No device, nothing fails. */
void fake_reset(void);
/* A good device of that name, to be spoilt. */
struct fake_device *fake_add(const char *name);

#endif
