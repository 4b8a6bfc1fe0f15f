/* SPDX-License-Identifier: MIT */
/*
 * fuzz_counters.c - the counters page of a process, which may hold anything.
 */
#include <ctype.h>
#include <errno.h>
#include <string.h>

#include "base/assert.h"
#include "conn/counters.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct counters_record rec;
	int rc = counters_decode(data, size, &rec);

	if (rc) {
		skein_assert(rc == -EINVAL || rc == -EAGAIN);
		return 0;
	}
	skein_assert(size >= sizeof(struct counters_page));
	skein_assert(memchr(rec.device, 0, sizeof(rec.device)));
	for (const char *c = rec.device; *c; c++)
		skein_assert(isprint((unsigned char)*c));
	skein_assert(!memcmp(rec.values,
			     data + offsetof(struct counters_page, values),
			     sizeof(rec.values)));
	return 0;
}
