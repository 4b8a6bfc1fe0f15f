/* SPDX-License-Identifier: MIT */
/*
 * test_sealing.c - sealed connections between two devices of this process: what
 * passes is not readable, what somebody changes, repeats or cuts on its way ends
 * the connection and loses nothing, and ends that do not have one key do not
 * meet. The calls by which bytes leave are wrapped: they stand between.
 */
#include "key_file.h"
#include "rig.h"

#include "dev/soft/link/sealing.h"
#include "dev/soft/link/state.h"
#include "dev/soft/qp/qp.h"
#include "unit/patience.h"

#include <arpa/inet.h>
#include <net/if.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>

#define LEN (256u << 10)
#define SEEN (4u << 20)
#define MARK "what nobody else may read"

static struct rig_end a, b;
static const struct rig_opts patient = {.qp = {.timeout = 18, .retry_cnt = 7}};
static const struct rig_opts hasty = {.qp = {.timeout = 12, .retry_cnt = 2}};

/* What stands between: under this lock. */
static pthread_mutex_t between = PTHREAD_MUTEX_INITIALIZER;
static enum {
	LETS_PASS,
	FLIPS,
	REPEATS,
	CUTS,
	LIES, /* in the clear hello of an answer */
} does;
static unsigned done; /* so often */
static uint8_t seen[SEEN];
static size_t seen_len;
/* What the end that dialled last has said first. */
static uint8_t first[256];
static size_t first_len;

ssize_t __real_send(int fd, const void *buf, size_t len, int flags);
ssize_t __wrap_send(int fd, const void *buf, size_t len, int flags);

static ssize_t pass(int fd, const void *buf, size_t len, int flags)
{
	ssize_t n = __real_send(fd, buf, len, flags);

	if (n > 0 && seen_len + (size_t)n <= SEEN) {
		memcpy(seen + seen_len, buf, (size_t)n);
		seen_len += (size_t)n;
	}
	return n;
}

static ssize_t change(int fd, const uint8_t *buf, size_t len, int flags)
{
	uint8_t *copy = malloc(2 * len);
	int what = does;
	ssize_t n = 0;

	assert_non_null(copy);
	memcpy(copy, buf, len);
	memcpy(copy + len, buf, len);
	does = LETS_PASS;
	done++;
	if (what == FLIPS) {
		copy[len - 5] ^= 0x10;
		n = __real_send(fd, copy, len, flags);
	} else if (what == LIES) {
		copy[FRAME_HELLO - 1] ^= 1;
		n = __real_send(fd, copy, len, flags);
	} else if (what == CUTS) {
		__real_send(fd, copy, len / 2, flags);
		shutdown(fd, SHUT_WR);
		n = (ssize_t)len;
	} else {
		n = __real_send(fd, copy, 2 * len, flags);
		if (n > (ssize_t)len) {
			/* the caller knows of no more */
			n = (ssize_t)len;
		} else {
			/* no room for it twice: the next one, then */
			does = what;
			done--;
		}
	}
	free(copy);
	return n;
}

ssize_t __wrap_send(int fd, const void *buf, size_t len, int flags)
{
	const uint8_t *bytes = buf;
	ssize_t n;

	pthread_mutex_lock(&between);
	if (len > FRAME_HELLO && !memcmp(buf, "SKLT", 4) &&
	    bytes[8] == FRAME_DIALS) {
		memcpy(first, buf, len);
		first_len = len;
	}
	/* packets: no hello, and not the record without any */
	if (does == LIES ? len == SEALING_SAYS && bytes[8] == FRAME_ANSWERS
			 : does != LETS_PASS && len > SEALING_FIRST &&
				   memcmp(buf, "SKLT", 4) != 0)
		n = change(fd, buf, len, flags);
	else
		n = pass(fd, buf, len, flags);
	pthread_mutex_unlock(&between);
	return n;
}

static void does_next(int what)
{
	pthread_mutex_lock(&between);
	does = what;
	done = 0;
	pthread_mutex_unlock(&between);
}

static unsigned times_done(void)
{
	unsigned n;

	pthread_mutex_lock(&between);
	n = done;
	pthread_mutex_unlock(&between);
	return n;
}

static void go_alone(void)
{
	struct ifreq r = {.ifr_name = "lo", .ifr_flags = IFF_UP};
	int fd;

	if (unshare(CLONE_NEWUSER | CLONE_NEWNET))
		return;
	fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	assert_true(fd >= 0 && !ioctl(fd, SIOCSIFFLAGS, &r));
	close(fd);
}

static void settings(const char *link, const char *key, const char *clear)
{
	setenv("SKEIN_LINK", link, 1);
	setenv("SKEIN_LINK_CLEAR", clear, 1);
	if (key)
		key_file_use(key);
	else
		unsetenv("SKEIN_LINK_KEY");
}

static int up(void **state)
{
	(void)state;
	settings("tcp", "a key\n", "0");
	rig_pair(&a, &b, &patient);
	return 0;
}

static int down(void **state)
{
	(void)state;
	does_next(LETS_PASS);
	rig_unpair(&a, &b);
	return 0;
}

static struct soft_link_qp *link_of(struct rig_end *e)
{
	return soft_qp_of(e->qp)->link;
}

static struct tcp_counts counts_of(struct rig_end *e)
{
	struct soft *s = soft_of_dev(e->dev);
	struct tcp_counts c;

	pthread_mutex_lock(&s->lock);
	c = *tcp_counts(s->link->tcp);
	pthread_mutex_unlock(&s->lock);
	return c;
}

static uint64_t forged(void)
{
	return counts_of(&a).forged + counts_of(&b).forged;
}

static bool has_conn(struct rig_end *e, bool sealed)
{
	struct soft *s = soft_of_dev(e->dev);
	const struct tcp_conn *c;
	bool is;

	pthread_mutex_lock(&s->lock);
	c = link_of(e)->conn;
	is = c && !c->seal == !sealed;
	pthread_mutex_unlock(&s->lock);
	return is;
}

static bool are_sealed(void *arg)
{
	(void)arg;
	return has_conn(&a, true) && has_conn(&b, true);
}

static bool are_clear(void *arg)
{
	(void)arg;
	return has_conn(&a, false) && has_conn(&b, false);
}

static void post(struct rig_end *from, struct rig_end *to, uint64_t id)
{
	assert_int_equal(rig_post(from, IBV_WR_RDMA_WRITE, id, from->buf, LEN,
				  (uintptr_t)to->buf, to->mem->mr->rkey,
				  IBV_SEND_SIGNALED),
			 0);
}

static void arrives(void)
{
	static unsigned round;
	size_t i;

	round++;
	for (i = 0; i < LEN; i++)
		a.buf[i] = (char)(i * 7 ^ i >> 11 ^ round * 31);
	memcpy(a.buf + LEN / 2, MARK, sizeof(MARK));
	post(&a, &b, round);
	rig_expect(&a, round, IBV_WC_SUCCESS);
	assert_memory_equal(a.buf, b.buf, LEN);
}

static size_t heard(bool forget)
{
	size_t len;

	pthread_mutex_lock(&between);
	len = seen_len;
	if (forget)
		seen_len = 0;
	pthread_mutex_unlock(&between);
	return len;
}

static void *find(const char *what, size_t len)
{
	void *at;

	pthread_mutex_lock(&between);
	at = memmem(seen, seen_len, what, len);
	pthread_mutex_unlock(&between);
	return at;
}

static void test_unreadable(void **state)
{
	(void)state;
	rig_until(are_sealed, NULL);
	heard(true);
	arrives();
	assert_true(heard(false) > LEN);
	assert_null(find(MARK, sizeof(MARK) - 1));
	/* not a word of it, wherever it lies in its packet */
	for (size_t i = 0; i < LEN; i += 4096 + 64)
		assert_null(find(a.buf + i, 12));
	assert_int_equal(forged(), 0);
	down(NULL);
	/* it would be found */
	settings("tcp", NULL, "0");
	rig_pair(&a, &b, &patient);
	rig_until(are_clear, NULL);
	heard(true);
	arrives();
	assert_non_null(find(MARK, sizeof(MARK) - 1));
}

static bool is_found(void *arg)
{
	const unsigned *n = arg;

	return forged() == *n &&
	       counts_of(&a).broken + counts_of(&b).broken >= *n;
}

static void tampered(int what)
{
	unsigned i;

	rig_until(are_sealed, NULL);
	for (i = 1; i <= 4; i++) {
		does_next(what);
		arrives();
		assert_int_equal(times_done(), 1);
		/* what came before it may have been enough */
		rig_until(is_found, &i);
		rig_until(are_sealed, NULL);
		arrives();
	}
	assert_int_equal(counts_of(&a).garbage + counts_of(&b).garbage, 0);
}

static void test_changed(void **state)
{
	(void)state;
	tampered(FLIPS);
}

static void test_repeated(void **state)
{
	(void)state;
	tampered(REPEATS);
}

static void test_cut(void **state)
{
	(void)state;
	tampered(CUTS);
}

static int stranger(void)
{
	struct sockaddr_in in = {.sin_family = AF_INET,
				 .sin_port = htons(4791),
				 .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	assert_true(fd >= 0);
	assert_int_equal(connect(fd, (struct sockaddr *)&in, sizeof(in)), 0);
	return fd;
}

/* Reads to the end: how much came, of a hello what. */
static size_t closes(int fd, struct frame_hello *h)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};
	uint8_t buf[256];
	size_t len = 0;
	ssize_t n;

	do {
		patience_met(poll(&p, 1, patience_ms(60)) == 1, 60,
			     "the end of the connection");
		n = recv(fd, buf + len, sizeof(buf) - len, 0);
		len += n > 0 ? (size_t)n : 0;
	} while (n > 0);
	close(fd);
	if (len >= FRAME_HELLO)
		assert_int_equal(frame_hello_decode(buf, FRAME_HELLO, h),
				 FRAME_OK);
	return len;
}

/* The beginning of a connection is said once more, by somebody else: it is
 * answered, opens nothing, and what is there stays. */
static void test_said_again(void **state)
{
	struct frame_hello h = {0};
	struct tcp_conn *ca, *cb;
	uint8_t copy[256], more[SEALING_FIRST] = {0, SEAL_TAG};
	size_t len;
	int fd, i;

	(void)state;
	rig_until(are_sealed, NULL);
	ca = link_of(&a)->conn;
	cb = link_of(&b)->conn;
	pthread_mutex_lock(&between);
	len = first_len;
	memcpy(copy, first, len);
	pthread_mutex_unlock(&between);
	assert_int_equal(len, FRAME_HELLO + SEALING_DIALS);
	for (i = 0; i < 2; i++) {
		fd = stranger();
		assert_int_equal(__real_send(fd, copy, len, 0), (ssize_t)len);
		if (i)
			__real_send(fd, more, sizeof(more), MSG_NOSIGNAL);
		closes(fd, &h);
		assert_ptr_equal(link_of(&a)->conn, ca);
		assert_ptr_equal(link_of(&b)->conn, cb);
	}
	assert_int_equal(counts_of(&a).broken + counts_of(&b).broken, 0);
	assert_int_equal(forged(), 1);
	arrives();
}

/* A clear hello, right but for that, and one with a message by no key. */
static void test_strangers(void **state)
{
	struct frame_hello h = {.kind = FRAME_DIALS, .id = {0xff, 1}}, got;
	uint8_t buf[FRAME_HELLO + SEALING_DIALS] = {0};
	unsigned i;
	int fd;

	(void)state;
	rig_until(are_sealed, NULL);
	h.to_qpn = a.qp->qp_num;
	h.from_qpn = 1;
	for (i = 0; i < 2; i++) {
		h.sealed = i;
		memset(buf, 0x55, sizeof(buf));
		frame_hello_encode(buf, &h);
		fd = stranger();
		__real_send(fd, buf, i ? sizeof(buf) : FRAME_HELLO, 0);
		assert_int_equal(closes(fd, &got), FRAME_HELLO);
		assert_int_equal(got.kind, FRAME_REFUSES);
		assert_int_equal(got.why, i ? FRAME_OTHER_KEY : FRAME_UNSEALED);
	}
	assert_int_equal(counts_of(&a).unsealed, 1);
	assert_int_equal(counts_of(&a).other_key, 1);
	arrives();
}

/* Two ends that open with these keys; NULL: none. */
static void open_with(const char *mine, const char *theirs, const char *clear,
		      const struct rig_opts *o)
{
	struct rig_addr aa, ba;

	settings("tcp", mine, clear);
	rig_open(&a, o);
	settings("tcp", theirs, "0");
	rig_open(&b, o);
	rig_addr(&a, &aa);
	rig_addr(&b, &ba);
	rig_connect(&a, &ba);
	rig_connect(&b, &aa);
}

static void test_other_key(void **state)
{
	(void)state;
	open_with("a key\n", "a kez\n", "0", &hasty);
	memset(b.buf, 0, LEN);
	memset(a.buf, 1, LEN);
	post(&a, &b, 1);
	rig_expect(&a, 1, IBV_WC_RETRY_EXC_ERR);
	assert_int_equal(b.buf[0], 0);
	assert_true(counts_of(&a).other_key > 0);
	assert_true(counts_of(&b).other_key > 0);
	assert_int_equal(counts_of(&a).up + counts_of(&b).up, 0);
	assert_null(link_of(&a)->conn);
}

/* The clear hello of an answer is as sealed as the rest. */
static void test_other_hello(void **state)
{
	(void)state;
	does_next(LIES);
	open_with("a key\n", "a key\n", "0", &patient);
	/* what is to be sent dials again */
	arrives();
	assert_int_equal(times_done(), 1);
	assert_int_equal(counts_of(&a).other_key + counts_of(&b).other_key, 1);
}

static void test_no_key(void **state)
{
	unsigned i;

	(void)state;
	for (i = 0; i < 2; i++) {
		open_with(i ? NULL : "a key\n", i ? "a key\n" : NULL, "0",
			  &hasty);
		memset(b.buf, 0, LEN);
		memset(a.buf, 1, LEN);
		post(&a, &b, 1);
		rig_expect(&a, 1, IBV_WC_RETRY_EXC_ERR);
		assert_int_equal(b.buf[0], 0);
		assert_true(counts_of(&a).unsealed > 0);
		assert_true(counts_of(&b).unsealed > 0);
		assert_int_equal(counts_of(&a).up + counts_of(&b).up, 0);
		if (!i)
			rig_unpair(&a, &b);
	}
}

/* One end has a key and takes clear ones, too. */
static void test_clear_too(void **state)
{
	(void)state;
	open_with("a key\n", NULL, "1", &patient);
	rig_until(are_clear, NULL);
	arrives();
	rig_unpair(&a, &b);
	/* two of those seal */
	open_with("a key\n", "a key\n", "1", &patient);
	rig_until(are_sealed, NULL);
	arrives();
}

/* A datagram is not taken where there is a key. */
static void test_datagrams(void **state)
{
	struct rig_addr aa, ba;
	struct soft *s;

	(void)state;
	settings("tcp", "a key\n", "0");
	rig_open(&a, &hasty);
	settings("udp", NULL, "0");
	rig_open(&b, &hasty);
	rig_addr(&a, &aa);
	rig_addr(&b, &ba);
	rig_connect(&a, &ba);
	rig_connect(&b, &aa);
	memset(a.buf, 0, LEN);
	memset(b.buf, 1, LEN);
	post(&b, &a, 1);
	rig_expect(&b, 1, IBV_WC_RETRY_EXC_ERR);
	assert_int_equal(a.buf[0], 0);
	s = soft_of_dev(a.dev);
	pthread_mutex_lock(&s->lock);
	assert_true(counts_get(&s->link->counts->row[COUNTS_REST],
			       COUNTS_CLEAR) > 0);
	pthread_mutex_unlock(&s->lock);
}

static void refuses(const char *why)
{
	struct skein_env *env;
	struct dev *dev;
	char err[256] = "";

	assert_int_equal(env_real_new(&env), 0);
	assert_true(dev_soft_open(env, "", -1, err, sizeof(err), &dev) < 0);
	if (!strstr(err, why))
		fail_msg("\"%s\", not \"%s\"", err, why);
	env_real_free(env);
}

static void test_settings(void **state)
{
	char path[] = "/tmp/skein-test-key-XXXXXX";
	int fd = mkstemp(path);

	(void)state;
	settings("auto", NULL, "0");
	setenv("SKEIN_LINK_KEY", "", 1);
	refuses("SKEIN_LINK_KEY is empty");
	setenv("SKEIN_LINK_KEY", "/nowhere", 1);
	refuses("SKEIN_LINK_KEY: /nowhere: No such file");
	settings("auto", "\n", "0");
	refuses("one line");
	settings("udp", "a key\n", "0");
	refuses("SKEIN_LINK=udp cannot be sealed");
	settings("auto", "a key\n", "yes");
	refuses("SKEIN_LINK_CLEAR");
	setenv("SKEIN_LINK_CLEAR", "0", 1);
	assert_int_equal(fchmod(fd, 0640), 0);
	setenv("SKEIN_LINK_KEY", path, 1);
	refuses("chmod 600");
	unlink(path);
	close(fd);
}

#define EACH(f) cmocka_unit_test_setup_teardown(f, up, down)
#define ENDS(f) cmocka_unit_test_teardown(f, down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		EACH(test_unreadable), EACH(test_changed),
		EACH(test_repeated),   EACH(test_cut),
		EACH(test_said_again), EACH(test_strangers),
		ENDS(test_other_key),  ENDS(test_other_hello),
		ENDS(test_no_key),     ENDS(test_clear_too),
		ENDS(test_datagrams),  cmocka_unit_test(test_settings),
	};

	if (!seal_available())
		return 77;
	go_alone();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
