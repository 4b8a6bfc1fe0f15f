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

static void open_all(uint64_t seed, enum vqp_plant plant)
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
		if (e->qp[i].sq_used || e->qp[i].n_posted)
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
	v->far_port = 9;
	v->by_port = true;
	vqp_join(v, p);
	v->dci = v->qp = dci;
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

static void later(uint64_t ns)
{
	now_ns += ns;
	vqp_engine_at(&h->e, now_ns);
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

/* The receiver frees the vqp that messages made again and again, before it has
 * told what it has taken. */
static bool case_f4(void)
{
	struct vqp *bound, *a = join(h, 1, 0);
	struct vqp_pop_out p;
	bool good = true;

	assert_int_equal(vqp_new(&far->e, &bound), 0);
	assert_int_equal(vqp_bind(bound, 9), 0);
	for (unsigned i = 0; good && i < 60; i++) {
		recv_post(bound, 1);
		good = !post(a, i, IBV_WR_SEND, true);
		settle();
		good = good && vqp_pop(bound, &p);
		settle();
		good = good && next_is(a, i, IBV_WC_SUCCESS);
		if (good && i % 7 == 6)
			vqp_close(p.from);
	}
	return good && !h->e.counts.garbage;
}

/* As many messages as may be under way, and one more, which waits. The receiver
 * takes n; *from: its vqp. */
static bool fill(struct vqp *a, unsigned n, struct vqp **from)
{
	struct vqp *bound;
	struct vqp_pop_out p;
	bool good = true;

	assert_int_equal(vqp_new(&far->e, &bound), 0);
	assert_int_equal(vqp_bind(bound, 9), 0);
	recv_post(bound, 60);
	for (unsigned i = 0; i <= VQP_WINDOW; i++)
		good = good && !post(a, i, IBV_WR_SEND, true);
	settle();
	while (good && n--) {
		good = vqp_pop(bound, &p);
		*from = p.from;
	}
	for (unsigned i = 0; good && i < VQP_WINDOW; i++)
		good = next_is(a, i, IBV_WC_SUCCESS);
	return good;
}

/* All slots of the receiver are taken by another vqp, or free again. */
static struct vqp_slot *held[VQP_SLOTS + 1];
static unsigned n_held;

static void slots_take(void)
{
	struct vqp *other = join(far, 2, 1);

	for (n_held = 0; (held[n_held] = vqp_slot_get(other)); n_held++)
		;
}

static void slots_give(void)
{
	while (n_held)
		vqp_slot_put(&far->e, held[--n_held]);
}

/* A vqp owes credit when it is closed, and there is no slot at first. */
static bool case_f5(void)
{
	struct vqp *a = join(h, 1, 0), *from = NULL;
	bool good = fill(a, VQP_WINDOW / 2 - 1, &from);
	struct vqp_pop_out p;

	slots_take();
	while (good && vqp_pop(from->bound, &p))
		;
	good = good && vqp_credit_due(from) && !from->credit_out;
	if (good)
		vqp_close(from);
	settle();
	good = good && nothing(a);
	slots_give();
	settle();
	return good && next_is(a, VQP_WINDOW, IBV_WC_SUCCESS);
}

/* The receiver's vqp fails: it tells nothing any more, so its sender has an error
 * too. */
static bool case_ask(void)
{
	struct vqp *a = join(h, 1, 0), *from = NULL;

	if (!fill(a, VQP_WINDOW / 2 - 1, &from))
		return false;
	vqp_fail(from, IBV_WC_LOC_PROT_ERR);
	settle();
	if (!nothing(a))
		return false;
	later(VQP_ASK_NS);
	settle();
	return next_is(a, VQP_WINDOW, IBV_WC_REM_OP_ERR) &&
	       a->state == VQP_ERROR;
}

/* The same of answers: the vqp that messages made asks. */
static bool case_ask_back(void)
{
	struct vqp *a = join(h, 1, 0), *from = NULL;
	bool good = fill(a, 1, &from);

	vqp_fail(a, IBV_WC_LOC_PROT_ERR);
	for (unsigned i = 0; good && i <= VQP_WINDOW; i++)
		good = !post(from, i, IBV_WR_SEND, true);
	settle();
	later(VQP_ASK_NS);
	settle();
	for (unsigned i = 0; good && i < VQP_WINDOW; i++)
		good = next_is(from, i, IBV_WC_SUCCESS);
	return good && next_is(from, VQP_WINDOW, IBV_WC_REM_OP_ERR);
}

/* The receiver's node dies, when all that was sent has arrived. */
static bool case_ask_dead(void)
{
	struct vqp *a = join(h, 1, 0), *from = NULL;
	bool good = fill(a, 1, &from);

	nodes[1].dead = true;
	later(VQP_ASK_NS);
	settle();
	return good && next_is(a, VQP_WINDOW, IBV_WC_RETRY_EXC_ERR);
}

/* The receiver has no memory for a message, nor to say so: those behind it wait
 * for ever. */
static bool case_ask_lost(void)
{
	struct vqp *a = join(h, 1, 0), *from = NULL;
	struct vqp_pop_out p;
	bool good = fill(a, 1, &from);

	later(VQP_ASK_NS); /* the next one leaves, and is lost */
	far->f.fail_alloc = 1;
	far->e.ending = true;
	settle();
	far->e.ending = false;
	good = good && next_is(a, VQP_WINDOW, IBV_WC_SUCCESS) && nothing(a);
	while (good && vqp_pop(from->bound, &p))
		;
	for (unsigned i = 1; good && i <= VQP_WINDOW; i++)
		good = !post(a, VQP_WINDOW + i, IBV_WR_SEND, false);
	settle();
	later(VQP_ASK_NS);
	settle();
	return good && a->state == VQP_ERROR;
}

/* A message of a, or its question what was taken of so many. */
static void hear(const struct vqp *a, uint16_t kind, uint32_t seq)
{
	struct msg_head m = {.kind = kind,
			     .asks = kind == MSG_KIND_CREDIT,
			     .dst_port = 9,
			     .src = nodes[0].id,
			     .src_vqp = a->id,
			     .src_gen = a->gen,
			     .seq = seq};
	uint8_t buf[MSG_HEADER];

	msg_head_encode(&m, buf);
	vqp_engine_receive(&far->e, buf, sizeof(buf));
}

/* So is a message that its sender had no credit for. */
static bool case_ask_garbage(void)
{
	struct vqp *a = join(h, 1, 0), *from = NULL;
	bool good = fill(a, 1, &from);

	if (!good)
		return false;
	hear(a, MSG_KIND_DATA, from->taken + VQP_WINDOW);
	hear(a, MSG_KIND_CREDIT, from->taken + VQP_WINDOW + 1);
	settle();
	return far->e.counts.garbage == 1 && a->state == VQP_ERROR;
}

/* Questions come by one queue pair and messages by another, in any order: a
 * question before the last message that it counts, and one behind a message that
 * was sent after it. Both are answered. */
static bool case_ask_ahead(void)
{
	struct vqp *a = join(h, 1, 0), *from = NULL;
	bool good = fill(a, 1, &from);

	if (!good)
		return false;
	hear(a, MSG_KIND_CREDIT, a->sent + 1);
	settle();
	good = next_is(a, VQP_WINDOW, IBV_WC_SUCCESS) &&
	       from->expect == a->sent;
	hear(a, MSG_KIND_CREDIT, a->sent - 1);
	good = good && from->credit_out;
	settle();
	return good && a->state == VQP_CONNECTED;
}

/* What the receiver's vqp owes is lost with it: the next one tells it. */
static bool case_ask_freed(void)
{
	struct vqp *a = join(h, 1, 0), *from = NULL;
	bool good = fill(a, VQP_WINDOW, &from);

	vqp_free(from);
	later(VQP_ASK_NS);
	settle();
	return good && next_is(a, VQP_WINDOW, IBV_WC_SUCCESS) &&
	       !far->e.counts.garbage && !far->e.counts.dropped;
}

/* --- the end of a vqp ---------------------------------------------------- */

/* The receiver of n messages of a's. */
static struct vqp *ear(struct vqp *a, unsigned n)
{
	struct vqp *bound;

	assert_int_equal(vqp_new(&far->e, &bound), 0);
	assert_int_equal(vqp_bind(bound, 9), 0);
	recv_post(bound, 2 * n);
	for (unsigned i = 0; i < n; i++)
		assert_int_equal(post(a, i, IBV_WR_SEND, false), 0);
	settle();
	return bound;
}

/* A vqp is freed: its other end's program hears so behind all messages, in a
 * receive, once; what it posts on its vqp then fails. */
static bool told(struct vqp *bound, unsigned n)
{
	struct vqp_pop_out p = {0};
	struct vqp *from = NULL;
	bool good = true;

	for (unsigned i = 0; good && i < n; i++)
		good = vqp_pop(bound, &p) && !p.status;
	if (!good)
		return false;
	from = p.from;
	from->ours = false; /* its front knows it */
	good = good && vqp_pop(bound, &p) && p.status == -ECONNRESET &&
	       p.from == from && !p.len && !vqp_pop(bound, &p) &&
	       bound->recv_tail - bound->recv_head == n - 1;
	if (!good)
		return false;
	good = !post(from, 1, IBV_WR_SEND, true) &&
	       !post(from, 2, IBV_WR_SEND, true);
	settle();
	good = good && next_is(from, 1, IBV_WC_REM_OP_ERR) &&
	       next_is(from, 2, IBV_WC_WR_FLUSH_ERR);
	vqp_free(from);
	settle();
	return good && list_empty(&h->e.closing);
}

static bool case_ends(void)
{
	struct vqp *a = join(h, 1, 0), *bound = ear(a, 3);

	vqp_free(a);
	settle();
	return told(bound, 3);
}

/* It has failed before, and what waits in it is dropped. */
static bool case_ends_failed(void)
{
	struct vqp *a = join(h, 1, 0), *bound = ear(a, VQP_WINDOW);

	for (unsigned i = 0; i < 5; i++)
		if (post(a, i, IBV_WR_SEND, false))
			return false;
	settle();
	vqp_fail(a, IBV_WC_LOC_PROT_ERR);
	vqp_close(a);
	settle();
	return told(bound, VQP_WINDOW);
}

/* A neighbour breaks their DCI: of the last message before the end nobody knows,
 * and the end is told all the same, behind what has come. */
static bool case_ends_behind(void)
{
	struct vqp *a = join(h, 1, 0), *w = join(h, 1, 0), *bound = ear(a, 1);
	bool good = !post(w, 1, IBV_WR_SEND, true) &&
		    !post(a, 1, IBV_WR_SEND, true);
	struct vqp_pop_out p;
	struct vqp *from;

	vqp_close(a);
	good = good && h->e.closing.next != &h->e.closing;
	recv_post(bound, 2);
	h->f.breaks = IBV_WC_GENERAL_ERR;
	settle();
	good = good && vqp_pop(bound, &p) && !p.status;
	if (!good)
		return false;
	from = p.from;
	from->ours = false;
	while (vqp_pop(bound, &p) && p.from != from)
		;
	return p.from == from && p.status == -ECONNRESET &&
	       list_empty(&h->e.closing);
}

/* A vqp fails that was about to tell what it has taken: its end waits for no
 * such message. */
static bool case_ends_credit(void)
{
	struct vqp *a = join(h, 1, 0), *bound = ear(a, 1);
	struct vqp_pop_out p;
	bool good = vqp_pop(bound, &p);

	a->taken_sent -= VQP_WINDOW;
	a->far_vqp = p.from->id;
	nodes[1].slow = true;
	h->e.qp[0].down = true; /* it waits */
	vqp_credit_look(a);
	good = good && a->credit_out;
	vqp_fail(a, IBV_WC_LOC_PROT_ERR);
	h->e.qp[0].down = false;
	nodes[1].slow = false;
	vqp_free(a);
	settle();
	return good && list_empty(&h->e.closing);
}

/* Its last message comes before one that was sent before it; and twice. */
static bool case_ends_early(void)
{
	struct vqp *a = join(h, 1, 0), *bound = ear(a, 2);
	struct msg_head m = {.kind = MSG_KIND_END,
			     .dst_port = 9,
			     .src = nodes[0].id,
			     .src_vqp = a->id,
			     .src_gen = a->gen,
			     .seq = 3};
	uint8_t buf[MSG_HEADER];
	struct vqp_pop_out p;
	bool good;

	msg_head_encode(&m, buf);
	good = vqp_pop(bound, &p) && vqp_pop(bound, &p) && !p.status;
	if (!good)
		return false;
	p.from->ours = false;
	vqp_engine_receive(&far->e, buf, sizeof(buf));
	good = !vqp_pop(bound, &p) && !post(a, 2, IBV_WR_SEND, false);
	/* there is no memory for it behind the message, and it is repeated */
	far->f.fail_alloc = 2;
	settle();
	good = good && !far->f.fail_alloc;
	vqp_engine_receive(&far->e, buf, sizeof(buf));
	vqp_engine_receive(&far->e, buf, sizeof(buf));
	return good && vqp_pop(bound, &p) && !p.status && vqp_pop(bound, &p) &&
	       p.status == -ECONNRESET && !vqp_pop(bound, &p);
}

/* --- a peer that dies without a word ------------------------------------- */

static void life_rounds(unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		later(VQP_QUIET_NS);
		settle();
	}
}

/* The vqp of a's that bound has heard of; its front knows it. */
static struct vqp *known(struct vqp *bound)
{
	struct vqp_pop_out p;

	if (!vqp_pop(bound, &p) || p.status)
		return NULL;
	p.from->ours = false;
	return p.from;
}

static bool ends_with(struct vqp *bound, const struct vqp *from)
{
	struct vqp_pop_out p;

	return vqp_pop(bound, &p) && p.status == -ECONNRESET && p.from == from;
}

/* It has sent by two vqps, and one message was not popped: the front hears of each
 * end behind its messages, and has all room again. */
static bool case_life(void)
{
	struct vqp *a = join(h, 1, 0), *b = join(h, 1, 1), *bound = ear(a, 1);
	struct vqp *first = known(bound), *second;

	recv_post(bound, 2);
	if (!first || post(b, 1, IBV_WR_SEND, false))
		return false;
	settle();
	nodes[0].dead = true;
	life_rounds(3);
	second = known(bound);
	if (!second || !ends_with(bound, first) || !ends_with(bound, second) ||
	    first->state != VQP_ERROR || far->f.asks != 2)
		return false;
	vqp_free(first);
	vqp_free(second);
	life_rounds(3);
	return !far->e.n_children && list_empty(&far->e.parents) &&
	       far->f.asks == 2;
}

/* A request to it fails first: all its vqps end at once. */
static bool case_life_request(void)
{
	struct vqp *a = join(h, 1, 0), *b = join(h, 1, 1), *bound = ear(a, 1);
	struct vqp *first = known(bound), *second;

	recv_post(bound, 2);
	if (!first || post(b, 1, IBV_WR_SEND, false))
		return false;
	settle();
	second = known(bound);
	nodes[0].dead = true;
	if (!second || post(first, 1, IBV_WR_SEND, true))
		return false;
	settle();
	return next_is(first, 1, IBV_WC_RETRY_EXC_ERR) &&
	       ends_with(bound, first);
}

/* One is stopped, and the device waits for it; another is dead. */
static bool case_life_stuck(void)
{
	struct vqp *a = join(h, 1, 0), *bound = ear(a, 1);
	struct vqp *stopped = known(bound), *dead;
	struct msg_head m = {.kind = MSG_KIND_DATA,
			     .dst_port = 9,
			     .src = nodes[2].id,
			     .src_vqp = 1,
			     .src_gen = 1};
	uint8_t buf[MSG_HEADER];
	struct vqp_pop_out p;

	msg_head_encode(&m, buf);
	vqp_engine_receive(&far->e, buf, sizeof(buf));
	recv_post(bound, 2);
	dead = known(bound);
	if (!stopped || !dead)
		return false;
	nodes[0].slow = true;
	nodes[2].dead = true;
	life_rounds(10);
	if (!ends_with(bound, dead) || vqp_pop(bound, &p))
		return false;
	nodes[0].slow = false;
	life_rounds(3);
	recv_post(bound, 1);
	return !vqp_pop(bound, &p) && stopped->state == VQP_CONNECTED &&
	       !post(a, 2, IBV_WR_SEND, false) && (settle(), true) &&
	       known(bound) == stopped;
}

/* A cable is out for a moment, and later once more. */
static bool case_life_once(void)
{
	struct vqp *a = join(h, 1, 0), *bound = ear(a, 1);
	struct vqp *from = known(bound);
	struct vqp_pop_out p;

	for (unsigned i = 0; from && i < 3; i++) {
		nodes[0].dead = true;
		life_rounds(1);
		nodes[0].dead = false;
		life_rounds(2);
	}
	recv_post(bound, 1);
	return from && !vqp_pop(bound, &p) && from->state == VQP_CONNECTED &&
	       far->f.asks >= 6;
}

/* Nobody asks one that sends, or answers; else once a second, and not before. */
static bool case_life_busy(void)
{
	struct vqp *a = join(h, 1, 0), *bound = ear(a, 1);
	struct vqp *from = known(bound);
	bool good = from != NULL;

	for (unsigned i = 0; good && i < 20; i++) {
		recv_post(bound, 1);
		later(VQP_QUIET_NS / 2);
		good = !post(a, 2, IBV_WR_SEND, false);
		settle();
		good = good && known(bound) == from;
	}
	good = good && !far->f.asks;
	for (unsigned i = 0; good && i < 20; i++) {
		later(VQP_QUIET_NS / 2);
		good = !post(from, 3, IBV_WR_RDMA_READ, false);
		settle();
	}
	good = good && !far->f.asks;
	for (unsigned i = 0; i < 100; i++) {
		later(VQP_QUIET_NS / 10);
		settle();
	}
	return good && far->f.asks >= 8 && far->f.asks <= 10;
}

/* One that DC does not reach sends by an RC queue pair, which stays: the end there
 * asks, or the device says that it is dead. */
static bool life_rc(bool says)
{
	struct vqp *a, *bound, *from;
	struct vqp_pop_out p;
	uint64_t end;

	nodes[1].id.dctn = h->e.conf.self.dctn = 0;
	a = join(h, 1, VQP_NO_QP);
	bound = ear(a, 0);
	recv_post(bound, 2);
	if (post(a, 1, IBV_WR_SEND, false))
		return false;
	for (unsigned i = 0; i < 4000 && !far->e.n_children; i++) {
		fake_any(&h->f);
		vqp_engine_round(&h->e, ++now_ns);
		if (!far->e.n_children)
			fake_any(&far->f);
	}
	nodes[0].stopped = true; /* it makes no calls */
	from = known(bound);
	if (!from || from->peer->dc || !h->e.rcs_open)
		return false;
	life_rounds(VQP_RC_TRIES + 2);
	if (vqp_pop(bound, &p) || from->state != VQP_CONNECTED)
		return false;
	nodes[0].dead = true;
	far->f.all_dead = says;
	end = now_ns + (says ? VQP_QUIET_NS : 2 * VQP_LOST_RC_NS);
	while (now_ns < end) {
		now_ns += VQP_LOOK_NS;
		while (fake_any(&far->f))
			;
		vqp_engine_round(&far->e, now_ns);
	}
	return ends_with(bound, from) && !far->f.asks;
}

static bool case_life_rc(void)
{
	return life_rc(false);
}

static bool case_life_rc_says(void)
{
	return life_rc(true);
}

/* Nobody is told of the end of a vqp that it has freed, and nothing stays of
 * it. */
static bool case_ends_freed(void)
{
	struct vqp *a = join(h, 1, 0), *bound = ear(a, 1);
	struct vqp_pop_out p;
	uint32_t id;
	bool good;

	vqp_free(a);
	settle();
	good = vqp_pop(bound, &p);
	if (!good)
		return false;
	id = p.from->id;
	p.from->ours = false;
	vqp_free(p.from);
	good = !vqp_pop(bound, &p) && !far->e.vqps[id] &&
	       bound->recv_tail - bound->recv_head == 1;
	/* the last message makes no vqp of its own */
	a = join(h, 1, 0);
	good = good && !post(a, 1, IBV_WR_SEND, false);
	settle();
	good = good && vqp_pop(bound, &p);
	if (good)
		vqp_free(p.from);
	vqp_free(a);
	settle();
	for (id = 0; id < far->e.vqps_cap; id++)
		good = good && (!far->e.vqps[id] || far->e.vqps[id] == bound);
	return good;
}

/* What is sent to a vqp that is not there any more, or to a port that nobody has
 * bound, fails soon: nobody waits until a question for credit is due. */
static bool case_lost(void)
{
	struct vqp *a = join(h, 1, 0), *b = join(h, 1, 1);
	struct vqp *bound = ear(a, 1);
	struct vqp_pop_out p;
	bool good = vqp_pop(bound, &p);
	unsigned i;

	h->e.ending = true; /* a says nothing */
	vqp_free(a);
	h->e.ending = false;
	for (i = 0; good && i < 2 * VQP_WINDOW; i++)
		good = !post(p.from, i, IBV_WR_SEND, true);
	settle();
	for (i = 0; good && i < VQP_WINDOW; i++)
		good = next_is(p.from, i, IBV_WC_SUCCESS);
	good = good && next_is(p.from, i, IBV_WC_REM_OP_ERR) &&
	       p.from->state == VQP_ERROR && far->e.n_free == VQP_SLOTS;
	b->far_port = 10;
	good = good && !post(b, 1, IBV_WR_SEND, true);
	settle();
	good = good && next_is(b, 1, IBV_WC_SUCCESS) && b->state == VQP_ERROR;
	/* the first completion behind that says why */
	recv_post(b, 2);
	return good && next_is(b, 0, IBV_WC_REM_OP_ERR) &&
	       next_is(b, 0, IBV_WC_WR_FLUSH_ERR) &&
	       !post(b, 2, IBV_WR_SEND, true) &&
	       next_is(b, 2, IBV_WC_WR_FLUSH_ERR);
}

/* The same of a request that is the first. */
static bool case_lost_request(void)
{
	struct vqp *b = join(h, 1, 1);
	bool good = !post(b, 1, IBV_WR_SEND, false);

	settle();
	return good && b->state == VQP_ERROR &&
	       !post(b, 2, IBV_WR_SEND, false) &&
	       next_is(b, 2, IBV_WC_REM_OP_ERR);
}

/* A vqp is closed with more messages than may be under way, and the receiver
 * answers each: all come, then the end. */
static bool case_close_answered(void)
{
	struct vqp *a = join(h, 1, 0), *bound = ear(a, 40);
	struct vqp_pop_out p;
	bool good = true;

	vqp_close(a);
	for (unsigned i = 0; good && i < 40; i++) {
		good = vqp_pop(bound, &p) && !p.status &&
		       !post(p.from, i, IBV_WR_SEND, false);
		p.from->ours = false; /* its front knows it */
		settle();
	}
	return good && vqp_pop(bound, &p) && p.status == -ECONNRESET;
}

/* A receiver that takes nothing answers, and nobody has an error. A process that
 * is stopped is asked a few times only. */
static bool case_ask_lazy(void)
{
	struct vqp *a = join(h, 1, 0), *b = join(h, 2, 1), *from = NULL;
	bool good = fill(a, 0, &from);
	uint64_t were;

	for (unsigned i = 0; i < 40; i++) {
		later(VQP_ASK_NS);
		settle();
		good = good && nothing(a) && a->asks == 0;
	}
	for (unsigned i = 0; good && i <= VQP_WINDOW; i++)
		good = !post(b, i, IBV_WR_SEND, false);
	settle();
	vqp_free(a);
	settle(); /* its end is told */
	were = h->e.counts.requests;
	for (unsigned i = 0; i < 100; i++) {
		later(VQP_ASK_NS);
		settle();
	}
	return good && h->e.counts.requests == were + VQP_ASKS_MAX;
}

/* The receiver frees the vqp that a message made, when it has answered. The next
 * message makes another one; what the first one sent is taken late. */
static bool case_anew(void)
{
	struct vqp *bound, *a = join(h, 1, 0);
	struct vqp_pop_out p;
	bool good = true;
	unsigned i, k;

	assert_int_equal(vqp_new(&far->e, &bound), 0);
	assert_int_equal(vqp_bind(bound, 9), 0);
	for (i = 0; good && i < 60; i++) {
		recv_post(bound, 1);
		good = !post(a, i, IBV_WR_SEND, false);
		settle();
		good = good && vqp_pop(bound, &p);
		for (k = 0; good && k < 3; k++)
			good = !post(p.from, i, IBV_WR_SEND, false);
		settle();
		if (good)
			vqp_free(p.from);
		/* Of the first three one is taken, then each time three. */
		recv_post(a, i ? 3 : 1);
		for (k = 0; good && k < (i ? 3 : 1); k++)
			good = next_is(a, 0, IBV_WC_SUCCESS);
		settle();
	}
	recv_post(a, 2);
	good = good && next_is(a, 0, IBV_WC_SUCCESS) &&
	       next_is(a, 0, IBV_WC_SUCCESS) && nothing(a);
	return good && !far->e.counts.garbage && !h->e.counts.garbage &&
	       !far->e.counts.dropped && !h->e.counts.dropped;
}

/* An answer of the first one is lost: those of the second are not. */
static bool case_anew_lost(void)
{
	struct vqp *a = join(h, 1, 0), *bound = ear(a, 1);
	struct vqp_pop_out p;
	bool good = vqp_pop(bound, &p) && !post(p.from, 0, IBV_WR_SEND, false);

	h->f.fail_alloc = 1;
	h->e.ending = true; /* it does not say so */
	settle();
	h->e.ending = false;
	good = good && a->lacks;
	if (!good)
		return false;
	vqp_free(p.from);
	good = !post(a, 1, IBV_WR_SEND, false);
	settle();
	good = good && vqp_pop(bound, &p);
	for (unsigned i = 0; good && i <= VQP_WINDOW; i++)
		good = !post(p.from, i, IBV_WR_SEND, true);
	settle();
	later(VQP_ASK_NS);
	settle();
	return good && p.from->asked_ns && !p.from->asks &&
	       p.from->state == VQP_CONNECTED;
}

/* The same, while each has as many messages under way as it may. */
static bool case_anew_full(void)
{
	struct vqp *bound, *a = join(h, 1, 0);
	struct vqp_pop_out p;
	unsigned i, k, got = 0;
	bool good = true;

	assert_int_equal(vqp_new(&far->e, &bound), 0);
	assert_int_equal(vqp_bind(bound, 9), 0);
	for (i = 0; good && i < 20; i++) {
		recv_post(bound, 1);
		good = !post(a, i, IBV_WR_SEND, false);
		settle();
		good = good && vqp_pop(bound, &p);
		for (k = 0; good && k < 2 * VQP_WINDOW; k++)
			good = !post(p.from, i, IBV_WR_SEND, false);
		settle();
		for (k = 0; good && k < 2 * VQP_WINDOW; k++) {
			recv_post(a, 1);
			got += next_is(a, 0, IBV_WC_SUCCESS);
			settle();
		}
		if (good)
			vqp_free(p.from);
	}
	return good && got == 40 * VQP_WINDOW && !far->e.counts.garbage &&
	       !h->e.counts.garbage;
}

/* The receiver has freed the vqp of a's messages, and the third one makes another,
 * for the second comes late, by the queue pair that a has left: the sender hears
 * that nobody takes it. One that comes twice is no such message. */
static bool case_anew_behind(void)
{
	struct vqp *a = join(h, 1, 0), *bound = ear(a, 1);
	struct vqp_pop_out p;
	bool good = vqp_pop(bound, &p);

	if (!good)
		return false;
	vqp_free(p.from);
	a->sent = 3;
	hear(a, MSG_KIND_DATA, 2);
	hear(a, MSG_KIND_DATA, 2);
	settle();
	recv_post(bound, 2);
	good = vqp_pop(bound, &p) && !vqp_pop(bound, &p) &&
	       a->state == VQP_CONNECTED && far->e.counts.dropped == 1;
	p.from->ours = false; /* its front knows it */
	hear(a, MSG_KIND_DATA, 1);
	settle();
	good = good && !vqp_pop(bound, &p) && far->e.counts.dropped == 2 &&
	       a->state == VQP_ERROR && a->why == IBV_WC_REM_OP_ERR;
	vqp_free(a);
	settle();
	return good && vqp_pop(bound, &p) && p.status == -ECONNRESET;
}

/* What the first one sent is taken when the second has sent little; and a
 * message of the first that comes after one of the second is dropped. */
static bool case_anew_late(void)
{
	struct vqp *bound, *a = join(h, 1, 0);
	uint8_t late[MSG_HEADER];
	struct vqp_pop_out p;
	struct msg_head m = {.kind = MSG_KIND_DATA, .src = nodes[1].id};
	unsigned i, k;
	bool good = true;

	assert_int_equal(vqp_new(&far->e, &bound), 0);
	assert_int_equal(vqp_bind(bound, 9), 0);
	for (i = 0; good && i < 2; i++) {
		recv_post(bound, 1);
		good = !post(a, i, IBV_WR_SEND, false);
		settle();
		good = good && vqp_pop(bound, &p);
		if (!good)
			return false;
		if (!i) {
			m.src_vqp = p.from->id;
			m.src_gen = p.from->gen;
		}
		for (k = 0; good && k < (i ? 1 : VQP_WINDOW); k++)
			good = !post(p.from, i, IBV_WR_SEND, false);
		settle();
		if (!i)
			vqp_free(p.from);
	}
	m.dst_vqp = a->id;
	m.dst_gen = a->gen;
	m.seq = 1;
	msg_head_encode(&m, late);
	vqp_engine_receive(&h->e, late, sizeof(late));
	good = good && h->e.counts.dropped == 1;
	recv_post(a, VQP_WINDOW + 1);
	for (k = 0; good && k <= VQP_WINDOW; k++) {
		good = next_is(a, 0, IBV_WC_SUCCESS);
		settle();
	}
	return good && nothing(a) && !far->e.counts.garbage &&
	       !h->e.counts.garbage;
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

/* A node takes no messages: what is for it waits, and nobody else does. */
static bool full_begins(struct vqp *v, struct vqp *w)
{
	bool good = !post(w, 99, IBV_WR_RDMA_READ, true);

	settle();
	good = good && next_is(w, 99, IBV_WC_SUCCESS);
	nodes[1].full = true;
	good = good && !post(v, 1, IBV_WR_SEND, true) &&
	       !post(v, 2, IBV_WR_SEND, true);
	settle();
	good = good && !post(w, 3, IBV_WR_RDMA_WRITE, true);
	settle();
	return good && nothing(v) && v->state == VQP_CONNECTED &&
	       next_is(w, 3, IBV_WC_SUCCESS);
}

/* It takes them again: they come once, in order. It is not asked meanwhile, and
 * READs of its memory go on. */
static bool case_full(void)
{
	struct vqp *v = join(h, 1, 0), *w = join(h, 3, 0), *u = join(h, 1, 0);
	struct vqp *bound = ear(v, 0);
	struct vqp_pop_out p;
	bool good;
	uint64_t were;

	recv_post(bound, 4);
	good = meet(u) && full_begins(v, w);
	were = h->e.counts.requests;
	settle();
	good = good && h->e.counts.requests == were && h->e.counts.rnrs == 1 &&
	       !post(u, 4, IBV_WR_RDMA_READ, true);
	settle();
	good = good && next_is(u, 4, IBV_WC_SUCCESS);
	nodes[1].full = false;
	later(VQP_RNR_PAUSE_NS);
	settle();
	good = good && next_is(v, 1, IBV_WC_SUCCESS) &&
	       next_is(v, 2, IBV_WC_SUCCESS) && vqp_pop(bound, &p) &&
	       vqp_pop(bound, &p) && !vqp_pop(bound, &p) &&
	       !far->e.counts.dropped;
	/* the next time it has as long */
	later(VQP_RNR_NS);
	return good && full_begins(v, w);
}

/* It never does: its vqps fail, and no others. */
static bool case_full_ever(void)
{
	struct vqp *v = join(h, 1, 0), *w = join(h, 3, 0);
	bool good = full_begins(v, w);

	for (unsigned i = 0; good && i < VQP_RNR_NS / VQP_RNR_PAUSE_NS; i++) {
		good = nothing(v);
		later(VQP_RNR_PAUSE_NS);
		settle();
	}
	good = good && next_is(v, 1, IBV_WC_RNR_RETRY_EXC_ERR) &&
	       next_is(v, 2, IBV_WC_WR_FLUSH_ERR) &&
	       !post(w, 4, IBV_WR_RDMA_READ, true);
	settle();
	return good && next_is(w, 4, IBV_WC_SUCCESS);
}

/* Nor by any of its two DCIs, which fail at the same time. */
static bool case_full_both(void)
{
	struct vqp *v = join(h, 1, 0), *w = join(h, 1, 1);
	bool good;

	ear(v, 0);
	nodes[1].full = true;
	good = !post(v, 1, IBV_WR_SEND, true) && !post(w, 2, IBV_WR_SEND, true);
	settle();
	for (unsigned i = 0; good && i < VQP_RNR_NS / VQP_RNR_PAUSE_NS; i++) {
		good = nothing(v) && nothing(w);
		later(VQP_RNR_PAUSE_NS);
		settle();
	}
	return good && next_is(v, 1, IBV_WC_RNR_RETRY_EXC_ERR) &&
	       next_is(w, 2, IBV_WC_RNR_RETRY_EXC_ERR);
}

/* It did not receive once, and nothing was sent to it since: the next time, an
 * hour later, it has as long as at first. */
static bool case_full_old(void)
{
	struct vqp *v = join(h, 1, 0), *w = join(h, 3, 0);
	bool good = full_begins(v, w);

	vqp_destroy(v);
	settle();
	later(3600ull * 1000000000u);
	v = join(h, 1, 0);
	good = good && !post(v, 1, IBV_WR_SEND, true);
	settle();
	return good && nothing(v) && v->state == VQP_CONNECTED &&
	       h->e.counts.rnrs == 2;
}

/* The same by RC, where the device waits. */
static bool case_full_rc(void)
{
	struct vqp *v;
	bool good;

	nodes[1].id.dctn = 0;
	v = join(h, 1, VQP_NO_QP);
	ear(v, 1);
	nodes[1].full = true;
	good = !post(v, 1, IBV_WR_SEND, true);
	settle();
	later(VQP_RNR_NS - 1000);
	vqp_engine_round(&h->e, now_ns);
	good = good && nothing(v);
	later(1000);
	settle();
	return good && next_is(v, 1, IBV_WC_RNR_RETRY_EXC_ERR);
}

/* A process makes no calls for long. What the device has completed meanwhile is
 * no sign of a peer that does not receive, however much it is. */
static bool case_rc_late(void)
{
	struct vqp *w = join(h, 2, 0), *v;
	bool good = meet(w);

	nodes[1].id.dctn = 0;
	v = join(h, 1, VQP_NO_QP);
	ear(v, 1);
	for (unsigned i = 0; good && i < FAKE_SQ; i++)
		good = !post(w, i, IBV_WR_RDMA_WRITE, true);
	good = good && !post(v, 2, IBV_WR_SEND, true);
	while (fake_step(&h->f, 0))
		;
	while (fake_any(&h->f))
		;
	good = good && h->f.n_cq == FAKE_SQ + 1;
	later(VQP_RNR_NS);
	settle();
	return good && next_is(v, 2, IBV_WC_SUCCESS);
}

static bool post_two(struct vqp *v, enum ibv_wr_opcode first,
		     enum ibv_wr_opcode second)
{
	struct ibv_sge sge[2] = {sge_of(1), sge_of(2)};
	struct ibv_send_wr wr[2] = {wr_of(1, &sge[0], first, false),
				    wr_of(2, &sge[1], second, true)},
			   *bad;

	wr[0].next = &wr[1];
	return !vqp_post_send(v, wr, &bad);
}

/* Nor is a long WRITE behind a message. A message behind a WRITE is judged all
 * the same. */
static bool case_rc_long(void)
{
	struct vqp *v;
	bool good;

	nodes[1].id.dctn = 0;
	v = join(h, 1, VQP_NO_QP);
	ear(v, 1);
	good = meet(v) && post_two(v, IBV_WR_SEND, IBV_WR_RDMA_WRITE);
	while (!h->f.n_cq && fake_any(&h->f))
		nodes[1].slow = true; /* the WRITE's bytes are under way */
	later(VQP_RNR_NS);
	vqp_engine_round(&h->e, now_ns);
	nodes[1].slow = false;
	settle();
	good = good && next_is(v, 2, IBV_WC_SUCCESS) && meet(v);
	nodes[1].full = true;
	good = good && post_two(v, IBV_WR_RDMA_WRITE, IBV_WR_SEND);
	settle();
	later(VQP_RNR_NS);
	settle();
	return good && next_is(v, 2, IBV_WC_RNR_RETRY_EXC_ERR);
}

/* A node to which nothing goes has a share of the slots, and no more: there is
 * room for requests to others. */
static bool case_share(void)
{
	struct vqp *v[12], *w = join(h, 3, 1);
	unsigned i, n, all = 0;
	bool good = meet(w);

	nodes[1].slow = true;
	for (i = 0; i < 12; i++) {
		v[i] = join(h, 1, 0);
		for (n = 0; !post(v[i], n, IBV_WR_SEND, false); n++)
			all++;
	}
	good = good && all > VQP_SLOTS / 3 && all <= VQP_SLOTS / 2 &&
	       v[0]->peer->slots == all;
	for (n = 0; good && n < VQP_QUEUE / 2; n++)
		good = !post(w, n, IBV_WR_RDMA_READ, true);
	settle();
	for (n = 0; good && n < VQP_QUEUE / 2; n++)
		good = next_is(w, n, IBV_WC_SUCCESS);
	nodes[1].slow = false;
	for (i = 0; i < 12; i++)
		vqp_free(v[i]);
	settle();
	return good && !w->peer->slots;
}

/* Takes all slots that a user gets, and returns how many. */
static unsigned greedy(uint32_t *share, struct vqp **v)
{
	*share = 0;
	for (unsigned k = 0; k < 4; k++) {
		v[k] = join(h, 1, 0);
		vqp_share_set(v[k], share);
		while (!post(v[k], 1, IBV_WR_SEND, false))
			;
	}
	return *share;
}

/* However many take all that they get, the next one still gets some: for fifteen
 * users of 16 each a quarter is kept. */
static bool case_share_late(void)
{
	struct vqp *v[20][4];
	uint32_t share[20];
	bool good = true;
	unsigned i, k, n;

	nodes[1].slow = true;
	for (i = 0; i < 20; i++) {
		n = greedy(&share[i], v[i]);
		good = good && n >= VQP_SHARE_LEAST && (i || n == 360);
	}
	nodes[1].slow = false;
	for (i = 0; i < 20; i++)
		for (k = 0; k < 4; k++)
			vqp_destroy(v[i][k]);
	settle();
	return good && h->e.n_free == VQP_SLOTS;
}

/* A server answers a client that has no receive left for a moment, and then frees
 * its vqp: the answer comes all the same, once there is one. */
static bool answer_full(void (*gives_up)(struct vqp *))
{
	struct vqp *a = join(h, 1, 0), *bound = ear(a, 1);
	struct vqp_pop_out p;
	bool good = vqp_pop(bound, &p);

	recv_post(a, 1);
	nodes[0].full = true;
	good = good && !post(p.from, 7, IBV_WR_SEND, false);
	if (good)
		gives_up(p.from);
	settle();
	good = good && far->e.counts.rnrs == 1 && nothing(a);
	nodes[0].full = false;
	later(VQP_RNR_PAUSE_NS);
	settle();
	return good && next_is(a, 0, IBV_WC_SUCCESS) &&
	       list_empty(&far->e.closing) && far->e.n_free == VQP_SLOTS;
}

static bool case_answer_closed(void)
{
	return answer_full(vqp_close);
}

static bool case_answer_freed(void)
{
	return answer_full(vqp_free);
}

/* The same of the word that a message came to nobody. */
static bool case_refusal_full(void)
{
	struct vqp *a = join(h, 1, 0);
	bool good;

	nodes[0].full = true;
	good = !post(a, 1, IBV_WR_SEND, true);
	settle();
	good = good && next_is(a, 1, IBV_WC_SUCCESS) &&
	       a->state == VQP_CONNECTED && far->e.counts.rnrs == 1;
	nodes[0].full = false;
	later(VQP_RNR_PAUSE_NS);
	settle();
	return good && a->state == VQP_ERROR;
}

static void message_of_life(uint64_t incarnation, uint32_t vqp)
{
	struct msg_head m = {.kind = MSG_KIND_DATA,
			     .dst_port = 9,
			     .src = nodes[0].id,
			     .src_vqp = vqp,
			     .src_gen = vqp};
	uint8_t buf[MSG_HEADER];

	m.src.incarnation = incarnation;
	msg_head_encode(&m, buf);
	vqp_engine_receive(&far->e, buf, sizeof(buf));
}

/* A client of a node service ends that has 1,000 vqps to a node which does not
 * receive now: there is room for others at once, and all ends are told later. */
static bool case_ends_share(void)
{
	struct vqp *w = join(h, 3, 1), *bound = ear(w, 0), *v[1000];
	struct vqp_pop_out p;
	uint32_t share = 0;
	bool good = meet(w);
	unsigned n;

	for (n = 0; good && n < 1000; n++) {
		v[n] = join(h, 1, n % 2 * 2);
		vqp_share_set(v[n], &share);
		good = !post(v[n], n, IBV_WR_SEND, false);
		settle();
		recv_post(bound, 1);
		good = good && vqp_pop(bound, &p);
		vqp_free(p.from);
	}
	nodes[1].full = true;
	for (n = 0; good && n < 1000; n++) {
		vqp_share_set(v[n], NULL);
		vqp_free(v[n]);
	}
	vqp_engine_round(&h->e, ++now_ns);
	for (n = 0; good && n < VQP_QUEUE / 2; n++)
		good = !post(w, n, IBV_WR_RDMA_READ, true);
	settle();
	for (n = 0; good && n < VQP_QUEUE / 2; n++)
		good = next_is(w, n, IBV_WC_SUCCESS);
	nodes[1].full = false;
	later(VQP_RNR_PAUSE_NS);
	settle();
	return good && !share && list_empty(&h->e.closing) &&
	       h->e.n_free == VQP_SLOTS;
}

/* So it is with messages of a node that are for nobody, and that does not receive
 * what it is told of that. */
static bool case_lost_share(void)
{
	struct vqp *w = join(far, 3, 1);
	bool good = true;
	uint32_t n;

	nodes[0].full = true;
	for (n = 1; n <= VQP_SLOTS; n++)
		message_of_life(1, n);
	for (n = 0; good && n < VQP_QUEUE / 2; n++)
		good = !post(w, n, IBV_WR_RDMA_READ, true);
	settle();
	for (n = 0; good && n < VQP_QUEUE / 2; n++)
		good = next_is(w, n, IBV_WC_SUCCESS);
	nodes[0].full = false;
	now_ns += VQP_RNR_PAUSE_NS;
	settle();
	return good && far->e.n_free == VQP_SLOTS;
}

/* Messages of one node make so many vqps; another's find room. What finds none is
 * refused. */
static bool case_children(void)
{
	struct vqp *v = join(h, 1, 0);
	uint32_t n;

	ear(v, 0);
	vqp_free(v);
	for (n = 1; n <= VQP_CHILDREN; n++)
		message_of_life(1, n);
	if (far->e.n_children != VQP_CHILDREN * 3 / 8)
		return false;
	settle();
	for (unsigned i = 0; i < 30; i++) {
		uint32_t before = far->e.n_children;

		nodes[0].id.port += 50 + i;
		for (n = 1; n <= VQP_CHILDREN; n++) {
			message_of_life(1, n);
			if (far->e.n_children != before + n)
				break;
		}
		settle();
		nodes[0].id.port -= 50 + i;
		if (n <= VQP_CHILDREN_LEAST)
			return false;
	}
	return far->e.counts.refusals && far->e.said & 512;
}

/* A node's host starts again, and its clock with it: whatever the number, the
 * next life is taken, and what is late of those before it is not. */
static bool case_lives(void)
{
	static const uint64_t life[] = {1u << 20, 7, UINT64_MAX, 8};
	struct vqp *v = join(h, 1, 0), *bound = ear(v, 0);
	struct vqp_pop_out p;
	bool good = true;

	vqp_free(v);
	recv_post(bound, 9);
	for (unsigned i = 0; good && i < 4; i++) {
		message_of_life(life[i], 10 + i);
		good = vqp_pop(bound, &p) &&
		       p.from->peer->node.incarnation == life[i];
	}
	for (unsigned i = 0; good && i < 3; i++) {
		message_of_life(life[i], 20 + i);
		good = !vqp_pop(bound, &p);
	}
	settle();
	message_of_life(life[3], 30);
	return good && vqp_pop(bound, &p);
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

/* A queue pair has broken while nothing was posted on it: that is no fault of the
 * vqp which posts on it next. */
static bool case_idle_broken(void)
{
	struct vqp *v = join(h, 2, 0), *w = join(h, 2, 0);
	bool good = meet(v) && meet(w);

	h->f.dci[0].err = true;
	good = good && !add(v, 1) && !post(w, 2, IBV_WR_RDMA_READ, true);
	settle();
	good = good && next_is(v, 1, IBV_WC_SUCCESS) &&
	       next_is(w, 2, IBV_WC_SUCCESS) && sum_of(2) == 1 &&
	       h->f.replaced == 1;
	h->f.dci[0].err = true;
	h->f.replace_fails = 1; /* the next round tries again */
	good = good && !add(v, 3);
	settle();
	return good && next_is(v, 3, IBV_WC_SUCCESS) && sum_of(2) == 2;
}

static struct vqp *rc_broken(void)
{
	struct vqp *v;
	bool good;

	nodes[1].id.dctn = 0;
	v = join(h, 1, VQP_NO_QP);
	good = meet(v);
	h->f.dci[FAKE_DCIS].err = true;
	return good ? v : NULL;
}

/* The same of an RC queue pair. */
static bool case_idle_broken_rc(void)
{
	struct vqp *v = rc_broken();
	bool good = v && !add(v, 1);

	settle();
	later(VQP_RC_PAUSE_NS);
	settle();
	return good && next_is(v, 1, IBV_WC_SUCCESS) && sum_of(1) == 1;
}

/* If its peer's death broke it, nobody waits for that peer. */
static bool case_idle_broken_dead(void)
{
	struct vqp *v = rc_broken();
	bool good;

	h->f.all_dead = true;
	good = v && !add(v, 1);
	settle();
	return good && next_is(v, 1, IBV_WC_RETRY_EXC_ERR);
}

/* The device does not say so: what may be carried out twice is posted again, once;
 * the rest ends as unknown, for it may have been on its way. */
static bool case_idle_broken_dumb(void)
{
	struct vqp *v = join(h, 2, 0), *w = join(h, 2, 0);
	bool good = meet(v) && meet(w);

	h->f.dumb = h->f.dci[0].err = true;
	good = good && !post(v, 1, IBV_WR_RDMA_READ, true);
	settle();
	good = good && next_is(v, 1, IBV_WC_SUCCESS) && h->f.replaced == 1;
	h->f.dci[0].err = true;
	good = good && !add(w, 2);
	settle();
	good = good && next_is(w, 2, IBV_WC_WR_FLUSH_ERR) && !sum_of(2);
	h->f.dci[0].err = h->f.sick = true;
	good = good && !post(v, 3, IBV_WR_RDMA_READ, true);
	settle();
	return good && next_is(v, 3, IBV_WC_WR_FLUSH_ERR) && h->f.replaced <= 4;
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

static bool metas_have_dc = true;

static void metas_open(void)
{
	if (!metas_have_dc)
		nodes[4].id.dctn = nodes[5].id.dctn = 0;
	for (unsigned i = 0; i < 2; i++) {
		/* by their turns they would share DCIs */
		h->e.peers_made = 0;
		assert_int_equal(vqp_engine_meta(&h->e, i, &nodes[4 + i].id, 0,
						 FAKE_RKEY, 64),
				 0);
	}
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
	/* what goes through the port, the port gives up */
	good = good && (!metas_have_dc || !vqp_engine_has_meta(&h->e)) &&
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

/* The lease is renewed behind requests that fill the queue pair; these come back,
 * and the lease is over. */
static bool case_renew(void)
{
	struct vqp *v = join(h, 2, 0), *w = join(h, 2, 0);
	bool good = meet(v);

	nodes[2].slow = true;
	good = good && !post(w, 1, IBV_WR_RDMA_WRITE, true);
	later(REGION_AGAIN_NS);
	good = good && !post_list(v, 10, FAKE_SQ - 1, 1) &&
	       v->n_slots == FAKE_SQ; /* and the READ */
	later(REGION_USE_NS);
	h->f.breaks = IBV_WC_REM_ACCESS_ERR;
	nodes[2].slow = false;
	settle();
	good = good && next_is(w, 1, IBV_WC_REM_ACCESS_ERR);
	for (unsigned i = 0; good && i < FAKE_SQ - 1; i++)
		good = next_is(v, 10 + i, IBV_WC_SUCCESS);
	return good;
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

/* --- without DC ---------------------------------------------------------- */

static bool without_dc(bool (*run)(void))
{
	bool good;

	metas_have_dc = false;
	good = run();
	metas_have_dc = true;
	return good;
}

static bool case_port_wait(void)
{
	return without_dc(case_meta_wait);
}

static bool case_port_nobody(void)
{
	return without_dc(case_meta_nobody);
}

static bool case_port_torn(void)
{
	return without_dc(case_meta_torn);
}

/* What was asked for another node, by the same vqp, is no answer. */
static bool late_answer(void)
{
	struct vqp *v;
	bool good;

	metas_open();
	meta_encode(&nodes[2].id, record_at(4, 2, 0));
	v = look_up(3);
	good = v->state == VQP_LOOKS_UP && vqp_connect_stop(v) == -EHOSTUNREACH;
	vqp_connect(v, nodes[2].id.gid, nodes[2].id.port, 9);
	good = good && h->f.n_looks == 2 && fake_look_one(&h->f);
	vqp_engine_round(&h->e, now_ns);
	good = good && v->lookup.at[0].asked && !v->lookup.at[0].again_ns;
	work();
	return good && v->state == VQP_CONNECTED &&
	       meta_same(&v->peer->node, nodes[2].id.gid, nodes[2].id.port);
}

static bool case_port_late(void)
{
	return without_dc(late_answer);
}

/* A message is posted before there is a queue pair for it, and its vqp is
 * closed: it is sent all the same. */
static bool case_close(void)
{
	struct vqp_pop_out out;
	struct vqp *v, *b;
	bool good;

	nodes[1].id.dctn = 0;
	assert_int_equal(vqp_new(&far->e, &b), 0);
	good = !vqp_bind(b, 9);
	recv_post(b, 1);
	v = join(h, 1, VQP_NO_QP);
	good = good && !post(v, 1, IBV_WR_SEND, true);
	vqp_close(v);
	settle();
	return good && vqp_pop(b, &out) && list_empty(&h->e.closing);
}

/* Some datagrams of one kind get lost. */
static void ends_drop(void)
{
	for (unsigned k = 0; k < h->f.n_told; k++)
		if (h->f.told[k].msg[4] == RC_END)
			h->f.told[k--] = h->f.told[--h->f.n_told];
}

/* All but receives that complete late, and what ends a queue pair. */
static void all_but_late(void)
{
	for (unsigned k = 0; k < 20; k++) {
		for (unsigned i = 0; i < FAKE_QPS; i++)
			fake_step(&h->f, i);
		ends_drop();
		fake_tell_one(&h->f);
		fake_tell_one(&far->f);
		vqp_engine_round(&h->e, ++now_ns);
		vqp_engine_round(&far->e, now_ns);
	}
}

/* What has come by other queue pairs than this one is seen first. */
static void others_first(unsigned from)
{
	for (unsigned i = 0; i < 32; i++)
		if (far->f.late[i].there && far->f.late[i].from != from)
			fake_late_of(&far->f, far->f.late[i].from);
}

static bool pops(struct vqp *b, uint64_t word)
{
	struct vqp_pop_out out;

	return vqp_pop(b, &out) && words[0] == word;
}

/* A vqp that has sent and heard nothing, and the RC queue pair of its message
 * ends before the receiver has seen it: the next one comes behind it. */
static bool end_of_unmet(bool keeps_late)
{
	struct fake_told end;
	struct vqp *v, *b;
	unsigned from;
	bool good;

	nodes[1].id.dctn = 0;
	far->f.late_recvs = true;
	far->f.keeps_late = keeps_late;
	assert_int_equal(vqp_new(&far->e, &b), 0);
	good = !vqp_bind(b, 9);
	recv_post(b, 2);
	words[1] = 11;
	words[2] = 22;
	v = join(h, 1, VQP_NO_QP);
	good = good && !post(v, 1, IBV_WR_SEND, true);
	all_but_late();
	from = far->f.late[0].from;
	h->e.rc[0].back = true; /* another node waits for it */
	later(VQP_RC_SAMPLE_NS);
	vqp_engine_round(&h->e, now_ns);
	v->peer->rc_again_ns = 0;
	good = good && far->f.late[0].there && h->f.n_told == 1;
	end = h->f.told[0];
	h->f.n_told = 0;
	good = good && !post(v, 2, IBV_WR_SEND, true);
	all_but_late();
	others_first(from);
	vqp_engine_datagram(&far->e, end.msg, RC_MSG);
	all_but_late();
	others_first(from);
	settle();
	return good && pops(b, 11) && pops(b, 22) && v->state == VQP_CONNECTED;
}

static bool case_end(void)
{
	return end_of_unmet(false);
}

/* The same, and the peer never says that it has its messages: it may not. */
static bool case_no_end(void)
{
	struct vqp *v, *b;
	bool good;

	nodes[1].id.dctn = 0;
	assert_int_equal(vqp_new(&far->e, &b), 0);
	assert_int_equal(vqp_bind(b, 9), 0);
	v = join(h, 1, VQP_NO_QP);
	good = !post(v, 1, IBV_WR_SEND, true);
	settle();
	h->e.rc[0].back = true; /* another node waits for it */
	later(VQP_RC_SAMPLE_NS);
	vqp_engine_round(&h->e, now_ns);
	v->peer->rc_again_ns = 0;
	good = good && !post(v, 2, IBV_WR_SEND, true);
	for (unsigned i = 0; i <= VQP_RC_TRIES; i++) {
		all_but_late();
		later(VQP_RC_TELL_NS);
	}
	settle();
	return good && next_is(v, 1, IBV_WC_SUCCESS) &&
	       next_is(v, 2, IBV_WC_RETRY_EXC_ERR);
}

/* A message that never can be sent: its vqp is freed in time. */
static bool case_linger(void)
{
	struct vqp *v = join(h, 2, 0);

	for (unsigned i = 0; i <= VQP_WINDOW; i++)
		if (post(v, i, IBV_WR_SEND, true))
			return false;
	vqp_close(v);
	settle();
	now_ns += VQP_LINGER_NS - 1 - now_ns;
	vqp_engine_round(&h->e, now_ns);
	if (list_empty(&h->e.closing))
		return false;
	now_ns += 2;
	vqp_engine_round(&h->e, now_ns);
	settle(); /* it has asked for credit */
	return list_empty(&h->e.closing) && h->e.n_free == VQP_SLOTS;
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
	enum vqp_plant plant;
} cases[] = {
	{"a: the list is checked first", case_a, VQP_PLANT_A},
	{"b: long lists are cut", case_b, VQP_PLANT_B},
	{"c: the last one is counted once", case_c, VQP_PLANT_C},
	{"d: the oldest is marked", case_d, VQP_PLANT_D},
	{"e: the CQ is counted", case_e, VQP_PLANT_E},
	{"e: generations", case_e2, VQP_PLANT_E2},
	{"f: credits", case_f, VQP_PLANT_F},
	{"f: credits of answers", case_f2, VQP_PLANT_F2},
	{"f: credits of a vqp made anew", case_f4, VQP_PLANT_F4},
	{"f: credits of a vqp that is closed", case_f5, VQP_PLANT_F5},
	{"f: credit is asked for", case_ask, VQP_PLANT_ASK},
	{"f: there is none any more", case_ask, VQP_PLANT_ASK_DEAF},
	{"f: nor for answers", case_ask_back, VQP_PLANT_REFUSE},
	{"f: the receiver is dead", case_ask_dead, VQP_PLANT_ASK},
	{"f: a message was lost", case_ask_lost, VQP_PLANT_ASK_LOST},
	{"f: or dropped", case_ask_garbage, VQP_PLANT_ASK_LOST},
	{"f: a question before a message", case_ask_ahead, VQP_PLANT_ASK_AHEAD},
	{"f: it owed some", case_ask_freed, VQP_PLANT_ASK},
	{"f: it is asked a few times", case_ask_lazy, VQP_PLANT_ASK},
	{"a vqp ends: the other end is told", case_ends, VQP_PLANT_END},
	{"a vqp ends in error", case_ends_failed, VQP_PLANT_END},
	{"a vqp ends: behind one that fails", case_ends_behind,
	 VQP_PLANT_END_BEHIND},
	{"a vqp ends: credit is dropped", case_ends_credit,
	 VQP_PLANT_END_CREDIT},
	{"a vqp ends: behind its messages", case_ends_early,
	 VQP_PLANT_END_EARLY},
	{"a vqp ends that is freed", case_ends_freed, VQP_PLANT_END_FREED},
	{"a peer dies: it is asked", case_life, VQP_PLANT_LIFE},
	{"a peer dies: its vqps end", case_life, VQP_PLANT_END_DIED},
	{"a peer dies: a request fails", case_life_request, VQP_PLANT_END_DIED},
	{"a peer is stopped", case_life_stuck, VQP_PLANT_LIFE_STUCK},
	{"a peer does not answer once", case_life_once, VQP_PLANT_LIFE_ONCE},
	{"a peer does not answer now and then", case_life_once,
	 VQP_PLANT_LIFE_OLD},
	{"a peer that is heard of", case_life_busy, VQP_PLANT_LIFE_BUSY},
	{"a peer dies that sent by RC", case_life_rc, VQP_PLANT_LIFE_RC},
	{"a peer dies that sent by RC long ago", case_life_rc,
	 VQP_PLANT_RC_KEPT},
	{"a peer makes no calls that sent by RC", case_life_rc,
	 VQP_PLANT_RC_WANT},
	{"the device says so", case_life_rc_says, VQP_PLANT_RC_KEPT},
	{"a vqp ends: with answers under way", case_close_answered,
	 VQP_PLANT_ANSWER},
	{"a message for nobody", case_lost, VQP_PLANT_LOST},
	{"a message for nobody: a receive says why", case_lost, VQP_PLANT_WHY},
	{"a message for nobody: a request does", case_lost_request,
	 VQP_PLANT_WHY},
	{"vqps of messages: the log says so", case_children,
	 VQP_PLANT_SHARE_SAID},
	{"a message for a vqp before", case_anew_behind, VQP_PLANT_LOST_LATE},
	{"g: one target at a time", case_g, VQP_PLANT_G},
	{"g: others see no error", case_g2, VQP_PLANT_G2},
	{"g: a node that is full", case_full, VQP_PLANT_RNR},
	{"g: is left alone", case_full, VQP_PLANT_RNR_PAUSE},
	{"g: not for ever", case_full_ever, VQP_PLANT_RNR_EVER},
	{"g: from then on", case_full_old, VQP_PLANT_RNR_OLD},
	{"g: by two DCIs", case_full_both, VQP_PLANT_RNR_OTHER},
	{"g: nor by RC", case_full_rc, VQP_PLANT_RNR_EVER},
	{"g: not what was not polled", case_rc_late, VQP_PLANT_REAP},
	{"g: not what is behind a message", case_rc_long, VQP_PLANT_RC_SIGNAL},
	{"g: an answer of a vqp that is closed", case_answer_closed,
	 VQP_PLANT_POSTED},
	{"g: an answer of a vqp that is freed", case_answer_freed,
	 VQP_PLANT_POSTED},
	{"g: a refusal", case_refusal_full, VQP_PLANT_POSTED},
	{"slots: a share for each", case_share, VQP_PLANT_SHARE},
	{"slots: some for one that is late", case_share_late,
	 VQP_PLANT_SHARE_LEAST},
	{"slots: of vqps that are freed", case_ends_share, VQP_PLANT_END_SLOTS},
	{"slots: of refusals", case_lost_share, VQP_PLANT_END_SLOTS},
	{"vqps of messages: a share for each", case_children,
	 VQP_PLANT_CHILDREN},
	{"vqps of messages: some for one that is late", case_children,
	 VQP_PLANT_SHARE_LEAST},
	{"lives of a node", case_lives, VQP_PLANT_LIVES},
	{"h: what is outstanding goes on", case_h, VQP_PLANT_H},
	{"h: or ends as unknown", case_h2, VQP_PLANT_H2},
	{"h: a refused request fails alone", case_h3, VQP_PLANT_H3},
	{"h: others behind an error may be done", case_h4, VQP_PLANT_H2},
	{"h: one that broke while idle", case_idle_broken, VQP_PLANT_BROKEN},
	{"h: the same by RC", case_idle_broken_rc, VQP_PLANT_BROKEN},
	{"h: that is dead", case_idle_broken_dead, VQP_PLANT_BROKEN_DEAD},
	{"h: nobody says so", case_idle_broken_dumb, VQP_PLANT_BROKEN_READ},
	{"h: nor that it is never sound", case_idle_broken_dumb,
	 VQP_PLANT_BROKEN_EVER},
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
	{"meta by port: the other is asked in time", case_port_wait,
	 VQP_PLANT_META_WAIT},
	{"meta by port: one may not know", case_port_nobody,
	 VQP_PLANT_META_NOBODY},
	{"meta by port: one may be torn", case_port_torn, VQP_PLANT_META_TORN},
	{"meta by port: a late answer", case_port_late, VQP_PLANT_META_TOKEN},
	{"a vqp is closed: what waits is sent", case_close, VQP_PLANT_CLOSE},
	{"a vqp is closed: it waits not for ever", case_linger,
	 VQP_PLANT_LINGER},
	{"a queue pair ends: the next message comes behind", case_end,
	 VQP_PLANT_RC_END},
	{"a queue pair ends, and the peer is silent", case_no_end,
	 VQP_PLANT_RC_SILENT},
	{"regions: ranges and rights", case_region, VQP_PLANT_REGION},
	{"regions: the checksum", case_region_sum, VQP_PLANT_REGION_SUM},
	{"regions: domains", case_domain, VQP_PLANT_DOMAIN},
	{"regions: a lease ends", case_lease, VQP_PLANT_LEASE},
	{"regions: it is renewed behind none", case_renew, VQP_PLANT_RENEW},
	{"regions: it begins with the post", case_lease_late,
	 VQP_PLANT_LEASE_LATE},
};

#define N_CASES (sizeof(cases) / sizeof(cases[0]))

static bool run(unsigned i, enum vqp_plant plant)
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
static bool fails(unsigned i, enum vqp_plant plant)
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

/* A DCI has as few peers as can be: one more than another at most. */
static void test_dcis(void **state)
{
	unsigned n[FAKE_DCIS] = {0};
	struct meta_node node;
	struct vqp_peer *p;

	open_all(1, VQP_PLANT_NONE);
	node = nodes[1].id;
	for (unsigned i = 0; i < 4 * FAKE_DCIS; i++) {
		node.incarnation++; /* another node */
		p = vqp_peer_get(&h->e, &node);
		assert_non_null(p);
		for (unsigned k = 0; k < VQP_PEER_DCIS; k++)
			n[p->dci[k]]++;
		vqp_peer_put(&h->e, p);
	}
	for (unsigned i = 0; i < FAKE_DCIS; i++)
		assert_int_equal(n[i], 4 * VQP_PEER_DCIS);
	assert_true(close_all(true));
}

static void test_anew(void **state)
{
	open_all(1, 0);
	assert_true(close_all(case_anew()));
	open_all(2, 0);
	assert_true(close_all(case_anew_full()));
	open_all(3, 0);
	assert_true(close_all(case_anew_late()));
	open_all(4, 0);
	assert_true(close_all(case_anew_lost()));
}

static void test_random(void **state)
{
	const char *env = getenv("SKEIN_TEST_SEEDS");
	uint64_t n = env	       ? (uint64_t)atoll(env)
		     : part_is_whole() ? 1000
				       : part_rounds(300);

	for (uint64_t seed = 1; seed <= n; seed++) {
		bool good;

		open_all(seed, 0);
		if (seed % 2) /* in two pieces each, by rounds */
			h->e.conf.piece = 4;
		good = close_all(random_run(seed));
		if (!good)
			print_message("seed %lu\n", (unsigned long)seed);
		assert_true(good);
	}
}

/* A message of another version is dropped, and the log says why. */
static void test_version(void **state)
{
	struct msg_head m = {.kind = MSG_KIND_DATA,
			     .dst_port = 9,
			     .src_vqp = 1,
			     .src_gen = 1};
	uint8_t buf[MSG_HEADER];

	open_all(1, VQP_PLANT_NONE);
	m.src = nodes[0].id;
	msg_head_encode(&m, buf);
	assert_int_equal(msg_head_decode(buf, sizeof(buf), &m), 0);
	buf[3]--;
	assert_int_equal(msg_head_decode(buf, sizeof(buf), &m),
			 -EPROTONOSUPPORT);
	vqp_engine_receive(&far->e, buf, sizeof(buf));
	assert_int_equal(far->e.counts.garbage, 1);
	assert_true(far->e.said & 128);
	buf[0]--;
	assert_int_equal(msg_head_decode(buf, sizeof(buf), &m), -EBADMSG);
	assert_true(close_all(true));
}

/* A device that drops what has arrived by a queue pair that it destroys. */
static void test_late(void **state)
{
	open_all(1, VQP_PLANT_NONE);
	assert_false(close_all(end_of_unmet(true)));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_cases),	cmocka_unit_test(test_plants),
		cmocka_unit_test(test_late),	cmocka_unit_test(test_anew),
		cmocka_unit_test(test_random),	cmocka_unit_test(test_dcis),
		cmocka_unit_test(test_version),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
