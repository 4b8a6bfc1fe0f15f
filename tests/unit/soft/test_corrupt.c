/* SPDX-License-Identifier: MIT */
/*
 * test_corrupt.c - a peer that writes nonsense into its own NIC file, chosen
 * and at random, while we post to it, poll, and tear down. Whatever it says,
 * every request of ours ends, teardown ends, our process stays whole, and our
 * other connections go on. Run under ASan too.
 */
#include "rig.h"

#include "unit/patience.h"

#include "base/prng.h"
#include "dev/soft/mr.h"
#include "dev/soft/qp/qp.h"
#include "dev/soft/shm.h"
#include "unit/part.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#define LEN 64u
#define PATIENCE_NS patience_ns(8)

/* Everything that has a timer has a short one. */
static const struct rig_opts opts = {
	.qp = {.timeout = 8, .retry_cnt = 1, .rnr_retry = 1}};

/* --- what is written, and where ---------------------------------------- */

enum where {
	IN_NIC,
	IN_QP,
	IN_MR,
	IN_SLOT,
};

struct field {
	const char *name;
	enum where where;
	size_t off, size;
	bool hazard; /* waits for patience: fewer values */
};

#define F(where, type, f)                                       \
	{                                                       \
#type "." #f, where, offsetof(struct type, f),  \
			sizeof(((struct type *)NULL)->f), false \
	}

static const struct field fields[] = {
	F(IN_NIC, shm_nic, magic),
	F(IN_NIC, shm_nic, version),
	F(IN_NIC, shm_nic, nic_id),
	F(IN_NIC, shm_nic, qp_max),
	F(IN_NIC, shm_nic, mr_max),
	F(IN_NIC, shm_nic, life),
	F(IN_NIC, shm_nic, mr_top),
	F(IN_NIC, shm_nic, sweep),
	{"shm_nic.attn", IN_NIC, offsetof(struct shm_nic, attn), 8, false},
	F(IN_QP, shm_qp, gate),
	F(IN_QP, shm_qp, qpn),
	F(IN_QP, shm_qp, idx),
	F(IN_QP, shm_qp, pd),
	F(IN_QP, shm_qp, conn),
	F(IN_QP, shm_qp, dest_qpn),
	F(IN_QP, shm_qp, dest_conn),
	F(IN_QP, shm_qp, dest_nic),
	F(IN_QP, shm_qp, rq_psn),
	F(IN_QP, shm_qp, rnr_timer),
	F(IN_QP, shm_qp, rq_slots),
	F(IN_QP, shm_qp, rq_stride),
	F(IN_QP, shm_qp, ready_off),
	F(IN_QP, shm_qp, rq_group),
	F(IN_QP, shm_qp, cq_off),
	F(IN_QP, shm_qp, srq_off),
	F(IN_QP, shm_qp, type),
	{"shm_qp.hazard", IN_QP, offsetof(struct shm_qp, hazard), 4, true},
	F(IN_QP, shm_qp, parked),
	F(IN_QP, shm_qp, fault),
	F(IN_QP, shm_qp, met),
	F(IN_MR, shm_mr, life),
	F(IN_MR, shm_mr, key),
	F(IN_MR, shm_mr, access),
	F(IN_MR, shm_mr, pd),
	F(IN_MR, shm_mr, kind),
	F(IN_MR, shm_mr, start),
	F(IN_MR, shm_mr, len),
	F(IN_MR, shm_mr, off),
	F(IN_SLOT, shm_slot, word),
	F(IN_SLOT, shm_slot, num_sge),
	F(IN_SLOT, shm_slot, status),
	F(IN_SLOT, shm_slot, byte_len),
	F(IN_SLOT, shm_slot, flags),
	{"shm_sge.addr", IN_SLOT, sizeof(struct shm_slot), 8, false},
	{"shm_sge.len", IN_SLOT, sizeof(struct shm_slot) + 8, 4, false},
	{"shm_sge.lkey", IN_SLOT, sizeof(struct shm_slot) + 12, 4, false},
};
#define FIELDS (sizeof(fields) / sizeof(fields[0]))

static const uint64_t values[] = {
	0,
	1,
	2,
	0x21,
	0xfff,
	0x40000000,
	0x7fffffff,
	0x80000000,
	0xfffffff8,
	0xffffffff,
	0x7fffffffffff,
	1ull << 63,
	UINT64_MAX,
	UINT64_MAX - 4095,
};
#define VALUES (sizeof(values) / sizeof(values[0]))

struct poke {
	uint32_t field;
	uint64_t value;
	bool warm; /* after traffic has gone through */
	bool plain;
};

static void poke_at(char *at, size_t size, uint64_t v)
{
	if (size == 8)
		__atomic_store_n((uint64_t *)(void *)at, v, __ATOMIC_RELEASE);
	else
		__atomic_store_n((uint32_t *)(void *)at, (uint32_t)v,
				 __ATOMIC_RELEASE);
}

static void poke(struct rig_end *e, const struct poke *k)
{
	const struct field *f = &fields[k->field];
	struct soft *s = soft_of_dev(e->dev);
	struct soft_qp *q = soft_qp_of(e->qp);
	uint32_t i;

	switch (f->where) {
	case IN_NIC:
		poke_at(s->base + f->off, f->size, k->value);
		break;
	case IN_QP:
		poke_at((char *)q->self + f->off, f->size, k->value);
		break;
	case IN_MR:
		poke_at((char *)&s->mr_table[e->mem->mr->handle] + f->off,
			f->size, k->value);
		break;
	case IN_SLOT:
		for (i = 0; i < q->rq_slots; i++)
			poke_at((char *)soft_slot(q, i) + f->off, f->size,
				k->value);
		break;
	}
	/* What was checked before is looked at again. */
	if (f->where != IN_SLOT && f->off != offsetof(struct shm_qp, gate))
		atomic_fetch_add(&q->self->gate, SHM_GATE_EPOCH);
}

/* --- the peer ----------------------------------------------------------- */

static void post_recvs(struct rig_end *e)
{
	for (int i = 0; i < 8; i++)
		assert_int_equal(rig_recv(e, 100, e->buf + 4096, LEN), 0);
}

static void peer_main(int sock, void *arg)
{
	struct poke *k = arg;
	struct rig_opts o = opts;
	struct rig_addr ours;
	struct rig_end e;
	char c = 0;

	o.plain = k->plain;
	rig_meet(&e, sock, &o, &ours);
	post_recvs(&e);
	if (!k->warm)
		poke(&e, k);
	if (write(sock, &c, 1) != 1 || read(sock, &c, 1) != 1)
		_exit(0); /* we have refused it */
	if (k->warm)
		poke(&e, k);
	if (write(sock, &c, 1) != 1)
		_exit(0);
	/* Its own teardown is of no interest. */
	while (read(sock, &c, 1) > 0)
		;
	_exit(0);
}

/* --- us ----------------------------------------------------------------- */

/* Two ends of ours that have nothing to do with it. */
struct honest {
	struct rig_end a, b;
	uint64_t n;
};

static void honest_open(struct honest *h)
{
	rig_pair(&h->a, &h->b, NULL);
	h->n = 0;
}

static void honest_works(struct honest *h)
{
	uint64_t n = ++h->n;

	assert_int_equal(rig_recv(&h->b, n, h->b.buf, 8), 0);
	memcpy(h->a.buf, &n, 8);
	assert_int_equal(rig_post(&h->a, IBV_WR_RDMA_WRITE, n, h->a.buf, 8,
				  (uintptr_t)h->b.buf + 64, h->b.mem->mr->rkey,
				  IBV_SEND_SIGNALED),
			 0);
	rig_expect(&h->a, n, IBV_WC_SUCCESS);
	assert_int_equal(rig_post(&h->a, IBV_WR_SEND, n, h->a.buf, 8, 0, 0,
				  IBV_SEND_SIGNALED),
			 0);
	rig_expect(&h->a, n, IBV_WC_SUCCESS);
	rig_expect(&h->b, n, IBV_WC_SUCCESS);
	assert_memory_equal(h->b.buf, &n, 8);
	assert_memory_equal(h->b.buf + 64, &n, 8);
}

static const enum ibv_wr_opcode kinds[] = {
	IBV_WR_SEND,
	IBV_WR_RDMA_WRITE,
	IBV_WR_RDMA_READ,
	IBV_WR_ATOMIC_FETCH_AND_ADD,
	IBV_WR_RDMA_WRITE_WITH_IMM,
};
#define KINDS (sizeof(kinds) / sizeof(kinds[0]))

static int post(struct rig_end *e, const struct rig_addr *peer, unsigned i)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)e->buf, .length = 8, .lkey = e->lkey};
	struct ibv_send_wr wr = {.wr_id = i,
				 .sg_list = &sge,
				 .num_sge = 1,
				 .opcode = kinds[i],
				 .send_flags = IBV_SEND_SIGNALED},
			   *bad;

	if (kinds[i] != IBV_WR_ATOMIC_FETCH_AND_ADD)
		return rig_post(e, kinds[i], i, e->buf, LEN, peer->buf + 8192,
				peer->rkey, IBV_SEND_SIGNALED);
	wr.wr.atomic.remote_addr = peer->buf + 8192;
	wr.wr.atomic.rkey = peer->rkey;
	wr.wr.atomic.compare_add = 1;
	return ibv_post_send(e->qp, &wr, &bad);
}

/* One of each; all of them end, in whatever way. */
static bool one_of_each(struct rig_end *e, const struct rig_addr *peer,
			const char *what)
{
	uint64_t end = rig_now_ns() + PATIENCE_NS;
	unsigned i, posted = 0, done = 0;
	bool good = true;
	struct ibv_wc wc;
	int n;

	for (i = 0; i < KINDS; i++)
		posted += !post(e, peer, i);
	while (done < posted) {
		n = ibv_poll_cq(e->cq, 1, &wc);
		assert_true(n >= 0);
		if (n == 0) {
			if (rig_now_ns() > end)
				fail_msg("%s: request %u of %u never ends",
					 what, done, posted);
			sched_yield();
			continue;
		}
		done += wc.qp_num == e->qp->qp_num && wc.wr_id < KINDS;
		good &= wc.status == IBV_WC_SUCCESS;
	}
	return good && posted == KINDS;
}

/* To ERR and away: in time, whatever the peer's hazard says. */
static void tear_down(struct rig_end *e)
{
	int rc = dev_qp_err(e->dev, e->qp);
	struct ibv_wc wc;

	assert_true(rc == 0 || rc == -EBUSY);
	while (ibv_poll_cq(e->cq, 1, &wc) > 0)
		;
	assert_int_equal(e->dev->ops->destroy_qp(e->dev, e->qp), 0);
	e->qp = NULL;
}

static bool meets(struct rig_end *e, const struct rig_addr *peer)
{
	return !dev_qp_rtr(e->dev, e->qp, &peer->qp, &e->o.qp) &&
	       !dev_qp_rts(e->dev, e->qp, e->psn, &peer->qp, &e->o.qp);
}

static void try_poke(struct rig_end *e, struct honest *h, struct poke *k)
{
	struct rig_addr mine, peer;
	struct rig_child c;
	char text[96], go;

	snprintf(text, sizeof(text), "%s = 0x%llx, %s, %s",
		 fields[k->field].name, (unsigned long long)k->value,
		 k->warm ? "warm" : "cold", k->plain ? "plain" : "mapped");
	if (getenv("SKEIN_TEST_LOG"))
		fprintf(stderr, "%s\n", text);
	e->qp = rig_qp(e);
	rig_addr(e, &mine);
	rig_fork(&c, peer_main, k);
	rig_get(c.sock, &peer, sizeof(peer));
	rig_put(c.sock, &mine, sizeof(mine));
	rig_get(c.sock, &go, 1);
	/* Cold: we meet it when it has been done, or refuse to. */
	if (meets(e, &peer)) {
		post_recvs(e);
		if (k->warm && !one_of_each(e, &peer, text))
			fail_msg("%s: not even before", text);
		rig_put(c.sock, &go, 1);
		rig_get(c.sock, &go, 1);
		one_of_each(e, &peer, text);
	} else if (k->warm) {
		fail_msg("%s: no connection even before", text);
	}
	honest_works(h);
	tear_down(e);
	rig_join(&c);
	honest_works(h);
}

static void chosen(bool warm, bool plain)
{
	struct poke k = {.warm = warm, .plain = plain};
	struct honest h;
	struct rig_end e;
	uint32_t v;

	rig_open(&e, &opts);
	assert_int_equal(e.dev->ops->destroy_qp(e.dev, e.qp), 0);
	honest_open(&h);
	for (k.field = 0; k.field < FIELDS; k.field++) {
		/* Ordinary memory differs in what is behind a region. */
		if (plain && fields[k.field].where != IN_MR)
			continue;
		for (v = 0; v < VALUES; v++) {
			k.value = values[v];
			if (fields[k.field].size == 4 && k.value > UINT32_MAX)
				continue;
			if (fields[k.field].hazard && v > 1)
				continue;
			/* Cold and warm, mapped and plain take other parts. */
			if ((k.field + v + warm + plain) % part_step(3))
				continue;
			try_poke(&e, &h, &k);
		}
	}
	e.qp = NULL;
	rig_close(&e);
	rig_unpair(&h.a, &h.b);
}

static void test_chosen_cold(void **state)
{
	chosen(false, false);
}

static void test_chosen_warm(void **state)
{
	chosen(true, false);
}

static void test_chosen_plain(void **state)
{
	chosen(true, true);
	chosen(false, true);
}

/* --- what it may do besides --------------------------------------------- */

typedef void act_fn(struct rig_end *e, const struct rig_addr *ours);

/* A peer that does something of its own before it tells us where it is
 * (early), or when both have connected. */
struct act {
	act_fn *early, *late;
};

static void act_main(int sock, void *arg)
{
	const struct act *act = arg;
	struct rig_addr mine, ours;
	struct rig_end e;
	char c = 0;

	rig_open(&e, &opts);
	rig_addr(&e, &mine);
	if (read(sock, &ours, sizeof(ours)) != sizeof(ours))
		_exit(0);
	if (act->early)
		act->early(&e, &ours);
	rig_addr(&e, &mine); /* perhaps it is another QP now */
	if (write(sock, &mine, sizeof(mine)) != sizeof(mine))
		_exit(0);
	rig_connect(&e, &ours);
	post_recvs(&e);
	if (write(sock, &c, 1) != 1 || read(sock, &c, 1) != 1)
		_exit(0);
	if (act->late)
		act->late(&e, &ours);
	if (write(sock, &c, 1) != 1)
		_exit(0);
	while (read(sock, &c, 1) > 0)
		;
	_exit(0);
}

/* Our side until it has acted; false when it was refused. */
static bool act_begin(struct rig_end *e, struct act *act, struct rig_child *c,
		      struct rig_addr *peer)
{
	struct rig_addr mine;
	char go;

	e->qp = rig_qp(e);
	rig_addr(e, &mine);
	rig_fork(c, act_main, act);
	rig_put(c->sock, &mine, sizeof(mine));
	rig_get(c->sock, peer, sizeof(*peer));
	rig_get(c->sock, &go, 1);
	if (!meets(e, peer))
		return false;
	post_recvs(e);
	rig_put(c->sock, &go, 1);
	rig_get(c->sock, &go, 1);
	return true;
}

/* A NIC file that is larger than what is mapped of it, and offsets that lie
 * in between. */
static void grow(struct rig_end *e, const struct rig_addr *ours)
{
	struct soft *s = soft_of_dev(e->dev);
	struct soft_qp *q = soft_qp_of(e->qp);

	if (ftruncate(s->nic_fd, (off_t)(8 * SHM_SPAN)))
		_exit(0);
	q->self->ready_off = (uint32_t)(2 * SHM_SPAN / 4);
	q->self->cq_off = (uint32_t)(3 * SHM_SPAN / SHM_PAGE);
}

static void test_grown(void **state)
{
	struct act act = {.early = grow};
	struct rig_addr peer;
	struct rig_child c;
	struct honest h;
	struct rig_end e;

	honest_open(&h);
	rig_open(&e, &opts);
	assert_int_equal(e.dev->ops->destroy_qp(e.dev, e.qp), 0);
	/* Nothing is written where another mapping may be. */
	if (act_begin(&e, &act, &c, &peer))
		assert_false(one_of_each(&e, &peer, "grown"));
	tear_down(&e);
	honest_works(&h);
	rig_join(&c);
	rig_close(&e);
	rig_unpair(&h.a, &h.b);
}

/* It says that it is somebody whom we know, whose file is smaller. */
static uint64_t forged_id;

static void forge(struct rig_end *e, const struct rig_addr *ours)
{
	struct soft *s = soft_of_dev(e->dev);
	int i;

	for (i = 0; i < 2000; i++)
		e->qp = rig_qp(e);
	s->nic->nic_id = forged_id;
}

static void test_forged(void **state)
{
	struct act act = {.early = forge};
	struct rig_addr peer, aa, ba;
	struct rig_child c;
	struct rig_end a, b;
	struct ibv_qp *known;

	rig_open(&a, &opts);
	rig_open(&b, &opts);
	rig_addr(&a, &aa);
	rig_addr(&b, &ba);
	rig_connect(&a, &ba);
	rig_connect(&b, &aa);
	forged_id = soft_of_dev(b.dev)->nic->nic_id;
	known = a.qp;
	if (act_begin(&a, &act, &c, &peer))
		one_of_each(&a, &peer, "forged");
	tear_down(&a);
	rig_join(&c);
	/* The one that it was not goes on. */
	a.qp = known;
	post_recvs(&a);
	assert_true(one_of_each(&b, &aa, "known"));
	rig_unpair(&a, &b);
}

/* In our own file it may complete our receives: at most those that we posted,
 * and none longer than it was posted. */
static void complete_ours(struct rig_end *e, const struct rig_addr *ours)
{
	struct soft_qp *q = soft_qp_of(e->qp);
	struct shm_slot *slot;
	uint32_t i;

	for (i = 0; i < q->far->rq_slots; i++) {
		slot = (void *)((char *)q->far->slots +
				(size_t)i * q->far->rq_stride);
		slot->status = i & 1 ? 0 : 0x12345678;
		slot->byte_len = 0xffffffff;
		slot->flags = 0;
		atomic_store(&slot->word, i << 2 | SHM_SLOT_DONE);
	}
}

static void test_completions(void **state)
{
	struct act act = {.late = complete_ours};
	struct rig_addr peer;
	struct rig_child c;
	struct rig_end e;
	struct ibv_wc wc;
	int n = 0;

	rig_open(&e, &opts);
	assert_int_equal(e.dev->ops->destroy_qp(e.dev, e.qp), 0);
	assert_true(act_begin(&e, &act, &c, &peer));
	while (ibv_poll_cq(e.cq, 1, &wc) == 1) {
		assert_int_equal(wc.wr_id, 100);
		assert_int_equal(wc.status, IBV_WC_GENERAL_ERR);
		n++;
	}
	assert_int_equal(n, 8);
	/* Its place in the queue is still known. */
	assert_int_equal(rig_recv(&e, 7, e.buf, LEN), 0);
	tear_down(&e);
	rig_join(&c);
	rig_close(&e);
}

/* --- at random, while we are at it -------------------------------------- */

struct scribbler {
	struct rig_end *e;
	uint64_t seed;
};

/* Words of every kind of place, over and over; half of them near the truth. */
static void *scribble(void *arg)
{
	struct scribbler *sc = arg;
	struct soft *s = soft_of_dev(sc->e->dev);
	struct soft_qp *q = soft_qp_of(sc->e->qp);
	uint64_t at, v,
		span[4][2] = {
			{0, sizeof(struct shm_nic)},
			{SHM_MR_OFF, 8 * sizeof(struct shm_mr)},
			{q->area_off, q->area_len},
			{(uint64_t)q->self->cq_off * SHM_PAGE, SHM_PAGE},
		};
	uint32_t *word, was;
	struct prng rng;
	unsigned k;

	prng_init(&rng, sc->seed);
	for (;;) {
		/* the QP's own lines most of all */
		k = prng_below(&rng, 2) ? 2 : (unsigned)prng_below(&rng, 4);
		at = prng_below(&rng, prng_below(&rng, 2) && span[k][1] > 512
					      ? 512
					      : span[k][1]);
		word = (uint32_t *)(void *)(s->base + span[k][0] +
					    (at & ~3ull));
		was = __atomic_load_n(word, __ATOMIC_RELAXED);
		v = prng_below(&rng, 2) ? prng_u64(&rng)
					: values[prng_below(&rng, VALUES)];
		__atomic_store_n(word, (uint32_t)v, __ATOMIC_RELAXED);
		for (v = prng_below(&rng, 64); v; v--)
			__asm__ volatile("" : : : "memory");
		/* Mostly it is as if nothing had been. */
		if (prng_below(&rng, 8))
			__atomic_store_n(word, was, __ATOMIC_RELAXED);
	}
	return NULL;
}

static uint64_t scribble_seed;

static void scribble_start(struct rig_end *e, const struct rig_addr *ours)
{
	static struct scribbler sc;
	pthread_t t;

	/* What it does to itself is its own affair. */
	alarm(20);
	sc = (struct scribbler){e, scribble_seed};
	if (pthread_create(&t, NULL, scribble, &sc))
		_exit(0);
}

static void scribble_round(struct rig_end *e, struct honest *h, uint64_t seed)
{
	struct act act = {.late = scribble_start};
	struct rig_addr mine, peer;
	struct rig_child c;
	uint64_t end;
	char go;

	scribble_seed = seed;
	e->qp = rig_qp(e);
	rig_addr(e, &mine);
	rig_fork(&c, act_main, &act);
	rig_put(c.sock, &mine, sizeof(mine));
	rig_get(c.sock, &peer, sizeof(peer));
	rig_get(c.sock, &go, 1);
	if (meets(e, &peer)) {
		post_recvs(e);
		one_of_each(e, &peer, "before");
		rig_put(c.sock, &go, 1);
		end = rig_now_ns() + 20000000;
		while (one_of_each(e, &peer, "scribbled") && rig_now_ns() < end)
			honest_works(h);
	}
	honest_works(h);
	tear_down(e);
	honest_works(h);
	kill(c.pid, SIGKILL);
	rig_join(&c);
}

static long rounds(void)
{
	const char *s = getenv("SKEIN_TEST_ROUNDS");

	return s && atol(s) > 0 ? atol(s) : 60;
}

static void test_random(void **state)
{
	long n, all = rounds();
	struct honest h;
	struct rig_end e;

	rig_open(&e, &opts);
	assert_int_equal(e.dev->ops->destroy_qp(e.dev, e.qp), 0);
	honest_open(&h);
	for (n = 0; n < all; n++)
		scribble_round(&e, &h, (uint64_t)n);
	rig_close(&e);
	rig_unpair(&h.a, &h.b);
}

/* With an argument: the tests that it matches. */
int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_chosen_cold),
		cmocka_unit_test(test_chosen_warm),
		cmocka_unit_test(test_chosen_plain),
		cmocka_unit_test(test_grown),
		cmocka_unit_test(test_forged),
		cmocka_unit_test(test_completions),
		cmocka_unit_test(test_random),
	};

	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
