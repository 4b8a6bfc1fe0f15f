/* SPDX-License-Identifier: MIT */
/*
 * doctor.h - what this system allows, and what to do about what it does not:
 * the second half of `skein info`.
 *
 * Thread rule: no state.
 */
#ifndef SKEIN_TOOLS_DOCTOR_H
#define SKEIN_TOOLS_DOCTOR_H

#include "dev/list.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define DOCTOR_MAX 32
#define DOCTOR_UNLIMITED UINT64_MAX

/* Limits in bytes (or pieces), UINT64_MAX: none. */
struct doctor_facts {
	uint64_t memlock, nofile, address_space, file_size;
	uint64_t hugepages, hugepages_free, hugepage_len;
	const char *huge_option; /* SKEIN_HUGEPAGES */
	/* what a region of one huge page is made of with that option: huge,
	 * transparent, ordinary, none */
	const char *huge_made_of;
	int cores;
	bool ib_core, ib_uverbs, rdma_rxe; /* modules, loaded or built in */
	int sys_devices;		   /* RDMA devices of the kernel */
	int dev_nodes;			   /* /dev/infiniband/uverbs* */
	bool qemu;			   /* for make test-hw */
	bool vm_image;
	char vm_folder[256];
};

void doctor_facts(struct skein_env *env, struct doctor_facts *facts);

struct doctor_finding {
	bool error; /* nothing usable; else a warning */
	char text[320];
	char fix[160];
};

/* dev: the one that was opened, or NULL. Returns how many
 * findings there are, at most DOCTOR_MAX; the errors first. */
unsigned doctor_look(const struct doctor_facts *facts, const struct dev *dev,
		     const struct dev_list_entry *list, int n,
		     struct doctor_finding *out);

#endif
