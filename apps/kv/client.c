/* SPDX-License-Identifier: MIT */
/*
 * client.c - see client.h.
 */
#include "kv/client.h"

#include "base/list.h"
#include "kv/store/hash.h"
#include "kv/store/scan.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

/* One SCAN under way; kept for the next one when it has ended. */
struct scan {
	struct list_node link;
	struct kv_client *client;
	kv_scan_done_fn *done;
	void *arg;
	unsigned pending;
	int status;
	enum skein_outcome outcome;
	struct kv_merge merge;
	struct scan_part {
		struct scan *scan;
		unsigned shard;
	} parts[];
};

struct kv_client {
	struct kv_net *net;
	uint64_t timeout_ns;
	struct kv_info info;
	struct list_node scans; /* free ones */
	struct kv_link **links;
	unsigned link_count;
	uint8_t req[KV_REQ_MAX];
};

struct info_call {
	struct kv_client *client;
	bool done;
	int rc;
};

static void info_done(void *arg, const struct skein_rpc_result *res)
{
	struct info_call *call = arg;

	call->done = true;
	call->rc = res->status;
	if (!res->status)
		call->rc = kv_info_decode(res->data, res->len,
					  &call->client->info);
	kv_net_stop(call->client->net);
}

static int ask_info(struct kv_client *c)
{
	struct info_call call = {.client = c};
	int rc;

	rc = kv_link_call(c->links[0], KV_INFO, NULL, 0, KV_INFO_LEN,
			  c->timeout_ns, info_done, &call);
	if (rc)
		return rc;
	/* the call has a deadline of its own; an old kv_net_stop() may end a
	 * run early */
	while (!call.done)
		kv_net_run(c->net, SKEIN_S(1));
	return call.rc;
}

static int open_link(struct kv_client *c, const char *addr, unsigned shard)
{
	int rc;

	rc = kv_link_open(c->net, addr, shard, c->timeout_ns, &c->links[shard]);
	if (!rc)
		c->link_count = shard + 1;
	return rc;
}

static int open_others(struct kv_client *c, const char *addr)
{
	struct kv_link **p;
	int rc = 0;

	p = realloc(c->links, c->info.shards * sizeof(struct kv_link *));
	if (!p)
		return -ENOMEM;
	c->links = p;
	for (unsigned i = 1; i < c->info.shards && !rc; i++)
		rc = open_link(c, addr, i);
	return rc;
}

int kv_client_open(struct kv_net *net, const char *addr, uint64_t timeout_ns,
		   struct kv_client **client)
{
	struct kv_client *c = calloc(1, sizeof(*c));
	int rc = -ENOMEM;

	if (!c)
		return rc;
	c->net = net;
	c->timeout_ns = timeout_ns;
	list_init(&c->scans);
	c->links = calloc(1, sizeof(struct kv_link *));
	if (!c->links)
		goto err_client;
	rc = open_link(c, addr, 0);
	if (rc)
		goto err_client; /* the transport said why */
	rc = ask_info(c);
	if (!rc && c->info.version != KV_PROTO_VERSION)
		rc = -EPROTO;
	if (!rc)
		rc = open_others(c, addr);
	if (rc)
		goto err_said;
	*client = c;
	return 0;

err_said:
	fprintf(stderr, "skein: %s is no key-value server of ours: %s\n", addr,
		skein_strerror(rc));
err_client:
	kv_client_close(c);
	return rc;
}

void kv_client_close(struct kv_client *c)
{
	struct list_node *n, *tmp;

	if (!c)
		return;
	list_for_each_safe(n, tmp, &c->scans) {
		struct scan *s = container_of(n, struct scan, link);

		kv_merge_fini(&s->merge);
		free(s);
	}
	for (unsigned i = 0; i < c->link_count; i++)
		kv_link_close(c->links[i]);
	free(c->links);
	free(c);
}

const struct kv_info *kv_client_info(const struct kv_client *c)
{
	return &c->info;
}

const char *kv_client_error(struct kv_client *c)
{
	const char *text = "";

	for (unsigned i = 0; i < c->link_count && !text[0]; i++)
		text = kv_link_error(c->links[i]);
	return text;
}

int kv_client_call(struct kv_client *c, const struct kv_req *req,
		   size_t resp_max, skein_rpc_done_fn *done, void *arg)
{
	uint64_t hash = kv_hash(req->key, req->key_len);
	size_t len = 0;
	int rc;

	rc = kv_req_encode(req, c->req, sizeof(c->req), &len);
	if (rc)
		return rc;
	return kv_link_call(c->links[kv_hash_shard(hash, c->link_count)],
			    (uint16_t)req->op, c->req, len, resp_max,
			    c->timeout_ns, done, arg);
}

void kv_client_flush(struct kv_client *c)
{
	for (unsigned i = 0; i < c->link_count; i++)
		kv_link_flush(c->links[i]);
}

static struct scan *scan_get(struct kv_client *c)
{
	struct list_node *n = list_pop_head(&c->scans);
	struct scan *s;

	if (n)
		return container_of(n, struct scan, link);
	s = calloc(1, sizeof(*s) + c->link_count * sizeof(s->parts[0]));
	if (!s)
		return NULL;
	if (kv_merge_init(&s->merge, c->link_count)) {
		free(s);
		return NULL;
	}
	s->client = c;
	for (unsigned i = 0; i < c->link_count; i++)
		s->parts[i] = (struct scan_part){s, i};
	return s;
}

static void scan_end(struct scan *s)
{
	struct kv_scan_result res = {.outcome = s->outcome};

	if (!s->status)
		s->status = kv_merge_finish(&s->merge);
	res.status = s->status;
	if (!res.status) {
		res.count = s->merge.count;
		res.more = s->merge.more;
		res.items = s->merge.items;
	}
	/* it may scan again: this one is not free before it has returned */
	s->done(s->arg, &res);
	list_add_head(&s->client->scans, &s->link);
}

static void scan_fail(struct scan *s, int status, enum skein_outcome outcome)
{
	if (s->status)
		return; /* the first failure tells */
	s->status = status;
	s->outcome = outcome;
}

static void scan_part_done(void *arg, const struct skein_rpc_result *res)
{
	struct scan_part *p = arg;
	struct scan *s = p->scan;
	int rc = res->status;

	if (!rc)
		rc = kv_merge_add(&s->merge, p->shard, res->data, res->len);
	if (rc)
		scan_fail(s, rc, res->outcome);
	if (!--s->pending)
		scan_end(s);
}

int kv_client_scan(struct kv_client *c, const void *key, size_t key_len,
		   uint32_t count, size_t resp_max, kv_scan_done_fn *done,
		   void *arg)
{
	struct kv_req req = {
		.op = KV_SCAN, .key = key, .key_len = key_len, .count = count};
	struct scan *s = scan_get(c);
	size_t len = 0;
	int rc = -ENOMEM;

	if (!s)
		return rc;
	s->done = done;
	s->arg = arg;
	s->status = 0;
	s->outcome = SKEIN_DONE;
	s->pending = 0;
	rc = kv_merge_start(&s->merge, count);
	if (!rc)
		rc = kv_req_encode(&req, c->req, sizeof(c->req), &len);
	for (unsigned i = 0; i < c->link_count && !rc; i++) {
		rc = kv_link_call(c->links[i], KV_SCAN, c->req, len, resp_max,
				  c->timeout_ns, scan_part_done, &s->parts[i]);
		s->pending += !rc;
	}
	if (!rc)
		return 0;
	if (!s->pending) {
		list_add_head(&c->scans, &s->link);
		return rc;
	}
	/* some shards were asked: it ends when they have answered */
	scan_fail(s, rc, SKEIN_NOT_SENT);
	return 0;
}
