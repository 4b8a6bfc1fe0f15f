/* SPDX-License-Identifier: MIT */
/*
 * fuzz_vqp_msg.c - an engine fed with messages: a port is bound, a vqp is
 * connected and has announced a message. Requests of the engine's own complete,
 * and bring nothing. What waits to be taken is bounded by the senders' credits,
 * no message is longer than it says, none that is announced is taken as READ,
 * and the one that was announced completes once.
 */
#include "base/assert.h"
#include "vqp_port.h"

#include <errno.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static uint64_t posted[16];
static unsigned n_posted;

static int any_post(void *arg, unsigned dci, struct ibv_send_wr *wr, unsigned n,
		    const struct vqp_peer *to)
{
	(void)arg, (void)dci, (void)n, (void)to;
	for (; wr; wr = wr->next) {
		if (!(wr->send_flags & IBV_SEND_SIGNALED))
			continue;
		skein_assert(n_posted < 16); /* no more than the CQ takes */
		posted[n_posted++] = wr->wr_id;
	}
	return 0;
}

static int any_poll(void *arg, int n, struct ibv_wc *wc)
{
	unsigned i, got = (unsigned)n < n_posted ? (unsigned)n : n_posted;

	(void)arg;
	for (i = 0; i < got; i++)
		wc[i] = (struct ibv_wc){.wr_id = posted[i]};
	n_posted -= got;
	memmove(posted, posted + got, n_posted * sizeof(*posted));
	return (int)got;
}

static bool any_rkey(void *arg, uint32_t lkey, uint64_t addr, uint32_t len,
		     uint32_t *rkey)
{
	(void)arg, (void)lkey, (void)addr, (void)len;
	*rkey = 5;
	return true;
}

static bool any_memory(void *arg, uint32_t lkey, uint64_t addr, uint32_t len,
		       bool write)
{
	(void)arg, (void)lkey, (void)addr, (void)len, (void)write;
	return true;
}

static const struct vqp_port port = {
	PORT_OF_NOTHING,	.post = any_post,    .poll = any_poll,
	.local_ok = any_memory, .rkey_of = any_rkey,
};

static unsigned done; /* completions of the announced message */

static void take_all(struct vqp *bound, struct vqp *v)
{
	static uint8_t room[MSG_BUF];
	struct ibv_sge sge = {(uintptr_t)room, 64, 1};
	struct ibv_recv_wr wr = {.sg_list = &sge, .num_sge = 1}, *bad;
	struct vqp_pop_out out;
	struct ibv_wc wc;

	for (int i = 0; i < 8; i++) {
		vqp_post_recv(bound, &wr, &bad);
		vqp_post_recv(v, &wr, &bad);
	}
	while (vqp_pop(bound, &out))
		skein_assert(out.len <= (out.status ? MSG_MAX : 64));
	while (vqp_poll(v, 1, &wc) == 1)
		if (wc.opcode == IBV_WC_RECV)
			skein_assert(wc.byte_len <= (wc.status ? MSG_MAX : 64));
		else
			skein_assert(wc.wr_id == 9 && !done++);
}

static void announce(struct vqp *v)
{
	static uint8_t room[MSG_PAYLOAD + 1];
	struct ibv_sge sge = {(uintptr_t)room, sizeof(room), 1};
	struct ibv_send_wr wr = {.wr_id = 9,
				 .sg_list = &sge,
				 .num_sge = 1,
				 .opcode = IBV_WR_SEND,
				 .send_flags = IBV_SEND_SIGNALED},
			   *bad;

	done = 0;
	skein_assert(!vqp_post_send(v, &wr, &bad));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct meta_node peer = {.port = 7, .dctn = 9, .incarnation = 3};
	struct vqp_conf c = {.port = &port,
			     .dcis = 2,
			     .sq_max = 8,
			     .cq_max = 16,
			     .self = {.port = 1}};
	struct vqp_engine *e = malloc(sizeof(*e));
	struct vqp *bound, *v;
	size_t len;

	n_posted = 0;
	c.cells = calloc(VQP_SLOTS, VQP_CELL);
	c.words = calloc(VQP_SLOTS, sizeof(*c.words));
	skein_assert(e && c.cells && c.words && !vqp_engine_init(e, &c));
	skein_assert(!vqp_new(e, &bound) && !vqp_new(e, &v));
	skein_assert(!vqp_bind(bound, 1));
	vqp_join(v, vqp_peer_get(e, &peer));
	announce(v);
	/* two bytes of length, then a message */
	while (size > 2) {
		len = data[0] | (size_t)data[1] << 8;
		data += 2;
		size -= 2;
		len = len < size ? len : size;
		vqp_engine_receive(e, data, len);
		data += len;
		size -= len;
		if (len % 3 == 0)
			take_all(bound, v);
		vqp_engine_round(e, 1);
	}
	vqp_engine_fini(e);
	free(c.cells);
	free(c.words);
	free(e);
	return 0;
}
