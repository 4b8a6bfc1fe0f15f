/* SPDX-License-Identifier: MIT */
/*
 * lib.c - loads libibverbs and resolves the table of lib.h.
 *
 * The library stays mapped after unload (RTLD_NODELETE): its providers are
 * libraries of their own that hold pointers into it, and it was never written
 * to be unmapped. The reference is dropped all the same.
 */
#include "dev/verbs/lib.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

static void *dl_open(const char *soname, char *why, size_t why_len)
{
	void *handle = dlopen(soname, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
	const char *msg;

	if (!handle) {
		msg = dlerror();
		snprintf(why, why_len, "%s", msg ? msg : "unknown error");
	}
	return handle;
}

static void *dl_sym(void *handle, const char *name, const char *version)
{
	return dlvsym(handle, name, version);
}

static void dl_close(void *handle)
{
	dlclose(handle);
}

const struct verbs_loader verbs_loader_dl = {
	.open = dl_open,
	.sym = dl_sym,
	.close = dl_close,
};

struct symbol {
	const char *name;
	const char *version;
	size_t offset;
	int needed;
};

static const struct symbol symbols[] = {
#define VERBS_LIB_ROW(member, symbol, version, needed, ret, args) \
	{symbol, version, offsetof(struct verbs_lib, member), needed},
	VERBS_LIB_SYMBOLS(VERBS_LIB_ROW)
#undef VERBS_LIB_ROW
};

int verbs_lib_load(const struct verbs_loader *loader, struct verbs_lib *lib,
		   char *err, size_t err_len)
{
	struct verbs_lib l = {.loader = loader};
	char why[128] = "";
	size_t i;

	l.handle = loader->open(VERBS_LIB_SONAME, why, sizeof(why));
	if (!l.handle) {
		snprintf(err, err_len,
			 "no RDMA library (%s): apt install ibverbs-providers",
			 why);
		return -ENODEV;
	}
	for (i = 0; i < sizeof(symbols) / sizeof(symbols[0]); i++) {
		void *p = loader->sym(l.handle, symbols[i].name,
				      symbols[i].version);

		if (!p && symbols[i].needed) {
			snprintf(err, err_len,
				 "%s has no %s@%s: rdma-core 32 or newer is "
				 "needed",
				 VERBS_LIB_SONAME, symbols[i].name,
				 symbols[i].version);
			loader->close(l.handle);
			return -ELIBBAD;
		}
		/* A function pointer from a data pointer: POSIX allows it,
		 * ISO C has no spelling for it but this. */
		memcpy((char *)&l + symbols[i].offset, &p, sizeof(p));
	}
	*lib = l;
	return 0;
}

void verbs_lib_unload(struct verbs_lib *lib)
{
	lib->loader->close(lib->handle);
	lib->handle = NULL;
}

int verbs_lib_devices(const struct verbs_lib *lib, struct ibv_device ***list,
		      int *n, char *err, size_t err_len)
{
	struct ibv_device **l;
	int rc;

	errno = 0;
	l = lib->get_device_list(n);
	if (l) {
		*list = l;
		return 0;
	}
	rc = errno ? -errno : -EIO;
	if (rc == -ENOSYS)
		rc = -ENODEV; /* libibverbs: no ib_uverbs here */
	snprintf(err, err_len,
		 "cannot list RDMA devices: %s (modprobe ib_uverbs)",
		 rc == -ENODEV ? "the kernel has no RDMA" : strerror(-rc));
	return rc;
}

int verbs_lib_query_port(const struct verbs_lib *lib, struct ibv_context *ctx,
			 uint8_t port, struct ibv_port_attr *attr)
{
	struct verbs_context *vctx = verbs_get_ctx_op(ctx, query_port);

	memset(attr, 0, sizeof(*attr));
	if (vctx)
		return -vctx->query_port(ctx, port, attr, sizeof(*attr));
	return -lib->query_port(ctx, port, attr);
}
