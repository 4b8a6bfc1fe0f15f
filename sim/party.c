/* SPDX-License-Identifier: MIT */
/* party.c - servers, their clients, and trouble; see party.h. */
#include "sim/party.h"

#include "conn/ctx.h"
#include "dev/sim/link.h"

#include <errno.h>
#include <skein/skein.h>
#include <stdio.h>
#include <string.h>

#define TAG_START 40u
#define MS PARTY_MS

bool actor_over(struct actor *a)
{
	return sim_thread_now(a->party->w) >= a->party->end_ns;
}

void actor_close(struct actor *a)
{
	unsigned long garbage = atomic_load(&a->ctx->counts.garbage);

	if (garbage)
		report_fail(a->party->rep,
			    "%s %u: garbage came by %lu connections",
			    a->server ? "server" : "client", a->i, garbage);
	skein_ctx_close(a->ctx);
	a->ctx = NULL;
}

void actor_sessions(struct actor *a, int (*session)(struct actor *a))
{
	struct skein_ctx_attr attr = {.size = sizeof(attr)};
	struct sim_world *w = a->party->w;

	while (!a->got_through) {
		attr.wait = (enum skein_wait)actor_draw(a, 4);
		attr.background = !actor_draw(a, 4);
		if (ctx_open_env(actor_env(a), &attr, &a->ctx)) {
			sim_sleep(w, MS);
			continue;
		}
		for (unsigned i = 0; i < 3 && !a->got_through; i++)
			if (session(a))
				sim_sleep(w, MS);
		actor_close(a);
	}
	a->ended = true;
}

/* --- kills and births -------------------------------------------------- */

static void actor_name(const struct actor *a, char *name, size_t len)
{
	if (!a->i)
		snprintf(name, len, "server");
	else if (a->server)
		snprintf(name, len, "server%u", a->i);
	else
		snprintf(name, len, "client%u", a->i + 1 - a->party->n_servers);
}

static void actor_start(struct sim_event *ev)
{
	struct actor *a = container_of(ev, struct actor, start);
	const struct party_ops *ops = a->party->ops;
	char name[24];

	actor_name(a, name, sizeof(name));
	a->ctx = NULL;
	ops->born(a);
	if (sim_proc_new(a->node, name, &a->proc) ||
	    sim_spawn(a->proc, "main", a->server ? ops->server : ops->client,
		      a))
		report_fail(a->party->rep, "out of memory");
}

static struct sim_proc *actor_proc(void *arg, unsigned i)
{
	struct actor *a = ((struct party *)arg)->actors[i];

	return a->proc && sim_proc_alive(a->proc) ? a->proc : NULL;
}

static void actor_kill(void *arg, unsigned i, uint64_t back_ns)
{
	struct party *p = arg;
	struct actor *a = p->actors[i];

	if (!actor_proc(p, i) || a->ended)
		return;
	p->ops->killed(a);
	sim_proc_kill(a->proc);
	sim_at(p->w, &a->start, back_ns + MS + actor_draw(a, 50 * MS));
}

/* --- building ---------------------------------------------------------- */

static int add(struct party *p, struct actor *a, struct prng *r)
{
	unsigned i = p->faults.n_nodes++;
	char name[24];
	int rc;

	p->actors[i] = a;
	a->party = p;
	a->i = i;
	a->server = i < p->n_servers;
	sim_prng(p->w, 100 + i, &a->r);
	actor_name(a, name, sizeof(name));
	rc = sim_node_new(p->w, name, 1 + (unsigned)prng_below(r, 4), &a->node);
	if (rc)
		return rc;
	p->faults.nodes[i] = a->node;
	a->start.fn = actor_start;
	a->start.tag = TAG_START;
	sim_at(p->w, &a->start, a->server ? 0 : prng_below(r, 5 * MS));
	return 0;
}

/* A script has all the time that it wants. */
static uint64_t end_of(const struct fault_script *script)
{
	uint64_t end = PARTY_RUN_NS, at;

	for (unsigned i = 0; script && i < script->n; i++) {
		at = script->line[i].at_ns + script->line[i].span_ns + 10 * MS;
		end = at > end ? at : end;
	}
	return end;
}

/* Messages move in pieces, and the seed draws which order of bytes the devices
 * declare. So every way to tell a whole message from a torn one is tried. */
static void tear_draw(struct sim_world *w)
{
	struct sim_tear tear = {.ppm = 200000, .span_ns = 5000};
	struct prng r;

	sim_prng(w, 0x7061727479, &r);
	tear.ordered_write = !prng_below(&r, 3);
	tear.ordered_read = !prng_below(&r, 3);
	sim_net_set_tear(w, &tear);
}

int party_init(struct party *p, const struct party_ops *ops,
	       const struct scenario_conf *conf, struct report *rep,
	       void *actors, size_t actor_size)
{
	struct sim_conf wc = {.seed = conf->seed,
			      .log = conf->log,
			      .log_arg = conf->log_arg,
			      .log_level = ENV_LOG_INFO,
			      .check = true,
			      .tracer = conf->tracer};
	struct prng r;
	int rc;

	memset(p, 0, sizeof(*p));
	p->ops = ops;
	p->rep = rep;
	rc = sim_world_new(&wc, &p->w);
	if (rc)
		return rc;
	scenario_nic(p->w, conf);
	if (conf->faults)
		tear_draw(p->w);
	rep->ok = true;
	sim_prng(p->w, 1, &r);
	p->n_clients = 1 + (unsigned)prng_below(&r, PARTY_CLIENTS_MAX);
	p->n_servers = 1;
	if (ops->servers_max > 1)
		p->n_servers += (unsigned)prng_below(&r, ops->servers_max);
	for (unsigned i = 0; !rc && i < party_actors(p); i++)
		rc = add(p, (void *)((char *)actors + i * actor_size), &r);
	if (rc) {
		sim_world_free(p->w);
		return rc;
	}
	p->end_ns = end_of(conf->script);
	p->faults.w = p->w;
	p->faults.mean_ns = 3 * MS + prng_below(&r, 20 * MS);
	p->faults.end_ns = conf->faults ? p->end_ns : 0;
	p->faults.script = conf->script;
	p->faults.kill = actor_kill;
	p->faults.proc = actor_proc;
	p->faults.arg = p;
	return 0;
}

void party_fini(struct party *p)
{
	sim_world_free(p->w);
}

/* --- the run ----------------------------------------------------------- */

static bool clients_ended(struct party *p)
{
	for (unsigned i = p->n_servers; i < party_actors(p); i++)
		if (!p->actors[i]->ended)
			return false;
	return true;
}

void party_play(struct party *p)
{
	enum sim_end end;

	faults_start(&p->faults);
	sim_run(p->w, p->end_ns);
	faults_heal(&p->faults);
	do
		end = sim_run(p->w, sim_now(p->w) + 10 * MS);
	while (end == SIM_END_TIME && !clients_ended(p) && p->rep->ok &&
	       sim_now(p->w) < PARTY_LIMIT_NS);
	p->over = true;
	for (unsigned i = 0; i < p->n_servers; i++)
		p->ops->stop(p->actors[i]);
	sim_run(p->w, sim_now(p->w) + PARTY_LIMIT_NS);
}

/* --- judging ----------------------------------------------------------- */

static void say(void *arg, const char *line)
{
	struct report *rep = arg;
	size_t n = strlen(rep->why);

	if (rep->ok)
		report_fail(rep, "it waits for ever: %s", line);
	else
		snprintf(rep->why + n, sizeof(rep->why) - n, "; %s", line);
}

void party_judge(struct party *p)
{
	for (unsigned i = 0; i < party_actors(p); i++) {
		struct actor *a = p->actors[i];

		if (!a->ended)
			sim_proc_report(a->proc, say, p->rep);
		else if (sim_proc_bytes(a->proc) || sim_proc_fds(a->proc))
			report_fail(p->rep,
				    "%s %u left %zu bytes, %u descriptors",
				    a->server ? "server" : "client", i,
				    sim_proc_bytes(a->proc),
				    sim_proc_fds(a->proc));
	}
	for (unsigned k = 0; k < FAULT_KINDS; k++)
		report_row(p->rep, fault_names[k].name, p->faults.counts[k]);
	report_nic(p->rep, p->actors[0]->node);
	report_world(p->rep, p->w);
}
