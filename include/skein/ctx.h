/* SPDX-License-Identifier: MIT */
/*
 * ctx.h - a context: one opened device and everything that hangs from it; and
 * engines, which make its progress.
 *
 * Skein starts no thread unless asked to. Work makes progress while a thread
 * runs an engine: a blocking call does so while it waits, skein_ctx_progress()
 * runs one round, and with attr.background a background thread does so. One
 * thread runs an engine at a time; threads that wait on it take turns.
 *
 * Structs that an application fills, or lets the library fill, begin with their
 * size; the application sets it to sizeof() the struct. So a program works with
 * a later library that has more fields at the ends of structs: the library
 * takes fields that the program does not have as zero, and writes no further
 * than the program's size. Fields that an older library does not know must be
 * zero (-EINVAL), and come back as they were. A struct without a size keeps its
 * layout.
 *
 * Cancellation (pthread_cancel()): a call that may block, in any header of the
 * library, holds cancellation off from its entry to its return. The other calls
 * do not change the thread's cancel state: a thread that may be cancelled holds
 * cancellation off around them (pthread_setcancelstate()), and around its own
 * code that the library calls.
 */
#ifndef SKEIN_CTX_H
#define SKEIN_CTX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <skein/error.h>

#ifdef __cplusplus
extern "C" {
#endif

/* "until it is done", for every timeout_ns argument */
#define SKEIN_FOREVER UINT64_MAX
#define SKEIN_MS(n) ((uint64_t)(n)*1000000u)
#define SKEIN_S(n) ((uint64_t)(n)*1000000000u)

struct skein_ctx;
struct skein_engine;

enum skein_wait {
	SKEIN_WAIT_ADAPTIVE, /* spin for some microseconds, then sleep */
	SKEIN_WAIT_POLL,     /* spin, yielding to others; sleep only while all
				connections open or close, or there is none */
	SKEIN_WAIT_SPIN,     /* spin without yielding; warns when there are
				more spinners than cores */
	SKEIN_WAIT_EVENT,    /* sleep at once when there is no work */
};

enum skein_log_level {
	SKEIN_LOG_ERROR,
	SKEIN_LOG_WARN,
	SKEIN_LOG_INFO,
	SKEIN_LOG_DEBUG,
};

/* The pages of large memory that peers reach: skein_mem_new(), and large rings
 * of calls. */
enum skein_hugepages {
	SKEIN_HUGEPAGES_DEFAULT, /* SKEIN_HUGEPAGES, else OFF */
	SKEIN_HUGEPAGES_OFF,	 /* ordinary pages */
	SKEIN_HUGEPAGES_AUTO,	 /* huge ones where some are free */
	SKEIN_HUGEPAGES_ON,	 /* huge ones, or -ENOMEM */
};

/*
 * How a connection's packets travel, for networks that need settings. A value
 * out of range is -ERANGE, and one line in the log says what is allowed. A
 * field that is zero in a connection's path is as in the context's path; if it
 * is zero there too, the environment's variable counts, else the default.
 */
struct skein_path {
	/* Bytes of a packet's payload: 256, 512, 1024, 2048, 4096. The smaller
	 * value of the two ends is used. Default: the port's. SKEIN_PATH_MTU */
	uint32_t mtu;
	/* the traffic class of the global route: DSCP times 4, and 2 bits of
	 * ECN; 0 to 255. Default 0. SKEIN_TRAFFIC_CLASS */
	uint32_t traffic_class;
	/* InfiniBand's service level, RoCE's priority; 0 to 15. Default 0.
	 * SKEIN_SERVICE_LEVEL */
	uint32_t service_level;
	/* How often the device repeats a request that is not acknowledged; 1 to
	 * 7, default 7. SKEIN_RETRY_COUNT */
	uint32_t retry_count;
	/* ... and after how long: rounded up to 4.096 us times a power of
	 * two, at most 8,796 s; default 67 ms (devices may wait up to 4 times
	 * as long), between hosts on soft 4.3 s. SKEIN_RETRY_TIMEOUT, as 70ms
	 */
	uint64_t retry_timeout_ns;
	/* How often the device tries again when the other end has no receive
	 * posted: 1 to 6, or 7 for ever, the default. SKEIN_RNR_RETRY */
	uint32_t rnr_retry;
};

/* All zero but size is a good default. */
struct skein_ctx_attr {
	size_t size; /* sizeof(struct skein_ctx_attr) */
	/* "soft", "verbs", "verbs:NAME"; NULL: the environment's SKEIN_DEVICE,
	 * else a real device with an active port, else "soft" */
	const char *device;
	/* how the default engine waits; the environment's SKEIN_WAIT
	 * (adaptive, poll, spin, event) wins when this is ADAPTIVE */
	enum skein_wait wait;
	/* run the default engine in a thread of its own */
	bool background;
	/* a secret that both ends know; copied. NULL: no authentication */
	const void *key;
	size_t key_len;
	/* receives log lines without newline, from any thread; NULL: lines
	 * of level WARN and ERROR go to stderr */
	void (*log)(void *arg, enum skein_log_level level, const char *line);
	void *log_arg;
	enum skein_log_level log_level; /* 0: SKEIN_LOG, else WARN */
	/* for connections that do not say otherwise, also accepted ones */
	struct skein_path path;
	/* A region of at least one huge page (2 MiB on most machines) takes
	 * whole huge pages from the pool that the administrator has reserved
	 * (vm.nr_hugepages); a smaller region never does. When too few are free
	 * AUTO takes transparent or ordinary pages, and logs that at level
	 * INFO. SKEIN_HUGEPAGES: off, auto or on */
	enum skein_hugepages hugepages;
};

/*
 * Opens the device and makes the default engine. attr may be NULL. Blocks for
 * milliseconds. -ENODEV when the device is not there, -EINVAL or -ERANGE for a
 * wrong attribute, -ENOMEM; the reason is logged in one line.
 */
SKEIN_API int skein_ctx_open(const struct skein_ctx_attr *attr,
			     struct skein_ctx **ctx);

/*
 * Closes listeners, connections and memory that are still open, then the
 * device. No other thread may be inside a call on the context. Blocks while
 * connections drain, at most one second, and while their peers answer, at most
 * one more: for all of them at the same time.
 */
SKEIN_API void skein_ctx_close(struct skein_ctx *ctx);

/* The device in use, and why it was chosen: "soft (skein0): no RDMA device with
 * an active port". Valid as long as the context. */
SKEIN_API const char *skein_ctx_device(struct skein_ctx *ctx);

/* The device's state. 0: it works. -ENETDOWN: its port is down; when the port
 * has been down for 10 s connections end with that error, and new ones fail
 * until it is up. -ENODEV: it has failed for good or was removed; its
 * connections have ended, and new ones are refused. *text (text may be NULL)
 * becomes one line, "" when nothing is wrong, valid as long as the context. Any
 * thread. */
SKEIN_API int skein_ctx_error(struct skein_ctx *ctx, const char **text);

/* The default engine. */
SKEIN_API struct skein_engine *skein_ctx_engine(struct skein_ctx *ctx);

/* One round of the default engine: returns how many things moved, 0 when
 * another thread is running it. Never blocks. */
SKEIN_API int skein_ctx_progress(struct skein_ctx *ctx);

/* Makes one more engine, for one more thread of a server or client. A
 * connection stays with its engine for life. Freed with the context. */
SKEIN_API int skein_engine_new(struct skein_ctx *ctx, enum skein_wait wait,
			       struct skein_engine **engine);
SKEIN_API int skein_engine_progress(struct skein_engine *engine);

/* Runs the engine until skein_engine_stop() or for timeout_ns. Returns 0 when
 * stopped, or -ETIMEDOUT (also when another thread was running it for longer
 * than the timeout). Blocks; sleeps by the engine's way of waiting. */
SKEIN_API int skein_engine_run(struct skein_engine *engine,
			       uint64_t timeout_ns);
/* Makes skein_engine_run() return, now or when it is next called. Any thread,
 * and signal handlers, as long as the engine exists: a handler that may run
 * after the context was closed sets a skein_stop instead. */
SKEIN_API void skein_engine_stop(struct skein_engine *engine);

/*
 * A stop is a flag of the application that ends runs of engines. It belongs to
 * no context: the application makes it before it installs the signal handlers
 * that set it, and frees it after it has removed them. So a handler may set it
 * at any time, even when engines and contexts are gone. Once set it stays set.
 */
struct skein_stop;
/* -ENOMEM, -EMFILE. */
SKEIN_API int skein_stop_new(struct skein_stop **stop);
/* Only when no engine runs with it any more. NULL is allowed. */
SKEIN_API void skein_stop_free(struct skein_stop *stop);
/* Any thread, and signal handlers. Never blocks. */
SKEIN_API void skein_stop_set(struct skein_stop *stop);
SKEIN_API bool skein_stop_is_set(const struct skein_stop *stop);
/* Readable when set, for poll(2) and the like; leave it unread. Owned by the
 * stop. */
SKEIN_API int skein_stop_fd(const struct skein_stop *stop);

/* As skein_engine_run(); also returns 0 when stop is set, before or meanwhile.
 * One stop may end any number of engines; threads that run the same engine in
 * turns pass the same stop. */
SKEIN_API int skein_engine_run_stop(struct skein_engine *engine,
				    uint64_t timeout_ns,
				    struct skein_stop *stop);

/* A pollable fd, readable when skein_engine_progress() has work: also when
 * another thread's round has brought answers to this thread's calls. Owned by
 * the engine; -EMFILE. Call skein_engine_arm() before sleeping on the fd: 0
 * when armed, 1 when there is work already. */
SKEIN_API int skein_engine_fd(struct skein_engine *engine);
SKEIN_API int skein_engine_arm(struct skein_engine *engine);

#ifdef __cplusplus
}
#endif
#endif
