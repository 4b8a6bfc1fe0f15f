/* SPDX-License-Identifier: MIT */
/*
 * qps.c - QPs between two processes, as many as are asked for, for the bars of
 * the link between hosts:
 *
 *	qps serve ADDRESS PORT
 *	qps hold ADDRESS PORT N			until stdin ends
 *	qps calls ADDRESS PORT SECONDS BYTES	beside WRITEs of so many bytes
 *	qps dead ADDRESS PORT TIMEOUT RETRIES	the server is killed
 *
 * hold prints the bytes that a QP takes at both ends together; calls the p50
 * and p99 of 64 bytes there and back in ns, and the bytes a second of the
 * WRITEs, which go by another QP (0: none); dead the time from the first post
 * after "kill" until that has failed, over what the QP's timers give.
 */
#include "dev/dev.h"
#include "dev/mem.h"
#include "env/env.h"

#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define QPS_MAX 12000u
#define BULK_MAX (4u << 20)
#define CALL 64u
#define DEPTH 4u
#define SAMPLES 1000000u
#define IS_RECV (1ull << 32)
#define IS_BULK (1ull << 33)
#define ACCESS (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE)

#define check(x)                                                          \
	do {                                                              \
		if (!(x)) {                                               \
			fprintf(stderr, "qps: %s:%d: %s: %s\n", __FILE__, \
				__LINE__, #x, strerror(errno));           \
			exit(1);                                          \
		}                                                         \
	} while (0)

struct ask {
	uint32_t n;
	uint8_t timeout, retries;
};

struct place {
	uint64_t addr;
	uint32_t rkey;
};

static struct skein_env *env;
static struct dev *dev;
static struct ibv_pd *pd;
static struct ibv_comp_channel *ch;
static struct ibv_cq *cq;
static struct mem_region *mem;
static struct ibv_qp *qp[QPS_MAX];
static struct dev_qp_addr addr[QPS_MAX], peer[QPS_MAX];
static struct place there;

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000ull + (uint64_t)t.tv_nsec;
}

static void put(int fd, const void *p, size_t len)
{
	size_t at = 0;

	while (at < len) {
		ssize_t n =
			send(fd, (const char *)p + at, len - at, MSG_NOSIGNAL);

		check(n > 0);
		at += (size_t)n;
	}
}

static void get(int fd, void *p, size_t len)
{
	check(recv(fd, p, len, MSG_WAITALL) == (ssize_t)len);
}

static int meet(const char *host, const char *port, bool serves)
{
	struct sockaddr_in a = {.sin_family = AF_INET,
				.sin_port = htons((uint16_t)atoi(port))};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;

	check(inet_pton(AF_INET, host, &a.sin_addr) == 1);
	if (!serves) {
		check(!connect(fd, (struct sockaddr *)&a, sizeof(a)));
		return fd;
	}
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	check(!bind(fd, (struct sockaddr *)&a, sizeof(a)) && !listen(fd, 1));
	puts("waiting");
	fflush(stdout);
	fd = accept(fd, NULL, NULL);
	check(fd >= 0);
	return fd;
}

/* Of this process, shared pages in part. */
static uint64_t memory(void)
{
	FILE *f = fopen("/proc/self/smaps_rollup", "r");
	unsigned long kib = 0;
	char line[256];

	check(f);
	while (fgets(line, sizeof(line), f))
		if (sscanf(line, "Pss: %lu", &kib) == 1)
			break;
	fclose(f);
	return kib * 1024ull;
}

static void open_device(void)
{
	char err[256] = "";

	check(!env_real_new(&env));
	if (dev_open(env, "soft", -1, err, sizeof(err), &dev)) {
		fprintf(stderr, "qps: %s\n", err);
		exit(1);
	}
	check(!dev->ops->alloc_pd(dev, &pd));
	check(!dev->ops->create_comp_channel(dev, &ch));
	check(!dev->ops->create_cq(dev, 256, NULL, ch, &cq));
	check(!mem_region_new(dev, pd, "qps", BULK_MAX + 4096, ACCESS, 1,
			      &mem));
}

static uint8_t *at(size_t off)
{
	return (uint8_t *)mem->addr + off;
}

/* N connected QPs; what they took at this end. */
static uint64_t connect_all(int fd, const struct ask *a)
{
	const struct dev_qp_opts opts = {.timeout = a->timeout,
					 .retry_cnt = a->retries};
	struct ibv_qp_init_attr init = {.send_cq = cq,
					.recv_cq = cq,
					.qp_type = IBV_QPT_RC,
					.cap = {.max_send_wr = DEPTH,
						.max_recv_wr = DEPTH,
						.max_send_sge = 1,
						.max_recv_sge = 1}};
	struct place here = {(uintptr_t)mem->addr, mem->mr->rkey};
	uint64_t before = memory();
	uint32_t i;

	for (i = 0; i < a->n; i++) {
		check(!dev->ops->create_qp(dev, pd, &init, 0, &qp[i]));
		check(!dev_qp_init(dev, qp[i], ACCESS));
		dev_qp_addr(dev, qp[i], 0x100, &addr[i]);
	}
	put(fd, &here, sizeof(here));
	put(fd, addr, a->n * sizeof(*addr));
	get(fd, &there, sizeof(there));
	get(fd, peer, a->n * sizeof(*peer));
	for (i = 0; i < a->n; i++) {
		check(!dev_qp_rtr(dev, qp[i], &peer[i], &opts));
		check(!dev_qp_rts(dev, qp[i], 0x100, &peer[i], &opts));
	}
	return memory() - before;
}

static void post_recv(void)
{
	struct ibv_sge g = {(uintptr_t)at(BULK_MAX), CALL, mem->mr->lkey};
	struct ibv_recv_wr wr = {.wr_id = IS_RECV, .sg_list = &g, .num_sge = 1},
			   *bad;

	check(!ibv_post_recv(qp[0], &wr, &bad));
}

static void post_send(void)
{
	struct ibv_sge g = {(uintptr_t)at(BULK_MAX + 1024), CALL,
			    mem->mr->lkey};
	struct ibv_send_wr wr = {.sg_list = &g,
				 .num_sge = 1,
				 .opcode = IBV_WR_SEND,
				 .send_flags = IBV_SEND_SIGNALED},
			   *bad;

	check(!ibv_post_send(qp[0], &wr, &bad));
}

static void post_bulk(uint32_t n, uint32_t len)
{
	struct ibv_sge g = {(uintptr_t)at(0), len, mem->mr->lkey};
	struct ibv_send_wr wr = {.wr_id = IS_BULK,
				 .sg_list = &g,
				 .num_sge = 1,
				 .opcode = IBV_WR_RDMA_WRITE,
				 .send_flags = IBV_SEND_SIGNALED},
			   *bad;

	wr.wr.rdma.remote_addr = there.addr;
	wr.wr.rdma.rkey = there.rkey;
	check(!ibv_post_send(qp[n], &wr, &bad));
}

/* Asleep where there is only one QP: nobody computes for nothing. */
static void serve(int fd, const struct ask *a)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};
	uint32_t rounds = 0;
	struct ibv_wc wc;
	int n;

	for (;;) {
		n = ibv_poll_cq(cq, 1, &wc);
		if (n > 0) {
			check(!wc.status);
			if (wc.wr_id != IS_RECV)
				continue;
			post_recv();
			post_send();
		} else if (a->n != 2 || ++rounds % 4096 == 0) {
			if (poll(&p, 1, a->n != 2 ? -1 : 0))
				return;
		}
	}
}

static int compare(const void *x, const void *y)
{
	uint32_t a = *(const uint32_t *)x, b = *(const uint32_t *)y;

	return (a > b) - (a < b);
}

static void calls(double seconds, uint32_t bulk)
{
	uint32_t *took = malloc(SAMPLES * sizeof(*took)), n = 0;
	uint64_t begin = now_ns(), end = begin + (uint64_t)(seconds * 1e9);
	uint64_t from = now_ns(), written = 0, now;
	struct ibv_wc wc;

	check(took);
	for (int i = 0; bulk && i < 2; i++)
		post_bulk(1, bulk);
	post_recv();
	post_send();
	do {
		now = now_ns();
		if (ibv_poll_cq(cq, 1, &wc) <= 0)
			continue;
		check(!wc.status);
		if (wc.wr_id == IS_BULK) {
			written += bulk;
			post_bulk(1, bulk);
		} else if (wc.wr_id == IS_RECV) {
			now = now_ns();
			took[n++] = (uint32_t)(now - from);
			from = now;
			post_recv();
			post_send();
		}
	} while (now < end && n < SAMPLES);
	check(n);
	qsort(took, n, sizeof(*took), compare);
	printf("%u %u %.0f\n", took[n / 2], took[n - n / 100 - 1],
	       (double)written * 1e9 / (double)(now - begin));
	free(took);
}

static void dead(const struct ask *a)
{
	double timers =
		4096.0 * (double)(1ull << a->timeout) * (a->retries + 1.0);
	struct ibv_wc wc;
	uint64_t from;

	puts("kill");
	fflush(stdout);
	check(getchar() != EOF);
	from = now_ns();
	post_bulk(0, 1);
	check(!ibv_req_notify_cq(cq, 0));
	while (!ibv_poll_cq(cq, 1, &wc)) {
		struct pollfd p = {.fd = ch->fd, .events = POLLIN};
		struct ibv_cq *which;

		check(poll(&p, 1, 60000) > 0);
		if (!dev->ops->get_cq_event(dev, ch, &which))
			dev->ops->ack_cq_events(dev, which, 1);
		check(!ibv_req_notify_cq(cq, 0));
	}
	check(wc.status == IBV_WC_RETRY_EXC_ERR);
	printf("%.3f\n", (double)(now_ns() - from) / timers);
}

static void hold(int fd, uint64_t here, uint32_t n)
{
	uint64_t theirs;

	get(fd, &theirs, sizeof(theirs));
	printf("%" PRIu64 "\n", (here + theirs) / n);
	fflush(stdout);
	while (getchar() != EOF)
		;
}

int main(int argc, char **argv)
{
	struct ask a = {2, 14, 7};
	bool serves = argc == 4 && !strcmp(argv[1], "serve");
	uint64_t bytes;
	int fd;

	if (argc < 4 || (!serves && argc < 5)) {
		fprintf(stderr, "usage: qps serve|hold|calls|dead ADDRESS PORT "
				"...: see the source\n");
		return 2;
	}
	open_device();
	fd = meet(argv[2], argv[3], serves);
	if (!serves && !strcmp(argv[1], "hold"))
		a.n = (uint32_t)atoi(argv[4]);
	if (argc == 6 && !strcmp(argv[1], "dead"))
		a = (struct ask){1, (uint8_t)atoi(argv[4]),
				 (uint8_t)atoi(argv[5])};
	if (serves)
		get(fd, &a, sizeof(a));
	else
		put(fd, &a, sizeof(a));
	check(a.n && a.n <= QPS_MAX);
	bytes = connect_all(fd, &a);
	if (serves) {
		if (a.n == 2)
			post_recv();
		put(fd, &bytes, sizeof(bytes));
		serve(fd, &a);
		return 0;
	}
	if (!strcmp(argv[1], "hold")) {
		hold(fd, bytes, a.n);
		return 0;
	}
	get(fd, &bytes, sizeof(bytes)); /* it is ready */
	if (!strcmp(argv[1], "calls"))
		calls(atof(argv[4]), (uint32_t)atoi(argv[5]));
	else
		dead(&a);
	return 0;
}
