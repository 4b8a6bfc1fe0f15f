/* SPDX-License-Identifier: MIT */
/*
 * test_check.c - the comparer can fail: what soft really did with a program is
 * accepted, and rejected as soon as one thing in it is falsified.
 */
#include "normal.h"
#include "run.h"
#include "unit/part.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define SEEDS 12
#define EPOCHS 8

struct record {
	struct program p;
	struct outcome o;
	int n;
	struct epoch e[EPOCHS];
};

static struct world world;

static void keep(void *arg, const struct epoch *e)
{
	struct record *r = arg;

	if (r->n < EPOCHS)
		r->e[r->n++] = *e;
}

/* Does the comparer accept the first n epochs? */
static bool accepts(struct record *r, int n)
{
	struct check c;
	bool ok = true;
	int i;

	check_init(&c, &r->p, r->o.granted, 0);
	for (i = 0; i < n && ok; i++)
		ok = check_epoch(&c, &r->e[i]);
	check_fini(&c);
	return ok;
}

/* The k-th completion with success, of a receive or of a request. */
static struct ev *success(struct epoch *e, bool recv, int k)
{
	int i;

	for (i = 0; i < e->n; i++)
		if (e->ev[i].kind == EV_WC && !e->ev[i].wc.status &&
		    id_recv(e->ev[i].wc.id) == recv && k-- == 0)
			return &e->ev[i];
	return NULL;
}

/* What the lies are about. */
static const struct program *about;

/* Datagrams may be lost, and overtake each other. */
static bool of_ud(const struct ev *v)
{
	return about->cfg[v->pair].type == IBV_QPT_UD;
}

static bool ud_cq(const struct ev *v)
{
	int i;

	for (i = 0; i < about->pairs; i++)
		if (about->cfg[i].type == IBV_QPT_UD &&
		    about->cfg[i].qp[v->side].rcq == v->cq)
			return true;
	return false;
}

/* Each makes one thing wrong; false when there is nothing to do it to. */
static bool drop_wc(struct epoch *e)
{
	struct ev *v = success(e, true, 0);

	if (!v || of_ud(v))
		return false;
	memmove(v, v + 1, (size_t)(&e->ev[--e->n] - v) * sizeof(*v));
	return true;
}

static bool double_wc(struct epoch *e)
{
	struct ev *v = success(e, false, 0);

	if (!v)
		return false;
	e->ev[e->n++] = *v;
	return true;
}

static bool swap_wcs(struct epoch *e)
{
	struct ev *a = success(e, true, 0), *b = success(e, true, 1), t;

	if (!b || of_ud(b) || a->pair != b->pair || a->side != b->side)
		return false;
	t = *a;
	*a = *b;
	*b = t;
	return true;
}

static bool byte_len(struct epoch *e)
{
	struct ev *v = success(e, true, 0);

	if (v)
		v->wc.byte_len++;
	return v;
}

static bool immediate(struct epoch *e)
{
	struct ev *v = success(e, true, 0);

	if (v)
		v->wc.flags ^= IBV_WC_WITH_IMM;
	return v;
}

static bool status(struct epoch *e)
{
	struct ev *v = success(e, false, 0);

	if (v)
		v->wc.status = IBV_WC_REM_OP_ERR;
	return v;
}

static bool opcode(struct epoch *e)
{
	struct ev *v = success(e, false, 0);

	if (v)
		v->wc.opcode = IBV_WC_BIND_MW;
	return v;
}

static bool other_cq(struct epoch *e)
{
	struct ev *v = success(e, true, 0);

	if (v)
		v->cq = (uint8_t)((v->cq + 1) % CQS);
	return v;
}

static bool other_qp(struct epoch *e)
{
	struct ev *v = success(e, true, 0);

	if (v)
		v->wc.qp_ok = false;
	return v;
}

/* Nobody writes where requests only read. */
static bool memory(struct epoch *e)
{
	e->mem[0][1][SRC_AT + SRC_LEN - 1] ^= 1;
	return true;
}

static bool state(struct epoch *e)
{
	e->state[0][0] =
		e->state[0][0] == IBV_QPS_RTS ? IBV_QPS_ERR : IBV_QPS_RTS;
	return true;
}

static bool more_events(struct epoch *e)
{
	e->ev[e->n++] = (struct ev){.kind = EV_EVENT, .cq = CQS - 1};
	e->ev[e->n++] = (struct ev){.kind = EV_EVENT, .cq = CQS - 1};
	e->ev[e->n++] = (struct ev){.kind = EV_EVENT, .cq = CQS - 1};
	return true;
}

static bool fewer_events(struct epoch *e)
{
	int i;

	for (i = 0; i < e->n; i++)
		if (e->ev[i].kind == EV_EVENT && !ud_cq(&e->ev[i])) {
			e->ev[i] = e->ev[--e->n];
			return true;
		}
	return false;
}

static bool refused(struct epoch *e)
{
	int i;

	for (i = 0; i < e->n; i++)
		if (e->ev[i].kind == EV_STEP && !e->ev[i].ret &&
		    e->ev[i].step->kind == STEP_SEND) {
			e->ev[i].ret = 12; /* ENOMEM */
			e->ev[i].n = 0;
			return true;
		}
	return false;
}

/* Only a post's: whether a state may be left, the device's own moves decide. */
static bool accepted(struct epoch *e)
{
	int i;

	for (i = 0; i < e->n; i++)
		if (e->ev[i].kind == EV_STEP && e->ev[i].ret == EINVAL &&
		    (e->ev[i].step->kind == STEP_SEND ||
		     e->ev[i].step->kind == STEP_RECV)) {
			e->ev[i].ret = 0;
			e->ev[i].n = e->ev[i].step->n;
			return true;
		}
	return false;
}

static bool late_write(struct epoch *e)
{
	e->shut[0][0] = true;
	memcpy(e->then[0][0], e->mem[0][0] + REM_AT, LANE - REM_AT);
	e->then[0][0][5] ^= 1;
	return true;
}

static bool (*const falsify[])(struct epoch *e) = {
	drop_wc,      double_wc, swap_wcs, byte_len,   immediate, status,
	opcode,	      other_cq,	 other_qp, memory,     state,	  more_events,
	fewer_events, refused,	 accepted, late_write,
};

#define LIES (sizeof(falsify) / sizeof(falsify[0]))

static void record(struct record *r, uint64_t seed)
{
	struct audience to = {keep, r};

	program_make(&r->p, seed, &world.features);
	program_run(&world, &r->p, NULL, &to, &r->o);
	if (!r->o.ok)
		fail_msg("seed %llu: %s", (unsigned long long)seed, r->o.why);
	assert_true(r->n > 0);
	assert_true(accepts(r, r->n));
}

static void test_lies_are_found(void **unused)
{
	struct record *r;
	int told[LIES] = {0}, e;
	struct epoch *was = malloc(sizeof(*was));
	uint64_t seed;
	size_t i;

	(void)unused;
	for (seed = 1; seed <= SEEDS; seed += part_is_whole() ? 1 : 3) {
		r = calloc(1, sizeof(*r));
		about = &r->p;
		record(r, seed);
		for (e = 0; e < r->n; e++) {
			*was = r->e[e];
			for (i = 0; i < LIES; i++) {
				if (falsify[i](&r->e[e])) {
					told[i]++;
					if (accepts(r, e + 1))
						fail_msg("seed %d epoch %d: "
							 "lie %zu believed",
							 (int)seed, e, i);
				}
				r->e[e] = *was;
			}
		}
		free(r);
	}
	for (i = 0; i < LIES; i++)
		assert_true(told[i] > 0);
	free(was);
}

static char *form(const struct program *p, const struct epoch *e)
{
	char *text = NULL;
	size_t len;
	FILE *f = open_memstream(&text, &len);

	normal_print(p, e, false, f);
	fclose(f);
	return text;
}

/* Lies about them would not show. */
static void drop_marks(struct epoch *e)
{
	int i, n = 0;

	for (i = 0; i < e->n; i++)
		if (e->ev[i].kind != EV_WC || !(e->ev[i].wc.id & ID_MARK))
			e->ev[n++] = e->ev[i];
	e->n = n;
}

/* What the comparer rejects, the normal form shows. */
static void lie_shows(const struct program *p, struct epoch *e,
		      bool (*lie)(struct epoch *), int *told)
{
	struct epoch *was = malloc(sizeof(*was));
	char *truth = form(p, e), *lied;

	*was = *e;
	if (lie(e)) {
		lied = form(p, e);
		assert_string_not_equal(truth, lied);
		free(lied);
		++*told;
	}
	*e = *was;
	free(was);
	free(truth);
}

static void test_normal_form(void **unused)
{
	static bool (*const lies[])(struct epoch *) = {
		drop_wc, double_wc, swap_wcs, byte_len, immediate, status,
		opcode,	 other_qp,  memory,   state,	refused,   fewer_events,
	};
	int told[sizeof(lies) / sizeof(lies[0])] = {0}, e;
	struct record *a, *b;
	uint64_t seed;
	char *x, *y;
	size_t i;

	(void)unused;
	world.features.tame = true;
	world.features.types = 1u << IBV_QPT_RC;
	for (seed = 1; seed <= SEEDS; seed++) {
		a = calloc(1, sizeof(*a));
		b = calloc(1, sizeof(*b));
		about = &a->p;
		record(a, seed);
		record(b, seed);
		assert_int_equal(a->n, b->n);
		for (e = 0; e < a->n; e++) {
			x = form(&a->p, &a->e[e]);
			y = form(&b->p, &b->e[e]);
			assert_string_equal(x, y);
			free(x);
			free(y);
			drop_marks(&a->e[e]);
			for (i = 0; i < sizeof(lies) / sizeof(lies[0]); i++)
				lie_shows(&a->p, &a->e[e], lies[i], &told[i]);
		}
		free(a);
		free(b);
	}
	for (i = 0; i < sizeof(lies) / sizeof(lies[0]); i++)
		assert_true(told[i] > 0);
}

static int open_world(void **unused)
{
	(void)unused;
	return world_open(&world, "soft", "soft");
}

static int close_world(void **unused)
{
	(void)unused;
	world_close(&world);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_lies_are_found),
		cmocka_unit_test(test_normal_form),
	};

	unsetenv("SKEIN_SOFT_HARSH");
	return cmocka_run_group_tests(tests, open_world, close_world);
}
