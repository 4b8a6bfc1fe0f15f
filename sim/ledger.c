/* SPDX-License-Identifier: MIT */
/* ledger.c - see ledger.h. */
#include "sim/ledger.h"

#include <errno.h>
#include <string.h>

/* --- calls -------------------------------------------------------------- */

uint32_t ledger_session(struct ledger *l)
{
	uint32_t n = l->n_sessions + 1;

	if (n == LEDGER_SESSIONS)
		return 0;
	l->n_sessions = n;
	fifo_begin(&l->sessions[n].executed, n);
	fifo_begin(&l->sessions[n].answered, n);
	return n;
}

uint32_t ledger_call(struct ledger *l, const struct ledger_tag *tag,
		     uint32_t session, enum ledger_how how)
{
	struct ledger_call *c = &l->calls[l->n_calls];

	if (l->n_calls == LEDGER_CALLS)
		return LEDGER_NONE;
	*c = (struct ledger_call){
		.tag = *tag, .session = session, .how = how, .issued = 1};
	c->tag.uid = l->n_calls++;
	return c->tag.uid;
}

void ledger_call_refused(struct ledger *l, uint32_t uid)
{
	l->calls[uid].issued = 0;
}

static unsigned char pattern(uint32_t uid, size_t k)
{
	return (unsigned char)(uid * 131 + k + (k >> 8));
}

static void fill(const struct ledger_tag *tag, uint32_t key, void *buf,
		 size_t len)
{
	unsigned char *p = buf;

	memcpy(buf, tag, sizeof(*tag));
	for (size_t k = sizeof(*tag); k < len; k++)
		p[k] = pattern(key, k);
}

/* The offset of the first wrong byte; len when all are right. */
static size_t wrong(uint32_t key, const void *data, size_t len)
{
	const unsigned char *p = data;
	size_t k;

	for (k = sizeof(struct ledger_tag); k < len; k++)
		if (p[k] != pattern(key, k))
			break;
	return k;
}

void ledger_request(const struct ledger *l, uint32_t uid, void *buf, size_t len)
{
	fill(&l->calls[uid].tag, uid, buf, len);
}

void ledger_response(const struct ledger *l, uint32_t uid, void *buf)
{
	fill(&l->calls[uid].tag, ~uid, buf, l->calls[uid].tag.resp_len);
}

uint32_t ledger_executed(struct ledger *l, const void *data, size_t len)
{
	struct ledger_call *c;
	struct ledger_tag tag;

	if (len < sizeof(tag)) {
		report_fail(l->rep, "a request of %zu bytes arrived", len);
		return LEDGER_NONE;
	}
	memcpy(&tag, data, sizeof(tag));
	c = &l->calls[tag.uid < l->n_calls ? tag.uid : 0];
	if (!c->issued || memcmp(&tag, &c->tag, sizeof(tag)) != 0) {
		report_fail(l->rep, "request %u was never made", tag.uid);
		return LEDGER_NONE;
	}
	if (wrong(tag.uid, data, len) != len) {
		report_fail(l->rep, "request %u: byte %zu is wrong", tag.uid,
			    wrong(tag.uid, data, len));
		return LEDGER_NONE;
	}
	if (c->executed++)
		report_fail(l->rep, "call %u was executed twice", tag.uid);
	if (c->how != LEDGER_POOL)
		fifo_take(&l->sessions[c->session].executed, c->session,
			  tag.uid, "was executed", l->rep);
	return tag.uid;
}

static void check_response(struct ledger *l, const struct ledger_call *c,
			   const void *data, size_t len)
{
	struct ledger_tag tag;
	uint32_t uid = c->tag.uid;

	if (len != c->tag.resp_len) {
		report_fail(l->rep, "call %u: %zu bytes came, not %u", uid, len,
			    c->tag.resp_len);
		return;
	}
	memcpy(&tag, data, sizeof(tag));
	if (memcmp(&tag, &c->tag, sizeof(tag)) != 0)
		report_fail(l->rep,
			    "call %u of client %u, thread %u got the response "
			    "of call %u, client %u, thread %u",
			    uid, c->tag.client, c->tag.thread, tag.uid,
			    tag.client, tag.thread);
	else if (wrong(~uid, data, len) != len)
		report_fail(l->rep,
			    "call %u: byte %zu of its response is another's",
			    uid, wrong(~uid, data, len));
}

void ledger_ended(struct ledger *l, uint32_t uid,
		  const struct skein_rpc_result *res, const void *data)
{
	struct ledger_call *c = &l->calls[uid];

	if (c->done++)
		report_fail(l->rep, "call %u ended twice", uid);
	c->outcome = (uint8_t)res->outcome;
	c->status = res->status;
	if (res->status)
		return;
	if (c->how == LEDGER_INLINE)
		fifo_take(&l->sessions[c->session].answered, c->session, uid,
			  "was answered", l->rep);
	check_response(l, c, data, res->len);
}

void ledger_client_killed(struct ledger *l, unsigned client)
{
	for (uint32_t i = 0; i < l->n_calls; i++)
		if (l->calls[i].tag.client == client && !l->calls[i].done)
			l->calls[i].orphan = 1;
}

/* --- atomics ------------------------------------------------------------ */

uint32_t ledger_life(struct ledger *l)
{
	if (l->n_lives + 1 == LEDGER_LIVES)
		return 0;
	return ++l->n_lives;
}

void ledger_life_over(struct ledger *l, uint32_t life, const uint64_t *sums,
		      const uint64_t *tops)
{
	struct ledger_life *f = &l->lives[life];

	f->over = true;
	for (unsigned i = 0; i < LEDGER_WORDS; i++) {
		f->words[i].sum = sums[i];
		f->words[i].top = tops[i];
	}
}

bool ledger_add(struct ledger *l, uint32_t life, unsigned word, uint64_t *least)
{
	struct ledger_word *w = &l->lives[life].words[word];

	if (w->begun == LEDGER_ADDS)
		return false;
	w->begun++;
	*least = w->least;
	return true;
}

void ledger_add_ended(struct ledger *l, uint32_t life, unsigned word,
		      enum ledger_outcome outcome, uint64_t least, uint64_t old)
{
	struct ledger_word *w = &l->lives[life].words[word];
	uint8_t bit;

	l->atomics[outcome]++;
	w->never += outcome == LEDGER_NEVER;
	if (outcome != LEDGER_DONE)
		return;
	if (old >= w->begun) {
		report_fail(l->rep, "an add found %llu after %u were begun",
			    (unsigned long long)old, w->begun);
		return;
	}
	bit = (uint8_t)(1u << old % 8);
	if (w->seen[old / 8] & bit)
		report_fail(l->rep, "two adds found the same value, %llu",
			    (unsigned long long)old);
	else if (old < least)
		report_fail(l->rep,
			    "an add found %llu, and one that had ended before "
			    "it began found %llu",
			    (unsigned long long)old,
			    (unsigned long long)least - 1);
	w->seen[old / 8] |= bit;
	if (w->least <= old)
		w->least = old + 1;
	w->ok++;
}

uint64_t ledger_swap(struct ledger *l, uint32_t life, unsigned word,
		     uint64_t compare)
{
	if (l->n_swaps == LEDGER_SWAPS)
		return 0;
	l->swaps[l->n_swaps++] =
		(struct ledger_swap){.life = life,
				     .compare = (uint32_t)compare,
				     .word = (uint8_t)word,
				     .begun = ++l->ticks,
				     .outcome = LEDGER_UNKNOWN};
	return l->n_swaps;
}

/* May the word hold, or have held, this? */
static bool plausible(const struct ledger *l, uint32_t life, unsigned word,
		      uint64_t value)
{
	const struct ledger_swap *s;

	if (!value)
		return true;
	if (value > l->n_swaps)
		return false;
	s = &l->swaps[value - 1];
	return s->life == life && s->word == word && s->outcome != LEDGER_NEVER;
}

void ledger_swap_ended(struct ledger *l, uint64_t value,
		       enum ledger_outcome outcome, uint64_t old)
{
	struct ledger_swap *s = &l->swaps[value - 1];
	uint32_t *taken;

	l->atomics[outcome]++;
	s->outcome = outcome;
	if (outcome != LEDGER_DONE)
		return;
	if (!plausible(l, s->life, s->word, old)) {
		report_fail(l->rep, "a swap found %llu, which nobody has put",
			    (unsigned long long)old);
		return;
	}
	taken = old ? &l->swaps[old - 1].taken
		    : &l->lives[s->life].words[s->word].taken;
	if (old != s->compare) {
		s->outcome = LEDGER_NEVER;
		if (*taken && *taken < s->begun)
			report_fail(l->rep,
				    "a swap found %llu, which one that had "
				    "ended before it began took away",
				    (unsigned long long)old);
		return;
	}
	if (*taken)
		report_fail(l->rep, "two swaps took the same value, %llu",
			    (unsigned long long)old);
	*taken = ++l->ticks;
}

/* --- judging ------------------------------------------------------------ */

static void judge_call(struct ledger *l, const struct ledger_call *c,
		       bool memory)
{
	uint32_t uid = c->tag.uid;

	if (!c->issued) {
		if (c->done || c->executed)
			report_fail(l->rep, "call %u was refused, and made",
				    uid);
		return;
	}
	if (!c->done) {
		if (!c->orphan)
			report_fail(l->rep, "call %u never ended", uid);
		return;
	}
	if (!c->status && c->executed != 1)
		report_fail(l->rep, "call %u succeeded, executed %u times", uid,
			    c->executed);
	if (c->outcome == SKEIN_NOT_SENT && c->executed)
		report_fail(l->rep, "call %u was not sent, and executed", uid);
	/* The server's library answers for a handler that it has no memory to
	 * call. */
	if (c->status && c->outcome == SKEIN_DONE && !c->executed &&
	    !(c->status == -ENOMEM && memory))
		report_fail(l->rep, "call %u: done with %d, and not executed",
			    uid, c->status);
}

static void judge_word(struct ledger *l, uint32_t life, unsigned word)
{
	const struct ledger_word *w = &l->lives[life].words[word];

	if (w->sum < w->ok || w->sum > w->begun - w->never)
		report_fail(l->rep,
			    "a word has %llu: %u adds succeeded, %u may have",
			    (unsigned long long)w->sum, w->ok,
			    w->begun - w->never - w->ok);
	for (uint64_t v = w->sum; v < LEDGER_ADDS; v++)
		if (w->seen[v / 8] & 1u << v % 8)
			report_fail(l->rep,
				    "a word has %llu, and an add found %llu",
				    (unsigned long long)w->sum,
				    (unsigned long long)v);
	if (!plausible(l, life, word, w->top))
		report_fail(l->rep, "a word has %llu, which nobody has put",
			    (unsigned long long)w->top);
}

static void judge_swaps(struct ledger *l)
{
	struct ledger_swap *s;

	for (uint32_t i = 0; i < l->n_swaps; i++) {
		s = &l->swaps[i];
		if (s->outcome == LEDGER_UNKNOWN && s->compare)
			l->swaps[s->compare - 1].maybe_taken = true;
	}
	for (uint32_t i = 0; i < l->n_swaps; i++) {
		s = &l->swaps[i];
		if (s->outcome == LEDGER_DONE && l->lives[s->life].over &&
		    !s->taken && !s->maybe_taken &&
		    l->lives[s->life].words[s->word].top != i + 1)
			report_fail(l->rep,
				    "a swap brought in %u, and nobody took it "
				    "away, and it is not there",
				    i + 1);
	}
}

void ledger_judge(struct ledger *l, bool memory)
{
	for (uint32_t i = 0; i < l->n_calls; i++)
		judge_call(l, &l->calls[i], memory);
	for (uint32_t i = 1; i <= l->n_lives; i++)
		for (unsigned k = 0; k < LEDGER_WORDS && l->lives[i].over; k++)
			judge_word(l, i, k);
	judge_swaps(l);
}

void ledger_figures(const struct ledger *l)
{
	unsigned ok = 0, unsent = 0, unknown = 0, orphans = 0;

	for (uint32_t i = 0; i < l->n_calls; i++) {
		const struct ledger_call *c = &l->calls[i];

		orphans += c->issued && !c->done;
		ok += c->done && !c->status;
		unsent += c->done && c->status && c->outcome == SKEIN_NOT_SENT;
		unknown += c->done && c->status && c->outcome == SKEIN_UNKNOWN;
	}
	report_row(l->rep, "calls_ok", ok);
	report_row(l->rep, "calls_not_sent", unsent);
	report_row(l->rep, "calls_unknown", unknown);
	report_row(l->rep, "calls_of_killed_clients", orphans);
	report_row(l->rep, "atomics_ok", (double)l->atomics[LEDGER_DONE]);
	report_row(l->rep, "atomics_unknown",
		   (double)l->atomics[LEDGER_UNKNOWN]);
}
