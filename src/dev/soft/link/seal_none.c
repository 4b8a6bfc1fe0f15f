/* SPDX-License-Identifier: MIT */
/*
 * seal_none.c - seal.h without nettle and hogweed: no key is read then, and
 * nobody comes here.
 */
#include "dev/soft/link/seal.h"

#include "base/assert.h"

bool seal_available(void)
{
	return false;
}

size_t seal_bytes(void)
{
	return 1;
}

void seal_psk(const void *line, size_t len, uint8_t psk[SEAL_KEY])
{
	skein_assert(!"no seal");
}

void seal_begin(struct seal *s, const struct seal_attr *a)
{
	skein_assert(!"no seal");
}

void seal_say(struct seal *s, const void *payload, size_t len, uint8_t *msg)
{
	skein_assert(!"no seal");
}

bool seal_hear(struct seal *s, const uint8_t *msg, size_t len, void *payload)
{
	return false;
}

const uint8_t *seal_hash(const struct seal *s)
{
	return NULL;
}

size_t seal_put(struct seal *s, const uint8_t *plain, size_t len, uint8_t *rec)
{
	skein_assert(!"no seal");
	return 0;
}

enum seal_fault seal_next(struct seal *s, uint8_t *rec, size_t len,
			  uint8_t **plain, size_t *n, size_t *used)
{
	return SEAL_FORGED;
}
