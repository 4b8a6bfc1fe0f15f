/* SPDX-License-Identifier: MIT */
/*
 * worker.c - the closed loop of one thread; see worker.h.
 *
 * The clock is read twice an operation: when its response is there, and when
 * the next one starts after the value was verified, so that verifying counts
 * for the throughput but for no latency.
 */
#include "kv/worker.h"

#include "kv/clock.h"
#include "kv/hash.h"
#include "kv/serve.h"
#include "kv/value.h"

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

	if (status == -ENOENT) {
		w->tally.bad++;
		fail(w, -EIO, "%s of %.*s: the record is missing",
		     ycsb_op_name(s->req.op), (int)s->key_len, s->key);
		return;
	}
	fail(w, status, "%s of %.*s failed: %s (%s)%s%s",
	     ycsb_op_name(s->req.op), (int)s->key_len, s->key,
	     skein_strerror(status), outcomes[outcome], story[0] ? "; " : "",
	     story);
}

/* Counts a completed operation and goes on. */
static void op_done(struct ycsb_slot *s, uint64_t now_ns)
{
	struct ycsb_worker *w = s->worker;
	uint64_t done;

	if (s->req.op == YCSB_INSERT && w->slice->mix)
		if (ycsb_keys_ack(w->keys, s->req.number))
			fail(w, -EOVERFLOW, "too many inserts under way");
	if (now_ns >= w->warm_ns) {
		hist_record(&w->tally.op[s->req.op], now_ns - s->start_ns);
		w->tally.ops++;
		w->last_ns = now_ns;
	}
	/* relaxed, and the only writer: a number for the progress bar */
	done = atomic_load_explicit(&w->done, memory_order_relaxed);
	atomic_store_explicit(&w->done, done + 1, memory_order_relaxed);
	if (now_ns >= w->end_ns)
		w->ending = true;
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

/* After a completion: the next operation, those that were stalled, or the
 * end. */
static void go_on(struct ycsb_slot *s)
{
	struct ycsb_worker *w = s->worker;

	slot_next(s);
	if (w->stalled)
		retry(w);
	if (!w->active && w->ending)
		kv_net_stop(w->net);
}

static bool verify(struct ycsb_slot *s, const struct kv_item *it)
{
	struct ycsb_worker *w = s->worker;
	const struct ycsb_params *p = w->params;

	if (kv_value_ok(it->val, it->val_len, p->field_count, p->field_len,
			kv_hash(it->key, it->key_len))) {
		w->tally.verified++;
		return true;
	}
	w->tally.bad++;
	fail(w, -EIO, "the value of %.*s is wrong (%u bytes)", it->key_len,
	     (const char *)it->key, it->val_len);
	return false;
}

static void scan_done(void *arg, const struct kv_scan_result *res)
{
	struct ycsb_slot *s = arg;
	struct ycsb_worker *w = s->worker;
	const struct kv_item *it = res->items;
	uint64_t now = kv_now_ns();

	w->active--;
	s->state = YCSB_SLOT_IDLE;
	if (res->status) {
		op_failed(s, res->status, res->outcome);
		go_on(s);
		return;
	}
	/* the first key exists, so that the scan begins with it */
	if (!res->count || res->count > s->req.count || res->more ||
	    kv_key_cmp(it->key, it->key_len, s->key, s->key_len)) {
		w->tally.bad++;
		fail(w, -EIO, "a scan of %u from %.*s returned %u%s",
		     s->req.count, (int)s->key_len, s->key, res->count,
		     res->count ? ", or begins elsewhere" : "");
	}
	for (uint32_t i = 0; i < res->count && !w->failed; i++) {
		if (i && kv_key_cmp(it[i - 1].key, it[i - 1].key_len, it[i].key,
				    it[i].key_len) >= 0)
			fail(w, -EIO, "a scan from %.*s is out of order",
			     (int)s->key_len, s->key);
		verify(s, &it[i]);
	}
	w->tally.scanned += res->count;
	op_done(s, now);
	go_on(s);
}

static void call_done(void *arg, const struct skein_rpc_result *res)
{
	struct ycsb_slot *s = arg;
	struct ycsb_worker *w = s->worker;
	uint64_t now = kv_now_ns();
	bool reads = s->req.op == YCSB_READ ||
		     (s->req.op == YCSB_RMW && !s->read_done);

	w->active--;
	s->state = YCSB_SLOT_IDLE;
	if (res->status) {
		op_failed(s, res->status, res->outcome);
	} else {
		struct kv_item it = {
			.key = (const uint8_t *)s->key,
			.key_len = (uint16_t)s->key_len,
			.val = res->data,
			.val_len = (uint32_t)res->len,
		};

		if (reads)
			verify(s, &it);
		if (reads && s->req.op == YCSB_RMW) {
			s->read_done = true;
			s->state = YCSB_SLOT_DRAWN;
		} else {
			op_done(s, now);
		}
	}
	go_on(s);
}

static int start_update(struct ycsb_slot *s)
{
	struct ycsb_worker *w = s->worker;
	const struct ycsb_params *p = w->params;
	struct kv_req req = {
		.op = KV_UPDATE,
		.key = s->key,
		.key_len = s->key_len,
		.val = w->value,
		.val_len = p->field_len,
		.off = s->req.field * p->field_len,
	};

	kv_field_fill(w->value, p->field_len, s->hash, s->req.field, &w->rng);
	return kv_client_call(w->client, &req, 0, call_done, s);
}

static int start_put(struct ycsb_slot *s)
{
	struct ycsb_worker *w = s->worker;
	const struct ycsb_params *p = w->params;
	struct kv_req req = {
		.op = KV_PUT,
		.key = s->key,
		.key_len = s->key_len,
		.val = w->value,
		.val_len = value_len(w),
	};

	kv_value_fill(w->value, p->field_count, p->field_len, s->hash, &w->rng);
	return kv_client_call(w->client, &req, 0, call_done, s);
}

static int start_read(struct ycsb_slot *s)
{
	struct kv_req req = {
		.op = KV_GET, .key = s->key, .key_len = s->key_len};

	return kv_client_call(s->worker->client, &req, value_len(s->worker),
			      call_done, s);
}

static int start_scan(struct ycsb_slot *s)
{
	size_t item = kv_item_size(YCSB_KEY_MAX, value_len(s->worker));

	return kv_client_scan(s->worker->client, s->key, s->key_len,
			      s->req.count, KV_SCAN_HEAD + s->req.count * item,
			      scan_done, s);
}

static int slot_start(struct ycsb_slot *s)
{
	switch (s->req.op) {
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

/* Draws the slot's next operation. */
static void slot_draw(struct ycsb_slot *s)
{
	struct ycsb_worker *w = s->worker;

	if (w->slice->mix)
		ycsb_gen_next(&w->gen, &s->req);
	else
		s->req = (struct ycsb_request){
			.op = YCSB_INSERT, .number = w->load_first + w->issued};
	w->issued++;
	s->read_done = false;
	s->key_len = ycsb_key(s->req.number, s->key);
	s->hash = kv_hash(s->key, s->key_len);
	s->start_ns = kv_now_ns();
}

/* Starts what the slot is to do next: the second half of its operation, one
 * that was stalled, or a new one. */
static void slot_next(struct ycsb_slot *s)
{
	struct ycsb_worker *w = s->worker;
	int rc;

	if (s->state == YCSB_SLOT_IDLE) {
		/* relaxed: a hint to end soon, nothing is read after it */
		if (atomic_load_explicit(w->stop, memory_order_relaxed) ||
		    w->issued == w->quota)
			w->ending = true;
		if (w->ending)
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
		fail(w, rc, "no connection to %s: %s", w->addr,
		     skein_strerror(rc));
		return;
	}
	w->shards = kv_client_info(w->client)->shards;
	now = kv_now_ns();
	w->warm_ns = now + sl->warm_ns;
	w->last_ns = w->warm_ns;
	w->end_ns = sl->ops || !sl->mix ? UINT64_MAX : now + sl->time_ns;
	loop(w);
	w->tally.ns = w->last_ns - w->warm_ns;
	kv_client_close(w->client);
	w->client = NULL;
}

int ycsb_worker_init(struct ycsb_worker *w)
{
	uint64_t stream = (uint64_t)w->slice->number << 16 | w->number;

	ycsb_tally_init(&w->tally);
	w->value = malloc(value_len(w));
	w->slots = calloc(w->window, sizeof(*w->slots));
	if (!w->value || !w->slots) {
		ycsb_worker_fini(w);
		return -ENOMEM;
	}
	for (unsigned i = 0; i < w->window; i++)
		w->slots[i].worker = w;
	kv_rng_init(&w->rng, w->params->seed + stream);
	if (w->slice->mix)
		ycsb_gen_init(&w->gen, w->slice->mix, w->params, w->keys,
			      stream);
	return 0;
}

void ycsb_worker_fini(struct ycsb_worker *w)
{
	free(w->value);
	free(w->slots);
	w->value = NULL;
	w->slots = NULL;
}
