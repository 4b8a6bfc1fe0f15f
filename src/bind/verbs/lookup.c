/* SPDX-License-Identifier: MIT */
/*
 * lookup.c - see lookup.h. A library that defines dlsym() has no function left to
 * find the C library's with, so the symbol tables of the two libraries are read
 * here.
 */
#include "bind/verbs/lookup.h"

#include "bind/verbs/state.h"

#include <dlfcn.h>
#include <link.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))
/* The C library looks at its caller where the handle is RTLD_NEXT, and must find
 * the program. So the last call here has to be a jump. */
#define LAST_CALL_IS_A_JUMP \
	__attribute__((     \
		optimize("optimize-sibling-calls", "no-stack-protector")))

typedef void *(*dlsym_fn)(void *handle, const char *name);
typedef void *(*dlvsym_fn)(void *handle, const char *name, const char *version);

static uint32_t hash_of(const char *name)
{
	uint32_t h = 5381;

	while (*name)
		h = h * 33 + (unsigned char)*name++;
	return h;
}

/* What the library m defines by that name, or NULL: its table is DT_GNU_HASH. */
static void *symbol(const struct link_map *m, const char *name)
{
	const uint32_t *table = NULL, *bucket, *chain;
	const ElfW(Sym) *sym = NULL;
	const char *strings = NULL;
	const ElfW(Dyn) * d;
	uint32_t h = hash_of(name), i;

	for (d = m->l_ld; d->d_tag != DT_NULL; d++) {
		if (d->d_tag == DT_GNU_HASH)
			table = (const void *)d->d_un.d_ptr;
		else if (d->d_tag == DT_SYMTAB)
			sym = (const void *)d->d_un.d_ptr;
		else if (d->d_tag == DT_STRTAB)
			strings = (const void *)d->d_un.d_ptr;
	}
	if (!table || !sym || !strings)
		return NULL;
	/* buckets, first symbol, words of the filter, shift; the filter */
	bucket = table + 4 + table[2] * (sizeof(ElfW(Addr)) / 4);
	chain = bucket + table[0];
	i = bucket[h % table[0]];
	if (i < table[1])
		return NULL;
	for (;; i++) {
		if ((chain[i - table[1]] | 1) == (h | 1) &&
		    sym[i].st_shndx != SHN_UNDEF &&
		    !strcmp(strings + sym[i].st_name, name))
			return (char *)m->l_addr + sym[i].st_value;
		if (chain[i - table[1]] & 1) /* the last of the bucket */
			return NULL;
	}
}

/* The library that addr lies in. */
static const struct link_map *library_of(const void *addr)
{
	struct link_map *m = NULL;
	Dl_info info;

	return dladdr1(addr, &info, (void **)&m, RTLD_DL_LINKMAP) ? m : NULL;
}

/* Of the C library. dlerror() is in the library that has dlsym(). */
static void *real(_Atomic(void *) *where, const char *name)
{
	void *fn = atomic_load(where);
	const struct link_map *m;

	if (fn)
		return fn;
	m = library_of((const void *)dlerror);
	fn = m ? symbol(m, name) : NULL;
	atomic_store(where, fn);
	return fn;
}

static dlsym_fn real_dlsym(void)
{
	return (dlsym_fn)real(&vb.dlsym, "dlsym");
}

static dlvsym_fn real_dlvsym(void)
{
	return (dlvsym_fn)real(&vb.dlvsym, "dlvsym");
}

void *lookup_dlsym(void *handle, const char *name)
{
	dlsym_fn fn = real_dlsym();

	return fn ? fn(handle, name) : NULL;
}

void *lookup_dlvsym(void *handle, const char *name, const char *version)
{
	dlvsym_fn fn = real_dlvsym();

	return fn ? fn(handle, name, version) : NULL;
}

static bool is_libibverbs(const struct link_map *m)
{
	static const char file[] = "libibverbs.so";
	const char *base = strrchr(m->l_name, '/');

	base = base ? base + 1 : m->l_name;
	return !strncmp(base, file, sizeof(file) - 1);
}

/* Is it a name of libibverbs, asked of one library? Of RTLD_DEFAULT and
 * RTLD_NEXT the order of libraries decides. */
static bool may_be_ours(const void *handle, const char *name)
{
	return handle != RTLD_DEFAULT && handle != RTLD_NEXT && name &&
	       (!strncmp(name, "ibv_", 4) || !strncmp(name, "_ibv_", 5));
}

/* This library's function of that name and version (NULL: any), where theirs is
 * libibverbs's; else theirs. */
static void *ours_for(void *theirs, const char *name, const char *version)
{
	const struct link_map *m = theirs ? library_of(theirs) : NULL;
	void *own;

	if (!m || !is_libibverbs(m) || !vb_real_has(name, version))
		return theirs;
	m = library_of((const void *)lookup_dlsym);
	own = m ? symbol(m, name) : NULL;
	return own ? own : theirs;
}

LAST_CALL_IS_A_JUMP EXPORT void *dlsym(void *handle, const char *name)
{
	dlsym_fn fn = real_dlsym();

	if (!fn)
		return NULL;
	if (may_be_ours(handle, name))
		return ours_for(fn(handle, name), name, NULL);
	return fn(handle, name);
}

LAST_CALL_IS_A_JUMP EXPORT void *dlvsym(void *handle, const char *name,
					const char *version)
{
	dlvsym_fn fn = real_dlvsym();

	if (!fn)
		return NULL;
	if (may_be_ours(handle, name))
		return ours_for(fn(handle, name, version), name, version);
	return fn(handle, name, version);
}
