/* SPDX-License-Identifier: MIT */
/*
 * lane_client.c - a lane at the calling end: the hooks of its leaders
 * (conn/handle/sendq.h), and the rounds of the engine's owner.
 *
 * Credits. The owner adds what the server answers to `answers`: credits in the
 * low half, and whether the last answer was a decline. The sending side takes
 * the whole word. Both do it by one read-modify-write, so none is lost. What a
 * leader cannot send (a question without a receive credit, a wake-up) it leaves
 * to the owner by a flag, and wakes the owner.
 *
 * Thread rule: the heading of each part says it.
 */
#include <arpa/inet.h>
#include <errno.h>

#include "base/assert.h"
#include "conn/ctx.h"
#include "rpc/client/send.h"
#include "rpc/client/replies.h"

/* How often the Head is READ for threads that want to change lanes. */
#define HEAD_EVERY_NS 100000u
#define ANSWERS_COUNT UINT64_C(0xffffffff)
#define ANSWERS_DECLINED (UINT64_C(1) << 32)

/* --- credits, by the sending side --------------------------------------- */

static inline bool has_credit(const struct rpc_lane_client *sh, uint32_t n)
{
	return !sh->has_credits || credit_room(&sh->credit, n) >= n;
}

static inline void spend(struct rpc_lane_client *sh, uint32_t calls)
{
	if (sh->has_credits)
		credit_spend(&sh->credit, calls);
}

static void take_answers(struct rpc_lane_client *sh)
{
	uint64_t answers;

	if (!atomic_load_explicit(&sh->answers, memory_order_relaxed))
		return;
	/* Relaxed: the word orders no other data. */
	answers =
		atomic_exchange_explicit(&sh->answers, 0, memory_order_relaxed);
	credit_granted(&sh->credit, (uint32_t)(answers & ANSWERS_COUNT));
	if (answers & ANSWERS_DECLINED)
		credit_declined(&sh->credit);
}

/* Builds the question for credits, if there is a receive credit for it. */
static bool question(struct rpc_conn *rc, struct ibv_send_wr *wr)
{
	struct rpc_lane_client *sh = rc->lane_client;
	uint32_t degree;

	if (!conn_imm_credit(rc->conn))
		return false;
	degree = credit_ask(&sh->credit);
	*wr = (struct ibv_send_wr){
		.opcode = IBV_WR_RDMA_WRITE_WITH_IMM,
		.imm_data = htonl(CONN_IMM(CONN_IMM_CREDITS,
					   RPC_CREDITS_ASK(degree, sh->ops)))};
	sh->ops_reported = sh->ops;
	sh->ops = 0;
	__atomic_store_n(&sh->questions, sh->questions + 1, __ATOMIC_RELAXED);
	rpc_client_want_look(&rc->client);
	return true;
}

/* The question was not posted: the next one reports the same. */
static void question_undo(struct rpc_conn *rc)
{
	struct rpc_lane_client *sh = rc->lane_client;

	sh->credit.asked = false;
	sh->ops += sh->ops_reported;
	__atomic_store_n(&sh->questions, sh->questions - 1, __ATOMIC_RELAXED);
	conn_imm_refund(rc->conn);
}

static void leave_to_owner(struct rpc_conn *rc, atomic_bool *want)
{
	atomic_store_explicit(want, true, memory_order_relaxed);
	rpc_client_want_look(&rc->client);
	engine_kick(rc->engine);
}

/* --- the leader's hooks ------------------------------------------------- */

/* The calling thread may copy its payload while the leader takes in other
 * calls. */
static int add_long(struct rpc_conn *rc, struct combiner_node *n,
		    const struct rpc_client_req *r)
{
	void *place;
	int err = rpc_client_add_place(&rc->client, r, &place);

	if (err)
		return err;
	n->payload = r->payload;
	n->len = (uint32_t)r->len;
	combiner_offer(n, place);
	rc->lane_client->offered++;
	return 0;
}

/* Adds several calls of one thread: from the first on, as many as there is room
 * for. The thread waits meanwhile, so the payloads stay valid while the leader
 * copies them. */
static int add_several(struct rpc_conn *rc, struct conn_req *req)
{
	const struct rpc_client_req *r = req->node.request;
	uint16_t i;
	int err = 0;

	for (i = 0; i < req->calls; i++) {
		err = rpc_client_add(&rc->client, &r[i]);
		if (err)
			break;
	}
	req->taken = i;
	return i ? 0 : err;
}

/* Charges the time of building a message to the simulated clock. In that time
 * other threads join the queue behind the leader. */
static inline void message_charge(struct rpc_conn *rc,
				  const struct conn_sendq *tx, uint32_t calls)
{
	/* q.charges is in a cache line that the leader has read already. */
	if (__builtin_expect(tx->q.charges, 0))
		rpc_port_charge(&rc->port, ENV_COST_ENCODE, calls);
}

static int share_add(void *state, struct combiner_node *n)
{
	struct conn_req *req = container_of(n, struct conn_req, node);
	const struct rpc_client_req *r = n->request;
	struct rpc_conn *rc = state;

	take_answers(rc->lane_client);
	if (__builtin_expect(!has_credit(rc->lane_client, 1), 0))
		return -EAGAIN;
	message_charge(rc, rc->lane_client->sendq, req->calls);
	if (__builtin_expect(req->calls > 1, 0))
		return add_several(rc, req);
	if (__builtin_expect(r->len > COMBINER_INLINE, 0))
		return add_long(rc, n, r);
	return rpc_client_add(&rc->client, r);
}

/* A memory operation costs a credit, posted or not: so both ends have the same
 * counts. */
static int share_charge(void *state, unsigned before)
{
	struct rpc_conn *rc = state;
	struct rpc_lane_client *sh = rc->lane_client;
	/* One credit is for the open message. */
	uint32_t need = rc->client.tx.open_count ? 2 : 1;

	take_answers(sh);
	if (!sh->has_credits)
		return 0;
	if (!has_credit(sh, need))
		return -EAGAIN;
	credit_spend_wr(&sh->credit, before);
	sh->ops++;
	__atomic_store_n(&sh->all_ops, sh->all_ops + 1, __ATOMIC_RELAXED);
	if (credit_low(&sh->credit))
		leave_to_owner(rc, &sh->want_question);
	return 0;
}

static void settle(struct rpc_conn *rc, struct combiner_node *first, unsigned n)
{
	struct rpc_lane_client *sh = rc->lane_client;
	struct combiner_node *node = first;
	struct conn_req *req;

	for (; sh->offered; node = combiner_next(node)) {
		req = container_of(node, struct conn_req, node);
		skein_assert_debug(n--);
		if (node->result || req->kind != CONN_REQ_CALL ||
		    req->calls > 1 ||
		    ((const struct rpc_client_req *)node->request)->len <=
			    COMBINER_INLINE)
			continue;
		combiner_settle(conn_sendq_queue(rc->conn), node);
		sh->offered--;
	}
}

static inline void message_wr(struct rpc_conn *rc, uint64_t off, uint32_t len,
			      struct conn_sendq_wr *out)
{
	struct ibv_send_wr *wr = &out->wr;

	out->sge = (struct ibv_sge){
		.addr = (uint64_t)(uintptr_t)(rc->port.base + off),
		.length = len,
		.lkey = rc->lkey};
	/* Field by field: the struct is large and mostly not looked at. */
	wr->sg_list = &out->sge;
	wr->num_sge = 1;
	wr->opcode = IBV_WR_RDMA_WRITE;
	wr->send_flags = len <= rc->inline_max ? IBV_SEND_INLINE : 0;
	wr->wr.rdma.remote_addr = rc->peer_base + off;
	wr->wr.rdma.rkey = rc->peer_rkey;
}

static inline void count_degree(struct rpc_lane_client *sh, uint32_t degree)
{
	degree = degree < RPC_DEGREES ? degree : RPC_DEGREES;
	__atomic_store_n(&sh->degrees[degree], sh->degrees[degree] + 1,
			 __ATOMIC_RELAXED);
}

/* Does the server wait for the next message without looking often? */
static inline bool peer_quiet(const struct rpc_conn *rc)
{
	/* Relaxed: it is a hint only (tell_quiet()). */
	return __atomic_load_n(rpc_port_quiet(&rc->port), __ATOMIC_RELAXED) ==
	       rc->client.tx.req_tail;
}

/* Lets the message wake its receiver, or leaves that to the owner. Makes the
 * engine poll the lane, if it rests. */
static __attribute__((noinline)) void wake_along(struct rpc_conn *rc,
						 struct ibv_send_wr *wr)
{
	struct rpc_lane_client *sh = rc->lane_client;

	if (rpc_event_rests(&rc->port.event))
		conn_wake(rc->conn);
	if (!rpc_event_wake(&rc->port.event) && !peer_quiet(rc))
		return;
	if (!conn_imm_credit(rc->conn)) {
		leave_to_owner(rc, &sh->want_wake);
		return;
	}
	sh->waking = true;
	wr->opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
	wr->imm_data = htonl(CONN_IMM(CONN_IMM_WAKE, 0));
	__atomic_store_n(&sh->wakeups, sh->wakeups + 1, __ATOMIC_RELAXED);
}

/* 1: the question goes behind the message. 0: it is left to the owner. */
static __attribute__((noinline)) unsigned ask_along(struct rpc_conn *rc,
						    struct ibv_send_wr *wr)
{
	struct rpc_lane_client *sh = rc->lane_client;

	if (!question(rc, wr)) {
		leave_to_owner(rc, &sh->want_question);
		return 0;
	}
	sh->asking = 1;
	return 1;
}

static unsigned share_seal(void *state, struct combiner_node *first, unsigned n,
			   struct conn_sendq_wr out[CONN_SENDQ_MSG_WRS])
{
	struct rpc_conn *rc = state;
	struct rpc_lane_client *sh = rc->lane_client;
	uint64_t off;
	uint32_t len;

	if (__builtin_expect(sh->offered != 0, 0))
		settle(rc, first, n);
	rpc_client_seal(&rc->client, &off, &len);
	message_wr(rc, off, len, &out[0]);
	if (__builtin_expect(
		    rpc_event_special(&rc->port.event) || peer_quiet(rc), 0))
		wake_along(rc, &out[0].wr);
	spend(sh, rc->client.tx.open_count);
	return __builtin_expect(credit_low(&sh->credit), 0)
		       ? 1 + ask_along(rc, &out[1].wr)
		       : 1;
}

/* The device did not take the whole list: undoes what seal() did besides the
 * message. */
static __attribute__((noinline)) void posted_part(struct rpc_conn *rc,
						  unsigned n, int err)
{
	struct rpc_lane_client *sh = rc->lane_client;

	if (sh->asking) {
		/* The next message asks. */
		question_undo(rc);
		sh->asking = 0;
	}
	if (n)
		return;
	sh->credit.left++;
	if (sh->waking)
		conn_imm_refund(rc->conn);
	sh->waking = false;
	rpc_client_posted(&rc->client, err);
}

static void share_posted(void *state, unsigned n, int err)
{
	struct rpc_conn *rc = state;
	struct rpc_lane_client *sh = rc->lane_client;
	uint32_t degree = rc->client.tx.open_count;

	if (__builtin_expect(n < 1 + sh->asking, 0))
		posted_part(rc, n, err);
	if (__builtin_expect(n == 0, 0))
		return;
	sh->asking = 0;
	sh->waking = false;
	count_degree(sh, degree);
	rpc_client_posted(&rc->client, 0);
}

static const struct conn_sendq_ops share_ops = {
	.add = share_add,
	.charge = share_charge,
	.seal = share_seal,
	.posted = share_posted,
};

/* --- one call, alone ----------------------------------------------------- */

/* May the call leave without a question for credits and without a wake-up? */
static inline bool plain(struct rpc_conn *rc, const struct rpc_client_req *r)
{
	take_answers(rc->lane_client);
	return has_credit(rc->lane_client, 1) && r->len <= COMBINER_INLINE &&
	       !rpc_event_special(&rc->port.event) && !peer_quiet(rc);
}

/* Posts the message, with the question that is due behind it. */
static __attribute__((noinline)) int post_asking(struct rpc_conn *rc,
						 struct conn_sendq *tx,
						 struct ibv_send_wr *wr)
{
	struct rpc_lane_client *sh = rc->lane_client;
	struct ibv_send_wr ask;
	unsigned n;
	int err;

	credit_spend(&sh->credit, 1);
	if (ask_along(rc, &ask)) {
		err = conn_sendq_post_two(tx, wr, &ask, &n);
		if (__builtin_expect(n < 2, 0))
			question_undo(rc);
		sh->asking = 0;
	} else {
		err = conn_sendq_post(tx, wr);
		n = !err;
	}
	if (__builtin_expect(!n, 0))
		sh->credit.left++;
	return err;
}

static inline int post_alone(struct rpc_conn *rc, struct conn_sendq *tx,
			     struct ibv_send_wr *wr)
{
	int err;

	if (__builtin_expect(!credit_plain(&rc->lane_client->credit), 0))
		return post_asking(rc, tx, wr);
	err = conn_sendq_post(tx, wr);
	if (__builtin_expect(!err, 1))
		spend(rc->lane_client, 1);
	return err;
}

/* Sends one call for a leader that is alone in the queue: it does, without the
 * hooks, what they do for such a message. 1: the hooks must do it. */
static inline int send_alone(struct rpc_conn *rc, struct conn_sendq *tx,
			     const struct rpc_client_req *r)
{
	struct rpc_alone alone;
	struct conn_sendq_wr out;
	int err;

	if (__builtin_expect(!conn_sendq_clear(tx) || !plain(rc, r) ||
				     !rpc_client_add_alone(&rc->client, r,
							   &alone),
			     0))
		return 1;
	message_charge(rc, tx, 1);
	message_wr(rc, alone.off, alone.len, &out);
	err = post_alone(rc, tx, &out.wr);
	if (__builtin_expect(err != 0, 0)) {
		rpc_client_undo_alone(&rc->client);
		return err;
	}
	rpc_client_posted_alone(&rc->client, &alone);
	return 0;
}

int rpc_lane_client_call(struct rpc_conn *rc, struct conn_req *req,
			 struct rpc_client_req *r)
{
	struct conn_sendq *tx = rc->lane_client->sendq;
	enum combiner_place at;
	int err = 1;

	req->kind = CONN_REQ_CALL;
	req->node.request = r;
	at = combiner_enter(&tx->q, &req->node);
	if (__builtin_expect(combiner_alone(&tx->q, &req->node, at), 1))
		err = send_alone(rc, tx, r);
	if (__builtin_expect(err == 1, 0))
		return combiner_go_on(&tx->q, &req->node, at);
	combiner_leave(&tx->q, &req->node);
	return err;
}

int rpc_lane_client_calls(struct rpc_conn *rc, struct conn_req *req,
			  struct rpc_client_req *r, unsigned n, unsigned *sent)
{
	struct combiner *q = &rc->lane_client->sendq->q;
	int err;

	req->kind = CONN_REQ_CALL;
	req->calls = req->node.requests =
		(uint16_t)(n < q->bound ? n : q->bound);
	req->taken = 1; /* the leader does not set it for one call */
	req->node.request = r;
	err = combiner_submit(q, &req->node);
	*sent = err ? 0 : req->taken;
	/* The calls were sent or refused: the leader reads the node no more. */
	req->calls = req->node.requests = 1;
	return err;
}

/* --- the owner ---------------------------------------------------------- */

static bool asking(const struct rpc_lane_client *sh)
{
	return __atomic_load_n(&sh->questions, __ATOMIC_RELAXED) !=
	       sh->answered;
}

int rpc_lane_client_imm(struct rpc_conn *rc, uint32_t value)
{
	struct rpc_lane_client *sh = rc->lane_client;
	uint64_t was, answers;

	if (value > UINT16_MAX || !sh->has_credits)
		return -SKEIN_EPEER;
	was = atomic_load_explicit(&sh->answers, memory_order_relaxed);
	do {
		answers = was + value;
		if ((was & ANSWERS_COUNT) + value > UINT16_MAX)
			return -SKEIN_EPEER;
		answers = value ? answers & ~ANSWERS_DECLINED
				: answers | ANSWERS_DECLINED;
	} while (!atomic_compare_exchange_weak_explicit(
		&sh->answers, &was, answers, memory_order_relaxed,
		memory_order_relaxed));
	sh->answered += asking(sh); /* unless it is unasked */
	sh->grants += value != 0;
	sh->declines += !value;
	sh->granted += value;
	if (sh->active != (value != 0)) {
		sh->active = value != 0;
		rpc_handle_schedule(sh->handle);
	}
	rpc_handle_feed(sh->handle);
	return 0;
}

/* Sends the question that a leader has left to the owner. 1 sent, 0, or an
 * error. */
static int question_send(struct rpc_conn *rc)
{
	struct rpc_lane_client *sh = rc->lane_client;
	struct ibv_send_wr wr;
	int err;

	take_answers(sh);
	if (!credit_low(&sh->credit)) {
		atomic_store_explicit(&sh->want_question, false,
				      memory_order_relaxed);
		return 0;
	}
	if (!conn_send_room(rc->conn) || !question(rc, &wr))
		return 0;
	err = conn_post(rc->conn, &wr, NULL);
	if (err) {
		question_undo(rc);
		return err == -EAGAIN || err == -ENOMEM ? 0 : err;
	}
	atomic_store_explicit(&sh->want_question, false, memory_order_relaxed);
	return 1;
}

/* A request that the owner sends: it costs a credit like others. */
static int large_send(struct rpc_conn *rc, const struct rpc_pending *p,
		      uint64_t left)
{
	struct rpc_client_req r = {.payload = p->req,
				   .len = p->req_len,
				   .resp_max = p->resp_max,
				   .timeout_ns = left,
				   .done = p->done,
				   .arg = p->arg,
				   .id = p->id,
				   .thread = p->thread};
	struct rpc_lane_client *sh = rc->lane_client;
	int err;

	take_answers(sh);
	if (!has_credit(sh, 1))
		return -EAGAIN;
	err = rpc_client_add_large(&rc->client, &r);
	if (err)
		return err;
	spend(sh, 1);
	if (credit_low(&sh->credit)) {
		atomic_store_explicit(&sh->want_question, true,
				      memory_order_relaxed);
		rpc_client_want_look(&rc->client);
	}
	return 0;
}

static int pending_send(struct rpc_conn *rc, struct rpc_pending *p)
{
	uint64_t now = engine_now_ns(rc->engine), left = ENV_NEVER;
	enum rpc_pending_req was = RPC_PENDING_UNREAD;
	int err;

	if (p->deadline_ns != ENV_NEVER)
		left = p->deadline_ns > now ? p->deadline_ns - now : 0;
	/* Acquire, and the release below, pair with take_back(): either the
	 * caller has taken the request back, or the owner has read it
	 * before. */
	if (!left || !atomic_compare_exchange_strong_explicit(
			     &p->req_state, &was, RPC_PENDING_READING,
			     memory_order_acquire, memory_order_relaxed))
		return -ETIMEDOUT;
	err = large_send(rc, p, left);
	atomic_store_explicit(&p->req_state,
			      err ? RPC_PENDING_UNREAD : RPC_PENDING_READ,
			      memory_order_release);
	return err;
}

/* Has the call no time left? The owner asks this for all waiting calls, also
 * for those behind a call that lacks room. */
static bool too_late(const struct rpc_conn *rc, const struct rpc_pending *p)
{
	return p->deadline_ns <= engine_now_ns(rc->engine);
}

static void waiting_del(struct rpc_conn *rc, struct rpc_pending **link)
{
	struct rpc_pending *p = *link;

	*link = p->next;
	if (!p->next)
		rc->waiting_end = link;
	p->next = NULL;
}

int rpc_waiting_poll(struct rpc_conn *rc, struct rpc_pending **ended)
{
	struct rpc_pending **link = &rc->waiting, *p;
	int err, moved = 0;

	while ((p = *link)) {
		err = -EAGAIN;
		if (link == &rc->waiting)
			err = pending_send(rc, p);
		else if (too_late(rc, p))
			err = -ETIMEDOUT;
		if (err == -EAGAIN) {
			link = &p->next;
			continue;
		}
		waiting_del(rc, link);
		p->err = err;
		*ended = p;
		ended = &p->next;
		moved++;
	}
	return moved;
}

/* The number of requests of p's thread that wait here, if p is the first of
 * them; else 0. */
static unsigned waiting_of_thread(const struct rpc_conn *rc,
				  const struct rpc_pending *p)
{
	const struct rpc_pending *q;
	unsigned n = 0;

	for (q = rc->waiting; q != p; q = q->next)
		if (q->thread == p->thread)
			return 0;
	for (; q; q = q->next)
		n += q->thread == p->thread;
	return n;
}

/* Moves all waiting requests of a thread to another lane, in their order. */
static void waiting_go(struct rpc_conn *rc, uint16_t thread,
		       struct rpc_conn *to)
{
	struct rpc_pending **link = &rc->waiting, *p;

	while ((p = *link)) {
		if (p->thread != thread) {
			link = &p->next;
			continue;
		}
		waiting_del(rc, link);
		rpc_thread_moved(p, to);
		*to->waiting_end = p;
		to->waiting_end = &p->next;
	}
}

/* The lane is inactive, perhaps for ever: moves the threads that can go to
 * another lane. */
static int waiting_move(struct rpc_conn *rc)
{
	struct rpc_pending *p = rc->waiting;
	struct rpc_conn *to;
	int moved = 0;

	while (p) {
		unsigned n = waiting_of_thread(rc, p);

		to = n ? rpc_thread_moves(rc, p->thread, n) : NULL;
		if (!to) {
			p = p->next;
			continue;
		}
		waiting_go(rc, p->thread, to);
		moved++;
		p = rc->waiting;
	}
	return moved;
}

void rpc_pending_tell(struct rpc_pending *ended)
{
	struct skein_rpc_result res = {.outcome = SKEIN_NOT_SENT};
	skein_rpc_done_fn *done;
	struct rpc_pending *p;
	void *arg;
	bool own;

	while ((p = ended)) {
		ended = p->next;
		res.status = p->err;
		done = p->err ? p->done : NULL;
		arg = p->arg;
		own = p->own;
		/* From here on the thread may send again. Release: p is the
		 * thread's again, if it is in the thread record. */
		atomic_fetch_sub_explicit(p->held, 1, memory_order_release);
		if (own)
			env_free(conn_env(p->rc->conn), p);
		if (done)
			done(arg, &res);
	}
}

static bool wants_send(struct rpc_conn *rc)
{
	struct rpc_lane_client *sh = rc->lane_client;

	return rpc_client_wants_send(&rc->client) || rc->waiting ||
	       rpc_event_owes(&rc->port.event) ||
	       atomic_load_explicit(&sh->want_question, memory_order_relaxed) ||
	       atomic_load_explicit(&sh->want_wake, memory_order_relaxed);
}

int rpc_lane_client_event_flush(struct rpc_conn *rc)
{
	int err;

	conn_sendq_hold(rc->conn);
	err = rpc_event_flush(&rc->port);
	conn_sendq_release(rc->conn);
	return err;
}

/* All that the owner sends, in one go. done() of calls that end meanwhile runs
 * after it: no callback runs while the sending side is held. */
static int send_own(struct rpc_conn *rc)
{
	struct rpc_lane_client *sh = rc->lane_client;
	struct rpc_pending *ended = NULL;
	int moved, err;

	conn_sendq_hold(rc->conn);
	moved = rpc_client_send_own(&rc->client);
	if (moved >= 0)
		moved += rpc_waiting_poll(rc, &ended);
	if (moved >= 0 &&
	    atomic_load_explicit(&sh->want_question, memory_order_relaxed)) {
		err = question_send(rc);
		moved = err < 0 ? err : moved + err;
	}
	if (atomic_exchange_explicit(&sh->want_wake, false,
				     memory_order_relaxed))
		rc->port.event.owe_wake = rc->port.event.wake;
	if (moved >= 0 && rpc_event_owes(&rc->port.event)) {
		err = rpc_event_flush(&rc->port);
		moved = err ? err : moved;
	}
	conn_sendq_release(rc->conn);
	rpc_pending_tell(ended);
	return moved;
}

uint64_t rpc_lane_client_next(struct rpc_conn *rc)
{
	struct rpc_lane_client *sh = rc->lane_client;
	uint64_t t = rpc_client_head_next(&rc->client);

	if (atomic_load_explicit(&sh->want_head, memory_order_relaxed) &&
	    sh->head_ns < t)
		t = sh->head_ns;
	return t;
}

/* READs the Head for threads that want to leave a lane on which no response
 * comes any more. */
static void read_head_at_times(struct rpc_conn *rc, uint64_t now_ns)
{
	struct rpc_lane_client *sh = rc->lane_client;

	if (!atomic_load_explicit(&sh->want_head, memory_order_relaxed) ||
	    now_ns < sh->head_ns)
		return;
	atomic_store_explicit(&sh->want_head, false, memory_order_relaxed);
	atomic_store_explicit(&rc->client.published.full, true,
			      memory_order_relaxed);
	sh->head_ns = now_ns + HEAD_EVERY_NS;
}

/* Does the owner's work besides responses. Returns how much moved, or an
 * error. */
static int owner_works(struct rpc_conn *rc, uint64_t now_ns)
{
	int err, moved = 0;

	if (rc->waiting && !rc->lane_client->active)
		moved += waiting_move(rc);
	read_head_at_times(rc, now_ns);
	if (!wants_send(rc))
		return moved;
	err = send_own(rc);
	return err < 0 ? err : moved + err;
}

static __attribute__((noinline)) void feed(struct rpc_conn *rc, int moved)
{
	struct rpc_lane_client *sh = rc->lane_client;
	uint32_t room;

	conn_sendq_hold(rc->conn);
	room = conn_send_room(rc->conn);
	conn_sendq_release(rc->conn);
	if (moved || room != sh->room)
		rpc_handle_feed(sh->handle);
	sh->room = room;
}

/* True if this round has work besides reading responses: asks for each
 * reason. */
static bool more_wanted(struct rpc_conn *rc)
{
	struct rpc_lane_client *sh = rc->lane_client;

	return rpc_client_wants_send(&rc->client) ||
	       rpc_client_head_next(&rc->client) != ENV_NEVER ||
	       atomic_load_explicit(&sh->want_question, memory_order_relaxed) ||
	       atomic_load_explicit(&sh->want_wake, memory_order_relaxed) ||
	       atomic_load_explicit(&sh->want_head, memory_order_relaxed) ||
	       asking(sh);
}

static bool handle_due(const struct rpc_conn *rc, uint64_t now_ns)
{
	return rc->handle && (now_ns >= rc->lane_client->sched_ns ||
			      rpc_handle_wants(rc->handle) >= RPC_LEAVING);
}

/* Work that this call leaves undone is done in the next round. */
int rpc_lane_client_poll_more(struct rpc_conn *rc, uint64_t now_ns, int moved)
{
	struct rpc_client *c = &rc->client;
	int err;

	/* Before the owner looks at the reasons: rpc_client_want_look(). */
	if (atomic_load_explicit(&c->published.look, memory_order_relaxed))
		atomic_exchange_explicit(&c->published.look, false,
					 memory_order_acq_rel);
	err = owner_works(rc, now_ns);
	if (err < 0)
		return err == -ENOTCONN ? 0 : err;
	moved += err;
	if (asking(rc->lane_client))
		conn_expect_recv(rc->conn); /* before the credits run out */
	if (handle_due(rc, now_ns))
		moved += rpc_handle_poll(rc->handle, now_ns);
	if (rpc_handle_wants_room(rc->lane_client->handle))
		feed(rc, moved);
	c->rx.look = more_wanted(rc);
	return moved;
}

void rpc_lane_client_wake_thread(struct rpc_lane_client *sh)
{
	rpc_lane_client_wake(sh);
}

bool rpc_lane_client_has_work(struct rpc_conn *rc)
{
	struct rpc_lane_client *sh = rc->lane_client;

	/* A signal that lacks a receive credit waits for the immediate that
	 * brings one. */
	return rpc_client_has_work(&rc->client) ||
	       atomic_load_explicit(&sh->want_wake, memory_order_relaxed);
}

/* No sending thread is missed. The owner holds the lane's sending side here. So
 * a thread that led before has posted, and the owner sees its calls; a thread
 * that leads later sees `rests`. A thread that leaves work to the owner without
 * leading writes the work first, then reads `rests`; the owner writes `rests`
 * first, then reads the work. All four are sequentially consistent: one of the
 * two sees the other. */
bool rpc_lane_client_rest(struct rpc_conn *rc)
{
	struct rpc_event *ev = &rc->port.event;
	struct rpc_lane_client *sh = rc->lane_client;
	bool rests;

	if (sh->has_credits || sh->sched_ns != ENV_NEVER)
		return false;
	conn_sendq_hold(rc->conn);
	__atomic_store_n(&ev->rests, true, __ATOMIC_SEQ_CST);
	rests = !atomic_load(&rc->client.published.look) &&
		!atomic_load(&sh->handle->wants) &&
		!rpc_client_busy(&rc->client) && !more_wanted(rc) &&
		!wants_send(rc) && !rpc_lane_client_more_due(rc, 0) &&
		rpc_rfetch_next(&rc->client.rx.rf) == ENV_NEVER;
	if (!rests)
		__atomic_store_n(&ev->rests, false, __ATOMIC_RELAXED);
	conn_sendq_release(rc->conn);
	if (rests)
		rpc_event_rest(ev);
	return rests;
}

/* --- life --------------------------------------------------------------- */

int rpc_lane_client_new(struct rpc_conn *rc)
{
	struct skein_conn *head = conn_lane_head(rc->conn);
	struct skein_env *env = conn_env(rc->conn);
	struct rpc_lane_client *sh = rc->lane_client;
	int err;

	if (!rc->handle && head == rc->conn) {
		err = rpc_handle_new(head, &rc->handle);
		if (err)
			return err;
	}
	if (!sh)
		sh = env_alloc_aligned(env, 64, sizeof(*sh));
	if (!sh)
		return -ENOMEM;
	memset(sh, 0, sizeof(*sh));
	sh->handle = rpc_conn_of(head)->handle;
	sh->sched_ns = head == rc->conn && conn_lanes(head) > 1 ? 0 : ENV_NEVER;
	sh->active = true;
	sh->has_credits = conn_lanes(head) > 1;
	credit_init(&sh->credit, CREDIT_C);
	sh->sendq = conn_sendq_of(rc->conn);
	rc->lane_client = sh;
	sh->handle->lanes[conn_lane_index(rc->conn)] = rc;
	conn_sendq_hooks(rc->conn, &share_ops, rc);
	return 0;
}

void rpc_lane_client_free(struct rpc_conn *rc)
{
	struct skein_env *env = conn_env(rc->conn);

	if (rc->lane_client)
		rc->lane_client->handle->lanes[conn_lane_index(rc->conn)] =
			NULL;
	env_free(env, rc->lane_client);
	rc->lane_client = NULL;
	if (rc->handle)
		rpc_handle_free(rc->handle);
	rc->handle = NULL;
}
