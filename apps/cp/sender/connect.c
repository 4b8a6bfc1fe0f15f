/* SPDX-License-Identifier: MIT */
/*
 * connect.c - connects to all targets at once and begins with those that
 * gather.c says; see state.h.
 */
#include "cp/sender/state.h"

#include "cp/sender/gather.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct connecting {
	struct cp_job *job;
	struct cp_gather g;
	struct cp_candidate *v;
};

static void on_state(void *arg, struct skein_conn *conn,
		     enum skein_conn_state state)
{
	struct cp_job *job = arg;

	pthread_mutex_lock(&job->lock);
	job->changed = true;
	pthread_cond_broadcast(&job->wake);
	pthread_mutex_unlock(&job->lock);
}

/* Keeps the words of an attempt that has failed. */
static void attempt_failed(struct connecting *c, size_t i, int rc)
{
	struct cp_peer *p = &c->job->peer[i];
	const char *text = "";

	if (p->conn)
		skein_conn_error(p->conn, &text);
	snprintf(p->result->text, sizeof(p->result->text), "%s",
		 *text ? text : skein_strerror(rc));
	if (p->conn)
		skein_conn_close(p->conn, CP_CLOSE_NS);
	p->conn = NULL;
	cp_gather_failed(&c->g, i, rc, cp_now_ns());
}

static void try_one(struct connecting *c, size_t i)
{
	struct cp_job *job = c->job;
	struct cp_peer *p = &job->peer[i];
	uint64_t now = cp_now_ns();
	struct skein_conn_attr attr = {
		.size = sizeof(attr),
		.timeout_ns = now < c->g.end_ns ? c->g.end_ns - now : 1,
		.on_state = on_state,
		.arg = job,
	};
	int rc;

	cp_gather_again(&c->g, i);
	rc = skein_conn_open_async(job->attr.ctx, p->result->addr, &attr,
				   &p->conn);
	if (!rc)
		return;
	p->conn = NULL;
	attempt_failed(c, i, rc);
}

/* What has become of each attempt, and the next ones. */
static void look(struct connecting *c)
{
	for (size_t i = 0; i < c->job->n; i++) {
		struct cp_peer *p = &c->job->peer[i];
		enum skein_conn_state state;
		const char *text;
		int rc;

		if (c->v[i].there == CP_THERE_PAUSE &&
		    cp_now_ns() >= c->v[i].again_ns)
			try_one(c, i);
		if (c->v[i].there != CP_THERE_TRYING)
			continue;
		state = skein_conn_get_state(p->conn);
		if (state == SKEIN_CONN_CONNECTING)
			continue;
		if (state == SKEIN_CONN_READY) {
			cp_gather_ready(&c->g, i);
			continue;
		}
		rc = skein_conn_error(p->conn, &text);
		attempt_failed(c, i, rc ? rc : -ENOTCONN);
	}
}

static void wait_for_change(struct connecting *c)
{
	struct cp_job *job = c->job;
	uint64_t at = cp_gather_next(&c->g, cp_now_ns());
	struct timespec t = {.tv_sec = (time_t)(at / 1000000000u),
			     .tv_nsec = (long)(at % 1000000000u)};
	int rc = 0;

	pthread_mutex_lock(&job->lock);
	while (!job->changed && rc != ETIMEDOUT)
		rc = pthread_cond_timedwait(&job->wake, &job->lock, &t);
	job->changed = false;
	pthread_mutex_unlock(&job->lock);
}

/* They take no part: each with its reason, and the user hears of it now. */
static void leave_out(struct connecting *c, bool begins)
{
	struct cp_job *job = c->job;
	size_t there = 0;

	for (size_t i = 0; i < job->n; i++)
		there += c->v[i].there == CP_THERE_YES;
	for (size_t i = 0; i < job->n; i++) {
		struct cp_peer *p = &job->peer[i];
		int err = c->v[i].err;
		char words[CP_ERR_MAX];

		/* it is overwritten by what is made of it */
		memcpy(words, p->result->text, sizeof(words));

		if (c->v[i].there == CP_THERE_YES && begins)
			continue;
		if (c->v[i].there == CP_THERE_YES)
			cp_peer_fail(p, -ENOTCONN,
				     "only %zu of %zu targets answered, and "
				     "--wait-for wants %zu",
				     there, job->n, cp_gather_need(&c->g));
		else if (c->v[i].there == CP_THERE_TRYING)
			cp_peer_fail(p, -ETIMEDOUT,
				     "nothing there answers as Skein does%s "
				     "(is `skein cp --serve` running, and on "
				     "this port?)",
				     begins ? ", and the others had answered"
					    : "");
		else
			cp_peer_fail(p, err, "%s", words);
		if (begins && job->attr.missing)
			job->attr.missing(job->attr.arg, p->result);
	}
}

int cp_connect(struct cp_job *job)
{
	struct connecting c = {.job = job};
	enum cp_gathered verdict;

	c.v = calloc(job->n + 1, sizeof(*c.v));
	if (!c.v)
		return cp_fail(job->err, -ENOMEM, "no memory");
	cp_gather_init(&c.g, job->attr.wait_for, c.v, job->n, cp_now_ns(),
		       job->attr.greeting_ns, job->attr.connect_timeout_ns);
	for (size_t i = 0; i < job->n; i++)
		try_one(&c, i);
	for (;;) {
		look(&c);
		verdict = cp_gather_decide(&c.g, cp_now_ns());
		if (verdict != CP_GATHER_WAIT)
			break;
		wait_for_change(&c);
	}
	leave_out(&c, verdict == CP_GATHER_BEGIN);
	free(c.v);
	return 0;
}
