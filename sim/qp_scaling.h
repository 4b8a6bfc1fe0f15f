/* SPDX-License-Identifier: MIT */
/* qp_scaling.h - points of the curve, for the scenario and for calibrate.c. */
#ifndef SKEIN_SIM_QP_SCALING_H
#define SKEIN_SIM_QP_SCALING_H

#include <stdint.h>

struct bed_result;
struct nic_model;
struct ud_rpc_result;

/* The numbers of QPs, ended by 0. */
extern const unsigned qp_scaling_steps[];
/* With so many QPs at the server: a multiple of 22. */
int qp_scaling_point(const struct nic_model *nic, uint64_t seed, unsigned qps,
		     struct bed_result *res);
/* As many senders of calls over UD. */
int qp_scaling_ud(const struct nic_model *nic, uint64_t seed, unsigned senders,
		  struct ud_rpc_result *res);

#endif
