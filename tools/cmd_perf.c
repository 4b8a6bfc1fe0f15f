/* SPDX-License-Identifier: MIT */
/*
 * cmd_perf.c - `skein perf`: options, and which of them make sense together.
 */
#include "cmd.h"
#include "cmds.h"
#include "opt.h"
#include "out.h"
#include "perf/device.h"
#include "perf/op_calibrate.h"
#include "perf/op_connect.h"
#include "perf/perf.h"
#include "perf/pin.h"

#include "skein/rpc.h"

#include <string.h>

enum {
	SIZE_LAT = 8,
	SIZE_RPC = 64,
	SIZE_RATE = 65536,
	SIZE_ALL = 8 << 20,
	SIZE_ATOMIC = 8,
	WINDOW_RAW = 128,
	WINDOW_RPC = 32,
	INLINE_DEFAULT = 220,
	PORT_DEFAULT = 18515,
};

#define SLICE_MIN_NS 1000000ull
#define SLICE_MAX_NS 1000000000ull
#define DURATION_MAX_NS 3600000000000ull

static const char about[] =
	"Latency and throughput of one operation. OP is one of\n"
	"  write   RDMA WRITE; latency is a ping-pong found by polling memory\n"
	"  read    RDMA READ, post to completion\n"
	"  send    SEND and receive; latency is a ping-pong\n"
	"  atomic  fetch-and-add or compare-and-swap of 8 bytes\n"
	"  rpc     a call of libskein that echoes its bytes\n"
	"  stream  bytes on a stream, as skein run moves them\n"
	"  connect what a new process pays: `skein perf connect --help`\n"
	"  calibrate replied or fetched: `skein perf calibrate --help`\n"
	"\n"
	"Start it without HOST on one machine (with --insecure, for clients of\n"
	"other hosts) and with HOST on another, or with\n"
	"--self for both ends here, as two processes on two cores. A ping-pong's\n"
	"time is the whole round trip (perftest prints half of it).";

static const char more[] =
	"With --self each slice of the operation runs between two probes of what\n"
	"the machine itself needs for a cache line there and back (line); slices\n"
	"whose probes differ by more than 20 % are dropped, and the ratios are\n"
	"medians over the others. Between two hosts there is no such probe, and\n"
	"its columns are empty. skein-perf(1) explains every column.";

static const char outside[] = "rpc: call from outside done()";
static const char flush[] = "rpc: the same, and flush every batch";

static int bad(const char *what)
{
	out_error(PERF_CMD, "%s", what);
	return CMD_USAGE;
}

static int find_op(const char *name, uint32_t *op)
{
	for (uint32_t i = 0; perf_op_names[i]; i++) {
		if (strcmp(name, perf_op_names[i]) != 0)
			continue;
		*op = i;
		return CMD_OK;
	}
	out_error(
		PERF_CMD,
		"no operation is called \"%.32s\": write, read, send, atomic, "
		"rpc, stream, connect or calibrate",
		name);
	return CMD_USAGE;
}

/* Threads of rpc share a handle when its QPs are counted, or combining is
 * spoken of. */
static int settle_sharing(struct perf_opts *o, uint32_t wait)
{
	bool asked = o->no_combining || o->degree;

	if (asked && o->op != PERF_RPC)
		return bad("--no-combining and --degree are for rpc");
	o->shared = o->op == PERF_RPC && (o->qps || asked);
	if (!o->qps)
		o->qps = 1;
	o->wait = o->shared && o->threads > 1 ? PERF_WAIT_POLL : PERF_WAIT_SPIN;
	if (wait)
		o->wait = wait - 1;
	return CMD_OK;
}

static int check_sharing(const struct perf_opts *o)
{
	if (!o->shared)
		return CMD_OK;
	if (o->qps > o->threads)
		return bad("--qp is larger than --threads: threads share QPs, "
			   "and some would have none");
	if (o->flush || o->outside)
		return bad("--outside and --flush are for a connection of each "
			   "thread's own: leave out --qp");
	if (o->batch > 1 && o->degree)
		return bad("--degree counts calls of different threads: leave "
			   "out --batch");
	if (o->no_combining && o->degree)
		return bad("--no-combining has no --degree");
	if (o->no_combining && o->wait != PERF_WAIT_SPIN &&
	    o->wait != PERF_WAIT_POLL)
		return bad("--no-combining does not sleep: --wait spin or "
			   "poll");
	if (o->degree > o->threads / o->qps)
		return bad("--degree is larger than --threads by --qp: so many "
			   "do not meet on one QP");
	return CMD_OK;
}

static uint64_t size_default(const struct perf_opts *o)
{
	if (o->op == PERF_ATOMIC)
		return SIZE_ATOMIC;
	if (o->all)
		return SIZE_ALL;
	if (o->op == PERF_RPC)
		return SIZE_RPC;
	return o->rate ? SIZE_RATE : SIZE_LAT;
}

/* Fills what was left at 0. */
static int settle(struct perf_opts *o)
{
	uint32_t window = o->op == PERF_RPC ? WINDOW_RPC : WINDOW_RAW;

	if (o->window > 1 || o->batch > 1) {
		if (o->lat)
			return bad("--lat has one operation outstanding: leave "
				   "out --window and --batch");
		o->rate = true;
	}
	if (o->lat && o->rate)
		return bad("--lat and --bw exclude each other");
	if (!o->batch)
		o->batch = 1;
	if (!o->window)
		o->window = o->rate && o->op != PERF_STREAM ? window : 1;
	if ((o->flush || o->outside) && (o->op != PERF_RPC || !o->rate))
		return bad("--outside and --flush are for rpc with --window");
	if (o->rate && o->window < o->batch) {
		out_error(PERF_CMD,
			  "-l/--batch %u is larger than -t/--window, which is "
			  "%u here: give -t %u or more",
			  o->batch, o->window, o->batch);
		return CMD_USAGE;
	}
	if (!o->size)
		o->size = size_default(o);
	o->lat = !o->rate;
	return CMD_OK;
}

static int check_stream(const struct perf_opts *o)
{
	if (o->op != PERF_STREAM && (o->both_ways || o->no_copy))
		return bad("--both-ways and --no-copy are for stream");
	if (o->both_ways && !o->rate)
		return bad("--both-ways goes with --bw");
	return CMD_OK;
}

/* Before settle(), which fills in what was not given. */
static int check_stream_given(const struct perf_opts *o)
{
	const struct {
		const char *name;
		uint32_t v;
	} one[] = {{"-t/--window", o->window},
		   {"-l/--batch", o->batch},
		   {"-q/--qp", o->qps},
		   {"--threads", o->threads}};

	for (size_t i = 0; i < sizeof(one) / sizeof(*one); i++) {
		if (o->op != PERF_STREAM || one[i].v <= 1)
			continue;
		out_error(PERF_CMD,
			  "a stream has one writer and one QP: leave out %s",
			  one[i].name);
		return CMD_USAGE;
	}
	return CMD_OK;
}

static int check(const struct perf_opts *o)
{
	if (check_stream(o))
		return CMD_USAGE;
	if (o->op == PERF_ATOMIC && (o->size != SIZE_ATOMIC || o->all))
		return bad("an atomic operation has 8 bytes");
	if (o->op != PERF_RPC && o->wait != PERF_WAIT_SPIN)
		return bad("--wait is for rpc: the other operations poll");
	if (o->op != PERF_RPC && o->ret)
		return bad("--return is for rpc");
	if (o->ret == SKEIN_RETURN_FETCH && o->wait == PERF_WAIT_EVENT)
		return bad("--return=fetch needs a client that polls, and "
			   "--wait=event sleeps: give --wait=poll or spin");
	if (o->op == PERF_RPC && o->gid_index != UINT32_MAX)
		return bad("--gid-index is for write, read, send and atomic");
	if (o->self && o->host)
		return bad("--self runs both ends here: leave out HOST");
	if (o->insecure && (o->self || o->host))
		return bad("--insecure is the server's: leave out HOST and "
			   "--self");
	if (o->cores && !o->self)
		return bad("--cores is for --self");
	if (o->cores && !pin_fits(o->cores))
		return bad("--cores takes two cores, such as 0,1");
	if (!device_require_fits(PERF_CMD, o->require))
		return CMD_USAGE;
	return check_sharing(o);
}

static int run_perf(struct perf_opts *o, uint32_t wait, int argc, char **argv)
{
	int rc;

	if (argc < 1)
		return bad("say what to measure: write, read, send, atomic, "
			   "rpc, stream, connect or calibrate (`skein perf "
			   "--help`)");
	if (argc > 2)
		return bad("too many words: OP and at most one HOST");
	rc = find_op(argv[0], &o->op);
	if (rc)
		return rc;
	o->host = argc > 1 ? argv[1] : NULL;
	if (o->host && !*o->host)
		return bad("HOST is empty: leave it out for a server");
	rc = settle_sharing(o, wait);
	if (!rc)
		rc = check_stream_given(o);
	if (!rc)
		rc = settle(o);
	if (!rc)
		rc = check(o);
	return rc ? rc : perf_main(o);
}

/* What is parsed before it is known what it means. */
struct raw_opts {
	bool bw, rate;
	uint32_t wait; /* 0: auto; else that of perf_wait_names, plus 1 */
};

static const char *const waits[] = {"auto",	"spin",	 "poll",
				    "adaptive", "event", NULL};

static const char *const returns[] = {"default", "reply", "fetch", "auto",
				      NULL};

static enum opt_verdict parse_by(const struct opt *opts, int argc, char **argv,
				 int *first)
{
	const struct opt_usage u = {PERF_CMD, "OP [options] [HOST]", about,
				    opts, more};

	return opt_parse(&u, argc, argv, first);
}

static enum opt_verdict parse(struct perf_opts *o, struct raw_opts *raw,
			      int argc, char **argv, int *first)
{
	const struct opt opts[] = {
		{0, "self", OPT_FLAG, &o->self,
		 .help = "run both ends on this host, on two cores"},
		{0, "insecure", OPT_FLAG, &o->insecure,
		 .help = "server: clients of other hosts, too, without a key"},
		{0, "lat", OPT_FLAG, &o->lat,
		 .help = "latency: one outstanding (the default)"},
		{0, "bw", OPT_FLAG, &raw->bw,
		 .help = "throughput: a window of operations outstanding"},
		{0, "rate", OPT_FLAG, &raw->rate, .help = "the same as --bw"},
		{'s', "size", OPT_SIZE, &o->size, "BYTES",
		 "message size; else 8, rpc 64, --bw 64K", 1, PERF_SIZE_MAX},
		{'a', "all", OPT_FLAG, &o->all,
		 .help = "all powers of two from 2 to --size, or 8M"},
		{'n', "iters", OPT_U32, &o->iterations, "N",
		 "operations in all; else by --duration", 0, UINT32_MAX},
		{'D', "duration", OPT_NS, &o->duration_ns, "TIME",
		 "of the measured part, without probes", SLICE_MIN_NS,
		 DURATION_MAX_NS},
		{'q', "qp", OPT_U32, &o->qps, "N",
		 "QPs of each thread; rpc: of a handle that they share", 1,
		 PERF_QPS_MAX},
		{'t', "window", OPT_U32, &o->window, "N",
		 "outstanding on each QP, rpc: of each thread", 1,
		 PERF_WINDOW_MAX},
		{'l', "batch", OPT_U32, &o->batch, "N",
		 "posts in a list, or requests in a message; else 1", 1,
		 PERF_BATCH_MAX},
		{0, "outside", OPT_FLAG, &o->outside, .help = outside},
		{0, "flush", OPT_FLAG, &o->flush, .help = flush},
		{0, "no-combining", OPT_FLAG, &o->no_combining,
		 .help = "rpc: threads that share post under a spin lock"},
		{0, "degree", OPT_U32, &o->degree, "N",
		 "rpc: a message waits for the calls of so many threads", 1,
		 PERF_THREADS_MAX},
		{0, "both-ways", OPT_FLAG, &o->both_ways,
		 .help = "stream, --bw: both ends write and read"},
		{0, "no-copy", OPT_FLAG, &o->no_copy,
		 .help = "stream: bytes are written and read in place"},
		{0, "threads", OPT_U32, &o->threads, "N", "of each end", 1,
		 PERF_THREADS_MAX},
		{'I', "inline_size", OPT_U32, &o->inline_max, "BYTES",
		 "send inline up to it", 0, PERF_INLINE_MAX},
		{'A', "atomic_type", OPT_CHOICE, &o->atomic, "TYPE",
		 "which atomic", .choices = perf_atomic_names},
		{0, "wait", OPT_CHOICE, &raw->wait, "HOW",
		 "how rpc waits; auto: poll where threads share, or spin",
		 .choices = waits},
		{0, "return", OPT_CHOICE, &o->ret, "HOW",
		 "rpc: results come by reply, fetch, or whichever is better; else SKEIN_RPC_RETURN",
		 .choices = returns},
		{'p', "port", OPT_U32, &o->port, "PORT",
		 "TCP, for the set-up; server: 0 takes a free one", 0, 65535},
		{'d', "device", OPT_STR, &o->device, "NAME",
		 "soft, verbs or verbs:NAME; else SKEIN_DEVICE, else chosen"},
		{0, "require", OPT_STR, &o->require, "KIND",
		 "fail unless the device is soft or verbs"},
		{'x', "gid-index", OPT_U32, &o->gid_index, "N",
		 "the GID to use; else chosen"},
		{0, "cores", OPT_STR, &o->cores, "A,B",
		 "of client and server; else the first two"},
		{0, "slice", OPT_NS, &o->slice_ns, "TIME",
		 "length of a slice and of a probe", SLICE_MIN_NS,
		 SLICE_MAX_NS},
		{0, "json", OPT_FLAG, &o->json, .help = "one JSON object"},
		{0},
	};
	return parse_by(opts, argc, argv, first);
}

int cmd_perf(int argc, char **argv)
{
	struct perf_opts o = {
		.duration_ns = 1000000000,
		.slice_ns = 25000000,
		.threads = 1,
		.inline_max = INLINE_DEFAULT,
		.port = PORT_DEFAULT,
		.gid_index = UINT32_MAX,
	};
	struct raw_opts raw = {0};
	int first = 0;

	/* processes, not a pair of ends: options of their own */
	if (argc > 1 && !strcmp(argv[1], "connect"))
		return op_connect(argc - 1, argv + 1);
	if (argc > 1 && !strcmp(argv[1], "calibrate"))
		return op_calibrate(argc - 1, argv + 1);

	switch (parse(&o, &raw, argc, argv, &first)) {
	case OPT_HELP:
		return CMD_OK;
	case OPT_BAD:
		return CMD_USAGE;
	case OPT_RUN:
		break;
	}
	o.rate = raw.bw || raw.rate;
	return run_perf(&o, raw.wait, argc - first, argv + first);
}
