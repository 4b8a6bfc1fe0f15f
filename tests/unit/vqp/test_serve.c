/* SPDX-License-Identifier: MIT */
/*
 * serve.c on the made-up device: what one client of a node service is told, and
 * what it can reach. Both ends of its ring are here; nothing else runs.
 */
#include "fake.h"
#include "vqp/node/serve.h"

#define PORT 9u

struct world {
	struct fake_node *nodes;
	struct half h, far;    /* the service's, and a node beside it */
	struct vqp_peer *peer; /* the far node: connects need no look-up */
	void *rings;
	struct serve s;
	struct ring c; /* the client's end */
	uint32_t mem;
	uint64_t now_ns;
};

static uint64_t words[4096];

static int setup(void **state)
{
	struct world *w = calloc(1, sizeof(*w));

	w->nodes = fake_nodes();
	half_open(&w->h, w->nodes, 0, 1);
	half_open(&w->far, w->nodes, 1, 2);
	w->peer = vqp_peer_get(&w->h.e, &w->nodes[1].id);
	w->rings = aligned_alloc(4096, RING_LEN);
	memset(w->rings, 0, RING_LEN);
	serve_init(&w->s, &w->h.e, w->rings);
	ring_init(&w->c, w->rings);
	w->mem = serve_mem_add(&w->s, words, sizeof(words), FAKE_LKEY, w);
	assert_int_not_equal(w->mem, 0);
	*state = w;
	return 0;
}

/* The service's rounds, without the devices. */
static void rounds(struct world *w)
{
	unsigned idle;

	for (idle = 0; idle < 3; idle++) {
		if (serve_round(&w->s))
			idle = 0;
		if (vqp_engine_round(&w->h.e, ++w->now_ns))
			idle = 0;
	}
}

static void settle(struct world *w)
{
	unsigned idle;

	for (idle = 0; idle < 20; idle++) {
		bool any = fake_any(&w->h.f) | fake_any(&w->far.f);

		any |= vqp_engine_round(&w->far.e, w->now_ns) != 0;
		any |= vqp_engine_round(&w->h.e, ++w->now_ns) != 0;
		any |= serve_round(&w->s) != 0;
		if (any)
			idle = 0;
	}
}

/* The devices and engines, without the service. */
static void devices(struct world *w)
{
	while (fake_any(&w->h.f) || fake_any(&w->far.f) ||
	       vqp_engine_round(&w->h.e, ++w->now_ns))
		;
}

static int teardown(void **state)
{
	struct world *w = *state;
	unsigned i;

	serve_fini(&w->s);
	settle(w);
	assert_string_equal(w->h.f.wrong, "");
	assert_string_equal(w->far.f.wrong, "");
	/* of the client nothing is left */
	assert_int_equal(w->h.e.cq_used, 0);
	assert_int_equal(w->h.e.n_free, VQP_SLOTS);
	for (i = 0; i < w->h.e.vqps_cap; i++)
		assert_null(w->h.e.vqps[i]);
	vqp_peer_put(&w->h.e, w->peer);
	half_close(&w->h);
	half_close(&w->far);
	free(w->rings);
	free(w->nodes);
	free(w);
	return 0;
}

/* --- a client by hand --------------------------------------------------- */

static void put(struct world *w, const struct ring_req *q)
{
	assert_int_equal(ring_put(&w->c, q), 0);
	serve_round(&w->s);
}

static struct ring_comp taken(struct world *w, enum ring_kind kind)
{
	struct ring_comp c;

	assert_true(ring_comp_take(&w->c, &c));
	assert_int_equal(c.kind, kind);
	return c;
}

static void nothing(struct world *w)
{
	assert_false(ring_comp_has(&w->c));
	assert_null(w->s.wrong);
}

static void is_wrong(struct world *w, const struct ring_req *q)
{
	put(w, q);
	assert_non_null(w->s.wrong);
	w->s.wrong = NULL;
	nothing(w);
}

static uint32_t vqp_made(struct world *w)
{
	struct ring_req q = {.op = RING_OP_NEW, .wr_id = 77};
	struct ring_comp c;

	put(w, &q);
	c = taken(w, RING_REPLY);
	assert_int_equal(c.wr_id, 77);
	assert_int_equal(c.len, 0);
	nothing(w);
	return c.imm;
}

static uint32_t connected(struct world *w)
{
	struct ring_req q = {.op = RING_OP_CONNECT, .rkey = PORT};
	struct ring_comp c;

	q.vqp = vqp_made(w);
	q.addr = w->nodes[1].id.port;
	memcpy(q.gid, w->nodes[1].id.gid, sizeof(q.gid));
	put(w, &q);
	c = taken(w, RING_REPLY);
	assert_int_equal(c.vqp, q.vqp);
	assert_int_equal(c.len, 0);
	return q.vqp;
}

static void freed(struct world *w, uint32_t id, uint64_t seen)
{
	struct ring_req q = {.op = RING_OP_FREE, .vqp = id, .addr = seen};

	put(w, &q);
	assert_null(w->s.wrong);
}

static struct ring_req write_of(struct world *w, uint32_t id, uint64_t wr_id,
				bool signaled)
{
	return (struct ring_req){.op = RING_OP_SEND + IBV_WR_RDMA_WRITE,
				 .flags = signaled ? IBV_SEND_SIGNALED : 0,
				 .num_sge = 1,
				 .vqp = id,
				 .wr_id = wr_id,
				 .rkey = FAKE_REGION,
				 .addr = 8 * (wr_id % 4096),
				 .sge = {{w->mem, 8, 8 * (wr_id % 4096)}}};
}

static void write_put(struct world *w, uint32_t id, uint64_t wr_id,
		      bool signaled)
{
	struct ring_req q = write_of(w, id, wr_id, signaled);

	put(w, &q);
}

static void done(struct world *w, uint64_t wr_id, enum ibv_wc_status status)
{
	struct ring_comp c = taken(w, RING_DONE);

	assert_int_equal(c.wr_id, wr_id);
	assert_int_equal(c.status, status);
}

/* --- vqps --------------------------------------------------------------- */

static void bind_to_port(struct world *w, uint32_t id, unsigned recvs)
{
	struct ring_req q = {.op = RING_OP_BIND, .vqp = id, .rkey = PORT};

	put(w, &q);
	assert_int_equal(taken(w, RING_REPLY).len, 0);
	q = (struct ring_req){.op = RING_OP_RECV, .vqp = id, .num_sge = 1};
	for (q.wr_id = 0; q.wr_id < recvs; q.wr_id++) {
		q.sge[0] = (struct ring_sge){w->mem, 8, 8 * q.wr_id};
		put(w, &q);
	}
	nothing(w);
}

static void message(struct world *w, struct vqp *from, uint64_t text)
{
	struct ibv_sge sge = {(uintptr_t)&text, sizeof(text), 0};
	struct ibv_send_wr wr = {.sg_list = &sge,
				 .num_sge = 1,
				 .opcode = IBV_WR_SEND,
				 .send_flags = IBV_SEND_INLINE},
			   *bad;

	assert_int_equal(vqp_post_send(from, &wr, &bad), 0);
	settle(w);
}

/* A message is in the ring when the client frees its sender's vqp: the client
 * makes a handle of it, and the vqp is still there. */
static void test_child_stays(void **state)
{
	struct world *w = *state;
	struct vqp_peer *p = vqp_peer_get(&w->far.e, &w->nodes[0].id);
	uint32_t bound = vqp_made(w), child;
	struct ring_req q = {.op = RING_OP_RECV};
	struct ring_comp c;
	struct vqp *from;

	assert_int_equal(vqp_new(&w->far.e, &from), 0);
	vqp_join(from, p);
	from->far_port = PORT;
	from->by_port = true;
	bind_to_port(w, bound, 4);
	message(w, from, 111);
	message(w, from, 222);
	c = taken(w, RING_MESSAGE);
	assert_int_equal(c.vqp, bound);
	assert_int_equal(words[0], 111);
	child = c.value;
	q.vqp = child;
	freed(w, child, 1); /* the other one was not seen */
	c = taken(w, RING_MESSAGE);
	assert_int_equal(c.value, child);
	assert_int_equal(words[1], 222);
	put(w, &q);
	nothing(w);
	freed(w, child, 2);
	is_wrong(w, &q);
	/* its sender is met anew */
	message(w, from, 333);
	c = taken(w, RING_MESSAGE);
	assert_int_not_equal(c.value, 0);
	assert_int_not_equal(c.value, child);
	/* of a vqp that the client made the number says nothing */
	freed(w, bound, 5);
	q.vqp = bound;
	is_wrong(w, &q);
}

/* A place is used again: a request that names the vqp before does not reach the
 * one that is there. */
static void test_generations(void **state)
{
	struct ring_req q = {.op = RING_OP_RECV};
	struct world *w = *state;
	uint32_t old = connected(w), id;

	freed(w, old, 0);
	w->s.next = old & 0xffff;
	id = connected(w);
	assert_int_equal(id & 0xffff, old & 0xffff);
	assert_int_not_equal(id, old);
	q.vqp = old;
	is_wrong(w, &q);
	q.op = RING_OP_FREE;
	is_wrong(w, &q);
	q = write_of(w, old, 1, true);
	is_wrong(w, &q);
	write_put(w, id, 2, true);
	settle(w);
	done(w, 2, IBV_WC_SUCCESS);
	/* memory: the same, and only the vqp is in error */
	assert_ptr_equal(serve_mem_del(&w->s, w->mem), w);
	assert_null(serve_mem_del(&w->s, w->mem));
	q = write_of(w, id, 3, true);
	w->mem = serve_mem_add(&w->s, words, sizeof(words), FAKE_LKEY, w);
	assert_int_not_equal(q.sge[0].mem, w->mem);
	put(w, &q);
	settle(w);
	done(w, 3, IBV_WC_LOC_PROT_ERR);
	nothing(w);
}

/* No piece reaches out of the memory that it names. */
static void test_pieces(void **state)
{
	static const struct {
		uint32_t len;
		uint64_t off;
	} bad[] = {{8, sizeof(words) - 7},
		   {8, sizeof(words) + 8},
		   {8, UINT64_MAX - 3},
		   {sizeof(words) + 1, 0}};
	struct world *w = *state;
	struct ring_req q;
	uint32_t i;

	for (i = 0; i < 4; i++) {
		q = write_of(w, connected(w), i, true);
		q.sge[0].len = bad[i].len;
		q.sge[0].off = bad[i].off;
		put(w, &q);
		settle(w);
		done(w, i, IBV_WC_LOC_PROT_ERR);
	}
	q = write_of(w, connected(w), 9, true);
	q.sge[0].off = sizeof(words) - 8;
	put(w, &q);
	settle(w);
	done(w, 9, IBV_WC_SUCCESS);
}

static void test_wrong(void **state)
{
	struct world *w = *state;
	struct ring_req q = {.op = RING_OP_CONNECT, .addr = 1};
	unsigned i;

	q.vqp = vqp_made(w);
	is_wrong(w, &q); /* port 0 */
	q.rkey = 1;
	q.addr = 70000;
	is_wrong(w, &q);
	q = write_of(w, q.vqp, 1, true);
	is_wrong(w, &q); /* not connected */
	q = write_of(w, connected(w), 1, true);
	q.op = RING_OP_SEND + IBV_WR_RDMA_WRITE_WITH_IMM;
	is_wrong(w, &q);
	q.op = RING_OP_RECV;
	for (i = 0; i < VQP_RECVS; i++)
		put(w, &q);
	nothing(w);
	is_wrong(w, &q);
}

/* --- what the client is told -------------------------------------------- */

/* A client that has nothing signalled learns all the same that there is room
 * again. */
static void test_room_told(void **state)
{
	struct world *w = *state;
	uint32_t id = connected(w), i, told;
	struct ring_comp c;

	for (told = 0; told < 5 * SERVE_TELL; told += SERVE_TELL) {
		for (i = 0; i < SERVE_TELL - 1; i++)
			write_put(w, id, i, false);
		settle(w);
		nothing(w);
		write_put(w, id, i, false);
		settle(w);
		c = taken(w, RING_ROOM);
		assert_int_equal(c.vqp, id);
		assert_int_equal(c.value, told + SERVE_TELL);
		nothing(w);
	}
	/* a completion tells it too, and what it told is not told again */
	for (i = 0; i < SERVE_TELL; i++)
		write_put(w, id, i, i == SERVE_TELL - 1);
	settle(w);
	c = taken(w, RING_DONE);
	assert_int_equal(c.value, told + SERVE_TELL);
	for (i = 0; i < SERVE_TELL - 1; i++)
		write_put(w, id, i, false);
	settle(w);
	nothing(w);
}

/* One request on each of many vqps: the client counts them all together, so it
 * is told of them all together. */
static void many_told(struct world *w, unsigned n, uint32_t least)
{
	uint32_t told = 0, i;
	struct ring_comp c;

	for (i = 0; i < n; i++) {
		write_put(w, connected(w), i, false);
		settle(w);
		while (ring_comp_has(&w->c)) {
			c = taken(w, RING_ROOM);
			assert_int_equal(c.value, 1);
			told++;
		}
		assert_true(told <= i + 1 && i + 1 - told < least);
	}
}

static void test_room_of_many(void **state)
{
	static const uint64_t max[QUOTA_KINDS] = {
		[QUOTA_REQUESTS] = 3, [QUOTA_VQPS] = 512};
	struct quota_user user = {0};
	struct world *w = *state;

	many_told(w, 300, SERVE_TELL);
	assert_int_equal(w->s.untold, SERVE_TELL - 1);
	/* what a vqp has not told goes with it */
	serve_fini(&w->s);
	assert_int_equal(w->s.untold, 0);
	w->s.quota = (struct quota){.max = max, .user_times = 1, .user = &user};
	many_told(w, 20, 1);
	serve_fini(&w->s);
	w->s.quota.max = NULL;
}

/* Nothing is told to be retired that the device has not done. */
static void test_room_is_there(void **state)
{
	struct world *w = *state;
	uint32_t id = connected(w), i;

	for (i = 0; i < SERVE_QUEUE; i++)
		write_put(w, id, i, false);
	rounds(w);
	nothing(w);
	settle(w);
	assert_int_equal(taken(w, RING_ROOM).vqp, id);
}

/* A client that does not count waits, and loses nothing. */
static void test_no_count(void **state)
{
	struct world *w = *state;
	uint32_t id = connected(w), i;

	for (i = 0; i < 200; i++)
		write_put(w, id, i, true);
	rounds(w);
	assert_true(w->s.holds);
	/* what makes room is a round of its own */
	assert_false(serve_has(&w->s));
	assert_true(w->s.requests < 200);
	nothing(w);
	settle(w);
	assert_false(w->s.holds);
	for (i = 0; i < 200; i++)
		done(w, i, IBV_WC_SUCCESS);
	nothing(w);
}

/* A client that does not count has no more on the engine than its quota, nor have
 * two of a user; the rest waits, and nothing is lost. One that reads nothing does
 * not keep what its user has. */
static void test_quota(void **state)
{
	static const uint64_t max[QUOTA_KINDS] = {
		[QUOTA_REQUESTS] = 50, [QUOTA_VQPS] = 9, [QUOTA_PORTS] = 9};
	struct quota_user user = {.used = {[QUOTA_REQUESTS] = 20}};
	struct world *w = *state;
	uint32_t id, i;

	w->s.quota = (struct quota){.max = max, .user_times = 1, .user = &user};
	id = connected(w);
	for (i = 0; i < 60; i++)
		write_put(w, id, i, false);
	rounds(w);
	assert_true(w->s.holds);
	assert_int_equal(user.used[QUOTA_REQUESTS], 50);
	assert_int_equal(w->s.quota.used[QUOTA_REQUESTS], 30);
	assert_int_equal(w->s.quota.refused, 2u << 2 * QUOTA_REQUESTS);
	user.used[QUOTA_REQUESTS] -= 20;
	rounds(w);
	assert_int_equal(w->s.quota.used[QUOTA_REQUESTS], 50);
	assert_int_equal(w->s.quota.refused, 3u << 2 * QUOTA_REQUESTS);
	/* its ring is full of what it does not read */
	while (ring_comp_room(&w->s.ring) > (int)RING_REPLIES)
		ring_comp_put(&w->s.ring, &(struct ring_comp){0});
	devices(w);
	rounds(w);
	assert_int_equal(user.used[QUOTA_REQUESTS], 0);
	for (i = 0; i < RING_FULL; i++)
		assert_true(ring_comp_take(&w->c, &(struct ring_comp){0}));
	settle(w);
	assert_false(w->s.holds);
	assert_int_equal(w->s.requests, 2 + 60);
	assert_int_equal(w->s.quota.used[QUOTA_REQUESTS], 0);
	/* what a vqp has under way goes with it */
	for (i = 0; i < 40; i++)
		write_put(w, id, i, true);
	assert_int_equal(user.used[QUOTA_REQUESTS], 40);
	freed(w, id, 0);
	assert_int_equal(user.used[QUOTA_REQUESTS], 0);
	assert_int_equal(user.used[QUOTA_VQPS], 0);
	w->s.quota.max = NULL;
}

/* Rounds in which a client with large requests and one with small ones are
 * served: the large ones take no more bytes than their turns have. */
static void test_bytes(void **state)
{
	const uint64_t large = 4 * sizeof(words), n = 60; /* two turns each */
	struct world *w = *state;
	void *rings = aligned_alloc(4096, RING_LEN);
	uint32_t id = connected(w), rounds_all = 0;
	struct serve small;
	struct ring_req q;
	struct ring c;
	uint64_t i, k, paid;

	memset(rings, 0, RING_LEN);
	serve_init(&small, &w->h.e, rings);
	ring_init(&c, rings);
	for (i = 0; i < n; i++) {
		q = write_of(w, id, 0, false);
		q.num_sge = 4;
		for (k = 0; k < 4; k++)
			q.sge[k] = (struct ring_sge){w->mem, sizeof(words), 0};
		assert_int_equal(ring_put(&w->c, &q), 0);
	}
	q = (struct ring_req){.op = RING_OP_NEW};
	for (i = 0; i < 250; i++)
		assert_int_equal(ring_put(&c, &q), 0);
	paid = w->s.requests;
	while (small.requests < 250) {
		serve_round(&w->s);
		serve_round(&small);
		rounds_all++;
	}
	assert_int_equal(rounds_all, 4);
	assert_in_range(w->s.requests - paid, 1,
			rounds_all * SERVE_BYTES / large + 1);
	/* alone it goes on until all is taken, and each round has something */
	while (w->s.requests - paid < n) {
		int moved = serve_round(&w->s);

		if (!w->s.holds)
			assert_true(moved > 0);
		devices(w);
	}
	/* it saves nothing meanwhile */
	rounds(w);
	assert_in_range(w->s.credit, 1, SERVE_BYTES);
	settle(w);
	/* what is no length is no debt for ever */
	q = write_of(w, id, 1, true);
	q.num_sge = 4;
	for (i = 0; i < 4; i++)
		q.sge[i] = (struct ring_sge){w->mem, UINT32_MAX, 0};
	put(w, &q);
	assert_int_equal(w->s.credit, -SERVE_DEBT);
	while (ring_comp_has(&w->c))
		assert_true(ring_comp_take(&w->c, &(struct ring_comp){0}));
	serve_fini(&small);
	free(rings);
}

/* One that takes no completions: they stay on the engine, none is lost. */
static void test_no_look(void **state)
{
	struct world *w = *state;
	uint32_t id[6], next[6] = {0}, seen = 0, i, k;
	struct ring_comp c;

	for (k = 0; k < 6; k++)
		id[k] = connected(w);
	for (k = 0; k < 6; k++) {
		for (i = 0; i < SERVE_QUEUE; i++)
			write_put(w, id[k], i, true);
		devices(w);
	}
	settle(w);
	/* room for the replies to a round of requests */
	assert_int_equal(w->s.ring.comp - w->c.comp, RING_COMPS - SERVE_BATCH);
	assert_null(w->s.wrong);
	while (seen < 6 * SERVE_QUEUE) {
		c = taken(w, RING_DONE);
		for (k = 0; id[k] != c.vqp;)
			assert_true(++k < 6);
		assert_int_equal(c.wr_id, next[k]++);
		seen++;
		if (!ring_comp_has(&w->c))
			settle(w);
	}
	nothing(w);
}

/* What waits for room in a full ring keeps the service awake no more; once the
 * client has read it there is something to do, and all is served. */
static void test_full(void **state)
{
	struct ring_req q = {.op = RING_OP_NEW};
	struct world *w = *state;
	struct ring_comp c;
	unsigned put = 0, seen;

	do {
		assert_int_equal(ring_put(&w->c, &q), 0);
		put++;
		serve_round(&w->s);
	} while (w->s.requests == put);
	assert_int_equal(w->s.ring.comp, RING_FULL);
	assert_true(ring_has(&w->s.ring));
	assert_false(serve_has(&w->s));
	for (seen = 0; seen < RING_FULL; seen++) {
		assert_false(serve_has(&w->s));
		assert_int_equal(serve_round(&w->s), 0);
		taken(w, RING_REPLY);
		if (serve_has(&w->s))
			break;
	}
	/* the first that is read makes room for one */
	assert_int_equal(seen, 0);
	for (seen = 1; seen < put; seen++) {
		serve_round(&w->s);
		assert_true(ring_comp_take(&w->c, &c));
	}
	serve_round(&w->s);
	assert_false(serve_has(&w->s));
	/* a cursor that is none is found too */
	w->s.full = true;
	atomic_store(&w->s.ring.heads->comps_taken, 100000);
	w->s.ring.far = w->s.ring.comp - RING_FULL;
	assert_true(serve_has(&w->s));
	serve_round(&w->s);
	assert_non_null(w->s.wrong);
}

/* Its requests are on the device, and wait in software, when it is detached;
 * teardown() sees what is left. */
static void test_ends(void **state)
{
	struct world *w = *state;
	uint32_t id = connected(w), i;

	write_put(w, id, 0, true);
	settle(w);
	for (i = 1; i < 100; i++)
		write_put(w, id, i, i % 3);
	rounds(w);
	assert_true(w->h.e.cq_used > 0);
}

int main(void)
{
#define CASE(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)
	const struct CMUnitTest tests[] = {
		CASE(test_child_stays),	  CASE(test_generations),
		CASE(test_pieces),	  CASE(test_wrong),
		CASE(test_room_told),	  CASE(test_room_of_many),
		CASE(test_room_is_there), CASE(test_no_count),
		CASE(test_no_look),	  CASE(test_bytes),
		CASE(test_quota),	  CASE(test_full),
		CASE(test_ends),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
