/* SPDX-License-Identifier: MIT */
/*
 * lanes.c - the lanes of a handle: the code of both ends.
 *
 * Lane 0 is the first up and the last down, and the only lane that the
 * application knows. lanes_open.c is the end that opens, lanes_accept.c the end
 * that accepts.
 */
#include "conn/handle/state.h"

#include "base/assert.h"
#include "base/conf.h"
#include "conn/state.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

/* --- what modules see -------------------------------------------------- */

unsigned conn_lanes(const struct skein_conn *conn)
{
	return conn->lanes ? conn->lanes->count : 1;
}

unsigned conn_lane_index(const struct skein_conn *conn)
{
	return conn->lane;
}

struct skein_conn *conn_lane_head(struct skein_conn *conn)
{
	return conn->lane ? conn->lanes->lane[0] : conn;
}

struct skein_conn *conn_lane(struct skein_conn *conn, unsigned i)
{
	skein_assert_debug(conn->client && i < conn_lanes(conn));
	return conn->lanes ? conn->lanes->lane[i] : conn;
}

unsigned conn_combine(const struct skein_conn *conn)
{
	return conn->lanes ? conn->lanes->combine : COMBINER_BOUND;
}

unsigned conn_combine_least(const struct skein_conn *conn)
{
	return conn->lanes ? conn->lanes->least : 1;
}

void conn_latency_bound(const struct skein_conn *conn, uint64_t *bound_ns,
			unsigned *tolerance)
{
	const struct conn_lanes *ls = conn->lanes;

	*bound_ns = ls ? ls->latency_bound_ns : 0;
	*tolerance = ls ? ls->latency_tolerance : 0;
}

bool conn_fetch(const struct skein_conn *conn)
{
	return conn->lanes && conn->lanes->fetch;
}

bool conn_return_auto(const struct skein_conn *conn)
{
	return conn->lanes && conn->lanes->fetch == LANES_RETURN_AUTO;
}

/* --- configuration ----------------------------------------------------- */

static int number(const struct conf_row *row, const char *value, void *field)
{
	uint32_t v;
	int rc = conf_u32(row, value, &v);

	if (rc)
		return rc;
	if (v > CONN_LANES_MAX)
		return -ERANGE;
	*(uint32_t *)field = v;
	return 0;
}

static const char *const returns[] = {"reply", "fetch", "auto", NULL};

static const struct conf_row rows[] = {
	CONF_ROW(struct lanes_conf, qps, "QPS", "1",
		 "QPs of a connection, which all its threads share; at most "
		 "1024",
		 number, NULL),
	CONF_ROW(struct lanes_conf, combine, "COMBINE", "16",
		 "requests of threads in one message, at most 1024", number,
		 NULL),
	CONF_ROW(struct lanes_conf, least, "COMBINE_LEAST", "1",
		 "for measuring: a leader waits a while for so many", number,
		 NULL),
	CONF_ROW(struct lanes_conf, fetch, "RPC_RETURN", "reply",
		 "how results come; fetch: READ while polling; auto: the better",
		 conf_enum, returns),
	CONF_ROW(struct lanes_conf, latency_bound_ns, "RPC_LATENCY_BOUND", "0",
		 "most latency of asynchronous calls, which leave in batches "
		 "that keep it; 0: none",
		 conf_time, NULL),
	CONF_ROW(struct lanes_conf, latency_tolerance, "RPC_LATENCY_TOLERANCE",
		 "5", "percentage of calls that may take longer, at most 50",
		 conf_u32, NULL),
	CONF_END};

static const char *lookup(void *arg, const char *name)
{
	return getenv(name);
}

int conn_lanes_conf(const struct lanes_conf *own, struct lanes_conf *conf,
		    char *err, size_t err_len)
{
	struct lanes_conf c;
	int rc;

	conf_defaults(rows, &c);
	rc = conf_load(rows, &c, lookup, NULL, err, err_len);
	if (rc)
		return rc;
	if (own->qps > CONN_LANES_MAX || own->combine > CONN_LANES_MAX) {
		snprintf(err, err_len,
			 "qps is %u and combine %u: at most %u each", own->qps,
			 own->combine, CONN_LANES_MAX);
		return -ERANGE;
	}
	if (own->fetch < SKEIN_RETURN_DEFAULT ||
	    own->fetch > SKEIN_RETURN_AUTO) {
		snprintf(err, err_len, "return_mode %d is none", own->fetch);
		return -EINVAL;
	}
	if (own->fetch)
		c.fetch = own->fetch - SKEIN_RETURN_REPLY;
	if (own->latency_bound_ns)
		c.latency_bound_ns = own->latency_bound_ns;
	if (own->latency_tolerance)
		c.latency_tolerance = own->latency_tolerance;
	if (c.latency_tolerance > LANES_TOLERANCE_MAX) {
		snprintf(err, err_len,
			 "the latency tolerance is %u percent: at most %u",
			 c.latency_tolerance, LANES_TOLERANCE_MAX);
		return -ERANGE;
	}
	if (own->qps)
		c.qps = own->qps;
	if (own->combine)
		c.combine = own->combine;
	if (!c.qps)
		c.qps = 1;
	if (!c.combine)
		c.combine = COMBINER_BOUND;
	*conf = c;
	return 0;
}

/* --- draining ---------------------------------------------------------- */

static void drained(struct skein_conn *conn, bool now)
{
	if (conn->drained == now)
		return;
	conn->drained = now;
	if (now)
		atomic_fetch_add(&conn->lanes->drained, 1);
	else
		atomic_fetch_sub(&conn->lanes->drained, 1);
}

void conn_lane_live(struct skein_conn *conn)
{
	if (conn->live)
		return;
	conn->live = true;
	atomic_fetch_add(&conn->lanes->live, 1);
}

void conn_lane_dead(struct skein_conn *conn)
{
	if (!conn->lanes || !conn->live)
		return;
	drained(conn, false);
	conn->live = false;
	atomic_fetch_sub(&conn->lanes->live, 1);
}

bool conn_lane_stays(struct skein_conn *conn, bool busy)
{
	if (!conn->lanes)
		return busy;
	drained(conn, !busy);
	return busy || atomic_load(&conn->lanes->drained) <
			       atomic_load(&conn->lanes->live);
}

/* --- steps of either end ----------------------------------------------- */

void conn_lane_up(struct skein_conn *conn)
{
	conn_lane_live(conn);
	if (conn->client)
		conn_opened_lane_up(conn);
	else
		conn_accepted_lane_up(conn);
}

void conn_lane_ended(struct skein_conn *conn, int err, const char *why)
{
	if (!conn->lanes)
		return;
	if (conn->client)
		conn_opened_lane_ended(conn, err, why);
	else
		conn_accepted_lane_ended(conn, err, why);
}

bool conn_lanes_down(struct skein_conn *head)
{
	struct conn_lanes *ls = head->lanes;

	if (!ls || head->lane)
		return true;
	if (!head->client)
		return conn_accepted_lanes_down(head);
	for (unsigned i = 1; i < ls->count; i++)
		if (ls->lane[i] && ls->lane[i]->phase != CONN_P_NEW &&
		    ls->lane[i]->phase != CONN_P_DOWN)
			return false;
	return true;
}

void conn_lanes_step(struct skein_conn *conn)
{
	if (conn->lanes && !conn->client)
		conn_accepted_lanes_step(conn);
}

bool conn_lane_gone(struct skein_conn *conn)
{
	if (!conn->lanes || conn->client)
		return true;
	return conn_accepted_lane_gone(conn);
}

void conn_lanes_put(struct skein_conn *conn)
{
	struct conn_lanes *ls = conn->lanes;

	if (!ls)
		return;
	if (conn->client && !conn->lane)
		conn_threads_fini(conn);
	conn->lanes = NULL;
	/* Release by each lane, acquire by the last, which frees ls after all
	 * that the others have done with it. */
	if (atomic_fetch_sub_explicit(&ls->refs, 1, memory_order_acq_rel) == 1)
		env_free(ls->ctx->env, ls);
}
