/* SPDX-License-Identifier: MIT */
/*
 * model.h - what a NIC, its host and its links are taken to cost.
 *
 * Values are nanoseconds unless a name says otherwise. docs/design/simulation.md says
 * which stage each belongs to. The models are files, sim/models/NAME.conf: a
 * line each parameter, with what it was calibrated on; the library carries
 * their text. No locks, no I/O.
 */
#ifndef SKEIN_DEV_SIM_MODEL_H
#define SKEIN_DEV_SIM_MODEL_H

#include <stddef.h>
#include <stdint.h>

struct nic_model {
	/* the processor's part of a verbs call */
	uint32_t cpu_post;     /* a post, whatever its length */
	uint32_t cpu_wr;       /* each work request of it */
	uint32_t cpu_inline64; /* each 64 bytes of inline data */
	uint32_t cpu_poll;     /* a look at a CQ */
	uint32_t cpu_cqe;      /* each completion taken */
	/* the NIC's */
	uint32_t doorbell; /* from the MMIO write to the NIC's notice */
	/* What a doorbell carries itself. 0: nothing; 1: one inline request; 2:
	 * any one request. The NIC first fetches the WQEs of other requests,
	 * which takes wqe_read (latency). */
	uint32_t wqe_push;
	uint32_t wqe_read;
	uint32_t units; /* processing units; a QP is on one at a time */
	uint32_t tx;	/* of a unit, for a request that goes out */
	uint32_t rx;	/* of a unit, for a request that comes in */
	uint32_t reply; /* of a unit, for an answer, either way */
	/* From one request that goes out to the next, of all QPs; out_more is
	 * added for each QP beyond out_qps that waits for an answer. */
	uint32_t out_gap, out_qps, out_more;
	uint32_t dma_read; /* latency; the unit goes on meanwhile */
	uint32_t dma_write;
	uint32_t pcie_gbps;
	uint32_t ctx_entries; /* QP contexts that the NIC holds */
	uint32_t ctx_miss;    /* of the unit, while one is fetched */
	uint32_t mr_entries;  /* translations of 2 MiB each */
	uint32_t mr_miss;
	/* links and switches */
	uint32_t link_gbps;
	uint32_t link_delay; /* of one cable */
	uint32_t hop;	     /* of one switch */
	uint32_t mtu;
	uint32_t packet_overhead; /* bytes */
	/* A station (a switch, or the NIC between PCIe and cable) passes a
	 * message on when it has so many bytes of it. With the MTU here it
	 * stores and forwards. */
	uint32_t cut;
	/* interrupts: one core of the node serves them, one after another */
	uint32_t irq;
	/* DC, on top of what RC takes */
	uint32_t dc_tx;		/* of a unit, for a request that goes out */
	uint32_t dc_rx;		/* for one that comes in */
	uint32_t dc_connect_ns; /* of the DCI, when its target is another */
	/* The control path: the part of the caller's core (_cpu), and the part
	 * of the NIC (_nic), which carries out one command at a time. */
	uint32_t open_us; /* waited for */
	uint32_t create_cq_cpu_ns, create_cq_nic_ns;
	uint32_t create_srq_cpu_ns, create_srq_nic_ns;
	uint32_t create_qp_cpu_ns, create_qp_nic_ns; /* DCI and DCT too */
	uint32_t create_ah_cpu_ns;
	uint32_t modify_cpu_ns; /* each transition */
	uint32_t modify_init_nic_ns, modify_rtr_nic_ns, modify_rts_nic_ns;
	uint32_t modify_nic_ns;			 /* every other one */
	uint32_t destroy_cpu_ns, destroy_nic_ns; /* a QP, CQ, SRQ, MR */
	uint32_t reg_mr_cpu_ns, reg_mr_nic_ns;
	uint32_t reg_page_ns; /* of the core, each page of 4 KiB */
};

/* The name of built-in model i; NULL behind the last. */
const char *nic_model_name(unsigned i);
/* The name of parameter i; NULL behind the last. */
const char *nic_model_parameter(size_t i);
/* -ENOENT when there is none of the name. */
int nic_model_find(const char *name, struct nic_model *m);
/* From a file's text: lines of "name = value", and # comments. Every parameter
 * once. -EINVAL, and then one line in err; m untouched. */
int nic_model_parse(const char *text, struct nic_model *m, char *err,
		    size_t err_len);
/* Sets one parameter. -ENOENT, -EINVAL or -ERANGE, and then one line in err. */
int nic_model_set(struct nic_model *m, const char *name, const char *value,
		  char *err, size_t err_len);

#endif
