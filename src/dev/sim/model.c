/* SPDX-License-Identifier: MIT */
/*
 * model.c - the table of NIC models and of their parameters' names.
 *
 * One built-in model so far, with a current RoCE NIC's round figures; the
 * models of the papers come as files with their calibration.
 */
#include "dev/sim/model.h"

#include <errno.h>
#include <string.h>

static const struct nic_model connectx5 = {
	.cpu_post = 60,
	.cpu_wr = 30,
	.cpu_inline64 = 8,
	.cpu_poll = 15,
	.cpu_cqe = 25,
	.doorbell = 250,
	.units = 8,
	.tx = 60,
	.rx = 55,
	.reply = 20,
	.dma_read = 350,
	.dma_write = 200,
	.pcie_gbps = 120,
	.ctx_entries = 512,
	.ctx_miss = 500,
	.mr_entries = 2048,
	.mr_miss = 300,
	.link_gbps = 100,
	.link_delay = 50,
	.hop = 200,
	.mtu = 4096,
	.packet_overhead = 82, /* Ethernet, IPv4, UDP, BTH, ICRC, FCS, gap */
	.irq = 1500,
	.dc_tx = 10,
	.dc_rx = 8,
	.dc_connect_ns = 500,
	.open_us = 1000,
	.create_cq_cpu_ns = 10000,
	.create_cq_nic_ns = 50000,
	.create_srq_cpu_ns = 10000,
	.create_srq_nic_ns = 50000,
	.create_qp_cpu_ns = 10000,
	.create_qp_nic_ns = 50000,
	.create_ah_cpu_ns = 1000,
	.modify_cpu_ns = 5000,
	.modify_init_nic_ns = 25000,
	.modify_rtr_nic_ns = 25000,
	.modify_rts_nic_ns = 25000,
	.modify_nic_ns = 25000,
	.destroy_cpu_ns = 5000,
	.destroy_nic_ns = 25000,
	.reg_mr_cpu_ns = 5000,
	.reg_mr_nic_ns = 5000,
	.reg_page_ns = 30,
};

static const struct {
	const char *name;
	const struct nic_model *model;
} models[] = {
	{"connectx5", &connectx5},
};

#define N_MODELS (sizeof(models) / sizeof(models[0]))

#define ROW(field)                                        \
	{                                                 \
#field, offsetof(struct nic_model, field) \
	}

static const struct {
	const char *name;
	size_t off;
} rows[] = {
	ROW(cpu_post),
	ROW(cpu_wr),
	ROW(cpu_inline64),
	ROW(cpu_poll),
	ROW(cpu_cqe),
	ROW(doorbell),
	ROW(units),
	ROW(tx),
	ROW(rx),
	ROW(reply),
	ROW(dma_read),
	ROW(dma_write),
	ROW(pcie_gbps),
	ROW(ctx_entries),
	ROW(ctx_miss),
	ROW(mr_entries),
	ROW(mr_miss),
	ROW(link_gbps),
	ROW(link_delay),
	ROW(hop),
	ROW(mtu),
	ROW(packet_overhead),
	ROW(irq),
	ROW(dc_tx),
	ROW(dc_rx),
	ROW(dc_connect_ns),
	ROW(open_us),
	ROW(create_cq_cpu_ns),
	ROW(create_cq_nic_ns),
	ROW(create_srq_cpu_ns),
	ROW(create_srq_nic_ns),
	ROW(create_qp_cpu_ns),
	ROW(create_qp_nic_ns),
	ROW(create_ah_cpu_ns),
	ROW(modify_cpu_ns),
	ROW(modify_init_nic_ns),
	ROW(modify_rtr_nic_ns),
	ROW(modify_rts_nic_ns),
	ROW(modify_nic_ns),
	ROW(destroy_cpu_ns),
	ROW(destroy_nic_ns),
	ROW(reg_mr_cpu_ns),
	ROW(reg_mr_nic_ns),
	ROW(reg_page_ns),
};

#define N_ROWS (sizeof(rows) / sizeof(rows[0]))

_Static_assert(N_ROWS == sizeof(struct nic_model) / sizeof(uint32_t),
	       "every parameter has its name");

const struct nic_model *nic_model_at(unsigned i, const char **name)
{
	if (i >= N_MODELS)
		return NULL;
	*name = models[i].name;
	return models[i].model;
}

const struct nic_model *nic_model_find(const char *name)
{
	for (unsigned i = 0; i < N_MODELS; i++)
		if (!strcmp(models[i].name, name))
			return models[i].model;
	return NULL;
}

/* What is divided by, or indexes, must not be zero. */
static int may_be_zero(const char *name)
{
	static const char *const never[] = {"units",	   "pcie_gbps",
					    "ctx_entries", "mr_entries",
					    "link_gbps",   "mtu"};

	for (unsigned i = 0; i < sizeof(never) / sizeof(never[0]); i++)
		if (!strcmp(never[i], name))
			return 0;
	return 1;
}

int nic_model_set(struct nic_model *m, const char *name, uint64_t value)
{
	for (unsigned i = 0; i < N_ROWS; i++) {
		uint32_t v = (uint32_t)value;

		if (strcmp(rows[i].name, name))
			continue;
		if (value > 1000000000 || (!value && !may_be_zero(name)))
			return -EINVAL;
		memcpy((char *)m + rows[i].off, &v, sizeof(v));
		return 0;
	}
	return -ENOENT;
}
