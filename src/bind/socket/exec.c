/* SPDX-License-Identifier: MIT */
/*
 * exec.c - another program takes this one's place, or a forked child's. It has
 * the sockets that are not close-on-exec, but no rings: so their streams go back
 * to TCP first. If one cannot, the call fails, as others do (refuse.c).
 *
 * A child of vfork(), and so of posix_spawn(), system() and popen(), shares this
 * memory while it lives, and its parent goes on: nothing is done there.
 */
#include "bind/socket/export.h"
#include "bind/socket/sock.h"

#include <alloca.h>
#include <fcntl.h>
#include <stdarg.h>
#include <unistd.h>

static bool is_left_to_it(int fd)
{
	int flags = REAL(fcntl)(fd, F_GETFD);

	return flags >= 0 && !(flags & FD_CLOEXEC);
}

static int keep_all(void)
{
	int fd;

	if (!atomic_load(&st.on) ||
	    (st.pid != getpid() && !atomic_load(&st.forked)))
		return 0;
	for (fd = 0; fd < st.fd_top; fd++) {
		struct sock *s = sock_at(fd);

		if (s && atomic_load(&s->mode) >= SOCK_ON &&
		    is_left_to_it(fd) && sock_refuse(fd, "exec"))
			return -1;
	}
	return 0;
}

EXPORT(int, execve, const char *path, char *const *argv, char *const *envp)
{
	return keep_all() ? -1 : REAL(execve)(path, argv, envp);
}

EXPORT(int, execv, const char *path, char *const *argv)
{
	return keep_all() ? -1 : REAL(execv)(path, argv);
}

EXPORT(int, execvp, const char *file, char *const *argv)
{
	return keep_all() ? -1 : REAL(execvp)(file, argv);
}

EXPORT(int, execvpe, const char *file, char *const *argv, char *const *envp)
{
	return keep_all() ? -1 : REAL(execvpe)(file, argv, envp);
}

EXPORT(int, fexecve, int fd, char *const *argv, char *const *envp)
{
	return keep_all() ? -1 : REAL(fexecve)(fd, argv, envp);
}

EXPORT(int, execveat, int dir, const char *path, char *const *argv,
       char *const *envp, int flags)
{
	return keep_all() ? -1 : REAL(execveat)(dir, path, argv, envp, flags);
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
