/* SPDX-License-Identifier: MIT */
/* A QP of a peer that was met: nobody is asked for it where all about it stands
 * in the peer's NIC file; where not, or where that is nonsense, the peer is. */
#include "rig.h"

#include "unit/patience.h"

#include "dev/soft/peer/peer.h"
#include "dev/soft/qp/qp.h"
#include "dev/soft/soft.h"

#include <poll.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

static atomic_uint asked; /* sockets of peers that were connected to */

int connect(int fd, const struct sockaddr *addr, socklen_t len)
{
	atomic_fetch_add(&asked, 1);
	return (int)syscall(SYS_connect, fd, addr, len);
}

struct both {
	struct rig_end a, b;
	struct ibv_qp *at_a, *at_b;
};

static void both_open(struct both *t)
{
	rig_pair(&t->a, &t->b, NULL);
	assert_true(atomic_load(&asked) > 0);
}

static void both_close(struct both *t)
{
	rig_unpair(&t->a, &t->b);
}

static void second_new(struct both *t)
{
	t->at_a = rig_qp(&t->a);
	t->at_b = rig_qp(&t->b);
}

static void second_free(struct both *t)
{
	assert_int_equal(t->a.dev->ops->destroy_qp(t->a.dev, t->at_a), 0);
	if (t->at_b)
		assert_int_equal(t->b.dev->ops->destroy_qp(t->b.dev, t->at_b),
				 0);
}

/* How many were asked when a's QP got to know b's. */
static unsigned a_meets_b(struct both *t)
{
	unsigned before = atomic_load(&asked);
	struct dev_qp_addr to;

	rig_qp_addr(&t->b, t->at_b, &to);
	rig_connect_qp(&t->a, t->at_a, &to);
	return atomic_load(&asked) - before;
}

static void b_meets_a(struct both *t)
{
	struct dev_qp_addr to;

	rig_qp_addr(&t->a, t->at_a, &to);
	rig_connect_qp(&t->b, t->at_b, &to);
}

static void says(struct rig_end *from, struct ibv_qp *qp, struct rig_end *to,
		 struct ibv_qp *at)
{
	struct ibv_qp *from_first = from->qp, *to_first = to->qp;
	struct pollfd p = {.fd = to->ch->fd, .events = POLLIN};
	struct ibv_cq *cq;

	from->qp = qp;
	to->qp = at;
	memcpy(from->buf, "known", 6);
	memset(to->buf + 4096, 0, 6);
	assert_int_equal(rig_recv(to, 7, to->buf + 4096, 64), 0);
	assert_int_equal(ibv_req_notify_cq(to->cq, 0), 0);
	assert_int_equal(rig_post(from, IBV_WR_SEND, 8, from->buf, 6, 0, 0,
				  IBV_SEND_SIGNALED),
			 0);
	/* The channel is rung, by a bell that nobody brought. */
	do
		assert_int_equal(poll(&p, 1, patience_ms(10)), 1);
	while (to->dev->ops->get_cq_event(to->dev, to->ch, &cq));
	assert_ptr_equal(cq, to->cq);
	to->dev->ops->ack_cq_events(to->dev, cq, 1);
	rig_expect(to, 7, IBV_WC_SUCCESS);
	rig_expect(from, 8, IBV_WC_SUCCESS);
	assert_string_equal(to->buf + 4096, "known");
	from->qp = from_first;
	to->qp = to_first;
}

static void test_not_asked(void **state)
{
	struct both t = {0};

	both_open(&t);
	for (unsigned i = 0; i < 50; i++) {
		second_new(&t);
		assert_int_equal(a_meets_b(&t), 0);
		b_meets_a(&t);
		says(&t.a, t.at_a, &t.b, t.at_b);
		says(&t.b, t.at_b, &t.a, t.at_a);
		second_free(&t);
	}
	both_close(&t);
}

/* One that is gone, and one whose channel was never told of. */
static void test_asked(void **state)
{
	struct ibv_cq *cq, *old;
	struct ibv_comp_channel *ch, *old_ch;
	struct both t = {0};
	struct dev_qp_addr to;
	unsigned before;

	both_open(&t);
	second_new(&t);
	rig_qp_addr(&t.b, t.at_b, &to);
	assert_int_equal(t.b.dev->ops->destroy_qp(t.b.dev, t.at_b), 0);
	before = atomic_load(&asked);
	rig_connect_qp(&t.a, t.at_a, &to);
	assert_int_equal(atomic_load(&asked) - before, 1);
	t.at_b = NULL;
	second_free(&t);

	old = t.b.cq;
	old_ch = t.b.ch;
	assert_int_equal(t.b.dev->ops->create_comp_channel(t.b.dev, &ch), 0);
	assert_int_equal(t.b.dev->ops->create_cq(t.b.dev, 64, NULL, ch, &cq),
			 0);
	t.b.cq = cq;
	t.b.ch = ch;
	second_new(&t);
	assert_int_equal(a_meets_b(&t), 1);
	b_meets_a(&t);
	says(&t.a, t.at_a, &t.b, t.at_b);
	second_free(&t);
	/* Now it was. */
	second_new(&t);
	assert_int_equal(a_meets_b(&t), 0);
	b_meets_a(&t);
	says(&t.a, t.at_a, &t.b, t.at_b);
	second_free(&t);
	assert_int_equal(t.b.dev->ops->destroy_cq(t.b.dev, cq), 0);
	assert_int_equal(t.b.dev->ops->destroy_comp_channel(t.b.dev, ch), 0);
	t.b.cq = old;
	t.b.ch = old_ch;
	both_close(&t);
}

static const uint32_t values[] = {
	0,	    1,		2,	  3,	      0x21,
	0xfff,	    0x1000,	0x3ffff,  0x40000,    0x7fffffff,
	0x80000000, 0xfffffff8, 1u << 20, 0xffffffff,
};

/* What a peer says of its QP is whatever, while we look. */
static void test_nonsense(void **state)
{
	struct both t = {0};

	both_open(&t);
	for (unsigned field = 0; field < 7; field++) {
		for (unsigned i = 0; i < sizeof(values) / sizeof(*values);
		     i++) {
			struct soft *s = soft_of_dev(t.b.dev);
			struct shm_qp *f;
			uint32_t *words[7], was;

			second_new(&t);
			f = soft_qp_of(t.at_b)->self;
			words[0] = (uint32_t *)&s->nic
					   ->place[soft_qp_of(t.at_b)->idx];
			words[1] = &f->qpn;
			words[2] = &f->rq_slots;
			words[3] = &f->rq_stride;
			words[4] = &f->ready_off;
			words[5] = &f->cq_off;
			words[6] = &f->bell;
			was = __atomic_exchange_n(words[field], values[i],
						  __ATOMIC_SEQ_CST);
			a_meets_b(&t);
			__atomic_store_n(words[field], was, __ATOMIC_SEQ_CST);
			second_free(&t);
		}
	}
	/* The next one is none the worse for it. */
	second_new(&t);
	a_meets_b(&t);
	b_meets_a(&t);
	says(&t.a, t.at_a, &t.b, t.at_b);
	second_free(&t);
	both_close(&t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_not_asked),
		cmocka_unit_test(test_asked),
		cmocka_unit_test(test_nonsense),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
