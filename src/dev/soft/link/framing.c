/* SPDX-License-Identifier: MIT */
/*
 * framing.c - see framing.h.
 */
#include "dev/soft/link/framing.h"

#include "dev/soft/link/sealing.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#define ROUNDS 4
#define TX_BYTES (128u << 10)
#define RX_BYTES (256u << 10)

struct framing {
	struct skein_env *env;
	struct framing_ops ops;
	uint8_t rx[SEAL_RECORD_MAX + RX_BYTES];
	pthread_mutex_t lock; /* of sending */
	struct tcp_conn *tx_conn;
	size_t tx_len;
	uint8_t *sealed; /* SEALING_BYTES(TX_BYTES), where there is a key */
	uint8_t tx[TX_BYTES];
};

_Static_assert(SEAL_RECORD_MAX >= FRAME_HEAD + FRAME_MAX, "part, rx");

struct framing *framing_new(struct skein_env *env, bool seals,
			    const struct framing_ops *ops)
{
	struct framing *f = env_alloc(env, sizeof(*f));

	if (!f)
		return NULL;
	f->env = env;
	f->ops = *ops;
	pthread_mutex_init(&f->lock, NULL);
	if (seals)
		f->sealed = env_alloc(env, SEALING_BYTES(TX_BYTES));
	if (!seals || f->sealed)
		return f;
	framing_free(f);
	return NULL;
}

void framing_free(struct framing *f)
{
	if (!f)
		return;
	pthread_mutex_destroy(&f->lock);
	env_free(f->env, f->sealed);
	env_free(f->env, f);
}

/* What is left of len bytes is no whole frame, or (false) none at all. */
static bool take_frames(struct framing *f, struct tcp_conn *c,
			const uint8_t **at, size_t *len)
{
	enum frame_fault fault;
	const uint8_t *pkt;
	size_t n;

	while ((fault = frame_next(*at, *len, &pkt, &n)) == FRAME_OK) {
		f->ops.take(f->ops.owner, c, pkt, n);
		*at += FRAME_HEAD + n;
		*len -= FRAME_HEAD + n;
	}
	return fault == FRAME_MORE;
}

/* The same of records, each of whole frames. */
static bool take_records(struct framing *f, struct tcp_conn *c, uint8_t **at,
			 size_t *len)
{
	enum seal_fault fault;
	const uint8_t *frames;
	uint8_t *plain;
	size_t n, used;

	while ((fault = seal_next(c->seal, *at, *len, &plain, &n, &used)) ==
	       SEAL_OK) {
		if (c->state == TCP_PROVES && !f->ops.proved(f->ops.owner, c))
			return true;
		frames = plain;
		if (!take_frames(f, c, &frames, &n) || n)
			return false;
		*at += used;
		*len -= used;
	}
	return fault == SEAL_MORE;
}

static enum framing_end take_bytes(struct framing *f, struct tcp_conn *c,
				   size_t len)
{
	const uint8_t *at = f->rx;
	uint8_t *rec = f->rx;
	bool good;

	good = c->seal ? take_records(f, c, &rec, &len)
		       : take_frames(f, c, &at, &len);
	f->ops.take(f->ops.owner, NULL, NULL, 0);
	if (!good)
		return c->seal ? FRAMING_FORGED : FRAMING_GARBAGE;
	if (c->state != TCP_GONE) {
		if (len)
			memcpy(c->part, c->seal ? rec : at, len);
		c->part_len = len;
	}
	return FRAMING_GOES_ON;
}

enum framing_end framing_read(struct framing *f, struct tcp_conn *c)
{
	enum framing_end end;
	size_t had;
	ssize_t n;
	int i;

	/* The short messages of another one do not wait for all of it. */
	for (i = 0; i < (c->is_bulk ? 1 : ROUNDS) && c->state != TCP_GONE;
	     i++) {
		had = c->part_len;
		n = recv(c->src.fd, f->rx + had, RX_BYTES, 0);
		if (n < 0 && (errno == EAGAIN || errno == EINTR))
			break;
		if (n <= 0)
			return c->seal && c->part_len ? FRAMING_CUT
						      : FRAMING_ENDED;
		if (had)
			memcpy(f->rx, c->part, had);
		end = take_bytes(f, c, had + (size_t)n);
		if (end != FRAMING_GOES_ON)
			return end;
		if ((size_t)n < RX_BYTES)
			break;
	}
	return FRAMING_GOES_ON;
}

/* What is not sent is lost, and c's reader finds out. */
static void fail(struct tcp_conn *c)
{
	c->failed = true;
	shutdown(c->src.fd, SHUT_RDWR);
}

/* How many bytes the socket has taken; all of them of one that fails. */
static size_t put(struct tcp_conn *c, const uint8_t *buf, size_t len)
{
	size_t at = 0;
	ssize_t n;

	while (at < len && !c->failed) {
		n = send(c->src.fd, buf + at, len - at,
			 MSG_NOSIGNAL | MSG_DONTWAIT);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN)
			return at;
		if (n < 0)
			fail(c);
		else
			at += (size_t)n;
	}
	return len;
}

static void flush(struct framing *f)
{
	struct tcp_conn *c = f->tx_conn;
	size_t done, len = f->tx_len;
	const uint8_t *out = f->tx;
	int was;

	f->tx_conn = NULL;
	f->tx_len = 0;
	if (!len)
		return;
	if (c->seal && !c->failed) {
		len = sealing_put(c, f->tx, len, f->sealed);
		out = f->sealed;
	}
	was = env_cancel_off(NULL);
	done = put(c, out, len);
	env_cancel_back(NULL, was);
	if (done == len)
		return;
	c->rest = env_alloc(f->env, len - done);
	if (!c->rest) {
		fail(c);
		return;
	}
	memcpy(c->rest, out + done, len - done);
	c->rest_at = 0;
	c->rest_len = len - done;
	f->ops.watch(f->ops.owner, c, EPOLLIN | EPOLLOUT);
}

bool framing_write_rest(struct framing *f, struct tcp_conn *c)
{
	bool over = false;

	pthread_mutex_lock(&f->lock);
	if (c->rest) {
		c->rest_at +=
			put(c, c->rest + c->rest_at, c->rest_len - c->rest_at);
		over = c->rest_at == c->rest_len;
	}
	if (over) {
		env_free(f->env, c->rest);
		c->rest = NULL;
		f->ops.watch(f->ops.owner, c, EPOLLIN);
	}
	pthread_mutex_unlock(&f->lock);
	return over;
}

void framing_forget(struct framing *f, struct tcp_conn *c)
{
	pthread_mutex_lock(&f->lock);
	c->failed = true;
	env_free(f->env, c->rest);
	c->rest = NULL;
	pthread_mutex_unlock(&f->lock);
}

void framing_lock(struct framing *f)
{
	pthread_mutex_lock(&f->lock);
}

uint8_t *framing_begin(struct framing *f, struct tcp_conn *c)
{
	if (f->tx_conn != c || f->tx_len + FRAME_HEAD + PACKET_MAX > TX_BYTES)
		flush(f);
	return c->rest ? NULL : f->tx + f->tx_len + FRAME_HEAD;
}

void framing_send(struct framing *f, struct tcp_conn *c, size_t len)
{
	if (c->failed)
		return;
	frame_put(f->tx + f->tx_len, len);
	f->tx_len += FRAME_HEAD + len;
	f->tx_conn = c;
}

void framing_unlock(struct framing *f)
{
	flush(f);
	pthread_mutex_unlock(&f->lock);
}
