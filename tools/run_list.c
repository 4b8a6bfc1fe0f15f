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
#include "pages.h"

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

#define ROWS_MAX 65536u
#define TRIES 100 /* to read a row while its process writes it */
#define SUM_TRIES 8

/* An established or ending connection, as the kernel has it. */
struct conn {
	unsigned long inode;
	char local[64], peer[64];
};

struct conns {
	struct conn *all;
	size_t n, cap;
	ino_t netns;
	int err; /* no descriptor was left */
};

struct listing {
	json_t *rows;
	json_t *running; /* PIDs of what runs under skein run */
	struct conns conns;
	int err;	    /* no descriptor was left */
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
		c->err = c->err ? c->err : pages_short();
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

static json_t *text_of(char *text, size_t len)
{
	pages_text(text, len);
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

static bool head_read(int fd, struct status_page *page)
{
	return pread(fd, page, sizeof(*page), 0) == sizeof(*page) &&
	       page->magic == STATUS_MAGIC &&
	       page->row_len == sizeof(struct status_row);
}

static void page_read(struct listing *l, int pid, int proc, int fd)
{
	struct status_page page;
	struct status_row row;
	json_t *program;
	uint32_t i, used;

	if (!head_read(fd, &page))
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

/* Each value is whole by itself: rows that change meanwhile do no harm. */
static void sum_rows(int fd, uint32_t used, struct run_sum *sum)
{
	struct status_row rows[64];
	off_t at = sizeof(struct status_page);
	ssize_t n;

	for (uint32_t i = 0; i < used && i < ROWS_MAX; i += 64) {
		n = pread(fd, rows, sizeof(rows), at) / (ssize_t)sizeof(*rows);
		for (ssize_t k = 0; k < n; k++) {
			sum->rx += atomic_load(&rows[k].rx_stream);
			sum->tx += atomic_load(&rows[k].tx_stream);
			if (rows[k].fd >= 0 && i + k < used)
				(*(rows[k].on_stream ? &sum->streams
						     : &sum->tcp))++;
		}
		if (n < 64)
			return;
		at += sizeof(rows);
	}
}

bool run_sum_read(int fd, struct run_sum *sum)
{
	struct status_page page, after;
	uint32_t seq;
	int tries;

	/* A process that was stopped in a move stays so: its bytes are then
	 * counted twice, or its row's fields are of two moments. */
	for (tries = 0; tries < SUM_TRIES; tries++) {
		if (!head_read(fd, &page))
			return false;
		*sum = (struct run_sum){.rx = atomic_load(&page.gone_rx),
					.tx = atomic_load(&page.gone_tx)};
		sum_rows(fd, atomic_load(&page.used), sum);
		seq = atomic_load(&page.seq);
		if (!(seq & 1) && head_read(fd, &after) &&
		    atomic_load(&after.seq) == seq)
			break;
	}
	return true;
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

struct looked_at {
	struct listing *l;
	int pid, proc;
	bool found;
};

/* A process has one page. */
static void on_page(void *arg, int fd)
{
	struct looked_at *at = arg;

	if (!at->found)
		page_read(at->l, at->pid, at->proc, fd);
	at->found = true;
}

static void process_read(struct listing *l, int root, const char *name)
{
	int proc = openat(root, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct looked_at at = {.l = l, .pid = atoi(name), .proc = proc};

	if (proc < 0) {
		l->err = pages_short(); /* else it has ended */
		return;
	}
	l->err = pages_each(proc, STATUS_NAME, on_page, &at);
	if (at.found || has_lib(proc))
		json_array_append_new(l->running, json_integer(at.pid));
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
	while (!l.err && (entry = readdir(root)))
		if (isdigit((unsigned char)entry->d_name[0]))
			process_read(&l, dirfd(root), entry->d_name);
	closedir(root);
	free(l.conns.all);
	if (!l.err)
		l.err = l.conns.err;
	if (l.err) {
		out_error(cmd, "/proc cannot be read: %s", strerror(-l.err));
		json_decref(l.rows);
		json_decref(l.running);
		return CMD_FAILED;
	}
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
