/* SPDX-License-Identifier: MIT */
/*
 * run_list.c - finds the status pages by /proc/PID/fd, and the addresses of a
 * row's descriptor in the kernel's table of the process's network namespace.
 * What a page says is its process's word: it is checked and bounded.
 */
#include "run_list.h"

#include "bind/socket/status.h"
#include "cmd.h"
#include "out.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define PAGE_LINK "/memfd:" STATUS_NAME " (deleted)"
#define ROWS_MAX 65536u
#define TRIES 100 /* to read a row while its process writes it */

/* An established or ending connection, as the kernel has it. */
struct conn {
	unsigned long inode;
	char local[64], peer[64];
};

struct conns {
	struct conn *all;
	size_t n, cap;
	ino_t netns;
};

struct listing {
	json_t *rows;
	json_t *running; /* PIDs of what runs under skein run */
	struct conns conns;
	unsigned processes; /* that had a TCP connection so far */
	uint64_t now_ns;
};

/* --- the kernel's table --------------------------------------------------- */

/* "0100007F:1F90": words of the address in network order, each printed as a
 * number of this host. */
static bool end_of(const char *hex, char *buf, size_t len)
{
	static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
	char addr[INET6_ADDRSTRLEN];
	uint32_t words[4];
	unsigned port;
	int n, count = strlen(hex) > 20 ? 4 : 1;

	for (n = 0; n < count; n++, hex += 8)
		if (sscanf(hex, "%8x", &words[n]) != 1)
			return false;
	if (sscanf(hex, ":%x", &port) != 1)
		return false;
	if (count == 4 && memcmp(words, mapped, sizeof(mapped))) {
		inet_ntop(AF_INET6, words, addr, sizeof(addr));
		snprintf(buf, len, "[%s]:%u", addr, port);
		return true;
	}
	inet_ntop(AF_INET, &words[count - 1], addr, sizeof(addr));
	snprintf(buf, len, "%s:%u", addr, port);
	return true;
}

static void conns_read(struct conns *c, int proc, const char *name)
{
	char line[512], local[64], peer[64];
	int fd = openat(proc, name, O_RDONLY | O_CLOEXEC);
	FILE *f = fd >= 0 ? fdopen(fd, "r") : NULL;

	if (!f) {
		if (fd >= 0)
			close(fd);
		return;
	}
	while (fgets(line, sizeof(line), f)) {
		struct conn conn;
		unsigned state;

		if (sscanf(line, " %*u: %63s %63s %x %*s %*s %*s %*u %*u %lu",
			   local, peer, &state, &conn.inode) != 4 ||
		    state == 10 /* TCP_LISTEN */ || !conn.inode ||
		    !end_of(local, conn.local, sizeof(conn.local)) ||
		    !end_of(peer, conn.peer, sizeof(conn.peer)))
			continue;
		if (c->n == c->cap) {
			size_t cap = c->cap ? 2 * c->cap : 64;
			struct conn *more =
				realloc(c->all, cap * sizeof(*more));

			if (!more)
				break;
			c->all = more;
			c->cap = cap;
		}
		c->all[c->n++] = conn;
	}
	fclose(f);
}

static int by_inode(const void *a, const void *b)
{
	unsigned long x = ((const struct conn *)a)->inode;
	unsigned long y = ((const struct conn *)b)->inode;

	return (x > y) - (x < y);
}

/* The connections of a process's network namespace. A namespace's are read once
 * where its processes follow each other. */
static void conns_of(struct conns *c, int proc)
{
	struct stat sb = {0};

	fstatat(proc, "ns/net", &sb, 0);
	if (sb.st_ino && sb.st_ino == c->netns)
		return;
	c->netns = sb.st_ino;
	c->n = 0;
	conns_read(c, proc, "net/tcp");
	conns_read(c, proc, "net/tcp6");
	if (c->n)
		qsort(c->all, c->n, sizeof(*c->all), by_inode);
}

static const struct conn *conn_of(struct conns *c, int proc, int fd)
{
	char name[32], link[64];
	struct conn key;
	ssize_t n;

	snprintf(name, sizeof(name), "fd/%d", fd);
	n = readlinkat(proc, name, link, sizeof(link) - 1);
	if (n < 0)
		return NULL;
	link[n] = '\0';
	if (sscanf(link, "socket:[%lu]", &key.inode) != 1 || !c->n)
		return NULL;
	return bsearch(&key, c->all, c->n, sizeof(key), by_inode);
}

/* --- a page --------------------------------------------------------------- */

/* What a process wrote may be no text. */
static json_t *text_of(char *text, size_t len)
{
	size_t i;

	text[len - 1] = '\0';
	for (i = 0; text[i]; i++)
		if (!isprint((unsigned char)text[i]))
			text[i] = '?';
	return json_string(text);
}

static bool row_read(int fd, uint32_t i, struct status_row *row)
{
	off_t at = (off_t)(sizeof(struct status_page) + i * sizeof(*row));
	uint32_t before, after;
	int tries;

	for (tries = 0; tries < TRIES; tries++) {
		if (pread(fd, row, sizeof(*row), at) != sizeof(*row) ||
		    pread(fd, &after, sizeof(after), at) != sizeof(after))
			return false;
		before = atomic_load(&row->seq);
		if (before == after && !(before & 1))
			return true;
	}
	/* It was stopped, or killed, while it wrote. */
	return true;
}

static void row_add(struct listing *l, int pid, const char *program,
		    const struct conn *conn, struct status_row *row)
{
	uint64_t since =
		l->now_ns > row->since_ns ? l->now_ns - row->since_ns : 0;
	json_t *reason = row->on_stream
				 ? json_string("")
				 : text_of(row->reason, sizeof(row->reason));

	json_array_append_new(
		l->rows,
		json_pack("{s:i, s:s, s:i, s:s, s:s, s:s, s:o, s:f, s:I, s:I, "
			  "s:I, s:I, s:I}",
			  "pid", pid, "program", program, "fd", row->fd,
			  "local", conn->local, "peer", conn->peer, "carrier",
			  row->on_stream ? "stream" : "tcp", "reason", reason,
			  "since_s", (double)since / 1e9, "rx_stream",
			  (json_int_t)atomic_load(&row->rx_stream), "tx_stream",
			  (json_int_t)atomic_load(&row->tx_stream), "rx_tcp",
			  (json_int_t)atomic_load(&row->rx_tcp), "tx_tcp",
			  (json_int_t)atomic_load(&row->tx_tcp), "demotions",
			  (json_int_t)row->demotions));
}

static void page_read(struct listing *l, int pid, int proc, int fd)
{
	struct status_page page;
	struct status_row row;
	json_t *program;
	uint32_t i, used;

	if (pread(fd, &page, sizeof(page), 0) != sizeof(page) ||
	    page.magic != STATUS_MAGIC || page.row_len != sizeof(row))
		return; /* of another version, or nothing of ours */
	used = atomic_load(&page.used);
	program = text_of(page.program, sizeof(page.program));
	conns_of(&l->conns, proc);
	l->processes++;
	for (i = 0; i < used && i < ROWS_MAX && row_read(fd, i, &row); i++) {
		const struct conn *conn =
			row.fd >= 0 ? conn_of(&l->conns, proc, row.fd) : NULL;

		if (conn)
			row_add(l, pid, json_string_value(program), conn, &row);
	}
	json_decref(program);
}

/* The page of a process, among its descriptors; -1: it has none, or is not
 * ours to look at. */
static int page_of(int proc)
{
	int dirfd = openat(proc, "fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = dirfd >= 0 ? fdopendir(dirfd) : NULL;
	struct dirent *entry;
	int fd = -1;

	while (dir && fd < 0 && (entry = readdir(dir))) {
		char link[sizeof(PAGE_LINK) + 1];
		ssize_t n =
			readlinkat(dirfd, entry->d_name, link, sizeof(link));
		struct stat sb;

		if (n != sizeof(PAGE_LINK) - 1 || memcmp(link, PAGE_LINK, n))
			continue;
		fd = openat(dirfd, entry->d_name,
			    O_RDONLY | O_NONBLOCK | O_CLOEXEC);
		/* The number may mean another file by now. */
		if (fd >= 0 && (fstat(fd, &sb) || !S_ISREG(sb.st_mode))) {
			close(fd);
			fd = -1;
		}
	}
	if (dir)
		closedir(dir);
	else if (dirfd >= 0)
		close(dirfd);
	return fd;
}

/* Has it the library in front? Not all that do have a page: one comes with the
 * first TCP connection. */
static bool has_lib(int proc)
{
	int fd = openat(proc, "maps", O_RDONLY | O_CLOEXEC);
	FILE *f = fd >= 0 ? fdopen(fd, "r") : NULL;
	char *line = NULL;
	size_t len = 0;
	bool found = false;

	while (f && !found && getline(&line, &len, f) > 0)
		found = strstr(line, "/libskein-socket.so") != NULL;
	free(line);
	if (f)
		fclose(f);
	else if (fd >= 0)
		close(fd);
	return found;
}

static void process_read(struct listing *l, int root, const char *name)
{
	int proc = openat(root, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC), fd;

	if (proc < 0)
		return; /* it has ended */
	fd = page_of(proc);
	if (fd >= 0 || has_lib(proc))
		json_array_append_new(l->running, json_integer(atoi(name)));
	if (fd >= 0) {
		page_read(l, atoi(name), proc, fd);
		close(fd);
	}
	close(proc);
}

/* --- printing -------------------------------------------------------------- */

static const char *str(const json_t *row, const char *key)
{
	return json_string_value(json_object_get(row, key));
}

static json_int_t num(const json_t *row, const char *key)
{
	return json_integer_value(json_object_get(row, key));
}

static int print_table(const struct listing *l)
{
	static const char *const heads[] = {"PID",     "<PROGRAM",  "<LOCAL",
					    "<PEER",   "<ON",	    "FOR s",
					    "READ B",  "WRITTEN B", "BACK",
					    "<WHY NOT"};
	struct table *t = table_new(heads, sizeof(heads) / sizeof(*heads));
	size_t running = json_array_size(l->running);
	const json_t *row;
	size_t i;

	json_array_foreach(l->rows, i, row)
	{
		table_cell(t, "%lld", (long long)num(row, "pid"));
		table_cell(t, "%s", str(row, "program"));
		table_cell(t, "%s", str(row, "local"));
		table_cell(t, "%s", str(row, "peer"));
		table_cell(t, "%s", str(row, "carrier"));
		table_cell(t, "%.1f",
			   json_real_value(json_object_get(row, "since_s")));
		table_cell(t, "%lld",
			   (long long)(num(row, "rx_stream") +
				       num(row, "rx_tcp")));
		table_cell(t, "%lld",
			   (long long)(num(row, "tx_stream") +
				       num(row, "tx_tcp")));
		table_cell(t, "%lld", (long long)num(row, "demotions"));
		table_cell(t, "%s", str(row, "reason"));
	}
	if (i)
		table_print(t, stdout);
	else
		puts("no TCP connection under skein run");
	printf("%s%zu process%s under skein run%s, %u with a TCP connection so "
	       "far\n",
	       i ? "\n" : "", running, running == 1 ? "" : "es",
	       geteuid() ? " by this user" : "", l->processes);
	table_free(t);
	return fflush(stdout) ? CMD_FAILED : CMD_OK;
}

int run_list(const char *cmd, bool json)
{
	struct listing l = {.rows = json_array(), .running = json_array()};
	DIR *root = opendir("/proc");
	struct dirent *entry;
	struct timespec ts;
	int rc;

	if (!root || !l.rows || !l.running) {
		out_error(cmd, "/proc cannot be read: %s", strerror(errno));
		json_decref(l.rows);
		json_decref(l.running);
		if (root)
			closedir(root);
		return CMD_FAILED;
	}
	clock_gettime(CLOCK_MONOTONIC, &ts);
	l.now_ns = (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
	while ((entry = readdir(root)))
		if (isdigit((unsigned char)entry->d_name[0]))
			process_read(&l, dirfd(root), entry->d_name);
	closedir(root);
	free(l.conns.all);
	if (!json) {
		rc = print_table(&l);
		json_decref(l.rows);
		json_decref(l.running);
		return rc;
	}
	return out_json(json_pack("{s:o, s:i, s:o}", "connections", l.rows,
				  "processes", (int)l.processes, "running",
				  l.running))
		       ? CMD_FAILED
		       : CMD_OK;
}
