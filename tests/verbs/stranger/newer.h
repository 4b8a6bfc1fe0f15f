/* SPDX-License-Identifier: MIT */
/* newer.h - functions of later releases than the headers at hand may be of, under
 * names of our own. Each returns what it was given, as a sum. */
#ifndef SKEIN_TESTS_VERBS_NEWER_H
#define SKEIN_TESTS_VERBS_NEWER_H

#include <stdint.h>

/* X(function): takes a context, a pd, or a qp, and five more words. */
#define NEWER_OF_CONTEXT(X)     \
	X(ibv_alloc_dmah)       \
	X(ibv_query_port_speed) \
	X(ibv_create_comp_cntr) \
	X(_ibv_query_comp_cntr_caps)
#define NEWER_OF_PD(X)   \
	X(ibv_reg_mr_ex) \
	X(ibv_alloc_buf) \
	X(ibv_reg_buf_mr)
#define NEWER_OF_QP(X) X(ibv_qp_attach_comp_cntr)

#define NEWER(fn)                                                    \
	uintptr_t newer_##fn(void *object, uintptr_t b, uintptr_t c, \
			     uintptr_t d, uintptr_t e,               \
			     uintptr_t f) __asm__(#fn);
NEWER_OF_CONTEXT(NEWER)
NEWER_OF_PD(NEWER)
NEWER_OF_QP(NEWER)

int private_gid_type(void *context, uint8_t port, unsigned index,
		     int *type) __asm__("ibv_query_gid_type");

#endif
