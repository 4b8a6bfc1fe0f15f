/* SPDX-License-Identifier: MIT */
/*
 * cmd_kv.c - `skein kv serve`: runs a key-value server until SIGTERM or SIGINT.
 */
#include "cmd.h"
#include "cmds.h"
#include "guard.h"
#include "opt.h"
#include "out.h"

#include "kv/store/cache.h"
#include "kv/server/serve.h"

#include <skein/error.h>

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#define CMD "skein kv"

struct serve_opts {
	const char *listen;
	const char *device;
	uint32_t threads;
	uint32_t workers;
	uint32_t wait;
	uint32_t tcp;
	const char *pin;
	int cpu; /* of pin */
	uint64_t memory;
	uint32_t store;
	bool insecure;
	bool json;
};

enum {
	STORE_ORDERED,
	STORE_CACHE
};

static const char *const stores[] = {"ordered", "cache", NULL};
static const char *const tcps[] = {"no", "spin", "block", NULL};

static bool cache_is_wrong(const struct serve_opts *o)
{
	if (o->store != STORE_CACHE)
		return false;
	if (o->workers)
		out_error(CMD " serve",
			  "--workers and --store=cache do not go "
			  "together: a GET changes what goes next");
	else if (o->memory / o->threads < KV_CACHE_BYTES_MIN)
		out_error(CMD " serve",
			  "--store=cache wants --memory, at least %llu MiB a "
			  "thread",
			  KV_CACHE_BYTES_MIN >> 20);
	else
		return false;
	return true;
}

static enum opt_verdict parse(int argc, char **argv, struct serve_opts *o)
{
	const struct opt opts[] = {
		{'l', "listen", OPT_STR, &o->listen, "ADDR",
		 "HOST:PORT; port 0: a free one"},
		{0, "insecure", OPT_FLAG, &o->insecure, NULL,
		 "other hosts may read and write: there is no key"},
		{'t', "threads", OPT_U32, &o->threads, "N",
		 "threads, each with its part of the keys", 1, KV_SHARDS_MAX},
		{0, "workers", OPT_U32, &o->workers, "N",
		 "other threads execute the requests; 0: these do", 0,
		 KV_WORKERS_MAX},
		{0, "wait", OPT_CHOICE, &o->wait, "MODE", "how threads wait", 0,
		 0, kv_wait_names},
		{0, "device", OPT_STR, &o->device, "NAME",
		 "soft, verbs, verbs:NAME"},
		{0, "tcp", OPT_CHOICE, &o->tcp, "HOW",
		 "plain TCP sockets instead of Skein, to compare", 0, 0, tcps},
		{0, "store", OPT_CHOICE, &o->store, "NAME",
		 "ordered, or a cache that evicts and has no SCAN", 0, 0,
		 stores},
		{0, "memory", OPT_SIZE, &o->memory, "BYTES",
		 "bound of the store; 0: none, and not for a cache"},
		{0, "pin", OPT_STR, &o->pin, "CPU", "run thread i on CPU + i"},
		{0, "json", OPT_FLAG, &o->json, NULL,
		 "one JSON object when it listens"},
		{0},
	};
	const struct opt_usage usage = {
		.cmd = CMD " serve",
		.args = "[options]",
		.about = "Serves an in-memory key-value store (GET, PUT, "
			 "UPDATE, DELETE, SCAN) until SIGTERM\nor SIGINT. "
			 "`skein ycsb` is its client.",
		.opts = opts,
	};
	enum opt_verdict v = opt_parse(&usage, argc, argv, NULL);

	if (v == OPT_RUN && o->workers && o->tcp) {
		out_error(CMD " serve", "--workers and --tcp do not go "
					"together: workers are Skein's");
		return OPT_BAD;
	}
	if (v == OPT_RUN && cache_is_wrong(o))
		return OPT_BAD;
	if (v == OPT_RUN && !o->insecure &&
	    !guard_may_listen(CMD " serve", o->listen, "--insecure"))
		return OPT_BAD;
	if (v == OPT_RUN && kv_pin_parse(o->pin, o->threads, &o->cpu)) {
		out_error(CMD " serve",
			  "--pin=%s: there are not that many CPUs", o->pin);
		return OPT_BAD;
	}
	return v;
}

static enum kv_transport transport_of(const struct serve_opts *o)
{
	static const enum kv_transport map[] = {KV_SKEIN, KV_TCP_SPIN,
						KV_TCP_BLOCK};

	return map[o->tcp];
}

/* The one line (or object) that says that clients may come. */
static int announce(const struct serve_opts *o, const struct kv_serve *serve)
{
	const char *transport = kv_transport_names[transport_of(o)];

	if (o->json)
		return out_json(json_pack(
			"{s:s, s:s, s:s, s:s, s:i, s:i, s:s, s:i}", "listening",
			serve->addr, "store", stores[o->store], "transport",
			transport, "device", serve->device, "threads",
			(int)o->threads, "workers", (int)o->workers, "wait",
			kv_wait_names[o->wait], "pid", (int)getpid()));
	printf("kv: listening on %s over %s, %u thread%s, ", serve->addr,
	       transport, o->threads, o->threads == 1 ? "" : "s");
	if (o->workers)
		printf("%u worker%s, ", o->workers, o->workers == 1 ? "" : "s");
	printf("device %s\n", serve->device);
	return fflush(stdout) ? -EIO : 0;
}

static void say_goodbye(struct kv_server *server)
{
	struct kv_server_stats st;
	struct kv_info info;

	kv_server_stats(server, &st);
	kv_server_info(server, &info);
	printf("kv: stopped: %" PRIu64 " records, %" PRIu64 " get, %" PRIu64
	       " put, %" PRIu64 " update, %" PRIu64 " delete, %" PRIu64
	       " scan, %" PRIu64 " refused, %" PRIu64 " evicted\n",
	       info.records, st.done[KV_GET - KV_INFO],
	       st.done[KV_PUT - KV_INFO], st.done[KV_UPDATE - KV_INFO],
	       st.done[KV_DELETE - KV_INFO], st.done[KV_SCAN - KV_INFO],
	       st.refused, info.evicted);
}

/* What would help, where it is not the address itself. */
static const char *remedy(int rc)
{
	if (rc == -EADDRINUSE)
		return " (--listen with port 0 takes a free one)";
	return "";
}

static int serve_until(const struct serve_opts *o, struct kv_server *server,
		       const sigset_t *ends)
{
	struct out_log log = {0};
	struct kv_serve_attr attr = {
		.server = server,
		.listen = o->listen,
		.transport = transport_of(o),
		.device = o->device,
		.wait = (enum skein_wait)o->wait,
		.pin = o->cpu,
		.workers = o->workers,
		.log = out_log_line,
		.log_arg = &log,
	};
	struct kv_serve *serve;
	int rc = kv_serve_start(&attr, &serve), sig;

	if (rc) {
		out_error(CMD, "%s%s", out_log_reason(&log, rc), remedy(rc));
		return CMD_FAILED;
	}
	out_log_opened(&log);
	rc = announce(o, serve);
	if (!rc)
		sigwait(ends, &sig);
	else
		out_error(CMD, "cannot write to standard output");
	kv_serve_stop(serve);
	return rc ? CMD_FAILED : CMD_OK;
}

static int serve_main(int argc, char **argv)
{
	struct serve_opts o = {.listen = "127.0.0.1:7440", .threads = 1};
	struct kv_server_attr sa;
	struct kv_server *server;
	sigset_t ends;
	int rc;

	switch (parse(argc, argv, &o)) {
	case OPT_HELP:
		return CMD_OK;
	case OPT_BAD:
		return CMD_USAGE;
	case OPT_RUN:
		break;
	}
	/* before any thread starts: they inherit it */
	sigemptyset(&ends);
	sigaddset(&ends, SIGTERM);
	sigaddset(&ends, SIGINT);
	sigprocmask(SIG_BLOCK, &ends, NULL);

	sa = (struct kv_server_attr){.shards = o.threads,
				     .bytes_max = o.memory,
				     .cache = o.store == STORE_CACHE,
				     .shared = o.workers > 0};
	rc = kv_server_new(&sa, &server);
	if (rc) {
		out_error(CMD, "no memory for the store");
		return CMD_FAILED;
	}
	rc = serve_until(&o, server, &ends);
	if (!rc && !o.json)
		say_goodbye(server);
	kv_server_free(server);
	return rc;
}

int cmd_kv(int argc, char **argv)
{
	if (argc >= 2 && !strcmp(argv[1], "serve"))
		return serve_main(argc - 1, argv + 1);
	if (argc >= 2 &&
	    (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h"))) {
		puts("usage: skein kv serve [options]\n\n"
		     "An in-memory key-value server over RDMA; "
		     "`skein kv serve --help` lists its options.");
		return CMD_OK;
	}
	if (argc < 2 || !strcmp(argv[1], "--json"))
		out_error(CMD, "wants \"serve\": see `skein kv --help`");
	else
		out_error(CMD,
			  "\"%s\" is not \"serve\": see `skein kv "
			  "--help`",
			  argv[1]);
	return CMD_USAGE;
}
