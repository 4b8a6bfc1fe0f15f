/* SPDX-License-Identifier: MIT */
/*
 * link.c - bytes in and out of a control link's socket.
 */
#include "conn/peer/link.h"

#include "base/pow2.h"

#include <errno.h>
#include <sys/epoll.h>

void conn_link_init(struct conn_link *l, struct skein_env *env, int fd,
		    struct conn_vqp *vqp)
{
	memset(l, 0, sizeof(*l));
	l->env = env;
	l->fd = fd;
	l->vqp = vqp;
	if (vqp)
		vqp->refs++;
}

void conn_link_fini(struct conn_link *l)
{
	conn_link_detach(l);
	if (l->fd >= 0)
		env_sock_close(l->env, l->fd);
	l->fd = -1;
	if (l->vqp) {
		l->vqp->peer = NULL;
		conn_vqp_put(l->vqp);
	}
	l->vqp = NULL;
	env_free(l->env, l->carry);
	env_free(l->env, l->out);
	l->carry = l->out = NULL;
	l->carry_len = l->out_len = l->out_cap = 0;
}

static int watch(struct conn_link *l, bool out)
{
	uint32_t events = EPOLLIN | (out ? (uint32_t)EPOLLOUT : 0);
	int rc = env_waiter_watch(l->env, l->w, l->fd, events);

	if (rc == 0)
		l->watch_out = out;
	return rc;
}

int conn_link_attach(struct conn_link *l, struct env_waiter *w, bool out)
{
	int rc;

	l->w = w;
	rc = watch(l, out || l->out_len);
	if (rc)
		l->w = NULL;
	return rc;
}

void conn_link_detach(struct conn_link *l)
{
	if (l->w)
		env_waiter_unwatch(l->env, l->w, l->fd);
	l->w = NULL;
}

static int queue(struct conn_link *l, const uint8_t *buf, size_t len)
{
	size_t need = l->out_len + len, cap;
	uint8_t *p;

	if (need > CONN_LINK_OUT_MAX)
		return -ENOBUFS;
	if (need > l->out_cap) {
		cap = doubled_to(1024, need);
		p = env_alloc(l->env, cap);
		if (!p)
			return -ENOMEM;
		if (l->out_len)
			memcpy(p, l->out, l->out_len);
		env_free(l->env, l->out);
		l->out = p;
		l->out_cap = (uint32_t)cap;
	}
	memcpy(l->out + l->out_len, buf, len);
	l->out_len += (uint32_t)len;
	return l->w && !l->watch_out ? watch(l, true) : 0;
}

static ssize_t send_now(struct conn_link *l, const void *buf, size_t len)
{
	return l->vqp ? conn_pool_ops->send(l->vqp, buf, len)
		      : env_sock_send(l->env, l->fd, buf, len);
}

ssize_t conn_link_recv(struct conn_link *l, void *buf, size_t len)
{
	if (!l->vqp)
		return env_sock_recv(l->env, l->fd, buf, len);
	if (!l->in_len)
		return -EAGAIN;
	if (len > l->in_len)
		len = l->in_len;
	memcpy(buf, l->in, len);
	l->in += len;
	l->in_len -= (uint32_t)len;
	return (ssize_t)len;
}

int conn_link_error(struct conn_link *l)
{
	return l->vqp ? 0 : env_sock_error(l->env, l->fd);
}

int conn_link_send(struct conn_link *l, const void *buf, size_t len)
{
	ssize_t n = 0;

	if (!l->out_len)
		n = send_now(l, buf, len);
	if (n == -EAGAIN)
		n = 0;
	if (n < 0)
		return (int)n;
	if ((size_t)n == len)
		return 0;
	return queue(l, (const uint8_t *)buf + n, len - (size_t)n);
}

int conn_link_flush(struct conn_link *l)
{
	ssize_t n;

	if (!l->out_len)
		return l->w && l->watch_out ? watch(l, false) : 0;
	n = send_now(l, l->out, l->out_len);
	if (n == -EAGAIN)
		return 0;
	if (n < 0)
		return (int)n;
	memmove(l->out, l->out + n, l->out_len - (size_t)n);
	l->out_len -= (uint32_t)n;
	if (l->out_len)
		return 0;
	env_free(l->env, l->out);
	l->out = NULL;
	l->out_cap = 0;
	return l->w ? watch(l, false) : 0;
}

size_t conn_link_uncarry(struct conn_link *l, uint8_t *buf)
{
	size_t len = l->carry_len;

	if (!len)
		return 0;
	memcpy(buf, l->carry, len);
	env_free(l->env, l->carry);
	l->carry = NULL;
	l->carry_len = 0;
	return len;
}

int conn_link_carry(struct conn_link *l, const uint8_t *buf, size_t len)
{
	if (!len)
		return 0;
	l->carry = env_alloc(l->env, len);
	if (!l->carry)
		return -ENOMEM;
	memcpy(l->carry, buf, len);
	l->carry_len = (uint32_t)len;
	return 0;
}
