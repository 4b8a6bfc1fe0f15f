/* SPDX-License-Identifier: MIT */
/*
 * fan.c - one call to all receivers at once; see state.h.
 */
#include "cp/sender/state.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* A receiver that does not answer for so long, or for as long as its connection
 * asks it, is not there. */
#define CALL_NS SKEIN_S(5)
#define NAP_MIN_NS 500000u
#define NAP_MAX_NS 20000000u

uint64_t cp_now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

void cp_nap_ns(uint64_t ns)
{
	struct timespec t = {.tv_sec = (time_t)(ns / 1000000000u),
			     .tv_nsec = (long)(ns % 1000000000u)};

	nanosleep(&t, NULL);
}

void cp_nap_since(uint64_t begun_ns)
{
	uint64_t ns = (cp_now_ns() - begun_ns) / 8;

	if (ns < NAP_MIN_NS)
		ns = NAP_MIN_NS;
	cp_nap_ns(ns < NAP_MAX_NS ? ns : NAP_MAX_NS);
}

void cp_peer_fail(struct cp_peer *p, int status, const char *fmt, ...)
{
	va_list ap;

	if (!p->live)
		return;
	p->live = false;
	p->result->status = status;
	va_start(ap, fmt);
	vsnprintf(p->result->text, sizeof(p->result->text), fmt, ap);
	va_end(ap);
	cp_text_clean(p->result->text);
	if (p->conn)
		skein_conn_close(p->conn, CP_CLOSE_NS);
	p->conn = NULL;
}

unsigned cp_job_live(const struct cp_job *job)
{
	unsigned n = 0;

	for (size_t i = 0; i < job->n; i++)
		n += job->peer[i].live;
	return n;
}

static void on_answer(void *arg, const struct skein_rpc_result *res)
{
	struct cp_peer *p = arg;

	p->status = res->status;
	if (!res->status && res->outcome != SKEIN_DONE)
		p->status = -EIO;
	p->reply_len = 0;
	if (!p->status && res->len) {
		p->reply = malloc(res->len);
		if (p->reply) {
			memcpy(p->reply, res->data, res->len);
			p->reply_len = res->len;
		} else {
			p->status = -ENOMEM;
		}
	}
	p->asked = false;
}

static void call(struct cp_peer *p, const struct cp_fan *fan, void *buf)
{
	struct bytes_out out = bytes_out(buf, fan->req_max);
	uint64_t patience = skein_conn_timeout(p->conn);
	int rc;

	if (patience < CALL_NS)
		patience = CALL_NS;

	fan->make(p, &out, fan->arg);
	p->asked = true;
	do {
		rc = out.failed ? -EMSGSIZE
				: skein_rpc_call_async(p->conn,
						       (uint16_t)fan->call, buf,
						       out.pos, fan->resp_max,
						       patience, on_answer, p);
		if (rc == -EAGAIN)
			cp_nap_ns(NAP_MIN_NS);
	} while (rc == -EAGAIN);
	if (!rc)
		return;
	p->status = rc;
	p->asked = false;
}

static void answered(struct cp_peer *p, const struct cp_fan *fan)
{
	struct bytes_in in = bytes_in(p->reply, p->reply_len);
	const char *text = "";
	int rc = p->status;

	if (!rc && fan->take)
		rc = fan->take(p, &in, fan->arg);
	free(p->reply);
	p->reply = NULL;
	if (!rc || !p->live)
		return;
	skein_conn_error(p->conn, &text);
	cp_peer_fail(p, rc, "%s: %s", fan->what,
		     *text ? text : skein_strerror(rc));
}

int cp_fan(struct cp_job *job, const struct cp_fan *fan)
{
	void *buf = malloc(fan->req_max + 1);

	if (!buf)
		return cp_fail(job->err, -ENOMEM, "no memory");
	for (size_t i = 0; i < job->n; i++)
		if (job->peer[i].live && !job->peer[i].skip)
			call(&job->peer[i], fan, buf);
	free(buf);
	for (size_t i = 0; i < job->n; i++)
		while (job->peer[i].asked)
			if (skein_rpc_reap(job->peer[i].conn, CALL_NS) < 0)
				cp_nap_ns(NAP_MIN_NS);
	for (size_t i = 0; i < job->n; i++)
		if (job->peer[i].live && !job->peer[i].skip)
			answered(&job->peer[i], fan);
	return 0;
}

static void make_plain(struct cp_peer *p, struct bytes_out *out, void *arg)
{
	bytes_put_u64(out, p->session);
}

int cp_fan_plain(struct cp_job *job, enum cp_call which, const char *what)
{
	struct cp_fan fan = {
		.call = which,
		.what = what,
		.req_max = 8,
		.resp_max = 8,
		.make = make_plain,
	};

	return cp_fan(job, &fan);
}

int cp_take_status(struct cp_peer *p, struct bytes_in *in, void *arg)
{
	int rc = cp_get_status(in, &p->st);

	if (!rc && p->st.phase == CP_FAILED) {
		rc = p->st.status < 0 ? p->st.status : -EIO;
		cp_peer_fail(p, rc, "%s", p->st.text);
	}
	return rc;
}

int cp_fan_status(struct cp_job *job)
{
	struct cp_fan fan = {
		.call = CP_CALL_STATUS,
		.what = "asking how it is",
		.req_max = 8,
		.resp_max = CP_ERR_MAX + 64,
		.make = make_plain,
		.take = cp_take_status,
	};

	return cp_fan(job, &fan);
}

static void tell(struct cp_job *job, const char *what)
{
	struct cp_progress p = {.what = what, .receivers = cp_job_live(job)};

	if (job->attr.progress)
		job->attr.progress(job->attr.arg, &p);
}

int cp_fan_until(struct cp_job *job, enum cp_phase a, enum cp_phase b,
		 const char *what)
{
	uint64_t begun = cp_now_ns();
	bool all = false;
	int rc = 0;

	while (!rc && !all) {
		rc = cp_fan_status(job);
		all = true;
		for (size_t i = 0; i < job->n && !rc; i++) {
			struct cp_peer *p = &job->peer[i];

			p->skip = p->live && (p->finished || p->st.phase == a ||
					      p->st.phase == b);
			all &= !p->live || p->skip;
		}
		if (rc || all)
			break;
		tell(job, what);
		cp_nap_since(begun);
	}
	for (size_t i = 0; i < job->n; i++)
		job->peer[i].skip = false;
	return rc;
}
