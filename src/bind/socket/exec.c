/* SPDX-License-Identifier: MIT */
/*
 * exec.c - another program takes this one's place, or a child's. It has the
 * sockets that are not close-on-exec, and those that an action of posix_spawn()
 * names, but no rings: so their streams go back to TCP first. If one cannot, the
 * call fails, as others do (refuse.c). A parent that goes on keeps them on TCP. Where
 * there is no program to start, the call fails before anything is moved.
 *
 * A child of vfork() has this memory, and its parent's helper hands back what
 * it asks for (back_wait()). A child by clone() that has a copy of the memory
 * has all sockets, and knows nothing of them any more. _exit() is here, too: what
 * a forked child has goes back before its parent's rings do.
 */
#include "bind/socket/export.h"
#include "bind/socket/reach.h"
#include "bind/socket/sock.h"

#include <alloca.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static bool is_left_to_it(int fd)
{
	int flags = REAL(fcntl)(fd, F_GETFD);

	return flags >= 0 && !(flags & FD_CLOEXEC);
}

/* Sticky: a program may use its actions again and again, and what they hold is
 * the C library's. */
static bool is_named(int fd)
{
	return atomic_load(&st.named[fd / 64]) >> (fd % 64) & 1 ||
	       is_left_to_it(fd);
}

static bool is_any(int fd)
{
	(void)fd;
	return true;
}

/* On TCP, from now on, is what the other process has; what is on TCP is not
 * promoted behind this. All start on the way before the first one is waited
 * for. */
static int keep(bool (*has)(int fd), const char *what)
{
	int fd, round;

	if (!atomic_load(&st.on))
		return 0;
	for (round = 0; round < 2; round++) {
		for (fd = 0; fd < st.fd_top; fd++) {
			struct sock *s = sock_at(fd);

			if (!s || atomic_load(&s->mode) == SOCK_FREE ||
			    !has(fd))
				continue;
			if (!round)
				sock_start_back(s, what);
			else if (sock_refuse(fd, what))
				return -1;
		}
	}
	return 0;
}

/* And what a child of this process needs when its memory has gone. */
static bool is_needed(int fd)
{
	struct sock *s = sock_at(fd);

	return (s && sock_must_leave(s)) || is_left_to_it(fd);
}

/* Does a socket here have a stream, or may it get one? */
static bool any_moves(void)
{
	int fd;

	for (fd = 0; fd < st.fd_top; fd++) {
		struct sock *s = sock_at(fd);
		int mode = s ? atomic_load(&s->mode) : SOCK_FREE;

		if (mode != SOCK_FREE && mode != SOCK_TIED)
			return true;
	}
	return false;
}

/* Will an exec of it fail for certain? errno says why. A program that comes
 * meanwhile is not started: its sockets would still be on streams. moves: the
 * working folder is another one by then. */
static bool is_missing(const char *path, bool moves)
{
	struct stat at;

	if (moves && *path != '/')
		return false;
	if (faccessat(AT_FDCWD, path, X_OK, AT_EACCESS))
		return errno == ENOENT || errno == ENOTDIR || errno == EACCES ||
		       errno == ELOOP || errno == ENAMETOOLONG;
	if (stat(path, &at) || S_ISREG(at.st_mode))
		return false;
	errno = EACCES;
	return true;
}

/* The same of execvp(), which looks in the folders of PATH as the C library does. */
static bool is_nowhere(const char *file, bool moves)
{
	const char *path = getenv("PATH"), *end;
	size_t n, len = strlen(file) + 1;
	bool denied = false;
	char at[PATH_MAX];

	if (!path)
		path = "/bin:/usr/bin";
	if (len == 1 || strchr(file, '/'))
		return is_missing(file, moves);
	for (;; path = end + 1) {
		end = strchrnul(path, ':');
		n = (size_t)(end - path);
		if (n + 1 + len > sizeof(at))
			return false;
		memcpy(at, path, n);
		if (n)
			at[n++] = '/';
		memcpy(at + n, file, len);
		if (!is_missing(at, moves))
			return false;
		denied |= errno == EACCES;
		if (!*end)
			break;
	}
	if (denied)
		errno = EACCES;
	return true;
}

/* missing: is_missing, is_nowhere, or NULL. */
static int keep_all(bool (*missing)(const char *file, bool moves),
		    const char *file)
{
	if (missing && any_moves() && missing(file, false))
		return -1;
	if (st.pid != getpid()) /* a child of vfork() */
		return keep(is_left_to_it, "exec");
	if (keep(is_needed, "exec"))
		return -1;
	/* exec closes the close-on-exec sockets. They stay on their streams, for
	 * exec may fail: their last bytes must reach the peers' rings first. */
	state_drain();
	return 0;
}

EXPORT(int, execve, const char *path, char *const *argv, char *const *envp)
{
	return keep_all(is_missing, path) ? -1 : REAL(execve)(path, argv, envp);
}

EXPORT(int, execv, const char *path, char *const *argv)
{
	return keep_all(is_missing, path) ? -1 : REAL(execv)(path, argv);
}

EXPORT(int, execvp, const char *file, char *const *argv)
{
	return keep_all(is_nowhere, file) ? -1 : REAL(execvp)(file, argv);
}

EXPORT(int, execvpe, const char *file, char *const *argv, char *const *envp)
{
	return keep_all(is_nowhere, file) ? -1
					  : REAL(execvpe)(file, argv, envp);
}

EXPORT(int, fexecve, int fd, char *const *argv, char *const *envp)
{
	return keep_all(NULL, NULL) ? -1 : REAL(fexecve)(fd, argv, envp);
}

EXPORT(int, execveat, int dir, const char *path, char *const *argv,
       char *const *envp, int flags)
{
	return keep_all(NULL, NULL)
		       ? -1
		       : REAL(execveat)(dir, path, argv, envp, flags);
}

/* Words up to the NULL, which counts too. */
static size_t count(va_list ap)
{
	size_t n = 2; /* the first one, and the NULL */
	va_list words;

	va_copy(words, ap);
	while (va_arg(words, char *))
		n++;
	va_end(words);
	return n;
}

/* The list's words as a vector on the stack, as the C library has them. */
static void gather(char **argv, size_t n, const char *first, va_list *ap)
{
	size_t i;

	argv[0] = (char *)(uintptr_t)first;
	for (i = 1; i < n; i++)
		argv[i] = va_arg(*ap, char *);
}

#define LIST(name, vector)                                        \
	EXPORT(int, name, const char *path, const char *arg, ...) \
	{                                                         \
		va_list ap;                                       \
                                                                  \
		va_start(ap, arg);                                \
		size_t n = count(ap);                             \
		char **argv = alloca(n * sizeof(*argv));          \
		gather(argv, n, arg, &ap);                        \
		va_end(ap);                                       \
		return vector(path, argv);                        \
	}

LIST(execl, call_execv)
LIST(execlp, call_execvp)

EXPORT(int, execle, const char *path, const char *arg, ...)
{
	char *const *envp;
	va_list ap;

	va_start(ap, arg);
	size_t n = count(ap);
	char **argv = alloca(n * sizeof(*argv));
	gather(argv, n, arg, &ap);
	envp = va_arg(ap, char *const *);
	va_end(ap);
	return call_execve(path, argv, envp);
}

/* --- a child with another program ---------------------------------------- */

EXPORT(int, posix_spawn_file_actions_adddup2,
       posix_spawn_file_actions_t *actions, int fd, int to)
{
	if ((unsigned)fd < FD_MAX && atomic_load(&st.on))
		atomic_fetch_or(&st.named[fd / 64], 1ull << (fd % 64));
	return REAL(posix_spawn_file_actions_adddup2)(actions, fd, to);
}

/* The child may have other rights than this process, or another folder. */
static bool finds_nothing(bool (*missing)(const char *file, bool moves),
			  const char *file, bool acts,
			  const posix_spawnattr_t *attr)
{
	short flags = 0;

	if (attr && posix_spawnattr_getflags(attr, &flags))
		return false;
	return !(flags & POSIX_SPAWN_RESETIDS) && any_moves() &&
	       missing(file, acts);
}

#define SPAWN(name, missing)                                                 \
	EXPORT(int, name, pid_t *pid, const char *path,                      \
	       const posix_spawn_file_actions_t *actions,                    \
	       const posix_spawnattr_t *attr, char *const *argv,             \
	       char *const *envp)                                            \
	{                                                                    \
		if (finds_nothing(missing, path, actions, attr))             \
			return errno;                                        \
		if (keep(actions ? is_named : is_left_to_it, "posix_spawn")) \
			return errno;                                        \
		return REAL(name)(pid, path, actions, attr, argv, envp);     \
	}

SPAWN(posix_spawn, is_missing)
SPAWN(posix_spawnp, is_nowhere)

EXPORT(int, system, const char *command)
{
	if (command && keep(is_left_to_it, "system"))
		return -1;
	return REAL(system)(command);
}

EXPORT(FILE *, popen, const char *command, const char *mode)
{
	if (keep(is_left_to_it, "popen"))
		return NULL;
	return REAL(popen)(command, mode);
}

/* --- a child that no handler of fork() knows ----------------------------- */

/* From here on all goes to the kernel. */
static void leave_all(void)
{
	atomic_store(&st.on, false);
}

EXPORT(pid_t, _Fork, void)
{
	pid_t pid;

	if (keep(is_any, "_Fork"))
		return -1;
	pid = REAL(_Fork)();
	if (!pid)
		leave_all();
	return pid;
}

struct exec_call {
	int (*fn)(void *arg);
	void *arg;
};

static int clone_main(void *arg)
{
	struct exec_call s = *(struct exec_call *)arg;

	leave_all();
	return s.fn(s.arg);
}

EXPORT(int, clone, int (*fn)(void *arg), void *stack, int flags, void *arg,
       pid_t *parent_tid, void *tls, pid_t *child_tid)
{
	struct exec_call start = {fn, arg};

	if (!(flags & CLONE_VM) && fn) {
		if (keep(is_any, "clone"))
			return -1;
		fn = clone_main;
		arg = &start; /* in the child's copy of this stack */
	}
	return REAL(clone)(fn, stack, flags, arg, parent_tid, tls, child_tid);
}

static bool copies_memory(long number, long a)
{
	switch (number) {
#ifdef SYS_fork
	case SYS_fork:
		return true;
#endif
	case SYS_clone:
		return !(a & CLONE_VM);
	case SYS_clone3: /* its flags come first */
		return reach_reads((const void *)a, sizeof(uint64_t)) &&
		       !(*(const uint64_t *)a & CLONE_VM);
	}
	return false;
}

bool exec_clones(long number, const long args[6], long *rc)
{
	if (!copies_memory(number, args[0]))
		return false;
	*rc = -1;
	if (keep(is_any, "syscall() that forks"))
		return true;
	*rc = REAL(syscall)(number, args[0], args[1], args[2], args[3], args[4],
			    args[5]);
	if (!*rc)
		leave_all();
	return true;
}

/* --- the end ------------------------------------------------------------- */

#define END(name)                                                \
	EXPORT(__attribute__((noreturn)) void, name, int status) \
	{                                                        \
		state_end();                                     \
		REAL(name)(status);                              \
		abort();                                         \
	}

END(_exit)
END(_Exit)
