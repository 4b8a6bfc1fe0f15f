/* SPDX-License-Identifier: MIT */
/*
 * call.c - the client's end of ud_rpc: threads that keep a window of calls on
 * their way, one QP and session each, and what they measured.
 */
#include "client.h"
#include "ctl.h"
#include "ends.h"

#include "base/hist.h"
#include "env/env.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
	WARM_PART = 5,
	SAMPLE_EACH = 64,  /* calls, where more than one is outstanding */
	CLOCK_ROUNDS = 32, /* between two looks at the clock */
	GONE_ROUNDS = 1 << 20,
};

#define PATIENCE_NS 10000000000u

struct calling;

struct caller {
	struct calling *all;
	struct env_thread *thread;
	struct ud_client client;
	struct ud_loss loss;
	unsigned index;
	uint64_t now, fruit_ns;
	uint64_t issued, done;
	uint64_t *begun; /* of each slot's call; 0: not timed */
	bool over;	 /* no more calls */
	/* what is measured */
	uint64_t from_ns, till_ns, done_before, ops;
	struct hist lat;
	int rc;
	const char *why;
};

struct calling {
	struct ud_end end;
	int ctl;
	uint64_t begin_ns, warm_ns, end_ns;
	struct caller *callers;
	struct ud_tally tally; /* the server's */
};

/* --- one thread --------------------------------------------------------- */

static unsigned char pattern(const struct caller *x, uint64_t number, size_t i)
{
	return (unsigned char)(prng_mix(number ^ (uint64_t)x->index << 48) +
			       i * 7);
}

static void call(struct caller *x, unsigned slot)
{
	const struct ud_opts *o = x->all->end.o;
	unsigned char *data = ud_client_data(&x->client, slot);
	uint64_t number = ud_client_call(&x->client, slot, o->size);

	for (size_t i = 0; o->check && i < o->size; i++)
		data[i] = pattern(x, number, i);
	x->begun[slot] = 0;
	/* Of a lone call, the clock's last look: its predecessor's end. */
	if (o->window == 1)
		x->begun[slot] = x->now;
	else if (x->issued % SAMPLE_EACH == 0)
		x->begun[slot] = env_now_ns(x->all->end.env);
	x->issued++;
}

static bool same(const struct caller *x, unsigned slot, const void *data,
		 size_t len)
{
	uint64_t number = x->client.slots[slot].head->number;
	const unsigned char *bytes = data;

	for (size_t i = 0; i < len; i++)
		if (bytes[i] != pattern(x, number, i))
			return false;
	return true;
}

static bool more(const struct caller *x)
{
	uint64_t calls = x->all->end.o->calls;

	return calls ? x->issued < calls : !x->over;
}

static void on_done(void *arg, unsigned slot, const void *data, size_t len)
{
	struct caller *x = arg;
	const struct ud_opts *o = x->all->end.o;

	x->done++;
	if (len != o->size || (o->check && !same(x, slot, data, len))) {
		x->rc = -EBADMSG;
		x->why = "a response is not what was sent";
		return;
	}
	if (x->begun[slot]) {
		x->now = env_now_ns(x->all->end.env);
		hist_record(&x->lat, x->now - x->begun[slot]);
	}
	if (more(x))
		call(x, slot);
}

/* Begins and ends what is measured. */
static void look_at_clock(struct caller *x)
{
	x->now = env_now_ns(x->all->end.env);
	if (x->all->end.o->calls)
		return;
	if (!x->from_ns && x->now >= x->all->warm_ns) {
		x->from_ns = x->now;
		x->done_before = x->done;
		hist_init(&x->lat);
	}
	if (!x->over && x->now >= x->all->end_ns) {
		x->over = true;
		x->till_ns = x->now;
		x->ops = x->done - x->done_before;
	}
}

/* A look that the clock's rounds are too many for. */
static void look_at_server(struct caller *x)
{
	if (ud_ctl_gone(x->all->ctl))
		x->why = "the server has gone";
	else if (x->now - x->fruit_ns > PATIENCE_NS)
		x->why = "the server does not answer";
	if (x->why)
		x->rc = -ETIMEDOUT;
}

static void caller_main(void *arg)
{
	struct caller *x = arg;
	const struct ud_opts *o = x->all->end.o;
	unsigned dry = 0, n, rounds = 0;
	int rc = 0;

	look_at_clock(x);
	x->fruit_ns = x->now;
	if (o->calls)
		x->from_ns = x->now;
	for (unsigned i = 0; i < o->window && more(x); i++)
		call(x, i);
	while (!rc && !x->rc && (x->done < x->issued || more(x))) {
		rc = ud_client_round(&x->client, x->now, &n);
		if (++rounds % CLOCK_ROUNDS == 0)
			look_at_clock(x);
		if (n) {
			x->fruit_ns = x->now;
			dry = 0;
			continue;
		}
		ud_rest(&dry, o->threads);
		if (dry % GONE_ROUNDS == 0)
			look_at_server(x);
	}
	if (rc)
		x->rc = rc;
	if (o->calls) {
		x->till_ns = env_now_ns(x->all->end.env);
		x->ops = x->done;
	}
}

/* --- all ---------------------------------------------------------------- */

static int caller_open(struct calling *a, unsigned i)
{
	const struct ud_opts *o = a->end.o;
	struct caller *x = &a->callers[i];
	struct ud_client_conf conf = {
		.port = {.dev = a->end.dev,
			 .pd = a->end.pd,
			 .size = (uint32_t)o->size},
		.slots = (unsigned)o->window,
		.credits = (unsigned)o->credits,
		.timeout_ns = o->timeout_ns,
		.done = on_done,
		.arg = x,
	};

	x->all = a;
	x->index = i;
	hist_init(&x->lat);
	x->begun = calloc(o->window, sizeof(*x->begun));
	if (!x->begun)
		return -ENOMEM;
	ud_loss_init(&x->loss, o, i, &conf.port);
	return ud_client_open(&x->client, &conf);
}

static int failed(const struct calling *a, int rc)
{
	if (rc == -EMSGSIZE)
		fprintf(stderr,
			"ud_rpc: -s %llu: with its header a request is one "
			"datagram, here at most %u bytes\n",
			(unsigned long long)a->end.o->size,
			128u << a->end.dev->port_attr.active_mtu);
	else if (rc)
		fprintf(stderr, "ud_rpc: %s\n", strerror(-rc));
	return rc;
}

static int meet(struct calling *a)
{
	const struct ud_opts *o = a->end.o;
	struct ud_hello hello = {UD_HELLO, (uint32_t)o->threads,
				 (uint32_t)o->window, (uint32_t)o->credits,
				 (uint32_t)o->size};
	static struct dev_qp_addr mine[UD_THREADS_MAX];
	static struct ud_place places[UD_THREADS_MAX];
	struct ud_welcome welcome;
	int rc = 0;

	for (unsigned i = 0; i < o->threads; i++)
		ud_port_addr(&a->callers[i].client.port, &mine[i]);
	if (!ud_ctl_send(a->ctl, &hello, sizeof(hello)) ||
	    !ud_ctl_send(a->ctl, mine, o->threads * sizeof(*mine)) ||
	    !ud_ctl_recv(a->ctl, &welcome, sizeof(welcome)))
		return failed(a, -ECONNRESET);
	if (welcome.rc) {
		fprintf(stderr, "ud_rpc: the server refuses: %.*s\n",
			(int)sizeof(welcome.why), welcome.why);
		return -ECONNREFUSED;
	}
	if (!ud_ctl_recv(a->ctl, places, o->threads * sizeof(*places)))
		return failed(a, -ECONNRESET);
	for (unsigned i = 0; i < o->threads && !rc; i++)
		rc = ud_client_connect(&a->callers[i].client, &places[i].addr,
				       places[i].session);
	return failed(a, rc);
}

static int run(struct calling *a)
{
	const struct ud_opts *o = a->end.o;
	int rc = 0;

	a->begin_ns = env_now_ns(a->end.env);
	a->warm_ns = a->begin_ns + o->duration_ns / WARM_PART;
	a->end_ns = a->begin_ns + o->duration_ns;
	for (unsigned i = 0; i < o->threads && !rc; i++)
		rc = env_thread_start(a->end.env, "ud", caller_main,
				      &a->callers[i], &a->callers[i].thread);
	for (unsigned i = 0; i < o->threads; i++) {
		struct caller *x = &a->callers[i];

		if (x->thread)
			env_thread_join(a->end.env, x->thread);
		if (x->rc && !rc) {
			rc = x->rc;
			fprintf(stderr, "ud_rpc: %s\n",
				x->why ? x->why : strerror(-rc));
		}
	}
	if (!rc && (!ud_ctl_send(a->ctl, "e", 1) ||
		    !ud_ctl_recv(a->ctl, &a->tally, sizeof(a->tally))))
		rc = failed(a, -ECONNRESET);
	return rc;
}

struct total {
	uint64_t ops, done, again, stale, strange, lost, doorbells;
	unsigned under_way_max;
	double rate;
	struct hist lat;
};

static void add_up(const struct calling *a, struct total *t)
{
	hist_init(&t->lat);
	for (unsigned i = 0; i < a->end.o->threads; i++) {
		const struct caller *x = &a->callers[i];
		const struct ud_client *c = &x->client;

		t->ops += x->ops;
		t->done += x->done;
		t->again += c->counts.again;
		t->stale += c->counts.stale;
		t->strange += c->port.counts.strange;
		t->lost += c->port.counts.lost;
		t->doorbells += c->port.stats.doorbells;
		if (c->counts.under_way_max > t->under_way_max)
			t->under_way_max = c->counts.under_way_max;
		if (x->till_ns > x->from_ns)
			t->rate += (double)x->ops * 1e9 /
				   (double)(x->till_ns - x->from_ns);
		hist_merge(&t->lat, &x->lat);
	}
}

static unsigned long long ull(uint64_t n)
{
	return n;
}

static void report(const struct calling *a)
{
	static struct total t;
	const struct ud_tally *s = &a->tally;
	const struct ud_opts *o = a->end.o;
	double calls;

	add_up(a, &t);
	calls = t.done ? (double)t.done : 1;
	if (!o->json) {
		printf("%llu calls of %llu B, %.0f a second, p50 %llu ns, p99 "
		       "%llu ns\n%llu requests sent again, %llu responses "
		       "again; %.3f doorbells a call, the server's %.3f\n",
		       ull(t.done), ull(o->size), t.rate,
		       ull(hist_percentile(&t.lat, 50)),
		       ull(hist_percentile(&t.lat, 99)), ull(t.again),
		       ull(s->answered_again), (double)t.doorbells / calls,
		       (double)s->doorbells / calls);
		return;
	}
	printf("{\"device\": \"%s:%s\", \"size\": %llu, \"threads\": %llu, "
	       "\"window\": %llu, \"credits\": %llu, ",
	       a->end.dev->ops->kind, a->end.dev->name, ull(o->size),
	       ull(o->threads), ull(o->window), ull(o->credits));
	printf("\"operations\": %llu, \"operations_run\": %llu, "
	       "\"rate_per_s\": %.1f, \"p50_ns\": %llu, \"p99_ns\": %llu, ",
	       ull(t.ops), ull(t.done), t.rate,
	       ull(hist_percentile(&t.lat, 50)),
	       ull(hist_percentile(&t.lat, 99)));
	printf("\"under_way_max\": %u, \"sent_again\": %llu, \"stale\": %llu, "
	       "\"strange\": %llu, \"lost\": %llu, \"doorbells\": %llu, ",
	       t.under_way_max, ull(t.again), ull(t.stale), ull(t.strange),
	       ull(t.lost), ull(t.doorbells));
	printf("\"server\": {\"executed\": %llu, \"answered_again\": %llu, "
	       "\"old\": %llu, \"strange\": %llu, \"lost\": %llu, "
	       "\"doorbells\": %llu, \"bursts\": %llu}}\n",
	       ull(s->executed), ull(s->answered_again), ull(s->old),
	       ull(s->strange), ull(s->lost), ull(s->doorbells),
	       ull(s->bursts));
}

static int call_all(struct calling *a)
{
	const struct ud_opts *o = a->end.o;
	int rc = 0;

	a->callers = calloc(o->threads, sizeof(*a->callers));
	if (!a->callers)
		rc = -ENOMEM;
	for (unsigned i = 0; i < o->threads && !rc; i++)
		rc = caller_open(a, i);
	rc = failed(a, rc);
	if (!rc)
		rc = meet(a);
	if (!rc)
		rc = run(a);
	if (!rc)
		report(a);
	for (unsigned i = 0; a->callers && i < o->threads; i++) {
		if (a->callers[i].client.slots)
			ud_client_close(&a->callers[i].client);
		free(a->callers[i].begun);
	}
	free(a->callers);
	return rc;
}

int ud_call(const struct ud_opts *o)
{
	struct calling a = {0};
	int rc = 1;

	if (ud_end_open(&a.end, o) == 0) {
		a.ctl = ud_ctl_connect(o->host, (uint16_t)o->port);
		rc = a.ctl < 0 || call_all(&a) != 0;
		if (a.ctl >= 0)
			close(a.ctl);
	}
	ud_end_close(&a.end);
	return rc;
}
