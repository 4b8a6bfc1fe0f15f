/* SPDX-License-Identifier: MIT */
/* A peer's process is asked about its QP before the move to RTR: nobody waits
 * for a process that is stopped, and what was found out holds for the move. */
#include "rig.h"

#include "dev/soft/peer/peer.h"
#include "dev/soft/qp/qp.h"
#include "dev/soft/soft.h"

#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

struct question {
	struct dev_reach reach;
	atomic_uint answers;
};

static void on_answer(struct dev_reach *r)
{
	atomic_fetch_add(&container_of(r, struct question, reach)->answers, 1);
}

static int ask(struct rig_end *e, struct ibv_qp *qp,
	       const struct dev_qp_addr *to, struct question *q)
{
	*q = (struct question){.reach.on_answer = on_answer};
	return e->dev->ops->reach(e->dev, qp, to, &q->reach);
}

static bool is_answered(void *arg)
{
	return atomic_load(&((struct question *)arg)->answers) == 1;
}

static struct soft_qp *soft(struct ibv_qp *qp)
{
	return soft_qp_of(qp);
}

/* Says its address, is connected to, and says what it was sent. */
static void peer_main(int sock, void *arg)
{
	struct rig_addr a, far;
	struct rig_end e;

	rig_open(&e, NULL);
	rig_addr(&e, &a);
	rig_put(sock, &a, sizeof(a));
	rig_get(sock, &far, sizeof(far));
	rig_connect(&e, &far);
	assert_int_equal(rig_recv(&e, 1, e.buf, 64), 0);
	rig_put(sock, "", 1);
	rig_expect(&e, 1, IBV_WC_SUCCESS);
	assert_string_equal(e.buf, "reached");
	rig_get(sock, &(char){0}, 1);
	rig_close(&e);
}

static void says(struct rig_end *e, struct rig_child *c)
{
	struct rig_addr a;

	rig_addr(e, &a);
	rig_put(c->sock, &a, sizeof(a));
	rig_get(c->sock, &(char){0}, 1);
	memcpy(e->buf, "reached", 8);
	assert_int_equal(rig_post(e, IBV_WR_SEND, 2, e->buf, 8, 0, 0,
				  IBV_SEND_SIGNALED),
			 0);
	rig_expect(e, 2, IBV_WC_SUCCESS);
	rig_put(c->sock, "", 1);
	assert_int_equal(rig_join(c), 0);
}

/* The question to a stopped process waits; others are answered meanwhile. */
static void test_stopped(void **state)
{
	struct rig_child slow, fast;
	struct rig_addr at_slow, at_fast;
	struct question q, other;
	struct rig_end e, f;

	rig_fork(&slow, peer_main, NULL);
	rig_fork(&fast, peer_main, NULL);
	rig_get(slow.sock, &at_slow, sizeof(at_slow));
	rig_get(fast.sock, &at_fast, sizeof(at_fast));
	rig_stop(&slow);
	rig_open(&e, NULL);
	rig_open(&f, NULL);
	assert_int_equal(ask(&e, e.qp, &at_slow.qp, &q), -EINPROGRESS);
	assert_int_equal(ask(&f, f.qp, &at_fast.qp, &other), -EINPROGRESS);
	rig_until(is_answered, &other);
	rig_connect(&f, &at_fast);
	says(&f, &fast);
	assert_int_equal(atomic_load(&q.answers), 0);
	assert_int_equal(kill(slow.pid, SIGCONT), 0);
	rig_until(is_answered, &q);
	rig_connect(&e, &at_slow);
	says(&e, &slow);
	rig_close(&e);
	rig_close(&f);
}

/* The control thread gives its own reference back behind the answer. */
static uint32_t refs_of(struct ibv_qp *qp, const struct soft_peer *peer)
{
	uint32_t refs;

	pthread_mutex_lock(&soft(qp)->s->lock);
	refs = peer->refs;
	pthread_mutex_unlock(&soft(qp)->s->lock);
	return refs;
}

/* The answer is used, and a QP that was met before is known at once. */
static void test_asked_once(void **state)
{
	struct rig_end a, b;
	struct dev_qp_addr to;
	struct soft_peer *peer;
	struct ibv_qp *second;
	struct rig_addr at_b;
	struct question q;

	rig_open(&a, NULL);
	rig_open(&b, NULL);
	rig_addr(&b, &at_b);
	assert_int_equal(ask(&a, a.qp, &at_b.qp, &q), -EINPROGRESS);
	rig_until(is_answered, &q);
	peer = soft(a.qp)->reach.peer;
	assert_non_null(peer);
	assert_int_equal(refs_of(a.qp, peer), 1);
	rig_connect(&a, &at_b);
	assert_ptr_equal(soft(a.qp)->peer, peer);
	assert_non_null(soft(a.qp)->far);
	assert_int_equal(refs_of(a.qp, peer), 1);
	second = rig_qp(&a);
	rig_qp_addr(&b, b.qp, &to);
	assert_int_equal(ask(&a, second, &to, &q), 0);
	assert_int_equal(refs_of(a.qp, peer), 2);
	assert_int_equal(a.dev->ops->destroy_qp(a.dev, second), 0);
	assert_int_equal(refs_of(a.qp, peer), 1);
	assert_int_equal(atomic_load(&q.answers), 0);
	rig_close(&a);
	rig_close(&b);
}

/* Nobody is there: the move succeeds, as on a NIC. */
static void test_nobody(void **state)
{
	struct rig_end a, b;
	struct rig_addr at_b;
	struct question q;

	rig_open(&a, NULL);
	rig_open(&b, NULL);
	rig_addr(&b, &at_b);
	rig_close(&b);
	assert_int_equal(ask(&a, a.qp, &at_b.qp, &q), -EINPROGRESS);
	rig_until(is_answered, &q);
	rig_connect(&a, &at_b);
	assert_null(soft(a.qp)->far);
	rig_close(&a);
}

/* The peer's QP goes, and another one takes its place, between the answer and
 * the move. */
static void test_other_in_its_place(void **state)
{
	struct rig_end a, b;
	struct rig_addr at_b;
	struct question q;

	rig_open(&a, NULL);
	rig_open(&b, NULL);
	rig_addr(&b, &at_b);
	assert_int_equal(ask(&a, a.qp, &at_b.qp, &q), -EINPROGRESS);
	rig_until(is_answered, &q);
	/* areas are used again in their order */
	assert_int_equal(b.dev->ops->destroy_qp(b.dev, b.qp), 0);
	b.qp = rig_qp(&b);
	assert_int_equal(soft(a.qp)->reach.area, soft(b.qp)->area_off);
	rig_connect(&a, &at_b);
	assert_null(soft(a.qp)->far);
	rig_close(&a);
	rig_close(&b);
}

/* Another peer is asked about than the one that it is connected to. */
static void test_another_peer(void **state)
{
	struct rig_end a, b, c;
	struct rig_addr at_b, at_c;
	struct question q;

	rig_open(&a, NULL);
	rig_open(&b, NULL);
	rig_open(&c, NULL);
	rig_addr(&b, &at_b);
	rig_addr(&c, &at_c);
	assert_int_equal(ask(&a, a.qp, &at_b.qp, &q), -EINPROGRESS);
	rig_until(is_answered, &q);
	rig_connect(&a, &at_c);
	assert_int_equal(shm_once(soft(a.qp)->far->qpn), at_c.qp.qpn);
	rig_close(&a);
	rig_close(&b);
	rig_close(&c);
}

#define SILENT_BLOCK 0xabcu

/* In a PID namespace of its own, where the listening process has no number. */
static void asks_silent(void)
{
	struct question q;
	struct rig_addr to;
	struct rig_end e;

	rig_open(&e, NULL);
	rig_addr(&e, &to);
	to.qp.qpn = SILENT_BLOCK * SHM_BLOCK_QPS;
	assert_int_equal(ask(&e, e.qp, &to.qp, &q), -EINPROGRESS);
	rig_until(is_answered, &q);
	assert_int_equal(soft(e.qp)->reach.err, -ETIMEDOUT);
	rig_close(&e);
}

static void unseen_main(int sock, void *arg)
{
	int st = -1;
	pid_t pid;

	/* An ordinary user may in a user namespace of his own, if at all. */
	if (unshare(CLONE_NEWPID) && unshare(CLONE_NEWUSER | CLONE_NEWPID)) {
		rig_put(sock, "s", 1);
		return;
	}
	pid = fork();
	assert_true(pid >= 0);
	if (!pid) {
		asks_silent();
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &st, 0), pid);
	assert_int_equal(st, 0);
	rig_put(sock, "d", 1);
}

/* A process of another PID namespace never answers, and its death would not be
 * seen. The question ends. */
static void test_unseen(void **state)
{
	struct rig_child asker;
	struct sockaddr_un un;
	socklen_t len;
	char said;
	int fd;

	fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	len = (socklen_t)soft_block_name(SILENT_BLOCK, &un);
	assert_int_equal(bind(fd, (struct sockaddr *)&un, len), 0);
	assert_int_equal(listen(fd, 8), 0);
	rig_fork(&asker, unseen_main, NULL);
	rig_get(asker.sock, &said, 1);
	assert_int_equal(rig_join(&asker), 0);
	close(fd);
	if (said == 's') {
		print_message("no PID namespace may be made here\n");
		skip();
	}
}

/* A QP that goes is told nothing, and leaves nothing behind. */
static void test_destroyed(void **state)
{
	struct rig_addr at_slow;
	struct rig_child slow;
	struct question q;
	struct ibv_qp *qp;
	struct rig_end e;
	unsigned fds;

	rig_fork(&slow, peer_main, NULL);
	rig_get(slow.sock, &at_slow, sizeof(at_slow));
	rig_stop(&slow);
	rig_open(&e, NULL);
	fds = rig_fds();
	qp = rig_qp(&e);
	assert_int_equal(ask(&e, qp, &at_slow.qp, &q), -EINPROGRESS);
	assert_true(rig_fds() > fds);
	assert_int_equal(e.dev->ops->destroy_qp(e.dev, qp), 0);
	assert_int_equal(rig_fds(), fds);
	assert_int_equal(kill(slow.pid, SIGCONT), 0);
	assert_int_equal(ask(&e, e.qp, &at_slow.qp, &q), -EINPROGRESS);
	rig_until(is_answered, &q);
	rig_connect(&e, &at_slow);
	says(&e, &slow);
	rig_close(&e);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_stopped),
		cmocka_unit_test(test_asked_once),
		cmocka_unit_test(test_nobody),
		cmocka_unit_test(test_other_in_its_place),
		cmocka_unit_test(test_another_peer),
		cmocka_unit_test(test_destroyed),
		cmocka_unit_test(test_unseen),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
