/* SPDX-License-Identifier: MIT */
/*
 * peers.c - QPs by process.
 */
#include "bind/socket/peers.h"

#include "bind/socket/bells.h"
#include "bind/socket/reach.h"
#include "bind/socket/state.h"
#include "env/env.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

void peers_init(struct peers *p)
{
	env_random(st.env, p->id, sizeof(p->id));
	p->qps = st.stream.qps;
	p->host.mem_max = st.stream.mem;
	p->host.reads = reach_read;
	p->look_ns = UINT64_MAX;
}

static bool same(const struct peer_qp *pq, const uint8_t *id)
{
	return !memcmp(pq->id, id, MEET_ID_LEN);
}

struct peer_qp *peers_choose(struct peers *p, const uint8_t *id, bool *making)
{
	struct peer_qp *pq, *best = NULL;
	unsigned found = 0;

	*making = false;
	for (pq = p->all; pq; pq = pq->next) {
		if (!same(pq, id) || pq->alone || pq->q->broken)
			continue;
		found++;
		if (!pq->up)
			*making = true;
		else if (!best || pq->q->streams < best->q->streams)
			best = pq;
	}
	if (found < p->qps)
		best = NULL; /* so many may be there */
	*making = *making && !best && found >= p->qps;
	return best;
}

struct peer_qp *peers_find(struct peers *p, const uint8_t *id, uint32_t qpn,
			   uint32_t peer_qpn)
{
	struct peer_qp *pq;

	for (pq = p->all; pq; pq = pq->next)
		if (same(pq, id) && !pq->q->broken &&
		    pq->q->qp->qp_num == qpn && pq->peer_qpn == peer_qpn)
			return pq;
	return NULL;
}

struct peer_qp *peers_make(struct peers *p, const uint8_t *id, bool alone)
{
	struct peer_qp *pq = calloc(1, sizeof(*pq));

	if (!pq || stream_qp_new(&p->host, p->host.channel, &pq->q)) {
		free(pq);
		return NULL;
	}
	memcpy(pq->id, id, MEET_ID_LEN);
	pq->alone = alone;
	pq->next = p->all;
	p->all = pq;
	return pq;
}

int peers_connect(struct peer_qp *pq, const struct stream_qp_addr *addr)
{
	pq->peer_qpn = addr->qp.qpn;
	return stream_qp_connect(pq->q, addr, NULL);
}

void peers_drop(struct peers *p, struct peer_qp *pq)
{
	struct peer_qp **at = &p->all;

	while (*at != pq)
		at = &(*at)->next;
	*at = pq->next;
	/* Locked: no other thread holds an event of it then. */
	pthread_mutex_lock(&st.lock);
	stream_qp_free(pq->q);
	pthread_mutex_unlock(&st.lock);
	free(pq);
}

void peers_tend(struct peers *p)
{
	uint64_t now = state_now_ns();
	struct peer_qp *pq;

	p->look_ns = UINT64_MAX;
	pthread_mutex_lock(&st.lock);
	for (pq = p->all; pq; pq = pq->next) {
		if (stream_qp_tends(pq->q, now))
			stream_qp_tend(pq->q, now);
		bells_woken(pq->q, NULL, NULL);
		if (pq->q->look_ns < p->look_ns)
			p->look_ns = pq->q->look_ns;
	}
	pthread_mutex_unlock(&st.lock);
}

static unsigned owned(const struct stream_qp *q)
{
	unsigned n = q->streams;
	struct list_node *at;

	list_for_each(at, &q->left)
		n--;
	return n;
}

/* Does nobody need it any more? Locked. */
static bool is_over(struct peer_qp *pq)
{
	struct stream_qp *q = pq->q;

	if (!pq->up || owned(q))
		return false;
	if (!q->broken && stream_qp_dead(q))
		q->broken = -ECONNRESET; /* so its streams are over too */
	return q->broken || (pq->alone && !q->streams);
}

void peers_end(struct peers *p)
{
	while (p->all)
		peers_drop(p, p->all);
	stream_host_fini(&p->host);
}

void peers_sweep(struct peers *p)
{
	struct peer_qp *pq, *next;

	for (pq = p->all; pq; pq = next) {
		struct stream *s;
		bool over;

		next = pq->next;
		pthread_mutex_lock(&st.lock);
		over = is_over(pq);
		while (!over && (s = stream_qp_over(pq->q))) {
			pthread_mutex_unlock(&st.lock);
			stream_free(s);
			pthread_mutex_lock(&st.lock);
			over = is_over(pq);
		}
		pthread_mutex_unlock(&st.lock);
		/* No other thread knows a QP without streams of sockets. */
		if (over)
			peers_drop(p, pq);
	}
}
