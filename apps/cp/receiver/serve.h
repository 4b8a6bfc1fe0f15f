/* SPDX-License-Identifier: MIT */
/*
 * serve.h - the receiver: serves a directory to senders, one copy at a time.
 *
 * Thread rule: one thread opens, waits and closes.
 */
#ifndef CP_RECEIVER_SERVE_H
#define CP_RECEIVER_SERVE_H

#include <stdbool.h>

#include "cp/allow.h"
#include "cp/mcast_ops.h"
#include "cp/proto.h"

struct cp_serve;

struct cp_serve_attr {
	struct skein_ctx *ctx; /* with a background thread */
	const struct cp_mcast_ops *mcast;
	const char *listen; /* "HOST:PORT" */
	const char *dir;    /* that is served */
	/* hosts of senders and members; NULL: any. Outlives it. */
	const struct cp_allow *allow;
	uint64_t max_size; /* bytes of data of one copy; 0: any */
};

int cp_serve_open(const struct cp_serve_attr *attr, struct cp_serve **serve,
		  struct cp_err *err);
/* "HOST:PORT", and the directory's real path. */
const char *cp_serve_addr(struct cp_serve *serve);
const char *cp_serve_dir(struct cp_serve *serve);
/* Waits until a copy has ended: true, and how; or until cp_serve_stop(). */
bool cp_serve_wait(struct cp_serve *serve, struct cp_status *st);
/* Ends a wait, now or the next. Any thread. */
void cp_serve_stop(struct cp_serve *serve);
/* A copy under way ends as if its sender had left. */
void cp_serve_close(struct cp_serve *serve);

#endif
