/* SPDX-License-Identifier: MIT */
/*
 * link.c - see link.h: a QP's way onto the link and off it, its turns, and what
 * comes in.
 */
#include "dev/soft/link/datagram.h"
#include "dev/soft/link/key.h"
#include "dev/soft/link/state.h"
#include "dev/soft/mw.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

static uint64_t first(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/* From INIT to RTR, and back. */

static int own_block(struct soft_link *k, uint32_t block, const char **what)
{
	int err;

	*what = "a socket for packets that others pass on";
	err = udp_own_block(k->udp, block);
	if (err || !k->tcp)
		return err;
	*what = "a socket for connections that others hand over";
	return tcp_own_block(k->tcp, block);
}

int soft_link_open(struct soft *s, uint32_t block, const char **what)
{
	struct soft_link *k;
	int err;

	if (s->link)
		return own_block(s->link, block, what);
	*what = "memory";
	k = env_alloc(s->env, sizeof(*k));
	if (!k)
		return -ENOMEM;
	k->s = s;
	list_init(&k->qps);
	atomic_init(&k->due, ENV_NEVER);
	k->counts = counts_new(s->env, &k->counts_fd);
	err = k->counts ? udp_open(s, &k->udp, what) : -ENOMEM;
	if (err)
		goto err_free;
	err = carrier_open(k, what);
	if (err)
		goto err_udp;
	s->link = k;
	atomic_fetch_add(&s->asking_qps, SOFT_LINK_ASKS);
	return own_block(k, block, what);

err_udp:
	udp_close(k->udp);
err_free:
	if (k->counts)
		counts_free(s->env, k->counts_fd, k->counts);
	env_free(s->env, k);
	return err;
}

struct udp *soft_link_udp(const struct soft *s)
{
	return s->link->udp;
}

static struct soft_link_qp *link_qp_new(struct soft_qp *q,
					const struct udp_path *p)
{
	enum ibv_mtu fits = soft_link_mtu(p->mtu), mtu = q->attr.path_mtu;
	struct soft_link_qp *l;

	l = env_alloc(q->s->env, sizeof(*l) - sizeof(l->rc) +
					 rc_bytes(q->attr.max_dest_rd_atomic));
	if (!l)
		return NULL;
	l->q = q;
	l->link = q->s->link;
	l->path = *p;
	l->peer = counts_peer(l->link->counts, p->flow.dst);
	l->dest_qpn = q->attr.dest_qp_num & PACKET_PSN_MASK;
	l->deadline = l->dial_ns = l->refused_ns = ENV_NEVER;
	l->tcp_only =
		q->s->link_mode == SOFT_LINK_TCP || !soft_link_clear(q->s);
	if (mtu > fits && !l->tcp_only) {
		env_log(q->s->env, ENV_LOG_INFO,
			"skein0: QP 0x%x: a path MTU of %u does not fit into "
			"the route's %u bytes: %u it is, and the peer must do "
			"the same",
			q->ex.qp_base.qp_num, 128u << mtu, p->mtu,
			128u << fits);
		mtu = fits;
	}
	if (q->unreliable)
		rc_init_uc(&l->rc, &soft_link_ops, l, &q->attr, 128u << mtu);
	else
		rc_init(&l->rc, &soft_link_ops, l, &q->attr, 128u << mtu);
	return l;
}

static int link_connect(struct soft_qp *q, const struct ibv_qp_attr *a,
			struct soft_link_qp **link, const char **what)
{
	struct soft *s = q->s;
	struct udp_path p;
	int err;

	err = soft_link_open(s, q->ex.qp_base.qp_num / SHM_BLOCK_QPS, what);
	if (!err)
		err = soft_link_path(s, &a->ah_attr, &p, what);
	if (err)
		return err;
	*what = "memory";
	*link = link_qp_new(q, &p);
	if (!*link)
		return -ENOMEM;
	if (!(*link)->tcp_only)
		udp_path_own(s->link->udp, &(*link)->path,
			     q->ex.qp_base.qp_num / SHM_BLOCK_QPS,
			     (*link)->dest_qpn / SHM_BLOCK_QPS);
	if ((*link)->path.host)
		rc_share(&(*link)->rc, &(*link)->path.host->cong);
	return 0;
}

int soft_link_connect(struct soft_qp *q, const struct ibv_qp_attr *a,
		      struct soft_link_qp **link)
{
	struct soft *s = q->s;
	const char *what;
	int err;

	pthread_mutex_lock(&s->lock);
	err = link_connect(q, a, link, &what);
	if (!err) {
		list_add_tail(&s->link->qps, &(*link)->node);
		carrier_join(*link);
	}
	pthread_mutex_unlock(&s->lock);
	if (err) {
		env_log(s->env, ENV_LOG_ERROR,
			"skein0: QP 0x%x: no link to another host for want of "
			"%s: %s",
			q->ex.qp_base.qp_num, what, strerror(-err));
		return err;
	}
	/* The control thread completes, too. */
	soft_lock_share(&soft_cq_of(q->ex.qp_base.send_cq)->lock);
	soft_lock_share(&soft_cq_of(q->ex.qp_base.recv_cq)->lock);
	return 0;
}

static void held_forget(const struct soft_link_qp *l)
{
	struct soft_link *k = l->link;
	uint32_t i;

	for (i = 0; l->held && i < k->n_held; i++)
		if (k->held[i] == l->q)
			k->held[i--] = k->held[--k->n_held];
}

/* Adds what the engine has counted since the last look. q->lock held. */
static void count(struct soft_link_qp *l)
{
	const struct rc *r = &l->rc;
	const uint64_t now[COUNTS_OF_QP] = {
		[COUNTS_SENT] = r->sent,
		[COUNTS_TAKEN] = r->drops[RC_TAKEN],
		[COUNTS_RETRIES] = r->retries,
		[COUNTS_GAPS] = r->gaps,
		[COUNTS_RNRS] = r->rnrs,
		[COUNTS_BEHIND_GAP] = r->drops[RC_DROP_GAP],
		[COUNTS_REPEATED] = r->drops[RC_DROP_REPEATED],
		[COUNTS_NO_RECEIVE] = r->drops[RC_DROP_NOT_READY],
		[COUNTS_REFUSED] = r->drops[RC_DROP_REFUSED],
		[COUNTS_STRANGE] = r->drops[RC_DROP_STRANGE],
		[COUNTS_STATE] = r->drops[RC_DROP_STATE],
	};

	if (now[COUNTS_RETRIES] != l->counted[COUNTS_RETRIES])
		link_log_first_silence(l);
	for (int i = 0; i < COUNTS_OF_QP; i++)
		if (now[i] != l->counted[i])
			counts_add(l->peer, (enum counts_kind)i,
				   now[i] - l->counted[i]);
	memcpy(l->counted, now, sizeof(now));
}

void soft_link_leave(struct soft_qp *q)
{
	struct soft_link_qp *l = q->link;

	if (!l)
		return;
	soft_link_drop(q);
	count(l);
	link_log_counts(l);
	held_forget(l);
	list_del(&l->node);
	carrier_leave(l);
	udp_path_put(l->link->udp, &l->path);
	q->link = NULL;
	env_free(q->s->env, l);
}

/* Work. */

void link_due(struct soft_link *k, uint64_t at, bool kick)
{
	uint64_t was = atomic_load(&k->due);

	while (at < was)
		if (atomic_compare_exchange_weak(&k->due, &was, at)) {
			if (kick)
				soft_kick(k->s);
			return;
		}
}

/* The engine has run: when again? q->lock held. */
static void ran(struct soft_qp *q, uint64_t deadline, bool kick)
{
	struct soft_link_qp *l = q->link;

	count(l);
	if (l->dial_ns < deadline)
		deadline = l->dial_ns;
	l->deadline = deadline;
	if (deadline != ENV_NEVER)
		link_due(l->link, deadline, kick);
	if (q->sqd_notify && !rc_is_busy(&l->rc))
		soft_ask_service(q->s, q->idx);
}

/* In SQE it sends nothing, and goes on receiving (IBA 10.3.1.6). */
static bool is_up(const struct soft_qp *q)
{
	enum ibv_qp_state st = soft_qp_state(q);

	return q->link && (st == IBV_QPS_RTR || st == IBV_QPS_RTS ||
			   st == IBV_QPS_SQD || st == IBV_QPS_SQE);
}

static uint64_t deadline_of(const struct soft_link_qp *l)
{
	/* The connection tells when it has room. */
	return l->waits ? rc_requester_deadline(&l->rc) : rc_deadline(&l->rc);
}

void link_turn(struct soft_qp *q, uint64_t now)
{
	struct soft_link_qp *l = q->link;

	l->waits = false;
	soft_mw_look(q);
	carrier_lock(l);
	if (is_up(q))
		rc_run(&l->rc, now);
	ran(q, is_up(q) ? deadline_of(l) : ENV_NEVER, false);
	carrier_unlock(l);
}

/* With q->lock alone: requests, no answers, for these read regions
 * that may go. */
static void turn_requests(struct soft_qp *q)
{
	struct soft_link_qp *l = q->link;
	uint64_t due;

	carrier_lock(l);
	rc_requester_run(&l->rc, env_now_ns(q->s->env));
	carrier_unlock(l);
	/* what was due before stays so: a look too many does no harm */
	due = rc_requester_deadline(&l->rc);
	ran(q, due < l->deadline ? due : l->deadline, true);
}

/* A program that receives, answers: then its ACK and its answer are one packet
 * of the network. Only while the control thread leaves the sockets to pollers:
 * then it looks after them so often that no ACK waits for long. A program that
 * takes a death for a failure (dev.h) may end with a message unanswered. */
static void hold(struct soft_link *k, struct soft_qp *q, uint64_t now)
{
	struct soft_link_qp *l = q->link;
	bool was = l->rc.rs.held;

	if (!k->polled || !k->s->dev.caps.death_notice ||
	    (k->n_held == LINK_HELD && !l->held) || !rc_hold(&l->rc, now) ||
	    was)
		return;
	l->held_ns = now + RC_HOLD_NS;
	if (!k->n_held || l->held_ns < k->held_ns)
		k->held_ns = l->held_ns;
	if (!l->held)
		k->held[k->n_held++] = q;
	l->held = true;
}

/* ACKs that have waited for long enough, or all. s->lock held. */
static void held_go(struct soft_link *k, uint64_t now, bool all)
{
	uint64_t next = ENV_NEVER;
	struct soft_link_qp *l;
	uint32_t i = 0;

	if (!k->n_held || (!all && now < k->held_ns))
		return;
	while (i < k->n_held) {
		l = k->held[i]->link;
		if (!all && now < l->held_ns) {
			next = first(next, l->held_ns);
			i++;
			continue;
		}
		if (all) {
			soft_qp_hold(l->q);
		} else if (!soft_qp_hold_try(l->q)) {
			/* what is posted may take the ACK along */
			next = first(next, now + LINK_BUSY_NS);
			i++;
			continue;
		}
		k->held[i] = k->held[--k->n_held];
		l->held = false;
		if (l->rc.rs.held) {
			rc_unhold(&l->rc);
			link_turn(l->q, now);
		}
		soft_qp_release(l->q);
	}
	k->held_ns = next;
}

void soft_link_ack(struct soft_qp *q)
{
	struct soft_link_qp *l = q->link;

	if (!l || !l->rc.rs.held)
		return;
	carrier_lock(l);
	rc_responder_sent(&l->rc, env_now_ns(q->s->env));
	carrier_unlock(l);
}

void soft_link_state(struct soft_qp *q)
{
	struct soft_link_qp *l = q->link;
	enum ibv_qp_state st = soft_qp_state(q);

	if (st != IBV_QPS_RTS && st != IBV_QPS_SQD)
		return;
	rc_pause(&l->rc, st == IBV_QPS_SQD);
	if (!l->started) {
		l->started = true;
		rc_start(&l->rc);
	} else if (q->unreliable) {
		rc_resume(&l->rc);
	}
	if (st == IBV_QPS_RTS)
		turn_requests(q);
}

static struct link_wqe *wqe_new(struct soft_qp *q, const struct ibv_send_wr *wr)
{
	size_t sges = (size_t)wr->num_sge * sizeof(struct ibv_sge);
	uint64_t len = 0;
	struct link_wqe *w;
	char *data;
	int i;

	for (i = 0; i < wr->num_sge; i++)
		len += wr->sg_list[i].length;
	w = env_alloc(q->s->env,
		      sizeof(*w) + sges +
			      (wr->send_flags & IBV_SEND_INLINE ? len : 0));
	if (!w)
		return NULL;
	w->wr = *wr;
	soft_mw_keep(&w->wr);
	w->wr.next = NULL;
	w->wr.sg_list = w->sge;
	data = (char *)w->sge + sges;
	for (i = 0; i < wr->num_sge; i++) {
		w->sge[i] = wr->sg_list[i];
		if (!link_is_inline(w) || !wr->sg_list[i].length)
			continue;
		memcpy(data, soft_ptr(wr->sg_list[i].addr),
		       wr->sg_list[i].length);
		w->sge[i].addr = (uintptr_t)data;
		data += wr->sg_list[i].length;
	}
	w->e.len = len > UINT32_MAX ? UINT32_MAX : (uint32_t)len;
	return w;
}

int soft_link_post(struct soft_qp *q, const struct ibv_send_wr *wr,
		   uint32_t pos)
{
	struct link_wqe *w = wqe_new(q, wr);

	if (!w)
		return ENOMEM;
	w->pos = pos;
	w->e.op = wr->opcode;
	w->e.imm = wr->imm_data;
	w->e.solicited = wr->send_flags & IBV_SEND_SOLICITED;
	w->e.fenced = wr->send_flags & IBV_SEND_FENCE;
	if (wr->opcode == IBV_WR_SEND_WITH_INV) {
		w->e.rkey = wr->invalidate_rkey;
	} else if (soft_is_answered(wr) && wr->opcode != IBV_WR_RDMA_READ) {
		w->e.va = wr->wr.atomic.remote_addr;
		w->e.rkey = wr->wr.atomic.rkey;
		w->e.compare_add = wr->wr.atomic.compare_add;
		w->e.swap = wr->wr.atomic.swap;
	} else {
		w->e.va = wr->wr.rdma.remote_addr;
		w->e.rkey = wr->wr.rdma.rkey;
	}
	q->sq_posted++;
	rc_post(&q->link->rc, &w->e);
	turn_requests(q);
	return 0;
}

void soft_link_flush(struct soft_qp *q)
{
	struct link_wqe *w;
	struct rc_wqe *e;

	while ((e = rc_take(&q->link->rc))) {
		w = link_wqe_of(e);
		soft_complete(q, &w->wr, w->pos,
			      soft_mw_flush(q, &w->wr, w->pos));
		env_free(q->s->env, w);
	}
	q->link->deadline = ENV_NEVER;
}

void soft_link_drop(struct soft_qp *q)
{
	struct rc_wqe *e;

	while ((e = rc_take(&q->link->rc)))
		env_free(q->s->env, link_wqe_of(e));
	q->link->deadline = ENV_NEVER;
}

bool soft_link_busy(const struct soft_qp *q)
{
	return rc_is_busy(&q->link->rc);
}

/* Packets. */

static bool is_own_block(const struct soft *s, uint32_t block)
{
	uint32_t i;

	for (i = 0; i < s->n_blocks; i++)
		if (s->blocks[i] == block)
			return true;
	return false;
}

static struct soft_qp *qp_find(struct soft *s, uint32_t qpn)
{
	struct soft_qp *q = NULL;
	uint32_t i;

	for (i = 0; i < s->n_blocks; i++)
		if (s->blocks[i] == qpn / SHM_BLOCK_QPS)
			q = s->qps[i * SHM_BLOCK_QPS + qpn % SHM_BLOCK_QPS];
	return q && !q->dying ? q : NULL;
}

/* Is it of that transport, and in a state to take anything? */
static bool takes(const struct soft_qp *q, unsigned op)
{
	switch (packet_transport(op)) {
	case PACKET_RC:
		return q->ex.qp_base.qp_type == IBV_QPT_RC && is_up(q);
	case PACKET_UC:
		return q->ex.qp_base.qp_type == IBV_QPT_UC && is_up(q);
	case PACKET_UD:
		return q->ex.qp_base.qp_type == IBV_QPT_UD;
	case PACKET_NO: /* CNP */
		return is_up(q);
	}
	return false;
}

void link_batch_end(struct soft_link *k)
{
	uint64_t now = env_now_ns(k->s->env);
	struct soft_qp *q;
	uint32_t i;

	if (!k->n_touched)
		return;
	for (i = 0; i < k->n_touched; i++) {
		q = k->touched[i];
		soft_qp_hold(q);
		if (q->link) {
			q->link->touched = false;
			if (is_up(q))
				hold(k, q, now);
			link_turn(q, now);
		}
		soft_qp_release(q);
	}
	k->n_touched = 0;
}

static void take_for(struct soft_link *k, struct soft_qp *q,
		     const struct icrc_flow *f, const struct packet *p,
		     const struct tcp_conn *c)
{
	soft_qp_hold(q);
	if (is_up(q)) {
		if (!c)
			udp_met(k->udp, f, &q->link->path);
		else if (!(packet_has(p->op) & PACKET_ANSWERS))
			q->link->back_bulk = c->is_bulk;
		rc_input(&q->link->rc, env_now_ns(k->s->env), p);
		if (!q->link->touched) {
			q->link->touched = true;
			k->touched[k->n_touched++] = q;
		}
	}
	soft_qp_release(q);
	if (k->n_touched == sizeof(k->touched) / sizeof(k->touched[0]))
		link_batch_end(k);
}

static void dropped(struct soft_link *k, enum counts_kind why)
{
	counts_add(&k->counts->row[COUNTS_REST], why, 1);
}

void link_packet(struct soft_link *k, const struct icrc_flow *f,
		 const uint8_t *buf, size_t len, const struct tcp_conn *c)
{
	bool icrc = !c;
	struct packet p;
	struct soft_qp *q;

	k->packets++;
	if (packet_decode(buf, len, &p) != PACKET_OK) {
		dropped(k, COUNTS_MALFORMED);
		return;
	}
	if (icrc && !is_own_block(k->s, p.qpn / SHM_BLOCK_QPS)) {
		udp_pass(k->udp, p.qpn / SHM_BLOCK_QPS, f, buf,
			 len + PACKET_ICRC);
		return;
	}
	if (icrc && !soft_link_clear(k->s)) {
		dropped(k, COUNTS_CLEAR);
		return;
	}
	q = qp_find(k->s, p.qpn);
	if (!q || !takes(q, p.op) || (q->ud && !icrc)) {
		dropped(k, COUNTS_NO_QP);
	} else if (q->link &&
		   (memcmp(f->src, q->link->path.flow.dst, 16) != 0 ||
		    memcmp(f->dst, q->link->path.flow.src, 16) != 0)) {
		dropped(k, COUNTS_ADDRESS);
	} else if (icrc && !udp_check(k->udp, f, buf, len + PACKET_ICRC)) {
		dropped(k, COUNTS_ICRC);
	} else if (q->ud) {
		udp_met(k->udp, f, NULL);
		if (!soft_link_take_datagram(q, f, &p))
			dropped(k, COUNTS_UD);
	} else {
		take_for(k, q, f, &p, c);
	}
}

static void take(void *o, const struct icrc_flow *f, uint8_t *buf, size_t len)
{
	struct soft_link *k = o;

	if (!f)
		link_batch_end(k);
	else if (len < PACKET_ICRC)
		dropped(k, COUNTS_MALFORMED);
	else
		link_packet(k, f, buf, len - PACKET_ICRC, NULL);
}

/* One system call where nothing came. */
static void poll_sockets(struct soft_link *k)
{
	if (udp_poll(k->udp, take, k))
		tcp_poll(k->tcp);
}

void soft_link_event(struct soft *s)
{
	struct soft_link *k = s->link;

	if (udp_leave(k->udp, env_now_ns(s->env)))
		return;
	poll_sockets(k);
}

static void poll_all(struct soft_link *k)
{
	uint64_t now = env_now_ns(k->s->env), was = k->packets;
	bool again = udp_polled(k->udp, now);

	k->polled = udp_is_left(k->udp);
	poll_sockets(k);
	k->polled = false;
	/* The control thread may never be quick enough to leave them. */
	if (again && k->packets != was)
		udp_leave_to_poller(k->udp, now);
	held_go(k, now, false);
}

void soft_link_poll(struct soft *s)
{
	int was = env_cancel_off(NULL);

	if (!pthread_mutex_trylock(&s->lock)) {
		if (s->link)
			poll_all(s->link);
		pthread_mutex_unlock(&s->lock);
	}
	env_cancel_back(NULL, was);
}

void soft_link_sleeps(struct soft *s)
{
	/* s->link stays: SOFT_LINK_ASKS was seen */
	if (!udp_armed(s->link->udp))
		return;
	pthread_mutex_lock(&s->lock);
	udp_take_back(s->link->udp);
	held_go(s->link, env_now_ns(s->env), true);
	pthread_mutex_unlock(&s->lock);
}

uint64_t soft_link_timers(struct soft *s, uint64_t now)
{
	struct soft_link *k = s->link;
	struct soft_link_qp *l;
	struct list_node *n;
	uint64_t look;
	bool dials;

	if (!k)
		return ENV_NEVER;
	look = udp_look(k->udp, now);
	held_go(k, now, false);
	if (k->n_held)
		look = first(look, k->held_ns);
	if (k->tcp)
		look = first(tcp_timers(k->tcp, now), look);
	if (atomic_load(&k->due) > now)
		return first(atomic_load(&k->due), look);
	atomic_store(&k->due, ENV_NEVER);
	for (n = k->qps.next; n != &k->qps; n = n->next) {
		l = container_of(n, struct soft_link_qp, node);
		if (!l->q->link) /* on its way to RTR */
			continue;
		if (!soft_qp_hold_try(l->q)) {
			link_due(k, now + LINK_BUSY_NS, false);
			continue;
		}
		dials = l->dial_ns <= now;
		if (dials)
			l->dial_ns = ENV_NEVER;
		if (l->deadline <= now)
			link_turn(l->q, now);
		else
			link_due(k, l->deadline, false);
		soft_qp_release(l->q);
		if (dials)
			carrier_dial(l);
	}
	return first(atomic_load(&k->due), look);
}

static void log_tcp(const struct soft *s, const struct tcp_counts *c)
{
	env_log(s->env, ENV_LOG_DEBUG,
		"skein0: link: %" PRIu64 " connections; dialled %" PRIu64
		", accepted %" PRIu64 ", handed over %" PRIu64
		", broken %" PRIu64 ", refused %" PRIu64 ", garbage %" PRIu64
		", silent %" PRIu64 ", unsealed %" PRIu64
		", of another key %" PRIu64 ", forged %" PRIu64,
		c->up, c->dialled, c->accepted, c->handed, c->broken,
		c->refused, c->garbage, c->silent, c->unsealed, c->other_key,
		c->forged);
}

void soft_link_close(struct soft *s)
{
	struct soft_link *k = s->link;
	const struct counts_row *rest;
	struct udp_counts c;

	if (!k)
		return;
	rest = &k->counts->row[COUNTS_REST];
	udp_counts(k->udp, &c);
	env_log(s->env, ENV_LOG_DEBUG,
		"skein0: link: %" PRIu64 " packets sent by %" PRIu64
		" calls, %" PRIu64 " taken by %" PRIu64 "; not sent %" PRIu64
		", passed on %" PRIu64 ", not passed on %" PRIu64
		", malformed %" PRIu64 ", wrong ICRC %" PRIu64
		", for no QP %" PRIu64 ", from a wrong address %" PRIu64
		", datagrams dropped %" PRIu64 ", clear ones %" PRIu64,
		c.sent, c.send_calls, c.taken, c.take_calls, c.send_failed,
		c.passed, c.pass_failed, counts_get(rest, COUNTS_MALFORMED),
		counts_get(rest, COUNTS_ICRC), counts_get(rest, COUNTS_NO_QP),
		counts_get(rest, COUNTS_ADDRESS), counts_get(rest, COUNTS_UD),
		counts_get(rest, COUNTS_CLEAR));
	if (k->tcp) {
		log_tcp(s, tcp_counts(k->tcp));
		tcp_close(k->tcp);
	}
	udp_close(k->udp);
	pthread_cond_destroy(&k->dialled);
	counts_free(s->env, k->counts_fd, k->counts);
	env_free(s->env, k);
	s->link = NULL;
}
