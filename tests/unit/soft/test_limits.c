/* SPDX-License-Identifier: MIT */
/* Scarcity and odd ways: the n-th allocation fails, for every n; descriptors
 * run out; ordinary memory that only the peer's control thread can reach; a
 * device connected to itself. */
#include "rig.h"

#include "dev/soft/peer/peer.h"

#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

/* The control threads allocate too. */
struct sweep {
	_Atomic long left;
	_Atomic bool hit;
};

static bool fails(void *arg)
{
	struct sweep *s = arg;

	if (--s->left != 0)
		return false;
	s->hit = true;
	return true;
}

struct life {
	struct dev *dev;
	struct ibv_pd *pd;
	struct ibv_comp_channel *ch;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct mem_region *mem;
};

static int life_begin(struct life *l, struct skein_env *env)
{
	struct ibv_qp_init_attr a = {.qp_type = IBV_QPT_RC,
				     .cap = {8, 8, 1, 1, 0}};
	char text[256];
	int err;

	memset(l, 0, sizeof(*l));
	err = dev_soft_open(env, "", -1, text, sizeof(text), &l->dev);
	if (!err)
		err = l->dev->ops->alloc_pd(l->dev, &l->pd);
	if (!err)
		err = l->dev->ops->create_comp_channel(l->dev, &l->ch);
	if (!err)
		err = l->dev->ops->create_cq(l->dev, 16, NULL, l->ch, &l->cq);
	if (!err)
		err = mem_region_new(l->dev, l->pd, "m", 4096, RIG_ACCESS, 1,
				     &l->mem);
	a.send_cq = a.recv_cq = l->cq;
	if (!err)
		err = l->dev->ops->create_qp(l->dev, l->pd, &a, 0, &l->qp);
	if (!err)
		err = dev_qp_init(l->dev, l->qp, RIG_ACCESS);
	return err;
}

static void life_end(struct life *l)
{
	if (l->qp)
		assert_int_equal(l->dev->ops->destroy_qp(l->dev, l->qp), 0);
	if (l->mem)
		mem_region_free(l->mem);
	if (l->cq)
		assert_int_equal(l->dev->ops->destroy_cq(l->dev, l->cq), 0);
	if (l->ch)
		l->dev->ops->destroy_comp_channel(l->dev, l->ch);
	if (l->pd)
		assert_int_equal(l->dev->ops->dealloc_pd(l->dev, l->pd), 0);
	if (l->dev)
		dev_close(l->dev);
}

static int life_connect(struct life *l, struct life *to)
{
	static const struct dev_qp_opts opts;
	struct dev_qp_addr addr;
	int err;

	dev_qp_addr(to->dev, to->qp, 1, &addr);
	err = dev_qp_rtr(l->dev, l->qp, &addr, &opts);
	return err ? err : dev_qp_rts(l->dev, l->qp, 1, &addr, &opts);
}

static void test_alloc_sweep(void **state)
{
	struct skein_env *env;
	struct sweep s = {0};
	struct life a, b;
	int err, fds;
	long n;

	assert_int_equal(env_real_new(&env), 0);
	env->alloc_fails = fails;
	env->alloc_arg = &s;
	fds = rig_fds();
	for (n = 1;; n++) {
		s.left = n;
		s.hit = false;
		err = life_begin(&a, env);
		memset(&b, 0, sizeof(b));
		if (!err)
			err = life_begin(&b, env);
		if (!err)
			err = life_connect(&a, &b);
		if (!err)
			err = life_connect(&b, &a);
		s.left = 0;
		life_end(&a);
		life_end(&b);
		assert_int_equal(rig_fds(), fds);
		if (!s.hit)
			break;
	}
	assert_int_equal(err, 0);
	assert_true(n > 15); /* it did sweep */
	env_real_free(env);
}

/* Each number of descriptors from none to enough. */
static void test_fd_limit(void **state)
{
	struct rlimit was, now;
	struct skein_env *env;
	struct life a, b;
	int err = -1, fds, more;

	assert_int_equal(env_real_new(&env), 0);
	getrlimit(RLIMIT_NOFILE, &was);
	fds = rig_fds();
	for (more = 0; err && more < 64; more++) {
		now = was;
		now.rlim_cur = (rlim_t)(fds - 3 + more);
		setrlimit(RLIMIT_NOFILE, &now);
		err = life_begin(&a, env);
		memset(&b, 0, sizeof(b));
		if (!err)
			err = life_begin(&b, env);
		if (!err)
			err = life_connect(&a, &b);
		if (!err)
			err = life_connect(&b, &a);
		life_end(&a);
		life_end(&b);
		setrlimit(RLIMIT_NOFILE, &was);
		assert_int_equal(rig_fds(), fds);
	}
	assert_int_equal(err, 0);
	assert_true(more > 5);
	env_real_free(env);
}

/* More regions of one file than there are descriptors. Two files have two, and
 * one goes with its last region. */
static void test_fd_one_a_file(void **state)
{
	struct rlimit was, now;
	struct rig_end e;
	struct ibv_mr *mr[300];
	unsigned fds, i;
	int fd[2];

	rig_open(&e, NULL);
	fds = rig_fds();
	getrlimit(RLIMIT_NOFILE, &was);
	for (i = 0; i < 2; i++) {
		fd[i] = memfd_create("regions",
				     MFD_CLOEXEC | MFD_ALLOW_SEALING);
		assert_int_equal(ftruncate(fd[i], 1 << 20), 0);
	}
	now = was;
	now.rlim_cur = fds + 100;
	setrlimit(RLIMIT_NOFILE, &now);
	for (i = 0; i < 300; i++)
		assert_int_equal(e.dev->ops->reg_mr(e.dev, e.pd, e.buf, 64,
						    RIG_ACCESS, fd[i % 2],
						    64 * i, &mr[i]),
				 0);
	setrlimit(RLIMIT_NOFILE, &was);
	close(fd[0]);
	close(fd[1]);
	assert_int_equal(rig_fds(), fds + 2);
	for (i = 0; i < 300; i += 2)
		assert_int_equal(e.dev->ops->dereg_mr(e.dev, mr[i]), 0);
	assert_int_equal(rig_fds(), fds + 1);
	for (i = 1; i < 300; i += 2)
		assert_int_equal(e.dev->ops->dereg_mr(e.dev, mr[i]), 0);
	assert_int_equal(rig_fds(), fds);
	rig_close(&e);
}

static void write_first(struct rig_end *a, struct rig_end *b)
{
	assert_int_equal(rig_post(a, IBV_WR_RDMA_WRITE, 1, a->buf, 8,
				  (uintptr_t)b->buf, b->mem->mr->rkey,
				  IBV_SEND_SIGNALED),
			 0);
}

/* A connection that is up maps its peer's region without a descriptor to be
 * had, and the device has its reserve again. */
static void test_fd_limit_map(void **state)
{
	struct rlimit was, now;
	struct rig_end a, b;
	int fds, before;

	rig_pair(&a, &b, NULL);
	before = rig_fds();
	getrlimit(RLIMIT_NOFILE, &was);
	fds = dup(0);
	close(fds);
	now = was;
	now.rlim_cur = (rlim_t)fds;
	setrlimit(RLIMIT_NOFILE, &now);
	assert_int_equal(dup(0), -1);
	a.buf[0] = 7;
	write_first(&a, &b);
	rig_expect(&a, 1, IBV_WC_SUCCESS);
	assert_int_equal(b.buf[0], 7);
	setrlimit(RLIMIT_NOFILE, &was);
	assert_int_equal(rig_fds(), before);
	rig_unpair(&a, &b);
}

/* Others have taken the reserve too: the request fails and says why. */
static void test_fd_limit_stolen(void **state)
{
	int fds, n, stolen[SOFT_SPARES];
	struct rlimit was, now;
	struct rig_end a, b;

	if (getenv("SKEIN_TEST_VALGRIND")) {
		print_message("valgrind lets descriptors in messages pass the "
			      "limit\n");
		skip();
	}
	rig_pair(&a, &b, NULL);
	getrlimit(RLIMIT_NOFILE, &was);
	fds = dup(0);
	close(fds);
	now = was;
	now.rlim_cur = (rlim_t)fds;
	setrlimit(RLIMIT_NOFILE, &now);
	for (n = 0; soft_spare_give(soft_of_dev(a.dev)); n++)
		stolen[n] = dup(0);
	assert_int_equal(n, SOFT_SPARES);
	write_first(&a, &b);
	rig_expect(&a, 1, IBV_WC_LOC_QP_OP_ERR);
	while (n)
		close(stolen[--n]);
	setrlimit(RLIMIT_NOFILE, &was);
	rig_unpair(&a, &b);
}

/* As if /proc/PID/mem were refused. */
static void refuse_mem(struct rig_end *e)
{
	struct soft *s = soft_of_dev(e->dev);
	struct list_node *n;

	for (n = s->peers.next; n != &s->peers; n = n->next)
		container_of(n, struct soft_peer, link)->mem_fd = -2;
}

static void test_control_thread(void **state)
{
	static const uint32_t lens[] = {1, 8, 4096, 32768, 32769, 1000000};
	struct rig_opts o = {.plain = true};
	struct rig_end a, b;
	struct ibv_wc wc;
	unsigned i, j;

	rig_pair(&a, &b, &o);
	refuse_mem(&a);
	for (i = 0; i < sizeof(lens) / sizeof(lens[0]); i++) {
		for (j = 0; j < lens[i]; j++)
			a.buf[j] = (char)(j * 5 + i);
		assert_int_equal(rig_post(&a, IBV_WR_RDMA_WRITE, 1, a.buf,
					  lens[i], (uintptr_t)b.buf + 3,
					  b.mem->mr->rkey, IBV_SEND_SIGNALED),
				 0);
		rig_expect(&a, 1, IBV_WC_SUCCESS);
		assert_memory_equal(a.buf, b.buf + 3, lens[i]);
		assert_int_equal(rig_recv(&b, 9, b.buf + 7, lens[i]), 0);
		assert_int_equal(rig_post(&a, IBV_WR_SEND, 2, a.buf, lens[i], 0,
					  0, IBV_SEND_SIGNALED),
				 0);
		rig_expect(&a, 2, IBV_WC_SUCCESS);
		rig_wait(&b, &wc);
		assert_int_equal(wc.byte_len, lens[i]);
		assert_memory_equal(a.buf, b.buf + 7, lens[i]);
		assert_int_equal(rig_post(&a, IBV_WR_RDMA_READ, 3,
					  a.buf + 1000003, lens[i],
					  (uintptr_t)b.buf + 7, b.mem->mr->rkey,
					  IBV_SEND_SIGNALED),
				 0);
		rig_expect(&a, 3, IBV_WC_SUCCESS);
		assert_memory_equal(a.buf + 1000003, b.buf + 7, lens[i]);
	}
	assert_int_equal(rig_post(&a, IBV_WR_RDMA_WRITE, 1, a.buf, 8,
				  (uintptr_t)b.buf + RIG_MEM - 4,
				  b.mem->mr->rkey, IBV_SEND_SIGNALED),
			 0);
	rig_expect(&a, 1, IBV_WC_REM_ACCESS_ERR);
	rig_unpair(&a, &b);
}

static void test_loopback(void **state)
{
	struct dev_qp_addr one, two;
	struct ibv_qp *other;
	struct rig_end a;
	struct ibv_wc wc;

	rig_open(&a, NULL);
	other = rig_qp(&a);
	rig_qp_addr(&a, a.qp, &one);
	rig_qp_addr(&a, other, &two);
	rig_connect_qp(&a, a.qp, &two);
	rig_connect_qp(&a, other, &one);
	strcpy(a.buf, "to myself");
	assert_int_equal(rig_post(&a, IBV_WR_RDMA_WRITE, 1, a.buf, 10,
				  (uintptr_t)a.buf + 64, a.mem->mr->rkey,
				  IBV_SEND_SIGNALED),
			 0);
	rig_wait(&a, &wc);
	assert_int_equal(wc.status, IBV_WC_SUCCESS);
	assert_string_equal(a.buf + 64, "to myself");
	assert_int_equal(a.dev->ops->destroy_qp(a.dev, other), 0);
	rig_close(&a);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_alloc_sweep),
		cmocka_unit_test(test_fd_limit),
		cmocka_unit_test(test_fd_one_a_file),
		cmocka_unit_test(test_fd_limit_map),
		cmocka_unit_test(test_fd_limit_stolen),
		cmocka_unit_test(test_control_thread),
		cmocka_unit_test(test_loopback),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
