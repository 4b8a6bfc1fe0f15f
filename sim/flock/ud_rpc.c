/* SPDX-License-Identifier: MIT */
/*
 * ud_rpc.c - see ud_rpc.h.
 *
 * A client has as many credits with its server thread as calls outstanding, so
 * that receives never run out (eRPC's session credits). The server's threads poll their CQ, run the handlers, post the responses in
 * one list and the receives in another: as FaSST and eRPC do, without their
 * handling of congestion and loss. Nothing is lost here: receives are as many
 * as there are requests.
 */
#include "sim/flock/ud_rpc.h"

#include "base/hist.h"
#include "dev/sim/link.h"
#include "sim/end.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define GRH 40u
#define QKEY 0x11u
#define POLL_MAX 16
#define THREADS_MAX 16u /* of a client's node, where not charged */
#define SLOT_BITS 8	/* of the immediate: which call of the client */
#define LEN_MAX 256u
#define RECVS_MAX 8192u
/* One send of so many is signalled: its completion frees the slots of all of
 * them. */
#define SIGNAL_EACH 64u

struct ud;

/* A thread with a QP: a server's, or a client's. */
struct ud_end {
	struct ud *ud;
	struct end end;
	struct ibv_qp *qp;
	struct dev_stats stats;
	unsigned recvs, sent;
	unsigned first; /* a client's first server thread */
	struct ibv_ah **ahs;
	uint64_t verbs_ns, handler_ns;	 /* the server's */
	uint64_t begun[1u << SLOT_BITS]; /* a client's, of each call */
};

struct ud {
	const struct ud_rpc_conf *conf;
	struct sim_world *w;
	struct ud_end *servers, *clients;
	unsigned n_clients, per_node;
	uint64_t done;
	struct hist *hist;
	bool counting, over;
	int rc;
};

/* --- both -------------------------------------------------------------- */

static size_t slot_len(const struct ud *ud)
{
	return (GRH + ud->conf->len + 7) & ~(size_t)7;
}

static int recv_post(struct ud_end *e, const uint64_t *slots, int n)
{
	struct ibv_recv_wr wr[POLL_MAX], *bad;
	struct ibv_sge sge[POLL_MAX];
	size_t len = slot_len(e->ud);

	if (!n)
		return 0;
	for (int i = 0; i < n; i++) {
		sge[i] = (struct ibv_sge){.addr = (uintptr_t)e->end.mem +
						  slots[i] * len,
					  .length = (uint32_t)len,
					  .lkey = e->end.mr->lkey};
		wr[i] = (struct ibv_recv_wr){
			.wr_id = slots[i], .sg_list = &sge[i], .num_sge = 1};
		wr[i].next = i + 1 < n ? &wr[i + 1] : NULL;
	}
	return dev_post_recv(&e->stats, e->qp, wr, &bad);
}

static int ud_end_up(struct ud_end *e, struct ud *ud, struct sim_node *node,
		     unsigned recvs)
{
	struct ibv_qp_init_attr attr = {
		.qp_type = IBV_QPT_UD,
		.cap = {.max_send_wr = recvs + 2 * SIGNAL_EACH,
			.max_recv_wr = recvs,
			.max_send_sge = 1,
			.max_recv_sge = 1,
			.max_inline_data = ud->conf->len},
	};
	int rc;

	if (recvs > RECVS_MAX)
		return -EINVAL;
	e->ud = ud;
	e->recvs = recvs;
	rc = end_up(&e->end, node, recvs * slot_len(ud),
		    2 * recvs + 2 * SIGNAL_EACH);
	if (rc)
		return rc;
	attr.send_cq = attr.recv_cq = e->end.cq;
	rc = e->end.dev->ops->create_qp(e->end.dev, e->end.pd, &attr, 0,
					&e->qp);
	if (!rc)
		rc = dev_qp_ud(e->end.dev, e->qp, QKEY, 0);
	for (uint64_t i = 0; i < recvs && !rc; i++)
		rc = recv_post(e, &i, 1);
	return rc;
}

static int ah_new(struct ud_end *from, struct ud_end *to, struct ibv_ah **ah)
{
	struct ibv_ah_attr attr;
	struct dev_qp_addr at;
	int rc;

	dev_qp_addr(to->end.dev, to->qp, 0, &at);
	rc = dev_ah_attr(from->end.dev, &at, NULL, &attr);
	return rc ? rc
		  : from->end.dev->ops->create_ah(from->end.dev, from->end.pd,
						  &attr, ah);
}

/* One datagram of a list. */
static void send_fill(struct ud_end *e, struct ibv_send_wr *wr,
		      struct ibv_sge *sge, struct ibv_ah *ah, uint32_t qpn,
		      uint32_t imm)
{
	*sge = (struct ibv_sge){.addr = (uintptr_t)e->end.mem,
				.length = e->ud->conf->len,
				.lkey = e->end.mr->lkey};
	memset(wr, 0, sizeof(*wr));
	wr->sg_list = sge;
	wr->num_sge = 1;
	wr->opcode = IBV_WR_SEND_WITH_IMM;
	wr->imm_data = imm;
	wr->send_flags = IBV_SEND_INLINE;
	if (++e->sent % SIGNAL_EACH == 0)
		wr->send_flags |= IBV_SEND_SIGNALED;
	wr->wr.ud.ah = ah;
	wr->wr.ud.remote_qpn = qpn;
	wr->wr.ud.remote_qkey = QKEY;
}

static int send_list(struct ud_end *e, struct ibv_send_wr *wr, int n)
{
	struct ibv_send_wr *bad;

	for (int i = 0; i + 1 < n; i++)
		wr[i].next = &wr[i + 1];
	return n ? dev_post_send(&e->stats, e->qp, wr, &bad) : 0;
}

/* n messages came, and as many go out. */
static void charge(struct ud_end *e, int n)
{
	static const enum env_cost costs[] = {ENV_COST_MESSAGE, ENV_COST_DECODE,
					      ENV_COST_MESSAGE,
					      ENV_COST_ENCODE};

	for (unsigned i = 0; e->ud->conf->charged && i < 4; i++)
		env_charge(e->end.env, costs[i], (uint64_t)n);
}

/* --- the server -------------------------------------------------------- */

/* Takes what is there; *n is how much. */
static int serve(struct ud_end *s, int *n)
{
	struct ibv_send_wr wr[POLL_MAX];
	struct ibv_sge sge[POLL_MAX];
	struct ibv_wc wc[POLL_MAX];
	uint64_t slots[POLL_MAX];
	struct ud *ud = s->ud;
	uint64_t from = sim_thread_now(ud->w), handled;
	int got = 0, rc;

	*n = dev_poll_cq(&s->stats, s->end.cq, POLL_MAX, wc);
	for (int i = 0; i < *n; i++) {
		if (wc[i].status != IBV_WC_SUCCESS)
			return -EIO;
		if (wc[i].opcode != IBV_WC_RECV)
			continue;
		slots[got] = wc[i].wr_id;
		send_fill(s, &wr[got], &sge[got],
			  s->ahs[wc[i].imm_data >> SLOT_BITS], wc[i].src_qp,
			  wc[i].imm_data);
		got++;
	}
	charge(s, got);
	handled = (uint64_t)got * ud->conf->handler_ns;
	sim_charge(ud->w, handled);
	rc = *n < 0 ? *n : send_list(s, wr, got);
	if (!rc)
		rc = recv_post(s, slots, got);
	if (ud->counting) {
		ud->done += (uint64_t)got;
		s->handler_ns += handled;
		s->verbs_ns += sim_thread_now(ud->w) - from - handled;
	}
	return rc;
}

/* --- the client -------------------------------------------------------- */

/* Calls of these numbers. */
static int ask(struct ud_end *c, const unsigned *calls, unsigned n)
{
	struct ud *ud = c->ud;
	struct ud_end *to = &ud->servers[c->first];
	uint32_t me = (uint32_t)(c - ud->clients) << SLOT_BITS;
	struct ibv_send_wr wr[POLL_MAX];
	struct ibv_sge sge[POLL_MAX];

	for (unsigned i = 0; i < n; i++) {
		c->begun[calls[i]] = sim_thread_now(ud->w);
		send_fill(c, &wr[i], &sge[i], c->ahs[0], to->qp->qp_num,
			  me | calls[i]);
	}
	return send_list(c, wr, (int)n);
}

static int take(struct ud_end *c, int *n)
{
	struct ud *ud = c->ud;
	struct ibv_wc wc[POLL_MAX];
	uint64_t slots[POLL_MAX];
	unsigned calls[POLL_MAX];
	int got = 0, rc;

	*n = dev_poll_cq(&c->stats, c->end.cq, POLL_MAX, wc);
	for (int i = 0; i < *n; i++) {
		if (wc[i].status != IBV_WC_SUCCESS)
			return -EIO;
		if (wc[i].opcode != IBV_WC_RECV)
			continue;
		calls[got] = wc[i].imm_data & ((1u << SLOT_BITS) - 1);
		if (ud->counting)
			hist_record(ud->hist, sim_thread_now(ud->w) -
						      c->begun[calls[got]]);
		slots[got++] = wc[i].wr_id;
	}
	charge(c, got);
	rc = *n < 0 ? *n : recv_post(c, slots, got);
	return rc ? rc : ask(c, calls, (unsigned)got);
}

/* --- threads ----------------------------------------------------------- */

static void run_rounds(struct ud_end *e, int (*round)(struct ud_end *, int *n))
{
	struct skein_env *env = e->end.env;
	struct env_waiter *waiter;
	unsigned idle = 0;
	int rc, n;

	rc = env_waiter_new(env, ENV_WAIT_SPIN, &waiter);
	if (rc) {
		e->ud->rc = rc;
		return;
	}
	while (!rc && !e->ud->over) {
		rc = round(e, &n);
		if (n)
			idle = 0;
		else
			env_idle(env, waiter, idle++);
	}
	if (rc)
		e->ud->rc = rc;
	env_waiter_free(env, waiter);
}

static void server_main(void *arg)
{
	run_rounds(arg, serve);
}

static void client_main(void *arg)
{
	struct ud_end *c = arg;
	unsigned calls[POLL_MAX], n, k;

	for (n = 0; n < c->recvs && !c->ud->rc; n += k) {
		for (k = 0; k < POLL_MAX && n + k < c->recvs; k++)
			calls[k] = n + k;
		c->ud->rc = ask(c, calls, k);
	}
	run_rounds(c, take);
}

/* --- */

static int server_up(struct ud *ud)
{
	unsigned all = ud->n_clients * ud->clients->recvs;
	struct sim_node *node;
	int rc = sim_node_new(ud->w, "server", ud->conf->cores, &node);

	for (unsigned i = 0; i < ud->conf->cores && !rc; i++)
		rc = ud_end_up(&ud->servers[i], ud, node,
			       all / ud->conf->cores + ud->clients->recvs + 1);
	return rc;
}

static int clients_up(struct ud *ud, unsigned recvs)
{
	struct sim_node *node = NULL;
	int rc = 0;

	for (unsigned i = 0; i < ud->n_clients && !rc; i++) {
		struct ud_end *c = &ud->clients[i];

		if (i % ud->per_node == 0)
			rc = sim_node_new(ud->w, "client",
					  ud->per_node > THREADS_MAX
						  ? ud->per_node
						  : THREADS_MAX,
					  &node);
		if (!rc)
			rc = ud_end_up(c, ud, node, recvs);
		c->first = i % ud->conf->cores;
	}
	return rc;
}

/* Connects each client with its server thread: each gets an address handle of
 * the other. */
static int meet(struct ud *ud)
{
	int rc = 0;

	for (unsigned i = 0; i < ud->conf->cores && !rc; i++) {
		ud->servers[i].ahs = calloc(ud->n_clients, sizeof(void *));
		rc = ud->servers[i].ahs ? 0 : -ENOMEM;
	}
	for (unsigned i = 0; i < ud->n_clients && !rc; i++) {
		struct ud_end *c = &ud->clients[i];
		struct ud_end *s = &ud->servers[c->first];

		c->ahs = calloc(1, sizeof(void *));
		rc = c->ahs ? ah_new(c, s, c->ahs) : -ENOMEM;
		if (!rc)
			rc = ah_new(s, c, &s->ahs[i]);
	}
	return rc;
}

static int start(struct ud *ud)
{
	int rc = 0;

	for (unsigned i = 0; i < ud->conf->cores && !rc; i++)
		rc = sim_spawn(ud->servers[i].end.proc, "server", server_main,
			       &ud->servers[i]);
	for (unsigned i = 0; i < ud->n_clients && !rc; i++)
		rc = sim_spawn(ud->clients[i].end.proc, "client", client_main,
			       &ud->clients[i]);
	return rc;
}

static int play(struct ud *ud, struct ud_rpc_result *res)
{
	const struct ud_rpc_conf *conf = ud->conf;
	double all = (double)conf->run_ns * conf->cores, verbs = 0, app = 0;
	int rc = start(ud);

	if (rc)
		return rc;
	sim_run(ud->w, conf->warm_ns);
	ud->counting = true;
	sim_run(ud->w, sim_now(ud->w) + conf->run_ns);
	ud->counting = false;
	for (unsigned i = 0; i < conf->cores; i++) {
		verbs += (double)ud->servers[i].verbs_ns;
		app += (double)ud->servers[i].handler_ns;
	}
	res->mops = (double)ud->done * 1e3 / (double)conf->run_ns;
	/* A thread without work polls its CQ: a spinner. */
	res->verbs_share = 1 - app / all;
	res->verbs_busy_share = verbs / all;
	res->p50_ns = (double)hist_percentile(ud->hist, 50);
	res->p99_ns = (double)hist_percentile(ud->hist, 99);
	ud->over = true;
	return ud->rc;
}

static void ud_free(struct ud *ud)
{
	sim_world_free(ud->w);
	for (unsigned i = 0; ud->servers && i < ud->conf->cores; i++)
		free(ud->servers[i].ahs);
	for (unsigned i = 0; ud->clients && i < ud->n_clients; i++)
		free(ud->clients[i].ahs);
	free(ud->servers);
	free(ud->clients);
	free(ud->hist);
}

int ud_rpc_run(const struct ud_rpc_conf *conf, struct ud_rpc_result *res)
{
	struct sim_conf wc = {.seed = conf->seed, .costs = conf->costs};
	unsigned each = conf->senders / conf->nodes;
	struct ud ud = {.conf = conf};
	int rc;

	if (!each || conf->len > LEN_MAX)
		return -EINVAL;
	ud.per_node = each < THREADS_MAX || conf->charged ? each : THREADS_MAX;
	while (each % ud.per_node)
		ud.per_node--;
	if (each / ud.per_node * conf->depth > 1u << SLOT_BITS)
		return -EINVAL;
	ud.n_clients = ud.per_node * conf->nodes;
	rc = sim_world_new(&wc, &ud.w);
	if (rc)
		return rc;
	sim_net_set_model(ud.w, conf->nic);
	ud.servers = calloc(conf->cores, sizeof(*ud.servers));
	ud.clients = calloc(ud.n_clients, sizeof(*ud.clients));
	ud.hist = malloc(sizeof(*ud.hist));
	rc = ud.servers && ud.clients && ud.hist ? 0 : -ENOMEM;
	if (!rc)
		hist_init(ud.hist);
	if (!rc)
		rc = clients_up(&ud, each / ud.per_node * conf->depth);
	if (!rc)
		rc = server_up(&ud);
	if (!rc)
		rc = meet(&ud);
	if (!rc)
		rc = play(&ud, res);
	res->hash = sim_hash(ud.w);
	res->virtual_ns = sim_now(ud.w);
	res->events = sim_events(ud.w);
	ud_free(&ud);
	return rc;
}
