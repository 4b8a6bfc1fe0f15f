/* SPDX-License-Identifier: MIT */
/*
 * The engine on a made-up device: each part of algorithm 2 as corrected, with
 * the mistake planted that it corrects (vqp_plant): the case must fail then.
 * A random run holds everything together.
 */
#include "fake.h"
#include "unit/part.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

static struct fake_node *nodes;
static struct half *h, *far;
static uint64_t words[4096];
static uint64_t now_ns; /* it never goes back */

static void open_all(uint64_t seed, unsigned plant)
{
	nodes = fake_nodes();
	now_ns = 1;
	h = malloc(sizeof(*h));
	far = malloc(sizeof(*far));
	half_open(h, nodes, 0, seed);
	half_open(far, nodes, 1, seed + 1);
	h->e.plant = far->e.plant = plant;
}

/* What is under way is done; then nothing may be counted any more. */
static void settle(void)
{
	for (unsigned i = 0; i < 4000; i++) {
		bool any = fake_any(&h->f) | fake_any(&far->f);

		any |= vqp_engine_round(&h->e, ++now_ns) != 0;
		any |= vqp_engine_round(&far->e, now_ns) != 0;
		if (!any && i > 20)
			return;
	}
}

static bool books_good(struct vqp_engine *e)
{
	if (e->cq_used)
		return false;
	for (unsigned i = 0; i < e->conf.dcis; i++)
		if (e->dci[i].sq_used || e->dci[i].n_posted)
			return false;
	return true;
}

static bool close_all(bool good)
{
	good = good && !h->f.wrong[0] && !far->f.wrong[0];
	if (good)
		good = books_good(&h->e) && books_good(&far->e);
	half_close(h);
	half_close(far);
	free(h);
	free(far);
	free(nodes);
	return good;
}

static struct vqp *join(struct half *of, unsigned node, unsigned dci)
{
	struct vqp_peer *p = vqp_peer_get(&of->e, &nodes[node].id);
	struct vqp *v;

	assert_non_null(p);
	assert_int_equal(vqp_new(&of->e, &v), 0);
	vqp_join(v, p);
	v->far_port = 9;
	v->by_port = true;
	v->dci = dci;
	return v;
}

static struct ibv_sge sge_of(unsigned word)
{
	return (struct ibv_sge){(uintptr_t)&words[word], 8, FAKE_LKEY};
}

static struct ibv_send_wr wr_of(uint64_t id, struct ibv_sge *sge,
				enum ibv_wr_opcode op, bool signaled)
{
	struct ibv_send_wr wr = {.wr_id = id,
				 .sg_list = sge,
				 .num_sge = 1,
				 .opcode = op,
				 .send_flags =
					 signaled ? IBV_SEND_SIGNALED : 0};

	wr.wr.rdma.remote_addr = 8 * (id % 4096);
	wr.wr.rdma.rkey = FAKE_REGION;
	return wr;
}

static int post(struct vqp *v, uint64_t id, enum ibv_wr_opcode op,
		bool signaled)
{
	struct ibv_sge sge = sge_of((unsigned)id % 4096);
	struct ibv_send_wr wr = wr_of(id, &sge, op, signaled), *bad;

	return vqp_post_send(v, &wr, &bad);
}

static int post_list(struct vqp *v, uint64_t from, unsigned n,
		     unsigned signal_every)
{
	struct ibv_send_wr wr[VQP_QUEUE], *bad;
	struct ibv_sge sge[VQP_QUEUE];

	for (unsigned i = 0; i < n; i++) {
		sge[i] = sge_of((unsigned)(from + i) % 4096);
		wr[i] = wr_of(from + i, &sge[i], IBV_WR_RDMA_WRITE,
			      signal_every && i % signal_every == 0);
		if (i)
			wr[i - 1].next = &wr[i];
	}
	return vqp_post_send(v, wr, &bad);
}

static bool next_is(struct vqp *v, uint64_t id, enum ibv_wc_status status)
{
	struct ibv_wc wc;

	return vqp_poll(v, 1, &wc) == 1 && wc.wr_id == id &&
	       wc.status == status;
}

static bool nothing(struct vqp *v)
{
	struct ibv_wc wc;

	return vqp_poll(v, 1, &wc) == 0;
}

/* Its peer's region is known: what follows is posted at once. */
static bool meet(struct vqp *v)
{
	if (post(v, 99, IBV_WR_RDMA_READ, true))
		return false;
	settle();
	return next_is(v, 99, IBV_WC_SUCCESS);
}

static void recv_post(struct vqp *v, unsigned n)
{
	struct ibv_sge sge = {(uintptr_t)words, sizeof(words), FAKE_LKEY};
	struct ibv_recv_wr wr = {.sg_list = &sge, .num_sge = 1}, *bad;

	while (n--)
		assert_int_equal(vqp_post_recv(v, &wr, &bad), 0);
}

/* --- the cases ---------------------------------------------------------- */

static bool case_a(void)
{
	struct vqp *v = join(h, 2, 0);
	struct ibv_sge sge = sge_of(1);
	struct ibv_send_wr wr[3], *bad = NULL;
	bool good;

	for (unsigned i = 0; i < 3; i++) {
		wr[i] = wr_of(i, &sge, IBV_WR_RDMA_WRITE, true);
		wr[i].next = i < 2 ? &wr[i + 1] : NULL;
	}
	wr[1].num_sge = (int)VQP_SGES + 1;
	good = vqp_post_send(v, wr, &bad) == -EINVAL && bad == &wr[1];
	good = good && !post(v, 7, IBV_WR_RDMA_READ, true);
	settle();
	return good && next_is(v, 0, IBV_WC_SUCCESS) &&
	       next_is(v, 7, IBV_WC_SUCCESS) && nothing(v);
}

static bool case_b(void)
{
	struct vqp *v = join(h, 2, 0);
	bool good = !post_list(v, 0, 100, 100);

	settle();
	good = good && next_is(v, 0, IBV_WC_SUCCESS) && nothing(v);
	/* no room for ever: it does not wait for ever */
	for (unsigned i = 0; good && i < VQP_QUEUE; i++)
		good = !post(v, i, IBV_WR_RDMA_WRITE, false);
	return good && post(v, 5, IBV_WR_RDMA_WRITE, false) == -ENOMEM &&
	       (settle(), true);
}

static bool case_c(void)
{
	struct vqp *v = join(h, 2, 0);

	for (unsigned i = 0; i < 40; i++) {
		if (post_list(v, i, 3, 0))
			return false;
		if (i % 4 == 3)
			settle();
	}
	/* more than are free: all that the books say, at once */
	settle();
	return !post_list(v, 0, 100, 0) && (settle(), nothing(v));
}

static bool case_d(void)
{
	struct vqp *v = join(h, 2, 0);
	bool good = meet(v) && !post(v, 1, IBV_WR_RDMA_WRITE, true) &&
		    !post(v, 2, IBV_WR_RDMA_WRITE, true);

	fake_step(&h->f, 0);
	vqp_engine_round(&h->e, ++now_ns);
	fake_step(&h->f, 0);
	vqp_engine_round(&h->e, ++now_ns);
	return good && next_is(v, 1, IBV_WC_SUCCESS) &&
	       next_is(v, 2, IBV_WC_SUCCESS);
}

static bool case_e(void)
{
	struct vqp *v[FAKE_DCIS];
	bool good = true;

	for (unsigned i = 0; i < FAKE_DCIS; i++) {
		v[i] = join(h, 2 + i, i);
		good = good && meet(v[i]);
	}
	for (unsigned i = 0; i < FAKE_DCIS; i++)
		good = good && !post_list(v[i], 0, FAKE_SQ, 1);
	while (fake_any(&h->f))
		;
	settle();
	for (unsigned i = 0; good && i < FAKE_DCIS; i++)
		for (unsigned k = 0; good && k < FAKE_SQ; k++)
			good = next_is(v[i], k, IBV_WC_SUCCESS);
	return good;
}

/* What a DCI that was replaced still completes is nobody's. */
static bool case_e2(void)
{
	struct vqp *v = join(h, 2, 0), *w = join(h, 2, 0);
	struct ibv_sge sge = sge_of(1);
	struct ibv_send_wr wr = wr_of(1, &sge, IBV_WR_RDMA_WRITE, true), *bad;
	bool good = true;

	h->f.poll_max = 1; /* the others come after they were posted again */
	wr.wr.rdma.rkey = FAKE_LIE;
	good = !vqp_post_send(v, &wr, &bad);
	for (unsigned k = 0; k < 6; k++)
		good = good && !post(w, k, IBV_WR_RDMA_WRITE, true);
	settle();
	good = good && next_is(v, 1, IBV_WC_REM_ACCESS_ERR);
	for (unsigned k = 0; good && k < 6; k++)
		good = next_is(w, k, IBV_WC_SUCCESS);
	return good && w->state == VQP_CONNECTED && h->f.replaced == 1;
}

static bool case_f(void)
{
	struct vqp *lazy, *keen, *a = join(h, 1, 0), *b = join(h, 1, 0);
	struct vqp_pop_out p;
	unsigned got = 0;
	bool good = true;

	assert_int_equal(vqp_new(&far->e, &lazy), 0);
	assert_int_equal(vqp_new(&far->e, &keen), 0);
	assert_int_equal(vqp_bind(lazy, 9), 0);
	assert_int_equal(vqp_bind(keen, 10), 0);
	b->far_port = 10;
	recv_post(keen, 60);
	for (unsigned i = 0; i < 60; i++) {
		good = good && !post(a, i, IBV_WR_SEND, true) &&
		       !post(b, i, IBV_WR_SEND, true);
		settle();
		while (vqp_pop(keen, &p))
			got++;
	}
	settle();
	/* the lazy one has its window; the keen one has all */
	good = good && got == 60 && !far->e.counts.garbage;
	for (unsigned i = 0; good && i < VQP_WINDOW; i++)
		good = next_is(a, i, IBV_WC_SUCCESS);
	good = good && nothing(a);
	recv_post(lazy, 60);
	for (unsigned i = 0; i < 60; i++) {
		while (vqp_pop(lazy, &p))
			got++;
		settle();
	}
	return good && got == 120;
}

/* One message, and many answers. */
static bool case_f2(void)
{
	struct vqp *bound, *a = join(h, 1, 0);
	struct vqp_pop_out p;
	bool good;

	assert_int_equal(vqp_new(&far->e, &bound), 0);
	assert_int_equal(vqp_bind(bound, 9), 0);
	recv_post(bound, 1);
	good = !post(a, 0, IBV_WR_SEND, false);
	settle();
	good = good && vqp_pop(bound, &p);
	for (unsigned i = 0; good && i < 60; i++) {
		recv_post(a, 1);
		good = !post(p.from, i, IBV_WR_SEND, true);
		settle();
		good = good && next_is(a, 0, IBV_WC_SUCCESS);
		settle(); /* a's credit */
		good = good && next_is(p.from, i, IBV_WC_SUCCESS);
	}
	return good && !far->e.counts.garbage;
}

static bool case_g(void)
{
	struct vqp *v = join(h, 2, 0), *w = join(h, 3, 0);
	bool good = true;

	for (unsigned i = 0; i < 30; i++)
		good = good && !post(v, i, IBV_WR_RDMA_WRITE, true) &&
		       !post(w, i, IBV_WR_RDMA_WRITE, true);
	settle();
	for (unsigned i = 0; good && i < 30; i++)
		good = next_is(v, i, IBV_WC_SUCCESS) &&
		       next_is(w, i, IBV_WC_SUCCESS);
	return good;
}

/* A peer dies: only vqps to it see errors. Nobody is kept out by others. */
static bool case_g2(void)
{
	struct vqp *v = join(h, 2, 0), *w = join(h, 3, 0), *u = join(h, 2, 0);
	struct vqp_peer *p = v->peer;
	bool good;

	nodes[2].dead = true;
	good = !post(v, 1, IBV_WR_RDMA_WRITE, true) &&
	       !post(u, 2, IBV_WR_RDMA_WRITE, false) &&
	       !post(w, 3, IBV_WR_RDMA_WRITE, true);
	settle();
	good = good && next_is(v, 1, IBV_WC_RETRY_EXC_ERR) &&
	       next_is(u, 2, IBV_WC_RETRY_EXC_ERR) &&
	       next_is(w, 3, IBV_WC_SUCCESS) && p->stale &&
	       v->state == VQP_ERROR && w->state == VQP_CONNECTED;
	/* and in error all is flushed */
	return good && !post(v, 4, IBV_WR_RDMA_WRITE, true) &&
	       next_is(v, 4, IBV_WC_WR_FLUSH_ERR);
}

/* Adds 1 to the word at 8. */
static int add(struct vqp *v, uint64_t id)
{
	struct ibv_sge sge = sge_of(1);
	struct ibv_send_wr wr =
		wr_of(id, &sge, IBV_WR_ATOMIC_FETCH_AND_ADD, true);
	struct ibv_send_wr *bad;

	wr.wr.atomic.remote_addr = 8;
	wr.wr.atomic.compare_add = 1;
	wr.wr.atomic.rkey = FAKE_REGION;
	return vqp_post_send(v, &wr, &bad);
}

static uint64_t sum_of(unsigned node)
{
	uint64_t n;

	memcpy(&n, nodes[node].mem + 8, sizeof(n));
	return n;
}

/* The device refuses a post once, while requests are outstanding that it has
 * carried out: they complete, once. */
static bool case_h(void)
{
	struct vqp *v = join(h, 2, 0), *w = join(h, 2, 0);
	bool good = meet(v);

	for (unsigned i = 0; i < 3; i++)
		good = good && !add(v, i);
	while (fake_any(&h->f)) /* their completions are not polled */
		;
	h->f.refuse = 2;
	good = good && !post_list(w, 10, 5, 1);
	settle();
	for (unsigned i = 0; good && i < 3; i++)
		good = next_is(v, i, IBV_WC_SUCCESS);
	for (unsigned i = 10; good && i < 15; i++)
		good = next_is(w, i, IBV_WC_SUCCESS);
	return good && sum_of(2) == 3 && !h->f.replaced;
}

/* It refuses all and completes nothing any more: what was posted ends as
 * unknown, what was not is posted to the DCI in its place. READs may be carried
 * out twice. */
static bool case_h2(void)
{
	struct vqp *v = join(h, 2, 0), *w = join(h, 2, 0), *r = join(h, 2, 0);
	bool good = meet(v);

	good = good && !add(v, 1) && !add(v, 2) &&
	       !post(r, 3, IBV_WR_RDMA_READ, true);
	h->f.stuck[0] = true;
	good = good && !post(w, 4, IBV_WR_RDMA_WRITE, true);
	settle();
	good = good && nothing(v) && nothing(w) && !h->f.replaced;
	now_ns += REGION_RETRY_NS;
	settle();
	return good && next_is(v, 1, IBV_WC_WR_FLUSH_ERR) &&
	       next_is(v, 2, IBV_WC_WR_FLUSH_ERR) &&
	       next_is(r, 3, IBV_WC_SUCCESS) && next_is(w, 4, IBV_WC_SUCCESS) &&
	       sum_of(2) == 2 && v->state == VQP_ERROR &&
	       w->state == VQP_CONNECTED && h->f.replaced == 1;
}

/* A request that the device never accepts fails alone. */
static bool case_h3(void)
{
	struct vqp *v = join(h, 2, 0), *w = join(h, 2, 0);
	bool good = meet(v);

	h->f.refuse_at = 8 * 12;
	good = good && !post_list(w, 20, 3, 1) && !post_list(v, 10, 5, 1) &&
	       !post_list(w, 23, 3, 1);
	settle();
	good = good && next_is(v, 10, IBV_WC_SUCCESS) &&
	       next_is(v, 11, IBV_WC_SUCCESS) &&
	       next_is(v, 12, IBV_WC_LOC_QP_OP_ERR) &&
	       next_is(v, 13, IBV_WC_WR_FLUSH_ERR);
	for (unsigned i = 20; good && i < 26; i++)
		good = next_is(w, i, IBV_WC_SUCCESS);
	return good && w->state == VQP_CONNECTED && h->f.replaced <= 1;
}

/* The error says nothing of those behind: they may have been carried out. */
static bool case_h4(void)
{
	struct vqp *v = join(h, 2, 0), *w = join(h, 2, 0);
	bool good =
		meet(v) && !post(v, 1, IBV_WR_RDMA_READ, true) && !add(w, 2);

	h->f.breaks = IBV_WC_LOC_PROT_ERR;
	settle();
	return good && next_is(v, 1, IBV_WC_LOC_PROT_ERR) &&
	       next_is(w, 2, IBV_WC_WR_FLUSH_ERR) && !sum_of(2);
}

static bool case_sum(void)
{
	struct meta_node meta = nodes[5].id;
	struct vqp *v;
	uint32_t at[2];
	bool good;

	meta_places(nodes[3].id.gid, nodes[3].id.port, 64, at);
	meta_encode(&nodes[3].id, nodes[5].mem + (1 + at[0]) * META_RECORD);
	nodes[5].mem[(1 + at[0]) * META_RECORD + 30] ^= 1;
	assert_int_equal(vqp_engine_meta(&h->e, 0, &meta, 0, FAKE_RKEY, 64), 0);
	assert_int_equal(vqp_new(&h->e, &v), 0);
	good = vqp_connect(v, nodes[3].id.gid, nodes[3].id.port, 9) ==
	       -EINPROGRESS;
	while (fake_any(&h->f))
		;
	vqp_engine_round(&h->e, ++now_ns);
	vqp_engine_round(&h->e, ++now_ns);
	/* whole again, and read again at once */
	nodes[5].mem[(1 + at[0]) * META_RECORD + 30] ^= 1;
	while (fake_any(&h->f))
		;
	vqp_engine_round(&h->e, ++now_ns);
	vqp_engine_round(&h->e, ++now_ns);
	return good && v->state == VQP_CONNECTED && v->peer->node.key == 8 &&
	       h->e.counts.lookups_torn == 1;
}

/* --- two meta servers: nodes 4 and 5 ------------------------------------ */

static void metas_open(void)
{
	/* by their numbers they would share DCIs */
	nodes[5].id.key = nodes[4].id.key ^ nodes[4].id.dctn ^ nodes[5].id.dctn;
	for (unsigned i = 0; i < 2; i++)
		assert_int_equal(vqp_engine_meta(&h->e, i, &nodes[4 + i].id, 0,
						 FAKE_RKEY, 64),
				 0);
}

static uint8_t *record_at(unsigned meta, unsigned node, unsigned which)
{
	uint32_t at[2];

	meta_places(nodes[node].id.gid, nodes[node].id.port, 64, at);
	return nodes[meta].mem + (size_t)(1 + at[which]) * META_RECORD;
}

static struct vqp *look_up(unsigned node)
{
	struct vqp *v;

	vqp_engine_at(&h->e, now_ns);
	assert_int_equal(vqp_new(&h->e, &v), 0);
	vqp_connect(v, nodes[node].id.gid, nodes[node].id.port, 9);
	return v;
}

/* All DCIs, but what is under way to a node that is slow. */
static void work(void)
{
	for (unsigned i = 0; i < 8; i++) {
		while (fake_any(&h->f))
			;
		vqp_engine_round(&h->e, now_ns);
	}
}

/* The first is slow: the second is asked when it is time, and not before. What
 * the first one says later is nobody's. */
static bool case_meta_wait(void)
{
	struct vqp_lookup was;
	struct vqp *v;
	bool good;

	metas_open();
	meta_encode(&nodes[3].id, record_at(4, 3, 0));
	meta_encode(&nodes[3].id, record_at(5, 3, 1));
	nodes[4].slow = true;
	v = look_up(3);
	work();
	good = v->state == VQP_LOOKS_UP && h->e.counts.lookups == 1;
	now_ns += VQP_LOOKUP_WAIT_NS - 1;
	work();
	good = good && v->state == VQP_LOOKS_UP && h->e.counts.lookups == 1;
	now_ns++;
	work();
	good = good && v->state == VQP_CONNECTED && h->e.counts.lookups == 2;
	was = v->lookup;
	nodes[4].slow = false;
	work();
	return good && !memcmp(&was, &v->lookup, sizeof(was));
}

/* The first is empty, or dead: the second is asked at once. Both know nothing:
 * both are asked again, in time. */
static bool case_meta_nobody(void)
{
	struct vqp_peer *p;
	struct vqp *v;
	bool good;

	metas_open();
	meta_encode(&nodes[3].id, record_at(5, 3, 1));
	v = look_up(3);
	work();
	good = v->state == VQP_CONNECTED && h->e.counts.lookups == 2;
	v = look_up(2);
	work();
	good = good && v->state == VQP_LOOKS_UP && h->e.counts.lookups == 4;
	now_ns += VQP_LOOKUP_AGAIN_NS;
	work();
	good = good && v->state == VQP_LOOKS_UP && h->e.counts.lookups == 6;
	nodes[4].dead = true;
	meta_encode(&nodes[2].id, record_at(5, 2, 0));
	now_ns += VQP_LOOKUP_AGAIN_NS;
	work();
	good = good && v->state == VQP_CONNECTED && vqp_engine_has_meta(&h->e);
	/* and nobody is left; what is known goes on */
	nodes[5].dead = true;
	p = vqp_peer_find(&h->e, nodes[3].id.gid, nodes[3].id.port);
	if (!good || !p)
		return false;
	vqp_peer_forget(&h->e, p);
	look_up(3);
	work();
	good = good && !vqp_engine_has_meta(&h->e) &&
	       !post(v, 1, IBV_WR_RDMA_WRITE, true);
	work();
	return good && next_is(v, 1, IBV_WC_SUCCESS);
}

/* Torn three times: the second is asked, before it is time. */
static bool case_meta_torn(void)
{
	struct vqp *v;

	metas_open();
	meta_encode(&nodes[3].id, record_at(4, 3, 0));
	meta_encode(&nodes[3].id, record_at(5, 3, 0));
	record_at(4, 3, 0)[30] ^= 1;
	v = look_up(3);
	work();
	return v->state == VQP_CONNECTED &&
	       h->e.counts.lookups_torn == VQP_TORN_MAX &&
	       h->e.counts.garbage == 1;
}

/* A server that goes and comes back while it is asked. */
static bool case_meta_anew(void)
{
	struct vqp *v;

	metas_open();
	meta_encode(&nodes[3].id, record_at(4, 3, 0));
	nodes[4].slow = true;
	v = look_up(3);
	work();
	assert_int_equal(
		vqp_engine_meta(&h->e, 0, &nodes[4].id, 0, FAKE_RKEY, 64), 0);
	nodes[4].slow = false;
	work();
	now_ns += VQP_LOOKUP_AGAIN_NS;
	work();
	return v->state == VQP_CONNECTED;
}

/* Of a node's region: its record is not there, torn, or says less. */
static bool refused(struct vqp *v, uint64_t id, uint32_t rkey, uint64_t at,
		    enum ibv_wr_opcode op)
{
	struct ibv_sge sge = sge_of(1);
	struct ibv_send_wr wr = wr_of(id, &sge, op, true), *bad;

	wr.wr.rdma.rkey = rkey;
	wr.wr.rdma.remote_addr = at;
	if (vqp_post_send(v, &wr, &bad))
		return false;
	settle();
	return next_is(v, id, IBV_WC_REM_ACCESS_ERR) && !h->f.replaced;
}

static bool case_region(void)
{
	struct vqp *w = join(h, 2, 0);
	bool good = !post(w, 1, IBV_WR_RDMA_WRITE, true);

	settle();
	good = good && next_is(w, 1, IBV_WC_SUCCESS) &&
	       h->e.counts.region_reads == 1;
	good = good && refused(join(h, 2, 0), 2, 0x10005, 0, IBV_WR_RDMA_READ);
	good = good && refused(join(h, 2, 0), 3, 0x20001, 0, IBV_WR_RDMA_READ);
	good = good && refused(join(h, 2, 0), 4, 1, 0, IBV_WR_RDMA_READ);
	good = good && refused(join(h, 2, 0), 5, FAKE_RO, 0, IBV_WR_RDMA_WRITE);
	good = good && refused(join(h, 2, 0), 6, FAKE_REGION, FAKE_TABLE - 7,
			       IBV_WR_RDMA_READ);
	good = good && refused(join(h, 2, 0), 7, FAKE_REGION, UINT64_MAX - 3,
			       IBV_WR_RDMA_READ);
	/* what was not there is there now */
	fake_region(&nodes[2], 0x10005, FAKE_RKEY, IBV_ACCESS_REMOTE_READ);
	vqp_engine_at(&h->e, ++now_ns);
	nodes[2].mem[FAKE_TABLE - 8] = 77;
	words[1] = 0;
	if (good) {
		struct ibv_sge sge = sge_of(1);
		struct ibv_send_wr wr = wr_of(8, &sge, IBV_WR_RDMA_READ, true);
		struct ibv_send_wr *bad;

		wr.wr.rdma.rkey = 0x10005;
		wr.wr.rdma.remote_addr = FAKE_TABLE - 8;
		good = !vqp_post_send(w, &wr, &bad);
		settle();
	}
	return good && next_is(w, 8, IBV_WC_SUCCESS) && words[1] == 77 &&
	       w->state == VQP_CONNECTED;
}

static bool case_region_sum(void)
{
	uint8_t *r = nodes[2].mem + FAKE_TABLE + REGION_RECORD;
	struct vqp *v = join(h, 2, 0);
	bool good;

	r[30] ^= 1;
	good = !post(v, 1, IBV_WR_RDMA_WRITE, true);
	while (fake_any(&h->f))
		;
	vqp_engine_round(&h->e, ++now_ns);
	r[30] ^= 1;
	settle();
	return good && next_is(v, 1, IBV_WC_SUCCESS) &&
	       h->e.counts.region_reads == 2;
}

/* A vqp reaches what is of the domain of its port, or of its sender; others, and
 * one that is connected to a port that nobody has bound, do not. */
static bool case_domain(void)
{
	uint8_t *ports = nodes[2].mem + FAKE_TABLE + REGION_PORTS_AT;
	struct vqp *v[4];
	bool good = true;

	for (unsigned i = 0; i < 4; i++) {
		v[i] = join(h, 2, 0);
		v[i]->far_port = (uint16_t)(9 + i);
	}
	ports[2 * 9] = ports[2 * 12] = 3;
	ports[2 * 10] = 4;
	for (unsigned i = 0; i < 2 && good; i++) {
		struct ibv_sge sge = sge_of(1);
		struct ibv_send_wr wr = wr_of(1, &sge, IBV_WR_RDMA_READ, true);
		struct ibv_send_wr *bad;

		wr.wr.rdma.rkey = FAKE_DOMAIN;
		good = !vqp_post_send(v[0], &wr, &bad);
		settle();
		good = good && next_is(v[0], 1, IBV_WC_SUCCESS);
	}
	good = good && refused(v[1], 2, FAKE_DOMAIN, 0, IBV_WR_RDMA_READ);
	good = good && refused(v[2], 3, FAKE_DOMAIN, 0, IBV_WR_RDMA_WRITE);
	/* a sender's: its header said another one */
	v[3]->knows_domain = true;
	v[3]->far_domain = 4;
	return good && refused(v[3], 4, FAKE_DOMAIN, 0, IBV_WR_RDMA_READ);
}

static void later(uint64_t ns)
{
	now_ns += ns;
	vqp_engine_at(&h->e, now_ns);
}

/* The record is gone: a request later than the lease says is not posted. */
static bool case_lease(void)
{
	struct vqp *v = join(h, 2, 0);
	bool good;

	good = meet(v);
	memset(nodes[2].mem + FAKE_TABLE + REGION_RECORD, 0, REGION_RECORD);
	later(REGION_USE_NS);
	good = good && !post(v, 2, IBV_WR_RDMA_WRITE, true);
	settle();
	return good && next_is(v, 2, IBV_WC_REM_ACCESS_ERR) && !h->f.replaced;
}

/* It begins when the READ is posted, however late the answer is seen. */
static bool case_lease_late(void)
{
	struct vqp *v = join(h, 2, 0);
	bool good;

	good = !post(v, 1, IBV_WR_RDMA_WRITE, true);
	while (fake_any(&h->f)) /* the READ; its answer is not polled */
		;
	memset(nodes[2].mem + FAKE_TABLE + REGION_RECORD, 0, REGION_RECORD);
	later(REGION_USE_NS);
	settle();
	return good && next_is(v, 1, IBV_WC_REM_ACCESS_ERR) && !h->f.replaced;
}

/* --- a random run ------------------------------------------------------- */

#define VQPS 12u
#define ADDS_AT 40000u /* behind what the others write to */

struct plan {
	struct vqp *v;
	uint64_t next, id; /* to be polled, to be posted */
	unsigned node, at;
	uint64_t adds; /* to its own word, of the requests accepted */
	bool wrong;    /* it did something wrong, or its peer died */
	uint64_t expect[VQP_QUEUE * 4];
	uint32_t head, tail;
};

static bool plan_post(struct plan *p, struct prng *rng)
{
	static const enum ibv_wr_opcode ops[] = {IBV_WR_RDMA_WRITE,
						 IBV_WR_RDMA_READ,
						 IBV_WR_RDMA_WRITE,
						 IBV_WR_ATOMIC_FETCH_AND_ADD};
	static const uint32_t wrong[] = {FAKE_LIE, FAKE_RO, 0x10005};
	struct ibv_send_wr wr[40], *bad = NULL, *w;
	struct ibv_sge sge[40];
	unsigned n = 1 + (unsigned)prng_below(rng, 40), i;
	int err;

	for (i = 0; i < n; i++) {
		sge[i] = sge_of((unsigned)prng_below(rng, 4096));
		wr[i] = wr_of(p->id + i, &sge[i], ops[prng_below(rng, 4)],
			      prng_below(rng, 2));
		if (wr[i].opcode >= IBV_WR_ATOMIC_CMP_AND_SWP) {
			wr[i].wr.atomic.remote_addr = ADDS_AT + 8 * p->at;
			wr[i].wr.atomic.compare_add = 1;
			wr[i].wr.atomic.rkey = FAKE_REGION;
		}
		wr[i].next = i + 1 < n ? &wr[i + 1] : NULL;
	}
	if (!prng_below(rng, 40)) {
		wr[n / 2].wr.rdma.rkey = wrong[prng_below(rng, 3)];
		wr[n / 2].opcode = IBV_WR_RDMA_WRITE;
		p->wrong = true;
	} else if (!prng_below(rng, 20)) {
		wr[n / 2].num_sge = -1;
	}
	err = vqp_post_send(p->v, wr, &bad);
	for (w = wr; w && (!err || w != bad); w = w->next) {
		p->adds += w->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
		if (w->send_flags & IBV_SEND_SIGNALED)
			p->expect[p->tail++ % (VQP_QUEUE * 4)] = w->wr_id;
	}
	p->id += n;
	return !err || err == -EINVAL || err == -ENOMEM;
}

static bool plan_poll(struct plan *p)
{
	struct ibv_wc wc;

	while (vqp_poll(p->v, 1, &wc) == 1) {
		if (wc.status != IBV_WC_SUCCESS) {
			if (!p->wrong && !nodes[p->node].dead)
				return false; /* an error of somebody else's */
			continue;
		}
		if (p->head == p->tail ||
		    p->expect[p->head++ % (VQP_QUEUE * 4)] != wc.wr_id)
			return false;
	}
	return true;
}

/* Each request was carried out once; of those that ended in error, at most. */
static bool plan_once(const struct plan *p)
{
	uint64_t sum;

	memcpy(&sum, nodes[p->node].mem + ADDS_AT + 8ul * p->at, 8);
	return p->v->state == VQP_CONNECTED ? sum == p->adds : sum <= p->adds;
}

static bool random_run(uint64_t seed)
{
	struct plan p[VQPS] = {0};
	struct prng rng;
	bool good = true;

	prng_init(&rng, seed);
	for (unsigned i = 0; i < VQPS; i++) {
		p[i].node = 2 + i % 4;
		p[i].at = i;
		p[i].v = join(h, p[i].node, (unsigned)prng_below(&rng, 2));
	}
	for (unsigned k = 0; good && k < 400; k++) {
		struct plan *q = &p[prng_below(&rng, VQPS)];

		if (q->v->state == VQP_CONNECTED)
			good = plan_post(q, &rng);
		for (uint64_t i = prng_below(&rng, 30); i; i--)
			fake_any(&h->f);
		if (prng_below(&rng, 2))
			vqp_engine_round(&h->e, ++now_ns);
		if (prng_below(&rng, 2))
			good = good && plan_poll(&p[prng_below(&rng, VQPS)]);
		if (k == 300)
			nodes[2].dead = true;
		if (!prng_below(&rng, 30))
			h->f.refuse = 1;
		good = good && !h->f.wrong[0];
	}
	settle();
	for (unsigned i = 0; good && i < VQPS; i++) {
		good = plan_poll(&p[i]);
		if (good && p[i].v->state == VQP_CONNECTED)
			good = p[i].head == p[i].tail;
		good = good && plan_once(&p[i]);
	}
	return good;
}

/* --- with and without the mistake --------------------------------------- */

static const struct {
	const char *name;
	bool (*run)(void);
	unsigned plant;
} cases[] = {
	{"a: the list is checked first", case_a, VQP_PLANT_A},
	{"b: long lists are cut", case_b, VQP_PLANT_B},
	{"c: the last one is counted once", case_c, VQP_PLANT_C},
	{"d: the oldest is marked", case_d, VQP_PLANT_D},
	{"e: the CQ is counted", case_e, VQP_PLANT_E},
	{"e: generations", case_e2, VQP_PLANT_E2},
	{"f: credits", case_f, VQP_PLANT_F},
	{"f: credits of answers", case_f2, VQP_PLANT_F2},
	{"g: one target at a time", case_g, VQP_PLANT_G},
	{"g: others see no error", case_g2, VQP_PLANT_G2},
	{"h: what is outstanding goes on", case_h, VQP_PLANT_H},
	{"h: or ends as unknown", case_h2, VQP_PLANT_H2},
	{"h: a refused request fails alone", case_h3, VQP_PLANT_H3},
	{"h: others behind an error may be done", case_h4, VQP_PLANT_H2},
	{"the checksum", case_sum, VQP_PLANT_SUM},
	{"meta: the other is asked in time", case_meta_wait,
	 VQP_PLANT_META_WAIT},
	{"meta: each has a DCI of its own", case_meta_wait, VQP_PLANT_META_DCI},
	{"meta: a late answer is nobody's", case_meta_wait,
	 VQP_PLANT_META_LATE},
	{"meta: one may not know", case_meta_nobody, VQP_PLANT_META_NOBODY},
	{"meta: one may be torn", case_meta_torn, VQP_PLANT_META_TORN},
	{"meta: a server that is met anew", case_meta_anew,
	 VQP_PLANT_META_ANEW},
	{"regions: ranges and rights", case_region, VQP_PLANT_REGION},
	{"regions: the checksum", case_region_sum, VQP_PLANT_REGION_SUM},
	{"regions: domains", case_domain, VQP_PLANT_DOMAIN},
	{"regions: a lease ends", case_lease, VQP_PLANT_LEASE},
	{"regions: it begins with the post", case_lease_late,
	 VQP_PLANT_LEASE_LATE},
};

#define N_CASES (sizeof(cases) / sizeof(cases[0]))

static bool run(unsigned i, unsigned plant)
{
	open_all(i + 1, plant);
	return close_all(cases[i].run());
}

static void test_cases(void **state)
{
	for (unsigned i = 0; i < N_CASES; i++) {
		bool good = run(i, 0);

		if (!good)
			print_message("%s\n", cases[i].name);
		assert_true(good);
	}
}

/* In a child: it may end in an assertion. */
static bool fails(unsigned i, unsigned plant)
{
	int status;
	pid_t pid = fork();

	if (pid == 0) {
		freopen("/dev/null", "w", stderr);
		signal(SIGABRT, SIG_DFL);
		alarm(20);
		_exit(run(i, plant) ? 0 : 1);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return !WIFEXITED(status) || WEXITSTATUS(status);
}

static void test_plants(void **state)
{
	for (unsigned i = 0; i < N_CASES; i++) {
		bool found = fails(i, cases[i].plant);

		if (!found)
			print_message("not found: %s\n", cases[i].name);
		assert_true(found);
	}
}

static void test_random(void **state)
{
	const char *env = getenv("SKEIN_TEST_SEEDS");
	uint64_t n = env ? (uint64_t)atoll(env) : part_is_whole() ? 1000 : 300;

	for (uint64_t seed = 1; seed <= n; seed++) {
		bool good;

		open_all(seed, 0);
		good = close_all(random_run(seed));
		if (!good)
			print_message("seed %lu\n", (unsigned long)seed);
		assert_true(good);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_cases),
		cmocka_unit_test(test_plants),
		cmocka_unit_test(test_random),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
