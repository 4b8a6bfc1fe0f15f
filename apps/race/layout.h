/* SPDX-License-Identifier: MIT */
/*
 * layout.h - the bytes of a RACE table (Zuo et al., ATC 2021): one region of
 * memory that clients READ, WRITE and CAS. All words are little-endian.
 *
 *	head		64 bytes
 *	directory	2^dir_bits words: the offset of a subtable each
 *	heap		subtables and records, taken by fetch-and-add, never freed
 *
 * A subtable is a line with its state and suffix, then groups of three buckets:
 * main, overflow, main. Each main bucket and the overflow beside it are read as
 * one combined bucket. A bucket is a line: a word with depth and suffix of the
 * keys in it, and seven slots. The directory has its full size from the start,
 * so a split never doubles it.
 *
 * Thread rule: pure.
 */
#ifndef SKEIN_RACE_LAYOUT_H
#define SKEIN_RACE_LAYOUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RACE_LINE 64u
#define RACE_DIR_BITS_MAX 12u
#define RACE_GROUPS_MIN 2u
#define RACE_GROUPS_MAX 64u
#define RACE_BUCKETS 3u /* of a group */
#define RACE_SLOTS 7u	/* of a bucket */
#define RACE_GROUP_LEN ((size_t)RACE_BUCKETS * RACE_LINE)
#define RACE_COMBINED_LEN ((size_t)2 * RACE_LINE)
#define RACE_RECORD_MAX 4096u
#define RACE_RECORD_HEAD 24u
#define RACE_KEY_MAX 255u

struct race_head {
	uint32_t dir_bits, groups;
	uint64_t heap_at, heap_end; /* offsets */
};

/* The word that fetch-and-add takes from. */
#define RACE_NEXT_AT 40u
#define RACE_DIR_AT RACE_LINE

/* A slot: fingerprint, pending, length in lines, offset of the record, frozen. */
#define RACE_EMPTY 0ull
#define RACE_TOMB 1ull /* was deleted; a new record may take it */
#define RACE_PENDING (1ull << 55)
#define RACE_FROZEN 2ull /* a split moves it: nobody changes it any more */
#define RACE_AT_MASK ((1ull << 48) - 1)

static inline uint64_t race_slot(uint8_t fp, uint64_t at, uint32_t len)
{
	uint64_t lines = (len + RACE_LINE - 1) / RACE_LINE;

	return (uint64_t)fp << 56 | lines << 48 | at;
}

static inline bool race_slot_free(uint64_t slot)
{
	return slot == RACE_EMPTY || slot == RACE_TOMB;
}

static inline uint64_t race_slot_at(uint64_t slot)
{
	return slot & RACE_AT_MASK & ~(uint64_t)(RACE_LINE - 1);
}

static inline uint32_t race_slot_len(uint64_t slot)
{
	return (uint32_t)(slot >> 48 & 0x7f) * RACE_LINE;
}

/* The first word of a bucket. */
static inline uint64_t race_mark(uint32_t depth, uint32_t suffix)
{
	return (uint64_t)suffix << 8 | depth;
}

static inline uint32_t race_mask(uint32_t bits)
{
	return (1u << bits) - 1;
}

/* Do keys of this hash belong into a bucket with this mark? */
static inline bool race_mark_has(uint64_t mark, uint64_t hash)
{
	uint32_t depth = mark & 0xff;

	return depth <= RACE_DIR_BITS_MAX &&
	       (hash & race_mask(depth)) == mark >> 8;
}

/* The state of a subtable: its depth; while it is being split, the new one. */
#define RACE_SPLITTING (1ull << 8)

static inline uint64_t race_state(uint32_t depth, uint64_t to)
{
	return to ? to << 16 | RACE_SPLITTING | depth : depth;
}

static inline size_t race_subtable_len(const struct race_head *h)
{
	return RACE_LINE + (size_t)h->groups * RACE_GROUP_LEN;
}

/* Writes an empty table into len bytes of zeroed memory. -EINVAL, -ENOSPC. */
int race_format(void *mem, size_t len, uint32_t dir_bits, uint32_t groups);
/* An empty subtable, into race_subtable_len() bytes. */
void race_subtable(const struct race_head *h, uint32_t depth, uint32_t suffix,
		   void *buf);
/* The first RACE_LINE bytes. -EBADMSG: no table, or one that is not whole. */
int race_head_parse(const void *buf, size_t len, struct race_head *h);
/* -EBADMSG: an entry lies outside the heap. */
int race_dir_parse(const struct race_head *h, const void *buf, size_t len);
/* Do len bytes at this offset lie in the heap, on lines? */
bool race_in_heap(const struct race_head *h, uint64_t at, uint64_t len);

/* Fills buf, of RACE_RECORD_MAX bytes. Returns the record's length; 0: it is too
 * long. at: the offset that it gets. */
uint32_t race_record(uint64_t at, const void *key, size_t key_len,
		     const void *val, size_t val_len, uint8_t *buf);
/* What a record has. */
struct race_found {
	uint64_t hash;
	const void *key, *val;
	size_t key_len, val_len;
};
/* -EBADMSG: torn, or none. */
int race_record_parse(uint64_t at, const uint8_t *buf, size_t len,
		      struct race_found *f);

uint64_t race_hash(const void *key, size_t len);

#endif
