/* SPDX-License-Identifier: MIT */
/*
 * client.c with a node service in the same thread: the socket's functions are
 * below, and a wake-up is what makes the service run. So no request is served
 * before its client has woken the service, and the service goes on sleeping as
 * long as the test says.
 */
#include "env/local.h"
#include "fake.h"
#include "vqp/node/attach.h"
#include "vqp/node/serve.h"

#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <skein/skein.h>

#define PORT 9u
#define MEM 4096u
#define REQUESTS 300u /* of a client */
#define FAR "[fe80::]:101"

static struct {
	struct fake_node *nodes;
	struct half h;
	struct vqp_peer *peer;
	struct local_life life;
	struct ring_heads *rings;
	struct serve s;
	uint8_t *mem;
	struct attach_msg answer;
	bool answers, holds;
	unsigned wakes, sleeps;
	uint64_t now_ns;
	/* two threads */
	pthread_t second;
	bool two, at_socket;
	atomic_uint parked, unparks;
} f;

/* --- the service, asleep ------------------------------------------------ */

static void settle(void)
{
	unsigned idle;

	for (idle = 0; idle < 20; idle++) {
		bool any = fake_any(&f.h.f);

		any |= vqp_engine_round(&f.h.e, ++f.now_ns) != 0;
		any |= serve_round(&f.s) != 0;
		if (any)
			idle = 0;
	}
	assert_null(f.s.wrong);
}

/* Takes what is there, and sleeps again. */
static void service_run(void)
{
	unsigned i;

	for (i = 0; i < 8; i++)
		serve_round(&f.s);
	assert_null(f.s.wrong);
	f.life.asleep += 2;
}

int local_send(int fd, const void *buf, size_t len, const int *fds, int n)
{
	struct attach_msg m;

	assert_int_equal(attach_decode(buf, len, &m), 0);
	switch (m.kind) {
	case ATTACH_WAKE:
		/* once in a sleep, and only in a sleep */
		assert_true(f.life.asleep & 1);
		f.wakes++;
		if (!f.holds)
			service_run();
		return 0;
	case ATTACH_MEM:
		m.id = serve_mem_add(&f.s, f.mem, m.len, FAKE_LKEY, f.mem);
		break;
	case ATTACH_MEM_FREE:
		assert_non_null(serve_mem_del(&f.s, m.id));
		return 0;
	default:
		m.len = RING_LEN;
		m.id = REQUESTS;
		break;
	}
	f.answer = m;
	f.answers = true;
	return 0;
}

ssize_t local_recv(int fd, void *buf, size_t len, int *fds, int *n)
{
	*n = 0;
	if (!f.answers)
		return -EAGAIN;
	f.answers = false;
	memcpy(buf, &f.answer, sizeof(f.answer));
	for (*n = 0; *n < (f.answer.kind == ATTACH_HELLO ? 2 : 1); ++*n)
		fds[*n] = open("/dev/null", O_RDONLY);
	return sizeof(f.answer);
}

static void *second_main(void *arg);

/* The client sleeps: it has said so, or nobody would wake it. What ends its sleep
 * comes before the service has looked at the word. */
int local_wait(int fd, uint64_t timeout_ns)
{
	f.sleeps++;
	assert_int_equal(f.rings->asleep, 1);
	assert_false(f.at_socket);
	f.at_socket = true;
	if (f.two) {
		f.two = false;
		assert_int_equal(
			pthread_create(&f.second, NULL, second_main, NULL), 0);
		while (!atomic_load(&f.parked))
			sched_yield();
		/* nobody has taken the word back */
		assert_int_equal(f.rings->asleep, 1);
	}
	service_run();
	f.at_socket = false;
	return 0;
}

/* of skein_pool_fd(), which nobody calls here */
int local_timer_new(int *fd)
{
	fail();
	return -ENOSYS;
}

void local_timer_set(int fd, uint64_t due_ns)
{
	fail();
}

void local_park(_Atomic(uint32_t) *word, uint32_t was, uint64_t timeout_ns)
{
	atomic_fetch_add(&f.parked, 1);
	while (!atomic_load(&f.unparks))
		sched_yield();
	assert_int_not_equal(atomic_load(word), was);
}

void local_unpark(_Atomic(uint32_t) *word)
{
	atomic_fetch_add(&f.unparks, 1);
}

int local_fill(int fd, size_t len)
{
	return -EPERM;
}

int local_connect(const char *path, int *fd)
{
	*fd = open("/dev/null", O_RDONLY);
	return 0;
}

int local_peer(int fd, uint32_t *uid, uint32_t *pid)
{
	*uid = (uint32_t)geteuid();
	*pid = 1;
	return 0;
}

int local_map(int fd, size_t len, bool write, void **addr)
{
	if (len == RING_LEN)
		*addr = f.rings;
	else if (write)
		*addr = f.mem;
	else
		*addr = &f.life;
	return 0;
}

void local_unmap(void *addr, size_t len)
{
}

/* --- a client ----------------------------------------------------------- */

static struct skein_pool *pool;
static struct skein_vqp_mem *mem;

static int setup(void **state)
{
	struct skein_pool_attr a = {.size = sizeof(a), .node = "/there"};

	memset(&f, 0, sizeof(f));
	f.nodes = fake_nodes();
	half_open(&f.h, f.nodes, 0, 1);
	f.peer = vqp_peer_get(&f.h.e, &f.nodes[1].id);
	f.rings = aligned_alloc(4096, RING_LEN);
	memset(f.rings, 0, RING_LEN);
	f.mem = calloc(1, MEM);
	f.life = (struct local_life){.life = 1, .asleep = 1};
	serve_init(&f.s, &f.h.e, f.rings);
	assert_int_equal(skein_pool_open(NULL, &a, &pool), 0);
	assert_int_equal(skein_vqp_mem_new(pool, MEM, 0, &mem), 0);
	return 0;
}

static int teardown(void **state)
{
	skein_pool_close(pool);
	settle();
	serve_fini(&f.s);
	settle();
	assert_string_equal(f.h.f.wrong, "");
	vqp_peer_put(&f.h.e, f.peer);
	half_close(&f.h);
	free(f.nodes);
	free(f.rings);
	free(f.mem);
	return 0;
}

static struct skein_vqp *connected(void)
{
	struct skein_vqp *v;

	assert_int_equal(skein_vqp_new(pool, &v), 0);
	assert_int_equal(skein_vqp_connect(v, FAR, PORT, SKEIN_S(60)), 0);
	return v;
}

static int post(struct skein_vqp *v, uint64_t id, bool signaled)
{
	struct ibv_sge sge = {(uintptr_t)skein_vqp_mem_addr(mem), 8,
			      skein_vqp_lkey(mem)};
	struct ibv_send_wr wr = {.wr_id = id,
				 .sg_list = &sge,
				 .num_sge = 1,
				 .opcode = IBV_WR_RDMA_WRITE,
				 .send_flags = signaled ? IBV_SEND_SIGNALED : 0,
				 .wr.rdma.rkey = FAKE_REGION};
	struct ibv_send_wr *bad;

	return skein_vqp_post_send(v, &wr, &bad);
}

/* As many as there is room for. */
static unsigned posted(struct skein_vqp *v, bool signaled)
{
	static uint64_t id;
	unsigned n = 0;
	int err;

	while (!(err = post(v, id, signaled))) {
		id++;
		assert_true(++n < 1000);
	}
	assert_int_equal(err, -ENOMEM);
	/* no more than the service promises to take */
	assert_false(f.s.holds);
	return n;
}

/* What is outstanding counts, signalled or not, until the service tells that it
 * is retired. */
static void test_counts(void **state)
{
	struct skein_vqp *v = connected(), *w = connected();
	struct ibv_wc wc;
	unsigned i, n;

	assert_int_equal(posted(v, false), SERVE_QUEUE);
	/* another vqp is not stopped by it */
	assert_int_equal(post(w, 5, true), 0);
	assert_int_equal(skein_vqp_poll(w, 1, &wc), 0);
	settle();
	assert_int_equal(skein_vqp_poll(w, 1, &wc), 1);
	assert_int_equal(wc.wr_id, 5);
	/* told by nothing but reports of room: the next post finds them */
	for (i = 0; i < 10; i++) {
		n = posted(v, false);
		assert_in_range(n, SERVE_QUEUE - SERVE_TELL + 1, SERVE_QUEUE);
		settle();
	}
}

/* Completions that nobody polls take room, and each poll gives it back. */
static void test_not_polled(void **state)
{
	struct skein_vqp *v = connected();
	struct ibv_wc wc[VQP_COMPS];
	unsigned n = 0, k;
	int got;

	while ((k = posted(v, true))) {
		assert_true(k <= SERVE_QUEUE);
		n += k;
		settle();
	}
	assert_int_equal(n, VQP_COMPS);
	assert_int_equal(skein_vqp_poll(v, 3, wc), 3);
	assert_int_equal(posted(v, true), 3);
	settle();
	for (n = 3; (got = skein_vqp_poll(v, VQP_COMPS, wc)) > 0;)
		n += (unsigned)got;
	assert_int_equal(n, VQP_COMPS + 3);
}

/* All of its requests, of whatever vqps, are at most what the service said. */
static void test_quota(void **state)
{
	struct skein_vqp *v[3] = {connected(), connected(), connected()};
	unsigned n = 0, i;
	int err = 0;

	for (i = 0; i < 3; i++)
		while (!(err = post(v[i], i, true)))
			n++;
	assert_int_equal(err, -EDQUOT);
	assert_int_equal(n, REQUESTS);
	/* what a vqp had is free with it */
	skein_vqp_free(v[0]);
	for (n = 0; !(err = post(v[2], i, true));)
		n++;
	assert_int_equal(err, -ENOMEM);
	assert_int_equal(n, 3 * SERVE_QUEUE - REQUESTS);
	/* and what is done */
	settle();
	assert_int_equal(post(v[1], 1, true), 0);
}

static void test_receives(void **state)
{
	struct ibv_recv_wr wr = {.wr_id = 1}, *bad;
	struct skein_vqp *v = connected();
	unsigned n;

	for (n = 0; n < VQP_RECVS; n++)
		assert_int_equal(skein_vqp_post_recv(v, &wr, &bad), 0);
	assert_int_equal(skein_vqp_post_recv(v, &wr, &bad), -ENOMEM);
}

/* One wake-up for a sleep of the service, however many requests; none is left
 * behind. */
static void test_wakes(void **state)
{
	struct skein_vqp *v = connected();
	unsigned was = f.wakes;

	f.holds = true;
	assert_int_equal(post(v, 1, true), 0);
	assert_int_equal(post(v, 2, true), 0);
	assert_int_equal(f.wakes, was + 1);
	service_run();
	f.holds = false;
	assert_int_equal(post(v, 3, true), 0);
	assert_int_equal(f.wakes, was + 2);
	/* it is awake: no system call */
	f.life.asleep++;
	assert_int_equal(post(v, 4, true), 0);
	assert_int_equal(f.wakes, was + 2);
	f.life.asleep++;
}

/* A client that waits for an answer says that it sleeps before it does
 * (local_wait()), and takes it back. */
static void test_sleeps(void **state)
{
	struct skein_vqp *v;

	f.holds = true;
	assert_int_equal(skein_vqp_new(pool, &v), 0);
	assert_int_equal(f.sleeps, 1);
	assert_int_equal(f.rings->asleep, 0);
}

static struct skein_vqp *made;

static void *second_main(void *arg)
{
	return skein_vqp_new(pool, &made) ? &made : NULL;
}

/* Two threads wait: one is at the socket, the other is parked until the first
 * has looked, and has its answer then. */
static void test_two_sleep(void **state)
{
	struct skein_vqp *v;
	void *failed;

	f.holds = f.two = true;
	assert_int_equal(skein_vqp_new(pool, &v), 0);
	assert_int_equal(pthread_join(f.second, &failed), 0);
	assert_null(failed);
	assert_ptr_not_equal(made, v);
	assert_int_equal(f.rings->asleep, 0);
}

/* The service may sleep because a full ring has no room: the client looks once in
 * half a ring of completions, however it takes them. */
static void test_full(void **state)
{
	struct ring_comp c = {.kind = RING_ROOM, .vqp = 1};
	unsigned was = f.wakes, i;

	for (i = 1; i <= 6 * RING_LOOK; i++) {
		ring_comp_put(&f.s.ring, &c);
		if (i % 7 == 0 || i % RING_LOOK == 0)
			skein_pool_progress(pool);
		if (i % RING_LOOK == 0)
			was++;
		assert_int_equal(f.wakes, was);
	}
}

/* What is said of a vqp that was freed is not the next one's. */
static void test_generations(void **state)
{
	struct ring_comp c = {.kind = RING_DONE, .value = 7};
	struct skein_vqp *v = connected();
	struct ibv_wc wc;

	c.vqp = f.s.vqp[0]->id + 0x10000;
	ring_comp_put(&f.s.ring, &c);
	assert_int_equal(skein_vqp_poll(v, 1, &wc), 0);
	assert_int_equal(posted(v, false), SERVE_QUEUE);
}

int main(void)
{
#define CASE(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)
	const struct CMUnitTest tests[] = {
		CASE(test_counts),   CASE(test_not_polled),
		CASE(test_receives), CASE(test_wakes),
		CASE(test_sleeps),   CASE(test_generations),
		CASE(test_full),     CASE(test_two_sleep),
		CASE(test_quota),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
