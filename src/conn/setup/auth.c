/* SPDX-License-Identifier: MIT */
/*
 * auth.c - nettle's HMAC-SHA256 behind two functions.
 */
#include "conn/setup/auth.h"

#include "base/assert.h"

#ifdef SKEIN_HAVE_NETTLE
#include <nettle/hmac.h>
#include <nettle/memops.h>

bool auth_available(void)
{
	return true;
}

void auth_mac(const void *key, size_t key_len, const struct auth_part *parts,
	      unsigned n, uint8_t mac[AUTH_MAC_LEN])
{
	struct hmac_sha256_ctx ctx;

	hmac_sha256_set_key(&ctx, key_len, key);
	for (unsigned i = 0; i < n; i++)
		hmac_sha256_update(&ctx, parts[i].len, parts[i].buf);
	hmac_sha256_digest(&ctx, AUTH_MAC_LEN, mac);
}

bool auth_equal(const uint8_t *a, const uint8_t *b, size_t len)
{
	return memeql_sec(a, b, len);
}

#else

bool auth_available(void)
{
	return false;
}

void auth_mac(const void *key, size_t key_len, const struct auth_part *parts,
	      unsigned n, uint8_t mac[AUTH_MAC_LEN])
{
	skein_assert(!"a key without a keyed hash");
}

bool auth_equal(const uint8_t *a, const uint8_t *b, size_t len)
{
	return false;
}

#endif
