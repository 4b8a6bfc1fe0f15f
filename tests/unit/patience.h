/* SPDX-License-Identifier: MIT */
/*
 * patience.h - how long a unit test waits for what must come before it fails.
 * Such a limit is there for a test that would hang, and says nothing about
 * speed. SKEIN_TEST_TIME_SCALE multiplies it: sanitizers and slow guests.
 */
#ifndef SKEIN_TESTS_PATIENCE_H
#define SKEIN_TESTS_PATIENCE_H

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

static inline uint64_t patience_ns(unsigned seconds)
{
	const char *scale = getenv("SKEIN_TEST_TIME_SCALE");
	double by = scale ? strtod(scale, NULL) : 1;

	return (uint64_t)(1e9 * seconds * (by > 1 ? by : 1));
}

static inline int patience_ms(unsigned seconds)
{
	return (int)(patience_ns(seconds) / 1000000);
}

/* After a wait of so many seconds, which may have ended with its limit. The
 * runner of the tests knows by these words that a time was too short, and that
 * no value is wrong. A macro: fail_msg() is that of the place. */
#define patience_met(met, seconds, what)                            \
	do {                                                        \
		if (!(met))                                         \
			fail_msg("not within %g s: %s",             \
				 patience_ns(seconds) / 1e9, what); \
	} while (0)

/* For long work: the limit begins again with each change of a count. */
struct patience {
	uint64_t count, end_ns;
};

/* Has the count stood still for so many seconds? */
static inline bool patience_ends(struct patience *p, uint64_t count,
				 uint64_t now_ns, unsigned seconds)
{
	if (!p->end_ns || count != p->count) {
		p->count = count;
		p->end_ns = now_ns + patience_ns(seconds);
	}
	return now_ns >= p->end_ns;
}

/* For a call that goes on to its deadline with what the other end answers: a
 * deadline before which nothing came (-ETIMEDOUT) is taken twice as long. True:
 * call again. */
static inline bool patience_doubles(uint64_t *timeout_ns, int rc)
{
	*timeout_ns *= 2;
	return rc == -ETIMEDOUT && *timeout_ns < patience_ns(40);
}

#endif
