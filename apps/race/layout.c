/* SPDX-License-Identifier: MIT */
/* layout.c - see layout.h. */
#define XXH_INLINE_ALL
#include "race/layout.h"

#include <endian.h>
#include <errno.h>
#include <string.h>
#include <xxhash.h>

#define MAGIC 0x31656361726e6b73ull /* "sknrace1" */

struct head {
	uint64_t magic;
	uint32_t dir_bits, groups;
	uint64_t heap_at, heap_end;
	uint64_t sum;  /* of all before */
	uint64_t next; /* RACE_NEXT_AT */
	uint8_t zero[16];
};

_Static_assert(sizeof(struct head) == RACE_LINE, "a line");
_Static_assert(offsetof(struct head, next) == RACE_NEXT_AT, "where FAA goes");

struct record {
	uint64_t sum; /* of all behind, and of the offset */
	uint64_t hash;
	uint32_t key_len, val_len;
};

_Static_assert(sizeof(struct record) == RACE_RECORD_HEAD, "no holes");

uint64_t race_hash(const void *key, size_t len)
{
	return XXH3_64bits(key, len);
}

static uint64_t head_sum(const struct head *h)
{
	return XXH3_64bits(h, offsetof(struct head, sum));
}

static bool sizes_fit(const struct race_head *h)
{
	return h->dir_bits <= RACE_DIR_BITS_MAX &&
	       h->groups >= RACE_GROUPS_MIN && h->groups <= RACE_GROUPS_MAX &&
	       h->heap_at == RACE_DIR_AT + RACE_LINE * (((8ull << h->dir_bits) +
							 RACE_LINE - 1) /
							RACE_LINE) &&
	       h->heap_end < RACE_AT_MASK && h->heap_end > h->heap_at &&
	       h->heap_end - h->heap_at >= race_subtable_len(h);
}

void race_subtable(const struct race_head *h, uint32_t depth, uint32_t suffix,
		   void *buf)
{
	uint64_t *line = buf;

	memset(buf, 0, race_subtable_len(h));
	line[0] = htole64(race_state(depth, 0));
	line[1] = htole64(suffix);
	for (size_t i = 0; i < (size_t)h->groups * RACE_BUCKETS; i++) {
		line += RACE_LINE / 8;
		line[0] = htole64(race_mark(depth, suffix));
	}
}

int race_format(void *mem, size_t len, uint32_t dir_bits, uint32_t groups)
{
	struct race_head h = {.dir_bits = dir_bits, .groups = groups};
	struct head *head = mem;
	uint64_t *dir = (uint64_t *)mem + RACE_DIR_AT / 8;

	if (dir_bits > RACE_DIR_BITS_MAX)
		return -EINVAL;
	h.heap_at = RACE_DIR_AT + ((8ull << dir_bits) + RACE_LINE - 1) /
					  RACE_LINE * RACE_LINE;
	h.heap_end = len / RACE_LINE * RACE_LINE;
	if (!sizes_fit(&h))
		return groups < RACE_GROUPS_MIN || groups > RACE_GROUPS_MAX
			       ? -EINVAL
			       : -ENOSPC;
	race_subtable(&h, 0, 0, (uint8_t *)mem + h.heap_at);
	for (uint32_t i = 0; i < 1u << dir_bits; i++)
		dir[i] = htole64(h.heap_at);
	*head = (struct head){
		.magic = htole64(MAGIC),
		.dir_bits = htole32(dir_bits),
		.groups = htole32(groups),
		.heap_at = htole64(h.heap_at),
		.heap_end = htole64(h.heap_end),
		.next = htole64(h.heap_at + race_subtable_len(&h)),
	};
	head->sum = htole64(head_sum(head));
	return 0;
}

int race_head_parse(const void *buf, size_t len, struct race_head *h)
{
	struct race_head out;
	struct head head;

	if (len < sizeof(head))
		return -EBADMSG;
	memcpy(&head, buf, sizeof(head));
	out = (struct race_head){le32toh(head.dir_bits), le32toh(head.groups),
				 le64toh(head.heap_at), le64toh(head.heap_end)};
	if (le64toh(head.magic) != MAGIC ||
	    le64toh(head.sum) != head_sum(&head) || !sizes_fit(&out))
		return -EBADMSG;
	*h = out;
	return 0;
}

bool race_in_heap(const struct race_head *h, uint64_t at, uint64_t len)
{
	return !(at % RACE_LINE) && at >= h->heap_at && at < h->heap_end &&
	       len <= h->heap_end - at;
}

int race_dir_parse(const struct race_head *h, const void *buf, size_t len)
{
	uint64_t at;

	if (len < 8ull << h->dir_bits)
		return -EBADMSG;
	for (uint32_t i = 0; i < 1u << h->dir_bits; i++) {
		memcpy(&at, (const uint8_t *)buf + 8ull * i, sizeof(at));
		if (!race_in_heap(h, le64toh(at), race_subtable_len(h)))
			return -EBADMSG;
	}
	return 0;
}

static uint64_t record_sum(uint64_t at, const uint8_t *buf, size_t len)
{
	return XXH3_64bits_withSeed(buf + 8, len - 8, at);
}

uint32_t race_record(uint64_t at, const void *key, size_t key_len,
		     const void *val, size_t val_len, uint8_t *buf)
{
	struct record r = {.hash = htole64(race_hash(key, key_len)),
			   .key_len = htole32((uint32_t)key_len),
			   .val_len = htole32((uint32_t)val_len)};
	size_t len = sizeof(r) + key_len + val_len;

	if (key_len > RACE_KEY_MAX || val_len > RACE_RECORD_MAX ||
	    len > RACE_RECORD_MAX)
		return 0;
	memcpy(buf, &r, sizeof(r));
	memcpy(buf + sizeof(r), key, key_len);
	memcpy(buf + sizeof(r) + key_len, val, val_len);
	r.sum = htole64(record_sum(at, buf, len));
	memcpy(buf, &r.sum, sizeof(r.sum));
	return (uint32_t)len;
}

int race_record_parse(uint64_t at, const uint8_t *buf, size_t len,
		      struct race_found *f)
{
	struct record r;
	size_t key_len, val_len;

	if (len < sizeof(r))
		return -EBADMSG;
	memcpy(&r, buf, sizeof(r));
	key_len = le32toh(r.key_len);
	val_len = le32toh(r.val_len);
	if (key_len > RACE_KEY_MAX || val_len > RACE_RECORD_MAX ||
	    sizeof(r) + key_len + val_len > len ||
	    le64toh(r.sum) !=
		    record_sum(at, buf, sizeof(r) + key_len + val_len))
		return -EBADMSG;
	*f = (struct race_found){.hash = le64toh(r.hash),
				 .key = buf + sizeof(r),
				 .key_len = key_len,
				 .val = buf + sizeof(r) + key_len,
				 .val_len = val_len};
	return 0;
}
