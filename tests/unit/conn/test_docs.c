/* SPDX-License-Identifier: MIT */
/*
 * test_docs.c - the tables of the protocol pages against the code.
 *
 * Reads docs/protocol/control.md and handshake.md (argument 1 is the source
 * folder): lengths of frames, and causes.
 */
#include "unit/cm.h"

#include "conn/peer/ctlframe.h"
#include "conn/setup/handshake.h"

#include <errno.h>
#include <skein/error.h>
#include <stdio.h>
#include <string.h>

static const char *source_dir;

static FILE *page(const char *name)
{
	char path[1024];
	FILE *f;

	snprintf(path, sizeof(path), "%s/docs/protocol/%s", source_dir, name);
	f = fopen(path, "r");
	assert_non_null(f);
	return f;
}

/* Is this length taken for a frame of the type (complete or not)? */
static bool taken(unsigned type, uint32_t len)
{
	uint8_t buf[CTLFRAME_HEAD];
	struct bytes_out out = bytes_out(buf, sizeof(buf));
	struct ctlframe f;
	size_t used;

	bytes_put_u32(&out, len);
	bytes_put_u8(&out, (uint8_t)type);
	bytes_put_u8(&out, 0);
	bytes_put_u16(&out, 0);
	return ctlframe_decode(buf, sizeof(buf), &f, &used) >= 0;
}

static void test_frames(void **state)
{
	FILE *f = page("control.md");
	char line[256], *last;
	unsigned type, min, max, rows = 0;

	while (fgets(line, sizeof(line), f)) {
		if (sscanf(line, "| %u | ", &type) != 1)
			continue;
		/* "| 4096 |" or "| 8 to 4096 |" at the end */
		*strrchr(line, '|') = 0;
		last = strrchr(line, '|') + 1;
		if (sscanf(last, " %u to %u", &min, &max) != 2) {
			assert_int_equal(sscanf(last, " %u", &min), 1);
			max = min;
		}
		assert_true(taken(type, min));
		assert_true(taken(type, max));
		assert_true(!min || !taken(type, min - 1));
		assert_false(taken(type, max + 1));
		assert_int_equal(type, ++rows);
	}
	fclose(f);
	assert_int_equal(rows, CTLFRAME_CLOSE_ACK);
	assert_false(taken(rows + 1, 0));
}

static int errno_of(const char *name)
{
	static const struct {
		const char *name;
		int err;
	} names[] = {
		{"SKEIN_EVERSION", SKEIN_EVERSION},
		{"SKEIN_EAUTH", SKEIN_EAUTH},
		{"SKEIN_EBUSY", SKEIN_EBUSY},
		{"SKEIN_EPEER", SKEIN_EPEER},
		{"SKEIN_ERESOURCE", SKEIN_ERESOURCE},
		{"ENETUNREACH", ENETUNREACH},
		{"ESHUTDOWN", ESHUTDOWN},
		{"ETIMEDOUT", ETIMEDOUT},
		{"ECONNRESET", ECONNRESET},
	};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (!strcmp(name, names[i].name))
			return names[i].err;
	return 0;
}

static void test_causes(void **state)
{
	FILE *f = page("handshake.md");
	char line[256], name[64];
	unsigned code, rows = 0;

	while (fgets(line, sizeof(line), f)) {
		if (sscanf(line, "| %u | %63[A-Z_] |", &code, name) != 2 ||
		    !errno_of(name))
			continue;
		assert_int_equal(handshake_error_errno(code), -errno_of(name));
		assert_int_equal(handshake_error_code(-errno_of(name)), code);
		assert_int_equal(code, ++rows);
	}
	fclose(f);
	assert_int_equal(rows, HANDSHAKE_ERR_OTHER);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_frames),
		cmocka_unit_test(test_causes),
	};

	if (argc < 2)
		return 2;
	source_dir = argv[1];
	return cmocka_run_group_tests(tests, NULL, NULL);
}
