/* SPDX-License-Identifier: MIT */
/*
 * A client's rings: what is put in comes out, of all shapes, over many laps; full
 * ones refuse; what makes no sense is not taken; the layouts are those that ring.h
 * has.
 */
#include "../cm.h"
#include "base/prng.h"
#include "vqp/node/attach.h"
#include "vqp/node/ring.h"

#include <errno.h>
#include <infiniband/verbs.h>
#include <skein/error.h>
#include <stdlib.h>
#include <string.h>

static uint8_t *mem;
static struct ring here, there; /* the client's end, the service's */

static int setup(void **state)
{
	(void)state;
	mem = aligned_alloc(4096, (RING_LEN + 4095) / 4096 * 4096);
	assert_non_null(mem);
	memset(mem, 0, RING_LEN);
	ring_init(&here, mem);
	ring_init(&there, mem);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	free(mem);
	return 0;
}

static void random_req(struct prng *rng, struct ring_req *q)
{
	memset(q, 0, sizeof(*q));
	q->op = (uint8_t)(RING_OP_NEW + prng_below(rng, RING_OPS - 1));
	q->vqp = (uint32_t)prng_u64(rng);
	q->rkey = (uint32_t)prng_u64(rng);
	q->wr_id = prng_u64(rng);
	q->addr = prng_u64(rng);
	if (q->op == RING_OP_CONNECT) {
		prng_fill(rng, q->gid, sizeof(q->gid));
		return;
	}
	q->flags = (uint8_t)prng_below(rng, 16);
	if (q->flags & IBV_SEND_INLINE) {
		q->data_len = (uint32_t)prng_below(rng, RING_DATA + 1);
		prng_fill(rng, q->data, q->data_len);
		return;
	}
	q->compare_add = prng_u64(rng);
	q->swap = prng_u64(rng);
	q->num_sge = (uint8_t)(1 + prng_below(rng, RING_SGES));
	for (unsigned i = 0; i < q->num_sge; i++) {
		q->sge[i].mem = (uint32_t)prng_u64(rng);
		q->sge[i].len = (uint32_t)prng_u64(rng);
		q->sge[i].off = prng_u64(rng);
	}
}

static void same(const struct ring_req *a, const struct ring_req *b)
{
	assert_int_equal(a->op, b->op);
	assert_int_equal(a->flags, b->flags);
	assert_int_equal(a->vqp, b->vqp);
	assert_int_equal(a->rkey, b->rkey);
	assert_int_equal(a->wr_id, b->wr_id);
	assert_int_equal(a->addr, b->addr);
	assert_int_equal(a->num_sge, b->num_sge);
	assert_int_equal(a->data_len, b->data_len);
	assert_memory_equal(a->data, b->data, a->data_len);
	if (a->op == RING_OP_CONNECT) {
		assert_memory_equal(a->gid, b->gid, sizeof(a->gid));
		return;
	}
	if (a->num_sge) {
		assert_int_equal(a->compare_add, b->compare_add);
		assert_int_equal(a->swap, b->swap);
	}
	for (unsigned i = 0; i < a->num_sge; i++) {
		assert_int_equal(a->sge[i].mem, b->sge[i].mem);
		assert_int_equal(a->sge[i].len, b->sge[i].len);
		assert_int_equal(a->sge[i].off, b->sge[i].off);
	}
}

static void test_requests(void **state)
{
	static struct ring_req in[RING_LINES];
	struct ring_req out;
	struct prng rng;
	unsigned head = 0, tail = 0, full = 0;

	(void)state;
	prng_init(&rng, 1);
	/* the numbers go round as well */
	here.line = there.line = here.far = UINT32_MAX - 1000;
	atomic_store(&there.heads->lines_taken, there.line);
	for (unsigned i = 0; i < 200000; i++) {
		if (prng_below(&rng, 100) < (i / 1000 % 2 ? 60 : 40)) {
			random_req(&rng, &in[tail % RING_LINES]);
			if (ring_put(&here, &in[tail % RING_LINES]))
				full++;
			else
				tail++;
		} else if (head == tail) {
			assert_false(ring_has(&there));
			assert_int_equal(ring_take(&there, &out), -EAGAIN);
		} else {
			assert_true(ring_has(&there));
			assert_int_equal(ring_take(&there, &out), 0);
			same(&in[head++ % RING_LINES], &out);
		}
	}
	assert_true(full > 100 && head > 50000);
}

static void test_completions(void **state)
{
	struct ring_comp c = {0}, out;
	uint64_t head = 0, tail = 0;
	struct prng rng;
	int room;

	(void)state;
	prng_init(&rng, 2);
	here.comp = there.comp = there.far = UINT32_MAX - 1000;
	atomic_store(&here.heads->comps_taken, here.comp);
	for (unsigned i = 0; i < 200000; i++) {
		room = ring_comp_room(&there);
		assert_true(room >= 0 && room <= (int)RING_COMPS);
		assert_true((uint64_t)room <= RING_COMPS - (tail - head));
		if (room && prng_below(&rng, 100) < (i / 2000 % 2 ? 60 : 40)) {
			c.wr_id = tail++;
			c.kind = (uint8_t)(c.wr_id % 5 + 1);
			c.status = (uint8_t)(c.wr_id % 23);
			c.opcode = (uint8_t)(c.wr_id % 7);
			c.with_imm = c.wr_id % 2;
			c.vqp = (uint32_t)prng_mix(c.wr_id);
			c.len = ~c.vqp;
			c.imm = c.vqp ^ 5;
			c.value = c.vqp ^ 9;
			ring_comp_put(&there, &c);
		} else if (head == tail) {
			assert_false(ring_comp_has(&here));
			assert_false(ring_comp_take(&here, &out));
		} else {
			assert_true(ring_comp_take(&here, &out));
			assert_int_equal(out.wr_id, head++);
			assert_int_equal(out.kind, out.wr_id % 5 + 1);
			assert_int_equal(out.status, out.wr_id % 23);
			assert_int_equal(out.opcode, out.wr_id % 7);
			assert_int_equal(out.with_imm, out.wr_id % 2);
			assert_int_equal(out.vqp,
					 (uint32_t)prng_mix(out.wr_id));
			assert_int_equal(out.len, ~out.vqp);
			assert_int_equal(out.imm, out.vqp ^ 5);
			assert_int_equal(out.value, out.vqp ^ 9);
		}
	}
	/* a client that says it has read what was not written */
	atomic_store(&here.heads->comps_taken, there.comp + 1);
	while ((room = ring_comp_room(&there)) > 0)
		ring_comp_put(&there, &c);
	assert_int_equal(room, -EBADMSG);
}

/* Each line of ring.h's tables, with a number of its own. */
static void test_layout(void **state)
{
	static const uint8_t first[64] = {
		1,    0, 0, 0, 7,    2, 1, 2, 0x11, 0, 0, 0, 0x12, 0, 0, 0,
		0x13, 0, 0, 0, 0,    0, 0, 0, 0x14, 0, 0, 0, 0,	   0, 0, 0,
		0x15, 0, 0, 0, 0x16, 0, 0, 0, 0x17, 0, 0, 0, 0,	   0, 0, 0,
		0x18, 0, 0, 0, 0,    0, 0, 0, 0x19, 0, 0, 0, 0,	   0, 0, 0};
	static const uint8_t second[20] = {2, 0,    0, 0, 0x1a, 0,    0,
					   0, 0x1b, 0, 0, 0,	0x1c, 0,
					   0, 0,    0, 0, 0,	0};
	static const uint8_t comp[32] = {1,    0, 0, 0, 0x21, 0, 0, 0,
					 0x22, 0, 0, 0, 0,    0, 0, 0,
					 2,    3, 4, 1, 0x23, 0, 0, 0,
					 0x24, 0, 0, 0, 0x25, 0, 0, 0};
	const struct ring_req q = {.op = RING_OP_SEND,
				   .flags = IBV_SEND_SIGNALED,
				   .num_sge = 2,
				   .vqp = 0x11,
				   .rkey = 0x12,
				   .wr_id = 0x13,
				   .addr = 0x14,
				   .compare_add = 0x18,
				   .swap = 0x19,
				   .sge = {{0x15, 0x16, 0x17},
					   {0x1a, 0x1b, 0x1c}}};
	const struct ring_comp c = {.kind = 2,
				    .status = 3,
				    .opcode = 4,
				    .with_imm = 1,
				    .vqp = 0x21,
				    .wr_id = 0x22,
				    .len = 0x23,
				    .imm = 0x24,
				    .value = 0x25};

	(void)state;
	assert_int_equal(ring_put(&here, &q), 0);
	ring_comp_put(&there, &c);
	assert_memory_equal(mem + 4096, first, sizeof(first));
	assert_memory_equal(mem + 4096 + 64, second, sizeof(second));
	assert_memory_equal(mem + 4096 + 256 * 64, comp, sizeof(comp));
}

/* Lines that are no requests are not taken, and nothing after them is. */
static void test_wrong(void **state)
{
	struct ring_req q, out;
	struct prng rng;

	(void)state;
	prng_init(&rng, 3);
	for (unsigned i = 0; i < 6; i++) {
		memset(mem, 0, RING_LEN);
		ring_init(&here, mem);
		ring_init(&there, mem);
		memset(&q, 0, sizeof(q));
		q.op = RING_OP_SEND;
		q.num_sge = 2;
		ring_put(&here, &q);
		switch (i) {
		case 0:
			mem[4096 + 4] = 0;
			break;
		case 1:
			mem[4096 + 4] = RING_OPS;
			break;
		case 2: /* more lines than its pieces need */
			mem[4096 + 6] = 2;
			break;
		case 3:
			mem[4096 + 7] = RING_SGES + 1;
			break;
		case 4: /* inline, and too long */
			mem[4096 + 5] = IBV_SEND_INLINE;
			mem[4096 + 36] = RING_DATA + 1;
			break;
		default: /* the second line is not there */
			mem[4096 + 64] = 9;
			break;
		}
		assert_int_equal(ring_take(&there, &out), -EBADMSG);
		assert_int_equal(atomic_load(&there.heads->lines_taken), 0);
	}
}

static void test_attach(void **state)
{
	struct attach_msg m, out;

	(void)state;
	attach_fill(&m, ATTACH_MEM);
	assert_int_equal(attach_decode(&m, sizeof(m), &out), 0);
	assert_memory_equal(&m, &out, sizeof(m));
	assert_int_equal(attach_decode(&m, sizeof(m) - 1, &out), -EBADMSG);
	m.version++;
	assert_int_equal(attach_decode(&m, sizeof(m), &out), -SKEIN_EVERSION);
	attach_fill(&m, ATTACH_MEM);
	m.kind = ATTACH_MEM_AGAIN + 1;
	assert_int_equal(attach_decode(&m, sizeof(m), &out), -EBADMSG);
	attach_fill(&m, ATTACH_MEM);
	memset(m.addr, 'a', sizeof(m.addr));
	assert_int_equal(attach_decode(&m, sizeof(m), &out), -EBADMSG);
	attach_fill(&m, ATTACH_MEM);
	m.magic = 0;
	assert_int_equal(attach_decode(&m, sizeof(m), &out), -EBADMSG);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_requests, setup, teardown),
		cmocka_unit_test_setup_teardown(test_completions, setup,
						teardown),
		cmocka_unit_test_setup_teardown(test_layout, setup, teardown),
		cmocka_unit_test_setup_teardown(test_wrong, setup, teardown),
		cmocka_unit_test(test_attach),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
