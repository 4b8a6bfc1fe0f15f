/* SPDX-License-Identifier: MIT */
/*
 * many_vqp.c - a server and its clients over virtual queue pairs of the node
 * service that SKEIN_NODE names; see many.h.
 */
#include "many.h"

#include <skein/skein.h>

#include <errno.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PORT 1
#define RECVS 64u
#define PATIENCE_NS SKEIN_S(60)

/* The first byte of a message: does the server answer it? */
enum {
	PART = 1,
	WHOLE
};

/* A process's pool, and memory for receives. */
struct ways {
	struct skein_pool *pool;
	struct skein_vqp *vqp;
	struct skein_vqp_mem *mem;
	uint32_t slot; /* bytes of a receive */
};

/* Memory of n slots. */
static void ways_open(struct ways *w, unsigned n, uint32_t slot)
{
	struct skein_pool_attr attr = {.size = sizeof(attr),
				       .timeout_ns = PATIENCE_NS};
	int rc = skein_pool_open(NULL, &attr, &w->pool);

	w->slot = slot;
	if (!rc)
		rc = skein_vqp_mem_new(w->pool, (size_t)n * slot, 0, &w->mem);
	if (!rc)
		rc = skein_vqp_new(w->pool, &w->vqp);
	if (rc)
		many_die("pool", rc);
}

static char *slot_at(const struct ways *w, uint64_t slot)
{
	return (char *)skein_vqp_mem_addr(w->mem) + slot * w->slot;
}

static int recv_post(const struct ways *w, uint64_t slot)
{
	struct ibv_sge sge = {(uintptr_t)slot_at(w, slot), w->slot,
			      skein_vqp_lkey(w->mem)};
	struct ibv_recv_wr wr = {.wr_id = slot, .sg_list = &sge, .num_sge = 1};
	struct ibv_recv_wr *bad;

	return skein_vqp_post_recv(w->vqp, &wr, &bad);
}

static int send_post(struct skein_vqp *vqp, char *text)
{
	struct ibv_sge sge = {(uintptr_t)text, MANY_LEN, 0};
	struct ibv_send_wr wr = {.sg_list = &sge,
				 .num_sge = 1,
				 .opcode = IBV_WR_SEND,
				 .send_flags = IBV_SEND_INLINE};
	struct ibv_send_wr *bad;

	return skein_vqp_post_send(vqp, &wr, &bad);
}

/* Answers what has come: its bytes. */
static int answer(struct ways *w)
{
	struct skein_vqp_msg msg;
	int rc = skein_vqp_pop(w->vqp, 1, &msg);
	char *at;

	if (rc <= 0)
		return rc;
	at = slot_at(w, msg.wr_id);
	rc = 0;
	if (msg.from && !msg.status && *at == WHOLE) {
		rc = send_post(msg.from, at);
		skein_vqp_free(msg.from); /* its next message makes another */
	}
	return rc ? rc : recv_post(w, msg.wr_id);
}

/* vqp-serve: "addr=NODE" when clients may come; ends with standard input. */
int many_vqp_serve(int argc, char **argv)
{
	struct ways w;
	int rc;

	(void)argc;
	(void)argv;
	ways_open(&w, RECVS, PASS_MAX);
	rc = skein_vqp_bind(w.vqp, PORT);
	for (unsigned i = 0; i < RECVS && !rc; i++)
		rc = recv_post(&w, i);
	if (rc)
		many_die("serving", rc);
	printf("addr=%s\n", skein_pool_addr(w.pool));
	fflush(stdout);
	while (!rc && !many_eof())
		rc = answer(&w);
	if (rc)
		many_die("answer", rc);
	_Exit(0);
}

/* Waits for the answer, which is `text`. */
static int answered(const struct ways *w, struct skein_vqp *vqp,
		    const char *text)
{
	uint64_t end = many_now_ns() + PATIENCE_NS;
	struct ibv_wc wc;
	int n = 0;

	while (!n && many_now_ns() < end)
		n = skein_vqp_poll(vqp, 1, &wc);
	if (n != 1)
		return n ? n : -ETIMEDOUT;
	if (wc.status)
		return -EIO;
	return memcmp(slot_at(w, 0), text, MANY_LEN) ? -EBADMSG : 0;
}

/* A connected vqp: one message there and back. */
static void call(const struct ways *w)
{
	char text[MANY_LEN] = {WHOLE};
	int rc = recv_post(w, 0);

	text[1] = (char)many_now_ns();
	if (!rc)
		rc = send_post(w->vqp, text);
	if (!rc)
		rc = answered(w, w->vqp, text);
	if (rc)
		many_die("call", rc);
}

static void connect_to(const struct ways *w, const char *node)
{
	int rc = skein_vqp_connect(w->vqp, node, PORT, PATIENCE_NS);

	if (rc)
		many_die("connection", rc);
}

/* vqp-one NODE: a connection, a call, the end. */
int many_vqp_one(int argc, char **argv)
{
	struct ways w;

	(void)argc;
	ways_open(&w, 1, SKEIN_VQP_COPY_MAX);
	connect_to(&w, argv[1]);
	call(&w);
	skein_pool_close(w.pool);
	return 0;
}

/* vqp-calls NODE: "begun" after the first call, then calls until standard input
 * ends. */
int many_vqp_calls(int argc, char **argv)
{
	struct ways w;

	(void)argc;
	ways_open(&w, 1, SKEIN_VQP_COPY_MAX);
	connect_to(&w, argv[1]);
	call(&w);
	printf("begun=1\n");
	fflush(stdout);
	while (!many_eof())
		call(&w);
	skein_pool_close(w.pool);
	return 0;
}

/* One message from slot 1 on, or several, each with `part` bytes at most; the
 * last one is answered. */
static int pass_on(struct ways *w, uint32_t len, uint32_t part)
{
	struct ibv_send_wr wr = {.num_sge = 1, .opcode = IBV_WR_SEND}, *bad;
	struct ibv_sge sge = {.lkey = skein_vqp_lkey(w->mem)};
	char *at = slot_at(w, 1), *last = at;
	int rc = recv_post(w, 0);

	wr.sg_list = &sge;
	for (; len && !rc; len -= sge.length, at += sge.length) {
		sge.addr = (uintptr_t)at;
		sge.length = len < part ? len : part;
		last = at;
		*at = len > part ? PART : WHOLE;
		rc = skein_vqp_post_send(w->vqp, &wr, &bad);
	}
	return rc ? rc : answered(w, w->vqp, last);
}

/* vqp-pass NODE LEN COUNT: a vqp, connected, a message of LEN bytes, the answer,
 * the end; so COUNT times. vqp-parts: in messages that are copied. */
int many_vqp_pass(int argc, char **argv)
{
	bool parts = !strcmp(argv[0], "vqp-parts");
	unsigned long count = many_number(argv[3]);
	uint32_t len = (uint32_t)many_number(argv[2]);
	struct many_lat lat = {0};
	struct ways w;
	int rc = len > PASS_MAX || len < MANY_LEN ? -EINVAL : 0;

	(void)argc;
	ways_open(&w, 2 + PASS_MAX / SKEIN_VQP_COPY_MAX, SKEIN_VQP_COPY_MAX);
	skein_vqp_free(w.vqp);
	for (unsigned long i = 0; i < count && !rc; i++) {
		uint64_t t0 = many_now_ns();

		rc = skein_vqp_new(w.pool, &w.vqp);
		if (rc)
			break;
		connect_to(&w, argv[1]);
		rc = pass_on(&w, len, parts ? SKEIN_VQP_COPY_MAX : PASS_MAX);
		many_lat_add(&lat, many_now_ns() - t0);
		skein_vqp_free(w.vqp);
	}
	if (rc)
		many_die("pass", rc);
	many_lat_print(&lat);
	putchar('\n');
	skein_pool_close(w.pool);
	return 0;
}
