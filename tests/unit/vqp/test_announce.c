/* SPDX-License-Identifier: MIT */
/*
 * Long messages on a made-up device: announced, READ, acknowledged. Each
 * decision is a case, and the case must fail with the mistake planted
 * (vqp_plant). A random run checks that each message comes once, in order, with
 * its bytes, and that none is forgotten.
 */
#include "fake.h"
#include "unit/part.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#define PORT 9
#define LONG 9000u
#define ROOM 16384u /* of a receive */

static struct fake_node *nodes;
static struct half *h, *far;
static uint8_t out[8][ROOM], in[8][ROOM];
static uint64_t now_ns;
static struct vqp *a, *b; /* a sends to b's port */

static void open_all(uint64_t seed, enum vqp_plant plant)
{
	nodes = fake_nodes();
	now_ns = 1;
	h = malloc(sizeof(*h));
	far = malloc(sizeof(*far));
	half_open(h, nodes, 0, seed);
	half_open(far, nodes, 1, seed + 1);
	h->e.plant = far->e.plant = plant;
	for (unsigned i = 0; i < 8; i++)
		for (unsigned k = 0; k < ROOM; k++)
			out[i][k] = (uint8_t)(i + k * 7 + (k >> 8));
	memset(in, 0, sizeof(in));
}

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

/* Nothing is counted any more, and no slot is lost. */
static bool books_good(struct vqp_engine *e)
{
	for (uint32_t i = 0; i < e->vqps_cap; i++)
		if (e->vqps[i] && e->vqps[i]->state == VQP_BOUND)
			vqp_free(e->vqps[i]);
	for (uint32_t i = 0; i < e->vqps_cap; i++)
		if (e->vqps[i])
			vqp_free(e->vqps[i]);
	settle();
	for (unsigned i = 0; i < e->conf.dcis; i++)
		if (e->qp[i].sq_used || e->qp[i].n_posted)
			return false;
	for (unsigned i = 0; i < VQP_SLOTS; i++)
		if (e->conf.words[i])
			return false; /* held for nobody */
	return !e->cq_used && e->n_free == VQP_SLOTS &&
	       list_empty(&e->lending) && list_empty(&e->closing);
}

static bool close_all(bool good)
{
	if (good) {
		settle();
		good = books_good(&h->e) & books_good(&far->e);
	}
	good = good && !h->f.wrong[0] && !far->f.wrong[0];
	half_close(h);
	half_close(far);
	free(h);
	free(far);
	free(nodes);
	return good;
}

static struct vqp *join(struct half *of, unsigned node)
{
	struct vqp_peer *p = vqp_peer_get(&of->e, &nodes[node].id);
	struct vqp *v;

	assert_non_null(p);
	assert_int_equal(vqp_new(&of->e, &v), 0);
	vqp_join(v, p);
	v->far_port = PORT;
	v->by_port = true;
	return v;
}

static void meet(void)
{
	a = join(h, 1);
	assert_int_equal(vqp_new(&far->e, &b), 0);
	assert_int_equal(vqp_bind(b, PORT), 0);
}

/* Sends the first len bytes of out[i], in three pieces of which one is empty. */
static int say(struct vqp *v, unsigned i, uint32_t len)
{
	uint32_t cut = len / 3;
	struct ibv_sge sge[3] = {{(uintptr_t)out[i], cut, FAKE_LKEY},
				 {(uintptr_t)out[i], 0, FAKE_LKEY},
				 {(uintptr_t)out[i] + cut, len - cut,
				  FAKE_LKEY}};
	struct ibv_send_wr wr = {.wr_id = i,
				 .sg_list = sge,
				 .num_sge = 3,
				 .opcode = IBV_WR_SEND_WITH_IMM,
				 .imm_data = 77 + i,
				 .send_flags = IBV_SEND_SIGNALED},
			   *bad;

	return vqp_post_send(v, &wr, &bad);
}

/* A receive of len bytes of in[i], in two pieces that are not those of the
 * sender. */
static void hear(struct vqp *v, unsigned i, uint32_t len)
{
	uint32_t cut = len / 2;
	struct ibv_sge sge[2] = {{(uintptr_t)in[i], cut, FAKE_LKEY},
				 {(uintptr_t)in[i] + cut, len - cut,
				  FAKE_LKEY}};
	struct ibv_recv_wr wr = {.wr_id = i, .sg_list = sge, .num_sge = 2},
			   *bad;

	assert_int_equal(vqp_post_recv(v, &wr, &bad), 0);
}

static bool done(struct vqp *v, uint64_t id, enum ibv_wc_status status)
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

/* b gets out[i], of len bytes, into in[at]. */
static bool heard(unsigned i, uint32_t len, unsigned at)
{
	struct vqp_pop_out p;

	return vqp_pop(b, &p) && !p.status && p.wr_id == at && p.len == len &&
	       p.with_imm && p.imm == 77 + i && !memcmp(in[at], out[i], len);
}

/* The READs of a message of b's begin. */
static bool begins(void)
{
	struct vqp_pop_out p;

	return !vqp_pop(b, &p);
}

static struct vqp *child_of(struct vqp *bound)
{
	for (uint32_t i = 0; i < bound->e->vqps_cap; i++)
		if (bound->e->vqps[i] && bound->e->vqps[i]->bound == bound)
			return bound->e->vqps[i];
	return NULL;
}

static void later(uint64_t ns)
{
	now_ns += ns;
}

/* --- the cases ---------------------------------------------------------- */

/* It is complete when the receiver has it, not before. */
static bool case_hold(void)
{
	bool good;

	meet();
	good = !say(a, 0, LONG);
	settle();
	good = good && nothing(a) && begins();
	hear(b, 3, LONG);
	settle();
	good = good && nothing(a) && begins();
	settle();
	good = good && done(a, 0, IBV_WC_SUCCESS) && heard(0, LONG, 3);
	return good && far->e.counts.fetched == 1 &&
	       h->e.counts.announced == 1 && !far->e.counts.garbage;
}

/* What is behind it waits, and what is before it does not. */
static bool case_order(void)
{
	struct ibv_sge sge = {(uintptr_t)out[2], 8, FAKE_LKEY};
	struct ibv_send_wr wr = {.wr_id = 2,
				 .sg_list = &sge,
				 .num_sge = 1,
				 .opcode = IBV_WR_RDMA_WRITE,
				 .send_flags = IBV_SEND_SIGNALED},
			   *bad;
	bool good;

	meet();
	wr.wr.rdma.rkey = FAKE_REGION;
	wr.wr.rdma.remote_addr = 64;
	good = !say(a, 0, 100) && !say(a, 1, LONG) &&
	       !vqp_post_send(a, &wr, &bad) && !say(a, 3, 50);
	settle();
	good = good && done(a, 0, IBV_WC_SUCCESS) && nothing(a) &&
	       memcmp(nodes[1].mem + 64, out[2], 8);
	for (unsigned i = 0; i < 3; i++)
		hear(b, i, LONG);
	good = good && heard(0, 100, 0) && begins();
	settle();
	good = good && heard(1, LONG, 1);
	settle();
	return good && heard(3, 50, 2) && done(a, 1, IBV_WC_SUCCESS) &&
	       done(a, 2, IBV_WC_SUCCESS) && done(a, 3, IBV_WC_SUCCESS) &&
	       !memcmp(nodes[1].mem + 64, out[2], 8);
}

/* Both ends announce at the same time. */
static bool case_cross(void)
{
	struct vqp_pop_out p;
	struct ibv_wc wc;
	bool good;

	meet();
	hear(b, 0, LONG);
	good = !say(a, 0, 10);
	settle();
	good = good && vqp_pop(b, &p) && done(a, 0, IBV_WC_SUCCESS);
	good = good && !say(a, 1, LONG) && !say(p.from, 2, LONG);
	hear(b, 1, LONG);
	hear(a, 2, LONG);
	settle();
	good = good && begins() && nothing(a);
	settle();
	good = good && heard(1, LONG, 1) && done(p.from, 2, IBV_WC_SUCCESS) &&
	       done(a, 1, IBV_WC_SUCCESS);
	return good && vqp_poll(a, 1, &wc) == 1 && wc.opcode == IBV_WC_RECV &&
	       wc.byte_len == LONG && wc.imm_data == 79 &&
	       !memcmp(in[2], out[2], LONG);
}

static void gives_up(void)
{
	vqp_free(a);
	memset(out[0], 0xee, ROOM);
}

/* The sender gives up while the receiver READs: the receiver never takes what
 * the sender's program may have changed. Its receive comes back. */
static bool case_word(void)
{
	struct vqp_pop_out p;
	bool good;

	meet();
	good = !say(a, 0, LONG);
	settle();
	hear(b, 4, LONG);
	good = good && begins();
	far->f.before_read = gives_up;
	settle();
	return good && !far->f.before_read && vqp_pop(b, &p) && p.wr_id == 4 &&
	       p.status == -ECONNABORTED;
}

/* The sender is freed while the receiver READs. Its end is told behind the
 * message, and of the sender's vqp nothing stays. known: the receiver's program
 * knows that. */
static bool end_of_read(bool known)
{
	struct vqp_pop_out p;
	bool good = true;

	meet();
	if (known) {
		hear(b, 0, 10);
		good = !say(a, 0, 10);
		settle();
		good = good && vqp_pop(b, &p);
		p.from->ours = false;
		settle();
	}
	hear(b, 1, LONG);
	hear(b, 2, LONG);
	good = good && !say(a, 1, LONG);
	for (unsigned i = 0; i < 20; i++) { /* the receiver READs nothing */
		fake_any(&h->f);
		vqp_engine_round(&h->e, ++now_ns);
	}
	good = good && begins();
	vqp_free(a);
	for (unsigned i = 0; i < 20; i++) {
		fake_any(&h->f);
		vqp_engine_round(&h->e, ++now_ns);
	}
	good = good && begins();
	settle();
	good = good && vqp_pop(b, &p) && p.status == -ECONNABORTED;
	if (good && known) {
		good = vqp_pop(b, &p) && p.status == -ECONNRESET;
		vqp_free(p.from);
	}
	good = good && !vqp_pop(b, &p);
	settle();
	return good && !child_of(b) && list_empty(&far->e.closing);
}

static bool case_end_known(void)
{
	return end_of_read(true);
}

static bool case_end_new(void)
{
	return end_of_read(false);
}

/* Nobody has bound the port; the receive is too short; the receiver goes. */
static bool case_refuse(void)
{
	struct vqp *lone, *c;
	struct vqp_pop_out p;
	bool good;

	lone = join(h, 1);
	good = !say(lone, 0, LONG) && !say(lone, 1, 10);
	settle();
	good = good && done(lone, 0, IBV_WC_REM_OP_ERR) &&
	       done(lone, 1, IBV_WC_WR_FLUSH_ERR);
	meet();
	good = good && !say(a, 0, LONG);
	settle();
	hear(b, 5, LONG - 1);
	good = good && vqp_pop(b, &p) && p.status == -EMSGSIZE && p.wr_id == 5;
	settle();
	good = good && done(a, 0, IBV_WC_REM_OP_ERR);
	c = join(h, 1);
	good = good && !say(c, 0, LONG);
	settle();
	if (good)
		vqp_free(b);
	settle();
	return good && done(c, 0, IBV_WC_REM_OP_ERR) &&
	       h->e.counts.refusals == 3;
}

/* It goes while the READs are under way. */
static bool case_refuse_late(void)
{
	struct vqp *c;
	bool good;

	meet();
	good = !say(a, 0, LONG);
	settle();
	hear(b, 0, LONG);
	good = good && begins();
	if (good)
		vqp_free(b);
	settle();
	good = good && done(a, 0, IBV_WC_REM_OP_ERR);
	/* a connected one */
	meet();
	hear(b, 0, LONG);
	good = good && !say(a, 0, 10);
	settle();
	good = good && heard(0, 10, 0);
	for (uint32_t i = 0; good && i < far->e.vqps_cap; i++) {
		c = far->e.vqps[i];
		if (!c || c->bound != b)
			continue;
		good = !say(c, 1, LONG);
		settle();
		hear(a, 1, LONG);
		good = good && done(a, 0, IBV_WC_SUCCESS) && nothing(a);
		if (good)
			vqp_free(a);
		settle();
		return good && done(c, 1, IBV_WC_REM_OP_ERR);
	}
	return false;
}

/* The receiver's node dies, and the sender has nothing posted. */
static bool case_probe(void)
{
	bool good;

	meet();
	good = !say(a, 0, LONG) && !say(a, 1, 10);
	settle();
	for (unsigned i = 0; good && i < 3; i++) {
		later(VQP_PROBE_NS);
		settle();
		good = nothing(a);
	}
	nodes[1].dead = true;
	later(VQP_PROBE_NS);
	settle();
	return good && done(a, 0, IBV_WC_RETRY_EXC_ERR) &&
	       done(a, 1, IBV_WC_WR_FLUSH_ERR);
}

/* The sender's node dies while the receiver READs: the receive comes back, and
 * others' messages come meanwhile. */
static bool case_dies(void)
{
	struct vqp_pop_out p;
	bool good;

	meet();
	good = !say(a, 0, LONG);
	settle();
	hear(b, 4, LONG);
	good = good && begins();
	nodes[0].dead = true;
	settle();
	return good && vqp_pop(b, &p) && p.wr_id == 4 &&
	       p.status == -ECONNABORTED && p.from->state == VQP_ERROR;
}

/* The announcement names memory that the sender's node does not grant. */
static bool case_garbage(void)
{
	struct vqp_pop_out p;
	bool good;

	meet();
	good = !say(a, 0, LONG);
	settle();
	hear(b, 4, LONG);
	good = good && begins();
	far->f.reads_fail = true;
	settle();
	good = good && vqp_pop(b, &p) && p.status == -ECONNABORTED;
	far->f.reads_fail = false;
	return good && done(a, 0, IBV_WC_REM_OP_ERR);
}

/* The same to a connected vqp: it fails, and its receive comes back, before
 * those that nothing has used. */
static bool case_garbage_answer(void)
{
	struct vqp_pop_out p;
	struct ibv_wc wc;
	bool good;

	meet();
	hear(b, 0, LONG);
	good = !say(a, 0, 10);
	settle();
	good = good && vqp_pop(b, &p) && done(a, 0, IBV_WC_SUCCESS) &&
	       !say(p.from, 1, LONG);
	settle();
	hear(a, 2, LONG);
	hear(a, 3, LONG);
	good = good && nothing(a);
	h->f.reads_fail = true;
	settle();
	h->f.reads_fail = false;
	good = good && vqp_poll(a, 1, &wc) == 1 && wc.wr_id == 2 &&
	       wc.opcode == IBV_WC_RECV && wc.status == IBV_WC_REM_ABORT_ERR;
	return good && done(a, 3, IBV_WC_WR_FLUSH_ERR) && nothing(a) &&
	       done(p.from, 1, IBV_WC_REM_OP_ERR);
}

/* The receiver frees the pair at once, and its queue pair is busy with another
 * node: the sender hears all the same that the message is taken. */
static bool case_ack(void)
{
	struct vqp *other, *c;
	struct vqp_pop_out p;
	bool good;

	meet();
	good = !say(a, 0, LONG);
	settle();
	hear(b, 0, LONG);
	good = good && begins();
	c = child_of(b);
	vqp_engine_round(&far->e, ++now_ns); /* the READs are posted */
	other = join(far, 2);
	other->dci = other->qp = c->dci;
	nodes[2].slow = true;
	good = good && !say(other, 1, 10);
	settle();
	good = good && nothing(a) && vqp_pop(b, &p) && !p.status;
	if (good)
		vqp_free(p.from);
	nodes[2].slow = false;
	settle();
	return good && done(a, 0, IBV_WC_SUCCESS) &&
	       list_empty(&far->e.closing);
}

/* The receiver frees the pair while more messages of it wait, and while one is
 * READ: it pops them all. */
static bool case_free(void)
{
	struct vqp_pop_out p;
	bool good;

	meet();
	good = !say(a, 0, 10) && !say(a, 1, 20) && !say(a, 2, LONG);
	for (unsigned i = 0; i < 4; i++)
		hear(b, i, LONG);
	settle();
	for (unsigned i = 0; good && i < 2; i++) {
		good = vqp_pop(b, &p) && p.len == 10 + 10 * i &&
		       !p.from->front && nothing(p.from);
		/* what the freed one has posted is not the next one's */
		good = good && !say(p.from, 5, 10);
		if (good)
			vqp_free(p.from);
		settle();
	}
	good = good && begins() && child_of(b) && child_of(b)->fetch;
	if (good)
		vqp_free(child_of(b));
	settle();
	good = good && heard(2, LONG, 2) && nothing(child_of(b));
	settle();
	for (unsigned i = 0; good && i < 3; i++)
		good = done(a, i, IBV_WC_SUCCESS);
	return good;
}

/* The bound vqp is freed while the first piece of a message is READ: no other
 * piece is, for its memory may be gone. The pair stays. */
static bool case_orphan(void)
{
	static const uint8_t zero[ROOM];
	bool good;

	meet();
	far->e.conf.piece = 1000;
	good = !say(a, 1, 10) && !say(a, 0, LONG);
	hear(b, 2, LONG);
	hear(b, 3, LONG);
	settle();
	good = good && heard(1, 10, 2) && begins();
	child_of(b)->ours = false; /* the front has it */
	vqp_engine_round(&far->e, ++now_ns);
	vqp_free(b);
	settle();
	return good && !memcmp(in[3], out[0], 1000) &&
	       !memcmp(in[3] + 1000, zero, LONG - 1000) &&
	       done(a, 1, IBV_WC_SUCCESS) && done(a, 0, IBV_WC_REM_OP_ERR);
}

/* A vqp is closed by its program: the message goes on. */
static bool case_close(void)
{
	bool good;

	meet();
	good = !say(a, 0, LONG);
	settle();
	if (good)
		vqp_close(a);
	hear(b, 2, LONG);
	settle();
	good = good && begins();
	settle();
	return good && heard(0, LONG, 2) && list_empty(&h->e.closing);
}

/* The queue pair fails under the announcement: it may have left, and ends as
 * unknown. Then the receiver does not take it. */
static bool case_unknown(void)
{
	struct vqp_pop_out p;
	bool good;

	meet();
	hear(b, 0, LONG);
	h->f.breaks = IBV_WC_WR_FLUSH_ERR;
	good = !say(a, 0, LONG);
	settle();
	good = good && done(a, 0, IBV_WC_WR_FLUSH_ERR) && begins();
	settle();
	return good && vqp_pop(b, &p) && p.status == -ECONNABORTED;
}

/* No memory, or no slots, at any step: no message is taken twice or changed. */
static bool case_short(void)
{
	struct vqp_slot *s, *held[VQP_SLOTS];
	struct vqp *hog;
	unsigned n = 0;
	bool good;

	meet();
	hog = join(far, 2);
	good = !say(a, 0, LONG);
	settle();
	hear(b, 0, LONG);
	while ((s = vqp_slot_get(hog)))
		held[n++] = s;
	good = good && begins() && !b->fetch;
	settle();
	while (n)
		vqp_slot_put(&far->e, held[--n]);
	good = good && begins();
	settle();
	return good && heard(0, LONG, 0) && done(a, 0, IBV_WC_SUCCESS);
}

static bool case_no_memory(void)
{
	bool good = true;

	for (unsigned k = 1; good && k < 6; k++) {
		struct ibv_wc wc;

		meet();
		good = !say(a, 0, LONG);
		far->f.fail_alloc = k;
		settle();
		far->f.fail_alloc = 0;
		hear(b, 0, LONG);
		(void)begins();
		settle();
		/* refused, or forgotten, or taken: as the receiver has it */
		if (vqp_poll(a, 1, &wc))
			good = good &&
			       (wc.status ? begins() : heard(0, LONG, 0));
		vqp_free(a);
		vqp_free(b);
		settle();
	}
	return good;
}

/* --- random runs -------------------------------------------------------- */

#define SENDERS 6u
#define COUNT 30u /* messages of one */

/* What a sender has said: its number is in each message's head and foot. */
struct talker {
	struct vqp *v;
	uint64_t next, told; /* said, complete */
	uint64_t heard;
	uint8_t buf[COUNT][6000];
};

static uint32_t len_of(unsigned nr, uint64_t n)
{
	return n * 7 % 3 ? 16 + (uint32_t)(nr + n) % 40
			 : 4000 + (uint32_t)(n * 61 + nr) % 1900;
}

static int talk(struct talker *t, unsigned nr)
{
	uint64_t n = t->next, mark = (uint64_t)nr << 32 | n;
	uint32_t len = len_of(nr, n);
	struct ibv_sge sge = {(uintptr_t)t->buf[n], len, FAKE_LKEY};
	struct ibv_send_wr wr = {.wr_id = n,
				 .sg_list = &sge,
				 .num_sge = 1,
				 .opcode = IBV_WR_SEND,
				 .send_flags = IBV_SEND_SIGNALED},
			   *bad;
	int err;

	memset(t->buf[n], (int)n, len);
	memcpy(t->buf[n], &mark, 8);
	memcpy(t->buf[n] + len - 8, &mark, 8);
	err = vqp_post_send(t->v, &wr, &bad);
	t->next += !err;
	return err;
}

static bool listen(struct talker *t, unsigned at, const struct vqp_pop_out *p)
{
	uint64_t mark, foot;

	if (p->status)
		return false;
	memcpy(&mark, in[at], 8);
	memcpy(&foot, in[at] + p->len - 8, 8);
	return mark == foot && mark >> 32 < SENDERS &&
	       t[mark >> 32].heard++ == (uint32_t)mark &&
	       p->len == len_of(mark >> 32, (uint32_t)mark);
}

/* A message is complete only after the receiver has it. The program may then
 * use the memory again. */
static bool told(struct talker *t)
{
	struct ibv_wc wc;

	while (vqp_poll(t->v, 1, &wc) == 1) {
		if (wc.status || wc.wr_id != t->told++)
			return false;
		memset(t->buf[wc.wr_id], 0xee, sizeof(t->buf[0]));
	}
	return true;
}

static bool pop_some(struct talker *t, struct prng *rng)
{
	struct vqp_pop_out p;

	if (!vqp_pop(b, &p))
		return true;
	if (!listen(t, (unsigned)p.wr_id, &p))
		return false;
	if (!prng_below(rng, 4))
		vqp_close(p.from);
	hear(b, (unsigned)p.wr_id, ROOM);
	return true;
}

static bool random_run(uint64_t seed)
{
	struct talker *t = calloc(SENDERS, sizeof(*t));
	struct prng rng;
	bool good = true, all = false;

	prng_init(&rng, seed);
	meet();
	vqp_free(a);
	for (unsigned i = 0; i < SENDERS; i++)
		t[i].v = join(h, 1);
	for (unsigned i = 0; i < 8; i++)
		hear(b, i, ROOM);
	for (unsigned k = 0; good && !all && k < 20000; k++) {
		unsigned nr = (unsigned)prng_below(&rng, SENDERS);

		if (t[nr].next < COUNT && !prng_below(&rng, 3))
			good = !talk(&t[nr], nr);
		for (uint64_t i = prng_below(&rng, 6); i; i--) {
			fake_any(&h->f);
			fake_any(&far->f);
		}
		if (!prng_below(&rng, 50))
			h->f.refuse = far->f.refuse = 1;
		later(prng_below(&rng, VQP_PROBE_NS / 8));
		vqp_engine_round(&h->e, now_ns);
		vqp_engine_round(&far->e, now_ns);
		good = good && pop_some(t, &rng) && told(&t[nr]);
		all = true;
		for (unsigned i = 0; i < SENDERS; i++)
			all &= t[i].told == COUNT && t[i].heard == COUNT;
	}
	good = good && all;
	for (unsigned i = 0; i < SENDERS; i++)
		vqp_free(t[i].v);
	settle();
	free(t);
	return good;
}

/* --- the bytes ---------------------------------------------------------- */

static void test_bytes(void **state)
{
	static const uint8_t golden[] = {
		0x08, 0x07, 0x06, 0x05, 0x04, 0x03, 0x02, 0x01, /* word's */
		0x18, 0x17, 0x16, 0x15, 0x14, 0x13, 0x12, 0x11, /* word */
		0x24, 0x23, 0x22, 0x21, 0x02, 0,    0,	  0,	/* rkey, n */
		0x38, 0x37, 0x36, 0x35, 0x34, 0x33, 0x32, 0x31, /* address */
		0x44, 0x43, 0x42, 0x01, 0x54, 0x53, 0x52, 0x51, /* len, rkey */
		0x68, 0x67, 0x66, 0x65, 0x64, 0x63, 0x62, 0x61, /* address */
		0x05, 0,    0,	  0,	0x84, 0x83, 0x82, 0x81, /* len, rkey */
	};
	const uint32_t total = 0x01424344 + 5;
	struct msg_announce m = {.word_addr = 0x0102030405060708,
				 .word = 0x1112131415161718,
				 .word_rkey = 0x21222324,
				 .n = 2},
			    back;
	uint8_t buf[MSG_ANNOUNCE_MAX];

	m.piece[0].addr = 0x3132333435363738;
	m.piece[0].len = 0x01424344;
	m.piece[0].rkey = 0x51525354;
	m.piece[1].addr = 0x6162636465666768;
	m.piece[1].len = 5;
	m.piece[1].rkey = 0x81828384;
	assert_int_equal(msg_announce_encode(&m, buf), sizeof(golden));
	assert_memory_equal(buf, golden, sizeof(golden));
	assert_int_equal(
		msg_announce_decode(golden, sizeof(golden), total, &back), 0);
	assert_int_equal(back.word, m.word);
	assert_int_equal(back.piece[1].rkey, m.piece[1].rkey);
	for (size_t n = 0; n < sizeof(golden); n++)
		assert_int_equal(msg_announce_decode(golden, n, total, &back),
				 -EBADMSG);
	assert_int_equal(msg_announce_decode(golden, sizeof(golden), total + 1,
					     &back),
			 -EBADMSG);
	memset(buf + 8, 0, 8); /* no word */
	assert_int_equal(msg_announce_decode(buf, sizeof(golden), total, &back),
			 -EBADMSG);
}

static void test_head(void **state)
{
	static const uint8_t start[] = {'s', 'v', 'q', '6', 3, 0, 1, 0};
	struct msg_head m = {.kind = MSG_KIND_ANNOUNCE,
			     .with_imm = true,
			     .len = MSG_MAX,
			     .dst_port = 1,
			     .src_vqp = 2,
			     .src = {.port = 3}},
			back;
	uint8_t buf[MSG_HEADER];

	msg_head_encode(&m, buf);
	assert_memory_equal(buf, start, sizeof(start));
	assert_int_equal(msg_head_decode(buf, sizeof(buf), &back), 0);
	m.len++;
	msg_head_encode(&m, buf);
	assert_int_equal(msg_head_decode(buf, sizeof(buf), &back), -EBADMSG);
	m.kind = MSG_KIND_REFUSE; /* to no vqp */
	m.len = 0;
	msg_head_encode(&m, buf);
	assert_int_equal(msg_head_decode(buf, sizeof(buf), &back), -EBADMSG);
	m.dst_vqp = 4;
	msg_head_encode(&m, buf);
	assert_int_equal(msg_head_decode(buf, sizeof(buf), &back), 0);
}

/* --- with and without the mistake --------------------------------------- */

static const struct {
	const char *name;
	bool (*run)(void);
	enum vqp_plant plant; /* 0: it has none of its own */
} cases[] = {
	{"complete when taken", case_hold, VQP_PLANT_HOLD},
	{"the order of requests", case_order, VQP_PLANT_HOLD_ORDER},
	{"both ends announce", case_cross, 0},
	{"a sender that gives up", case_word, VQP_PLANT_WORD},
	{"a sender that is freed", case_end_known, VQP_PLANT_END_READ},
	{"a new sender that is freed", case_end_new, VQP_PLANT_END_READ},
	{"an announcement that is unknown", case_unknown, VQP_PLANT_WORD},
	{"refusals", case_refuse, VQP_PLANT_REFUSE},
	{"a receiver that goes", case_refuse_late, VQP_PLANT_REFUSE},
	{"garbage", case_garbage, VQP_PLANT_REFUSE},
	{"garbage to a connected vqp", case_garbage_answer, VQP_PLANT_REFUSE},
	{"a receiver that dies", case_probe, VQP_PLANT_PROBE},
	{"a sender that dies", case_dies, 0},
	{"a pair that is freed", case_ack, VQP_PLANT_ACK},
	{"messages of a pair that is freed", case_free, VQP_PLANT_FREE},
	{"a receiver that is freed", case_orphan, VQP_PLANT_ORPHAN},
	{"a vqp that is closed", case_close, VQP_PLANT_CLOSE},
	{"no slots", case_short, 0},
	{"no memory", case_no_memory, 0},
};

#define N_CASES (sizeof(cases) / sizeof(cases[0]))

static bool run(unsigned i, enum vqp_plant plant)
{
	open_all(i + 1, plant);
	return close_all(cases[i].run());
}

static void test_cases(void **state)
{
	bool all = true;

	for (unsigned i = 0; i < N_CASES; i++) {
		bool good = run(i, 0);

		if (!good)
			print_message("%s\n", cases[i].name);
		all = all && good;
	}
	assert_true(all);
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
	bool all = true;

	for (unsigned i = 0; i < N_CASES; i++) {
		if (!cases[i].plant || fails(i, cases[i].plant))
			continue;
		print_message("not found: %s\n", cases[i].name);
		all = false;
	}
	assert_true(all);
}

static void test_random(void **state)
{
	const char *env = getenv("SKEIN_TEST_SEEDS");
	uint64_t n = env	       ? (uint64_t)atoll(env)
		     : part_is_whole() ? 1000
				       : part_rounds(200);

	for (uint64_t seed = 1; seed <= n; seed++) {
		bool good;

		open_all(seed, 0);
		if (seed % 2) /* READs piece by piece */
			h->e.conf.piece = far->e.conf.piece = 1000;
		good = close_all(random_run(seed));
		if (!good)
			print_message("seed %lu\n", (unsigned long)seed);
		assert_true(good);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_bytes),  cmocka_unit_test(test_head),
		cmocka_unit_test(test_cases),  cmocka_unit_test(test_plants),
		cmocka_unit_test(test_random),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
