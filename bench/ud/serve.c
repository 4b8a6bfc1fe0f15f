/* SPDX-License-Identifier: MIT */
/*
 * serve.c - the server's end of ud_rpc: threads that echo, one QP each, for one
 * client, which says when it is over.
 */
#include "ctl.h"
#include "ends.h"
#include "server.h"

#include "env/env.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

struct serving;

struct worker {
	struct serving *all;
	struct env_thread *thread;
	struct ud_server server;
	struct ud_loss loss;
	unsigned sessions; /* 0: it has nothing to do */
	int rc;
};

struct serving {
	struct ud_end end;
	int ctl;
	struct ud_hello hello;
	struct worker *workers;
	/* Relaxed: says no more than itself; what the threads counted is seen
	 * after they were joined. */
	atomic_bool over;
};

static size_t echo(void *arg, const void *data, size_t len, void *resp)
{
	(void)arg;
	memcpy(resp, data, len);
	return len;
}

static void worker_main(void *arg)
{
	struct worker *w = arg;
	uint64_t threads = w->all->end.o->threads;
	unsigned dry = 0, n;

	while (!w->rc &&
	       !atomic_load_explicit(&w->all->over, memory_order_relaxed)) {
		w->rc = ud_server_round(&w->server, &n);
		if (n)
			dry = 0;
		else
			ud_rest(&dry, threads);
	}
	if (w->rc) /* wakes the thread that waits for the client's end */
		shutdown(w->all->ctl, SHUT_RD);
}

static int worker_open(struct serving *s, unsigned i)
{
	const struct ud_opts *o = s->end.o;
	struct worker *w = &s->workers[i];
	uint64_t recvs = o->recvs ? o->recvs : s->hello.credits;
	struct ud_server_conf conf = {
		.port = {.dev = s->end.dev,
			 .pd = s->end.pd,
			 .size = s->hello.size},
		.slots = s->hello.slots,
		.handler = echo,
	};

	w->all = s;
	w->sessions = (s->hello.threads + (unsigned)o->threads - 1 - i) /
		      (unsigned)o->threads;
	if (!w->sessions)
		return 0;
	conf.sessions = w->sessions;
	conf.port.recvs = (unsigned)recvs * w->sessions;
	ud_loss_init(&w->loss, o, i + UD_THREADS_MAX, &conf.port);
	return ud_server_open(&w->server, &conf);
}

static bool hello_sane(const struct ud_hello *h)
{
	return h->magic == UD_HELLO && h->threads && h->slots && h->credits &&
	       h->threads <= UD_THREADS_MAX && h->slots <= UD_WINDOW_MAX &&
	       h->credits <= UD_WINDOW_MAX && h->size <= UINT16_MAX;
}

/* Client thread i has session i / threads of worker i % threads. */
static int sessions_open(struct serving *s, const struct dev_qp_addr *clients,
			 struct ud_place *places)
{
	unsigned threads = (unsigned)s->end.o->threads;
	int rc = 0;

	for (unsigned i = 0; i < threads && !rc; i++)
		rc = worker_open(s, i);
	for (unsigned i = 0; i < s->hello.threads && !rc; i++) {
		struct ud_server *server = &s->workers[i % threads].server;

		places[i].session = (uint16_t)(i / threads);
		ud_port_addr(&server->port, &places[i].addr);
		rc = ud_server_connect(server, i / threads, &clients[i]);
	}
	return rc;
}

static int meet(struct serving *s)
{
	static struct dev_qp_addr clients[UD_THREADS_MAX];
	static struct ud_place places[UD_THREADS_MAX];
	struct ud_welcome welcome = {0};

	if (!ud_ctl_recv(s->ctl, &s->hello, sizeof(s->hello)) ||
	    !hello_sane(&s->hello) ||
	    !ud_ctl_recv(s->ctl, clients, s->hello.threads * sizeof(*clients)))
		return -EPROTO;
	welcome.rc = sessions_open(s, clients, places);
	if (welcome.rc)
		snprintf(welcome.why, sizeof(welcome.why),
			 "%u sessions of %u credits: %s", s->hello.threads,
			 s->hello.credits, strerror(-welcome.rc));
	if (!ud_ctl_send(s->ctl, &welcome, sizeof(welcome)))
		return -EPIPE;
	if (welcome.rc)
		return welcome.rc;
	return ud_ctl_send(s->ctl, places, s->hello.threads * sizeof(*places))
		       ? 0
		       : -EPIPE;
}

static void tally(const struct serving *s, struct ud_tally *t)
{
	memset(t, 0, sizeof(*t));
	for (unsigned i = 0; i < s->end.o->threads; i++) {
		const struct ud_server *server = &s->workers[i].server;

		t->executed += server->counts.executed;
		t->answered_again += server->counts.answered_again;
		t->old += server->counts.old;
		t->bursts += server->counts.bursts;
		t->strange += server->port.counts.strange;
		t->lost += server->port.counts.lost;
		t->doorbells += server->port.stats.doorbells;
	}
}

/* Until the client says so, or has gone. */
static int run(struct serving *s)
{
	uint64_t threads = s->end.o->threads;
	struct ud_tally t;
	bool said;
	char byte;
	int rc = 0;

	for (unsigned i = 0; i < threads && !rc; i++)
		if (s->workers[i].sessions)
			rc = env_thread_start(s->end.env, "ud", worker_main,
					      &s->workers[i],
					      &s->workers[i].thread);
	said = !rc && ud_ctl_recv(s->ctl, &byte, 1);
	atomic_store_explicit(&s->over, true, memory_order_relaxed);
	for (unsigned i = 0; i < threads; i++) {
		if (s->workers[i].thread)
			env_thread_join(s->end.env, s->workers[i].thread);
		if (!rc)
			rc = s->workers[i].rc;
	}
	tally(s, &t);
	if (!rc && (!said || !ud_ctl_send(s->ctl, &t, sizeof(t))))
		rc = -EPIPE;
	return rc;
}

static int serve_one(struct serving *s)
{
	int rc;

	s->workers = calloc(s->end.o->threads, sizeof(*s->workers));
	rc = s->workers ? meet(s) : -ENOMEM;
	if (!rc)
		rc = run(s);
	if (rc)
		fprintf(stderr, "ud_rpc: %s\n",
			rc == -EPIPE	? "the client went away"
			: rc == -EPROTO ? "that was no client of this program"
					: strerror(-rc));
	for (unsigned i = 0; s->workers && i < s->end.o->threads; i++)
		if (s->workers[i].server.sessions)
			ud_server_close(&s->workers[i].server);
	free(s->workers);
	return rc;
}

int ud_serve(const struct ud_opts *o)
{
	struct serving s = {0};
	uint16_t port = (uint16_t)o->port;
	int listener, rc = 1;

	if (ud_end_open(&s.end, o) == 0) {
		listener = ud_ctl_listen(&port);
		if (listener >= 0) {
			printf("ud_rpc: waiting on port %u\n", port);
			fflush(stdout);
			s.ctl = ud_ctl_accept(listener);
			rc = s.ctl < 0 || serve_one(&s) != 0;
			close(listener);
		}
		if (listener >= 0 && s.ctl >= 0)
			close(s.ctl);
	}
	ud_end_close(&s.end);
	return rc;
}
