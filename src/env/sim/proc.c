/* SPDX-License-Identifier: MIT */
/*
 * proc.c - simulated processes: their memory, their end, their report.
 *
 * Every block that a process allocates hangs from it, so a kill frees it and a
 * test can ask what an orderly end has left. Freed memory is poisoned: a
 * process that reads it computes nonsense, and the checkers report it.
 */
#include "env/sim/world.h"

#include "base/assert.h"

#include <errno.h>
#include <stdalign.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

#define POISON 0xdb
#define PAGE 4096u
#define FREED_KEPT (256u * 1024)

/* From here on a block has pages of its own, which take no memory until they are
 * touched: payloads of hollow messages never are. */
#define LARGE (256u * 1024)

struct block {
	struct list_node link;
	void *base;    /* what free() or munmap() wants */
	size_t mapped; /* bytes of a large one; 0: of the heap */
	size_t len;
	uint64_t mark;
	alignas(16) char data[];
};

#define MARK 0x536b65696e20626cull

static char *large_base(size_t len, size_t *mapped)
{
	char *base;

	*mapped = (len + 2 * PAGE - 1) & ~(size_t)(PAGE - 1);
	base = mmap(NULL, *mapped, PROT_READ | PROT_WRITE,
		    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (base == MAP_FAILED)
		return NULL;
#if defined(__SANITIZE_ADDRESS__)
	/* A fiber's stack may have been there. */
	__asan_unpoison_memory_region(base, *mapped);
#endif
	return base;
}

static char *small_base(size_t align, size_t len)
{
	len = (sizeof(struct block) + len + 2 * align - 1) & ~(align - 1);
	return aligned_alloc(align, len);
}

/* Zeroed, aligned to align, which is at most a page. */
void *proc_alloc(struct skein_env *env, size_t align, size_t len)
{
	struct sim_proc *p = sim_proc_of(env);
	size_t mapped = 0;
	struct block *b;
	char *base;

	skein_assert(align <= PAGE);
	if (align < alignof(struct block))
		align = alignof(struct block);
	if (len > SIZE_MAX / 2)
		return NULL;
	if (len >= LARGE)
		align = PAGE;
	base = len < LARGE ? small_base(align, len) : large_base(len, &mapped);
	if (!base)
		return NULL;
	/* data is aligned, and the head right before it */
	b = (void *)(base + ((sizeof(*b) + align - 1) & ~(align - 1)) -
		     sizeof(*b));
	b->base = base;
	b->mapped = mapped;
	b->len = len;
	b->mark = MARK;
	list_add_tail(&p->blocks, &b->link);
	p->bytes += len;
	return mapped ? b->data : memset(b->data, 0, len);
}

static void freed_release(struct sim_proc *p, struct block *b)
{
	const unsigned char *data = (const unsigned char *)b->data;

	if (data[0] != POISON || memcmp(data, data + 1, b->len - 1))
		sim_blame(p->w,
			  "%s/%s: %zu bytes were written to after they "
			  "were freed",
			  p->node->name, p->name, b->len);
	p->freed_bytes -= b->len;
	free(b->base);
}

/* Memory is given back in the order of freeing, and some of it kept. */
static void freed_trim(struct sim_proc *p, size_t keep)
{
	struct list_node *n, *next;

	for (n = p->freed.next; n != &p->freed && p->freed_bytes > keep;
	     n = next) {
		next = n->next;
		freed_release(p, container_of(n, struct block, link));
	}
	p->freed.next = n;
	n->prev = &p->freed;
}

static void block_free(struct sim_proc *p, struct block *b)
{
	skein_assert(b->mark == MARK);
	p->bytes -= b->len;
	b->mark = 0;
	if (b->mapped) {
		/* a process that touches it crashes */
		munmap(b->base, b->mapped);
		return;
	}
	memset(b->data, POISON, b->len);
	if (!p->w->conf.check || !b->len) {
		free(b->base);
		return;
	}
	list_add_tail(&p->freed, &b->link);
	p->freed_bytes += b->len;
	freed_trim(p, FREED_KEPT);
}

void proc_free(struct skein_env *env, void *ptr)
{
	struct block *b;

	if (!ptr)
		return;
	b = container_of(ptr, struct block, data);
	list_del(&b->link);
	block_free(sim_proc_of(env), b);
}

static uint32_t never_ready(struct sim_fd *fd)
{
	return 0;
}

static void mem_fd_close(struct sim_fd *fd)
{
	fd_forget(fd);
	free(fd);
}

/* The descriptor only has to be one: devices here find memory by address. */
int proc_mem_alloc(struct skein_env *env, const char *name, size_t len, int *fd,
		   void **addr)
{
	struct sim_proc *p = sim_proc_of(env);
	struct sim_fd *f = calloc(1, sizeof(*f));
	void *mem;
	int rc = -ENOMEM;

	if (!f)
		return rc;
	len = (len + PAGE - 1) & ~(size_t)(PAGE - 1);
	mem = proc_alloc(env, PAGE, len);
	if (!mem)
		goto err_fd;
	f->ready = never_ready;
	f->close = mem_fd_close;
	rc = fd_open(p, f);
	if (rc)
		goto err_mem;
	*fd = f->num;
	*addr = mem;
	return 0;

err_mem:
	proc_free(env, mem);
err_fd:
	free(f);
	return rc;
}

void proc_mem_free(struct skein_env *env, int fd, void *addr, size_t len)
{
	struct sim_fd *f = fd_get(sim_proc_of(env), fd);

	if (f)
		f->close(f);
	proc_free(env, addr);
}

static void proc_log(void *arg, enum env_log_level level, const char *msg)
{
	struct sim_proc *p = arg;
	char line[512];

	snprintf(line, sizeof(line), "%s/%s: %s", p->node->name, p->name, msg);
	sim_log_line(p->w, line);
}

int sim_proc_new(struct sim_node *node, const char *name,
		 struct sim_proc **proc)
{
	struct sim_proc *p = calloc(1, sizeof(*p));

	if (!p)
		return -ENOMEM;
	p->node = node;
	p->w = node->w;
	p->id = ++p->w->n_procs;
	snprintf(p->name, sizeof(p->name), "%s", name);
	p->env.ops = &sim_env_ops;
	p->env.log = proc_log;
	p->env.log_arg = p;
	p->env.log_level = p->w->conf.log_level;
	list_init(&p->fibers);
	list_init(&p->spinners);
	list_init(&p->blocks);
	list_init(&p->freed);
	list_init(&p->hooks);
	sim_prng(p->w, p->id, &p->prng);
	list_add_tail(&node->procs, &p->link);
	*proc = p;
	return 0;
}

void sim_proc_on_kill(struct sim_proc *proc, struct sim_hook *hook)
{
	list_add_tail(&proc->hooks, &hook->link);
}

void sim_proc_kill(struct sim_proc *p)
{
	struct list_node *n;
	unsigned i;

	if (p->dead)
		return;
	p->dead = true;
	sim_note(p->w, p->id, p->w->agenda.now);
	while ((n = list_pop_head(&p->fibers)))
		fiber_kill(container_of(n, struct sim_fiber, proc_link));
	while ((n = list_pop_head(&p->hooks))) {
		struct sim_hook *h = container_of(n, struct sim_hook, link);

		h->fn(h);
	}
	for (i = 0; i < p->fds_cap; i++)
		if (p->fds[i])
			p->fds[i]->close(p->fds[i]);
	while ((n = list_pop_head(&p->blocks)))
		block_free(p, container_of(n, struct block, link));
	freed_trim(p, 0);
	sched_dispatch(p->node);
}

void proc_fini(struct sim_proc *p)
{
	sim_proc_kill(p);
	freed_trim(p, 0);
	free(p->fds);
	free(p);
}

struct skein_env *sim_proc_env(struct sim_proc *proc)
{
	return &proc->env;
}

bool sim_is(const struct skein_env *env)
{
	return env->ops == &sim_env_ops;
}

struct sim_proc *sim_proc_of(struct skein_env *env)
{
	skein_assert(sim_is(env));
	return container_of(env, struct sim_proc, env);
}

struct sim_node *sim_proc_node(struct sim_proc *proc)
{
	return proc->node;
}

struct sim_world *sim_proc_world(struct sim_proc *proc)
{
	return proc->w;
}

uint32_t sim_proc_id(const struct sim_proc *proc)
{
	return proc->id;
}

bool sim_proc_alive(const struct sim_proc *proc)
{
	return !proc->dead;
}

size_t sim_proc_bytes(const struct sim_proc *proc)
{
	return proc->bytes;
}

unsigned sim_proc_fds(const struct sim_proc *proc)
{
	return proc->n_fds;
}

void sim_proc_report(struct sim_proc *proc,
		     void (*say)(void *arg, const char *line), void *arg)
{
	static const char *const states[] = {"wants a core", "runs", "spins",
					     "sleeps", "is done"};
	struct list_node *n;
	char line[160];

	list_for_each(n, &proc->fibers) {
		struct sim_fiber *f =
			container_of(n, struct sim_fiber, proc_link);

		snprintf(line, sizeof(line), "%s/%s: thread %s %s%s%s",
			 proc->node->name, proc->name, f->name,
			 states[f->state], *f->waits_for ? ", waits for " : "",
			 f->waits_for);
		say(arg, line);
	}
}
