/* SPDX-License-Identifier: MIT */
/*
 * fuzz_stream_qp.c - all that a peer can do to a QP with several streams: its
 * immediates, messages, records and control words in any order, and completions,
 * while the program writes, reads, ends, leaves and hands back. On a device made
 * up here, which looks at all that is posted.
 *
 * What must hold: a WRITE goes into memory that the peer has named, and to a
 * stream that this end has not closed; records are read in memory of this end,
 * which stays until both ends have closed the stream; the immediates keep to the
 * receives that the peer has given; what the peer says to one stream breaks no
 * other; at the end all memory is given back.
 *
 * The input: steps of four bytes: what, which stream, two of its arguments.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "env/env.h"
#include "stream/section.h"
#include "stream/stream.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define STREAMS 3u
#define RING STREAM_RING_MIN
#define RING_MAX (4u * RING)
#define WCS_MAX 64u
#define NUMBER(i) (100u + (i)) /* the peer's, of stream i */
#define MEM(i) (((uint64_t)(i) + 1) << 32)
#define GROWN_AT (1u << 24) /* behind MEM(i): the ring that was granted last */
#define STEP 4u
#define S_NS 1000000000ull

/* --- a device ------------------------------------------------------------- */

static struct fake {
	struct ibv_qp qp;
	struct ibv_cq scq, rcq;
	struct ibv_wc wcs[WCS_MAX]; /* receives that have ended */
	unsigned n_wcs, mrs;
	uint32_t recvs; /* wr_ids of receives, in turn */
	uint64_t sent;	/* the last wr_id that was posted */
	uint64_t ended; /* ... that has a completion */
	bool fails;	/* the next completion is an error */
	uint32_t imms;	/* under way, without a credit given back */
	bool closed[STREAMS];
	uint32_t grown[STREAMS]; /* bytes of the ring that was granted last */
} f;

static struct stream *streams[STREAMS];

static void look_at_write(const struct ibv_send_wr *wr)
{
	uint64_t to = wr->wr.rdma.remote_addr, off;
	uint32_t len = 0, i = (uint32_t)(to >> 32) - 1;
	unsigned sum = 0;

	skein_assert(i < STREAMS && wr->wr.rdma.rkey == NUMBER(i));
	skein_assert(!f.closed[i]);
	if (wr->num_sge)
		len = wr->sg_list->length;
	for (off = 0; off < len; off++)
		sum += ((const uint8_t *)(uintptr_t)wr->sg_list->addr)[off];
	skein_assert(sum <= UINT32_MAX);
	off = to - MEM(i);
	if (off < GROWN_AT)
		skein_assert(off + len <= sizeof(struct stream_ctl) + RING);
	else
		skein_assert(off - GROWN_AT + len <= f.grown[i]);
	if (wr->opcode == IBV_WR_RDMA_WRITE_WITH_IMM &&
	    ntohl(wr->imm_data) == STREAM_IMM(STREAM_CLOSE, NUMBER(i)))
		f.closed[i] = true;
}

static int fake_send(struct ibv_qp *qp, struct ibv_send_wr *wr,
		     struct ibv_send_wr **bad)
{
	(void)qp, (void)bad;
	for (; wr; wr = wr->next) {
		bool sends = wr->opcode == IBV_WR_SEND ||
			     wr->opcode == IBV_WR_SEND_WITH_IMM;

		if (!sends)
			look_at_write(wr);
		/* A credit is given without a receive of the peer's count. */
		f.imms += wr->opcode == IBV_WR_SEND ||
			  wr->opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
		skein_assert(f.imms <= STREAM_RECVS);
		f.sent = wr->wr_id;
	}
	skein_assert((uint32_t)(f.sent - f.ended) <= STREAM_SEND_SLOTS);
	return 0;
}

static int fake_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr,
		     struct ibv_recv_wr **bad)
{
	(void)qp, (void)wr, (void)bad;
	return 0;
}

static int fake_poll(struct ibv_cq *cq, int n, struct ibv_wc *wc)
{
	if (cq == &f.scq && f.ended != f.sent) {
		f.ended = f.sent;
		*wc = (struct ibv_wc){.wr_id = f.sent};
		wc->status = f.fails ? IBV_WC_RETRY_EXC_ERR : IBV_WC_SUCCESS;
		f.fails = false;
		return 1;
	}
	if (cq != &f.rcq || !f.n_wcs || !n)
		return 0;
	*wc = f.wcs[0];
	memmove(f.wcs, f.wcs + 1, --f.n_wcs * sizeof(*f.wcs));
	return 1;
}

static int fake_notify(struct ibv_cq *cq, int solicited)
{
	(void)cq, (void)solicited;
	return 0;
}

static struct ibv_context context = {.ops = {.poll_cq = fake_poll,
					     .req_notify_cq = fake_notify,
					     .post_send = fake_send,
					     .post_recv = fake_recv}};

static int fake_cq(struct dev *dev, int cqe, void *arg,
		   struct ibv_comp_channel *ch, struct ibv_cq **cq)
{
	/* The first one is for sends. */
	*cq = f.scq.context ? &f.rcq : &f.scq;
	(void)dev, (void)cqe, (void)ch;
	(*cq)->cq_context = arg;
	(*cq)->context = &context;
	return 0;
}

static int fake_qp(struct dev *dev, struct ibv_pd *pd,
		   struct ibv_qp_init_attr *attr, unsigned flags,
		   struct ibv_qp **qp)
{
	(void)dev, (void)pd, (void)attr, (void)flags;
	f.qp.context = &context;
	*qp = &f.qp;
	return 0;
}

static int fake_modify(struct dev *dev, struct ibv_qp *qp,
		       struct ibv_qp_attr *attr, int mask)
{
	(void)dev, (void)qp, (void)attr, (void)mask;
	return 0;
}

static int fake_reg(struct dev *dev, struct ibv_pd *pd, void *addr, size_t len,
		    int access, int fd, uint64_t off, struct ibv_mr **mr)
{
	(void)dev, (void)pd, (void)addr, (void)len;
	(void)access, (void)fd, (void)off;
	*mr = calloc(1, sizeof(**mr));
	f.mrs += *mr != NULL;
	return *mr ? 0 : -ENOMEM;
}

static int fake_dereg(struct dev *dev, struct ibv_mr *mr)
{
	(void)dev;
	f.mrs--;
	free(mr);
	return 0;
}

static int fake_destroy_qp(struct dev *dev, struct ibv_qp *qp)
{
	(void)dev, (void)qp;
	return 0;
}

static int fake_destroy_cq(struct dev *dev, struct ibv_cq *cq)
{
	(void)dev, (void)cq;
	return 0;
}

static const struct dev_ops ops = {
	.create_cq = fake_cq,
	.create_qp = fake_qp,
	.modify_qp = fake_modify,
	.reg_mr = fake_reg,
	.dereg_mr = fake_dereg,
	.destroy_qp = fake_destroy_qp,
	.destroy_cq = fake_destroy_cq,
};
static struct dev dev = {.ops = &ops,
			 .caps = {.inline_max = 256, .ordered_write = true}};

/* --- the peer ------------------------------------------------------------- */

static struct ibv_wc *arrives(struct stream_qp *q)
{
	struct ibv_wc *wc = &f.wcs[f.n_wcs++];

	*wc = (struct ibv_wc){.wr_id = f.recvs++ % STREAM_RECVS};
	(void)q;
	return wc;
}

static void say_imm(struct stream_qp *q, uint32_t imm)
{
	struct ibv_wc *wc = arrives(q);

	wc->wc_flags = IBV_WC_WITH_IMM;
	wc->imm_data = htonl(imm);
	/* A peer that gives back what it never had is counted, no more. */
	if (imm >> 24 == (STREAM_IMM_KIND << 4 | STREAM_CREDIT) &&
	    (imm & STREAM_NUMBER_MAX) <= f.imms)
		f.imms -= imm & STREAM_NUMBER_MAX;
}

static void say_bytes(struct stream_qp *q, const uint8_t *bytes, uint32_t len)
{
	struct ibv_wc *wc = arrives(q);

	memcpy(q->msgs + wc->wr_id * STREAM_MSG_MAX, bytes, len);
	wc->byte_len = len;
}

static void say_grown(struct stream_qp *q, uint32_t i, const uint8_t *arg)
{
	uint8_t bytes[STREAM_MSG_MAX];
	struct bytes_out out = bytes_out(bytes, sizeof(bytes));
	struct stream_msg m = {.type = STREAM_GROWN,
			       .number = streams[i]->number,
			       .answer = (enum stream_answer)(arg[0] & 3)};

	m.addr = streams[i]->peer;
	m.addr.mem = MEM(i) + GROWN_AT;
	m.addr.ring_size = RING << (arg[1] & 3);
	m.addr.secret += arg[1] >> 7;
	if (streams[i]->grow.step == GROW_ASKED && m.answer == STREAM_TAKEN &&
	    m.addr.ring_size == streams[i]->grow.next)
		f.grown[i] = m.addr.ring_size;
	stream_msg_put(&m, &out);
	say_bytes(q, bytes, (uint32_t)out.pos);
}

/* The record that the reader waits for, of any type and length. */
static void say_record(uint32_t i, const uint8_t *arg)
{
	static uint8_t buf[RING_MAX + 64];
	struct stream *s = streams[i];
	const struct stream_arrival *ahead = stream_in_ahead(&s->in);
	struct stream_out o = {.secret = s->secret,
			       .pos = ahead->pos,
			       .head = ahead->pos,
			       .size = ahead->at.size,
			       .seq = ahead->seq};
	uint64_t word = (uint64_t)RING << (arg[1] & 3);
	struct stream_place p;
	uint32_t len;

	if (!stream_out_place(&o, STREAM_DATA, &p))
		return;
	len = arg[1] * 37u < p.room ? arg[1] * 37u : p.room;
	if ((arg[0] & 7) == STREAM_RING)
		len = sizeof(word);
	memset(buf, 0, sizeof(buf));
	memcpy(buf + STREAM_HEAD_LEN, &word, sizeof(word));
	len = stream_out_seal(&o, &p, (enum stream_type)(arg[0] & 7), buf, len);
	memcpy((uint8_t *)(uintptr_t)ahead->at.ring + p.off, buf, len);
}

static void say_word(struct stream *s, const uint8_t *arg)
{
	uint64_t value = arg[1];
	uint64_t *word = &s->ctl->head + (arg[0] & 3);

	/* Mostly near to what makes sense. */
	if (arg[0] & 4)
		value = s->out.pos - (arg[0] & 8 ? value : 0);
	else if (arg[0] & 8)
		value = 1 + s->out.bytes;
	*word = value;
}

/* --- the program ----------------------------------------------------------- */

static bool is_ring(const struct stream_ring *at, const uint8_t *mem,
		    uint32_t size)
{
	return size && at->ring == mem && at->size == size;
}

/* Records are read in a ring of this end. */
static void look_at_ring(const struct stream *s, const uint8_t *data,
			 uint32_t len)
{
	const struct stream_ring *at = &s->in.at;
	const struct stream_grow *g = &s->grow;
	const struct stream_part *part;

	part = &g->rings[stream_size_index(at->size)];
	skein_assert(is_ring(at, s->ring, s->ring_size) ||
		     is_ring(at, part->slot.mem, part->size));
	skein_assert(data >= at->ring && data + len <= at->ring + at->size);
}

static void read_all(struct stream *s)
{
	uint64_t begun = s->in.pos;
	enum stream_type type;
	const uint8_t *data;
	uint32_t len, i;
	unsigned sum = 0;

	while (stream_peek(s, &type, &data, &len) == 1 && type != STREAM_END &&
	       s->in.pos - begun <= 2 * RING_MAX) {
		look_at_ring(s, data, len);
		for (i = 0; i < len; i++)
			sum += data[i];
		stream_consume(s, len);
	}
	skein_assert(sum <= UINT32_MAX);
}

static void write_some(struct stream *s, uint32_t len)
{
	static uint8_t block[256 * 256];
	struct iovec iov = {block, len};

	(void)stream_write(s, &iov, 1);
}

static void go_back(struct stream *s)
{
	const uint8_t *data;
	uint32_t len;

	if (!s->back.on)
		stream_hand_back(s, false);
	if (stream_back_poll(s))
		return;
	while (stream_back_next(s, &data, &len) == 1)
		stream_back_took(&s->back, len);
	if (s->back.peer_stopped && !s->back.left && !s->back.moved)
		stream_back_moved(s);
}

static void act(struct stream *s, const uint8_t *arg)
{
	switch (arg[0] & 7) {
	case 0:
		read_all(s);
		return;
	case 1:
		(void)stream_ask(s, arg[1] & 1);
		return;
	case 2:
		(void)stream_end(s);
		return;
	case 3:
		go_back(s);
		return;
	case 4:
		stream_leave(s);
		return;
	default:
		write_some(s, arg[1] * 256u);
	}
}

/* --- a run ----------------------------------------------------------------- */

static void step(struct stream_qp *q, uint32_t i, const uint8_t *data,
		 uint64_t *now_ns)
{
	struct stream *s = streams[i];

	switch (data[0] & 7) {
	case 0:
		if (s)
			say_imm(q, STREAM_IMM(data[2] & 15, s->number));
		return;
	case 1:
		say_imm(q, (uint32_t)data[1] << 24 | data[3]);
		return;
	case 2:
		if (s && s->connected)
			say_grown(q, i, data + 2);
		return;
	case 3:
		if (s && !s->left)
			say_record(i, data + 2);
		return;
	case 4:
		if (s && !s->left)
			say_word(s, data + 2);
		return;
	case 5:
		f.fails = data[3] == 255;
		say_imm(q, STREAM_IMM(STREAM_CREDIT, data[2]));
		return;
	case 6:
		*now_ns += data[2] * (S_NS / 64);
		stream_qp_tend(q, *now_ns);
		return;
	default:
		if (s && !s->left)
			act(s, data + 2);
	}
}

static void take_in(struct stream_qp *q)
{
	struct stream *s;
	unsigned i;

	stream_qp_poll(q);
	while (stream_qp_woken(q))
		;
	while ((s = stream_qp_over(q))) {
		/* The peer writes to it no more, and this end neither. */
		skein_assert(q->broken || (s->closed && s->peer_closed));
		for (i = 0; i < STREAMS; i++)
			if (streams[i] == s)
				streams[i] = NULL;
		stream_free(s);
	}
}

/* What was said to other streams has broken none to which nothing was said. */
static void only(const struct stream_qp *q, const bool *said)
{
	uint32_t i;

	for (i = 0; i < STREAMS; i++)
		skein_assert(said[i] || q->broken || !streams[i] ||
			     !streams[i]->broken);
}

static void run(struct stream_qp *q, const uint8_t *data, size_t size)
{
	bool said[STREAMS] = {false};
	uint64_t now_ns = S_NS;
	uint32_t i;

	for (; size >= STEP; data += STEP, size -= STEP) {
		i = data[1] % STREAMS;
		if ((data[0] & 7) < 5)
			said[i] = true;
		/* Its number is any. */
		if ((data[0] & 7) == 1)
			memset(said, 1, sizeof(said));
		step(q, i, data, &now_ns);
		take_in(q);
		only(q, said);
	}
}

static void open_all(struct stream_host *h, struct stream_qp *q)
{
	uint32_t i;

	for (i = 0; i < STREAMS; i++) {
		struct stream_addr peer = {.secret = i,
					   .mem = MEM(i),
					   .rkey = NUMBER(i),
					   .ring_size = RING,
					   .number = NUMBER(i),
					   .grows = true};

		skein_assert(!stream_new(h, RING, RING_MAX, &streams[i]));
		skein_assert(!stream_join(streams[i], q));
		skein_assert(!stream_connect(streams[i], &peer));
	}
}

/* One host for all runs; it keeps a slot, and so the memory that streams are
 * made of. */
static struct stream_host *host(void)
{
	static struct stream_host h;
	struct stream_slot slot;
	struct skein_env *env;

	if (h.env)
		return &h;
	skein_assert(!env_real_new(&env));
	dev.env = env;
	stream_host_init_lent(&h, env, &dev, NULL);
	skein_assert(!stream_host_get(&h, STREAM_WHOLE, RING, &slot));
	return &h;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct stream_host *h = host();
	uint64_t mem = h->mem;
	struct stream_qp *q;
	uint32_t i;

	f = (struct fake){0};
	skein_assert(!stream_qp_new(h, NULL, &q));
	q->credit = q->credit_max = STREAM_RECVS;
	f.sent = f.ended = q->posted;
	open_all(h, q);
	run(q, data, size);
	for (i = 0; i < STREAMS; i++)
		if (streams[i] && !streams[i]->left)
			stream_leave(streams[i]);
	take_in(q);
	stream_qp_free(q);
	skein_assert(!f.mrs && h->mem == mem);
	return 0;
}
