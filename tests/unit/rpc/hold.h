/* SPDX-License-Identifier: MIT */
/*
 * hold.h - a server's handlers for tests of the calling end: ECHO answers at
 * once, HOLD leaves the answer to the test.
 */
#ifndef SKEIN_TEST_RPC_HOLD_H
#define SKEIN_TEST_RPC_HOLD_H

#include <sched.h>
#include <stdatomic.h>
#include <string.h>

#include "unit/cm.h"
#include <skein/skein.h>

#define ECHO 1
#define HOLD 2

/* The last request of HOLD that the test has not taken yet. */
struct hold {
	struct skein_rpc_req *_Atomic req;
};

static inline int hold_on_echo(struct skein_rpc_req *req, void *arg)
{
	size_t len = skein_rpc_req_len(req);

	if (len > skein_rpc_resp_max(req))
		len = skein_rpc_resp_max(req);
	memcpy(skein_rpc_resp_buf(req, len), skein_rpc_req_data(req), len);
	return 0;
}

static inline int hold_on_hold(struct skein_rpc_req *req, void *arg)
{
	struct hold *h = arg;
	struct skein_rpc_req *deferred;
	int rc = skein_rpc_defer(req, &deferred);

	if (!rc)
		atomic_store(&h->req, deferred);
	return rc;
}

static inline void hold_serve(struct hold *h, struct skein_ctx *server)
{
	assert_int_equal(skein_rpc_handle(server, ECHO, hold_on_echo, NULL), 0);
	assert_int_equal(skein_rpc_handle(server, HOLD, hold_on_hold, h), 0);
}

static inline struct skein_rpc_req *hold_wait(struct hold *h)
{
	struct skein_rpc_req *req;

	while (!(req = atomic_exchange(&h->req, NULL)))
		sched_yield();
	return req;
}

static inline void hold_quiet(void *arg, enum skein_log_level level,
			      const char *line)
{
}

#endif
