/* SPDX-License-Identifier: MIT */
/*
 * lack.c - which blocks each target lacks, and the round that sends them; see
 * state.h.
 */
#include "cp/sender/state.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

static bool bit(const uint8_t *bits, uint64_t i)
{
	return bits[i / 8] >> (i % 8) & 1;
}

static void set_bit(uint8_t *bits, uint64_t i, bool on)
{
	uint8_t mask = (uint8_t)(1u << (i % 8));

	bits[i / 8] = on ? bits[i / 8] | mask : bits[i / 8] & (uint8_t)~mask;
}

static void lack_all(struct cp_peer *p, uint64_t blocks)
{
	for (uint64_t b = 0; b < blocks; b++)
		set_bit(p->lacks, b, true);
	p->lacking = blocks;
}

void cp_lack_none(struct cp_peer *p, uint64_t blocks)
{
	memset(p->lacks, 0, (blocks + 7) / 8);
	p->lacking = 0;
}

static void make_have(struct cp_peer *p, struct bytes_out *out, void *arg)
{
	struct cp_list list = *(struct cp_list *)arg;

	list.session = p->session;
	cp_put_list(out, &list);
}

/* A block counts as there when it is what we have sent, or would. */
static int take_have(struct cp_peer *p, struct bytes_in *in, void *arg)
{
	const struct cp_list *list = arg;

	if (bytes_left(in) != (size_t)list->count * 8)
		return -EBADMSG;
	for (uint32_t i = 0; i < list->count; i++) {
		uint64_t b = list->first + i, hash = bytes_get_u64(in);
		bool lacks = !hash || hash != p->job->source.sums[b];

		set_bit(p->lacks, b, lacks);
		p->lacking += lacks;
	}
	return 0;
}

static int ask_chunks(struct cp_job *job)
{
	struct cp_list list = {0};
	struct cp_fan fan = {
		.call = CP_CALL_HAVE,
		.what = "asking what it has",
		.req_max = 32,
		.resp_max = CP_REPLY_MAX,
		.make = make_have,
		.take = take_have,
		.arg = &list,
	};
	int rc = 0;

	for (uint64_t b = 0; b < job->blocks && !rc; b += CP_CHUNK_SUMS) {
		list.first = b;
		list.count = job->blocks - b < CP_CHUNK_SUMS
				     ? (uint32_t)(job->blocks - b)
				     : CP_CHUNK_SUMS;
		rc = cp_fan(job, &fan);
	}
	return rc;
}

int cp_lack_ask(struct cp_job *job, bool all)
{
	int rc;

	for (size_t i = 0; i < job->n; i++) {
		struct cp_peer *p = &job->peer[i];

		if (!p->live)
			continue;
		/* a target that has nothing need not be asked */
		p->skip = all || !p->st.have || p->finished;
		p->lacking = 0;
		if (p->skip && !p->finished)
			lack_all(p, job->blocks);
	}
	rc = all ? 0 : ask_chunks(job);
	for (size_t i = 0; i < job->n; i++)
		job->peer[i].skip = false;
	return rc;
}

/* Does a live target lack it? */
static bool wanted(const struct cp_job *job, uint64_t block)
{
	for (size_t i = 0; i < job->n; i++)
		if (job->peer[i].live && job->peer[i].lacking &&
		    bit(job->peer[i].lacks, block))
			return true;
	return false;
}

static int add_range(struct cp_round *r, size_t *room, uint64_t block)
{
	struct cp_range *x;

	if (r->ranges) {
		x = &r->range[r->ranges - 1];
		if (x->first + x->count == block) {
			x->count++;
			return 0;
		}
	}
	if (r->ranges == *room) {
		size_t more = *room ? 2 * *room : 16;

		x = realloc(r->range, more * sizeof(*x));
		if (!x)
			return -ENOMEM;
		r->range = x;
		*room = more;
	}
	r->range[r->ranges++] = (struct cp_range){block, 1};
	return 0;
}

/* What of a host's name says where it stands: what is before its last digits,
 * as "r1n" of "r1n12.example". */
static size_t rack_len(const char *addr)
{
	size_t len = strcspn(addr, ":");
	const char *dot;

	/* of a name, the first label; of an IPv4 address, all */
	dot = memchr(addr, '.', len);
	if (dot && !isdigit((unsigned char)*addr))
		len = (size_t)(dot - addr);
	while (len && isdigit((unsigned char)addr[len - 1]))
		len--;
	return len;
}

static bool like_names(const char *a, const char *b)
{
	size_t len = rack_len(a);

	return rack_len(b) == len && !memcmp(a, b, len);
}

/* Do members i and j > 0 of the round share a rack? */
static bool share_rack(const struct cp_job *job, const struct cp_round *r,
		       struct cp_peer *const *members, uint32_t i, uint32_t j)
{
	const uint32_t *racks = job->attr.racks;
	const struct cp_peer *first = job->peer;

	if (!racks)
		return i && like_names(r->members[i], r->members[j]);
	return racks[i ? 1 + (members[i - 1] - first) : 0] ==
	       racks[1 + (members[j - 1] - first)];
}

/* A rack's number is the rank of its first member. */
static void find_racks(const struct cp_job *job, struct cp_round *r,
		       struct cp_peer *const *members)
{
	for (uint32_t j = 1; j < r->count; j++) {
		uint32_t i = 0;

		while (i < j && !share_rack(job, r, members, i, j))
			i++;
		r->racks[j] = i;
	}
}

static int add_members(struct cp_job *job, struct cp_round *r,
		       struct cp_peer **members)
{
	r->members = calloc(job->n + 1, sizeof(*r->members));
	r->racks = calloc(job->n + 1, sizeof(*r->racks));
	if (!r->members || !r->racks)
		return -ENOMEM;
	r->members[r->count++] = strdup("sender");
	for (size_t i = 0; i < job->n; i++) {
		struct cp_peer *p = &job->peer[i];

		if (!p->live || !p->lacking)
			continue;
		members[r->count - 1] = p;
		r->members[r->count++] = strdup(p->result->addr);
	}
	for (uint32_t i = 0; i < r->count; i++)
		if (!r->members[i])
			return -ENOMEM;
	find_racks(job, r, members);
	return 0;
}

int cp_lack_round(struct cp_job *job, struct cp_round *r,
		  struct cp_peer **members)
{
	size_t room = 0;
	int rc = 0;

	*r = (struct cp_round){0};
	for (uint64_t b = 0; b < job->blocks && !rc; b++)
		if (wanted(job, b))
			rc = add_range(r, &room, b);
	if (!rc)
		rc = add_members(job, r, members);
	if (rc) {
		cp_round_fini(r);
		return cp_fail(job->err, rc, "no memory");
	}
	return 0;
}
