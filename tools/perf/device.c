/* SPDX-License-Identifier: MIT */
/*
 * device.c - a device for a tool that speaks verbs itself, and words for it.
 */
#include "perf/device.h"

#include "out.h"

#include "env/env.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void log_line(void *arg, enum env_log_level level, const char *msg)
{
	fprintf(stderr, "skein: %s\n", msg);
}

int device_open(const char *spec, const char *require, int gid_index,
		struct skein_env **env, char *err, size_t err_len,
		struct dev **dev)
{
	const char *log;
	int rc;

	if (!spec)
		spec = getenv("SKEIN_DEVICE");
	if (!spec && require)
		spec = require;
	rc = env_real_new(env);
	if (rc) {
		snprintf(err, err_len, "cannot start: %s", strerror(-rc));
		return rc;
	}
	(*env)->log = log_line;
	log = getenv("SKEIN_LOG");
	(*env)->log_level =
		log && !strcmp(log, "info") ? ENV_LOG_INFO : ENV_LOG_WARN;
	rc = env_huge_parse(getenv("SKEIN_HUGEPAGES"), &(*env)->huge);
	if (rc) {
		snprintf(err, err_len,
			 "SKEIN_HUGEPAGES is one of off, auto, on");
		goto err_env;
	}
	rc = dev_open(*env, spec, gid_index, err, err_len, dev);
	if (rc)
		goto err_env;
	if (require && strcmp((*dev)->ops->kind, require) != 0) {
		snprintf(err, err_len,
			 "%s is required, but %s is a %s device: give -d %s, "
			 "or leave out --require",
			 require, (*dev)->name, (*dev)->ops->kind, require);
		rc = -ENODEV;
		goto err_dev;
	}
	return 0;
err_dev:
	dev_close(*dev);
	*dev = NULL;
err_env:
	env_real_free(*env);
	*env = NULL;
	return rc;
}

bool device_require_fits(const char *cmd, const char *require)
{
	if (!require || !strcmp(require, "soft") || !strcmp(require, "verbs"))
		return true;
	out_error(cmd, "--require takes soft or verbs, not \"%s\"", require);
	return false;
}

void device_close(struct skein_env *env, struct dev *dev)
{
	dev_close(dev);
	if (env)
		env_real_free(env);
}

void device_name(const struct dev *dev, char *buf, size_t len)
{
	snprintf(buf, len, "%s:%s", dev->ops->kind, dev->name);
}

void device_gid(const struct dev *dev, char *buf, size_t len)
{
	char text[INET6_ADDRSTRLEN];

	inet_ntop(AF_INET6, dev->gid.gid.raw, text, sizeof(text));
	snprintf(buf, len, "%s", text);
}

const char *device_gid_type(enum dev_gid_type type)
{
	static const char *const names[] = {
		[DEV_GID_IB] = "IB",
		[DEV_GID_ROCE_V1] = "RoCEv1",
		[DEV_GID_ROCE_V2] = "RoCEv2",
	};

	return (size_t)type < sizeof(names) / sizeof(names[0]) ? names[type]
							       : "unknown";
}

void device_describe(const struct dev *dev, char *buf, size_t len)
{
	char gid[64], name[128];

	device_gid(dev, gid, sizeof(gid));
	dev_describe(dev, name, sizeof(name));
	snprintf(buf, len, "%s: %s; GID %d %s %s: %s", name, dev->why,
		 dev->gid.index, gid, device_gid_type(dev->gid.type),
		 dev->gid.why);
}
