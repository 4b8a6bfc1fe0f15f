/* SPDX-License-Identifier: MIT */
/*
 * net.c - which transports there are, and what things are called.
 */
#include "kv/net/net.h"

#include "base/assert.h"

const char *const kv_transport_names[KV_TRANSPORTS + 1] = {
	[KV_SKEIN] = "skein",
	[KV_TCP_SPIN] = "tcp-spin",
	[KV_TCP_BLOCK] = "tcp-block",
};

const char *const kv_wait_names[] = {
	[SKEIN_WAIT_ADAPTIVE] = "adaptive",
	[SKEIN_WAIT_POLL] = "poll",
	[SKEIN_WAIT_SPIN] = "spin",
	[SKEIN_WAIT_EVENT] = "event",
	NULL,
};

const char *const kv_return_names[] = {
	[SKEIN_RETURN_DEFAULT] = "default",
	[SKEIN_RETURN_REPLY] = "reply",
	[SKEIN_RETURN_FETCH] = "fetch",
	[SKEIN_RETURN_AUTO] = "auto",
	NULL,
};

int kv_fabric_open(const struct kv_fabric_attr *attr, struct kv_fabric **fabric)
{
	static const struct kv_net_ops *const ops[KV_TRANSPORTS] = {
		&kv_net_skein,
		&kv_net_tcp,
		&kv_net_tcp,
	};

	skein_assert(attr->transport < KV_TRANSPORTS);
	return ops[attr->transport]->fabric_open(attr, fabric);
}
