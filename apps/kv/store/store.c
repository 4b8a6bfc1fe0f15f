/* SPDX-License-Identifier: MIT */
/*
 * store.c - one partition: ties a record's life to its two indexes.
 *
 * Order of an insert: reserve room in the table, allocate the record, then link
 * it into both, which cannot fail.
 */
#include "kv/store/store.h"

#include "kv/store/order.h"
#include "kv/store/table.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>

struct kv_store {
	const struct kv_alloc *alloc;
	uint64_t bytes;
	uint64_t bytes_max;
	struct kv_table table;
	struct kv_order order;
};

static void *libc_get(void *arg, size_t align, size_t len)
{
	void *p = NULL;

	if (align <= _Alignof(max_align_t))
		return malloc(len);
	return posix_memalign(&p, align, len) ? NULL : p;
}

static void libc_put(void *arg, void *p)
{
	free(p);
}

const struct kv_alloc kv_alloc_libc = {libc_get, libc_put, NULL};

int kv_store_new(const struct kv_store_attr *attr, struct kv_store **store)
{
	const struct kv_alloc *alloc = &kv_alloc_libc;
	struct kv_store *s;
	int rc;

	if (attr && attr->alloc)
		alloc = attr->alloc;
	s = alloc->get(alloc->arg, _Alignof(max_align_t), sizeof(*s));
	if (!s)
		return -ENOMEM;
	*s = (struct kv_store){.alloc = alloc};
	s->bytes_max = attr && attr->bytes_max ? attr->bytes_max : UINT64_MAX;
	kv_order_init(&s->order, attr ? attr->seed : 0);
	rc = kv_table_init(&s->table, alloc);
	if (rc)
		goto err_store;
	*store = s;
	return 0;

err_store:
	alloc->put(alloc->arg, s);
	return rc;
}

static size_t room_before(unsigned height)
{
	return height * sizeof(struct kv_record *);
}

static size_t size_of(unsigned height, size_t key_len, size_t val_room)
{
	return room_before(height) + sizeof(struct kv_record) +
	       kv_record_pad(key_len) + val_room;
}

static size_t record_size(const struct kv_record *r)
{
	return size_of(r->height, r->key_len, r->val_room);
}

static void record_free(struct kv_store *s, struct kv_record *r)
{
	s->bytes -= record_size(r);
	s->alloc->put(s->alloc->arg, (char *)r - room_before(r->height));
}

void kv_store_free(struct kv_store *s)
{
	const struct kv_alloc *alloc;
	struct kv_record *r, *next;

	if (!s)
		return;
	alloc = s->alloc;
	for (r = kv_order_seek(&s->order, "", 0); r; r = next) {
		next = kv_order_next(r);
		record_free(s, r);
	}
	kv_table_fini(&s->table);
	alloc->put(alloc->arg, s);
}

/* A record that is in no index; `freed` bytes will be given back when it takes
 * another's place. */
static int record_new(struct kv_store *s, unsigned height, uint64_t hash,
		      const void *key, size_t key_len, const void *val,
		      size_t val_len, uint64_t freed, struct kv_record **rec)
{
	size_t room = (val_len + 7) & ~(size_t)7;
	size_t size = size_of(height, key_len, room);
	struct kv_record *r;
	char *p;

	if (s->bytes - freed + size > s->bytes_max)
		return -ENOSPC;
	p = s->alloc->get(s->alloc->arg, _Alignof(max_align_t), size);
	if (!p)
		return -ENOMEM;
	r = (struct kv_record *)(void *)(p + room_before(height));
	*r = (struct kv_record){
		.hash = hash,
		.val_len = (uint32_t)val_len,
		.val_room = (uint32_t)room,
		.key_len = (uint16_t)key_len,
		.height = (uint8_t)height,
	};
	memcpy(r->bytes, key, key_len);
	if (val_len)
		memcpy(kv_record_val(r), val, val_len);
	s->bytes += size;
	*rec = r;
	return 0;
}

const struct kv_record *kv_store_get(const struct kv_store *s, uint64_t hash,
				     const void *key, size_t key_len)
{
	return kv_table_find(&s->table, hash, key, key_len);
}

/* The value outgrew its room, or would waste most of it. */
static int put_moved(struct kv_store *s, struct kv_record *old, const void *val,
		     size_t val_len)
{
	struct kv_record *r;
	int rc;

	rc = record_new(s, old->height, old->hash, kv_record_key(old),
			old->key_len, val, val_len, record_size(old), &r);
	if (rc)
		return rc;
	kv_table_replace(&s->table, old, r);
	kv_order_replace(&s->order, old, r);
	record_free(s, old);
	return 0;
}

static int put_new(struct kv_store *s, uint64_t hash, const void *key,
		   size_t key_len, const void *val, size_t val_len)
{
	struct kv_record *r;
	int rc;

	rc = kv_table_reserve(&s->table);
	if (rc)
		return rc;
	rc = record_new(s, kv_order_height(&s->order), hash, key, key_len, val,
			val_len, 0, &r);
	if (rc)
		return rc;
	kv_table_insert(&s->table, r);
	kv_order_insert(&s->order, r);
	return 0;
}

int kv_store_put(struct kv_store *s, uint64_t hash, const void *key,
		 size_t key_len, const void *val, size_t val_len)
{
	struct kv_record *r = kv_table_find(&s->table, hash, key, key_len);

	if (!r)
		return put_new(s, hash, key, key_len, val, val_len);
	if (val_len > r->val_room)
		return put_moved(s, r, val, val_len);
	/* moving to a smaller place is a favour, not a need */
	if (val_len + 256 < r->val_room / 2 && !put_moved(s, r, val, val_len))
		return 0;
	if (val_len)
		memcpy(kv_record_val(r), val, val_len);
	r->val_len = (uint32_t)val_len;
	return 0;
}

int kv_store_update(struct kv_store *s, uint64_t hash, const void *key,
		    size_t key_len, size_t off, const void *bytes, size_t len)
{
	struct kv_record *r = kv_table_find(&s->table, hash, key, key_len);

	if (!r)
		return -ENOENT;
	if (off > r->val_len || len > r->val_len - off)
		return -ERANGE;
	if (len)
		memcpy(kv_record_val(r) + off, bytes, len);
	return 0;
}

int kv_store_delete(struct kv_store *s, uint64_t hash, const void *key,
		    size_t key_len)
{
	struct kv_record *r = kv_table_find(&s->table, hash, key, key_len);

	if (!r)
		return -ENOENT;
	kv_table_remove(&s->table, r);
	kv_order_remove(&s->order, r);
	record_free(s, r);
	return 0;
}

const struct kv_record *kv_store_seek(const struct kv_store *s, const void *key,
				      size_t key_len)
{
	return kv_order_seek(&s->order, key, key_len);
}

const struct kv_record *kv_store_next(const struct kv_record *r)
{
	return kv_order_next(r);
}

uint64_t kv_store_count(const struct kv_store *s)
{
	return s->table.count;
}

uint64_t kv_store_bytes(const struct kv_store *s)
{
	return s->bytes;
}
