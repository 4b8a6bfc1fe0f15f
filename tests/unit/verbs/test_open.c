/* SPDX-License-Identifier: MIT */
/*
 * test_open.c - which device and port are opened, what is learnt of them, and
 * what people are told when none will do; over a made-up libibverbs.
 */
#include "dev/list.h"
#include "dev/verbs/verbs.h"
#include "env/env.h"
#include "fake_lib.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/resource.h>

#include <cmocka.h>

static struct skein_env *env;
static char last_log[512];

static void note_log(void *arg, enum env_log_level level, const char *msg)
{
	snprintf(last_log, sizeof(last_log), "%s", msg);
}

static int setup(void **state)
{
	assert_int_equal(env_real_new(&env), 0);
	env->log = note_log;
	env->log_level = ENV_LOG_INFO;
	last_log[0] = '\0';
	fake_reset();
	return 0;
}

static int teardown(void **state)
{
	env_real_free(env);
	assert_int_equal(fake.objects, 0);
	return 0;
}

static struct dev *opens(const char *name)
{
	struct dev *dev = NULL;
	char err[256] = "";

	if (verbs_open_from(&fake_loader, env, name, -1, err, sizeof(err),
			    &dev))
		fail_msg("%s", err);
	assert_string_equal(err, "");
	return dev;
}

static void refuses(const char *name, int rc, const char *word)
{
	struct dev *dev = NULL;
	char err[256] = "";

	assert_int_equal(verbs_open_from(&fake_loader, env, name, -1, err,
					 sizeof(err), &dev),
			 rc);
	assert_null(dev);
	if (!strstr(err, word))
		fail_msg("no \"%s\" in \"%s\"", word, err);
	assert_null(strchr(err, '\n'));
	assert_int_equal(fake.objects, 0);
}

static void test_first_good(void **state)
{
	struct dev *dev;

	fake_add("nic0")->port_state[0] = IBV_PORT_DOWN;
	fake_add("nic1");
	fake_add("nic2");
	dev = opens("");
	assert_string_equal(dev->name, "nic1");
	assert_string_equal(dev->ops->kind, "verbs");
	assert_int_equal(dev->port, 1);
	assert_int_equal(dev->gid.index, 11);
	assert_string_equal(dev->gid.netdev, "lo");
	assert_non_null(strstr(dev->why, "first of 3"));
	assert_non_null(strstr(last_log, "nic1"));
	dev_close(dev);
}

static void test_by_name(void **state)
{
	struct dev *dev;

	fake_add("nic0");
	fake_add("nic1");
	dev = opens("nic1");
	assert_string_equal(dev->name, "nic1");
	dev_close(dev);
	refuses("nic", -ENODEV, "no RDMA device is called \"nic\"");
}

static void test_second_port(void **state)
{
	struct fake_device *d = fake_add("nic0");
	struct dev *dev;

	d->ports = 2;
	d->port_state[0] = IBV_PORT_INIT;
	dev = opens("");
	assert_int_equal(dev->port, 2);
	assert_int_equal(dev->gid.index, 12); /* that port's, not the first's */
	dev_close(dev);
}

static void test_none(void **state)
{
	refuses("", -ENODEV, "no RDMA device");
	fake.list_errno = ENOSYS;
	refuses("", -ENODEV, "ib_uverbs");
	fake.list_errno = EMFILE;
	refuses("", -EMFILE, "Too many open files");
}

static void test_unfit(void **state)
{
	struct fake_device *d = fake_add("nic0");

	d->transport = IBV_TRANSPORT_IWARP;
	refuses("", -ENODEV, "iWARP");
	d->transport = IBV_TRANSPORT_UNSPECIFIED;
	refuses("nic0", -ENODEV, "EFA");
	d->transport = IBV_TRANSPORT_IB;
	d->port_state[0] = IBV_PORT_DOWN;
	refuses("", -ENETDOWN, "nic0: port 1 is not active");
	d->port_state[0] = IBV_PORT_ACTIVE;
	d->no_gid = true;
	refuses("", -ENODATA, "ip addr add");
	d->no_gid = false;
	d->gid_elsewhere = true;
	refuses("", -ENODATA, "another network namespace");
	d->gid_elsewhere = false;
	d->open_errno = EACCES;
	refuses("", -EACCES, "Permission denied");
	d->open_errno = 0;
	d->ports = 0;
	refuses("", -ENODEV, "no port");
}

/* The first device's trouble is told, not the last's. */
static void test_first_trouble(void **state)
{
	fake_add("nic0")->open_errno = EACCES;
	fake_add("nic1")->port_state[0] = IBV_PORT_DOWN;
	refuses("", -EACCES, "nic0");
	refuses("nic1", -ENETDOWN, "nic1");
}

static void test_caps(void **state)
{
	struct fake_device *d = fake_add("nic0");
	struct dev *dev = opens("");

	/* asked 1024, 512, 256, then 128 was granted, with 220; UC, UD */
	assert_int_equal(fake.qp_refusals, 3);
	assert_int_equal(fake.qps_made, 3);
	assert_true(dev->caps.uc);
	assert_true(dev->caps.ud);
	assert_false(dev->caps.srq);
	assert_int_equal(dev->caps.inline_max, 220);
	assert_int_equal(dev->caps.rd_atomic_max, 8);
	assert_int_equal(dev->caps.qp_wr_max, 1000);
	assert_int_equal(dev->caps.cqe_max, 0);
	assert_int_equal(dev->caps.sge_max, 30);
	assert_int_equal(dev->caps.msg_sz_max, 1u << 30);
	assert_int_equal(dev->caps.atomic_scope, DEV_ATOMIC_HCA);
	assert_false(dev->caps.ordered_write);
	assert_false(dev->caps.ordered_read);
	assert_false(dev->caps.wake_on_write);
	assert_false(dev->caps.death_notice);
	assert_false(dev->caps.dc);
	assert_int_equal(dev->ops->probe(dev, NULL), -EOPNOTSUPP);
	dev_close(dev);

	d->inline_limit = 0;
	d->in_order = 1;
	dev = opens("");
	assert_int_equal(dev->caps.inline_max, 0);
	assert_true(dev->caps.ordered_write);
	dev_close(dev);

	fake.no_in_order = true;
	dev = opens("");
	assert_false(dev->caps.ordered_write);
	dev_close(dev);
}

/* What is not there is refused here, and what providers say is made one. */
static void test_types(void **state)
{
	struct fake_device *d = fake_add("nic0");
	struct ibv_qp_init_attr qa = {.qp_type = IBV_QPT_UC};
	struct ibv_srq_init_attr sa = {.attr = {.max_wr = 8}};
	struct ibv_srq *srq = NULL;
	struct ibv_qp *qp = NULL;
	struct ibv_cq cq = {0};
	struct ibv_pd *pd;
	struct dev *dev;

	d->no_uc = d->no_ud = true;
	d->srq_wr = 500;
	dev = opens("");
	assert_false(dev->caps.uc);
	assert_false(dev->caps.ud);
	assert_true(dev->caps.srq);
	assert_int_equal(dev->caps.srq_wr_max, 500);
	assert_int_equal(dev->ops->alloc_pd(dev, &pd), 0);
	assert_int_equal(dev->ops->create_qp(dev, pd, &qa, 0, &qp),
			 -EOPNOTSUPP);
	qa.qp_type = IBV_QPT_UD;
	assert_int_equal(dev->ops->create_qp(dev, pd, &qa, 0, &qp),
			 -EOPNOTSUPP);
	qa.qp_type = IBV_QPT_XRC_SEND;
	assert_int_equal(dev->ops->create_qp(dev, pd, &qa, 0, &qp),
			 -EOPNOTSUPP);
	assert_null(qp);
	fake.srq_errno = ENOMEM;
	assert_int_equal(dev->ops->create_srq(dev, pd, &sa, &srq), -ENOMEM);
	assert_null(srq);
	assert_int_equal(sa.attr.max_wr, 8); /* untouched by what failed */
	fake.srq_errno = 0;
	assert_int_equal(dev->ops->create_srq(dev, pd, &sa, &srq), 0);
	assert_int_equal(sa.attr.max_wr, 16);
	fake.srq_errno = EBUSY;
	assert_int_equal(dev->ops->destroy_srq(dev, srq), -EBUSY);
	fake.srq_errno = 0;
	assert_int_equal(dev->ops->destroy_srq(dev, srq), 0);
	fake.resize_rc = ENOSYS;
	assert_int_equal(dev->ops->resize_cq(dev, &cq, 4), -EOPNOTSUPP);
	fake.resize_rc = EINVAL;
	assert_int_equal(dev->ops->resize_cq(dev, &cq, 4), -EINVAL);
	assert_int_equal(dev->ops->dealloc_pd(dev, pd), 0);
	dev_close(dev);
}

static void test_gid_by_index(void **state)
{
	struct dev *dev = NULL;
	char err[256];

	fake_add("nic0")->ports = 2;
	assert_int_equal(verbs_open_from(&fake_loader, env, "", 12, err,
					 sizeof(err), &dev),
			 0);
	assert_int_equal(dev->port, 2);
	dev_close(dev);
	assert_int_equal(verbs_open_from(&fake_loader, env, "", 5, err,
					 sizeof(err), &dev),
			 -ENODATA);
	assert_non_null(strstr(err, "no entry 5"));
}

/* Neither fd of the library blocks, although it makes blocking ones. */
static void test_nonblocking(void **state)
{
	struct ibv_comp_channel *ch;
	struct ibv_async_event ev;
	struct ibv_cq *cq = NULL;
	struct dev *dev;

	fake_add("nic0");
	dev = opens("");
	assert_int_equal(dev->ops->get_async_event(dev, &ev), -EAGAIN);
	assert_int_equal(dev->ops->create_comp_channel(dev, &ch), 0);
	assert_int_equal(dev->ops->get_cq_event(dev, ch, &cq), -EAGAIN);
	assert_null(cq);
	assert_int_equal(dev->ops->destroy_comp_channel(dev, ch), 0);
	dev_close(dev);
}

/* A QP that breaks by itself has the state that its event tells of: no library
 * writes that. */
static void test_fatal_state(void **state)
{
	struct ibv_qp qp = {.state = IBV_QPS_RTS};
	struct ibv_async_event ev;
	struct dev *dev;

	fake_add("nic0");
	dev = opens("");
	fake.event.element.qp = &qp;
	fake.event.event_type = IBV_EVENT_COMM_EST;
	assert_int_equal(eventfd_write(dev->verbs->async_fd, 1), 0);
	assert_int_equal(dev->ops->get_async_event(dev, &ev), 0);
	assert_int_equal(qp.state, IBV_QPS_RTS);
	fake.event.event_type = IBV_EVENT_QP_FATAL;
	assert_int_equal(dev->ops->get_async_event(dev, &ev), -EAGAIN);
	assert_int_equal(qp.state, IBV_QPS_RTS);
	assert_int_equal(eventfd_write(dev->verbs->async_fd, 1), 0);
	assert_int_equal(dev->ops->get_async_event(dev, &ev), 0);
	assert_int_equal(qp.state, IBV_QPS_ERR);
	dev_close(dev);
}

static void test_memlock_named(void **state)
{
	struct fake_device *d = fake_add("nic0");
	struct rlimit was, lim;
	struct ibv_mr *mr = NULL;
	struct ibv_pd *pd;
	struct dev *dev = opens("");

	assert_int_equal(dev->ops->alloc_pd(dev, &pd), 0);
	assert_int_equal(getrlimit(RLIMIT_MEMLOCK, &was), 0);
	lim = was;
	lim.rlim_cur = 64 * 1024;
	assert_int_equal(setrlimit(RLIMIT_MEMLOCK, &lim), 0);
	d->reg_errno = ENOMEM;
	assert_int_equal(dev->ops->reg_mr(dev, pd, &mr, 1 << 20, 0, -1, 0, &mr),
			 -ENOMEM);
	assert_null(mr);
	assert_non_null(strstr(last_log, "RLIMIT_MEMLOCK is 64 KiB"));
	assert_non_null(strstr(last_log, "1048576 bytes"));
	assert_non_null(strstr(last_log, "ulimit -l"));
	/* The limit is not blamed for what it would have let through. */
	assert_int_equal(dev->ops->reg_mr(dev, pd, &mr, 64, 0, -1, 0, &mr),
			 -ENOMEM);
	assert_non_null(strstr(last_log, "64 bytes"));
	assert_null(strstr(last_log, "MEMLOCK"));
	/* Another cause is not blamed on the limit. */
	d->reg_errno = EFAULT;
	assert_int_equal(dev->ops->reg_mr(dev, pd, &mr, 1 << 20, 0, -1, 0, &mr),
			 -EFAULT);
	assert_null(strstr(last_log, "MEMLOCK"));
	assert_int_equal(setrlimit(RLIMIT_MEMLOCK, &was), 0);
	assert_int_equal(dev->ops->dealloc_pd(dev, pd), 0);
	dev_close(dev);
}

static void test_fork(void **state)
{
	struct dev *dev;

	fake.fork = IBV_FORK_DISABLED;
	refuses("", -ENODEV, "no RDMA device");
	assert_int_equal(fake.fork_inits, 0); /* nothing to guard */
	fake_add("nic0");
	fake.fork = IBV_FORK_UNNEEDED;
	dev = opens("");
	assert_int_equal(dev->caps.fork, DEV_FORK_SAFE);
	dev_close(dev);
	fake.fork = IBV_FORK_ENABLED;
	dev = opens("");
	assert_int_equal(dev->caps.fork, DEV_FORK_GUARDED);
	dev_close(dev);
	assert_int_equal(fake.fork_inits, 0);
	fake.fork = IBV_FORK_DISABLED;
	dev = opens("");
	assert_int_equal(dev->caps.fork, DEV_FORK_GUARDED);
	assert_int_equal(fake.fork_inits, 1);
	dev_close(dev);
	/* A library that cannot be asked is taken for one that needs it. */
	fake.no_fork_query = true;
	fake.fork_rc = EINVAL;
	env->log_level = ENV_LOG_WARN;
	dev = opens("");
	assert_int_equal(dev->caps.fork, DEV_FORK_UNSAFE);
	assert_int_equal(fake.fork_inits, 2);
	assert_non_null(strstr(last_log, "do not fork()"));
	dev_close(dev);
}

/* The GID is known by index and bytes, and stays while it is there. */
static void test_refresh(void **state)
{
	struct fake_device *d = fake_add("nic0");
	struct dev_qp_addr addr, peer = {.qpn = 1, .mtu = IBV_MTU_256};
	struct ibv_qp qp = {.qp_type = IBV_QPT_RC};
	unsigned changes = 99;
	struct dev_path path;
	struct dev *dev;

	dev = opens("");
	assert_int_equal(dev->ops->refresh(dev, &changes), 0);
	assert_int_equal(changes, 0);
	d->port_state[0] = IBV_PORT_DOWN;
	assert_int_equal(dev->ops->refresh(dev, &changes), 0);
	assert_int_equal(changes, DEV_CHANGE_PORT);
	d->port_state[0] = IBV_PORT_ACTIVE;
	assert_int_equal(dev->ops->refresh(dev, &changes), 0);
	assert_int_equal(changes, DEV_CHANGE_PORT);
	/* The same bytes at another index are another GID. */
	d->gid_index = 40;
	assert_int_equal(dev->ops->refresh(dev, &changes), 0);
	assert_int_equal(changes, DEV_CHANGE_ADDR);
	dev_path_now(dev, &path);
	assert_int_equal(path.gid.index, 40);
	assert_int_equal(dev->gid.index, 11); /* as at open */
	assert_int_equal(dev->ops->refresh(dev, &changes), 0);
	assert_int_equal(changes, 0);
	/* None: said once, and nobody can be reached from here. */
	d->no_gid = true;
	assert_int_equal(dev->ops->refresh(dev, &changes), 0);
	assert_int_equal(changes, DEV_CHANGE_ADDR);
	dev_path_now(dev, &path);
	assert_int_equal(path.gid.index, -1);
	assert_non_null(strstr(path.gid.why, "GID table is empty"));
	assert_int_equal(dev_qp_rtr(dev, &qp, &peer, NULL), -EADDRNOTAVAIL);
	d->no_gid = false;
	assert_int_equal(dev->ops->refresh(dev, &changes), 0);
	assert_int_equal(changes, DEV_CHANGE_ADDR);
	dev_qp_addr(dev, &qp, 1, &addr);
	assert_int_equal(addr.gid.raw[0], 0xfe);
	/* An index that no address handle has room for is not there. */
	d->gid_index = 256;
	assert_int_equal(dev->ops->refresh(dev, &changes), 0);
	dev_path_now(dev, &path);
	assert_int_equal(path.gid.index, -1);
	dev_close(dev);
}

/* InfiniBand: a LID, GIDs without netdev, a subnet manager. */
static void test_infiniband(void **state)
{
	struct fake_device *d = fake_add("nic0");
	struct dev_qp_addr addr, peer;
	struct ibv_ah_attr ah;
	struct ibv_qp qp = {.qp_type = IBV_QPT_RC};
	unsigned changes;
	struct dev *dev;

	d->lid = 7;
	d->gid_last = 5;
	d->gid_elsewhere = true; /* no netdev: of every namespace */
	d->port_state[0] = IBV_PORT_INIT;
	refuses("", -ENETDOWN, "opensm");
	d->port_state[0] = IBV_PORT_ACTIVE;
	dev = opens("");
	assert_int_equal(dev->gid.type, DEV_GID_IB);
	assert_non_null(strstr(dev->gid.why, "InfiniBand"));
	dev_qp_addr(dev, &qp, 1, &addr);
	assert_int_equal(addr.lid, 7);
	peer = addr;
	peer.lid = 9;
	assert_int_equal(dev_ah_attr(dev, &peer, NULL, &ah), 0);
	assert_int_equal(ah.is_global, 0);
	assert_int_equal(ah.dlid, 9);
	peer.lid = 0; /* a peer on Ethernet */
	assert_int_equal(dev_ah_attr(dev, &peer, NULL, &ah), -EINVAL);
	/* The subnet manager gives another LID, or another prefix. */
	d->lid = 8;
	assert_int_equal(dev->ops->refresh(dev, &changes), 0);
	assert_int_equal(changes, DEV_CHANGE_ADDR);
	dev_qp_addr(dev, &qp, 1, &addr);
	assert_int_equal(addr.lid, 8);
	d->gid_last = 6;
	assert_int_equal(dev->ops->refresh(dev, &changes), 0);
	assert_int_equal(changes, DEV_CHANGE_ADDR);
	peer.lid = 9;
	d->port_flags = IBV_QPF_GRH_REQUIRED;
	assert_int_equal(dev->ops->refresh(dev, &changes), 0);
	assert_int_equal(changes, 0);
	assert_int_equal(dev_ah_attr(dev, &peer, NULL, &ah), 0);
	assert_int_equal(ah.is_global, 1);
	assert_int_equal(ah.dlid, 9);
	dev_close(dev);
}

/* All of them, usable or not, with the reason. */
static void test_list(void **state)
{
	struct dev_list_entry *list = NULL;
	struct fake_device *d;
	char err[160] = "";
	int n = 0;

	fake_add("nic0")->open_errno = EACCES;
	fake_add("nic1")->transport = IBV_TRANSPORT_IWARP;
	d = fake_add("nic2");
	d->ports = 2;
	d->port_state[0] = IBV_PORT_DOWN;
	fake_add("nic3")->gid_elsewhere = true;
	assert_int_equal(verbs_list_from(&fake_loader, env, err, sizeof(err),
					 &list, &n),
			 0);
	assert_int_equal(n, 4);
	assert_string_equal(list[0].name, "nic0");
	assert_non_null(strstr(list[0].err, "Permission denied"));
	assert_non_null(strstr(list[1].err, "iWARP"));
	assert_string_equal(list[2].err, "");
	assert_int_equal(list[2].n_ports, 2);
	assert_int_equal(list[2].ports[0].chosen, -1);
	assert_non_null(strstr(list[2].ports[0].why, "not active"));
	assert_int_equal(list[2].ports[0].n_gids, 1);
	assert_int_equal(list[2].ports[1].number, 2);
	assert_int_equal(list[2].ports[1].chosen, 12);
	assert_int_equal(list[2].ports[1].gids[0].gid.index, 12);
	assert_true(list[2].ports[1].gids[0].here);
	assert_string_equal(list[2].ports[1].gids[0].gid.netdev, "lo");
	assert_int_equal(list[3].ports[0].chosen, -1);
	assert_false(list[3].ports[0].gids[0].here);
	assert_non_null(strstr(list[3].ports[0].why, "namespace"));
	env_free(env, list);
	fake.list_errno = ENOSYS;
	list = NULL;
	assert_int_equal(verbs_list_from(&fake_loader, env, err, sizeof(err),
					 &list, &n),
			 -ENODEV);
	assert_null(list);
	assert_non_null(strstr(err, "ib_uverbs"));
}

static bool nth_fails(void *arg)
{
	return (*(int *)arg)-- == 0;
}

static void test_each_alloc_fails(void **state)
{
	struct dev *dev = NULL;
	char err[256];
	int n, left, rc;

	fake_add("nic0");
	env->alloc_fails = nth_fails;
	env->alloc_arg = &left;
	for (n = 0;; n++) {
		left = n;
		rc = verbs_open_from(&fake_loader, env, "", -1, err,
				     sizeof(err), &dev);
		if (!rc)
			break;
		assert_int_equal(rc, -ENOMEM);
		assert_null(dev);
		assert_non_null(strstr(err, "memory"));
		assert_int_equal(fake.objects, 0);
	}
	assert_int_equal(n, 2);
	dev_close(dev);
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(test_first_good),
		T(test_by_name),
		T(test_second_port),
		T(test_none),
		T(test_unfit),
		T(test_first_trouble),
		T(test_caps),
		T(test_types),
		T(test_gid_by_index),
		T(test_nonblocking),
		T(test_fatal_state),
		T(test_memlock_named),
		T(test_fork),
		T(test_refresh),
		T(test_infiniband),
		T(test_list),
		T(test_each_alloc_fails),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
