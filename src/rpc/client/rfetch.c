/* SPDX-License-Identifier: MIT */
/*
 * rfetch.c - results that the calling end READs; see rfetch.h.
 *
 * When to READ. No READ is posted before the time that answers have taken
 * lately, wait_ns. The time grows by an eighth with each answer that a first
 * READ came too early for, and falls by 1/256 with each other answer: so the
 * first READ of about one answer in 32 comes too early.
 *
 * More than R READs that find nothing mean a slow handler, or a server that was
 * not running. One such message proves nothing: its READs go on, at growing
 * gaps. The second in a row is recalled.
 */
#include "rpc/client/rfetch.h"

#include <errno.h>
#include <string.h>

#include "base/list.h"
#include "rpc/client/calib.h"
#include "rpc/client/send.h"

static bool fetched(const struct rpc_client_rx *rx, uint64_t n)
{
	return n >= rx->rf.replied &&
	       rpc_calls_at(&rx->calls, n)->lines & RPC_CALL_FETCH;
}

bool rpc_rfetch_is(const struct rpc_client *c, uint64_t n)
{
	return fetched(&c->rx, n);
}

/* Which mode the call with reservation n has: RPC_MODE_OF() of its id. */
static unsigned mode_of(const struct rpc_client_rx *rx, uint64_t n)
{
	return rx->rf.modes->of[n & rx->calls.mask];
}

/* The mode that decides on reservation n. */
static struct return_mode *mode_at(const struct rpc_client_rx *rx, uint64_t n)
{
	return &rx->rf.modes->mode[mode_of(rx, n)];
}

/* NULL: no F is chosen. */
static struct rpc_fetch_sizes *sizes_of(const struct rpc_rfetch *f)
{
	return f->modes ? f->modes->sizes : NULL;
}

static uint64_t resp_head(const struct rpc_client_rx *rx)
{
	return atomic_load_explicit(&rx->resp_head, memory_order_relaxed);
}

/* Adds up the adjoining fetched reservations, in bytes, from the oldest one
 * that has no answer on. It stops once the sum is at least `enough`. */
static uint32_t adjoining(const struct rpc_client_rx *rx, uint64_t sent,
			  uint32_t enough)
{
	uint64_t pos = resp_head(rx);
	uint32_t left = rx->resp_mask + 1 - ((uint32_t)pos & rx->resp_mask);
	uint32_t lines = 0;

	for (uint64_t n = rx->used; n != sent && lines < left &&
				    lines * RPC_LINE < enough && fetched(rx, n);
	     n++)
		lines += RPC_CALL_LINES(rpc_calls_at(&rx->calls, n));
	return lines * RPC_LINE;
}

static uint8_t *landing(const struct rpc_client_rx *rx)
{
	return rx->port->base + rpc_geom_landing(&rx->port->geom);
}

/* How many bytes of the message at resp_head READs have brought. *at: where
 * they are, if there are any. */
static uint32_t here(const struct rpc_client_rx *rx, uint8_t **at)
{
	uint64_t pos = resp_head(rx), off = (pos - rx->rf.pos) * RPC_LINE;

	if ((pos ^ rx->rf.pos) & ~(uint64_t)rx->resp_mask)
		return 0; /* the lap has ended */
	if (off >= rx->rf.got)
		return 0;
	*at = landing(rx) + off;
	return rx->rf.got - (uint32_t)off;
}

static void later(struct rpc_rfetch *f, uint64_t now_ns, uint64_t gap_ns)
{
	f->state = RPC_RFETCH_IDLE;
	f->at_ns = now_ns + gap_ns;
	f->due = true;
}

static void wait_grow(struct rpc_rfetch *f, uint64_t by)
{
	f->wait_ns += f->wait_ns / by + 8;
	if (f->wait_ns > RPC_FETCH_WAIT_MAX_NS)
		f->wait_ns = RPC_FETCH_WAIT_MAX_NS;
}

/* A fetched message has come: F for the next ones. */
static void note_len(struct rpc_client_rx *rx, uint32_t len)
{
	struct rpc_fetch_sizes *s = sizes_of(&rx->rf);

	if (!s)
		rx->rf.size = len > RPC_FETCH_F ? len : RPC_FETCH_F;
	else if (fetch_size_add(&s->of[mode_of(rx, rx->used)], &s->times, len))
		rx->port->stats.fetch_len_changes++;
}

/* F of the message that is to be READ next. */
static uint32_t first_len(const struct rpc_client_rx *rx)
{
	const struct rpc_fetch_sizes *s = sizes_of(&rx->rf);

	return s ? s->of[mode_of(rx, rx->used)].len : rx->rf.size;
}

static void found(struct rpc_rfetch *f)
{
	if (f->fresh && f->tries && f->tries < RPC_FETCH_R)
		wait_grow(f, 8);
	else if (f->fresh && !f->tries)
		f->wait_ns -= f->wait_ns / 256;
	f->fresh = false;
	if (f->tries < RPC_FETCH_R)
		f->slow = 0;
	f->tries = 0;
	if (f->blocked) /* a READ was faster than the recall */
		f->recall = f->blocked = false;
}

/* The gap doubles with each READ that found nothing. */
static uint64_t next_gap(const struct rpc_rfetch *f)
{
	uint64_t max =
		f->blocked ? RPC_FETCH_BLOCKED_MAX_NS : RPC_FETCH_WAIT_MAX_NS;
	uint64_t gap = (f->wait_ns / 4 + 100)
		       << (f->tries < 16 ? f->tries : 16);

	return gap < max ? gap : max;
}

/* Decides what to do after a READ that brought no whole message. */
static void not_found(struct rpc_client_rx *rx)
{
	struct rpc_rfetch *f = &rx->rf;

	rx->port->stats.fetch_empty++;
	later(f, rx->calls.now_ns, next_gap(f));
	if (++f->tries != RPC_FETCH_R)
		return;
	/* Likely the server was not running: only if each fifth READ is like
	 * this do answers take so long. */
	wait_grow(f, 64);
	if (++f->slow < RPC_FETCH_SLOW)
		return;
	f->recall = rx->look = true;
	if (f->modes)
		return_mode_slow(mode_at(rx, rx->used));
}

/* The next READ is for bytes [got, len) of the message at pos. */
static void fetch(struct rpc_client_rx *rx, uint64_t pos, uint32_t got,
		  uint32_t len)
{
	struct rpc_rfetch *f = &rx->rf;

	f->pos = pos;
	f->got = got;
	f->piece = len - got;
	f->due = false;
	f->state = RPC_RFETCH_POST;
	rx->look = true;
}

/* Looks at what a READ has brought. Returns as rpc_msg_poll(). */
static int look(struct rpc_client *c, struct rpc_msg_in *in, uint64_t sent)
{
	struct rpc_client_rx *rx = &c->rx;
	struct rpc_rfetch *f = &rx->rf;
	uint64_t pos = resp_head(rx);
	uint8_t *at = landing(rx);
	uint32_t n = here(rx, &at), len = 0;
	int rc = 0;

	if (f->err)
		return f->err; /* the READ failed: so has the queue pair */
	if (n)		       /* a message begins with its length */
		rc = rpc_msg_fetched(in, at, n,
				     adjoining(rx, sent,
					       (uint32_t)rpc_msg_word(at)),
				     rx->resp_canary, f->sums, &len);
	if (rc == 1) {
		found(f);
		note_len(rx, in->len);
		if (__builtin_expect(rx->port->model != NULL, 0))
			env_charge(rx->port->model, ENV_COST_SUM, f->sums);
		rx->port->stats.fetched += in->count;
		rx->port->stats.fetched_messages++;
		return 1;
	}
	if (rc)
		return rc;
	if (len > n) { /* the message is longer than the READ */
		rx->port->stats.fetch_rests++;
		memmove(landing(rx), at, n); /* the rest lands behind it */
		fetch(rx, pos, n, len);
	} else if (f->fresh)
		not_found(rx);
	else
		later(f, rx->calls.now_ns, f->wait_ns);
	return 0;
}

int rpc_rfetch_poll(struct rpc_client *c, struct rpc_msg_in *in, uint64_t sent)
{
	struct rpc_client_rx *rx = &c->rx;
	struct rpc_rfetch *f = &rx->rf;

	if (f->state == RPC_RFETCH_HERE)
		return look(c, in, sent);
	if (f->state != RPC_RFETCH_IDLE || (f->recall && !f->blocked))
		return 0;
	if (!f->due)
		later(f, rx->calls.now_ns, f->wait_ns);
	if (rx->calls.now_ns < f->at_ns)
		return 0;
	f->fresh = true;
	f->blocked = false; /* if there is room now the recall goes first */
	rx->port->stats.fetch_len = first_len(rx);
	fetch(rx, resp_head(rx), 0, first_len(rx));
	return 0;
}

static void read_done(struct rpc_read *rd, int err)
{
	struct rpc_rfetch *f = container_of(rd, struct rpc_rfetch, rd);

	f->err = err;
	f->got += f->piece;
	f->state = RPC_RFETCH_HERE;
}

static int read_send(struct rpc_client *c)
{
	struct rpc_client_rx *rx = &c->rx;
	struct rpc_rfetch *f = &rx->rf;
	/* All calls posted by now: the owner holds the sending side. */
	uint32_t max = adjoining(rx, c->tx.tail, f->got + f->piece);
	const struct rpc_geom *g = &rx->port->geom;
	uint64_t off = rpc_geom_resp(g) + (f->pos & rx->resp_mask) * RPC_LINE;
	int rc;

	if (f->got + f->piece > max)
		f->piece = max - f->got;
	rc = rx->port->ops->read_resp(rx->port, rpc_geom_landing(g) + f->got,
				      off + f->got, f->piece, &f->rd);
	if (rc)
		return rc == -EAGAIN ? 0 : rc;
	rx->port->stats.reads++;
	rx->port->stats.fetch_reads++;
	f->state = RPC_RFETCH_WAIT;
	return 1;
}

/* Is any call under way a fetched one? */
static bool any_fetched(const struct rpc_client *c, uint64_t sent)
{
	for (uint64_t n = c->rx.used; n != sent; n++)
		if (fetched(&c->rx, n))
			return true;
	return false;
}

/* The recall finds no room in the request ring, so fetching goes on. */
static void recall_waits(struct rpc_client *c)
{
	struct rpc_rfetch *f = &c->rx.rf;

	f->blocked = true;
	if (f->state == RPC_RFETCH_IDLE)
		later(f, c->rx.calls.now_ns, next_gap(f));
}

static int recall_send(struct rpc_client *c)
{
	struct rpc_rfetch *f = &c->rx.rf;
	int rc = 0;

	if (any_fetched(c, c->tx.tail)) {
		if (!rpc_client_bare_fits(c)) {
			recall_waits(c);
			return 0;
		}
		f->state = RPC_RFETCH_IDLE;
		rc = rpc_client_send_bare(c, RPC_HDR_RECALL);
		if (rc == 0)
			recall_waits(c);
		if (rc <= 0)
			return rc;
		c->rx.port->stats.recalls++;
	}
	f->replied = c->tx.tail;
	f->recall = f->blocked = f->due = false;
	f->state = RPC_RFETCH_IDLE;
	f->tries = 0;
	return rc;
}

int rpc_rfetch_send(struct rpc_client *c)
{
	struct rpc_rfetch *f = &c->rx.rf;
	int rc = 0;

	if (f->on != f->wanted) {
		f->on = f->wanted;
		c->tx.fetch_ids = f->on;
	}
	/* No recall in the middle of a message: the rest of it would be taken,
	 * and replied too, into space that is free by then. */
	if (f->recall && !f->blocked && f->state != RPC_RFETCH_WAIT &&
	    !c->rx.in_active)
		rc = recall_send(c);
	if (rc >= 0 && f->state == RPC_RFETCH_POST &&
	    (!f->recall || f->blocked))
		return read_send(c);
	return rc;
}

void rpc_rfetch_round(struct rpc_client *c)
{
	struct rpc_client_rx *rx = &c->rx;
	struct rpc_rfetch *f = &rx->rf;

	if (f->blocked && f->state == RPC_RFETCH_IDLE &&
	    rx->calls.now_ns >= f->at_ns) {
		f->blocked = false;
		rx->look = true;
	}
}

bool rpc_rfetch_may_sleep(struct rpc_client *c)
{
	struct rpc_rfetch *f = &c->rx.rf;

	if (!f->able)
		return true;
	f->messages = 0;
	if (f->blocked && f->state == RPC_RFETCH_IDLE)
		return true; /* the recall waits until at_ns */
	if (!f->on && !f->recall && f->state != RPC_RFETCH_WAIT &&
	    !any_fetched(c, rpc_client_end(c)))
		return true;
	f->wanted = 0;
	f->recall = c->rx.look = true;
	return false;
}

/* Has the program run the engine for a while without a wish to sleep? */
static bool is_busy(struct rpc_client *c, bool was_fetched)
{
	struct rpc_rfetch *f = &c->rx.rf;

	if (!was_fetched && f->messages < RPC_EVENT_BUSY)
		f->messages++;
	return f->messages >= RPC_EVENT_BUSY &&
	       c->rx.port->event.rx == RPC_RX_POLLING;
}

/* The message's reservations count for the modes of the calls that made them.
 * The server's word follows Head in the header. */
static uint32_t choose(struct rpc_client_rx *rx, uint64_t sent)
{
	struct rpc_modes *all = rx->rf.modes;
	uint64_t word =
		rpc_msg_word(rx->in.at + offsetof(struct rpc_hdr, head));
	uint64_t end = rx->used + rx->in.count;
	struct return_mode *m;

	for (uint64_t n = rx->used; n != end && n != sent; n++) {
		m = mode_at(rx, n);
		return_mode_answered(m, 1, word & RPC_WORD_STARVED);
		if (!return_mode_decide(m, rx->calls.now_ns))
			continue;
		all->fetch ^= RPC_MODE_BIT((unsigned)(m - all->mode));
		rx->port->stats.switches++;
	}
	return all->fetch;
}

void rpc_rfetch_time(struct rpc_client *c, uint64_t n, uint16_t time)
{
	if (c->rx.rf.modes)
		return_mode_time(mode_at(&c->rx, n), time);
}

void rpc_rfetch_answered(struct rpc_client *c, bool was_fetched, uint64_t sent)
{
	struct rpc_client_rx *rx = &c->rx;
	struct rpc_rfetch *f = &rx->rf;
	uint32_t want = RPC_MODE_ALL;

	if (f->modes && f->modes->decide)
		want = choose(rx, sent);
	/* A program that wanted to sleep lately does not begin to fetch yet. */
	if (want && !f->wanted && !is_busy(c, was_fetched))
		want = 0;
	if (want == f->wanted)
		return;
	f->wanted = want;
	rx->look = true;
}

struct rpc_modes *rpc_modes_new(struct skein_env *env, uint64_t window,
				const struct rpc_calib *calib, bool decide)
{
	struct rpc_modes *m = env_alloc(env, sizeof(*m) + window);

	if (!m)
		return NULL;
	m->calib = calib;
	m->decide = decide;
	m->sizes = NULL;
	if (!calib || !calib->n_reads)
		return m;
	m->sizes = env_alloc(env, sizeof(*m->sizes));
	if (!m->sizes) {
		env_free(env, m);
		return NULL;
	}
	fetch_costs_init(&m->sizes->times, calib);
	return m;
}

void rpc_modes_free(struct skein_env *env, struct rpc_modes *m)
{
	if (m)
		env_free(env, m->sizes);
	env_free(env, m);
}

void rpc_rfetch_start(struct rpc_client *c, bool sums, struct rpc_modes *modes)
{
	bool decide = modes && modes->decide;
	uint32_t on = decide ? 0 : RPC_MODE_ALL;

	c->rx.rf = (struct rpc_rfetch){
		.rd.done = read_done,
		.able = true,
		.wanted = on,
		.on = on,
		.modes = modes,
		.sums = sums,
		.size = RPC_FETCH_F,
		.wait_ns = RPC_FETCH_WAIT_NS,
	};
	c->tx.returns_below = decide ? UINT32_MAX : RPC_FETCH_LEN_MAX + 1;
	c->tx.fetch_ids = on;
	c->tx.mode_of = modes ? modes->of : NULL;
	if (!modes)
		return;
	modes->fetch = 0;
	for (unsigned i = 0; i < RPC_MODES; i++) {
		return_mode_init(&modes->mode[i], modes->calib, 0);
		if (modes->sizes)
			fetch_size_init(&modes->sizes->of[i], RPC_FETCH_F);
	}
}
