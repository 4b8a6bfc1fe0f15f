/* SPDX-License-Identifier: MIT */
/*
 * test_handshake.c - the handshake engine, fed with bytes.
 *
 * The golden bytes below are version 1 of the protocol: they may never change.
 * docs/protocol/handshake.md shows the same bytes, field by field.
 */
#include "unit/cm.h"

#include "conn/setup/handshake.h"

#include <errno.h>
#include <skein/error.h>
#include <stdio.h>
#include <string.h>

struct end {
	struct handshake hs;
	uint8_t buf[HANDSHAKE_MSG_MAX];
	struct bytes_out out; /* what it said last */
};

struct duo {
	struct end client, server;
};

static const uint8_t section[] = {0xde, 0xad, 0xbe, 0xef};

static struct handshake_params params_of(uint8_t salt)
{
	struct handshake_params p = {
		.pid = 4711u + salt,
		.shard = 2,
		.recvs = 64,
		.device = "soft",
		.qp = {.qpn = 0x123456,
		       .psn = 0xabcdef,
		       .lid = 0x0102,
		       .mtu = IBV_MTU_4096,
		       .rd_atomic = 16},
		.n_sections = 1,
	};

	for (int i = 0; i < 16; i++)
		p.qp.gid.raw[i] = (uint8_t)(0xa0 + i);
	p.sections[0] = (struct handshake_section){
		.id = 1, .must_understand = true, .buf = section, .len = 4};
	return p;
}

static struct handshake_conf conf_of(uint8_t salt, const char *key)
{
	struct handshake_conf c = {
		.key = key,
		.key_len = key ? strlen(key) : 0,
	};

	memset(c.nonce, 0x40 + salt, sizeof(c.nonce));
	memset(c.ctx_id, 0x10 + salt, sizeof(c.ctx_id));
	return c;
}

static void duo_init(struct duo *d, const char *client_key,
		     const char *server_key)
{
	struct handshake_conf c = conf_of(1, client_key);
	struct handshake_conf s = conf_of(2, server_key);

	handshake_client_init(&d->client.hs, &c);
	handshake_server_init(&d->server.hs, &s);
}

static struct bytes_out *fresh(struct end *e)
{
	e->out = bytes_out(e->buf, sizeof(e->buf));
	return &e->out;
}

static void offer(struct duo *d)
{
	struct handshake_params p = params_of(1);

	assert_int_equal(handshake_offer(&d->client.hs, &p, fresh(&d->client)),
			 0);
}

static void accept_it(struct duo *d)
{
	struct handshake_params p = params_of(2);

	assert_int_equal(handshake_accept(&d->server.hs, &p, fresh(&d->server)),
			 0);
}

/* What from said last goes to to. */
static enum handshake_action pass(struct end *from, struct end *to)
{
	return handshake_input(&to->hs, from->buf, from->out.pos, fresh(to));
}

static void hex(const uint8_t *buf, size_t len, char *out)
{
	for (size_t i = 0; i < len; i++)
		sprintf(out + 2 * i, "%02x", buf[i]);
}

static void same_bytes(const struct end *e, const char *golden)
{
	char text[2 * HANDSHAKE_MSG_MAX + 1] = "";

	hex(e->buf, e->out.pos, text);
	assert_string_equal(text, golden);
}

#define PARAMS_BARE(pid)                                           \
	"04000400" pid "058004000200000006801c00"                  \
	"a0a1a2a3a4a5a6a7a8a9aaabacadaeaf56341200efcdab0002010510" \
	"07800400400000000c800400736f6674"
#define SECTION "01810400deadbeef"
#define PARAMS(pid) PARAMS_BARE(pid) SECTION
#define OFFER_V1                                            \
	"534b4e310101800001801000"                          \
	"11111111111111111111111111111111"                  \
	"02802000"                                          \
	"4141414141414141414141414141414141414141414141414" \
	"141414141414141" PARAMS("68120000")
#define ACCEPT_V1                  \
	"534b4e3101045c0001801000" \
	"12121212121212121212121212121212" PARAMS("69120000")
#define READY_V1 "534b4e3101050000"
/* With a handle, of eight lanes the sixth, and a server of four engines. */
#define HANDLE(engines) "0d001000080706050403020105000800" engines "000000"
#define OFFER_HANDLE_V1                                                    \
	"534b4e3101019400018010001111111111111111111111111111111102802000" \
	"4141414141414141414141414141414141414141414141414"                \
	"141414141414141" PARAMS_BARE("68120000") HANDLE("00") SECTION
#define ACCEPT_HANDLE_V1                                           \
	"534b4e310104700001801000"                                 \
	"12121212121212121212121212121212" PARAMS_BARE("69120000") \
		HANDLE("04") SECTION
#define REFUSE_V1                                          \
	"534b4e310106180009800400030000000a00040014000000" \
	"0b00040062757379"

static void test_golden(void **state)
{
	struct duo d;

	duo_init(&d, NULL, NULL);
	offer(&d);
	same_bytes(&d.client, OFFER_V1);
	assert_int_equal(pass(&d.client, &d.server), HANDSHAKE_DECIDE);
	accept_it(&d);
	same_bytes(&d.server, ACCEPT_V1);
	assert_int_equal(pass(&d.server, &d.client), HANDSHAKE_CONNECT);
	handshake_ready(&d.client.hs, fresh(&d.client));
	same_bytes(&d.client, READY_V1);
	assert_int_equal(pass(&d.client, &d.server), HANDSHAKE_UP);
	fresh(&d.server);
	handshake_put_refuse(&d.server.out, HANDSHAKE_ERR_BUSY, 20, "busy");
	same_bytes(&d.server, REFUSE_V1);
}

static const struct handshake_handle sixth = {
	.id = 0x0102030405060708, .index = 5, .count = 8};

static void test_golden_handle(void **state)
{
	struct handshake_params p = params_of(1);
	struct duo d;

	duo_init(&d, NULL, NULL);
	p.handle = sixth;
	assert_int_equal(handshake_offer(&d.client.hs, &p, fresh(&d.client)),
			 0);
	same_bytes(&d.client, OFFER_HANDLE_V1);
	assert_int_equal(pass(&d.client, &d.server), HANDSHAKE_DECIDE);
	assert_memory_equal(&d.server.hs.peer.handle, &sixth, sizeof(sixth));
	p = params_of(2);
	p.handle = sixth;
	p.handle.engines = 4;
	assert_int_equal(handshake_accept(&d.server.hs, &p, fresh(&d.server)),
			 0);
	same_bytes(&d.server, ACCEPT_HANDLE_V1);
	assert_int_equal(pass(&d.server, &d.client), HANDSHAKE_CONNECT);
	assert_int_equal(d.client.hs.peer.handle.engines, 4);
}

/* A handle of no lanes, of too many, a lane that is none of them. */
static void test_handle_limits(void **state)
{
	static const struct {
		uint16_t index, count;
		int err;
	} rows[] = {
		{0, 1, 0},
		{1023, 1024, 0},
		{0, 1025, -SKEIN_EPEER},
		{1, 1, -SKEIN_EPEER},
		{8, 8, -SKEIN_EPEER},
		{UINT16_MAX, UINT16_MAX, -SKEIN_EPEER},
	};
	struct handshake_params p = params_of(1);
	struct duo d;

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		duo_init(&d, NULL, NULL);
		p.handle.index = rows[i].index;
		p.handle.count = rows[i].count;
		handshake_offer(&d.client.hs, &p, fresh(&d.client));
		assert_int_equal(pass(&d.client, &d.server),
				 rows[i].err ? HANDSHAKE_FAILED
					     : HANDSHAKE_DECIDE);
		assert_int_equal(d.server.hs.err, rows[i].err);
	}
}

static void same_params(const struct handshake_params *a,
			const struct handshake_params *b)
{
	assert_int_equal(a->pid, b->pid);
	assert_int_equal(a->shard, b->shard);
	assert_int_equal(a->recvs, b->recvs);
	assert_string_equal(a->device, b->device);
	assert_memory_equal(&a->qp, &b->qp, sizeof(a->qp));
	assert_int_equal(a->n_sections, b->n_sections);
	assert_int_equal(a->sections[0].id, b->sections[0].id);
	assert_int_equal(a->sections[0].len, b->sections[0].len);
	assert_int_equal(a->sections[0].must_understand,
			 b->sections[0].must_understand);
	assert_memory_equal(a->sections[0].buf, b->sections[0].buf,
			    a->sections[0].len);
}

static void run_all(struct duo *d, bool keyed)
{
	struct handshake_params c = params_of(1), s = params_of(2);

	offer(d);
	if (keyed) {
		assert_int_equal(pass(&d->client, &d->server), HANDSHAKE_WAIT);
		assert_int_equal(pass(&d->server, &d->client), HANDSHAKE_WAIT);
	}
	assert_int_equal(pass(&d->client, &d->server), HANDSHAKE_DECIDE);
	same_params(&d->server.hs.peer, &c);
	accept_it(d);
	assert_int_equal(pass(&d->server, &d->client), HANDSHAKE_CONNECT);
	same_params(&d->client.hs.peer, &s);
	handshake_ready(&d->client.hs, fresh(&d->client));
	assert_int_equal(pass(&d->client, &d->server), HANDSHAKE_UP);
	/* The offer is still readable when the handshake is over. */
	same_params(&d->server.hs.peer, &c);
}

static void test_roundtrip(void **state)
{
	struct duo d;

	duo_init(&d, NULL, NULL);
	run_all(&d, false);
	duo_init(&d, "secret", "secret");
	run_all(&d, true);
	/* On a proven carrier no proofs are asked for. */
	duo_init(&d, "secret", "secret");
	d.client.hs.keyed = d.server.hs.keyed = false;
	run_all(&d, false);
}

static void test_keys_differ(void **state)
{
	struct duo d;

	duo_init(&d, "secret", "Secret");
	offer(&d);
	assert_int_equal(pass(&d.client, &d.server), HANDSHAKE_WAIT);
	assert_int_equal(pass(&d.server, &d.client), HANDSHAKE_FAILED);
	assert_int_equal(d.client.hs.err, -SKEIN_EAUTH);
	/* the client has said so */
	assert_int_equal(pass(&d.client, &d.server), HANDSHAKE_FAILED);
	assert_int_equal(d.server.hs.err, -SKEIN_EAUTH);

	duo_init(&d, NULL, "secret");
	offer(&d);
	assert_int_equal(pass(&d.client, &d.server), HANDSHAKE_FAILED);
	assert_int_equal(pass(&d.server, &d.client), HANDSHAKE_FAILED);
	assert_int_equal(d.client.hs.err, -SKEIN_EAUTH);
	assert_string_equal(d.client.hs.text,
			    "the server has a key, the client none");
}

/* Any bit of any message of a keyed handshake that is changed ends it. */
static void test_every_bit_is_proven(void **state)
{
	struct duo d, at;
	enum handshake_action a;
	size_t bits;

	for (int step = 0; step < 4; step++) {
		duo_init(&d, "secret", "secret");
		offer(&d);
		if (step > 0)
			pass(&d.client, &d.server);
		if (step > 1)
			pass(&d.server, &d.client);
		if (step > 2) {
			pass(&d.client, &d.server);
			accept_it(&d);
		}
		bits = 8 * (step % 2 ? d.server.out.pos : d.client.out.pos);
		for (size_t bit = 0; bit < bits; bit += 3) {
			at = d;
			at.client.out.buf = at.client.buf;
			at.server.out.buf = at.server.buf;
			if (step % 2) {
				at.server.buf[bit / 8] ^= 1 << bit % 8;
				a = pass(&at.server, &at.client);
				assert_int_equal(a, HANDSHAKE_FAILED);
				continue;
			}
			at.client.buf[bit / 8] ^= 1 << bit % 8;
			a = pass(&at.client, &at.server);
			/* an altered offer is found out by its proof */
			if (step == 0 && a == HANDSHAKE_WAIT)
				a = pass(&at.server, &at.client);
			assert_int_equal(a, HANDSHAKE_FAILED);
		}
	}
}

/* A server's challenge cannot be sent back to it as a proof. */
static void test_reflection(void **state)
{
	struct duo d;

	duo_init(&d, "secret", "secret");
	offer(&d);
	assert_int_equal(pass(&d.client, &d.server), HANDSHAKE_WAIT);
	d.server.buf[5] = HANDSHAKE_PROVE;
	assert_int_equal(handshake_input(&d.server.hs, d.server.buf,
					 d.server.out.pos, fresh(&d.client)),
			 HANDSHAKE_FAILED);
	assert_int_equal(d.server.hs.err, -SKEIN_EAUTH);
}

/* Each state takes the message that it waits for, and no other. */
static void test_states(void **state)
{
	static const struct {
		bool client;
		enum handshake_state in;
		uint8_t takes;
	} rows[] = {
		{false, HANDSHAKE_S_START, HANDSHAKE_OFFER},
		{false, HANDSHAKE_S_DECIDING, 0},
		{false, HANDSHAKE_S_ACCEPTED, HANDSHAKE_READY},
		{false, HANDSHAKE_S_DONE, 0},
		{true, HANDSHAKE_S_START, 0},
		{true, HANDSHAKE_S_OFFERED, HANDSHAKE_ACCEPT},
		{true, HANDSHAKE_S_CONNECTING, 0},
		{true, HANDSHAKE_S_DONE, 0},
	};
	struct handshake_params p = params_of(1);
	enum handshake_action a;
	struct duo d;

	for (size_t r = 0; r < sizeof(rows) / sizeof(rows[0]); r++) {
		for (uint8_t type = 1; type <= 5; type++) {
			struct handshake_msg m = {
				.version = 1,
				.type = type,
				.params = p,
				.has_id = type == 1 || type == 2 || type == 4,
				.has_nonce = type <= 2,
				.has_qp = type == 1 || type == 4,
			};
			bool proof = type == 2 || type == 3;
			struct end *e;

			duo_init(&d, NULL, NULL);
			e = rows[r].client ? &d.client : &d.server;
			e->hs.state = rows[r].in;
			fresh(e);
			assert_int_equal(handshake_encode(&m, proof, &e->out),
					 0);
			if (proof)
				bytes_put(&e->out, AUTH_MAC_LEN);
			a = handshake_input(&e->hs, e->buf, e->out.pos,
					    fresh(&d.client == e ? &d.server
								 : &d.client));
			if (type == rows[r].takes)
				assert_int_not_equal(a, HANDSHAKE_FAILED);
			else
				assert_int_equal(a, HANDSHAKE_FAILED);
		}
	}
}

static void test_refuse(void **state)
{
	struct duo d;

	duo_init(&d, NULL, NULL);
	offer(&d);
	fresh(&d.server);
	handshake_put_refuse(&d.server.out, HANDSHAKE_ERR_BUSY, 20, "bu\x01sy");
	assert_int_equal(pass(&d.server, &d.client), HANDSHAKE_FAILED);
	assert_int_equal(d.client.hs.err, -SKEIN_EBUSY);
	assert_int_equal(d.client.hs.retry_ns, 20000000);
	/* what it says goes to logs: no control characters */
	assert_string_equal(d.client.hs.text, "bu?sy");

	/* An error code of the future is an error all the same. */
	duo_init(&d, NULL, NULL);
	offer(&d);
	fresh(&d.server);
	handshake_put_refuse(&d.server.out, (enum handshake_error)999, 0, "");
	assert_int_equal(pass(&d.server, &d.client), HANDSHAKE_FAILED);
	assert_int_equal(d.client.hs.err, -ECONNABORTED);
}

static void test_version(void **state)
{
	struct duo d;

	duo_init(&d, NULL, NULL);
	offer(&d);
	d.client.buf[4] = 2;
	assert_int_equal(pass(&d.client, &d.server), HANDSHAKE_FAILED);
	assert_int_equal(d.server.hs.err, -SKEIN_EVERSION);
	/* and the refusal is one that every version reads */
	d.server.buf[4] = 9;
	assert_int_equal(pass(&d.server, &d.client), HANDSHAKE_FAILED);
	assert_int_equal(d.client.hs.err, -SKEIN_EVERSION);
}

/* Appends an entry to an offer. */
static void append(struct end *e, uint16_t type, uint16_t len)
{
	uint16_t body = (uint16_t)(e->out.pos - HANDSHAKE_HEAD + 4 + len);

	bytes_put_u16(&e->out, type);
	bytes_put_u16(&e->out, len);
	memset(bytes_put(&e->out, len), 0, len);
	e->buf[6] = (uint8_t)body;
	e->buf[7] = (uint8_t)(body >> 8);
}

static void test_entries(void **state)
{
	static const struct {
		uint16_t type, len;
		enum handshake_action action;
		int err;
	} rows[] = {
		{0x0050, 9, HANDSHAKE_DECIDE, 0}, /* unknown, optional */
		{0x8050, 9, HANDSHAKE_FAILED, -SKEIN_EVERSION},
		{0x0004, 4, HANDSHAKE_FAILED, -SKEIN_EPEER}, /* twice */
		{0x0101, 4, HANDSHAKE_FAILED, -SKEIN_EPEER}, /* twice */
		{0x0102, 4, HANDSHAKE_DECIDE, 0},
		{0x000d, 16, HANDSHAKE_FAILED, -SKEIN_EPEER},  /* no lanes */
		{0x000d, 15, HANDSHAKE_FAILED, -SKEIN_EPEER},  /* short */
		{0x000b, 121, HANDSHAKE_FAILED, -SKEIN_EPEER}, /* long */
		{0x8008, 32, HANDSHAKE_FAILED, -SKEIN_EAUTH},  /* no key */
		{0x8009, 3, HANDSHAKE_FAILED, -SKEIN_EPEER},   /* short */
	};
	struct duo d;

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		duo_init(&d, NULL, NULL);
		offer(&d);
		append(&d.client, rows[i].type, rows[i].len);
		assert_int_equal(pass(&d.client, &d.server), rows[i].action);
		assert_int_equal(d.server.hs.err, rows[i].err);
	}
	/* More sections than anybody has. */
	duo_init(&d, NULL, NULL);
	offer(&d);
	for (uint16_t i = 2; i <= HANDSHAKE_SECTIONS_MAX; i++)
		append(&d.client, 0x100 + i, 0);
	assert_int_equal(pass(&d.client, &d.server), HANDSHAKE_DECIDE);
	duo_init(&d, NULL, NULL);
	offer(&d);
	for (uint16_t i = 2; i <= HANDSHAKE_SECTIONS_MAX + 1; i++)
		append(&d.client, 0x100 + i, 0);
	assert_int_equal(pass(&d.client, &d.server), HANDSHAKE_FAILED);
}

/* Every prefix, and every byte set to every of some values: no crash, and a
 * verdict (under ASan this also proves that nothing outside is read). */
static void test_cuts(void **state)
{
	static const uint8_t values[] = {0x00, 0x01, 0x7f, 0x80, 0xff};
	struct duo d;
	size_t len;

	duo_init(&d, NULL, NULL);
	offer(&d);
	len = d.client.out.pos;
	for (size_t cut = 0; cut < len; cut++) {
		duo_init(&d, NULL, NULL);
		assert_int_equal(handshake_input(&d.server.hs, d.client.buf,
						 cut, fresh(&d.server)),
				 HANDSHAKE_FAILED);
	}
	for (size_t i = 0; i < len; i++) {
		for (size_t v = 0; v < sizeof(values); v++) {
			struct duo one;

			duo_init(&one, NULL, NULL);
			offer(&one);
			one.client.buf[i] = values[v];
			(void)pass(&one.client, &one.server);
		}
	}
}

static void test_too_large(void **state)
{
	static uint8_t big[HANDSHAKE_MSG_MAX];
	struct handshake_params p = params_of(1);
	struct duo d;

	p.sections[0].buf = big;
	p.sections[0].len = sizeof(big) - 100;
	duo_init(&d, NULL, NULL);
	assert_int_equal(handshake_offer(&d.client.hs, &p, fresh(&d.client)),
			 -EMSGSIZE);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_golden),
		cmocka_unit_test(test_golden_handle),
		cmocka_unit_test(test_handle_limits),
		cmocka_unit_test(test_roundtrip),
		cmocka_unit_test(test_keys_differ),
		cmocka_unit_test(test_every_bit_is_proven),
		cmocka_unit_test(test_reflection),
		cmocka_unit_test(test_states),
		cmocka_unit_test(test_refuse),
		cmocka_unit_test(test_version),
		cmocka_unit_test(test_entries),
		cmocka_unit_test(test_cuts),
		cmocka_unit_test(test_too_large),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
