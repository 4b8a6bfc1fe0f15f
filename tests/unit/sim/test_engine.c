/* SPDX-License-Identifier: MIT */
/*
 * The production engine in a simulated world: two engines hand a ball to and
 * fro, in each wait mode; deadlines; what parked pollers cost.
 */
#include "cm_sim.h"
#include "env/engine/engine.h"

#define TURNS 200

struct side {
	struct engine_obj obj;
	struct two *t;
	struct side *other;
	struct skein_env *env;
	struct engine *e;
	enum env_wait_mode mode;
	unsigned got, polls;
	bool ball;
	struct sim_event fly;
};

/* The ball lands in the other's memory, as an RDMA WRITE would. */
static void lands(struct sim_event *ev)
{
	struct side *s = container_of(ev, struct side, fly);

	s->ball = true;
	sim_notify(sim_proc_of(s->env));
	if (s->e && s->mode != ENV_WAIT_POLL && s->mode != ENV_WAIT_SPIN)
		engine_kick(s->e);
}

static int side_poll(struct engine_obj *obj, uint64_t now_ns)
{
	struct side *s = container_of(obj, struct side, obj);

	s->polls++;
	sim_charge(s->t->w, 20);
	if (!s->ball)
		return 0;
	s->ball = false;
	s->got++;
	sim_at(s->t->w, &s->other->fly, sim_thread_now(s->t->w) + 1000);
	return 1;
}

static const struct engine_obj_ops side_ops = {.poll = side_poll};

static bool enough(void *arg)
{
	return ((struct side *)arg)->got >= TURNS;
}

static void play(void *arg)
{
	struct side *s = arg;

	assert_int_equal(engine_new(s->env, s->mode, &s->e), 0);
	engine_add(s->e, &s->obj);
	assert_int_equal(engine_run_until(s->e, enough, s, ENV_NEVER), 0);
	engine_del(s->e, &s->obj);
	engine_free(s->e);
	s->e = NULL;
}

static void ball_game(enum env_wait_mode mode, uint64_t *hash)
{
	struct side s[2] = {0};
	struct two t;

	two_up(&t, 1, 1);
	for (int i = 0; i < 2; i++) {
		s[i].obj.ops = &side_ops;
		s[i].t = &t;
		s[i].env = t.env[i];
		s[i].mode = mode;
		s[i].other = &s[!i];
		s[i].fly.fn = lands;
		sim_spawn(t.proc[i], "side", play, &s[i]);
	}
	sim_run(t.w, 100000);
	sim_at(t.w, &s[0].fly, 200000);
	/* The second to finish may poll on for a ball that nobody throws. */
	while (s[0].got < TURNS)
		if (sim_run(t.w, sim_now(t.w) + 1000000) == SIM_END_QUIET)
			break;
	assert_int_equal(s[0].got, TURNS);
	for (int i = 0; i < 2; i++)
		assert_in_range(s[i].polls, TURNS - 1, 20 * TURNS);
	*hash = sim_hash(t.w);
	two_down(&t);
}

static void test_modes(void **state)
{
	static const enum env_wait_mode modes[] = {ENV_WAIT_POLL, ENV_WAIT_SPIN,
						   ENV_WAIT_ADAPTIVE,
						   ENV_WAIT_EVENT};
	uint64_t hash[2];

	for (unsigned i = 0; i < 4; i++) {
		ball_game(modes[i], &hash[0]);
		ball_game(modes[i], &hash[1]);
		assert_int_equal(hash[0], hash[1]);
	}
}

static bool never(void *arg)
{
	return false;
}

static void wait_long(void *arg)
{
	struct side *s = arg;
	uint64_t end = env_now_ns(s->env) + 1000000000;

	assert_int_equal(engine_new(s->env, s->mode, &s->e), 0);
	engine_add(s->e, &s->obj);
	assert_int_equal(engine_run_until(s->e, never, s, end), -ETIMEDOUT);
	assert_in_range(env_now_ns(s->env), end, end + 20000);
	s->got++;
	engine_del(s->e, &s->obj);
	engine_free(s->e);
}

/* A second of polling for nothing is a few hundred events: the beats. */
static void test_deadline(void **state)
{
	for (int mode = ENV_WAIT_ADAPTIVE; mode <= ENV_WAIT_EVENT; mode++) {
		struct side s = {.obj.ops = &side_ops};
		struct two t;

		two_up(&t, 1, 1);
		s.t = &t;
		s.env = t.env[0];
		s.mode = (enum env_wait_mode)mode;
		sim_spawn(t.proc[0], "w", wait_long, &s);
		assert_int_equal(sim_run(t.w, ENV_NEVER), SIM_END_QUIET);
		assert_int_equal(s.got, 1);
		assert_true(sim_events(t.w) < 5000);
		assert_int_equal(sim_proc_bytes(t.proc[0]), 0);
		assert_int_equal(sim_proc_fds(t.proc[0]), 0);
		two_down(&t);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_modes),
		cmocka_unit_test(test_deadline),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
