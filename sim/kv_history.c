/* SPDX-License-Identifier: MIT */
/* kv_history.c - may this be read? See kv_history.h. */
#include "sim/kv_history.h"

#include "base/assert.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct head {
	uint32_t key, version, body, len;
};

_Static_assert(sizeof(struct head) == HIST_VAL_MIN, "the value's head");

static unsigned char pattern(uint32_t key, uint32_t body, size_t i)
{
	return (unsigned char)(key * 7 + body * 131 + i + (i >> 8));
}

/* --- keys -------------------------------------------------------------- */

uint32_t hist_key_new(struct history *h)
{
	if (h->n_keys == HIST_KEYS)
		return HIST_KEYS;
	h->keys[h->n_keys] = (struct hist_key){.v[0].absent = true};
	h->keys[h->n_keys].incarnation = h->incarnation;
	return h->n_keys++;
}

/* The key, as of this incarnation of the server. */
static struct hist_key *key_of(struct history *h, uint32_t key)
{
	struct hist_key *k = &h->keys[key];

	skein_assert(key < h->n_keys);
	if (k->incarnation == h->incarnation)
		return k;
	k->incarnation = h->incarnation;
	k->floor = 0;
	/* A write under way may be sent again, and take effect now. */
	k->base = k->writing || k->tainted ? k->n : k->n + 1;
	return k;
}

bool hist_writable(struct history *h, uint32_t key)
{
	const struct hist_key *k = key_of(h, key);

	return !k->writing && !k->tainted && k->n < HIST_VERSIONS;
}

void hist_server_died(struct history *h)
{
	h->incarnation++;
}

void hist_key_bytes(uint32_t key, char bytes[HIST_KEY_LEN + 1])
{
	/* Neighbours in number are none in order. */
	snprintf(bytes, HIST_KEY_LEN + 1, "user%04x%04x",
		 (key * 40503u) & 0xffff, key);
}

uint32_t hist_key_parse(const void *bytes, size_t len)
{
	char text[HIST_KEY_LEN + 1], want[HIST_KEY_LEN + 1];
	uint32_t key;

	if (len != HIST_KEY_LEN)
		return HIST_KEYS;
	memcpy(text, bytes, len);
	text[len] = '\0';
	key = (uint32_t)strtoul(text + 8, NULL, 16);
	if (key >= HIST_KEYS)
		return HIST_KEYS;
	hist_key_bytes(key, want);
	return strcmp(text, want) ? HIST_KEYS : key;
}

/* --- values ------------------------------------------------------------ */

void hist_head(const struct history *h, uint32_t key, uint32_t version,
	       unsigned char bytes[HIST_VAL_MIN])
{
	const struct hist_version *v = &h->keys[key].v[version];
	struct head head = {key, version, v->body, v->len};

	memcpy(bytes, &head, sizeof(head));
}

void hist_value(const struct history *h, uint32_t key, uint32_t version,
		unsigned char *val)
{
	const struct hist_version *v = &h->keys[key].v[version];

	hist_head(h, key, version, val);
	for (size_t i = HIST_VAL_MIN; i < v->len; i++)
		val[i] = pattern(key, v->body, i);
}

/* The version that wrote val; 0: val is wrong, and the failure was reported. */
static uint32_t version_of(struct history *h, uint32_t key, const void *val,
			   size_t len)
{
	const struct hist_key *k = &h->keys[key];
	const unsigned char *p = val;
	struct head head;

	if (len < sizeof(head)) {
		report_fail(h->rep, "key %u: a value of %zu bytes", key, len);
		return 0;
	}
	memcpy(&head, val, sizeof(head));
	if (head.key != key || !head.version || head.version > k->n ||
	    head.body != k->v[head.version].body ||
	    head.len != k->v[head.version].len || head.len != len) {
		report_fail(h->rep,
			    "key %u: a value of key %u, version %u of %u, was "
			    "never written",
			    key, head.key, head.version, k->n);
		return 0;
	}
	for (size_t i = HIST_VAL_MIN; i < len; i++)
		if (p[i] != pattern(key, head.body, i)) {
			report_fail(h->rep,
				    "key %u, version %u: byte %zu is wrong",
				    key, head.version, i);
			return 0;
		}
	return head.version;
}

/* --- writes ------------------------------------------------------------ */

uint32_t hist_write(struct history *h, uint32_t key, uint32_t len,
		    uint32_t body, bool absent, struct hist_span *span)
{
	struct hist_key *k = key_of(h, key);
	uint32_t n;

	skein_assert(hist_writable(h, key));
	n = ++k->n;
	k->v[n] = (struct hist_version){.body = body ? body : n,
					.len = body ? k->v[body].len : len,
					.absent = absent};
	k->writing = true;
	*span = (struct hist_span){h->incarnation, k->floor};
	return n;
}

void hist_write_end(struct history *h, uint32_t key,
		    const struct hist_span *span, enum hist_outcome outcome)
{
	struct hist_key *k = key_of(h, key);

	k->writing = false;
	if (outcome == HIST_NEVER)
		k->v[k->n].never = true;
	/* Which incarnation did it? */
	else if (outcome == HIST_UNKNOWN || span->incarnation != h->incarnation)
		k->tainted = true;
	else if (k->floor < k->n)
		k->floor = k->n;
}

/* --- reads ------------------------------------------------------------- */

void hist_read(struct history *h, uint32_t key, struct hist_span *span)
{
	*span = (struct hist_span){h->incarnation, key_of(h, key)->floor};
}

/* Nothing was there: which version is that? */
static void found_nothing(struct history *h, uint32_t key, struct hist_key *k,
			  uint32_t floor)
{
	h->absent++;
	for (uint32_t v = floor; v <= k->n; v++) {
		if (!k->v[v].absent || k->v[v].never)
			continue;
		if (k->floor < v)
			k->floor = v;
		return;
	}
	report_fail(h->rep,
		    "key %u: version %u was acknowledged or read, and is "
		    "gone",
		    key, floor);
}

static void found(struct history *h, uint32_t key, struct hist_key *k,
		  uint32_t floor, uint32_t v)
{
	if (k->v[v].absent || k->v[v].never)
		report_fail(h->rep, "key %u: version %u was %s, and is read",
			    key, v,
			    k->v[v].absent ? "a DELETE" : "never written");
	else if (v < floor)
		report_fail(h->rep,
			    "key %u: version %u is read after version %u", key,
			    v, floor);
	else if (v < k->base)
		report_fail(h->rep,
			    "key %u: version %u is read, of a server that was "
			    "killed",
			    key, v);
	if (k->floor < v)
		k->floor = v;
}

void hist_read_end(struct history *h, uint32_t key,
		   const struct hist_span *span, const void *val, size_t len)
{
	struct hist_key *k = key_of(h, key);
	uint32_t v = val ? version_of(h, key, val, len) : 0;

	h->reads++;
	if (val && !v)
		return; /* said */
	if (span->incarnation != h->incarnation)
		h->lost_sight++;
	else if (val)
		found(h, key, k, span->floor, v);
	else
		found_nothing(h, key, k, span->floor);
}
