/* SPDX-License-Identifier: MIT */
/*
 * RACE's table under several clients that are slow at any moment, or die: every
 * key's history is linearizable. The memory carries out a list in order, but
 * each request in pieces of 8 bytes in any order, with pauses: it is unkinder
 * than a NIC. Each mistake that race.h names is planted, and a seed finds it.
 */
#include "unit/cm.h"
#include "env/sim/sim.h"
#include "race/race.h"
#include "sim/linear.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CLIENTS_MAX 6u
#define KEYS 100u
#define MEM ((size_t)16 << 20)
#define MEM_SMALL ((size_t)1 << 16)

struct world;

struct client {
	struct world *tw;
	struct race *race;
	uint8_t *scratch;
	struct prng r;
	unsigned ops;
	uint64_t splits;
	uint64_t lists_left; /* then it dies */
	bool dead, ended;
};

struct world {
	struct sim_world *w;
	uint8_t *mem;
	struct client c[CLIENTS_MAX + 1];
	struct linear_op ops[KEYS][LINEAR_OPS];
	unsigned n[KEYS];
	uint32_t next_value;
	unsigned pause, plant;
	char why[160];
};

static void wrong(struct world *tw, const char *what, unsigned key, int rc)
{
	if (!*tw->why)
		snprintf(tw->why, sizeof(tw->why), "key %u: %s (%d)", key, what,
			 rc);
}

/* --- the storage --------------------------------------------------------- */

static void pause_some(struct client *c)
{
	uint64_t ns = prng_below(&c->r, c->tw->pause);

	/* Now and then another client does a lot meanwhile. */
	if (!prng_below(&c->r, 64))
		ns *= 40;
	sim_charge(c->tw->w, 1 + ns);
	sim_flush(c->tw->w, 1);
}

static void copy(struct client *c, const struct race_req *q)
{
	uint32_t n = (q->len + 7) / 8, from, k;
	uint8_t *at = c->tw->mem + q->at, *buf = q->buf;

	from = (uint32_t)prng_below(&c->r, n);
	for (uint32_t i = 0; i < n; i++) {
		uint32_t off = (from + i) % n * 8;

		k = q->len - off < 8 ? q->len - off : 8;
		if (q->verb == RACE_READ)
			memcpy(buf + off, at + off, k);
		else
			memcpy(at + off, buf + off, k);
		if (n < 64 && !prng_below(&c->r, 4))
			pause_some(c);
	}
}

static void atomic(struct client *c, const struct race_req *q)
{
	uint64_t was;

	memcpy(&was, c->tw->mem + q->at, 8);
	if (q->verb == RACE_FAA || was == q->compare) {
		uint64_t v = q->verb == RACE_FAA ? was + q->value : q->value;

		memcpy(c->tw->mem + q->at, &v, 8);
	}
	memcpy(q->buf, &was, 8);
}

static int run(void *arg, const struct race_req *reqs, unsigned n)
{
	struct client *c = arg;

	assert_true(n <= RACE_LIST);
	for (unsigned i = 0; i < n && !c->dead; i++) {
		if (reqs[i].at > MEM || reqs[i].len > MEM - reqs[i].at)
			return -EACCES;
		pause_some(c);
		if (reqs[i].verb <= RACE_WRITE)
			copy(c, &reqs[i]);
		else
			atomic(c, &reqs[i]);
		c->dead = !--c->lists_left;
	}
	pause_some(c);
	return c->dead ? -ECANCELED : 0;
}

/* --- clients ------------------------------------------------------------- */

static void value_fill(uint32_t value, unsigned char *buf, size_t len)
{
	memcpy(buf, &value, 4);
	for (size_t i = 4; i < len; i++)
		buf[i] = (unsigned char)(value * 37 + i);
}

static size_t value_len(uint32_t value)
{
	return 4 + value * 7 % 150;
}

static int get(struct client *c, const char *name, uint32_t *value)
{
	unsigned char buf[256], want[256];
	size_t len = sizeof(buf);
	int rc = race_get(c->race, name, strlen(name), buf, &len);

	*value = 0;
	if (rc == -ENOENT)
		return 0;
	if (rc)
		return rc;
	memcpy(value, buf, 4);
	value_fill(*value, want, value_len(*value));
	return len == value_len(*value) && !memcmp(buf, want, len) ? 0
								   : -EILSEQ;
}

static int carry_out(struct client *c, struct linear_op *op, const char *name)
{
	unsigned char buf[256];
	size_t len = value_len(op->value);
	int rc;

	value_fill(op->value, buf, len);
	switch (op->kind) {
	case LINEAR_GET:
		return get(c, name, &op->value);
	case LINEAR_INSERT:
		rc = race_insert(c->race, name, strlen(name), buf, len);
		op->failed = rc == -EEXIST;
		return op->failed ? 0 : rc;
	case LINEAR_UPDATE:
		rc = race_update(c->race, name, strlen(name), buf, len);
		break;
	default:
		rc = race_delete(c->race, name, strlen(name));
	}
	op->failed = rc == -ENOENT;
	return op->failed ? 0 : rc;
}

/* One operation, into the key's history. */
static void operate(struct client *c, unsigned key, enum linear_kind kind)
{
	struct world *tw = c->tw;
	unsigned at = tw->n[key];
	struct linear_op op = {.kind = kind, .end = LINEAR_OPEN};
	char name[16];
	int rc;

	if (at == LINEAR_OPS)
		return;
	tw->n[key]++;
	snprintf(name, sizeof(name), "key%u", key);
	op.value = kind == LINEAR_GET ? 0 : ++tw->next_value;
	op.begin = sim_thread_now(tw->w);
	tw->ops[key][at] = op;
	rc = carry_out(c, &op, name);
	if (rc && !c->dead)
		wrong(tw, "an operation failed", key, rc);
	if (c->dead) /* a GET without an answer says nothing */
		return;
	op.end = sim_thread_now(tw->w);
	tw->ops[key][at] = op;
}

static void client_main(void *arg)
{
	static const enum linear_kind kinds[] = {LINEAR_GET,	LINEAR_GET,
						 LINEAR_INSERT, LINEAR_INSERT,
						 LINEAR_INSERT, LINEAR_INSERT,
						 LINEAR_UPDATE, LINEAR_DELETE};
	struct client *c = arg;
	struct race_port port = {run, c, c->scratch};
	int rc = race_open(c->race, &port);

	c->race->plant = c->tw->plant;
	if (rc && !c->dead)
		wrong(c->tw, "open", 0, rc);
	for (unsigned i = 0; i < c->ops && !rc && !c->dead; i++) {
		/* a new client, with the directory of this moment */
		if (!prng_below(&c->r, 12)) {
			c->splits += c->race->stats.splits;
			rc = race_open(c->race, &port);
			c->race->plant = c->tw->plant;
			if (rc)
				break;
		}
		unsigned hot = prng_below(&c->r, 4) ? KEYS : 6;

		operate(c, (unsigned)prng_below(&c->r, hot),
			kinds[prng_below(&c->r, 8)]);
	}
	c->ended = true;
}

/* When all is quiet every key is read once more. */
static void last_main(void *arg)
{
	struct client *c = arg;
	struct race_port port = {run, c, c->scratch};
	int rc = race_open(c->race, &port);

	for (unsigned k = 0; k < KEYS && !rc; k++)
		operate(c, k, LINEAR_GET);
	if (rc)
		wrong(c->tw, "open at the end", 0, rc);
	c->ended = true;
}

/* --- a run --------------------------------------------------------------- */

static void client_new(struct world *tw, unsigned i, uint64_t seed)
{
	struct client *c = &tw->c[i];

	*c = (struct client){.tw = tw,
			     .race = calloc(1, sizeof(*c->race)),
			     .scratch = calloc(1, RACE_SCRATCH)};
	assert_true(c->race && c->scratch);
	prng_init(&c->r, seed * 64 + i);
	c->ops = 60 + (unsigned)prng_below(&c->r, 160);
	c->lists_left = i % 3 == 1 ? 1 + prng_below(&c->r, 2000) : UINT64_MAX;
}

static bool ended(const struct world *tw, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		if (!tw->c[i].ended)
			return false;
	return true;
}

static void play(struct world *tw, struct sim_proc *proc, unsigned n,
		 uint64_t seed)
{
	for (unsigned i = 0; i <= n; i++)
		client_new(tw, i, seed);
	for (unsigned i = 0; i < n; i++)
		assert_int_equal(
			sim_spawn(proc, "client", client_main, &tw->c[i]), 0);
	sim_run(tw->w, 4000000000ull);
	if (!ended(tw, n))
		wrong(tw, "clients come to no end", 0, 0);
	tw->c[n].lists_left = UINT64_MAX;
	assert_int_equal(sim_spawn(proc, "last", last_main, &tw->c[n]), 0);
	sim_run(tw->w, 8000000000ull);
	if (!tw->c[n].ended)
		wrong(tw, "the last one comes to no end", 0, 0);
}

static void wrong_history(struct world *tw, unsigned k)
{
	static const char *const names[] = {"get", "insert", "update",
					    "delete"};

	wrong(tw, "not linearizable", k, 0);
	for (unsigned i = 0; i < tw->n[k] && !tw->plant; i++) {
		const struct linear_op *op = &tw->ops[k][i];

		print_message("%s %u%s: %llu to %llu\n", names[op->kind],
			      op->value, op->failed ? " failed" : "",
			      (unsigned long long)op->begin,
			      (unsigned long long)op->end);
	}
}

/* NULL, or what was wrong. */
static const char *run_seed(uint64_t seed, unsigned plant, uint64_t *splits)
{
	static struct world tw;
	struct sim_conf wc = {.seed = seed};
	struct sim_node *node;
	struct sim_proc *proc;
	struct prng r;
	unsigned n;

	memset(&tw, 0, sizeof(tw));
	prng_init(&r, seed);
	n = 2 + (unsigned)prng_below(&r, CLIENTS_MAX - 1);
	tw.plant = plant;
	tw.pause = 1u << (4 + prng_below(&r, 7));
	tw.mem = calloc(1, MEM);
	assert_non_null(tw.mem);
	assert_int_equal(race_format(tw.mem, MEM, 4, 2), 0);
	assert_int_equal(sim_world_new(&wc, &tw.w), 0);
	assert_int_equal(sim_node_new(tw.w, "n", 16, &node), 0);
	assert_int_equal(sim_proc_new(node, "p", &proc), 0);
	play(&tw, proc, n, seed);
	for (unsigned k = 0; k < KEYS && !*tw.why; k++)
		if (linear_check(tw.ops[k], tw.n[k]))
			wrong_history(&tw, k);
	for (unsigned i = 0; i <= n; i++) {
		*splits += tw.c[i].splits + tw.c[i].race->stats.splits;
		free(tw.c[i].race);
		free(tw.c[i].scratch);
	}
	sim_world_free(tw.w);
	free(tw.mem);
	return *tw.why ? tw.why : NULL;
}

static void test_linearizable(void **state)
{
	unsigned seeds = getenv("RACE_SEEDS")
				 ? (unsigned)atoi(getenv("RACE_SEEDS"))
				 : 300;
	uint64_t splits = 0;

	for (unsigned seed = 1; seed <= seeds; seed++) {
		const char *why = run_seed(seed, 0, &splits);

		if (why)
			fail_msg("seed %u: %s", seed, why);
	}
	assert_true(splits > seeds);
}

static void found(unsigned plant, unsigned seeds)
{
	const char *why = NULL;
	uint64_t splits = 0;
	unsigned seed = 0;

	while (!why && seed < seeds)
		why = run_seed(++seed, plant, &splits);
	if (!why)
		fail_msg("mistake %#x: %u seeds found nothing", plant, seeds);
	print_message("mistake %#x: seed %u: %s\n", plant, seed, why);
}

static void test_early(void **state)
{
	found(RACE_PLANT_EARLY, 50);
}

static void test_mark(void **state)
{
	found(RACE_PLANT_MARK, 400);
}

static void test_again(void **state)
{
	found(RACE_PLANT_AGAIN, 400);
}

static void test_open(void **state)
{
	found(RACE_PLANT_OPEN, 400);
}

static void test_freeze(void **state)
{
	found(RACE_PLANT_FREEZE, 2000);
}

static void test_no_help(void **state)
{
	found(RACE_PLANT_NO_HELP, 400);
}

/* --- a split in the middle of a READ ------------------------------------- */

struct flat {
	uint8_t *mem;
	uint64_t len;
	struct race *other; /* splits in the middle of the next look */
};

static void flat_one(struct flat *f, const struct race_req *q)
{
	uint8_t *at = f->mem + q->at;
	uint64_t was;

	if (q->verb == RACE_READ) {
		memcpy(q->buf, at, q->len);
	} else if (q->verb == RACE_WRITE) {
		memcpy(at, q->buf, q->len);
	} else {
		memcpy(&was, at, 8);
		if (q->verb == RACE_FAA)
			*(uint64_t *)(void *)at += q->value;
		else if (was == q->compare)
			*(uint64_t *)(void *)at = q->value;
		memcpy(q->buf, &was, 8);
	}
}

static void split_now(struct race *other)
{
	for (unsigned i = 0; !other->stats.splits; i++) {
		char name[16];

		snprintf(name, sizeof(name), "more%u", i);
		assert_int_equal(race_insert(other, name, strlen(name), "x", 1),
				 0);
	}
}

static int flat_run(void *arg, const struct race_req *reqs, unsigned n)
{
	struct flat *f = arg;
	struct race *other = f->other;
	uint64_t marks[4];

	for (unsigned i = 0; i < n; i++)
		if (reqs[i].at > f->len || reqs[i].len > f->len - reqs[i].at)
			return -EACCES;
	if (other && n == 6) {
		f->other = NULL;
		/* The marks are read before the slots beside them. */
		for (unsigned i = 0; i < 4; i++)
			memcpy(&marks[i], f->mem + reqs[2 + i].at, 8);
		split_now(other);
	}
	for (unsigned i = 0; i < n; i++) {
		flat_one(f, &reqs[i]);
		for (unsigned k = 0; other && n == 6 && i < 2 && k < 2; k++)
			memcpy((uint8_t *)reqs[i].buf + (size_t)k * RACE_LINE,
			       &marks[2 * i + k], 8);
	}
	return 0;
}

/* What a get says of a record that is moved while its bucket is read. */
static int get_moved(unsigned plant)
{
	struct flat f = {calloc(1, MEM_SMALL * 8), MEM_SMALL * 8, NULL};
	struct race *r = calloc(2, sizeof(*r));
	struct race_port ports[2] = {{flat_run, &f, calloc(1, RACE_SCRATCH)},
				     {flat_run, &f, calloc(1, RACE_SCRATCH)}};
	size_t len = 8;
	char val[8];
	uint32_t key = 0;
	int rc;

	assert_true(f.mem && r && ports[0].scratch && ports[1].scratch);
	assert_int_equal(race_format(f.mem, f.len, 4, 2), 0);
	for (unsigned i = 0; i < 2; i++)
		assert_int_equal(race_open(&r[i], &ports[i]), 0);
	while (!(race_hash(&key, sizeof(key)) & 1))
		key++;
	assert_int_equal(race_insert(&r[0], &key, sizeof(key), "val", 3), 0);
	r[0].plant = plant;
	f.other = &r[1];
	rc = race_get(&r[0], &key, sizeof(key), val, &len);
	assert_int_equal(r[1].stats.splits, 1);
	for (unsigned i = 0; i < 2; i++)
		free(ports[i].scratch);
	free(f.mem);
	free(r);
	return rc;
}

static void test_heads(void **state)
{
	assert_int_equal(get_moved(0), 0);
	assert_int_equal(get_moved(RACE_PLANT_HEADS), -ENOENT);
}

/* --- what does not parse ------------------------------------------------- */

/* Any byte of head and directory changed: it is refused, or nothing outside is
 * asked for. */
static void test_garbage(void **state)
{
	struct flat f = {calloc(1, MEM_SMALL), MEM_SMALL, NULL};
	struct race_port port = {flat_run, &f, calloc(1, RACE_SCRATCH)};
	struct race *r = calloc(1, sizeof(*r));
	unsigned char val[64];
	size_t len;
	int rc;

	assert_true(f.mem && port.scratch && r);
	for (unsigned bit = 0; bit < (RACE_LINE + 128) * 8; bit++) {
		memset(f.mem, 0, MEM_SMALL);
		assert_int_equal(race_format(f.mem, MEM_SMALL, 4, 2), 0);
		f.mem[bit / 8] ^= (uint8_t)(1 << bit % 8);
		rc = race_open(r, &port);
		if (bit < RACE_NEXT_AT * 8)
			assert_int_equal(rc, -EBADMSG);
		for (unsigned k = 0; k < 16 && !rc; k++) {
			len = sizeof(val);
			rc = race_get(r, &k, sizeof(k), val, &len);
			assert_true(rc == -ENOENT || rc == -EBADMSG);
			rc = rc == -ENOENT ? 0 : rc;
		}
	}
	free(f.mem);
	free(port.scratch);
	free(r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_linearizable),
		cmocka_unit_test(test_early),
		cmocka_unit_test(test_mark),
		cmocka_unit_test(test_again),
		cmocka_unit_test(test_heads),
		cmocka_unit_test(test_open),
		cmocka_unit_test(test_freeze),
		cmocka_unit_test(test_no_help),
		cmocka_unit_test(test_garbage),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
