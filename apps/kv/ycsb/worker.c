/* SPDX-License-Identifier: MIT */
/*
 * worker.c - the loop of one thread; see worker.h.
 *
 * What a response holds is verified after the next operation has been sent, and
 * the one after that is drawn then too: a client's own work overlaps with its
 * server's, alike over every transport. The clock is read twice an operation:
 * when its response is there, and when the next one starts.
 */
#include "kv/ycsb/worker.h"

#include "kv/clock.h"
#include "kv/store/hash.h"
#include "kv/server/serve.h"
#include "kv/store/value.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RUN_NS SKEIN_MS(100)
#define STALL_NS SKEIN_MS(1)

static void slot_next(struct ycsb_slot *s);

static void fail(struct ycsb_worker *w, int err, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

static void fail(struct ycsb_worker *w, int err, const char *fmt, ...)
{
	va_list ap;

	w->ending = true;
	if (w->failed)
		return;
	w->failed = err;
	va_start(ap, fmt);
	vsnprintf(w->error, sizeof(w->error), fmt, ap);
	va_end(ap);
	atomic_store(w->stop, true);
}

static bool paced(const struct ycsb_worker *w)
{
	return w->pace.gap_ns > 0;
}

/* Tells its random choices from those of others. */
static uint64_t stream_of(const struct ycsb_worker *w)
{
	return (uint64_t)w->slice->number << 16 | w->number;
}

static size_t value_len(const struct ycsb_worker *w)
{
	return (size_t)w->params->field_count * w->params->field_len;
}

static void op_failed(struct ycsb_slot *s, int status,
		      enum skein_outcome outcome)
{
	static const char *const outcomes[] = {
		[SKEIN_DONE] = "the server refused it",
		[SKEIN_NOT_SENT] = "it was not sent",
		[SKEIN_UNKNOWN] = "it may have been executed",
	};
	struct ycsb_worker *w = s->worker;
	const char *story = kv_client_error(w->client);
	const char *became = outcomes[outcome];

	if (outcome == SKEIN_DONE && status == -ENOSPC)
		became = "the server's --memory is used up";
	else if (outcome == SKEIN_DONE && status == -EOPNOTSUPP)
		became = "a server with --store=cache has no SCAN";

	if (status == -ENOENT) {
		w->tally.bad++;
		fail(w, -EIO, "%s of %.*s: the record is missing",
		     ycsb_op_name(s->todo.req.op), (int)s->todo.key_len,
		     s->todo.key);
		return;
	}
	fail(w, status, "%s of %.*s failed: %s (%s)%s%s",
	     ycsb_op_name(s->todo.req.op), (int)s->todo.key_len, s->todo.key,
	     skein_strerror(status), became, story[0] ? "; " : "", story);
}

/* Counts a completed operation and goes on. */
static void op_done(struct ycsb_slot *s, uint64_t now_ns)
{
	struct ycsb_worker *w = s->worker;
	uint64_t done;

	if (s->todo.req.op == YCSB_INSERT && w->slice->mix)
		if (ycsb_keys_ack(w->keys, s->todo.req.number))
			fail(w, -EOVERFLOW, "too many inserts under way");
	if (now_ns >= w->warm_ns) {
		hist_record(&w->tally.op[s->todo.req.op], now_ns - s->start_ns);
		w->tally.ops++;
		w->last_ns = now_ns;
	}
	/* relaxed, and the only writer: a number for the progress bar */
	done = atomic_load_explicit(&w->done, memory_order_relaxed);
	atomic_store_explicit(&w->done, done + 1, memory_order_relaxed);
	if (now_ns >= w->end_ns)
		w->ending = true;
}

static void set_key(const struct ycsb_worker *w, struct ycsb_todo *t)
{
	t->key_len = ycsb_key(w->params->cache, t->req.number, t->key);
	t->hash = kv_hash(t->key, t->key_len);
}

/* Draws the next operation of any slot. */
static void prepare(struct ycsb_worker *w)
{
	w->prepared = true;
	if (!w->slice->mix) {
		w->next.req = (struct ycsb_request){.op = YCSB_INSERT};
		return;
	}
	ycsb_gen_next(&w->gen, &w->next.req);
	if (w->next.req.op != YCSB_INSERT)
		set_key(w, &w->next);
}

/* Tries again what was stalled, as far as there is room. */
static void retry(struct ycsb_worker *w)
{
	for (unsigned i = 0; w->stalled && i < w->window; i++) {
		if (w->slots[i].state != YCSB_SLOT_STALLED)
			continue;
		w->slots[i].state = YCSB_SLOT_DRAWN;
		w->stalled--;
		slot_next(&w->slots[i]);
		if (w->slots[i].state == YCSB_SLOT_STALLED)
			break; /* still full */
	}
}

/* After a completion: the next operation, and those that were stalled. */
static void go_on(struct ycsb_slot *s)
{
	struct ycsb_worker *w = s->worker;

	slot_next(s);
	if (w->stalled)
		retry(w);
	/* with more under way, let them gather */
	if (w->window == 1)
		kv_client_flush(w->client);
}

static void finish(struct ycsb_worker *w)
{
	if (!w->prepared && !w->ending)
		prepare(w);
	if (!w->active && (w->ending || w->failed))
		kv_net_stop(w->net);
}

/* Verifies what was read. `todo` is the operation as it was. */
static void verify(struct ycsb_worker *w, const struct kv_item *it)
{
	const struct ycsb_params *p = w->params;

	if (kv_value_ok(it->val, it->val_len, p->field_count, p->field_len,
			kv_hash(it->key, it->key_len))) {
		w->tally.verified++;
		return;
	}
	w->tally.bad++;
	fail(w, -EIO, "the value of %.*s is wrong (%u bytes)", it->key_len,
	     (const char *)it->key, it->val_len);
}

static void verify_scan(struct ycsb_worker *w, const struct ycsb_todo *todo,
			const struct kv_scan_result *res)
{
	const struct kv_item *it = res->items;

	/* the first key exists, so that the scan begins with it */
	if (!res->count || res->count > todo->req.count || res->more ||
	    kv_key_cmp(it->key, it->key_len, todo->key, todo->key_len)) {
		w->tally.bad++;
		fail(w, -EIO, "a scan of %u from %.*s returned %u%s",
		     todo->req.count, (int)todo->key_len, todo->key, res->count,
		     res->count ? ", or begins elsewhere" : "");
	}
	for (uint32_t i = 0; i < res->count && !w->failed; i++) {
		if (i && kv_key_cmp(it[i - 1].key, it[i - 1].key_len, it[i].key,
				    it[i].key_len) >= 0)
			fail(w, -EIO, "a scan from %.*s is out of order",
			     (int)todo->key_len, todo->key);
		verify(w, &it[i]);
	}
	w->tally.scanned += res->count;
}

/* A response has come. Returns what the operation was when it is complete, for
 * verifying after the next one is under way. */
static struct ycsb_todo complete(struct ycsb_slot *s, int status,
				 enum skein_outcome outcome)
{
	struct ycsb_worker *w = s->worker;
	uint64_t now = kv_now_ns();
	struct ycsb_todo was = s->todo;

	w->active--;
	s->state = YCSB_SLOT_IDLE;
	if (status == -ENOENT && w->params->cache) {
		w->tally.misses++;
		op_done(s, now);
	} else if (status) {
		op_failed(s, status, outcome);
	} else if (was.req.op == YCSB_RMW && !s->read_done) {
		s->read_done = true;
		s->state = YCSB_SLOT_DRAWN;
	} else {
		op_done(s, now);
	}
	go_on(s);
	return was;
}

static void scan_done(void *arg, const struct kv_scan_result *res)
{
	struct ycsb_slot *s = arg;
	struct ycsb_todo was = complete(s, res->status, res->outcome);

	if (!res->status)
		verify_scan(s->worker, &was, res);
	finish(s->worker);
}

static void read_done(void *arg, const struct skein_rpc_result *res)
{
	struct ycsb_slot *s = arg;
	struct ycsb_todo was = complete(s, res->status, res->outcome);
	struct kv_item it = {
		.key = (const uint8_t *)was.key,
		.key_len = (uint16_t)was.key_len,
		.val = res->data,
		.val_len = (uint32_t)res->len,
	};

	if (!res->status)
		verify(s->worker, &it);
	finish(s->worker);
}

static void write_done(void *arg, const struct skein_rpc_result *res)
{
	struct ycsb_slot *s = arg;

	complete(s, res->status, res->outcome);
	finish(s->worker);
}

static int start_update(struct ycsb_slot *s)
{
	struct ycsb_worker *w = s->worker;
	const struct ycsb_params *p = w->params;
	struct kv_req req = {
		.op = KV_UPDATE,
		.key = s->todo.key,
		.key_len = s->todo.key_len,
		.val = w->value,
		.val_len = p->field_len,
		.off = s->todo.req.field * p->field_len,
	};

	kv_field_fill(w->value, p->field_len, s->todo.hash, s->todo.req.field,
		      &w->rng);
	return kv_client_call(w->client, &req, 0, write_done, s);
}

static int start_put(struct ycsb_slot *s)
{
	struct ycsb_worker *w = s->worker;
	const struct ycsb_params *p = w->params;
	struct kv_req req = {
		.op = KV_PUT,
		.key = s->todo.key,
		.key_len = s->todo.key_len,
		.val = w->value,
		.val_len = value_len(w),
	};

	kv_value_fill(w->value, p->field_count, p->field_len, s->todo.hash,
		      &w->rng);
	return kv_client_call(w->client, &req, 0, write_done, s);
}

static int start_read(struct ycsb_slot *s)
{
	struct kv_req req = {
		.op = KV_GET, .key = s->todo.key, .key_len = s->todo.key_len};

	return kv_client_call(s->worker->client, &req, value_len(s->worker),
			      read_done, s);
}

static int start_scan(struct ycsb_slot *s)
{
	size_t item = kv_item_size(YCSB_KEY_MAX, value_len(s->worker));

	return kv_client_scan(s->worker->client, s->todo.key, s->todo.key_len,
			      s->todo.req.count,
			      KV_SCAN_HEAD + s->todo.req.count * item,
			      scan_done, s);
}

static int slot_start(struct ycsb_slot *s)
{
	switch (s->todo.req.op) {
	case YCSB_READ:
		return start_read(s);
	case YCSB_INSERT:
		return start_put(s);
	case YCSB_SCAN:
		return start_scan(s);
	case YCSB_RMW:
		if (!s->read_done)
			return start_read(s);
		break;
	case YCSB_UPDATE:
	case YCSB_OPS:
		break;
	}
	return s->worker->params->write_all ? start_put(s) : start_update(s);
}

/* Gives the slot its next operation. */
static void slot_draw(struct ycsb_slot *s)
{
	struct ycsb_worker *w = s->worker;

	if (!w->prepared)
		prepare(w);
	s->todo = w->next;
	w->prepared = false;
	s->read_done = false;
	if (s->todo.req.op == YCSB_INSERT) {
		s->todo.req.number = w->slice->mix ? ycsb_keys_take(w->keys)
						   : w->load_first + w->issued;
		set_key(w, &s->todo);
	}
	w->issued++;
	if (!paced(w))
		s->start_ns = kv_now_ns();
}

/* May an idle slot begin an operation now? */
static bool may_begin(struct ycsb_slot *s)
{
	struct ycsb_worker *w = s->worker;
	uint64_t now;

	/* relaxed: a hint to end soon, nothing is read after it */
	if (atomic_load_explicit(w->stop, memory_order_relaxed) ||
	    w->issued == w->quota)
		w->ending = true;
	if (w->ending)
		return false;
	if (!paced(w))
		return true;
	now = kv_now_ns();
	if (kv_pace_due(&w->pace) > now) {
		/* the net runs until there is a place: now it shall run
		 * until the next operation is due */
		if (!w->n_idle)
			kv_net_stop(w->net);
		w->idle[w->n_idle++] = s;
		return false;
	}
	s->start_ns = kv_pace_due(&w->pace);
	kv_pace_next(&w->pace);
	return true;
}

/* Starts what the slot is to do next: the second half of its operation, one
 * that was stalled, or a new one. */
static void slot_next(struct ycsb_slot *s)
{
	struct ycsb_worker *w = s->worker;
	int rc;

	if (s->state == YCSB_SLOT_IDLE) {
		if (!may_begin(s))
			return;
		slot_draw(s);
		s->state = YCSB_SLOT_DRAWN;
	}
	if (w->failed)
		return;
	rc = slot_start(s);
	if (!rc) {
		s->state = YCSB_SLOT_ACTIVE;
		w->active++;
	} else if (rc == -EAGAIN) {
		s->state = YCSB_SLOT_STALLED;
		w->stalled++;
	} else {
		op_failed(s, rc, SKEIN_NOT_SENT);
	}
}

/* Begins what is due, as far as there are places. Returns how long the net may
 * run until the next one is. */
static uint64_t begin_due(struct ycsb_worker *w)
{
	uint64_t now = kv_now_ns(), due = kv_pace_due(&w->pace);
	unsigned had;

	while (w->n_idle && due <= now && !w->ending) {
		had = w->n_idle--;
		slot_next(w->idle[had - 1]);
		due = kv_pace_due(&w->pace);
	}
	kv_client_flush(w->client);
	if (w->stalled)
		return STALL_NS;
	if (!w->n_idle)
		return RUN_NS;
	return due > now ? due - now : 1;
}

/* How much was due and had found no place when time was up; with random gaps,
 * how much is to be expected. */
static uint64_t overdue(const struct ycsb_worker *w)
{
	uint64_t end = w->end_ns < w->last_ns ? w->end_ns : w->last_ns;
	uint64_t due = kv_pace_due(&w->pace), n;

	if (due >= end || w->issued == w->quota)
		return 0;
	n = (uint64_t)((double)(end - due) / w->pace.gap_ns) + 1;
	return n < w->quota - w->issued ? n : w->quota - w->issued;
}

static void loop_paced(struct ycsb_worker *w)
{
	for (unsigned i = 0; i < w->window; i++)
		w->idle[w->n_idle++] = &w->slots[i];
	while (!w->ending || w->active) {
		if (kv_now_ns() >= w->end_ns)
			w->ending = true;
		kv_net_run(w->net, begin_due(w));
		if (w->stalled)
			retry(w);
	}
	w->tally.late = overdue(w);
}

static void loop(struct ycsb_worker *w)
{
	for (unsigned i = 0; i < w->window; i++)
		slot_next(&w->slots[i]);
	while (w->active || (w->stalled && !w->failed)) {
		kv_net_run(w->net, w->active ? RUN_NS : STALL_NS);
		if (!w->active)
			retry(w);
	}
}

void ycsb_worker_run(struct ycsb_worker *w)
{
	const struct ycsb_slice *sl = w->slice;
	uint64_t now;
	int rc;

	kv_pin(w->pin);
	rc = kv_client_open(w->net, w->addr, w->timeout_ns, &w->client);
	if (rc) {
		fail(w, rc, "no connection to %s: %s%s", w->addr,
		     skein_strerror(rc),
		     rc == -ECONNREFUSED ? " (`skein kv serve` listens there?)"
					 : "");
		return;
	}
	w->shards = kv_client_info(w->client)->shards;
	now = kv_now_ns();
	w->warm_ns = now + sl->warm_ns;
	w->last_ns = w->warm_ns;
	w->end_ns = sl->ops || !sl->mix ? UINT64_MAX : now + sl->time_ns;
	kv_pace_init(&w->pace, sl->mix ? sl->rate : 0, sl->even, w->number,
		     w->workers, w->params->seed ^ stream_of(w), now);
	if (paced(w))
		loop_paced(w);
	else
		loop(w);
	w->tally.ns = w->last_ns - w->warm_ns;
	kv_client_close(w->client);
	w->client = NULL;
}

int ycsb_worker_init(struct ycsb_worker *w)
{
	uint64_t stream = stream_of(w);

	ycsb_tally_init(&w->tally);
	w->value = malloc(value_len(w));
	w->slots = calloc(w->window, sizeof(*w->slots));
	w->idle = calloc(w->window, sizeof(struct ycsb_slot *));
	if (!w->value || !w->slots || !w->idle) {
		ycsb_worker_fini(w);
		return -ENOMEM;
	}
	for (unsigned i = 0; i < w->window; i++)
		w->slots[i].worker = w;
	prng_init(&w->rng, w->params->seed + stream);
	if (w->slice->mix)
		ycsb_gen_init(&w->gen, w->slice->mix, w->params, w->keys,
			      stream);
	return 0;
}

void ycsb_worker_fini(struct ycsb_worker *w)
{
	free(w->value);
	free(w->slots);
	free(w->idle);
	w->value = NULL;
	w->slots = NULL;
	w->idle = NULL;
}
