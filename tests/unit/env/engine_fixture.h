/* SPDX-License-Identifier: MIT */
/*
 * engine_fixture.h - an engine in the real environment, and objects that count.
 */
#ifndef SKEIN_TESTS_ENGINE_FIXTURE_H
#define SKEIN_TESTS_ENGINE_FIXTURE_H

#include <errno.h>
#include <stdatomic.h>

#include "env/engine/engine.h"
#include "unit/cm.h"

#define MS 1000000ull
#define LONG (20000 * MS) /* a hang, not a measurement */

/* An object with a counter as its work; any thread may raise it. */
struct source {
	struct engine_obj obj;
	struct engine *e;
	atomic_int work;
	atomic_int done;
	int polls, arms, beats;
	int fd, other_fd; /* beats that may have found them ready: */
	int fd_beats, other_beats;
	int beat_moves; /* what beat() returns, once each */
	bool refuse_arm;
	bool by_fd; /* what by_fd() says */
	uint64_t deadline_ns;
	uint64_t every_ns;     /* beat() moves the deadline on by this; 0: no */
	struct source *victim; /* deleted from inside poll() */
	struct source *newborn; /* added from inside poll() */
};

static inline int source_poll(struct engine_obj *obj, uint64_t now_ns)
{
	struct source *s = container_of(obj, struct source, obj);
	int n = atomic_exchange(&s->work, 0);

	s->polls++;
	atomic_fetch_add(&s->done, n);
	if (!s->every_ns && now_ns >= s->deadline_ns) {
		s->deadline_ns = ENV_NEVER;
		atomic_fetch_add(&s->done, 1);
		n++;
	}
	if (s->victim)
		engine_del(s->e, &s->victim->obj);
	if (s->newborn)
		engine_add(s->e, &s->newborn->obj);
	s->newborn = NULL;
	return n;
}

static inline int source_arm(struct engine_obj *obj)
{
	struct source *s = container_of(obj, struct source, obj);

	s->arms++;
	return s->refuse_arm || atomic_load(&s->work);
}

static inline uint64_t source_deadline(struct engine_obj *obj)
{
	return container_of(obj, struct source, obj)->deadline_ns;
}

static inline int source_beat(struct engine_obj *obj, uint64_t now_ns)
{
	struct source *s = container_of(obj, struct source, obj);

	s->beats++;
	while (s->every_ns && now_ns >= s->deadline_ns)
		s->deadline_ns += s->every_ns;
	s->fd_beats += engine_fd_ready(s->e, s->fd);
	s->other_beats += engine_fd_ready(s->e, s->other_fd);
	if (!s->beat_moves)
		return 0;
	s->beat_moves--;
	atomic_fetch_add(&s->done, 1);
	return 1;
}

static const struct engine_obj_ops source_ops = {
	.poll = source_poll,
	.arm = source_arm,
	.next_deadline = source_deadline,
	.beat = source_beat,
};

static inline bool source_by_fd(struct engine_obj *obj)
{
	return container_of(obj, struct source, obj)->by_fd;
}

/* The same with by_fd(). */
static const struct engine_obj_ops fd_source_ops = {
	.poll = source_poll,
	.arm = source_arm,
	.next_deadline = source_deadline,
	.beat = source_beat,
	.by_fd = source_by_fd,
};

static inline void source_add(struct source *s, struct engine *e)
{
	*s = (struct source){.e = e, .deadline_ns = ENV_NEVER};
	s->obj.ops = &source_ops;
	engine_add(e, &s->obj);
}

struct fixture {
	struct skein_env *env;
	struct engine *e;
};

static inline int setup_mode(void **state, enum env_wait_mode mode)
{
	struct fixture *f = test_calloc(1, sizeof(*f));

	assert_int_equal(env_real_new(&f->env), 0);
	assert_int_equal(engine_new(f->env, mode, &f->e), 0);
	*state = f;
	return 0;
}

static inline int setup(void **state)
{
	return setup_mode(state, ENV_WAIT_ADAPTIVE);
}

static inline int setup_event(void **state)
{
	return setup_mode(state, ENV_WAIT_EVENT);
}

static inline int setup_poll(void **state)
{
	return setup_mode(state, ENV_WAIT_POLL);
}

static inline int teardown(void **state)
{
	struct fixture *f = *state;

	engine_free(f->e);
	env_real_free(f->env);
	test_free(f);
	return 0;
}

static inline uint64_t later(struct fixture *f, uint64_t ns)
{
	return env_now_ns(f->env) + ns;
}

static inline bool source_is_done(void *arg)
{
	return atomic_load(&((struct source *)arg)->done) > 0;
}

static inline bool never(void *arg)
{
	(void)arg;
	return false;
}

struct counted_call {
	struct engine_call call;
	struct fixture *f;
	int *order;
	int n, seen;
	atomic_int *runs;
};

#endif
