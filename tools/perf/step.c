/* SPDX-License-Identifier: MIT */
/*
 * step.c - the client tells the server what to do next.
 *
 * With --self through the shared page, spinning, so that no core goes to sleep
 * between a probe and its neighbours and nothing in a run but its ends makes a
 * system call; else over the control link.
 */
#include "perf/ctl.h"
#include "perf/probe.h"
#include "perf/ticks.h"

#include <errno.h>
#include <sched.h>
#include <string.h>

/* A server may wait long: the client's other sizes and probes take their
 * time. */
#define STEP_PATIENCE_NS 600000000000ull
#define LAST_WORDS_NS 100000000ull
#define CAUSE_NS 1000000000ull

static const char *const step_names[STEP_KINDS] = {
	[STEP_NONE] = "none",	[STEP_RESIZE] = "resize", [STEP_LINE] = "line",
	[STEP_EVENT] = "event", [STEP_RUN] = "run",	  [STEP_QUIT] = "quit",
};

/* What the other end says when a run has failed there. */
static int peer_error(struct perf *p, json_t *msg)
{
	const char *text = json_string_value(json_object_get(msg, "error"));
	int rc;

	if (!text)
		return 0;
	p->err_known = true;
	rc = perf_fail(p, -ECONNABORTED, "%s says: %.400s",
		       p->server ? "the client" : "the server", text);
	return rc;
}

/* The peer's error; else 0, and *end is why nothing more came. */
static int last_words(struct perf *p, uint64_t timeout_ns, int *end)
{
	uint64_t now = clock_ns(), until = now + timeout_ns;
	json_t *msg;
	int told = 0;

	for (; !told; now = clock_ns()) {
		*end = ctl_recv(p->ctl, now < until ? until - now : 0, &msg);
		if (*end)
			break;
		told = peer_error(p, msg);
		json_decref(msg);
	}
	return told;
}

int perf_last_words(struct perf *p)
{
	int end;

	return last_words(p, CAUSE_NS, &end);
}

static const char *peer_gone(const struct perf *p)
{
	return p->server ? "the client is gone" : "the server is gone";
}

/* Another program answers: a client may name a port that is not a perf
 * server's. */
static int not_perf(struct perf *p)
{
	p->err_known = true; /* it would not understand */
	if (p->server || !p->o.host)
		return perf_fail(p, -EPROTO,
				 "the %s sends what skein perf does not send",
				 p->server ? "client" : "server");
	return perf_fail(p, -EPROTO,
			 "what listens at %s port %u is no skein perf: give "
			 "the server another port, and its clients the same "
			 "(-p)",
			 p->o.host, p->o.port);
}

#define SILENT "it may be stopped, or its host busy"

/* The link is broken. An error that the peer sent before, if there is one, says
 * more than that. */
int perf_gone(struct perf *p, int rc)
{
	int end, told = last_words(p, LAST_WORDS_NS, &end);

	if (told)
		return told;
	/* A peer that is slow, or stopped, is still there. */
	if (rc == -ETIMEDOUT)
		return perf_fail(p, rc, "timed out: no answer from the %s: %s",
				 p->server ? "client" : "server", SILENT);
	/* Where another program has hung up, its answer may not be read yet. */
	if (rc == -EPROTO || end == -EPROTO)
		return not_perf(p);
	p->err_known = true; /* there is no peer left to send it to */
	return perf_fail(p, rc, "%s: %s", peer_gone(p), strerror(-rc));
}

void perf_blame(struct perf *p)
{
	char err[sizeof(p->err)];
	int end;

	if (p->err_known || last_words(p, LAST_WORDS_NS, &end) ||
	    end == -ETIMEDOUT)
		return;
	p->err_known = true;
	snprintf(err, sizeof(err), "%s: %.480s", peer_gone(p), p->err);
	memcpy(p->err, err, sizeof(err));
}

/* With --self: the server has carried out each step, and may have left after the
 * last one. Pairs with the release in step_done(). */
static bool server_is_done(const struct perf *p)
{
	return p->shm && !p->server &&
	       __atomic_load_n(&p->shm->done, __ATOMIC_ACQUIRE) ==
		       p->shm->step.seq;
}

/* The peer sent something while an operation waits for it, or hung up. "Done"
 * of the server is expected: its last WRITE may still be on its way, because
 * the control link is quicker than some devices. */
int perf_out_of_turn(struct perf *p)
{
	json_t *msg;
	int rc = ctl_recv(p->ctl, PERF_PATIENCE_NS, &msg);

	if (rc)
		return server_is_done(p) ? 0 : perf_gone(p, rc);
	rc = peer_error(p, msg);
	if (!rc && p->step_open && json_is_true(json_object_get(msg, "done")))
		p->step_open = false;
	else if (!rc)
		rc = perf_fail(p, -EPROTO,
			       "a message out of turn on the control link");
	json_decref(msg);
	return rc;
}

bool perf_spin_slow(struct perf_worker *w)
{
	struct perf *p = w->p;
	uint64_t now = clock_ns();

	if (!w->spin_until)
		w->spin_until = now + perf_patience(p);
	/* worker 0 alone: a control link belongs to one thread */
	if (w->index == 0 && ctl_pending(p->ctl)) {
		w->rc = perf_out_of_turn(p);
		if (w->rc)
			return false;
	}
	if (now < w->spin_until)
		return true;
	w->rc = perf_fail(p, -ETIMEDOUT,
			  "timed out: no answer from the %s for %llu s: %s",
			  p->server ? "client" : "server",
			  (unsigned long long)perf_patience(p) / 1000000000u,
			  SILENT);
	return false;
}

/* Rounds between two looks at the clock and at the other end. */
#define SLOW_ROUNDS (1u << 20)

bool perf_spin_on(struct perf_worker *w)
{
	if (!w->p->o.self || w->spins % PERF_SELF_ROUNDS == 0)
		sched_yield();
	return w->spins % SLOW_ROUNDS ? true : perf_spin_slow(w);
}

int perf_recv(struct perf *p, uint64_t timeout_ns, json_t **msg)
{
	int rc = ctl_recv(p->ctl, timeout_ns, msg);

	if (rc)
		return perf_gone(p, rc);
	rc = peer_error(p, *msg);
	if (rc)
		json_decref(*msg);
	return rc;
}

int step_wait_done(struct perf *p)
{
	struct perf_worker *w = &p->workers[0];
	json_t *msg;
	int rc;

	if (p->shm) {
		while (__atomic_load_n(&p->shm->done, __ATOMIC_ACQUIRE) !=
		       p->shm->step.seq)
			if (!perf_spin(w))
				return w->rc;
		perf_spun(w);
		return 0;
	}
	if (!p->step_open)
		return 0;
	p->step_open = false;
	rc = perf_recv(p, PERF_PATIENCE_NS, &msg);
	if (rc)
		return rc;
	if (!json_is_true(json_object_get(msg, "done")))
		rc = perf_fail(p, -EPROTO,
			       "the server's answer makes no sense");
	json_decref(msg);
	return rc;
}

int step_begin(struct perf *p, enum step_kind kind, uint64_t n)
{
	int rc = step_wait_done(p);

	if (rc)
		return rc;
	if (p->shm) {
		p->shm->step.kind = kind;
		p->shm->step.n = n;
		/* publishes kind and n to step_next()'s acquire */
		__atomic_store_n(&p->shm->step.seq, p->shm->step.seq + 1,
				 __ATOMIC_RELEASE);
		return 0;
	}
	rc = ctl_send(p->ctl, json_pack("{s:s, s:I}", "step", step_names[kind],
					"n", (json_int_t)n));
	if (rc)
		return perf_gone(p, rc);
	p->step_open = true;
	return 0;
}

static int next_by_shm(struct perf *p, enum step_kind *kind, uint64_t *n)
{
	struct perf_worker *w = &p->workers[0];
	struct perf_shm *s = p->shm;

	while (__atomic_load_n(&s->step.seq, __ATOMIC_ACQUIRE) == s->done)
		if (!perf_spin(w))
			return w->rc;
	perf_spun(w);
	*kind = (enum step_kind)s->step.kind;
	*n = s->step.n;
	return 0;
}

int step_next(struct perf *p, enum step_kind *kind, uint64_t *n)
{
	json_t *msg;
	const char *name;
	json_int_t v;
	int rc, k;

	if (p->shm)
		return next_by_shm(p, kind, n);
	rc = perf_recv(p, STEP_PATIENCE_NS, &msg);
	if (rc)
		return rc;
	name = json_string_value(json_object_get(msg, "step"));
	v = json_integer_value(json_object_get(msg, "n"));
	for (k = 1; name && k < STEP_KINDS; k++)
		if (!strcmp(name, step_names[k]))
			break;
	if (!name || k == STEP_KINDS || v < 0) {
		rc = perf_fail(p, -EPROTO, "the client's step makes no sense");
	} else {
		*kind = (enum step_kind)k;
		*n = (uint64_t)v;
	}
	json_decref(msg);
	return rc;
}

int step_done(struct perf *p)
{
	int rc;

	if (p->shm) {
		/* publishes all that the step did to step_wait_done() */
		__atomic_store_n(&p->shm->done, p->shm->step.seq,
				 __ATOMIC_RELEASE);
		return 0;
	}
	rc = ctl_send(p->ctl, json_pack("{s:b}", "done", 1));
	return rc ? perf_gone(p, rc) : 0;
}
