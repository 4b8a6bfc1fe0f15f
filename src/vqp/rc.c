/* SPDX-License-Identifier: MIT */
/*
 * rc.c - RC queue pairs of a pool: when one is asked for, both ends of the
 * handshake, and which one is given up. See rc.h.
 *
 * A queue pair of the asking end is used only after the peer's word that the
 * other end can receive, and its own end is destroyed before the peer is told.
 * So no request is ever posted to an end that is not there, unless the peer has
 * died. Each message names number and generation; what does not fit is answered
 * so that the other end forgets it: a late ASK makes an end that the next END
 * removes.
 */
#include "vqp/engine.h"

#include <errno.h>
#include <string.h>

#define MAGIC 0x31637173u /* "sqc1" */

enum {
	M_MAGIC = 0,
	M_KIND = 4,
	M_MTU = 5,
	M_RD_ATOMIC = 6,
	M_ZERO = 7,
	M_AT = 8,
	M_GEN = 12,
	M_QPN = 16,
	M_PSN = 20,
	M_TO = 24,
	M_FROM = 32, /* as at the meta server */
};

_Static_assert(M_FROM + META_RECORD == RC_MSG, "length of a datagram");

void rc_msg_encode(const struct rc_msg *m, uint8_t *buf)
{
	memset(buf, 0, RC_MSG);
	put_le32(buf + M_MAGIC, MAGIC);
	buf[M_KIND] = (uint8_t)m->kind;
	buf[M_MTU] = m->addr.mtu;
	buf[M_RD_ATOMIC] = m->addr.rd_atomic;
	put_le32(buf + M_AT, m->at);
	put_le32(buf + M_GEN, m->gen);
	put_le32(buf + M_QPN, m->addr.qpn);
	put_le32(buf + M_PSN, m->addr.psn);
	put_le64(buf + M_TO, m->to);
	meta_encode(&m->from, buf + M_FROM);
}

int rc_msg_decode(const uint8_t *buf, size_t len, struct rc_msg *m)
{
	struct rc_msg r = {0};

	if (len != RC_MSG || get_le32(buf + M_MAGIC) != MAGIC || buf[M_ZERO])
		return -EBADMSG;
	r.kind = (enum rc_kind)buf[M_KIND];
	r.addr.mtu = buf[M_MTU];
	r.addr.rd_atomic = buf[M_RD_ATOMIC];
	r.at = get_le32(buf + M_AT);
	r.gen = get_le32(buf + M_GEN);
	r.addr.qpn = get_le32(buf + M_QPN);
	r.addr.psn = get_le32(buf + M_PSN);
	r.to = get_le64(buf + M_TO);
	if (buf[M_KIND] < RC_ASK || buf[M_KIND] > RC_BACK ||
	    r.at >= VQP_RCS_MAX || (r.addr.qpn | r.addr.psn) >> 24 ||
	    meta_decode(buf + M_FROM, &r.from) || !r.from.udqpn)
		return -EBADMSG;
	*m = r;
	return 0;
}

static uint32_t place_of(const struct vqp_engine *e, const struct vqp_rc *r)
{
	return e->conf.dcis + (uint32_t)(r - e->rc);
}

static struct vqp_qp *qp_of(struct vqp_engine *e, const struct vqp_rc *r)
{
	return &e->qp[place_of(e, r)];
}

static void tell(struct vqp_engine *e, const struct vqp_peer *to,
		 enum rc_kind kind, uint32_t at, uint32_t gen,
		 const struct rc_addr *addr)
{
	struct rc_msg m = {.kind = kind,
			   .at = at,
			   .gen = gen,
			   .to = to->node.incarnation,
			   .from = e->conf.self};
	uint8_t buf[RC_MSG];

	if (addr)
		m.addr = *addr;
	rc_msg_encode(&m, buf);
	e->conf.port->tell(e->conf.arg, to, buf);
}

static void tell_own(struct vqp_engine *e, struct vqp_rc *r, enum rc_kind kind)
{
	r->sent_ns = e->now_ns;
	r->tries++;
	tell(e, r->peer, kind, (uint32_t)(r - e->rc), r->gen, &r->own);
}

/* --- which vqp uses which ----------------------------------------------- */

/* The receiver makes its vqp with the first message of this vqp that it sees,
 * whatever its number. Until it is known to have made it, the messages have to
 * come by one queue pair, which keeps them in order, or by the next one after
 * the peer has taken all that came by the last. */
bool vqp_rc_may_switch(const struct vqp *v)
{
	return !v->sent || v->far_vqp || PLANTED(v->e, RC_FIRST);
}

/* Others wait for it, and it has been used for its turn. */
static bool turn_over(const struct vqp_engine *e, const struct vqp_rc *r)
{
	return r->back && e->now_ns - r->made_ns >= VQP_RC_SAMPLE_NS;
}

static void want(struct vqp_engine *e, struct vqp_peer *p)
{
	if (p->rc || !p->node.udqpn || !e->conf.rcs ||
	    list_linked(&p->wants_rc))
		return;
	list_add_tail(&e->want_rc, &p->wants_rc);
	p->wanted_ns = e->now_ns;
}

uint32_t vqp_rc_choose(struct vqp *v)
{
	struct vqp_peer *p = v->peer;

	if (p->rc && p->rc->state == VQP_RC_USED && !turn_over(v->e, p->rc)) {
		uint32_t at = place_of(v->e, p->rc);

		if (v->qp == at || v->qp == VQP_NO_QP || vqp_rc_may_switch(v))
			return at;
	}
	if (p->dc)
		return v->dci;
	/* What messages have made may never send; its peer may make no calls. */
	if (v->by_port || !list_empty(&v->queue) || PLANTED(v->e, RC_WANT))
		want(v->e, p);
	return VQP_NO_QP;
}

void vqp_rc_count(struct vqp_engine *e, struct vqp_peer *p, unsigned n)
{
	if (e->now_ns - p->sample_ns >= VQP_RC_SAMPLE_NS) {
		p->sample_ns = e->now_ns;
		p->sampled = 0;
	}
	p->sampled += n;
	if (p->rc)
		p->rc->used_ns = e->now_ns;
	else if (p->sampled >= e->conf.rc_busy && e->now_ns >= p->rc_again_ns)
		want(e, p);
}

/* Would a vqp notice if it ended now? */
static bool in_use(struct vqp_engine *e, const struct vqp_rc *r)
{
	uint32_t i, at = place_of(e, r);
	struct vqp *v;

	if (qp_of(e, r)->n_posted)
		return true;
	for (i = 0; i < e->vqps_cap; i++) {
		v = e->vqps[i];
		if (v && v->state == VQP_CONNECTED && v->peer == r->peer &&
		    (v->qp == at || v->qp == VQP_NO_QP) &&
		    !list_empty(&v->queue))
			return true;
	}
	return false;
}

/* --- the end that asks -------------------------------------------------- */

/* Its vqps may use another one. taken: the peer has said that it has all
 * messages; else it has been silent for long, and may not have all. */
static void vqps_leave(struct vqp_engine *e, struct vqp_rc *r, bool taken)
{
	uint32_t i, at = place_of(e, r);
	struct vqp *v;

	for (i = 0; i < e->vqps_cap; i++) {
		v = e->vqps[i];
		if (!v || v->qp != at || v->state != VQP_CONNECTED)
			continue;
		if (taken || vqp_rc_may_switch(v) || PLANTED(e, RC_SILENT))
			v->qp = VQP_NO_QP;
		else
			vqp_fail(v, IBV_WC_RETRY_EXC_ERR);
	}
}

static void drop(struct vqp_engine *e, struct vqp_rc *r, bool taken)
{
	struct vqp_peer *p = r->peer;

	vqps_leave(e, r, taken);
	if (p->rc == r)
		p->rc = NULL;
	r->state = VQP_RC_FREE;
	r->peer = NULL;
	e->rcs_open--;
	vqp_peer_put(e, p);
}

/* Nothing is outstanding. The peer's end goes after this one. */
static void end(struct vqp_engine *e, struct vqp_rc *r)
{
	struct vqp_qp *q = qp_of(e, r);

	e->conf.port->rc_free(e->conf.arg, (unsigned)(r - e->rc));
	if (q->target)
		vqp_peer_put(e, q->target);
	q->target = NULL;
	q->refused = false;
	r->peer->rc = NULL;
	r->state = VQP_RC_ENDING;
	r->tries = 0;
	tell_own(e, r, RC_END);
}

void vqp_rc_failed(struct vqp_engine *e, struct vqp_qp *q)
{
	struct vqp_rc *r = &e->rc[q - e->qp - e->conf.dcis];

	e->counts.rcs_failed++;
	r->peer->rc_again_ns = e->now_ns + VQP_RC_PAUSE_NS;
	end(e, r);
}

static void use(struct vqp_engine *e, struct vqp_rc *r)
{
	struct vqp_qp *q = qp_of(e, r);

	q->target = r->peer;
	q->target->refs++;
	q->sq_used = q->n_posted = 0;
	q->refused = false;
	r->state = VQP_RC_USED;
	r->used_ns = r->made_ns = e->now_ns;
	r->back = false;
	e->counts.rcs_made++;
	if (r->peer->dc)
		e->counts.rcs_busy++;
}

static void give_back(struct vqp_engine *e, struct vqp_rc *r)
{
	e->counts.rcs_reclaimed++;
	end(e, r);
}

/* Ends the queue pair that was unused for the longest time. A queue pair in use
 * stays. So does one that was used in this sample: two busy peers must not take
 * turns with one queue pair. But peers without DC must: then the queue pair that
 * was made, or asked for, first goes next. */
static void reclaim(struct vqp_engine *e, const struct vqp_peer *p)
{
	struct vqp_rc *r, *last = NULL, *first = NULL;

	for (r = e->rc; r < e->rc + e->conf.rcs; r++) {
		if (r->state == VQP_RC_ENDING || r->back)
			return; /* that number is free soon */
		if (r->state == VQP_RC_ASKED && PLANTED(e, RC_MUTE))
			continue;
		if (!first || r->made_ns < first->made_ns)
			first = r;
		if (r->state == VQP_RC_ASKED ||
		    (last && r->used_ns >= last->used_ns))
			continue;
		if (PLANTED(e, RC_IN_USE) ||
		    (e->now_ns - r->used_ns >= VQP_RC_SAMPLE_NS &&
		     !in_use(e, r)))
			last = r;
	}
	if (last)
		give_back(e, last);
	else if (first && !p->dc && !PLANTED(e, RC_TURN))
		first->back = true;
}

static struct vqp_rc *free_one(struct vqp_engine *e, const struct vqp_peer *p)
{
	struct vqp_rc *r;

	for (r = e->rc; r < e->rc + e->conf.rcs; r++)
		if (r->state == VQP_RC_FREE)
			return r;
	reclaim(e, p);
	return NULL;
}

/* Vqps to a peer without DC wait no more. */
static void give_up(struct vqp_engine *e, struct vqp_peer *p)
{
	uint32_t i;

	p->refs++;
	for (i = 0; i < e->vqps_cap && !p->dc; i++) {
		struct vqp *v = e->vqps[i];

		if (v && v->state == VQP_CONNECTED && v->peer == p &&
		    v->qp == VQP_NO_QP)
			vqp_fail(v, IBV_WC_RETRY_EXC_ERR);
	}
	if (!p->dc)
		vqp_peer_forget(e, p);
	vqp_peer_put(e, p);
}

/* Makes this end and asks the peer. False: not now. */
static bool begin(struct vqp_engine *e, struct vqp_peer *p)
{
	struct vqp_rc *r;

	if (e->now_ns < p->rc_again_ns)
		return false;
	r = free_one(e, p);
	if (!r)
		return false;
	if (e->conf.port->rc_make(e->conf.arg, (unsigned)(r - e->rc),
				  &r->own)) {
		e->counts.rcs_refused++;
		p->rc_again_ns = e->now_ns + VQP_RC_PAUSE_NS;
		return false;
	}
	r->state = VQP_RC_ASKED;
	r->gen++;
	r->tries = 0;
	r->back = false;
	r->made_ns = e->now_ns;
	r->peer = p;
	p->refs++;
	p->rc = r;
	e->rcs_open++;
	tell_own(e, r, RC_ASK);
	if (PLANTED(e, RC_EARLY))
		use(e, r);
	return true;
}

/* At most one is made in a round: making one may take a millisecond. */
static void begin_next(struct vqp_engine *e)
{
	struct list_node *n, *next;
	struct vqp_peer *p;
	bool made = false;

	for (n = e->want_rc.next; n != &e->want_rc && !made; n = next) {
		next = n->next;
		p = container_of(n, struct vqp_peer, wants_rc);
		made = begin(e, p);
		/* A busy peer asks again in its next sample. */
		if (made || p->dc)
			list_del(n);
		else if (e->now_ns - p->wanted_ns >= VQP_RC_WAIT_NS) {
			list_del(n);
			give_up(e, p);
		}
	}
}

/* The peer is silent: it may be dead, or its process does not run. It waits again,
 * behind those that wait for the number, and its VQP_RC_WAIT_NS go on. Nothing was
 * posted, so the number is free at once; the READY of a peer that lives is answered
 * by END. */
static void asked_enough(struct vqp_engine *e, struct vqp_rc *r)
{
	struct vqp_peer *p = r->peer;

	if (!p->dc)
		list_add_tail(&e->want_rc, &p->wants_rc);
	if (PLANTED(e, RC_ANEW))
		p->wanted_ns = e->now_ns;
	end(e, r);
	if (!PLANTED(e, RC_MUTE_END))
		drop(e, r, true);
}

static void asked_again(struct vqp_engine *e, struct vqp_rc *r)
{
	struct vqp_peer *p = r->peer;

	if (r->tries < (r->back ? VQP_RC_TURN_TRIES : VQP_RC_TRIES)) {
		tell_own(e, r, RC_ASK);
		return;
	}
	/* said at once: a caller may wait for less than VQP_RC_WAIT_NS */
	if (!p->dc && !r->back)
		vqp_say(e, 256,
			"vqp: a node that DC does not reach does not answer: "
			"its process makes no calls, or (soft) is on another "
			"host and was started without SKEIN_LINK=auto");
	if (r->back || (!p->dc && e->now_ns - p->wanted_ns < VQP_RC_WAIT_NS &&
			!PLANTED(e, RC_ONCE))) {
		asked_enough(e, r);
		return;
	}
	p->rc_again_ns = e->now_ns + VQP_RC_PAUSE_NS;
	p->refs++;
	end(e, r);
	give_up(e, p);
	vqp_peer_put(e, p);
}

static void ending_again(struct vqp_engine *e, struct vqp_rc *r)
{
	if (r->tries < VQP_RC_TRIES)
		tell_own(e, r, RC_END);
	else
		drop(e, r, false);
}

/* Its messages may come to vqp_engine_receive() meanwhile. */
static void in_free(struct vqp_engine *e, struct vqp_rc_in *in)
{
	struct vqp_peer *p = in->peer;

	in->peer = NULL;
	e->cq_used -= in->probe != 0;
	in->probe = 0;
	e->conf.port->rc_free(e->conf.arg,
			      e->conf.rcs + (unsigned)(in - e->rc_in));
	vqp_peer_put(e, p);
}

/* The peer is dead; or it may be, unless it has ended its own, which we hear
 * soon. */
static void in_lost(struct vqp_engine *e, struct vqp_rc_in *in, bool is_dead)
{
	struct vqp_peer *p = in->peer;

	p->refs++;
	in_free(e, in);
	if (is_dead)
		vqp_life_died(e, p);
	else
		vqp_life_lost(e, p);
	vqp_peer_put(e, p);
}

static int in_probe(struct vqp_engine *e, const struct vqp_rc_in *in)
{
	return e->conf.port->rc_probe(e->conf.arg,
				      e->conf.rcs + (unsigned)(in - e->rc_in));
}

/* One of them in each sample: a peer that has died without a word is dropped; a
 * living one hears once more that it is ready, and says so if it has ended it:
 * all its words of that may have got lost. */
static void look_in(struct vqp_engine *e)
{
	struct vqp_rc_in *in = &e->rc_in[e->rc_looked++ % e->conf.rcs];

	if (!in->peer)
		return;
	if (in_probe(e, in) == -ENOTCONN)
		in_lost(e, in, true);
	else
		tell(e, in->peer, RC_READY, in->at, in->gen, &in->own);
}

/* Nothing is posted on the asked end, so it does not learn that the peer is
 * dead. Where the device does not say so either, a WRITE of no byte does. All
 * are posted at one time: a sleeping process wakes up once an interval. */
static void probe_ins(struct vqp_engine *e)
{
	struct ibv_send_wr wr = {.opcode = IBV_WR_RDMA_WRITE,
				 .send_flags = IBV_SEND_SIGNALED};
	struct vqp_rc_in *in;
	uint32_t i;

	for (i = 0; i < e->conf.rcs && e->cq_used < e->conf.cq_max; i++) {
		in = &e->rc_in[i];
		if (!in->peer || in->probe || PLANTED(e, RC_PROBE) ||
		    (e->now_ns - in->asked_ns < VQP_RC_QUIET_NS &&
		     !PLANTED(e, RC_SOON)) ||
		    in_probe(e, in) != -EOPNOTSUPP)
			continue;
		e->rc_probes += e->rc_probes == UINT32_MAX ? 2 : 1;
		wr.wr_id = (uint64_t)e->rc_probes << 32 | (VQP_WR_RC + i);
		if (e->conf.port->post(e->conf.arg,
				       e->conf.dcis + e->conf.rcs + i, &wr, 1,
				       in->peer))
			continue;
		in->probe = e->rc_probes;
		e->cq_used++;
	}
}

void vqp_rc_probed(struct vqp_engine *e, uint32_t i, uint32_t probe, bool ok)
{
	struct vqp_rc_in *in = &e->rc_in[i];

	/* Else it is a late one, of a queue pair that is gone. */
	if (i >= e->conf.rcs || in->probe != probe || PLANTED(e, RC_PROBED))
		return;
	in->probe = 0;
	e->cq_used--;
	if (ok) {
		in->peer->heard_ns = e->now_ns;
		return;
	}
	e->counts.rcs_failed++;
	in_lost(e, in, false);
}

/* Others wait for it: ends it once it is not used, or has been for its turn and
 * nothing is outstanding. */
static void back_look(struct vqp_engine *e, struct vqp_rc *r)
{
	struct vqp_peer *p = r->peer;

	if (qp_of(e, r)->n_posted || (!turn_over(e, r) && in_use(e, r)))
		return;
	/* behind those that wait now */
	p->rc_again_ns = e->now_ns + VQP_RC_SAMPLE_NS;
	give_back(e, r);
}

/* The peer asks by it whether this process lives, as long as vqps here may have
 * made some there. */
static bool is_kept(const struct vqp_engine *e, const struct vqp_rc *r)
{
	return !r->peer->dc_back && r->peer->connected && !PLANTED(e, RC_KEPT);
}

void vqp_rcs_run(struct vqp_engine *e)
{
	struct vqp_rc *r;

	if (!e->conf.rcs)
		return;
	if (!list_empty(&e->want_rc))
		begin_next(e);
	if (e->now_ns - e->rc_look_ns >= VQP_RC_SAMPLE_NS) {
		e->rc_look_ns = e->now_ns;
		look_in(e);
	}
	if (e->now_ns - e->rc_probed_ns >= VQP_RC_PROBE_NS) {
		e->rc_probed_ns = e->now_ns;
		probe_ins(e);
	}
	for (r = e->rc; r < e->rc + e->conf.rcs && e->rcs_open; r++) {
		if (r->state == VQP_RC_USED &&
		    e->now_ns - r->used_ns >= VQP_RC_IDLE_NS &&
		    !is_kept(e, r) && !in_use(e, r))
			end(e, r);
		else if (r->state == VQP_RC_USED && r->back)
			back_look(e, r);
		if (e->now_ns - r->sent_ns < VQP_RC_TELL_NS)
			continue;
		if (r->state == VQP_RC_ASKED)
			asked_again(e, r);
		else if (r->state == VQP_RC_ENDING)
			ending_again(e, r);
	}
}

/* The answer to ASK. */
static void answered(struct vqp_engine *e, const struct rc_msg *m)
{
	struct vqp_rc *r = m->at < e->conf.rcs ? &e->rc[m->at] : NULL;
	struct vqp_peer *p;

	p = vqp_peer_find(e, m->from.gid, m->from.port);
	if (r && r->peer && (r->gen == m->gen || PLANTED(e, RC_GEN)) &&
	    meta_same(&r->peer->node, m->from.gid, m->from.port) &&
	    r->peer->node.incarnation == m->from.incarnation) {
		if (r->state != VQP_RC_ASKED)
			return; /* it was answered before, or ends */
		p = r->peer;
		if (m->kind == RC_READY &&
		    e->now_ns - r->made_ns < VQP_RC_TAKE_NS &&
		    !e->conf.port->rc_join(e->conf.arg, m->at, &m->addr, p)) {
			use(e, r);
			return;
		}
		e->counts.rcs_refused++;
		p->rc_again_ns =
			e->now_ns + (p->dc ? VQP_RC_PAUSE_NS : VQP_RC_TELL_NS);
		end(e, r);
	} else if (p && m->kind == RC_READY) {
		tell(e, p, RC_END, m->at, m->gen, NULL); /* nobody uses it */
	}
}

static void ended(struct vqp_engine *e, const struct rc_msg *m)
{
	struct vqp_rc *r = m->at < e->conf.rcs ? &e->rc[m->at] : NULL;

	if (r && r->state == VQP_RC_ENDING && r->gen == m->gen &&
	    meta_same(&r->peer->node, m->from.gid, m->from.port))
		drop(e, r, true);
}

static void asked_back(struct vqp_engine *e, const struct rc_msg *m)
{
	struct vqp_rc *r = m->at < e->conf.rcs ? &e->rc[m->at] : NULL;

	if (r && r->state == VQP_RC_USED && r->gen == m->gen &&
	    meta_same(&r->peer->node, m->from.gid, m->from.port) &&
	    r->peer->node.incarnation == m->from.incarnation)
		r->back = true;
}

/* --- the end that is asked ---------------------------------------------- */

/* NULL: none of this node and number. */
static struct vqp_rc_in *in_find(struct vqp_engine *e, const struct rc_msg *m)
{
	struct vqp_rc_in *in;

	for (in = e->rc_in; in < e->rc_in + e->conf.rcs; in++)
		if (in->peer && in->at == m->at &&
		    meta_same(&in->peer->node, m->from.gid, m->from.port))
			return in;
	return NULL;
}

void vqp_rc_forget_in(struct vqp_engine *e, const struct vqp_peer *p)
{
	struct vqp_rc_in *in;

	for (in = e->rc_in; in < e->rc_in + e->conf.rcs; in++)
		if (in->peer &&
		    in->peer->node.incarnation == p->node.incarnation &&
		    meta_same(&in->peer->node, p->node.gid, p->node.port))
			in_free(e, in);
}

static bool in_make(struct vqp_engine *e, struct vqp_rc_in *in,
		    const struct rc_msg *m, struct vqp_peer *p)
{
	unsigned k = e->conf.rcs + (unsigned)(in - e->rc_in);

	if (e->conf.port->rc_make(e->conf.arg, k, &in->own))
		return false;
	if (e->conf.port->rc_join(e->conf.arg, k, &m->addr, p)) {
		e->conf.port->rc_free(e->conf.arg, k);
		return false;
	}
	in->peer = p;
	p->refs++;
	in->at = m->at;
	in->gen = m->gen;
	in->asked_ns = e->now_ns;
	return true;
}

/* The cache may have forgotten the peer and met it again. */
static bool same_life(const struct vqp_rc_in *in, const struct rc_msg *m)
{
	return in->peer->node.incarnation == m->from.incarnation;
}

/* All are taken, and a node that has no other way waits: asks another one to
 * give its own back, in turn. */
static void ask_back(struct vqp_engine *e, const struct vqp_peer *p)
{
	struct vqp_rc_in *in;
	uint32_t i;

	for (i = 0; i < e->conf.rcs && !p->dc && !PLANTED(e, RC_BACK); i++) {
		in = &e->rc_in[e->rc_back++ % e->conf.rcs];
		if (!in->peer || in->peer == p)
			continue;
		tell(e, in->peer, RC_BACK, in->at, in->gen, NULL);
		return;
	}
}

static void asked(struct vqp_engine *e, const struct rc_msg *m,
		  struct vqp_peer *p)
{
	struct vqp_rc_in *in = in_find(e, m);

	if (in && same_life(in, m) && in->gen == m->gen) {
		in->asked_ns = e->now_ns;
		tell(e, p, RC_READY, m->at, m->gen, &in->own);
		return; /* the first answer got lost */
	}
	if (in && same_life(in, m) && (int32_t)(m->gen - in->gen) < 0)
		return; /* late */
	if (in)
		in_free(e, in);
	for (in = e->rc_in; in < e->rc_in + e->conf.rcs && in->peer; in++)
		;
	if (in == e->rc_in + e->conf.rcs || !in_make(e, in, m, p)) {
		e->counts.rcs_refused++;
		tell(e, p, RC_REFUSED, m->at, m->gen, NULL);
		ask_back(e, p);
		return;
	}
	tell(e, p, RC_READY, m->at, m->gen, &in->own);
}

void vqp_engine_datagram(struct vqp_engine *e, const uint8_t *buf, size_t len)
{
	struct vqp_rc_in *in;
	struct vqp_peer *p;
	struct rc_msg m;

	if (rc_msg_decode(buf, len, &m)) {
		e->counts.garbage++;
		return;
	}
	if (m.to != e->conf.self.incarnation) {
		e->counts.dropped++; /* to an earlier process */
		return;
	}
	switch (m.kind) {
	case RC_READY:
	case RC_REFUSED:
		answered(e, &m);
		return;
	case RC_ENDED:
		ended(e, &m);
		return;
	case RC_BACK:
		asked_back(e, &m);
		return;
	case RC_ASK:
	case RC_END:
		break;
	}
	p = vqp_peer_get(e, &m.from);
	if (!p)
		return;
	p->heard_ns = e->now_ns;
	if (m.kind == RC_ASK) {
		asked(e, &m, p);
	} else {
		in = in_find(e, &m);
		if (in && in->gen == m.gen && same_life(in, &m))
			in_free(e, in);
		tell(e, p, RC_ENDED, m.at, m.gen, NULL);
	}
	vqp_peer_put(e, p);
}

void vqp_rcs_fini(struct vqp_engine *e)
{
	struct vqp_rc_in *in;
	struct vqp_rc *r;

	while (!list_empty(&e->want_rc))
		list_del(e->want_rc.next);
	for (r = e->rc; r < e->rc + e->conf.rcs; r++) {
		if (r->state == VQP_RC_ASKED || r->state == VQP_RC_USED)
			end(e, r);
		if (r->state == VQP_RC_ENDING)
			drop(e, r, true);
	}
	for (in = e->rc_in; in < e->rc_in + e->conf.rcs; in++)
		if (in->peer)
			in_free(e, in);
}
