/* SPDX-License-Identifier: MIT */
/* mcast_bed.c - see mcast_bed.h. */
#include "sim/mcast/mcast_bed.h"

#include "base/assert.h"
#include "dev/sim/link.h"
#include "sim/end.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define POSTED_MAX 32u
#define POLL_MAX 16
#define HOLLOW_FROM 64u
#define LIMIT_NS 600000000000ull /* of virtual time */

struct peer {
	uint32_t rank;	     /* in the group */
	struct ibv_qp *qp;   /* blocks */
	struct ibv_qp *says; /* words */
	uint32_t rkey;	     /* where this end says what it is ready for: */
	uint64_t far_word;   /* in the peer's memory */
	uint64_t *word;	     /* what the peer has said */
	uint64_t promised, sent;
};

/* A node's part in a group. */
struct member {
	struct mcast_bed *bed;
	struct node *node;
	struct mcast_plan plan;
	uint32_t group, rank, n_peers;
	struct peer *peers; /* by rank */
	unsigned char *have;
	uint64_t left; /* blocks to receive */
	unsigned char *object;
	struct mcast_item send, recv; /* the next ones */
	bool more_sends, more_recvs;
	uint32_t sending, posted;
	struct mcast_item expected[POSTED_MAX]; /* posted, oldest first */
};

struct node {
	struct mcast_bed *bed;
	struct end end;
	struct member *members; /* by group */
	struct dev_stats stats;
};

struct mcast_bed {
	const struct mcast_bed_conf *conf;
	struct mcast_bed_result *res;
	struct sim_world *w;
	struct sim_node **sims;
	struct node *nodes;
	uint32_t *place; /* of a rank of group 0: its node */
	uint32_t groups, posted, window;
	uint64_t blocks;
	struct mcast_racks racks[MCAST_BED_GROUPS];
	uint32_t *rack_storage;
	uint64_t begun;
	uint32_t unfinished; /* members that lack a block */
	bool going, over;
	int rc;
};

/* --- indices ---------------------------------------------------------- */

void mcast_bed_place(struct sim_world *w, const struct mcast_bed_conf *conf,
		     uint32_t *place)
{
	struct prng r;

	sim_prng(w, 0x6d63, &r);
	for (uint32_t i = 0; i < conf->nodes; i++) {
		uint32_t j = (uint32_t)prng_below(&r, i + 1);

		place[i] = i;
		if (conf->scattered) {
			place[i] = place[j];
			place[j] = i;
		}
	}
}

uint32_t mcast_bed_node(const struct mcast_bed_conf *conf,
			const uint32_t *place, uint32_t group, uint32_t rank)
{
	uint32_t groups = conf->groups ? conf->groups : 1;

	return place[(group * conf->nodes / groups + rank) % conf->nodes];
}

static uint32_t node_of(const struct mcast_bed *bed, uint32_t group,
			uint32_t rank)
{
	return mcast_bed_node(bed->conf, bed->place, group, rank);
}

static struct member *member_of(struct mcast_bed *bed, uint32_t group,
				uint32_t rank)
{
	return &bed->nodes[node_of(bed, group, rank)].members[group];
}

static struct peer *peer_of(struct member *m, uint32_t rank)
{
	uint32_t lo = 0, hi = m->n_peers;

	while (lo < hi) {
		uint32_t mid = (lo + hi) / 2;

		if (m->peers[mid].rank < rank)
			lo = mid + 1;
		else
			hi = mid;
	}
	skein_assert(lo < m->n_peers && m->peers[lo].rank == rank);
	return &m->peers[lo];
}

static uint32_t block_len(const struct member *m, uint64_t block)
{
	const struct mcast_bed_conf *conf = m->bed->conf;
	uint64_t at = block * conf->block;

	return conf->object - at < conf->block ? (uint32_t)(conf->object - at)
					       : conf->block;
}

/* The address of a block. Hollow messages have no bytes, so all blocks share
 * one address. */
static unsigned char *block_at(const struct member *m, uint64_t block)
{
	return m->object +
	       (m->bed->conf->carry ? block * m->bed->conf->block : 0);
}

static unsigned char pattern(uint32_t group, uint64_t at)
{
	return (unsigned char)prng_mix(at / 8 + ((uint64_t)group << 56));
}

/* --- the relay --------------------------------------------------------- */

enum {
	DID_SEND,
	DID_RECV,
	DID_WORD
};

static uint64_t wr_id(const struct member *m, const struct peer *p, int kind)
{
	return (uint64_t)(p - m->peers) << 16 | m->group << 4 | (unsigned)kind;
}

static int send_block(struct member *m, struct peer *p, uint64_t block)
{
	struct ibv_sge sge = {.addr = (uintptr_t)block_at(m, block),
			      .length = block_len(m, block),
			      .lkey = m->node->end.mr->lkey};
	struct ibv_send_wr wr = {.wr_id = wr_id(m, p, DID_SEND),
				 .sg_list = &sge,
				 .num_sge = 1,
				 .opcode = IBV_WR_SEND_WITH_IMM,
				 .imm_data = (uint32_t)block},
			   *bad;

	p->sent++;
	m->sending++;
	return dev_post_send(&m->node->stats, p->qp, &wr, &bad);
}

/* As many blocks as may go. */
static int push(struct member *m)
{
	int rc = 0;

	while (m->more_sends && m->sending < m->bed->window && !rc) {
		struct peer *p = peer_of(m, m->send.peer);

		if (m->rank != 0 && !m->have[m->send.block])
			break;
		if (*p->word == p->sent)
			break;
		rc = send_block(m, p, m->send.block);
		m->more_sends = mcast_plan_next_send(
			&m->plan, m->rank, m->send.step + 1, &m->send);
	}
	return rc;
}

static int say_ready(struct member *m, struct peer *p)
{
	struct ibv_sge sge = {.addr = (uintptr_t)&p->promised, .length = 8};
	struct ibv_send_wr wr = {.wr_id = wr_id(m, p, DID_WORD),
				 .sg_list = &sge,
				 .num_sge = 1,
				 .opcode = IBV_WR_RDMA_WRITE,
				 .send_flags = IBV_SEND_INLINE,
				 .wr.rdma = {.remote_addr = p->far_word,
					     .rkey = p->rkey}},
			   *bad;

	return dev_post_send(&m->node->stats, p->says, &wr, &bad);
}

/* Posts as many receives as it may, and tells the senders of these blocks. */
static int pull(struct member *m)
{
	int rc = 0;

	while (m->more_recvs && m->posted < m->bed->posted && !rc) {
		struct peer *p = peer_of(m, m->recv.peer);
		struct ibv_sge sge = {
			.addr = (uintptr_t)block_at(m, m->recv.block),
			.length = block_len(m, m->recv.block),
			.lkey = m->node->end.mr->lkey};
		struct ibv_recv_wr wr = {.wr_id = wr_id(m, p, DID_RECV),
					 .sg_list = &sge,
					 .num_sge = 1},
				   *bad;

		rc = dev_post_recv(&m->node->stats, p->qp, &wr, &bad);
		m->expected[m->posted++] = m->recv;
		p->promised++;
		if (!rc)
			rc = say_ready(m, p);
		m->more_recvs = mcast_plan_next_recv(
			&m->plan, m->rank, m->recv.step + 1, &m->recv);
	}
	return rc;
}

static bool right_bytes(const struct member *m, uint64_t block)
{
	const unsigned char *p = block_at(m, block);
	uint64_t at = block * m->bed->conf->block;

	for (uint32_t i = 0; i < block_len(m, block); i++)
		if (p[i] != pattern(m->group, at + i))
			return false;
	return true;
}

static void finished(struct mcast_bed *bed)
{
	uint64_t took = sim_thread_now(bed->w) - bed->begun;

	if (!bed->res->first_ns)
		bed->res->first_ns = took;
	bed->res->ns = took;
	if (--bed->unfinished)
		return;
	bed->over = true;
	sim_stop(bed->w);
}

static int received(struct member *m, const struct peer *p,
		    const struct ibv_wc *wc)
{
	uint32_t at = 0;
	uint64_t block;

	while (at < m->posted && m->expected[at].peer != p->rank)
		at++;
	if (at == m->posted)
		return -EBADMSG;
	block = m->expected[at].block;
	memmove(&m->expected[at], &m->expected[at + 1],
		(--m->posted - at) * sizeof(m->expected[0]));
	if (wc->imm_data != (uint32_t)block || m->have[block] ||
	    wc->byte_len != block_len(m, block) ||
	    (m->bed->conf->carry && !right_bytes(m, block)))
		return -EBADMSG;
	m->have[block] = 1;
	if (!--m->left)
		finished(m->bed);
	return 0;
}

static int take(struct node *n, const struct ibv_wc *wc)
{
	struct member *m = &n->members[wc->wr_id >> 4 & 0xfff];
	struct peer *p = &m->peers[wc->wr_id >> 16];
	int rc;

	if (wc->status != IBV_WC_SUCCESS)
		return -EIO;
	switch (wc->wr_id & 0xf) {
	case DID_SEND:
		m->sending--;
		return push(m);
	case DID_RECV:
		rc = received(m, p, wc);
		if (!rc)
			rc = push(m);
		return rc ? rc : pull(m);
	default:
		return 0;
	}
}

/* Words of peers may have changed. */
static int push_all(struct node *n)
{
	int rc = 0;

	if (!n->bed->going)
		return 0;
	for (uint32_t g = 0; g < n->bed->groups && !rc; g++)
		rc = push(&n->members[g]);
	return rc;
}

static int rounds(struct node *n, struct env_waiter *waiter)
{
	struct ibv_wc wc[POLL_MAX];
	unsigned idle = 0;
	int rc = 0;

	for (uint32_t g = 0; g < n->bed->groups && !rc; g++)
		rc = pull(&n->members[g]);
	while (!rc && !n->bed->over) {
		int got = dev_poll_cq(&n->stats, n->end.cq, POLL_MAX, wc);

		if (got < 0)
			return got;
		for (int i = 0; i < got && !rc; i++)
			rc = take(n, &wc[i]);
		if (!rc)
			rc = push_all(n);
		if (got)
			idle = 0;
		else
			env_idle(n->end.env, waiter, idle++);
	}
	return rc;
}

static void node_main(void *arg)
{
	struct node *n = arg;
	struct env_waiter *waiter;
	int rc = env_waiter_new(n->end.env, ENV_WAIT_SPIN, &waiter);

	if (!rc) {
		rc = rounds(n, waiter);
		env_waiter_free(n->end.env, waiter);
	}
	if (rc) {
		n->bed->rc = rc;
		sim_stop(n->bed->w);
	}
}

/* --- making it --------------------------------------------------------- */

static int member_up(struct mcast_bed *bed, uint32_t group, uint32_t rank)
{
	const struct mcast_bed_conf *conf = bed->conf;
	struct member *m = member_of(bed, group, rank);
	uint32_t *ranks;
	int rc;

	m->bed = bed;
	m->node = &bed->nodes[node_of(bed, group, rank)];
	m->group = group;
	m->rank = rank;
	m->left = rank ? bed->blocks : 0;
	rc = mcast_plan_init(&m->plan, conf->algorithm, conf->nodes,
			     bed->blocks, &bed->racks[group]);
	if (rc)
		return rc;
	ranks = malloc(conf->nodes * sizeof(*ranks));
	m->have = calloc(bed->blocks, 1);
	if (ranks)
		m->n_peers = mcast_plan_neighbours(&m->plan, rank, ranks,
						   conf->nodes);
	m->peers = calloc(m->n_peers + 1, sizeof(*m->peers));
	if (!ranks || !m->have || !m->peers) {
		free(ranks);
		return -ENOMEM;
	}
	for (uint32_t i = 0; i < m->n_peers; i++)
		m->peers[i].rank = ranks[i];
	free(ranks);
	if (m->n_peers > bed->res->peers_max)
		bed->res->peers_max = m->n_peers;
	m->more_sends = mcast_plan_next_send(&m->plan, rank, 0, &m->send);
	m->more_recvs = mcast_plan_next_recv(&m->plan, rank, 0, &m->recv);
	bed->res->steps = m->plan.steps;
	return 0;
}

/* A node's memory: first one word for each peer, then the node's objects. */
static int memory_up(struct mcast_bed *bed, struct node *n)
{
	const struct mcast_bed_conf *conf = bed->conf;
	uint64_t place = conf->carry ? conf->object : conf->block;
	uint32_t words = 0, cqe = 0, at = 0;
	unsigned char *objects;
	int rc;

	for (uint32_t g = 0; g < bed->groups; g++)
		words += n->members[g].n_peers;
	cqe = words * (bed->window + 2 * bed->posted + 2);
	rc = end_up(&n->end, bed->sims[n - bed->nodes],
		    words * 8 + place * (conf->carry ? bed->groups : 1), cqe);
	if (rc)
		return rc;
	memset(n->end.mem, 0, words * 8);
	objects = (unsigned char *)n->end.mem + words * 8;
	for (uint32_t g = 0; g < bed->groups; g++) {
		struct member *m = &n->members[g];

		for (uint32_t i = 0; i < m->n_peers; i++)
			m->peers[i].word = (uint64_t *)n->end.mem + at++;
		m->object = objects + (conf->carry ? g * place : 0);
		for (uint64_t b = 0; conf->carry && m->rank == 0 && b < place;
		     b++)
			m->object[b] = pattern(g, b);
	}
	return 0;
}

static int qp_new(struct mcast_bed *bed, struct end *e, struct ibv_qp **qp)
{
	struct ibv_qp_init_attr attr = {
		.send_cq = e->cq,
		.recv_cq = e->cq,
		.qp_type = IBV_QPT_RC,
		.sq_sig_all = 1,
		.cap = {.max_send_wr = bed->window + bed->posted + 1,
			.max_recv_wr = bed->posted,
			.max_send_sge = 1,
			.max_recv_sge = 1,
			.max_inline_data = 8},
	};
	int rc = e->dev->ops->create_qp(e->dev, e->pd, &attr, 0, qp);

	return rc ? rc : dev_qp_init(e->dev, *qp, IBV_ACCESS_REMOTE_WRITE);
}

/* Here blocks wait behind one another for longer than the default timeout of a
 * NIC. */
static const struct dev_qp_opts patient = {.timeout = 20};

static int half(struct end *a, struct ibv_qp *qa, struct end *b,
		struct ibv_qp *qb)
{
	struct dev_qp_addr far;
	int rc;

	dev_qp_addr(b->dev, qb, 0, &far);
	rc = dev_qp_rtr(a->dev, qa, &far, &patient);
	return rc ? rc : dev_qp_rts(a->dev, qa, 0, &far, &patient);
}

static int link_up(struct mcast_bed *bed, struct end *a, struct ibv_qp **qa,
		   struct end *b, struct ibv_qp **qb)
{
	int rc = qp_new(bed, a, qa);

	if (!rc)
		rc = qp_new(bed, b, qb);
	if (!rc)
		rc = half(a, *qa, b, *qb);
	return rc ? rc : half(b, *qb, a, *qa);
}

static int pair_up(struct member *m, struct peer *p)
{
	struct member *far = member_of(m->bed, m->group, p->rank);
	struct peer *q = peer_of(far, m->rank);
	struct end *a = &m->node->end, *b = &far->node->end;
	int rc;

	p->rkey = b->mr->rkey;
	p->far_word = (uintptr_t)q->word;
	q->rkey = a->mr->rkey;
	q->far_word = (uintptr_t)p->word;
	rc = link_up(m->bed, a, &p->qp, b, &q->qp);
	return rc ? rc : link_up(m->bed, a, &p->says, b, &q->says);
}

static int racks_up(struct mcast_bed *bed, uint32_t group)
{
	uint32_t n = bed->conf->nodes, rack = bed->conf->rack;
	uint32_t *of = malloc(n * sizeof(*of));
	int rc;

	if (!of)
		return -ENOMEM;
	for (uint32_t r = 0; r < n; r++)
		of[r] = rack ? node_of(bed, group, r) / rack : 0;
	rc = mcast_racks_init(&bed->racks[group], of, n,
			      bed->rack_storage +
				      group * MCAST_RACKS_STORAGE(n));
	free(of);
	return rc;
}

static int groups_up(struct mcast_bed *bed)
{
	uint32_t n = bed->conf->nodes;
	int rc = 0;

	for (uint32_t g = 0; g < bed->groups && !rc; g++) {
		rc = racks_up(bed, g);
		for (uint32_t r = 0; r < n && !rc; r++)
			rc = member_up(bed, g, r);
	}
	for (uint32_t i = 0; i < n && !rc; i++)
		rc = memory_up(bed, &bed->nodes[i]);
	for (uint32_t g = 0; g < bed->groups && !rc; g++) {
		for (uint32_t r = 0; r < n && !rc; r++) {
			struct member *m = member_of(bed, g, r);

			for (uint32_t i = 0; i < m->n_peers && !rc; i++)
				if (m->peers[i].rank > r)
					rc = pair_up(m, &m->peers[i]);
		}
	}
	return rc;
}

static int nodes_up(struct mcast_bed *bed)
{
	uint32_t n = bed->conf->nodes;
	int rc = 0;

	mcast_bed_place(bed->w, bed->conf, bed->place);
	for (uint32_t i = 0; i < n && !rc; i++) {
		bed->nodes[i].bed = bed;
		bed->nodes[i].members =
			calloc(bed->groups, sizeof(struct member));
		rc = bed->nodes[i].members
			     ? sim_node_new(bed->w, "node", 2, &bed->sims[i])
			     : -ENOMEM;
	}
	return rc;
}

static int play(struct mcast_bed *bed)
{
	const struct mcast_bed_conf *conf = bed->conf;
	struct sim_nic_counts c;
	int rc = 0;

	if (conf->slow > 1)
		sim_path_slow(bed->sims[node_of(bed, 0, conf->slow_from)],
			      bed->sims[node_of(bed, 0, conf->slow_to)],
			      conf->slow);
	for (uint32_t i = 0; i < conf->nodes && !rc; i++)
		rc = sim_spawn(bed->nodes[i].end.proc, "member", node_main,
			       &bed->nodes[i]);
	if (rc)
		return rc;
	sim_run(bed->w, 1000000); /* all have said what they are ready for */
	bed->unfinished = bed->groups * (conf->nodes - 1);
	bed->begun = sim_now(bed->w);
	bed->going = true;
	for (uint32_t i = 0; i < conf->nodes; i++)
		sim_notify(bed->nodes[i].end.proc);
	sim_run(bed->w, bed->begun + LIMIT_NS);
	for (uint32_t i = 0; i < conf->nodes; i++) {
		sim_nic_counts(bed->sims[i], &c);
		bed->res->bytes_out += c.bytes_out;
	}
	if (bed->rc)
		return bed->rc;
	return bed->over ? 0 : -ETIME;
}

/* --- */

static void bed_free(struct mcast_bed *bed)
{
	if (bed->w)
		sim_world_free(bed->w);
	for (uint32_t i = 0; bed->nodes && i < bed->conf->nodes; i++) {
		struct member *m = bed->nodes[i].members;

		for (uint32_t g = 0; m && g < bed->groups; g++) {
			free(m[g].peers);
			free(m[g].have);
		}
		free(m);
	}
	free(bed->nodes);
	free(bed->sims);
	free(bed->place);
	free(bed->rack_storage);
}

static int bed_new(struct mcast_bed *bed)
{
	const struct mcast_bed_conf *conf = bed->conf;
	struct sim_racks racks = {conf->rack, conf->oversub_pct};
	struct sim_conf wc = {.seed = conf->seed};
	int rc;

	bed->nodes = calloc(conf->nodes, sizeof(*bed->nodes));
	bed->sims = calloc(conf->nodes, sizeof(struct sim_node *));
	bed->place = calloc(conf->nodes, sizeof(*bed->place));
	bed->rack_storage =
		calloc(bed->groups * MCAST_RACKS_STORAGE(conf->nodes),
		       sizeof(*bed->rack_storage));
	if (!bed->nodes || !bed->sims || !bed->place || !bed->rack_storage)
		return -ENOMEM;
	rc = sim_world_new(&wc, &bed->w);
	if (rc)
		return rc;
	sim_net_set_model(bed->w, conf->nic);
	if (conf->rack)
		sim_net_set_racks(bed->w, &racks);
	if (!conf->carry)
		sim_net_set_hollow(bed->w, HOLLOW_FROM);
	return nodes_up(bed);
}

int mcast_bed_run(const struct mcast_bed_conf *conf,
		  struct mcast_bed_result *res)
{
	struct mcast_bed bed = {
		.conf = conf,
		.res = res,
		.groups = conf->groups ? conf->groups : 1,
		.posted = conf->posted ? conf->posted : 2,
		.window = conf->window ? conf->window : 2,
	};
	int rc;

	if (conf->nodes < 2 || !conf->object || !conf->block ||
	    bed.groups > MCAST_BED_GROUPS || bed.posted > POSTED_MAX)
		return -EINVAL;
	memset(res, 0, sizeof(*res));
	bed.blocks = (conf->object + conf->block - 1) / conf->block;
	res->blocks = bed.blocks;
	rc = bed_new(&bed);
	if (!rc)
		rc = groups_up(&bed);
	if (!rc)
		rc = play(&bed);
	if (bed.w) {
		res->hash = sim_hash(bed.w);
		res->virtual_ns = sim_now(bed.w);
		res->events = sim_events(bed.w);
	}
	bed_free(&bed);
	return rc;
}
