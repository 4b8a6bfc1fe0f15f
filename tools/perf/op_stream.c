/* SPDX-License-Identifier: MIT */
/*
 * op_stream.c - a byte stream (stream/stream.h), as `skein run` moves them. An
 * operation is --size bytes; the first says which it is, and the reader checks
 * it. Latency is a ping-pong. Throughput ends when the other end has read all.
 *
 * With the copy, bytes go from the writer's buffer into its mirror, and from the
 * ring into the reader's buffer; without it they are written and read in place.
 * The device copies once in both.
 */
#include "perf/ctl.h"
#include "perf/device.h"
#include "perf/op_raw.h"
#include "perf/probe.h"

#include "stream/conf.h"
#include "stream/stream.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define DRAIN_NS 1000000000u

/* One direction: `left` bytes of the operation under way. */
struct flow {
	uint64_t ops, done; /* of this slice */
	uint64_t size, left;
	uint8_t tag;
};

struct flows {
	struct perf_worker *w;
	struct skein_env *env;
	struct stream_host host;
	bool host_up;
	struct dev_qp_opts opts; /* SKEIN_RETRY_TIMEOUT and the like */
	struct stream_qp *q;
	struct stream *s;
	uint8_t *buf; /* p->o.size bytes */
	struct flow tx, rx;
	uint64_t began; /* ticks: the write under way */
};

static int broken(struct flows *f, int rc)
{
	return perf_fail(f->w->p, rc, "the stream broke: %s",
			 rc == -ECONNRESET ? "the other end has gone"
					   : strerror(-rc));
}

/* --- bytes ----------------------------------------------------------------- */

static ssize_t write_copied(struct flows *f)
{
	uint64_t at = f->tx.size - f->tx.left;
	struct iovec iov = {f->buf + at, f->tx.left};

	if (!at)
		f->buf[0] = f->tx.tag;
	return stream_write(f->s, &iov, 1);
}

static ssize_t write_in_place(struct flows *f)
{
	uint32_t room;
	uint8_t *at;
	int rc = stream_reserve(f->s, &at, &room);

	if (rc)
		return rc;
	if (room > f->tx.left)
		room = (uint32_t)f->tx.left;
	if (f->tx.left == f->tx.size)
		at[0] = f->tx.tag;
	rc = stream_commit(f->s, room);
	return rc ? rc : (ssize_t)room;
}

static bool step_over(struct flow *one, uint64_t n)
{
	one->left -= n;
	if (one->left)
		return false;
	one->tag++;
	one->done++;
	one->left = one->size;
	return true;
}

/* Writes what there is room for: 1, 0, or a negative errno. */
static int tx_step(struct flows *f)
{
	struct perf_worker *w = f->w;
	ssize_t n;

	if (f->tx.done == f->tx.ops)
		return 0;
	if (f->tx.left == f->tx.size && !f->began)
		f->began = ticks_now();
	n = w->p->o.no_copy ? write_in_place(f) : write_copied(f);
	if (n < 0)
		return n == -EAGAIN ? 0 : broken(f, (int)n);
	if (!step_over(&f->tx, (uint64_t)n))
		return 1;
	if (!w->p->server && w->p->o.rate) {
		hist_record(w->lat,
			    (uint64_t)((double)(ticks_now() - f->began) *
				       w->p->ns_per_tick));
		perf_chunk(w, f->tx.done);
	}
	f->began = 0;
	return 1;
}

/* Reads one record, or what belongs to the operation. As tx_step(). */
static int rx_step(struct flows *f)
{
	uint64_t at = f->rx.size - f->rx.left;
	enum stream_type type;
	const uint8_t *data;
	uint32_t len;
	int rc;

	if (f->rx.done == f->rx.ops)
		return 0;
	rc = stream_peek(f->s, &type, &data, &len);
	if (rc <= 0)
		return rc ? broken(f, rc) : 0;
	if (type != STREAM_DATA || (!at && data[0] != f->rx.tag))
		return broken(f, -EPROTO);
	if (len > f->rx.left)
		len = (uint32_t)f->rx.left;
	if (!f->w->p->o.no_copy)
		memcpy(f->buf + at, data, len);
	stream_consume(f->s, len);
	step_over(&f->rx, len);
	return 1;
}

/* As perf_spin(). What waits to read alone would not hear of a QP that failed. */
static bool spin(struct flows *f)
{
	struct perf_worker *w = f->w;

	if (!perf_spin(w))
		return false;
	if (w->spins % PERF_SPIN_ROUNDS)
		return true;
	stream_qp_reap(f->q);
	if (f->q->broken)
		w->rc = broken(f, f->q->broken);
	return !f->q->broken;
}

/* So many operations each way, of so many bytes. */
static int run(struct flows *f, uint64_t tx, uint64_t rx, uint64_t size)
{
	f->tx.ops = tx;
	f->rx.ops = rx;
	f->tx.done = f->rx.done = 0;
	f->tx.size = f->tx.left = f->rx.size = f->rx.left = size;
	while (f->tx.done < tx || f->rx.done < rx) {
		int out = tx_step(f), in = out < 0 ? out : rx_step(f);

		if (in < 0)
			return in;
		if (out || in) {
			perf_spun(f->w);
			continue;
		}
		stream_qp_poll(f->q);
		if (!spin(f))
			return f->w->rc;
	}
	return 0;
}

/* --- slices ---------------------------------------------------------------- */

static int stream_client(struct perf_worker *w)
{
	struct flows *f = w->state;
	uint64_t size = w->p->size, i, t0;
	int rc = 0;

	if (w->p->o.rate) {
		rc = run(f, w->n, w->p->o.both_ways ? w->n : 0, size);
		return rc ? rc : run(f, 0, 1, 1);
	}
	for (i = 0; i < w->n && !rc; i++) {
		t0 = ticks_now();
		rc = run(f, 1, 0, size);
		if (!rc)
			rc = run(f, 0, 1, size);
		hist_record(w->lat, (uint64_t)((double)(ticks_now() - t0) *
					       w->p->ns_per_tick));
	}
	return rc;
}

static int stream_server(struct perf_worker *w)
{
	struct flows *f = w->state;
	uint64_t size = w->p->size, i;
	int rc = 0;

	if (w->p->o.rate) {
		rc = run(f, w->p->o.both_ways ? w->n : 0, w->n, size);
		return rc ? rc : run(f, 1, 0, 1);
	}
	for (i = 0; i < w->n && !rc; i++) {
		rc = run(f, 0, 1, size);
		if (!rc)
			rc = run(f, 1, 0, size);
	}
	return rc;
}

/* --- up and down ----------------------------------------------------------- */

static json_t *addr_json(const struct stream_qp_addr *qp,
			 const struct stream_addr *a)
{
	return json_pack("{s:o, s:I, s:I, s:I, s:I, s:I, s:I, s:b}", "qp",
			 raw_addr_json(&qp->qp), "recvs", (json_int_t)qp->recvs,
			 "secret", (json_int_t)a->secret, "mem",
			 (json_int_t)a->mem, "rkey", (json_int_t)a->rkey,
			 "ring", (json_int_t)a->ring_size, "number",
			 (json_int_t)a->number, "checksum", a->checksum);
}

/* stream_connect() looks at the rest. */
static bool addr_parse(json_t *j, struct stream_qp_addr *q,
		       struct stream_addr *a)
{
	json_int_t recvs, secret, mem, rkey, ring, number;
	int checksum;
	json_t *qp;

	memset(a, 0, sizeof(*a));
	if (json_unpack(j, "{s:o, s:I, s:I, s:I, s:I, s:I, s:I, s:b}", "qp",
			&qp, "recvs", &recvs, "secret", &secret, "mem", &mem,
			"rkey", &rkey, "ring", &ring, "number", &number,
			"checksum", &checksum) ||
	    !raw_addr_parse(qp, &q->qp) || ring < 0 || ring > UINT32_MAX ||
	    recvs <= 0 || recvs > STREAM_NUMBER_MAX || number <= 0 ||
	    number > STREAM_NUMBER_MAX)
		return false;
	q->recvs = (uint32_t)recvs;
	a->number = (uint32_t)number;
	a->secret = (uint64_t)secret;
	a->mem = (uint64_t)mem;
	a->rkey = (uint32_t)rkey;
	a->ring_size = (uint32_t)ring;
	a->checksum = checksum;
	return true;
}

static int exchange(struct perf *p, struct flows *f)
{
	struct stream_qp_addr my_qp, its_qp;
	struct stream_addr mine, peer;
	json_t *msg;
	int rc;

	stream_addr(f->s, &mine);
	stream_qp_addr(f->q, &my_qp);
	rc = ctl_send(p->ctl, addr_json(&my_qp, &mine));
	if (rc)
		return perf_gone(p, rc);
	rc = perf_recv(p, PERF_PATIENCE_NS, &msg);
	if (rc)
		return rc;
	rc = addr_parse(msg, &its_qp, &peer) ? 0 : -EPROTO;
	json_decref(msg);
	if (rc == 0)
		rc = stream_qp_connect(f->q, &its_qp, &f->opts);
	if (rc == 0)
		rc = stream_connect(f->s, &peer);
	if (rc)
		return perf_fail(p, rc, "the stream cannot be connected: %s",
				 dev_qp_rtr_error(rc));
	stream_accept(f->s);
	/* The client may be first: it sends no step to a server that still looks
	 * on the control link for its end. */
	p->step_open = !p->server;
	while (!stream_accepted(f->s)) {
		stream_qp_poll(f->q);
		/* nothing is measured yet: the other end may say why not */
		if (!spin(f) || (f->w->spins % PERF_SPIN_ROUNDS == 0 &&
				 !perf_spin_slow(f->w)))
			return f->w->rc;
	}
	perf_spun(f->w);
	if (p->shm)
		return 0; /* steps come another way */
	return p->server ? step_done(p) : step_wait_done(p);
}

static int stream_open(struct perf *p)
{
	struct flows *f = calloc(1, sizeof(*f));
	struct stream_conf conf;
	struct dev *dev;
	char err[320] = "";
	int rc;

	p->state = f;
	if (!f)
		return -ENOMEM;
	rc = stream_conf_load(&conf, err, sizeof(err));
	if (rc)
		return perf_fail(p, rc, "%s", err);
	rc = raw_opts(p, &f->opts);
	if (rc)
		return rc;
	f->w = &p->workers[0];
	f->w->state = f;
	f->buf = calloc(1, p->o.size);
	if (!f->buf)
		return perf_fail(p, -ENOMEM, "no memory for %llu bytes",
				 (unsigned long long)p->o.size);
	rc = device_open(p->o.device, p->o.require, (int)p->o.gid_index,
			 &f->env, err, sizeof(err), &dev);
	if (rc)
		return perf_fail(p, rc, "%s", err);
	device_name(dev, p->device, sizeof(p->device));
	device_describe(dev, p->device_why, sizeof(p->device_why));
	rc = stream_host_init_on(&f->host, f->env, dev);
	if (rc) {
		dev_close(dev);
		return perf_fail(p, rc, "no queues on the device: %s",
				 strerror(-rc));
	}
	f->host.mem_max = conf.mem;
	f->host_up = true;
	rc = stream_qp_new(&f->host, f->host.channel, &f->q);
	if (rc == 0)
		rc = stream_new(&f->host, STREAM_RING_FIXED, 0, &f->s);
	if (rc == 0)
		rc = stream_join(f->s, f->q);
	if (rc)
		return perf_fail(p, rc, "no stream: %s", strerror(-rc));
	return exchange(p, f);
}

static void stream_counts(struct perf *p, struct perf_counts *c)
{
	const struct flows *f = p->state;

	*c = (struct perf_counts){
		.has_wrs = true,
		.wrs = f->host.stats.send_wrs,
		.doorbells = f->host.stats.doorbells,
		.messages = f->s->records,
		.link = dev_qp_link(f->host.dev, f->q->qp),
	};
}

static void stream_close(struct perf *p)
{
	struct flows *f = p->state;

	if (!f)
		return;
	if (f->s && f->s->connected)
		stream_drain(f->s, DRAIN_NS);
	if (f->s && !f->s->qp)
		stream_free(f->s);
	if (f->q)
		stream_qp_free(f->q); /* and a stream that has joined it */
	if (f->host_up)
		stream_host_fini(&f->host);
	device_close(f->env, NULL);
	free(f->buf);
	free(f);
	p->state = NULL;
}

const struct perf_op perf_op_stream = {
	.name = "stream",
	.open = stream_open,
	.client = stream_client,
	.server = stream_server,
	.counts = stream_counts,
	.close = stream_close,
};
