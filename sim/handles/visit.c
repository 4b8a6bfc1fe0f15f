/* SPDX-License-Identifier: MIT */
/*
 * visit.c - a thread of a client of rpc-handles: it starts, makes calls
 * of all kinds and sizes and memory operations on handles that it shares with
 * other threads, and ends, sometimes with calls under way. The ledger judges
 * its results.
 */
#include "conn/ctx.h"
#include "sim/flip.h"
#include "sim/handles/rpc_handles.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define MS PARTY_MS
#define MEET_NS 50000u
#define LEN_MAX 70000u

static struct skein_env *env_of(struct handles_peer *p)
{
	return actor_env(&p->a);
}

static struct report *rep_of(const struct visitor *v)
{
	return v->p->ledger->rep;
}

static struct sim_world *world_of(const struct visitor *v)
{
	return v->p->a.party->w;
}

/* After the faults every call must succeed while the connection is up. */
static void must_succeed(const struct book *b, const char *what, int rc)
{
	if (rc && b->v->p->c->faults_over && handle_usable(b->h))
		report_fail(rep_of(b->v),
			    "client %u, thread %u: %s ended with %d, though "
			    "there are no faults any more",
			    b->v->p->a.i, b->v->number, what, rc);
}

static uint64_t draw_timeout(struct handles_peer *p)
{
	if (p->c->faults_over)
		return PATIENCE_NS;
	return handles_draw(p, 4) ? SKEIN_S(1)
				  : SKEIN_MS(1 + handles_draw(p, 20));
}

static bool past(const struct visitor *v, uint64_t end)
{
	return sim_thread_now(world_of(v)) >= end;
}

/* --- calls -------------------------------------------------------------- */

static size_t draw_len(struct handles_peer *p)
{
	switch (handles_draw(p, 40)) {
	case 0:
		return handles_draw(p, LEN_MAX);
	case 1:
	case 2:
	case 3:
		return handles_draw(p, 4000);
	default:
		return handles_draw(p, 200);
	}
}

/* The call and its request, in the process's memory. */
static unsigned char *request_new(struct book *b, uint32_t *uid, size_t *len)
{
	struct handles_peer *p = b->v->p;
	struct ledger_tag tag = {.seq = b->v->seq++,
				 .resp_len =
					 (uint32_t)(sizeof(tag) + draw_len(p)),
				 .client = (uint16_t)p->a.i,
				 .thread = b->v->number};
	enum ledger_how how = (enum ledger_how)(
		handles_draw(p, 3) ? LEDGER_INLINE
				   : handles_draw(p, LEDGER_HOWS));
	unsigned char *buf;

	*len = sizeof(tag) + draw_len(p);
	buf = env_alloc(env_of(p), *len);
	if (!buf)
		return NULL;
	*uid = ledger_call(p->ledger, &tag, b->session, how);
	if (*uid != LEDGER_NONE) {
		ledger_request(p->ledger, *uid, buf, *len);
		return buf;
	}
	env_free(env_of(p), buf);
	return NULL;
}

static const struct ledger_call *call_of(const struct book *b, uint32_t uid)
{
	return &b->v->p->ledger->calls[uid];
}

static void flip(struct book *b)
{
	struct handles_peer *p = b->v->p;

	if (b->h->flips && !handles_draw(p, 4))
		sim_flip_return(b->h->conn, handles_draw(p, SIM_FLIPS));
}

static void call_blocking(struct book *b)
{
	struct skein_rpc_result res = {.outcome = SKEIN_NOT_SENT};
	struct handles_peer *p = b->v->p;
	struct skein_env *env = env_of(p);
	const struct ledger_call *call;
	unsigned char *buf, *resp;
	uint32_t uid;
	size_t len;
	int rc;

	buf = request_new(b, &uid, &len);
	if (!buf)
		return;
	call = call_of(b, uid);
	resp = env_alloc(env, call->tag.resp_len);
	if (!resp) {
		ledger_call_refused(p->ledger, uid);
		env_free(env, buf);
		return;
	}
	b->v->inside = true;
	flip(b);
	rc = skein_rpc_call(b->h->conn, HANDLES_ECHO + call->how, buf, len,
			    resp, call->tag.resp_len, draw_timeout(p), &res);
	b->v->inside = false;
	res.status = rc;
	ledger_ended(p->ledger, uid, &res, resp);
	must_succeed(b, "a call", rc);
	env_free(env, resp);
	env_free(env, buf);
}

struct pending {
	struct book *b;
	uint32_t uid;
};

static void call_async(struct book *b, bool wait);

static void call_done(void *arg, const struct skein_rpc_result *res)
{
	struct pending *done = arg;
	struct book *b = done->b;
	struct handles_peer *p = b->v->p;

	if (!b->v->left && env_thread_self(env_of(p)) != b->v->self)
		report_fail(rep_of(b->v), "call %u ended in another thread",
			    done->uid);
	ledger_ended(p->ledger, done->uid, res, res->data);
	must_succeed(b, "a call", res->status);
	b->v->outstanding--;
	p->c->outstanding--;
	env_free(env_of(p), done);
	if (!b->v->left && !b->v->inside && !handles_draw(p, 16))
		call_async(b, false);
}

/* Makes progress; if nothing moved, lets other threads run. */
static void reap(struct book *b, uint64_t timeout_ns)
{
	int n = skein_rpc_reap(b->h->conn, timeout_ns);

	if (n < 0 && n != -ETIMEDOUT && n != -ENOTCONN)
		must_succeed(b, "reaping", n);
	if (n <= 0)
		sim_sleep(world_of(b->v), 1000);
}

/* 0 if the call was made, else the reason. wait: waits for room if there is
 * none. */
static int call_start(struct book *b, struct pending *done, const void *buf,
		      size_t len, bool wait)
{
	const struct ledger_call *call = call_of(b, done->uid);
	struct handles_peer *p = b->v->p;
	uint64_t timeout = draw_timeout(p),
		 end = sim_thread_now(world_of(b->v)) + timeout;
	int rc;

	b->v->inside = true;
	flip(b);
	do {
		rc = skein_rpc_call_async(b->h->conn, HANDLES_ECHO + call->how,
					  buf, len, call->tag.resp_len, timeout,
					  call_done, done);
		if (rc != -EAGAIN || !wait)
			break;
		reap(b, 20000);
	} while (handle_usable(b->h) && !past(b->v, end));
	b->v->inside = false;
	return rc;
}

static void call_async(struct book *b, bool wait)
{
	struct handles_peer *p = b->v->p;
	struct skein_env *env = env_of(p);
	struct pending *done;
	unsigned char *buf;
	uint32_t uid;
	size_t len;
	int rc;

	buf = request_new(b, &uid, &len);
	if (!buf)
		return;
	done = env_alloc(env, sizeof(*done));
	if (done) {
		*done = (struct pending){b, uid};
		b->v->outstanding++;
		p->c->outstanding++;
		rc = call_start(b, done, buf, len, wait);
		if (wait)
			must_succeed(b, "starting a call", rc);
		if (rc) {
			b->v->outstanding--;
			p->c->outstanding--;
			env_free(env, done);
			done = NULL;
		}
	}
	if (!done)
		ledger_call_refused(p->ledger, uid);
	env_free(env, buf);
}

/* --- memory operations -------------------------------------------------- */

/* Offsets in client.local of this thread: buffers of its WRITEs, and the buffer
 * of its READs. */
static uint64_t local_off(const struct book *b, unsigned i)
{
	uint64_t n = (uint64_t)(b->v - b->v->p->c->visitors) * HANDLES +
		     (uint64_t)(b->h - b->v->p->c->handles);

	return (n * (WRITES + 1) + i) * SLOT_LEN;
}

static unsigned char *local_buf(const struct book *b, unsigned i)
{
	return (unsigned char *)skein_mem_addr(b->v->p->c->local) +
	       local_off(b, i);
}

static uint64_t slot_off(const struct book *b)
{
	return AREA_SLOTS + (uint64_t)b->slot * SLOT_LEN;
}

static unsigned char written(const struct book *b, uint32_t k)
{
	return (unsigned char)(b->version ? b->version * 89 + b->slot + k + 1
					  : 0);
}

struct writing {
	struct book *b;
	unsigned i;
};

static void write_done(void *arg, int status)
{
	struct writing *w = arg;
	struct book *b = w->b;

	b->writing[w->i] = false;
	b->lost |= status != 0;
	b->v->p->c->memory_ok += !status;
	must_succeed(b, "a WRITE", status);
	b->v->p->c->outstanding--;
	env_free(env_of(b->v->p), w);
}

static void mem_write(struct book *b)
{
	struct handles_peer *p = b->v->p;
	struct writing *w;
	unsigned i = 0, tries = 0;
	int rc;

	while (i < WRITES && b->writing[i])
		i++;
	if (i == WRITES || b->lost)
		return;
	w = env_alloc(env_of(p), sizeof(*w));
	if (!w)
		return;
	*w = (struct writing){b, i};
	b->version++;
	for (uint32_t k = 0; k < b->len; k++)
		local_buf(b, i)[k] = written(b, k);
	b->writing[i] = true;
	p->c->outstanding++;
	while ((rc = skein_mem_write_async(
			b->h->conn, p->c->local, local_off(b, i), &b->h->area,
			slot_off(b), b->len, write_done, w)) == -EAGAIN &&
	       tries++ < 20)
		reap(b, 20000);
	if (!rc)
		return;
	if (rc != -EAGAIN)
		must_succeed(b, "starting a WRITE", rc);
	b->version--;
	b->writing[i] = false;
	p->c->outstanding--;
	env_free(env_of(p), w);
}

static void mem_read(struct book *b)
{
	struct handles_peer *p = b->v->p;
	const unsigned char *buf = local_buf(b, WRITES);
	int rc;

	if (b->lost)
		return;
	rc = skein_mem_read(b->h->conn, p->c->local, local_off(b, WRITES),
			    &b->h->area, slot_off(b), b->len, draw_timeout(p));
	must_succeed(b, "a READ", rc);
	/* The READ may still be under way and write into its buffer. */
	b->lost |= rc != 0;
	if (rc)
		return;
	p->c->memory_ok++;
	for (uint32_t k = 0; k < b->len && !b->lost; k++)
		if (buf[k] != written(b, k)) {
			report_fail(rep_of(b->v),
				    "client %u, thread %u: a READ behind WRITE "
				    "%u of slot %u found %u in byte %u, not %u",
				    p->a.i, b->v->number, b->version, b->slot,
				    buf[k], k, written(b, k));
			return;
		}
}

static enum ledger_outcome outcome_of(int rc)
{
	if (!rc)
		return LEDGER_DONE;
	return rc == -ENOTCONN || rc == -ENOMEM || rc == -EDEADLK
		       ? LEDGER_NEVER
		       : LEDGER_UNKNOWN;
}

static void mem_add(struct book *b)
{
	struct handles_peer *p = b->v->p;
	unsigned word = (unsigned)handles_draw(p, LEDGER_WORDS);
	uint64_t least, old = 0;
	int rc;

	if (!ledger_add(p->ledger, b->h->life, word, &least))
		return;
	rc = skein_mem_fetch_add(b->h->conn, &b->h->area, AREA_SUMS + 8 * word,
				 1, draw_timeout(p), &old);
	ledger_add_ended(p->ledger, b->h->life, word, outcome_of(rc), least,
			 old);
	must_succeed(b, "an add", rc);
}

static void mem_swap(struct book *b)
{
	struct handles_peer *p = b->v->p;
	unsigned word = (unsigned)handles_draw(p, LEDGER_WORDS);
	uint64_t old = 0, compare = b->seen[word],
		 value = ledger_swap(p->ledger, b->h->life, word, compare);
	int rc;

	if (!value)
		return;
	rc = skein_mem_cmp_swap(b->h->conn, &b->h->area, AREA_TOPS + 8 * word,
				compare, value, draw_timeout(p), &old);
	ledger_swap_ended(p->ledger, value, outcome_of(rc), old);
	must_succeed(b, "a swap", rc);
	if (!rc)
		b->seen[word] = old == compare ? value : old;
}

/* --- a thread ----------------------------------------------------------- */

static void step(struct book *b)
{
	static void (*const ops[])(struct book *) = {
		mem_write, mem_write, mem_read, mem_add, mem_swap};
	struct handles_peer *p = b->v->p;
	uint64_t what = handles_draw(p, 100);

	if (what < 40)
		call_blocking(b);
	else if (what < 75 || !b->h->mem || b->slot == SLOTS)
		for (uint64_t n = handles_draw(p, 3) ? 1
						     : 1 + handles_draw(p, 8);
		     n; n--)
			call_async(b, true);
	else
		ops[handles_draw(p, 5)](b);
}

/* Waits until so many calls are under way; every call ends, whatever
 * happens. */
static void drain(struct visitor *v, unsigned most)
{
	uint64_t end = sim_thread_now(world_of(v)) + 4 * PATIENCE_NS;
	struct client *c = v->p->c;

	for (unsigned i = 0; v->outstanding > most && !past(v, end); i++)
		reap(&v->books[i % c->n_handles], 100000);
	if (v->outstanding > most)
		report_fail(rep_of(v),
			    "client %u, thread %u: %u calls never end",
			    v->p->a.i, v->number, v->outstanding);
}

/* Threads that wake at the same moment meet in the combiner. */
static void pause_some(struct visitor *v)
{
	struct handles_peer *p = v->p;
	uint64_t now = sim_thread_now(world_of(v));

	if (!handles_draw(p, 8))
		sim_sleep(world_of(v), handles_draw(p, MS));
	else if (handles_draw(p, 2))
		sim_sleep(world_of(v), MEET_NS - now % MEET_NS);
}

static void visit(void *arg)
{
	struct visitor *v = arg;
	struct handles_peer *p = v->p;
	struct client *c = p->c;
	unsigned ops = 1 + (unsigned)handles_draw(p, c->faults_over ? 20 : 60),
		 window = 1 + (unsigned)handles_draw(p, 12);

	v->self = env_thread_self(env_of(p));
	while (ops-- && (c->faults_over || !actor_over(&p->a))) {
		struct book *b = &v->books[handles_draw(p, c->n_handles)];

		if (handle_usable(b->h))
			step(b);
		else
			sim_sleep(world_of(v), 100000);
		drain(v, window);
		pause_some(v);
	}
	if (c->faults_over || handles_draw(p, 2))
		drain(v, 0);
	v->left = true;
}

static void book_open(struct visitor *v, struct book *b, struct handle *h)
{
	struct handles_peer *p = v->p;

	*b = (struct book){.v = v, .h = h, .slot = SLOTS};
	b->session = h->ordered ? ledger_session(p->ledger) : 0;
	if (!h->mem || h->server->slots == SLOTS)
		return;
	b->slot = h->server->slots++;
	b->len = 8 + (uint32_t)handles_draw(p, SLOT_LEN - 8);
}

static int visitor_start(struct handles_peer *p, struct visitor *v,
			 struct env_thread **t)
{
	struct client *c = p->c;

	*v = (struct visitor){.p = p, .number = c->threads++};
	for (unsigned i = 0; i < c->n_handles; i++)
		book_open(v, &v->books[i], &c->handles[i]);
	return env_thread_start(env_of(p), "visitor", visit, v, t);
}

/* Some threads run at a time; when one ends the next one starts. */
void handles_visit(struct handles_peer *p)
{
	struct env_thread *threads[VISITORS] = {NULL};
	unsigned at_once = 1 + (unsigned)handles_draw(p, VISITORS),
		 all = at_once +
		       (unsigned)handles_draw(p, VISITORS - at_once + 1);
	unsigned n, joined = 0;

	for (n = 0; n < all; n++) {
		if (n - joined == at_once)
			env_thread_join(env_of(p), threads[joined++]);
		if (visitor_start(p, &p->c->visitors[n], &threads[n]))
			break;
	}
	while (joined < n)
		env_thread_join(env_of(p), threads[joined++]);
}
