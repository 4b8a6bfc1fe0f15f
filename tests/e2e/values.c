/* SPDX-License-Identifier: MIT */
/*
 * values.c - two processes, one RC QP between them, random requests of both,
 * and each value verified: for bad wires.
 *
 *	values serve ADDRESS TIMEOUT	prints "on port PORT"; one client
 *	values ADDRESS PORT SEED REQUESTS TIMEOUT
 *
 * TIMEOUT is a QP's; 0 REQUESTS are as many as go until SIGTERM.
 *
 * A WRITE goes to a place in the peer's memory that no other request on its way
 * uses, and a READ of it must find it, now and at the end: a WRITE that is
 * carried out a second time, later, is found. Messages come once, in order,
 * whole. Only we change our word at the peer, by one each time.
 */
#include "dev/dev.h"
#include "dev/mem.h"
#include "env/env.h"

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define PLACES 8u
#define PLACE 100000u /* above what takes a second connection */
#define USUAL 20000u
#define DEPTH 16u
#define WORD ((size_t)PLACES * PLACE) /* the peer's */
#define SENDS (WORD + 64)
#define RECVS (SENDS + (size_t)DEPTH * PLACE)
#define BYTES (RECVS + (size_t)DEPTH * PLACE)
#define ACCESS                                              \
	(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | \
	 IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC)
#define IS_RECV (1ull << 32)
#define DEADLINE_S 120

#define check(x)                                                             \
	do {                                                                 \
		if (!(x)) {                                                  \
			fprintf(stderr, "values: %s:%d: %s: %s\n", __FILE__, \
				__LINE__, #x, strerror(errno));              \
			exit(1);                                             \
		}                                                            \
	} while (0)

/* What one end tells the other, and at the end. */
struct hello {
	struct dev_qp_addr addr;
	uint64_t mem, seed, requests;
	uint32_t rkey;
};

struct request {
	bool busy;
	enum ibv_wr_opcode op;
	uint32_t place, len;
};

static struct skein_env *env;
static struct dev *dev;
static struct ibv_pd *pd;
static struct ibv_comp_channel *ch;
static struct ibv_cq *cq;
static struct ibv_qp *qp;
static struct mem_region *mem;
static struct hello mine, theirs;
static struct request requests[DEPTH];
/* Of each place at the peer: what was written last, and how much of it. */
static uint32_t version[PLACES], written[PLACES];
static bool in_use[PLACES];
static uint64_t rng, begun, over, adds, sent, came;
static volatile sig_atomic_t stopped;

static uint32_t random_below(uint32_t n)
{
	rng = rng * 6364136223846793005ull + 1442695040888963407ull;
	return (uint32_t)((rng >> 33) % n);
}

static uint8_t *at(size_t off)
{
	return (uint8_t *)mem->addr + off;
}

static void fill(uint8_t *to, uint32_t len, uint64_t key)
{
	for (uint32_t i = 0; i < len; i++)
		to[i] = (uint8_t)(i * 7 + i / 251 + key * 31);
}

static void verify(const char *what, const uint8_t *got, uint32_t len,
		   uint64_t key)
{
	for (uint32_t i = 0; i < len; i++) {
		if (got[i] == (uint8_t)(i * 7 + i / 251 + key * 31))
			continue;
		fprintf(stderr, "values: %s: byte %u of %u is wrong\n", what, i,
			len);
		exit(1);
	}
}

static uint64_t place_key(uint32_t place)
{
	return place * 1000 + version[place];
}

/* The sockets that the ends meet by. */

static void put(int fd, const void *p, size_t len)
{
	check(send(fd, p, len, MSG_NOSIGNAL) == (ssize_t)len);
}

static void get(int fd, void *p, size_t len)
{
	check(recv(fd, p, len, MSG_WAITALL) == (ssize_t)len);
}

static int meet(char **argv)
{
	bool serves = !strcmp(argv[1], "serve");
	struct sockaddr_in a = {.sin_family = AF_INET};
	socklen_t len = sizeof(a);
	int fd = socket(AF_INET, SOCK_STREAM, 0), one;

	check(inet_pton(AF_INET, argv[serves ? 2 : 1], &a.sin_addr) == 1);
	if (!serves) {
		a.sin_port = htons((uint16_t)atoi(argv[2]));
		check(!connect(fd, (struct sockaddr *)&a, len));
		return fd;
	}
	check(!bind(fd, (struct sockaddr *)&a, len) && !listen(fd, 1) &&
	      !getsockname(fd, (struct sockaddr *)&a, &len));
	printf("on port %d\n", ntohs(a.sin_port));
	fflush(stdout);
	one = accept(fd, NULL, NULL);
	check(one >= 0);
	close(fd);
	return one;
}

static void post_recv(uint64_t n)
{
	struct ibv_sge g = {(uintptr_t)at(RECVS + n % DEPTH * PLACE), PLACE,
			    mem->mr->lkey};
	struct ibv_recv_wr wr = {.wr_id = IS_RECV, .sg_list = &g, .num_sge = 1},
			   *bad;

	check(!ibv_post_recv(qp, &wr, &bad));
}

static void say(void *arg, enum env_log_level level, const char *msg)
{
	(void)arg;
	/* at the end the link's counts are a line for debugging */
	if (level <= ENV_LOG_WARN || strstr(msg, "link: "))
		fprintf(stderr, "skein: %s\n", msg);
}

static void end_open(int fd, uint8_t timeout)
{
	struct ibv_qp_init_attr init = {.qp_type = IBV_QPT_RC,
					.cap = {.max_send_wr = DEPTH,
						.max_recv_wr = DEPTH,
						.max_send_sge = 1,
						.max_recv_sge = 1}};
	const struct dev_qp_opts opts = {.timeout = timeout,
					 .min_rnr_timer = 5};
	char err[256] = "";

	check(!env_real_new(&env));
	env->log = say;
	env->log_level = ENV_LOG_DEBUG;
	if (dev_open(env, "soft", -1, err, sizeof(err), &dev)) {
		fprintf(stderr, "values: %s\n", err);
		exit(1);
	}
	check(!dev->ops->alloc_pd(dev, &pd));
	check(!dev->ops->create_comp_channel(dev, &ch));
	check(!dev->ops->create_cq(dev, 4 * DEPTH, NULL, ch, &cq));
	check(!mem_region_new(dev, pd, "values", BYTES, ACCESS, 1, &mem));
	init.send_cq = init.recv_cq = cq;
	check(!dev->ops->create_qp(dev, pd, &init, 0, &qp));
	check(!dev_qp_init(dev, qp, ACCESS));
	mine.mem = (uintptr_t)mem->addr;
	mine.rkey = mem->mr->rkey;
	/* wraps soon */
	dev_qp_addr(dev, qp, 0xfffff0, &mine.addr);
	put(fd, &mine, sizeof(mine));
	get(fd, &theirs, sizeof(theirs));
	printf("QP 0x%x\n", mine.addr.qpn);
	fflush(stdout);
	for (uint64_t n = 0; n < DEPTH; n++)
		post_recv(n);
	check(!dev_qp_rtr(dev, qp, &theirs.addr, &opts));
	check(!dev_qp_rts(dev, qp, mine.addr.psn, &theirs.addr, &opts));
}

static void end_close(void)
{
	check(!dev->ops->destroy_qp(dev, qp));
	mem_region_free(mem);
	check(!dev->ops->destroy_cq(dev, cq));
	check(!dev->ops->destroy_comp_channel(dev, ch));
	check(!dev->ops->dealloc_pd(dev, pd));
	dev_close(dev);
	env_real_free(env);
}

/* Requests. */

static void post(uint32_t i, uint64_t off)
{
	struct request *r = &requests[i];
	struct ibv_sge g = {(uintptr_t)at(SENDS + (size_t)i * PLACE), r->len,
			    mem->mr->lkey};
	struct ibv_send_wr wr = {.wr_id = i,
				 .sg_list = &g,
				 .num_sge = 1,
				 .opcode = r->op,
				 .send_flags = IBV_SEND_SIGNALED},
			   *bad;

	if (r->op == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		wr.wr.atomic.remote_addr = theirs.mem + off;
		wr.wr.atomic.rkey = theirs.rkey;
		wr.wr.atomic.compare_add = 1;
	} else {
		wr.wr.rdma.remote_addr = theirs.mem + off;
		wr.wr.rdma.rkey = theirs.rkey;
	}
	r->busy = true;
	begun++;
	check(!ibv_post_send(qp, &wr, &bad));
}

static void read_place(uint32_t i, uint32_t place)
{
	requests[i] = (struct request){
		.op = IBV_WR_RDMA_READ, .place = place, .len = written[place]};
	in_use[place] = true;
	post(i, (size_t)place * PLACE);
}

static uint32_t random_len(void)
{
	if (random_below(2))
		return 1 + random_below(64);
	return 1 + random_below(random_below(8) ? USUAL : PLACE);
}

static void next(uint32_t i)
{
	struct request *r = &requests[i];
	uint32_t place = random_below(PLACES), kind = random_below(4);
	uint8_t *buf = at(SENDS + (size_t)i * PLACE);

	if (kind == 3) {
		*r = (struct request){.op = IBV_WR_ATOMIC_FETCH_AND_ADD,
				      .len = 8};
		post(i, WORD);
	} else if (kind == 2 || in_use[place]) {
		*r = (struct request){.op = IBV_WR_SEND, .len = random_len()};
		fill(buf, r->len, sent++);
		post(i, 0);
	} else if (kind == 1 && written[place]) {
		read_place(i, place);
	} else {
		*r = (struct request){.op = IBV_WR_RDMA_WRITE,
				      .place = place,
				      .len = random_len()};
		version[place]++;
		written[place] = r->len;
		in_use[place] = true;
		fill(buf, r->len, place_key(place));
		post(i, (size_t)place * PLACE);
	}
}

static void done(uint32_t i)
{
	struct request *r = &requests[i];
	const uint8_t *buf = at(SENDS + (size_t)i * PLACE);
	uint64_t was;

	if (r->op == IBV_WR_RDMA_READ)
		verify("a READ", buf, r->len, place_key(r->place));
	if (r->op == IBV_WR_RDMA_READ || r->op == IBV_WR_RDMA_WRITE)
		in_use[r->place] = false;
	if (r->op == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		memcpy(&was, buf, sizeof(was));
		if (was != adds++) {
			fprintf(stderr, "values: an atomic is wrong\n");
			exit(1);
		}
	}
	r->busy = false;
	over++;
}

static void take(const struct ibv_wc *wc)
{
	if (wc->status) {
		fprintf(stderr, "values: status %d after %llu requests\n",
			(int)wc->status, (unsigned long long)over);
		exit(1);
	}
	if (wc->wr_id != IS_RECV) {
		done((uint32_t)wc->wr_id);
		return;
	}
	verify("a message", at(RECVS + came % DEPTH * PLACE), wc->byte_len,
	       came);
	post_recv(came++);
}

/* Until a completion is there, or the other end says something. */
static void wait_some(int fd)
{
	struct pollfd p[2] = {{.fd = ch->fd, .events = POLLIN},
			      {.fd = fd, .events = POLLIN}};
	struct ibv_cq *which;

	int n = poll(p, fd < 0 ? 1 : 2, DEADLINE_S * 1000);

	check(n > 0 || (n < 0 && errno == EINTR));
	if (n < 0 || !p[0].revents)
		return;
	if (!dev->ops->get_cq_event(dev, ch, &which))
		dev->ops->ack_cq_events(dev, which, 1);
}

static void poll_all(void)
{
	struct ibv_wc wc;

	while (ibv_poll_cq(cq, 1, &wc) > 0)
		take(&wc);
}

static void turn(int fd, bool (*enough)(void))
{
	for (;;) {
		poll_all();
		if (enough())
			return;
		check(!ibv_req_notify_cq(cq, 0));
		poll_all();
		if (enough())
			return;
		wait_some(fd);
		if (fd >= 0)
			return;
	}
}

static bool has_room(void)
{
	return begun - over < DEPTH;
}

static bool is_idle(void)
{
	return begun == over;
}

static bool has_all(void)
{
	return came == theirs.requests;
}

static bool never(void)
{
	return false;
}

static uint32_t free_request(void)
{
	uint32_t i = 0;

	while (requests[i].busy)
		i++;
	return i;
}

static void all_places(void)
{
	for (uint32_t place = 0; place < PLACES; place++) {
		turn(-1, has_room);
		if (written[place])
			read_place(free_request(), place);
	}
	turn(-1, is_idle);
}

static bool hears(int fd)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};

	return poll(&p, 1, 0) > 0;
}

/* The other end may still have requests that need this one. */
static void end(int fd)
{
	char byte = 0;

	mine.requests = sent;
	put(fd, &mine, sizeof(mine));
	while (!hears(fd))
		turn(fd, never);
	get(fd, &theirs, sizeof(theirs));
	turn(-1, has_all);
	put(fd, &byte, 1);
	get(fd, &byte, 1);
}

/* Where the client goes on until it is stopped, its server does until it
 * hears of that. */
static bool goes_on(int fd, bool serves, uint64_t done, uint64_t n)
{
	if (n)
		return done < n;
	return serves ? !hears(fd) : !stopped;
}

static void stop(int number)
{
	(void)number;
	stopped = 1;
}

int main(int argc, char **argv)
{
	uint64_t n;
	int fd;

	if (argc != 4 && argc != 6) {
		fprintf(stderr,
			"usage: values serve ADDRESS TIMEOUT, or values "
			"ADDRESS PORT SEED REQUESTS TIMEOUT\n");
		return 2;
	}
	if (argc == 6) {
		mine.seed = strtoull(argv[3], NULL, 0);
		mine.requests = strtoull(argv[4], NULL, 0);
	}
	signal(SIGTERM, stop);
	fd = meet(argv);
	end_open(fd, (uint8_t)atoi(argv[argc - 1]));
	rng = argc == 6 ? mine.seed : ~theirs.seed;
	n = argc == 6 ? mine.requests : theirs.requests;
	for (uint64_t i = 0; goes_on(fd, argc == 4, i, n); i++) {
		turn(-1, has_room);
		next(free_request());
	}
	turn(-1, is_idle);
	all_places();
	end(fd);
	printf("%llu requests, %llu messages came: all values are right\n",
	       (unsigned long long)over, (unsigned long long)came);
	end_close();
	return 0;
}
