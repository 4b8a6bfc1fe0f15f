/* SPDX-License-Identifier: MIT */
/*
 * doctor.c - see doctor.h.
 */
#include "doctor.h"

#include "env/env.h"

#include <glob.h>
#include <inttypes.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

/* Below these people run into them. */
#define MEMLOCK_SMALL (64ull << 20)
#define NOFILE_SMALL 1024u
/* soft maps 1 GiB for its device, and as much for each peer process. */
#define ADDRESS_SPACE_SMALL (8ull << 30)
/* The file of soft's device, which grows with what is registered. */
#define FILE_SIZE_SMALL (1ull << 30)

/* --- facts ------------------------------------------------------------- */

static uint64_t limit_of(int which)
{
	struct rlimit r;

	if (getrlimit(which, &r))
		return 0;
	return r.rlim_cur == RLIM_INFINITY ? DOCTOR_UNLIMITED : r.rlim_cur;
}

static int count(const char *pattern)
{
	glob_t g;
	int n = 0;

	if (glob(pattern, GLOB_NOSORT, NULL, &g) == 0) {
		n = (int)g.gl_pathc;
		globfree(&g);
	}
	return n;
}

static void hugepages(struct doctor_facts *f)
{
	FILE *file = fopen("/proc/meminfo", "re");
	char line[128];

	if (!file)
		return;
	while (fgets(line, sizeof(line), file)) {
		sscanf(line, "HugePages_Total: %" SCNu64, &f->hugepages);
		sscanf(line, "HugePages_Free: %" SCNu64, &f->hugepages_free);
		if (sscanf(line, "Hugepagesize: %" SCNu64, &f->hugepage_len))
			f->hugepage_len <<= 10;
	}
	fclose(file);
}

/* Has the kernel made huge pages of the mapping that begins at p? */
static bool transparent(const void *p)
{
	FILE *f = fopen("/proc/self/smaps", "re");
	bool here = false, found = false;
	unsigned long start, end, kb;
	char line[256];

	while (f && !found && fgets(line, sizeof(line), f)) {
		if (sscanf(line, "%lx-%lx ", &start, &end) == 2)
			here = start <= (uintptr_t)p && (uintptr_t)p < end;
		else if (here && sscanf(line, "ShmemPmdMapped: %lu", &kb) == 1)
			found = kb > 0;
	}
	if (f)
		fclose(f);
	return found;
}

/* Tried, not deduced: limits of control groups count too. */
static void huge_regions(struct skein_env *env, struct doctor_facts *f)
{
	enum env_huge option = env->huge;
	size_t len = f->hugepage_len ? f->hugepage_len : 2ul << 20;
	void *p;
	int fd;

	f->huge_option = env_huge_name(option);
	f->huge_made_of = "none";
	/* with ON it would be an error in the log, which findings say better */
	if (option == ENV_HUGE_ON)
		env->huge = ENV_HUGE_AUTO;
	if (!env_mem_alloc(env, "skein-info", len, &fd, &p)) {
		if (env_mem_page(fd) >= len)
			f->huge_made_of = "huge";
		else if (option != ENV_HUGE_ON)
			f->huge_made_of =
				transparent(p) ? "transparent" : "ordinary";
		env_mem_free(env, fd, p, len);
	}
	env->huge = option;
}

static bool in_path(const char *program)
{
	const char *path = getenv("PATH");
	char file[512];
	size_t n;

	for (; path && *path; path += n + (path[n] == ':')) {
		n = strcspn(path, ":");
		snprintf(file, sizeof(file), "%.*s/%s", (int)n, path, program);
		if (access(file, X_OK) == 0)
			return true;
	}
	return false;
}

/* Where scripts/rdma-vm.sh keeps its image. */
static void vm(struct doctor_facts *f)
{
	const char *own = getenv("SKEIN_VM_DIR"), *home = getenv("HOME");
	const char *cache = getenv("XDG_CACHE_HOME");
	char file[300];

	if (own)
		snprintf(f->vm_folder, sizeof(f->vm_folder), "%s", own);
	else if (cache)
		snprintf(f->vm_folder, sizeof(f->vm_folder), "%s/skein-vm",
			 cache);
	else
		snprintf(f->vm_folder, sizeof(f->vm_folder),
			 "%s/.cache/skein-vm", home ? home : "");
	snprintf(file, sizeof(file), "%s/vmlinux", f->vm_folder);
	f->vm_image = access(file, R_OK) == 0;
	snprintf(file, sizeof(file), "%s/initrd", f->vm_folder);
	f->vm_image = f->vm_image && access(file, R_OK) == 0;
	f->qemu = in_path("qemu-system-x86_64");
}

void doctor_facts(struct skein_env *env, struct doctor_facts *facts)
{
	struct doctor_facts f = {0};
	cpu_set_t set;

	f.memlock = limit_of(RLIMIT_MEMLOCK);
	f.nofile = limit_of(RLIMIT_NOFILE);
	f.address_space = limit_of(RLIMIT_AS);
	f.file_size = limit_of(RLIMIT_FSIZE);
	f.cores = sched_getaffinity(0, sizeof(set), &set) ? 0 : CPU_COUNT(&set);
	hugepages(&f);
	huge_regions(env, &f);
	f.ib_core = access("/sys/class/infiniband", F_OK) == 0;
	f.ib_uverbs = access("/sys/class/infiniband_verbs", F_OK) == 0;
	f.rdma_rxe = access("/sys/module/rdma_rxe", F_OK) == 0;
	f.sys_devices = count("/sys/class/infiniband/*");
	f.dev_nodes = count("/dev/infiniband/uverbs*");
	vm(&f);
	*facts = f;
}

/* --- findings ---------------------------------------------------------- */

struct notes {
	struct doctor_finding *out;
	unsigned n;
};

static void __attribute__((format(printf, 4, 5)))
add(struct notes *notes, bool error, const char *fix, const char *fmt, ...)
{
	struct doctor_finding *f;
	va_list ap;

	if (notes->n == DOCTOR_MAX)
		return;
	f = &notes->out[notes->n++];
	memset(f, 0, sizeof(*f));
	f->error = error;
	snprintf(f->fix, sizeof(f->fix), "%s", fix);
	va_start(ap, fmt);
	vsnprintf(f->text, sizeof(f->text), fmt, ap);
	va_end(ap);
}

static void look_at_limits(struct notes *notes, const struct doctor_facts *f,
			   bool real)
{
	if (real && f->memlock < MEMLOCK_SMALL)
		add(notes, false,
		    "ulimit -l unlimited, or LimitMEMLOCK=infinity in the unit",
		    "RLIMIT_MEMLOCK is %" PRIu64 " KiB: all registered memory "
		    "and the queues count, large registrations will fail",
		    f->memlock >> 10);
	if (f->address_space < ADDRESS_SPACE_SMALL)
		add(notes, false, "ulimit -v unlimited",
		    "RLIMIT_AS is %" PRIu64 " MiB: device soft maps 1 GiB of "
		    "address space, and as much for each peer",
		    f->address_space >> 20);
	if (f->file_size < FILE_SIZE_SMALL)
		add(notes, false,
		    "ulimit -f unlimited, or LimitFSIZE=infinity in the unit",
		    "RLIMIT_FSIZE is %" PRIu64 " KiB: shared memory is made of "
		    "files (memfd), which it bounds",
		    f->file_size >> 10);
	if (f->nofile < NOFILE_SMALL)
		add(notes, false,
		    "ulimit -n 65536, or LimitNOFILE=65536 in the unit",
		    "RLIMIT_NOFILE is %" PRIu64 ": a peer takes 3 to 5 "
		    "descriptors, a shared region one",
		    f->nofile);
}

static void look_at_hugepages(struct notes *notes, const struct doctor_facts *f)
{
	if (strcmp(f->huge_option, "on") || strcmp(f->huge_made_of, "none"))
		return;
	add(notes, false,
	    "sysctl vm.nr_hugepages=N, or SKEIN_HUGEPAGES=auto to do without",
	    "SKEIN_HUGEPAGES=on, but no huge page can be had: regions of "
	    "%" PRIu64 " KiB and more will fail",
	    f->hugepage_len >> 10);
}

static const struct dev_list_port *usable(const struct dev_list_entry *list,
					  int n)
{
	for (int i = 0; i < n; i++)
		for (int k = 0; k < list[i].n_ports; k++)
			if (list[i].ports[k].chosen >= 0)
				return &list[i].ports[k];
	return NULL;
}

/* Real devices of which none can be used: the first one's reason. */
static void look_at_list(struct notes *notes, const struct doctor_facts *f,
			 const struct dev_list_entry *list, int n)
{
	if (n && !usable(list, n))
		add(notes, false, "what it says; skein info shows all of them",
		    "%s is here, but cannot be used: %s", list[0].name,
		    list[0].err[0] || !list[0].n_ports ? list[0].err
						       : list[0].ports[0].why);
	if (f->sys_devices && !f->dev_nodes)
		add(notes, false,
		    "modprobe ib_uverbs; in a container: --device="
		    "/dev/infiniband",
		    "the kernel has %d RDMA device(s), but /dev/infiniband is "
		    "empty here",
		    f->sys_devices);
}

unsigned doctor_look(const struct doctor_facts *facts, const struct dev *dev,
		     const struct dev_list_entry *list, int n,
		     struct doctor_finding *out)
{
	struct notes notes = {.out = out};

	if (!dev)
		add(&notes, true,
		    "leave the choice to Skein (no SKEIN_DEVICE, --device or "
		    "--require), or name a device that is usable; where a "
		    "setting is at fault, above, mend it",
		    "no usable device");
	look_at_list(&notes, facts, list, n);
	look_at_limits(&notes, facts, n > 0);
	look_at_hugepages(&notes, facts);
	if (dev && dev->caps.fork == DEV_FORK_UNSAFE)
		add(&notes, false, "Linux 5.12 or newer",
		    "fork() is not safe while memory of your own is "
		    "registered: this kernel does not copy pinned pages");
	return notes.n;
}
