/* SPDX-License-Identifier: MIT */
/*
 * seal.c - see seal.h. Sections in brackets are those of the Noise
 * specification, revision 34; names of variables are its own.
 */
#include "dev/soft/link/seal.h"

#include "base/assert.h"

#include <string.h>

#include <nettle/curve25519.h>
#include <nettle/gcm.h>
#include <nettle/hmac.h>
#include <nettle/memops.h>
#include <nettle/sha2.h>

/* 32 bytes: h begins with it, not with its hash [5.2] */
static const char name[] = "Noise_NNpsk0_25519_AESGCM_SHA256";

_Static_assert(sizeof(name) - 1 == SHA256_DIGEST_SIZE, "no hash");
_Static_assert(SEAL_KEY == CURVE25519_SIZE, "a key is a point");
_Static_assert(SEAL_TAG == GCM_DIGEST_SIZE, "tag");

/* One direction: a CipherState [5.1]. */
struct seal_stream {
	struct gcm_aes256_ctx gcm;
	uint64_t n;
	uint32_t left; /* records by this key */
};

struct seal {
	bool dials;
	uint32_t records;
	uint8_t psk[SEAL_KEY], secret[SEAL_KEY];
	uint8_t theirs[SEAL_KEY]; /* their point, of those that do not dial */
	uint8_t h[SHA256_DIGEST_SIZE], ck[SHA256_DIGEST_SIZE];
	struct seal_stream tx, rx; /* in the handshake tx has both directions */
};

bool seal_available(void)
{
	return true;
}

size_t seal_bytes(void)
{
	return sizeof(struct seal);
}

void seal_psk(const void *line, size_t len, uint8_t psk[SEAL_KEY])
{
	static const char what[] = "skein link key 1";
	struct hmac_sha256_ctx c;

	hmac_sha256_set_key(&c, len, line);
	hmac_sha256_update(&c, sizeof(what) - 1, (const uint8_t *)what);
	hmac_sha256_digest(&c, SEAL_KEY, psk);
	explicit_bzero(&c, sizeof(c));
}

/* One direction. */

static void stream_key(struct seal_stream *w, const uint8_t key[SEAL_KEY])
{
	gcm_aes256_set_key(&w->gcm, key);
	w->n = 0;
}

/* 32 zero bits, then the counter [12.3] */
static void stream_nonce(struct seal_stream *w, uint64_t n)
{
	uint8_t iv[GCM_IV_SIZE] = {0};
	unsigned i;

	for (i = 0; i < 8; i++)
		iv[GCM_IV_SIZE - 1 - i] = (uint8_t)(n >> 8 * i);
	gcm_aes256_set_iv(&w->gcm, sizeof(iv), iv);
}

/* out: len bytes and the tag. */
static void stream_encrypt(struct seal_stream *w, const uint8_t *ad,
			   size_t ad_len, const uint8_t *plain, size_t len,
			   uint8_t *out)
{
	stream_nonce(w, w->n++);
	gcm_aes256_update(&w->gcm, ad_len, ad);
	gcm_aes256_encrypt(&w->gcm, len, out, plain);
	gcm_aes256_digest(&w->gcm, SEAL_TAG, out + len);
}

/* in: len bytes and the tag. The counter moves on if the tag is right. */
static bool stream_decrypt(struct seal_stream *w, const uint8_t *ad,
			   size_t ad_len, const uint8_t *in, size_t len,
			   uint8_t *plain)
{
	uint8_t tag[SEAL_TAG], was[SEAL_TAG];

	memcpy(was, in + len, SEAL_TAG);
	stream_nonce(w, w->n);
	gcm_aes256_update(&w->gcm, ad_len, ad);
	gcm_aes256_decrypt(&w->gcm, len, plain, in);
	gcm_aes256_digest(&w->gcm, SEAL_TAG, tag);
	if (!memeql_sec(tag, was, SEAL_TAG)) {
		explicit_bzero(plain, len);
		return false;
	}
	w->n++;
	return true;
}

/* The key becomes what it makes of zeros [4.2]; the counter goes on [11.3] */
static void stream_rekey(struct seal_stream *w)
{
	uint8_t key[SEAL_KEY] = {0};

	stream_nonce(w, UINT64_MAX);
	gcm_aes256_encrypt(&w->gcm, sizeof(key), key, key);
	gcm_aes256_set_key(&w->gcm, key);
	explicit_bzero(key, sizeof(key));
}

static void stream_counts(struct seal_stream *w, uint32_t records)
{
	if (--w->left)
		return;
	stream_rekey(w);
	w->left = records;
}

/* The handshake: a SymmetricState [5.2]. */

static void mix_hash(struct seal *s, const void *data, size_t len)
{
	struct sha256_ctx c;

	sha256_init(&c);
	sha256_update(&c, sizeof(s->h), s->h);
	sha256_update(&c, len, data);
	sha256_digest(&c, sizeof(s->h), s->h);
}

static void hmac(const uint8_t key[SHA256_DIGEST_SIZE], const uint8_t *a,
		 size_t a_len, const uint8_t *b, size_t b_len,
		 uint8_t out[SHA256_DIGEST_SIZE])
{
	struct hmac_sha256_ctx c;

	hmac_sha256_set_key(&c, SHA256_DIGEST_SIZE, key);
	hmac_sha256_update(&c, a_len, a);
	hmac_sha256_update(&c, b_len, b);
	hmac_sha256_digest(&c, SHA256_DIGEST_SIZE, out);
	explicit_bzero(&c, sizeof(c));
}

/* n outputs [4.3] */
static void hkdf(const struct seal *s, const uint8_t *data, size_t len,
		 unsigned n, uint8_t out[][SHA256_DIGEST_SIZE])
{
	uint8_t temp[SHA256_DIGEST_SIZE];
	unsigned i;

	hmac(s->ck, data, len, NULL, 0, temp);
	for (i = 0; i < n; i++) {
		uint8_t count = (uint8_t)(i + 1);

		hmac(temp, i ? out[i - 1] : NULL, i ? SHA256_DIGEST_SIZE : 0,
		     &count, 1, out[i]);
	}
	explicit_bzero(temp, sizeof(temp));
}

static void mix_key(struct seal *s, const uint8_t *data, size_t len)
{
	uint8_t out[2][SHA256_DIGEST_SIZE];

	hkdf(s, data, len, 2, out);
	memcpy(s->ck, out[0], sizeof(s->ck));
	stream_key(&s->tx, out[1]);
	explicit_bzero(out, sizeof(out));
}

static void mix_key_and_hash(struct seal *s, const uint8_t psk[SEAL_KEY])
{
	uint8_t out[3][SHA256_DIGEST_SIZE];

	hkdf(s, psk, SEAL_KEY, 3, out);
	memcpy(s->ck, out[0], sizeof(s->ck));
	mix_hash(s, out[1], sizeof(out[1]));
	stream_key(&s->tx, out[2]);
	explicit_bzero(out, sizeof(out));
}

void seal_begin(struct seal *s, const struct seal_attr *a)
{
	memset(s, 0, sizeof(*s));
	s->dials = a->dials;
	s->records = a->records ? a->records : SEAL_RECORDS;
	memcpy(s->psk, a->psk, SEAL_KEY);
	memcpy(s->secret, a->secret, SEAL_KEY);
	memcpy(s->h, name, sizeof(s->h));
	memcpy(s->ck, name, sizeof(s->ck));
	mix_hash(s, a->prologue, a->prologue_len);
}

/* e: also into the key, as there is a psk [9.2] */
static void mix_point(struct seal *s, const uint8_t point[SEAL_KEY])
{
	mix_hash(s, point, SEAL_KEY);
	mix_key(s, point, SEAL_KEY);
}

/* ee */
static void mix_secret(struct seal *s, const uint8_t theirs[SEAL_KEY])
{
	uint8_t shared[SEAL_KEY];

	curve25519_mul(shared, s->secret, theirs);
	mix_key(s, shared, sizeof(shared));
	explicit_bzero(shared, sizeof(shared));
}

/* Split() [5.2]: the first key is that of what the dialling end says */
static void split(struct seal *s)
{
	uint8_t out[2][SHA256_DIGEST_SIZE];

	hkdf(s, NULL, 0, 2, out);
	stream_key(&s->tx, out[!s->dials]);
	stream_key(&s->rx, out[s->dials]);
	s->tx.left = s->rx.left = s->records;
	explicit_bzero(out, sizeof(out));
	explicit_bzero(s->ck, sizeof(s->ck));
	explicit_bzero(s->psk, sizeof(s->psk));
	explicit_bzero(s->secret, sizeof(s->secret));
}

/* Each message ends so. */
static void encrypt_and_hash(struct seal *s, const void *plain, size_t len,
			     uint8_t *out)
{
	stream_encrypt(&s->tx, s->h, sizeof(s->h), plain, len, out);
	mix_hash(s, out, len + SEAL_TAG);
}

static bool decrypt_and_hash(struct seal *s, const uint8_t *in, size_t len,
			     void *plain)
{
	uint8_t h[SHA256_DIGEST_SIZE];

	memcpy(h, s->h, sizeof(h));
	mix_hash(s, in, len + SEAL_TAG);
	return stream_decrypt(&s->tx, h, sizeof(h), in, len, plain);
}

void seal_say(struct seal *s, const void *payload, size_t len, uint8_t *msg)
{
	if (s->dials)
		mix_key_and_hash(s, s->psk);
	curve25519_mul_g(msg, s->secret);
	mix_point(s, msg);
	if (!s->dials)
		mix_secret(s, s->theirs);
	encrypt_and_hash(s, payload, len, msg + SEAL_KEY);
	if (!s->dials)
		split(s);
}

bool seal_hear(struct seal *s, const uint8_t *msg, size_t len, void *payload)
{
	if (len < SEAL_SHAKE)
		return false;
	if (!s->dials)
		mix_key_and_hash(s, s->psk);
	mix_point(s, msg);
	if (s->dials)
		mix_secret(s, msg);
	else
		memcpy(s->theirs, msg, SEAL_KEY);
	if (!decrypt_and_hash(s, msg + SEAL_KEY, len - SEAL_SHAKE, payload))
		return false;
	if (s->dials)
		split(s);
	return true;
}

const uint8_t *seal_hash(const struct seal *s)
{
	return s->h;
}

/* Records. */

size_t seal_put(struct seal *s, const uint8_t *plain, size_t len, uint8_t *rec)
{
	size_t n = len + SEAL_TAG;

	skein_assert(len <= SEAL_PLAIN_MAX);
	rec[0] = (uint8_t)(n >> 8);
	rec[1] = (uint8_t)n;
	stream_encrypt(&s->tx, NULL, 0, plain, len, rec + SEAL_HEAD);
	stream_counts(&s->tx, s->records);
	return SEAL_HEAD + n;
}

enum seal_fault seal_next(struct seal *s, uint8_t *rec, size_t len,
			  uint8_t **plain, size_t *n, size_t *used)
{
	size_t want;

	if (len < SEAL_HEAD)
		return SEAL_MORE;
	want = (size_t)rec[0] << 8 | rec[1];
	if (want < SEAL_TAG)
		return SEAL_SHORT;
	if (want > SEAL_PLAIN_MAX + SEAL_TAG)
		return SEAL_LONG;
	if (len - SEAL_HEAD < want)
		return SEAL_MORE;
	rec += SEAL_HEAD;
	if (!stream_decrypt(&s->rx, NULL, 0, rec, want - SEAL_TAG, rec))
		return SEAL_FORGED;
	stream_counts(&s->rx, s->records);
	*plain = rec;
	*n = want - SEAL_TAG;
	*used = SEAL_HEAD + want;
	return SEAL_OK;
}
