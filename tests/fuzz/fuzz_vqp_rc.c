/* SPDX-License-Identifier: MIT */
/*
 * fuzz_vqp_rc.c - an engine fed with datagrams about RC queue pairs, while it
 * asks for one itself and time goes by. A datagram that is taken is the same
 * when it is encoded again; queue pairs are bounded, and each is made, joined
 * and freed in this order, once.
 */
#include "base/assert.h"
#include "vqp_port.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define RCS 2u
#define FROM_AT (RC_MSG - META_RECORD)
#define STEP_NS 8000000ull

enum rc_is {
	GONE,
	MADE,
	JOINED
};

static enum rc_is rc_is[2 * RCS];
static uint8_t cells[VQP_SLOTS * VQP_CELL];

static int rc_make(void *arg, unsigned rc, struct rc_addr *own)
{
	(void)arg;
	skein_assert(rc < 2 * RCS && rc_is[rc] == GONE);
	rc_is[rc] = MADE;
	*own = (struct rc_addr){.qpn = 5 + rc, .psn = 9, .mtu = 5};
	return 0;
}

static int rc_join(void *arg, unsigned rc, const struct rc_addr *far,
		   const struct vqp_peer *peer)
{
	(void)arg, (void)peer;
	skein_assert(rc < 2 * RCS && rc_is[rc] == MADE &&
		     far->qpn <= 0xffffff && far->psn <= 0xffffff);
	rc_is[rc] = JOINED;
	return 0;
}

static void rc_free(void *arg, unsigned rc)
{
	(void)arg;
	skein_assert(rc < 2 * RCS && rc_is[rc] != GONE);
	rc_is[rc] = GONE;
}

static int rc_probe(void *arg, unsigned rc)
{
	(void)arg;
	skein_assert(rc_is[rc] == JOINED);
	return -EOPNOTSUPP;
}

static void told(void *arg, const struct vqp_peer *to, const uint8_t *msg)
{
	struct rc_msg m;

	(void)arg, (void)to;
	skein_assert(!rc_msg_decode(msg, RC_MSG, &m));
}

static int posted(void *arg, unsigned qp, struct ibv_send_wr *wr, unsigned n,
		  const struct vqp_peer *to)
{
	(void)arg, (void)wr, (void)n, (void)to;
	skein_assert(qp < 2 * RCS && rc_is[qp] == JOINED);
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
	PORT_OF_NOTHING,	.post = posted,	      .poll = no_poll,
	.local_ok = any_memory, .rc_make = rc_make,   .rc_join = rc_join,
	.rc_free = rc_free,	.rc_probe = rc_probe, .tell = told,
};

/* With the sum of the record in it made right: else little is taken. */
static void datagram(struct vqp_engine *e, const uint8_t *data, size_t len)
{
	uint8_t buf[RC_MSG], again[RC_MSG];
	struct rc_msg m;

	memcpy(buf, data, len);
	if (len == RC_MSG)
		put_le64(buf + RC_MSG - 8, meta_sum(buf + FROM_AT));
	if (!rc_msg_decode(buf, len, &m)) {
		rc_msg_encode(&m, again);
		skein_assert(!memcmp(again, buf, RC_MSG));
	}
	vqp_engine_datagram(e, buf, len);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct meta_node peer = {.port = 7, .udqpn = 9, .incarnation = 3};
	struct vqp_conf c = {.port = &port,
			     .rcs = RCS,
			     .sq_max = 8,
			     .cq_max = 16,
			     .self = {.port = 1, .udqpn = 4, .incarnation = 2}};
	struct ibv_send_wr wr = {.opcode = IBV_WR_SEND}, *bad;
	struct vqp_engine *e = malloc(sizeof(*e));
	uint64_t now_ns = 1;
	struct vqp *v;
	size_t len;

	c.cells = cells;
	skein_assert(e && !vqp_engine_init(e, &c));
	skein_assert(!vqp_new(e, &v));
	vqp_join(v, vqp_peer_get(e, &peer));
	skein_assert(!vqp_post_send(v, &wr, &bad));
	vqp_engine_round(e, now_ns);
	/* a byte of time, then a datagram */
	while (size > 1) {
		now_ns += *data * STEP_NS;
		vqp_engine_round(e, now_ns);
		data++;
		size--;
		len = size < RC_MSG ? size : RC_MSG;
		datagram(e, data, len);
		data += len;
		size -= len;
	}
	vqp_engine_round(e, now_ns + STEP_NS);
	vqp_engine_fini(e);
	for (unsigned i = 0; i < 2 * RCS; i++)
		skein_assert(rc_is[i] == GONE);
	free(e);
	return 0;
}
