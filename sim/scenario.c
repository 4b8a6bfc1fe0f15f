/* SPDX-License-Identifier: MIT */
/* scenario.c - the list of scenarios, and their reports. */
#include "sim/scenario.h"

#include "base/assert.h"
#include "dev/sim/link.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const struct scenario *const scenarios[] = {
	&scenario_rpc_basic,
	&scenario_kv,
	&scenario_verbs_rate,
	&scenario_qp_scaling,
	&scenario_inbound_outbound,
	&scenario_calibrate,
	&scenario_mcast_relay,
	&scenario_mcast_scaling,
	&scenario_mcast_engine,
	&scenario_mcast_first,
	&scenario_mcast_algorithms,
	&scenario_mcast_blocks,
	&scenario_mcast_overlap,
	&scenario_mcast_racks,
	&scenario_mcast_apt,
	&scenario_mcast_slow_link,
	&scenario_flock_sharing,
	&scenario_flock_ud,
	&scenario_flock_combining,
	&scenario_flock_threads,
	&scenario_flock_nodes,
	&scenario_mcast_groups,
	&scenario_rpc_handles,
	&scenario_mcast_large,
	&scenario_mcast_resume,
	&scenario_rfrpc_kv,
	&scenario_rfrpc_time,
	&scenario_rfrpc_batch,
	&scenario_rfrpc_bound,
	&scenario_rfrpc_bypass,
	&scenario_rrc_waiting,
	&scenario_krcore_connect,
	&scenario_krcore_data,
	&scenario_krcore_pool,
	&scenario_rrc_scale,
	&scenario_rrc_timeout,
	&scenario_rrc_ring,
	&scenario_rrc_util,
	&scenario_rrc_ycsb,
	&scenario_streams,
	&scenario_vqp,
	&scenario_krcore_death,
	&scenario_rfrpc_latency,
	&scenario_krcore_memory,
	&scenario_krcore_race,
	&scenario_rfrpc_skew,
	&scenario_rfrpc_roce,
	&scenario_rfrpc_qps,
	&scenario_rfrpc_posts,
	&scenario_rfrpc_nics,
};

#define N_SCENARIOS (sizeof(scenarios) / sizeof(scenarios[0]))

const struct scenario *scenario_at(unsigned i)
{
	return i < N_SCENARIOS ? scenarios[i] : NULL;
}

const struct scenario *scenario_find(const char *name)
{
	for (unsigned i = 0; i < N_SCENARIOS; i++)
		if (!strcmp(scenarios[i]->name, name))
			return scenarios[i];
	return NULL;
}

void scenario_hasten(struct nic_model *m, uint32_t times)
{
	uint32_t *const costs[] = {
		&m->open_us,	       &m->create_cq_cpu_ns,
		&m->create_cq_nic_ns,  &m->create_srq_cpu_ns,
		&m->create_srq_nic_ns, &m->create_qp_cpu_ns,
		&m->create_qp_nic_ns,  &m->create_ah_cpu_ns,
		&m->modify_cpu_ns,     &m->modify_init_nic_ns,
		&m->modify_rtr_nic_ns, &m->modify_rts_nic_ns,
		&m->modify_nic_ns,     &m->destroy_cpu_ns,
		&m->destroy_nic_ns,    &m->reg_mr_cpu_ns,
		&m->reg_mr_nic_ns,     &m->reg_page_ns,
	};

	for (unsigned i = 0; i < sizeof(costs) / sizeof(costs[0]); i++)
		*costs[i] /= times;
}

void scenario_nic(struct sim_world *w, const struct scenario_conf *conf)
{
	struct nic_model model;
	struct prng r;

	if (conf->nic) {
		model = *conf->nic;
	} else {
		skein_assert(!nic_model_find("connectx5", &model));
		sim_prng(w, 0x6e6963, &r);
		scenario_hasten(&model, 1 + (uint32_t)prng_below(&r, 32));
	}
	sim_net_set_model(w, &model);
}

void report_row(struct report *rep, const char *name, double value)
{
	if (rep->n_rows == REPORT_ROWS)
		return;
	rep->rows[rep->n_rows++] = (struct report_row){name, value};
}

void report_fail(struct report *rep, const char *fmt, ...)
{
	va_list ap;

	if (!rep->ok)
		return;
	rep->ok = false;
	va_start(ap, fmt);
	vsnprintf(rep->why, sizeof(rep->why), fmt, ap);
	va_end(ap);
}

void report_line(struct report *rep, const char *label, const double *cells)
{
	struct report_table *t = &rep->table;

	if (t->n_lines == TABLE_LINES)
		return;
	snprintf(t->labels[t->n_lines], sizeof(t->labels[0]), "%s", label);
	memcpy(t->cells[t->n_lines++], cells, t->n_cols * sizeof(*cells));
}

double report_paper(double paper)
{
	return paper > 0 ? paper : NAN;
}

double report_error(double ours, double paper)
{
	return paper > 0 ? 100 * (ours / paper - 1) : NAN;
}

void report_nic(struct report *rep, struct sim_node *node)
{
	struct sim_nic_counts c;

	sim_nic_counts(node, &c);
	report_row(rep, "nic_messages_out", (double)c.messages_out);
	report_row(rep, "nic_messages_in", (double)c.messages_in);
	report_row(rep, "nic_doorbells", (double)c.doorbells);
	report_row(rep, "nic_interrupts", (double)c.interrupts);
	report_row(rep, "nic_qp_cache_misses", (double)c.ctx_misses);
	report_row(rep, "nic_mr_cache_misses", (double)c.mr_misses);
}

void report_add(struct report *rep, uint64_t hash, uint64_t virtual_ns,
		uint64_t events)
{
	rep->hash = prng_mix(rep->hash ^ hash);
	rep->virtual_ns += virtual_ns;
	rep->events += events;
}

void report_world(struct report *rep, struct sim_world *w)
{
	if (*sim_blamed(w))
		report_fail(rep, "%s", sim_blamed(w));
	rep->hash = sim_hash(w);
	rep->virtual_ns = sim_now(w);
	rep->events = sim_events(w);
}
