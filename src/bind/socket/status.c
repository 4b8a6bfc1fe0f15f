/* SPDX-License-Identifier: MIT */
/*
 * status.c - writes the status page. The memory is there from the beginning,
 * private; the first connection puts the memfd in its place. Where there is no
 * memfd to be had, the process is not listed.
 */
#include "bind/socket/status.h"

#include "bind/socket/sock.h"
#include "env/mem_file.h"

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

size_t status_len(void)
{
	const size_t len =
		sizeof(struct status_page) + FD_MAX * sizeof(struct status_row);

	return (len + 4095) & ~(size_t)4095;
}

_Static_assert(sizeof(st.page->program) == sizeof(st.program), "one name");

void status_init(void *mem)
{
	st.page = mem;
}

void status_fork(void)
{
	if (st.page_fd < 0)
		return;
	close(st.page_fd);
	if (mmap(st.page, status_len(), PROT_READ | PROT_WRITE,
		 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1,
		 0) == MAP_FAILED)
		state_say("skein run: a forked child shares its parent's page: "
			  "skein run --list confuses their connections: %s",
			  strerror(errno));
	st.page_fd = -1;
	st.page_tried = false;
}

static void page_open(void)
{
	int fd = memfd_create(STATUS_NAME, MFD_CLOEXEC);

	st.page_tried = true;
	if (fd < 0)
		return;
	if (mem_file_resize(fd, status_len()) ||
	    mmap(st.page, status_len(), PROT_READ | PROT_WRITE,
		 MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED) {
		close(fd);
		return;
	}
	st.page_fd = fd;
	st.page->row_len = sizeof(struct status_row);
	memcpy(st.page->program, st.program, sizeof(st.program));
	st.page->magic = STATUS_MAGIC;
}

const char sock_unanswered[] = "the other end did not answer";

const char *sock_reason(const struct sock *s)
{
	if (sock_on_stream(s))
		return "";
	if (s->reason)
		return s->reason;
	if (s->on_ns)
		return "the other end could not be promoted";
	if (s->prepared)
		return "a call was in the kernel at all times";
	if (!sock_is_sole(s))
		return "another process has it too";
	if (s->tries)
		return sock_unanswered;
	if (s->queued)
		return "the other end has not answered";
	return s->rests ? "it was idle" : "too few calls";
}

void status_update(struct sock *s)
{
	struct status_row *row;
	uint32_t seq, i;

	if (!st.page_tried)
		page_open();
	row = sock_row(s);
	seq = atomic_load_explicit(&row->seq, memory_order_relaxed);
	/* The reader sees an odd number, or another one behind the row than
	 * before it, if it reads a row that changes. */
	atomic_store_explicit(&row->seq, seq | 1, memory_order_relaxed);
	atomic_thread_fence(memory_order_release);
	row->fd = atomic_load(&s->mode) == SOCK_FREE ? -1 : s->fd;
	row->on_stream = sock_on_stream(s);
	row->since_ns = row->on_stream ? s->on_ns : s->tcp_ns;
	row->demotions = s->demotions;
	/* A short connection would feel snprintf(). The last byte stays 0. */
	memccpy(row->reason, sock_reason(s), 0, sizeof(row->reason) - 1);
	atomic_store_explicit(&row->seq, (seq | 1) + 1, memory_order_release);
	i = (uint32_t)(s - st.all);
	if (i >= atomic_load_explicit(&st.page->used, memory_order_relaxed))
		atomic_store_explicit(&st.page->used, i + 1,
				      memory_order_release);
}

void status_end(struct sock *s)
{
	struct status_row *row = sock_row(s);
	_Atomic uint64_t *bytes;
	struct status_page *page;
	uint32_t seq;

	status_update(s);
	page = st.page;
	/* A reader that meets the move sees an odd number, or another one behind
	 * it: the fence and the release order it before and after. */
	seq = atomic_load_explicit(&page->seq, memory_order_relaxed) | 1;
	atomic_store_explicit(&page->seq, seq, memory_order_relaxed);
	atomic_thread_fence(memory_order_release);
	status_count(&page->gone_rx,
		     atomic_load_explicit(&row->rx_stream,
					  memory_order_relaxed));
	status_count(&page->gone_tx,
		     atomic_load_explicit(&row->tx_stream,
					  memory_order_relaxed));
	for (bytes = &row->rx_stream; bytes <= &row->tx_tcp; bytes++)
		atomic_store_explicit(bytes, 0, memory_order_relaxed);
	atomic_store_explicit(&page->seq, seq + 1, memory_order_release);
}
