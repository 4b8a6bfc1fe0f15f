/* SPDX-License-Identifier: MIT */
/*
 * A UD QP that sends to tens of thousands of others: it remembers those that it
 * used last, and no more; nobody is lost for it, the sender's descriptors are
 * few, and references to peers go with what is forgotten.
 */
#include "ud_rig.h"

#include "dev/soft/peer/peer.h"
#include "dev/soft/ud/ud.h"

#define QPS 1500      /* at a time */
#define ROUNDS 2      /* with new ones */
#define NOBODY 20000u /* numbers that nobody has */

static struct ud_end a, b;

static int up(void **state)
{
	struct rig_opts o = {.cqe = 4096};

	ud_open_srq(&a, &o);
	ud_open(&b, NULL);
	return 0;
}

static int down(void **state)
{
	ud_close(&a);
	ud_close(&b);
	return 0;
}

static bool nothing_waits(void *arg)
{
	return !atomic_load(&soft_of_dev(b.r.dev)->ud_waits);
}

/* What b's QP knows, by its own count and by its peers'. */
static void check_bounds(void)
{
	struct soft *s = soft_of_dev(b.r.dev);
	struct soft_qp *q = soft_qp_of(b.r.qp);
	uint32_t refs = 0;
	struct list_node *n;

	pthread_mutex_lock(&s->lock);
	soft_qp_hold(q);
	assert_true(q->ud->n_dests <= UD_DEST_MAX);
	soft_qp_release(q);
	for (n = s->peers.next; n != &s->peers; n = n->next)
		refs += container_of(n, struct soft_peer, link)->refs;
	assert_true(refs <= UD_DEST_MAX);
	pthread_mutex_unlock(&s->lock);
}

static void send_to(uint32_t qpn)
{
	ud_send_to(&b, qpn, 7, b.r.buf, 8, IBV_SEND_INLINE);
	rig_expect(&b.r, 7, IBV_WC_SUCCESS);
}

static void test_nobody(void **state)
{
	unsigned fds = rig_fds(), most = 0, now;
	uint32_t i;

	for (i = 0; i < NOBODY; i++) {
		/* of a's blocks, in which they are refused by a's answer, and
		 * of others' */
		send_to(i % 2 ? (a.r.qp->qp_num & ~0xfffu) + 0xfff - i % 1024
			      : 0x1000 + i * 64 % 0xfff000);
		if (i % 500)
			continue;
		now = rig_fds();
		most = now > most ? now : most;
		rig_until(nothing_waits, NULL);
	}
	rig_until(nothing_waits, NULL);
	check_bounds();
	print_message("  %u descriptors, %u at most\n", fds, most);
	/* Some of the numbers are those of other processes that run now. */
	assert_true(most < fds + 600);
}

/* To each of many QPs, to all of them again, and to a first one throughout. */
static void test_somebody(void **state)
{
	struct ibv_qp *own = a.r.qp, *qp[QPS];
	uint32_t round, i, pass;
	struct ibv_wc wc;

	for (i = 0; i < RIG_WR; i++)
		ud_recv(&a, i, i * 64, 64);
	for (round = 0; round < ROUNDS; round++) {
		for (i = 0; i < QPS; i++) {
			qp[i] = ud_qp(&a);
			ud_ready(&a, qp[i]);
		}
		for (pass = 0; pass < 2; pass++)
			for (i = 0; i < QPS; i++) {
				a.r.qp = i % 8 ? qp[i] : own;
				send_to(a.r.qp->qp_num);
				rig_wait(&a.r, &wc);
				assert_int_equal(wc.status, IBV_WC_SUCCESS);
				assert_int_equal(wc.qp_num, a.r.qp->qp_num);
				ud_recv(&a, wc.wr_id, wc.wr_id * 64, 64);
			}
		rig_until(nothing_waits, NULL);
		check_bounds();
		a.r.qp = own;
		for (i = 0; i < QPS; i++)
			assert_int_equal(
				a.r.dev->ops->destroy_qp(a.r.dev, qp[i]), 0);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_nobody),
		cmocka_unit_test(test_somebody),
	};

	return cmocka_run_group_tests(tests, up, down);
}
