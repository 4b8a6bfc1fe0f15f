/* SPDX-License-Identifier: MIT */
/*
 * carrier.c - what a QP's packets go by: the connection to the process of its
 * peer, or datagrams. A QP takes a connection when there is one, and leaves it
 * when it ends; what was on its way is sent again the new way, and the
 * responder's rules drop what comes twice. docs/protocol/link.md, "TCP".
 */
#include "dev/soft/link/key.h"
#include "dev/soft/link/state.h"

#include <errno.h>
#include <string.h>
#include <time.h>

#define WAIT_NS 200000000ull	 /* of RTR, for a connection */
#define REFUSED_NS 1000000000ull /* nobody listened: not again before */
#define YIELD_NS 100000000ull	 /* the end that had dialled goes first */
#define AGAIN_NS 20000000ull	 /* twice as long each time */
#define AGAIN_MAX 5u
/* Silence may be a cable that is out, but a refusal is an answer: a QP that has
 * no other way gives up when it was refused for so long. */
#define REFUSED_MAX_NS 5000000000ull

void carrier_lock(struct soft_link_qp *l)
{
	if (l->conn)
		framing_lock(l->link->framing);
	else if (!l->tcp_only)
		udp_lock(l->link->udp);
}

void carrier_unlock(struct soft_link_qp *l)
{
	if (l->conn)
		framing_unlock(l->link->framing);
	else if (!l->tcp_only)
		udp_unlock(l->link->udp);
}

static uint32_t peer_block(const struct soft_link_qp *l)
{
	return l->dest_qpn / SHM_BLOCK_QPS;
}

static bool is_for(const struct soft_link_qp *l, const struct tcp_conn *c)
{
	return peer_block(l) == c->block && !c->ours &&
	       !memcmp(l->path.flow.src, c->flow.src, 16) &&
	       !memcmp(l->path.flow.dst, c->flow.dst, 16);
}

/* One on its way to RTR has no posters yet. */
static bool hold(struct soft_link_qp *l)
{
	if (!l->q->link)
		return false;
	soft_qp_hold(l->q);
	return true;
}

static void changed(struct soft_link_qp *l, bool held)
{
	if (!held)
		return;
	link_turn(l->q, env_now_ns(l->q->s->env));
	soft_qp_release(l->q);
}

static void attach_bulk(struct soft_link_qp *l, struct tcp_conn *c)
{
	bool held = hold(l);

	if (l->bulk)
		l->bulk->users--;
	l->bulk = c;
	c->users++;
	if (l->out_bulk)
		rc_carrier(&l->rc, true);
	changed(l, held);
}

/* Requests and answers go by the first one again, those that were on their way
 * too. */
static void drop_bulk(struct soft_link_qp *l)
{
	if (l->bulk)
		l->bulk->users--;
	l->bulk = NULL;
	l->out_bulk = false;
}

static void detach_bulk(struct soft_link_qp *l)
{
	bool held = hold(l), out = l->out_bulk;

	drop_bulk(l);
	if (out)
		rc_carrier(&l->rc, true);
	changed(l, held);
}

static void attach(struct soft_link_qp *l, struct tcp_conn *c)
{
	bool held = hold(l);

	drop_bulk(l);
	if (l->conn)
		l->conn->users--;
	l->conn = c;
	c->users++;
	l->dialling = false;
	l->dials = 0;
	l->dial_ns = l->refused_ns = ENV_NEVER;
	rc_carrier(&l->rc, true);
	changed(l, held);
}

static void detach(struct soft_link_qp *l, uint64_t dial_ns)
{
	bool held = hold(l);

	drop_bulk(l);
	l->conn->users--;
	l->conn = NULL;
	l->dialling = true;
	l->dial_ns = dial_ns;
	rc_carrier(&l->rc, false);
	changed(l, held);
}

void carrier_leave(struct soft_link_qp *l)
{
	drop_bulk(l);
	if (l->conn)
		l->conn->users--;
	l->conn = NULL;
}

/* Dialling was in vain: later again, while it is needed. */
static void dial_later(struct soft_link_qp *l, uint64_t now)
{
	bool held = hold(l);
	uint32_t n = l->dials < AGAIN_MAX ? l->dials : AGAIN_MAX;

	/* posters set it: looked at under the hold */
	if (!l->dialling) {
		if (held)
			soft_qp_release(l->q);
		return;
	}
	if (l->tcp_only && l->refused_ns != ENV_NEVER &&
	    now - l->refused_ns >= REFUSED_MAX_NS)
		rc_give_up(&l->rc);
	if (l->tcp_only ? l->waits : l->dials < AGAIN_MAX) {
		l->dials++;
		l->dial_ns = now + (AGAIN_NS << n);
	} else {
		l->dialling = false;
		l->dials = 0;
		l->dial_ns = l->refused_ns = ENV_NEVER;
	}
	changed(l, held);
}

static void dialled_in_vain(struct soft_link_qp *l, const struct tcp_conn *c,
			    uint64_t now)
{
	if (c->unheard)
		l->refused_ns = ENV_NEVER;
	else if (l->refused_ns == ENV_NEVER)
		l->refused_ns = now;
	dial_later(l, now);
}

static bool is_refused(const struct soft_link *k, const uint8_t gid[16])
{
	uint64_t now = env_now_ns(k->s->env);

	for (uint32_t i = 0; i < LINK_REFUSED; i++)
		if (k->refused[i].until_ns > now &&
		    !memcmp(k->refused[i].gid, gid, 16))
			return true;
	return false;
}

static void refuse(struct soft_link *k, const uint8_t gid[16])
{
	uint32_t i = k->refused_next++ % LINK_REFUSED;

	memcpy(k->refused[i].gid, gid, 16);
	k->refused[i].until_ns = env_now_ns(k->s->env) + REFUSED_NS;
}

/* What the sockets tell. */

static void take(void *owner, struct tcp_conn *c, const uint8_t *pkt,
		 size_t len)
{
	struct icrc_flow f;

	if (!c) {
		link_batch_end(owner);
		return;
	}
	memcpy(f.src, c->flow.dst, 16);
	memcpy(f.dst, c->flow.src, 16);
	f.sport = f.dport = 0;
	link_packet(owner, &f, pkt, len, c);
}

static void up(void *owner, struct tcp_conn *c)
{
	struct soft_link *k = owner;
	struct soft_link_qp *l;
	struct list_node *n;

	for (n = k->qps.next; n != &k->qps; n = n->next) {
		l = container_of(n, struct soft_link_qp, node);
		if (!is_for(l, c))
			continue;
		if (!c->is_bulk)
			attach(l, c);
		else if (l->conn)
			attach_bulk(l, c);
	}
	pthread_cond_broadcast(&k->dialled);
}

static void down(void *owner, struct tcp_conn *c, bool was_up)
{
	struct soft_link *k = owner;
	uint64_t now = env_now_ns(k->s->env);
	struct soft_link_qp *l;
	struct list_node *n;

	if (!was_up && !c->is_bulk &&
	    !tcp_find(k->tcp, &c->flow, c->block, false, true))
		refuse(k, c->flow.dst);
	for (n = k->qps.next; n != &k->qps; n = n->next) {
		l = container_of(n, struct soft_link_qp, node);
		if (l->conn == c)
			detach(l, c->dialled ? now : now + YIELD_NS);
		else if (l->bulk == c)
			detach_bulk(l);
		else if (!l->conn && !c->is_bulk && is_for(l, c))
			dialled_in_vain(l, c, now);
	}
	pthread_cond_broadcast(&k->dialled);
}

/* Each in turn, for the first may take all the room. */
static void room(void *owner, struct tcp_conn *c)
{
	struct soft_link *k = owner;
	struct soft_link_qp *l;
	struct list_node *n, *last = k->qps.prev;
	bool full = false, held;

	if (list_empty(&k->qps))
		return;
	do {
		n = k->qps.next;
		l = container_of(n, struct soft_link_qp, node);
		list_del(n);
		list_add_tail(&k->qps, n);
		if (l->conn != c && l->bulk != c)
			continue;
		held = hold(l);
		if (held && l->waits) {
			link_turn(l->q, env_now_ns(k->s->env));
			full = l->waits;
		}
		if (held)
			soft_qp_release(l->q);
	} while (!full && n != last);
}

int carrier_open(struct soft_link *k, const char **what)
{
	const struct tcp_ops tcp_ops = {k, take, up, down, room};
	struct soft *s = k->s;
	pthread_condattr_t a;
	int err = 0;

	pthread_condattr_init(&a);
	pthread_condattr_setclock(&a, CLOCK_MONOTONIC);
	pthread_cond_init(&k->dialled, &a);
	pthread_condattr_destroy(&a);
	if (s->link_mode != SOFT_LINK_UDP)
		err = tcp_open(s, &tcp_ops, &k->tcp, what);
	if (!err && k->tcp) {
		*what = "epoll";
		err = udp_watch_also(k->udp, tcp_src(k->tcp));
	}
	if (err && k->tcp) {
		tcp_close(k->tcp);
		k->tcp = NULL;
	}
	if (k->tcp)
		k->framing = tcp_framing(k->tcp);
	if (!err || s->link_mode == SOFT_LINK_TCP || !soft_link_clear(s))
		return err;
	env_log(s->env, ENV_LOG_INFO,
		"skein0: link: by UDP alone, for want of %s: %s", *what,
		strerror(-err));
	return 0;
}

static struct tcp_conn *find(const struct soft_link_qp *l, bool bulk)
{
	return tcp_find(l->link->tcp, &l->path.flow, peer_block(l), bulk, true);
}

/* NULL: there is none, and none is on its way. */
static struct tcp_conn *dial(struct soft_link_qp *l, bool bulk)
{
	struct tcp_conn *c = find(l, bulk);

	if (c && c->state == TCP_UP)
		(bulk ? attach_bulk : attach)(l, c);
	if (!c && !tcp_dial(l->link->tcp, &l->path.flow, l->path.ifindex,
			    l->q->ex.qp_base.qp_num, l->dest_qpn, bulk))
		c = find(l, bulk);
	return c;
}

void carrier_dial(struct soft_link_qp *l)
{
	if (l->conn && !l->bulk)
		dial(l, true);
	else if (!l->conn && !dial(l, false))
		dial_later(l, env_now_ns(l->q->s->env));
}

/* A message above LINK_BULK goes by the second connection, so that the others
 * of this process do not wait behind it. A QP changes over where nothing is on
 * its way: two connections have no order. Behind a long message short ones of
 * its QP go the same way. UC has no answers that say what has arrived. */
bool carrier_may_begin(void *owner, const struct rc_wqe *w, bool idle)
{
	struct soft_link_qp *l = owner;
	bool wants = w->len > LINK_BULK && !l->q->unreliable;
	uint64_t now;

	if (wants == l->out_bulk)
		return true;
	if (wants && !l->bulk) {
		now = env_now_ns(l->q->s->env);
		if (l->conn->knows_bulk && now - l->bulk_ns >= LINK_BULK_NS) {
			l->bulk_ns = now;
			l->dial_ns = 0;
		}
		return true;
	}
	if (idle)
		l->out_bulk = wants;
	return idle || !wants;
}

/* For a moment of its dialling, which another QP may have begun. */
static void wait_for(struct soft_link_qp *l, const struct tcp_conn *c)
{
	uint64_t until = c->deadline - TCP_HELLO_NS + WAIT_NS;
	struct timespec t = {(time_t)(until / 1000000000ull),
			     (long)(until % 1000000000ull)};
	struct soft_link *k = l->link;
	struct soft *s = k->s;
	int was = env_cancel_off(NULL);

	while (!l->conn && env_now_ns(s->env) < until && find(l, false))
		pthread_cond_timedwait(&k->dialled, &s->lock, &t);
	env_cancel_back(NULL, was);
}

void carrier_join(struct soft_link_qp *l)
{
	struct soft_link *k = l->link;
	struct tcp_conn *c;

	if (!k->tcp || (!l->tcp_only && is_refused(k, l->path.flow.dst) &&
			!find(l, false)))
		return;
	l->dialling = l->tcp_only;
	c = dial(l, false);
	if (c && !l->conn)
		wait_for(l, c);
	if (!c)
		l->dialling = false;
}
