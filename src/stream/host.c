/* SPDX-License-Identifier: MIT */
/*
 * host.c - what the streams of a process share: the device, the channel at
 * which bells arrive, and memory in chunks for several streams each, so that a
 * stream needs no descriptor of its own.
 */
#include "env/env.h"
#include "stream/stream.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define CHUNK_SLOTS 8u

struct stream_chunk {
	struct stream_chunk *next;
	uint8_t *mem;
	size_t len;
	int fd;
	uint32_t taken; /* one bit for each slot */
};

/* Control words, ring and mirror of one stream, in whole pages. */
static size_t slot_len(const struct stream_host *h)
{
	return 2 * (size_t)h->ring_size + 4096;
}

int stream_host_init(struct stream_host *h, struct skein_env *env,
		     const char *device, char *err, size_t err_len)
{
	struct dev *dev;
	int rc;

	rc = dev_open(env, device, -1, err, err_len, &dev);
	if (rc)
		return rc;
	rc = stream_host_init_on(h, env, dev);
	if (rc) {
		dev_close(dev);
		snprintf(err, err_len, "no queues on the device: %s",
			 strerror(-rc));
	}
	return rc;
}

int stream_host_init_on(struct stream_host *h, struct skein_env *env,
			struct dev *dev)
{
	int rc;

	memset(h, 0, sizeof(*h));
	h->env = env;
	h->dev = dev;
	h->ring_size = STREAM_RING_DEFAULT;
	rc = dev->ops->alloc_pd(dev, &h->pd);
	if (rc)
		return rc;
	rc = dev->ops->create_comp_channel(dev, &h->channel);
	if (rc)
		dev->ops->dealloc_pd(dev, h->pd);
	return rc;
}

void stream_host_init_lent(struct stream_host *h, struct skein_env *env,
			   struct dev *dev, struct ibv_pd *pd,
			   uint32_t ring_size)
{
	memset(h, 0, sizeof(*h));
	h->env = env;
	h->dev = dev;
	h->pd = pd;
	h->ring_size = ring_size;
	h->lent = true;
}

void stream_host_fini(struct stream_host *h)
{
	struct stream_chunk *c, *next;

	for (c = h->chunks; c; c = next) {
		next = c->next;
		env_mem_free(h->env, c->fd, c->mem, c->len);
		env_free(h->env, c);
	}
	if (h->lent)
		return;
	h->dev->ops->destroy_comp_channel(h->dev, h->channel);
	h->dev->ops->dealloc_pd(h->dev, h->pd);
	dev_close(h->dev);
}

static int chunk_new(struct stream_host *h, struct stream_chunk **chunk)
{
	struct stream_chunk *c = env_alloc(h->env, sizeof(*c));
	void *mem;
	int rc;

	if (!c)
		return -ENOMEM;
	c->len = CHUNK_SLOTS * slot_len(h);
	rc = env_mem_alloc(h->env, "skein-stream", c->len, &c->fd, &mem);
	if (rc) {
		env_free(h->env, c);
		return rc;
	}
	c->mem = mem;
	c->next = h->chunks;
	h->chunks = c;
	*chunk = c;
	return 0;
}

int stream_host_get(struct stream_host *h, struct stream_chunk **chunk,
		    uint32_t *slot, uint8_t **mem, int *fd, uint64_t *off)
{
	const uint32_t all = (1u << CHUNK_SLOTS) - 1;
	struct stream_chunk *c = h->chunks;
	uint32_t i;
	int rc;

	while (c && c->taken == all)
		c = c->next;
	if (!c) {
		rc = chunk_new(h, &c);
		if (rc)
			return rc;
	}
	i = (uint32_t)__builtin_ctz(~c->taken);
	c->taken |= 1u << i;
	*chunk = c;
	*slot = i;
	*fd = c->fd;
	*off = i * slot_len(h);
	*mem = c->mem + *off;
	return 0;
}

void stream_host_put(struct stream_host *h, struct stream_chunk *c,
		     uint32_t slot)
{
	struct stream_chunk **at = &h->chunks;

	c->taken &= ~(1u << slot);
	if (c->taken)
		return;
	while (*at != c)
		at = &(*at)->next;
	*at = c->next;
	env_mem_free(h->env, c->fd, c->mem, c->len);
	env_free(h->env, c);
}

struct stream *stream_host_event(struct stream_host *h)
{
	struct ibv_cq *cq;

	if (h->dev->ops->get_cq_event(h->dev, h->channel, &cq))
		return NULL;
	h->dev->ops->ack_cq_events(h->dev, cq, 1);
	h->stats.wakeups++;
	/* Armed before it is polled: a bell that comes after the poll causes
	 * another event. */
	dev_req_notify_cq(cq, 0);
	return cq->cq_context;
}
