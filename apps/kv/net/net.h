/* SPDX-License-Identifier: MIT */
/*
 * net.h - what carries key-value calls on the client's side: Skein, or plain
 * TCP sockets, so that the same client runs over either.
 *
 * A fabric is a process's (a Skein context; nothing for TCP). A net is one
 * client thread's: it is run by that thread, and completes calls from within
 * kv_net_run(). A link is a connection to one shard of a server.
 *
 * Thread rule: fabrics open nets in one thread; a net and its links belong to
 * one thread.
 */
#ifndef KV_NET_NET_H
#define KV_NET_NET_H

#include <skein/conn.h>
#include <skein/ctx.h>
#include <skein/rpc.h>

enum kv_transport {
	KV_SKEIN,
	KV_TCP_SPIN,  /* nonblocking sockets, read until there is something */
	KV_TCP_BLOCK, /* sleeping in epoll_wait */
	KV_TRANSPORTS,
};

struct kv_fabric_attr {
	enum kv_transport transport;
	const char *device;    /* Skein: as skein_ctx_attr */
	enum skein_wait wait;  /* Skein */
	enum skein_return ret; /* Skein: of results */
	/* as skein_ctx_attr's */
	void (*log)(void *arg, enum skein_log_level level, const char *line);
	void *log_arg;
};

struct kv_net_ops;

/* Each begins what a transport puts there. */
struct kv_fabric {
	const struct kv_net_ops *ops;
};

struct kv_net {
	const struct kv_net_ops *ops;
};

struct kv_link {
	const struct kv_net_ops *ops;
	void *data; /* the client's */
};

struct kv_net_ops {
	int (*fabric_open)(const struct kv_fabric_attr *attr,
			   struct kv_fabric **fabric);
	void (*fabric_close)(struct kv_fabric *fabric);
	const char *(*device)(struct kv_fabric *fabric);
	int (*net_open)(struct kv_fabric *fabric, struct kv_net **net);
	void (*net_close)(struct kv_net *net);
	int (*run)(struct kv_net *net, uint64_t timeout_ns);
	void (*stop)(struct kv_net *net);
	int (*link_open)(struct kv_net *net, const char *addr, unsigned shard,
			 uint64_t timeout_ns, struct kv_link **link);
	void (*link_close)(struct kv_link *link);
	const char *(*link_error)(struct kv_link *link);
	int (*call)(struct kv_link *link, uint16_t op, const void *req,
		    size_t len, size_t resp_max, uint64_t timeout_ns,
		    skein_rpc_done_fn *done, void *arg);
	void (*flush)(struct kv_link *link);
};

extern const struct kv_net_ops kv_net_skein;
extern const struct kv_net_ops kv_net_tcp;

/* "skein", "tcp-spin", "tcp-block", and NULL. */
extern const char *const kv_transport_names[KV_TRANSPORTS + 1];
/* Of enum skein_wait, and NULL. */
extern const char *const kv_wait_names[];
/* Of enum skein_return, and NULL. */
extern const char *const kv_return_names[];

/* Returns what the transport says; the reason is logged in one line. */
int kv_fabric_open(const struct kv_fabric_attr *attr,
		   struct kv_fabric **fabric);

static inline void kv_fabric_close(struct kv_fabric *fabric)
{
	if (fabric)
		fabric->ops->fabric_close(fabric);
}

/* What it runs on, in words. Valid as long as the fabric. */
static inline const char *kv_fabric_device(struct kv_fabric *fabric)
{
	return fabric->ops->device(fabric);
}

static inline int kv_net_open(struct kv_fabric *fabric, struct kv_net **net)
{
	return fabric->ops->net_open(fabric, net);
}

/* After its links. */
static inline void kv_net_close(struct kv_net *net)
{
	if (net)
		net->ops->net_close(net);
}

/* Sends calls and completes them until kv_net_stop(): 0, or -ETIMEDOUT. Waits
 * by the transport's way. */
static inline int kv_net_run(struct kv_net *net, uint64_t timeout_ns)
{
	return net->ops->run(net, timeout_ns);
}

/* Ends kv_net_run(), now or when it is next called; by the net's thread. */
static inline void kv_net_stop(struct kv_net *net)
{
	net->ops->stop(net);
}

/* addr is "HOST:PORT". Blocks until connected. */
static inline int kv_link_open(struct kv_net *net, const char *addr,
			       unsigned shard, uint64_t timeout_ns,
			       struct kv_link **link)
{
	return net->ops->link_open(net, addr, shard, timeout_ns, link);
}

/* No call is under way. */
static inline void kv_link_close(struct kv_link *link)
{
	if (link)
		link->ops->link_close(link);
}

/* One line about why it broke; "" when it did not. */
static inline const char *kv_link_error(struct kv_link *link)
{
	return link->ops->link_error(link);
}

/* As skein_rpc_call_async(). */
static inline int kv_link_call(struct kv_link *link, uint16_t op,
			       const void *req, size_t len, size_t resp_max,
			       uint64_t timeout_ns, skein_rpc_done_fn *done,
			       void *arg)
{
	return link->ops->call(link, op, req, len, resp_max, timeout_ns, done,
			       arg);
}

/* Sends now what was gathered, rather than in kv_net_run(). An error shows in
 * the calls. */
static inline void kv_link_flush(struct kv_link *link)
{
	link->ops->flush(link);
}

#endif
