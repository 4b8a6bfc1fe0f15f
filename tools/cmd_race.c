/* SPDX-License-Identifier: MIT */
/*
 * cmd_race.c - `skein race`: a RACE table. `serve` keeps its memory, and runs no
 * code for it; `run` is a client that verifies what it reads; `check` reads and
 * writes every key once.
 */
#include "cmd.h"
#include "cmds.h"
#include "opt.h"
#include "out.h"
#include "until.h"

#include "base/prng.h"
#include "race/race_vqp.h"

#include <errno.h>
#include <infiniband/verbs.h>
#include <inttypes.h>
#include <skein/skein.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define CMD "skein race"
#define TIMEOUT SKEIN_S(5)

struct race_opts {
	const char *meta, *device, *table;
	uint64_t memory;
	uint32_t dir_bits, groups, keys, ops, seed;
	bool json, check;
};

/* What a client has of the library. */
struct place {
	struct skein_ctx *ctx;
	struct skein_pool *pool;
};

static void place_close(struct place *p)
{
	if (p->pool)
		skein_pool_close(p->pool);
	if (p->ctx)
		skein_ctx_close(p->ctx);
}

static int place_open(const struct race_opts *o, struct place *p)
{
	static struct out_log log;
	struct skein_ctx_attr ca = {.size = sizeof(ca),
				    .device = o->device,
				    .log = out_log_line,
				    .log_arg = &log};
	struct skein_pool_attr pa = {.size = sizeof(pa), .meta = o->meta};
	int rc;

	*p = (struct place){NULL, NULL};
	rc = skein_ctx_open(&ca, &p->ctx);
	if (!rc)
		rc = skein_pool_open(p->ctx, &pa, &p->pool);
	if (rc) {
		out_error(CMD, "%s", out_log_reason(&log, rc));
		place_close(p);
		return rc;
	}
	out_log_opened(&log);
	return 0;
}

/* --- serve --------------------------------------------------------------- */

static int announce(const struct race_opts *o, const char *name)
{
	if (o->json)
		return out_json(json_pack("{s:s, s:I, s:i, s:i}", "table", name,
					  "memory", (json_int_t)o->memory,
					  "subtables_max", 1 << o->dir_bits,
					  "pid", (int)getpid()));
	printf("race: table %s\n", name);
	return fflush(stdout) ? -EIO : 0;
}

static int table_make(const struct race_opts *o, struct place *p,
		      struct skein_vqp_mem **mem, char name[RACE_NAME_MAX])
{
	int rc = skein_vqp_mem_new(p->pool, o->memory,
				   IBV_ACCESS_REMOTE_READ |
					   IBV_ACCESS_REMOTE_WRITE |
					   IBV_ACCESS_REMOTE_ATOMIC,
				   mem);

	if (!rc)
		rc = race_format(skein_vqp_mem_addr(*mem), o->memory,
				 o->dir_bits, o->groups);
	if (!rc)
		race_name_print(skein_pool_addr(p->pool), skein_vqp_rkey(*mem),
				skein_vqp_raddr(*mem), name);
	return rc;
}

static int serve(const void *opts, struct skein_stop *stop)
{
	const struct timespec pause = {.tv_nsec = 100000000};
	const struct race_opts *o = opts;
	char name[RACE_NAME_MAX];
	struct skein_vqp_mem *mem;
	struct place p;
	int rc = place_open(o, &p);

	if (rc)
		return CMD_FAILED;
	rc = table_make(o, &p, &mem, name);
	if (!rc)
		rc = announce(o, name);
	if (rc)
		out_error(CMD " serve", "%s", skein_strerror(rc));
	/* Renews the node's record at the meta server. */
	while (!rc && !skein_stop_is_set(stop)) {
		rc = skein_pool_progress(p.pool);
		rc = rc < 0 ? rc : 0;
		nanosleep(&pause, NULL);
	}
	place_close(&p);
	return rc ? CMD_FAILED : CMD_OK;
}

/* --- a client ------------------------------------------------------------ */

struct counts {
	uint64_t gets, inserts, updates, deletes, absent, wrong;
};

struct user {
	const struct race_opts *o;
	struct race_vqp vqp;
	struct race race;
	struct prng r;
	struct counts n;
};

#define VALUE_MAX 200u

static uint64_t now_ns(void *arg)
{
	struct timespec t;

	(void)arg;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* A value says which key it is of, and follows from its first 12 bytes. */
static size_t value_make(uint32_t key, uint64_t mark, unsigned char *buf)
{
	size_t len = 12 + mark % (VALUE_MAX - 12);

	memcpy(buf, &key, 4);
	memcpy(buf + 4, &mark, 8);
	for (size_t i = 12; i < len; i++)
		buf[i] = (unsigned char)(prng_mix(mark + i) + key);
	return len;
}

static bool value_good(uint32_t key, const unsigned char *buf, size_t len)
{
	unsigned char want[VALUE_MAX];
	uint64_t mark;

	if (len < 12)
		return false;
	memcpy(&mark, buf + 4, 8);
	return value_make(key, mark, want) == len && !memcmp(want, buf, len);
}

static int get(struct user *u, uint32_t key)
{
	unsigned char buf[VALUE_MAX];
	size_t len = sizeof(buf);
	int rc = race_get(&u->race, &key, sizeof(key), buf, &len);

	u->n.gets++;
	if (rc == -ENOENT)
		u->n.absent++;
	else if (!rc && !value_good(key, buf, len))
		u->n.wrong++;
	return rc == -ENOENT ? 0 : rc;
}

static int put(struct user *u, uint32_t key, bool insert)
{
	unsigned char buf[VALUE_MAX];
	size_t len = value_make(key, prng_u64(&u->r), buf);
	int rc = insert ? race_insert(&u->race, &key, sizeof(key), buf, len)
			: race_update(&u->race, &key, sizeof(key), buf, len);

	if (insert)
		u->n.inserts += !rc;
	else
		u->n.updates += !rc;
	return rc == -EEXIST || rc == -ENOENT ? 0 : rc;
}

static int delete (struct user *u, uint32_t key)
{
	int rc = race_delete(&u->race, &key, sizeof(key));

	u->n.deletes += !rc;
	return rc == -ENOENT ? 0 : rc;
}

static int one(struct user *u)
{
	uint32_t key = (uint32_t)prng_below(&u->r, u->o->keys);

	switch (prng_below(&u->r, 8)) {
	case 0:
	case 1:
		return put(u, key, true);
	case 2:
		return put(u, key, false);
	case 3:
		return prng_below(&u->r, 4) ? get(u, key) : delete (u, key);
	default:
		return get(u, key);
	}
}

static int check(struct user *u)
{
	int rc = 0;

	for (uint32_t key = 0; key < u->o->keys && !rc; key++) {
		rc = get(u, key);
		if (!rc)
			rc = put(u, key, true);
		if (!rc)
			rc = put(u, key, false);
		if (!rc)
			rc = get(u, key);
	}
	return rc;
}

static int told(const struct user *u)
{
	const struct counts *n = &u->n;
	const struct race_stats *s = &u->race.stats;

	if (u->o->json)
		return out_json(json_pack(
			"{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "gets",
			(json_int_t)n->gets, "absent", (json_int_t)n->absent,
			"inserts", (json_int_t)n->inserts, "updates",
			(json_int_t)n->updates, "deletes",
			(json_int_t)n->deletes, "wrong", (json_int_t)n->wrong,
			"splits", (json_int_t)s->splits, "helped",
			(json_int_t)s->helped));
	printf("race: %" PRIu64 " gets (%" PRIu64 " absent), %" PRIu64
	       " inserts, %" PRIu64 " updates, %" PRIu64 " deletes, %" PRIu64
	       " wrong; %" PRIu64 " splits\n",
	       n->gets, n->absent, n->inserts, n->updates, n->deletes, n->wrong,
	       s->splits);
	return fflush(stdout) ? -EIO : 0;
}

static int visit(struct user *u)
{
	struct race_port port = race_vqp_port(&u->vqp);
	int rc = race_open(&u->race, &port);

	if (!rc && !u->o->json && !u->o->check) {
		fprintf(stderr, "race: running\n");
	}
	if (!rc && u->o->check)
		rc = check(u);
	for (uint32_t i = 0; i < u->o->ops && !rc && !u->o->check; i++)
		rc = one(u);
	return rc;
}

static const char *reason(int rc)
{
	switch (rc) {
	case -EBADMSG:
		return "what is there is no table, or a broken one";
	case -ENOSPC:
		return "the table is full, as old records keep their memory: "
		       "serve a new one, with more --memory";
	case -EIO:
		return "the table's memory cannot be reached: did serve end?";
	case -EACCES:
		return "the table's memory is gone: was serve started again?";
	default:
		return skein_strerror(rc);
	}
}

static int client(const struct race_opts *o)
{
	struct user *u = calloc(1, sizeof(*u));
	struct place p;
	int rc = u ? place_open(o, &p) : -ENOMEM;

	if (rc) {
		free(u);
		return CMD_FAILED;
	}
	u->o = o;
	u->vqp = (struct race_vqp){.now_ns = now_ns};
	prng_init(&u->r, o->seed ? o->seed : now_ns(NULL) ^ (uint64_t)getpid());
	rc = race_vqp_open(&u->vqp, p.pool, o->table, TIMEOUT);
	if (!rc) {
		rc = visit(u);
		race_vqp_close(&u->vqp);
	}
	if (rc)
		out_error(CMD, "%s: %s", o->table, reason(rc));
	else
		rc = told(u);
	if (u->n.wrong)
		rc = -EIO;
	free(u);
	place_close(&p);
	return rc ? CMD_FAILED : CMD_OK;
}

/* --- the command line ---------------------------------------------------- */

static bool name_is_good(const char *name)
{
	char node[RACE_NAME_MAX];
	uint64_t addr;
	uint32_t id;

	if (!race_name_parse(name, node, &id, &addr))
		return true;
	out_error(CMD, "%s: a table is NODE/ID/ADDRESS, as serve prints it",
		  name);
	return false;
}

enum {
	SERVE = 1,
	RUN = 2,
	CHECK = 4,
	ALL = 7
};

/* The subcommand that the line has, or ALL: then --help shows every option. */
static unsigned subcommand(int argc, char **argv)
{
	for (int i = 1; i < argc; i++) {
		/* all options but --json and --help have a value */
		if (!strncmp(argv[i], "--", 2) && !strchr(argv[i], '=') &&
		    strcmp(argv[i], "--json") != 0 &&
		    strcmp(argv[i], "--help") != 0) {
			i++;
			continue;
		}
		if (!strcmp(argv[i], "serve"))
			return SERVE;
		if (!strcmp(argv[i], "run"))
			return RUN;
		if (!strcmp(argv[i], "check"))
			return CHECK;
	}
	return ALL;
}

static enum opt_verdict parse(int argc, char **argv, struct race_opts *o,
			      unsigned *sub)
{
	const struct {
		unsigned of;
		struct opt opt;
	} all[] = {
		{ALL,
		 {0, "meta", OPT_STR, &o->meta, "ADDR[,ADDR]",
		  "the meta server, HOST:PORT, or two of them"}},
		{SERVE,
		 {0, "memory", OPT_SIZE, &o->memory, "SIZE",
		  "serve: of the table", 65536, 1ull << 40}},
		{SERVE,
		 {0, "dir-bits", OPT_U32, &o->dir_bits, "N",
		  "serve: 2^N subtables at most", 0, RACE_DIR_BITS_MAX}},
		{SERVE,
		 {0, "groups", OPT_U32, &o->groups, "N",
		  "serve: of a subtable; each has 21 slots", RACE_GROUPS_MIN,
		  RACE_GROUPS_MAX}},
		{RUN | CHECK,
		 {0, "keys", OPT_U32, &o->keys, "N",
		  "run, check: of all clients", 1, 1u << 30}},
		{RUN,
		 {0, "ops", OPT_U32, &o->ops, "N", "run: operations", 1,
		  UINT32_MAX}},
		{RUN | CHECK,
		 {0, "seed", OPT_U32, &o->seed, "N",
		  "run, check: what is drawn follows from it; 0: the time", 0,
		  UINT32_MAX}},
		{ALL,
		 {0, "device", OPT_STR, &o->device, "NAME",
		  "soft, verbs, verbs:NAME"}},
		{ALL, {0, "json", OPT_FLAG, &o->json, NULL, "one JSON object"}},
	};
	struct opt opts[sizeof(all) / sizeof(*all) + 1] = {0};
	const struct opt_usage usage = {
		.cmd = CMD,
		.args = "serve | run TABLE | check TABLE [options]",
		.about = "A hash table that clients read and write by "
			 "one-sided operations alone.",
		.opts = opts,
	};
	enum opt_verdict v;
	int first = 1;

	*sub = subcommand(argc, argv);
	for (unsigned i = 0, n = 0; i < sizeof(all) / sizeof(*all); i++)
		if (all[i].of & *sub)
			opts[n++] = all[i].opt;
	v = opt_parse(&usage, argc, argv, &first);
	if (v != OPT_RUN)
		return v;
	o->check = *sub == CHECK;
	if (*sub == SERVE && first + 1 == argc)
		return OPT_RUN;
	if ((*sub == RUN || *sub == CHECK) && first + 2 == argc) {
		o->table = argv[first + 1];
		return name_is_good(o->table) ? OPT_RUN : OPT_BAD;
	}
	out_error(CMD, "serve, run TABLE, or check TABLE? `" CMD " --help`");
	return OPT_BAD;
}

int cmd_race(int argc, char **argv)
{
	struct race_opts o = {.memory = 64u << 20,
			      .dir_bits = 8,
			      .groups = 32,
			      .keys = 10000,
			      .ops = 100000};
	unsigned sub;

	switch (parse(argc, argv, &o, &sub)) {
	case OPT_HELP:
		return CMD_OK;
	case OPT_BAD:
		return CMD_USAGE;
	default:
		break;
	}
	if (sub == SERVE)
		return until_signal(CMD " serve", serve, &o);
	return client(&o);
}
