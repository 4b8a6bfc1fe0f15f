/* SPDX-License-Identifier: MIT */
/*
 * The ledger of rpc-handles: what is right passes, and each planted violation is
 * seen.
 */
#include "unit/cm.h"
#include "sim/ledger.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define LEN 64u

static struct report rep;
static struct ledger *l;
static unsigned char buf[LEN];

static int setup(void **state)
{
	l = calloc(1, sizeof(*l));
	if (!l)
		return -1;
	memset(&rep, 0, sizeof(rep));
	rep.ok = true;
	l->rep = &rep;
	return 0;
}

static int teardown(void **state)
{
	free(l);
	return 0;
}

static void says(const char *what)
{
	ledger_judge(l, false);
	assert_int_equal(rep.ok, !*what);
	if (!strstr(rep.why, what))
		fail_msg("\"%s\" does not say \"%s\"", rep.why, what);
}

/* --- calls -------------------------------------------------------------- */

static uint32_t call(uint32_t session, enum ledger_how how)
{
	struct ledger_tag tag = {.resp_len = LEN, .client = 1};

	return ledger_call(l, &tag, session, how);
}

static void executes(uint32_t uid)
{
	ledger_request(l, uid, buf, LEN);
	ledger_executed(l, buf, LEN);
}

static void ends(uint32_t uid, enum skein_outcome outcome, int status,
		 uint32_t as)
{
	struct skein_rpc_result res = {.outcome = outcome, .status = status};

	res.len = status ? 0 : LEN;
	ledger_response(l, as, buf);
	ledger_ended(l, uid, &res, buf);
}

static void test_calls_right(void **state)
{
	uint32_t s = ledger_session(l), a = call(s, LEDGER_INLINE),
		 b = call(s, LEDGER_LATER), c = call(s, LEDGER_INLINE),
		 d = call(s, LEDGER_POOL), e = call(s, LEDGER_INLINE),
		 f = call(s, LEDGER_INLINE);

	executes(a);
	executes(b);
	executes(c);
	ends(a, SKEIN_DONE, 0, a);
	ends(c, SKEIN_DONE, 0, c);
	/* in any order: what was deferred, and what a pool has */
	ends(b, SKEIN_DONE, 0, b);
	executes(e);
	executes(d);
	ends(e, SKEIN_UNKNOWN, -ETIMEDOUT, e);
	ends(d, SKEIN_DONE, 0, d);
	ledger_call_refused(l, f);
	call(s, LEDGER_INLINE);
	ledger_client_killed(l, 1);
	says("");
}

static void test_crossed(void **state)
{
	uint32_t a = call(0, LEDGER_INLINE), b = call(0, LEDGER_INLINE);

	executes(a);
	executes(b);
	ends(a, SKEIN_DONE, 0, b);
	says("got the response of call 1");
}

static void test_bytes(void **state)
{
	uint32_t a = call(0, LEDGER_INLINE);

	ledger_request(l, a, buf, LEN);
	buf[LEN - 1]++;
	ledger_executed(l, buf, LEN);
	says("request 0: byte 63 is wrong");
}

static void test_executed_late(void **state)
{
	uint32_t s = ledger_session(l), a = call(s, LEDGER_INLINE),
		 b = call(s, LEDGER_LATER);

	executes(b);
	executes(a);
	says("call 0 was executed after call 1");
}

static void test_answered_late(void **state)
{
	uint32_t s = ledger_session(l), a = call(s, LEDGER_INLINE),
		 b = call(s, LEDGER_INLINE);

	executes(a);
	executes(b);
	ends(b, SKEIN_DONE, 0, b);
	ends(a, SKEIN_DONE, 0, a);
	says("call 0 was answered after call 1");
}

static void test_executed_twice(void **state)
{
	uint32_t a = call(0, LEDGER_POOL);

	executes(a);
	executes(a);
	says("call 0 was executed twice");
}

static void test_not_sent(void **state)
{
	uint32_t a = call(0, LEDGER_INLINE);

	executes(a);
	ends(a, SKEIN_NOT_SENT, -ENOTCONN, a);
	says("call 0 was not sent, and executed");
}

static void test_ended_twice(void **state)
{
	uint32_t a = call(0, LEDGER_INLINE);

	executes(a);
	ends(a, SKEIN_DONE, 0, a);
	ends(a, SKEIN_DONE, 0, a);
	says("call 0 ended twice");
}

static void test_never_ended(void **state)
{
	call(0, LEDGER_INLINE);
	says("call 0 never ended");
}

/* --- atomics ------------------------------------------------------------ */

static void add(uint32_t life, enum ledger_outcome outcome, uint64_t old)
{
	uint64_t least;

	assert_true(ledger_add(l, life, 0, &least));
	ledger_add_ended(l, life, 0, outcome, least, old);
}

static uint64_t swap(uint32_t life, uint64_t compare,
		     enum ledger_outcome outcome, uint64_t old)
{
	uint64_t v = ledger_swap(l, life, 0, compare);

	ledger_swap_ended(l, v, outcome, old);
	return v;
}

static void over(uint32_t life, uint64_t sum, uint64_t top)
{
	uint64_t sums[LEDGER_WORDS] = {sum}, tops[LEDGER_WORDS] = {top};

	ledger_life_over(l, life, sums, tops);
}

static void test_atomics_right(void **state)
{
	uint32_t life = ledger_life(l);
	uint64_t a, b, c, least, v;

	add(life, LEDGER_UNKNOWN, 0);
	/* Two at once: the later to end was the first to be carried out. */
	assert_true(ledger_add(l, life, 0, &least));
	add(life, LEDGER_DONE, 1);
	ledger_add_ended(l, life, 0, LEDGER_DONE, least, 0);
	add(life, LEDGER_NEVER, 0);
	/* The zero is taken away while another swap looks. */
	v = ledger_swap(l, life, 0, 7);
	a = swap(life, 0, LEDGER_DONE, 0);
	ledger_swap_ended(l, v, LEDGER_DONE, 0);
	swap(life, 0, LEDGER_DONE, a); /* it found another */
	b = swap(life, a, LEDGER_UNKNOWN, 0);
	c = swap(life, b, LEDGER_DONE, b);
	over(life, 3, c);
	says("");
}

static void test_add_twice(void **state)
{
	uint32_t life = ledger_life(l);

	add(life, LEDGER_UNKNOWN, 0);
	add(life, LEDGER_DONE, 1);
	add(life, LEDGER_DONE, 1);
	says("two adds found the same value, 1");
}

static void test_add_lost(void **state)
{
	uint32_t life = ledger_life(l);

	add(life, LEDGER_DONE, 0);
	over(life, 0, 0);
	says("a word has 0: 1 adds succeeded, 0 may have");
}

static void test_add_too_many(void **state)
{
	uint32_t life = ledger_life(l);

	add(life, LEDGER_NEVER, 0);
	add(life, LEDGER_UNKNOWN, 0);
	over(life, 2, 0);
	says("a word has 2: 0 adds succeeded, 1 may have");
}

static void test_add_stale(void **state)
{
	uint32_t life = ledger_life(l);

	add(life, LEDGER_UNKNOWN, 0);
	add(life, LEDGER_DONE, 1);
	add(life, LEDGER_DONE, 0);
	says("an add found 0, and one that had ended before it began found 1");
}

static void test_swap_twice(void **state)
{
	uint32_t life = ledger_life(l);

	swap(life, 0, LEDGER_DONE, 0);
	swap(life, 0, LEDGER_DONE, 0);
	says("two swaps took the same value, 0");
}

static void test_swap_of_nobody(void **state)
{
	uint32_t life = ledger_life(l);
	uint64_t a = swap(life, 0, LEDGER_NEVER, 0);

	swap(life, 0, LEDGER_DONE, a);
	says("a swap found 1, which nobody has put");
}

static void test_swap_stale(void **state)
{
	uint32_t life = ledger_life(l);
	uint64_t a = swap(life, 0, LEDGER_DONE, 0);

	swap(life, a, LEDGER_DONE, a);
	swap(life, 7, LEDGER_DONE, a);
	says("a swap found 1, which one that had ended before it began took");
}

static void test_swap_lost(void **state)
{
	uint32_t life = ledger_life(l);

	swap(life, 0, LEDGER_DONE, 0);
	over(life, 0, 0);
	says("a swap brought in 1, and nobody took it");
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(test_calls_right),	T(test_crossed),
		T(test_bytes),		T(test_executed_late),
		T(test_answered_late),	T(test_executed_twice),
		T(test_not_sent),	T(test_ended_twice),
		T(test_never_ended),	T(test_atomics_right),
		T(test_add_twice),	T(test_add_lost),
		T(test_add_too_many),	T(test_swap_twice),
		T(test_swap_of_nobody), T(test_swap_lost),
		T(test_add_stale),	T(test_swap_stale),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
