/* SPDX-License-Identifier: MIT */
/*
 * port.c - see port.h.
 */
#include "dev/verbs/port.h"

#include "dev/verbs/gid.h"
#include "env/env.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* Some tables are larger (that of rxe has 1,024 slots), but hardly one has more
 * entries in use: a port has two for each address. */
#define GID_ROWS_MAX 512
#define LOCALS_MAX 512

struct gid_tables {
	struct ibv_gid_entry entries[GID_ROWS_MAX];
	struct gid_row rows[GID_ROWS_MAX];
	struct gid_local locals[LOCALS_MAX];
	size_t n;
};

static int read_tables(struct verbs_dev *vd, uint8_t port, struct gid_tables *t,
		       char *err, size_t err_len)
{
	ssize_t i, n;
	int locals;

	n = vd->lib.query_gid_table(vd->dev.verbs, t->entries, GID_ROWS_MAX, 0,
				    sizeof(t->entries[0]));
	if (n < 0) {
		snprintf(err, err_len, "cannot read its GID table: %s",
			 strerror((int)-n));
		return (int)n;
	}
	locals = gid_locals(t->locals, LOCALS_MAX);
	if (locals < 0) {
		snprintf(err, err_len, "cannot list this host's addresses: %s",
			 strerror(-locals));
		return locals;
	}
	if (locals > LOCALS_MAX)
		locals = LOCALS_MAX;
	for (i = 0; i < n; i++) {
		const struct ibv_gid_entry *e = &t->entries[i];
		struct gid_row *row = &t->rows[t->n];

		/* An address handle has 8 bits for it. */
		if (e->port_num != port || e->gid_index > UINT8_MAX)
			continue;
		row->gid = e->gid;
		row->index = (int)e->gid_index;
		row->type = (enum dev_gid_type)e->gid_type;
		if (!e->ndev_ifindex ||
		    !if_indextoname(e->ndev_ifindex, row->netdev))
			row->netdev[0] = '\0';
		gid_place(row, t->locals, (size_t)locals);
		t->n++;
	}
	return 0;
}

static bool still_there(const struct gid_tables *t, const struct dev_gid *gid)
{
	size_t i;

	for (i = 0; i < t->n; i++)
		if (t->rows[i].index == gid->index &&
		    t->rows[i].type == gid->type &&
		    !memcmp(t->rows[i].gid.raw, gid->gid.raw,
			    sizeof(gid->gid.raw)))
			return true;
	return false;
}

/* The GID to use from now on: `was`, unless `was` is NULL or has gone. */
static int find_gid(struct verbs_dev *vd, uint8_t port, int gid_index,
		    const struct dev_gid *was, struct dev_gid *gid, char *err,
		    size_t err_len)
{
	struct gid_tables *t;
	int rc;

	t = env_alloc(vd->dev.env, sizeof(*t));
	if (!t) {
		snprintf(err, err_len, "out of memory");
		return -ENOMEM;
	}
	rc = read_tables(vd, port, t, err, err_len);
	if (rc)
		goto out;
	if (was && still_there(t, was))
		*gid = *was;
	else
		rc = gid_choose(t->rows, t->n, gid_index, err, err_len, gid);
out:
	env_free(vd->dev.env, t);
	return rc;
}

int verbs_port_gids(struct verbs_dev *vd, uint8_t port,
		    struct dev_list_gid *gids, int max, int *n,
		    struct dev_gid *chosen, char *err, size_t err_len)
{
	struct gid_tables *t = env_alloc(vd->dev.env, sizeof(*t));
	size_t i;
	int rc;

	if (!t) {
		snprintf(err, err_len, "out of memory");
		return -ENOMEM;
	}
	rc = read_tables(vd, port, t, err, err_len);
	for (i = 0, *n = 0; !rc && i < t->n && *n < max; i++, ++*n) {
		const struct gid_row *row = &t->rows[i];

		gids[i].gid = (struct dev_gid){.gid = row->gid,
					       .index = row->index,
					       .type = row->type};
		memcpy(gids[i].gid.netdev, row->netdev, sizeof(row->netdev));
		gids[i].here = row->here;
	}
	if (!rc)
		rc = gid_choose(t->rows, t->n, -1, err, err_len, chosen);
	env_free(vd->dev.env, t);
	return rc;
}

void verbs_port_explain(const struct ibv_port_attr *attr, uint8_t port,
			char *err, size_t err_len)
{
	if (attr->link_layer == IBV_LINK_LAYER_INFINIBAND &&
	    (attr->state == IBV_PORT_INIT || attr->state == IBV_PORT_ARMED))
		snprintf(err, err_len,
			 "port %u waits for a subnet manager: start one in "
			 "this network (opensm)",
			 port);
	else
		snprintf(err, err_len,
			 "port %u is not active: set its interface up (ip link "
			 "set IF up) or plug its cable",
			 port);
}

int verbs_port_open(struct verbs_dev *vd, uint8_t port, int gid_index,
		    char *err, size_t err_len)
{
	struct ibv_port_attr attr;
	int rc;

	rc = verbs_lib_query_port(&vd->lib, vd->dev.verbs, port, &attr);
	if (rc) {
		snprintf(err, err_len, "cannot query port %u: %s", port,
			 strerror(-rc));
		return rc;
	}
	if (attr.state != IBV_PORT_ACTIVE) {
		verbs_port_explain(&attr, port, err, err_len);
		return -ENETDOWN;
	}
	rc = find_gid(vd, port, gid_index, NULL, &vd->dev.gid, err, err_len);
	if (rc)
		return rc;
	vd->dev.port = port;
	vd->dev.port_attr = attr;
	vd->gid_index = gid_index;
	vd->now.gid = vd->dev.gid;
	vd->now.port = attr;
	return 0;
}

void verbs_port_path(struct dev *dev, struct dev_path *path)
{
	struct verbs_dev *vd = verbs_dev(dev);

	env_mutex_lock(dev->env, &vd->lock);
	*path = vd->now;
	env_mutex_unlock(dev->env, &vd->lock);
}

static bool same_gid(const struct dev_gid *a, const struct dev_gid *b)
{
	return a->index == b->index &&
	       !memcmp(a->gid.raw, b->gid.raw, sizeof(a->gid.raw));
}

static unsigned compare(const struct dev_path *was, const struct dev_path *now)
{
	unsigned changes = 0;

	if (!same_gid(&was->gid, &now->gid) || was->port.lid != now->port.lid)
		changes |= DEV_CHANGE_ADDR;
	if (was->port.state != now->port.state ||
	    was->port.active_mtu != now->port.active_mtu)
		changes |= DEV_CHANGE_PORT;
	return changes;
}

/* Two threads that refresh at once read the same tables; the later one finds no
 * change, unless there was one in between. */
int verbs_port_refresh(struct dev *dev, unsigned *changes)
{
	struct verbs_dev *vd = verbs_dev(dev);
	struct dev_path was, now = {.gid = {.index = -1}};
	char err[160] = "";
	int rc;

	verbs_port_path(dev, &was);
	rc = verbs_lib_query_port(&vd->lib, dev->verbs, dev->port, &now.port);
	if (rc)
		return rc;
	rc = find_gid(vd, dev->port, vd->gid_index, &was.gid, &now.gid, err,
		      sizeof(err));
	/* A port without an address is a change too. If the table cannot be
	 * read, that is no change. */
	if (rc && rc != -ENODATA)
		return rc;
	if (rc)
		snprintf(now.gid.why, sizeof(now.gid.why), "%.95s", err);
	env_mutex_lock(dev->env, &vd->lock);
	*changes = compare(&vd->now, &now);
	vd->now = now;
	env_mutex_unlock(dev->env, &vd->lock);
	return 0;
}
