/* SPDX-License-Identifier: MIT */
/*
 * rpc_handles.c - many threads of one to four clients share handles to one or
 * two servers, under all faults: calls of all kinds and sizes, memory
 * operations, threads that come and leave.
 *
 * What must hold: ledger.h; a thread's callbacks run in that thread while it is
 * there; a READ finds what its thread wrote before it, on any lane; after the
 * faults every operation of every thread succeeds, and when nothing is under
 * way both ends count the same credits. party.h has what must hold of every
 * scenario.
 */
#include "conn/ctx.h"
#include "sim/handles/rpc_handles.h"
#include "sim/scarce.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define MS PARTY_MS
#define SETTLE_NS SKEIN_S(2)

struct run {
	struct party party;
	struct handles_peer peers[PARTY_ACTORS_MAX];
	struct client clients[PARTY_ACTORS_MAX];
	struct ledger ledger;
	uint64_t migrations, declines, settled;
	uint64_t messages, shared; /* of several calls */
};

static struct run *run_of(struct handles_peer *p)
{
	return container_of(p->a.party, struct run, party);
}

/* --- a session ---------------------------------------------------------- */

static struct serving *server_of(struct handles_peer *p, uint32_t life)
{
	struct run *run = run_of(p);

	for (unsigned i = 0; i < run->party.n_servers; i++)
		if (run->peers[i].s.life == life)
			return &run->peers[i].s;
	return NULL;
}

/* Which life of which server is at the other end. */
static void area_find(struct handles_peer *p, struct handle *h)
{
	struct client *c = p->c;
	uint64_t *life = skein_mem_addr(c->local);

	h->area.size = sizeof(h->area);
	if (skein_mem_find(h->conn, "area", SKEIN_MS(100), &h->area) ||
	    skein_mem_read(h->conn, c->local, 0, &h->area, 0, 8, SKEIN_S(1)))
		return;
	h->life = (uint32_t)*life;
	h->server = server_of(p, h->life);
	h->mem = h->server != NULL;
}

static int handle_open(struct handles_peer *p, struct handle *h)
{
	struct skein_conn_attr attr = {.size = sizeof(attr)};
	struct party *party = p->a.party;
	const char *addr;
	int rc;

	addr = handles_draw(p, party->n_servers) ? "server1:7000"
						 : "server:7000";
	attr.retries = (unsigned)handles_draw(p, 5);
	attr.timeout_ns = SKEIN_MS(200 + handles_draw(p, 2000));
	/* drawn, too */
	attr.return_mode = (enum skein_return[]){
		SKEIN_RETURN_REPLY, SKEIN_RETURN_FETCH,
		SKEIN_RETURN_AUTO}[attr.timeout_ns / SKEIN_MS(1) % 3];
	attr.reconnect = !p->c->faults_over && !handles_draw(p, 4);
	attr.qps = 1 + (unsigned)handles_draw(p, 6);
	attr.combine = (unsigned[]){0, 1, 2, 16}[handles_draw(p, 4)];
	attr.shard = (unsigned)handles_draw(p, 4);
	*h = (struct handle){.ordered = !attr.reconnect,
			     .flips = !handles_draw(p, 3)};
	rc = skein_conn_open(p->a.ctx, addr, &attr, &h->conn);
	if (!rc && handles_draw(p, 2))
		handles_gather(p, h->conn);
	return rc;
}

static void handle_close(struct handles_peer *p, struct handle *h)
{
	struct run *run = run_of(p);
	struct skein_rpc_stats st = {.size = sizeof(st)};

	if (!skein_rpc_get_stats(h->conn, &st)) {
		run->migrations += st.migrations;
		run->declines += st.credit_declines;
		run->messages += st.messages_sent;
		for (unsigned i = 1; i < SKEIN_RPC_DEGREES; i++)
			run->shared += st.degrees[i];
	}
	skein_conn_close(h->conn, SKEIN_MS(handles_draw(p, 200)));
}

/* Nothing is under way: soon both ends' books agree. */
static void settle(struct handles_peer *p, struct handle *h)
{
	struct run *run = run_of(p);
	struct sim_world *w = p->a.party->w;
	uint64_t end = sim_thread_now(w) + SETTLE_NS;
	enum books books;
	char why[160];

	do {
		books = handles_books(h->conn, run->peers, run->party.n_servers,
				      why, sizeof(why));
		if (books != BOOKS_UNSETTLED || !handle_usable(h))
			break;
		skein_engine_run(skein_ctx_engine(p->a.ctx), 200000);
		sim_sleep(w, 1000);
	} while (sim_thread_now(w) < end);
	run->settled += books == BOOKS_AGREE;
	if (handle_usable(h) &&
	    (books == BOOKS_WRONG ||
	     (books == BOOKS_UNSETTLED && p->c->faults_over)))
		report_fail(p->ledger->rep, "client %u: %s", p->a.i, why);
}

/* After the faults handles stay. */
static bool all_usable(struct handles_peer *p)
{
	struct client *c = p->c;
	const char *why;

	for (unsigned i = 0; i < c->n_handles; i++) {
		if (handle_usable(&c->handles[i]))
			continue;
		skein_conn_error(c->handles[i].conn, &why);
		report_fail(p->ledger->rep, "client %u: %s", p->a.i, why);
		return false;
	}
	return true;
}

static void use_handles(struct handles_peer *p)
{
	struct client *c = p->c;

	for (unsigned i = 0; i < c->n_handles; i++)
		if (c->handles[i].ordered && c->local)
			area_find(p, &c->handles[i]);
	handles_visit(p);
	if (!c->faults_over || !all_usable(p) || c->outstanding)
		return;
	for (unsigned i = 0; i < c->n_handles; i++)
		settle(p, &c->handles[i]);
	p->a.got_through = all_usable(p);
}

static int session(struct actor *actor)
{
	struct handles_peer *p = container_of(actor, struct handles_peer, a);
	struct client *c = p->c;
	unsigned want = 1 + (unsigned)handles_draw(p, HANDLES);
	uint64_t end;
	int rc = 0;

	handles_tune(p);
	c->faults_over = actor_over(actor);
	if (skein_mem_new(actor->ctx,
			  (size_t)VISITORS * HANDLES * (WRITES + 1) * SLOT_LEN,
			  &c->local))
		c->local = NULL;
	for (c->n_handles = 0; c->n_handles < want && !rc; c->n_handles += !rc)
		rc = handle_open(p, &c->handles[c->n_handles]);
	if (!rc)
		use_handles(p);
	while (c->n_handles)
		handle_close(p, &c->handles[--c->n_handles]);
	/* A close without patience does not wait. */
	end = sim_thread_now(actor->party->w) + PATIENCE_NS;
	while (c->outstanding && sim_thread_now(actor->party->w) < end)
		skein_engine_run(skein_ctx_engine(actor->ctx), MS);
	skein_mem_free(c->local);
	c->local = NULL;
	if (c->outstanding)
		report_fail(p->ledger->rep,
			    "client %u: %u operations outlive their handles",
			    actor->i, c->outstanding);
	return rc;
}

static void client(void *actor)
{
	actor_sessions(actor, session);
}

/* --- kills and births --------------------------------------------------- */

static void peer_born(struct actor *actor)
{
	struct handles_peer *p = container_of(actor, struct handles_peer, a);

	handles_server_born(p);
	p->c->outstanding = p->c->n_handles = 0;
	p->c->local = NULL;
}

static void peer_killed(struct actor *actor)
{
	struct handles_peer *p = container_of(actor, struct handles_peer, a);

	if (actor->server)
		handles_server_killed(p);
	else
		ledger_client_killed(p->ledger, actor->i);
}

static void server_stop(struct actor *actor)
{
	handles_server_stop(container_of(actor, struct handles_peer, a));
}

static const struct party_ops party_ops = {
	.servers_max = PARTY_SERVERS_MAX,
	.server = handles_server,
	.client = client,
	.born = peer_born,
	.killed = peer_killed,
	.stop = server_stop,
};

/* --- the run ------------------------------------------------------------ */

static void figures(struct run *run)
{
	struct report *rep = run->party.rep;
	uint64_t threads = 0, memory_ok = 0;

	for (unsigned i = 0; i < PARTY_ACTORS_MAX; i++) {
		threads += run->clients[i].threads;
		memory_ok += run->clients[i].memory_ok;
	}
	report_row(rep, "clients", run->party.n_clients);
	report_row(rep, "servers", run->party.n_servers);
	report_row(rep, "threads", (double)threads);
	ledger_figures(&run->ledger);
	report_row(rep, "writes_and_reads_ok", (double)memory_ok);
	report_row(rep, "messages", (double)run->messages);
	report_row(rep, "messages_of_several_calls", (double)run->shared);
	report_row(rep, "migrations", (double)run->migrations);
	report_row(rep, "declines", (double)run->declines);
	report_row(rep, "books_compared", (double)run->settled);
}

static int rpc_handles(const struct scenario_conf *conf, struct report *rep)
{
	struct run *run = calloc(1, sizeof(*run));
	int rc;

	if (!run)
		return -ENOMEM;
	run->ledger.rep = rep;
	for (unsigned i = 0; i < PARTY_ACTORS_MAX; i++) {
		run->peers[i].ledger = &run->ledger;
		run->peers[i].c = &run->clients[i];
	}
	rc = party_init(&run->party, &party_ops, conf, rep, run->peers,
			sizeof(run->peers[0]));
	if (rc)
		goto out;
	if (conf->faults)
		scarce_send_queues(run->party.w);
	party_play(&run->party);
	ledger_judge(&run->ledger, run->party.faults.counts[FAULT_MEMORY]);
	figures(run);
	party_judge(&run->party);
	party_fini(&run->party);
out:
	free(run);
	return rc;
}

const struct scenario scenario_rpc_handles = {
	.name = "rpc-handles",
	.what = "many threads of one to four clients share handles to servers",
	.fuzz = true,
	.run = rpc_handles,
};
