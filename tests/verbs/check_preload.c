/* SPDX-License-Identifier: MIT */
/*
 * check_preload.c - runs under `skein run --verbs`: what malloc(), mmap(),
 * fork() and the verbs do in a program that knows nothing of it. Each check
 * holds without the library too (but for those of the device), so what it
 * finds is a difference. test_preload.py starts it.
 */
#include <errno.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <malloc.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/time.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB (1024ul * 1024)

static int failed;

#define CHECK(x)                                                         \
	do {                                                             \
		if (!(x)) {                                              \
			fprintf(stderr, "%s:%d: not so: %s\n", __func__, \
				__LINE__, #x);                           \
			failed = 1;                                      \
		}                                                        \
	} while (0)

static bool all(const char *p, size_t len, char c)
{
	size_t i;

	for (i = 0; i < len; i++)
		if (p[i] != c)
			return false;
	return true;
}

/* Is it a mapping of the library's file? */
static bool backed(const void *p)
{
	unsigned long lo, hi;
	char line[512];
	bool found = false;
	FILE *f = fopen("/proc/self/maps", "re");

	while (f && fgets(line, sizeof(line), f))
		if (sscanf(line, "%lx-%lx", &lo, &hi) == 2 &&
		    (uintptr_t)p >= lo && (uintptr_t)p < hi)
			found = strstr(line, "memfd:skein-");
	if (f)
		fclose(f);
	return found;
}

static void heap(void)
{
	volatile size_t too_much = SIZE_MAX / 2; /* or the compiler warns */
	char *p = malloc(100), *q = NULL;

	CHECK(!backed(p));
	p = realloc(p, MIB); /* libc's stays libc's */
	free(p);
	p = malloc(MIB);
	CHECK(backed(p));
	memset(p, 1, MIB);
	p = realloc(p, 4 * MIB);
	CHECK(all(p, MIB, 1));
	p = realloc(p, 1000);
	CHECK(all(p, 1000, 1) && !backed(p));
	free(p);
	p = calloc(3, MIB);
	CHECK(backed(p) && all(p, 3 * MIB, 0));
	CHECK(malloc_usable_size(p) >= 3 * MIB);
	free(p);
	CHECK(!posix_memalign((void **)&q, 4096, 100));
	CHECK(backed(q) && !((uintptr_t)q % 4096));
	free(q);
	p = q;
	CHECK(posix_memalign((void **)&q, 24, 100) == EINVAL && q == p);
	p = aligned_alloc(2 * MIB, 2 * MIB);
	CHECK(backed(p) && !((uintptr_t)p % (2 * MIB)));
	free(p);
	p = memalign(64, 64);
	CHECK(!backed(p) && malloc_usable_size(p) >= 64);
	free(p);
	p = valloc(10);
	q = pvalloc(5000);
	CHECK(backed(p) && backed(q) && malloc_usable_size(q) >= 8192);
	free(p);
	free(q);
	errno = 0;
	p = malloc(too_much);
	CHECK(!p && errno == ENOMEM);
	p = calloc(too_much, 4);
	CHECK(!p);
	free(NULL);
}

static char *map(size_t len, int flags)
{
	return mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_ANONYMOUS | flags,
		    -1, 0);
}

static void maps(void)
{
	char *p = map(MIB, MAP_PRIVATE), *q;

	CHECK(backed(p) && all(p, MIB, 0));
	memset(p, 1, MIB);
	CHECK(!madvise(p + 4096, 4096, MADV_DONTNEED));
	CHECK(all(p, 4096, 1) && all(p + 4096, 4096, 0) && p[8192] == 1);
	CHECK(!munmap(p + MIB / 2, MIB / 2));
	q = mremap(p, MIB / 2, 2 * MIB, MREMAP_MAYMOVE);
	CHECK(q != MAP_FAILED && all(q, 4096, 1) && all(q + MIB, MIB, 0));
	CHECK(mremap(q, 2 * MIB, MIB, 0) == q && q[8192] == 1);
	CHECK(!munmap(q, MIB));
	p = map(MIB, MAP_SHARED);
	CHECK(!backed(p) && !munmap(p, MIB));
	p = map(4096, MAP_PRIVATE);
	CHECK(!backed(p) && !munmap(p, 4096));
	p = map(MIB, MAP_PRIVATE | MAP_NORESERVE);
	CHECK(!backed(p) && !munmap(p, MIB));
	/* mapped over, unmapped, and given out anew: zero, and ours */
	p = map(MIB, MAP_PRIVATE);
	CHECK(mmap(p, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED,
		   -1, 0) == p);
	CHECK(!munmap(p, MIB));
	q = map(MIB, MAP_PRIVATE);
	CHECK(backed(q));
	memset(q, 1, MIB);
	CHECK(!munmap(q, MIB));
}

static void segments(void)
{
	int id = shmget(IPC_PRIVATE, MIB, IPC_CREAT | 0600);
	bool ours = getenv("SKEIN_VERBS_BACK");
	char *p = shmat(id, NULL, 0);

	CHECK(p != (void *)-1);
	CHECK(backed(p) == ours);
	CHECK(!shmctl(id, IPC_RMID, NULL));
	memset(p, 1, MIB);
	CHECK(!shmdt(p));
	CHECK(shmdt(p) == -1);
}

/* fork() gives a child its own memory, as of that moment. */
static void forks(void)
{
	char *p = malloc(MIB), *q = map(MIB, MAP_PRIVATE), *r;
	int status = -1, go[2];
	pid_t pid;
	char c;

	memset(p, 1, MIB);
	memset(q, 2, MIB);
	CHECK(!pipe(go));
	pid = fork();
	if (!pid) {
		CHECK(read(go[0], &c, 1) == 1);
		CHECK(all(p, MIB, 1) && all(q, MIB, 2));
		memset(p, 3, MIB);
		r = malloc(MIB);
		memset(r, 4, MIB);
		free(p);
		munmap(q, MIB);
		/* and its own children */
		pid = fork();
		if (!pid) {
			CHECK(all(r, MIB, 4));
			_exit(failed);
		}
		CHECK(waitpid(pid, &status, 0) == pid && !status);
		_exit(failed);
	}
	memset(q, 5, MIB);
	CHECK(write(go[1], "", 1) == 1);
	CHECK(waitpid(pid, &status, 0) == pid && !status);
	CHECK(all(p, MIB, 1) && all(q, MIB, 5));
	CHECK(!system("exit 0"));
	free(p);
	munmap(q, MIB);
	close(go[0]);
	close(go[1]);
}

static void *churn(void *arg)
{
	unsigned long rnd = (uintptr_t)arg * 2654435761u + 1, i;
	char *slots[16] = {0};
	size_t lens[16] = {0};

	for (i = 0; i < 3000; i++) {
		unsigned at = (unsigned)(rnd >> 8) % 16;

		rnd = rnd * 6364136223846793005u + 1442695040888963407u;
		if (slots[at]) {
			CHECK(slots[at][0] == (char)at);
			CHECK(slots[at][lens[at] - 1] == (char)at);
			free(slots[at]);
		}
		lens[at] = 1 + (rnd >> 20) % (512 * 1024);
		slots[at] = i % 3 ? malloc(lens[at]) : calloc(1, lens[at]);
		if (i % 3 == 0)
			CHECK(!slots[at][0] && !slots[at][lens[at] - 1]);
		slots[at][0] = slots[at][lens[at] - 1] = (char)at;
	}
	for (i = 0; i < 16; i++)
		free(slots[i]);
	return NULL;
}

static void threads(void)
{
	pthread_t t[4];
	uintptr_t i;
	int status;
	pid_t pid;

	for (i = 0; i < 4; i++)
		CHECK(!pthread_create(&t[i], NULL, churn, (void *)i));
	/* a child in the middle of it has a heap that works */
	for (i = 0; i < 5; i++) {
		pid = fork();
		if (!pid) {
			churn(NULL);
			_exit(failed);
		}
		CHECK(waitpid(pid, &status, 0) == pid && !status);
	}
	for (i = 0; i < 4; i++)
		pthread_join(t[i], NULL);
}

static struct ibv_context *open_skein(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *ctx = NULL;

	CHECK(list && list[0]);
	if (list && list[0]) {
		CHECK(!strcmp(ibv_get_device_name(list[0]), "skein0"));
		ctx = ibv_open_device(list[0]);
		CHECK(ctx);
	}
	ibv_free_device_list(list);
	return ctx;
}

static void on_alarm(int sig)
{
	(void)sig;
}

/* A blocking ibv_get_cq_event() and a signal: restarted or interrupted as the
 * handler asks for. */
static void signals(struct ibv_comp_channel *ch)
{
	struct itimerval soon = {{0, 0}, {0, 20000}};
	struct sigaction sa = {.sa_handler = on_alarm};
	struct ibv_cq *cq;
	void *context;

	sigaction(SIGALRM, &sa, NULL); /* no SA_RESTART */
	setitimer(ITIMER_REAL, &soon, NULL);
	errno = 0;
	CHECK(ibv_get_cq_event(ch, &cq, &context) == -1 && errno == EINTR);
}

static void channel(struct ibv_context *ctx)
{
	struct ibv_comp_channel *ch = ibv_create_comp_channel(ctx);
	struct ibv_async_event ev;
	struct ibv_cq *cq, *got;
	struct pollfd p;
	void *context;
	int flags;

	CHECK(ch);
	cq = ibv_create_cq(ctx, 16, &failed, ch, 0);
	CHECK(cq && cq->cq_context == &failed && cq->cqe >= 16);
	signals(ch);
	flags = fcntl(ch->fd, F_GETFL);
	CHECK(!(flags & O_NONBLOCK));
	CHECK(!fcntl(ch->fd, F_SETFL, flags | O_NONBLOCK));
	errno = 0;
	CHECK(ibv_get_cq_event(ch, &got, &context) == -1 && errno == EAGAIN);
	p = (struct pollfd){.fd = ch->fd, .events = POLLIN};
	CHECK(poll(&p, 1, 0) == 0);
	CHECK(!fcntl(ctx->async_fd, F_SETFL, O_NONBLOCK));
	errno = 0;
	CHECK(ibv_get_async_event(ctx, &ev) == -1 && errno == EAGAIN);
	CHECK(!ibv_destroy_cq(cq));
	CHECK(!ibv_destroy_comp_channel(ch));
	errno = 0;
	CHECK(!ibv_create_cq(ctx, 16, NULL, NULL, 99) && errno == EINVAL);
}

static void regions(struct ibv_context *ctx)
{
	struct ibv_pd *pd = ibv_alloc_pd(ctx);
	char *p = malloc(MIB), *small = malloc(64);
	struct ibv_mr *a, *b, *c;
	int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;

	CHECK(pd);
	a = ibv_reg_mr(pd, p + 100, MIB - 200, access);
	b = ibv_reg_mr(pd, small, 64, access | IBV_ACCESS_RELAXED_ORDERING);
	CHECK(a && a->addr == p + 100 && a->length == MIB - 200 && a->rkey);
	CHECK(b);
	CHECK(ibv_dealloc_pd(pd) == EBUSY);
	errno = 0;
	CHECK(ibv_rereg_mr(a, 1 << 7, NULL, NULL, 0, 0) ==
		      IBV_REREG_MR_ERR_INPUT &&
	      errno == EINVAL && a->addr == p + 100);
	CHECK(!ibv_rereg_mr(
		a, IBV_REREG_MR_CHANGE_TRANSLATION | IBV_REREG_MR_CHANGE_ACCESS,
		NULL, p, 4096, IBV_ACCESS_LOCAL_WRITE));
	CHECK(a->addr == p && a->length == 4096 && a->pd == pd);
	errno = 0;
	c = ibv_reg_mr(pd, p, 0, access);
	CHECK(!c && errno == EINVAL);
	c = ibv_reg_mr(pd, p, MIB,
		       access | IBV_ACCESS_HUGETLB | IBV_ACCESS_MW_BIND);
	CHECK(c && !ibv_dereg_mr(c));
	errno = 0;
	c = ibv_reg_mr(pd, p, MIB, access | 1 << 15);
	CHECK(!c && errno == EINVAL);
	c = ibv_reg_mr(pd, p, MIB, access | IBV_ACCESS_ON_DEMAND);
	CHECK(!c && errno == EOPNOTSUPP);
	errno = 0;
	c = ibv_reg_mr(pd, p, MIB, access | IBV_ACCESS_ZERO_BASED);
	CHECK(c && !ibv_dereg_mr(c));
	c = ibv_reg_mr_iova(pd, p, MIB, 0, access);
	CHECK(c && c->addr == p && !ibv_dereg_mr(c));
	errno = 0;
	c = ibv_reg_mr_iova(pd, p, MIB, 8, access);
	CHECK(!c && errno == EINVAL);
	CHECK(!ibv_dereg_mr(a) && !ibv_dereg_mr(b));
	CHECK(!ibv_dealloc_pd(pd));
	free(p);
	free(small);
}

static void questions(struct ibv_context *ctx)
{
	struct ibv_gid_entry e, table[64];
	struct ibv_device_attr attr;
	struct ibv_port_attr port;
	union ibv_gid gid;
	uint16_t pkey;
	int i;

	CHECK(!ibv_query_device(ctx, &attr) && attr.vendor_id == 0xffffff);
	CHECK(!ibv_query_port(ctx, 1, &port));
	CHECK(port.state == IBV_PORT_ACTIVE && port.gid_tbl_len > 0);
	CHECK(ibv_query_port(ctx, 2, &port) == EINVAL);
	CHECK(ibv_query_gid_table(ctx, table, 64, 0) == port.gid_tbl_len);
	CHECK(ibv_query_gid_table(ctx, table, (size_t)port.gid_tbl_len - 1,
				  0) == -EINVAL);
	CHECK(ibv_query_gid_table(ctx, table, (size_t)port.gid_tbl_len, 0) ==
	      port.gid_tbl_len);
	for (i = 0; i < port.gid_tbl_len; i++) {
		CHECK(!ibv_query_gid(ctx, 1, i, &gid));
		CHECK(!ibv_query_gid_ex(ctx, 1, (uint32_t)i, &e, 0));
		CHECK(!memcmp(&gid, &e.gid, sizeof(gid)));
		CHECK(!memcmp(&table[i], &e, sizeof(e)));
		CHECK(e.gid_type == IBV_GID_TYPE_ROCE_V2 && e.ndev_ifindex);
	}
	CHECK(ibv_query_gid(ctx, 1, port.gid_tbl_len, &gid) == -1);
	CHECK(ibv_query_gid_ex(ctx, 1, 999, &e, 0) > 0);
	CHECK(!ibv_query_pkey(ctx, 1, 0, &pkey) && pkey == 0xffff);
	CHECK(ibv_query_pkey(ctx, 1, 1, &pkey) == -1);
	CHECK(ibv_get_pkey_index(ctx, 1, 0xffff) == 0);
}

/* A device cannot be had by its descriptor, and says so. */
static void import(struct ibv_context *ctx)
{
	int fd = dup(ctx->cmd_fd), other = eventfd(0, 0);

	CHECK(fd >= 0 && other >= 0);
	errno = 0;
	CHECK(!ibv_import_device(fd) && errno == EOPNOTSUPP);
	errno = 0;
	CHECK(!ibv_import_device(other) && errno == EINVAL);
	close(fd);
	close(other);
}

/* The parent's device is none in a child, which may open its own. */
static void device_after_fork(struct ibv_context *ctx)
{
	struct ibv_context *own;
	int status = -1;
	pid_t pid = fork();

	if (!pid) {
		errno = 0;
		CHECK(!ibv_alloc_pd(ctx) && errno == EPERM);
		own = open_skein();
		regions(own);
		CHECK(!ibv_close_device(own));
		_exit(failed);
	}
	CHECK(waitpid(pid, &status, 0) == pid && !status);
	regions(ctx);
}

/* A program that closes what it does not know, and reuses the numbers. */
static void numbers(struct ibv_context *ctx)
{
	int fd;

	CHECK(close(ctx->async_fd) == -1 && errno == EBADF);
	CHECK(dup2(0, ctx->async_fd) == -1 && errno == EBUSY);
	CHECK(dup3(0, ctx->async_fd, 0) == -1 && errno == EBUSY);
	errno = 0;
	CHECK(syscall(SYS_close, ctx->async_fd) == -1 && errno == EBADF);
	CHECK(syscall(SYS_dup3, 0, ctx->async_fd, 0) == -1 && errno == EBUSY);
	CHECK(!syscall(SYS_close_range, 3, ~0u, 0));
	CHECK(syscall(SYS_getpid) == getpid());
	CHECK(!close_range(3, ~0u, 0));
	closefrom(3);
	for (fd = 3; fd < 1024; fd++)
		CHECK(close(fd) == -1 && errno == EBADF);
	fd = eventfd(0, 0);
	CHECK(fd == 3);
	CHECK(!close(fd));
}

static void device(void)
{
	struct ibv_context *ctx = open_skein(), *two = open_skein();

	if (!ctx || !two)
		return;
	numbers(ctx);
	questions(ctx);
	import(ctx);
	channel(ctx);
	regions(ctx);
	regions(two);
	device_after_fork(ctx);
	CHECK(!ibv_close_device(two));
	CHECK(!ibv_close_device(ctx));
}

int main(void)
{
	heap();
	maps();
	segments();
	forks();
	threads();
	device();
	if (!failed)
		puts("all as it should be");
	return failed;
}
