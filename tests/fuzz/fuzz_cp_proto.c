/* SPDX-License-Identifier: MIT */
/*
 * fuzz_cp_proto.c - what a sender and a receiver of `skein cp` tell each other:
 * the first byte says which of them is decoded.
 */
#include "base/assert.h"
#include "cp/proto.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum {
	BLOCKS = 1000,
};

static void open_call(struct bytes_in *in)
{
	struct cp_open open;

	if (cp_get_open(in, &open))
		return;
	skein_assert(open.path_len <= CP_PATH_MAX);
	skein_assert(!memchr(open.path, 0, open.path_len));
}

static void status(struct bytes_in *in)
{
	struct cp_status st;
	uint64_t session;

	if (cp_get_opened(in, &session, &st))
		return;
	skein_assert(st.phase < CP_PHASES);
	for (const char *c = st.text; *c; c++)
		skein_assert((unsigned char)*c >= ' ');
}

static void list(struct bytes_in *in, size_t item_len)
{
	struct cp_list l;

	if (!cp_get_list(in, item_len, 16, &l))
		skein_assert(bytes_left(in) == l.count * item_len);
}

static void a_round(struct bytes_in *in)
{
	struct cp_round r;
	uint64_t n;

	if (cp_get_round(in, BLOCKS, &r))
		return;
	n = cp_round_blocks(&r);
	skein_assert(n && n <= BLOCKS);
	for (uint64_t i = 1; i < n; i++)
		skein_assert(cp_round_block(&r, i - 1) < cp_round_block(&r, i));
	skein_assert(cp_round_block(&r, n - 1) < BLOCKS);
	/* the last block has one byte */
	skein_assert(cp_round_bytes(&r, (BLOCKS - 1) * 4096 + 1, 4096) <=
		     n * 4096);
	cp_round_fini(&r);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct bytes_in in = bytes_in(data, size);

	switch (bytes_get_u8(&in)) {
	case 0:
		open_call(&in);
		break;
	case 1:
		status(&in);
		break;
	case 2:
		list(&in, 8);
		break;
	case 3:
		list(&in, CP_ID_LEN);
		break;
	default:
		a_round(&in);
	}
	return 0;
}
