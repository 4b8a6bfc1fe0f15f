/* SPDX-License-Identifier: MIT */
/*
 * test_hold_up.c - no thread holds up another one. A call that ends a connection
 * waits until the peer has its bytes: meanwhile other connections go on. A thread
 * that is cancelled in a call leaves the lock free, and gives back what the call had.
 */
#include "unit/socket/ends.h"

#include "bind/socket/back.h"
#include "bind/socket/set.h"
#include "bind/socket/wait.h"

#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <sanitizer/asan_interface.h>
#include <sched.h>
#include <sys/select.h>
#include <unistd.h>

/* --- an end that takes nothing more -------------------------------------- */

/* What a peer that stands still does to a device: nothing completes. */
static struct ibv_cq *_Atomic held;
static int (*real_poll_cq)(struct ibv_cq *cq, int n, struct ibv_wc *wc);

static int held_poll_cq(struct ibv_cq *cq, int n, struct ibv_wc *wc)
{
	return cq == atomic_load(&held) ? 0 : real_poll_cq(cq, n, wc);
}

static void hold(struct end *e)
{
	struct ibv_cq *cq = e->s->stream->qp->scq;

	real_poll_cq = cq->context->ops.poll_cq;
	cq->context->ops.poll_cq = held_poll_cq;
	atomic_store(&held, cq);
}

static const struct sockaddr unspec = {.sa_family = AF_UNSPEC};

static void by_close(struct end *e)
{
	sock_forget(e->fd);
}

static void by_shutdown(struct end *e)
{
	assert_int_equal(sock_shutdown(e->fd, e->s, SHUT_RDWR), 0);
}

static void by_connect(struct end *e)
{
	assert_int_equal(sock_disconnect(e->fd, e->s, &unspec, sizeof(unspec)),
			 0);
	sock_forget(e->fd);
}

/* One that fails, and ends nothing. */
static void by_exec(struct end *e)
{
	char *argv[] = {"none", NULL};

	(void)e;
	assert_int_equal(fexecve(-1, argv, environ), -1);
	assert_int_equal(errno, EINVAL);
}

/* How often a thread that ends something has given way. */
static atomic_uint yields;
static _Thread_local bool is_ending;
static void (*real_yield)(struct skein_env *e);

static void hook_yield(struct skein_env *e)
{
	if (is_ending)
		atomic_fetch_add(&yields, 1);
	real_yield(e);
}

static void hook(struct env_ops *ops)
{
	real_yield = ops->yield;
	ops->yield = hook_yield;
}

static atomic_bool ended;
static void (*how)(struct end *e);

static void *end_one(void *arg)
{
	is_ending = true;
	how(arg);
	atomic_store(&ended, true);
	return NULL;
}

/* One end waits until its bytes are with a peer that takes none: the calls on
 * another stream go on meanwhile. */
static void others_go_on(void (*by)(struct end *e))
{
	struct ibv_context *context;
	pthread_t thread;
	unsigned i;

	ends_on_streams();
	end_put(&ends[0], 100);
	assert_int_equal(end_put(&ends[1], 100), 100);
	end_get_all(&ends[1]);
	end_get_all(&ends[0]);
	end_put(&ends[0], 100);
	context = ends[0].s->stream->qp->scq->context;
	for (i = 0; i < 2; i++)
		fcntl(ends[i].fd, F_SETFD, FD_CLOEXEC);
	hold(&ends[0]);
	how = by;
	ends[0].shut = true;
	atomic_store(&ended, false);
	atomic_store(&yields, 0);
	assert_int_equal(pthread_create(&thread, NULL, end_one, &ends[0]), 0);
	/* Until the thread waits. */
	while (!atomic_load(&yields)) {
		assert_false(atomic_load(&ended));
		sched_yield();
	}
	for (i = 0; i < 100; i++) {
		end_put(&ends[1], 10);
		end_get(&ends[1], ENDS_MUCH);
	}
	end_get_all(&ends[1]);
	assert_false(atomic_load(&ended));
	atomic_store(&held, NULL);
	pthread_join(thread, NULL);
	context->ops.poll_cq = real_poll_cq;
	assert_int_equal(st.draining, 0);
	if (by == by_close || by == by_connect) {
		close(ends[0].fd);
		ends[0].closed = true;
	}
	ends_part();
}

static void test_close_holds_up_nobody(void **state)
{
	(void)state;
	others_go_on(by_close);
}

static void test_shutdown_holds_up_nobody(void **state)
{
	(void)state;
	others_go_on(by_shutdown);
}

static void test_connect_holds_up_nobody(void **state)
{
	(void)state;
	others_go_on(by_connect);
}

static void test_exec_holds_up_nobody(void **state)
{
	(void)state;
	others_go_on(by_exec);
}

/* --- threads that are cancelled ------------------------------------------ */

static void *disconnect_cancelled(void *arg)
{
	struct end *e = arg;

	pthread_cancel(pthread_self());
	assert_int_equal(sock_disconnect(e->fd, e->s, &unspec, sizeof(unspec)),
			 0);
	pthread_testcancel();
	return NULL;
}

static int (*real_post_send)(struct ibv_qp *qp, struct ibv_send_wr *wr,
			     struct ibv_send_wr **bad);

/* A device may make any system call. */
static int post_send_cancels(struct ibv_qp *qp, struct ibv_send_wr *wr,
			     struct ibv_send_wr **bad)
{
	pthread_testcancel();
	return real_post_send(qp, wr, bad);
}

static void *start_back_cancelled(void *arg)
{
	struct end *e = arg;

	pthread_cancel(pthread_self());
	sock_start_back(e->s, "the test");
	pthread_testcancel();
	return NULL;
}

/* The thread ends behind the call, and the lock is free. */
static void dies_unlocked(void *(*fn)(void *), struct end *e)
{
	pthread_t thread;
	void *result;
	int rc;

	assert_int_equal(pthread_create(&thread, NULL, fn, e), 0);
	pthread_join(thread, &result);
	assert_ptr_equal(result, PTHREAD_CANCELED);
	rc = pthread_mutex_trylock(&st.lock);
	if (rc)
		pthread_mutex_init(&st.lock, NULL); /* for the other tests */
	else
		pthread_mutex_unlock(&st.lock);
	assert_int_equal(rc, 0);
}

/* connect() and a device's calls may end the thread, and run under the lock here. */
static void test_cancelled_without_the_lock(void **state)
{
	struct ibv_context *context;

	(void)state;
	ends_meet(0);
	dies_unlocked(disconnect_cancelled, &ends[0]);
	ends_part();
	ends_in_use();
	context = ends[0].s->stream->qp->scq->context;
	real_post_send = context->ops.post_send;
	context->ops.post_send = post_send_cancels;
	dies_unlocked(start_back_cancelled, &ends[0]);
	context->ops.post_send = real_post_send;
	assert_true(ends[0].s->stream->back.on);
	ends_go_back();
	ends_part();
}

/* AddressSanitizer marks the gaps of frames, and a thread that is cancelled leaves its
 * marks where it ends itself. */
static void unmark(void *arg)
{
	pthread_attr_t attr;
	void *stack;
	size_t len;

	(void)arg;
	assert_int_equal(pthread_getattr_np(pthread_self(), &attr), 0);
	pthread_attr_getstack(&attr, &stack, &len);
	pthread_attr_destroy(&attr);
	ASAN_UNPOISON_MEMORY_REGION(stack, len);
}

struct doomed {
	void *(*call)(void *arg);
	void *arg;
};

static void *doomed_main(void *arg)
{
	struct doomed *d = arg;

	pthread_cleanup_push(unmark, NULL);
	d->call(d->arg);
	pthread_cleanup_pop(0);
	return NULL;
}

/* The call cancels its thread, which ends there. */
static void dies_in(void *(*call)(void *arg), void *arg)
{
	struct doomed d = {call, arg};
	pthread_t thread;
	void *result;

	assert_int_equal(pthread_create(&thread, NULL, doomed_main, &d), 0);
	pthread_join(thread, &result);
	assert_ptr_equal(result, PTHREAD_CANCELED);
}

/* A thread that ends before what follows its call. */
static void *recv_cancelled(void *arg)
{
	struct end *e = arg;
	uint8_t byte;
	struct iovec iov = {&byte, 1};

	pthread_cancel(pthread_self());
	sock_recv(e->fd, e->s, &iov, 1, 0, NULL);
	return NULL;
}

static void *send_cancelled(void *arg)
{
	struct end *e = arg;
	uint8_t byte = 0;
	struct iovec iov = {&byte, 1};

	pthread_cancel(pthread_self());
	sock_send(e->fd, e->s, &iov, 1, MSG_NOSIGNAL);
	return NULL;
}

static void *poll_cancelled(void *arg)
{
	struct end *e = arg;
	struct pollfd fd = {e->fd, POLLIN, 0};

	pthread_cancel(pthread_self());
	wait_poll(&fd, 1, 0, NULL, "poll");
	return NULL;
}

static void *set_wait_cancelled(void *arg)
{
	struct end *e = arg;
	struct epoll_event ev;

	pthread_cancel(pthread_self());
	set_wait(e->s->set->fd, &ev, 1, 0, NULL);
	return NULL;
}

/* A thread never sleeps where its stream has work at all times: its next call ends it,
 * as the kernel's would, and has done nothing then. */
static void test_cancelled_at_work(void **state)
{
	void *(*const calls[])(void *) = {recv_cancelled, send_cancelled,
					  poll_cancelled, set_wait_cancelled};
	int epfd = ends_in_set((struct epoll_event){.events = EPOLLIN});
	size_t i;

	(void)state;
	assert_int_equal(end_put(&ends[0], 4), 4);
	for (i = 0; i < sizeof(calls) / sizeof(*calls); i++)
		dies_in(calls[i], &ends[1]);
	assert_int_equal(ends[1].s->set->users, 0);
	end_get_all(&ends[0]);
	end_get_all(&ends[1]);
	ends_part_set(epfd);
}

static void *select_cancelled(void *arg)
{
	struct end *e = arg;
	fd_set in;

	FD_ZERO(&in);
	FD_SET(e->fd, &in);
	pthread_cancel(pthread_self());
	select(FD_SETSIZE, &in, NULL, NULL, NULL);
	return NULL;
}

/* What select() has of the heap is free again. */
static void test_cancelled_select(void **state)
{
	const size_t times = 100, each = FD_SETSIZE * sizeof(struct pollfd);
	size_t before, i;

	(void)state;
#ifdef __SANITIZE_ADDRESS__
	print_message(
		"AddressSanitizer's heap has no mallinfo2(), and it does not "
		"follow a cancelled thread's handlers\n");
	skip();
#endif
	ends_in_use();
	before = mallinfo2().uordblks;
	for (i = 0; i < times; i++)
		dies_in(select_cancelled, &ends[1]);
	assert_true(mallinfo2().uordblks < before + times * each / 2);
	ends_part();
}

static int up(void **state)
{
	(void)state;
	return ends_up(hook);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_close_holds_up_nobody),
		cmocka_unit_test(test_shutdown_holds_up_nobody),
		cmocka_unit_test(test_connect_holds_up_nobody),
		cmocka_unit_test(test_exec_holds_up_nobody),
		cmocka_unit_test(test_cancelled_without_the_lock),
		cmocka_unit_test(test_cancelled_at_work),
		cmocka_unit_test(test_cancelled_select),
	};

	return cmocka_run_group_tests(tests, up, ends_down);
}
