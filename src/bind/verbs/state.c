/* SPDX-License-Identifier: MIT */
/*
 * state.c - the process-wide state, its first moments, fork(), and the way to
 * the real libibverbs.
 */
#include "bind/verbs/state.h"

#include "bind/own/own.h"
#include "bind/verbs/lookup.h"
#include "dev/dev.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Ready before any code of this library has run: malloc() may come first.
 * back_heap stays off until the constructor has read the environment, so the
 * loader's own allocations are libc's. */
struct vb_state vb = {
	.window = WINDOW_INIT,
	.shm = VB_SHM_INIT,
	.lock = PTHREAD_MUTEX_INITIALIZER,
	.device =
		{
			.node_type = IBV_NODE_CA,
			.transport_type = IBV_TRANSPORT_IB,
			.name = "skein0",
			.dev_name = "uverbs-skein0",
			/* these folders do not exist, so sysfs has no entry for
			 * our device, as with an old kernel */
			.dev_path = "/sys/class/infiniband_verbs/uverbs-skein0",
			.ibdev_path = "/sys/class/infiniband/skein0",
		},
};

struct real_name {
	const char *name;
	const char *version;
};

#define REAL_NAME(fn, version, ...) {#fn, version},
static const struct real_name real_names[VB_REAL_COUNT] = {
	VB_REAL_LIST(REAL_NAME) VB_REFUSED_LIST(REAL_NAME)};

static void *library(void)
{
	void *lib = atomic_load(&vb.library);

	if (lib)
		return lib;
	/* Not RTLD_NEXT: a plug-in of the program may have loaded libibverbs
	 * with RTLD_LOCAL. */
	lib = dlopen("libibverbs.so.1", RTLD_LAZY | RTLD_LOCAL);
	if (lib)
		atomic_store(&vb.library, lib);
	return lib;
}

bool vb_real_has(const char *name, const char *version)
{
	const struct real_name *n;
	unsigned i;

	for (i = 0; i < VB_REAL_COUNT; i++) {
		n = &real_names[i];
		if (!strcmp(n->name, name))
			return !version || !n->version ||
			       !strcmp(n->version, version);
	}
	return false;
}

void *vb_real_find(enum vb_real which)
{
	const struct real_name *n = &real_names[which];
	void *fn = atomic_load(&vb.real[which]), *lib;

	if (fn)
		return fn;
	lib = library();
	if (!lib)
		return NULL;
	fn = n->version ? lookup_dlvsym(lib, n->name, n->version)
			: lookup_dlsym(lib, n->name);
	if (fn)
		atomic_store(&vb.real[which], fn);
	return fn;
}

void *vb_real_get(enum vb_real which)
{
	void *fn = vb_real_find(which);

	if (fn)
		return fn;
	fprintf(stderr, "libskein-verbs: libibverbs.so.1 has no %s\n",
		real_names[which].name);
	abort();
}

struct dev *vb_dev(struct ibv_context *ctx)
{
	struct dev *dev = NULL;
	struct vb_open *o;

	pthread_mutex_lock(&vb.lock);
	for (o = vb.opens; o; o = o->next)
		if (o->dev->verbs == ctx)
			dev = o->dev;
	pthread_mutex_unlock(&vb.lock);
	return dev;
}

int vb_errno(int rc)
{
	if (rc)
		errno = -rc;
	return -rc;
}

static void fork_prepare(void)
{
	pthread_mutex_lock(&vb.lock);
	pthread_mutex_lock(&vb.shm.lock);
	window_fork_prepare(&vb.window);
}

static void fork_parent(void)
{
	window_fork_parent(&vb.window);
	pthread_mutex_unlock(&vb.shm.lock);
	pthread_mutex_unlock(&vb.lock);
}

static void fork_child(void)
{
	vb_numbers_fork();
	window_fork_child(&vb.window);
	pthread_mutex_init(&vb.shm.lock, NULL);
	pthread_mutex_init(&vb.lock, NULL);
}

/* Is word one of the comma-separated words of list? */
static bool listed(const char *list, const char *word)
{
	size_t n = strlen(word), len;

	for (; *list; list += len + (list[len] == ',')) {
		len = strcspn(list, ",");
		if (len == n && !memcmp(list, word, n))
			return true;
	}
	return false;
}

__attribute__((constructor)) static void start(void)
{
	const char *back = getenv("SKEIN_VERBS_BACK");
	const char *link = getenv("SKEIN_VERBS_LINK");

	own_init();
	vb.infiniband = link && !strcmp(link, "infiniband");
	if (!back)
		back = "heap,mmap";
	/* Without the copy for forked children the window must not be used. */
	if (pthread_atfork(fork_prepare, fork_parent, fork_child))
		return;
	vb.back_heap = listed(back, "heap");
	vb.back_map = listed(back, "mmap");
	vb.back_shm = listed(back, "shm");
}
