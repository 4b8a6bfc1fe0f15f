/* SPDX-License-Identifier: MIT */
/*
 * dev.c - chooses the device, and moves a QP through its states.
 *
 * The choice is a table of drivers; everything a driver does stays behind
 * struct dev_ops. The masks handed to modify_qp are exactly those that the
 * InfiniBand specification requires of the QP's type (IBA 11.2.5.2, the table
 * in ibv_modify_qp(3)): real drivers refuse a bit too many as well as one too
 * few.
 *
 * Thread rule: no state here; as safe as the device below.
 */
#include "dev/dev.h"

#include "env/env.h"
#include "env/sim/sim.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#define QPN_MASK 0xffffffu
#define PSN_MASK 0xffffffu
/* What a connection offers the peer when the device would take more: it is all
 * that ConnectX takes, and more only ties up responder resources. */
#define RD_ATOMIC_OFFER 16u
#define LID_MULTICAST 0xc000u /* from there on: IBA 4.1.3 */

enum {
	TIMEOUT_DEFAULT = 14, /* 67 ms before a retry */
	RETRY_CNT_DEFAULT = 7,
	RNR_RETRY_DEFAULT = 7, /* for ever */
	MIN_RNR_TIMER_DEFAULT = 12,
};

struct driver {
	const char *kind;
	int (*open)(struct skein_env *env, const char *name, int gid_index,
		    char *err, size_t err_len, struct dev **dev);
};

static const struct driver drivers[] = {
	{"soft", dev_soft_open},
	{"verbs", dev_verbs_open},
	{"sim", dev_sim_open},
};

#define N_DRIVERS (sizeof(drivers) / sizeof(drivers[0]))

/* A real device if there is a usable one, else soft. The reason that there
 * was none is kept: it is the first thing people ask. */
static int open_auto(struct skein_env *env, int gid_index, char *err,
		     size_t err_len, struct dev **dev)
{
	char no_verbs[256] = "";
	int rc;

	rc = dev_verbs_open(env, "", gid_index, no_verbs, sizeof(no_verbs),
			    dev);
	if (rc == 0)
		return 0;
	/* A GID that was asked for by number means the real device. */
	if (gid_index >= 0) {
		snprintf(err, err_len,
			 "GID %d, asked for by number, is a real device's "
			 "(for one of soft's name device soft): %.180s",
			 gid_index, no_verbs);
		return rc;
	}
	rc = dev_soft_open(env, "", -1, err, err_len, dev);
	if (rc)
		return rc;
	snprintf((*dev)->why, sizeof((*dev)->why), "automatic: %s", no_verbs);
	return 0;
}

static const struct driver *find_driver(const char *spec, const char **name)
{
	size_t i, n = strcspn(spec, ":");

	for (i = 0; i < N_DRIVERS; i++) {
		if (strlen(drivers[i].kind) != n ||
		    memcmp(drivers[i].kind, spec, n) != 0)
			continue;
		*name = spec[n] ? spec + n + 1 : "";
		return &drivers[i];
	}
	return NULL;
}

static void append(char *err, size_t err_len, const char *hint)
{
	size_t n = err_len ? strnlen(err, err_len) : 0;

	if (n + strlen(hint) < err_len)
		memcpy(err + n, hint, strlen(hint) + 1);
}

void dev_describe(const struct dev *dev, char *buf, size_t len)
{
	snprintf(buf, len, "%s (%s%s%s)", dev->ops->kind, dev->name,
		 dev->mode[0] ? ", " : "", dev->mode);
}

/* A test compares this line with what it asked for. */
static void announce(const struct dev *dev)
{
	char gid[INET6_ADDRSTRLEN], text[128];

	inet_ntop(AF_INET6, dev->gid.gid.raw, gid, sizeof(gid));
	dev_describe(dev, text, sizeof(text));
	env_log(dev->env, ENV_LOG_INFO, "device %s, GID %s: %s", text, gid,
		dev->why);
}

static int open_spec(struct skein_env *env, const char *spec, int gid_index,
		     char *err, size_t err_len, struct dev **dev)
{
	const struct driver *drv;
	const char *name;
	int rc;

	/* A simulated world has no other device. */
	if (sim_is(env))
		spec = "sim";
	if (!spec || !*spec || !strcmp(spec, "auto"))
		return open_auto(env, gid_index, err, err_len, dev);
	drv = find_driver(spec, &name);
	if (!drv) {
		snprintf(err, err_len,
			 "no device is called \"%.64s\": use auto, soft, "
			 "verbs or verbs:NAME (NAME as in ibv_devices)",
			 spec);
		return -EINVAL;
	}
	rc = drv->open(env, name, gid_index, err, err_len, dev);
	if (rc) {
		if (drv->open == dev_verbs_open)
			append(err, err_len, "; device soft needs no NIC");
		return rc;
	}
	if (!(*dev)->why[0])
		snprintf((*dev)->why, sizeof((*dev)->why), "asked for");
	return 0;
}

int dev_open(struct skein_env *env, const char *spec, int gid_index, char *err,
	     size_t err_len, struct dev **dev)
{
	int rc = open_spec(env, spec, gid_index, err, err_len, dev);

	if (!rc)
		announce(*dev);
	return rc;
}

void dev_close(struct dev *dev)
{
	if (dev)
		dev->ops->close(dev);
}

uint8_t dev_rd_atomic(const struct dev *dev)
{
	uint32_t n = dev->caps.rd_atomic_max;

	return (uint8_t)(n < RD_ATOMIC_OFFER ? n : RD_ATOMIC_OFFER);
}

void dev_qp_caps(const struct dev *dev, struct ibv_qp *qp,
		 struct dev_caps *caps)
{
	*caps = dev->caps;
	if (dev->ops->qp_caps)
		dev->ops->qp_caps(dev, qp, caps);
}

const char *dev_qp_link(const struct dev *dev, struct ibv_qp *qp)
{
	return dev->ops->qp_link ? dev->ops->qp_link(qp) : NULL;
}

void dev_path_now(struct dev *dev, struct dev_path *path)
{
	if (dev->ops->path) {
		dev->ops->path(dev, path);
		return;
	}
	path->gid = dev->gid;
	path->port = dev->port_attr;
}

void dev_qp_addr(struct dev *dev, struct ibv_qp *qp, uint32_t psn,
		 struct dev_qp_addr *addr)
{
	struct dev_path path;

	dev_path_now(dev, &path);
	memset(addr, 0, sizeof(*addr));
	addr->gid = path.gid.gid;
	addr->qpn = qp->qp_num & QPN_MASK;
	addr->psn = psn & PSN_MASK;
	addr->lid = path.port.lid;
	addr->mtu = (uint8_t)path.port.active_mtu;
	addr->rd_atomic = dev_rd_atomic(dev);
}

int dev_qp_init(struct dev *dev, struct ibv_qp *qp, int access)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT,
		.pkey_index = 0,
		.port_num = dev->port,
		.qp_access_flags = (unsigned)access,
	};

	return dev->ops->modify_qp(dev, qp, &attr,
				   IBV_QP_STATE | IBV_QP_PKEY_INDEX |
					   IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
}

/*
 * Ethernet has no LIDs: all goes by the global route. On InfiniBand that is
 * needed only to another subnet, or where the port or the subnet manager wants
 * it in every packet (port flag GRH_REQUIRED; a port without a LID).
 */
static bool route_global(const struct dev_path *path,
			 const struct dev_qp_addr *peer)
{
	return path->port.link_layer != IBV_LINK_LAYER_INFINIBAND ||
	       (path->port.flags & IBV_QPF_GRH_REQUIRED) ||
	       peer->gid.global.subnet_prefix !=
		       path->gid.gid.global.subnet_prefix;
}

/* peer came over the wire: what it says is checked, not asserted. */
static bool numbers_valid(const struct dev_qp_addr *peer)
{
	return peer->qpn <= QPN_MASK && peer->psn <= PSN_MASK &&
	       peer->mtu >= IBV_MTU_256 && peer->mtu <= IBV_MTU_4096;
}

static bool addr_valid(const struct dev_path *path,
		       const struct dev_qp_addr *peer)
{
	/* By LID: not a peer on Ethernet, nor a multicast LID. */
	return numbers_valid(peer) &&
	       (route_global(path, peer) ||
		(peer->lid && peer->lid < LID_MULTICAST));
}

static int fill_ah(struct dev *dev, const struct dev_qp_addr *peer,
		   const struct dev_qp_opts *opts, struct dev_path *path,
		   struct ibv_ah_attr *ah)
{
	dev_path_now(dev, path);
	if (!addr_valid(path, peer))
		return -EINVAL;
	if (path->gid.index < 0)
		return -EADDRNOTAVAIL;
	ah->port_num = dev->port;
	ah->sl = opts->sl;
	/* In another subnet it is the router's, which a path record of the
	 * subnet manager would name: no such query is made here. */
	if (path->port.link_layer == IBV_LINK_LAYER_INFINIBAND)
		ah->dlid = peer->lid;
	ah->is_global = route_global(path, peer);
	if (!ah->is_global)
		return 0;
	ah->grh.dgid = peer->gid;
	ah->grh.sgid_index = (uint8_t)path->gid.index;
	ah->grh.hop_limit = DEV_HOP_LIMIT;
	ah->grh.traffic_class = opts->traffic_class;
	return 0;
}

struct dev_qp_opts dev_qp_opts_full(const struct dev_qp_opts *opts)
{
	struct dev_qp_opts o = {0};

	if (opts)
		o = *opts;
	if (!o.timeout)
		o.timeout = TIMEOUT_DEFAULT;
	if (!o.retry_cnt)
		o.retry_cnt = RETRY_CNT_DEFAULT;
	if (!o.rnr_retry)
		o.rnr_retry = RNR_RETRY_DEFAULT;
	if (!o.min_rnr_timer)
		o.min_rnr_timer = MIN_RNR_TIMER_DEFAULT;
	return o;
}

const char *dev_qp_rtr_error(int err)
{
	switch (-err) {
	case EACCES:
		return "the two ends are different users of one host, and soft "
		       "joins the processes of one user";
	case EHOSTUNREACH:
		return "no link from its device to the other end's host (is "
		       "SKEIN_LINK=off there?)";
	default:
		return NULL;
	}
}

int dev_qp_rtr(struct dev *dev, struct ibv_qp *qp,
	       const struct dev_qp_addr *peer, const struct dev_qp_opts *opts)
{
	struct dev_qp_opts o = dev_qp_opts_full(opts);
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTR};
	int mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU |
		   IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
	struct dev_path path;
	int rc;

	rc = fill_ah(dev, peer, &o, &path, &attr.ah_attr);
	if (rc)
		return rc;
	attr.path_mtu = (enum ibv_mtu)peer->mtu;
	if (attr.path_mtu > path.port.active_mtu)
		attr.path_mtu = path.port.active_mtu;
	if (o.mtu && attr.path_mtu > o.mtu)
		attr.path_mtu = (enum ibv_mtu)o.mtu;
	attr.dest_qp_num = peer->qpn;
	attr.rq_psn = peer->psn;
	attr.max_dest_rd_atomic = dev_rd_atomic(dev);
	attr.min_rnr_timer = o.min_rnr_timer;
	if (qp->qp_type == IBV_QPT_RC)
		mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
	return dev->ops->modify_qp(dev, qp, &attr, mask);
}

/* Between hosts the device may have another default. */
static struct dev_qp_opts rts_opts(const struct dev *dev, struct ibv_qp *qp,
				   const struct dev_qp_opts *opts)
{
	struct dev_qp_opts o = {0};
	struct dev_caps caps;

	if (opts)
		o = *opts;
	dev_qp_caps(dev, qp, &caps);
	if (!o.timeout)
		o.timeout = caps.timeout;
	return dev_qp_opts_full(&o);
}

uint64_t dev_qp_patience_ns(const struct dev *dev, struct ibv_qp *qp,
			    const struct dev_qp_opts *opts)
{
	struct dev_qp_opts o = rts_opts(dev, qp, opts);

	return (o.retry_cnt + 1u) * (4096ull << o.timeout);
}

int dev_qp_rts(struct dev *dev, struct ibv_qp *qp, uint32_t psn,
	       const struct dev_qp_addr *peer, const struct dev_qp_opts *opts)
{
	struct dev_qp_opts o = rts_opts(dev, qp, opts);
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTS};
	int mask = IBV_QP_STATE | IBV_QP_SQ_PSN;

	if (!numbers_valid(peer))
		return -EINVAL;
	attr.sq_psn = psn & PSN_MASK;
	attr.timeout = o.timeout;
	attr.retry_cnt = o.retry_cnt;
	attr.rnr_retry = o.rnr_retry;
	attr.max_rd_atomic = dev_rd_atomic(dev);
	if (attr.max_rd_atomic > peer->rd_atomic)
		attr.max_rd_atomic = peer->rd_atomic;
	if (qp->qp_type == IBV_QPT_RC)
		mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
			IBV_QP_MAX_QP_RD_ATOMIC;
	return dev->ops->modify_qp(dev, qp, &attr, mask);
}

int dev_qp_ud(struct dev *dev, struct ibv_qp *qp, uint32_t qkey, uint32_t psn)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT,
		.pkey_index = 0,
		.port_num = dev->port,
		.qkey = qkey,
		.sq_psn = psn & PSN_MASK,
	};
	int rc;

	rc = dev->ops->modify_qp(dev, qp, &attr,
				 IBV_QP_STATE | IBV_QP_PKEY_INDEX |
					 IBV_QP_PORT | IBV_QP_QKEY);
	if (rc)
		return rc;
	attr.qp_state = IBV_QPS_RTR;
	rc = dev->ops->modify_qp(dev, qp, &attr, IBV_QP_STATE);
	if (rc)
		return rc;
	attr.qp_state = IBV_QPS_RTS;
	return dev->ops->modify_qp(dev, qp, &attr,
				   IBV_QP_STATE | IBV_QP_SQ_PSN);
}

int dev_ah_attr(struct dev *dev, const struct dev_qp_addr *peer,
		const struct dev_qp_opts *opts, struct ibv_ah_attr *attr)
{
	static const struct dev_qp_opts none;
	struct ibv_ah_attr a = {0};
	struct dev_path path;
	int rc;

	rc = fill_ah(dev, peer, opts ? opts : &none, &path, &a);
	if (!rc)
		*attr = a;
	return rc;
}

int dev_qp_err(struct dev *dev, struct ibv_qp *qp)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};

	return dev->ops->modify_qp(dev, qp, &attr, IBV_QP_STATE);
}
