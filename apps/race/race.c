/* SPDX-License-Identifier: MIT */
/* race.c - see race.h. */
#include "race/race.h"

#include <endian.h>
#include <errno.h>
#include <string.h>

#ifdef RACE_PLANT
#define PLANTED(r, what) ((r)->plant & RACE_PLANT_##what)
#else
#define PLANTED(r, what) 0
#endif

/* Of the scratch memory. */
#define VIEW_AT 0u	/* two combined buckets */
#define MARKS_AT 256u	/* four marks, read once more */
#define WORDS_AT 512u	/* what CAS and FAA bring */
#define GROUPS_AT 1024u /* of a subtable that is split */
#define FOUND_AT 4096u	/* a record read */
#define RECORD_AT 8192u /* the record to be written */
#define WHOLE_AT 16384u /* a subtable, or the head */
#define DIR_AT 65536u

_Static_assert(DIR_AT + (8u << RACE_DIR_BITS_MAX) <= RACE_SCRATCH, "room");
_Static_assert(WHOLE_AT + RACE_LINE + RACE_GROUPS_MAX * RACE_GROUP_LEN <=
		       DIR_AT,
	       "room");

#define CHUNK 65536u
/* An operation that loses so often has met a broken table. */
#define ROUNDS 4096u
#define SEEN ((size_t)4 * RACE_SLOTS)

/* Both combined buckets of a key, as read. */
struct view {
	uint64_t hash, subtable;
	uint64_t at[SEEN]; /* offsets of the slots */
	uint64_t slot[SEEN];
	size_t free[2]; /* slots of each combined bucket */
};

struct key {
	const void *data;
	size_t len;
	uint64_t hash;
};

static int run(struct race *r, const struct race_req *reqs, unsigned n)
{
	r->stats.lists++;
	for (unsigned i = 0; i < n; i++)
		r->stats.reads += reqs[i].verb == RACE_READ;
	return r->port.run(r->port.arg, reqs, n);
}

static uint8_t *scratch(struct race *r, uint32_t at)
{
	return r->port.scratch + at;
}

static uint64_t word(const void *p)
{
	uint64_t v;

	memcpy(&v, p, sizeof(v));
	return le64toh(v);
}

static int read_at(struct race *r, uint64_t at, uint32_t to, uint32_t len)
{
	struct race_req q = {RACE_READ, at, scratch(r, to), len, 0, 0};

	return run(r, &q, 1);
}

/* *won: the word was `compare` and is now `value`. */
static int cas(struct race *r, uint64_t at, uint64_t compare, uint64_t value,
	       bool *won)
{
	struct race_req q = {RACE_CAS, at,	scratch(r, WORDS_AT),
			     8,	       compare, value};
	int rc = run(r, &q, 1);

	*won = !rc && word(scratch(r, WORDS_AT)) == compare;
	return rc;
}

/* --- the directory and the heap ----------------------------------------- */

static int dir_read(struct race *r)
{
	uint32_t len = 8u << r->head.dir_bits;
	int rc = read_at(r, RACE_DIR_AT, DIR_AT, len);

	if (!rc)
		rc = race_dir_parse(&r->head, scratch(r, DIR_AT), len);
	for (uint32_t i = 0; i < len / 8 && !rc; i++)
		r->dir[i] = word(scratch(r, DIR_AT + 8 * i));
	return rc;
}

int race_open(struct race *r, const struct race_port *port)
{
	int rc;

	*r = (struct race){.port = *port};
	rc = read_at(r, 0, WHOLE_AT, RACE_LINE);
	if (!rc)
		rc = race_head_parse(scratch(r, WHOLE_AT), RACE_LINE, &r->head);
	return rc ? rc : dir_read(r);
}

/* Lines of the heap, for good. */
static int heap_take(struct race *r, uint64_t len, uint64_t *at)
{
	struct race_req q = {RACE_FAA, RACE_NEXT_AT, scratch(r, WORDS_AT), 8,
			     0,	       len};
	int rc = run(r, &q, 1);

	if (rc)
		return rc;
	*at = word(scratch(r, WORDS_AT));
	return race_in_heap(&r->head, *at, len) ? 0 : -ENOSPC;
}

static int record_room(struct race *r, uint64_t *at, uint32_t len)
{
	uint64_t lines = (len + RACE_LINE - 1) / RACE_LINE * RACE_LINE;
	uint64_t take = CHUNK;
	int rc = 0;

	if (r->chunk_end - r->chunk_at < lines) {
		rc = heap_take(r, take, &r->chunk_at);
		/* The end of the heap is used too. */
		if (rc == -ENOSPC)
			rc = heap_take(r, take = lines, &r->chunk_at);
		r->chunk_end = rc ? r->chunk_at : r->chunk_at + take;
	}
	if (rc)
		return rc;
	*at = r->chunk_at;
	r->chunk_at += lines;
	return 0;
}

/* --- looking ------------------------------------------------------------- */

/* Offsets of the two combined buckets: of two different groups. */
static void places(const struct race *r, uint64_t hash, uint64_t subtable,
		   uint64_t at[2])
{
	uint32_t groups = r->head.groups;
	uint32_t one = (uint32_t)(hash >> 12) % (2 * groups);
	uint32_t two = (uint32_t)(hash >> 34) % (2 * groups);

	if (one / 2 == two / 2)
		two = (two + 2) % (2 * groups);
	at[0] = subtable + RACE_LINE + one / 2 * RACE_GROUP_LEN +
		one % 2 * RACE_LINE;
	at[1] = subtable + RACE_LINE + two / 2 * RACE_GROUP_LEN +
		two % 2 * RACE_LINE;
}

static int split_help(struct race *r, uint64_t subtable, bool *helped);

/* The subtable's buckets are not this key's: a split is under way, or over. */
static int resolve(struct race *r, uint64_t subtable)
{
	bool helped;
	int rc = PLANTED(r, NO_HELP) ? 0 : split_help(r, subtable, &helped);

	return rc ? rc : dir_read(r);
}

/* The marks of all four buckets, as read with the slots and after them: a mark
 * that is still the key's shows that nothing has been moved away before. */
static bool marks_good(struct race *r, uint64_t hash)
{
	for (unsigned i = 0; i < 4; i++)
		if (!race_mark_has(word(scratch(r, VIEW_AT + i * RACE_LINE)),
				   hash) ||
		    (!PLANTED(r, HEADS) &&
		     !race_mark_has(word(scratch(r, MARKS_AT + 8 * i)), hash)))
			return false;
	return true;
}

/* Reads both buckets in one list, `first` before it if not NULL. *same: the
 * buckets are the key's. */
static int look(struct race *r, struct view *v, const struct race_req *first,
		bool *same)
{
	struct race_req q[7];
	uint64_t at[2];
	unsigned n = 0;
	int rc;

	places(r, v->hash, v->subtable, at);
	if (first)
		q[n++] = *first;
	for (unsigned i = 0; i < 2; i++)
		q[n++] = (struct race_req){
			RACE_READ,
			at[i],
			scratch(r, VIEW_AT + i * RACE_COMBINED_LEN),
			RACE_COMBINED_LEN,
			0,
			0};
	for (unsigned i = 0; i < 4; i++)
		q[n++] = (struct race_req){RACE_READ,
					   at[i / 2] + i % 2 * RACE_LINE,
					   scratch(r, MARKS_AT + 8 * i),
					   8,
					   0,
					   0};
	rc = run(r, q, n);
	if (rc)
		return rc;
	*same = marks_good(r, v->hash);
	v->free[0] = v->free[1] = 0;
	for (unsigned i = 0; i < SEEN; i++) {
		uint32_t bucket = i / RACE_SLOTS;
		uint32_t off = bucket * RACE_LINE + 8 + i % RACE_SLOTS * 8;

		v->slot[i] = word(scratch(r, VIEW_AT + off));
		v->at[i] = at[bucket / 2] + off % RACE_COMBINED_LEN;
		v->free[bucket / 2] += race_slot_free(v->slot[i]);
	}
	return 0;
}

/* The same, wherever the key's buckets are now. */
static int find_buckets(struct race *r, struct view *v, uint64_t hash,
			const struct race_req *first)
{
	bool same = false;
	int rc = 0;

	v->hash = hash;
	for (unsigned i = 0; i < ROUNDS && !rc; i++) {
		v->subtable = r->dir[hash & race_mask(r->head.dir_bits)];
		rc = look(r, v, first, &same);
		if (rc || same)
			return rc;
		r->stats.retries++;
		first = NULL;
		rc = resolve(r, v->subtable);
	}
	return rc ? rc : -EBADMSG;
}

static int record_read(struct race *r, uint64_t slot, struct race_found *f)
{
	uint64_t at = race_slot_at(slot);
	uint32_t len = race_slot_len(slot);
	int rc;

	if (!len || len > RACE_RECORD_MAX || !race_in_heap(&r->head, at, len))
		return -EBADMSG;
	rc = read_at(r, at, FOUND_AT, len);
	if (!rc)
		rc = race_record_parse(at, scratch(r, FOUND_AT), len, f);
	return rc;
}

/* Is the key's record in slot i? `pending`: of those, or of the others. */
static int is_key(struct race *r, const struct view *v, unsigned i,
		  const struct key *k, bool pending, struct race_found *f,
		  bool *is)
{
	uint64_t slot = v->slot[i];
	int rc;

	*is = false;
	if (race_slot_free(slot) || slot >> 56 != k->hash >> 56 ||
	    !!(slot & RACE_PENDING) != pending)
		return 0;
	rc = record_read(r, slot, f);
	*is = !rc && f->key_len == k->len && !memcmp(f->key, k->data, k->len);
	return rc;
}

/* *i: the slot, or SEEN. */
static int find(struct race *r, const struct view *v, const struct key *k,
		struct race_found *f, unsigned *i)
{
	bool is = false;
	int rc = 0;

	for (*i = 0; *i < SEEN && !rc; ++*i) {
		rc = is_key(r, v, *i, k, false, f, &is);
		if (is)
			return 0;
	}
	return rc;
}

static struct key key_of(const void *data, size_t len)
{
	return (struct key){data, len, race_hash(data, len)};
}

/* A record in the scratch memory, and the request that writes it. */
static int record_make(struct race *r, const struct key *k, const void *val,
		       size_t val_len, struct race_req *q, uint64_t *slot)
{
	uint32_t len = race_record(0, k->data, k->len, val, val_len,
				   scratch(r, RECORD_AT));
	uint64_t at;
	int rc;

	if (!len)
		return -EMSGSIZE;
	rc = record_room(r, &at, len);
	if (rc)
		return rc;
	race_record(at, k->data, k->len, val, val_len, scratch(r, RECORD_AT));
	*q = (struct race_req){RACE_WRITE, at, scratch(r, RECORD_AT),
			       len,	   0,  0};
	*slot = race_slot((uint8_t)(k->hash >> 56), at, len);
	return 0;
}

/* --- splitting ----------------------------------------------------------- */

/* What one split moves. */
struct split {
	uint64_t from, to;
	uint32_t depth, suffix; /* of `from`, before */
};

/* A slot, frozen, to the same place of the new subtable: empty until now, if
 * nobody was faster. */
static int move_frozen(struct race *r, const struct split *s, uint64_t off,
		       uint64_t slot, uint64_t old)
{
	bool won;
	int rc = cas(r, s->to + off, RACE_EMPTY, slot, &won);

	return rc ? rc : cas(r, s->from + off, old, RACE_TOMB, &won);
}

/* *again: the slot has changed meanwhile. */
static int move_slot(struct race *r, const struct split *s, uint64_t off,
		     uint64_t old, bool *again)
{
	uint64_t frozen = old | RACE_FROZEN;
	struct race_found f;
	bool won = true;
	int rc;

	*again = false;
	if (race_slot_free(old))
		return 0;
	rc = record_read(r, old, &f);
	if (rc || !(f.hash >> s->depth & 1))
		return rc;
	if (old & RACE_PENDING) {
		rc = cas(r, s->from + off, old, RACE_TOMB, &won);
	} else {
		if (PLANTED(r, FREEZE))
			frozen = old;
		else if (old != frozen)
			rc = cas(r, s->from + off, old, frozen, &won);
		if (!rc && won)
			rc = move_frozen(r, s, off, old & ~RACE_FROZEN, frozen);
	}
	*again = !won;
	return rc;
}

static int move_group(struct race *r, const struct split *s, uint64_t group)
{
	uint8_t *old = scratch(r, GROUPS_AT);
	bool again = true, each;
	int rc = 0;

	for (unsigned i = 0; again && i < ROUNDS; i++) {
		again = false;
		rc = read_at(r, s->from + group, GROUPS_AT, RACE_GROUP_LEN);
		for (uint32_t at = 0; at < RACE_GROUP_LEN && !rc; at += 8) {
			if (!(at % RACE_LINE))
				continue; /* the mark */
			rc = move_slot(r, s, group + at, word(old + at), &each);
			again |= each;
		}
		if (rc)
			return rc;
	}
	return again ? -EBADMSG : 0;
}

static int mark_group(struct race *r, const struct split *s, uint64_t group)
{
	struct race_req q[RACE_BUCKETS];

	for (unsigned i = 0; i < RACE_BUCKETS; i++)
		q[i] = (struct race_req){RACE_CAS,
					 s->from + group + i * RACE_LINE,
					 scratch(r, WORDS_AT + 8 * i),
					 8,
					 race_mark(s->depth, s->suffix),
					 race_mark(s->depth + 1, s->suffix)};
	return run(r, q, RACE_BUCKETS);
}

/* Entries of the directory with the new suffix lead to the new subtable. */
static int dir_write(struct race *r, const struct split *s)
{
	uint32_t step = 1u << (s->depth + 1);
	struct race_req q[RACE_LIST];
	unsigned n = 0;
	int rc = 0;

	for (uint32_t i = s->suffix | 1u << s->depth;
	     i < 1u << r->head.dir_bits && !rc; i += step) {
		q[n] = (struct race_req){RACE_CAS,
					 RACE_DIR_AT + 8ull * i,
					 scratch(r, WORDS_AT + 8 * n),
					 8,
					 s->from,
					 s->to};
		if (++n < RACE_LIST)
			continue;
		rc = run(r, q, n);
		n = 0;
	}
	return rc || !n ? rc : run(r, q, n);
}

static int split_finish(struct race *r, const struct split *s, uint64_t state)
{
	uint64_t group = RACE_LINE;
	bool won;
	int rc = PLANTED(r, OPEN) ? dir_write(r, s) : 0;

	for (uint32_t i = 0; i < r->head.groups && !rc; i++) {
		if (!PLANTED(r, MARK))
			rc = mark_group(r, s, group);
		if (!rc)
			rc = move_group(r, s, group);
		if (!rc && PLANTED(r, MARK))
			rc = mark_group(r, s, group);
		group += RACE_GROUP_LEN;
	}
	if (!rc)
		rc = dir_write(r, s);
	if (!rc)
		rc = cas(r, s->from, state, race_state(s->depth + 1, 0), &won);
	return rc;
}

/* Finishes a split that is under way, of any client. */
static int split_help(struct race *r, uint64_t subtable, bool *helped)
{
	struct split s = {.from = subtable};
	uint64_t state;
	int rc = read_at(r, subtable, WORDS_AT, 16);

	*helped = false;
	if (rc)
		return rc;
	state = word(scratch(r, WORDS_AT));
	s.suffix = (uint32_t)word(scratch(r, WORDS_AT + 8));
	s.depth = state & 0xff;
	s.to = state >> 16;
	if (!(state & RACE_SPLITTING))
		return 0;
	if (s.depth >= r->head.dir_bits || s.suffix >> s.depth ||
	    !race_in_heap(&r->head, s.to, race_subtable_len(&r->head)))
		return -EBADMSG;
	*helped = true;
	r->stats.helped++;
	return split_finish(r, &s, state);
}

/* -ENOSPC: it is as deep as the directory, or the heap is used up. */
static int split(struct race *r, uint64_t subtable)
{
	uint32_t len = (uint32_t)race_subtable_len(&r->head), suffix, depth;
	struct race_req q = {RACE_WRITE, 0, scratch(r, WHOLE_AT), len, 0, 0};
	bool done;
	uint64_t state;
	int rc = split_help(r, subtable, &done);

	if (rc || done)
		return rc ? rc : dir_read(r);
	state = word(scratch(r, WORDS_AT));
	suffix = (uint32_t)word(scratch(r, WORDS_AT + 8));
	depth = (uint32_t)state;
	if (depth >= r->head.dir_bits)
		return depth > r->head.dir_bits ? -EBADMSG : -ENOSPC;
	rc = heap_take(r, len, &q.at);
	if (rc)
		return rc;
	race_subtable(&r->head, depth + 1, suffix | 1u << depth,
		      scratch(r, WHOLE_AT));
	rc = run(r, &q, 1);
	if (!rc)
		rc = cas(r, subtable, state, race_state(depth, q.at), &done);
	r->stats.splits += done;
	if (!rc)
		rc = split_help(r, subtable, &done);
	return rc ? rc : dir_read(r);
}

/* --- the operations ------------------------------------------------------ */

int race_get(struct race *r, const void *key, size_t key_len, void *val,
	     size_t *val_len)
{
	struct key k = key_of(key, key_len);
	struct race_found f;
	struct view v;
	unsigned i;
	int rc = find_buckets(r, &v, k.hash, NULL);

	if (!rc)
		rc = find(r, &v, &k, &f, &i);
	if (rc)
		return rc;
	if (i == SEEN)
		return -ENOENT;
	if (f.val_len > *val_len)
		return -EMSGSIZE;
	memcpy(val, f.val, f.val_len);
	*val_len = f.val_len;
	return 0;
}

/* An update or, with no record, a delete. */
static int change(struct race *r, const struct key *k,
		  const struct race_req *write, uint64_t slot)
{
	const struct race_req *first = write;
	struct race_found f;
	struct view v;
	bool won = false;
	unsigned i;
	int rc;

	for (unsigned n = 0; n < ROUNDS; n++) {
		rc = find_buckets(r, &v, k->hash,
				  PLANTED(r, EARLY) ? NULL : first);
		if (!rc)
			rc = find(r, &v, k, &f, &i);
		if (!rc && i == SEEN)
			rc = -ENOENT;
		if (!rc)
			rc = cas(r, v.at[i], v.slot[i], slot, &won);
		if (won && write && PLANTED(r, EARLY))
			rc = run(r, write, 1);
		if (rc || won)
			return rc;
		r->stats.retries++;
		first = NULL;
	}
	return -EBADMSG;
}

int race_update(struct race *r, const void *key, size_t key_len,
		const void *val, size_t val_len)
{
	struct key k = key_of(key, key_len);
	struct race_req write;
	uint64_t slot;
	int rc = record_make(r, &k, val, val_len, &write, &slot);

	return rc ? rc : change(r, &k, &write, slot);
}

int race_delete(struct race *r, const void *key, size_t key_len)
{
	struct key k = key_of(key, key_len);

	return change(r, &k, NULL, RACE_TOMB);
}

/* A free slot in the emptier combined bucket; SEEN: none. */
static unsigned slot_free(const struct view *v)
{
	unsigned from = v->free[0] >= v->free[1] ? 0 : SEEN / 2, i;

	for (unsigned n = 0; n < SEEN; n++) {
		i = (unsigned)((from + n) % SEEN);
		if (race_slot_free(v->slot[i]))
			return i;
	}
	return SEEN;
}

/* Ends other inserts of the key, or of any key if k is NULL, that are pending:
 * their clients begin anew, or are dead. But not the one at `own`. *any: there
 * was one. */
static int pending_abort(struct race *r, const struct view *v,
			 const struct key *k, uint64_t own, bool *any)
{
	struct race_found f;
	bool is = true, won;
	int rc = 0;

	*any = false;
	for (unsigned i = 0; i < SEEN && !rc; i++) {
		if (!(v->slot[i] & RACE_PENDING) || v->at[i] == own)
			continue;
		if (k)
			rc = is_key(r, v, i, k, true, &f, &is);
		if (rc || !is)
			continue;
		*any = true;
		rc = cas(r, v->at[i], v->slot[i], RACE_TOMB, &won);
	}
	return rc;
}

/* The record is linked as pending at `at`. 0: committed; -EAGAIN: aborted. */
static int commit(struct race *r, const struct key *k, uint64_t subtable,
		  uint64_t at, uint64_t slot)
{
	struct view v = {.hash = k->hash, .subtable = subtable};
	bool same = true, any = true, won;
	struct race_found f;
	unsigned i = SEEN;
	int rc = 0;

	for (unsigned n = 0; any && !rc && n < ROUNDS; n++) {
		any = false;
		if (!PLANTED(r, AGAIN))
			rc = look(r, &v, NULL, &same);
		if (rc || !same || PLANTED(r, AGAIN))
			break;
		rc = find(r, &v, k, &f, &i);
		if (!rc && i == SEEN)
			rc = pending_abort(r, &v, k, at, &any);
	}
	if (rc)
		return rc;
	if (same && i == SEEN && !any) {
		rc = cas(r, at, slot | RACE_PENDING, slot, &won);
		return rc || won ? rc : -EAGAIN;
	}
	rc = cas(r, at, slot | RACE_PENDING, RACE_TOMB, &won);
	if (rc)
		return rc;
	return i < SEEN ? -EEXIST : -EAGAIN;
}

static int insert_once(struct race *r, const struct key *k,
		       const struct race_req *first, uint64_t slot)
{
	struct race_found f;
	struct view v;
	unsigned i = 0;
	bool any, won;
	int rc = find_buckets(r, &v, k->hash, first);

	if (!rc)
		rc = find(r, &v, k, &f, &i);
	if (rc || i < SEEN)
		return rc ? rc : -EEXIST;
	i = slot_free(&v);
	if (i == SEEN) {
		rc = pending_abort(r, &v, NULL, 0, &any);
		if (!rc && !any)
			rc = split(r, v.subtable);
		return rc ? rc : -EAGAIN;
	}
	rc = cas(r, v.at[i], v.slot[i], slot | RACE_PENDING, &won);
	if (rc || !won)
		return rc ? rc : -EAGAIN;
	return commit(r, k, v.subtable, v.at[i], slot);
}

int race_insert(struct race *r, const void *key, size_t key_len,
		const void *val, size_t val_len)
{
	struct key k = key_of(key, key_len);
	struct race_req write;
	uint64_t slot;
	int rc = record_make(r, &k, val, val_len, &write, &slot);

	if (rc)
		return rc;
	for (unsigned n = 0; n < ROUNDS; n++) {
		rc = insert_once(r, &k, n || PLANTED(r, EARLY) ? NULL : &write,
				 slot);
		if (!rc && PLANTED(r, EARLY))
			rc = run(r, &write, 1);
		if (rc != -EAGAIN)
			return rc;
		r->stats.retries++;
	}
	return -EBADMSG;
}
