/* SPDX-License-Identifier: MIT */
/*
 * test_seal.c - the seal of the link: the published test vector of its Noise
 * protocol, our own bytes behind it, and all that must not open.
 */
#include "unit/cm.h"

#include "dev/soft/link/seal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TEXT_MAX 64

static void hex(uint8_t *to, const char *from)
{
	unsigned v;

	for (; *from; from += 2) {
		assert_int_equal(sscanf(from, "%2x", &v), 1);
		*to++ = (uint8_t)v;
	}
}

/* cacophony's vector of Noise_NNpsk0_25519_AESGCM_SHA256, as published with
 * several implementations of Noise. */
static const char prologue_hex[] = "4a6f686e2047616c74";
static const char psk_hex[] =
	"54686973206973206d7920417573747269616e20706572737065637469766521";
static const char secret_hex[2][65] = {
	"893e28b9dc6ca8d611ab664754b8ceb7bac5117349a4439a6b0569da977c464a",
	"bbdb4cdbd309f1a1f2e1456967fe288cadd6f712d65dc7b7793d5e63da6b375b",
};
static const char hash_hex[] =
	"9f3b1f9afd7767767b5b9d1069844a6154fdbdcc36dfb3e31c0fffc5c973d530";
/* The end that dials says the first, the third and the fifth. */
static const char said[6][2][160] = {
	{"4c756477696720766f6e204d69736573",
	 "ca35def5ae56cec33dc2036731ab14896bc4c75dbb07a61f879f8e3afa4c7944"
	 "7c37a89fc17813788d30df2d59501d6066f5f8aecc3406bbd9829f2d24a531b1"},
	{"4d757272617920526f746862617264",
	 "95ebc60d2b1fa672c1f46a8aa265ef51bfe38e7ccb39ec5be34069f144808843"
	 "2f29d79368ef9de4e1ae7a362fb05bf0ad668e026bf5714554497b3a720461"},
	{"462e20412e20486179656b",
	 "7c01e898a6201f36aecee532e29cd0b7f8ffa29d3366ad0dce39a6"},
	{"4361726c204d656e676572",
	 "a9ff535aace3db6a1da1a7fb00fe2de2622bb373abad9fb42c00e0"},
	{"4a65616e2d426170746973746520536179",
	 "6cfc49a3e65472edc2d0152abe5ce950170a8a47c959f30bd48b5f0aacf29adb"
	 "fd"},
	{"457567656e2042f6686d20766f6e2042617765726b",
	 "9bc86e6d974ed21ba04604a94aa68de21677eb409ead070c0cd569b069ee19ba"
	 "142aa4c1a9"},
};

struct pair {
	struct seal *end[2]; /* the first one dials */
	uint8_t psk[2][SEAL_KEY], secret[2][SEAL_KEY];
	uint8_t prologue[2][16];
	size_t prologue_len;
	uint32_t records;
};

static void pair_fill(struct pair *p)
{
	unsigned i;

	memset(p, 0, sizeof(*p));
	p->prologue_len = strlen(prologue_hex) / 2;
	for (i = 0; i < 2; i++) {
		hex(p->psk[i], psk_hex);
		hex(p->secret[i], secret_hex[i]);
		hex(p->prologue[i], prologue_hex);
	}
}

static void pair_begin(struct pair *p)
{
	unsigned i;

	for (i = 0; i < 2; i++) {
		const struct seal_attr a = {.dials = !i,
					    .psk = p->psk[i],
					    .secret = p->secret[i],
					    .prologue = p->prologue[i],
					    .prologue_len = p->prologue_len,
					    .records = p->records};

		p->end[i] = calloc(1, seal_bytes());
		assert_non_null(p->end[i]);
		seal_begin(p->end[i], &a);
	}
}

static void pair_end(struct pair *p)
{
	free(p->end[0]);
	free(p->end[1]);
}

static bool shake_one(struct pair *p, unsigned from)
{
	uint8_t msg[SEAL_SHAKE], none[1];

	seal_say(p->end[from], NULL, 0, msg);
	return seal_hear(p->end[!from], msg, sizeof(msg), none);
}

static void pair_open(struct pair *p, uint32_t records)
{
	pair_fill(p);
	p->records = records;
	pair_begin(p);
	assert_true(shake_one(p, 0));
	assert_true(shake_one(p, 1));
}

static void test_vector(void **state)
{
	uint8_t text[TEXT_MAX], want[2 * TEXT_MAX], got[2 * TEXT_MAX],
		back[TEXT_MAX], *plain, hash[32];
	size_t len, n, used;
	struct pair p;
	unsigned i;

	(void)state;
	pair_fill(&p);
	pair_begin(&p);
	for (i = 0; i < 6; i++) {
		len = strlen(said[i][0]) / 2;
		hex(text, said[i][0]);
		hex(want, said[i][1]);
		if (i < 2) {
			seal_say(p.end[i], text, len, got);
			assert_memory_equal(got, want, len + SEAL_SHAKE);
			assert_true(seal_hear(p.end[!i], got, len + SEAL_SHAKE,
					      back));
			assert_memory_equal(back, text, len);
			continue;
		}
		n = seal_put(p.end[i % 2], text, len, got);
		assert_int_equal(n, SEAL_HEAD + len + SEAL_TAG);
		assert_int_equal(got[0], 0);
		assert_int_equal(got[1], len + SEAL_TAG);
		assert_memory_equal(got + SEAL_HEAD, want, len + SEAL_TAG);
		assert_int_equal(seal_next(p.end[1 - i % 2], got, n, &plain,
					   &len, &used),
				 SEAL_OK);
		assert_int_equal(used, n);
		assert_int_equal(len, n - SEAL_HEAD - SEAL_TAG);
		assert_memory_equal(plain, text, len);
	}
	hex(hash, hash_hex);
	assert_memory_equal(seal_hash(p.end[0]), hash, 32);
	assert_memory_equal(seal_hash(p.end[1]), hash, 32);
	pair_end(&p);
}

/* What stands in the file, and which key that is. */
static void test_psk(void **state)
{
	uint8_t got[SEAL_KEY], want[SEAL_KEY];

	(void)state;
	hex(want,
	    "85f7c3b9884eb25187ea03a9614d0c1c7091eee71accee8c143ea5c27f68d170");
	seal_psk("correct horse", 13, got);
	assert_memory_equal(got, want, SEAL_KEY);
}

/* One of the three differs: the first or the second message says so. */
static void refused(unsigned what)
{
	struct pair p;

	pair_fill(&p);
	if (what == 0)
		p.psk[1][31] ^= 1;
	if (what == 1)
		p.prologue[1][0] ^= 1;
	if (what == 2)
		p.prologue_len--;
	pair_begin(&p);
	assert_int_equal(shake_one(&p, 0), what == 2);
	pair_end(&p);
}

static void test_refused(void **state)
{
	uint8_t msg[SEAL_SHAKE], changed[SEAL_SHAKE], none[1];
	unsigned turn, bit;
	struct pair p;

	(void)state;
	for (turn = 0; turn < 3; turn++)
		refused(turn);
	for (turn = 0; turn < 2; turn++)
		for (bit = 0; bit < 8 * SEAL_SHAKE; bit += 5) {
			pair_fill(&p);
			pair_begin(&p);
			if (turn)
				assert_true(shake_one(&p, 0));
			seal_say(p.end[turn], NULL, 0, msg);
			memcpy(changed, msg, sizeof(msg));
			changed[bit / 8] ^= (uint8_t)(1u << bit % 8);
			assert_false(seal_hear(p.end[!turn], changed,
					       sizeof(msg), none));
			pair_end(&p);
		}
	pair_fill(&p);
	pair_begin(&p);
	assert_false(seal_hear(p.end[1], msg, SEAL_SHAKE - 1, none));
	pair_end(&p);
}

static enum seal_fault opens(struct seal *s, const uint8_t *rec, size_t len,
			     const void *want)
{
	uint8_t copy[SEAL_RECORD_MAX], *plain;
	enum seal_fault fault;
	size_t n, used;

	memcpy(copy, rec, len);
	fault = seal_next(s, copy, len, &plain, &n, &used);
	if (fault == SEAL_OK) {
		assert_int_equal(used, len);
		assert_int_equal(n, len - SEAL_HEAD - SEAL_TAG);
		assert_memory_equal(plain, want, n);
	}
	return fault;
}

/* In order, once each, by the other end alone. */
static void test_order(void **state)
{
	uint8_t a[64], b[64];
	struct pair p;
	size_t n;

	(void)state;
	pair_open(&p, 0);
	n = seal_put(p.end[0], (const uint8_t *)"one", 3, a);
	seal_put(p.end[0], (const uint8_t *)"one", 3, b);
	/* the same text is not the same record */
	assert_memory_not_equal(a, b, n);
	assert_int_equal(opens(p.end[0], a, n, "one"), SEAL_FORGED);
	assert_int_equal(opens(p.end[1], b, n, "one"), SEAL_FORGED);
	assert_int_equal(opens(p.end[1], a, n, "one"), SEAL_OK);
	assert_int_equal(opens(p.end[1], a, n, "one"), SEAL_FORGED);
	assert_int_equal(opens(p.end[1], b, n, "one"), SEAL_OK);
	/* what one end says is not what the other one would have said */
	seal_put(p.end[1], (const uint8_t *)"one", 3, b);
	assert_memory_not_equal(a, b, n);
	pair_end(&p);
}

static void test_changed(void **state)
{
	uint8_t rec[64], bad[64];
	struct pair p;
	size_t n, i;

	(void)state;
	pair_open(&p, 0);
	n = seal_put(p.end[0], (const uint8_t *)"packets", 7, rec);
	for (i = 0; i < n; i++)
		assert_int_equal(opens(p.end[1], rec, i, NULL), SEAL_MORE);
	for (i = 8 * SEAL_HEAD; i < 8 * n; i++) {
		memcpy(bad, rec, n);
		bad[i / 8] ^= (uint8_t)(1u << i % 8);
		assert_int_equal(opens(p.end[1], bad, n, NULL), SEAL_FORGED);
	}
	/* another length: other bytes end it */
	bad[0] = 0;
	bad[1] = SEAL_TAG - 1;
	assert_int_equal(opens(p.end[1], bad, 2, NULL), SEAL_SHORT);
	memcpy(bad, rec, n);
	bad[1]--;
	assert_int_equal(opens(p.end[1], bad, n, NULL), SEAL_FORGED);
	bad[0] = (SEAL_PLAIN_MAX + SEAL_TAG + 1) >> 8;
	bad[1] = (SEAL_PLAIN_MAX + SEAL_TAG + 1) & 0xff;
	assert_int_equal(opens(p.end[1], bad, 2, NULL), SEAL_LONG);
	assert_int_equal(opens(p.end[1], rec, n, "packets"), SEAL_OK);
	pair_end(&p);
}

static void test_sizes(void **state)
{
	static const size_t sizes[] = {0,
				       1,
				       15,
				       16,
				       17,
				       4095,
				       4096,
				       12612,
				       SEAL_PLAIN_MAX - 1,
				       SEAL_PLAIN_MAX};
	uint8_t *text = malloc(SEAL_PLAIN_MAX), *rec = malloc(SEAL_RECORD_MAX);
	struct pair p;
	size_t i, n;

	(void)state;
	pair_open(&p, 0);
	for (i = 0; i < SEAL_PLAIN_MAX; i++)
		text[i] = (uint8_t)(i * 7 ^ i >> 8);
	for (i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		n = seal_put(p.end[1], text, sizes[i], rec);
		assert_int_equal(n, SEAL_HEAD + sizes[i] + SEAL_TAG);
		assert_int_equal(opens(p.end[0], rec, n, text), SEAL_OK);
	}
	pair_end(&p);
	free(text);
	free(rec);
}

/* New keys after so many records, at both ends and in each direction by
 * itself. */
static void test_rekey(void **state)
{
	static const char *const want[] = {
		"5b48a9b0e637680368bbb258ecd0e31e01137adfd6",
		"47fe49a4a5cab28cc2bb0ba137306252ffa55d23c8",
		"709c61a8fbf02c4321e45194844075d93eacd8070c",
		"07b2eae4f528fdeb07b5b0d780aa2367aa868de139",
		"eb28c3086061733a2368b8467b7fc02523015ce68d",
		"2f11a6bce0d36d7bf0f070860470ecdbc3b015d93b",
		"a9fbfaca022114cd2177568c03e58d3a8fd5b6ecc6",
		"fa6a962b5f27a38b0e7264c781663dcf200a4c2bcd",
	};
	uint8_t rec[64], golden[64];
	struct pair p;
	unsigned i;
	size_t n;

	(void)state;
	pair_open(&p, 3);
	for (i = 0; i < 8; i++) {
		n = seal_put(p.end[0], (const uint8_t *)"again", 5, rec);
		hex(golden, want[i]);
		assert_memory_equal(rec + SEAL_HEAD, golden, n - SEAL_HEAD);
		assert_int_equal(opens(p.end[1], rec, n, "again"), SEAL_OK);
	}
	/* the other direction has its first key still */
	n = seal_put(p.end[1], (const uint8_t *)"back", 4, rec);
	assert_int_equal(opens(p.end[0], rec, n, "back"), SEAL_OK);
	pair_end(&p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_vector),	cmocka_unit_test(test_psk),
		cmocka_unit_test(test_refused), cmocka_unit_test(test_order),
		cmocka_unit_test(test_changed), cmocka_unit_test(test_sizes),
		cmocka_unit_test(test_rekey),
	};

	if (!seal_available())
		return 77;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
