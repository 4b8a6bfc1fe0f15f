/* SPDX-License-Identifier: MIT */
/*
 * stream.c - see stream.h.
 */
#include "kv/net/stream.h"

#include "base/assert.h"
#include "base/bytes.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

/* a SCAN of 100 records of YCSB's default size fits */
#define BUF_MIN (256u << 10)

int kv_stream_init(struct kv_stream *s, int fd)
{
	struct kv_stream n = {.fd = fd, .in_cap = BUF_MIN, .out_cap = BUF_MIN};
	int one = 1, flags = fcntl(fd, F_GETFL);

	if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0 ||
	    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one)) < 0)
		return -errno;
	n.in = malloc(n.in_cap);
	n.out = malloc(n.out_cap);
	if (!n.in || !n.out) {
		free(n.in);
		free(n.out);
		return -ENOMEM;
	}
	*s = n;
	return 0;
}

void kv_stream_fini(struct kv_stream *s)
{
	close(s->fd);
	free(s->in);
	free(s->out);
	*s = (struct kv_stream){.fd = -1};
}

int kv_stream_recv(struct kv_stream *s)
{
	ssize_t n;

	if (s->in_pos == s->in_end) {
		s->in_pos = s->in_end = 0;
	} else if (s->in_cap - s->in_end < s->in_cap / 4) {
		memmove(s->in, s->in + s->in_pos, s->in_end - s->in_pos);
		s->in_end -= s->in_pos;
		s->in_pos = 0;
	}
	skein_assert(s->in_end < s->in_cap);
	n = recv(s->fd, s->in + s->in_end, s->in_cap - s->in_end, 0);
	if (n < 0)
		return errno == EAGAIN || errno == EINTR ? 0 : -errno;
	if (n == 0)
		return -ECONNRESET;
	s->in_end += (size_t)n;
	return (int)n;
}

/* The frame that begins at in_pos needs len bytes: there must be room to read
 * the rest of it. */
static int make_room(struct kv_stream *s, size_t len)
{
	size_t cap = s->in_cap;
	uint8_t *p;

	if (s->in_pos + len <= s->in_cap)
		return 0;
	memmove(s->in, s->in + s->in_pos, s->in_end - s->in_pos);
	s->in_end -= s->in_pos;
	s->in_pos = 0;
	while (cap < len)
		cap *= 2;
	if (cap == s->in_cap)
		return 0;
	p = realloc(s->in, cap);
	if (!p)
		return -ENOMEM;
	s->in = p;
	s->in_cap = cap;
	return 0;
}

int kv_stream_frame(struct kv_stream *s, uint32_t max, struct kv_frame *f)
{
	struct bytes_in in = bytes_in(s->in + s->in_pos, s->in_end - s->in_pos);
	struct kv_frame got;
	uint16_t mark;

	got.len = bytes_get_u32(&in);
	got.op = bytes_get_u16(&in);
	mark = bytes_get_u16(&in);
	got.seq = bytes_get_u32(&in);
	got.aux = bytes_get_u32(&in);
	if (in.failed)
		return make_room(s, KV_FRAME_HEAD);
	if (mark != KV_FRAME_MARK || got.len > max)
		return -EPROTO;
	got.data = bytes_get(&in, got.len);
	if (in.failed)
		return make_room(s, KV_FRAME_HEAD + got.len);
	s->in_pos += in.pos;
	*f = got;
	return 1;
}

uint8_t *kv_stream_reserve(struct kv_stream *s, size_t len)
{
	size_t need = KV_FRAME_HEAD + len, cap = s->out_cap;
	uint8_t *p;

	if (s->out_pos == s->out_end)
		s->out_pos = s->out_end = 0;
	if (s->out_end + need > cap) {
		memmove(s->out, s->out + s->out_pos, kv_stream_unsent(s));
		s->out_end -= s->out_pos;
		s->out_pos = 0;
	}
	while (s->out_end + need > cap)
		cap *= 2;
	if (cap != s->out_cap) {
		p = realloc(s->out, cap);
		if (!p)
			return NULL;
		s->out = p;
		s->out_cap = cap;
	}
	return s->out + s->out_end + KV_FRAME_HEAD;
}

void kv_stream_commit(struct kv_stream *s, const struct kv_frame *f)
{
	struct bytes_out out = bytes_out(s->out + s->out_end, KV_FRAME_HEAD);

	skein_assert(s->out_end + KV_FRAME_HEAD + f->len <= s->out_cap);
	bytes_put_u32(&out, f->len);
	bytes_put_u16(&out, f->op);
	bytes_put_u16(&out, KV_FRAME_MARK);
	bytes_put_u32(&out, f->seq);
	bytes_put_u32(&out, f->aux);
	s->out_end += KV_FRAME_HEAD + f->len;
}

int kv_stream_send(struct kv_stream *s)
{
	while (kv_stream_unsent(s)) {
		ssize_t n = send(s->fd, s->out + s->out_pos,
				 kv_stream_unsent(s), MSG_NOSIGNAL);

		if (n < 0 && errno == EAGAIN)
			return 1;
		if (n < 0 && errno != EINTR)
			return -errno;
		if (n > 0)
			s->out_pos += (size_t)n;
	}
	return 0;
}
