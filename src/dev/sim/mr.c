/* SPDX-License-Identifier: MIT */
/*
 * mr.c - memory regions of the simulated device: keys, rights, ranges.
 *
 * A key is index << 8 | generation, unique in its NIC; the index is used again
 * as late as the table allows.
 */
#include "dev/sim/sim_dev.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define PAGE 4096u
#define MRS_MAX (1u << 20)

static int index_take(struct sim_nic *nic, uint32_t *index)
{
	struct sim_mr **mrs;
	uint32_t i, cap;

	for (i = 0; i < nic->mrs_cap; i++, nic->mr_next++) {
		if (nic->mr_next >= nic->mrs_cap)
			nic->mr_next = 0;
		if (!nic->mrs[nic->mr_next]) {
			*index = nic->mr_next++;
			return 0;
		}
	}
	cap = nic->mrs_cap ? 2 * nic->mrs_cap : 64;
	if (cap > MRS_MAX)
		return -ENOMEM;
	mrs = realloc(nic->mrs, cap * sizeof(struct sim_mr *));
	if (!mrs)
		return -ENOMEM;
	memset(mrs + nic->mrs_cap, 0,
	       (cap - nic->mrs_cap) * sizeof(struct sim_mr *));
	nic->mrs = mrs;
	nic->mr_next = nic->mrs_cap;
	nic->mrs_cap = cap;
	*index = nic->mr_next++;
	return 0;
}

int sim_reg_mr(struct dev *dev, struct ibv_pd *pd, void *addr, size_t len,
	       int access, int fd, uint64_t off, struct ibv_mr **mr)
{
	struct sim_dev *d = sim_dev_of(dev);
	const struct nic_model *model = &d->nic->net->model;
	struct sim_mr *m;
	uint32_t index;
	int rc;

	if (!len ||
	    (access & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC) &&
	     !(access & IBV_ACCESS_LOCAL_WRITE)))
		return -EINVAL;
	m = env_alloc(dev->env, sizeof(*m));
	if (!m)
		return -ENOMEM;
	rc = index_take(d->nic, &index);
	if (rc) {
		env_free(dev->env, m);
		return rc;
	}
	m->mr.context = dev->verbs;
	m->mr.pd = pd;
	m->mr.addr = addr;
	m->mr.length = len;
	m->mr.lkey = m->mr.rkey = index << 8 | (d->nic->mr_gen++ & 0xff);
	m->access = (uint32_t)access;
	m->d = d;
	d->nic->mrs[index] = m;
	list_add_tail(&d->mrs, &m->link);
	sim_control(
		d, model->reg_mr_cpu_ns + (len / PAGE + 1) * model->reg_page_ns,
		model->reg_mr_nic_ns);
	*mr = &m->mr;
	return 0;
}

void sim_mr_free(struct sim_mr *m)
{
	m->d->nic->mrs[m->mr.lkey >> 8] = NULL;
	list_del(&m->link);
	env_free(m->d->dev.env, m);
}

int sim_dereg_mr(struct dev *dev, struct ibv_mr *mr)
{
	struct sim_mr *m = container_of(mr, struct sim_mr, mr);

	sim_mr_free(m);
	sim_control_destroy(sim_dev_of(dev));
	return 0;
}

static struct sim_mr *mr_find(const struct sim_qp *q, uint32_t key,
			      uint64_t addr, uint64_t len)
{
	struct sim_nic *nic = q->d->nic;
	struct sim_mr *m = key >> 8 < nic->mrs_cap ? nic->mrs[key >> 8] : NULL;
	uint64_t start;

	if (!m || m->mr.lkey != key || m->mr.pd != q->ex.qp_base.pd)
		return NULL;
	start = (uintptr_t)m->mr.addr;
	if (addr < start || len > m->mr.length ||
	    addr - start > m->mr.length - len)
		return NULL;
	return m;
}

enum ibv_wc_status sim_mr_remote(struct sim_qp *q, uint32_t rkey, uint64_t addr,
				 uint64_t len, uint32_t access)
{
	const struct sim_mr *m;

	if ((q->attr.qp_access_flags & access) != access)
		return IBV_WC_REM_INV_REQ_ERR;
	if (!len)
		return IBV_WC_SUCCESS;
	m = mr_find(q, rkey, addr, len);
	if (m && (m->access & access) == access)
		return IBV_WC_SUCCESS;
	q->d->nic->strangers++;
	return IBV_WC_REM_ACCESS_ERR;
}

bool sim_mr_local(struct sim_qp *q, const struct ibv_sge *sge, uint32_t access)
{
	const struct sim_mr *m;

	if (!sge->length)
		return true;
	m = mr_find(q, sge->lkey, sge->addr, sge->length);
	return m && (m->access & access) == access;
}

bool sim_gather(struct sim_qp *q, const struct ibv_sge *sge, int n,
		unsigned char *to)
{
	for (int i = 0; i < n; i++) {
		if (!sim_mr_local(q, &sge[i], 0))
			return false;
		if (!to)
			continue;
		if (sge[i].length)
			memcpy(to, sim_ptr(sge[i].addr), sge[i].length);
		to += sge[i].length;
	}
	return true;
}

bool sim_scatter(struct sim_qp *q, const struct ibv_sge *sge, int n,
		 const unsigned char *from, uint32_t len)
{
	uint32_t part;

	for (int i = 0; i < n && len; i++) {
		struct ibv_sge used = sge[i];

		/* What the message does not reach is not looked at. */
		part = sge[i].length < len ? sge[i].length : len;
		used.length = part;
		if (!sim_mr_local(q, &used, IBV_ACCESS_LOCAL_WRITE))
			return false;
		len -= part;
		if (!from)
			continue;
		if (part)
			memcpy(sim_ptr(sge[i].addr), from, part);
		from += part;
	}
	return true;
}
