/* SPDX-License-Identifier: MIT */
/* fake_lib.c - see fake_lib.h. */
#include "fake_lib.h"

#include <errno.h>
#include <net/if.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

struct fake_lib fake;

struct fake_ctx {
	struct ibv_context ctx; /* first */
	struct fake_device *d;
};

static struct ibv_device ibdevs[4];

void fake_reset(void)
{
	memset(&fake, 0, sizeof(fake));
	fake.fork = IBV_FORK_UNNEEDED;
}

struct fake_device *fake_add(const char *name)
{
	struct fake_device *d = &fake.devices[fake.n++];

	d->name = name;
	d->transport = IBV_TRANSPORT_IB;
	d->ports = 1;
	d->port_state[0] = d->port_state[1] = IBV_PORT_ACTIVE;
	d->inline_limit = 220;
	return d;
}

static void *made(void *p)
{
	if (p)
		fake.objects++;
	return p;
}

static int gone(void *p)
{
	free(p);
	fake.objects--;
	return 0;
}

static struct fake_device *of(struct ibv_context *ctx)
{
	return ((struct fake_ctx *)(void *)ctx)->d;
}

static enum ibv_fork_status is_fork_initialized(void)
{
	return fake.fork;
}

static int fork_init(void)
{
	fake.fork_inits++;
	return fake.fork_rc;
}

static struct ibv_device **get_device_list(int *n)
{
	struct ibv_device **list;
	int i;

	if (fake.list_errno) {
		errno = fake.list_errno;
		return NULL;
	}
	list = made(calloc((size_t)fake.n + 1, sizeof(*list)));
	for (i = 0; i < fake.n; i++) {
		ibdevs[i].transport_type = fake.devices[i].transport;
		list[i] = &ibdevs[i];
	}
	*n = fake.n;
	return list;
}

static void free_device_list(struct ibv_device **list)
{
	gone(list);
}

static const char *get_device_name(struct ibv_device *dev)
{
	return fake.devices[dev - ibdevs].name;
}

static struct ibv_context *open_device(struct ibv_device *dev)
{
	struct fake_device *d = &fake.devices[dev - ibdevs];
	struct fake_ctx *c;

	if (d->open_errno) {
		errno = d->open_errno;
		return NULL;
	}
	c = made(calloc(1, sizeof(*c)));
	c->d = d;
	c->ctx.device = dev;
	c->ctx.async_fd = eventfd(0, EFD_CLOEXEC);
	return &c->ctx;
}

static int close_device(struct ibv_context *ctx)
{
	close(ctx->async_fd);
	return gone(ctx);
}

static int query_device(struct ibv_context *ctx, struct ibv_device_attr *attr)
{
	attr->phys_port_cnt = (uint8_t)of(ctx)->ports;
	attr->atomic_cap = IBV_ATOMIC_HCA;
	attr->max_qp_wr = 1000;
	attr->max_sge = 30;
	attr->max_qp_rd_atom = 16;
	attr->max_qp_init_rd_atom = 8;
	attr->max_srq = of(ctx)->srq_wr ? 10 : 0;
	attr->max_srq_wr = of(ctx)->srq_wr;
	attr->max_cqe = -1; /* some drivers do say such things */
	return 0;
}

static int query_port(struct ibv_context *ctx, uint8_t port,
		      struct ibv_port_attr *attr)
{
	attr->state = of(ctx)->port_state[port - 1];
	attr->max_msg_sz = 1u << 30;
	attr->active_mtu = IBV_MTU_1024;
	attr->lid = of(ctx)->lid;
	attr->flags = (uint8_t)of(ctx)->port_flags;
	attr->link_layer =
		attr->lid ? IBV_LINK_LAYER_INFINIBAND : IBV_LINK_LAYER_ETHERNET;
	return 0;
}

/* lo is in every namespace and has an all-zero MAC: fe80::200:ff:fe00:0. */
static ssize_t query_gid_table(struct ibv_context *ctx,
			       struct ibv_gid_entry *entries, size_t max,
			       uint32_t flags, size_t size)
{
	static const uint8_t lo_gid[16] = {0xfe, 0x80, 0, 0, 0,	   0,	0,
					   0,	 2,    0, 0, 0xff, 0xfe};
	uint32_t port, n = 0;

	if (of(ctx)->no_gid)
		return 0;
	for (port = 1; port <= (uint32_t)of(ctx)->ports && n < max; port++) {
		memcpy(entries[n].gid.raw, lo_gid, sizeof(lo_gid));
		entries[n].gid_index = 10 + port;
		entries[n].port_num = port;
		entries[n].gid_type = 2;
		if (of(ctx)->gid_index)
			entries[n].gid_index = (uint32_t)of(ctx)->gid_index;
		if (of(ctx)->lid || of(ctx)->gid_last) {
			entries[n].gid_type = 0;
			entries[n].gid.raw[15] = of(ctx)->gid_last;
		}
		entries[n].ndev_ifindex =
			of(ctx)->gid_elsewhere ? 99999 : if_nametoindex("lo");
		n++;
	}
	return n;
}

static struct ibv_pd *alloc_pd(struct ibv_context *ctx)
{
	struct ibv_pd *pd = made(calloc(1, sizeof(*pd)));

	pd->context = ctx;
	return pd;
}

static int dealloc_pd(struct ibv_pd *pd)
{
	return gone(pd);
}

static struct ibv_mr *reg_mr(struct ibv_pd *pd, void *addr, size_t len,
			     int access)
{
	if (of(pd->context)->reg_errno) {
		errno = of(pd->context)->reg_errno;
		return NULL;
	}
	return made(calloc(1, sizeof(struct ibv_mr)));
}

static int dereg_mr(struct ibv_mr *mr)
{
	return gone(mr);
}

static struct ibv_comp_channel *create_comp_channel(struct ibv_context *ctx)
{
	struct ibv_comp_channel *ch = made(calloc(1, sizeof(*ch)));

	ch->fd = eventfd(0, EFD_CLOEXEC);
	return ch;
}

static int destroy_comp_channel(struct ibv_comp_channel *ch)
{
	close(ch->fd);
	return gone(ch);
}

/* As the library: a read, which blocks unless the fd says not to. */
static int get_cq_event(struct ibv_comp_channel *ch, struct ibv_cq **cq,
			void **cq_ctx)
{
	uint64_t n;

	return read(ch->fd, &n, sizeof(n)) == sizeof(n) ? 0 : -1;
}

static int get_async_event(struct ibv_context *ctx, struct ibv_async_event *ev)
{
	uint64_t n;

	*ev = fake.event;
	return read(ctx->async_fd, &n, sizeof(n)) == sizeof(n) ? 0 : -1;
}

static struct ibv_cq *create_cq(struct ibv_context *ctx, int cqe, void *cq_ctx,
				struct ibv_comp_channel *ch, int vector)
{
	return made(calloc(1, sizeof(struct ibv_cq)));
}

static int destroy_cq(struct ibv_cq *cq)
{
	return gone(cq);
}

static struct ibv_qp *create_qp(struct ibv_pd *pd,
				struct ibv_qp_init_attr *attr)
{
	struct ibv_qp *qp;

	if ((attr->qp_type == IBV_QPT_UC && of(pd->context)->no_uc) ||
	    (attr->qp_type == IBV_QPT_UD && of(pd->context)->no_ud)) {
		errno = EOPNOTSUPP;
		return NULL;
	}
	if (attr->cap.max_inline_data > of(pd->context)->inline_limit) {
		fake.qp_refusals++;
		errno = EINVAL;
		return NULL;
	}
	/* Providers round up to what a whole WQE block holds. */
	attr->cap.max_inline_data = of(pd->context)->inline_limit;
	fake.qps_made++;
	qp = made(calloc(1, sizeof(*qp)));
	qp->context = pd->context;
	qp->qp_type = attr->qp_type;
	return qp;
}

static int destroy_qp(struct ibv_qp *qp)
{
	return gone(qp);
}

static int resize_cq(struct ibv_cq *cq, int cqe)
{
	return fake.resize_rc;
}

static struct ibv_srq *create_srq(struct ibv_pd *pd,
				  struct ibv_srq_init_attr *attr)
{
	attr->attr.max_wr *= 2;
	if (fake.srq_errno) {
		errno = fake.srq_errno;
		return NULL;
	}
	return made(calloc(1, sizeof(struct ibv_srq)));
}

static int destroy_srq(struct ibv_srq *srq)
{
	return fake.srq_errno ? fake.srq_errno : gone(srq);
}

static struct ibv_ah *create_ah(struct ibv_pd *pd, struct ibv_ah_attr *attr)
{
	return made(calloc(1, sizeof(struct ibv_ah)));
}

static int destroy_ah(struct ibv_ah *ah)
{
	return gone(ah);
}

static int data_in_order(struct ibv_qp *qp, enum ibv_wr_opcode op,
			 uint32_t flags)
{
	return op == IBV_WR_RDMA_WRITE ? of(qp->context)->in_order : 1;
}

static void unexpected(void)
{
	abort();
}

#define F(name, fn)                      \
	{                                \
		name, (void (*)(void))fn \
	}

static const struct {
	const char *name;
	void (*fn)(void);
} functions[] = {
	F("ibv_is_fork_initialized", is_fork_initialized),
	F("ibv_fork_init", fork_init),
	F("ibv_get_device_list", get_device_list),
	F("ibv_free_device_list", free_device_list),
	F("ibv_get_device_name", get_device_name),
	F("ibv_open_device", open_device),
	F("ibv_close_device", close_device),
	F("ibv_query_device", query_device),
	F("ibv_query_port", query_port),
	F("_ibv_query_gid_table", query_gid_table),
	F("ibv_alloc_pd", alloc_pd),
	F("ibv_dealloc_pd", dealloc_pd),
	F("ibv_reg_mr", reg_mr),
	F("ibv_dereg_mr", dereg_mr),
	F("ibv_create_comp_channel", create_comp_channel),
	F("ibv_destroy_comp_channel", destroy_comp_channel),
	F("ibv_get_cq_event", get_cq_event),
	F("ibv_get_async_event", get_async_event),
	F("ibv_create_cq", create_cq),
	F("ibv_destroy_cq", destroy_cq),
	F("ibv_resize_cq", resize_cq),
	F("ibv_create_srq", create_srq),
	F("ibv_destroy_srq", destroy_srq),
	F("ibv_create_ah", create_ah),
	F("ibv_destroy_ah", destroy_ah),
	F("ibv_create_qp", create_qp),
	F("ibv_destroy_qp", destroy_qp),
	F("ibv_query_qp_data_in_order", data_in_order),
};

static void *fake_open(const char *soname, char *why, size_t why_len)
{
	if (strcmp(soname, VERBS_LIB_SONAME))
		return NULL;
	return made(malloc(1));
}

static void *fake_sym(void *handle, const char *name, const char *version)
{
	void (*fn)(void) = unexpected;
	void *p;
	size_t i;

	if (fake.no_in_order && !strcmp(name, "ibv_query_qp_data_in_order"))
		return NULL;
	if (fake.no_fork_query && !strcmp(name, "ibv_is_fork_initialized"))
		return NULL;
	for (i = 0; i < sizeof(functions) / sizeof(functions[0]); i++)
		if (!strcmp(functions[i].name, name))
			fn = functions[i].fn;
	memcpy(&p, &fn, sizeof(p));
	return p;
}

static void fake_close(void *handle)
{
	gone(handle);
}

const struct verbs_loader fake_loader = {fake_open, fake_sym, fake_close};
