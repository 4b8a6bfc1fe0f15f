/* SPDX-License-Identifier: MIT */
/*
 * ring.c - RR-Compound's figure 12: one client's bandwidth by the size of its
 * calls and of the ring, with our ring's two halves (stream/ring.h).
 *
 * A call that does not fit the ring goes in pieces. Each piece costs both ends
 * what a small call costs them: the reader takes it out and returns Head, the
 * writer sees the room and goes on (assumed). The reader returns Head when half
 * a ring is consumed, and with the answer.
 */
#include "sim/rrc/rrc.h"

#include "stream/ring.h"

#include <stdlib.h>

#define SECRET 0x5eed5eed5eed5eedull
#define CALLS 50u

static const unsigned call_kib[] = {8, 32, 64, 128, 256};
static const unsigned ring_kib[] = {32, 64, 128, 256, 1024, 4096};

/* One connection: the writer's clock, the reader's, and when Head comes. */
struct wire {
	struct stream_out out;
	struct stream_in in;
	uint8_t *ring;
	uint64_t writer_ns, reader_ns, head_ns, head;
	unsigned pieces;
};

/* All that has arrived is consumed. */
static int read_all(struct wire *w)
{
	enum stream_type type;
	const uint8_t *data;
	uint32_t len;
	int rc;

	while ((rc = stream_in_peek(&w->in, &type, &data, &len)) > 0)
		stream_in_consume(&w->in, len);
	return rc;
}

static int read_piece(struct wire *w, uint64_t at)
{
	w->reader_ns = (at > w->reader_ns ? at : w->reader_ns) + RRC_CALL_NS;
	if (read_all(w))
		return -EPROTO;
	if (stream_in_owes(&w->in)) {
		w->in.head_sent = w->head = w->in.pos;
		w->head_ns = w->reader_ns + RRC_WIRE_NS;
	}
	return 0;
}

/* The writer has no room: it waits for Head. */
static int await_head(struct wire *w)
{
	if (w->head == w->out.head)
		return -EDEADLK;
	if (w->writer_ns < w->head_ns)
		w->writer_ns = w->head_ns;
	w->writer_ns += RRC_CALL_NS;
	return stream_out_head(&w->out, w->head);
}

static int write_call(struct wire *w, uint32_t left)
{
	struct stream_place p;
	uint32_t len;
	int rc = 0;

	while (left && !rc) {
		if (!stream_out_place(&w->out, STREAM_DATA, &p)) {
			rc = await_head(w);
			continue;
		}
		len = left < p.room ? left : p.room;
		stream_out_seal(&w->out, &p, STREAM_DATA, w->ring + p.off, len);
		w->writer_ns += len * (uint64_t)RRC_BYTE_PS / 1000;
		w->pieces++;
		left -= len;
		if (left)
			rc = read_piece(w, w->writer_ns + RRC_WIRE_NS);
	}
	if (rc || read_all(w))
		return rc ? rc : -EPROTO;
	/* The answer, with Head. */
	if (w->writer_ns < w->reader_ns)
		w->writer_ns = w->reader_ns;
	w->writer_ns += RRC_CALL_12_NS;
	w->in.head_sent = w->head = w->in.pos;
	return stream_out_head(&w->out, w->head);
}

static int gbps(unsigned call, unsigned ring, double *rate, double *pieces)
{
	struct wire w = {.ring = calloc(1, (size_t)ring << 10)};
	int rc = w.ring ? 0 : -ENOMEM;

	stream_out_init(&w.out, SECRET, ring << 10, false);
	stream_in_init(&w.in, w.ring, SECRET, ring << 10, false);
	for (unsigned i = 0; i < CALLS && !rc; i++)
		rc = write_call(&w, call << 10);
	free(w.ring);
	if (rc)
		return rc;
	*rate = 8.0 * CALLS * (call << 10) / (double)w.writer_ns;
	*pieces = (double)w.pieces / CALLS;
	return 0;
}

/* In the text: 8.1 and 16.2 Gb/s with 32 KiB; "more than doubles" at 256. */
static double paper(unsigned call, unsigned ring)
{
	if (call == 8)
		return 8.1;
	if (call == 128)
		return ring == 32 ? 16.2 : ring == 256 ? 2 * 16.2 : 0;
	return 0;
}

static void columns(struct report *rep)
{
	static const char *const cols[] = {"call_kib", "ring_kib", "gbps",
					   "paper",    "error_%",  "fitted",
					   "pieces"};

	rep->ok = true;
	rep->table.n_cols = 7;
	for (unsigned c = 0; c < 7; c++)
		rep->table.cols[c] = cols[c];
}

static int rrc_ring(const struct scenario_conf *sc, struct report *rep)
{
	double rate, pieces, is;
	int rc = 0;

	(void)sc;
	columns(rep);
	for (unsigned c = 0; c < sizeof(call_kib) / sizeof(*call_kib); c++) {
		for (unsigned r = 0; r < sizeof(ring_kib) / sizeof(*ring_kib);
		     r++) {
			rc = gbps(call_kib[c], ring_kib[r], &rate, &pieces);
			if (rc)
				return rc;
			is = paper(call_kib[c], ring_kib[r]);
			report_line(rep, "",
				    (double[]){call_kib[c], ring_kib[r], rate,
					       report_paper(is),
					       report_error(rate, is),
					       call_kib[c] == 8 &&
						       ring_kib[r] == 32,
					       pieces});
		}
	}
	return rc;
}

const struct scenario scenario_rrc_ring = {
	.name = "rrc-ring",
	.what = "bandwidth by the size of the ring (RR-Compound fig. 12)",
	.own_nics = true,
	.run = rrc_ring,
};
