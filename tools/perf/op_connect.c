/* SPDX-License-Identifier: MIT */
/*
 * op_connect.c - `skein perf connect`: what a new process pays until its first
 * call is answered, and what each further connection costs it.
 *
 * A server process answers, and one more by TCP; a meta server process keeps the
 * server's record; a node service is there for those that use it. For each round
 * and each way a new process is forked that has opened nothing yet; it measures
 * itself, verifies each answer and sends its figures back by a pipe.
 */
#include "perf/op_connect.h"

#include "cmd.h"
#include "opt.h"
#include "out.h"

#include <skein/skein.h>

#include <arpa/inet.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define CMD "skein perf connect"
#define PORT 1
#define SIZE 256u
#define RECVS 64u
#define CACHED 1000u
#define PATIENCE SKEIN_S(10)
#define PATIENCE_MS 20000
#define WORD 0x736b65696e767170ull

enum via {
	VIA_NODE,
	VIA_POOL,
	VIA_DIRECT,
	VIA_TCP,
	VIAS,
	VIA_READ = VIAS, /* pool, with a READ first: a process of its own */
};

static const char *const via_names[] = {"node", "pool", "direct", "tcp"};

/* Figures of one process, in ns; 0: the way has none. */
enum figure {
	OPEN,  /* device, and the pool or nothing */
	FIRST, /* process's start to the first answer */
	NEXT,  /* a further connection and its first answer */
	UNMET, /* connect and a verified READ, at a node not met before */
	KNOWN, /* connect to a node that is known */
	FIGURES,
};

static const char *const figure_names[] = {"open_us_p50", "first_rpc_us_p50",
					   "next_rpc_us_p50", "unmet_us_p50",
					   "cached_us_p50"};

struct sample {
	int rc;
	uint64_t ns[FIGURES];
};

/* What the server says of itself. */
struct place {
	int rc;
	char device[160];
	char node[72], addr[72];
	uint64_t word;
	uint32_t rkey;
};

struct run {
	const char *via;
	uint32_t iters;
	bool json;
	bool on[VIAS];
	char meta[72];
	struct place server;
	char folder[64], node[80]; /* the service's socket */
	struct sockaddr_in tcp;
	pid_t meta_pid, server_pid, node_pid, tcp_pid;
	struct sample *samples[VIAS];
};

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* --- the servers -------------------------------------------------------- */

static int echo(struct skein_rpc_req *req, void *arg)
{
	size_t len = skein_rpc_req_len(req);
	void *resp = skein_rpc_resp_buf(req, len);

	(void)arg;
	if (!resp)
		return -EMSGSIZE;
	memcpy(resp, skein_rpc_req_data(req), len);
	return 0;
}

/* What a process that is killed leaves is no news here. */
static void no_log(void *arg, enum skein_log_level level, const char *line)
{
	(void)arg;
	(void)level;
	(void)line;
}

static int ctx_open(struct skein_ctx **ctx)
{
	struct skein_ctx_attr a = {.size = sizeof(a), .log = no_log};

	return skein_ctx_open(&a, ctx);
}

/* Ends with its parent. */
static void orphan_ends(void)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
}

static void meta_main(int out)
{
	char addr[72] = "";
	struct skein_meta *meta;
	struct skein_ctx *ctx;
	int rc;

	orphan_ends();
	rc = ctx_open(&ctx);
	if (!rc)
		rc = skein_meta_open(ctx, "127.0.0.1:0", 256, &meta);
	if (!rc)
		snprintf(addr, sizeof(addr), "%s", skein_meta_addr(meta));
	if (write(out, addr, sizeof(addr)) != sizeof(addr) || rc)
		_exit(1);
	for (;;) {
		skein_engine_run(skein_ctx_engine(ctx), SKEIN_MS(500));
		skein_meta_progress(meta, NULL);
	}
}

static int recv_post(struct skein_vqp *v, struct skein_vqp_mem *m, uint64_t i)
{
	struct ibv_sge sge = {(uintptr_t)skein_vqp_mem_addr(m) + i * SIZE, SIZE,
			      skein_vqp_lkey(m)};
	struct ibv_recv_wr wr = {.wr_id = i, .sg_list = &sge, .num_sge = 1};
	struct ibv_recv_wr *bad;

	return skein_vqp_post_recv(v, &wr, &bad);
}

static int send_inline(struct skein_vqp *v, void *data, uint32_t len)
{
	struct ibv_sge sge = {(uintptr_t)data, len, 0};
	struct ibv_send_wr wr = {.sg_list = &sge,
				 .num_sge = 1,
				 .opcode = IBV_WR_SEND,
				 .send_flags = IBV_SEND_INLINE};
	struct ibv_send_wr *bad;

	return skein_vqp_post_send(v, &wr, &bad);
}

struct server {
	struct skein_ctx *ctx;
	struct skein_pool *pool;
	struct skein_vqp *vqp;
	struct skein_vqp_mem *rx, *word;
};

static int server_open(struct server *s, const char *meta, struct place *p)
{
	struct skein_pool_attr a = {.size = sizeof(a), .meta = meta};
	struct skein_listener *l;
	uint64_t value = WORD;
	int rc;

	rc = ctx_open(&s->ctx);
	if (!rc)
		rc = skein_rpc_handle(s->ctx, 1, echo, NULL);
	if (!rc)
		rc = skein_listener_open(s->ctx, "127.0.0.1:0", NULL, &l);
	if (!rc)
		rc = skein_pool_open(s->ctx, &a, &s->pool);
	if (!rc)
		rc = skein_vqp_mem_new(s->pool, RECVS * SIZE, 0, &s->rx);
	if (!rc)
		rc = skein_vqp_mem_new(s->pool, SIZE, IBV_ACCESS_REMOTE_READ,
				       &s->word);
	if (!rc)
		rc = skein_vqp_new(s->pool, &s->vqp);
	if (!rc)
		rc = skein_vqp_bind(s->vqp, PORT);
	for (uint64_t i = 0; i < RECVS && !rc; i++)
		rc = recv_post(s->vqp, s->rx, i);
	if (rc)
		return rc;
	memcpy(skein_vqp_mem_addr(s->word), &value, sizeof(value));
	snprintf(p->device, sizeof(p->device), "%s", skein_ctx_device(s->ctx));
	snprintf(p->node, sizeof(p->node), "%s", skein_pool_addr(s->pool));
	snprintf(p->addr, sizeof(p->addr), "%s", skein_listener_addr(l));
	p->word = skein_vqp_raddr(s->word);
	p->rkey = skein_vqp_rkey(s->word);
	return 0;
}

static void server_main(const char *meta, int out)
{
	struct place p = {0};
	struct skein_vqp_msg m;
	struct server s = {0};

	orphan_ends();
	p.rc = server_open(&s, meta, &p);
	if (write(out, &p, sizeof(p)) != sizeof(p) || p.rc)
		_exit(1);
	for (;;) {
		char *at;

		skein_ctx_progress(s.ctx);
		if (skein_vqp_pop(s.vqp, 1, &m) != 1)
			continue;
		at = (char *)skein_vqp_mem_addr(s.rx) + m.wr_id * SIZE;
		if (m.from && !m.status)
			send_inline(m.from, at, m.len);
		skein_vqp_free(m.from);
		recv_post(s.vqp, s.rx, m.wr_id);
	}
}

static void node_main(const char *meta, const char *path, int out)
{
	struct skein_node_attr a = {.size = sizeof(a), .meta = meta};
	struct skein_node *node;
	struct skein_ctx *ctx;
	int rc;

	orphan_ends();
	rc = ctx_open(&ctx);
	if (!rc)
		rc = skein_node_open(ctx, path, &a, &node);
	if (write(out, &rc, sizeof(rc)) != sizeof(rc) || rc)
		_exit(1);
	for (;;)
		skein_node_run(node, SKEIN_S(10), NULL);
}

/* What one process after the other says, it says back. */
static void tcp_main(int out)
{
	struct sockaddr_in a = {.sin_family = AF_INET,
				.sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int s = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), fd, one = 1;
	socklen_t len = sizeof(a);
	uint64_t word;

	orphan_ends();
	if (bind(s, (struct sockaddr *)&a, sizeof(a)) || listen(s, 64) ||
	    getsockname(s, (struct sockaddr *)&a, &len) ||
	    write(out, &a, sizeof(a)) != sizeof(a))
		_exit(1);
	for (;;) {
		fd = accept(s, NULL, NULL);
		setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
		if (read(fd, &word, sizeof(word)) == sizeof(word) &&
		    write(fd, &word, sizeof(word)) != sizeof(word))
			_exit(1);
		close(fd);
	}
}

/* --- one process -------------------------------------------------------- */

static int wc_wait(struct skein_vqp *v, struct ibv_wc *wc)
{
	uint64_t end = now_ns() + PATIENCE;
	int n = 0;

	while (!n && now_ns() < end)
		n = skein_vqp_poll(v, 1, wc);
	if (n != 1)
		return n < 0 ? n : -ETIMEDOUT;
	return wc->status == IBV_WC_SUCCESS ? 0 : -EIO;
}

/* A connection and one call, verified. */
static int pool_call(struct skein_pool *pool, struct skein_vqp_mem *m,
		     const struct place *p, uint64_t word)
{
	struct skein_vqp *v;
	struct ibv_wc wc;
	int rc;

	rc = skein_vqp_new(pool, &v);
	if (rc)
		return rc;
	rc = skein_vqp_connect(v, p->node, PORT, PATIENCE);
	if (!rc)
		rc = recv_post(v, m, 0);
	if (!rc)
		rc = send_inline(v, &word, sizeof(word));
	if (!rc)
		rc = wc_wait(v, &wc);
	if (!rc && (wc.byte_len != sizeof(word) ||
		    memcmp(skein_vqp_mem_addr(m), &word, sizeof(word))))
		rc = -EBADMSG;
	skein_vqp_free(v);
	return rc;
}

static int pool_read(struct skein_pool *pool, struct skein_vqp_mem *m,
		     const struct place *p)
{
	struct ibv_sge sge = {(uintptr_t)skein_vqp_mem_addr(m),
			      sizeof(uint64_t), skein_vqp_lkey(m)};
	struct ibv_send_wr wr = {.sg_list = &sge,
				 .num_sge = 1,
				 .opcode = IBV_WR_RDMA_READ,
				 .send_flags = IBV_SEND_SIGNALED};
	struct ibv_send_wr *bad;
	uint64_t word = WORD;
	struct skein_vqp *v;
	struct ibv_wc wc;
	int rc;

	wr.wr.rdma.remote_addr = p->word;
	wr.wr.rdma.rkey = p->rkey;
	rc = skein_vqp_new(pool, &v);
	if (rc)
		return rc;
	rc = skein_vqp_connect(v, p->node, PORT, PATIENCE);
	if (!rc)
		rc = skein_vqp_post_send(v, &wr, &bad);
	if (!rc)
		rc = wc_wait(v, &wc);
	if (!rc && memcmp(skein_vqp_mem_addr(m), &word, sizeof(word)))
		rc = -EBADMSG;
	skein_vqp_free(v);
	return rc;
}

static int pool_cached(struct skein_pool *pool, const struct place *p)
{
	struct skein_vqp *v;
	int rc = 0;

	for (unsigned i = 0; i < CACHED && !rc; i++) {
		rc = skein_vqp_new(pool, &v);
		if (rc)
			break;
		rc = skein_vqp_connect(v, p->node, PORT, PATIENCE);
		skein_vqp_free(v);
	}
	return rc;
}

static int pool_calls(const struct run *r, struct skein_pool *pool,
		      struct skein_vqp_mem *m, uint64_t from, struct sample *s)
{
	uint64_t at;
	int rc;

	rc = pool_call(pool, m, &r->server, WORD ^ 1);
	at = now_ns();
	s->ns[FIRST] = at - from;
	if (!rc)
		rc = pool_call(pool, m, &r->server, WORD ^ 2);
	s->ns[NEXT] = now_ns() - at;
	at = now_ns();
	if (!rc)
		rc = pool_cached(pool, &r->server);
	s->ns[KNOWN] = (now_ns() - at) / CACHED;
	return rc;
}

static int pool_process(const struct run *r, enum via via, uint64_t from,
			struct sample *s)
{
	struct skein_pool_attr a = {.size = sizeof(a),
				    .meta = r->meta,
				    .node = via == VIA_NODE ? r->node : ""};
	struct skein_ctx *ctx = NULL;
	struct skein_vqp_mem *m;
	struct skein_pool *pool;
	uint64_t at;
	int rc = 0;

	/* through a service without a device of its own */
	if (via != VIA_NODE)
		rc = skein_ctx_open(NULL, &ctx);
	if (!rc)
		rc = skein_pool_open(ctx, &a, &pool);
	if (!rc)
		rc = skein_vqp_mem_new(pool, SIZE, 0, &m);
	if (rc)
		return rc;
	at = now_ns();
	if (via == VIA_READ) {
		rc = pool_read(pool, m, &r->server);
		s->ns[UNMET] = now_ns() - at;
	} else {
		s->ns[OPEN] = at - from;
		rc = pool_calls(r, pool, m, from, s);
	}
	skein_pool_close(pool);
	if (ctx)
		skein_ctx_close(ctx);
	return rc;
}

static int tcp_call(const struct run *r, uint64_t word)
{
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), rc = 0;
	uint64_t answer = 0;

	if (connect(fd, (const struct sockaddr *)&r->tcp, sizeof(r->tcp)) ||
	    write(fd, &word, sizeof(word)) != sizeof(word) ||
	    read(fd, &answer, sizeof(answer)) != sizeof(answer))
		rc = -errno;
	else if (answer != word)
		rc = -EBADMSG;
	close(fd);
	return rc;
}

static int tcp_process(const struct run *r, uint64_t from, struct sample *s)
{
	uint64_t at;
	int rc;

	rc = tcp_call(r, WORD ^ 1);
	at = now_ns();
	s->ns[FIRST] = at - from;
	if (!rc)
		rc = tcp_call(r, WORD ^ 2);
	s->ns[NEXT] = now_ns() - at;
	return rc;
}

static int direct_call(struct skein_ctx *ctx, const struct place *p,
		       uint64_t word)
{
	struct skein_rpc_result result;
	struct skein_conn *conn;
	uint64_t answer = 0;
	int rc;

	rc = skein_conn_open(ctx, p->addr, NULL, &conn);
	if (rc)
		return rc;
	rc = skein_rpc_call(conn, 1, &word, sizeof(word), &answer,
			    sizeof(answer), PATIENCE, &result);
	/* closing is not what is measured */
	if (!rc && (result.len != sizeof(word) || answer != word))
		rc = -EBADMSG;
	return rc;
}

static int direct_process(const struct run *r, uint64_t from, struct sample *s)
{
	struct skein_ctx *ctx;
	uint64_t at;
	int rc;

	rc = skein_ctx_open(NULL, &ctx);
	if (rc)
		return rc;
	s->ns[OPEN] = now_ns() - from;
	rc = direct_call(ctx, &r->server, WORD ^ 1);
	at = now_ns();
	s->ns[FIRST] = at - from;
	if (!rc)
		rc = direct_call(ctx, &r->server, WORD ^ 2);
	s->ns[NEXT] = now_ns() - at;
	skein_ctx_close(ctx);
	return rc;
}

/* --- the run ------------------------------------------------------------ */

/* Reads all of it within our patience; else ends. */
static int pipe_read(int fd, void *buf, size_t len)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};
	size_t have = 0;
	ssize_t n;

	while (have < len) {
		if (poll(&p, 1, PATIENCE_MS) != 1)
			return -ETIMEDOUT;
		n = read(fd, (char *)buf + have, len - have);
		if (n <= 0)
			return -EPIPE;
		have += (size_t)n;
	}
	return 0;
}

static void reap(pid_t pid)
{
	if (pid <= 0)
		return;
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

static int node_start(struct run *r, const int p[2])
{
	const char *tmp = getenv("TMPDIR");
	int rc, up = 0;

	snprintf(r->folder, sizeof(r->folder), "%.40s/skein-perf-XXXXXX",
		 tmp && *tmp ? tmp : "/tmp");
	if (!mkdtemp(r->folder)) {
		r->folder[0] = '\0';
		return -errno;
	}
	snprintf(r->node, sizeof(r->node), "%s/node", r->folder);
	r->node_pid = fork();
	if (!r->node_pid)
		node_main(r->meta, r->node, p[1]);
	rc = r->node_pid < 0 ? -EAGAIN : pipe_read(p[0], &up, sizeof(up));
	return rc ? rc : up;
}

static int tcp_start(struct run *r, const int p[2])
{
	r->tcp_pid = fork();
	if (!r->tcp_pid)
		tcp_main(p[1]);
	return r->tcp_pid < 0 ? -EAGAIN
			      : pipe_read(p[0], &r->tcp, sizeof(r->tcp));
}

static int servers_start(struct run *r)
{
	int p[2], rc;

	if (pipe(p))
		return -errno;
	r->meta_pid = fork();
	if (!r->meta_pid)
		meta_main(p[1]);
	rc = r->meta_pid < 0 ? -EAGAIN
			     : pipe_read(p[0], r->meta, sizeof(r->meta));
	if (!rc && !r->meta[0])
		rc = -EPIPE;
	if (!rc) {
		r->server_pid = fork();
		if (!r->server_pid)
			server_main(r->meta, p[1]);
		rc = r->server_pid < 0
			     ? -EAGAIN
			     : pipe_read(p[0], &r->server, sizeof(r->server));
	}
	if (!rc)
		rc = r->server.rc;
	if (!rc && r->on[VIA_NODE])
		rc = node_start(r, p);
	if (!rc && r->on[VIA_TCP])
		rc = tcp_start(r, p);
	close(p[0]);
	close(p[1]);
	return rc;
}

static int process(struct run *r, enum via via, struct sample *s)
{
	uint64_t from = now_ns();
	int p[2], rc;
	pid_t pid;

	if (pipe(p))
		return -errno;
	pid = fork();
	if (!pid) {
		struct sample own = {0};

		orphan_ends();
		if (via == VIA_TCP)
			own.rc = tcp_process(r, from, &own);
		else
			own.rc = via == VIA_DIRECT
					 ? direct_process(r, from, &own)
					 : pool_process(r, via, from, &own);
		_exit(write(p[1], &own, sizeof(own)) != sizeof(own));
	}
	close(p[1]);
	rc = pid < 0 ? -EAGAIN : pipe_read(p[0], s, sizeof(*s));
	close(p[0]);
	if (rc)
		reap(pid);
	else
		waitpid(pid, NULL, 0);
	return rc ? rc : s->rc;
}

static int by_ns(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

static double p50_us(const struct run *r, enum via via, enum figure f)
{
	uint64_t *ns = calloc(r->iters, sizeof(*ns));
	uint32_t mid = r->iters / 2;
	double us;

	if (!ns)
		return 0;
	for (uint32_t i = 0; i < r->iters; i++)
		ns[i] = r->samples[via][i].ns[f];
	qsort(ns, r->iters, sizeof(*ns), by_ns);
	us = (double)ns[mid] / 1000.0;
	free(ns);
	return us;
}

static int report_json(const struct run *r)
{
	json_t *all = json_pack("{s:s, s:s, s:i, s:i}", "op", "connect",
				"device", r->server.device, "iterations",
				(int)r->iters, "failed", 0);

	for (int v = 0; v < VIAS; v++) {
		json_t *one = json_object();

		for (int f = 0; f < FIGURES; f++)
			if (r->samples[v][0].ns[f])
				json_object_set_new(
					one, figure_names[f],
					out_num(p50_us(r, (enum via)v,
						       (enum figure)f)));
		if (r->on[v])
			json_object_set_new(all, via_names[v], one);
		else
			json_decref(one);
	}
	return out_json(all);
}

static int report_table(const struct run *r)
{
	static const char *const heads[] = {"<via",    "open us",  "first us",
					    "next us", "unmet us", "cached us"};
	struct table *t = table_new(heads, 1 + FIGURES);

	for (int v = 0; v < VIAS; v++) {
		if (!r->on[v])
			continue;
		table_cell(t, "%s", via_names[v]);
		for (int f = 0; f < FIGURES; f++)
			if (r->samples[v][0].ns[f])
				table_num(t, p50_us(r, (enum via)v,
						    (enum figure)f));
			else
				table_cell(t, "-");
	}
	printf("connect: %u new processes each, on %s; medians\n", r->iters,
	       r->server.device);
	table_print(t, stdout);
	table_free(t);
	return fflush(stdout) ? -EIO : 0;
}

static int measure(struct run *r)
{
	int rc = servers_start(r);

	if (rc) {
		out_error(CMD, "the servers did not start: %s",
			  skein_strerror(rc));
		return rc;
	}
	/* one after the other, so that all see the same machine */
	for (uint32_t i = 0; i < r->iters && !rc; i++) {
		struct sample read = {0};

		for (int v = 0; v < VIAS && !rc; v++)
			if (r->on[v])
				rc = process(r, (enum via)v, &r->samples[v][i]);
		if (!rc && r->on[VIA_POOL])
			rc = process(r, VIA_READ, &read);
		r->samples[VIA_POOL][i].ns[UNMET] = read.ns[UNMET];
	}
	if (rc)
		out_error(CMD, "a process failed: %s", skein_strerror(rc));
	return rc;
}

static int via_parse(struct run *r)
{
	const char *at = r->via;

	do {
		size_t n = strcspn(at, ",");
		int v = 0;

		while (v < VIAS && (strlen(via_names[v]) != n ||
				    strncmp(via_names[v], at, n) != 0))
			v++;
		if (v == VIAS) {
			out_error(CMD,
				  "--via=%s: node, pool, direct and tcp, with "
				  "commas",
				  r->via);
			return CMD_USAGE;
		}
		r->on[v] = true;
		at += n + (at[n] == ',');
	} while (*at);
	return CMD_OK;
}

int op_connect(int argc, char **argv)
{
	struct run r = {.via = "node,pool,direct,tcp", .iters = 20};
	bool self = true;
	const struct opt opts[] = {
		{0, "via", OPT_STR, &r.via, "LIST",
		 "of node (a node service), pool (virtual queue pairs), direct, "
		 "tcp"},
		{'n', "iters", OPT_U32, &r.iters, "N", "new processes each", 1,
		 100000},
		{0, "self", OPT_FLAG, &self,
		 .help = "all processes on this host (the only way yet)"},
		{0, "json", OPT_FLAG, &r.json, .help = "one JSON object"},
		{0},
	};
	const struct opt_usage u = {
		CMD, "[options]",
		"What a new process pays until its first call is answered, and "
		"for each further\nconnection. Times are for orientation: take "
		"the ratios of one run.",
		opts, NULL};
	int rc;

	switch (opt_parse(&u, argc, argv, NULL)) {
	case OPT_HELP:
		return CMD_OK;
	case OPT_BAD:
		return CMD_USAGE;
	case OPT_RUN:
		break;
	}
	rc = via_parse(&r);
	if (rc)
		return rc;
	for (int v = 0; v < VIAS; v++) {
		r.samples[v] = calloc(r.iters, sizeof(*r.samples[v]));
		if (!r.samples[v])
			abort();
	}
	rc = measure(&r);
	if (!rc)
		rc = r.json ? report_json(&r) : report_table(&r);
	reap(r.tcp_pid);
	reap(r.node_pid);
	reap(r.server_pid);
	reap(r.meta_pid);
	if (r.folder[0]) {
		unlink(r.node);
		rmdir(r.folder);
	}
	for (int v = 0; v < VIAS; v++)
		free(r.samples[v]);
	return rc ? CMD_FAILED : CMD_OK;
}
