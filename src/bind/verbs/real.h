/* SPDX-License-Identifier: MIT */
/*
 * real.h - the functions of libibverbs that this library interposes, and how to
 * reach the real ones: objects of other devices go there.
 */
#ifndef SKEIN_BIND_VERBS_REAL_H
#define SKEIN_BIND_VERBS_REAL_H

#include <stdbool.h>

/* X(function, version): one row a function that takes or gives an object of a
 * device. verbs.map exports the same names; a test compares the two. NULL: a
 * private function, of which each release of rdma-core has another version; it
 * is exported and looked up without one. */
#define VB_REAL_LIST(X)                               \
	X(ibv_get_device_list, "IBVERBS_1.1")         \
	X(ibv_free_device_list, "IBVERBS_1.1")        \
	X(ibv_get_device_name, "IBVERBS_1.1")         \
	X(ibv_get_device_guid, "IBVERBS_1.1")         \
	X(ibv_get_device_index, "IBVERBS_1.9")        \
	X(ibv_open_device, "IBVERBS_1.1")             \
	X(ibv_close_device, "IBVERBS_1.1")            \
	X(ibv_query_device, "IBVERBS_1.1")            \
	X(ibv_query_port, "IBVERBS_1.1")              \
	X(ibv_query_gid, "IBVERBS_1.1")               \
	X(ibv_query_gid_type, NULL)                   \
	X(_ibv_query_gid_ex, "IBVERBS_1.11")          \
	X(_ibv_query_gid_table, "IBVERBS_1.11")       \
	X(ibv_query_pkey, "IBVERBS_1.1")              \
	X(ibv_get_pkey_index, "IBVERBS_1.5")          \
	X(ibv_get_async_event, "IBVERBS_1.1")         \
	X(ibv_ack_async_event, "IBVERBS_1.1")         \
	X(ibv_alloc_pd, "IBVERBS_1.1")                \
	X(ibv_dealloc_pd, "IBVERBS_1.1")              \
	X(ibv_reg_mr, "IBVERBS_1.1")                  \
	X(ibv_reg_mr_iova, "IBVERBS_1.7")             \
	X(ibv_reg_mr_iova2, "IBVERBS_1.8")            \
	X(ibv_reg_dmabuf_mr, "IBVERBS_1.12")          \
	X(ibv_rereg_mr, "IBVERBS_1.1")                \
	X(ibv_dereg_mr, "IBVERBS_1.1")                \
	X(ibv_import_device, "IBVERBS_1.10")          \
	X(ibv_import_pd, "IBVERBS_1.10")              \
	X(ibv_unimport_pd, "IBVERBS_1.10")            \
	X(ibv_import_mr, "IBVERBS_1.10")              \
	X(ibv_unimport_mr, "IBVERBS_1.10")            \
	X(ibv_import_dm, "IBVERBS_1.13")              \
	X(ibv_create_comp_channel, "IBVERBS_1.0")     \
	X(ibv_destroy_comp_channel, "IBVERBS_1.0")    \
	X(ibv_create_cq, "IBVERBS_1.1")               \
	X(ibv_resize_cq, "IBVERBS_1.1")               \
	X(ibv_destroy_cq, "IBVERBS_1.1")              \
	X(ibv_get_cq_event, "IBVERBS_1.1")            \
	X(ibv_ack_cq_events, "IBVERBS_1.1")           \
	X(ibv_create_srq, "IBVERBS_1.1")              \
	X(ibv_modify_srq, "IBVERBS_1.1")              \
	X(ibv_query_srq, "IBVERBS_1.1")               \
	X(ibv_destroy_srq, "IBVERBS_1.1")             \
	X(ibv_create_qp, "IBVERBS_1.1")               \
	X(ibv_query_qp, "IBVERBS_1.1")                \
	X(ibv_modify_qp, "IBVERBS_1.1")               \
	X(ibv_destroy_qp, "IBVERBS_1.1")              \
	X(ibv_qp_to_qp_ex, "IBVERBS_1.6")             \
	X(ibv_query_ece, "IBVERBS_1.10")              \
	X(ibv_set_ece, "IBVERBS_1.10")                \
	X(ibv_query_qp_data_in_order, "IBVERBS_1.14") \
	X(ibv_create_ah, "IBVERBS_1.1")               \
	X(ibv_init_ah_from_wc, "IBVERBS_1.1")         \
	X(ibv_create_ah_from_wc, "IBVERBS_1.1")       \
	X(ibv_destroy_ah, "IBVERBS_1.1")              \
	X(ibv_attach_mcast, "IBVERBS_1.1")            \
	X(ibv_detach_mcast, "IBVERBS_1.1")            \
	X(ibv_resolve_eth_l2_from_gid, "IBVERBS_1.1")

/* X(function, version, is the object a context, does it return an int): as
 * libibverbs.map of rdma-core 65 has them. A function that takes an object which
 * our device never makes is left to libibverbs. */
#define VB_REFUSED_LIST(X)                                       \
	X(ibv_alloc_dmah, "IBVERBS_1.15", true, false)           \
	X(ibv_reg_mr_ex, "IBVERBS_1.15", false, false)           \
	X(ibv_query_port_speed, "IBVERBS_1.16", true, true)      \
	X(ibv_alloc_buf, "IBVERBS_1.17", false, false)           \
	X(ibv_reg_buf_mr, "IBVERBS_1.17", false, false)          \
	X(_ibv_query_comp_cntr_caps, "IBVERBS_1.18", true, true) \
	X(ibv_create_comp_cntr, "IBVERBS_1.18", true, false)     \
	X(ibv_qp_attach_comp_cntr, "IBVERBS_1.18", false, true)

#define VB_REAL_ENUM(fn, ...) VB_##fn,
enum vb_real {
	VB_REAL_LIST(VB_REAL_ENUM) VB_REFUSED_LIST(VB_REAL_ENUM) VB_REAL_COUNT,
};

/* The real function, or NULL where the real library (or its version of it) is
 * not there. */
void *vb_real_find(enum vb_real which);
/* Is there such a row, of this version (NULL: any)? */
bool vb_real_has(const char *name, const char *version);
/* As vb_real_find(). Without the function the process ends: an object that is not ours
 * cannot exist without the real library. */
void *vb_real_get(enum vb_real which);

#define VB_REAL(fn) ((__typeof__(fn) *)vb_real_get(VB_##fn))

#endif
