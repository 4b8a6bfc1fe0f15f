/* SPDX-License-Identifier: MIT */
/* books.c - see books.h. */
#include "sim/vqp/books.h"

#define MS PARTY_MS
/* A pause of this length and less, and a nap, break nothing: the engines'
 * handshakes wait for a second. */
#define PAUSE_NS (300 * MS)
/* How long after the trouble its errors may come: retries, and a handshake that
 * was given up. */
#define AFTER_NS (1500 * MS)

struct record *books_record(struct books *b)
{
	if (b->n_records == RECORDS_MAX)
		return NULL;
	return &b->records[b->n_records++];
}

void books_trouble(struct books *b, unsigned actor, enum fault kind,
		   uint64_t now_ns, uint64_t until_ns)
{
	bool stops = kind == FAULT_PAUSE || kind == FAULT_STALL;

	if (kind == FAULT_LINK_SLOW || kind == FAULT_DELAY ||
	    kind == FAULT_NODE_SLOW || (stops && until_ns - now_ns <= PAUSE_NS))
		return;
	if (kind == FAULT_KILL || kind == FAULT_QP)
		until_ns = now_ns;
	if (b->trouble_ns[actor] < until_ns)
		b->trouble_ns[actor] = until_ns;
	b->trouble = true;
}

static bool is_sound(const struct books *b, unsigned actor, uint64_t born_ns)
{
	uint64_t last = b->trouble_ns[actor];

	return !last || last + AFTER_NS < born_ns;
}

bool books_sound(const struct books *b, const struct record *r)
{
	return is_sound(b, r->from, r->born_ns) &&
	       is_sound(b, r->to, r->born_ns);
}

void books_popped(struct books *b, const struct payload *p, unsigned actor,
		  uint32_t life)
{
	struct record *r = &b->records[p->record % RECORDS_MAX];

	if (p->record >= b->n_records || r->to != actor || r->to_life != life) {
		report_fail(b->rep, "a message has come to a wrong node");
		return;
	}
	/* A node without memory may lose some. */
	if (p->n < r->popped || (p->n != r->popped && books_sound(b, r)))
		report_fail(b->rep,
			    "from %u to %u: message %lu is lost, doubled or "
			    "late: it is %lu",
			    r->from, r->to, (unsigned long)r->popped,
			    (unsigned long)p->n);
	r->popped = p->n + 1;
}

void books_answered(struct books *b, struct record *r, const struct payload *p)
{
	if (&b->records[p->record % RECORDS_MAX] != r || p->n < r->answered ||
	    (p->n != r->answered && !r->unanswered))
		report_fail(b->rep,
			    "from %u to %u: answer %lu is lost, doubled or "
			    "late: it is %lu",
			    r->from, r->to, (unsigned long)r->answered,
			    (unsigned long)p->n);
	r->answered = p->n + 1;
}

void books_ended(struct books *b, const struct record *r, bool lives)
{
	/* One in trouble may count as dead. */
	if (lives && books_sound(b, r) && (!r->ended || !books_arrived(b, r)))
		report_fail(b->rep,
			    "from %u to %u: the end is told behind %lu of %lu "
			    "messages",
			    r->from, r->to, (unsigned long)r->popped,
			    (unsigned long)r->sent);
}

bool books_arrived(const struct books *b, const struct record *r)
{
	return r->popped == r->sent || r->failed || !books_sound(b, r);
}

void books_failed(struct books *b, struct record *r, const char *what,
		  int status)
{
	r->failed = true;
	if (!books_sound(b, r))
		return;
	report_fail(b->rep, "from %u to %u: %s: status %d, in no trouble",
		    r->from, r->to, what, status);
}
