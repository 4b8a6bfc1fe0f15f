/* SPDX-License-Identifier: MIT */
/*
 * wire.c - a bad wire between network namespaces: a relay between TUN devices,
 * each of which it makes in the namespace of a process.
 *
 *	wire [--seed N] [--lost N] ... [--late-us N] [--cut-ms N] [--delay-us N]
 *	     [--rate BYTES] [--queue BYTES] NAME:PID:ADDRESS...
 *
 * A packet goes to the device that has its IPv4 destination. Each way to a
 * device has the same faults (fault.h), from a seed of its own; those of packets
 * are of 1,000. A bit flips, or an end is missing, behind the header of UDP, and
 * the UDP checksum is then right: only the receiver's own check can find it. TCP
 * and the rest find theirs by their checksums.
 *
 * Prints "ready", and at SIGTERM what happened on each way.
 */
#include "unit/soft/link/fault.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <netinet/ip.h>
#include <netinet/udp.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#define WAYS_MAX 16
#define PACKET_MAX 65536
#define BATCH 64
#define NS 1000000000ull

struct packet {
	uint64_t at, order; /* of the same time: as they came */
	int fd;
	size_t len;
	uint8_t bytes[];
};

struct way {
	char name[IFNAMSIZ];
	struct in_addr addr;
	int fd;
	struct fault fault;
};

static struct way ways[WAYS_MAX];
static struct pollfd polls[WAYS_MAX];
static unsigned n_ways;
/* What is on its way, the next one first: a heap. */
static struct packet **heap;
static size_t n_heap, heap_room;
static uint64_t order;
static volatile sig_atomic_t over;

static void die(const char *what)
{
	fprintf(stderr, "wire: %s: %s\n", what, strerror(errno));
	exit(1);
}

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * NS + (uint64_t)t.tv_nsec;
}

/* The heap. */

static bool is_before(const struct packet *a, const struct packet *b)
{
	return a->at < b->at || (a->at == b->at && a->order < b->order);
}

static void swap(size_t a, size_t b)
{
	struct packet *p = heap[a];

	heap[a] = heap[b];
	heap[b] = p;
}

static void push(struct packet *p)
{
	size_t i = n_heap++;

	if (i == heap_room) {
		heap_room = heap_room ? 2 * heap_room : 1024;
		heap = realloc(heap, heap_room * sizeof(struct packet *));
		if (!heap)
			die("memory");
	}
	p->order = order++;
	heap[i] = p;
	for (; i && is_before(heap[i], heap[(i - 1) / 2]); i = (i - 1) / 2)
		swap(i, (i - 1) / 2);
}

static struct packet *pop(void)
{
	struct packet *p = heap[0];
	size_t i = 0, least;

	heap[0] = heap[--n_heap];
	for (;; i = least) {
		least = i;
		for (size_t c = 2 * i + 1; c <= 2 * i + 2 && c < n_heap; c++)
			if (is_before(heap[c], heap[least]))
				least = c;
		if (least == i)
			return p;
		swap(i, least);
	}
}

/* Packets. */

static void sum_ip(struct iphdr *ip)
{
	const uint16_t *word = (const void *)ip;
	uint32_t sum = 0;

	ip->check = 0;
	for (int i = 0; i < ip->ihl * 2; i++)
		sum += word[i];
	while (sum >> 16)
		sum = (sum & 0xffff) + (sum >> 16);
	ip->check = (uint16_t)~sum;
}

/* To its fate; the headers are whole. */
static void change(struct packet *p, const struct fate *fate)
{
	struct iphdr *ip = (void *)p->bytes;
	size_t head = ip->ihl * 4u;
	struct udphdr *udp = (void *)(p->bytes + head);
	bool is_udp = ip->protocol == IPPROTO_UDP;

	if (is_udp)
		head += sizeof(*udp);
	if (fate->flip && p->len > head)
		p->bytes[head + (fate->flip - 1) / 8 % (p->len - head)] ^=
			(uint8_t)(1 << (fate->flip - 1) % 8);
	p->len = fate->len > head ? fate->len : head;
	if (fate->marked && (ip->tos & 3) != 0)
		ip->tos |= 3;
	if (is_udp) {
		ip->tot_len = htons((uint16_t)p->len);
		udp->len = htons((uint16_t)(p->len - ip->ihl * 4u));
		udp->check = 0;
	}
	sum_ip(ip);
}

static void fly(const struct way *w, uint64_t at, const uint8_t *bytes,
		size_t len, const struct fate *fate)
{
	struct packet *p = malloc(sizeof(*p) + len);

	if (!p)
		die("memory");
	p->at = at;
	p->fd = w->fd;
	p->len = len;
	memcpy(p->bytes, bytes, len);
	if (fate)
		change(p, fate);
	push(p);
}

static void take(const uint8_t *bytes, size_t len, uint64_t now)
{
	const struct iphdr *ip = (const void *)bytes;
	struct fate fate;
	unsigned i;

	if (len < sizeof(*ip) + sizeof(struct udphdr) || ip->version != 4)
		return;
	for (i = 0; i < n_ways && ways[i].addr.s_addr != ip->daddr; i++)
		;
	if (i == n_ways)
		return;
	fault_next(&ways[i].fault, now, len, &fate);
	if (fate.gone)
		return;
	if (fate.again_at)
		fly(&ways[i], fate.again_at, bytes, len, NULL);
	fly(&ways[i], fate.at, bytes, len,
	    fate.flip || fate.marked || fate.len != len ? &fate : NULL);
}

static void read_some(int fd)
{
	static uint8_t buf[PACKET_MAX];
	ssize_t n;
	int i;

	for (i = 0; i < BATCH; i++) {
		n = read(fd, buf, sizeof(buf));
		if (n <= 0)
			return;
		take(buf, (size_t)n, now_ns());
	}
}

static void deliver(void)
{
	uint64_t now = now_ns();
	struct packet *p;

	while (n_heap && heap[0]->at <= now) {
		p = pop();
		/* down, or full: lost, as on any wire */
		(void)!write(p->fd, p->bytes, p->len);
		free(p);
	}
}

static void run(const sigset_t *during)
{
	struct timespec t;
	uint64_t now, wait;
	unsigned i;

	while (!over) {
		now = now_ns();
		wait = !n_heap ? NS : heap[0]->at > now ? heap[0]->at - now : 0;
		wait = wait < NS ? wait : NS;
		t = (struct timespec){(time_t)(wait / NS), (long)(wait % NS)};
		if (ppoll(polls, n_ways, &t, during) < 0 && errno != EINTR)
			die("ppoll");
		for (i = 0; i < n_ways; i++)
			if (polls[i].revents & POLLIN)
				read_some(ways[i].fd);
		deliver();
	}
}

/* Setting up. */

static int tun_in(const char *pid, const char *name)
{
	struct ifreq r = {.ifr_flags = IFF_TUN | IFF_NO_PI};
	int own = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC), there, fd;
	char path[64];

	snprintf(path, sizeof(path), "/proc/%s/ns/net", pid);
	there = open(path, O_RDONLY | O_CLOEXEC);
	if (own < 0 || there < 0 || setns(there, CLONE_NEWNET))
		die(path);
	fd = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
	memcpy(r.ifr_name, name, strlen(name));
	if (fd < 0 || ioctl(fd, TUNSETIFF, &r))
		die("/dev/net/tun");
	if (setns(own, CLONE_NEWNET))
		die("setns");
	close(own);
	close(there);
	return fd;
}

static void add_way(char *word)
{
	struct way *w = &ways[n_ways];
	const char *name = strtok(word, ":"), *pid = strtok(NULL, ":");
	const char *addr = strtok(NULL, ":");

	if (n_ways == WAYS_MAX || !addr || strlen(name) >= IFNAMSIZ ||
	    inet_pton(AF_INET, addr, &w->addr) != 1) {
		fprintf(stderr, "wire: NAME:PID:ADDRESS, 16 at most\n");
		exit(2);
	}
	snprintf(w->name, sizeof(w->name), "%s", name);
	w->fd = tun_in(pid, name);
	polls[n_ways++] = (struct pollfd){.fd = w->fd, .events = POLLIN};
}

/* The field of an option, or NULL; *unit: what its number counts. */
static uint64_t *option(struct fault *f, const char *name, uint64_t *unit)
{
	*unit = 1;
	if (!strcmp(name, "rate"))
		return &f->rate;
	if (!strcmp(name, "queue"))
		return &f->queue;
	*unit = 1000;
	if (!strcmp(name, "late-us"))
		return &f->late_ns;
	if (!strcmp(name, "delay-us"))
		return &f->delay_ns;
	*unit = 1000000;
	return strcmp(name, "cut-ms") != 0 ? NULL : &f->cut_ns;
}

static void set(struct fault *f, uint64_t *seed, const char *name,
		const char *value)
{
	uint64_t v = strtoull(value, NULL, 0), unit, *field;

	for (unsigned i = 0; i <= FAULT_CUT; i++) {
		if (!strcmp(name, fault_names[i])) {
			f->of_1000[i] = (unsigned)v;
			return;
		}
	}
	field = option(f, name, &unit);
	if (!strcmp(name, "seed")) {
		*seed = v;
	} else if (field) {
		*field = v * unit;
	} else {
		fprintf(stderr, "wire: no option --%s\n", name);
		exit(2);
	}
}

static void stop(int number)
{
	(void)number;
	over = 1;
}

static void report(void)
{
	for (unsigned i = 0; i < n_ways; i++) {
		const struct fault *f = &ways[i].fault;

		printf("%s packets=%" PRIu64, ways[i].name, f->packets);
		for (unsigned k = 0; k < FAULT_KINDS; k++)
			printf(" %s=%" PRIu64, fault_names[k], f->counts[k]);
		putchar('\n');
	}
}

int main(int argc, char **argv)
{
	struct fault all = {0};
	sigset_t blocked, during;
	uint64_t seed = 1;
	int i;

	sigemptyset(&blocked);
	sigaddset(&blocked, SIGTERM);
	sigprocmask(SIG_BLOCK, &blocked, &during);
	signal(SIGTERM, stop);
	for (i = 1; i + 1 < argc && !strncmp(argv[i], "--", 2); i += 2)
		set(&all, &seed, argv[i] + 2, argv[i + 1]);
	for (; i < argc; i++)
		add_way(argv[i]);
	for (i = 0; i < (int)n_ways; i++) {
		ways[i].fault = all;
		fault_init(&ways[i].fault, seed + (uint64_t)i * 1000003);
	}
	puts("ready");
	fflush(stdout);
	run(&during);
	report();
	return 0;
}
