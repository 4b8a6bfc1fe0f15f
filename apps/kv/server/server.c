/* SPDX-License-Identifier: MIT */
/*
 * server.c - requests to stores and back; see server.h.
 */
#include "kv/server/server.h"

#include "base/assert.h"
#include "kv/store/cache.h"
#include "kv/store/hash.h"
#include "kv/store/store.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>

struct shard {
	struct kv_store *store; /* or */
	struct kv_cache *cache;
	/* Of a shared server. A thread that wants `lock` holds `turn` until it
	 * has it. So neither can a stream of readers keep a writer out, nor
	 * writers a reader. */
	pthread_mutex_t turn;
	pthread_rwlock_t lock;
	/* Read by any, relaxed, for each is a number of its own. records and
	 * bytes are written by the shard's thread alone, or under the lock. */
	_Atomic uint64_t records;
	_Atomic uint64_t bytes;
	_Atomic uint64_t evicted;
	_Atomic uint64_t done[KV_OP_END - KV_INFO];
	_Atomic uint64_t refused;
} __attribute__((aligned(128)));

struct kv_server {
	const struct kv_alloc *alloc;
	unsigned shard_count;
	bool shared;
	struct shard shards[];
};

/* Without others that write no read-modify-write is needed. */
static void count(const struct kv_server *s, _Atomic uint64_t *c)
{
	uint64_t v;

	if (s->shared) {
		atomic_fetch_add_explicit(c, 1, memory_order_relaxed);
		return;
	}
	v = atomic_load_explicit(c, memory_order_relaxed);
	atomic_store_explicit(c, v + 1, memory_order_relaxed);
}

static uint64_t look(_Atomic uint64_t *c)
{
	return atomic_load_explicit(c, memory_order_relaxed);
}

static void shard_init(struct shard *sh)
{
	int rc = pthread_mutex_init(&sh->turn, NULL);

	/* Neither allocates. */
	skein_assert(!rc);
	rc = pthread_rwlock_init(&sh->lock, NULL);
	skein_assert(!rc);
}

static void shard_fini(struct shard *sh)
{
	kv_store_free(sh->store);
	kv_cache_free(sh->cache);
	pthread_rwlock_destroy(&sh->lock);
	pthread_mutex_destroy(&sh->turn);
}

static void shard_lock(struct shard *sh, bool changes)
{
	pthread_mutex_lock(&sh->turn);
	if (changes)
		pthread_rwlock_wrlock(&sh->lock);
	else
		pthread_rwlock_rdlock(&sh->lock);
	pthread_mutex_unlock(&sh->turn);
}

int kv_server_new(const struct kv_server_attr *attr, struct kv_server **server)
{
	const struct kv_alloc *alloc =
		attr->alloc ? attr->alloc : &kv_alloc_libc;
	struct kv_store_attr sa = {.alloc = alloc};
	struct kv_server *s;
	size_t size;
	int rc;

	if (!attr->shards || attr->shards > KV_SHARDS_MAX ||
	    (attr->cache && attr->shared))
		return -EINVAL;
	sa.bytes_max = attr->bytes_max / attr->shards;
	size = sizeof(*s) + attr->shards * sizeof(s->shards[0]);
	s = alloc->get(alloc->arg, 128, size);
	if (!s)
		return -ENOMEM;
	memset(s, 0, size);
	s->alloc = alloc;
	s->shard_count = attr->shards;
	s->shared = attr->shared;
	for (unsigned i = 0; i < attr->shards; i++)
		shard_init(&s->shards[i]);
	for (unsigned i = 0; i < attr->shards; i++) {
		sa.seed = i;
		rc = attr->cache ? kv_cache_new(alloc, sa.bytes_max,
						&s->shards[i].cache)
				 : kv_store_new(&sa, &s->shards[i].store);
		if (rc)
			goto err_server;
	}
	*server = s;
	return 0;

err_server:
	kv_server_free(s);
	return rc;
}

void kv_server_free(struct kv_server *s)
{
	if (!s)
		return;
	for (unsigned i = 0; i < s->shard_count; i++)
		shard_fini(&s->shards[i]);
	s->alloc->put(s->alloc->arg, s);
}

static int do_get(struct shard *sh, uint64_t hash, const struct kv_req *r,
		  struct kv_reply *reply)
{
	const struct kv_record *rec;
	void *p;

	if (sh->cache)
		rec = kv_cache_get(sh->cache, hash, r->key, r->key_len);
	else
		rec = kv_store_get(sh->store, hash, r->key, r->key_len);

	if (!rec)
		return -ENOENT;
	if (rec->val_len > reply->max)
		return -EMSGSIZE;
	p = reply->buf(reply, rec->val_len);
	if (!p)
		return -ENOMEM;
	if (rec->val_len)
		memcpy(p, kv_record_val(rec), rec->val_len);
	return 0;
}

static int do_scan(struct shard *sh, const struct kv_req *r,
		   struct kv_reply *reply)
{
	const struct kv_record *first, *rec;
	size_t len = KV_SCAN_HEAD;
	struct bytes_out out;
	uint32_t n = 0;
	void *p;

	if (len > reply->max)
		return -EMSGSIZE;
	first = kv_store_seek(sh->store, r->key, r->key_len);
	for (rec = first; rec && n < r->count; rec = kv_store_next(rec)) {
		size_t size = kv_item_size(rec->key_len, rec->val_len);

		if (size > reply->max - len)
			break;
		len += size;
		n++;
	}
	/* not even one: the caller would ask for ever */
	if (!n && rec)
		return -EMSGSIZE;
	p = reply->buf(reply, len);
	if (!p)
		return -ENOMEM;
	kv_scan_head_encode(p, n, rec && n < r->count);
	out = bytes_out((uint8_t *)p + KV_SCAN_HEAD, len - KV_SCAN_HEAD);
	for (rec = first; n; n--, rec = kv_store_next(rec))
		kv_item_encode(&out, rec);
	skein_assert(!out.failed && out.pos == out.cap);
	return 0;
}

static int do_info(struct kv_server *s, struct kv_reply *reply)
{
	struct kv_info info;
	void *p;

	if (reply->max < KV_INFO_LEN)
		return -EMSGSIZE;
	p = reply->buf(reply, KV_INFO_LEN);
	if (!p)
		return -ENOMEM;
	kv_server_info(s, &info);
	kv_info_encode(&info, p);
	return 0;
}

static void show(_Atomic uint64_t *c, uint64_t v)
{
	atomic_store_explicit(c, v, memory_order_relaxed);
}

static void publish(struct shard *sh)
{
	if (sh->cache) {
		show(&sh->records, kv_cache_count(sh->cache));
		show(&sh->bytes, kv_cache_bytes(sh->cache));
		show(&sh->evicted, kv_cache_evicted(sh->cache));
		return;
	}
	show(&sh->records, kv_store_count(sh->store));
	show(&sh->bytes, kv_store_bytes(sh->store));
}

static int cache_change(struct shard *sh, uint64_t hash, const struct kv_req *r)
{
	if (r->op == KV_UPDATE)
		return kv_cache_update(sh->cache, hash, r->key, r->key_len,
				       r->off, r->val, r->val_len);
	if (r->op == KV_PUT)
		return kv_cache_put(sh->cache, hash, r->key, r->key_len, r->val,
				    r->val_len);
	return kv_cache_delete(sh->cache, hash, r->key, r->key_len);
}

static int store_change(struct shard *sh, uint64_t hash, const struct kv_req *r)
{
	if (r->op == KV_UPDATE)
		return kv_store_update(sh->store, hash, r->key, r->key_len,
				       r->off, r->val, r->val_len);
	if (r->op == KV_PUT)
		return kv_store_put(sh->store, hash, r->key, r->key_len, r->val,
				    r->val_len);
	return kv_store_delete(sh->store, hash, r->key, r->key_len);
}

static int do_change(struct shard *sh, uint64_t hash, const struct kv_req *r)
{
	int rc = sh->cache ? cache_change(sh, hash, r)
			   : store_change(sh, hash, r);

	if (!rc && r->op != KV_UPDATE)
		publish(sh);
	return rc;
}

static int do_op(struct shard *sh, uint64_t hash, const struct kv_req *r,
		 struct kv_reply *reply)
{
	if (r->op == KV_SCAN)
		return sh->cache ? -EOPNOTSUPP : do_scan(sh, r, reply);
	if (r->op == KV_GET)
		return do_get(sh, hash, r, reply);
	return do_change(sh, hash, r);
}

int kv_server_handle(struct kv_server *s, unsigned shard, unsigned op,
		     const void *req, size_t len, struct kv_reply *reply)
{
	struct shard *sh = &s->shards[shard];
	uint64_t hash = 0;
	struct kv_req r;
	int rc;

	skein_assert(shard < s->shard_count);
	if (kv_req_decode(op, req, len, &r)) {
		count(s, &sh->refused);
		return -EBADMSG;
	}
	count(s, &sh->done[r.op - KV_INFO]);
	if (r.op == KV_INFO)
		return do_info(s, reply);
	if (r.op != KV_SCAN)
		hash = kv_hash(r.key, r.key_len);
	if (r.op != KV_SCAN && kv_hash_shard(hash, s->shard_count) != shard) {
		count(s, &sh->refused);
		return -EXDEV;
	}
	if (s->shared)
		shard_lock(sh, r.op != KV_GET && r.op != KV_SCAN);
	rc = do_op(sh, hash, &r, reply);
	if (s->shared)
		pthread_rwlock_unlock(&sh->lock);
	if (rc == -ENOSPC || rc == -ENOMEM)
		count(s, &sh->refused);
	return rc;
}

unsigned kv_server_shards(const struct kv_server *s)
{
	return s->shard_count;
}

void kv_server_info(struct kv_server *s, struct kv_info *info)
{
	struct kv_info i = {
		.version = KV_PROTO_VERSION,
		.shards = s->shard_count,
	};

	for (unsigned n = 0; n < s->shard_count; n++) {
		i.records += look(&s->shards[n].records);
		i.bytes += look(&s->shards[n].bytes);
		i.evicted += look(&s->shards[n].evicted);
	}
	*info = i;
}

void kv_server_stats(struct kv_server *s, struct kv_server_stats *stats)
{
	struct kv_server_stats st = {0};

	for (unsigned n = 0; n < s->shard_count; n++) {
		for (unsigned op = 0; op < KV_OP_END - KV_INFO; op++)
			st.done[op] += look(&s->shards[n].done[op]);
		st.refused += look(&s->shards[n].refused);
	}
	*stats = st;
}
