/* SPDX-License-Identifier: MIT */
/*
 * op_calibrate.c - `skein perf calibrate`: calls a second, replied and fetched,
 * by how long the handler takes, and READs a second by size; kept for the
 * library (rpc/client/calib_file.h).
 *
 * Pairs of processes, a server with a thread of its own for each client: the
 * processors do not limit, as far as the machine has them. All clients measure
 * the same point in the same slice, by the clock: a round has a slice for each
 * point. Rates are sums over the clients and medians over the rounds; how much
 * fetching is ahead is the median of the ratios of neighbouring slices.
 */
#include "perf/op_calibrate.h"

#include "cmd.h"
#include "opt.h"
#include "out.h"

#include "conn/ctx.h"
#include "env/cache_file.h"
#include "rpc/client/calib_file.h"

#include <skein/skein.h>

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define CMD "skein perf calibrate"
#define ECHO 1
#define SIZE 32u
#define READS 16u /* outstanding */
#define REGION (64u << 10)
#define PAIRS_MAX 64u
#define ROUNDS_MAX 99u
#define PATIENCE SKEIN_S(10)
#define PATIENCE_MS 20000
/* After the last client is ready. */
#define START_NS 20000000u

static const uint32_t service_ns[] = {0, 1000, 2000, 5000, 7000, 10000, 20000};
static const uint32_t read_len[] = {64, 128, 256, 512, 1024, 2048, 4096, 8192};

#define N_TIMES (sizeof(service_ns) / sizeof(*service_ns))
#define N_READS (sizeof(read_len) / sizeof(*read_len))
/* replied and fetched by turns, then READs */
#define POINTS (2 * N_TIMES + N_READS)

/* Shared by all processes. */
struct board {
	_Atomic(uint64_t) start_ns; /* 0: not all are ready */
	double rates[PAIRS_MAX][ROUNDS_MAX][POINTS];
};

struct run {
	const char *device;
	const char *file;
	bool json;
	uint32_t pairs, rounds;
	uint64_t slice_ns;
	struct board *board;
	pid_t servers[PAIRS_MAX], clients[PAIRS_MAX];
	int ends[PAIRS_MAX]; /* of the clients' pipes */
	char name[320], key[RPC_CALIB_KEY_MAX], path[RPC_CALIB_PATH_MAX];
	struct rpc_calib calib;
};

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static int ctx_open(const struct run *r, struct skein_ctx **ctx)
{
	struct skein_ctx_attr a = {.size = sizeof(a),
				   .device = r->device,
				   .wait = SKEIN_WAIT_POLL};

	return skein_ctx_open(&a, ctx);
}

/* --- the server --------------------------------------------------------- */

struct question {
	uint64_t number;
	uint32_t service_ns;
};

static int echo(struct skein_rpc_req *req, void *arg)
{
	uint8_t *resp = skein_rpc_resp_buf(req, SIZE);
	struct question q;
	uint64_t end;

	(void)arg;
	if (!resp || skein_rpc_req_len(req) != SIZE)
		return -EINVAL;
	memcpy(&q, skein_rpc_req_data(req), sizeof(q));
	if (q.service_ns)
		for (end = now_ns() + q.service_ns; now_ns() < end;)
			;
	memcpy(resp, skein_rpc_req_data(req), SIZE);
	return 0;
}

static _Noreturn void server_main(const struct run *r, int out)
{
	struct skein_listener *l;
	struct skein_ctx *ctx;
	struct skein_mem *mem;
	char addr[72] = "";
	int rc;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	rc = ctx_open(r, &ctx);
	if (!rc)
		rc = skein_rpc_handle(ctx, ECHO, echo, NULL);
	if (!rc)
		rc = skein_mem_new(ctx, REGION, &mem);
	if (!rc)
		rc = skein_mem_share(mem, "calibrate", SKEIN_MEM_READ);
	if (!rc)
		rc = skein_listener_open(ctx, "127.0.0.1:0", NULL, &l);
	if (!rc)
		snprintf(addr, sizeof(addr), "%s", skein_listener_addr(l));
	if (write(out, addr, sizeof(addr)) != sizeof(addr) || rc)
		_exit(1);
	for (;;)
		skein_engine_run(skein_ctx_engine(ctx), SKEIN_FOREVER);
}

/* --- the client --------------------------------------------------------- */

struct client {
	const struct run *r;
	struct skein_ctx *ctx;
	struct skein_conn *conns[2]; /* replied, fetched */
	struct skein_mem *mem;
	struct skein_remote remote;
	uint64_t number; /* of the last call */
	unsigned under_way;
	uint64_t done;
	int rc;
};

static int client_open(struct client *c, const char *addr)
{
	static const enum skein_return modes[] = {SKEIN_RETURN_REPLY,
						  SKEIN_RETURN_FETCH};
	int rc = ctx_open(c->r, &c->ctx);

	for (unsigned i = 0; i < 2 && !rc; i++) {
		struct skein_conn_attr a = {.size = sizeof(a),
					    .return_mode = modes[i]};

		rc = skein_conn_open(c->ctx, addr, &a, &c->conns[i]);
	}
	c->remote.size = sizeof(c->remote);
	if (!rc)
		rc = skein_mem_new(c->ctx, REGION, &c->mem);
	if (!rc)
		rc = skein_mem_find(c->conns[0], "calibrate", PATIENCE,
				    &c->remote);
	return rc;
}

static int call(struct client *c, struct skein_conn *conn, uint32_t service)
{
	uint8_t req[SIZE] = {0}, resp[SIZE] = {0};
	struct question q = {++c->number, service};
	int rc;

	memcpy(req, &q, sizeof(q));
	rc = skein_rpc_call(conn, ECHO, req, SIZE, resp, SIZE, PATIENCE, NULL);
	return !rc && memcmp(req, resp, SIZE) ? -EBADMSG : rc;
}

static void read_done(void *arg, int status)
{
	struct client *c = arg;

	c->under_way--;
	c->done++;
	if (status && !c->rc)
		c->rc = status;
}

static int reads(struct client *c, uint32_t len, uint64_t end_ns)
{
	int rc = 0;

	c->done = 0;
	do {
		while (!rc && c->under_way < READS) {
			rc = skein_mem_read_async(c->conns[0], c->mem, 0,
						  &c->remote, 0, len, read_done,
						  c);
			c->under_way += !rc;
		}
		rc = rc == -EAGAIN ? 0 : rc;
		skein_ctx_progress(c->ctx);
	} while (!rc && !c->rc && now_ns() < end_ns);
	while (c->under_way && !c->rc)
		skein_ctx_progress(c->ctx);
	return rc ? rc : c->rc;
}

static int calls(struct client *c, unsigned point, uint64_t end_ns)
{
	int rc;

	c->done = 0;
	do {
		rc = call(c, c->conns[point % 2], service_ns[point / 2]);
		c->done++;
	} while (!rc && now_ns() < end_ns);
	return rc;
}

/* Slice n, in which the other clients measure the same point. */
static int slice(struct client *c, unsigned n, unsigned point, double *rate)
{
	const struct run *r = c->r;
	uint64_t from = r->board->start_ns + n * r->slice_ns;
	/* the rest of it is for what is under way then */
	uint64_t end = from + r->slice_ns - r->slice_ns / 8;
	int rc;

	while (now_ns() < from)
		skein_ctx_progress(c->ctx);
	from = now_ns();
	rc = point < 2 * N_TIMES ? calls(c, point, end)
				 : reads(c, read_len[point - 2 * N_TIMES], end);
	*rate = (double)c->done * 1e9 / (double)(now_ns() - from);
	return rc;
}

/* Did the device fetch at all? */
static int fetched(struct client *c)
{
	struct skein_rpc_stats st = {.size = sizeof(st)};
	int rc = skein_rpc_get_stats(c->conns[1], &st);

	return rc ? rc : st.fetched ? 0 : -EOPNOTSUPP;
}

static int measure(struct client *c, unsigned pair)
{
	struct board *b = c->r->board;
	unsigned p;
	int rc = 0;

	for (uint32_t round = 0; round < c->r->rounds && !rc; round++)
		for (unsigned i = 0; i < POINTS && !rc; i++) {
			/* each second round backwards: no point has always
			 * the same one before it */
			p = round % 2 ? POINTS - 1 - i : i;
			rc = slice(c, round * POINTS + i, p,
				   &b->rates[pair][round][p]);
		}
	return rc ? rc : fetched(c);
}

static _Noreturn void client_main(const struct run *r, unsigned pair,
				  const char *addr, int out)
{
	struct client c = {.r = r};
	int rc;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	rc = client_open(&c, addr);
	if (write(out, &rc, sizeof(rc)) != sizeof(rc) || rc)
		_exit(1);
	while (!r->board->start_ns)
		skein_ctx_progress(c.ctx);
	rc = measure(&c, pair);
	if (write(out, &rc, sizeof(rc)) != sizeof(rc))
		_exit(1);
	for (;;) /* until the server has ended: its log stays silent */
		pause();
}

/* --- the run ------------------------------------------------------------ */

static int pipe_read(int fd, void *buf, size_t len, int patience_ms)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};

	if (poll(&p, 1, patience_ms) != 1)
		return -ETIMEDOUT;
	return read(fd, buf, len) == (ssize_t)len ? 0 : -EPIPE;
}

/* A child's word: 0, or an error. */
static int word(int fd, int patience_ms)
{
	int said = 0, rc = pipe_read(fd, &said, sizeof(said), patience_ms);

	return rc ? rc : said;
}

static int pair_start(struct run *r, unsigned i)
{
	char addr[72] = "";
	int p[2], rc;

	if (pipe(p))
		return -errno;
	r->servers[i] = fork();
	if (!r->servers[i])
		server_main(r, p[1]);
	rc = r->servers[i] < 0
		     ? -EAGAIN
		     : pipe_read(p[0], addr, sizeof(addr), PATIENCE_MS);
	if (!rc && !addr[0])
		rc = -EPIPE;
	if (!rc) {
		r->clients[i] = fork();
		if (!r->clients[i])
			client_main(r, i, addr, p[1]);
		r->ends[i] = p[0];
		rc = r->clients[i] < 0 ? -EAGAIN : word(p[0], PATIENCE_MS);
	}
	close(p[1]);
	return rc;
}

static void reap(pid_t pid)
{
	if (pid <= 0)
		return;
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

static int pairs_run(struct run *r)
{
	uint64_t whole_ns = r->rounds * POINTS * r->slice_ns;
	int rc = 0;

	for (unsigned i = 0; i < r->pairs && !rc; i++)
		rc = pair_start(r, i);
	r->board->start_ns = now_ns() + START_NS;
	for (unsigned i = 0; i < r->pairs && !rc; i++)
		rc = word(r->ends[i], PATIENCE_MS + (int)(whole_ns / 1000000));
	for (unsigned i = 0; i < r->pairs; i++) {
		reap(r->servers[i]);
		reap(r->clients[i]);
	}
	return rc;
}

static int by_size(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

static double median(double *v, uint32_t n)
{
	qsort(v, n, sizeof(*v), by_size);
	return v[n / 2];
}

/* Of all clients. */
static double sum(const struct run *r, uint32_t round, unsigned point)
{
	double all = 0;

	for (unsigned i = 0; i < r->pairs; i++)
		all += r->board->rates[i][round][point];
	return all;
}

static uint32_t whole(double rate)
{
	return rate < 1 ? 1 : rate < UINT32_MAX ? (uint32_t)rate : UINT32_MAX;
}

static double rate(const struct run *r, unsigned point)
{
	double rates[ROUNDS_MAX] = {0};

	for (uint32_t round = 0; round < r->rounds; round++)
		rates[round] = sum(r, round, point);
	return median(rates, r->rounds);
}

/* Of the slices that follow each other: what else the machine runs slows both. */
static double fetched_over_replied(const struct run *r, unsigned time)
{
	double ratios[ROUNDS_MAX] = {0};

	for (uint32_t round = 0; round < r->rounds; round++)
		ratios[round] =
			sum(r, round, 2 * time + 1) / sum(r, round, 2 * time);
	return median(ratios, r->rounds);
}

static void settle(struct run *r)
{
	struct rpc_calib *c = &r->calib;
	double replied;

	c->n_times = N_TIMES;
	c->n_reads = N_READS;
	for (unsigned i = 0; i < N_TIMES; i++) {
		replied = rate(r, 2 * i);
		c->times[i] = (struct rpc_calib_row){
			service_ns[i], whole(replied),
			whole(replied * fetched_over_replied(r, i))};
	}
	for (unsigned i = 0; i < N_READS; i++)
		c->reads[i] = (struct rpc_calib_read){
			read_len[i], whole(rate(r, 2 * N_TIMES + i))};
}

static int keep(struct run *r)
{
	struct skein_ctx *ctx;
	int rc = ctx_open(r, &ctx);

	if (rc)
		return rc;
	snprintf(r->name, sizeof(r->name), "%s", skein_ctx_device(ctx));
	rpc_calib_key(ctx->dev, r->key);
	if (r->file)
		snprintf(r->path, sizeof(r->path), "%s", r->file);
	else if (rpc_calib_counts(ctx->dev))
		rc = rpc_calib_path(ctx->dev, r->path);
	if (!rc && r->path[0])
		rc = rpc_calib_file_put(ctx->dev, r->path, r->file, &r->calib);
	if (rc)
		out_error(CMD, "it was not kept%s%s: %s",
			  r->path[0] ? " in " : "", r->path,
			  skein_strerror(rc));
	skein_ctx_close(ctx);
	return rc;
}

static int report_json(const struct run *r)
{
	const struct rpc_calib *c = &r->calib;
	json_t *times = json_array(), *sizes = json_array();
	uint32_t least, most;

	rpc_calib_range(c, &least, &most);
	for (unsigned i = 0; i < c->n_times; i++)
		json_array_append_new(
			times,
			json_pack("{s:f, s:I, s:I}", "service_us",
				  c->times[i].ns / 1e3, "replied",
				  (json_int_t)c->times[i].replied, "fetched",
				  (json_int_t)c->times[i].fetched));
	for (unsigned i = 0; i < c->n_reads; i++)
		json_array_append_new(
			sizes, json_pack("{s:I, s:I}", "bytes",
					 (json_int_t)c->reads[i].bytes, "reads",
					 (json_int_t)c->reads[i].rate));
	return out_json(json_pack(
		"{s:s, s:s, s:s, s:s, s:i, s:i, s:f, s:i, s:i, s:o, s:o}", "op",
		"calibrate", "device", r->name, "key", r->key, "file", r->path,
		"pairs", (int)r->pairs, "rounds", (int)r->rounds,
		"crossover_us", rpc_calib_crossover_ns(c) / 1e3,
		"read_bytes_least", (int)least, "read_bytes_most", (int)most,
		"times", times, "read_rates", sizes));
}

static int report_table(const struct run *r)
{
	static const char *const heads[] = {"service us", "replied/s",
					    "fetched/s", "bytes", "READs/s"};
	const struct rpc_calib *c = &r->calib;
	struct table *t = table_new(heads, 5);
	uint32_t least, most;

	rpc_calib_range(c, &least, &most);
	for (unsigned i = 0; i < N_TIMES || i < N_READS; i++) {
		if (i < N_TIMES) {
			table_num(t, c->times[i].ns / 1e3);
			table_num(t, c->times[i].replied);
			table_num(t, c->times[i].fetched);
		}
		for (unsigned k = i < N_TIMES ? 3 : 0; k < 3; k++)
			table_cell(t, " ");
		table_num(t, c->reads[i].bytes);
		table_num(t, c->reads[i].rate);
	}
	printf("calibrate: %u pairs on %s; medians of %u rounds\n", r->pairs,
	       r->name, r->rounds);
	table_print(t, stdout);
	printf("fetching is a tenth ahead up to %.1f us; first READs of %u to "
	       "%u bytes\n%s %s\n",
	       rpc_calib_crossover_ns(c) / 1e3, least, most,
	       r->path[0] ? "kept:" : "not kept: fetching gains nothing where",
	       r->path[0] ? r->path : "the threads themselves copy");
	table_free(t);
	return fflush(stdout) ? -EIO : 0;
}

static int run(struct run *r)
{
	int rc;

	r->board = mmap(NULL, sizeof(*r->board), PROT_READ | PROT_WRITE,
			MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (r->board == MAP_FAILED)
		return -ENOMEM;
	rc = pairs_run(r);
	if (rc == -EOPNOTSUPP)
		out_error(CMD, "this device does not fetch: it takes fewer "
			       "than three READs at once");
	else if (rc)
		out_error(CMD, "it was not measured: %s", skein_strerror(rc));
	else
		settle(r);
	munmap(r->board, sizeof(*r->board));
	if (!rc)
		rc = keep(r);
	if (rc)
		return rc;
	return r->json ? report_json(r) : report_table(r);
}

/* Said before the measuring: it takes seconds. */
static bool can_keep(const char *file)
{
	char at[PATH_MAX];
	int rc = cache_file_find(file, at);

	if (rc == -ENOTSUP || rc == -EISDIR)
		out_error(CMD,
			  "--file: %s is no regular file: name one, or a path "
			  "at which nothing is",
			  file);
	else if (rc)
		out_error(CMD, "--file: %s cannot be written: %s", file,
			  strerror(-rc));
	return !rc;
}

int op_calibrate(int argc, char **argv)
{
	long cores = sysconf(_SC_NPROCESSORS_ONLN) / 2;
	struct run r = {
		.pairs = cores < 1	     ? 1
			 : cores > PAIRS_MAX ? PAIRS_MAX
					     : (uint32_t)cores,
		.rounds = 9,
		.slice_ns = 10000000,
	};
	const struct opt opts[] = {
		{'d', "device", OPT_STR, &r.device, "NAME",
		 "soft, verbs or verbs:NAME; else SKEIN_DEVICE, else chosen"},
		{0, "pairs", OPT_U32, &r.pairs, "N",
		 "clients, each with a server; else half of the cores", 1,
		 PAIRS_MAX},
		{'n', "iters", OPT_U32, &r.rounds, "N", "rounds", 1,
		 ROUNDS_MAX},
		{0, "slice", OPT_NS, &r.slice_ns, "TIME",
		 "of a point in a round", 1000000, 1000000000},
		{0, "file", OPT_STR, &r.file, "FILE",
		 "keep it there, for SKEIN_RPC_CALIBRATION=FILE"},
		{0, "json", OPT_FLAG, &r.json, .help = "one JSON object"},
		{0},
	};
	const struct opt_usage u = {
		CMD, "[options]",
		"Calls a second with results that are replied and fetched, by "
		"how long the handler\ntakes, and READs a second by size; kept "
		"in the user's cache directory, where\n`auto` of "
		"SKEIN_RPC_RETURN reads it. All processes run on this host.",
		opts, NULL};

	switch (opt_parse(&u, argc, argv, NULL)) {
	case OPT_HELP:
		return CMD_OK;
	case OPT_BAD:
		return CMD_USAGE;
	case OPT_RUN:
		break;
	}
	if (r.file && (!*r.file || strlen(r.file) >= sizeof(r.path))) {
		out_error(CMD, "--file: a path of 1 to %zu bytes",
			  sizeof(r.path) - 1);
		return CMD_USAGE;
	}
	if (r.file && !can_keep(r.file))
		return CMD_FAILED;
	return run(&r) ? CMD_FAILED : CMD_OK;
}
