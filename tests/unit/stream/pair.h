/* SPDX-License-Identifier: MIT */
/*
 * pair.h - two hosts with a QP between them, in one thread, and streams on it.
 */
#ifndef SKEIN_TESTS_STREAM_PAIR_H
#define SKEIN_TESTS_STREAM_PAIR_H

#include "stream/stream.h"

struct stream_pair {
	struct stream_host host[2];
	struct stream_qp *qp[2];
};

/* The hosts are there. */
static inline void stream_pair_connect(struct stream_pair *p)
{
	struct stream_qp_addr addr[2];

	for (int i = 0; i < 2; i++) {
		assert_int_equal(stream_qp_new(&p->host[i], p->host[i].channel,
					       &p->qp[i]),
				 0);
		stream_qp_addr(p->qp[i], &addr[i]);
	}
	for (int i = 0; i < 2; i++)
		assert_int_equal(
			stream_qp_connect(p->qp[i], &addr[1 - i], NULL), 0);
}

static inline void stream_pair_up(struct stream_pair *p, struct skein_env *env)
{
	char err[256];

	for (int i = 0; i < 2; i++)
		assert_int_equal(stream_host_init(&p->host[i], env, "soft", err,
						  sizeof(err)),
				 0);
	stream_pair_connect(p);
}

/* One more stream between them: two[i] is host i's end. */
static inline void stream_pair_grows(struct stream_pair *p, uint32_t ring,
				     uint32_t grow_max, struct stream *two[2])
{
	struct stream_addr addr[2];

	for (int i = 0; i < 2; i++) {
		assert_int_equal(
			stream_new(&p->host[i], ring, grow_max, &two[i]), 0);
		assert_int_equal(stream_join(two[i], p->qp[i]), 0);
		stream_addr(two[i], &addr[i]);
	}
	for (int i = 0; i < 2; i++)
		assert_int_equal(stream_connect(two[i], &addr[1 - i]), 0);
}

/* The same; its rings do not grow. */
static inline void stream_pair_open(struct stream_pair *p, uint32_t ring,
				    struct stream *two[2])
{
	stream_pair_grows(p, ring, 0, two);
}

/* Takes in what has come, and frees what both ends have left. */
static inline void stream_pair_poll(struct stream_pair *p)
{
	struct stream *s;

	for (int i = 0; i < 2; i++) {
		stream_qp_poll(p->qp[i]);
		while (stream_qp_woken(p->qp[i]))
			;
		while ((s = stream_qp_over(p->qp[i])))
			stream_free(s);
	}
}

static inline void stream_pair_down(struct stream_pair *p)
{
	for (int i = 0; i < 2; i++)
		stream_qp_free(p->qp[i]);
	for (int i = 0; i < 2; i++)
		stream_host_fini(&p->host[i]);
}

#endif
