/* SPDX-License-Identifier: MIT */
/*
 * streams.c - one server, one to four clients, many byte streams over the
 * connections that they share, under all faults.
 *
 * A plan says of each stream, before it is opened, how many bytes go each way,
 * and where an end resets it. Both ends write and read by turns, in pieces of
 * any size, with and without a copy, with short deadlines; one of them
 * waits for bytes as long as no fault lasts, so a wake-up that is lost shows.
 * Some ends rest for seconds, so rings become large and small again.
 *
 * What must hold, for each direction: each byte is the one that was written
 * there, none is lost, none comes twice; the end comes behind the last byte, and
 * only if the writer has ended; bytes that a close has seen in the peer's ring
 * are read. No end is told that the other one sent garbage. Where there are no
 * faults but torn messages, a stream ends for its own reasons only: no other
 * stream's reset disturbs it. party.h has what must hold of every scenario.
 *
 * The plans live outside of the processes: they outlast kills.
 */
#include "conn/ctx.h"
#include "sim/party.h"
#include "stream/state.h"

#include <errno.h>
#include <skein/skein.h>
#include <skein/stream.h>
#include <stdlib.h>
#include <string.h>

#define NUMBER 5
#define PLANS_MAX 20000u
#define THREADS_MAX 6u
#define SERVED_MAX 64u
#define PIECE_MAX 20000u
#define NOWHERE UINT64_MAX
#define MS PARTY_MS
#define PATIENCE_NS (10000ull * MS)

/* The client's end of a stream is 0, the server's 1. */
struct half {
	uint64_t total;	   /* bytes that this end writes */
	uint64_t reset_at; /* it resets the stream behind so many, or NOWHERE */
	uint64_t wrote;	   /* accepted so far */
	uint64_t read;	   /* of the other half's bytes */
	bool ended; /* it has said that it writes no more, or is about to */
	bool clean; /* ... and its close saw all bytes in the ring */
	bool gone;  /* it has reset the stream, closed it, or failed */
};

struct plan {
	struct half half[2];
	uint32_t ring;	 /* 0: it grows */
	uint8_t patient; /* the end that waits for bytes */
	bool rests;
};

struct peer;

/* An end of a stream, in a thread of its own. */
struct talk {
	struct peer *p;
	struct skein_stream *st;
	struct plan *plan;
	struct half *mine, *other;
	uint32_t id;
	unsigned side;
	int rc;
	struct env_thread *thread;
	bool over;
	uint8_t *buf;
};

/* One node's process, and its successors. */
struct peer {
	struct actor a;
	struct run *run;
	struct talk talks[SERVED_MAX];
	unsigned whole; /* streams that went as planned */
};

struct run {
	struct party party;
	struct peer peers[1 + PARTY_CLIENTS_MAX];
	struct plan *plans;
	uint32_t n_plans;
	bool strict; /* no faults but torn messages */
	uint64_t bytes, resets, errors, refused, whole;
	uint32_t ring_max;
};

static struct report *rep_of(const struct talk *t)
{
	return t->p->run->party.rep;
}

static uint64_t draw(struct peer *p, uint64_t n)
{
	return actor_draw(&p->a, n);
}

static uint8_t pattern(const struct talk *t, unsigned side, uint64_t at)
{
	return (uint8_t)(t->id * 37 + side * 101 + at * 7 + (at >> 8) * 13 +
			 (at >> 16));
}

/* --- plans --------------------------------------------------------------- */

static uint64_t draw_total(struct peer *p)
{
	switch (draw(p, 8)) {
	case 0:
		return draw(p, 1u << 19);
	case 1:
	case 2:
		return draw(p, 1u << 16);
	case 3:
		return 0;
	default:
		return draw(p, 2000);
	}
}

static struct plan *plan_new(struct peer *p, uint32_t *id)
{
	static const uint32_t rings[] = {0, 0, 0, 16384, 65536};
	struct run *run = p->run;
	struct plan *plan;
	unsigned i;

	if (run->n_plans == PLANS_MAX)
		return NULL;
	*id = run->n_plans++;
	plan = &run->plans[*id];
	for (i = 0; i < 2; i++) {
		plan->half[i].total = draw_total(p);
		plan->half[i].reset_at = NOWHERE;
	}
	/* The plan's number stands before the client's own bytes. */
	plan->half[0].total += sizeof(*id);
	if (!draw(p, 5)) {
		i = (unsigned)draw(p, 2);
		plan->half[i].reset_at = draw(p, plan->half[i].total + 1);
		if (!i && plan->half[i].reset_at < sizeof(*id))
			plan->half[i].reset_at = sizeof(*id);
	}
	plan->ring = rings[draw(p, sizeof(rings) / sizeof(rings[0]))];
	plan->patient = (uint8_t)draw(p, 2);
	plan->rests = !draw(p, 16);
	return plan;
}

/* --- what must hold ------------------------------------------------------ */

/* A call has failed. It may, if the other end has gone, or by a fault. */
static void judge_error(struct talk *t, const char *call, int rc)
{
	const struct run *run = t->p->run;

	if (rc == -SKEIN_EPEER)
		report_fail(rep_of(t), "stream %u, end %u: %s: garbage came",
			    t->id, t->side, call);
	else if (run->strict && !t->other->gone && !t->other->ended)
		report_fail(rep_of(t),
			    "stream %u, end %u: %s: %d, without a cause", t->id,
			    t->side, call, rc);
	if (t->other->clean && t->mine->read < t->other->wrote)
		report_fail(rep_of(t),
			    "stream %u, end %u: %s: %d before byte %llu, which "
			    "a close saw here",
			    t->id, t->side, call, rc,
			    (unsigned long long)t->mine->read);
}

static void judge_bytes(struct talk *t, const uint8_t *data, size_t len)
{
	uint64_t at = t->mine->read;
	size_t i;

	for (i = 0; i < len; i++)
		if (t->id != UINT32_MAX &&
		    data[i] != pattern(t, !t->side, at + i)) {
			report_fail(rep_of(t),
				    "stream %u, end %u: byte %llu is wrong",
				    t->id, t->side, (unsigned long long)at + i);
			break;
		}
	t->mine->read += len;
	t->p->run->bytes += len;
	if (t->mine->read > t->other->wrote + PIECE_MAX ||
	    t->mine->read > t->other->total)
		report_fail(rep_of(t),
			    "stream %u, end %u: byte %llu was never written",
			    t->id, t->side, (unsigned long long)t->mine->read);
}

static void judge_end(struct talk *t)
{
	if (!t->other->ended)
		report_fail(rep_of(t),
			    "stream %u, end %u: an end that nobody wrote",
			    t->id, t->side);
	else if (t->mine->read != t->other->total)
		report_fail(rep_of(t),
			    "stream %u, end %u: the end comes behind byte %llu "
			    "of %llu",
			    t->id, t->side, (unsigned long long)t->mine->read,
			    (unsigned long long)t->other->total);
}

/* Bytes are there, or come: a wait without any is a wake-up that was lost. */
static void judge_wait(struct talk *t)
{
	if (t->other->wrote > t->mine->read && !t->other->gone)
		report_fail(rep_of(t),
			    "stream %u, end %u: waits 10 s for byte %llu of "
			    "%llu that were written",
			    t->id, t->side, (unsigned long long)t->mine->read,
			    (unsigned long long)t->other->wrote);
}

/* --- an end -------------------------------------------------------------- */

static uint64_t draw_piece(struct talk *t, uint64_t left)
{
	uint64_t n = draw(t->p, 4) ? draw(t->p, 300) : draw(t->p, PIECE_MAX);

	n = n ? n : 1;
	return n < left ? n : left;
}

static uint64_t draw_timeout(struct talk *t)
{
	return draw(t->p, 3) ? draw(t->p, 2 * MS) : 0;
}

static bool is_late(int rc)
{
	return rc == -EAGAIN || rc == -ETIMEDOUT;
}

static void fill(struct talk *t, uint8_t *to, uint64_t n)
{
	uint64_t at = t->mine->wrote, i;

	for (i = 0; i < n; i++)
		to[i] = at + i < sizeof(t->id) && !t->side
				? (uint8_t)(t->id >> 8 * (at + i))
				: pattern(t, t->side, at + i);
}

static int put_in_place(struct talk *t, uint64_t n)
{
	size_t room;
	void *at;
	int rc = skein_stream_reserve(t->st, draw_timeout(t), &at, &room);

	if (rc)
		return rc;
	n = n < room ? n : room;
	n = draw(t->p, 16) ? n : 0;
	fill(t, at, n);
	/* Counted first: the bytes may be read before commit returns. */
	t->mine->wrote += n;
	rc = skein_stream_commit(t->st, n);
	if (rc)
		t->mine->wrote -= n;
	return rc;
}

static int put(struct talk *t, uint64_t n)
{
	size_t done = 0;
	int rc;

	if (!draw(t->p, 3))
		return put_in_place(t, n);
	fill(t, t->buf, n);
	rc = skein_stream_write(t->st, t->buf, n, draw_timeout(t), &done);
	t->mine->wrote += rc ? 0 : done;
	return rc;
}

/* The end of this half, or its reset. 1: the stream is over. */
static int put_end(struct talk *t)
{
	int rc;

	t->mine->ended = true;
	rc = skein_stream_end(t->st, draw_timeout(t));
	return rc;
}

/* 1: this half is over; 0; or an error. */
static int write_some(struct talk *t)
{
	struct half *m = t->mine;
	uint64_t to = m->reset_at < m->total ? m->reset_at : m->total;
	int rc;

	if (m->wrote < to)
		rc = put(t, draw_piece(t, to - m->wrote));
	else
		rc = put_end(t);
	if (rc && !is_late(rc))
		judge_error(t, "write", rc);
	if (rc)
		return is_late(rc) ? 0 : rc;
	return m->ended;
}

static int get_in_place(struct talk *t, uint64_t timeout_ns, size_t *got)
{
	const void *data;
	size_t len;
	int rc = skein_stream_peek(t->st, timeout_ns, &data, &len);

	*got = len;
	if (rc || !len)
		return rc;
	*got = 1 + draw(t->p, len);
	judge_bytes(t, data, *got);
	return skein_stream_consume(t->st, *got);
}

static int get(struct talk *t, uint64_t timeout_ns, size_t *got)
{
	int rc;

	if (!draw(t->p, 3))
		return get_in_place(t, timeout_ns, got);
	rc = skein_stream_read(t->st, t->buf, draw_piece(t, PIECE_MAX),
			       timeout_ns, got);
	if (!rc && *got)
		judge_bytes(t, t->buf, *got);
	return rc;
}

/* 1: the other half is over; 0; or an error. */
static int read_some(struct talk *t)
{
	bool waits = t->plan->patient == t->side && !draw(t->p, 2);
	size_t got = 0;
	int rc;

	rc = get(t, waits ? PATIENCE_NS : draw_timeout(t), &got);
	if (rc == -ETIMEDOUT && waits)
		judge_wait(t);
	if (is_late(rc))
		return 0;
	if (rc)
		judge_error(t, "read", rc);
	else if (!got)
		judge_end(t);
	return rc ? rc : !got;
}

/* Each end rests once in its life at most, longer than an empty ring stays. */
static void rest(struct talk *t)
{
	if (!draw(t->p, 8))
		sim_sleep(t->p->run->party.w, draw(t->p, 60000));
	if (!t->plan->rests || draw(t->p, 40))
		return;
	t->plan->rests = false;
	sim_sleep(t->p->run->party.w, (1000 + draw(t->p, 2500)) * MS);
}

static void end_of(struct talk *t, int rc)
{
	bool whole = !rc && t->mine->reset_at == NOWHERE;
	uint64_t ns = whole ? PATIENCE_NS : 0;

	if (whole)
		t->mine->ended = true;
	else
		t->mine->gone = true;
	rc = skein_stream_close(t->st, ns);
	if (whole && !rc)
		t->mine->clean = true;
	else if (whole)
		judge_error(t, "close", rc);
	t->mine->gone = true;
	t->p->whole += whole && !rc;
	t->p->run->whole += whole && !rc;
	t->p->run->resets += t->mine->reset_at != NOWHERE;
}

/* The server waits for the plan's number. */
static bool names_plan(const struct talk *t)
{
	return !t->side && t->mine->wrote < sizeof(t->id);
}

/* Until both halves are over, or one that is to be reset has come so far. */
static int talk(struct talk *t)
{
	bool wrote = false, read = false;
	int rc = 0;

	while (rc >= 0 && !(wrote && read) && rep_of(t)->ok) {
		rest(t);
		if (!wrote && t->mine->wrote == t->mine->reset_at)
			return 0;
		if (!wrote && (read || names_plan(t) || draw(t->p, 2))) {
			rc = write_some(t);
			wrote = rc == 1;
		} else if (!read) {
			rc = read_some(t);
			read = rc == 1;
		}
	}
	return rc < 0 ? rc : 0;
}

static void talk_sides(struct talk *t, unsigned side)
{
	t->side = side;
	t->mine = &t->plan->half[side];
	t->other = &t->plan->half[!side];
}

/* --- the server ---------------------------------------------------------- */

/* The first bytes say which plan it is. */
static int read_id(struct talk *t)
{
	uint8_t id[4];
	size_t at = 0, got;
	int rc;

	while (at < sizeof(id)) {
		rc = skein_stream_read(t->st, id + at, sizeof(id) - at,
				       PATIENCE_NS, &got);
		if (rc || !got)
			return rc ? rc : -EPIPE;
		at += got;
	}
	t->id = (uint32_t)id[0] | (uint32_t)id[1] << 8 | (uint32_t)id[2] << 16 |
		(uint32_t)id[3] << 24;
	if (t->id >= t->p->run->n_plans) {
		report_fail(rep_of(t), "a stream with a plan %u of %u", t->id,
			    t->p->run->n_plans);
		return -EBADMSG;
	}
	t->plan = &t->p->run->plans[t->id];
	talk_sides(t, 1);
	t->mine->read = sizeof(id);
	return 0;
}

static void serve(void *arg)
{
	struct talk *t = arg;
	int rc = t->buf ? read_id(t) : -ENOMEM;

	if (rc)
		skein_stream_close(t->st, 0);
	else
		end_of(t, talk(t));
	t->over = true;
}

static void join(struct talk *t)
{
	env_thread_join(actor_env(&t->p->a), t->thread);
	env_free(actor_env(&t->p->a), t->buf);
	t->p = NULL;
}

/* A place for one more stream, or NULL. */
static struct talk *place(struct peer *p)
{
	struct talk *t, *found = NULL;

	for (t = p->talks; t < p->talks + SERVED_MAX; t++) {
		if (t->p && t->over)
			join(t);
		if (!t->p)
			found = t;
	}
	return found;
}

static void take(struct peer *p, struct skein_stream *st)
{
	struct talk *t = place(p);

	if (t) {
		*t = (struct talk){.p = p, .st = st};
		t->buf = env_alloc(actor_env(&p->a), PIECE_MAX);
		if (!env_thread_start(actor_env(&p->a), "serve", serve, t,
				      &t->thread))
			return;
		env_free(actor_env(&p->a), t->buf);
		t->p = NULL;
	}
	p->run->refused++;
	skein_stream_close(st, 0);
}

/* Small bounds are met more often. */
static void conf_draw(struct peer *p)
{
	struct stream_ctx *sx = conn_ctx_module(p->a.ctx, CONN_MODULE_STREAM);

	sx->conf.ring = (size_t)16384 << draw(p, 6);
	sx->conf.qps = (uint32_t)draw(p, 3);
	if (!draw(p, 4))
		sx->host.mem_max = (uint64_t)1 << (20 + draw(p, 3));
}

/* No process here breaks the protocol. */
static void garbage_judge(struct peer *p)
{
	const struct stream_ctx *sx =
		conn_ctx_module(p->a.ctx, CONN_MODULE_STREAM);

	if (sx->host.garbage)
		report_fail(p->run->party.rep,
			    "process %u: garbage came %llu times", p->a.i,
			    (unsigned long long)sx->host.garbage);
}

static int server_up(struct peer *p, struct skein_stream_listener **listener)
{
	struct skein_ctx_attr attr = {.size = sizeof(attr)};
	struct skein_stream_listener_attr la = {.size = sizeof(la),
						.number = NUMBER};
	struct skein_listener *port;
	int rc;

	attr.wait = (enum skein_wait)draw(p, 4);
	attr.background = !draw(p, 2);
	rc = ctx_open_env(actor_env(&p->a), &attr, &p->a.ctx);
	if (rc)
		return rc;
	conf_draw(p);
	rc = skein_stream_listen(p->a.ctx, &la, listener);
	if (!rc)
		rc = skein_listener_open(p->a.ctx, ":7000", NULL, &port);
	if (rc) {
		skein_ctx_close(p->a.ctx);
		p->a.ctx = NULL;
	}
	return rc;
}

static void server(void *arg)
{
	struct peer *p = arg;
	struct skein_stream_listener *listener;
	struct skein_stream *st;
	struct talk *t;

	while (!p->run->party.over && server_up(p, &listener))
		sim_sleep(p->run->party.w, 10 * MS);
	while (p->a.ctx && !p->run->party.over)
		if (!skein_stream_accept(listener, 20 * MS, &st))
			take(p, st);
	for (t = p->talks; t < p->talks + SERVED_MAX; t++)
		if (t->p)
			join(t);
	if (p->a.ctx) {
		garbage_judge(p);
		skein_stream_listener_close(listener);
		actor_close(&p->a);
	}
	p->a.ended = true;
}

/* --- the client ---------------------------------------------------------- */

static int visit(struct talk *t)
{
	struct skein_stream_attr attr = {.size = sizeof(attr),
					 .number = NUMBER};
	struct peer *p = t->p;
	int rc;

	t->plan = plan_new(p, &t->id);
	if (!t->plan)
		return -ENOMEM;
	talk_sides(t, 0);
	attr.ring = t->plan->ring;
	attr.timeout_ns = SKEIN_MS(200 + draw(p, 2000));
	attr.retries = (unsigned)draw(p, 4);
	rc = skein_stream_open(p->a.ctx, "server:7000", &attr, &t->st);
	if (rc) {
		p->run->refused++;
		return rc;
	}
	rc = talk(t);
	end_of(t, rc);
	return rc;
}

static void visits(void *arg)
{
	struct talk *t = arg;
	unsigned n = 1 + (unsigned)draw(t->p, 8);

	while (n-- && !actor_over(&t->p->a) && rep_of(t)->ok)
		t->rc = visit(t);
	t->over = true;
}

static bool talk_begin(struct peer *p, struct talk *t)
{
	*t = (struct talk){.p = p};
	t->buf = env_alloc(actor_env(&p->a), PIECE_MAX);
	if (t->buf)
		return true;
	t->p = NULL;
	return false;
}

static void many(struct peer *p)
{
	unsigned n = 1 + (unsigned)draw(p, THREADS_MAX), i;

	for (i = 0; i < n; i++) {
		struct talk *t = &p->talks[i];

		if (!talk_begin(p, t))
			break;
		if (!env_thread_start(actor_env(&p->a), "visits", visits, t,
				      &t->thread))
			continue;
		env_free(actor_env(&p->a), t->buf);
		t->p = NULL;
		break;
	}
	while (i--)
		if (p->talks[i].p)
			join(&p->talks[i]);
}

static int session(struct actor *actor)
{
	struct peer *p = container_of(actor, struct peer, a);
	struct talk *t = &p->talks[0];
	int rc = 0;

	conf_draw(p);
	if (!actor_over(&p->a)) {
		many(p);
	} else if (talk_begin(p, t)) {
		/* A session of one stream, until one goes as planned. */
		p->whole = 0;
		rc = visit(t);
		p->a.got_through = p->whole;
		env_free(actor_env(&p->a), t->buf);
		t->p = NULL;
	}
	garbage_judge(p);
	return rc;
}

static void client(void *arg)
{
	actor_sessions(arg, session);
}

/* --- kills and births ---------------------------------------------------- */

static void peer_born(struct actor *actor)
{
	struct peer *p = container_of(actor, struct peer, a);

	memset(p->talks, 0, sizeof(p->talks));
	p->whole = 0;
}

static void peer_killed(struct actor *actor)
{
	struct peer *p = container_of(actor, struct peer, a);
	struct talk *t;

	for (t = p->talks; t < p->talks + SERVED_MAX; t++)
		if (t->p && t->mine)
			t->mine->gone = true;
}

static void server_stop(struct actor *actor)
{
	(void)actor; /* it looks at party.over */
}

static const struct party_ops party_ops = {
	.server = server,
	.client = client,
	.born = peer_born,
	.killed = peer_killed,
	.stop = server_stop,
};

/* --- the run ------------------------------------------------------------- */

static int streams(const struct scenario_conf *conf, struct report *rep)
{
	struct run *run = calloc(1, sizeof(*run));
	int rc = -ENOMEM;

	if (!run)
		return rc;
	run->plans = calloc(PLANS_MAX, sizeof(*run->plans));
	if (!run->plans)
		goto out_run;
	for (unsigned i = 0; i <= PARTY_CLIENTS_MAX; i++)
		run->peers[i].run = run;
	rc = party_init(&run->party, &party_ops, conf, rep, run->peers,
			sizeof(run->peers[0]));
	if (rc)
		goto out_plans;
	/* Half of the seeds have torn messages, and no other fault. */
	if (!conf->script && conf->seed % 2)
		run->party.faults.end_ns = 0;
	run->strict = !run->party.faults.end_ns;
	party_play(&run->party);
	report_row(rep, "streams", run->n_plans);
	report_row(rep, "streams_whole", (double)run->whole);
	report_row(rep, "streams_reset", (double)run->resets);
	report_row(rep, "streams_refused", (double)run->refused);
	report_row(rep, "bytes", (double)run->bytes);
	party_judge(&run->party);
	party_fini(&run->party);
out_plans:
	free(run->plans);
out_run:
	free(run);
	return rc;
}

const struct scenario scenario_streams = {
	.name = "streams",
	.what = "a server, one to four clients, byte streams that share connections",
	.fuzz = true,
	.run = streams,
};
