/* SPDX-License-Identifier: MIT */
/*
 * ctl.h - the control link: JSON objects, one a line, over a stream socket.
 *
 * Slow path only. What comes in is checked for length and form; what it says
 * is checked by the end that reads it.
 *
 * Thread rule: one thread at a time.
 */
#ifndef SKEIN_TOOLS_PERF_CTL_H
#define SKEIN_TOOLS_PERF_CTL_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

struct perf_ctl;

/* Takes the fd. NULL: no memory (the fd is closed then too). */
struct perf_ctl *ctl_new(int fd);
/* This end's TCP port, or 0. */
uint32_t ctl_port(const struct perf_ctl *c);
void ctl_free(struct perf_ctl *c);

/* Sends and drops the object, while it keeps what comes. -ENOMEM when it is NULL,
 * -ETIMEDOUT when nothing moves for PERF_PATIENCE_NS, -EPIPE and the like. */
int ctl_send(struct perf_ctl *c, json_t *obj);
/* The next object, owned by the caller. -ETIMEDOUT, -ECONNRESET at the end of
 * the stream, -EPROTO for what is no JSON object or too long. */
int ctl_recv(struct perf_ctl *c, uint64_t timeout_ns, json_t **obj);
/* Did the peer go, or say something? Never blocks. */
bool ctl_pending(struct perf_ctl *c);

/* TCP: "host" and port to a connected socket, or one accepted connection, of a
 * peer that begins with an object. A line on stderr tells of any other
 * peer. Port 0 takes a free one, and a line on stderr says which. why receives
 * the words for a failure. */
int ctl_connect(const char *host, uint32_t port, char *why, size_t why_len,
		int *fd);
int ctl_accept_one(uint32_t port, bool loopback, uint64_t timeout_ns, char *why,
		   size_t why_len, int *fd);

#endif
