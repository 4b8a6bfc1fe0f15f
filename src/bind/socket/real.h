/* SPDX-License-Identifier: MIT */
/*
 * real.h - the functions of the C library that we stand in front of. All are found
 * in our constructor; one that is called before it, at that call.
 */
#ifndef SKEIN_BIND_SOCKET_REAL_H
#define SKEIN_BIND_SOCKET_REAL_H

#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stddef.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <stdio.h>
#include <time.h>

struct mmsghdr;

/* X(function, result, arguments): what is exported; socket.map has the same
 * names, and a test compares the two. */
#define REAL_LIST(X)                                                           \
	X(read, ssize_t, (int, void *, size_t))                                \
	X(write, ssize_t, (int, const void *, size_t))                         \
	X(readv, ssize_t, (int, const struct iovec *, int))                    \
	X(writev, ssize_t, (int, const struct iovec *, int))                   \
	X(recv, ssize_t, (int, void *, size_t, int))                           \
	X(send, ssize_t, (int, const void *, size_t, int))                     \
	X(recvfrom, ssize_t,                                                   \
	  (int, void *, size_t, int, struct sockaddr *, socklen_t *))          \
	X(sendto, ssize_t,                                                     \
	  (int, const void *, size_t, int, const struct sockaddr *,            \
	   socklen_t))                                                         \
	X(recvmsg, ssize_t, (int, struct msghdr *, int))                       \
	X(sendmsg, ssize_t, (int, const struct msghdr *, int))                 \
	X(__read_chk, ssize_t, (int, void *, size_t, size_t))                  \
	X(__recv_chk, ssize_t, (int, void *, size_t, size_t, int))             \
	X(__recvfrom_chk, ssize_t,                                             \
	  (int, void *, size_t, size_t, int, struct sockaddr *, socklen_t *))  \
	X(connect, int, (int, const struct sockaddr *, socklen_t))             \
	X(accept, int, (int, struct sockaddr *, socklen_t *))                  \
	X(accept4, int, (int, struct sockaddr *, socklen_t *, int))            \
	X(close, int, (int))                                                   \
	X(shutdown, int, (int, int))                                           \
	X(fcntl, int, (int, int, ...))                                         \
	X(fcntl64, int, (int, int, ...))                                       \
	X(ioctl, int, (int, unsigned long, ...))                               \
	X(getsockopt, int, (int, int, int, void *, socklen_t *))               \
	X(setsockopt, int, (int, int, int, const void *, socklen_t))           \
	X(dup, int, (int))                                                     \
	X(dup2, int, (int, int))                                               \
	X(dup3, int, (int, int, int))                                          \
	X(close_range, int, (unsigned, unsigned, int))                         \
	X(closefrom, void, (int))                                              \
	X(poll, int, (struct pollfd *, nfds_t, int))                           \
	X(ppoll, int,                                                          \
	  (struct pollfd *, nfds_t, const struct timespec *,                   \
	   const sigset_t *))                                                  \
	X(__poll_chk, int, (struct pollfd *, nfds_t, int, size_t))             \
	X(__ppoll_chk, int,                                                    \
	  (struct pollfd *, nfds_t, const struct timespec *, const sigset_t *, \
	   size_t))                                                            \
	X(select, int, (int, fd_set *, fd_set *, fd_set *, struct timeval *))  \
	X(pselect, int,                                                        \
	  (int, fd_set *, fd_set *, fd_set *, const struct timespec *,         \
	   const sigset_t *))                                                  \
	X(epoll_ctl, int, (int, int, int, struct epoll_event *))               \
	X(epoll_wait, int, (int, struct epoll_event *, int, int))              \
	X(epoll_pwait, int,                                                    \
	  (int, struct epoll_event *, int, int, const sigset_t *))             \
	X(epoll_pwait2, int,                                                   \
	  (int, struct epoll_event *, int, const struct timespec *,            \
	   const sigset_t *))                                                  \
	X(sendfile, ssize_t, (int, int, off_t *, size_t))                      \
	X(sendfile64, ssize_t, (int, int, off64_t *, size_t))                  \
	X(splice, ssize_t, (int, off64_t *, int, off64_t *, size_t, unsigned)) \
	X(sendmmsg, int, (int, struct mmsghdr *, unsigned, int))               \
	X(recvmmsg, int,                                                       \
	  (int, struct mmsghdr *, unsigned, int, struct timespec *))           \
	X(preadv2, ssize_t, (int, const struct iovec *, int, off_t, int))      \
	X(pwritev2, ssize_t, (int, const struct iovec *, int, off_t, int))     \
	X(preadv64v2, ssize_t, (int, const struct iovec *, int, off_t, int))   \
	X(pwritev64v2, ssize_t, (int, const struct iovec *, int, off_t, int))  \
	X(fdopen, FILE *, (int, const char *))                                 \
	X(fclose, int, (FILE *))                                               \
	X(freopen, FILE *, (const char *, const char *, FILE *))               \
	X(freopen64, FILE *, (const char *, const char *, FILE *))             \
	X(dprintf, int, (int, const char *, ...))                              \
	X(vdprintf, int, (int, const char *, __builtin_va_list))               \
	X(__dprintf_chk, int, (int, int, const char *, ...))                   \
	X(__vdprintf_chk, int, (int, int, const char *, __builtin_va_list))    \
	X(execve, int, (const char *, char *const *, char *const *))           \
	X(execv, int, (const char *, char *const *))                           \
	X(execvp, int, (const char *, char *const *))                          \
	X(execvpe, int, (const char *, char *const *, char *const *))          \
	X(fexecve, int, (int, char *const *, char *const *))                   \
	X(execveat, int,                                                       \
	  (int, const char *, char *const *, char *const *, int))              \
	X(execl, int, (const char *, const char *, ...))                       \
	X(execlp, int, (const char *, const char *, ...))                      \
	X(execle, int, (const char *, const char *, ...))                      \
	X(posix_spawn, int,                                                    \
	  (pid_t *, const char *, const posix_spawn_file_actions_t *,          \
	   const posix_spawnattr_t *, char *const *, char *const *))           \
	X(posix_spawnp, int,                                                   \
	  (pid_t *, const char *, const posix_spawn_file_actions_t *,          \
	   const posix_spawnattr_t *, char *const *, char *const *))           \
	X(posix_spawn_file_actions_adddup2, int,                               \
	  (posix_spawn_file_actions_t *, int, int))                            \
	X(system, int, (const char *))                                         \
	X(popen, FILE *, (const char *, const char *))                         \
	X(_Fork, pid_t, (void))                                                \
	X(sigaction, int, (int, const struct sigaction *, struct sigaction *)) \
	X(signal, sighandler_t, (int, sighandler_t))                           \
	X(bsd_signal, sighandler_t, (int, sighandler_t))                       \
	X(ssignal, sighandler_t, (int, sighandler_t))                          \
	X(sysv_signal, sighandler_t, (int, sighandler_t))                      \
	X(__sysv_signal, sighandler_t, (int, sighandler_t))                    \
	X(sigset, sighandler_t, (int, sighandler_t))                           \
	X(siginterrupt, int, (int, int))                                       \
	X(clone, int, (int (*)(void *), void *, int, void *, ...))             \
	X(prctl, int, (int, ...))                                              \
	X(_exit, void, (int))                                                  \
	X(_Exit, void, (int))                                                  \
	X(syscall, long, (long, ...))

#define REAL_ENUM(fn, result, args) REAL_##fn,
enum real_fn {
	REAL_LIST(REAL_ENUM) REAL_COUNT,
};

#define REAL_TYPE(fn, result, args) typedef result(*real_##fn##_t) args;
REAL_LIST(REAL_TYPE)

/* The real function; without it the process ends: the C library has it. */
void *real_get(enum real_fn which);

#define REAL(fn) ((real_##fn##_t)real_get(REAL_##fn))

#endif
