/* SPDX-License-Identifier: MIT */
/*
 * host.c - device and channel, and memory in chunks for several streams each,
 * so that a stream needs no descriptor of its own.
 */
#include "stream/host.h"
#include "env/env.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* Of a chunk, or one slot if that is longer. */
#define CHUNK_LEN (1152u << 10)
#define CHUNK_SLOTS_MAX 32u

struct stream_chunk {
	struct stream_chunk *next;
	uint8_t *mem;
	size_t len;
	int fd;
	enum stream_kind kind;
	uint32_t size;	/* index in host.chunks[kind] */
	uint32_t slots; /* all of them: one bit each */
	uint32_t taken;
};

/* In whole pages. */
static size_t slot_len(enum stream_kind kind, uint32_t size)
{
	size_t ring = (size_t)STREAM_RING_MIN << size;

	return kind == STREAM_WHOLE ? STREAM_HOST_LEN(ring) : ring;
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
	h->mem_max = STREAM_MEM_DEFAULT;
	h->dev = dev;
	rc = dev->ops->alloc_pd(dev, &h->pd);
	if (rc)
		return rc;
	rc = dev->ops->create_comp_channel(dev, &h->channel);
	if (rc)
		dev->ops->dealloc_pd(dev, h->pd);
	return rc;
}

void stream_host_init_lent(struct stream_host *h, struct skein_env *env,
			   struct dev *dev, struct ibv_pd *pd)
{
	memset(h, 0, sizeof(*h));
	h->env = env;
	h->mem_max = STREAM_MEM_DEFAULT;
	h->dev = dev;
	h->pd = pd;
	h->lent = true;
}

void stream_host_fini(struct stream_host *h)
{
	struct stream_chunk *c, *next;
	uint32_t i;

	for (i = 0; i < STREAM_KINDS * STREAM_SIZES; i++) {
		c = h->chunks[i / STREAM_SIZES][i % STREAM_SIZES];
		for (; c; c = next) {
			next = c->next;
			env_mem_free(h->env, c->fd, c->mem, c->len);
			env_free(h->env, c);
		}
	}
	if (h->lent)
		return;
	h->dev->ops->destroy_comp_channel(h->dev, h->channel);
	h->dev->ops->dealloc_pd(h->dev, h->pd);
	dev_close(h->dev);
}

static int chunk_new(struct stream_host *h, enum stream_kind kind,
		     uint32_t size, struct stream_chunk **chunk)
{
	struct stream_chunk *c = env_alloc(h->env, sizeof(*c));
	size_t n = CHUNK_LEN / slot_len(kind, size);
	void *mem;
	int rc;

	if (!c)
		return -ENOMEM;
	if (n < 1)
		n = 1;
	if (n > CHUNK_SLOTS_MAX)
		n = CHUNK_SLOTS_MAX;
	c->len = n * slot_len(kind, size);
	rc = env_mem_alloc(h->env, "skein-stream", c->len, &c->fd, &mem);
	if (rc) {
		env_free(h->env, c);
		return rc;
	}
	c->mem = mem;
	c->kind = kind;
	c->size = size;
	c->slots = n == 32 ? UINT32_MAX : (1u << n) - 1;
	c->next = h->chunks[kind][size];
	h->chunks[kind][size] = c;
	*chunk = c;
	return 0;
}

int stream_host_get(struct stream_host *h, enum stream_kind kind,
		    uint32_t ring_size, struct stream_slot *p)
{
	uint32_t size = stream_size_index(ring_size), i;
	struct stream_chunk *c = h->chunks[kind][size];
	size_t len = slot_len(kind, size);
	int rc;

	if (h->mem + len > h->mem_max) {
		/* A ring that does not grow is no failure. */
		if (kind != STREAM_PART && !h->mem_said)
			env_log(h->env, ENV_LOG_WARN,
				"a stream does not open: it needs %zu KiB, "
				"others hold %" PRIu64
				", and SKEIN_STREAM_MEM is %" PRIu64
				" KiB (said once)",
				(len + 1023) >> 10, h->mem >> 10,
				h->mem_max >> 10);
		h->mem_said |= kind != STREAM_PART;
		return -ENOMEM;
	}
	while (c && c->taken == c->slots)
		c = c->next;
	if (!c) {
		rc = chunk_new(h, kind, size, &c);
		if (rc)
			return rc;
	}
	i = (uint32_t)__builtin_ctz(~c->taken);
	c->taken |= 1u << i;
	h->mem += len;
	p->chunk = c;
	p->slot = i;
	p->fd = c->fd;
	p->off = i * len;
	p->mem = c->mem + p->off;
	return 0;
}

void stream_host_put(struct stream_host *h, const struct stream_slot *p)
{
	struct stream_chunk *c = p->chunk, **at = &h->chunks[c->kind][c->size];

	c->taken &= ~(1u << p->slot);
	h->mem -= slot_len(c->kind, c->size);
	if (c->taken)
		return;
	while (*at != c)
		at = &(*at)->next;
	*at = c->next;
	env_mem_free(h->env, c->fd, c->mem, c->len);
	env_free(h->env, c);
}

struct stream_qp *stream_host_event(struct stream_host *h)
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
