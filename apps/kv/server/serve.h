/* SPDX-License-Identifier: MIT */
/*
 * serve.h - a running key-value server: a transport that listens, and one
 * thread for each shard of a kv_server; over Skein, workers too if wanted.
 *
 * Threads sleep while no client is connected, whatever the way of waiting.
 *
 * Thread rule: one thread starts and stops.
 */
#ifndef KV_SERVER_SERVE_H
#define KV_SERVER_SERVE_H

#include "kv/net/net.h"
#include "kv/server/server.h"

#define KV_WORKERS_MAX 64u /* what a pool takes */

struct kv_serve;

struct kv_serve_attr {
	struct kv_server *server;
	const char *listen; /* "HOST:PORT" */
	enum kv_transport transport;
	const char *device;   /* Skein */
	enum skein_wait wait; /* Skein */
	int pin;	      /* shard i runs on CPU pin + i; -1: anywhere */
	/* Skein: so many threads execute the requests, of a shared server; 0:
	 * those of the shards do. -EINVAL over TCP. */
	unsigned workers;
	/* as skein_ctx_attr's */
	void (*log)(void *arg, enum skein_log_level level, const char *line);
	void *log_arg;
};

struct kv_serve_ops {
	int (*start)(const struct kv_serve_attr *attr, struct kv_serve **serve);
	void (*stop)(struct kv_serve *serve);
};

/* Each begins what a transport puts there. */
struct kv_serve {
	const struct kv_serve_ops *ops;
	const char *addr;   /* the real one */
	const char *device; /* in words */
};

extern const struct kv_serve_ops kv_serve_skein;
extern const struct kv_serve_ops kv_serve_tcp;

/* Starts; the reason of a failure is logged in one line. */
int kv_serve_start(const struct kv_serve_attr *attr, struct kv_serve **serve);
/* Ends connections and threads, then frees. Blocks until that is done. */
void kv_serve_stop(struct kv_serve *serve);

/* Binds the calling thread to a CPU. Negative: nothing. */
int kv_pin(int cpu);
/* The CPU that text names for the first of so many threads; NULL: -1. -EINVAL
 * when it is no number or the machine has not that many CPUs. */
int kv_pin_parse(const char *text, unsigned threads, int *cpu);

#endif
