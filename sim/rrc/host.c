/* SPDX-License-Identifier: MIT */
/* host.c - see rrc.h: the server, its kernel, and the clients. */
#include "sim/rrc/rrc.h"

#include "base/assert.h"
#include "base/hist.h"

#include <stdlib.h>
#include <string.h>

#define NS_S 1e9

struct host;

/* Messages on their way, in order. */
struct pipe {
	uint64_t at[RRC_WINDOW_MAX];
	unsigned head, n;
	struct sim_event ev;
};

struct client {
	struct host *h;
	struct pipe to_server, to_client;
	struct sim_event next; /* an interval is over */
	uint64_t sent[RRC_WINDOW_MAX];
	bool other[RRC_WINDOW_MAX]; /* of the second kind */
	unsigned first, n;	    /* of sent */
	uint64_t free_at;	    /* its thread has worked until then */
	struct prng prng;
	/* the server's side */
	struct thread *t;
	unsigned pending; /* in the ring; or in the socket */
	unsigned hidden;  /* their interrupts are still to come */
	struct pipe irqs; /* of hidden */
	unsigned served;  /* calls served so far */
	unsigned number;
};

/* A working thread, with a process of its own: only its own spinner looks. */
struct thread {
	struct host *h;
	struct sim_proc *proc;
	struct skein_env *env;
	struct env_waiter *waiter;
	unsigned index;
	bool asleep, woken;
	uint64_t user_ns, sys_ns; /* without what it spins */
	uint64_t slept_ns, asleep_since;
};

struct host {
	const struct rrc_conf *c;
	struct sim_world *w;
	struct sim_node *node;
	struct poller poller;
	struct client *clients;
	struct thread *threads, *pollers;
	uint64_t lock_free, irq_free;
	uint64_t client_irq_free[RRC_NODES];
	/* what was measured */
	bool on;
	uint64_t begun, calls, sleeps, writes, irq_ns, other_ns, others;
	struct hist hist;
};

/* When a wait begins, so that a bp_timeout of 0 is over at once. */
static uint64_t begins(const struct host *h, uint64_t now)
{
	bool none = h->c->mode == POLLER_BPEV && !h->c->measured &&
		    !h->c->bp_timeout_ns;

	return now - none;
}

static bool by_kernel(const struct rrc_conf *c)
{
	return c->mode == POLLER_TCP || c->mode == POLLER_EVENT;
}

/* --- messages on their way -------------------------------------------- */

static void pipe_push(struct sim_world *w, struct pipe *p, uint64_t at)
{
	skein_assert(p->n < RRC_WINDOW_MAX);
	p->at[(p->head + p->n++) % RRC_WINDOW_MAX] = at;
	if (p->n == 1)
		sim_at(w, &p->ev, at);
}

static void pipe_pop(struct sim_world *w, struct pipe *p)
{
	p->head = (p->head + 1) % RRC_WINDOW_MAX;
	if (--p->n)
		sim_at(w, &p->ev, p->at[p->head]);
}

/* --- the server's kernel ----------------------------------------------- */

/* When the kernel has seen a message that came at `now`. Completion interrupts
 * are served by one core (section IV-B); TCP's by all: serve() pays for them. */
static uint64_t kernel_sees(struct host *h, uint64_t now, uint64_t *irq_free)
{
	if (h->c->mode == POLLER_TCP)
		return now;
	if (*irq_free < now)
		*irq_free = now;
	*irq_free += RRC_IRQ_NS;
	return *irq_free;
}

static void rouse(struct thread *t)
{
	t->woken = true;
	env_waiter_wake(t->env, t->waiter);
}

static void softirq(struct sim_event *ev)
{
	struct client *c = container_of(ev, struct client, irqs.ev);

	pipe_pop(c->h->w, &c->irqs);
	c->hidden--;
	c->pending++;
	if (c->h->on && c->h->c->mode == POLLER_EVENT)
		c->h->irq_ns += RRC_IRQ_NS;
	rouse(c->t);
}

/* A request is in the server's memory. */
static void arrives(struct sim_event *ev)
{
	struct client *c = container_of(ev, struct client, to_server.ev);
	struct host *h = c->h;
	uint64_t now = sim_now(h->w);

	pipe_pop(h->w, &c->to_server);
	if (by_kernel(h->c)) {
		c->hidden++;
		pipe_push(h->w, &c->irqs, kernel_sees(h, now, &h->irq_free));
		return;
	}
	c->pending++;
	sim_notify(c->t->proc);
	for (unsigned i = 0; i < h->c->pollers; i++)
		sim_notify(h->pollers[i].proc);
}

/* --- the clients ------------------------------------------------------- */

static void send_one(struct client *c, uint64_t at)
{
	struct host *h = c->h;
	unsigned slot = (c->first + c->n) % RRC_WINDOW_MAX;

	skein_assert(c->n < RRC_WINDOW_MAX);
	c->sent[slot] = at;
	c->other[slot] = prng_below(&c->prng, 100) < h->c->other_pct;
	c->n++;
	if (h->c->mode == POLLER_TCP)
		at += RRC_TCP_NS / 3;
	pipe_push(h->w, &c->to_server, at + h->c->wire_ns);
}

static void interval_over(struct sim_event *ev)
{
	struct client *c = container_of(ev, struct client, next);

	send_one(c, sim_now(c->h->w));
}

static uint64_t interval(struct client *c)
{
	const struct rrc_conf *conf = c->h->c;
	uint64_t sum = 0;

	if (!conf->exponential)
		return conf->interval_ns;
	/* -ln(u), by adding up what is left of the mean in small steps. */
	while (prng_below(&c->prng, 64))
		sum += conf->interval_ns / 64;
	return sum;
}

/* When the client's thread begins with an answer that came at `now`: if it
 * waited for longer than bp_timeout, or never looks, it was asleep. */
static uint64_t client_begins(struct client *c, uint64_t now, bool *slept)
{
	struct host *h = c->h;
	struct poller_wait w = {begins(h, c->free_at), c->free_at};
	uint64_t *irq = &h->client_irq_free[c->number % RRC_NODES];
	uint64_t at = now > c->free_at ? now : c->free_at;

	*slept = poller_step(&h->poller, &w, at) == POLLER_SLEEP &&
		 (by_kernel(h->c) || at > c->free_at || h->c->blind);
	if (by_kernel(h->c))
		at = kernel_sees(h, at, irq) + (h->c->mode == POLLER_TCP
							? 2 * RRC_TCP_NS / 3
							: RRC_WAKE_NS);
	else if (*slept)
		at += RRC_EVENTFD_NS + RRC_WAKE_NS;
	else
		at += RRC_LOOK_NS;
	return at;
}

static void answered(struct sim_event *ev)
{
	struct client *c = container_of(ev, struct client, to_client.ev);
	struct host *h = c->h;
	bool other = c->other[c->first], slept;
	uint64_t now = sim_now(h->w), took;
	uint64_t begun = client_begins(c, now, &slept);

	pipe_pop(h->w, &c->to_client);
	took = begun + h->c->client_ns - c->sent[c->first];
	c->first = (c->first + 1) % RRC_WINDOW_MAX;
	c->n--;
	c->free_at = begun + h->c->client_ns;
	if (h->on && now >= h->begun) {
		h->calls++;
		if (other) {
			h->others++;
			h->other_ns += took;
		} else {
			hist_record(&h->hist, took);
		}
	}
	if (h->c->interval_ns)
		sim_at(h->w, &c->next, c->free_at + interval(c));
	else
		send_one(c, c->free_at);
	/* Back into epoll_wait() after the next call has left. */
	if (slept && h->c->mode == POLLER_BPEV && h->c->window > 1)
		c->free_at += RRC_CYCLE_NS;
}

/* --- the server's threads ---------------------------------------------- */

static void work(struct thread *t, uint64_t ns)
{
	sim_charge(t->h->w, ns);
	if (t->h->on)
		t->user_ns += ns;
}

static void call_kernel(struct thread *t, uint64_t ns)
{
	sim_charge(t->h->w, ns);
	if (t->h->on)
		t->sys_ns += ns;
}

static bool looks(struct thread *t)
{
	struct host *h = t->h;
	bool found = false;
	unsigned n = 0;

	for (unsigned i = t->index; i < h->c->clients; i += h->c->workers) {
		found |= h->clients[i].pending > 0;
		n++;
	}
	if (!by_kernel(h->c))
		work(t, n * (uint64_t)RRC_LOOK_NS);
	return found;
}

/* Since it fell asleep, or since the measurement began. */
static uint64_t asleep_for(const struct thread *t)
{
	const struct host *h = t->h;
	uint64_t since = t->asleep_since;

	if (!h->on)
		return 0;
	return sim_now(h->w) - (since > h->begun ? since : h->begun);
}

static void sleeps(struct thread *t)
{
	struct host *h = t->h;

	env_waiter_arm(t->env, t->waiter);
	if (!h->c->blind && looks(t)) {
		env_waiter_disarm(t->env, t->waiter);
		return;
	}
	call_kernel(t, RRC_SYSCALL_NS);
	sim_flush(h->w, 0);
	t->asleep = true;
	t->asleep_since = sim_now(h->w);
	h->sleeps += h->on;
	while (!t->woken)
		env_waiter_sleep(t->env, t->waiter, ENV_NEVER);
	t->woken = t->asleep = false;
	t->slept_ns += asleep_for(t);
	/* The wake-up itself is the simulator's `wake`, on a core of its own
	 * before this; what follows delays the next wait, not this call. */
	if (h->c->mode == POLLER_TCP)
		call_kernel(t, RRC_TCP_NS / 3 > RRC_WAKE_NS
				       ? RRC_TCP_NS / 3 - RRC_WAKE_NS
				       : 0);
}

/* WaitEvents of algorithms 1 and 2, by poller.c. */
static void wait_events(struct thread *t)
{
	struct host *h = t->h;
	struct poller_wait w = {0};
	bool first = true;

	sim_flush(h->w, 0);
	w.asked_ns = sim_now(h->w);
	w.begun_ns = begins(h, w.asked_ns);
	for (unsigned round = 0;; round++) {
		enum poller_step step =
			poller_step(&h->poller, &w, sim_now(h->w));

		/* A loop that is over before it begins never looks. */
		if (!(first && step == POLLER_SLEEP && h->c->blind) && looks(t))
			break;
		first = false;
		if (step == POLLER_SLEEP) {
			sleeps(t);
			round = 0;
			continue;
		}
		if (step == POLLER_ASK)
			call_kernel(t, RRC_SYSCALL_NS);
		sim_flush(h->w, 0);
		if (step == POLLER_ASK)
			w.asked_ns = sim_now(h->w);
		/* Nothing comes by the kernel here, so only bpev's end of
		 * looking is a time to wait for. */
		env_idle_until(t->env, t->waiter,
			       poller_mode(&h->poller) == POLLER_BPEV
				       ? poller_until(&h->poller, &w,
						      sim_now(h->w)) +
						 1
				       : ENV_NEVER);
		(void)env_idle(t->env, t->waiter, round);
	}
	sim_flush(h->w, 0);
	poller_found(&h->poller, &w, sim_now(h->w));
}

/* gRPC's locks: one thread at a time. */
static void in_lock(struct thread *t)
{
	struct host *h = t->h;
	uint64_t now;

	sim_flush(h->w, 0);
	now = sim_now(h->w);
	if (h->lock_free < now)
		h->lock_free = now;
	work(t, h->lock_free - now + h->c->lock_ns);
	h->lock_free += h->c->lock_ns;
}

static void serve(struct thread *t, struct client *c)
{
	struct host *h = t->h;
	bool other = c->other[c->served++ % RRC_WINDOW_MAX];
	uint64_t ns = other ? h->c->other_ns : h->c->server_ns;

	c->pending--;
	if (h->c->mode == POLLER_TCP) {
		/* The interrupt took this core, or one like it. */
		sim_charge(h->w, RRC_TCP_NS / 3);
		if (h->on)
			h->irq_ns += RRC_TCP_NS / 3;
	}
	if (h->c->lock_ns)
		in_lock(t);
	work(t, ns > h->c->lock_ns ? ns - h->c->lock_ns : 0);
	if (h->c->mode == POLLER_TCP)
		call_kernel(t, RRC_TCP_NS / 3);
	sim_flush(h->w, 0);
	pipe_push(h->w, &c->to_client, sim_now(h->w) + h->c->wire_ns);
}

static void worker(void *arg)
{
	struct thread *t = arg;
	struct host *h = t->h;
	uint64_t sleeps;

	for (;;) {
		sleeps = t->slept_ns;
		wait_events(t);
		for (unsigned i = t->index; i < h->c->clients;
		     i += h->c->workers)
			/* gRPC handles what an event announced, then waits
			 * again. */
			while (h->clients[i].pending)
				serve(t, &h->clients[i]);
		if (h->c->mode == POLLER_BPEV && t->slept_ns != sleeps)
			call_kernel(t, RRC_CYCLE_NS);
	}
}

/* RDMAPoll of algorithm 2: its share of the connections. */
static void polling(void *arg)
{
	struct thread *t = arg;
	struct host *h = t->h;

	for (unsigned round = 0;; round++) {
		for (unsigned i = t->index; i < h->c->clients;
		     i += h->c->pollers) {
			struct client *c = &h->clients[i];

			sim_charge(h->w, RRC_LOOK_NS);
			if (!c->pending || !c->t->asleep || c->t->woken)
				continue;
			sim_charge(h->w, RRC_EVENTFD_NS);
			sim_flush(h->w, 0);
			h->writes += h->on;
			rouse(c->t);
		}
		(void)env_idle(t->env, t->waiter, round);
	}
}

/* --- the world --------------------------------------------------------- */

static int thread_new(struct host *h, struct thread *t, unsigned index,
		      const char *name, void (*fn)(void *arg))
{
	int rc = sim_proc_new(h->node, name, &t->proc);

	t->h = h;
	t->index = index;
	if (rc)
		return rc;
	t->env = sim_proc_env(t->proc);
	rc = env_waiter_new(t->env, ENV_WAIT_SPIN, &t->waiter);
	return rc ? rc : sim_spawn(t->proc, name, fn, t);
}

static int populate(struct host *h)
{
	const struct rrc_conf *c = h->c;
	int rc = sim_node_new(h->w, "server", RRC_CORES, &h->node);

	for (unsigned i = 0; i < c->clients; i++) {
		struct client *x = &h->clients[i];

		x->h = h;
		x->number = i;
		x->t = &h->threads[i % c->workers];
		x->to_server.ev.fn = arrives;
		x->to_client.ev.fn = answered;
		x->irqs.ev.fn = softirq;
		x->next.fn = interval_over;
		sim_prng(h->w, 0x727263 + i, &x->prng);
	}
	for (unsigned i = 0; i < c->pollers && !rc; i++)
		rc = thread_new(h, &h->pollers[i], i, "polling", polling);
	for (unsigned i = 0; i < c->workers && !rc; i++)
		rc = thread_new(h, &h->threads[i], i, "working", worker);
	return rc;
}

static void start(struct host *h)
{
	/* Spread over an interval, or some microseconds. */
	uint64_t span = h->c->interval_ns ? h->c->interval_ns : 5000;

	for (unsigned i = 0; i < h->c->clients; i++) {
		struct client *c = &h->clients[i];
		uint64_t at = 1000 + prng_below(&c->prng, span);

		c->free_at = at;
		for (unsigned k = 0; k < h->c->window; k++)
			send_one(c, at + k * (uint64_t)h->c->client_ns);
	}
}

static void result(struct host *h, struct rrc_result *r)
{
	double span = (double)(sim_now(h->w) - h->begun);
	double all = span * RRC_CORES, busy = 0, sys = 0, spun;

	for (unsigned i = 0; i < h->c->workers; i++) {
		const struct thread *t = &h->threads[i];

		/* What a thread does not sleep it works or looks. */
		spun = span - (double)t->slept_ns -
		       (t->asleep ? (double)asleep_for(t) : 0);
		sys += (double)t->sys_ns;
		busy += by_kernel(h->c) ? (double)t->user_ns
					: spun - (double)t->sys_ns;
	}
	busy += span * h->c->pollers;
	/* Each wake-up: the waker's work and the switch. */
	sys += (double)h->sleeps * RRC_CONTEXT_NS;
	sys = sys < all ? sys : all;
	r->sys = sys / all;
	r->user = (busy < all - sys ? busy : all - sys) / all;
	r->softirq = (double)h->irq_ns / all;
	r->rate = (double)h->calls * NS_S / span;
	r->mean_us = (double)hist_mean(&h->hist) / 1000;
	r->p50_us = (double)hist_percentile(&h->hist, 50) / 1000;
	r->p99_us = (double)hist_percentile(&h->hist, 99) / 1000;
	r->other_us =
		h->others ? (double)h->other_ns / 1000 / (double)h->others : 0;
	r->sleeps = h->calls ? (double)h->sleeps / (double)h->calls : 0;
	r->writes = h->calls ? (double)h->writes / (double)h->calls : 0;
	r->timeout_us = (double)poller_timeout_ns(&h->poller) / 1000;
	r->hash = sim_hash(h->w);
	r->virtual_ns = sim_now(h->w);
	r->events = sim_events(h->w);
}

static int run(struct host *h, struct rrc_result *r)
{
	int rc = populate(h);

	if (rc)
		return rc;
	start(h);
	sim_run(h->w, h->c->warm_ns);
	h->on = true;
	h->begun = sim_now(h->w);
	sim_run(h->w, h->c->warm_ns + h->c->run_ns);
	result(h, r);
	return 0;
}

int rrc_run(const struct rrc_conf *c, struct rrc_result *r)
{
	struct sim_conf conf = {.seed = c->seed,
				.costs = {.wake = RRC_WAKE_NS - RRC_CONTEXT_NS,
					  .context = RRC_CONTEXT_NS,
					  .slice_us = RRC_SLICE_US,
					  .round = 1,
					  .detect = RRC_LOOK_NS,
					  .syscall = 1}};
	struct host h = {.c = c};
	int rc = sim_world_new(&conf, &h.w);

	if (rc)
		return rc;
	h.clients = calloc(c->clients, sizeof(*h.clients));
	h.threads = calloc(c->workers, sizeof(*h.threads));
	h.pollers = calloc(c->pollers + 1, sizeof(*h.pollers));
	hist_init(&h.hist);
	poller_init(&h.poller, c->mode);
	/* 0 is the poller's word for "measured". */
	if (!c->measured)
		atomic_store(&h.poller.bp_timeout_ns,
			     c->bp_timeout_ns ? c->bp_timeout_ns : 1);
	*r = (struct rrc_result){0};
	rc = h.clients && h.threads && h.pollers ? run(&h, r) : -ENOMEM;
	sim_world_free(h.w);
	free(h.clients);
	free(h.threads);
	free(h.pollers);
	return rc;
}
