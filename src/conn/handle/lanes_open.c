/* SPDX-License-Identifier: MIT */
/*
 * lanes_open.c - lanes at the end that opens the handle.
 *
 * Lane 0 is dialled as any connection. When it is up the others are dialled,
 * all at once, over the same control link or links to the server's other
 * engines. Only lane 0 has addresses, retries and reconnect; the others try
 * once. The end of one lane ends all. Lane 0 waits until the others are down,
 * then decides whether to try again.
 *
 * Thread rule: the engine's owner; it is the engine of all lanes.
 */
#include "base/assert.h"
#include "conn/state.h"

#include <errno.h>
#include <stdio.h>

int conn_lanes_make(struct skein_conn *head, const struct lanes_conf *conf)
{
	struct skein_env *env = head->ctx->env;
	struct conn_lanes *ls;
	struct skein_conn *lane;
	int rc;

	ls = env_alloc_aligned(env, alignof(struct conn_lanes),
			       sizeof(*ls) +
				       conf->qps * sizeof(struct skein_conn *));
	if (!ls)
		return -ENOMEM;
	conn_threads_init(&ls->recs, env);
	ls->ctx = head->ctx;
	ls->count = conf->qps;
	ls->combine = conf->combine;
	ls->least = conf->least;
	ls->fetch = conf->fetch;
	ls->latency_bound_ns = conf->latency_bound_ns;
	ls->latency_tolerance = conf->latency_tolerance;
	ls->lane[0] = head;
	head->lanes = ls;
	atomic_store(&ls->refs, 1);
	for (unsigned i = 1; i < ls->count; i++) {
		rc = conn_new(head->eng, true, &lane);
		if (rc)
			return rc;
		atomic_fetch_add(&ls->refs, 1);
		lane->lanes = ls;
		lane->lane = (uint16_t)i;
		lane->opts = head->opts;
		lane->dial = head->dial;
		memcpy(lane->name, head->name, sizeof(lane->name));
		conn_set_state(lane, SKEIN_CONN_CONNECTING);
		ls->lane[i] = lane;
	}
	return 0;
}

void conn_lanes_unmake(struct skein_conn *head)
{
	struct conn_lanes *ls = head->lanes;

	for (unsigned i = 1; ls && i < ls->count && ls->lane[i]; i++)
		conn_free(ls->lane[i]);
	conn_free(head);
}

void conn_lanes_again(struct skein_conn *head)
{
	struct conn_lanes *ls = head->lanes;

	ls->ending = false;
	atomic_store(&ls->up, false);
	atomic_store(&ls->ready, 0);
	ls->id = env_random_u64(head->ctx->env);
	head->fail_hint_ns = 0;
}

/* --- the handshake ----------------------------------------------------- */

void conn_lanes_ask(struct skein_conn *conn, struct handshake_handle *h)
{
	h->id = conn->lanes->id;
	h->index = conn->lane;
	h->count = (uint16_t)conn->lanes->count;
}

int conn_lanes_check(struct skein_conn *conn, const struct handshake_params *p)
{
	struct conn_lanes *ls = conn->lanes;

	if (!ls || ls->count == 1)
		return 0;
	if (!p->handle.count)
		return -SKEIN_EVERSION;
	if (p->handle.id != ls->id || p->handle.index != conn->lane ||
	    p->handle.count != ls->count || !p->handle.engines)
		return -SKEIN_EPEER;
	if (conn->lane)
		return memcmp(p->ctx_id, ls->peer_id, sizeof(ls->peer_id))
			       ? -SKEIN_EPEER
			       : 0;
	memcpy(ls->peer_id, p->ctx_id, sizeof(ls->peer_id));
	ls->engines = p->handle.engines;
	return 0;
}

static void all_up(struct skein_conn *head)
{
	atomic_store(&head->lanes->up, true);
	head->dial->ever_ready = true;
	conn_tell_ready(head);
}

static void open_others(struct skein_conn *head)
{
	struct conn_lanes *ls = head->lanes;
	struct skein_conn *lane;

	for (unsigned i = 1; i < ls->count && !ls->ending; i++) {
		lane = ls->lane[i];
		lane->shard = head->shard + i % ls->engines;
		conn_dial_again(lane);
	}
}

void conn_opened_lane_up(struct skein_conn *conn)
{
	struct conn_lanes *ls = conn->lanes;
	struct skein_conn *head = ls->lane[0];

	if (!conn_begin(conn))
		return;
	if (conn->lane)
		conn_set_state(conn, SKEIN_CONN_READY);
	if (atomic_fetch_add(&ls->ready, 1) + 1 == ls->count)
		all_up(head);
	else if (conn == head)
		open_others(head);
}

bool conn_lanes_coming(const struct skein_conn *head)
{
	return head->lanes && head->client && !atomic_load(&head->lanes->up);
}

void conn_lanes_failed(struct skein_conn *head, int err, const char *why)
{
	head->err = err; /* for its CLOSE */
	snprintf(head->fail_text, sizeof(head->fail_text), "%s", why);
}

/* --- the end ----------------------------------------------------------- */

static void end_lane(struct skein_conn *lane, int err)
{
	switch (lane->phase) {
	case CONN_P_LINK:
	case CONN_P_SHAKE:
		conn_give_up(lane, -ECANCELED,
			     "another lane of its handle has failed");
		return;
	case CONN_P_READY:
		conn_end(lane, err, "another lane of its handle has failed");
		return;
	default:
		return;
	}
}

void conn_opened_lane_ended(struct skein_conn *conn, int err, const char *why)
{
	struct conn_lanes *ls = conn->lanes;
	struct skein_conn *head = ls->lane[0];
	char text[HANDSHAKE_TEXT_MAX + 1];

	/* While the handle closes each lane ends by itself. */
	if (ls->ending || head->closing)
		return;
	ls->ending = true;
	if (conn != head) {
		snprintf(text, sizeof(text), "lane %u of %u: %.90s", conn->lane,
			 ls->count, why);
		head->fail_hint_ns = conn->fail_hint_ns;
		conn_end(head, err, text);
	}
	for (unsigned i = 1; i < ls->count; i++)
		if (ls->lane[i] != conn)
			end_lane(ls->lane[i], err);
}

void conn_opened_lane_down(struct skein_conn *conn)
{
	struct skein_conn *head = conn->lanes->lane[0];

	conn->phase = CONN_P_DOWN;
	conn->deadline_ns = ENV_NEVER;
	conn_set_state(conn,
		       head->closing ? SKEIN_CONN_CLOSING : SKEIN_CONN_BROKEN);
	eng_pend(head->eng, head);
}

void conn_lanes_close(struct skein_conn *head, uint64_t timeout_ns)
{
	struct conn_lanes *ls = head->lanes;

	for (unsigned i = 1; i < ls->count; i++)
		conn_close_start(ls->lane[i], timeout_ns);
}

/* The other lanes stay until lane 0 is down: its modules read them. */
bool conn_lanes_freed(struct skein_conn *conn)
{
	struct conn_lanes *ls = conn->lanes;
	bool freed = true;

	if (ls && conn->lane)
		return ls->lane[0]->phase == CONN_P_DOWN;
	for (unsigned i = 1; ls && i < ls->count; i++) {
		if (!ls->lane[i])
			continue;
		eng_pend(conn->eng, ls->lane[i]);
		freed = false;
	}
	return freed;
}
