/* SPDX-License-Identifier: MIT */
/*
 * fuzz_vqp_node.c - a client's rings as a hostile client writes them, and its
 * messages. Whatever it writes, the service posts no memory but the client's own
 * and the engine's, and writes no completion where there is no room.
 */
#include "base/assert.h"
#include "vqp/node/attach.h"
#include "vqp/node/serve.h"
#include "vqp_port.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define MEM 4096u
#define LKEY 9u
#define STEP 62u /* bytes of input for each */

struct bed {
	uint8_t mem[MEM];
	uint8_t *cells;
	uint64_t done[1024];
	unsigned n_done;
};

static bool inside(const struct ibv_sge *g, const uint8_t *at, size_t len)
{
	uint64_t off = g->addr - (uintptr_t)at;

	return off <= len && g->length <= len - off;
}

static int post(void *arg, unsigned dci, struct ibv_send_wr *wr, unsigned n,
		const struct vqp_peer *to)
{
	struct bed *b = arg;

	(void)dci, (void)n, (void)to;
	for (; wr; wr = wr->next) {
		for (int i = 0; i < wr->num_sge; i++)
			skein_assert(!wr->sg_list[i].length ||
				     inside(&wr->sg_list[i], b->mem, MEM) ||
				     inside(&wr->sg_list[i], b->cells,
					    (size_t)VQP_SLOTS * VQP_CELL));
		if (wr->send_flags & IBV_SEND_SIGNALED && b->n_done < 1024)
			b->done[b->n_done++] = wr->wr_id;
	}
	return 0;
}

static int poll_done(void *arg, int n, struct ibv_wc *wc)
{
	struct bed *b = arg;
	int i;

	for (i = 0; i < n && i < (int)b->n_done; i++)
		wc[i] = (struct ibv_wc){.wr_id = b->done[i]};
	b->n_done -= (unsigned)i;
	memmove(b->done, b->done + i, b->n_done * sizeof(b->done[0]));
	return i;
}

static bool own_memory(void *arg, uint32_t lkey, uint64_t addr, uint32_t len,
		       bool write)
{
	const struct ibv_sge g = {addr, len, lkey};
	struct bed *b = arg;

	(void)write;
	return lkey == LKEY && inside(&g, b->mem, MEM);
}

static const struct vqp_port port = {
	PORT_OF_NOTHING,
	.post = post,
	.poll = poll_done,
	.local_ok = own_memory,
};

/* One byte says what: a line as a client would write it, or bytes anywhere. */
static void step(uint8_t *ring, uint32_t *line, const uint8_t *in)
{
	uint32_t seq, at;

	memcpy(&at, in + 1, sizeof(at));
	if (in[0] & 1) {
		memcpy(ring + at % (RING_LEN - 56), in + 5, 56);
		return;
	}
	/* several lines of one request: the first comes last */
	seq = *line + 1 + (in[0] >> 1 & 1);
	memcpy(ring + RING_AT_LINES + (seq - 1) % RING_LINES * RING_LINE, &seq,
	       4);
	memcpy(ring + RING_AT_LINES + (seq - 1) % RING_LINES * RING_LINE + 4,
	       in + 2, RING_NEXT);
	*line += !(in[0] & 2);
}

static void peer_add(struct vqp_engine *e)
{
	struct meta_node peer = {.port = 1, .dctn = 9, .incarnation = 3};

	skein_assert(vqp_peer_get(e, &peer));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct bed *b = calloc(1, sizeof(*b));
	struct vqp_conf c = {.port = &port,
			     .arg = b,
			     .dcis = 2,
			     .sq_max = 8,
			     .cq_max = 16,
			     .self = {.port = 1}};
	struct vqp_engine *e = malloc(sizeof(*e));
	struct serve *s = malloc(sizeof(*s));
	uint8_t *ring = aligned_alloc(64, RING_LEN);
	struct attach_msg m;
	uint32_t line = 0;

	c.cells = calloc(VQP_SLOTS, VQP_CELL);
	skein_assert(b && e && s && ring && c.cells);
	b->cells = c.cells;
	memset(ring, 0, RING_LEN);
	skein_assert(!vqp_engine_init(e, &c));
	if (!attach_decode(data, size, &m))
		skein_assert(!m.addr[sizeof(m.addr) - 1]);
	serve_init(s, e, ring);
	serve_mem_add(s, b->mem, MEM, LKEY, b);
	peer_add(e);
	for (; size >= STEP && !s->wrong; data += STEP, size -= STEP) {
		step(ring, &line, data);
		serve_round(s);
		vqp_engine_round(e, 1);
		if (data[0] & 4) /* an honest one */
			atomic_store(&s->ring.heads->comps_taken, s->ring.comp);
		line = s->ring.line;
	}
	serve_fini(s);
	vqp_peer_put(e, vqp_peer_find(e, c.self.gid, 1));
	vqp_engine_fini(e);
	free(ring);
	free(s);
	free(e);
	free(c.cells);
	free(b);
	return 0;
}
