/* SPDX-License-Identifier: MIT */
/*
 * kv.c - the production key-value server, and clients with YCSB's mixes, under
 * all faults.
 *
 * The server has one to three shards, a thread each; its store lives and dies
 * with its process. A client writes keys of its own, one write a key at a time,
 * and reads the keys of all clients. A value that is read must be right by the
 * byte and by kv_history.h: in particular an acknowledged write stays until
 * another write of the key, or until the server's process is killed. After the
 * faults each client reads all of its keys. party.h has what must hold of every
 * scenario.
 */
#include "conn/ctx.h"
#include "kv/store/alloc.h"
#include "kv/server/handlers.h"
#include "kv/store/hash.h"
#include "kv/ycsb/workload.h"
#include "sim/flip.h"
#include "sim/kv_history.h"
#include "sim/party.h"
#include "sim/scarce.h"

#include <errno.h>
#include <skein/skein.h>
#include <stdlib.h>
#include <string.h>

#define SLOTS 12 /* keys that a client writes to */
#define SHARDS_MAX 3
#define VAL_MAX 20000u
#define SCAN_MAX 20u
#define SCAN_ROOM 40000u
#define WINDOW_MAX 16u
#define MS PARTY_MS

struct run;

struct peer {
	struct actor a;
	struct run *run;
	/* the server's */
	struct kv_alloc alloc;
	struct kv_server *store;
	struct skein_engine *engines[SHARDS_MAX];
	unsigned n_engines;
	/* a client's */
	struct skein_conn *conns[SHARDS_MAX];
	unsigned n_conns;
	bool flips; /* the mode of return changes every few calls */
	unsigned outstanding;
	unsigned answered;     /* by the server: done, or nothing was there */
	uint32_t slots[SLOTS]; /* keys, plus one; outlive its process */
};

struct run {
	struct party party;
	struct peer peers[1 + PARTY_CLIENTS_MAX];
	struct kv_zipf zipf;
	uint64_t n[KV_OP_END - KV_INFO], n_failed, n_unknown;
	struct history hist;
};

/* One operation under way, in the client's memory. */
struct op {
	struct peer *p;
	struct hist_span span;
	uint32_t key;
	enum kv_op op;
	bool then_write;  /* read-modify-write */
	uint32_t n_spans; /* of a SCAN: of the keys there were */
	struct hist_span spans[];
};

static struct skein_env *env_of(struct peer *p)
{
	return actor_env(&p->a);
}

static uint64_t draw(struct peer *p, uint64_t n)
{
	return actor_draw(&p->a, n);
}

/* --- the server -------------------------------------------------------- */

static void *alloc_get(void *arg, size_t align, size_t len)
{
	return env_alloc_aligned(arg, align, len);
}

static void alloc_put(void *arg, void *p)
{
	env_free(arg, p);
}

static int server_listen(struct peer *p)
{
	struct skein_listener_attr la = {.size = sizeof(la),
					 .engines = p->engines,
					 .engine_count = p->n_engines};
	struct skein_listener *listener;

	return skein_listener_open(p->a.ctx, ":7440", &la, &listener);
}

static int server_up(struct peer *p)
{
	struct skein_ctx_attr ca = {.size = sizeof(ca)};
	struct kv_server_attr sa = {.alloc = &p->alloc};
	struct skein_engine *engines[SHARDS_MAX];
	int rc;

	ca.wait = (enum skein_wait)draw(p, 4);
	sa.shards = 1 + (unsigned)draw(p, SHARDS_MAX);
	p->alloc = (struct kv_alloc){alloc_get, alloc_put, env_of(p)};
	rc = ctx_open_env(env_of(p), &ca, &p->a.ctx);
	if (rc)
		return rc;
	scarce_rings(p->a.ctx, &p->a);
	rc = kv_server_new(&sa, &p->store);
	if (rc)
		goto err_ctx;
	rc = kv_handlers_register(p->a.ctx, p->store, NULL);
	engines[0] = skein_ctx_engine(p->a.ctx);
	for (unsigned i = 1; i < sa.shards && !rc; i++)
		rc = skein_engine_new(p->a.ctx, ca.wait, &engines[i]);
	if (rc)
		goto err_store;
	memcpy(p->engines, engines, sizeof(engines));
	p->n_engines = sa.shards;
	rc = server_listen(p);
	if (rc)
		goto err_engines;
	return 0;

err_engines:
	p->n_engines = 0;
err_store:
	skein_ctx_close(p->a.ctx);
	kv_server_free(p->store);
	p->a.ctx = NULL;
	return rc;
err_ctx:
	skein_ctx_close(p->a.ctx);
	p->a.ctx = NULL;
	return rc;
}

struct shard_arg {
	struct peer *p;
	struct skein_engine *engine;
};

static void shard(void *arg)
{
	struct shard_arg *s = arg;

	while (!s->p->run->party.over)
		skein_engine_run(s->engine, SKEIN_FOREVER);
}

/* Serves with so many threads. If memory is short and fewer can start, it does
 * not serve at all. */
static bool server_run(struct peer *p)
{
	struct env_thread *threads[SHARDS_MAX];
	struct shard_arg args[SHARDS_MAX] = {{p, p->engines[0]}};
	unsigned n = 0;

	for (unsigned i = 1; i < p->n_engines; i++)
		args[i] = (struct shard_arg){p, p->engines[i]};
	for (unsigned i = 1; i < p->n_engines; i++)
		if (!env_thread_start(env_of(p), "shard", shard, &args[i],
				      &threads[n]))
			n++;
	if (n + 1 < p->n_engines)
		report_fail(p->run->party.rep, "a thread could not be started");
	shard(&args[0]);
	while (n)
		env_thread_join(env_of(p), threads[--n]);
	return true;
}

static void server(void *arg)
{
	struct peer *p = arg;

	while (!p->run->party.over && server_up(p))
		sim_sleep(p->run->party.w, 10 * MS);
	if (p->a.ctx) {
		server_run(p);
		p->n_engines = 0;
		actor_close(&p->a);
		kv_server_free(p->store);
	}
	p->a.ended = true;
}

/* --- operations -------------------------------------------------------- */

static struct skein_conn *conn_of(struct peer *p, const char *key)
{
	uint64_t hash = kv_hash(key, HIST_KEY_LEN);

	return p->conns[kv_hash_shard(hash, p->n_conns)];
}

static void write_ended(struct op *o, const struct skein_rpc_result *res)
{
	struct history *h = &o->p->run->hist;
	bool missing = res->outcome == SKEIN_DONE && res->status == -ENOENT;
	enum hist_outcome outcome = HIST_UNKNOWN;

	if (missing)
		hist_read_end(h, o->key, &o->span, NULL, 0);
	if (missing || res->outcome == SKEIN_NOT_SENT)
		outcome = HIST_NEVER;
	else if (!res->status)
		outcome = HIST_DONE;
	hist_write_end(h, o->key, &o->span, outcome);
}

static void scan_ended(struct op *o, const struct skein_rpc_result *res)
{
	struct run *run = o->p->run;
	const struct kv_item *last = NULL;
	struct kv_item item, before;
	struct kv_scan_in in;
	int rc = kv_scan_decode(res->data, res->len, &in);

	while (!rc && (rc = kv_scan_next(&in, &item)) == 1) {
		uint32_t key = hist_key_parse(item.key, item.key_len);

		if (key >= run->hist.n_keys ||
		    (last && memcmp(last->key, item.key, HIST_KEY_LEN) >= 0)) {
			report_fail(
				run->party.rep,
				"a SCAN found a wrong key, or out of order");
			return;
		}
		if (key < o->n_spans)
			hist_read_end(&run->hist, key, &o->spans[key], item.val,
				      item.val_len);
		before = item;
		last = &before;
		rc = 0;
	}
	if (rc)
		report_fail(run->party.rep, "a SCAN's response is garbage");
}

static void start_write(struct peer *p, uint32_t key);

static void op_ended(void *arg, const struct skein_rpc_result *res)
{
	struct op *o = arg;
	struct peer *p = o->p;
	struct history *h = &p->run->hist;
	uint32_t key = o->then_write ? o->key : HIST_KEYS;

	bool answered = !res->status ||
			(res->outcome == SKEIN_DONE && res->status == -ENOENT);

	p->outstanding--;
	p->answered += answered;
	p->run->n[o->op - KV_INFO] += answered;
	p->run->n_failed += !answered && res->outcome != SKEIN_UNKNOWN;
	p->run->n_unknown += !answered && res->outcome == SKEIN_UNKNOWN;
	if (o->op == KV_SCAN && !res->status)
		scan_ended(o, res);
	else if (o->op == KV_GET && !res->status)
		hist_read_end(h, o->key, &o->span, res->data, res->len);
	else if (o->op == KV_GET && res->outcome == SKEIN_DONE &&
		 res->status == -ENOENT)
		hist_read_end(h, o->key, &o->span, NULL, 0);
	else if (o->op != KV_GET && o->op != KV_SCAN)
		write_ended(o, res);
	env_free(env_of(p), o);
	if (key < HIST_KEYS && hist_writable(h, key))
		start_write(p, key);
}

static uint64_t draw_timeout(struct peer *p)
{
	return draw(p, 4) ? SKEIN_S(1) : SKEIN_MS(1 + draw(p, 20));
}

static int op_call(struct op *o, struct skein_conn *conn,
		   const struct kv_req *r, size_t resp_max)
{
	struct peer *p = o->p;
	size_t cap = 64 + r->val_len, len = 0;
	unsigned char *buf = env_alloc(env_of(p), cap);
	int rc = buf ? kv_req_encode(r, buf, cap, &len) : -ENOMEM;

	p->outstanding++;
	if (p->flips && !draw(p, 4))
		sim_flip_return(conn, draw(p, SIM_FLIPS));
	if (!rc)
		rc = skein_rpc_call_async(conn, (uint16_t)r->op, buf, len,
					  resp_max, draw_timeout(p), op_ended,
					  o);
	if (rc)
		p->outstanding--;
	env_free(env_of(p), buf);
	return rc;
}

static struct op *op_new(struct peer *p, enum kv_op op, uint32_t key,
			 uint32_t n_spans)
{
	struct op *o = env_alloc(env_of(p),
				 sizeof(*o) + n_spans * sizeof(o->spans[0]));

	if (o)
		*o = (struct op){
			.p = p, .op = op, .key = key, .n_spans = n_spans};
	return o;
}

static void start_read(struct peer *p, uint32_t key, bool then_write)
{
	struct op *o = op_new(p, KV_GET, key, 0);
	char bytes[HIST_KEY_LEN + 1];
	struct kv_req r = {.op = KV_GET, .key = bytes, .key_len = HIST_KEY_LEN};

	if (!o)
		return;
	hist_key_bytes(key, bytes);
	hist_read(&p->run->hist, key, &o->span);
	o->then_write = then_write;
	if (op_call(o, conn_of(p, bytes), &r, VAL_MAX))
		env_free(env_of(p), o);
}

static void start_scan(struct peer *p, uint32_t key)
{
	struct history *h = &p->run->hist;
	struct op *o = op_new(p, KV_SCAN, key, h->n_keys);
	char bytes[HIST_KEY_LEN + 1];
	struct kv_req r = {.op = KV_SCAN,
			   .key = bytes,
			   .key_len = HIST_KEY_LEN,
			   .count = 1 + (uint32_t)draw(p, SCAN_MAX)};

	if (!o)
		return;
	hist_key_bytes(key, bytes);
	for (uint32_t i = 0; i < o->n_spans; i++)
		hist_read(h, i, &o->spans[i]);
	if (op_call(o, p->conns[draw(p, p->n_conns)], &r, SCAN_ROOM))
		env_free(env_of(p), o);
}

static uint32_t draw_len(struct peer *p)
{
	uint64_t max = draw(p, 20) ? 200 : VAL_MAX - HIST_VAL_MIN;

	return HIST_VAL_MIN + (uint32_t)draw(p, max);
}

/* Draws an operation that the key allows: an UPDATE needs a value. */
static enum kv_op draw_write(struct peer *p, const struct hist_key *k)
{
	const struct hist_version *v = &k->v[k->floor];

	if (k->floor != k->n || v->absent || !draw(p, 3))
		return draw(p, 10) ? KV_PUT : KV_DELETE;
	return KV_UPDATE;
}

static void start_write(struct peer *p, uint32_t key)
{
	struct history *h = &p->run->hist;
	const struct hist_key *k = &h->keys[key];
	enum kv_op op = draw_write(p, k);
	uint32_t body = op == KV_UPDATE ? k->v[k->floor].body : 0;
	struct op *o = op_new(p, op, key, 0);
	char bytes[HIST_KEY_LEN + 1];
	struct kv_req r = {.op = op, .key = bytes, .key_len = HIST_KEY_LEN};
	unsigned char *val;
	uint32_t len = draw_len(p), n;
	struct skein_rpc_result none = {.outcome = SKEIN_NOT_SENT};

	if (!o)
		return;
	val = env_alloc(env_of(p), len);
	if (!val) {
		env_free(env_of(p), o);
		return;
	}
	hist_key_bytes(key, bytes);
	n = hist_write(h, key, len, body, op == KV_DELETE, &o->span);
	if (op == KV_PUT)
		hist_value(h, key, n, val);
	else if (op == KV_UPDATE)
		hist_head(h, key, n, val);
	r.val = val;
	r.val_len = op == KV_PUT ? len : op == KV_UPDATE ? HIST_VAL_MIN : 0;
	if (op_call(o, conn_of(p, bytes), &r, 0)) {
		write_ended(o, &none);
		env_free(env_of(p), o);
	}
	env_free(env_of(p), val);
}

/* --- the client -------------------------------------------------------- */

/* One of the client's own keys that it may write now; HIST_KEYS: there is
 * none. */
static uint32_t own_key(struct peer *p)
{
	struct history *h = &p->run->hist;
	uint32_t *slot =
		&p->slots[kv_zipf_next(&p->run->zipf, &p->a.r) % SLOTS];
	uint32_t key = *slot ? *slot - 1 : HIST_KEYS;

	if (key < HIST_KEYS && h->keys[key].writing)
		return HIST_KEYS;
	if (key >= HIST_KEYS || !hist_writable(h, key)) {
		key = hist_key_new(h);
		*slot = key < HIST_KEYS ? key + 1 : 0;
	}
	return key;
}

/* Anybody's; mostly one that is in use. */
static uint32_t any_key(struct peer *p)
{
	struct run *run = p->run;
	struct peer *client = &run->peers[1 + draw(p, run->party.n_clients)];
	uint32_t slot =
		client->slots[kv_zipf_next(&run->zipf, &p->a.r) % SLOTS];

	if (slot && draw(p, 10))
		return slot - 1;
	return run->hist.n_keys ? (uint32_t)draw(p, run->hist.n_keys)
				: HIST_KEYS;
}

static enum ycsb_op draw_op(struct peer *p, const struct ycsb_mix *mix)
{
	double x = prng_double(&p->a.r);

	for (unsigned i = 0; i < YCSB_OPS; i++) {
		x -= mix->part[i];
		if (x < 0)
			return (enum ycsb_op)i;
	}
	return YCSB_READ;
}

static void start_op(struct peer *p, const struct ycsb_mix *mix)
{
	enum ycsb_op op = draw_op(p, mix);
	bool reads = op == YCSB_READ || op == YCSB_SCAN;
	uint32_t key = reads ? any_key(p) : own_key(p);

	if (key == HIST_KEYS)
		return;
	if (op == YCSB_SCAN)
		start_scan(p, key);
	else if (op == YCSB_READ || op == YCSB_RMW)
		start_read(p, key, op == YCSB_RMW);
	else
		start_write(p, key);
}

static bool usable(struct peer *p)
{
	for (unsigned i = 0; i < p->n_conns; i++)
		if (skein_conn_get_state(p->conns[i]) != SKEIN_CONN_READY)
			return false;
	return true;
}

static void drain(struct peer *p)
{
	struct sim_world *w = p->run->party.w;
	uint64_t give_up = sim_thread_now(w) + 20000 * MS;

	while (p->outstanding && sim_thread_now(w) < give_up)
		skein_engine_run(skein_ctx_engine(p->a.ctx), MS);
	if (p->outstanding)
		report_fail(p->run->party.rep, "client %u: %u calls never end",
			    p->a.i, p->outstanding);
}

static void run_mix(struct peer *p)
{
	const struct ycsb_mix *mix = ycsb_mix_find((char)('A' + draw(p, 6)));
	unsigned window = 1 + (unsigned)draw(p, WINDOW_MAX);
	unsigned ops = 1 + (unsigned)draw(p, 3000);
	struct skein_engine *e = skein_ctx_engine(p->a.ctx);

	while (ops-- && usable(p) && !actor_over(&p->a)) {
		start_op(p, mix);
		do
			skein_engine_run(e, p->outstanding < window ? 2000
								    : 20000);
		while (p->outstanding >= window);
	}
	drain(p);
}

/* Every key of its own: all must be answered. */
static void read_back(struct peer *p)
{
	unsigned n = 0;

	p->answered = 0;
	for (unsigned i = 0; i < SLOTS; i++) {
		if (!p->slots[i])
			continue;
		start_read(p, p->slots[i] - 1, false);
		drain(p);
		n++;
	}
	p->a.got_through = p->answered == n;
}

static int open_conns(struct peer *p)
{
	struct skein_conn_attr attr = {.size = sizeof(attr)};
	unsigned char info[KV_INFO_LEN];
	struct kv_info in = {.shards = 1};
	int rc = 0;

	attr.retries = (unsigned)draw(p, 5);
	attr.timeout_ns = SKEIN_MS(200 + draw(p, 2000));
	/* drawn, too */
	attr.return_mode = (enum skein_return[]){
		SKEIN_RETURN_REPLY, SKEIN_RETURN_FETCH,
		SKEIN_RETURN_AUTO}[attr.timeout_ns / SKEIN_MS(1) % 3];
	p->flips = !draw(p, 3);
	for (unsigned i = 0; i < in.shards && !rc; i++) {
		attr.shard = i;
		rc = skein_conn_open(p->a.ctx, "server:7440", &attr,
				     &p->conns[i]);
		p->n_conns += !rc;
		if (rc || i)
			continue;
		rc = skein_rpc_call(p->conns[0], KV_INFO, NULL, 0, info,
				    sizeof(info), SKEIN_S(1), NULL);
		if (!rc)
			rc = kv_info_decode(info, sizeof(info), &in);
	}
	return rc;
}

static int session(struct actor *actor)
{
	struct peer *p = container_of(actor, struct peer, a);
	int rc;

	scarce_rings(p->a.ctx, &p->a);
	rc = open_conns(p);
	if (!rc && actor_over(&p->a))
		read_back(p);
	else if (!rc)
		run_mix(p);
	while (p->n_conns)
		skein_conn_close(p->conns[--p->n_conns],
				 SKEIN_MS(draw(p, 200)));
	return rc;
}

static void client(void *arg)
{
	struct peer *p = arg;

	actor_sessions(&p->a, session);
}

/* --- kills and births -------------------------------------------------- */

static void peer_born(struct actor *a)
{
	struct peer *p = container_of(a, struct peer, a);

	p->n_engines = p->n_conns = p->outstanding = 0;
}

/* What a dead client was writing may yet happen. */
static void peer_killed(struct actor *a)
{
	struct peer *p = container_of(a, struct peer, a);
	struct history *h = &p->run->hist;
	struct hist_span now = {.incarnation = h->incarnation};

	if (!a->i)
		hist_server_died(h);
	for (unsigned i = 0; a->i && i < SLOTS; i++)
		if (p->slots[i] && h->keys[p->slots[i] - 1].writing)
			hist_write_end(h, p->slots[i] - 1, &now, HIST_UNKNOWN);
}

static void server_stop(struct actor *a)
{
	struct peer *p = container_of(a, struct peer, a);

	for (unsigned i = 0; i < p->n_engines; i++)
		skein_engine_stop(p->engines[i]);
}

static const struct party_ops party_ops = {
	.server = server,
	.client = client,
	.born = peer_born,
	.killed = peer_killed,
	.stop = server_stop,
};

/* --- the run ----------------------------------------------------------- */

static void figures(struct run *run)
{
	static const char *const names[KV_OP_END - KV_INFO] = {
		"infos", "gets", "puts", "updates", "deletes", "scans"};
	struct report *rep = run->party.rep;

	report_row(rep, "clients", run->party.n_clients);
	for (unsigned i = 1; i < KV_OP_END - KV_INFO; i++)
		report_row(rep, names[i], (double)run->n[i]);
	report_row(rep, "failed", (double)run->n_failed);
	report_row(rep, "unknown", (double)run->n_unknown);
	report_row(rep, "keys", run->hist.n_keys);
	report_row(rep, "reads_checked",
		   (double)(run->hist.reads - run->hist.lost_sight));
}

static int kv(const struct scenario_conf *conf, struct report *rep)
{
	struct run *run = calloc(1, sizeof(*run));
	int rc;

	if (!run)
		return -ENOMEM;
	run->hist.rep = rep;
	kv_zipf_init(&run->zipf, SLOTS, KV_ZIPF_THETA, 0, NULL, NULL);
	for (unsigned i = 0; i <= PARTY_CLIENTS_MAX; i++)
		run->peers[i].run = run;
	rc = party_init(&run->party, &party_ops, conf, rep, run->peers,
			sizeof(run->peers[0]));
	if (rc)
		goto out;
	if (conf->faults)
		scarce_send_queues(run->party.w);
	party_play(&run->party);
	figures(run);
	party_judge(&run->party);
	party_fini(&run->party);
out:
	free(run);
	return rc;
}

const struct scenario scenario_kv = {
	.name = "kv",
	.what = "the key-value server, and one to four clients with YCSB's "
		"mixes",
	.fuzz = true,
	.run = kv,
};
