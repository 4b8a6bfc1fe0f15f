/* SPDX-License-Identifier: MIT */
/*
 * attached.h - a client's end of a node service: socket, rings and life page of
 * one attach, and how the client wakes the service and sleeps until it is
 * woken.
 *
 * Thread rule: that of client.c: all under the pool's lock, except
 * attached_sleep(), in which one thread at a time is.
 */
#ifndef SKEIN_VQP_NODE_ATTACHED_H
#define SKEIN_VQP_NODE_ATTACHED_H

#include "env/local.h"
#include "vqp/node/attach.h"
#include "vqp/node/ring.h"

struct attached {
	struct skein_env *env;
	int fd;
	void *rings;
	struct ring ring;
	struct local_life *life;
	uint32_t woken;	       /* the service's sleep that we ended last */
	uint32_t requests_max; /* outstanding */
	uint32_t taken;	       /* completions since the last attached_wake() */
	bool hung_up;	       /* the service has closed the socket */
	uint8_t gid[16];
	char addr[72];
};

/* Attaches to the service at path: 0; -ENOENT, -ECONNREFUSED: no service is
 * there; -ETIMEDOUT; or the service's error. */
int attached_open(struct attached *a, struct skein_env *env, const char *path,
		  uint64_t deadline);
void attached_close(struct attached *a);

/* Does the service live, with this client attached? Two loads. */
bool attached_lives(const struct attached *a);
/* The service lives, and has detached this client. */
bool attached_barred(const struct attached *a);

/* The client has put something into the ring: wakes the service if it
 * sleeps. */
void attached_wake(struct attached *a);
/* n completions were taken: wakes the service if it may have stopped for want
 * of room. */
void attached_took(struct attached *a, unsigned n);
/* A post found the ring full: the service wakes this client, if it is armed or
 * sleeps, when it has taken lines. */
void attached_refused(struct attached *a);
/* Has the ring room again for a post that was refused? Once; the caller has armed
 * it before. */
bool attached_room(struct attached *a);
/* Reads one message of the socket: 0; -EAGAIN; *fd: its descriptor, or -1. The
 * end of the socket sets hung_up. */
int attached_read(struct attached *a, struct attach_msg *m, int *fd);
/* From now on the service sends a message when it has put something into the
 * ring. The caller looks at the ring once more. */
void attached_arm(struct attached *a);
/* Sleeps until the service sends a message, or has put more into the ring than
 * `seen` has, which is the ring as it was under the lock. */
void attached_sleep(struct attached *a, const struct ring *seen, uint64_t ns);

#endif
