/* SPDX-License-Identifier: MIT */
/*
 * wait.c - where a thread sleeps, and how it is woken.
 *
 * A waiter is an epoll fd that holds an eventfd and the watched fds. The word
 * `armed` keeps the eventfd out of the fast path: a waker makes a system call
 * only when it takes the word from 1 to 0. A wake-up that meets a thread which
 * has just decided not to sleep leaves its token in the eventfd; the next
 * sleep (or waiter_ready) ends at once and takes it: never lost, at worst one
 * spurious round.
 *
 * A thread that only polls never arms. Wakers of its waiter see that in a word
 * that stays in their cache (lead.used) and make no fence. The first thread to
 * arm sets the word, and then has the kernel make that fence in every thread.
 * Model: tests/model/wait.pml.
 */
#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "base/fence.h"
#include "env/real/real.h"

#define WAIT_EVENTS 16

/*
 * The idle policy. Rounds below IDLE_BARE look again at once (most answers
 * come here); until IDLE_YIELD_NS they pause in between; then each yields the
 * core, so that two spinners on one core serve each other at the cost of a
 * context switch instead of a time slice. After IDLE_SLEEP_NS in all, an
 * adaptive waiter sleeps: about the price of one wake-up, so that waiting never
 * costs more than twice the best choice.
 *
 * A yield is good only if the other thread yields back. A thread that computes
 * keeps the core for a slice of milliseconds, and an answer that another core
 * has written meanwhile is not seen. So a yield that took YIELD_DEAR_NS begins
 * a hold: there is no yield for HOLD_MIN_NS, and for twice as long after the
 * next such yield, up to HOLD_MAX_NS. The scheduler lets other threads run all
 * the same. A thread that spins through a hold uses up its share of the core
 * and has none left when the answer comes. So in a hold a long wait is spent in
 * naps, which cost nothing and end on time, also beside a thread that computes;
 * and a thread that may sleep does so sooner, because the core is awake anyway.
 * A nap is an eighth of the wait so far: hundreds of waiters on one core leave
 * it to threads that have work, and none sees its answer later than by that
 * part.
 *
 * Where the thread that will answer is on the same core, each look before the
 * first yield is in vain. So after TURNS_MIN waits in a row that ended with a
 * yield which let another thread run (it took SWITCH_NS), a wait begins with the
 * yield. A yield that lets nobody run takes less: the answer comes from another
 * core, and the wait goes on as any other.
 */
#define IDLE_BARE 64
#define IDLE_CLOCK_ROUNDS 16 /* read the clock that often while spinning */
#define IDLE_YIELD_NS 4000
#define IDLE_SLEEP_NS 30000
#define IDLE_HELD_SLEEP_NS 6000 /* the same in a hold: a context switch */
#define YIELD_DEAR_NS 400000
#define HOLD_MIN_NS 10000000u
#define HOLD_MAX_NS 1000000000u
#define SWITCH_NS 1000
#define TURNS_MIN 4
#define TURNS_MAX 8
#define NAP_NS 50000
#define NAP_PART 8
#define NAP_MAX_NS 20000000

/* Spinning without yielding: look once in SPIN_LOOK_NS whether other threads
 * have taken the core SPIN_PREEMPTED times. */
#define SPIN_LOOK_NS 500000000u
#define SPIN_LOOK_ROUNDS 4096
#define SPIN_PREEMPTED 20

struct env_waiter {
	struct env_waiter_lead lead;
	struct skein_env *env;
	enum env_wait_mode mode;
	bool counted; /* among the spinners */
	int epoll_fd;
	int event_fd;
	atomic_uint armed;
	/* of the idling thread only */
	uint64_t idle_since_ns;
	bool idle_long;	       /* past IDLE_YIELD_NS */
	bool gave;	       /* the last yield let another thread run */
	bool in_turns;	       /* this wait began with a yield */
	unsigned turns;	       /* TURNS_MIN: the next one does */
	uint64_t hold_end_ns;  /* no yield before; 0: none was dear */
	uint64_t hold_ns;      /* how long the last hold was */
	uint64_t spin_look_ns; /* ENV_WAIT_SPIN: when it was looked last */
	long spin_preempted;   /* ... and how often it had lost its core */
	/* watched descriptors that the last look found ready */
	int saw[WAIT_EVENTS];
	int n_saw; /* WAIT_EVENTS: perhaps others, too */
};

static void warn_of_spinners(struct skein_env *env)
{
	struct real_env *real = real_env_of(env);
	int n = atomic_fetch_add(&real->spinners, 1) + 1;
	cpu_set_t cpus;

	if (sched_getaffinity(0, sizeof(cpus), &cpus))
		return;
	if (n <= CPU_COUNT(&cpus) || atomic_exchange(&real->spin_warned, true))
		return;
	env_log(env, ENV_LOG_WARN,
		"%d threads spin without yielding on %d cores: they will wait "
		"for each other's time slices; use another wait mode",
		n, CPU_COUNT(&cpus));
}

int real_waiter_new(struct skein_env *env, enum env_wait_mode mode, bool second,
		    struct env_waiter **waiter)
{
	struct env_waiter *w = env_alloc(env, sizeof(*w));
	struct epoll_event ev = {.events = EPOLLIN};
	int rc;

	if (!w)
		return -ENOMEM;
	w->env = env;
	w->mode = mode;
	atomic_init(&w->lead.used, !env_can_fence_all(env));
	w->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	if (w->epoll_fd < 0) {
		rc = -errno;
		goto err_free;
	}
	w->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (w->event_fd < 0) {
		rc = -errno;
		goto err_epoll;
	}
	ev.data.fd = w->event_fd;
	if (epoll_ctl(w->epoll_fd, EPOLL_CTL_ADD, w->event_fd, &ev)) {
		rc = -errno;
		goto err_event;
	}
	w->counted = mode == ENV_WAIT_SPIN && !second;
	if (w->counted)
		warn_of_spinners(env);
	*waiter = w;
	return 0;

err_event:
	close(w->event_fd);
err_epoll:
	close(w->epoll_fd);
err_free:
	env_free(env, w);
	return rc;
}

void real_waiter_free(struct env_waiter *w)
{
	if (w->counted)
		atomic_fetch_sub(&real_env_of(w->env)->spinners, 1);
	close(w->event_fd);
	close(w->epoll_fd);
	env_free(w->env, w);
}

/* Reads the clock once in a while; false until IDLE_YIELD_NS have passed. */
static bool idle_is_long(struct env_waiter *w, unsigned round)
{
	if (round == IDLE_CLOCK_ROUNDS) {
		w->idle_since_ns = env_now_ns(w->env);
		w->idle_long = false;
	} else if (!w->idle_long && round % IDLE_CLOCK_ROUNDS == 0) {
		w->idle_long =
			env_now_ns(w->env) - w->idle_since_ns >= IDLE_YIELD_NS;
	}
	return w->idle_long;
}

/* Gives the core away; notes what it cost. Returns the time. */
static uint64_t yield_once(struct env_waiter *w)
{
	uint64_t begun = env_now_ns(w->env), now;

	sched_yield();
	now = env_now_ns(w->env);
	w->gave = now - begun >= SWITCH_NS;
	w->in_turns = w->in_turns && w->gave;
	if (now - begun < YIELD_DEAR_NS)
		return now;
	/* A dear yield long after the last one counts as the first. */
	if (now - w->hold_end_ns > HOLD_MAX_NS || !w->hold_ns)
		w->hold_ns = HOLD_MIN_NS;
	else if (w->hold_ns < HOLD_MAX_NS)
		w->hold_ns *= 2;
	w->hold_end_ns = now + w->hold_ns;
	return now;
}

static unsigned next_turns(const struct env_waiter *w)
{
	if (!w->gave)
		return w->turns / 2;
	return w->turns < TURNS_MAX ? w->turns + 1 : TURNS_MAX;
}

/* Does the wait that round belongs to begin with a yield? */
static bool takes_turns(const struct env_waiter *w, unsigned round)
{
	return round ? w->in_turns : next_turns(w) >= TURNS_MIN;
}

static void turns_begin(struct env_waiter *w)
{
	w->in_turns = takes_turns(w, 0);
	w->turns = next_turns(w);
	w->gave = false;
	if (!w->in_turns)
		return;
	w->idle_since_ns = env_now_ns(w->env);
	w->idle_long = true;
}

static bool is_held(const struct env_waiter *w, uint64_t now)
{
	return now < w->hold_end_ns;
}

/* The same, but where yields are dear: pauses. */
static uint64_t give_way(struct env_waiter *w)
{
	uint64_t now = w->hold_end_ns ? env_now_ns(w->env) : 0;

	if (!is_held(w, now))
		return yield_once(w);
	cpu_pause();
	return now;
}

/* Do other threads want this core, which they get only slice by slice? */
static void spin_look(struct env_waiter *w)
{
	struct real_env *real = real_env_of(w->env);
	uint64_t now = env_now_ns(w->env);
	struct rusage use;
	long lost;

	if (now - w->spin_look_ns < SPIN_LOOK_NS ||
	    getrusage(RUSAGE_THREAD, &use))
		return;
	lost = use.ru_nivcsw - w->spin_preempted;
	if (w->spin_look_ns && lost >= SPIN_PREEMPTED &&
	    !atomic_exchange(&real->spin_warned, true))
		env_log(w->env, ENV_LOG_WARN,
			"a thread that spins without yielding lost its core "
			"%ld times in %llu ms: what it waits for may need that "
			"core; use another wait mode",
			lost,
			(unsigned long long)(now - w->spin_look_ns) / 1000000);
	w->spin_look_ns = now;
	w->spin_preempted = use.ru_nivcsw;
}

static enum env_idle_verdict idle_event(struct env_waiter *w, unsigned round)
{
	/* Later rounds: the switch to sleeping is under way. */
	if (round)
		give_way(w);
	return ENV_IDLE_SLEEP;
}

static enum env_idle_verdict idle_spin(struct env_waiter *w, unsigned round)
{
	if (round >= IDLE_BARE)
		cpu_pause();
	if (round % SPIN_LOOK_ROUNDS == SPIN_LOOK_ROUNDS - 1)
		spin_look(w);
	return ENV_IDLE_AGAIN;
}

static uint64_t patience(const struct env_waiter *w, uint64_t now)
{
	return is_held(w, now) ? IDLE_HELD_SLEEP_NS : IDLE_SLEEP_NS;
}

bool real_core_wanted(struct env_waiter *w)
{
	return w->hold_end_ns && is_held(w, env_now_ns(w->env));
}

/* Asks the same question as real_idle(), so both give the same answer for one
 * round. */
bool real_idle_yields(struct env_waiter *w, unsigned round)
{
	if (w->mode == ENV_WAIT_EVENT || w->mode == ENV_WAIT_SPIN)
		return false;
	return takes_turns(w, round) ||
	       (round >= IDLE_CLOCK_ROUNDS && idle_is_long(w, round));
}

/* From here on wakers make the fence themselves. A waker that looked at `used`
 * earlier has published before that look. */
static __attribute__((noinline, cold)) void first_use(struct env_waiter *w)
{
	atomic_store_explicit(&w->lead.used, true, memory_order_relaxed);
	env_fence_all(w->env);
}

void real_waiter_arm(struct env_waiter *w)
{
	if (__builtin_expect(!atomic_load_explicit(&w->lead.used,
						   memory_order_relaxed),
			     0))
		first_use(w);
	atomic_store_explicit(&w->armed, 1, memory_order_relaxed);
	/* Pairs with the fence in real_waiter_wake(). Without it the caller's
	 * re-check may read work from before the store is seen: the waker
	 * finds the word 0, the sleeper finds no work, and sleeps for ever. */
	fence_full();
}

void real_waiter_disarm(struct env_waiter *w)
{
	/* Orders nothing: a waker that still sees 1 costs one spurious round;
	 * if it sees 0, our caller is awake and looks again. */
	atomic_store_explicit(&w->armed, 0, memory_order_relaxed);
}

void real_waiter_wake(struct env_waiter *w)
{
	int err;

	/* Pairs with the fence in real_waiter_arm(): the work published before
	 * this call is seen by the re-check, or the word is seen here. */
	fence_full();
	if (!atomic_load_explicit(&w->armed, memory_order_relaxed))
		return;
	/* Exactly one of several wakers makes the system call. Release: what
	 * it published is seen by a sleeper that finds the word taken. */
	if (!atomic_exchange_explicit(&w->armed, 0, memory_order_acq_rel))
		return;
	err = errno; /* a signal handler may be the caller */
	env_bell(w->event_fd);
	errno = err;
}

static void take_token(struct env_waiter *w)
{
	uint64_t count;
	ssize_t n;

	do
		n = read(w->event_fd, &count, sizeof(count));
	while (n < 0 && errno == EINTR);
}

/* Takes the wake-up token; returns 1 when anything else is ready. */
static int sort_events(struct env_waiter *w, const struct epoll_event *evs,
		       int n)
{
	int i;

	w->n_saw = 0;
	for (i = 0; i < n; i++) {
		if (evs[i].data.fd == w->event_fd)
			take_token(w);
		else
			w->saw[w->n_saw++] = evs[i].data.fd;
	}
	i = w->n_saw;
	if (n == WAIT_EVENTS)
		w->n_saw = WAIT_EVENTS;
	return i > 0;
}

bool real_waiter_saw(const struct env_waiter *w, int fd)
{
	for (int i = 0; i < w->n_saw; i++)
		if (w->saw[i] == fd)
			return true;
	return w->n_saw == WAIT_EVENTS;
}

/* In two steps: ppoll(2) is older, and takes nanoseconds too. */
static int wait_ppoll(struct env_waiter *w, struct epoll_event *evs,
		      const struct timespec *left)
{
	struct pollfd p = {.fd = w->epoll_fd, .events = POLLIN};
	int n = ppoll(&p, 1, left, NULL);

	return n > 0 ? epoll_wait(w->epoll_fd, evs, WAIT_EVENTS, 0) : n;
}

static int wait_events(struct env_waiter *w, struct epoll_event *evs,
		       uint64_t left_ns)
{
	struct real_env *real = real_env_of(w->env);
	struct timespec ts = {.tv_sec = (time_t)(left_ns / 1000000000u),
			      .tv_nsec = (long)(left_ns % 1000000000u)};
	struct timespec *left = left_ns == ENV_NEVER ? NULL : &ts;
	int n;

	if (atomic_load_explicit(&real->no_pwait2, memory_order_relaxed))
		return wait_ppoll(w, evs, left);
	n = epoll_pwait2(w->epoll_fd, evs, WAIT_EVENTS, left, NULL);
	/* A sandbox may refuse it with any error. */
	if (n < 0 && errno != EINTR) {
		atomic_store_explicit(&real->no_pwait2, true,
				      memory_order_relaxed);
		return wait_ppoll(w, evs, left);
	}
	return n;
}

/* Sleeps for a part of the wait so far, less if the waiter is woken or a watched
 * descriptor is ready. Nothing is looked at again behind arming: a wake-up that
 * is lost here costs no more than the nap. */
static enum env_idle_verdict nap(struct env_waiter *w, uint64_t waited_ns)
{
	uint64_t ns = waited_ns / NAP_PART;
	struct epoll_event evs[WAIT_EVENTS];
	int n;

	if (ns < NAP_NS)
		ns = NAP_NS;
	if (ns > NAP_MAX_NS)
		ns = NAP_MAX_NS;
	real_waiter_arm(w);
	n = wait_events(w, evs, ns);
	real_waiter_disarm(w);
	if (n > 0)
		(void)sort_events(w, evs, n);
	return ENV_IDLE_LATER;
}

enum env_idle_verdict real_idle(struct env_waiter *w, unsigned round)
{
	uint64_t now;

	if (w->mode == ENV_WAIT_EVENT)
		return idle_event(w, round);
	if (!round && w->mode != ENV_WAIT_SPIN)
		turns_begin(w);
	if (round < IDLE_CLOCK_ROUNDS && !w->in_turns)
		return ENV_IDLE_AGAIN;
	if (w->mode == ENV_WAIT_SPIN)
		return idle_spin(w, round);
	if (!w->in_turns && !idle_is_long(w, round)) {
		if (round >= IDLE_BARE)
			cpu_pause();
		return ENV_IDLE_AGAIN;
	}
	now = give_way(w);
	if (w->mode == ENV_WAIT_POLL && is_held(w, now) &&
	    now - w->idle_since_ns >= IDLE_SLEEP_NS)
		return nap(w, now - w->idle_since_ns);
	if (w->mode == ENV_WAIT_POLL ||
	    now - w->idle_since_ns < patience(w, now))
		return ENV_IDLE_AGAIN;
	return ENV_IDLE_SLEEP;
}

int real_waiter_sleep(struct env_waiter *w, uint64_t deadline_ns)
{
	struct epoll_event evs[WAIT_EVENTS];
	uint64_t now, left = ENV_NEVER;
	int n, rc = 0;

	for (;;) {
		if (deadline_ns != ENV_NEVER) {
			now = env_now_ns(w->env);
			left = deadline_ns > now ? deadline_ns - now : 0;
		}
		n = wait_events(w, evs, left);
		if (n != 0)
			break;
		/* The kernel may end a very long wait early. */
		if (!left || env_now_ns(w->env) >= deadline_ns)
			break;
	}
	real_waiter_disarm(w);
	if (n > 0)
		rc = sort_events(w, evs, n);
	else if (n == 0)
		rc = -ETIMEDOUT;
	else if (errno != EINTR)
		rc = -errno;
	return rc;
}

int real_waiter_watch(struct env_waiter *w, int fd, uint32_t events)
{
	struct epoll_event ev = {.events = events, .data.fd = fd};

	if (!epoll_ctl(w->epoll_fd, EPOLL_CTL_ADD, fd, &ev))
		return 0;
	if (errno == EEXIST && !epoll_ctl(w->epoll_fd, EPOLL_CTL_MOD, fd, &ev))
		return 0;
	return -errno;
}

int real_waiter_unwatch(struct env_waiter *w, int fd)
{
	if (epoll_ctl(w->epoll_fd, EPOLL_CTL_DEL, fd, NULL))
		return -errno;
	return 0;
}

int real_waiter_ready(struct env_waiter *w)
{
	struct epoll_event evs[WAIT_EVENTS];
	int n;

	do
		n = epoll_wait(w->epoll_fd, evs, WAIT_EVENTS, 0);
	while (n < 0 && errno == EINTR);
	return sort_events(w, evs, n > 0 ? n : 0);
}

int real_waiter_ready_fds(struct env_waiter *w, int *fds, int max)
{
	struct epoll_event evs[WAIT_EVENTS];
	int i, n, ready = 0;

	/* The kernel hands out ready fds in turn. */
	do
		n = epoll_wait(w->epoll_fd, evs,
			       max < WAIT_EVENTS ? max : WAIT_EVENTS, 0);
	while (n < 0 && errno == EINTR);
	for (i = 0; i < n; i++) {
		if (evs[i].data.fd == w->event_fd)
			take_token(w);
		else
			fds[ready++] = evs[i].data.fd;
	}
	return ready;
}

int real_waiter_fd(struct env_waiter *w)
{
	return w->epoll_fd;
}
