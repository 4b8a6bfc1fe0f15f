/* SPDX-License-Identifier: MIT */
/*
 * list.c - see dev/list.h.
 */
#include "dev/list.h"
#include "dev/verbs/port.h"

#include "env/env.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static void fill_port(struct verbs_dev *vd, uint8_t number,
		      struct dev_list_port *p)
{
	struct dev_gid gid;
	int rc;

	p->number = number;
	p->chosen = -1;
	rc = verbs_lib_query_port(&vd->lib, vd->dev.verbs, number, &p->attr);
	if (rc) {
		snprintf(p->why, sizeof(p->why), "cannot query it: %s",
			 strerror(-rc));
		return;
	}
	rc = verbs_port_gids(vd, number, p->gids, DEV_LIST_GIDS, &p->n_gids,
			     &gid, p->why, sizeof(p->why));
	if (p->attr.state != IBV_PORT_ACTIVE) {
		verbs_port_explain(&p->attr, number, p->why, sizeof(p->why));
		return;
	}
	if (rc)
		return;
	p->chosen = gid.index;
	snprintf(p->why, sizeof(p->why), "%s", gid.why);
}

static void fill(struct skein_env *env, const struct verbs_lib *lib,
		 struct ibv_device *ibdev, struct dev_list_entry *e)
{
	struct verbs_dev vd = {.dev = {.env = env}, .lib = *lib};
	struct ibv_device_attr attr = {0};
	int i, rc;

	snprintf(e->name, sizeof(e->name), "%s", lib->get_device_name(ibdev));
	if (ibdev->transport_type != IBV_TRANSPORT_IB) {
		snprintf(e->err, sizeof(e->err), "%s", VERBS_UNFIT);
		return;
	}
	errno = 0;
	vd.dev.verbs = lib->open_device(ibdev);
	if (!vd.dev.verbs) {
		snprintf(e->err, sizeof(e->err), VERBS_NOT_OPEN,
			 strerror(-verbs_errno()));
		return;
	}
	rc = lib->query_device(vd.dev.verbs, &attr);
	if (rc)
		snprintf(e->err, sizeof(e->err), "cannot query it: %s",
			 strerror(rc));
	for (i = 0; !rc && i < attr.phys_port_cnt && i < DEV_LIST_PORTS; i++)
		fill_port(&vd, (uint8_t)(i + 1), &e->ports[e->n_ports++]);
	lib->close_device(vd.dev.verbs);
}

int verbs_list_from(const struct verbs_loader *loader, struct skein_env *env,
		    char *err, size_t err_len, struct dev_list_entry **list,
		    int *n)
{
	struct dev_list_entry *entries = NULL;
	struct ibv_device **ibdevs;
	struct verbs_lib lib;
	int i, count = 0, rc;

	rc = verbs_lib_load(loader, &lib, err, err_len);
	if (rc)
		return rc;
	rc = verbs_lib_devices(&lib, &ibdevs, &count, err, err_len);
	if (rc)
		goto out_unload;
	entries = env_alloc(env, sizeof(*entries) * (size_t)(count + 1));
	if (!entries) {
		snprintf(err, err_len, "out of memory");
		rc = -ENOMEM;
		goto out_list;
	}
	for (i = 0; i < count; i++)
		fill(env, &lib, ibdevs[i], &entries[i]);
	*list = entries;
	*n = count;
out_list:
	lib.free_device_list(ibdevs);
out_unload:
	verbs_lib_unload(&lib);
	return rc;
}

int dev_verbs_list(struct skein_env *env, char *err, size_t err_len,
		   struct dev_list_entry **list, int *n)
{
	return verbs_list_from(&verbs_loader_dl, env, err, err_len, list, n);
}
