/* SPDX-License-Identifier: MIT */
/*
 * ctx.h - struct skein_ctx, from which all state hangs: there are no globals.
 *
 * Thread rule: fields above the lock are constant after skein_ctx_open(); those
 * below are under the lock, except where a comment says otherwise.
 */
#ifndef SKEIN_CONN_CTX_H
#define SKEIN_CONN_CTX_H

#include "conn/conn.h"
#include "conn/eng.h"
#include "conn/setup/handshake.h"

#include <skein/ctx.h>

#define CTX_EVENTS 64
/* Connections survive a port that is down for less. */
#define CTX_PORT_DOWN_NS (10 * 1000 * 1000 * 1000ull)

/* An asynchronous event: breaks the connection of this QP with err. */
struct ctx_event {
	uint32_t qpn;
	int err;
};

struct skein_ctx {
	struct skein_env *env;
	struct dev *dev;
	struct ibv_pd *pd;
	struct skein_engine *engine; /* the default one */
	uint8_t id[HANDSHAKE_ID_LEN];
	uint32_t pid;
	enum skein_wait wait;
	bool background;
	bool owns_env;
	void *key;
	size_t key_len;
	char device[320];
	struct skein_path path;
	void *modules[CONN_MODULE_MAX];
	void (*log)(void *arg, enum skein_log_level level, const char *line);
	void *log_arg;
	atomic_uint next_region;

	struct env_mutex lock;
	struct list_node engines;   /* skein_engine.ctx_link */
	struct list_node listeners; /* skein_listener.ctx_link */
	struct list_node conns;	    /* skein_conn.ctx_link: opened here */
	struct list_node peers;	    /* conn_peer.ctx_link: ready ones */
	struct list_node mems;	    /* skein_mem.ctx_link */
	struct list_node handles;   /* conn_lanes.link: accepted */
	/* Counts announcements (share, withdraw). Engines that look for new
	 * ones read it without the lock. */
	_Atomic(uint64_t) region_seq;
	/* events.c: the last events, and how many there were (as
	 * region_seq). */
	struct ctx_event events[CTX_EVENTS];
	_Atomic(uint64_t) event_seq;
	/* The device has failed: an error, and story is constant; or 0. */
	_Atomic(int) failed;
	char story[192];
	/* When the device's port went down; 0: it is up. Any thread. */
	_Atomic(uint64_t) port_down_ns;
	char port_story[192]; /* constant */

	/* Counts of what peers did wrong; any thread. */
	struct {
		atomic_ulong garbage;  /* links closed for garbage */
		atomic_ulong refused;  /* handshakes refused as too many */
		atomic_ulong timeouts; /* half-open handshakes given up */
		atomic_ulong deaths;   /* peers found dead */
		atomic_ulong broken;   /* connections lost */
	} counts;
};

/* skein_ctx_open() in a given environment, which outlives the context. */
int ctx_open_env(struct skein_env *env, const struct skein_ctx_attr *attr,
		 struct skein_ctx **ctx);
/* Frees the regions that the application has left open. mem.c */
void ctx_mems_close(struct skein_ctx *ctx);

/* Has the port been down for longer than connections wait? Any thread. */
bool ctx_port_lost(struct skein_ctx *ctx);

/* Is this a forked child? The context stayed with the parent. */
bool ctx_forked(struct skein_ctx *ctx);

/* Copies an attribute struct of the caller's version over defaults. -EINVAL:
 * it is larger than ours, and has fields set that we do not know. */
int ctx_attr_copy(void *dst, size_t dst_size, const void *src);
/* The same, and a line in the log that says so. */
int ctx_attr_take(struct skein_ctx *ctx, void *dst, size_t dst_size,
		  const void *src);

/* Fills a struct of the caller's version, in the other direction. Its size
 * field, and fields that we do not know, stay as they are. -EINVAL: it is
 * smaller than size_min, the size of the first version. */
int ctx_struct_fill(void *user, size_t size_min, const void *src,
		    size_t src_size);

#endif
