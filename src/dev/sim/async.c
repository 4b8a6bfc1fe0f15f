/* SPDX-License-Identifier: MIT */
/*
 * async.c - asynchronous events of a simulated device, by a counting
 * descriptor.
 */
#include "dev/sim/sim_dev.h"

#include <errno.h>

void sim_async(struct sim_dev *d, enum ibv_event_type type, void *element)
{
	struct sim_async *a = env_alloc(d->dev.env, sizeof(*a));

	/* As on a NIC whose event queue is full. */
	if (!a)
		return;
	a->ev.event_type = type;
	/* A union of pointers, and the port. */
	if (element)
		a->ev.element.qp = element;
	else
		a->ev.element.port_num = d->dev.port;
	list_add_tail(&d->events, &a->link);
	sim_fd_add(d->proc, d->vctx.context.async_fd, 1);
}

int sim_get_async(struct dev *dev, struct ibv_async_event *ev)
{
	struct sim_dev *d = sim_dev_of(dev);
	struct list_node *n = list_pop_head(&d->events);
	struct sim_async *a;

	if (!n)
		return -EAGAIN;
	a = container_of(n, struct sim_async, link);
	*ev = a->ev;
	env_free(d->dev.env, a);
	sim_fd_add(d->proc, d->vctx.context.async_fd, -1);
	return 0;
}

/* There is one OS thread, so no object is destroyed between get and ack. */
void sim_ack_async(struct dev *dev, struct ibv_async_event *ev)
{
	(void)dev;
	(void)ev;
}

void sim_async_drop(struct sim_dev *d, const void *object)
{
	struct list_node *n, *tmp;

	list_for_each_safe(n, tmp, &d->events) {
		struct sim_async *a = container_of(n, struct sim_async, link);

		if (object && a->ev.element.qp != object)
			continue;
		list_del(n);
		env_free(d->dev.env, a);
		sim_fd_add(d->proc, d->vctx.context.async_fd, -1);
	}
}
