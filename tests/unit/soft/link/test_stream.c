/* SPDX-License-Identifier: MIT */
/*
 * test_stream.c - the link's engine where packets go over a connection: nothing
 * is sent twice on one that lasts, and nothing is lost with one that ends.
 */
#include "world.h"

#include "dev/soft/link/link.h"

#define TIMEOUT (4096ull << 8)

static struct world *stream_new(uint32_t mtu)
{
	struct world *w = world_new(1, mtu, 100, 200, RD_MAX);

	w->ends[0]->recv_posted = w->ends[1]->recv_posted = REQUESTS;
	rc_carrier(w->ends[0]->rc, true);
	rc_carrier(w->ends[1]->rc, true);
	return w;
}

/* The peer has answered before, and is stopped: timeouts count, to the end. */
static void test_stopped(void **state)
{
	struct world *w = stream_new(1024);
	struct end *a = w->ends[0];
	uint64_t from;

	end_post(a, IBV_WR_SEND, 1);
	world_settle(w);
	assert_int_equal(a->over, 1);
	from = w->now;
	a->packets = 0;
	w->wire.of_1000[FAULT_LOST] = 1000;
	end_post(a, IBV_WR_RDMA_WRITE, 5000);
	world_settle(w);
	assert_int_equal(a->req[1].status, IBV_WC_RETRY_EXC_ERR);
	assert_int_equal(a->packets, 5);
	assert_int_equal(a->rc->retries, 7);
	assert_int_equal(w->now - from, 8 * TIMEOUT);
	world_free(w);
}

/* A cable is out: TCP sends again when twice the outage is over, and the QP has
 * waited for it, without a packet of its own. */
static void test_outage(void **state)
{
	struct world *w = stream_new(1024);
	struct end *a = w->ends[0];

	a->attr.timeout = SOFT_LINK_TIMEOUT;
	end_post(a, IBV_WR_SEND, 1);
	world_settle(w);
	assert_int_equal(a->over, 1);
	a->packets = 0;
	w->calls_ns = 30000000000ull;
	end_post(a, IBV_WR_RDMA_WRITE, 5000);
	end_run(a);
	w->calls_ns = 0;
	world_settle(w);
	assert_int_equal(a->over, 2);
	assert_int_equal(a->req[1].status, 0);
	assert_int_equal(a->packets, 5);
	world_free(w);
}

/* The peer was not in RTR yet. A patient QP does not wait for its timer. */
static void test_not_up_soon(void **state)
{
	struct world *w = stream_new(1024);
	struct end *a = w->ends[0];

	a->attr.timeout = SOFT_LINK_TIMEOUT;
	w->wire.of_1000[FAULT_LOST] = 1000;
	end_post(a, IBV_WR_RDMA_WRITE, 5000);
	end_run(a);
	w->wire.of_1000[FAULT_LOST] = 0;
	world_settle(w);
	assert_int_equal(a->req[0].status, 0);
	assert_int_equal(a->packets, 10);
	assert_int_equal(a->rc->retries, 0);
	assert_true(w->now < 2 * RC_PROBE_FIRST_NS);
	world_free(w);
}

/* Its QP was not in RTR yet: it has dropped what came. */
static void test_not_up(void **state)
{
	struct world *w = stream_new(1024);
	struct end *a = w->ends[0];

	w->wire.of_1000[FAULT_LOST] = 1000;
	end_post(a, IBV_WR_RDMA_WRITE, 5000);
	end_run(a);
	assert_int_equal(a->packets, 5);
	w->wire.of_1000[FAULT_LOST] = 0;
	world_settle(w);
	assert_int_equal(a->over, 1);
	assert_int_equal(a->req[0].status, 0);
	assert_int_equal(a->packets, 10);
	assert_int_equal(a->rc->retries, 1);
	/* and again by another connection */
	rc_carrier(a->rc, true);
	w->wire.of_1000[FAULT_LOST] = 1000;
	end_post(a, IBV_WR_RDMA_WRITE, 5000);
	end_run(a);
	w->wire.of_1000[FAULT_LOST] = 0;
	world_settle(w);
	assert_int_equal(a->over, 2);
	assert_int_equal(a->req[1].status, 0);
	world_free(w);
}

/* What was on its way is lost with the connection, and goes by the next at
 * once. */
static void test_change(void **state)
{
	struct world *w = stream_new(1024);
	struct end *a = w->ends[0], *b = w->ends[1];

	end_post(a, IBV_WR_SEND, 1);
	world_settle(w);
	w->wire.of_1000[FAULT_LOST] = 1000;
	end_post(a, IBV_WR_RDMA_WRITE, 5000);
	end_post(a, IBV_WR_ATOMIC_FETCH_AND_ADD, 8);
	end_post(a, IBV_WR_RDMA_READ, 5000);
	end_run(a);
	w->wire.of_1000[FAULT_LOST] = 0;
	rc_carrier(a->rc, false);
	rc_carrier(b->rc, false);
	end_run(a);
	world_settle(w);
	assert_int_equal(a->over, 4);
	assert_int_equal(a->rc->retries, 0);
	assert_int_equal(b->rc->drops[RC_DROP_REPEATED], 0);
	world_free(w);
}

/* Only the answers were lost: nothing is carried out twice. */
static void test_change_back(void **state)
{
	struct world *w = stream_new(1024);
	struct end *a = w->ends[0], *b = w->ends[1];
	uint64_t was;

	end_post(a, IBV_WR_ATOMIC_FETCH_AND_ADD, 8);
	world_settle(w);
	was = b->word;
	end_post(a, IBV_WR_RDMA_WRITE, 5000);
	end_post(a, IBV_WR_ATOMIC_FETCH_AND_ADD, 8);
	end_run(a);
	while (b->word == was)
		assert_true(world_turn(w));
	was = b->word;
	w->n_air = 0; /* the answers */
	rc_carrier(b->rc, true);
	rc_carrier(a->rc, true);
	end_run(a);
	world_settle(w);
	assert_int_equal(a->over, 3);
	assert_int_equal(b->word, was);
	assert_int_equal(a->rc->retries, 0);
	world_free(w);
}

/* The window is not that of datagrams. */
static void test_window(void **state)
{
	struct world *w = stream_new(256);
	struct end *a = w->ends[0];

	w->wire.of_1000[FAULT_LOST] = 1000;
	for (int i = 0; i < 8; i++)
		end_post(a, IBV_WR_RDMA_WRITE, SLOT);
	end_run(a);
	assert_int_equal(a->packets, 8 * SLOT / 256);
	world_free(w);
}

/* There is no connection, or no room on it, for ever. */
static void test_no_room(void **state)
{
	struct world *w = stream_new(1024);
	struct end *a = w->ends[0];
	unsigned n;

	a->no_room = true;
	end_post(a, IBV_WR_SEND, 5000);
	end_run(a);
	for (n = 0; !a->over; n++) {
		assert_true(rc_requester_deadline(a->rc) != RC_NEVER);
		w->now = rc_requester_deadline(a->rc);
		end_run(a);
	}
	assert_int_equal(a->req[0].status, IBV_WC_RETRY_EXC_ERR);
	assert_int_equal(n, 8);
	assert_int_equal(w->now, 8 * TIMEOUT);
	world_free(w);
}

/* A second connection for long messages, slower or quicker than the first: no
 * packet overtakes another of its QP. */
static void test_bulk(void **state)
{
	unsigned moves = 0, i;

	for (uint64_t seed = 1; seed <= 300; seed++) {
		struct world *w = world_new(seed, 256, 100, 200, RD_MAX);

		w->bulk_ns = world_random(w, 40000);
		w->calls_ns = world_random(w, 40000);
		for (i = 0; i < 2; i++) {
			w->ends[i]->bulk = 1 + (uint32_t)world_random(w, SLOT);
			w->ends[i]->recv_posted = REQUESTS;
			rc_carrier(w->ends[i]->rc, true);
		}
		for (int n = 0; n < REQUESTS;) {
			for (unsigned more = (unsigned)world_random(w, 8);
			     more && n < REQUESTS; more--, n++)
				for (i = 0; i < 2; i++)
					end_post_random(w->ends[i]);
			for (i = 0; i < 2; i++)
				end_run(w->ends[i]);
			for (unsigned turns = (unsigned)world_random(w, 200);
			     turns && world_turn(w); turns--)
				;
		}
		world_settle(w);
		for (i = 0; i < 2; i++) {
			const struct end *e = w->ends[i];

			assert_int_equal(e->over, REQUESTS);
			assert_int_equal(e->req[REQUESTS - 1].status, 0);
			assert_int_equal(e->rc->gaps, 0);
			assert_int_equal(e->rc->retries, 0);
			assert_int_equal(e->rc->drops[RC_DROP_GAP], 0);
			assert_int_equal(e->rc->drops[RC_DROP_REPEATED], 0);
			moves += e->moves;
		}
		world_free(w);
	}
	assert_true(moves > 1000);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_stopped),
		cmocka_unit_test(test_outage),
		cmocka_unit_test(test_not_up_soon),
		cmocka_unit_test(test_not_up),
		cmocka_unit_test(test_change),
		cmocka_unit_test(test_change_back),
		cmocka_unit_test(test_window),
		cmocka_unit_test(test_no_room),
		cmocka_unit_test(test_bulk),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
