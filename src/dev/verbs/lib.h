/* SPDX-License-Identifier: MIT */
/*
 * lib.h - libibverbs, found at run time.
 *
 * One binary must run where rdma-core is not installed, so nothing in Skein
 * may reference an ibv_* symbol of the library: the control path goes through
 * this table, the data path through context->ops. Several "functions" of
 * <infiniband/verbs.h> are inline wrappers or macros over exported symbols
 * (ibv_query_port, ibv_query_gid_ex, ibv_reg_mr): callers use the members
 * here, never those. tests/unit/verbs/check_symbols.sh proves it by nm.
 *
 * Symbols are looked up by the version whose ABI this file was written
 * against: a later default version may have other arguments.
 *
 * Thread rule: the table is read-only once loaded.
 */
#ifndef SKEIN_DEV_VERBS_LIB_H
#define SKEIN_DEV_VERBS_LIB_H

#include <infiniband/verbs.h>
#include <stddef.h>
#include <sys/types.h>

#define VERBS_LIB_SONAME "libibverbs.so.1"

/* Where symbols come from; tests put a table of fakes here. */
struct verbs_loader {
	void *(*open)(const char *soname, char *why, size_t why_len);
	void *(*sym)(void *handle, const char *name, const char *version);
	void (*close)(void *handle);
};

/* dlopen(3), dlvsym(3), dlclose(3). */
extern const struct verbs_loader verbs_loader_dl;

/*
 * X(member, symbol, version, needed, return type, arguments)
 * needed 0: NULL in the table when the library has no such symbol.
 */
#define VERBS_LIB_SYMBOLS(X)                                                   \
	X(is_fork_initialized, "ibv_is_fork_initialized", "IBVERBS_1.13", 0,   \
	  enum ibv_fork_status, (void))                                        \
	X(fork_init, "ibv_fork_init", "IBVERBS_1.1", 1, int, (void))           \
	X(get_device_list, "ibv_get_device_list", "IBVERBS_1.1", 1,            \
	  struct ibv_device **, (int *n))                                      \
	X(free_device_list, "ibv_free_device_list", "IBVERBS_1.1", 1, void,    \
	  (struct ibv_device * *list))                                         \
	X(get_device_name, "ibv_get_device_name", "IBVERBS_1.1", 1,            \
	  const char *, (struct ibv_device * dev))                             \
	X(open_device, "ibv_open_device", "IBVERBS_1.1", 1,                    \
	  struct ibv_context *, (struct ibv_device * dev))                     \
	X(close_device, "ibv_close_device", "IBVERBS_1.1", 1, int,             \
	  (struct ibv_context * ctx))                                          \
	X(query_device, "ibv_query_device", "IBVERBS_1.1", 1, int,             \
	  (struct ibv_context * ctx, struct ibv_device_attr * attr))           \
	X(query_port, "ibv_query_port", "IBVERBS_1.1", 1, int,                 \
	  (struct ibv_context * ctx, uint8_t port,                             \
	   struct ibv_port_attr * attr))                                       \
	X(query_gid_ex, "_ibv_query_gid_ex", "IBVERBS_1.11", 1, int,           \
	  (struct ibv_context * ctx, uint32_t port, uint32_t index,            \
	   struct ibv_gid_entry * entry, uint32_t flags, size_t size))         \
	X(query_gid_table, "_ibv_query_gid_table", "IBVERBS_1.11", 1, ssize_t, \
	  (struct ibv_context * ctx, struct ibv_gid_entry * entries,           \
	   size_t max, uint32_t flags, size_t size))                           \
	X(alloc_pd, "ibv_alloc_pd", "IBVERBS_1.1", 1, struct ibv_pd *,         \
	  (struct ibv_context * ctx))                                          \
	X(dealloc_pd, "ibv_dealloc_pd", "IBVERBS_1.1", 1, int,                 \
	  (struct ibv_pd * pd))                                                \
	X(reg_mr, "ibv_reg_mr", "IBVERBS_1.1", 1, struct ibv_mr *,             \
	  (struct ibv_pd * pd, void *addr, size_t len, int access))            \
	X(dereg_mr, "ibv_dereg_mr", "IBVERBS_1.1", 1, int,                     \
	  (struct ibv_mr * mr))                                                \
	X(create_comp_channel, "ibv_create_comp_channel", "IBVERBS_1.0", 1,    \
	  struct ibv_comp_channel *, (struct ibv_context * ctx))               \
	X(destroy_comp_channel, "ibv_destroy_comp_channel", "IBVERBS_1.0", 1,  \
	  int, (struct ibv_comp_channel * ch))                                 \
	X(get_cq_event, "ibv_get_cq_event", "IBVERBS_1.1", 1, int,             \
	  (struct ibv_comp_channel * ch, struct ibv_cq * *cq, void **cq_ctx))  \
	X(ack_cq_events, "ibv_ack_cq_events", "IBVERBS_1.1", 1, void,          \
	  (struct ibv_cq * cq, unsigned n))                                    \
	X(create_cq, "ibv_create_cq", "IBVERBS_1.1", 1, struct ibv_cq *,       \
	  (struct ibv_context * ctx, int cqe, void *cq_ctx,                    \
	   struct ibv_comp_channel *ch, int vector))                           \
	X(destroy_cq, "ibv_destroy_cq", "IBVERBS_1.1", 1, int,                 \
	  (struct ibv_cq * cq))                                                \
	X(resize_cq, "ibv_resize_cq", "IBVERBS_1.1", 1, int,                   \
	  (struct ibv_cq * cq, int cqe))                                       \
	X(create_srq, "ibv_create_srq", "IBVERBS_1.1", 1, struct ibv_srq *,    \
	  (struct ibv_pd * pd, struct ibv_srq_init_attr * attr))               \
	X(modify_srq, "ibv_modify_srq", "IBVERBS_1.1", 1, int,                 \
	  (struct ibv_srq * srq, struct ibv_srq_attr * attr, int mask))        \
	X(query_srq, "ibv_query_srq", "IBVERBS_1.1", 1, int,                   \
	  (struct ibv_srq * srq, struct ibv_srq_attr * attr))                  \
	X(destroy_srq, "ibv_destroy_srq", "IBVERBS_1.1", 1, int,               \
	  (struct ibv_srq * srq))                                              \
	X(create_ah, "ibv_create_ah", "IBVERBS_1.1", 1, struct ibv_ah *,       \
	  (struct ibv_pd * pd, struct ibv_ah_attr * attr))                     \
	X(destroy_ah, "ibv_destroy_ah", "IBVERBS_1.1", 1, int,                 \
	  (struct ibv_ah * ah))                                                \
	X(create_qp, "ibv_create_qp", "IBVERBS_1.1", 1, struct ibv_qp *,       \
	  (struct ibv_pd * pd, struct ibv_qp_init_attr * attr))                \
	X(modify_qp, "ibv_modify_qp", "IBVERBS_1.1", 1, int,                   \
	  (struct ibv_qp * qp, struct ibv_qp_attr * attr, int mask))           \
	X(query_qp, "ibv_query_qp", "IBVERBS_1.1", 1, int,                     \
	  (struct ibv_qp * qp, struct ibv_qp_attr * attr, int mask,            \
	   struct ibv_qp_init_attr *init))                                     \
	X(destroy_qp, "ibv_destroy_qp", "IBVERBS_1.1", 1, int,                 \
	  (struct ibv_qp * qp))                                                \
	X(qp_to_qp_ex, "ibv_qp_to_qp_ex", "IBVERBS_1.6", 1,                    \
	  struct ibv_qp_ex *, (struct ibv_qp * qp))                            \
	X(query_qp_data_in_order, "ibv_query_qp_data_in_order",                \
	  "IBVERBS_1.14", 0, int,                                              \
	  (struct ibv_qp * qp, enum ibv_wr_opcode op, uint32_t flags))         \
	X(get_async_event, "ibv_get_async_event", "IBVERBS_1.1", 1, int,       \
	  (struct ibv_context * ctx, struct ibv_async_event * ev))             \
	X(ack_async_event, "ibv_ack_async_event", "IBVERBS_1.1", 1, void,      \
	  (struct ibv_async_event * ev))

struct verbs_lib {
	const struct verbs_loader *loader;
	void *handle;
#define VERBS_LIB_MEMBER(member, symbol, version, needed, ret, args) \
	ret(*member) args;
	VERBS_LIB_SYMBOLS(VERBS_LIB_MEMBER)
#undef VERBS_LIB_MEMBER
};

/* Fills *lib. -ENODEV: no library; -ELIBBAD: it lacks a symbol. err gets one
 * line with the fix. verbs_lib_unload() after success only. */
int verbs_lib_load(const struct verbs_loader *loader, struct verbs_lib *lib,
		   char *err, size_t err_len);
void verbs_lib_unload(struct verbs_lib *lib);

/* The devices, to be given back by free_device_list(). A negative errno, and
 * one line with the fix in err. */
int verbs_lib_devices(const struct verbs_lib *lib, struct ibv_device ***list,
		      int *n, char *err, size_t err_len);

/* ibv_query_port() of the header, without its link-time dependency: the
 * provider fills the whole struct, the exported symbol only the old part. */
int verbs_lib_query_port(const struct verbs_lib *lib, struct ibv_context *ctx,
			 uint8_t port, struct ibv_port_attr *attr);

#endif
