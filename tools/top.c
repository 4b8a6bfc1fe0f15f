/* SPDX-License-Identifier: MIT */
/*
 * top.c - finds the pages of processes and adds them up. Pages are mapped read
 * only; what they say is their process's word: it is checked and bounded.
 */
#include "top.h"

#include "bind/socket/status.h"
#include "env/local.h"
#include "out.h"
#include "pages.h"
#include "run_list.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* A process that has written its page so lately is still at work. */
#define FRESH_NS (COUNTERS_PERIOD_NS + COUNTERS_PERIOD_NS / 2)
#define PAGES_MAX 256u /* of one process */

struct reading {
	const char *cmd;
	bool says;
	struct top *t;
	uint64_t now_ns;
	int err;
	/* the process that is looked at */
	int pid;
	uint32_t pid_inside; /* as it knows itself, in its namespace */
	uid_t uid;
	char program[32];
	ino_t pages[PAGES_MAX];
	unsigned n_pages;
};

/* --- a process ----------------------------------------------------------- */

static ssize_t file_read(int proc, const char *name, char *buf, size_t len)
{
	int fd = openat(proc, name, O_RDONLY | O_CLOEXEC);
	ssize_t n;

	if (fd < 0)
		return -1;
	n = read(fd, buf, len - 1);
	close(fd);
	buf[n > 0 ? n : 0] = '\0';
	return n;
}

/* "NSpid:\t1234\t1\n": the last is its own namespace's. */
static uint32_t pid_inside(int proc, int pid)
{
	char buf[4096], *line, *end;

	if (file_read(proc, "status", buf, sizeof(buf)) <= 0)
		return (uint32_t)pid;
	line = strstr(buf, "\nNSpid:");
	end = line ? strchr(line + 1, '\n') : NULL;
	if (!end)
		return (uint32_t)pid;
	*end = '\0';
	line = strrchr(line, '\t');
	return line ? (uint32_t)strtoul(line + 1, NULL, 10) : (uint32_t)pid;
}

/* Room for one more behind n of size bytes each, or false. */
static bool room(struct reading *r, void **array, size_t n, size_t *cap,
		 size_t size)
{
	size_t more = 2 * *cap + 16;
	void *p;

	if (n < *cap)
		return true;
	p = realloc(*array, more * size);
	if (!p) {
		r->err = -ENOMEM;
		return false;
	}
	*array = p;
	*cap = more;
	return true;
}

static struct top_row *row_of(struct reading *r, const char *device, bool run)
{
	struct top *t = r->t;
	void *rows = t->rows;
	struct top_row *row;
	bool fits;

	for (size_t i = t->n; i-- && t->rows[i].pid == r->pid;)
		if (t->rows[i].run == run && !strcmp(t->rows[i].device, device))
			return &t->rows[i];
	fits = room(r, &rows, t->n, &t->cap, sizeof(*row));
	t->rows = rows;
	if (!fits)
		return NULL;
	row = &t->rows[t->n++];
	*row = (struct top_row){.pid = r->pid, .uid = r->uid, .run = run};
	memcpy(row->program, r->program, sizeof(row->program));
	snprintf(row->device, sizeof(row->device), "%s", device);
	return row;
}

/* --- pages --------------------------------------------------------------- */

/* The program may have another descriptor of it. */
static bool is_new(struct reading *r, int fd)
{
	struct stat sb;

	if (fstat(fd, &sb) || r->n_pages == PAGES_MAX)
		return false;
	for (unsigned i = 0; i < r->n_pages; i++)
		if (r->pages[i] == sb.st_ino)
			return false;
	r->pages[r->n_pages++] = sb.st_ino;
	return true;
}

static void left_out(const struct reading *r)
{
	if (r->says)
		out_error(r->cmd,
			  "process %d (%s) is left out: its counters are no "
			  "page of this version",
			  r->pid, r->program);
}

static int page_copy(int fd, struct counters_page *copy)
{
	void *mem;
	int rc = local_map(fd, sizeof(*copy), false, &mem);

	if (rc)
		return rc;
	counters_copy(mem, copy);
	local_unmap(mem, sizeof(*copy));
	return 0;
}

static void row_add(struct reading *r, const struct counters_record *rec)
{
	struct top_row *row = row_of(r, rec->device, false);
	uint64_t time_ns = r->now_ns;

	if (!row)
		return;
	/* Else it sleeps, or is stopped: its counts are so now. */
	if (rec->time_ns <= r->now_ns && r->now_ns - rec->time_ns < FRESH_NS)
		time_ns = rec->time_ns;
	if (time_ns > row->time_ns)
		row->time_ns = time_ns;
	/* A context's engines have their descriptors in a row, mostly. */
	if (!row->contexts ||
	    memcmp(row->last_ctx, rec->ctx, sizeof(rec->ctx)) != 0)
		row->contexts++;
	memcpy(row->last_ctx, rec->ctx, sizeof(rec->ctx));
	for (unsigned i = 0; i < COUNTERS; i++)
		row->values[i] += rec->values[i];
}

static void counters_page(void *arg, int fd)
{
	struct reading *r = arg;
	struct counters_record rec;
	struct counters_page copy;
	int rc;

	if (!is_new(r, fd))
		return;
	rc = page_copy(fd, &copy);
	if (rc == 0)
		rc = counters_decode(&copy, sizeof(copy), &rec);
	if (rc == 0 && rec.pid == r->pid_inside)
		row_add(r, &rec);
	else if (rc && rc != -EAGAIN)
		left_out(r);
}

static struct top_peer *peer_of(struct reading *r, const char *addr)
{
	struct top *t = r->t;
	void *peers = t->peers;
	struct top_peer *p;
	bool fits;

	for (size_t i = t->n_peers; i-- && t->peers[i].pid == r->pid;)
		if (!strcmp(t->peers[i].addr, addr))
			return &t->peers[i];
	fits = room(r, &peers, t->n_peers, &t->peers_cap, sizeof(*p));
	t->peers = peers;
	if (!fits)
		return NULL;
	p = &t->peers[t->n_peers++];
	*p = (struct top_peer){.pid = r->pid};
	memcpy(p->program, r->program, sizeof(p->program));
	snprintf(p->addr, sizeof(p->addr), "%s", addr);
	return p;
}

static void peer_add(struct reading *r, const uint8_t gid[16],
		     const uint64_t n[COUNTS], bool rest)
{
	char addr[INET6_ADDRSTRLEN] = "";
	struct in6_addr in6;
	struct top_peer *p;

	memcpy(&in6, gid, sizeof(in6));
	if (!rest && IN6_IS_ADDR_V4MAPPED(&in6))
		inet_ntop(AF_INET, gid + 12, addr, sizeof(addr));
	else if (!rest)
		inet_ntop(AF_INET6, gid, addr, sizeof(addr));
	p = peer_of(r, addr);
	for (unsigned i = 0; p && i < COUNTS; i++)
		p->n[i] += n[i];
}

static void link_page(void *arg, int fd)
{
	struct reading *r = arg;
	struct counts_record rec;
	void *mem;
	int rc;

	if (!is_new(r, fd))
		return;
	rc = local_map(fd, sizeof(struct counts_page), false, &mem);
	if (rc == 0) {
		rc = counts_read(mem, &rec);
		local_unmap(mem, sizeof(struct counts_page));
	}
	if (rc && rc != -EAGAIN)
		left_out(r);
	if (rc || rec.pid != r->pid_inside)
		return;
	for (uint32_t i = 0; i < rec.rows; i++)
		peer_add(r, rec.row[i].addr, rec.row[i].n, i == COUNTS_REST);
}

static void run_page(void *arg, int fd)
{
	struct reading *r = arg;
	struct top_row *row;
	struct run_sum sum;

	if (!run_sum_read(fd, &sum))
		return;
	row = row_of(r, "skein run", true);
	if (!row)
		return;
	row->time_ns = r->now_ns;
	row->run_tcp = sum.tcp;
	row->values[COUNTER_STREAMS] = sum.streams;
	row->values[COUNTER_STREAM_RX] = sum.rx;
	row->values[COUNTER_STREAM_TX] = sum.tx;
}

/* --- all ----------------------------------------------------------------- */

static void process_read(struct reading *r, int root, const char *name)
{
	int proc = openat(root, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct stat sb;
	int rc;

	if (proc < 0) {
		r->err = pages_short(); /* else it has ended */
		return;
	}
	r->pid = atoi(name);
	r->n_pages = 0;
	if (fstat(proc, &sb) ||
	    file_read(proc, "comm", r->program, sizeof(r->program)) <= 0) {
		r->err = pages_short();
		close(proc);
		return;
	}
	r->program[strcspn(r->program, "\n")] = '\0';
	pages_text(r->program, sizeof(r->program));
	r->uid = sb.st_uid;
	r->pid_inside = pid_inside(proc, r->pid);
	rc = pages_each(proc, COUNTERS_NAME, counters_page, r);
	if (!rc)
		rc = pages_each(proc, COUNTS_NAME, link_page, r);
	if (!rc)
		rc = pages_each(proc, STATUS_NAME, run_page, r);
	if (rc)
		r->err = rc;
	close(proc);
}

static int by_pid(const void *a, const void *b)
{
	const struct top_row *x = a, *y = b;

	if (x->pid != y->pid)
		return (x->pid > y->pid) - (x->pid < y->pid);
	return strcmp(x->device, y->device);
}

static int peers_by_pid(const void *a, const void *b)
{
	const struct top_peer *x = a, *y = b;

	if (x->pid != y->pid)
		return (x->pid > y->pid) - (x->pid < y->pid);
	return strcmp(x->addr, y->addr);
}

int top_read(const char *cmd, int pid, bool says, struct top *t)
{
	struct reading r = {.cmd = cmd, .says = says, .t = t};
	DIR *root = opendir("/proc");
	struct dirent *entry;
	struct timespec ts;

	*t = (struct top){0};
	if (!root)
		return -errno;
	clock_gettime(CLOCK_MONOTONIC, &ts);
	r.now_ns = (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
	while (!r.err && (entry = readdir(root)))
		if (isdigit((unsigned char)entry->d_name[0]) &&
		    (!pid || atoi(entry->d_name) == pid))
			process_read(&r, dirfd(root), entry->d_name);
	closedir(root);
	if (r.err) {
		top_free(t);
		return r.err;
	}
	if (t->n)
		qsort(t->rows, t->n, sizeof(*t->rows), by_pid);
	if (t->n_peers)
		qsort(t->peers, t->n_peers, sizeof(*t->peers), peers_by_pid);
	return 0;
}

void top_free(struct top *t)
{
	free(t->rows);
	free(t->peers);
	*t = (struct top){0};
}

const struct top_row *top_before(const struct top *before,
				 const struct top_row *row)
{
	for (size_t i = 0; i < before->n; i++) {
		const struct top_row *was = &before->rows[i];

		if (was->pid == row->pid && was->run == row->run &&
		    !strcmp(was->device, row->device))
			return was;
	}
	return NULL;
}
