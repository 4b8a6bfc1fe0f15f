/* SPDX-License-Identifier: MIT */
/*
 * states.c - the table of the QP state machine: which transitions there are,
 * and which attributes each must and may carry, by transport (IBA 11.2.5.2).
 * Alternate paths are refused: they are in no mask here.
 */
#include "dev/states.h"

#include <errno.h>
#include <stdbool.h>

#define STATES (IBV_QPS_SQE + 1)

struct transition {
	bool valid;
	int req; /* attributes, IBV_QP_STATE aside */
	int opt;
};

const uint8_t dev_wc_opcode[] = {
	[IBV_WR_RDMA_WRITE] = IBV_WC_RDMA_WRITE,
	[IBV_WR_RDMA_WRITE_WITH_IMM] = IBV_WC_RDMA_WRITE,
	[IBV_WR_SEND] = IBV_WC_SEND,
	[IBV_WR_SEND_WITH_IMM] = IBV_WC_SEND,
	[IBV_WR_RDMA_READ] = IBV_WC_RDMA_READ,
	[IBV_WR_ATOMIC_CMP_AND_SWP] = IBV_WC_COMP_SWAP,
	[IBV_WR_ATOMIC_FETCH_AND_ADD] = IBV_WC_FETCH_ADD,
	[IBV_WR_LOCAL_INV] = IBV_WC_LOCAL_INV,
	[IBV_WR_BIND_MW] = IBV_WC_BIND_MW,
	[IBV_WR_SEND_WITH_INV] = IBV_WC_SEND,
};

#define RTS_RC (IBV_QP_CUR_STATE | IBV_QP_ACCESS_FLAGS | IBV_QP_MIN_RNR_TIMER)
#define RTS_UC (IBV_QP_CUR_STATE | IBV_QP_ACCESS_FLAGS)
#define RTS_UD (IBV_QP_CUR_STATE | IBV_QP_QKEY)

#define INIT_C (IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS)
#define INIT_UD (IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY)

static const struct transition rc[STATES][STATES] = {
	[IBV_QPS_RESET][IBV_QPS_INIT] = {true, INIT_C, 0},
	[IBV_QPS_INIT][IBV_QPS_INIT] = {true, 0, INIT_C},
	[IBV_QPS_INIT][IBV_QPS_RTR] = {true,
				       IBV_QP_AV | IBV_QP_PATH_MTU |
					       IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
					       IBV_QP_MAX_DEST_RD_ATOMIC |
					       IBV_QP_MIN_RNR_TIMER,
				       IBV_QP_PKEY_INDEX | IBV_QP_ACCESS_FLAGS},
	[IBV_QPS_RTR][IBV_QPS_RTS] = {true,
				      IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
					      IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
					      IBV_QP_MAX_QP_RD_ATOMIC,
				      RTS_RC},
	[IBV_QPS_RTS][IBV_QPS_RTS] = {true, 0, RTS_RC},
	[IBV_QPS_RTS][IBV_QPS_SQD] = {true, 0, IBV_QP_EN_SQD_ASYNC_NOTIFY},
	[IBV_QPS_SQD][IBV_QPS_RTS] = {true, 0, RTS_RC},
	[IBV_QPS_SQD][IBV_QPS_SQD] =
		{true, 0,
		 IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
			 IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_MAX_DEST_RD_ATOMIC |
			 IBV_QP_ACCESS_FLAGS | IBV_QP_MIN_RNR_TIMER},
};

static const struct transition uc[STATES][STATES] = {
	[IBV_QPS_RESET][IBV_QPS_INIT] = {true, INIT_C, 0},
	[IBV_QPS_INIT][IBV_QPS_INIT] = {true, 0, INIT_C},
	[IBV_QPS_INIT][IBV_QPS_RTR] = {true,
				       IBV_QP_AV | IBV_QP_PATH_MTU |
					       IBV_QP_DEST_QPN | IBV_QP_RQ_PSN,
				       IBV_QP_PKEY_INDEX | IBV_QP_ACCESS_FLAGS},
	[IBV_QPS_RTR][IBV_QPS_RTS] = {true, IBV_QP_SQ_PSN, RTS_UC},
	[IBV_QPS_RTS][IBV_QPS_RTS] = {true, 0, RTS_UC},
	[IBV_QPS_RTS][IBV_QPS_SQD] = {true, 0, IBV_QP_EN_SQD_ASYNC_NOTIFY},
	[IBV_QPS_SQD][IBV_QPS_RTS] = {true, 0, RTS_UC},
	[IBV_QPS_SQD][IBV_QPS_SQD] = {true, 0, IBV_QP_ACCESS_FLAGS},
	[IBV_QPS_SQE][IBV_QPS_RTS] = {true, 0, RTS_UC},
};

static const struct transition ud[STATES][STATES] = {
	[IBV_QPS_RESET][IBV_QPS_INIT] = {true, INIT_UD, 0},
	[IBV_QPS_INIT][IBV_QPS_INIT] = {true, 0, INIT_UD},
	[IBV_QPS_INIT][IBV_QPS_RTR] = {true, 0,
				       IBV_QP_PKEY_INDEX | IBV_QP_QKEY},
	[IBV_QPS_RTR][IBV_QPS_RTS] = {true, IBV_QP_SQ_PSN, RTS_UD},
	[IBV_QPS_RTS][IBV_QPS_RTS] = {true, 0, RTS_UD},
	[IBV_QPS_RTS][IBV_QPS_SQD] = {true, 0, IBV_QP_EN_SQD_ASYNC_NOTIFY},
	[IBV_QPS_SQD][IBV_QPS_RTS] = {true, 0, RTS_UD},
	[IBV_QPS_SQD][IBV_QPS_SQD] = {true, 0, IBV_QP_PKEY_INDEX | IBV_QP_QKEY},
	[IBV_QPS_SQE][IBV_QPS_RTS] = {true, 0, RTS_UD},
};

static const struct transition *find(enum ibv_qp_type type,
				     enum ibv_qp_state from,
				     enum ibv_qp_state to)
{
	if (from >= STATES || to >= STATES)
		return NULL; /* ERR: only RESET and ERR, which need no row */
	switch (type) {
	case IBV_QPT_RC:
		return &rc[from][to];
	case IBV_QPT_UC:
		return &uc[from][to];
	case IBV_QPT_UD:
		return &ud[from][to];
	default:
		return NULL;
	}
}

int dev_states_check(enum ibv_qp_type type, enum ibv_qp_state from,
		     enum ibv_qp_state to, int mask)
{
	const struct transition *t;

	mask &= ~IBV_QP_STATE;
	if ((unsigned)from > IBV_QPS_ERR || (unsigned)to > IBV_QPS_ERR)
		return -EINVAL;
	/* Any state to RESET or ERR, with nothing else. */
	if (to == IBV_QPS_RESET || to == IBV_QPS_ERR)
		return mask & ~IBV_QP_CUR_STATE ? -EINVAL : 0;
	t = find(type, from, to);
	if (!t || !t->valid || (mask & t->req) != t->req ||
	    (mask & ~(t->req | t->opt)))
		return -EINVAL;
	return 0;
}

static int check_numbers(const struct ibv_qp_attr *a, int mask,
			 unsigned rd_atomic_max)
{
	if (mask & IBV_QP_PATH_MTU &&
	    (a->path_mtu < IBV_MTU_256 || a->path_mtu > IBV_MTU_4096))
		return -EINVAL;
	if ((mask & IBV_QP_TIMEOUT && a->timeout > 31) ||
	    (mask & IBV_QP_RETRY_CNT && a->retry_cnt > 7) ||
	    (mask & IBV_QP_RNR_RETRY && a->rnr_retry > 7) ||
	    (mask & IBV_QP_MIN_RNR_TIMER && a->min_rnr_timer > 31))
		return -EINVAL;
	if ((mask & IBV_QP_MAX_QP_RD_ATOMIC &&
	     a->max_rd_atomic > rd_atomic_max) ||
	    (mask & IBV_QP_MAX_DEST_RD_ATOMIC &&
	     a->max_dest_rd_atomic > rd_atomic_max))
		return -EINVAL;
	return 0;
}

int dev_states_check_values(const struct ibv_qp_attr *a, int mask,
			    unsigned rd_atomic_max)
{
	if (mask & IBV_QP_PORT && a->port_num != 1)
		return -EINVAL;
	if (mask & IBV_QP_PKEY_INDEX && a->pkey_index != 0)
		return -EINVAL;
	if (mask & IBV_QP_ACCESS_FLAGS &&
	    a->qp_access_flags &
		    ~(unsigned)(IBV_ACCESS_LOCAL_WRITE |
				IBV_ACCESS_REMOTE_WRITE |
				IBV_ACCESS_REMOTE_READ |
				IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND))
		return -EINVAL;
	/* RoCE: there are no LIDs */
	if (mask & IBV_QP_AV &&
	    (!a->ah_attr.is_global || a->ah_attr.port_num != 1))
		return -EINVAL;
	return check_numbers(a, mask, rd_atomic_max);
}

void dev_states_take(struct ibv_qp_attr *to, const struct ibv_qp_attr *a,
		     int mask)
{
	if (mask & IBV_QP_ACCESS_FLAGS)
		to->qp_access_flags = a->qp_access_flags;
	if (mask & IBV_QP_PKEY_INDEX)
		to->pkey_index = a->pkey_index;
	if (mask & IBV_QP_PORT)
		to->port_num = a->port_num;
	if (mask & IBV_QP_QKEY)
		to->qkey = a->qkey;
	if (mask & IBV_QP_AV)
		to->ah_attr = a->ah_attr;
	if (mask & IBV_QP_PATH_MTU)
		to->path_mtu = a->path_mtu;
	if (mask & IBV_QP_TIMEOUT)
		to->timeout = a->timeout;
	if (mask & IBV_QP_RETRY_CNT)
		to->retry_cnt = a->retry_cnt;
	if (mask & IBV_QP_RNR_RETRY)
		to->rnr_retry = a->rnr_retry;
	if (mask & IBV_QP_RQ_PSN)
		to->rq_psn = a->rq_psn & 0xffffff;
	if (mask & IBV_QP_SQ_PSN)
		to->sq_psn = a->sq_psn & 0xffffff;
	if (mask & IBV_QP_MAX_QP_RD_ATOMIC)
		to->max_rd_atomic = a->max_rd_atomic;
	if (mask & IBV_QP_MAX_DEST_RD_ATOMIC)
		to->max_dest_rd_atomic = a->max_dest_rd_atomic;
	if (mask & IBV_QP_MIN_RNR_TIMER)
		to->min_rnr_timer = a->min_rnr_timer;
	if (mask & IBV_QP_DEST_QPN)
		to->dest_qp_num = a->dest_qp_num & 0xffffff;
}

/* IBA 9.7.5.2.8, table 45: in units of 10 us. */
uint64_t dev_rnr_ns(unsigned code)
{
	static const uint32_t table[32] = {
		65536, 1,    2,	   3,	  4,	 6,	8,     12,
		16,    24,   32,   48,	  64,	 96,	128,   192,
		256,   384,  512,  768,	  1024,	 1536,	2048,  3072,
		4096,  6144, 8192, 12288, 16384, 24576, 32768, 49152,
	};

	return table[code & 31] * 10000ull;
}
