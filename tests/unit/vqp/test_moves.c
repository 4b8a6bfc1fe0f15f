/* SPDX-License-Identifier: MIT */
/*
 * Four engines on made-up devices, and vqps between them that move from DC to
 * RC queue pairs and back at any moment, with lists of all kinds, messages both
 * ways, datagrams that get lost or come late, receives that complete in any
 * order, a node that dies. A checker holds: completions are in the order of
 * posting; a READ sees the WRITEs before it; atomics are carried out once;
 * messages are popped once and in order; no vqp between living nodes has an
 * error. The checker is tested too: each planted mistake has to be found.
 */
#include "fake.h"
#include "unit/part.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#define NODES 4u
#define MOVERS 12u
#define PORT 9u
#define ADDS_AT 40000u
#define WORDS_AT 30000u
#define IDS 512u /* more than are outstanding */
#define MIN_SEEDS 200u
#define PLANT_SEEDS 1000u

struct mover {
	struct vqp *v;
	unsigned from, to;
	uint64_t id;
	uint64_t expect[IDS];
	uint32_t head, tail;
	uint64_t written, adds;
	uint64_t read[IDS], want[IDS]; /* by wr_id */
	uint64_t sent, popped, answers, answered;
	bool wrong; /* it named memory that is not there */
};

struct payload {
	uint64_t mover, n;
};

static struct fake_node *nodes;
static struct half *half[NODES];
static struct vqp *bound[NODES];
static struct payload rx[NODES], back_rx[MOVERS];
static struct mover m[MOVERS];
static struct prng rng;
static uint64_t now_ns;
static char wrong[160];
static uint64_t transfers, reclaims;

static void note(const char *what, unsigned i)
{
	if (!wrong[0])
		snprintf(wrong, sizeof(wrong), "%s (%u)", what, i);
}

static bool alive(const struct mover *q)
{
	return !nodes[q->from].dead && !nodes[q->to].dead;
}

static void recvs_post(struct vqp *v, void *at, size_t len, unsigned n)
{
	struct ibv_sge sge = {(uintptr_t)at, (uint32_t)len, FAKE_LKEY};
	struct ibv_recv_wr wr = {.sg_list = &sge, .num_sge = 1}, *bad;

	while (n--)
		if (vqp_post_recv(v, &wr, &bad))
			return;
}

static void bed_open(uint64_t seed, enum vqp_plant plant)
{
	prng_init(&rng, seed);
	nodes = fake_nodes();
	now_ns = 1;
	wrong[0] = '\0';
	memset(m, 0, sizeof(m));
	/* DC does not reach it: two nodes have RC queue pairs to it */
	if (seed % 2)
		nodes[2].id.dctn = 0;
	for (unsigned i = 0; i < NODES; i++) {
		half[i] = malloc(sizeof(*half[i]));
		half_open(half[i], nodes, i, seed + i);
		half[i]->e.plant = plant;
		half[i]->e.conf.rc_busy = 12;
		half[i]->f.poll_max = 1 + (unsigned)prng_below(&rng, 16);
		half[i]->f.lossy = half[i]->f.late_recvs = true;
		assert_int_equal(vqp_new(&half[i]->e, &bound[i]), 0);
		assert_int_equal(vqp_bind(bound[i], PORT), 0);
		recvs_post(bound[i], &rx[i], sizeof(rx[i]), VQP_RECVS);
	}
	for (unsigned i = 0; i < MOVERS; i++) {
		struct vqp_engine *e;
		struct vqp_peer *p;

		m[i].from = i % NODES;
		m[i].to = (i + 1 + i / NODES) % NODES;
		e = &half[m[i].from]->e;
		p = vqp_peer_get(e, &nodes[m[i].to].id);
		assert_non_null(p);
		assert_int_equal(vqp_new(e, &m[i].v), 0);
		m[i].v->far_port = PORT;
		m[i].v->by_port = true;
		vqp_join(m[i].v, p);
		recvs_post(m[i].v, &back_rx[i], sizeof(back_rx[i]), VQP_RECVS);
	}
}

static void bed_close(void)
{
	for (unsigned i = 0; i < NODES; i++) {
		transfers += half[i]->e.counts.transfers;
		reclaims += half[i]->e.counts.rcs_reclaimed;
		nodes[i].e = NULL;
		half_close(half[i]);
		free(half[i]);
	}
	free(nodes);
}

/* --- what is done ------------------------------------------------------- */

static void wr_make(struct mover *q, struct ibv_send_wr *wr,
		    struct ibv_sge *sge, struct payload *data)
{
	unsigned i = (unsigned)(q - m), k = (unsigned)(q->id % IDS);

	*wr = (struct ibv_send_wr){
		.wr_id = q->id++,
		.sg_list = sge,
		.num_sge = 1,
		.send_flags = prng_below(&rng, 2) ? IBV_SEND_SIGNALED : 0};
	wr->wr.rdma.rkey = FAKE_REGION;
	wr->wr.rdma.remote_addr = WORDS_AT + 8 * i;
	*sge = (struct ibv_sge){(uintptr_t)&q->read[k], 8, FAKE_LKEY};
	switch (prng_below(&rng, 4)) {
	case 0:
		wr->opcode = IBV_WR_RDMA_WRITE;
		wr->send_flags |= IBV_SEND_INLINE;
		data->n = ++q->written;
		sge->addr = (uintptr_t)&data->n;
		break;
	case 1:
		wr->opcode = IBV_WR_RDMA_READ;
		wr->send_flags |= IBV_SEND_SIGNALED;
		q->want[k] = q->written;
		break;
	case 2:
		wr->opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
		wr->wr.atomic.remote_addr = ADDS_AT + 8 * i;
		wr->wr.atomic.compare_add = 1;
		wr->wr.atomic.rkey = FAKE_REGION;
		break;
	default:
		wr->opcode = IBV_WR_SEND;
		wr->send_flags |= IBV_SEND_INLINE;
		*data = (struct payload){i, q->sent++};
		*sge = (struct ibv_sge){(uintptr_t)data, sizeof(*data), 0};
	}
}

static void undo(struct mover *q, const struct ibv_send_wr *wr)
{
	if (wr->opcode == IBV_WR_RDMA_WRITE && wr->num_sge == 1)
		q->written--;
	if (wr->opcode == IBV_WR_SEND)
		q->sent--;
}

static void mover_post(struct mover *q)
{
	static const uint32_t lies[] = {FAKE_LIE, FAKE_RO, 0x10005};
	struct ibv_send_wr wr[40], *bad = NULL, *w;
	struct payload data[40];
	struct ibv_sge sge[40];
	unsigned n = 1 + (unsigned)prng_below(&rng, 40), i;
	int err;

	if (q->v->state != VQP_CONNECTED)
		return;
	for (i = 0; i < n; i++) {
		wr_make(q, &wr[i], &sge[i], &data[i]);
		wr[i].next = i + 1 < n ? &wr[i + 1] : NULL;
	}
	w = &wr[n / 2];
	if (!prng_below(&rng, 150) && w->opcode == IBV_WR_RDMA_WRITE) {
		w->wr.rdma.rkey = lies[prng_below(&rng, 3)];
		q->wrong = true;
	} else if (!prng_below(&rng, 20)) {
		undo(q, w);
		w->num_sge = -1;
		w->opcode = IBV_WR_RDMA_READ;
	}
	err = vqp_post_send(q->v, wr, &bad);
	if (err && err != -EINVAL && err != -ENOMEM)
		note("a post fails", (unsigned)-err);
	for (w = wr; w && (!err || w != bad); w = w->next) {
		q->adds += w->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
		if (w->send_flags & IBV_SEND_SIGNALED)
			q->expect[q->tail++ % IDS] = w->wr_id;
	}
	if (w)
		q->id = w->wr_id;
	for (; w; w = w->next)
		undo(q, w);
}

static void answer_check(struct mover *q)
{
	unsigned i = (unsigned)(q - m);

	if (back_rx[i].mover != i || back_rx[i].n != q->answered++)
		note("an answer is lost, doubled or late", i);
	recvs_post(q->v, &back_rx[i], sizeof(back_rx[i]), 1);
}

static void mover_poll(struct mover *q)
{
	unsigned i = (unsigned)(q - m);
	struct ibv_wc wc;
	uint64_t k;

	while (vqp_poll(q->v, 1, &wc) == 1) {
		if (wc.status != IBV_WC_SUCCESS) {
			if (!q->wrong && alive(q))
				note("an error of somebody else's", i);
			continue;
		}
		if (wc.opcode == IBV_WC_RECV) {
			answer_check(q);
			continue;
		}
		if (q->head == q->tail ||
		    q->expect[q->head++ % IDS] != wc.wr_id) {
			note("completions are not in order", i);
			return;
		}
		k = wc.wr_id % IDS;
		if (wc.opcode == IBV_WC_RDMA_READ && q->read[k] != q->want[k])
			note("a READ does not see a WRITE before it", i);
	}
}

static void answer_post(struct mover *q, struct vqp *to)
{
	struct payload data = {(uint64_t)(q - m), q->answers};
	struct ibv_sge sge = {(uintptr_t)&data, sizeof(data), 0};
	struct ibv_send_wr wr = {.sg_list = &sge,
				 .num_sge = 1,
				 .opcode = IBV_WR_SEND,
				 .send_flags = IBV_SEND_INLINE};
	struct ibv_send_wr *bad;

	if (!vqp_post_send(to, &wr, &bad))
		q->answers++;
}

static void node_pop(unsigned i)
{
	struct vqp_pop_out out;
	struct mover *q;

	while (vqp_pop(bound[i], &out)) {
		recvs_post(bound[i], &rx[i], sizeof(rx[i]), 1);
		q = &m[rx[i].mover % MOVERS];
		if (q->to != i || rx[i].n != q->popped++)
			note("a message is lost, doubled or late",
			     (unsigned)rx[i].mover);
		else if (prng_below(&rng, 2))
			answer_post(q, out.from);
	}
}

static void node_run(unsigned i, uint64_t steps)
{
	if (nodes[i].dead)
		return;
	for (; steps; steps--)
		fake_any(&half[i]->f);
	vqp_engine_round(&half[i]->e, now_ns);
	if (half[i]->f.wrong[0])
		note(half[i]->f.wrong, i);
}

/* --- the run ------------------------------------------------------------ */

static bool rcs_pair(unsigned i)
{
	const struct fake *f = &half[i]->f;

	for (unsigned k = FAKE_RCS; k < 2 * FAKE_RCS; k++) {
		bool there = false;

		for (unsigned j = 0; j < NODES && f->rc[k].made; j++)
			for (unsigned s = 0; s < FAKE_RCS && !nodes[j].dead;
			     s++)
				there |= half[j]->f.rc[s].made &&
					 half[j]->f.rc[s].own.qpn ==
						 f->rc[k].far.qpn;
		if (f->rc[k].made && !there)
			return false;
	}
	return true;
}

static void settle(void)
{
	for (unsigned i = 0; i < NODES; i++) {
		half[i]->f.poll_max = 0;
		half[i]->f.lossy = half[i]->f.rc_refuse = false;
	}
	for (unsigned k = 0; k < 400; k++) {
		now_ns += VQP_RC_TELL_NS / 2;
		for (unsigned i = 0; i < NODES; i++) {
			node_run(i, 60);
			if (!nodes[i].dead)
				node_pop(i);
		}
		for (unsigned i = 0; i < MOVERS; i++)
			if (!nodes[m[i].from].dead)
				mover_poll(&m[i]);
	}
}

/* whether peers live, under way */
static unsigned questions(const struct vqp_engine *e)
{
	unsigned n = e->asked != NULL;

	for (unsigned i = 0; i < FAKE_RCS; i++)
		n += e->rc_in[i].probe != 0;
	return n;
}

static void end_check(void)
{
	for (unsigned i = 0; i < MOVERS; i++) {
		struct mover *q = &m[i];
		uint64_t sum;

		memcpy(&sum, nodes[q->to].mem + ADDS_AT + 8ul * i, 8);
		if (sum > q->adds)
			note("an atomic is done twice", i);
		if (!alive(q) || q->v->state != VQP_CONNECTED)
			continue;
		if (sum != q->adds || q->head != q->tail)
			note("a request is lost", i);
		if (q->popped != q->sent || q->answers != q->answered)
			note("a message is lost", i);
	}
	for (unsigned i = 0; i < NODES; i++) {
		const struct vqp_engine *e = &half[i]->e;

		if (nodes[i].dead)
			continue;
		if (e->cq_used != questions(e))
			note("the books of the CQ", i);
		if (e->counts.garbage)
			note("garbage", i);
		if (!rcs_pair(i))
			note("an RC queue pair stays behind", i);
	}
}

static void random_run(uint64_t seed)
{
	uint64_t death =
		prng_below(&rng, 3) ? UINT64_MAX : 200 + prng_below(&rng, 400);

	for (unsigned k = 0; k < 800 && !wrong[0]; k++) {
		/* phases in which one node alone is busy, and quiet ones */
		unsigned busy = k / 100 % (NODES + 1);
		struct mover *q = &m[prng_below(&rng, MOVERS)];
		unsigned i = (unsigned)prng_below(&rng, NODES);

		if (!nodes[q->from].dead &&
		    (q->from == busy || !prng_below(&rng, 3)))
			mover_post(q);
		now_ns += prng_below(&rng, 4) ? prng_below(&rng, 300000)
					      : prng_below(&rng, 30000000);
		if (!prng_below(&rng, 60))
			now_ns += 2 * VQP_RC_SAMPLE_NS;
		node_run(i, prng_below(&rng, 60));
		if (!nodes[i].dead && prng_below(&rng, 2))
			node_pop(i);
		q = &m[prng_below(&rng, MOVERS)];
		if (!nodes[q->from].dead)
			mover_poll(q);
		/* a peer without DC that refuses for long is given up */
		half[i]->f.rc_refuse =
			nodes[2].id.dctn && !prng_below(&rng, 20);
		if (k == death)
			nodes[3].dead = true;
	}
	settle();
	if (!wrong[0])
		end_check();
	(void)seed;
}

static bool run(uint64_t seed, enum vqp_plant plant)
{
	bed_open(seed, plant);
	random_run(seed);
	bed_close();
	return !wrong[0];
}

static void test_random(void **state)
{
	const char *env = getenv("SKEIN_TEST_SEEDS");
	uint64_t n = env	       ? (uint64_t)atoll(env)
		     : part_is_whole() ? 1000
				       : MIN_SEEDS;

	for (uint64_t seed = 1; seed <= n; seed++) {
		if (run(seed, 0))
			continue;
		print_message("seed %lu: %s\n", (unsigned long)seed, wrong);
		fail();
	}
	print_message("%lu transfers, %lu queue pairs given up for others\n",
		      (unsigned long)transfers, (unsigned long)reclaims);
	assert_true(transfers > n && reclaims);
}

/* --- the checker is tested ----------------------------------------------- */

static const struct {
	const char *name;
	enum vqp_plant plant;
} plants[] = {
	{"a", VQP_PLANT_A},
	{"b", VQP_PLANT_B},
	{"c", VQP_PLANT_C},
	{"d", VQP_PLANT_D},
	{"e", VQP_PLANT_E},
	{"f", VQP_PLANT_F},
	{"f3", VQP_PLANT_F3},
	{"g", VQP_PLANT_G},
	{"g2", VQP_PLANT_G2},
	{"the peer's word", VQP_PLANT_RC_EARLY},
	{"the drain", VQP_PLANT_RC_DRAIN},
	{"one in use", VQP_PLANT_RC_IN_USE},
	{"a late answer", VQP_PLANT_RC_GEN},
	{"messages ahead", VQP_PLANT_AHEAD},
	{"the first message", VQP_PLANT_RC_FIRST},
	{"no probe", VQP_PLANT_RC_PROBE},
	{"a probe without an end", VQP_PLANT_RC_PROBED},
};

/* In a child: it may end in an assertion. */
static uint64_t found_at(unsigned i)
{
	int status, p[2];
	uint64_t seed = 0;
	pid_t pid;

	assert_int_equal(pipe(p), 0);
	pid = fork();
	if (!pid) {
		freopen("/dev/null", "w", stderr);
		signal(SIGABRT, SIG_DFL);
		alarm(60);
		for (seed = 1; seed <= PLANT_SEEDS; seed++) {
			if (write(p[1], &seed, sizeof(seed)) < 0 ||
			    !run(seed, plants[i].plant))
				_exit(1);
		}
		_exit(0);
	}
	close(p[1]);
	while (read(p[0], &seed, sizeof(seed)) > 0)
		;
	close(p[0]);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return WIFEXITED(status) && !WEXITSTATUS(status) ? 0 : seed;
}

static void test_plants(void **state)
{
	unsigned i, missed = 0;
	uint64_t at;

	for (i = 0; i < sizeof(plants) / sizeof(plants[0]); i++) {
		at = found_at(i);
		print_message("%s: seed %lu\n", plants[i].name,
			      (unsigned long)at);
		missed += !at;
	}
	assert_int_equal(missed, 0);
}

/* --- turns -------------------------------------------------------------- */

/* Posts a WRITE, of a word that counts, if little is outstanding. */
static void turn_post(struct vqp *v)
{
	static uint64_t word;
	struct ibv_sge sge = {(uintptr_t)&word, 8, FAKE_LKEY};
	struct ibv_send_wr wr = {.sg_list = &sge,
				 .num_sge = 1,
				 .opcode = IBV_WR_RDMA_WRITE,
				 .send_flags = IBV_SEND_SIGNALED};
	struct ibv_send_wr *bad;

	wr.wr.rdma.rkey = FAKE_REGION;
	while (v->n_slots < 8 && !vqp_post_send(v, &wr, &bad))
		;
}

/* The node is as one without DC, also to those that know it. */
static void without_dc(unsigned node)
{
	const struct meta_node *n = &nodes[node].id;

	nodes[node].id.dctn = half[node]->e.conf.self.dctn = 0;
	for (unsigned i = 0; i < NODES; i++) {
		struct vqp_peer *p;

		p = vqp_peer_find(&half[i]->e, n->gid, n->port);
		if (p)
			vqp_peer_forget(&half[i]->e, p);
	}
}

/* Three vqps that always have requests, and two RC queue pairs for them, at the
 * end that posts or at the other one: each goes on within a second. */
static bool turns(bool far_full, enum vqp_plant plant)
{
	uint64_t last[3] = {0};
	struct vqp *v[3];
	struct ibv_wc wc;
	bool good = true;

	bed_open(2, plant);
	for (unsigned i = 0; i < NODES; i++)
		without_dc(i);
	for (unsigned i = 0; i < 3; i++) {
		unsigned from = far_full ? i : 3, to = far_full ? 3 : i;
		struct vqp_engine *e = &half[from]->e;

		assert_int_equal(vqp_new(e, &v[i]), 0);
		vqp_join(v[i], vqp_peer_get(e, &nodes[to].id));
	}
	for (unsigned k = 0; k < 4000 && good; k++) {
		now_ns += 1000000;
		for (unsigned i = 0; i < NODES; i++)
			node_run(i, 20);
		for (unsigned i = 0; i < 3; i++) {
			turn_post(v[i]);
			while (vqp_poll(v[i], 1, &wc) == 1) {
				good = good && !wc.status;
				last[i] = now_ns;
			}
			good = good && now_ns - last[i] < 1000000000;
		}
	}
	bed_close();
	return good;
}

static void test_turns(void **state)
{
	assert_true(turns(false, VQP_PLANT_NONE));
	assert_true(turns(true, VQP_PLANT_NONE));
	assert_false(turns(false, VQP_PLANT_RC_TURN));
	assert_false(turns(true, VQP_PLANT_RC_BACK));
}

/* v, if any, posts all the time. False: a request has failed. */
static bool run_for(uint64_t ns, unsigned from, struct vqp *v)
{
	uint64_t end = now_ns + ns;
	struct ibv_wc wc;
	bool good = true;

	for (; now_ns < end; now_ns += 1000000) {
		for (unsigned i = from; i < NODES; i++)
			node_run(i, 20);
		if (v)
			turn_post(v);
		while (v && vqp_poll(v, 1, &wc) == 1)
			good = good && !wc.status;
	}
	return good;
}

/* --- peers that do not answer -------------------------------------------- */

static struct vqp *vqp_to(unsigned node)
{
	struct vqp_engine *e = &half[0]->e;
	struct vqp *v;

	assert_int_equal(vqp_new(e, &v), 0);
	vqp_join(v, vqp_peer_get(e, &nodes[node].id));
	turn_post(v);
	return v;
}

/* Node 0 has two queue pairs, and waits for four dead nodes before it waits for
 * one that lives: that one goes on within a second, and the dead ones count as
 * dead in time. One for which it waits alone has as long. */
static bool mute(enum vqp_plant plant)
{
	static const unsigned dead[] = {1, 2, 4, 5};
	struct vqp *v[4], *living;
	struct ibv_wc wc;
	uint64_t last;
	bool good = true;

	bed_open(2, plant);
	for (unsigned i = 0; i < NODES; i++)
		without_dc(i);
	for (unsigned i = 0; i < 4; i++) {
		nodes[dead[i]].id.dctn = 0;
		nodes[dead[i]].dead = true;
		v[i] = vqp_to(dead[i]);
	}
	living = vqp_to(3);
	last = now_ns;
	for (unsigned k = 0; k < 8000 && good; k++) {
		good = run_for(1000000, 0, NULL);
		turn_post(living);
		while (vqp_poll(living, 1, &wc) == 1) {
			good = good && !wc.status;
			last = now_ns;
		}
		good = good && now_ns - last < 1000000000;
	}
	for (unsigned i = 0; i < 4; i++)
		good = good && v[i]->state == VQP_ERROR;
	good = good && half[0]->f.rcs_made <= 2 * 8000 / 100; /* turns */
	v[0] = vqp_to(1);
	run_for(VQP_RC_WAIT_NS - 1000000, 0, NULL);
	good = good && v[0]->state == VQP_CONNECTED;
	run_for((VQP_RC_TRIES + 5) * VQP_RC_TELL_NS, 0, NULL);
	good = good && v[0]->state == VQP_ERROR;
	bed_close();
	return good;
}

static void test_mute(void **state)
{
	assert_true(mute(VQP_PLANT_NONE));
	assert_false(mute(VQP_PLANT_RC_MUTE));
	assert_false(mute(VQP_PLANT_RC_MUTE_END));
	assert_false(mute(VQP_PLANT_RC_ANEW));
	assert_false(mute(VQP_PLANT_RC_ONCE));
}

/* The log says why it takes long before the caller's own patience may end. */
static void test_mute_said(void **state)
{
	struct vqp *v;

	bed_open(2, VQP_PLANT_NONE);
	for (unsigned i = 0; i < NODES; i++)
		without_dc(i);
	nodes[1].dead = true;
	v = vqp_to(1);
	run_for((VQP_RC_TRIES + 5) * VQP_RC_TELL_NS, 0, NULL);
	assert_int_equal(v->state, VQP_CONNECTED);
	assert_int_equal(half[0]->e.said, 256);
	bed_close();
}

/* One that DC reaches is asked for a second, then left alone for one. */
static void test_mute_dc(void **state)
{
	struct vqp *v;

	bed_open(2, VQP_PLANT_NONE);
	nodes[1].e = NULL; /* datagrams to it vanish */
	v = vqp_to(1);
	assert_true(run_for(5000000000, 0, v));
	assert_int_equal(v->state, VQP_CONNECTED);
	assert_in_range(half[0]->f.rcs_made, 2, 3);
	bed_close();
}

/* --- the asking end dies, or stops ---------------------------------------- */

static struct vqp *to_node_3(enum vqp_plant plant)
{
	struct vqp_engine *e;
	struct vqp *v;

	bed_open(2, plant);
	for (unsigned i = 0; i < NODES; i++) {
		without_dc(i);
		half[i]->f.lossy = false;
	}
	e = &half[0]->e;
	assert_int_equal(vqp_new(e, &v), 0);
	vqp_join(v, vqp_peer_get(e, &nodes[3].id));
	turn_post(v);
	return v;
}

static bool node_3_has_one(void)
{
	return half[3]->f.rc[FAKE_RCS].made || half[3]->f.rc[FAKE_RCS + 1].made;
}

/* Node 0 has a queue pair to node 3 and dies without a word. Does node 3 learn
 * it? */
static bool learns(enum vqp_plant plant, bool knows_dead, unsigned *probes)
{
	struct vqp *v = to_node_3(plant);
	bool learnt;

	half[3]->f.knows_dead = knows_dead;
	assert_true(run_for(3 * VQP_RC_PROBE_NS, 0, v));
	assert_true(node_3_has_one() && half[0]->e.counts.rcs_made == 1);
	nodes[0].dead = true;
	run_for(VQP_RC_QUIET_NS + 2 * VQP_RC_PROBE_NS, 1, NULL);
	learnt = !node_3_has_one() && !half[3]->e.cq_used;
	*probes = half[3]->f.probes;
	bed_close();
	return learnt;
}

/* Node 0 has asked, and does nothing for so long. Has its vqp an error then? */
static bool survives(enum vqp_plant plant, uint64_t stop_ns)
{
	struct vqp *v = to_node_3(plant);
	bool good;

	node_run(0, 0);
	assert_int_equal(half[0]->e.rc[0].state, VQP_RC_ASKED);
	while (fake_tell_one(&half[0]->f))
		;
	nodes[0].stopped = true;
	run_for(stop_ns, 1, NULL);
	nodes[0].stopped = false;
	/* the answer is there before node 0 looks */
	vqp_engine_at(&half[0]->e, now_ns);
	good = run_for(40 * VQP_RC_TELL_NS, 0, v);
	good = good && v->state == VQP_CONNECTED &&
	       half[0]->e.counts.rcs_made == 1;
	bed_close();
	return good;
}

static void test_probes(void **state)
{
	unsigned n;

	assert_true(learns(VQP_PLANT_NONE, false, &n));
	assert_in_range(n, 2, 5);
	(void)learns(VQP_PLANT_NONE, true, &n);
	assert_int_equal(n, 0);
	assert_false(learns(VQP_PLANT_RC_PROBE, false, &n));
	assert_false(learns(VQP_PLANT_RC_PROBED, false, &n));
	for (unsigned i = 1; i < 40; i++)
		assert_true(survives(VQP_PLANT_NONE, i * 100000000));
	assert_false(survives(VQP_PLANT_RC_SOON, 10 * VQP_RC_TELL_NS) &&
		     survives(VQP_PLANT_RC_SOON, 1100000000));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_random),
		cmocka_unit_test(test_plants),
		cmocka_unit_test(test_turns),
		cmocka_unit_test(test_mute),
		cmocka_unit_test(test_mute_said),
		cmocka_unit_test(test_mute_dc),
		cmocka_unit_test(test_probes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
