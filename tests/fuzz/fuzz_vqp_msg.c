/* SPDX-License-Identifier: MIT */
/*
 * fuzz_vqp_msg.c - an engine fed with messages: a port is bound, a vqp is
 * connected. What waits to be taken is bounded by the senders' credits, and no
 * message is longer than it says.
 */
#include "base/assert.h"
#include "vqp_port.h"

#include <errno.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int no_post(void *arg, unsigned dci, struct ibv_send_wr *wr, unsigned n,
		   const struct vqp_peer *to)
{
	(void)arg, (void)dci, (void)wr, (void)n, (void)to;
	return 0;
}

static int no_poll(void *arg, int n, struct ibv_wc *wc)
{
	(void)arg, (void)n, (void)wc;
	return 0;
}

static bool any_memory(void *arg, uint32_t lkey, uint64_t addr, uint32_t len,
		       bool write)
{
	(void)arg, (void)lkey, (void)addr, (void)len, (void)write;
	return true;
}

static const struct vqp_port port = {
	PORT_OF_NOTHING,
	.post = no_post,
	.poll = no_poll,
	.local_ok = any_memory,
};

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
		skein_assert(out.len <= MSG_PAYLOAD &&
			     (out.len <= 64) == !out.status);
	while (vqp_poll(v, 1, &wc) == 1)
		skein_assert(wc.byte_len <= MSG_PAYLOAD);
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

	c.cells = calloc(VQP_SLOTS, VQP_CELL);
	skein_assert(e && c.cells && !vqp_engine_init(e, &c));
	skein_assert(!vqp_new(e, &bound) && !vqp_new(e, &v));
	skein_assert(!vqp_bind(bound, 1));
	vqp_join(v, vqp_peer_get(e, &peer));
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
	free(e);
	return 0;
}
