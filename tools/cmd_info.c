/* SPDX-License-Identifier: MIT */
/*
 * cmd_info.c - `skein info`: which device a program would take here and why,
 * which others there are, what it can do, the limits of this system that bound
 * it, and what to do where it does not work (doctor.c).
 */
#include "cmd.h"
#include "cmds.h"
#include "doctor.h"
#include "env/env.h"
#include "opt.h"
#include "out.h"
#include "perf/device.h"
#include "settings.h"

#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define INFO_CMD "skein info"

struct info {
	const struct dev *dev; /* NULL: none could be opened, err says why */
	char err[256];
	char name[96];
	char gid[64];
	struct doctor_facts facts;
	struct dev_list_entry *list; /* the real devices */
	int n_list;
	char list_err[160]; /* why there is no list; else "" */
	char soft_err[256]; /* why soft cannot be used; else "" */
	struct doctor_finding findings[2 * DOCTOR_MAX];
	unsigned n_findings;
	unsigned n_settings; /* the first so many: settings that are refused */
	struct settings_unknown unknown[SETTINGS_UNKNOWN_MAX];
	unsigned n_unknown;
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

static const char *fork_words(enum dev_fork fork)
{
	switch (fork) {
	case DEV_FORK_SAFE:
		return "safe";
	case DEV_FORK_GUARDED:
		return "guarded";
	case DEV_FORK_UNSAFE:
		return "unsafe";
	}
	return "unknown";
}

static const char *link_layer(uint8_t layer)
{
	switch (layer) {
	case IBV_LINK_LAYER_INFINIBAND:
		return "InfiniBand";
	case IBV_LINK_LAYER_ETHERNET:
		return "Ethernet";
	default:
		return "unknown";
	}
}

/* --- finding out ------------------------------------------------------- */

/* Is soft usable, where another device was taken, or none? */
static void try_soft(struct skein_env *env, struct info *i)
{
	struct dev *dev = NULL;

	if (i->dev && !strcmp(i->dev->ops->kind, "soft"))
		return;
	if (dev_soft_open(env, "", -1, i->soft_err, sizeof(i->soft_err), &dev))
		return;
	i->soft_err[0] = '\0';
	dev_close(dev);
}

static void gather(struct skein_env *env, const struct dev *dev, struct info *i)
{
	i->dev = dev;
	if (dev) {
		device_name(dev, i->name, sizeof(i->name));
		device_gid(dev, i->gid, sizeof(i->gid));
	}
	doctor_facts(env, &i->facts);
	dev_verbs_list(env, i->list_err, sizeof(i->list_err), &i->list,
		       &i->n_list);
	try_soft(env, i);
	i->n_findings =
		i->n_settings + doctor_look(&i->facts, dev, i->list, i->n_list,
					    i->findings + i->n_settings);
}

/* --- JSON -------------------------------------------------------------- */

static json_t *caps_json(const struct dev_caps *c)
{
	return json_pack("{s:b, s:b, s:b, s:s, s:b, s:b, s:b, s:b, s:b, s:b, "
			 "s:s}",
			 "uc", c->uc, "ud", c->ud, "srq", c->srq, "fork",
			 fork_words(c->fork), "ordered_write", c->ordered_write,
			 "ordered_read", c->ordered_read, "wake_on_write",
			 c->wake_on_write, "death_notice", c->death_notice,
			 "dc", c->dc, "single_threaded", c->single_threaded,
			 "atomic_scope", atomic_scope(c->atomic_scope));
}

static json_t *bounded(uint64_t limit)
{
	return limit == DOCTOR_UNLIMITED
		       ? json_null()
		       : json_integer((json_int_t)(limit & INT64_MAX));
}

static json_t *limits_json(const struct info *i)
{
	const struct dev_caps *c = &i->dev->caps;

	return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, "
			 "s:o, s:o, s:i}",
			 "msg_sz_max", (json_int_t)c->msg_sz_max, "inline_max",
			 (json_int_t)c->inline_max, "qp_wr_max",
			 (json_int_t)c->qp_wr_max, "sge_max",
			 (json_int_t)c->sge_max, "cqe_max",
			 (json_int_t)c->cqe_max, "rd_atomic_max",
			 (json_int_t)c->rd_atomic_max, "mr_len_max",
			 (json_int_t)(c->mr_len_max & INT64_MAX), "qp_max",
			 (json_int_t)c->qp_max, "mr_max", (json_int_t)c->mr_max,
			 "srq_wr_max", (json_int_t)c->srq_wr_max, "memlock",
			 bounded(i->facts.memlock), "nofile",
			 bounded(i->facts.nofile), "cores", i->facts.cores);
}

static json_t *gid_json(const struct dev_list_gid *g, int chosen)
{
	char text[64];

	inet_ntop(AF_INET6, g->gid.gid.raw, text, sizeof(text));
	return json_pack("{s:i, s:s, s:s, s:s, s:b, s:b}", "index",
			 g->gid.index, "address", text, "type",
			 device_gid_type(g->gid.type), "netdev", g->gid.netdev,
			 "here", g->here, "chosen", g->gid.index == chosen);
}

static json_t *port_json(const struct dev_list_port *p)
{
	json_t *gids = json_array();

	for (int k = 0; k < p->n_gids; k++)
		json_array_append_new(gids, gid_json(&p->gids[k], p->chosen));
	return json_pack("{s:i, s:s, s:s, s:i, s:i, s:b, s:s, s:o}", "number",
			 p->number, "state", port_state(p->attr.state),
			 "link_layer", link_layer(p->attr.link_layer), "mtu",
			 (int)mtu_bytes(p->attr.active_mtu), "lid", p->attr.lid,
			 "usable", p->chosen >= 0, "why", p->why, "gids", gids);
}

static json_t *devices_json(const struct info *i)
{
	json_t *all = json_array(), *ports;
	char name[96];

	for (int n = 0; n < i->n_list; n++) {
		const struct dev_list_entry *e = &i->list[n];

		ports = json_array();
		for (int k = 0; k < e->n_ports; k++)
			json_array_append_new(ports, port_json(&e->ports[k]));
		snprintf(name, sizeof(name), "verbs:%s", e->name);
		json_array_append_new(all, json_pack("{s:s, s:s, s:o}",
						     "device", name, "error",
						     e->err, "ports", ports));
	}
	json_array_append_new(
		all, json_pack("{s:s, s:s, s:o}", "device", "soft:skein0",
			       "error", i->soft_err, "ports", json_array()));
	return all;
}

static json_t *system_json(const struct doctor_facts *f)
{
	return json_pack("{s:o, s:{s:I, s:I, s:I, s:s, s:s}, "
			 "s:{s:b, s:b, s:b}, s:i, s:i}",
			 "address_space", bounded(f->address_space),
			 "hugepages", "total", (json_int_t)f->hugepages, "free",
			 (json_int_t)f->hugepages_free, "size",
			 (json_int_t)f->hugepage_len, "option", f->huge_option,
			 "regions", f->huge_made_of, "kernel", "ib_core",
			 f->ib_core, "ib_uverbs", f->ib_uverbs, "rdma_rxe",
			 f->rdma_rxe, "kernel_devices", f->sys_devices,
			 "device_nodes", f->dev_nodes);
}

static json_t *findings_json(const struct info *i)
{
	json_t *all = json_array();

	for (unsigned n = 0; n < i->n_findings; n++)
		json_array_append_new(
			all,
			json_pack("{s:s, s:s, s:s}", "level",
				  i->findings[n].error ? "error" : "warning",
				  "text", i->findings[n].text, "fix",
				  i->findings[n].fix));
	return all;
}

static json_t *unknown_json(const struct info *i)
{
	json_t *all = json_array();
	char meant[80];

	for (unsigned n = 0; n < i->n_unknown; n++) {
		const struct settings_unknown *u = &i->unknown[n];

		snprintf(meant, sizeof(meant), "SKEIN_%s",
			 u->meant ? u->meant : "");
		json_array_append_new(
			all,
			json_pack("{s:s, s:o}", "name", u->name, "meant",
				  u->meant ? json_string(meant) : json_null()));
	}
	return all;
}

static json_t *chosen_json(const struct info *i)
{
	const struct dev *d = i->dev;
	struct dev_caps far;

	if (!d)
		return json_pack("{s:b, s:n, s:s}", "usable", false, "device",
				 "error", i->err);
	dev_qp_caps(i->dev, NULL, &far);
	return json_pack("{s:b, s:s, s:s, s:s, s:s, s:{s:i, s:s, s:s, s:i}, "
			 "s:{s:s, s:i, s:s, s:s, s:s}, s:s, s:o, s:o, s:o}",
			 "usable", true, "device", i->name, "kind",
			 d->ops->kind, "name", d->name, "why", d->why, "port",
			 "number", d->port, "state",
			 port_state(d->port_attr.state), "link_layer",
			 link_layer(d->port_attr.link_layer), "mtu",
			 (int)mtu_bytes(d->port_attr.active_mtu), "gid",
			 "address", i->gid, "index", d->gid.index, "type",
			 device_gid_type(d->gid.type), "netdev", d->gid.netdev,
			 "why", d->gid.why, "link", d->link, "abilities",
			 caps_json(&d->caps), "link_abilities", caps_json(&far),
			 "limits", limits_json(i));
}

static json_t *to_json(const struct info *i)
{
	const struct doctor_facts *f = &i->facts;
	json_t *all = chosen_json(i);

	if (i->dev && i->n_settings)
		json_object_set_new(all, "error",
				    json_string(i->findings[0].text));
	json_object_set_new(all, "devices", devices_json(i));
	json_object_set_new(all, "verbs_error", json_string(i->list_err));
	json_object_set_new(all, "system", system_json(f));
	json_object_set_new(all, "test_hw",
			    json_pack("{s:b, s:b, s:s}", "qemu", f->qemu,
				      "image", f->vm_image, "folder",
				      f->vm_folder));
	json_object_set_new(all, "findings", findings_json(i));
	json_object_set_new(all, "unknown_settings", unknown_json(i));
	return all;
}

/* --- text -------------------------------------------------------------- */

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

static const char *near_far(bool here, bool there)
{
	return here && !there ? "yes; no with other hosts" : yes_no(here);
}

static void print_caps(const struct dev *dev)
{
	const struct dev_caps *c = &dev->caps;
	struct dev_caps far;

	dev_qp_caps(dev, NULL, &far);
	puts("\nabilities");
	row("  transports", "RC%s%s%s%s", c->uc ? ", UC" : "",
	    c->ud ? ", UD" : "", c->dc ? ", DC" : "",
	    c->dc && !far.dc ? "; no DC with other hosts" : "");
	if (!c->dc && c->ud && c->srq)
		row("  pools", "without DC: an RC QP for each node, made by "
			       "both ends with the first request");
	row("  srq", "%s", yes_no(c->srq));
	row("  ordered_write", "%s", yes_no(c->ordered_write));
	row("  ordered_read", "%s",
	    near_far(c->ordered_read, far.ordered_read));
	row("  wake_on_write", "%s", yes_no(c->wake_on_write));
	row("  death_notice", "%s",
	    near_far(c->death_notice, far.death_notice));
	row("  fork", "%s", fork_words(c->fork));
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
}

static void bound_row(const char *key, uint64_t limit, const char *how)
{
	if (limit == DOCTOR_UNLIMITED)
		row(key, "unlimited");
	else
		row(key, "%" PRIu64 " (%s)", limit, how);
}

static void print_port(const struct dev_list_port *p)
{
	char text[64];

	printf("    port %u  %s  %s  MTU %u", p->number,
	       port_state(p->attr.state), link_layer(p->attr.link_layer),
	       mtu_bytes(p->attr.active_mtu));
	if (p->attr.lid)
		printf("  LID %u", p->attr.lid);
	printf("  %s: %s\n", p->chosen >= 0 ? "usable" : "not usable", p->why);
	for (int k = 0; k < p->n_gids; k++) {
		const struct dev_list_gid *g = &p->gids[k];

		inet_ntop(AF_INET6, g->gid.gid.raw, text, sizeof(text));
		printf("      %c GID %d  %s  %s%s%s%s\n",
		       g->gid.index == p->chosen ? '*' : ' ', g->gid.index,
		       text, device_gid_type(g->gid.type),
		       *g->gid.netdev ? " on " : "", g->gid.netdev,
		       g->here ? "" : " (of another network namespace)");
	}
}

static void print_devices(const struct info *i)
{
	puts("\ndevices");
	for (int n = 0; n < i->n_list; n++) {
		const struct dev_list_entry *e = &i->list[n];

		printf("  verbs:%s%s%s\n", e->name, *e->err ? ": " : "",
		       e->err);
		for (int k = 0; k < e->n_ports; k++)
			print_port(&e->ports[k]);
	}
	if (*i->list_err)
		printf("  no verbs device: %s\n", i->list_err);
	else if (!i->n_list)
		puts("  no verbs device (a software one: rdma link add rxe0 "
		     "type rxe netdev IF)");
	printf("  soft:skein0  %s%s\n",
	       *i->soft_err ? "not usable: " : "usable", i->soft_err);
}

static void print_system(const struct doctor_facts *f)
{
	puts("\nsystem");
	bound_row("  memlock", f->memlock, "bytes; ulimit -l");
	bound_row("  open files", f->nofile, "ulimit -n");
	bound_row("  address space", f->address_space, "bytes; ulimit -v");
	row("  hugepages", "%" PRIu64 " of %" PRIu64 " KiB, %" PRIu64 " free",
	    f->hugepages, f->hugepage_len >> 10, f->hugepages_free);
	row("  large regions", "made of: %s (SKEIN_HUGEPAGES=%s)",
	    f->huge_made_of, f->huge_option);
	row("  /dev/shm", "not used: shared memory is memfds");
	row("  cores", "%d", f->cores);
	row("  kernel", "ib_core %s, ib_uverbs %s, rdma_rxe %s",
	    yes_no(f->ib_core), yes_no(f->ib_uverbs), yes_no(f->rdma_rxe));
	row("  make test-hw", "QEMU %s, image %s (%s)",
	    f->qemu ? "here" : "missing: scripts/deps.sh hw",
	    f->vm_image ? "cached" : "not made yet: it downloads a kernel",
	    f->vm_folder);
}

static void print_findings(const struct info *i)
{
	if (i->n_findings)
		puts("\nfindings");
	for (unsigned n = 0; n < i->n_findings; n++)
		printf("  %s: %s\n    fix: %s\n",
		       i->findings[n].error ? "error" : "warning",
		       i->findings[n].text, i->findings[n].fix);
}

static void print_chosen(const struct info *i)
{
	const struct dev *d = i->dev;

	row("device", "%s", i->name);
	if (d->mode[0])
		row("  mode", "%s", d->mode);
	row("  why", "%s", d->why);
	row("port", "%u, %s, MTU %u", d->port, port_state(d->port_attr.state),
	    mtu_bytes(d->port_attr.active_mtu));
	if (d->link[0])
		row("to others", "%s", d->link);
	row("GID", "%d  %s  %s%s%s", d->gid.index, i->gid,
	    device_gid_type(d->gid.type), *d->gid.netdev ? " on " : "",
	    d->gid.netdev);
	row("  why", "%s", d->gid.why);
}

static void print_text(const struct info *i)
{
	if (i->dev)
		print_chosen(i);
	else
		row("device", "none");
	print_devices(i);
	if (i->dev) {
		print_caps(i->dev);
		print_limits(i);
	}
	print_system(&i->facts);
	print_findings(i);
}

/* The real environment, for what is looked at where no device was opened. */
static int look_around(struct info *i, struct skein_env *own,
		       struct skein_env **env)
{
	int rc;

	if (own) {
		*env = own;
		return 0;
	}
	rc = env_real_new(env);
	if (rc)
		snprintf(i->err, sizeof(i->err), "cannot start: %s",
			 strerror(-rc));
	return rc;
}

static int show(const char *device, const char *require, bool as_json)
{
	struct skein_env *env = NULL, *looker = NULL;
	struct info *i = calloc(1, sizeof(*i));
	struct dev *dev = NULL;
	bool refused;
	int rc, out = 0;

	if (!i) {
		out_error(INFO_CMD, "out of memory");
		return CMD_FAILED;
	}
	settings_say_unknown(INFO_CMD);
	i->n_unknown = settings_unknown(i->unknown, SETTINGS_UNKNOWN_MAX);
	i->n_settings = settings_look(device ? device : require, i->findings);
	rc = device_open(device, require, -1, &env, i->err, sizeof(i->err),
			 &dev);
	if (rc)
		out_error(INFO_CMD, "%s", i->err);
	for (unsigned n = 0; n < i->n_settings && !rc; n++)
		out_error(INFO_CMD, "%s", i->findings[n].text);
	if (look_around(i, env, &looker)) {
		if (!rc)
			out_error(INFO_CMD, "%s", i->err);
		rc = -EIO;
		goto out_free;
	}
	gather(looker, dev, i);
	if (as_json)
		out = out_json(to_json(i));
	else
		print_text(i);
	errno = 0;
	if (fflush(stdout) && !out)
		out = -errno;
	if (ferror(stdout) && !out)
		out = -EIO;
	if (out)
		out_error(INFO_CMD, "cannot write the result: %s",
			  strerror(-out));
	env_free(looker, i->list);
	if (looker != env)
		env_real_free(looker);
	device_close(env, dev);
out_free:
	refused = i->n_settings > 0;
	free(i);
	return rc || out || refused ? CMD_FAILED : CMD_OK;
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
		"Shows which RDMA device a program takes here and why, which "
		"others there\nare, what it can do, the limits that bound it, and "
		"what to do about them.",
		opts, NULL};

	switch (opt_parse(&u, argc, argv, NULL)) {
	case OPT_HELP:
		return CMD_OK;
	case OPT_BAD:
		return CMD_USAGE;
	case OPT_RUN:
		break;
	}
	if (!device_require_fits(INFO_CMD, require))
		return CMD_USAGE;
	return show(device, require, as_json);
}
