/* SPDX-License-Identifier: MIT */
/*
 * counters.c - makes the totals of an engine and writes them to its page; and
 * what reads a page. See counters.h.
 */
#include "conn/counters.h"

#include "conn/state.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

_Static_assert(sizeof(((struct counters_page *)0)->ctx) == HANDSHAKE_ID_LEN,
	       "the context's name");

static void left_active(struct polls_entry *e)
{
	counters_take(e->conn);
}

void counters_init(struct skein_engine *eng)
{
	struct counters *c = &eng->counters;

	/* A simulator's time would pass by it, and /proc knows no process of
	 * it. Tests count the allocations of an operation: the page comes in
	 * the middle of any. */
	c->off = eng->parks || eng->env->alloc_fails;
	c->next_ns = env_now_ns(eng->env) + COUNTERS_PERIOD_NS;
	if (!c->off)
		eng->polls.left = left_active;
}

void counters_fini(struct skein_engine *eng)
{
	struct counters *c = &eng->counters;

	if (c->page)
		env_mem_free(eng->env, c->fd, c->page, sizeof(*c->page));
	c->page = NULL;
	c->off = true;
}

/* --- connections --------------------------------------------------------- */

/* What conn has done in all its attempts. */
static void counts_of(struct skein_conn *conn, uint64_t *of)
{
	const struct conn_module *m;
	void *state;

	memset(of, 0, COUNTERS_OF_CONN * sizeof(*of));
	conn_sendq_hold(conn);
	if (conn->sendq) {
		of[COUNTER_MESSAGES] = conn_sendq_stats(conn)->send_wrs;
		of[COUNTER_BYTES] = conn_sendq_stats(conn)->bytes;
	}
	conn_sendq_release(conn);
	for (unsigned i = 0; (m = conn_modules[i]); i++) {
		state = conn_module_state(conn, m->id);
		if (m->counters && state)
			m->counters(conn, state, of);
	}
}

void counters_take(struct skein_conn *conn)
{
	uint64_t of[COUNTERS_OF_CONN], *sum = conn->eng->counters.sum;

	if (conn->eng->counters.off || !conn->begun)
		return;
	counts_of(conn, of);
	/* A difference may be below zero for what is counted "now": the sum
	 * stays right, by modulo. */
	for (unsigned i = 0; i < COUNTERS_OF_CONN; i++)
		sum[i] += of[i] - conn->counted[i];
	memcpy(conn->counted, of, sizeof(of));
}

/* The counter of what carries conn between hosts, or -1. */
static int carrier(struct skein_conn *conn)
{
	const char *link = conn_link(conn);

	if (!link)
		return -1;
	if (!strcmp(link, "udp"))
		return COUNTER_CONNS_UDP;
	return strcmp(link, "tcp") ? -1 : COUNTER_CONNS_TCP;
}

/* Where a connection has several lanes, lane 0 is counted. */
static void count_conn(struct skein_conn *conn, uint64_t one)
{
	uint64_t *sum = conn->eng->counters.sum;

	if (conn->lane)
		return;
	sum[conn->client ? COUNTER_CONNS_OPENED : COUNTER_CONNS_ACCEPTED] +=
		one;
	if (conn->carrier >= 0)
		sum[conn->carrier] += one;
}

void counters_up(struct skein_conn *conn)
{
	struct counters *c = &conn->eng->counters;

	if (c->off)
		return;
	/* Modules begin some counts anew with each attempt. */
	counts_of(conn, conn->counted);
	conn->carrier = carrier(conn);
	count_conn(conn, 1);
	if (!conn->lane)
		c->sum[conn->client ? COUNTER_OPENED : COUNTER_ACCEPTED]++;
}

void counters_down(struct skein_conn *conn)
{
	if (conn->eng->counters.off)
		return;
	counters_take(conn);
	count_conn(conn, -1ull);
	/* What was "now" is no more. */
	conn->eng->counters.sum[COUNTER_STREAMS] -=
		conn->counted[COUNTER_STREAMS];
}

static void take_active(struct skein_engine *eng)
{
	for (unsigned i = 0; i < eng->polls.active; i++)
		counters_take(eng->polls.e[i]->conn);
}

/* A thread's memory operations leave its connection silent: so all of them have
 * a turn. */
static void take_silent(struct skein_engine *eng)
{
	struct polls *p = &eng->polls;
	unsigned i, n = p->n - p->active, at = eng->counters.next;

	if (n > COUNTERS_TURN)
		n = COUNTERS_TURN;
	for (i = 0; i < n; i++, at++) {
		if (at < p->active || at >= p->n)
			at = p->active;
		counters_take(p->e[at]->conn);
	}
	eng->counters.next = at;
}

/* --- the page ------------------------------------------------------------ */

static void page_make(struct skein_engine *eng)
{
	struct counters *c = &eng->counters;
	const struct dev *dev = eng->dev;
	struct counters_page *page;
	void *mem;
	int rc;

	rc = env_mem_alloc(eng->env, COUNTERS_NAME, sizeof(*page), &c->fd,
			   &mem);
	if (rc) {
		c->off = true;
		env_log(eng->env, ENV_LOG_DEBUG,
			"skein top will not see this context: no memory that "
			"others can read: %s",
			skein_strerror(rc));
		return;
	}
	page = mem;
	page->len = sizeof(*page);
	page->pid = eng->ctx->pid;
	memcpy(page->ctx, eng->ctx->id, sizeof(page->ctx));
	snprintf(page->device, sizeof(page->device), "%s (%s)", dev->ops->kind,
		 dev->name);
	c->page = page;
}

static void of_ctx(const struct skein_ctx *ctx, uint64_t *values)
{
	values[COUNTER_BROKEN] =
		atomic_load_explicit(&ctx->counts.broken, memory_order_relaxed);
	values[COUNTER_GARBAGE] = atomic_load_explicit(&ctx->counts.garbage,
						       memory_order_relaxed);
	values[COUNTER_REFUSED] = atomic_load_explicit(&ctx->counts.refused,
						       memory_order_relaxed);
	values[COUNTER_TIMEOUTS] = atomic_load_explicit(&ctx->counts.timeouts,
							memory_order_relaxed);
	values[COUNTER_DEATHS] =
		atomic_load_explicit(&ctx->counts.deaths, memory_order_relaxed);
}

static void page_write(struct skein_engine *eng, uint64_t now_ns)
{
	struct counters_page *page = eng->counters.page;
	uint64_t values[COUNTERS];

	memcpy(values, eng->counters.sum, sizeof(values));
	values[COUNTER_MESSAGES] += eng->stats.send_wrs;
	values[COUNTER_BYTES] += eng->stats.bytes;
	values[COUNTER_WAKEUPS] = eng->stats.wakeups;
	if (eng == eng->ctx->engine)
		of_ctx(eng->ctx, values);
	for (unsigned i = 0; i < COUNTERS; i++)
		atomic_store_explicit(&page->values[i], values[i],
				      memory_order_relaxed);
	atomic_store_explicit(&page->time_ns, now_ns, memory_order_relaxed);
	/* Release pairs with the acquire of the reader, which then sees what
	 * page_make() has written, and values. */
	atomic_store_explicit(&page->magic, COUNTERS_MAGIC,
			      memory_order_release);
}

static bool due(const struct skein_engine *eng, uint64_t now_ns)
{
	/* A forked child has no such page, and its parent's counts. */
	return now_ns >= eng->counters.next_ns && !eng->counters.off &&
	       !env_forked(eng->env);
}

void counters_beat(struct skein_engine *eng, uint64_t now_ns)
{
	if (!due(eng, now_ns))
		return;
	eng->counters.next_ns = now_ns + COUNTERS_PERIOD_NS;
	if (!eng->counters.page)
		page_make(eng);
	if (!eng->counters.page)
		return;
	take_active(eng);
	take_silent(eng);
	page_write(eng, now_ns);
}

void counters_arm(struct skein_engine *eng)
{
	uint64_t now_ns = engine_now_ns(eng->e);

	if (!eng->counters.page) {
		counters_beat(eng, now_ns);
		return;
	}
	if (env_forked(eng->env))
		return;
	take_active(eng);
	page_write(eng, now_ns);
}

uint64_t counters_deadline(const struct skein_engine *eng)
{
	const struct counters *c = &eng->counters;

	return c->page || c->off ? ENV_NEVER : c->next_ns;
}

/* --- readers ------------------------------------------------------------- */

void counters_copy(const struct counters_page *page, struct counters_page *copy)
{
	/* Acquire pairs with the release in page_write(). */
	copy->magic = atomic_load_explicit(&page->magic, memory_order_acquire);
	copy->len = page->len;
	copy->pid = page->pid;
	memcpy(copy->ctx, page->ctx, sizeof(copy->ctx));
	memcpy(copy->device, page->device, sizeof(copy->device));
	copy->time_ns =
		atomic_load_explicit(&page->time_ns, memory_order_relaxed);
	for (unsigned i = 0; i < COUNTERS; i++)
		copy->values[i] = atomic_load_explicit(&page->values[i],
						       memory_order_relaxed);
}

int counters_decode(const void *bytes, size_t len, struct counters_record *out)
{
	struct counters_page page;
	unsigned i;

	if (len < sizeof(page))
		return -EINVAL;
	memcpy(&page, bytes, sizeof(page));
	if (!page.magic)
		return -EAGAIN;
	if (page.magic != COUNTERS_MAGIC || page.len != sizeof(page) ||
	    !memchr(page.device, 0, sizeof(page.device)))
		return -EINVAL;
	*out = (struct counters_record){.pid = page.pid,
					.time_ns = page.time_ns};
	memcpy(out->ctx, page.ctx, sizeof(out->ctx));
	for (i = 0; page.device[i]; i++)
		out->device[i] = isprint((unsigned char)page.device[i])
					 ? page.device[i]
					 : '?';
	for (i = 0; i < COUNTERS; i++)
		out->values[i] = page.values[i];
	return 0;
}
