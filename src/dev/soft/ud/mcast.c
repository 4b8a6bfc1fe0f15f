/* SPDX-License-Identifier: MIT */
/*
 * mcast.c - QPs join and leave multicast groups, and senders find them.
 *
 * To attach is to bind a socket to the name of group and QP number: what is
 * posted after attach_mcast() has returned finds it, because a sender reads the
 * list after the post. A child that the process forked may hold the name for
 * longer; its QP is then nobody's, as for any datagram.
 */
#include "dev/soft/ud/mcast.h"

#include "dev/soft/ud/ud.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define LIST "/proc/thread-self/net/unix"
#define NAME "skein0.mc."
#define GID_HEX 32

struct soft_group {
	struct list_node link; /* soft_ud.groups; soft.lock */
	union ibv_gid gid;
	int fd;
};

bool soft_gid_group(const union ibv_gid *gid)
{
	static const unsigned char mapped[12] = {[10] = 0xff, [11] = 0xff};

	return gid->raw[0] == 0xff ||
	       (!memcmp(gid->raw, mapped, 12) && (gid->raw[12] & 0xf0) == 0xe0);
}

uint64_t soft_group_bit(const union ibv_gid *gid)
{
	unsigned i, h = 0;

	for (i = 0; i < 16; i++)
		h = h * 31 + gid->raw[i];
	return 1ull << (h ^ h >> 6 ^ h >> 12) % 64;
}

static socklen_t name_of(const union ibv_gid *gid, uint32_t qpn,
			 struct sockaddr_un *un)
{
	char *at = un->sun_path + 1;
	int i;

	memset(un, 0, sizeof(*un));
	un->sun_family = AF_UNIX;
	at = stpcpy(at, NAME);
	for (i = 0; i < 16; i++)
		at += sprintf(at, "%02x", gid->raw[i]);
	at += sprintf(at, ".%06x", qpn);
	return (socklen_t)(at - (char *)un);
}

static struct soft_group *group_find(struct soft_qp *q,
				     const union ibv_gid *gid)
{
	struct soft_group *g;
	struct list_node *n;

	for (n = q->ud->groups.next; n != &q->ud->groups; n = n->next) {
		g = container_of(n, struct soft_group, link);
		if (!memcmp(&g->gid, gid, sizeof(*gid)))
			return g;
	}
	return NULL;
}

static void bits_tell(struct soft_qp *q)
{
	struct list_node *n;
	uint64_t bits = 0;

	for (n = q->ud->groups.next; n != &q->ud->groups; n = n->next)
		bits |= soft_group_bit(
			&container_of(n, struct soft_group, link)->gid);
	/* relaxed: before attach_mcast() returns it is told by the name's
	 * socket; after detach_mcast() one on its way may still arrive */
	atomic_store_explicit(&q->self->groups, bits, memory_order_relaxed);
}

static int group_new(struct soft_qp *q, const union ibv_gid *gid)
{
	struct soft_group *g = env_alloc(q->s->env, sizeof(*g));
	struct sockaddr_un un;
	socklen_t len = name_of(gid, q->ex.qp_base.qp_num, &un);
	int err;

	if (!g)
		return -ENOMEM;
	g->gid = *gid;
	list_add_tail(&q->ud->groups, &g->link);
	/* before the name: a sender that finds the name also finds the bit */
	bits_tell(q);
	g->fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (g->fd >= 0 && !bind(g->fd, (struct sockaddr *)&un, len))
		return 0;
	err = -errno;
	if (g->fd >= 0)
		close(g->fd);
	list_del(&g->link);
	bits_tell(q);
	env_free(q->s->env, g);
	return err;
}

int soft_attach_mcast(struct dev *dev, struct ibv_qp *qp,
		      const union ibv_gid *gid, uint16_t lid)
{
	struct soft *s = soft_of_dev(dev);
	struct soft_qp *q = soft_qp_of(qp);
	int err = 0;

	if (!soft_here(s))
		return -EPERM;
	if (!q->ud || !soft_gid_group(gid))
		return -EINVAL;
	if (access(LIST, R_OK))
		return -EOPNOTSUPP;
	pthread_mutex_lock(&s->lock);
	if (!group_find(q, gid))
		err = group_new(q, gid);
	pthread_mutex_unlock(&s->lock);
	return err;
}

int soft_detach_mcast(struct dev *dev, struct ibv_qp *qp,
		      const union ibv_gid *gid, uint16_t lid)
{
	struct soft *s = soft_of_dev(dev);
	struct soft_qp *q = soft_qp_of(qp);
	struct soft_group *g;

	if (!soft_here(s))
		return -EPERM;
	if (!q->ud)
		return -EINVAL;
	pthread_mutex_lock(&s->lock);
	g = group_find(q, gid);
	if (g) {
		list_del(&g->link);
		bits_tell(q);
		close(g->fd);
		env_free(s->env, g);
	}
	pthread_mutex_unlock(&s->lock);
	return g ? 0 : -EINVAL;
}

static int hex(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* A name of ours at the end of a line of the list. */
static bool parse(const char *line, struct soft_member *m)
{
	const char *at = strstr(line, "@" NAME);
	int i, d;

	if (!at)
		return false;
	memset(m, 0, sizeof(*m));
	at += 1 + strlen(NAME);
	for (i = 0; i < GID_HEX; i++) {
		d = hex(*at++);
		if (d < 0)
			return false;
		m->gid.raw[i / 2] = (uint8_t)(m->gid.raw[i / 2] << 4 | d);
	}
	if (*at++ != '.')
		return false;
	for (i = 0; i < 6; i++) {
		d = hex(*at++);
		if (d < 0)
			return false;
		m->qpn = m->qpn << 4 | (uint32_t)d;
	}
	return *at == '\n' || *at == 0;
}

static bool has(const struct soft_member *a, uint32_t n,
		const struct soft_member *m)
{
	while (n--)
		if (a[n].qpn == m->qpn &&
		    !memcmp(&a[n].gid, &m->gid, sizeof(m->gid)))
			return true;
	return false;
}

static int grow(struct soft *s, struct soft_member **a, uint32_t n,
		uint32_t *cap)
{
	uint32_t more = *cap ? *cap * 2 : 16;
	struct soft_member *b = env_alloc(s->env, more * sizeof(*b));

	if (!b)
		return -ENOMEM;
	if (n)
		memcpy(b, *a, n * sizeof(*b));
	env_free(s->env, *a);
	*a = b;
	*cap = more;
	return 0;
}

int soft_members(struct soft *s, struct soft_member **members, uint32_t *n)
{
	struct soft_member *a = NULL, m;
	uint32_t k = 0, cap = 0;
	char line[256];
	int err = 0;
	FILE *f;

	f = fopen(LIST, "re");
	if (!f)
		return -errno;
	while (!err && fgets(line, sizeof(line), f)) {
		/* The list may show one twice, while others come and go. */
		if (!parse(line, &m) || has(a, k, &m))
			continue;
		if (k == cap)
			err = grow(s, &a, k, &cap);
		if (!err)
			a[k++] = m;
	}
	fclose(f);
	if (err) {
		env_free(s->env, a);
		return err;
	}
	*members = a;
	*n = k;
	return 0;
}
