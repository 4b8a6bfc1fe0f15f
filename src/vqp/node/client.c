/* SPDX-License-Identifier: MIT */
/*
 * client.c - a process that uses a node service: the calls of skein/vqp.h over
 * its rings. It has no device; what it posts is looked at here, so that a mistake
 * is told by the call, and once more by the service, which believes nothing.
 *
 * A vqp's place (struct place) outlives its handle where the service keeps the
 * vqp: it frees a vqp that a message made only if the client has seen all of its
 * messages.
 *
 * Thread rule: all under node_pool.lock; a thread that waits lets go of it.
 */
#include "vqp/check.h"
#include "vqp/front.h"
#include "vqp/node/attach.h"
#include "vqp/node/serve.h"

#include "base/fence.h"
#include "conn/ctx.h"
#include "env/local.h"

#include <errno.h>
#include <string.h>

#define SPIN_ROUNDS 64u
#define YIELD_NS 50000u
#define NAP_NS SKEIN_MS(20) /* another thread may have read our wake-up */
#define CALL_NS SKEIN_S(5)

enum state {
	AT_REST,
	CONNECTED,
	BOUND,
};

struct node_vqp {
	struct skein_vqp base;
	uint32_t id;
	enum state state;
	bool child;
	/* completions not polled: a ring that grows */
	struct ring_comp *q;
	uint32_t q_cap, q_head, q_tail;
	uint32_t recvs; /* posted and not completed */
};

struct place {
	uint32_t id;
	uint32_t seen; /* messages from it that were popped */
	uint32_t posted, retired;
	struct node_vqp *v;
};

struct node_mem {
	struct skein_vqp_mem base;
	size_t len;
};

/* A thread that waits for a reply. */
struct wait {
	struct list_node link;
	uint32_t vqp; /* 0: to NEW, with this token: */
	uint64_t token;
	bool done;
	int err;
	uint32_t made;
};

struct node_pool {
	struct skein_pool base;
	struct skein_env *own_env;
	struct env_mutex lock;
	int fd;
	void *mem;
	struct ring ring;
	struct local_life *life;
	uint32_t woken;	    /* the sleep that we ended last */
	unsigned fruitless; /* looks in a row */
	bool dead;
	uint64_t tokens;
	struct list_node waits;
	/* one thread at a time asks for memory */
	bool asking, answered;
	struct attach_msg answer;
	int answer_fd;
	struct place place[SERVE_VQPS];
	struct node_mem *mems[SERVE_MEMS];
};

static struct node_pool *pool_of_base(struct skein_pool *p)
{
	return container_of(p, struct node_pool, base);
}

static struct node_vqp *handle_of(struct skein_vqp *v)
{
	return container_of(v, struct node_vqp, base);
}

static struct place *place_of(struct node_pool *p, uint32_t id)
{
	return &p->place[(id & 0xffff) % SERVE_VQPS];
}

/* --- the service -------------------------------------------------------- */

static bool is_dead(struct node_pool *p)
{
	if (!p->dead)
		p->dead = !local_lives(p->life) ||
			  atomic_load_explicit(&p->ring.heads->closed,
					       memory_order_relaxed);
	return p->dead;
}

/* -SKEIN_EFORKED, or 0 with the lock. */
static int enter(struct node_pool *p)
{
	if (env_forked(p->base.env))
		return -SKEIN_EFORKED;
	env_mutex_lock(p->base.env, &p->lock);
	return 0;
}

static void leave(struct node_pool *p)
{
	env_mutex_unlock(p->base.env, &p->lock);
}

/* The end of a look that found n things. A caller that looks again and again may have
 * the core that the service wants. */
static void looked(struct node_pool *p, int n)
{
	unsigned fruitless = n ? 0 : p->fruitless + 1;

	p->fruitless = fruitless;
	leave(p);
	if (fruitless > SPIN_ROUNDS)
		env_yield(p->base.env);
}

/* The service sets its word, looks at the ring, and sleeps; the request is in
 * the ring, and we look at the word. A fence on each side. */
static void service_wake(struct node_pool *p)
{
	struct attach_msg m;
	uint32_t sleeps;

	fence_full();
	sleeps = atomic_load_explicit(&p->life->asleep, memory_order_relaxed);
	if (!(sleeps & 1) || sleeps == p->woken)
		return;
	p->woken = sleeps;
	attach_fill(&m, ATTACH_WAKE);
	/* Where its socket is full, it has something to read. */
	local_send(p->fd, &m, sizeof(m), NULL, 0);
}

static int request(struct node_pool *p, const struct ring_req *q)
{
	int err;

	if (is_dead(p))
		return -SKEIN_EDEAD;
	err = ring_put(&p->ring, q);
	service_wake(p);
	return err;
}

static void socket_read(struct node_pool *p)
{
	uint8_t buf[ATTACH_LEN];
	int fds[LOCAL_FDS], n;
	struct attach_msg m;
	ssize_t got;

	for (;;) {
		got = local_recv(p->fd, buf, sizeof(buf), fds, &n);
		if (got == -EAGAIN)
			return;
		if (got <= 0 || attach_decode(buf, (size_t)got, &m)) {
			p->dead = true;
		} else if (m.kind == ATTACH_MEM && p->asking && !p->answered) {
			p->answer = m;
			p->answer_fd = n ? fds[0] : -1;
			p->answered = true;
			n = 0;
		}
		while (n > 0)
			close(fds[--n]);
		if (p->dead)
			return;
	}
}

/* --- completions -------------------------------------------------------- */

static bool queue_grow(struct node_pool *p, struct node_vqp *v)
{
	uint32_t cap = v->q_cap ? 2 * v->q_cap : 8, i;
	struct ring_comp *q;

	if (v->q_tail - v->q_head < v->q_cap)
		return true;
	q = env_alloc(p->base.env, cap * sizeof(*q));
	if (!q)
		return false;
	for (i = v->q_head; i != v->q_tail; i++)
		q[i % cap] = v->q[i % v->q_cap];
	env_free(p->base.env, v->q);
	v->q = q;
	v->q_cap = cap;
	return true;
}

/* The service may forget the vqp of this place, which has no handle. */
static void place_free(struct node_pool *p, const struct place *at)
{
	struct ring_req q = {
		.op = RING_OP_FREE, .vqp = at->id, .addr = at->seen};

	request(p, &q);
}

/* A message that nobody pops any more. */
static void message_drop(struct node_pool *p, uint32_t from)
{
	struct place *at = place_of(p, from);

	if (!from)
		return;
	if (at->id != from)
		*at = (struct place){.id = from};
	at->seen++;
	if (!at->v)
		place_free(p, at);
}

static void on_reply(struct node_pool *p, const struct ring_comp *c)
{
	struct list_node *n;
	struct wait *w;

	list_for_each(n, &p->waits) {
		w = container_of(n, struct wait, link);
		if (w->done || w->vqp != c->vqp ||
		    (!c->vqp && w->token != c->wr_id))
			continue;
		w->done = true;
		w->err = -(int)c->len;
		w->made = c->imm;
		return;
	}
	if (!c->vqp && !c->len) { /* nobody waited for it */
		struct place gone = {.id = c->imm};

		place_free(p, &gone);
	}
}

static int comps_take(struct node_pool *p)
{
	struct ring_comp c;
	struct place *at;
	int n = 0;

	while (ring_comp_take(&p->ring, &c)) {
		n++;
		if (c.kind == RING_REPLY) {
			on_reply(p, &c);
			continue;
		}
		at = place_of(p, c.vqp);
		if (at->id != c.vqp || !at->v) {
			if (c.kind == RING_MESSAGE)
				message_drop(p, c.value);
			continue;
		}
		if (c.kind != RING_MESSAGE)
			at->retired = c.value;
		if (c.kind == RING_ROOM)
			continue;
		if (c.kind != RING_DONE)
			at->v->recvs--;
		/* A completion that there is no memory for is lost, as is the
		 * process, about now. */
		if (queue_grow(p, at->v))
			at->v->q[at->v->q_tail++ % at->v->q_cap] = c;
	}
	return n;
}

/* --- waiting ------------------------------------------------------------ */

/* seen: the ring as it was under the lock. Where another thread has taken more
 * since, there is something to look at. */
static void sleep_at(struct node_pool *p, const struct ring *seen, uint64_t ns)
{
	struct ring_heads *h = seen->heads;

	atomic_store_explicit(&h->asleep, 1, memory_order_relaxed);
	/* with the fence in the service's client_wake() */
	fence_full();
	if (!ring_comp_has(seen))
		local_wait(p->fd, ns < NAP_NS ? ns : NAP_NS);
	atomic_store_explicit(&h->asleep, 0, memory_order_relaxed);
}

/* With the lock; lets go of it meanwhile. 0, -ETIMEDOUT, -SKEIN_EDEAD. */
static int wait_for(struct node_pool *p, const bool *done, uint64_t deadline)
{
	struct skein_env *env = p->base.env;
	uint64_t from = env_now_ns(env), now;
	struct ring seen;
	unsigned round;

	for (round = 0;; round++) {
		comps_take(p);
		seen = p->ring;
		if (*done)
			return 0;
		if (is_dead(p))
			return -SKEIN_EDEAD;
		now = env_now_ns(env);
		if (now >= deadline)
			return -ETIMEDOUT;
		leave(p);
		if (round < SPIN_ROUNDS)
			cpu_pause();
		else if (now - from < YIELD_NS)
			env_yield(env);
		else
			sleep_at(p, &seen, deadline - now);
		env_mutex_lock(env, &p->lock);
		if (round >= SPIN_ROUNDS)
			socket_read(p);
	}
}

/* A request, and its reply. */
static int call(struct node_pool *p, struct ring_req *q, uint64_t deadline,
		uint32_t *made)
{
	struct wait w = {.vqp = q->vqp, .token = ++p->tokens};
	int err;

	q->wr_id = w.token;
	list_add_tail(&p->waits, &w.link);
	while ((err = request(p, q)) == -EAGAIN &&
	       env_now_ns(p->base.env) < deadline) {
		leave(p);
		env_yield(p->base.env);
		env_mutex_lock(p->base.env, &p->lock);
		comps_take(p);
	}
	if (!err)
		err = wait_for(p, &w.done, deadline);
	if (err == -ETIMEDOUT && q->op == RING_OP_CONNECT) {
		struct ring_req stop = {.op = RING_OP_STOP, .vqp = q->vqp};

		request(p, &stop);
		err = wait_for(p, &w.done,
			       env_now_ns(p->base.env) + SKEIN_S(1));
	}
	list_del(&w.link);
	if (!err && made)
		*made = w.made;
	return err ? err : w.err;
}

/* --- memory ------------------------------------------------------------- */

static struct node_mem *mem_find(struct node_pool *p, uint32_t lkey)
{
	struct node_mem *m = p->mems[(lkey & 0xffff) % SERVE_MEMS];

	return m && m->base.lkey == lkey ? m : NULL;
}

static int mem_ask(struct node_pool *p, size_t len, unsigned access)
{
	struct skein_env *env = p->base.env;
	uint64_t end = env_now_ns(env) + CALL_NS, now;
	struct attach_msg m;
	int err;

	attach_fill(&m, ATTACH_MEM);
	m.len = len;
	m.access = access;
	p->answered = false;
	err = local_send(p->fd, &m, sizeof(m), NULL, 0);
	if (err)
		return err == -EPIPE ? -SKEIN_EDEAD : err;
	for (;;) {
		socket_read(p);
		if (p->answered)
			return p->answer.status;
		if (is_dead(p))
			return -SKEIN_EDEAD;
		now = env_now_ns(env);
		if (now >= end)
			return -ETIMEDOUT;
		leave(p);
		local_wait(p->fd, end - now < NAP_NS ? end - now : NAP_NS);
		env_mutex_lock(env, &p->lock);
	}
}

static int mem_take(struct node_pool *p, size_t len, struct skein_vqp_mem **mem)
{
	struct node_mem *m = env_alloc(p->base.env, sizeof(*m));
	uint32_t at = (p->answer.id & 0xffff) % SERVE_MEMS;
	int err;

	if (!m)
		return -ENOMEM;
	err = p->answer_fd < 0 || p->mems[at]
		      ? -SKEIN_EPEER
		      : local_map(p->answer_fd, len, true, &m->base.addr);
	if (err) {
		env_free(p->base.env, m);
		return err;
	}
	m->base.pool = &p->base;
	m->base.lkey = p->answer.id;
	m->base.id = p->answer.region;
	m->base.raddr = p->answer.region_addr;
	m->len = len;
	p->mems[at] = m;
	*mem = &m->base;
	return 0;
}

static int mem_new(struct skein_pool *base, size_t len, unsigned access,
		   struct skein_vqp_mem **mem)
{
	struct node_pool *p = pool_of_base(base);
	int err = enter(p);

	if (err)
		return err;
	if (p->asking || is_dead(p)) {
		err = p->asking ? -EBUSY : -SKEIN_EDEAD;
		leave(p);
		return err;
	}
	p->asking = true;
	p->answer_fd = -1;
	err = mem_ask(p, len, access);
	if (!err)
		err = mem_take(p, len, mem);
	if (p->answer_fd >= 0)
		close(p->answer_fd);
	/* A late answer would be taken for the next one's. */
	if (err == -ETIMEDOUT)
		p->dead = true;
	p->asking = false;
	leave(p);
	return err;
}

static void mem_drop(struct node_pool *p, struct node_mem *m)
{
	p->mems[(m->base.lkey & 0xffff) % SERVE_MEMS] = NULL;
	local_unmap(m->base.addr, m->len);
	env_free(p->base.env, m);
}

static void mem_free(struct skein_vqp_mem *base)
{
	struct node_mem *m = container_of(base, struct node_mem, base);
	struct node_pool *p = pool_of_base(base->pool);
	struct attach_msg msg;

	if (enter(p))
		return;
	attach_fill(&msg, ATTACH_MEM_FREE);
	msg.id = base->lkey;
	if (!is_dead(p))
		local_send(p->fd, &msg, sizeof(msg), NULL, 0);
	mem_drop(p, m);
	leave(p);
}

/* --- vqps --------------------------------------------------------------- */

static struct node_vqp *handle_new(struct node_pool *p, uint32_t id)
{
	struct node_vqp *v = env_alloc(p->base.env, sizeof(*v));
	struct place *at = place_of(p, id);

	if (!v)
		return NULL;
	v->base.pool = &p->base;
	v->id = id;
	if (at->id != id)
		*at = (struct place){.id = id};
	at->v = v;
	return v;
}

static int vqp_new_(struct skein_pool *base, struct skein_vqp **vqp)
{
	struct node_pool *p = pool_of_base(base);
	struct ring_req q = {.op = RING_OP_NEW};
	struct node_vqp *v;
	uint32_t id;
	int err = enter(p);

	if (err)
		return err;
	err = call(p, &q, env_now_ns(base->env) + CALL_NS, &id);
	if (!err) {
		v = handle_new(p, id);
		if (v)
			*vqp = &v->base;
		else
			err = -ENOMEM;
	}
	leave(p);
	return err;
}

static void vqp_drop(struct node_pool *p, struct node_vqp *v)
{
	place_of(p, v->id)->v = NULL;
	env_free(p->base.env, v->q);
	env_free(p->base.env, v);
}

static void vqp_free_(struct skein_vqp *base)
{
	struct node_vqp *v = handle_of(base);
	struct node_pool *p = pool_of_base(base->pool);
	struct ring_comp *c;

	if (enter(p))
		return;
	while (v->q_head != v->q_tail) {
		c = &v->q[v->q_head++ % v->q_cap];
		if (c->kind == RING_MESSAGE)
			message_drop(p, c->value);
	}
	place_free(p, place_of(p, v->id));
	vqp_drop(p, v);
	leave(p);
}

static int connect_(struct skein_vqp *base, const uint8_t gid[16],
		    uint32_t node_port, uint16_t port, uint64_t timeout_ns)
{
	struct node_vqp *v = handle_of(base);
	struct node_pool *p = pool_of_base(base->pool);
	struct ring_req q = {.op = RING_OP_CONNECT,
			     .vqp = v->id,
			     .rkey = port,
			     .addr = node_port};
	int err = enter(p);

	if (err)
		return err;
	memcpy(q.gid, gid, sizeof(q.gid));
	if (v->state != AT_REST)
		err = -EISCONN;
	else
		err = call(p, &q,
			   env_deadline(env_now_ns(p->base.env), timeout_ns),
			   NULL);
	if (!err)
		v->state = CONNECTED;
	leave(p);
	return err;
}

static int bind_(struct skein_vqp *base, uint16_t port)
{
	struct node_vqp *v = handle_of(base);
	struct node_pool *p = pool_of_base(base->pool);
	struct ring_req q = {.op = RING_OP_BIND, .vqp = v->id, .rkey = port};
	int err = enter(p);

	if (err)
		return err;
	err = v->state == AT_REST
		      ? call(p, &q, env_now_ns(p->base.env) + CALL_NS, NULL)
		      : -EISCONN;
	if (!err)
		v->state = BOUND;
	leave(p);
	return err;
}

/* --- requests ----------------------------------------------------------- */

/* Our addresses to places of memory that the service made. */
static int sges_put(struct node_pool *p, const struct ibv_sge *g, int n,
		    struct ring_req *q)
{
	struct node_mem *m;
	uint64_t off;
	int i;

	for (i = 0; i < n; i++, g++) {
		m = mem_find(p, g->lkey);
		off = m ? g->addr - (uintptr_t)m->base.addr : 0;
		if (g->length &&
		    (!m || off > m->len || g->length > m->len - off)) {
			env_log(p->base.env, ENV_LOG_WARN,
				"vqp: a request names memory that the node "
				"service does not know: it has to come from "
				"skein_vqp_mem_new()");
			return -EFAULT;
		}
		q->sge[i] = (struct ring_sge){g->lkey, g->length, off};
	}
	q->num_sge = (uint8_t)n;
	return 0;
}

static int send_fill(struct node_pool *p, const struct ibv_send_wr *wr,
		     struct ring_req *q)
{
	int i;

	q->op = (uint8_t)(RING_OP_SEND + wr->opcode);
	q->flags = (uint8_t)wr->send_flags;
	q->wr_id = wr->wr_id;
	if (is_message(wr)) {
		q->rkey = wr->imm_data;
	} else if (is_atomic(wr)) {
		q->rkey = wr->wr.atomic.rkey;
		q->addr = wr->wr.atomic.remote_addr;
		q->compare_add = wr->wr.atomic.compare_add;
		q->swap = wr->wr.atomic.swap;
	} else {
		q->rkey = wr->wr.rdma.rkey;
		q->addr = wr->wr.rdma.remote_addr;
	}
	if (!(wr->send_flags & IBV_SEND_INLINE))
		return sges_put(p, wr->sg_list, wr->num_sge, q);
	for (i = 0; i < wr->num_sge; i++) {
		/* NOLINTNEXTLINE(performance-no-int-to-ptr) */
		memcpy(q->data + q->data_len,
		       (void *)(uintptr_t)wr->sg_list[i].addr,
		       wr->sg_list[i].length);
		q->data_len += wr->sg_list[i].length;
	}
	return 0;
}

static int send_one(struct node_pool *p, struct node_vqp *v,
		    const struct ibv_send_wr *wr)
{
	struct place *at = place_of(p, v->id);
	struct ring_req q = {.vqp = v->id};
	uint32_t out;
	int err;

	if (!vqp_wr_valid(wr))
		return -EINVAL;
	err = send_fill(p, wr, &q);
	if (err)
		return err;
	out = at->posted - at->retired;
	if (out >= SERVE_QUEUE || out + v->q_tail - v->q_head >= VQP_COMPS) {
		comps_take(p);
		out = at->posted - at->retired;
		if (out >= SERVE_QUEUE ||
		    out + v->q_tail - v->q_head >= VQP_COMPS)
			return -ENOMEM;
	}
	err = request(p, &q);
	at->posted += !err;
	return err == -EAGAIN ? -ENOMEM : err;
}

static int post_send(struct skein_vqp *base, struct ibv_send_wr *wr,
		     struct ibv_send_wr **bad)
{
	struct node_vqp *v = handle_of(base);
	struct node_pool *p = pool_of_base(base->pool);
	int err = enter(p);

	if (err)
		return err;
	if (v->state != CONNECTED)
		err = is_dead(p) ? -SKEIN_EDEAD : -ENOTCONN;
	for (; wr && !err; wr = wr->next) {
		*bad = wr;
		err = send_one(p, v, wr);
	}
	leave(p);
	return err;
}

static int post_recv(struct skein_vqp *base, struct ibv_recv_wr *wr,
		     struct ibv_recv_wr **bad)
{
	struct node_vqp *v = handle_of(base);
	struct node_pool *p = pool_of_base(base->pool);
	int err = enter(p);

	for (; wr && !err; wr = wr->next) {
		struct ring_req q = {
			.op = RING_OP_RECV, .vqp = v->id, .wr_id = wr->wr_id};

		*bad = wr;
		if (wr->num_sge < 0 || wr->num_sge > (int)VQP_SGES ||
		    (wr->num_sge && !wr->sg_list))
			err = -EINVAL;
		else if (v->recvs == VQP_RECVS)
			err = -ENOMEM;
		else
			err = sges_put(p, wr->sg_list, wr->num_sge, &q);
		if (!err)
			err = request(p, &q);
		if (err == -EAGAIN)
			err = -ENOMEM;
		v->recvs += !err;
	}
	if (err != -SKEIN_EFORKED)
		leave(p);
	return err;
}

static void wc_fill(const struct node_vqp *v, const struct ring_comp *c,
		    struct ibv_wc *wc)
{
	memset(wc, 0, sizeof(*wc));
	wc->wr_id = c->wr_id;
	wc->status = (enum ibv_wc_status)c->status;
	wc->opcode = (enum ibv_wc_opcode)c->opcode;
	if (c->kind == RING_RECV)
		wc->opcode = IBV_WC_RECV;
	wc->byte_len = c->len;
	wc->imm_data = c->imm;
	wc->qp_num = v->id;
	if (c->with_imm)
		wc->wc_flags = IBV_WC_WITH_IMM;
}

static int poll_(struct skein_vqp *base, int n, struct ibv_wc *wc)
{
	struct node_vqp *v = handle_of(base);
	struct node_pool *p = pool_of_base(base->pool);
	int got = 0, err = enter(p);

	if (err)
		return err;
	comps_take(p);
	while (v->state != BOUND && got < n && v->q_head != v->q_tail)
		wc_fill(v, &v->q[v->q_head++ % v->q_cap], &wc[got++]);
	if (!got && is_dead(p))
		got = -SKEIN_EDEAD;
	looked(p, got);
	return got;
}

static struct skein_vqp *sender_of(struct node_pool *p, uint32_t id)
{
	struct place *at = place_of(p, id);
	struct node_vqp *v = at->id == id ? at->v : NULL;

	if (!id)
		return NULL;
	if (!v)
		v = handle_new(p, id);
	place_of(p, id)->seen++;
	if (!v)
		return NULL;
	v->state = CONNECTED;
	v->child = true;
	return &v->base;
}

static int pop(struct skein_vqp *base, unsigned n, struct skein_vqp_msg *msgs)
{
	struct node_vqp *v = handle_of(base);
	struct node_pool *p = pool_of_base(base->pool);
	struct ring_comp *c;
	unsigned got = 0;
	int err = enter(p);

	if (err)
		return err;
	comps_take(p);
	for (; v->state == BOUND && got < n && v->q_head != v->q_tail; got++) {
		c = &v->q[v->q_head++ % v->q_cap];
		msgs[got] =
			(struct skein_vqp_msg){.from = sender_of(p, c->value),
					       .wr_id = c->wr_id,
					       .len = c->len,
					       .imm = c->imm,
					       .with_imm = c->with_imm};
		if (c->status == IBV_WC_LOC_LEN_ERR)
			msgs[got].status = -EMSGSIZE;
		else if (c->status)
			msgs[got].status = -EFAULT;
		else if (!msgs[got].from)
			msgs[got].status = -ENOMEM;
	}
	err = (int)got;
	if (v->state != BOUND)
		err = -EINVAL;
	else if (!got && is_dead(p))
		err = -SKEIN_EDEAD;
	looked(p, err);
	return err;
}

/* --- the pool ----------------------------------------------------------- */

static int progress(struct skein_pool *base)
{
	struct node_pool *p = pool_of_base(base);
	int n = enter(p);

	if (n)
		return n;
	n = comps_take(p);
	if (!n && is_dead(p))
		n = -SKEIN_EDEAD;
	looked(p, n);
	return n;
}

static void stats(struct skein_pool *base, struct skein_pool_stats *st)
{
	struct skein_pool_stats s = {.size = sizeof(s)};

	(void)base;
	(void)ctx_struct_fill(st, sizeof(size_t), &s, sizeof(s));
}

static void pool_drop(struct node_pool *p)
{
	struct skein_env *env = p->base.env, *own = p->own_env;
	unsigned i;

	for (i = 0; i < SERVE_VQPS; i++)
		if (p->place[i].v)
			vqp_drop(p, p->place[i].v);
	for (i = 0; i < SERVE_MEMS; i++)
		if (p->mems[i])
			mem_drop(p, p->mems[i]);
	if (p->mem)
		local_unmap(p->mem, RING_LEN);
	if (p->life)
		local_unmap(p->life, LOCAL_LIFE_LEN);
	if (p->fd >= 0)
		close(p->fd);
	env_mutex_fini(env, &p->lock);
	env_free(env, p);
	if (own)
		env_real_free(own);
}

static void close_(struct skein_pool *base)
{
	pool_drop(pool_of_base(base));
}

static const struct vqp_front node_front = {
	.close = close_,
	.progress = progress,
	.stats = stats,
	.mem_new = mem_new,
	.mem_free = mem_free,
	.vqp_new = vqp_new_,
	.vqp_free = vqp_free_,
	.connect = connect_,
	.bind = bind_,
	.pop = pop,
	.post_send = post_send,
	.post_recv = post_recv,
	.poll = poll_,
};

/* A service of our own user's, or of root's. */
static int service_check(int fd)
{
	uint32_t uid, pid;
	int err = local_peer(fd, &uid, &pid);

	if (err)
		return err;
	return uid == (uint32_t)geteuid() || !uid ? 0 : -EACCES;
}

static int hello(struct node_pool *p, const char *path, uint64_t deadline,
		 struct attach_msg *m, int fds[LOCAL_FDS], int *n)
{
	uint8_t buf[ATTACH_LEN];
	ssize_t got;
	uint64_t now;
	int err;

	while ((err = local_connect(path, &p->fd)) == -EAGAIN &&
	       env_now_ns(p->base.env) < deadline)
		env_yield(p->base.env);
	if (!err)
		err = service_check(p->fd);
	attach_fill(m, ATTACH_HELLO);
	if (!err)
		err = local_send(p->fd, m, sizeof(*m), NULL, 0);
	/* one that is full has answered before */
	if (err && err != -EPIPE)
		return err;
	do {
		now = env_now_ns(p->base.env);
		got = local_recv(p->fd, buf, sizeof(buf), fds, n);
		if (got == -EAGAIN && now < deadline)
			local_wait(p->fd, deadline - now);
		/* One that closed before it read our message said why: that
		 * comes behind the error. */
	} while ((got == -EAGAIN || got == -ECONNRESET) && now < deadline);
	if (got <= 0)
		return got == -EAGAIN ? -ETIMEDOUT : -SKEIN_EDEAD;
	err = attach_decode(buf, (size_t)got, m);
	return err ? err : m->status;
}

static int attach(struct node_pool *p, const char *path, uint64_t timeout_ns)
{
	uint64_t end = env_deadline(env_now_ns(p->base.env), timeout_ns);
	int fds[LOCAL_FDS], n = 0, err;
	struct attach_msg m;
	void *life;

	err = hello(p, path, end, &m, fds, &n);
	if (!err && (n != 2 || m.kind != ATTACH_HELLO || m.len != RING_LEN))
		err = -SKEIN_EPEER;
	if (!err)
		err = local_map(fds[0], RING_LEN, true, &p->mem);
	if (!err)
		err = local_map(fds[1], LOCAL_LIFE_LEN, false, &life);
	while (n > 0)
		close(fds[--n]);
	if (err)
		return err;
	p->life = life;
	ring_init(&p->ring, p->mem);
	memcpy(p->base.gid, m.gid, sizeof(m.gid));
	memcpy(p->base.addr, m.addr, sizeof(m.addr));
	return 0;
}

int node_attach(struct skein_ctx *ctx, const char *path, uint64_t timeout_ns,
		struct skein_pool **pool)
{
	struct skein_env *env = ctx ? ctx->env : NULL, *own = NULL;
	struct node_pool *p;
	int err;

	if (!env) {
		err = env_real_new(&own);
		if (err)
			return err;
		env = own;
	}
	p = env_alloc(env, sizeof(*p));
	if (!p) {
		if (own)
			env_real_free(own);
		return -ENOMEM;
	}
	p->base.front = &node_front;
	p->base.env = env;
	p->own_env = own;
	p->fd = -1;
	list_init(&p->waits);
	env_mutex_init(env, &p->lock);
	err = attach(p, path, timeout_ns);
	if (!err) {
		*pool = &p->base;
		return 0;
	}
	env_log(env, ENV_LOG_ERROR, "vqp: the node service at %s: %s", path,
		skein_strerror(err));
	pool_drop(p);
	return err;
}
