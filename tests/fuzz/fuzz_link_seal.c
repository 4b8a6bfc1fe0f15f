/* SPDX-License-Identifier: MIT */
/*
 * fuzz_link_seal.c - a sealed connection, with somebody between its ends. The
 * first byte says how much of what one end says arrives as it was said; the rest
 * of the input stands in the place of what follows. Nothing of that opens.
 */
#include "base/assert.h"
#include "dev/soft/link/seal.h"

#include <stdlib.h>
#include <string.h>

#define RECORDS 3u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const uint8_t psk[SEAL_KEY] = {1}, secrets[2][SEAL_KEY] = {{2}, {3}};

static struct seal *end_new(bool dials)
{
	const struct seal_attr a = {
		.dials = dials, .psk = psk, .secret = secrets[dials]};
	struct seal *s = calloc(1, seal_bytes());

	skein_assert(s);
	seal_begin(s, &a);
	return s;
}

/* How many bytes of records are opened: those that were said, at most. */
static size_t opened(struct seal *s, uint8_t *buf, size_t len)
{
	size_t at = 0, n, used;
	uint8_t *plain;

	while (seal_next(s, buf + at, len - at, &plain, &n, &used) == SEAL_OK) {
		skein_assert(plain >= buf + at && n <= SEAL_PLAIN_MAX);
		skein_assert(plain + n <= buf + at + used);
		at += used;
		skein_assert(at <= len);
	}
	return at;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint8_t msg[SEAL_SHAKE], none[1], buf[4096];
	uint8_t said[RECORDS * (SEAL_HEAD + SEAL_TAG + 8)];
	size_t len = 0, kept, got;
	struct seal *a, *b;
	unsigned i;

	if (!seal_available())
		return 0;
	a = end_new(true);
	b = end_new(false);
	if (!size || size - 1 > sizeof(buf) - sizeof(said))
		goto out;
	/* by a stranger, the handshake */
	if (size > SEAL_SHAKE && data[0] == 0xff) {
		skein_assert(!seal_hear(b, data + 1, SEAL_SHAKE, none));
		goto out;
	}
	seal_say(a, NULL, 0, msg);
	skein_assert(seal_hear(b, msg, sizeof(msg), none));
	seal_say(b, NULL, 0, msg);
	skein_assert(seal_hear(a, msg, sizeof(msg), none));
	for (i = 0; i < RECORDS; i++)
		len += seal_put(a, (const uint8_t *)"packets.", 8, said + len);
	kept = data[0] % (len + 1);
	memcpy(buf, said, kept);
	if (size > 1)
		memcpy(buf + kept, data + 1, size - 1);
	len = kept + size - 1 < len ? kept + size - 1 : len;
	/* what arrives as it was said */
	for (kept = 0; kept < len && buf[kept] == said[kept];)
		kept++;
	got = opened(b, buf, data[0] % (sizeof(said) + 1) + size - 1);
	skein_assert(got <= kept);
	skein_assert(kept - got < sizeof(said) / RECORDS);
out:
	free(a);
	free(b);
	return 0;
}
