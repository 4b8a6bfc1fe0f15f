/* SPDX-License-Identifier: MIT */
/* inbound_outbound.h - points of the two curves, for the scenario and for
 * calibrate.c. */
#ifndef SKEIN_SIM_INBOUND_OUTBOUND_H
#define SKEIN_SIM_INBOUND_OUTBOUND_H

#include <stdint.h>

struct bed_result;
struct nic_model;

/* READs that the server answers. */
int inbound_point(const struct nic_model *nic, uint64_t seed, uint32_t len,
		  struct bed_result *res);
/* WRITEs that it makes. */
int outbound_point(const struct nic_model *nic, uint64_t seed, uint32_t len,
		   struct bed_result *res);

#endif
