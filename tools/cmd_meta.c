/* SPDX-License-Identifier: MIT */
/*
 * cmd_meta.c - `skein meta`: the meta server of virtual queue pairs, until
 * SIGTERM or SIGINT.
 */
#include "cmd.h"
#include "cmds.h"
#include "guard.h"
#include "opt.h"
#include "out.h"
#include "until.h"

#include <skein/ctx.h>
#include <skein/error.h>
#include <skein/vqp.h>

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#define CMD "skein meta"
#define SWEEP_NS SKEIN_MS(500)

struct meta_opts {
	const char *listen;
	const char *device;
	uint32_t nodes;
	bool insecure;
	bool json;
};

static enum opt_verdict parse(int argc, char **argv, struct meta_opts *o)
{
	const struct opt opts[] = {
		{'l', "listen", OPT_STR, &o->listen, "ADDR",
		 "HOST:PORT; port 0: a free one"},
		{0, "insecure", OPT_FLAG, &o->insecure, NULL,
		 "listen where other hosts reach it: any may write records"},
		{0, "nodes", OPT_U32, &o->nodes, "N", "room for so many nodes",
		 1, 1u << 20},
		{0, "device", OPT_STR, &o->device, "NAME",
		 "soft, verbs, verbs:NAME"},
		{0, "json", OPT_FLAG, &o->json, NULL,
		 "one JSON object when it listens"},
		{0},
	};
	const struct opt_usage usage = {
		.cmd = CMD,
		.args = "[options]",
		.about = "Keeps 64 bytes of each node, which pools of virtual "
			 "queue pairs write and READ.\nIts CPU answers nobody; "
			 "it clears what no node renews.",
		.opts = opts,
	};
	enum opt_verdict v = opt_parse(&usage, argc, argv, NULL);

	if (v == OPT_RUN && !o->insecure &&
	    !guard_may_listen(CMD, o->listen, "--insecure"))
		return OPT_BAD;
	return v;
}

static int announce(const struct meta_opts *o, struct skein_ctx *ctx,
		    struct skein_meta *meta)
{
	if (o->json)
		return out_json(json_pack("{s:s, s:s, s:i, s:i}", "listening",
					  skein_meta_addr(meta), "device",
					  skein_ctx_device(ctx), "nodes_max",
					  (int)o->nodes, "pid", (int)getpid()));
	printf("meta: listening on %s, room for %u nodes, device %s\n",
	       skein_meta_addr(meta), o->nodes, skein_ctx_device(ctx));
	return fflush(stdout) ? -EIO : 0;
}

static void serve(struct skein_ctx *ctx, struct skein_meta *meta,
		  struct skein_stop *stop)
{
	int nodes = 0, now;
	uint64_t garbage = 0, was = 0;

	while (!skein_stop_is_set(stop)) {
		skein_engine_run_stop(skein_ctx_engine(ctx), SWEEP_NS, stop);
		now = skein_meta_progress(meta, &garbage);
		if (now != nodes)
			fprintf(stderr, "meta: %d node%s\n", now,
				now == 1 ? "" : "s");
		if (garbage && !was)
			out_error(CMD,
				  "a record made no sense and was cleared");
		nodes = now;
		was = garbage;
	}
}

static int run(const void *opts, struct skein_stop *stop)
{
	const struct meta_opts *o = opts;
	struct out_log log = {0};
	struct skein_ctx_attr attr = {.size = sizeof(attr),
				      .device = o->device,
				      .log = out_log_line,
				      .log_arg = &log};
	struct skein_meta *meta;
	struct skein_ctx *ctx;
	int rc;

	rc = skein_ctx_open(&attr, &ctx);
	if (rc) {
		out_error(CMD, "%s", out_log_reason(&log, rc));
		return CMD_FAILED;
	}
	rc = skein_meta_open(ctx, o->listen, o->nodes, &meta);
	if (rc) {
		out_error(CMD, "%s", out_log_reason(&log, rc));
		skein_ctx_close(ctx);
		return CMD_FAILED;
	}
	out_log_opened(&log);
	rc = announce(o, ctx, meta);
	if (!rc)
		serve(ctx, meta, stop);
	else
		out_error(CMD, "cannot write to standard output");
	skein_meta_close(meta);
	skein_ctx_close(ctx);
	return rc ? CMD_FAILED : CMD_OK;
}

int cmd_meta(int argc, char **argv)
{
	struct meta_opts o = {.listen = "127.0.0.1:7010", .nodes = 4096};

	switch (parse(argc, argv, &o)) {
	case OPT_HELP:
		return CMD_OK;
	case OPT_BAD:
		return CMD_USAGE;
	case OPT_RUN:
		break;
	}
	return until_signal(CMD, run, &o);
}
