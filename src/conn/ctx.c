/* SPDX-License-Identifier: MIT */
/*
 * ctx.c - opens and closes a context, and runs its engines for the public API.
 *
 * Attributes that are zero come from the environment: SKEIN_DEVICE, SKEIN_WAIT,
 * SKEIN_LOG, SKEIN_HUGEPAGES, and those of path.c.
 */
#include "conn/ctx.h"

#include "base/assert.h"
#include "conn/setup/auth.h"
#include "conn/state.h"
#include "conn/setup/listener.h"
#include "conn/setup/path.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#define KEY_LEN_MAX 4096u
#define DRAIN_NS (1000 * 1000 * 1000ull)

/* --- attributes -------------------------------------------------------- */

int ctx_attr_copy(void *dst, size_t dst_size, const void *src)
{
	const uint8_t *bytes = src;
	size_t size;

	if (!src)
		return 0;
	memcpy(&size, src, sizeof(size));
	if (size < sizeof(size))
		return -EINVAL;
	for (size_t i = dst_size; i < size; i++)
		if (bytes[i])
			return -EINVAL;
	memcpy(dst, src, size < dst_size ? size : dst_size);
	memcpy(dst, &dst_size, sizeof(dst_size));
	return 0;
}

/* Logs why ctx_attr_copy() refused it. */
static void attr_refused(struct skein_env *env, size_t dst_size,
			 const void *src)
{
	size_t size;

	memcpy(&size, src, sizeof(size));
	if (size < sizeof(size))
		env_log(env, ENV_LOG_ERROR,
			"the attributes' size is %zu: set .size = sizeof(attr)",
			size);
	else
		env_log(env, ENV_LOG_ERROR,
			"the attributes' size is %zu, and what lies behind the "
			"%zu bytes that this library knows is not 0",
			size, dst_size);
}

int ctx_attr_take(struct skein_ctx *ctx, void *dst, size_t dst_size,
		  const void *src)
{
	int rc = ctx_attr_copy(dst, dst_size, src);

	if (rc)
		attr_refused(ctx->env, dst_size, src);
	return rc;
}

int ctx_struct_fill(void *user, size_t size_min, const void *src,
		    size_t src_size)
{
	size_t size;

	memcpy(&size, user, sizeof(size));
	if (size < size_min)
		return -EINVAL;
	if (size > src_size)
		size = src_size;
	memcpy((uint8_t *)user + sizeof(size),
	       (const uint8_t *)src + sizeof(size), size - sizeof(size));
	return 0;
}

static int word(const char *const *words, unsigned n, const char *text)
{
	for (unsigned i = 0; i < n; i++)
		if (!strcmp(words[i], text))
			return (int)i;
	return -EINVAL;
}

static int wait_from_env(enum skein_wait *wait)
{
	static const char *const words[] = {"adaptive", "poll", "spin",
					    "event"};
	const char *text = getenv("SKEIN_WAIT");
	int i;

	if (!text || !*text)
		return 0;
	i = word(words, 4, text);
	if (i < 0)
		return i;
	if (*wait == SKEIN_WAIT_ADAPTIVE)
		*wait = (enum skein_wait)i;
	return 0;
}

static int level_from_env(enum skein_log_level asked, enum env_log_level *level)
{
	static const char *const words[] = {"error", "warn", "info", "debug"};
	const char *text = getenv("SKEIN_LOG");
	int i;

	*level = ENV_LOG_WARN;
	if (asked) {
		*level = (enum env_log_level)asked;
		return 0;
	}
	if (!text || !*text)
		return 0;
	i = word(words, 4, text);
	if (i < 0)
		return i;
	*level = (enum env_log_level)i;
	return 0;
}

static int huge_from_env(enum skein_hugepages asked, enum env_huge *huge)
{
	if (asked > SKEIN_HUGEPAGES_ON)
		return -EINVAL;
	if (asked == SKEIN_HUGEPAGES_DEFAULT)
		return env_huge_parse(getenv("SKEIN_HUGEPAGES"), huge);
	*huge = (enum env_huge)(asked - SKEIN_HUGEPAGES_OFF);
	return 0;
}

static void log_to_user(void *arg, enum env_log_level level, const char *msg)
{
	struct skein_ctx *ctx = arg;

	ctx->log(ctx->log_arg, (enum skein_log_level)level, msg);
}

static const char *lookup(void *arg, const char *name)
{
	return getenv(name);
}

static int configure(struct skein_ctx *ctx, const struct skein_ctx_attr *attr)
{
	struct skein_env *env = ctx->env;
	char err[256];
	int rc;

	ctx->wait = attr->wait;
	ctx->background = attr->background;
	if (attr->log) {
		ctx->log = attr->log;
		ctx->log_arg = attr->log_arg;
		env->log_arg = ctx;
		env->log = log_to_user;
	}
	if (level_from_env(attr->log_level, &env->log_level)) {
		env_log(env, ENV_LOG_ERROR,
			"SKEIN_LOG is one of error, warn, info, debug");
		return -EINVAL;
	}
	if (wait_from_env(&ctx->wait) || ctx->wait > SKEIN_WAIT_EVENT) {
		env_log(env, ENV_LOG_ERROR,
			"SKEIN_WAIT is one of adaptive, poll, spin, event");
		return -EINVAL;
	}
	if (huge_from_env(attr->hugepages, &env->huge)) {
		env_log(env, ENV_LOG_ERROR,
			"SKEIN_HUGEPAGES is one of off, auto, on");
		return -EINVAL;
	}
	rc = path_configure(&attr->path, lookup, NULL, &ctx->path, err,
			    sizeof(err));
	if (rc)
		env_log(env, ENV_LOG_ERROR, "%s", err);
	return rc;
}

/* Logs a failure that no lower layer has logged. Returns rc. */
static int fail_to(struct skein_ctx *ctx, const char *what, int rc)
{
	if (rc)
		env_log(ctx->env, ENV_LOG_ERROR,
			"cannot open a context: %s: %s", what,
			skein_strerror(rc));
	return rc;
}

static int take_key(struct skein_ctx *ctx, const struct skein_ctx_attr *attr)
{
	struct skein_env *env = ctx->env;

	if (!attr->key)
		return 0;
	if (!attr->key_len || attr->key_len > KEY_LEN_MAX)
		return fail_to(ctx, "a key has 1 to 4096 bytes", -EINVAL);
	if (!auth_available()) {
		env_log(env, ENV_LOG_ERROR,
			"a key needs a library built with nettle");
		return -EOPNOTSUPP;
	}
	ctx->key = env_alloc(env, attr->key_len);
	if (!ctx->key)
		return fail_to(ctx, "the key", -ENOMEM);
	memcpy(ctx->key, attr->key, attr->key_len);
	ctx->key_len = attr->key_len;
	return 0;
}

/* --- life -------------------------------------------------------------- */

static void ctx_free(struct skein_ctx *ctx)
{
	struct skein_env *env = ctx->env;

	if (ctx->key)
		explicit_bzero(ctx->key, ctx->key_len);
	env_free(env, ctx->key);
	env_mutex_fini(env, &ctx->lock);
	env_free(env, ctx);
}

static int ctx_new(struct skein_env *env, struct skein_ctx **out)
{
	struct skein_ctx *ctx = env_alloc_aligned(env, 64, sizeof(*ctx));

	if (!ctx)
		return -ENOMEM;
	ctx->env = env;
	ctx->pid = env_pid(ctx->env);
	env_random(env, ctx->id, sizeof(ctx->id));
	env_mutex_init(env, &ctx->lock);
	list_init(&ctx->engines);
	list_init(&ctx->listeners);
	list_init(&ctx->conns);
	list_init(&ctx->peers);
	list_init(&ctx->mems);
	list_init(&ctx->handles);
	*out = ctx;
	return 0;
}

static int open_device(struct skein_ctx *ctx, const char *spec)
{
	char err[256] = "", name[128];
	int rc;

	if (!spec || !*spec)
		spec = getenv("SKEIN_DEVICE");
	rc = dev_open(ctx->env, spec, -1, err, sizeof(err), &ctx->dev);
	if (rc) {
		env_log(ctx->env, ENV_LOG_ERROR, "cannot open a device: %s",
			err[0] ? err : skein_strerror(rc));
		return rc;
	}
	dev_describe(ctx->dev, name, sizeof(name));
	snprintf(ctx->device, sizeof(ctx->device), "%s: %s", name,
		 ctx->dev->why);
	snprintf(ctx->port_story, sizeof(ctx->port_story),
		 "%s (%s): port %u is down: connections wait for it for %llu s",
		 ctx->dev->ops->kind, ctx->dev->name, ctx->dev->port,
		 CTX_PORT_DOWN_NS / 1000000000ull);
	rc = ctx->dev->ops->alloc_pd(ctx->dev, &ctx->pd);
	if (rc)
		dev_close(ctx->dev);
	return fail_to(ctx, "a protection domain", rc);
}

static void close_device(struct skein_ctx *ctx)
{
	ctx->dev->ops->dealloc_pd(ctx->dev, ctx->pd);
	dev_close(ctx->dev);
}

static void modules_close(struct skein_ctx *ctx, unsigned n)
{
	const struct conn_module *m;

	while (n--) {
		m = conn_modules[n];
		if (m->ctx_close)
			m->ctx_close(ctx, ctx->modules[m->id - 1]);
	}
}

static void modules_stop(struct skein_ctx *ctx)
{
	const struct conn_module *m;

	for (unsigned i = 0; (m = conn_modules[i]); i++)
		if (m->ctx_stop)
			m->ctx_stop(ctx, ctx->modules[m->id - 1]);
}

static int modules_open(struct skein_ctx *ctx)
{
	const struct conn_module *m;
	int rc;

	for (unsigned i = 0; (m = conn_modules[i]); i++) {
		if (!m->ctx_open)
			continue;
		rc = m->ctx_open(ctx, &ctx->modules[m->id - 1]);
		if (rc) {
			modules_close(ctx, i);
			/* other errors are of settings, and were logged */
			return rc == -ENOMEM ? fail_to(ctx, "a module", rc)
					     : rc;
		}
	}
	return 0;
}

static unsigned modules_count(void)
{
	unsigned n = 0;

	while (conn_modules[n])
		n++;
	return n;
}

static int ctx_bring_up(struct skein_ctx *ctx,
			const struct skein_ctx_attr *attr)
{
	int rc;

	rc = configure(ctx, attr);
	if (rc)
		return rc;
	rc = take_key(ctx, attr);
	if (rc)
		return rc;
	rc = open_device(ctx, attr->device);
	if (rc)
		return rc;
	rc = fail_to(ctx, "the engine", eng_new(ctx, ctx->wait, &ctx->engine));
	if (rc)
		goto err_device;
	rc = modules_open(ctx);
	if (rc)
		goto err_engine;
	if (ctx->background)
		rc = fail_to(ctx, "the background thread",
			     engine_background_start(ctx->engine->e));
	if (rc)
		goto err_modules;
	return 0;

err_modules:
	modules_close(ctx, modules_count());
err_engine:
	eng_free(ctx->engine);
err_device:
	close_device(ctx);
	return rc;
}

int ctx_open_env(struct skein_env *env, const struct skein_ctx_attr *user,
		 struct skein_ctx **out)
{
	struct skein_ctx_attr attr = {.size = sizeof(attr)};
	struct skein_ctx *ctx;
	int rc;

	rc = ctx_attr_copy(&attr, sizeof(attr), user);
	if (rc) {
		attr_refused(env, sizeof(attr), user);
		return rc;
	}
	rc = ctx_new(env, &ctx);
	if (rc) {
		env_log(env, ENV_LOG_ERROR, "cannot open a context: %s",
			skein_strerror(rc));
		return rc;
	}
	rc = ctx_bring_up(ctx, &attr);
	if (rc) {
		ctx_free(ctx);
		return rc;
	}
	*out = ctx;
	return 0;
}

/* Logs a failure before there is an environment that could. */
static void no_env(const struct skein_ctx_attr *user, int rc)
{
	struct skein_ctx_attr attr = {.size = sizeof(attr)};
	char line[128];

	snprintf(line, sizeof(line), "cannot open a context: memory: %s",
		 skein_strerror(rc));
	if (!ctx_attr_copy(&attr, sizeof(attr), user) && attr.log)
		attr.log(attr.log_arg, SKEIN_LOG_ERROR, line);
	else
		fprintf(stderr, "skein: error: %s\n", line);
}

int skein_ctx_open(const struct skein_ctx_attr *attr, struct skein_ctx **out)
{
	struct skein_env *env;
	int rc = env_real_new(&env);

	if (rc) {
		no_env(attr, rc);
		return rc;
	}
	rc = ctx_open_env(env, attr, out);
	if (rc)
		env_real_free(env);
	else
		(*out)->owns_env = true;
	return rc;
}

bool ctx_forked(struct skein_ctx *ctx)
{
	return env_pid(ctx->env) != ctx->pid;
}

static struct list_node *first(struct skein_ctx *ctx, struct list_node *head)
{
	struct list_node *n;

	env_mutex_lock(ctx->env, &ctx->lock);
	n = list_empty(head) ? NULL : head->next;
	env_mutex_unlock(ctx->env, &ctx->lock);
	return n;
}

void skein_ctx_close(struct skein_ctx *ctx)
{
	ENV_HOLD_CANCEL();
	struct skein_env *env;
	struct list_node *n;
	bool owns_env;

	if (!ctx || ctx_forked(ctx))
		return;
	env = ctx->env;
	owns_env = ctx->owns_env;
	modules_stop(ctx);
	while ((n = first(ctx, &ctx->listeners)))
		skein_listener_close(
			container_of(n, struct skein_listener, ctx_link));
	/* Pools have connections to meta servers. */
	conn_close_all(ctx, true, DRAIN_NS);
	conn_pools_end(ctx);
	/* A loop: callbacks may open connections meanwhile. */
	while (first(ctx, &ctx->conns))
		conn_close_all(ctx, false, DRAIN_NS);
	ctx_mems_close(ctx);
	while ((n = first(ctx, &ctx->engines)))
		eng_free(container_of(n, struct skein_engine, ctx_link));
	modules_close(ctx, modules_count());
	close_device(ctx);
	ctx_free(ctx);
	if (owns_env)
		env_real_free(env);
}

const char *skein_ctx_device(struct skein_ctx *ctx)
{
	return ctx->device;
}

int skein_ctx_error(struct skein_ctx *ctx, const char **text)
{
	/* Acquire pairs with the release in device_failed(): a thread that
	 * reads an error may read story. */
	int err = atomic_load_explicit(&ctx->failed, memory_order_acquire);

	if (!err && atomic_load(&ctx->port_down_ns)) {
		if (text)
			*text = ctx->port_story;
		return -ENETDOWN;
	}
	if (text)
		*text = err ? ctx->story : "";
	return err;
}

struct skein_engine *skein_ctx_engine(struct skein_ctx *ctx)
{
	return ctx->engine;
}

int skein_ctx_progress(struct skein_ctx *ctx)
{
	return skein_engine_progress(ctx->engine);
}
