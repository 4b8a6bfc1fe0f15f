/* SPDX-License-Identifier: MIT */
/*
 * fiber.c - switching stacks by hand; see fiber.h.
 *
 * fiber_swap(&from->sp, to->sp) pushes the callee-saved registers, exchanges
 * the stack pointer and pops the other's. A new stack is laid out as if
 * fiber_swap() had left it, with fiber_start as the return address. Floating
 * point control words are the same in all fibers: nobody here changes them.
 */
#include "env/sim/fiber.h"

#include "base/assert.h"

#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

#if defined(__has_include)
#if __has_include(<valgrind/valgrind.h>)
#include <valgrind/valgrind.h>
#define FIBER_VALGRIND 1
#endif
#endif

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#endif

#define GUARD 4096u

void fiber_swap(void **from_sp, void *to_sp);
void fiber_start(void);
void fiber_enter(struct fiber *f);

#if defined(__x86_64__)
#define SAVED 7 /* rbp rbx r12 r13 r14 r15, return address */
__asm__(".text\n"
	".globl fiber_swap\n.hidden fiber_swap\n.type fiber_swap, @function\n"
	"fiber_swap:\n"
	"	pushq %rbp\n	pushq %rbx\n	pushq %r12\n"
	"	pushq %r13\n	pushq %r14\n	pushq %r15\n"
	"	movq %rsp, (%rdi)\n"
	"	movq %rsi, %rsp\n"
	"	popq %r15\n	popq %r14\n	popq %r13\n"
	"	popq %r12\n	popq %rbx\n	popq %rbp\n"
	"	ret\n"
	".size fiber_swap, .-fiber_swap\n"
	".globl fiber_start\n.hidden fiber_start\n"
	".type fiber_start, @function\n"
	"fiber_start:\n" /* the fiber is in r12; its stack ends here */
	"	movq %r12, %rdi\n"
	"	xorl %ebp, %ebp\n"
	"	call fiber_enter\n"
	"	ud2\n"
	".size fiber_start, .-fiber_start\n");

static void *stack_lay(struct fiber *f, char *top)
{
	uint64_t *sp = (uint64_t *)(void *)top;

	/* At the call in fiber_start the stack must be a multiple of 16. */
	sp -= SAVED + 2;
	memset(sp, 0, (SAVED + 2) * sizeof(*sp));
	sp[3] = (uint64_t)(uintptr_t)f; /* r12 */
	sp[6] = (uint64_t)(uintptr_t)fiber_start;
	return sp;
}
#elif defined(__aarch64__)
#define SAVED 20 /* x19-x30, d8-d15 */
__asm__(".text\n"
	".globl fiber_swap\n.hidden fiber_swap\n.type fiber_swap, %function\n"
	"fiber_swap:\n"
	"	sub sp, sp, #160\n"
	"	stp x19, x20, [sp]\n	stp x21, x22, [sp, #16]\n"
	"	stp x23, x24, [sp, #32]\n	stp x25, x26, [sp, #48]\n"
	"	stp x27, x28, [sp, #64]\n	stp x29, x30, [sp, #80]\n"
	"	stp d8, d9, [sp, #96]\n	stp d10, d11, [sp, #112]\n"
	"	stp d12, d13, [sp, #128]\n	stp d14, d15, [sp, #144]\n"
	"	mov x9, sp\n	str x9, [x0]\n	mov sp, x1\n"
	"	ldp x19, x20, [sp]\n	ldp x21, x22, [sp, #16]\n"
	"	ldp x23, x24, [sp, #32]\n	ldp x25, x26, [sp, #48]\n"
	"	ldp x27, x28, [sp, #64]\n	ldp x29, x30, [sp, #80]\n"
	"	ldp d8, d9, [sp, #96]\n	ldp d10, d11, [sp, #112]\n"
	"	ldp d12, d13, [sp, #128]\n	ldp d14, d15, [sp, #144]\n"
	"	add sp, sp, #160\n"
	"	ret\n"
	".size fiber_swap, .-fiber_swap\n"
	".globl fiber_start\n.hidden fiber_start\n"
	".type fiber_start, %function\n"
	"fiber_start:\n"
	"	mov x0, x19\n	mov x29, #0\n	bl fiber_enter\n	brk #1\n"
	".size fiber_start, .-fiber_start\n");

static void *stack_lay(struct fiber *f, char *top)
{
	uint64_t *sp = (uint64_t *)(void *)top - SAVED;

	memset(sp, 0, SAVED * sizeof(*sp));
	sp[0] = (uint64_t)(uintptr_t)f;		   /* x19 */
	sp[11] = (uint64_t)(uintptr_t)fiber_start; /* x30 */
	return sp;
}
#else
/* cppcheck-suppress preprocessorErrorDirective */
#error "fiber.c: write fiber_swap() for this processor"
#endif

/* The first frame of every fiber. */
void fiber_enter(struct fiber *f)
{
#if defined(__SANITIZE_ADDRESS__)
	__sanitizer_finish_switch_fiber(NULL, NULL, NULL);
#endif
	f->fn(f->arg);
	skein_assert(!"a fiber's function returned");
}

void fiber_main_init(struct fiber *main)
{
	memset(main, 0, sizeof(*main));
#if defined(__SANITIZE_ADDRESS__)
	pthread_attr_t attr;

	/* stack stays NULL: it is not ours to unmap. */
	skein_assert(!pthread_getattr_np(pthread_self(), &attr));
	pthread_attr_getstack(&attr, &main->arg, &main->stack_len);
	pthread_attr_destroy(&attr);
#endif
#if defined(__SANITIZE_THREAD__)
	main->tsan = __tsan_get_current_fiber();
#endif
}

int fiber_init(struct fiber *f, size_t stack_len, void (*fn)(void *arg),
	       void *arg)
{
	char *p;

	stack_len = (stack_len + GUARD - 1) & ~(size_t)(GUARD - 1);
	p = mmap(NULL, stack_len + GUARD, PROT_READ | PROT_WRITE,
		 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1,
		 0);
	if (p == MAP_FAILED)
		return -ENOMEM;
	if (mprotect(p, GUARD, PROT_NONE)) {
		munmap(p, stack_len + GUARD);
		return -ENOMEM;
	}
#if defined(__SANITIZE_ADDRESS__)
	/* The sanitizer still has the red zones of a killed fiber's frames. */
	__asan_unpoison_memory_region(p + GUARD, stack_len);
#endif
	memset(f, 0, sizeof(*f));
	f->stack = p;
	f->stack_len = stack_len;
	f->fn = fn;
	f->arg = arg;
	f->sp = stack_lay(f, p + GUARD + stack_len);
#if defined(__SANITIZE_THREAD__)
	f->tsan = __tsan_create_fiber(0);
#endif
#ifdef FIBER_VALGRIND
	f->valgrind_id =
		VALGRIND_STACK_REGISTER(p + GUARD, p + GUARD + stack_len);
#endif
	return 0;
}

void fiber_fini(struct fiber *f)
{
	if (!f->stack)
		return;
#ifdef FIBER_VALGRIND
	VALGRIND_STACK_DEREGISTER(f->valgrind_id);
#endif
#if defined(__SANITIZE_THREAD__)
	__tsan_destroy_fiber(f->tsan);
#endif
	munmap(f->stack, f->stack_len + GUARD);
	f->stack = NULL;
}

void fiber_switch(struct fiber *from, struct fiber *to)
{
#if defined(__SANITIZE_ADDRESS__)
	const void *bottom = to->stack ? (char *)to->stack + GUARD : to->arg;

	__sanitizer_start_switch_fiber(&from->asan_fake, bottom, to->stack_len);
#endif
#if defined(__SANITIZE_THREAD__)
	__tsan_switch_to_fiber(to->tsan, 0);
#endif
	fiber_swap(&from->sp, to->sp);
#if defined(__SANITIZE_ADDRESS__)
	__sanitizer_finish_switch_fiber(from->asan_fake, NULL, NULL);
#endif
}
