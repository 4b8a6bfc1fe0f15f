/* SPDX-License-Identifier: MIT */
/*
 * ctx.h - a context: one opened device and everything that hangs from it; and
 * engines, which make its progress.
 *
 * Skein starts no thread unless asked to. Work moves forward while some thread
 * runs an engine: a blocking call does so while it waits, skein_ctx_progress()
 * does one round, and a background thread does so when attr.background is set.
 * Exactly one thread runs an engine at a time; others that wait on it take
 * turns.
 *
 * Structs that an application fills or has filled begin with their size, which the
 * application sets: sizeof() the struct. So a program goes on working with a
 * later library that has further fields at the ends of structs: the library takes
 * what the program does not have as zero, and writes no further than the program's
 * size. Fields that an older library does not know must be zero (-EINVAL), and
 * come back as they were. A struct without a size keeps its layout.
 *
 * Cancellation (pthread_cancel()): a call that may block holds it off from its
 * entry to its return, in every header of the library. The other calls do not
 * change the thread's state: a thread that may be cancelled holds cancellation
 * off around them (pthread_setcancelstate()), and around its own code that the
 * library calls.
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
	SKEIN_WAIT_POLL,     /* spin, yielding to others; never sleep */
	SKEIN_WAIT_SPIN,     /* spin without yielding; warns when there are
				more spinners than cores */
	SKEIN_WAIT_EVENT,    /* sleep at once when nothing is there */
};

enum skein_log_level {
	SKEIN_LOG_ERROR,
	SKEIN_LOG_WARN,
	SKEIN_LOG_INFO,
	SKEIN_LOG_DEBUG,
};

/* What large memory that peers reach is made of: skein_mem_new(), and the rings
 * of calls where they are large. */
enum skein_hugepages {
	SKEIN_HUGEPAGES_DEFAULT, /* SKEIN_HUGEPAGES, else OFF */
	SKEIN_HUGEPAGES_OFF,	 /* ordinary pages */
	SKEIN_HUGEPAGES_AUTO,	 /* huge ones where some are free */
	SKEIN_HUGEPAGES_ON,	 /* huge ones, or -ENOMEM */
};

/*
 * How a connection's packets travel, for networks that need it said. Zero is
 * the default of each. What is out of range is -ERANGE, and one line in the
 * log says what would do. Where a field is zero the environment's variable
 * counts, and below a connection's the context's.
 */
struct skein_path {
	/* bytes of a packet's payload: 256, 512, 1024, 2048, 4096; the
	 * smaller of both ends' counts. Default: the port's. SKEIN_PATH_MTU */
	uint32_t mtu;
	/* the traffic class of the global route: DSCP times 4, and 2 bits of
	 * ECN; 0 to 255. Default 0. SKEIN_TRAFFIC_CLASS */
	uint32_t traffic_class;
	/* InfiniBand's service level, RoCE's priority; 0 to 15. Default 0.
	 * SKEIN_SERVICE_LEVEL */
	uint32_t service_level;
	/* How often the device sends again what is not acknowledged; 1 to 7,
	 * default 7. SKEIN_RETRY_COUNT */
	uint32_t retry_count;
	/* ... and after how long: rounded up to 4.096 us times a power of
	 * two, at most 8,796 s; default 67 ms (devices may wait up to 4 times
	 * as long). SKEIN_RETRY_TIMEOUT, as 70ms */
	uint64_t retry_timeout_ns;
	/* How often it asks a receiver again that has no receive posted: 1 to
	 * 6, or 7 for ever, the default. SKEIN_RNR_RETRY */
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
	/* of connections that do not say otherwise, accepted ones included */
	struct skein_path path;
	/* A region of at least one huge page (2 MiB on most machines) takes
	 * whole ones from the pool that the administrator has reserved
	 * (vm.nr_hugepages); smaller ones never do. AUTO uses transparent or
	 * ordinary pages where too few are free, and says so at level INFO.
	 * SKEIN_HUGEPAGES: off, auto or on */
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
 * Closes what is still open (listeners, connections, memory), then the device.
 * No other thread may be inside a call on the context. Blocks until
 * connections are drained, at most a second, and their peers have answered, at
 * most another: all of them at the same time.
 */
SKEIN_API void skein_ctx_close(struct skein_ctx *ctx);

/* "soft (skein0): no RDMA device with an active port": the device that was
 * taken, and why. Valid as long as the context. */
SKEIN_API const char *skein_ctx_device(struct skein_ctx *ctx);

/* 0; -ENETDOWN while the device's port is down: connections end with that
 * error when it has not come back in 10 s, and new ones fail until it has; or
 * -ENODEV once the device has failed for good or was removed: its
 * connections have ended, and new ones are refused. text (may be NULL) becomes
 * one line, "" when nothing is wrong, valid as long as the context. Any
 * thread. */
SKEIN_API int skein_ctx_error(struct skein_ctx *ctx, const char **text);

/* The default engine. */
SKEIN_API struct skein_engine *skein_ctx_engine(struct skein_ctx *ctx);

/* One round of the default engine: returns how many things moved, 0 when
 * another thread is running it. Never blocks. */
SKEIN_API int skein_ctx_progress(struct skein_ctx *ctx);

/* A further engine, for one more thread of a server or client to run.
 * Its connections belong to it for life. Freed with the context. */
SKEIN_API int skein_engine_new(struct skein_ctx *ctx, enum skein_wait wait,
			       struct skein_engine **engine);
SKEIN_API int skein_engine_progress(struct skein_engine *engine);

/* Runs the engine until skein_engine_stop() or for timeout_ns. Returns 0 when
 * stopped, or -ETIMEDOUT (also when another thread was running it for longer
 * than the timeout). Blocks; sleeps by the engine's way of waiting. */
SKEIN_API int skein_engine_run(struct skein_engine *engine,
			       uint64_t timeout_ns);
/* Makes skein_engine_run() return, now or when it is next called. Any thread,
 * and signal handlers, as long as the engine is there: a handler that may run
 * when the context is closed sets a skein_stop instead. */
SKEIN_API void skein_engine_stop(struct skein_engine *engine);

/*
 * A stop is a flag of the application's own that ends runs of engines. It
 * belongs to no context: made before the signal handlers that set it, freed
 * after they are gone, it may be set at any time, whatever has become of
 * engines and contexts meanwhile. Once set it stays set.
 */
struct skein_stop;
/* -ENOMEM, -EMFILE. */
SKEIN_API int skein_stop_new(struct skein_stop **stop);
/* No engine runs with it any more. NULL is allowed. */
SKEIN_API void skein_stop_free(struct skein_stop *stop);
/* Any thread, and signal handlers. Never blocks. */
SKEIN_API void skein_stop_set(struct skein_stop *stop);
SKEIN_API bool skein_stop_is_set(const struct skein_stop *stop);
/* Readable when set, for poll(2) and the like; leave it unread. Owned by the
 * stop. */
SKEIN_API int skein_stop_fd(const struct skein_stop *stop);

/* As skein_engine_run(); returns 0 also when stop is set, before or meanwhile.
 * One stop may end any number of engines; all that run one engine at a time
 * pass the same. */
SKEIN_API int skein_engine_run_stop(struct skein_engine *engine,
				    uint64_t timeout_ns,
				    struct skein_stop *stop);

/* A pollable fd, readable when skein_engine_progress() has work: also when
 * another thread's round has brought answers to this thread's calls. Owned by the
 * engine; -EMFILE. Call skein_engine_arm() before sleeping on it: 0 when armed, 1 when
 * there is work already. */
SKEIN_API int skein_engine_fd(struct skein_engine *engine);
SKEIN_API int skein_engine_arm(struct skein_engine *engine);

#ifdef __cplusplus
}
#endif
#endif
