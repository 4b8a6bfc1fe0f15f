/* SPDX-License-Identifier: MIT */
/*
 * client.c - a process that uses a node service: the calls of skein/vqp.h over
 * its rings. The process has no device. Its requests are checked here, so that
 * the call reports a mistake, and once more by the service, which trusts
 * nothing.
 *
 * A vqp's place (struct place) outlives its handle where the service keeps the
 * vqp: the service frees a vqp that a message made only if the client has seen
 * all its messages. It is one object: vqps, memory and waits all end and begin
 * anew with an attach, so each function uses most of struct node_pool.
 *
 * Thread rule: all under node_pool.lock; a thread that waits releases it.
 */
#include "vqp/check.h"
#include "vqp/front.h"
#include "vqp/node/attached.h"
#include "vqp/node/serve.h"
#include "vqp/pool_fd.h"

#include "base/fence.h"
#include "conn/ctx.h"

#include <errno.h>
#include <string.h>

#define SPIN_ROUNDS 64u
#define YIELD_NS 50000u
#define CALL_NS SKEIN_S(5)
#define STOP_NS SKEIN_S(1) /* for the answer to RING_OP_STOP */

enum state {
	AT_REST,
	CONNECTED,
	BOUND,
	UNANSWERED, /* a late answer could pass for that of the next call */
};

struct node_vqp {
	struct skein_vqp base;
	struct list_node link; /* node_pool.vqps */
	uint32_t life;	       /* node_pool.life when the vqp was made */
	uint32_t id;
	enum state state;
	struct list_node ready; /* in node_pool.ready: q has some */
	/* completions not polled: a ring that grows */
	struct ring_comp *q;
	uint32_t q_cap, q_head, q_tail;
	uint32_t recvs; /* posted and not completed */
};

struct place {
	uint32_t id;
	uint32_t seen;	  /* messages from it that were popped */
	uint32_t posted;  /* requests, ever */
	uint32_t retired; /* of these, as last reported by the service */
	struct node_vqp *v;
};

struct node_mem {
	struct skein_vqp_mem base;
	size_t len;
	unsigned access;
	int fd;
	uint32_t life; /* the last one in which the service accepted it */
};

/* A thread that waits for a reply. */
struct wait {
	struct list_node link;
	uint32_t vqp; /* 0: the reply to NEW with this token */
	uint64_t token;
	bool done;
	int err;
	uint32_t made;
};

struct node_pool {
	struct skein_pool base;
	struct skein_env *own_env;
	struct env_mutex lock;
	char *path;
	struct attached at;
	uint32_t life;	    /* counts attaches */
	bool attaching;	    /* a thread attaches again */
	unsigned fruitless; /* looks in a row that found nothing */
	bool dead;
	uint32_t outstanding; /* requests of all vqps */
	bool requests_logged; /* the limit of requests was logged */
	/* the threads that wait */
	bool sleeper; /* one of them sleeps at the socket */
	unsigned parked;
	_Atomic(uint32_t) turn; /* the futex at which the others are parked */
	uint64_t tokens;
	struct list_node waits;
	/* one thread at a time asks for memory */
	bool asking, answered;
	struct attach_msg answer;
	int answer_fd;
	struct list_node vqps, ready;
	struct pool_fd fd; /* skein_pool_fd() */
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
		p->dead = !attached_lives(&p->at);
	return p->dead;
}

/* Is v of a service that has ended since? */
static bool is_gone(struct node_pool *p, const struct node_vqp *v)
{
	return v->life != p->life || p->attaching || is_dead(p);
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

static int attach_again(struct node_pool *p);

/* enter() for calls that need no vqp: if the service is gone they attach to the
 * next one. */
static int enter_live(struct node_pool *p)
{
	int err = enter(p);

	if (err)
		return err;
	if (p->attaching)
		err = -SKEIN_EDEAD;
	else if (is_dead(p))
		err = attach_again(p);
	if (err)
		leave(p);
	return err;
}

/* Ends a look that found n things. A caller that looks again and again may be
 * using the core that the service needs. */
static void looked(struct node_pool *p, int n)
{
	unsigned fruitless = n ? 0 : p->fruitless + 1;

	p->fruitless = fruitless;
	leave(p);
	if (fruitless > SPIN_ROUNDS)
		env_yield(p->base.env);
}

static int request(struct node_pool *p, const struct ring_req *q)
{
	int err;

	if (is_dead(p) || p->attaching)
		return -SKEIN_EDEAD;
	err = ring_put(&p->at.ring, q);
	attached_wake(&p->at);
	return err;
}

/* The request of a post, which does not wait for room. */
static int post_request(struct node_pool *p, const struct ring_req *q)
{
	int err = request(p, q);

	if (err != -EAGAIN)
		return err;
	attached_refused(&p->at);
	return -ENOMEM;
}

static void socket_read(struct node_pool *p)
{
	struct attach_msg m;
	int fd;

	while (!attached_read(&p->at, &m, &fd)) {
		/* it may be for the thread that sleeps at skein_pool_fd() */
		pool_fd_wake(&p->fd);
		if (m.kind != ATTACH_WAKE && p->asking && !p->answered) {
			p->answer = m;
			p->answer_fd = fd;
			p->answered = true;
		} else if (fd >= 0) {
			close(fd);
		}
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
	for (i = v->q_head; v->q_cap && i != v->q_tail; i++)
		q[i % cap] = v->q[i % v->q_cap];
	env_free(p->base.env, v->q);
	v->q = q;
	v->q_cap = cap;
	return true;
}

static void queue_put(struct node_pool *p, struct node_vqp *v,
		      const struct ring_comp *c)
{
	/* Without memory for it a completion is lost; the process will not last
	 * much longer either. */
	if (!queue_grow(p, v))
		return;
	v->q[v->q_tail++ % v->q_cap] = *c;
	if (!list_linked(&v->ready))
		list_add_tail(&p->ready, &v->ready);
}

/* The oldest one; it stays where it is until the next call. */
static struct ring_comp *queue_take(struct node_vqp *v)
{
	struct ring_comp *c = &v->q[v->q_head++ % v->q_cap];

	if (v->q_head == v->q_tail)
		list_del(&v->ready);
	return c;
}

static void queue_drop(struct node_vqp *v)
{
	v->q_head = v->q_tail;
	list_del(&v->ready);
}

/* The service may forget the vqp of this place, which has no handle. */
static void place_free(struct node_pool *p, const struct place *at)
{
	struct ring_req q = {
		.op = RING_OP_FREE, .vqp = at->id, .addr = at->seen};

	request(p, &q);
}

/* Drops a message that will not be popped. */
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

/* Makes parked threads look again: the wait of one may be over, or one has to
 * sleep at the socket. */
static void pass_on(struct node_pool *p)
{
	if (!p->parked)
		return;
	atomic_fetch_add(&p->turn, 1);
	local_unpark(&p->turn);
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
		pass_on(p);
		w->err = -(int)c->len;
		w->made = c->imm;
		return;
	}
	if (!c->vqp && !c->len) { /* no thread waits for it */
		struct place gone = {.id = c->imm};

		place_free(p, &gone);
	}
}

static int comps_take(struct node_pool *p)
{
	struct ring_comp c;
	struct place *at;
	int n = 0;

	while (ring_comp_take(&p->at.ring, &c)) {
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
		if (c.kind != RING_MESSAGE) {
			p->outstanding -= c.value - at->retired;
			at->retired = c.value;
		}
		if (c.kind == RING_ROOM)
			continue;
		if (c.kind != RING_DONE)
			at->v->recvs--;
		queue_put(p, at->v, &c);
	}
	attached_took(&p->at, (unsigned)n);
	return n;
}

/* --- waiting ------------------------------------------------------------ */

/* One thread sleeps at the socket: so the word `asleep` has one writer at this
 * end, and no thread reads another's wake-up. The others are parked until it
 * has looked. tests/model/node_threads.pml */
static void sleep_once(struct node_pool *p, uint64_t ns)
{
	struct ring seen = p->at.ring;
	uint32_t turn = atomic_load(&p->turn);

	if (p->sleeper) {
		p->parked++;
		leave(p);
		local_park(&p->turn, turn, ns);
		env_mutex_lock(p->base.env, &p->lock);
		p->parked--;
		return;
	}
	p->sleeper = true;
	leave(p);
	attached_sleep(&p->at, &seen, ns);
	env_mutex_lock(p->base.env, &p->lock);
	p->sleeper = false;
	/* The word may have been set for skein_pool_fd() as well. */
	pool_fd_wake(&p->fd);
	socket_read(p);
	pass_on(p);
}

/* Called with the lock; releases it while it waits. 0, -ETIMEDOUT,
 * -SKEIN_EDEAD. */
static int wait_for(struct node_pool *p, const bool *done, uint64_t deadline)
{
	struct skein_env *env = p->base.env;
	uint64_t from = env_now_ns(env), now;
	unsigned round;

	for (round = 0;; round++) {
		if (round >= SPIN_ROUNDS && !p->sleeper)
			socket_read(p);
		comps_take(p);
		if (*done)
			return 0;
		if (is_dead(p))
			return -SKEIN_EDEAD;
		now = env_now_ns(env);
		if (now >= deadline)
			return -ETIMEDOUT;
		if (round >= SPIN_ROUNDS && now - from >= YIELD_NS) {
			sleep_once(p, deadline - now);
			continue;
		}
		leave(p);
		if (round < SPIN_ROUNDS)
			cpu_pause();
		else
			env_yield(env);
		env_mutex_lock(env, &p->lock);
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
		err = wait_for(p, &w.done, env_now_ns(p->base.env) + STOP_NS);
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

/* Asks the service for memory, or (fd of an earlier service) to take that
 * memory over. */
static int mem_ask(struct node_pool *p, struct attach_msg *m, int fd)
{
	int err;

	p->asking = true;
	p->answered = false;
	p->answer_fd = -1;
	err = local_send(p->at.fd, m, sizeof(*m), &fd, fd >= 0);
	if (!err)
		err = wait_for(p, &p->answered,
			       env_now_ns(p->base.env) + CALL_NS);
	else if (err == -EPIPE)
		err = -SKEIN_EDEAD;
	p->asking = false;
	/* A late answer could pass for the next one. */
	if (err == -ETIMEDOUT)
		p->dead = true;
	return err ? err : p->answer.status;
}

static void mem_named(struct node_pool *p, struct node_mem *m)
{
	m->base.id = p->answer.region;
	m->base.raddr = p->answer.region_addr;
	m->life = p->life;
}

static int mem_take(struct node_pool *p, size_t len, unsigned access,
		    struct skein_vqp_mem **mem)
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
	m->len = len;
	m->access = access;
	m->fd = p->answer_fd;
	p->answer_fd = -1;
	mem_named(p, m);
	p->mems[at] = m;
	*mem = &m->base;
	return 0;
}

static int mem_new(struct skein_pool *base, size_t len, unsigned access,
		   struct skein_vqp_mem **mem)
{
	struct node_pool *p = pool_of_base(base);
	struct attach_msg m;
	int err = enter_live(p);

	if (err)
		return err;
	if (p->asking) {
		leave(p);
		return -EBUSY;
	}
	attach_fill(&m, ATTACH_MEM);
	m.len = len;
	m.access = access;
	err = mem_ask(p, &m, -1);
	if (!err)
		err = mem_take(p, len, access, mem);
	if (p->answer_fd >= 0)
		close(p->answer_fd);
	leave(p);
	return err;
}

static void mem_give_up(struct node_pool *p, uint32_t lkey)
{
	struct attach_msg m;

	attach_fill(&m, ATTACH_MEM_FREE);
	m.id = lkey;
	local_send(p->at.fd, &m, sizeof(m), NULL, 0);
}

/* The client keeps its memory when its service ends. The next service takes it
 * over, under the same lkey, and in the same place of its table of regions if
 * that is free. */
static void mems_again(struct node_pool *p)
{
	struct node_mem *m;
	struct attach_msg q;
	uint32_t i, lkey;
	int err;

	for (i = 0; i < SERVE_MEMS && !is_dead(p); i++) {
		m = p->mems[i];
		if (!m)
			continue;
		attach_fill(&q, ATTACH_MEM_AGAIN);
		lkey = q.id = m->base.lkey;
		q.len = m->len;
		q.access = m->access;
		q.region = m->base.id;
		err = mem_ask(p, &q, m->fd);
		if (err)
			env_log(p->base.env, ENV_LOG_WARN,
				"vqp: the node service does not take %zu bytes "
				"of memory over: %s",
				(size_t)q.len, skein_strerror(err));
		else if (p->mems[i] && p->mems[i]->base.lkey == lkey)
			mem_named(p, p->mems[i]);
		else /* freed meanwhile */
			mem_give_up(p, lkey);
		if (p->answer_fd >= 0)
			close(p->answer_fd);
	}
}

static void mem_drop(struct node_pool *p, struct node_mem *m)
{
	p->mems[(m->base.lkey & 0xffff) % SERVE_MEMS] = NULL;
	local_unmap(m->base.addr, m->len);
	close(m->fd);
	env_free(p->base.env, m);
}

static void mem_free(struct skein_vqp_mem *base)
{
	struct node_mem *m = container_of(base, struct node_mem, base);
	struct node_pool *p = pool_of_base(base->pool);

	if (enter(p))
		return;
	if (!is_dead(p) && m->life == p->life)
		mem_give_up(p, base->lkey);
	mem_drop(p, m);
	leave(p);
}

/* --- attaching again ---------------------------------------------------- */

/* All that the earlier service had of this client but memory is gone: each vqp
 * stays a handle of its life. */
static void life_begin(struct node_pool *p, struct attached *at)
{
	if (p->fd.w) {
		/* Not by closing it: a forked child may have it open. */
		pool_fd_unwatch(&p->fd, p->at.fd);
		(void)pool_fd_watch(&p->fd, at->fd);
		pool_fd_wake(&p->fd);
	}
	attached_close(&p->at);
	p->at = *at;
	p->life++;
	p->dead = false;
	p->outstanding = 0;
	memset(p->place, 0, sizeof(p->place));
	memcpy(p->base.gid, at->gid, sizeof(at->gid));
	memcpy(p->base.addr, at->addr, sizeof(at->addr));
}

/* Called with the lock; releases it while it attaches. 0, or why not. */
static int attach_again(struct node_pool *p)
{
	struct attached at;
	int err;

	/* Threads that still wait will soon find that the service is gone.
	 * Until then they use its state. */
	if (p->attaching || p->asking || !list_empty(&p->waits) ||
	    attached_barred(&p->at))
		return -SKEIN_EDEAD;
	p->attaching = true;
	leave(p);
	err = attached_open(&at, p->base.env, p->path,
			    env_now_ns(p->base.env) + CALL_NS);
	env_mutex_lock(p->base.env, &p->lock);
	if (!err) {
		life_begin(p, &at);
		mems_again(p);
		if (is_dead(p))
			err = -SKEIN_EDEAD;
	}
	p->attaching = false;
	return err == -ENOENT || err == -ECONNREFUSED ? -SKEIN_EDEAD : err;
}

/* --- vqps --------------------------------------------------------------- */

static struct node_vqp *handle_new(struct node_pool *p, uint32_t id,
				   enum state state)
{
	struct node_vqp *v = env_alloc(p->base.env, sizeof(*v));
	struct place *at = place_of(p, id);

	if (!v)
		return NULL;
	verbs_vqp_init(&v->base, &p->base, id, state == CONNECTED);
	v->id = id;
	v->state = state;
	v->life = p->life;
	list_add_tail(&p->vqps, &v->link);
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
	int err = enter_live(p);

	if (err)
		return err;
	err = call(p, &q, env_now_ns(base->env) + CALL_NS, &id);
	if (!err) {
		v = handle_new(p, id, AT_REST);
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
	if (v->life == p->life)
		place_of(p, v->id)->v = NULL;
	list_del(&v->link);
	list_del(&v->ready);
	env_free(p->base.env, v->q);
	env_free(p->base.env, v);
}

static void vqp_free_(struct skein_vqp *base)
{
	struct node_vqp *v = handle_of(base);
	struct node_pool *p = pool_of_base(base->pool);
	struct place *at = place_of(p, v->id);
	struct ring_comp *c;

	if (enter(p))
		return;
	while (!is_gone(p, v) && v->q_head != v->q_tail) {
		c = queue_take(v);
		if (c->kind == RING_MESSAGE)
			message_drop(p, c->value);
	}
	if (!is_gone(p, v)) {
		p->outstanding -= at->posted - at->retired;
		at->retired = at->posted; /* the vqp may get a handle again */
		place_free(p, at);
	}
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
	if (is_gone(p, v))
		err = -SKEIN_EDEAD;
	else if (v->state != AT_REST)
		err = -EISCONN;
	else
		err = call(p, &q,
			   env_deadline(env_now_ns(p->base.env), timeout_ns),
			   NULL);
	if (!err)
		v->state = CONNECTED;
	else if (err == -ETIMEDOUT)
		v->state = UNANSWERED;
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
	if (is_gone(p, v))
		err = -SKEIN_EDEAD;
	else if (v->state != AT_REST)
		err = -EISCONN;
	else
		err = call(p, &q, env_now_ns(p->base.env) + CALL_NS, NULL);
	if (!err)
		v->state = BOUND;
	else if (err == -ETIMEDOUT)
		v->state = UNANSWERED;
	leave(p);
	return err;
}

/* --- requests ----------------------------------------------------------- */

/* Turns this process's addresses into places in memory that the service
 * made. */
static int sges_put(struct node_pool *p, const struct ibv_sge *g, int n,
		    struct ring_req *q)
{
	struct node_mem *m;
	uint64_t off;
	int i;

	for (i = 0; i < n; i++, g++) {
		m = mem_find(p, g->lkey);
		off = m ? g->addr - (uintptr_t)m->base.addr : 0;
		if (g->length && (!m || m->life != p->life || off > m->len ||
				  g->length > m->len - off)) {
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
		memcpy(q->data + q->data_len,
		       (void *)(uintptr_t)wr->sg_list[i].addr,
		       wr->sg_list[i].length);
		q->data_len += wr->sg_list[i].length;
	}
	return 0;
}

/* The service accepts more, and lets it wait with all that comes after. */
static int room_look(struct node_pool *p, const struct node_vqp *v)
{
	const struct place *at = place_of(p, v->id);
	uint32_t out = at->posted - at->retired;

	if (out >= SERVE_QUEUE || out + v->q_tail - v->q_head >= VQP_COMPS)
		return -ENOMEM;
	if (p->outstanding < p->at.requests_max)
		return 0;
	if (!p->requests_logged)
		env_log(p->base.env, ENV_LOG_WARN,
			"vqp: the node service lets a client have %u requests "
			"outstanding (skein node --requests)",
			p->at.requests_max);
	p->requests_logged = true;
	return -EDQUOT;
}

static int send_one(struct node_pool *p, struct node_vqp *v,
		    const struct ibv_send_wr *wr)
{
	struct place *at = place_of(p, v->id);
	struct ring_req q = {.vqp = v->id};
	int err;

	if (!vqp_wr_valid(wr))
		return -EINVAL;
	err = send_fill(p, wr, &q);
	if (err)
		return err;
	err = room_look(p, v);
	if (err) {
		comps_take(p);
		err = room_look(p, v);
	}
	if (!err)
		err = post_request(p, &q);
	at->posted += !err;
	p->outstanding += !err;
	return err;
}

static int post_send(struct skein_vqp *base, struct ibv_send_wr *wr,
		     struct ibv_send_wr **bad)
{
	struct node_vqp *v = handle_of(base);
	struct node_pool *p = pool_of_base(base->pool);
	int err = enter(p);

	if (err)
		return err;
	if (is_gone(p, v))
		err = -SKEIN_EDEAD;
	else if (v->state != CONNECTED)
		err = -ENOTCONN;
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

	if (err)
		return err;
	if (is_gone(p, v))
		err = -SKEIN_EDEAD;
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
			err = post_request(p, &q);
		v->recvs += !err;
	}
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
		wc_fill(v, queue_take(v), &wc[got++]);
	if (!got && is_gone(p, v))
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
		v = handle_new(p, id, CONNECTED);
	if (!v) {
		message_drop(p, id);
		return NULL;
	}
	place_of(p, id)->seen++;
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
	/* A message names its sender's vqp, which ended with its service. */
	if (v->life != p->life)
		queue_drop(v);
	for (; v->state == BOUND && got < n && v->q_head != v->q_tail; got++) {
		c = queue_take(v);
		msgs[got] =
			(struct skein_vqp_msg){.from = sender_of(p, c->value),
					       .wr_id = c->wr_id,
					       .len = c->len,
					       .imm = c->imm,
					       .with_imm = c->with_imm};
		if (c->status == IBV_WC_LOC_LEN_ERR)
			msgs[got].status = -EMSGSIZE;
		else if (c->status == IBV_WC_REM_ABORT_ERR)
			msgs[got].status = -ECONNABORTED;
		else if (c->status == IBV_WC_WR_FLUSH_ERR)
			msgs[got].status = -ECONNRESET;
		else if (c->status)
			msgs[got].status = -EFAULT;
		else if (!msgs[got].from)
			msgs[got].status = -ENOMEM;
	}
	err = (int)got;
	if (v->state != BOUND)
		err = -EINVAL;
	else if (!got && is_gone(p, v))
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
	if (!n && p->attaching)
		n = -SKEIN_EDEAD;
	else if (!n && is_dead(p))
		n = attach_again(p);
	looked(p, n);
	return n;
}

static int fd_of(struct skein_pool *base)
{
	struct node_pool *p = pool_of_base(base);
	int rc = enter(p);

	if (rc)
		return rc;
	rc = pool_fd_get(&p->fd, base->env, p->at.fd, false);
	leave(p);
	return rc;
}

/* pool_fd.h. The word has another writer, a thread in attached_sleep(), which
 * wakes this one when it takes the word back. */
static int arm_locked(struct node_pool *p)
{
	if (comps_take(p) || !list_empty(&p->ready))
		return 1;
	if (p->attaching || is_dead(p))
		return -SKEIN_EDEAD;
	p->fd.rung = true; /* socket_read() would ring what is emptied next */
	if (!p->sleeper)
		socket_read(p);
	(void)pool_fd_empty(&p->fd, p->at.fd);
	attached_arm(&p->at);
	if (ring_comp_has(&p->at.ring) || attached_room(&p->at)) {
		pool_fd_wake(&p->fd);
		return 1;
	}
	return is_dead(p) ? -SKEIN_EDEAD : 0; /* the socket's end was read */
}

static int arm(struct skein_pool *base)
{
	struct node_pool *p = pool_of_base(base);
	int err = enter(p);

	if (err)
		return err;
	err = p->fd.w ? arm_locked(p) : -EINVAL;
	leave(p);
	return err;
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

	while (!list_empty(&p->vqps))
		vqp_drop(p, container_of(p->vqps.next, struct node_vqp, link));
	for (i = 0; i < SERVE_MEMS; i++)
		if (p->mems[i])
			mem_drop(p, p->mems[i]);
	pool_fd_close(&p->fd);
	attached_close(&p->at);
	env_free(env, p->path);
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
	.fd = fd_of,
	.arm = arm,
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

int node_attach(struct skein_ctx *ctx, const char *path, uint64_t timeout_ns,
		struct skein_pool **pool)
{
	struct skein_env *env = ctx ? ctx->env : NULL, *own = NULL;
	struct attached at;
	struct node_pool *p;
	bool is_away;
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
	verbs_pool_init(&p->base);
	p->own_env = own;
	p->at.fd = -1;
	list_init(&p->waits);
	list_init(&p->vqps);
	list_init(&p->ready);
	env_mutex_init(env, &p->lock);
	p->path = env_strdup(env, path);
	err = p->path ? attached_open(&at, env, path,
				      env_deadline(env_now_ns(env), timeout_ns))
		      : -ENOMEM;
	if (!err) {
		life_begin(p, &at);
		*pool = &p->base;
		return 0;
	}
	is_away = err == -ENOENT || err == -ECONNREFUSED;
	env_log(env, ENV_LOG_ERROR, "vqp: the node service at %s: %s%s%s", path,
		skein_strerror(err),
		is_away ? ": start it with skein node --listen " : "",
		is_away ? path : "");
	pool_drop(p);
	return err;
}
