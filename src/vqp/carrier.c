/* SPDX-License-Identifier: MIT */
/*
 * carrier.c - carries pooled connections: conn/pool.h.
 *
 * The vqps of its pool name the device's own keys and have no receives: this
 * takes their messages as they are. Bytes of a link are sent out of frames, which
 * the vqp engine holds until they have left.
 *
 * A round is followed by a look at all vqps only if it brought anything
 * (`look`).
 *
 * Thread rule: the owner of the pool's engine; posts come from any thread. All
 * state is under the pool's lock.
 */
#include "vqp/carrier.h"

#include "conn/eng.h"
#include "vqp/pool.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>

#define FRAMES 32u
/* wr_id of frames */
#define FRAME UINT64_MAX
/* A node that the meta server does not know after so long is not there. */
#define LOOKUP_NS 200000000ull
/* How long a pool that closes waits for what is under way. */
#define LAST_NS 100000000ull
#define SOON_NS 1000000ull
#define REST_NS 100000000ull

struct carrier {
	struct conn_pool base;
	struct pool *pool;
	struct vqp *port; /* bound, of a listener's; or NULL */
	struct ibv_context verbs;
	struct list_node vqps; /* struct carrier_vqp */
	uint32_t n_vqps, n_dialled;
	struct mem_region *frames;
	bool held[FRAMES];
	bool look;
	uint64_t seen; /* of the engine's events */
};

struct carrier_vqp {
	struct conn_vqp base;
	struct list_node link;
	struct vqp *v;
	uint64_t since_ns; /* dialled, and not told yet; else 0 */
	bool failed;
	bool waits; /* to send: for a frame, or for room in its queue */
};

static struct carrier *carrier_of(struct conn_pool *base)
{
	return container_of(base, struct carrier, base);
}

static struct carrier_vqp *vqp_of(struct conn_vqp *base)
{
	return container_of(base, struct carrier_vqp, base);
}

static void enter(struct carrier *c)
{
	env_mutex_lock(c->pool->env, &c->pool->lock);
	vqp_engine_at(&c->pool->e, env_now_ns(c->pool->env));
}

static void leave(struct carrier *c)
{
	env_mutex_unlock(c->pool->env, &c->pool->lock);
}

/* --- vqps --------------------------------------------------------------- */

/* Any thread. */
static int post_send(struct ibv_qp *qp, struct ibv_send_wr *wr,
		     struct ibv_send_wr **bad)
{
	struct carrier_vqp *h = container_of(qp, struct carrier_vqp, base.qp);
	struct carrier *c = carrier_of(h->base.pool);
	int err;

	enter(c);
	err = vqp_post_all(h->v, wr, bad);
	leave(c);
	return -err;
}

static struct carrier_vqp *vqp_adopt(struct carrier *c, struct vqp *v)
{
	struct carrier_vqp *h = env_alloc(c->pool->env, sizeof(*h));

	if (!h)
		return NULL;
	h->base.pool = &c->base;
	h->base.qp.context = &c->verbs;
	h->base.qp.qp_num = v->id;
	h->base.qp.qp_type = IBV_QPT_RC;
	h->base.qp.state = IBV_QPS_RTS;
	h->v = v;
	v->front = h;
	v->ours = false;
	v->raw = true;
	list_add_tail(&c->vqps, &h->link);
	c->n_vqps++;
	return h;
}

static void vqp_over(struct conn_vqp *base)
{
	struct carrier *c = carrier_of(base->pool);
	struct carrier_vqp *h = vqp_of(base);

	enter(c);
	c->n_dialled -= h->since_ns != 0;
	vqp_close(h->v);
	list_del(&h->link);
	c->n_vqps--;
	leave(c);
	env_free(c->pool->env, h);
}

static int dial(struct conn_pool *base, const struct sockaddr_storage *to,
		struct conn_vqp **vqp)
{
	struct carrier *c = carrier_of(base);
	struct carrier_vqp *h = NULL;
	uint8_t gid[16];
	uint16_t port;
	struct vqp *v;
	int err;

	port = ntohs(to->ss_family == AF_INET
			     ? ((const struct sockaddr_in *)to)->sin_port
			     : ((const struct sockaddr_in6 *)to)->sin6_port);
	front_gid(&c->pool->base, to, gid);
	enter(c);
	err = vqp_new(&c->pool->e, &v);
	if (!err) {
		h = vqp_adopt(c, v);
		if (!h) {
			vqp_free(v);
			err = -ENOMEM;
		}
	}
	if (!err) {
		h->base.refs = 1;
		h->since_ns = c->pool->e.now_ns;
		c->n_dialled++;
		/* -EINPROGRESS, or 0: told by the next round. */
		(void)vqp_connect(v, gid, port, CARRIER_PORT);
		*vqp = &h->base;
	}
	leave(c);
	return err;
}

static void addr(struct conn_vqp *base, char *buf, size_t len)
{
	struct carrier *c = carrier_of(base->pool);
	const struct meta_node *n;

	enter(c);
	n = &vqp_of(base)->v->peer->node;
	pool_addr_print(n->gid, n->port, buf, len);
	leave(c);
}

/* FRAMES: none. */
static unsigned frame_free(const struct carrier *c)
{
	unsigned i;

	for (i = 0; i < FRAMES && c->held[i]; i++)
		;
	return i;
}

static ssize_t send_bytes(struct conn_vqp *base, const void *buf, size_t len)
{
	struct carrier *c = carrier_of(base->pool);
	struct ibv_sge sge = {.lkey = c->frames->mr->lkey};
	struct ibv_send_wr wr = {.wr_id = FRAME,
				 .sg_list = &sge,
				 .num_sge = 1,
				 .opcode = IBV_WR_SEND};
	unsigned i;
	int err = -ENOMEM;

	enter(c);
	i = frame_free(c);
	if (i < FRAMES) {
		sge.length = len < MSG_PAYLOAD ? (uint32_t)len : MSG_PAYLOAD;
		sge.addr = (uintptr_t)c->frames->addr + i * MSG_BUF;
		memcpy((void *)(uintptr_t)sge.addr, buf, sge.length);
		err = vqp_send_held(vqp_of(base)->v, &wr, &c->held[i]);
	}
	vqp_of(base)->waits = err == -ENOMEM;
	leave(c);
	if (err == -ENOMEM)
		return -EAGAIN;
	return err ? err : (ssize_t)sge.length;
}

/* --- events ------------------------------------------------------------- */

static bool message_event(struct conn_vqp *vqp, struct vqp_message *m,
			  struct conn_pool_event *ev)
{
	ev->kind = m->head.with_imm ? CONN_POOL_IMM : CONN_POOL_BYTES;
	ev->vqp = vqp;
	ev->data = m->data;
	ev->len = m->head.len;
	ev->imm = m->head.imm;
	ev->message = m;
	return true;
}

/* A message to the port. A sender that this end does not know, or no more, must
 * begin with its first message. */
static bool port_event(struct carrier *c, struct conn_pool_event *ev)
{
	struct vqp_engine *e = &c->pool->e;
	struct vqp_message *m;
	struct carrier_vqp *h;

	while (c->port && (m = vqp_take(c->port))) {
		h = m->from->front;
		if (!h && !m->head.seq)
			h = vqp_adopt(c, m->from);
		if (h)
			return message_event(&h->base, m, ev);
		e->counts.dropped++;
		vqp_close(m->from);
		vqp_message_free(e, m);
	}
	return false;
}

static int fail_error(enum ibv_wc_status status)
{
	return status == IBV_WC_RETRY_EXC_ERR ||
			       status == IBV_WC_RNR_RETRY_EXC_ERR
		       ? -SKEIN_EDEAD
		       : -ECONNRESET;
}

static bool failed_event(struct carrier_vqp *h, int err,
			 struct conn_pool_event *ev)
{
	h->failed = true;
	ev->kind = CONN_POOL_FAILED;
	ev->err = err;
	return true;
}

/* Of a dialled vqp that has not been told of. */
static bool dialled_event(struct carrier *c, struct carrier_vqp *h,
			  struct conn_pool_event *ev)
{
	bool looks = h->v->state == VQP_LOOKS_UP;
	int err;

	if (looks && c->pool->e.now_ns - h->since_ns < LOOKUP_NS)
		return false;
	h->since_ns = 0;
	c->n_dialled--;
	ev->kind = CONN_POOL_CONNECTED;
	if (!looks)
		return true;
	err = vqp_connect_stop(h->v);
	return failed_event(h, err == -EHOSTUNREACH ? -ECONNREFUSED : err, ev);
}

static int completions(struct vqp *v, struct ibv_wc *wc)
{
	int i, n, kept = 0;

	n = vqp_poll(v, CONN_POOL_WCS, wc);
	for (i = 0; i < n; i++)
		if (wc[i].wr_id != FRAME)
			wc[kept++] = wc[i];
	return kept;
}

/* What came before the end of a vqp is told before it. */
static bool vqp_event(struct carrier *c, struct carrier_vqp *h,
		      struct conn_pool_event *ev)
{
	struct vqp *v = h->v;
	struct vqp_message *m;
	bool sends = h->waits && frame_free(c) < FRAMES;

	ev->vqp = &h->base;
	if (h->since_ns)
		return dialled_event(c, h, ev);
	m = vqp_take(v);
	if (m)
		return message_event(&h->base, m, ev);
	if (v->state == VQP_ERROR && !h->failed)
		return failed_event(h, fail_error(v->why), ev);
	ev->kind = CONN_POOL_SENT;
	ev->n = completions(v, ev->wc);
	h->waits &= !sends;
	return ev->n || sends;
}

static bool next_event(struct carrier *c, struct conn_pool_event *ev)
{
	struct carrier_vqp *h;
	uint32_t i;

	if (port_event(c, ev))
		return true;
	for (i = 0; i < c->n_vqps; i++) {
		h = container_of(c->vqps.next, struct carrier_vqp, link);
		list_del(&h->link);
		list_add_tail(&c->vqps, &h->link);
		if (vqp_event(c, h, ev))
			return true;
	}
	return false;
}

static bool poll_pool(struct conn_pool *base, bool round,
		      struct conn_pool_event *ev)
{
	struct carrier *c = carrier_of(base);
	bool found = false;

	ev->message = NULL;
	enter(c);
	if (round && pool_round(c->pool))
		c->look = true;
	if (c->seen != c->pool->e.events || c->n_dialled)
		c->look = true;
	c->seen = c->pool->e.events;
	if (c->look)
		found = c->look = next_event(c, ev);
	leave(c);
	return found;
}

static void done(struct conn_pool *base, struct conn_pool_event *ev)
{
	if (ev->message)
		vqp_message_free(&carrier_of(base)->pool->e, ev->message);
}

/* --- sleeping ----------------------------------------------------------- */

static int arm(struct conn_pool *base)
{
	struct carrier *c = carrier_of(base);
	struct pool *p = c->pool;
	int awake;

	enter(c);
	awake = pool_notify(p) != 0;
	/* A completion before the request makes no event. */
	if (pool_round(p))
		c->look = true;
	awake |= c->look || c->seen != p->e.events;
	leave(c);
	return awake;
}

static uint64_t next_deadline(struct conn_pool *base, uint64_t now_ns)
{
	struct carrier *c = carrier_of(base);
	const struct vqp_engine *e = &c->pool->e;
	bool busy;

	enter(c);
	busy = !list_empty(&e->lookups) || !list_empty(&e->busy) ||
	       !list_empty(&e->closing) || !list_empty(&e->want_rc);
	leave(c);
	return now_ns + (busy ? SOON_NS : REST_NS);
}

/* --- open and close ----------------------------------------------------- */

static int port_bind(struct carrier *c)
{
	int err = vqp_new(&c->pool->e, &c->port);

	return err ? err : vqp_bind(c->port, CARRIER_PORT);
}

static int pool_open(struct skein_engine *eng, uint16_t port,
		     struct conn_pool **out)
{
	struct skein_pool_attr a = {.size = sizeof(a), .node_port = port};
	struct carrier *c = env_alloc(eng->env, sizeof(*c));
	int err;

	if (!c)
		return -ENOMEM;
	list_init(&c->vqps);
	c->verbs.ops.post_send = post_send;
	c->verbs.cmd_fd = c->verbs.async_fd = -1;
	err = mem_region_new(eng->dev, eng->ctx->pd, "vqp-frames",
			     FRAMES * MSG_BUF, IBV_ACCESS_LOCAL_WRITE, 0,
			     &c->frames);
	if (err)
		goto err_free;
	err = pool_make(eng->ctx, &a, eng->channel, eng, &c->pool);
	if (err)
		goto err_frames;
	c->pool->raw = true;
	err = port ? port_bind(c) : 0;
	if (err)
		goto err_pool;
	*out = &c->base;
	return 0;

err_pool:
	pool_free(c->pool);
err_frames:
	mem_region_free(c->frames);
err_free:
	env_free(eng->env, c);
	return err;
}

static bool is_under_way(const struct carrier *c)
{
	unsigned i, n = 0;

	for (i = 0; i < FRAMES; i++)
		n += c->held[i];
	return n || !list_empty(&c->pool->e.closing);
}

static void pool_close(struct conn_pool *base)
{
	struct carrier *c = carrier_of(base);
	struct skein_env *env = c->pool->env;
	uint64_t end = env_now_ns(env) + LAST_NS;

	while (is_under_way(c) && env_now_ns(env) < end) {
		enter(c);
		pool_round(c->pool);
		leave(c);
		env_yield(env);
	}
	pool_free(c->pool);
	mem_region_free(c->frames);
	env_free(env, c);
}

const struct conn_pool_ops vqp_carrier = {
	.inline_max = VQP_INLINE,
	.open = pool_open,
	.close = pool_close,
	.dial = dial,
	.addr = addr,
	.free = vqp_over,
	.send = send_bytes,
	.poll = poll_pool,
	.done = done,
	.arm = arm,
	.next_deadline = next_deadline,
};
