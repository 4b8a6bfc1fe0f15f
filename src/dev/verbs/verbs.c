/* SPDX-License-Identifier: MIT */
/*
 * verbs.c - finds a usable device and port.
 *
 * Usable: InfiniBand transport (RC connects without a connection manager there;
 * iWARP needs one, and EFA has no RC), a port that is active, and a GID of our
 * network namespace. Ports are tried in order, devices in the library's order;
 * the first that is usable wins, and when none is, err says what was wrong with
 * the first that was refused.
 *
 * Thread rule: open by any thread; no state outside the device.
 */
#include "dev/verbs/verbs.h"

#include "base/assert.h"
#include "dev/verbs/gid.h"
#include "dev/verbs/port.h"
#include "env/env.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

struct opener {
	struct verbs_lib lib;
	struct skein_env *env;
	const char *name; /* "" any */
	int gid_index;
	int n_devices;
	enum dev_fork fork;
	/* the first refusal: kept when no device is usable */
	char why[224];
	int rc;
};

static void __attribute__((format(printf, 4, 5)))
refuse(struct opener *o, int rc, const char *dev, const char *fmt, ...)
{
	va_list ap;
	int n;

	if (o->rc)
		return;
	o->rc = rc;
	n = snprintf(o->why, sizeof(o->why), "%.64s: ", dev);
	va_start(ap, fmt);
	vsnprintf(o->why + n, sizeof(o->why) - (size_t)n, fmt, ap);
	va_end(ap);
}

/* The first port that is active and has a GID we may use. */
static int choose_port(struct opener *o, struct verbs_dev *vd, uint8_t ports)
{
	char why[160];
	int port, rc;

	for (port = 1; port <= ports; port++) {
		rc = verbs_port_open(vd, (uint8_t)port, o->gid_index, why,
				     sizeof(why));
		if (rc == 0)
			return 0;
		refuse(o, rc, vd->dev.name, "%s", why);
	}
	refuse(o, -ENODEV, vd->dev.name, "it has no port");
	return o->rc;
}

static int setup(struct opener *o, struct verbs_dev *vd)
{
	struct ibv_device_attr attr = {0};
	int fl, rc;

	rc = -vd->lib.query_device(vd->dev.verbs, &attr);
	if (rc) {
		refuse(o, rc, vd->dev.name, "cannot query it: %s",
		       strerror(-rc));
		return rc;
	}
	rc = choose_port(o, vd, attr.phys_port_cnt);
	if (rc)
		return rc;
	rc = verbs_probe(vd, &attr);
	if (rc) {
		refuse(o, rc, vd->dev.name, "cannot create an RC QP: %s",
		       strerror(-rc));
		return rc;
	}
	verbs_dc_open(vd);
	fl = fcntl(vd->dev.verbs->async_fd, F_GETFL);
	if (fl < 0 ||
	    fcntl(vd->dev.verbs->async_fd, F_SETFL, fl | O_NONBLOCK) < 0) {
		rc = -errno;
		refuse(o, rc, vd->dev.name, "its event fd is unusable");
		return rc;
	}
	return 0;
}

/*
 * Since Linux 5.12 the kernel copies pinned pages at fork(), and libibverbs
 * knows that: nothing is needed. Older kernels need ibv_fork_init(), which
 * keeps registered memory from children. It works for the whole process, and
 * only before the first registration; after that caps.fork says unsafe. Skein's
 * own memory is shared, so fork() never copies it: the application's memory
 * (mem_wrap) and the provider's need this.
 */
static enum dev_fork guard_fork(struct opener *o)
{
	int rc;

	if (o->lib.is_fork_initialized) {
		switch (o->lib.is_fork_initialized()) {
		case IBV_FORK_UNNEEDED:
			return DEV_FORK_SAFE;
		case IBV_FORK_ENABLED:
			return DEV_FORK_GUARDED;
		case IBV_FORK_DISABLED:
			break;
		}
	}
	rc = o->lib.fork_init();
	if (rc == 0)
		return DEV_FORK_GUARDED;
	env_log(o->env, ENV_LOG_WARN,
		"ibv_fork_init: %s: do not fork() while memory of your own is "
		"registered, or update the kernel to 5.12",
		strerror(rc < 0 ? -rc : rc));
	return DEV_FORK_UNSAFE;
}

static int open_one(struct opener *o, struct ibv_device *ibdev,
		    struct dev **dev)
{
	const char *name = o->lib.get_device_name(ibdev);
	struct verbs_dev *vd;
	int rc;

	if (ibdev->transport_type != IBV_TRANSPORT_IB) {
		refuse(o, -ENODEV, name, "%s", VERBS_UNFIT);
		return -ENODEV;
	}
	vd = env_alloc(o->env, sizeof(*vd));
	if (!vd) {
		refuse(o, -ENOMEM, name, "out of memory");
		return -ENOMEM;
	}
	vd->lib = o->lib;
	vd->dev.caps.fork = o->fork;
	vd->dev.ops = &verbs_ops;
	vd->dev.env = o->env;
	env_mutex_init(o->env, &vd->lock);
	snprintf(vd->dev.name, sizeof(vd->dev.name), "%s", name);
	errno = 0;
	vd->dev.verbs = o->lib.open_device(ibdev);
	if (!vd->dev.verbs) {
		rc = verbs_errno();
		refuse(o, rc, name, VERBS_NOT_OPEN, strerror(-rc));
		goto err_free;
	}
	rc = setup(o, vd);
	if (rc)
		goto err_close;
	*dev = &vd->dev;
	return 0;

err_close:
	o->lib.close_device(vd->dev.verbs);
	verbs_dc_close(vd);
err_free:
	env_mutex_fini(o->env, &vd->lock);
	env_free(o->env, vd);
	return rc;
}

static void explain(struct opener *o, struct dev *dev)
{
	char text[INET6_ADDRSTRLEN];

	if (*o->name)
		snprintf(dev->why, sizeof(dev->why),
			 "asked for by name; port %u is its first usable one",
			 dev->port);
	else
		snprintf(dev->why, sizeof(dev->why),
			 "the first of %d RDMA device(s) with an active port "
			 "(port %u)",
			 o->n_devices, dev->port);
	gid_text(&dev->gid.gid, text, sizeof(text));
	env_log(o->env, ENV_LOG_INFO,
		"device %s: %s; GID %d %s on %s: %s; inline %u", dev->name,
		dev->why, dev->gid.index, text,
		dev->gid.netdev[0] ? dev->gid.netdev : "no interface",
		dev->gid.why, dev->caps.inline_max);
}

/* Tries the devices in the library's order. 0, or the first refusal. */
static int open_listed(struct opener *o, struct ibv_device **list,
		       struct dev **dev)
{
	struct dev *d = NULL;
	int i, seen = 0;

	for (i = 0; i < o->n_devices; i++) {
		if (*o->name &&
		    strcmp(o->name, o->lib.get_device_name(list[i])))
			continue;
		seen++;
		if (open_one(o, list[i], &d) == 0) {
			skein_assert(d);
			explain(o, d);
			*dev = d;
			return 0;
		}
	}
	if (!seen && *o->name) {
		o->rc = -ENODEV;
		snprintf(o->why, sizeof(o->why),
			 "no RDMA device is called \"%.64s\": ibv_devices "
			 "lists the %d there are",
			 o->name, o->n_devices);
	} else if (!seen) {
		o->rc = -ENODEV;
		snprintf(o->why, sizeof(o->why),
			 "this machine has no RDMA device (a software one: "
			 "rdma link add rxe0 type rxe netdev IF)");
	}
	return o->rc;
}

int verbs_open_from(const struct verbs_loader *loader, struct skein_env *env,
		    const char *name, int gid_index, char *err, size_t err_len,
		    struct dev **dev)
{
	struct opener o = {.env = env, .name = name, .gid_index = gid_index};
	struct ibv_device **list;
	int rc;

	rc = verbs_lib_load(loader, &o.lib, err, err_len);
	if (rc)
		return rc;
	rc = verbs_lib_devices(&o.lib, &list, &o.n_devices, err, err_len);
	if (rc)
		goto err_unload;
	/* Without a device there is nothing to protect, and the call would
	 * change the whole process. */
	if (o.n_devices)
		o.fork = guard_fork(&o);
	rc = open_listed(&o, list, dev);
	o.lib.free_device_list(list);
	if (rc) {
		snprintf(err, err_len, "%s", o.why);
		goto err_unload;
	}
	return 0;

err_unload:
	verbs_lib_unload(&o.lib);
	return rc;
}

int dev_verbs_open(struct skein_env *env, const char *name, int gid_index,
		   char *err, size_t err_len, struct dev **dev)
{
	return verbs_open_from(&verbs_loader_dl, env, name, gid_index, err,
			       err_len, dev);
}
