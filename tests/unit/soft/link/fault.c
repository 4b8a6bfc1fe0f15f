/* SPDX-License-Identifier: MIT */
/*
 * fault.c - see fault.h.
 */
#include "fault.h"

#define NS 1000000000ull
#define CUT_APART_NS 20000000ull

const char *const fault_names[FAULT_KINDS] = {
	[FAULT_LOST] = "lost",	 [FAULT_TWICE] = "twice",
	[FAULT_LATE] = "late",	 [FAULT_FLIPPED] = "flipped",
	[FAULT_SHORT] = "short", [FAULT_MARKED] = "marked",
	[FAULT_CUT] = "cut",	 [FAULT_FULL] = "full",
};

/* splitmix64 */
static uint64_t draw(struct fault *f)
{
	uint64_t z = f->rng += 0x9e3779b97f4a7c15ull;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ z >> 27) * 0x94d049bb133111ebull;
	return z ^ z >> 31;
}

static uint64_t below(uint64_t random, uint64_t n)
{
	return n ? random % n : 0;
}

void fault_init(struct fault *f, uint64_t seed)
{
	f->rng = seed * 0x2545f4914f6cdd1dull + 1;
	if (!f->late_ns)
		f->late_ns = 300000;
	if (!f->cut_ns)
		f->cut_ns = 3000000;
}

/* False: the queue has no room. Else *at: when its last byte has gone. */
static bool passes(struct fault *f, uint64_t now, size_t len, uint64_t *at)
{
	uint64_t wait = f->free_at > now ? f->free_at - now : 0;

	*at = now;
	if (!f->rate)
		return true;
	if (wait * f->rate / NS + len > f->queue)
		return false;
	f->free_at = now + wait + len * NS / f->rate;
	*at = f->free_at;
	return true;
}

/* For less than retries last, and not again at once. */
static bool is_cut(struct fault *f, uint64_t now, bool begins, uint64_t random)
{
	if (begins && (!f->cut_until || now >= f->cut_until + CUT_APART_NS))
		f->cut_until = now + below(random, f->cut_ns);
	return now < f->cut_until;
}

void fault_next(struct fault *f, uint64_t now, size_t len, struct fate *out)
{
	uint64_t r[FAULT_CUT + 1], late = draw(f), again = draw(f);
	uint64_t where = draw(f);
	bool is[FAULT_KINDS] = {0};
	unsigned i;

	f->packets++;
	for (i = 0; i <= FAULT_CUT; i++) {
		r[i] = draw(f);
		is[i] = r[i] % 1000 < f->of_1000[i];
	}
	*out = (struct fate){.len = len};
	is[FAULT_CUT] = is_cut(f, now, is[FAULT_CUT], r[FAULT_CUT] / 1000);
	out->gone = is[FAULT_CUT] || is[FAULT_LOST];
	if (!out->gone && !passes(f, now, len, &out->at)) {
		is[FAULT_FULL] = true;
		out->gone = true;
	}
	for (i = 0; i < FAULT_KINDS; i++)
		f->counts[i] += is[i] && (!out->gone || i == FAULT_LOST ||
					  i == FAULT_CUT || i == FAULT_FULL);
	if (out->gone)
		return;
	out->at += f->delay_ns;
	if (out->at <= f->last_at)
		out->at = f->last_at + 1;
	f->last_at = out->at;
	if (is[FAULT_LATE])
		out->at += below(late, f->late_ns);
	if (is[FAULT_TWICE])
		out->again_at = out->at + 1 + below(again, f->late_ns);
	if (is[FAULT_FLIPPED])
		out->flip = 1 + below(where, len * 8);
	if (is[FAULT_SHORT])
		out->len = below(where, len);
	out->marked = is[FAULT_MARKED];
}

bool fault_is_bad(const struct fault *f)
{
	for (unsigned i = 0; i < FAULT_KINDS; i++)
		if (f->counts[i])
			return true;
	return false;
}
