/* SPDX-License-Identifier: MIT */
/*
 * check_dlopen.c - runs under `skein run --verbs`, and is not linked with
 * libibverbs: it loads it, as NCCL and brpc do. It sees the device either way
 * of asking; what is not the device's comes from libibverbs.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

static int failed;

#define CHECK(x)                                                           \
	do {                                                               \
		if (!(x)) {                                                \
			fprintf(stderr, "%d: not so: %s\n", __LINE__, #x); \
			failed = 1;                                        \
		}                                                          \
	} while (0)

static const char *from(void *fn)
{
	Dl_info info;

	return fn && dladdr(fn, &info) ? info.dli_fname : "nowhere";
}

static void *verbs;

static void devices(void *(*get)(int *), const char *how)
{
	const char *(*name_of)(void *);
	void (*release)(void *);
	void **list;
	int n = 0;

	*(void **)&name_of = dlsym(verbs, "ibv_get_device_name");
	*(void **)&release = dlsym(verbs, "ibv_free_device_list");
	list = get ? get(&n) : NULL;
	if (!list || n < 1 || strcmp(name_of(list[0]), "skein0") != 0) {
		fprintf(stderr, "%s: %d devices\n", how, n);
		failed = 1;
	}
	if (list)
		release(list);
}

int main(void)
{
	const char *(*text)(int);
	void *(*get)(int *);
	void *p;

	CHECK(!dlsym(RTLD_DEFAULT, "ibv_wc_status_str"));
	verbs = dlopen("libibverbs.so.1", RTLD_NOW | RTLD_LOCAL);
	CHECK(verbs);
	if (!verbs)
		return 1;
	*(void **)&get = dlsym(verbs, "ibv_get_device_list");
	devices(get, "dlsym");
	*(void **)&get = dlvsym(verbs, "ibv_get_device_list", "IBVERBS_1.1");
	devices(get, "dlvsym");
	/* A version of another ABI is not ours. */
	p = dlvsym(verbs, "ibv_get_device_list", "IBVERBS_1.0");
	CHECK(strstr(from(p), "libibverbs.so"));
	CHECK(!dlvsym(verbs, "ibv_get_device_list", "IBVERBS_9.9"));
	CHECK(!dlsym(verbs, "ibv_no_such_function"));
	*(void **)&text = dlsym(verbs, "ibv_wc_status_str");
	CHECK(text && strstr(from(*(void **)&text), "libibverbs.so"));
	CHECK(!strcmp(text(0), "success"));
	/* The next library after this program is the preloaded one. */
	p = dlsym(RTLD_NEXT, "malloc");
	CHECK(strstr(from(p), "libskein-verbs"));
	p = dlvsym(RTLD_NEXT, "getpid", "GLIBC_2.2.5");
	CHECK(!p || strstr(from(p), "libc.so"));
	CHECK(!dlsym(RTLD_NEXT, "no_such_function") && dlerror());
	if (!failed)
		puts("all as it should be");
	return failed;
}
