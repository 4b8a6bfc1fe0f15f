/* SPDX-License-Identifier: MIT */
/*
 * cmd_info.c - `skein info`: which device a program would take here and why,
 * what it can do, and the limits of this system that bound it.
 */
#include "cmd.h"
#include "cmds.h"
#include "opt.h"
#include "out.h"
#include "perf/device.h"

#include <inttypes.h>
#include <sched.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define INFO_CMD "skein info"

struct info {
	const struct dev *dev;
	char name[96];
	char gid[64];
	uint64_t memlock; /* RLIM_INFINITY: unlimited */
	uint64_t nofile;
	int cores;
};

static const char *yes_no(bool v)
{
	return v ? "yes" : "no";
}

static const char *atomic_scope(enum dev_atomic_scope scope)
{
	switch (scope) {
	case DEV_ATOMIC_NONE:
		return "none";
	case DEV_ATOMIC_HCA:
		return "device";
	case DEV_ATOMIC_GLOB:
		return "global";
	}
	return "unknown";
}

static const char *port_state(enum ibv_port_state state)
{
	switch (state) {
	case IBV_PORT_ACTIVE:
		return "active";
	case IBV_PORT_DOWN:
		return "down";
	case IBV_PORT_INIT:
		return "init";
	case IBV_PORT_ARMED:
		return "armed";
	default:
		return "unknown";
	}
}

static unsigned mtu_bytes(enum ibv_mtu mtu)
{
	return mtu >= IBV_MTU_256 && mtu <= IBV_MTU_4096 ? 128u << mtu : 0;
}

static uint64_t limit_of(int which)
{
	struct rlimit r;

	return getrlimit(which, &r) ? 0 : r.rlim_cur;
}

static void gather(const struct dev *dev, struct info *i)
{
	cpu_set_t set;

	i->dev = dev;
	device_name(dev, i->name, sizeof(i->name));
	device_gid(dev, i->gid, sizeof(i->gid));
	i->memlock = limit_of(RLIMIT_MEMLOCK);
	i->nofile = limit_of(RLIMIT_NOFILE);
	i->cores =
		sched_getaffinity(0, sizeof(set), &set) ? 0 : CPU_COUNT(&set);
}

static json_t *caps_json(const struct dev_caps *c)
{
	return json_pack("{s:b, s:b, s:b, s:b, s:b, s:b, s:s}", "ordered_write",
			 c->ordered_write, "ordered_read", c->ordered_read,
			 "wake_on_write", c->wake_on_write, "death_notice",
			 c->death_notice, "dc", c->dc, "single_threaded",
			 c->single_threaded, "atomic_scope",
			 atomic_scope(c->atomic_scope));
}

static json_t *limits_json(const struct info *i)
{
	const struct dev_caps *c = &i->dev->caps;

	return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:o, "
			 "s:I, s:i}",
			 "msg_sz_max", (json_int_t)c->msg_sz_max, "inline_max",
			 (json_int_t)c->inline_max, "qp_wr_max",
			 (json_int_t)c->qp_wr_max, "sge_max",
			 (json_int_t)c->sge_max, "cqe_max",
			 (json_int_t)c->cqe_max, "rd_atomic_max",
			 (json_int_t)c->rd_atomic_max, "mr_len_max",
			 (json_int_t)(c->mr_len_max & INT64_MAX), "qp_max",
			 (json_int_t)c->qp_max, "mr_max", (json_int_t)c->mr_max,
			 "memlock",
			 i->memlock == RLIM_INFINITY
				 ? json_null()
				 : json_integer((json_int_t)i->memlock),
			 "nofile", (json_int_t)i->nofile, "cores", i->cores);
}

static json_t *to_json(const struct info *i)
{
	const struct dev *d = i->dev;

	return json_pack("{s:s, s:s, s:s, s:s, s:{s:i, s:s, s:i}, "
			 "s:{s:s, s:i, s:s, s:s, s:s}, s:o, s:o}",
			 "device", i->name, "kind", d->ops->kind, "name",
			 d->name, "why", d->why, "port", "number", d->port,
			 "state", port_state(d->port_attr.state), "mtu",
			 (int)mtu_bytes(d->port_attr.active_mtu), "gid",
			 "address", i->gid, "index", d->gid.index, "type",
			 device_gid_type(d->gid.type), "netdev", d->gid.netdev,
			 "why", d->gid.why, "abilities", caps_json(&d->caps),
			 "limits", limits_json(i));
}

static void row(const char *key, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

static void row(const char *key, const char *fmt, ...)
{
	va_list ap;

	printf("%-17s ", key);
	va_start(ap, fmt);
	vprintf(fmt, ap);
	va_end(ap);
	putchar('\n');
}

static void print_caps(const struct dev_caps *c)
{
	puts("\nabilities");
	row("  ordered_write", "%s", yes_no(c->ordered_write));
	row("  ordered_read", "%s", yes_no(c->ordered_read));
	row("  wake_on_write", "%s", yes_no(c->wake_on_write));
	row("  death_notice", "%s", yes_no(c->death_notice));
	row("  dc", "%s", yes_no(c->dc));
	row("  single_threaded", "%s", yes_no(c->single_threaded));
	row("  atomic_scope", "%s", atomic_scope(c->atomic_scope));
}

static void print_limits(const struct info *i)
{
	const struct dev_caps *c = &i->dev->caps;

	puts("\nlimits");
	row("  message", "%" PRIu64 " bytes", c->msg_sz_max);
	row("  inline", "%u bytes", c->inline_max);
	row("  WRs of a QP", "%u, of %u sges each", c->qp_wr_max, c->sge_max);
	row("  entries of a CQ", "%u", c->cqe_max);
	row("  READs at once", "%u", c->rd_atomic_max);
	row("  QPs, MRs", "%u, %u", c->qp_max, c->mr_max);
	if (i->memlock == RLIM_INFINITY)
		row("  memlock", "unlimited");
	else
		row("  memlock", "%" PRIu64 " bytes (ulimit -l)", i->memlock);
	row("  open files", "%" PRIu64 " (ulimit -n)", i->nofile);
	row("  cores", "%d", i->cores);
}

static void print_text(const struct info *i)
{
	const struct dev *d = i->dev;

	row("device", "%s", i->name);
	if (d->mode[0])
		row("  mode", "%s", d->mode);
	row("  why", "%s", d->why);
	row("port", "%u, %s, MTU %u", d->port, port_state(d->port_attr.state),
	    mtu_bytes(d->port_attr.active_mtu));
	row("GID", "%d  %s  %s%s%s", d->gid.index, i->gid,
	    device_gid_type(d->gid.type), *d->gid.netdev ? " on " : "",
	    d->gid.netdev);
	row("  why", "%s", d->gid.why);
	print_caps(&d->caps);
	print_limits(i);
}

static int show(const char *device, const char *require, bool as_json)
{
	struct skein_env *env = NULL;
	struct dev *dev = NULL;
	struct info i;
	char err[256] = "";
	int rc;

	rc = device_open(device, require, -1, &env, err, sizeof(err), &dev);
	if (rc) {
		out_error(INFO_CMD, "%s", err);
		return CMD_FAILED;
	}
	gather(dev, &i);
	if (as_json)
		rc = out_json(to_json(&i));
	else
		print_text(&i);
	if (fflush(stdout) || ferror(stdout))
		rc = -1;
	if (rc)
		out_error(INFO_CMD, "cannot write the result");
	device_close(env, dev);
	return rc ? CMD_FAILED : CMD_OK;
}

int cmd_info(int argc, char **argv)
{
	const char *device = NULL, *require = NULL;
	bool as_json = false;
	const struct opt opts[] = {
		{'d', "device", OPT_STR, &device, "NAME",
		 "soft, verbs or verbs:NAME; else SKEIN_DEVICE, else chosen"},
		{0, "require", OPT_STR, &require, "KIND",
		 "fail unless the device is soft or verbs"},
		{0, "json", OPT_FLAG, &as_json, .help = "one JSON object"},
		{0},
	};
	const struct opt_usage u = {
		INFO_CMD, "[options]",
		"Shows which RDMA device a program takes here and why, what it "
		"can do,\nand the limits that bound it.",
		opts, NULL};
	int first = 0;

	switch (opt_parse(&u, argc, argv, &first)) {
	case OPT_HELP:
		return CMD_OK;
	case OPT_BAD:
		return CMD_USAGE;
	case OPT_RUN:
		break;
	}
	if (first != argc) {
		out_error(INFO_CMD, "\"%s\" is one word too many", argv[first]);
		return CMD_USAGE;
	}
	return show(device, require, as_json);
}
