/* SPDX-License-Identifier: MIT */
/*
 * calib_file.c - see calib_file.h.
 */
#include "rpc/client/calib_file.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "dev/dev.h"
#include "env/cache_file.h"
#include "env/env.h"

#include <skein/version.h>

bool rpc_calib_counts(const struct dev *dev)
{
	return !dev->caps.poster_copies;
}

void rpc_calib_key(struct dev *dev, char key[RPC_CALIB_KEY_MAX])
{
	struct ibv_device_attr attr = {0};
	char name[128];

	dev_describe(dev, name, sizeof(name));
	if (dev->ops->query_device(dev, &attr) || !attr.fw_ver[0])
		snprintf(attr.fw_ver, sizeof(attr.fw_ver), "-");
	snprintf(key, RPC_CALIB_KEY_MAX, "%s, %.63s, %s", name, attr.fw_ver,
		 skein_version());
}

int rpc_calib_path(const struct dev *dev, char path[RPC_CALIB_PATH_MAX])
{
	char name[128];

	snprintf(name, sizeof(name), "calibration-%s-%s", dev->ops->kind,
		 dev->name);
	return cache_file_path(name, path, RPC_CALIB_PATH_MAX);
}

void rpc_calib_file_init(struct rpc_calib_file *f, const struct dev *dev,
			 const char *setting)
{
	bool on = strcmp(setting, "on") == 0;
	int n = 0;

	*f = (struct rpc_calib_file){.named = !on};
	if (on && rpc_calib_counts(dev))
		n = rpc_calib_path(dev, f->path);
	else if (!on && strcmp(setting, "off") != 0)
		n = snprintf(f->path, sizeof(f->path), "%s", setting);
	if (n < 0 || n >= (int)sizeof(f->path))
		f->path[0] = '\0';
}

static void read_it(struct rpc_calib_file *f, struct dev *dev)
{
	char key[RPC_CALIB_KEY_MAX], text[RPC_CALIB_TEXT_MAX];
	const char *why = NULL;
	size_t len;
	int rc = cache_file_read(f->path, text, sizeof(text), &len);

	if (rc == -ENOENT && !f->named)
		return;
	if (!rc) {
		rpc_calib_key(dev, key);
		rc = rpc_calib_decode(text, len, key, &f->calib, &why);
	}
	f->known = !rc;
	if (rc)
		env_log(dev->env, ENV_LOG_WARN,
			"rpc: calibration %s is not used: %s: run `skein perf "
			"calibrate%s%s` again",
			f->path, why ? why : strerror(-rc),
			f->named ? " --file=" : "", f->named ? f->path : "");
}

const struct rpc_calib *rpc_calib_file_get(struct rpc_calib_file *f,
					   struct dev *dev)
{
	if (!f->looked && f->path[0])
		read_it(f, dev);
	f->looked = true;
	return f->known ? &f->calib : NULL;
}

int rpc_calib_file_put(struct dev *dev, const char *path, bool named,
		       const struct rpc_calib *c)
{
	char key[RPC_CALIB_KEY_MAX], text[RPC_CALIB_TEXT_MAX], at[PATH_MAX];
	int rc = named ? cache_file_find(path, at) : cache_file_folders(path);
	size_t len;

	if (rc)
		return rc;
	path = named ? at : path;
	rpc_calib_key(dev, key);
	len = rpc_calib_encode(c, key, text, sizeof(text));
	return len ? cache_file_write(path, text, len) : -ENOBUFS;
}
