/* SPDX-License-Identifier: MIT */
/* race_vqp.c - see race_vqp.h. */
#include "race/race_vqp.h"

#include <errno.h>
#include <infiniband/verbs.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void race_name_print(const char *node, uint32_t id, uint64_t addr,
		     char name[RACE_NAME_MAX])
{
	snprintf(name, RACE_NAME_MAX, "%s/%" PRIx32 "/%" PRIx64, node, id,
		 addr);
}

int race_name_parse(const char *name, char *node, uint32_t *id, uint64_t *addr)
{
	const char *slash = strchr(name, '/');
	unsigned long long i, a;
	char *end;

	if (!slash || slash == name || slash - name >= (int)RACE_NAME_MAX)
		return -EINVAL;
	i = strtoull(slash + 1, &end, 16);
	if (end == slash + 1 || *end != '/' || !i || i > UINT32_MAX)
		return -EINVAL;
	slash = end + 1;
	a = strtoull(slash, &end, 16);
	if (end == slash || *end || !a)
		return -EINVAL;
	memcpy(node, name, strcspn(name, "/"));
	node[strcspn(name, "/")] = '\0';
	*id = (uint32_t)i;
	*addr = a;
	return 0;
}

static void fill(const struct race_vqp *v, const struct race_req *q,
		 struct ibv_send_wr *wr, struct ibv_sge *sge)
{
	uint64_t at = v->addr + q->at;

	*sge = (struct ibv_sge){(uintptr_t)q->buf, q->len,
				skein_vqp_lkey(v->mem)};
	*wr = (struct ibv_send_wr){
		.sg_list = sge, .num_sge = 1, .send_flags = IBV_SEND_SIGNALED};
	switch (q->verb) {
	case RACE_READ:
	case RACE_WRITE:
		wr->opcode = q->verb == RACE_READ ? IBV_WR_RDMA_READ
						  : IBV_WR_RDMA_WRITE;
		wr->wr.rdma.remote_addr = at;
		wr->wr.rdma.rkey = v->id;
		break;
	case RACE_CAS:
		wr->opcode = IBV_WR_ATOMIC_CMP_AND_SWP;
		wr->wr.atomic.compare_add = q->compare;
		wr->wr.atomic.swap = q->value;
		break;
	case RACE_FAA:
		wr->opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
		wr->wr.atomic.compare_add = q->value;
		break;
	}
	if (q->verb >= RACE_CAS) {
		wr->wr.atomic.remote_addr = at;
		wr->wr.atomic.rkey = v->id;
	}
}

static int wait_for(struct race_vqp *v, unsigned n)
{
	uint64_t end = v->now_ns(v->arg) + v->timeout_ns;
	struct ibv_wc wc[RACE_LIST];
	unsigned done = 0;
	int rc = 0, got, i;

	while (done < n) {
		got = skein_vqp_poll(v->vqp, RACE_LIST, wc);
		if (got < 0)
			return got;
		for (i = 0; i < got; i++)
			if (wc[i].status != IBV_WC_SUCCESS)
				rc = wc[i].status == IBV_WC_REM_ACCESS_ERR
					     ? -EACCES
					     : -EIO;
		done += (unsigned)got;
		if (got)
			continue;
		if (v->now_ns(v->arg) >= end)
			return -ETIMEDOUT;
		if (v->idle)
			v->idle(v->arg);
	}
	return rc;
}

/* All is one post, and completes in order. */
static int run(void *arg, const struct race_req *reqs, unsigned n)
{
	struct ibv_send_wr wr[RACE_LIST], *bad;
	struct ibv_sge sge[RACE_LIST];
	struct race_vqp *v = arg;
	unsigned i;
	int rc;

	if (n > RACE_LIST)
		return -EINVAL;
	for (i = 0; i < n; i++) {
		fill(v, &reqs[i], &wr[i], &sge[i]);
		if (i)
			wr[i - 1].next = &wr[i];
	}
	rc = skein_vqp_post_send(v->vqp, wr, &bad);
	return rc ? rc : wait_for(v, n);
}

int race_vqp_open(struct race_vqp *v, struct skein_pool *pool, const char *name,
		  uint64_t timeout_ns)
{
	char node[RACE_NAME_MAX];
	int rc = race_name_parse(name, node, &v->id, &v->addr);

	v->vqp = NULL;
	v->mem = NULL;
	v->timeout_ns = timeout_ns;
	if (rc)
		return rc;
	rc = skein_vqp_mem_new(pool, RACE_SCRATCH, 0, &v->mem);
	if (!rc)
		rc = skein_vqp_new(pool, &v->vqp);
	if (!rc)
		rc = skein_vqp_connect(v->vqp, node, 1, timeout_ns);
	if (rc)
		race_vqp_close(v);
	return rc;
}

void race_vqp_close(struct race_vqp *v)
{
	if (v->vqp)
		skein_vqp_free(v->vqp);
	if (v->mem)
		skein_vqp_mem_free(v->mem);
	v->vqp = NULL;
	v->mem = NULL;
}

struct race_port race_vqp_port(struct race_vqp *v)
{
	return (struct race_port){run, v, skein_vqp_mem_addr(v->mem)};
}
