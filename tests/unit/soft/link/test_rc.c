/* SPDX-License-Identifier: MIT */
/*
 * test_rc.c - the rules of the link's engine one by one: what a message costs,
 * windows, timers, refusals, and packets that break the rules.
 */
#include "world.h"

#include "dev/soft/link/link.h"

#include <string.h>

static struct world *plain_new(uint32_t mtu)
{
	struct world *w = world_new(1, mtu, 100, 200, RD_MAX);

	w->ends[0]->recv_posted = w->ends[1]->recv_posted = REQUESTS;
	return w;
}

/* What a message costs where nothing is lost: packets, and one ACK. */
static void test_counts(void **state)
{
	struct world *w = plain_new(1024);

	end_post(w->ends[0], IBV_WR_SEND, 0);
	world_settle(w);
	assert_int_equal(w->ends[0]->packets, 1);
	assert_int_equal(w->ends[1]->packets, 1);
	end_post(w->ends[0], IBV_WR_RDMA_WRITE, 10 * 1024);
	world_settle(w);
	assert_int_equal(w->ends[0]->packets, 11);
	assert_int_equal(w->ends[0]->over, 2);
	assert_true(w->ends[1]->packets <= 3); /* the window begins at 10 */
	w->ends[1]->packets = 0;
	end_post(w->ends[0], IBV_WR_RDMA_READ, 10 * 1024 + 1);
	world_settle(w);
	assert_int_equal(w->ends[0]->packets, 12);
	assert_int_equal(w->ends[1]->packets, 11);
	assert_int_equal(w->ends[0]->over, 3);
	assert_true(rc_deadline(w->ends[0]->rc) == RC_NEVER);
	assert_int_equal(w->ends[0]->rc->retries, 0);
	world_free(w);
}

/* A message is acknowledged each 32 packets, and where the window is full: it
 * waits for no timer. */
static void test_asks(void **state)
{
	struct world *w = plain_new(256);
	struct end *a = w->ends[0], *b = w->ends[1];

	end_post(a, IBV_WR_RDMA_WRITE, SLOT);
	world_settle(w);
	assert_int_equal(a->over, 1);
	assert_int_equal(a->rc->retries, 0);
	b->packets = 0;
	a->rc->own.window = a->rc->own.threshold = RC_WINDOW;
	end_post(a, IBV_WR_RDMA_WRITE, SLOT);
	world_settle(w);
	assert_int_equal(b->packets, 1 + SLOT / 256 / RC_ASK_EACH);
	world_free(w);
}

/* As many packets on their way as the window has, and no more. */
static void test_window(void **state)
{
	struct world *w = plain_new(256);
	struct end *a = w->ends[0];

	a->rc->own.window = a->rc->own.threshold = RC_WINDOW;
	w->wire.of_1000[FAULT_LOST] = 1000;
	for (int i = 0; i < 8; i++)
		end_post(a, IBV_WR_RDMA_WRITE, SLOT);
	end_run(a);
	assert_int_equal(a->packets, RC_WINDOW);
	world_free(w);
	w = plain_new(4096);
	a = w->ends[0];
	a->rc->own.window = a->rc->own.threshold = RC_WINDOW;
	w->wire.of_1000[FAULT_LOST] = 1000;
	for (int i = 0; i < REQUESTS; i++)
		end_post(a, IBV_WR_RDMA_WRITE, SLOT);
	end_run(a);
	assert_int_equal(a->packets, RC_WINDOW_BYTES / 4096);
	world_free(w);
}

/* Nobody answers: retry_cnt + 1 times the timeout, then RETRY_EXC_ERR, and one
 * packet a time. */
static void test_gone(void **state)
{
	struct world *w = plain_new(1024);
	struct end *a = w->ends[0];

	w->wire.of_1000[FAULT_LOST] = 1000;
	end_post(a, IBV_WR_RDMA_WRITE, 5000);
	end_post(a, IBV_WR_SEND, 1);
	world_settle(w);
	assert_int_equal(a->req[0].status, IBV_WC_RETRY_EXC_ERR);
	assert_int_equal(a->req[1].status, IBV_WC_WR_FLUSH_ERR);
	assert_int_equal(a->packets, 6 + 7);
	assert_int_equal(w->now, 8 * (4096ull << 8));
	assert_int_equal(a->rc->retries, 7);
	world_free(w);
}

/* No receive: rnr_retry times, by the responder's timer. */
static void test_rnr(void **state)
{
	struct world *w = plain_new(1024);
	struct end *a = w->ends[0], *b = w->ends[1];

	b->recv_posted = 0;
	a->attr.rnr_retry = a->rc->rq.rnr_left = 3;
	end_post(a, IBV_WR_SEND, 2000);
	world_settle(w);
	assert_int_equal(a->req[0].status, IBV_WC_RNR_RETRY_EXC_ERR);
	assert_int_equal(a->rc->rnrs, 4);
	assert_true(w->now >= 3 * 10000 && w->now < 3 * 10000 + 100000);
	world_free(w);
	/* and one that comes late */
	w = plain_new(1024);
	a = w->ends[0];
	b = w->ends[1];
	b->recv_posted = 0;
	end_post(a, IBV_WR_SEND, 2000);
	end_post(a, IBV_WR_RDMA_WRITE, 10);
	end_run(a);
	for (int i = 0; i < 40; i++)
		world_turn(w);
	assert_int_equal(a->over, 0);
	b->recv_posted = 1;
	world_settle(w);
	assert_int_equal(a->over, 2);
	assert_int_equal(a->req[0].status, 0);
	world_free(w);
}

static void refused(enum ibv_wr_opcode op, uint32_t rkey, uint64_t va,
		    int rights, int status, enum rc_event why)
{
	struct world *w = plain_new(1024);
	struct end *a = w->ends[0], *b = w->ends[1];
	struct request *r;

	b->attr.qp_access_flags = (unsigned)rights;
	end_post(a, IBV_WR_SEND, 3000);
	/* its answer comes before the refusal of what follows */
	if (rights & IBV_ACCESS_REMOTE_READ)
		end_post(a, IBV_WR_RDMA_READ, 3000);
	r = end_post(a, op, 3000);
	r->w.rkey = rkey;
	r->w.va = va;
	end_post(a, IBV_WR_SEND, 1);
	world_settle(w);
	assert_int_equal(a->req[0].status, 0);
	if (rights & IBV_ACCESS_REMOTE_READ)
		assert_int_equal(a->req[1].status, 0);
	assert_int_equal(r->status, status);
	assert_int_equal(r[1].status, IBV_WC_WR_FLUSH_ERR);
	assert_int_equal(b->broken, 1 + (int)why);
	for (size_t i = 0; i < REQUESTS * SLOT; i++)
		assert_int_equal(b->mem[i], 0);
	assert_int_equal(b->word, 0);
	assert_int_equal(b->expect, 1);
	world_free(w);
}

static void test_refused(void **state)
{
	int all = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
		  IBV_ACCESS_REMOTE_ATOMIC;
	int access = IBV_WC_REM_ACCESS_ERR, inv = IBV_WC_REM_INV_REQ_ERR;
	uint64_t end = MEM_VA + REQUESTS * SLOT;

	refused(IBV_WR_RDMA_WRITE, 1, MEM_VA, all, access, RC_ACCESS);
	refused(IBV_WR_RDMA_WRITE, MEM_KEY, end - 2999, all, access, RC_ACCESS);
	refused(IBV_WR_RDMA_WRITE, MEM_KEY, MEM_VA - 1, all, access, RC_ACCESS);
	refused(IBV_WR_RDMA_WRITE_WITH_IMM, ROM_KEY, ROM_VA, all, access,
		RC_ACCESS);
	refused(IBV_WR_RDMA_READ, MEM_KEY, MEM_VA, all, access, RC_ACCESS);
	refused(IBV_WR_ATOMIC_FETCH_AND_ADD, MEM_KEY, MEM_VA, all, access,
		RC_ACCESS);
	refused(IBV_WR_ATOMIC_CMP_AND_SWP, WORD_KEY, WORD_VA + 4, all, inv,
		RC_REQUEST);
	refused(IBV_WR_RDMA_WRITE, MEM_KEY, MEM_VA,
		all & ~IBV_ACCESS_REMOTE_WRITE, inv, RC_REQUEST);
	refused(IBV_WR_RDMA_READ, ROM_KEY, ROM_VA,
		all & ~IBV_ACCESS_REMOTE_READ, inv, RC_REQUEST);
	refused(IBV_WR_ATOMIC_FETCH_AND_ADD, WORD_KEY, WORD_VA,
		all & ~IBV_ACCESS_REMOTE_ATOMIC, inv, RC_REQUEST);
}

/* An end that may have no READ and no atomic under way, and one that takes
 * none. */
static void test_none_at_once(void **state)
{
	const enum ibv_wr_opcode op[] = {IBV_WR_RDMA_READ,
					 IBV_WR_ATOMIC_FETCH_AND_ADD};
	struct end *a, *b;
	struct request *r;
	struct world *w;

	for (int i = 0; i < 4; i++) {
		w = plain_new(1024);
		a = w->ends[0], b = w->ends[1];
		if (i / 2)
			a->attr.max_rd_atomic = 0;
		else
			b->attr.max_dest_rd_atomic = 0;
		end_post(a, IBV_WR_SEND, 3000);
		r = end_post(a, op[i % 2], 3000);
		end_post(a, IBV_WR_SEND, 1);
		world_settle(w);
		assert_int_equal(a->req[0].status, 0);
		assert_int_equal(r->status, i / 2 ? IBV_WC_LOC_QP_OP_ERR
						  : IBV_WC_REM_INV_REQ_ERR);
		assert_int_equal(r[1].status, IBV_WC_WR_FLUSH_ERR);
		assert_int_equal(b->broken, i / 2 ? 0 : 1 + RC_REQUEST);
		assert_int_equal(b->word, 0);
		world_free(w);
	}
}

/* A message that is longer than the receive; local memory that is not in
 * order: what stands before it ends well. */
static void test_broken_ends(void **state)
{
	struct world *w = plain_new(1024);
	struct end *a = w->ends[0], *b = w->ends[1];

	b->plain = true;
	end_post(a, IBV_WR_SEND, SLOT + 1);
	world_settle(w);
	assert_int_equal(a->req[0].status, IBV_WC_REM_INV_REQ_ERR);
	assert_int_equal(b->broken, 1 + RC_RECEIVE);
	world_free(w);
	w = plain_new(1024);
	a = w->ends[0];
	a->fail_local = 2;
	end_post(a, IBV_WR_SEND, 5000);
	end_post(a, IBV_WR_RDMA_WRITE, 5000);
	world_settle(w);
	assert_int_equal(a->req[0].status, 0);
	assert_int_equal(a->req[1].status, IBV_WC_LOC_PROT_ERR);
	assert_int_equal(w->ends[1]->broken, 0);
	world_free(w);
}

static void give(struct end *e, const struct packet *p)
{
	rc_input(e->rc, e->w->now, p);
	end_run(e);
}

/* Packets whose lengths do not agree with their place or with RETH: refused,
 * and no byte of them beyond what RETH says is written. */
static void test_lengths(void **state)
{
	static uint8_t bytes[2048];
	static const struct packet bad[] = {
		{.op = PACKET_WRITE_ONLY, .len = 4, .payload_len = 8},
		{.op = PACKET_WRITE_ONLY, .len = 8, .payload_len = 4},
		{.op = PACKET_WRITE_FIRST, .len = 4096, .payload_len = 512},
		{.op = PACKET_WRITE_FIRST, .len = 1024, .payload_len = 1024},
		{.op = PACKET_WRITE_MIDDLE, .payload_len = 1024},
		{.op = PACKET_WRITE_LAST, .payload_len = 4},
		{.op = PACKET_SEND_FIRST, .payload_len = 100},
		{.op = PACKET_SEND_ONLY, .payload_len = 1028},
		{.op = PACKET_SEND_LAST, .payload_len = 4},
		{.op = PACKET_READ_REQUEST, .len = 0x80000001},
	};

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct world *w = plain_new(1024);
		struct packet p = bad[i];
		struct end *b = w->ends[1];

		b->plain = true;
		p.psn = 100;
		p.payload = bytes;
		p.rkey = MEM_KEY;
		p.va = MEM_VA;
		memset(bytes, 0x55, sizeof(bytes));
		give(b, &p);
		assert_int_equal(b->broken, 1 + RC_REQUEST);
		assert_int_equal(b->last[0], PACKET_ACK);
		assert_int_equal(b->last[12], 0x61);
		for (size_t n = 0; n < SLOT; n++)
			assert_int_equal(b->mem[n], 0);
		/* it answers nothing more */
		b->packets = 0;
		give(b, &p);
		assert_int_equal(b->packets, 0);
		world_free(w);
	}
}

static void two_packets(struct packet second, uint32_t len, bool key_gone,
			uint8_t syndrome)
{
	static uint8_t bytes[1024];
	struct world *w = plain_new(1024);
	struct packet p = {.op = PACKET_WRITE_FIRST,
			   .psn = 100,
			   .rkey = MEM_KEY,
			   .va = MEM_VA,
			   .len = len,
			   .payload = bytes,
			   .payload_len = 1024};
	struct end *b = w->ends[1];

	memset(bytes, 0x55, sizeof(bytes));
	give(b, &p);
	assert_int_equal(b->broken, 0);
	b->key_gone = key_gone;
	second.psn = 101;
	second.payload = bytes;
	give(b, &second);
	assert_int_equal(b->last[12], syndrome);
	assert_int_not_equal(b->broken, 0);
	for (size_t n = 1024; n < SLOT; n++)
		assert_int_equal(b->mem[n], 0);
	world_free(w);
}

/* The second packet of a WRITE: longer than the message, too short for it,
 * another message, its region gone. */
static void test_second(void **state)
{
	struct packet mid = {.op = PACKET_WRITE_MIDDLE, .payload_len = 1024};
	struct packet last = {.op = PACKET_WRITE_LAST, .payload_len = 1024};
	struct packet send = {.op = PACKET_SEND_ONLY, .payload_len = 4};
	struct packet read = {.op = PACKET_READ_REQUEST, .rkey = ROM_KEY};

	two_packets(mid, 1500, false, 0x61);
	two_packets(mid, 2048, false, 0x61);
	two_packets(last, 1500, false, 0x61);
	two_packets(last, 2049, false, 0x61);
	two_packets(send, 2048, false, 0x61);
	two_packets(read, 2048, false, 0x61);
	two_packets(last, 2048, true, 0x62);
}

/* One NAK for a gap, however much lies behind it. */
static void test_gap(void **state)
{
	struct world *w = plain_new(1024);
	struct end *b = w->ends[1];
	struct packet p = {.op = PACKET_SEND_ONLY};

	b->plain = true;
	for (uint32_t i = 1; i < 20; i++) {
		p.psn = 100 + i;
		give(b, &p);
	}
	assert_int_equal(b->packets, 1);
	assert_int_equal(b->last[12], 0x60);
	assert_int_equal(b->last[11], 100);
	assert_int_equal(b->rc->drops[RC_DROP_GAP], 19);
	p.psn = 100;
	p.ack_req = true;
	give(b, &p);
	assert_int_equal(b->last[12], 0x1f);
	p.psn = 102;
	give(b, &p);
	assert_int_equal(b->last[12], 0x60);
	assert_int_equal(b->last[11], 101);
	world_free(w);
}

/* More READs and atomics at once than the QP takes: as if they were lost. */
static void test_too_many(void **state)
{
	struct world *w = plain_new(1024);
	struct end *b = w->ends[1];
	struct packet p = {.op = PACKET_READ_REQUEST,
			   .rkey = ROM_KEY,
			   .va = ROM_VA,
			   .len = 4};

	for (uint32_t i = 0; i < RD_MAX + 2; i++) {
		p.psn = 100 + i;
		assert_int_equal(rc_input(b->rc, w->now, &p),
				 i < RD_MAX    ? RC_TAKEN
				 : i == RD_MAX ? RC_DROP_NOT_READY
					       : RC_DROP_GAP);
	}
	p.psn = 100; /* and one that comes again */
	assert_int_equal(rc_input(b->rc, w->now, &p), RC_DROP_REPEATED);
	assert_int_equal(b->rc->rs.answers, RD_MAX);
	end_run(b);
	assert_int_equal(b->packets, RD_MAX + 1);
	assert_int_equal(b->last[12], 0x60);
	assert_int_equal(b->broken, 0);
	world_free(w);
}

/* Acknowledgements count the messages that were carried out. */
static void test_msn(void **state)
{
	struct world *w = plain_new(1024);
	struct end *a = w->ends[0], *b = w->ends[1];
	struct packet p;

	end_post(a, IBV_WR_SEND, 5000);
	end_post(a, IBV_WR_RDMA_READ, 3000);
	end_post(a, IBV_WR_ATOMIC_FETCH_AND_ADD, 8);
	end_post(a, IBV_WR_RDMA_WRITE, 3000);
	world_settle(w);
	assert_int_equal(a->over, 4);
	assert_int_equal(packet_decode(b->last, packet_head_len(PACKET_ACK),
				       &p),
			 PACKET_OK);
	assert_int_equal(p.op, PACKET_ACK);
	assert_int_equal(p.msn, 4);
	world_free(w);
}

/* A WRITE with immediate that finds no receive has written nothing. */
static void test_imm_waits(void **state)
{
	static const uint8_t bytes[4] = {1, 2, 3, 4};
	struct world *w = plain_new(1024);
	struct end *b = w->ends[1];
	struct packet p = {.op = PACKET_WRITE_ONLY_IMM,
			   .psn = 100,
			   .rkey = MEM_KEY,
			   .va = MEM_VA,
			   .len = 4,
			   .payload = bytes,
			   .payload_len = 4};

	b->plain = true;
	b->recv_posted = 0;
	give(b, &p);
	assert_int_equal(b->last[12] & 0xe0, 0x20);
	assert_int_equal(b->mem[0], 0);
	b->recv_posted = 1;
	give(b, &p);
	assert_memory_equal(b->mem, bytes, 4);
	world_free(w);
}

/* An answer that is shorter or longer than what was asked for is dropped. */
static void test_answer_length(void **state)
{
	static const uint8_t bytes[2048];
	struct world *w = plain_new(1024);
	struct end *a = w->ends[0];
	struct packet p = {.op = PACKET_READ_FIRST,
			   .psn = 100,
			   .syndrome = 0x1f,
			   .payload = bytes};

	w->wire.of_1000[FAULT_LOST] = 1000;
	a->plain = true;
	end_post(a, IBV_WR_RDMA_READ, 1500);
	end_run(a);
	p.payload_len = 1020;
	give(a, &p);
	p.payload_len = 1028;
	give(a, &p);
	assert_int_equal(a->rc->drops[RC_DROP_STRANGE], 2);
	p.payload_len = 1024;
	give(a, &p);
	p.op = PACKET_READ_LAST;
	p.psn = 101;
	give(a, &p); /* 476 are due */
	assert_int_equal(a->rc->drops[RC_DROP_STRANGE], 3);
	p.payload_len = 476;
	give(a, &p);
	assert_int_equal(a->over, 1);
	world_free(w);
}

static void send_atomic(struct end *b, uint32_t psn)
{
	struct packet p = {.op = PACKET_FETCH_ADD,
			   .rkey = WORD_KEY,
			   .va = WORD_VA,
			   .swap = 1,
			   .psn = psn};

	give(b, &p);
}

static uint64_t last_orig(const struct end *b)
{
	struct packet p;

	assert_int_equal(packet_decode(b->last, packet_head_len(b->last[0]),
				       &p),
			 PACKET_OK);
	assert_int_equal(p.op, PACKET_ATOMIC_ACK);
	return p.orig;
}

/* A repeated atomic is answered from what was saved, as often as it comes, and
 * as many of them as the QP takes at once. Those before are dropped. */
static void test_saved(void **state)
{
	struct world *w = plain_new(1024);
	struct end *b = w->ends[1];
	uint32_t i;

	for (i = 0; i < RD_MAX + 1; i++)
		send_atomic(b, 100 + i);
	for (i = 2 * RD_MAX; i > 0; i--) {
		send_atomic(b, 100 + 1 + (i - 1) % RD_MAX);
		assert_true(last_orig(b) == 1 + (i - 1) % RD_MAX);
	}
	b->packets = 0;
	send_atomic(b, 100);
	assert_int_equal(b->packets, 0);
	assert_int_equal(b->word, RD_MAX + 1);
	world_free(w);
}

/* PSNs come again after 2^24: of two saved results with one PSN the later one
 * is meant. Two READs of 2 GiB, which are not carried through, take the PSNs in
 * between. */
static void test_saved_again(void **state)
{
	struct world *w = plain_new(256);
	struct end *b = w->ends[1];
	struct packet p = {.op = PACKET_READ_REQUEST,
			   .rkey = ROM_KEY,
			   .va = ROM_VA,
			   .psn = 101,
			   .len = 1u << 31};

	send_atomic(b, 100);
	assert_int_equal(rc_input(b->rc, w->now, &p), RC_TAKEN);
	p.psn = packet_psn_add(p.psn, p.len / 256);
	p.len -= 256;
	assert_int_equal(rc_input(b->rc, w->now, &p), RC_TAKEN);
	b->rc->rs.answers = 0; /* as if all of them had been sent */
	send_atomic(b, 100);
	assert_true(last_orig(b) == 1);
	assert_int_equal(b->word, 2);
	send_atomic(b, 100);
	assert_true(last_orig(b) == 1);
	assert_int_equal(b->word, 2);
	world_free(w);
}

/* What nobody asked for is dropped, and what is not due is not answered. */
static void test_strange(void **state)
{
	struct world *w = plain_new(1024);
	struct end *a = w->ends[0];
	struct packet p = {.op = PACKET_ACK, .psn = 100, .syndrome = 0x1f};

	a->plain = true;
	give(a, &p); /* nothing was sent */
	p.psn = 99;
	give(a, &p);
	p.op = PACKET_READ_ONLY;
	p.psn = 100;
	give(a, &p);
	w->wire.of_1000[FAULT_LOST] = 1000;
	end_post(a, IBV_WR_RDMA_WRITE, 100);
	end_run(a);
	give(a, &p); /* a READ's answer to a WRITE */
	p.op = PACKET_ACK;
	p.psn = 101;
	give(a, &p); /* beyond what was sent */
	p.psn = 100;
	p.syndrome = 0x64;
	give(a, &p);
	p.syndrome = 0x80;
	give(a, &p);
	assert_int_equal(a->over, 0);
	p.syndrome = 0x03; /* credits are no reason to wait */
	give(a, &p);
	assert_int_equal(a->over, 1);
	assert_int_equal(a->req[0].status, 0);
	world_free(w);
}

/* A READ's answer that is lost is asked for as soon as the next one comes. */
static void test_read_gap(void **state)
{
	struct world *w = plain_new(1024);
	struct end *a = w->ends[0];

	end_post(a, IBV_WR_RDMA_READ, 10 * 1024);
	end_run(a);
	assert_true(world_turn(w)); /* the request, and its ten answers */
	assert_int_equal(w->n_air, 10);
	w->air[4] = w->air[--w->n_air];
	world_settle(w);
	assert_int_equal(a->over, 1);
	assert_int_equal(a->packets, 2);
	assert_int_equal(a->rc->retries, 0);
	assert_int_equal(a->rc->gaps, 1);
	world_free(w);
}

/* A message from b's peer, after which b may keep its ACK. True: it does. */
static bool hears(struct end *b, struct packet *p)
{
	bool held;

	assert_int_equal(rc_input(b->rc, b->w->now, p), RC_TAKEN);
	p->psn++;
	held = rc_hold(b->rc, b->w->now);
	end_run(b);
	return held;
}

static void says(struct end *b)
{
	end_post(b, IBV_WR_SEND, 4);
	end_run(b);
}

/* An ACK goes alone until two messages in a row were answered soon; then it
 * waits for the answer, and goes behind it. */
static void test_hold(void **state)
{
	struct packet p = {.op = PACKET_SEND_ONLY, .psn = 100, .ack_req = true};
	struct world *w = plain_new(1024);
	struct end *b = w->ends[1];

	w->wire.of_1000[FAULT_LOST] = 1000;
	w->now = 1;
	b->plain = true;
	for (unsigned i = 0; i < RC_HOLD_AFTER; i++) {
		assert_false(hears(b, &p));
		assert_int_equal(b->last[0], PACKET_ACK);
		w->now += RC_HOLD_NS;
		says(b);
		assert_int_equal(b->last[0], PACKET_SEND_ONLY);
	}
	assert_int_equal(b->packets, 2 * RC_HOLD_AFTER);
	b->packets = 0;
	assert_true(hears(b, &p));
	assert_true(hears(b, &p)); /* one ACK for both */
	assert_int_equal(b->packets, 0);
	assert_true(rc_deadline(b->rc) == rc_requester_deadline(b->rc));
	says(b);
	assert_int_equal(b->packets, 2);
	assert_int_equal(b->last[0], PACKET_ACK);
	assert_false(b->rc->rs.ack_due || b->rc->rs.held);
	/* its time is over: it goes, and the next one does not wait */
	assert_true(hears(b, &p));
	rc_unhold(b->rc);
	assert_true(rc_deadline(b->rc) == 0);
	end_run(b);
	assert_int_equal(b->packets, 3);
	assert_int_equal(b->last[0], PACKET_ACK);
	assert_false(hears(b, &p));
	assert_int_equal(b->packets, 4);
	world_free(w);
}

/* Answers that come late, or never, teach nobody to wait. */
static void test_hold_late(void **state)
{
	struct packet p = {.op = PACKET_SEND_ONLY, .psn = 100, .ack_req = true};
	struct world *w = plain_new(1024);
	struct end *b = w->ends[1];

	w->wire.of_1000[FAULT_LOST] = 1000;
	w->now = 1;
	b->plain = true;
	for (int i = 0; i < 3; i++) {
		assert_false(hears(b, &p));
		w->now += RC_HOLD_NS + 1;
		says(b);
	}
	/* one in time, one never, one in time */
	assert_false(hears(b, &p));
	says(b);
	assert_false(hears(b, &p));
	assert_false(hears(b, &p));
	says(b);
	assert_false(hears(b, &p));
	world_free(w);
}

/* What says more than an ACK waits for nothing, nor does the middle of a
 * message, or what stands behind READ responses. */
static void test_hold_not(void **state)
{
	static uint8_t bytes[1024];
	struct packet send = {
		.op = PACKET_SEND_ONLY, .psn = 100, .ack_req = true};
	struct packet first = {.op = PACKET_SEND_FIRST,
			       .psn = 100,
			       .ack_req = true,
			       .payload = bytes,
			       .payload_len = 1024};
	struct packet gap = {
		.op = PACKET_SEND_ONLY, .psn = 102, .ack_req = true};
	struct packet read = {.op = PACKET_READ_REQUEST,
			      .psn = 101,
			      .rkey = ROM_KEY,
			      .va = ROM_VA,
			      .len = 8};
	struct world *w = plain_new(1024);
	struct end *b = w->ends[1];

	w->wire.of_1000[FAULT_LOST] = 1000;
	w->now = 1;
	b->plain = true;
	b->rc->rs.answered = RC_HOLD_AFTER;
	assert_true(hears(b, &send));
	rc_input(b->rc, w->now, &gap);
	assert_false(rc_hold(b->rc, w->now));
	end_run(b);
	assert_int_equal(b->packets, 1);
	assert_int_equal(b->last[12], PACKET_SYN_NAK | PACKET_NAK_SEQUENCE);
	world_free(w);

	w = plain_new(1024);
	b = w->ends[1];
	w->wire.of_1000[FAULT_LOST] = 1000;
	w->now = 1;
	b->plain = true;
	b->rc->rs.answered = RC_HOLD_AFTER;
	send.psn = 100;
	assert_true(hears(b, &send));
	assert_false(hears(b, &read));
	assert_true(b->packets >= 1);
	assert_false(b->rc->rs.held);
	world_free(w);

	w = plain_new(1024);
	b = w->ends[1];
	w->wire.of_1000[FAULT_LOST] = 1000;
	w->now = 1;
	b->plain = true;
	b->rc->rs.answered = RC_HOLD_AFTER;
	assert_false(hears(b, &first));
	assert_int_equal(b->packets, 1);
	world_free(w);
}

/* Why dev_qp_caps() has no ordered_read here: a READ that was repeated has two
 * sets of answers on their way, and is over with some of each. */
static void test_read_mixed(void **state)
{
	static uint8_t now[1024], before[1024];
	struct world *w = plain_new(1024);
	struct end *a = w->ends[0];
	struct packet p = {.op = PACKET_READ_FIRST,
			   .psn = 100,
			   .syndrome = 0x1f,
			   .payload = now,
			   .payload_len = 1024};
	struct request *r;

	memset(now, 2, sizeof(now));
	memset(before, 1, sizeof(before));
	w->wire.of_1000[FAULT_LOST] = 1000;
	a->plain = true;
	r = end_post(a, IBV_WR_RDMA_READ, 2048);
	end_run(a);
	w->now = rc_deadline(a->rc);
	end_run(a);
	assert_int_equal(a->rc->retries, 1);
	assert_int_equal(a->packets, 2);
	give(a, &p);
	p.op = PACKET_READ_LAST;
	p.psn++;
	p.payload = before;
	give(a, &p);
	assert_true(r->over);
	assert_int_equal(r->status, IBV_WC_SUCCESS);
	assert_int_equal(r->local[0], 2);
	assert_int_equal(r->local[1024], 1);
	world_free(w);
}

/* A fenced request waits for the READs before it; a READ for those that are as
 * many as the peer takes. */
static void test_waits(void **state)
{
	struct world *w = plain_new(1024);
	struct end *a = w->ends[0];

	w->wire.of_1000[FAULT_LOST] = 1000;
	end_post(a, IBV_WR_RDMA_READ, 10);
	end_post(a, IBV_WR_RDMA_WRITE, 10)->w.fenced = true;
	end_run(a);
	assert_int_equal(a->packets, 1);
	w->wire.of_1000[FAULT_LOST] = 0;
	world_settle(w);
	assert_int_equal(a->over, 2);
	world_free(w);
	w = plain_new(1024);
	a = w->ends[0];
	w->wire.of_1000[FAULT_LOST] = 1000;
	for (int i = 0; i < RD_MAX + 2; i++)
		end_post(a, IBV_WR_RDMA_READ, 10);
	end_post(a, IBV_WR_RDMA_WRITE, 10);
	end_run(a);
	assert_int_equal(a->packets, RD_MAX);
	w->wire.of_1000[FAULT_LOST] = 0;
	world_settle(w);
	assert_int_equal(a->over, RD_MAX + 3);
	/* in SQD what has begun goes on, and nothing begins */
	rc_pause(a->rc, true);
	assert_false(rc_is_busy(a->rc));
	end_post(a, IBV_WR_RDMA_WRITE, 10);
	world_settle(w);
	assert_int_equal(a->over, RD_MAX + 3);
	rc_pause(a->rc, false);
	world_settle(w);
	assert_int_equal(a->over, RD_MAX + 4);
	world_free(w);
}

/* No room to send: nothing is lost, and it goes on when there is. */
static void test_no_room(void **state)
{
	struct world *w = plain_new(1024);
	struct end *a = w->ends[0];

	a->no_room = true;
	end_post(a, IBV_WR_SEND, 5000);
	end_run(a);
	assert_int_equal(a->packets, 0);
	assert_true(rc_deadline(a->rc) == 0);
	a->no_room = false;
	world_settle(w);
	assert_int_equal(a->over, 1);
	world_free(w);
}

static struct world *uc_new(void)
{
	struct world *w = plain_new(1024);

	w->ends[0]->rc->unreliable = w->ends[1]->rc->unreliable = true;
	return w;
}

/* A request of this end alone: when all before it is over, and before all behind
 * it; it takes no PSN, and is tried again. */
static void test_local(void **state)
{
	struct world *w = plain_new(1024);
	struct end *a = w->ends[0];

	a->not_yet = 2;
	end_post(a, IBV_WR_RDMA_WRITE, 3000);
	end_post(a, IBV_WR_RDMA_READ, 3000);
	end_post(a, IBV_WR_LOCAL_INV, 0);
	end_post(a, IBV_WR_RDMA_WRITE, 1000);
	end_post(a, IBV_WR_BIND_MW, 0);
	world_settle(w);
	assert_int_equal(a->over, 5);
	assert_int_equal(a->not_yet, 0);
	assert_int_equal(a->packets, 5);
	assert_true(w->now >= 2 * RC_LOCAL_NS);
	assert_int_equal(a->rc->retries, 0);
	assert_true(rc_deadline(a->rc) == RC_NEVER);
	/* not in SQD */
	rc_pause(a->rc, true);
	end_post(a, IBV_WR_BIND_MW, 0);
	world_settle(w);
	assert_int_equal(a->over, 5);
	rc_pause(a->rc, false);
	a->fail_local = IBV_WC_MW_BIND_ERR;
	end_post(a, IBV_WR_SEND, 8);
	world_settle(w);
	assert_int_equal(a->over, 7);
	assert_int_equal(a->req[5].status, IBV_WC_MW_BIND_ERR);
	assert_int_equal(a->req[6].status, IBV_WC_WR_FLUSH_ERR);
	world_free(w);
}

/* Once for a message, whatever the wire does; a key that is none breaks both. */
static void test_invalidate(void **state)
{
	struct world *w = plain_new(1024);
	struct end *a = w->ends[0], *b = w->ends[1];

	end_post(a, IBV_WR_SEND_WITH_INV, 3000);
	world_settle(w);
	assert_int_equal(a->over, 1);
	assert_int_equal(a->packets, 3);
	assert_int_equal(b->invalidated, 1);
	b->key_gone = b->plain = true;
	end_post(a, IBV_WR_SEND_WITH_INV, 10);
	world_settle(w);
	assert_int_equal(a->req[1].status, IBV_WC_REM_ACCESS_ERR);
	assert_int_equal(b->broken, 1 + RC_RECEIVE);
	world_free(w);
}

/* UC: no answers, no window, no timer; over when it was sent. */
static void test_uc(void **state)
{
	struct world *w = uc_new();
	struct end *a = w->ends[0], *b = w->ends[1];

	end_post(a, IBV_WR_SEND, 10 * 1024 + 1);
	a->plain = true; /* over before it has arrived */
	end_post(a, IBV_WR_RDMA_WRITE_WITH_IMM, 3000);
	assert_int_equal(a->over, 0);
	world_settle(w);
	assert_int_equal(a->over, 2);
	assert_int_equal(a->req[0].status, 0);
	assert_int_equal(a->packets, 14);
	assert_int_equal(b->packets, 0);
	assert_int_equal(b->recv_taken, 2);
	assert_int_equal(b->expect, 2);
	assert_true(rc_deadline(a->rc) == RC_NEVER);
	world_free(w);
}

/* A gap costs the message that it is in; a receive that it had begun is the
 * next message's. */
static void test_uc_gap(void **state)
{
	static uint8_t bytes[1024];
	struct world *w = uc_new();
	struct end *b = w->ends[1];
	struct packet p = {.payload = bytes, .payload_len = 1024};
	static const struct {
		uint8_t op;
		uint32_t psn;
		enum rc_outcome out;
	} step[] = {
		{0x20, 100, RC_TAKEN},	  /* SEND First */
		{0x21, 101, RC_TAKEN},	  /* Middle */
		{0x22, 103, RC_DROP_GAP}, /* Last, one is missing before it */
		{0x21, 104, RC_DROP_GAP}, /* of a message that did not begin */
		{0x24, 200, RC_TAKEN},	  /* Only, behind a gap */
		{0x20, 201, RC_TAKEN},
		{0x24, 202, RC_TAKEN}, /* the one before it has no end */
		{0x24, 150, RC_TAKEN}, /* nothing tells it from a gap */
		{0x22, 151, RC_DROP_GAP},
	};

	b->plain = true;
	for (size_t i = 0; i < sizeof(step) / sizeof(step[0]); i++) {
		p.op = step[i].op;
		p.psn = step[i].psn;
		assert_int_equal(rc_input(b->rc, w->now, &p), step[i].out);
		/* Nothing of a dropped message counts. */
		if (p.op == 0x24)
			assert_int_equal(b->recv_len, 1024);
	}
	assert_int_equal(b->rc->rs.msn, 3);
	assert_int_equal(b->recv_taken, 3);
	end_run(b);
	assert_int_equal(b->packets, 0);
	assert_int_equal(b->broken, 0);
	world_free(w);
}

/* What RC refuses, UC drops, and goes on. */
static void test_uc_refused(void **state)
{
	static uint8_t bytes[1024];
	struct world *w = uc_new();
	struct end *b = w->ends[1];
	struct packet bad = {.op = 0x2a, /* WRITE Only */
			     .psn = 100,
			     .rkey = 1,
			     .va = MEM_VA,
			     .len = 1024,
			     .payload = bytes,
			     .payload_len = 1024};
	struct packet send = {
		.op = 0x24, .psn = 101, .payload = bytes, .payload_len = 4};

	b->plain = true;
	memset(bytes, 0x55, sizeof(bytes));
	assert_int_equal(rc_input(b->rc, w->now, &bad), RC_DROP_REFUSED);
	assert_int_equal(b->mem[0], 0);
	b->recv_posted = 0;
	assert_int_equal(rc_input(b->rc, w->now, &send), RC_DROP_NOT_READY);
	b->recv_posted = 1;
	send.psn++;
	assert_int_equal(rc_input(b->rc, w->now, &send), RC_TAKEN);
	bad.psn = 103;
	bad.rkey = MEM_KEY;
	assert_int_equal(rc_input(b->rc, w->now, &bad), RC_TAKEN);
	assert_int_equal(b->mem[1023], 0x55);
	end_run(b);
	assert_int_equal(b->packets, 0);
	assert_int_equal(b->broken, 0);
	world_free(w);
}

/* A CNP halves the window, once a round trip; a marked packet makes one, and a
 * marked answer halves the window of the end that asked. */
static void test_marks(void **state)
{
	static uint8_t bytes[1024];
	struct world *w = plain_new(1024);
	struct end *a = w->ends[0], *b = w->ends[1];
	struct packet cnp = {.op = PACKET_CNP, .becn = true};
	struct packet p = {.op = PACKET_WRITE_ONLY,
			   .psn = 100,
			   .fecn = true,
			   .rkey = MEM_KEY,
			   .va = MEM_VA,
			   .len = 4,
			   .payload = bytes,
			   .payload_len = 4};

	b->plain = a->plain = true;
	give(b, &p);
	assert_int_equal(b->packets, 1);
	assert_int_equal(b->last[0], PACKET_CNP);
	assert_int_equal(b->last[4], 0x40); /* BECN */
	p.psn++;
	p.fecn = false;
	give(b, &p);
	assert_int_equal(b->packets, 1);
	w->wire.of_1000[FAULT_LOST] = 1000;
	a->rc->own.window = 40;
	end_post(a, IBV_WR_RDMA_READ, 3 * 1024);
	end_run(a);
	assert_false(a->met);
	give(a, &cnp);
	assert_false(a->met);
	assert_int_equal(a->rc->own.window, 20);
	give(a, &cnp);
	assert_int_equal(a->rc->own.window, 20);
	world_free(w);
	w = plain_new(1024);
	a = w->ends[0];
	w->wire.of_1000[FAULT_LOST] = 1000;
	a->plain = true;
	a->rc->own.window = 40;
	end_post(a, IBV_WR_RDMA_READ, 3 * 1024);
	end_run(a);
	p = (struct packet){.op = PACKET_READ_FIRST,
			    .psn = 100,
			    .fecn = true,
			    .syndrome = 0x1f,
			    .payload = bytes,
			    .payload_len = 1024};
	give(a, &p);
	assert_int_equal(a->rc->own.window, 20);
	assert_int_equal(a->packets, 1);
	world_free(w);
}

/* UC's packets are marked, too; it has no window that a CNP could halve. */
static void test_uc_marks(void **state)
{
	struct world *w = uc_new();
	struct end *b = w->ends[1];
	struct packet p = {.op = 0x24, .psn = 100, .fecn = true};

	b->plain = true;
	give(b, &p);
	assert_int_equal(b->packets, 1);
	assert_int_equal(b->last[0], PACKET_CNP);
	p.op = PACKET_CNP;
	give(b, &p);
	assert_int_equal(b->rc->own.window, CONG_FIRST);
	world_free(w);
}

/* QPs to one host share its window. */
static void test_shares(void **state)
{
	struct world *w = plain_new(256), *v = plain_new(256);
	struct end *a = w->ends[0], *b = v->ends[0];
	struct cong c = {0};

	cong_init(&c, CONG_MAX);
	rc_share(a->rc, &c);
	rc_share(b->rc, &c);
	w->wire.of_1000[FAULT_LOST] = v->wire.of_1000[FAULT_LOST] = 1000;
	c.window = 40;
	end_post(a, IBV_WR_RDMA_WRITE, SLOT);
	end_post(b, IBV_WR_RDMA_WRITE, SLOT);
	end_run(a);
	end_run(b);
	assert_int_equal(a->packets, 40);
	assert_int_equal(b->packets, 20);
	/* its packets are on their way no more */
	rc_take(a->rc);
	end_run(b);
	assert_int_equal(b->packets, 40);
	assert_int_equal(c.users, 1);
	world_free(w);
	world_free(v);
}

/* The window shrinks below what is on its way, of which nothing asks for an ACK:
 * one more packet does. */
static void test_shrinks(void **state)
{
	struct world *w = plain_new(256);
	struct end *a = w->ends[0];

	a->rc->own.window = 20;
	a->shrink_at = 5;
	end_post(a, IBV_WR_RDMA_WRITE, 10 * 256);
	end_run(a);
	assert_int_equal(a->packets, 6);
	world_settle(w);
	assert_int_equal(a->over, 1);
	assert_int_equal(a->rc->retries, 0);
	world_free(w);
}

/* After a timeout one packet at a time, also where the host's window is wide:
 * others have had answers. */
static void test_alone(void **state)
{
	struct world *w = plain_new(256);
	struct end *a = w->ends[0];

	w->wire.of_1000[FAULT_LOST] = 1000;
	end_post(a, IBV_WR_RDMA_WRITE, 20 * 256);
	end_run(a);
	assert_int_equal(a->packets, 10);
	a->rc->own.acked++;
	assert_true(world_turn(w));
	assert_int_equal(a->rc->retries, 1);
	assert_int_equal(a->rc->own.window, 10);
	assert_int_equal(a->packets, 11);
	w->wire.of_1000[FAULT_LOST] = 0;
	world_settle(w);
	assert_int_equal(a->over, 1);
	world_free(w);
}

static struct world *probe_new(struct end **a)
{
	struct world *w = world_new(1, 1024, 100, 200, RD_MAX);

	*a = w->ends[0];
	(*a)->attr.timeout = 14; /* 67 ms */
	w->ends[1]->recv_posted = REQUESTS;
	end_post(*a, IBV_WR_SEND, 1); /* its round trip is known then */
	world_settle(w);
	assert_int_equal((*a)->over, 1);
	w->wire.of_1000[FAULT_LOST] = 1000;
	return w;
}

/* The last packet is lost, so that nothing behind it tells of a gap: it goes
 * again long before the QP's timer, and that is no retry; so does a READ. */
static void test_probe(void **state)
{
	static const enum ibv_wr_opcode ops[] = {IBV_WR_RDMA_WRITE,
						 IBV_WR_RDMA_READ};
	struct end *a;

	for (unsigned i = 0; i < 2; i++) {
		struct world *w = probe_new(&a);
		uint64_t from = w->now;

		end_post(a, ops[i], 3000);
		end_run(a);
		w->wire.of_1000[FAULT_LOST] = 0;
		world_settle(w);
		assert_int_equal(a->over, 2);
		assert_int_equal(a->req[1].status, 0);
		assert_int_equal(a->rc->probes, 1);
		assert_int_equal(a->rc->retries, 0);
		assert_true(w->now - from < RC_PROBE_NS + 1000000);
		world_free(w);
	}
}

/* The peer is gone: the QP's timers say when it fails, whatever the probes. */
static void test_probe_gone(void **state)
{
	struct end *a;
	struct world *w = probe_new(&a);
	uint64_t from = w->now;

	end_post(a, IBV_WR_RDMA_WRITE, 3000);
	world_settle(w);
	assert_int_equal(a->req[1].status, IBV_WC_RETRY_EXC_ERR);
	assert_int_equal(a->rc->retries, 7);
	assert_int_equal(w->now - from, 8 * (4096ull << 14));
	/* 10, 20 and 40 ms apart, of which two are before the first timer */
	assert_true(a->rc->probes >= 2 && a->rc->probes <= RC_PROBES_MAX);
	world_free(w);
}

/* A cable is out under a request: as soon as it is in again the request goes on,
 * and the QP has not failed. */
static void test_outage(void **state)
{
	static const uint64_t ms[] = {1000, 3000, 10000, 15000, 30000};
	struct end *a;

	for (unsigned i = 0; i < 2 * sizeof(ms) / sizeof(ms[0]); i++) {
		struct world *w = probe_new(&a);
		uint64_t until = w->now + ms[i / 2] * 1000000;

		a->attr.timeout = SOFT_LINK_TIMEOUT;
		end_post(a, i % 2 ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE, 3000);
		end_run(a);
		while (rc_deadline(a->rc) < until)
			assert_true(world_turn(w));
		w->wire.of_1000[FAULT_LOST] = 0;
		world_settle(w);
		assert_int_equal(a->over, 2);
		assert_int_equal(a->req[1].status, 0);
		assert_true(w->now - until <
			    (RC_PROBE_NS << RC_PROBES_MAX) + 10000000);
		world_free(w);
	}
}

/* For good: TCP's own next try may be twice as late as the end of an outage of
 * 15 s. What was waited for is known then. */
static void test_outage_for_good(void **state)
{
	struct end *a;
	struct world *w = probe_new(&a);
	uint64_t from = w->now;

	a->attr.timeout = SOFT_LINK_TIMEOUT;
	end_post(a, IBV_WR_RDMA_WRITE, 3000);
	world_settle(w);
	assert_int_equal(a->req[1].status, IBV_WC_RETRY_EXC_ERR);
	assert_int_equal(a->rc->retries, 7);
	assert_int_equal(w->now - from, 8 * (4096ull << 20));
	assert_int_equal(w->now - a->rc->rq.since_ns, w->now - from);
	assert_true(w->now - from > 30000000000ull);
	world_free(w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_outage),
		cmocka_unit_test(test_outage_for_good),
		cmocka_unit_test(test_local),
		cmocka_unit_test(test_invalidate),
		cmocka_unit_test(test_uc),
		cmocka_unit_test(test_uc_gap),
		cmocka_unit_test(test_uc_refused),
		cmocka_unit_test(test_marks),
		cmocka_unit_test(test_uc_marks),
		cmocka_unit_test(test_shares),
		cmocka_unit_test(test_shrinks),
		cmocka_unit_test(test_alone),
		cmocka_unit_test(test_counts),
		cmocka_unit_test(test_asks),
		cmocka_unit_test(test_window),
		cmocka_unit_test(test_gone),
		cmocka_unit_test(test_rnr),
		cmocka_unit_test(test_refused),
		cmocka_unit_test(test_none_at_once),
		cmocka_unit_test(test_broken_ends),
		cmocka_unit_test(test_lengths),
		cmocka_unit_test(test_second),
		cmocka_unit_test(test_gap),
		cmocka_unit_test(test_too_many),
		cmocka_unit_test(test_msn),
		cmocka_unit_test(test_imm_waits),
		cmocka_unit_test(test_answer_length),
		cmocka_unit_test(test_saved),
		cmocka_unit_test(test_saved_again),
		cmocka_unit_test(test_strange),
		cmocka_unit_test(test_read_gap),
		cmocka_unit_test(test_read_mixed),
		cmocka_unit_test(test_hold),
		cmocka_unit_test(test_hold_late),
		cmocka_unit_test(test_hold_not),
		cmocka_unit_test(test_waits),
		cmocka_unit_test(test_no_room),
		cmocka_unit_test(test_probe),
		cmocka_unit_test(test_probe_gone),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
