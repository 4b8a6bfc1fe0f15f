/* SPDX-License-Identifier: MIT */
/*
 * top_print.c - the counters as a table, as JSON, as Prometheus text. One list
 * of metrics for all three.
 */
#include "top.h"

#include "base/fmt.h"
#include "out.h"

#include <errno.h>
#include <math.h>
#include <unistd.h>

struct metric {
	const char *name; /* of JSON; Prometheus: skein_NAME or _total */
	enum counter counter;
	bool now; /* a gauge: how many there are */
	bool run; /* processes under skein run have it, too */
	const char *help;
};

static const struct metric metrics[] = {
	{"opened_connections", COUNTER_CONNS_OPENED, true, false,
	 "Connections that are up and were opened here"},
	{"accepted_connections", COUNTER_CONNS_ACCEPTED, true, false,
	 "Connections that are up and were accepted"},
	{"udp_connections", COUNTER_CONNS_UDP, true, false,
	 "Of these, connections carried by the UDP link"},
	{"tcp_connections", COUNTER_CONNS_TCP, true, false,
	 "Of these, connections carried by the TCP link"},
	{"connections_opened", COUNTER_OPENED, false, false,
	 "Connections opened here so far"},
	{"connections_accepted", COUNTER_ACCEPTED, false, false,
	 "Connections accepted so far"},
	{"connections_broken", COUNTER_BROKEN, false, false,
	 "Connections that were lost"},
	{"garbage", COUNTER_GARBAGE, false, false,
	 "Times a peer sent what the protocol does not allow"},
	{"handshakes_refused", COUNTER_REFUSED, false, false,
	 "Handshakes refused as too many"},
	{"handshakes_timed_out", COUNTER_TIMEOUTS, false, false,
	 "Half-open handshakes given up"},
	{"peers_dead", COUNTER_DEATHS, false, false, "Peers found dead"},
	{"calls", COUNTER_CALLS, false, false, "Calls made"},
	{"calls_served", COUNTER_SERVED, false, false, "Calls taken in"},
	{"messages", COUNTER_MESSAGES, false, false,
	 "Messages sent: work requests posted, and records of streams"},
	{"message_bytes", COUNTER_BYTES, false, false, "Bytes of messages"},
	{"wakeups", COUNTER_WAKEUPS, false, false,
	 "Completion events that woke an engine"},
	{"streams", COUNTER_STREAMS, true, true, "Streams that are open"},
	{"stream_read_bytes", COUNTER_STREAM_RX, false, true,
	 "Bytes that the program read from streams"},
	{"stream_written_bytes", COUNTER_STREAM_TX, false, true,
	 "Bytes that the program wrote to streams"},
};
#define METRICS (sizeof(metrics) / sizeof(*metrics))

static const struct {
	const char *name; /* of JSON; Prometheus: skein_link_NAME_total */
	const char *help;
} counts[COUNTS] = {
	[COUNTS_SENT] = {"sent", "Packets sent to the peer"},
	[COUNTS_TAKEN] = {"taken", "Packets of the peer that were taken in"},
	[COUNTS_RETRIES] = {"retries", "Timeouts without an acknowledgement"},
	[COUNTS_GAPS] = {"gaps", "Gaps that the peer told of"},
	[COUNTS_RNRS] = {"rnr_naks",
			 "Times that the peer had no receive posted"},
	[COUNTS_BEHIND_GAP] = {"dropped_behind_gap",
			       "Packets dropped: one before was missing"},
	[COUNTS_REPEATED] = {"dropped_repeated",
			     "Packets dropped: carried out before"},
	[COUNTS_NO_RECEIVE] = {"dropped_no_receive",
			       "Packets dropped: no receive was posted"},
	[COUNTS_REFUSED] = {"dropped_refused",
			    "Packets of UC dropped: not allowed"},
	[COUNTS_STRANGE] = {"dropped_strange",
			    "Packets dropped: answers to nothing asked"},
	[COUNTS_STATE] = {"dropped_state",
			  "Packets dropped: the queue pair was not ready"},
	[COUNTS_MALFORMED] = {"dropped_malformed",
			      "Packets dropped: not of the protocol"},
	[COUNTS_ICRC] = {"dropped_icrc", "Packets dropped: a wrong ICRC"},
	[COUNTS_NO_QP] = {"dropped_no_qp", "Packets dropped: no queue pair"},
	[COUNTS_ADDRESS] = {"dropped_address",
			    "Packets dropped: not from the peer's address"},
	[COUNTS_CLEAR] = {"dropped_clear",
			  "Packets dropped: not sealed, where there is a key"},
	[COUNTS_UD] = {"dropped_ud",
		       "Datagrams dropped: no receive, or another Q_Key"},
};

/* A second, or NAN where it is not known. */
static double rate(const struct top_row *was, const struct top_row *row,
		   enum counter c)
{
	if (!was || row->values[c] < was->values[c])
		return NAN;
	if (row->values[c] == was->values[c])
		return 0;
	if (row->time_ns <= was->time_ns)
		return NAN;
	return (double)(row->values[c] - was->values[c]) /
	       ((double)(row->time_ns - was->time_ns) / 1e9);
}

/* --- table --------------------------------------------------------------- */

static void cell_rate(struct table *t, const struct top_row *was,
		      const struct top_row *row, enum counter c)
{
	double v = rate(was, row, c);
	char buf[FMT_LEN];

	if (isnan(v))
		table_cell(t, "-");
	else
		table_cell(t, "%s", fmt_count(buf, sizeof(buf), v));
}

static void cell_bytes(struct table *t, double v)
{
	char buf[FMT_LEN];

	if (isnan(v))
		table_cell(t, "-");
	else
		table_cell(t, "%s", fmt_bytes(buf, sizeof(buf), (uint64_t)v));
}

static void cell_now(struct table *t, const struct top_row *row, enum counter c)
{
	table_cell(t, "%llu", (unsigned long long)row->values[c]);
}

static const char *links(const struct top_row *row)
{
	bool udp = row->values[COUNTER_CONNS_UDP];
	bool tcp = row->values[COUNTER_CONNS_TCP];

	if (udp && tcp)
		return "udp, tcp";
	return udp ? "udp" : tcp ? "tcp" : "-";
}

static void row_context(struct table *t, const struct top_row *was,
			const struct top_row *row)
{
	table_cell(t, "%u", row->contexts);
	table_cell(t, "%s", row->device);
	table_cell(t, "%s", links(row));
	cell_now(t, row, COUNTER_CONNS_OPENED);
	cell_now(t, row, COUNTER_CONNS_ACCEPTED);
	cell_rate(t, was, row, COUNTER_CALLS);
	cell_rate(t, was, row, COUNTER_SERVED);
	cell_rate(t, was, row, COUNTER_MESSAGES);
	cell_bytes(t, rate(was, row, COUNTER_BYTES));
	cell_rate(t, was, row, COUNTER_WAKEUPS);
}

static void row_run(struct table *t, const struct top_row *row)
{
	table_cell(t, "-");
	table_cell(t, "%s", row->device);
	for (int i = 0; i < 8; i++)
		table_cell(t, "-");
}

static void row_cells(struct table *t, const struct top_row *was,
		      const struct top_row *row)
{
	table_cell(t, "%d", row->pid);
	table_cell(t, "%u", (unsigned)row->uid);
	table_cell(t, "%s", row->program);
	if (row->run)
		row_run(t, row);
	else
		row_context(t, was, row);
	cell_now(t, row, COUNTER_STREAMS);
	cell_bytes(t, rate(was, row, COUNTER_STREAM_RX) +
			      rate(was, row, COUNTER_STREAM_TX));
	if (row->run) {
		table_cell(t, "-");
		table_cell(t, "-");
		return;
	}
	cell_now(t, row, COUNTER_BROKEN);
	cell_now(t, row, COUNTER_GARBAGE);
}

static void peers_table(const struct top *t)
{
	static const char *const heads[] = {"PID",  "<PROGRAM", "<PEER",
					    "SENT", "TAKEN",	"RETRIES",
					    "GAPS", "RNR",	"DROPPED"};
	struct table *table = table_new(heads, sizeof(heads) / sizeof(*heads));
	const struct top_peer *p;
	uint64_t dropped;
	unsigned i;

	for (p = t->peers; p < t->peers + t->n_peers; p++) {
		table_cell(table, "%d", p->pid);
		table_cell(table, "%s", p->program);
		table_cell(table, "%s", *p->addr ? p->addr : "-");
		for (i = 0; i < COUNTS_BEHIND_GAP; i++)
			table_cell(table, "%llu", (unsigned long long)p->n[i]);
		for (dropped = 0; i < COUNTS; i++)
			dropped += p->n[i];
		table_cell(table, "%llu", (unsigned long long)dropped);
	}
	putchar('\n');
	table_print(table, stdout);
	table_free(table);
}

void top_table(const struct top *before, const struct top *t)
{
	static const char *const heads[] = {
		"PID",	  "UID",      "<PROGRAM", "CTX",     "<DEVICE",
		"<LINK",  "OPENED",   "ACCEPTED", "CALLS/s", "SERVED/s",
		"MSGS/s", "SENT B/s", "WAKES/s",  "STREAMS", "STREAM B/s",
		"BROKEN", "GARBAGE"};
	struct table *table = table_new(heads, sizeof(heads) / sizeof(*heads));

	for (size_t i = 0; i < t->n; i++)
		row_cells(table, top_before(before, &t->rows[i]), &t->rows[i]);
	if (t->n)
		table_print(table, stdout);
	else
		printf("no process%s has a Skein context\n",
		       geteuid() ? " of this user" : "");
	table_free(table);
	if (t->n_peers)
		peers_table(t);
}

/* --- JSON ---------------------------------------------------------------- */

static bool has(const struct top_row *row, const struct metric *m)
{
	return !row->run || m->run;
}

static json_t *row_json(const struct top_row *was, const struct top_row *row)
{
	json_t *o = json_pack("{s:i, s:i, s:s, s:s}", "pid", row->pid, "uid",
			      (int)row->uid, "program", row->program, "device",
			      row->device);
	json_t *rates = json_object();
	const struct metric *m;

	if (row->run)
		json_object_set_new(o, "run_tcp_connections",
				    json_integer(row->run_tcp));
	else
		json_object_set_new(o, "contexts", json_integer(row->contexts));
	for (m = metrics; m < metrics + METRICS; m++) {
		if (!has(row, m))
			continue;
		json_object_set_new(
			o, m->name,
			json_integer((json_int_t)row->values[m->counter]));
		if (!m->now)
			json_object_set_new(
				rates, m->name,
				out_num(rate(was, row, m->counter)));
	}
	json_object_set_new(o, "per_s", rates);
	return o;
}

static json_t *peer_json(const struct top_peer *p)
{
	json_t *o = json_pack("{s:i, s:s, s:s?}", "pid", p->pid, "program",
			      p->program, "peer", *p->addr ? p->addr : NULL);

	for (unsigned i = 0; i < COUNTS; i++)
		json_object_set_new(o, counts[i].name,
				    json_integer((json_int_t)p->n[i]));
	return o;
}

int top_json(const struct top *before, const struct top *t)
{
	json_t *rows = json_array(), *peers = json_array();

	for (size_t i = 0; i < t->n; i++)
		json_array_append_new(rows,
				      row_json(top_before(before, &t->rows[i]),
					       &t->rows[i]));
	for (size_t i = 0; i < t->n_peers; i++)
		json_array_append_new(peers, peer_json(&t->peers[i]));
	return out_json(json_pack("{s:o, s:o}", "processes", rows, "link_peers",
				  peers));
}

/* --- Prometheus ---------------------------------------------------------- */

/* The value of a label. What a process says of itself is printable already. */
static void label(FILE *f, const char *text)
{
	for (; *text; text++) {
		if (*text == '"' || *text == '\\')
			fputc('\\', f);
		fputc(*text, f);
	}
}

static void head(FILE *f, const char *name, const char *end, bool now,
		 const char *help)
{
	fprintf(f, "# HELP skein_%s%s %s\n# TYPE skein_%s%s %s\n", name, end,
		help, name, end, now ? "gauge" : "counter");
}

static void sample(FILE *f, const char *name, const char *end,
		   const struct top_row *row, uint64_t value)
{
	fprintf(f, "skein_%s%s{pid=\"%d\",program=\"", name, end, row->pid);
	label(f, row->program);
	fputs("\",device=\"", f);
	label(f, row->device);
	fprintf(f, "\"} %llu\n", (unsigned long long)value);
}

static void peers_prometheus(const struct top *t, FILE *f)
{
	const struct top_peer *p;
	char name[64];

	for (unsigned i = 0; i < COUNTS; i++) {
		snprintf(name, sizeof(name), "link_%s", counts[i].name);
		head(f, name, "_total", false, counts[i].help);
		for (p = t->peers; p < t->peers + t->n_peers; p++) {
			fprintf(f, "skein_%s_total{pid=\"%d\",program=\"", name,
				p->pid);
			label(f, p->program);
			fprintf(f, "\",peer=\"%s\"} %llu\n", p->addr,
				(unsigned long long)p->n[i]);
		}
	}
}

void top_prometheus(const struct top *t, FILE *f)
{
	const struct metric *m;
	size_t i;

	head(f, "contexts", "", true, "Contexts that are open");
	for (i = 0; i < t->n; i++)
		if (!t->rows[i].run)
			sample(f, "contexts", "", &t->rows[i],
			       t->rows[i].contexts);
	for (m = metrics; m < metrics + METRICS; m++) {
		const char *end = m->now ? "" : "_total";

		head(f, m->name, end, m->now, m->help);
		for (i = 0; i < t->n; i++)
			if (has(&t->rows[i], m))
				sample(f, m->name, end, &t->rows[i],
				       t->rows[i].values[m->counter]);
	}
	head(f, "run_tcp_connections", "", true,
	     "Connections of programs under skein run that are on TCP");
	for (i = 0; i < t->n; i++)
		if (t->rows[i].run)
			sample(f, "run_tcp_connections", "", &t->rows[i],
			       t->rows[i].run_tcp);
	peers_prometheus(t, f);
}
