/* SPDX-License-Identifier: MIT */
/*
 * ud_storm PROCESSES QPS KILLED STOPPED - many UD senders to one receiver: some
 * processes are killed at random moments, some stopped and continued.
 *
 * Every sender QP sends MESSAGES numbered messages, each when the one before it
 * was answered, asleep in between. The receiver answers each (to the address
 * that the message brought along) and has as many receives as there can be
 * messages under way, so that none may be lost: what a living sender sent
 * arrives once, in order, whole. No retransmission, but in harsh mode, which
 * loses messages: there what was not answered in time is sent again, and what
 * came already is answered again. Exit status 0 when all
 * living ones have been served; prints what it did.
 *
 * SKEIN_TEST_DEVICE chooses the device, soft by default.
 */
#include "dev/dev.h"
#include "dev/mem.h"
#include "env/env.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MESSAGES 8u
#define BYTES 200u
#define SLOT 256u
#define QKEY 0x5eed
#define ANSWERS 512u
/* Without a new message or an ended sender: no limit of the whole, which a busy
 * machine decides. */
#define DEADLINE_S 60

#define check(x)                                                               \
	do {                                                                   \
		if (!(x)) {                                                    \
			fprintf(stderr, "ud_storm: %s:%d: %s: %s\n", __FILE__, \
				__LINE__, #x, strerror(errno));                \
			exit(1);                                               \
		}                                                              \
	} while (0)

struct message {
	uint32_t process, qp, seq;
	unsigned char body[BYTES - 12];
};

struct end {
	struct skein_env *env;
	struct dev *dev;
	struct ibv_pd *pd;
	struct ibv_comp_channel *ch;
	struct ibv_cq *cq;
	struct mem_region *mem;
};

static bool lossy; /* harsh mode */
static uint32_t n_processes, n_qps, n_killed, n_stopped;

static void end_open(struct end *e, int cqe, size_t mem)
{
	const char *spec = getenv("SKEIN_TEST_DEVICE");
	char err[256] = "";

	memset(e, 0, sizeof(*e));
	check(!env_real_new(&e->env));
	if (dev_open(e->env, spec ? spec : "soft", -1, err, sizeof(err),
		     &e->dev)) {
		fprintf(stderr, "ud_storm: %s\n", err);
		exit(1);
	}
	check(!e->dev->ops->alloc_pd(e->dev, &e->pd));
	check(!e->dev->ops->create_comp_channel(e->dev, &e->ch));
	check(!e->dev->ops->create_cq(e->dev, cqe, NULL, e->ch, &e->cq));
	check(!mem_region_new(e->dev, e->pd, "storm", mem,
			      IBV_ACCESS_LOCAL_WRITE, 1, &e->mem));
}

static void end_close(struct end *e)
{
	const struct dev_ops *ops = e->dev->ops;

	mem_region_free(e->mem);
	check(!ops->destroy_cq(e->dev, e->cq));
	check(!ops->destroy_comp_channel(e->dev, e->ch));
	check(!ops->dealloc_pd(e->dev, e->pd));
	dev_close(e->dev);
	env_real_free(e->env);
}

static struct ibv_qp *qp_new(struct end *e, uint32_t sends, uint32_t recvs)
{
	struct ibv_qp_init_attr init = {.send_cq = e->cq,
					.recv_cq = e->cq,
					.qp_type = IBV_QPT_UD,
					.cap = {.max_send_wr = sends,
						.max_recv_wr = recvs,
						.max_send_sge = 1,
						.max_recv_sge = 1}};
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_INIT,
				.port_num = e->dev->port,
				.qkey = QKEY};
	const struct dev_ops *ops = e->dev->ops;
	struct ibv_qp *qp;

	check(!ops->create_qp(e->dev, e->pd, &init, 0, &qp));
	check(!ops->modify_qp(e->dev, qp, &a,
			      IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
				      IBV_QP_QKEY));
	a.qp_state = IBV_QPS_RTR;
	check(!ops->modify_qp(e->dev, qp, &a, IBV_QP_STATE));
	a.qp_state = IBV_QPS_RTS;
	check(!ops->modify_qp(e->dev, qp, &a, IBV_QP_STATE | IBV_QP_SQ_PSN));
	return qp;
}

static char *slot(struct end *e, uint64_t n)
{
	return (char *)e->mem->addr + n * SLOT;
}

static void post_recv(struct end *e, struct ibv_qp *qp, uint64_t n)
{
	struct ibv_sge g = {(uintptr_t)slot(e, n), SLOT, e->mem->mr->lkey};
	struct ibv_recv_wr wr = {.wr_id = n, .sg_list = &g, .num_sge = 1}, *bad;

	check(!ibv_post_recv(qp, &wr, &bad));
}

static void post_send(struct end *e, struct ibv_qp *qp, uint64_t n,
		      struct ibv_ah *ah, uint32_t qpn, uint64_t id)
{
	struct ibv_sge g = {(uintptr_t)slot(e, n), BYTES, e->mem->mr->lkey};
	struct ibv_send_wr wr = {.wr_id = id,
				 .sg_list = &g,
				 .num_sge = 1,
				 .opcode = IBV_WR_SEND,
				 .send_flags = IBV_SEND_SIGNALED},
			   *bad;

	wr.wr.ud.ah = ah;
	wr.wr.ud.remote_qpn = qpn;
	wr.wr.ud.remote_qkey = QKEY;
	check(!ibv_post_send(qp, &wr, &bad));
}

static void message_make(struct message *m, uint32_t process, uint32_t qp,
			 uint32_t seq)
{
	m->process = process;
	m->qp = qp;
	m->seq = seq;
	memset(m->body, (int)(process * 31 + qp * 7 + seq), sizeof(m->body));
}

static void message_check(const char *at, uint32_t process, uint32_t qp,
			  uint32_t seq)
{
	struct message want;

	message_make(&want, process, qp, seq);
	if (memcmp(at, &want, BYTES)) {
		struct message m;

		memcpy(&m, at, sizeof(m));
		fprintf(stderr,
			"ud_storm: expected message %u of %u.%u, got %u of "
			"%u.%u\n",
			seq, process, qp, m.seq, m.process, m.qp);
		exit(1);
	}
}

/*
 * A sender: slot 2 i sends of QP i, 2 i + 1 takes the answer.
 */
struct sender {
	/* a message's buffer is the device's until its completion, which may
	 * come after the answer */
	bool *busy, *due;
	struct end e;
	uint32_t me, to;
	struct ibv_ah *ah;
	struct ibv_qp **qps;
	uint32_t *seq, done;
};

static uint32_t qp_of(struct sender *s, uint32_t qpn)
{
	uint32_t i = 0;

	while (s->qps[i]->qp_num != qpn)
		i++;
	return i;
}

static void sender_send(struct sender *s, uint32_t i)
{
	s->due[i] = s->busy[i];
	if (s->busy[i])
		return;
	s->busy[i] = true;
	message_make((void *)slot(&s->e, 2 * i), s->me, i, s->seq[i]);
	post_send(&s->e, s->qps[i], 2 * i, s->ah, s->to, 2 * i);
}

/* To a message that was sent twice. */
static bool old_answer(struct sender *s, uint32_t i)
{
	struct message m;

	memcpy(&m, slot(&s->e, 2 * i + 1) + 40, sizeof(m));
	return m.seq < s->seq[i];
}

/* Nothing is under way any more: what is missing was lost. */
static void sender_again(struct sender *s)
{
	uint32_t i;

	for (i = 0; i < n_qps; i++)
		if (s->seq[i] < MESSAGES)
			sender_send(s, i);
}

static void sender_wc(struct sender *s, const struct ibv_wc *wc)
{
	uint32_t i = qp_of(s, wc->qp_num);

	if (wc->status != IBV_WC_SUCCESS) {
		fprintf(stderr, "ud_storm: sender %u: status %d\n", s->me,
			wc->status);
		exit(1);
	}
	if (wc->wr_id % 2 == 0) {
		s->busy[i] = false;
		if (s->due[i])
			sender_send(s, i);
		return;
	}
	check(wc->src_qp == s->to);
	if (lossy && old_answer(s, i)) {
		post_recv(&s->e, s->qps[i], 2 * i + 1);
		return;
	}
	message_check(slot(&s->e, 2 * i + 1) + 40, s->me, i, s->seq[i]);
	post_recv(&s->e, s->qps[i], 2 * i + 1);
	if (++s->seq[i] == MESSAGES)
		s->done++;
	else
		sender_send(s, i);
}

static void sender_wait(struct sender *s)
{
	struct pollfd p = {.fd = s->e.ch->fd, .events = POLLIN};
	struct dev *dev = s->e.dev;
	struct ibv_cq *cq;
	struct ibv_wc wc;
	int n;

	for (;;) {
		check(!ibv_req_notify_cq(s->e.cq, 0));
		while ((n = ibv_poll_cq(s->e.cq, 1, &wc)) == 1)
			sender_wc(s, &wc);
		check(n == 0);
		if (s->done == n_qps)
			return;
		/* without limit: the receiver ends all when nothing moves */
		n = poll(&p, 1, lossy ? 300 : -1);
		check(n >= 0 || errno == EINTR);
		if (n == 0)
			sender_again(s);
		if (n <= 0)
			continue;
		if (!dev->ops->get_cq_event(dev, s->e.ch, &cq))
			dev->ops->ack_cq_events(dev, cq, 1);
	}
}

static void sender_main(uint32_t me, int go)
{
	struct sender s = {.me = me};
	struct ibv_ah_attr attr = {.is_global = 1};
	uint32_t i;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	end_open(&s.e, (int)((lossy ? 512 : 4) * n_qps),
		 (size_t)n_qps * 2 * SLOT);
	s.qps = calloc(n_qps, sizeof(struct ibv_qp *));
	s.seq = calloc(n_qps, sizeof(uint32_t));
	s.busy = calloc(n_qps, sizeof(bool));
	s.due = calloc(n_qps, sizeof(bool));
	for (i = 0; i < n_qps; i++) {
		s.qps[i] = qp_new(&s.e, lossy ? 256 : 2, 2);
		post_recv(&s.e, s.qps[i], 2 * i + 1);
	}
	/* all at once */
	check(read(go, &s.to, sizeof(s.to)) == sizeof(s.to));
	attr.grh.dgid = s.e.dev->gid.gid;
	attr.grh.sgid_index = (uint8_t)s.e.dev->gid.index;
	attr.grh.hop_limit = 1;
	attr.port_num = s.e.dev->port;
	check(!s.e.dev->ops->create_ah(s.e.dev, s.e.pd, &attr, &s.ah));
	for (i = 0; i < n_qps; i++)
		sender_send(&s, i);
	sender_wait(&s);
	_exit(0);
}

/*
 * The receiver: slots below recvs receive, ANSWERS behind them send.
 */
enum fate {
	LIVES,
	TO_KILL,
	TO_STOP,
	KILLED,
	STOPPED,
};

struct victim {
	pid_t pid;
	enum fate fate;
	uint32_t at; /* messages that came before */
	bool ended;
};

struct receiver {
	struct end e;
	struct ibv_qp *qp;
	struct ibv_ah *ah;
	uint32_t recvs, answers, got, dead, over, stops;
	uint32_t *next; /* by process and QP */
	struct victim *v;
	unsigned rnd;
};

static uint32_t draw(struct receiver *r, uint32_t n)
{
	return (uint32_t)rand_r(&r->rnd) % n;
}

/* Which process is killed or stopped, and after how many messages: in the first
 * six tenths of them. */
static void fates(struct receiver *r)
{
	uint32_t i, n, all = n_processes * n_qps * MESSAGES;

	for (n = 0; n < n_killed + n_stopped; n++) {
		do
			i = draw(r, n_processes);
		while (r->v[i].fate != LIVES);
		r->v[i].fate = n < n_killed ? TO_KILL : TO_STOP;
		r->v[i].at = draw(r, all * 6 / 10);
	}
}

/* One that was through before its turn came: another takes its place. */
static void replace(struct receiver *r, uint32_t i)
{
	uint32_t n, j = draw(r, n_processes);

	for (n = 0; n < n_processes; n++, j = (j + 1) % n_processes) {
		if (r->v[j].fate != LIVES || r->v[j].ended)
			continue;
		r->v[j].fate = r->v[i].fate;
		r->v[j].at = 0;
		break;
	}
	r->v[i].fate = LIVES;
}

static void strike(struct receiver *r)
{
	struct victim *v;
	uint32_t i;

	for (i = 0; i < n_processes; i++) {
		v = &r->v[i];
		if ((v->fate != TO_KILL && v->fate != TO_STOP) ||
		    v->at > r->got)
			continue;
		if (v->ended) {
			replace(r, i);
		} else if (v->fate == TO_KILL) {
			kill(v->pid, SIGKILL);
			v->fate = KILLED;
			r->dead++;
		} else {
			kill(v->pid, SIGSTOP);
			v->fate = STOPPED;
			r->stops++;
		}
	}
}

static void answer(struct receiver *r, const struct ibv_wc *wc)
{
	const char *at = slot(&r->e, wc->wr_id);
	uint32_t out = r->recvs + r->answers++ % ANSWERS;
	struct ibv_ah_attr attr;

	if (!r->ah) {
		check(!dev_ah_from_wc(r->e.dev, wc, (const void *)at, &attr));
		check(!r->e.dev->ops->create_ah(r->e.dev, r->e.pd, &attr,
						&r->ah));
	}
	memcpy(slot(&r->e, out), at + 40, BYTES);
	post_send(&r->e, r->qp, out, r->ah, wc->src_qp, UINT64_MAX);
}

static void receiver_wc(struct receiver *r, const struct ibv_wc *wc)
{
	struct message m;
	uint32_t *next;

	check(wc->status == IBV_WC_SUCCESS);
	if (wc->wr_id == UINT64_MAX)
		return; /* an answer has left */
	check(wc->byte_len == BYTES + 40);
	memcpy(&m, slot(&r->e, wc->wr_id) + 40, sizeof(m));
	check(m.process < n_processes && m.qp < n_qps);
	next = &r->next[m.process * n_qps + m.qp];
	if (!lossy || m.seq >= *next) {
		message_check(slot(&r->e, wc->wr_id) + 40, m.process, m.qp,
			      *next);
		++*next;
		r->got++;
	}
	answer(r, wc);
	post_recv(&r->e, r->qp, wc->wr_id);
	strike(r);
}

static void reap(struct receiver *r)
{
	uint32_t i;
	pid_t pid;
	int st;

	while ((pid = waitpid(-1, &st, WNOHANG)) > 0) {
		for (i = 0; r->v[i].pid != pid; i++)
			;
		r->v[i].ended = true;
		r->over++;
		if (WIFSIGNALED(st) && WTERMSIG(st) == SIGKILL &&
		    r->v[i].fate == KILLED)
			continue;
		if (!WIFEXITED(st) || WEXITSTATUS(st)) {
			fprintf(stderr, "ud_storm: sender %u ended with %x\n",
				i, (unsigned)st);
			exit(1);
		}
	}
}

/* All the others are through: the stopped go on. */
static void last_ones(struct receiver *r)
{
	uint32_t i;

	for (i = 0; i < n_processes; i++)
		if (!r->v[i].ended && r->v[i].fate != STOPPED)
			return;
	for (i = 0; i < n_processes; i++)
		if (r->v[i].fate == STOPPED) {
			kill(r->v[i].pid, SIGCONT);
			r->v[i].fate = LIVES;
		}
}

/* Sender QPs that have not got all their answers, the first few by name. */
static void tell_missing(struct receiver *r)
{
	uint32_t i, told = 0, all = n_processes * n_qps;

	for (i = 0; i < all && told < 8; i++) {
		if (r->next[i] == MESSAGES || r->v[i / n_qps].ended)
			continue;
		fprintf(stderr, "ud_storm: of sender %u.%u %u of %u came\n",
			i / n_qps, i % n_qps, r->next[i], MESSAGES);
		told++;
	}
}

static int time_scale(void)
{
	const char *scale = getenv("SKEIN_TEST_TIME_SCALE");
	int n = scale ? atoi(scale) : 1;

	return n > 1 ? n : 1;
}

static void receiver_run(struct receiver *r)
{
	int patience_s = DEADLINE_S * time_scale();
	time_t end = time(NULL) + patience_s;
	uint32_t idle = 0, moved = 0;
	struct ibv_wc wc[16];
	int n, i;

	while (r->over < n_processes) {
		n = ibv_poll_cq(r->e.cq, 16, wc);
		check(n >= 0);
		for (i = 0; i < n; i++)
			receiver_wc(r, &wc[i]);
		if (n) {
			idle = 0;
			continue;
		}
		if (++idle % 16 == 0) {
			reap(r);
			last_ones(r);
			poll(NULL, 0, 1);
		}
		if (r->got + r->over != moved) {
			moved = r->got + r->over;
			end = time(NULL) + patience_s;
		}
		if (time(NULL) < end)
			continue;
		fprintf(stderr,
			"ud_storm: timed out: %u messages came, %u of %u "
			"ended, and nothing more in %d s\n",
			r->got, r->over, n_processes, patience_s);
		tell_missing(r);
		exit(1);
	}
}

static void counts(struct receiver *r, uint32_t *living, uint32_t *lost)
{
	uint32_t i, j;

	*living = *lost = 0;
	for (i = 0; i < n_processes; i++)
		for (j = 0; j < n_qps; j++) {
			if (r->v[i].fate == KILLED)
				continue;
			++*living;
			*lost += MESSAGES - r->next[i * n_qps + j];
		}
}

static void descriptors(void)
{
	struct rlimit l;

	check(!getrlimit(RLIMIT_NOFILE, &l));
	l.rlim_cur = l.rlim_max;
	check(!setrlimit(RLIMIT_NOFILE, &l));
	/* five a process for the receiver */
	if (l.rlim_cur < 64 + 8ul * n_processes) {
		printf("skip: %lu descriptors are too few\n",
		       (unsigned long)l.rlim_cur);
		exit(77);
	}
}

int main(int argc, char **argv)
{
	uint32_t i, living, lost;
	struct receiver r;
	char device[128];
	int go[2];

	check(argc == 5);
	n_processes = (uint32_t)atoi(argv[1]);
	n_qps = (uint32_t)atoi(argv[2]);
	n_killed = (uint32_t)atoi(argv[3]);
	n_stopped = (uint32_t)atoi(argv[4]);
	lossy = getenv("SKEIN_SOFT_HARSH") && *getenv("SKEIN_SOFT_HARSH");
	descriptors();
	memset(&r, 0, sizeof(r));
	r.rnd = (unsigned)time(NULL);
	r.v = calloc(n_processes, sizeof(*r.v));
	r.next = calloc((size_t)n_processes * n_qps, sizeof(*r.next));
	check(!pipe(go));
	for (i = 0; i < n_processes; i++) {
		r.v[i].pid = fork();
		check(r.v[i].pid >= 0);
		if (r.v[i].pid == 0) {
			close(go[1]);
			sender_main(i, go[0]);
		}
	}
	r.recvs = 2048;
	end_open(&r.e, 8192, (size_t)(r.recvs + ANSWERS) * SLOT);
	dev_describe(r.e.dev, device, sizeof(device));
	printf("skein: device %s, GID %d: asked for\n", device,
	       r.e.dev->gid.index);
	r.qp = qp_new(&r.e, ANSWERS, r.recvs);
	for (i = 0; i < r.recvs; i++)
		post_recv(&r.e, r.qp, i);
	fates(&r);
	for (i = 0; i < n_processes; i++)
		check(write(go[1], &r.qp->qp_num, sizeof(uint32_t)) ==
		      sizeof(uint32_t));
	receiver_run(&r);
	counts(&r, &living, &lost);
	printf("%u senders in %u processes: %u processes killed, %u stopped "
	       "for a while; %u messages arrived, %u of the %u living senders' "
	       "lost\n",
	       n_processes * n_qps, n_processes, r.dead, r.stops, r.got, lost,
	       living);
	check(!lost && r.got >= living * MESSAGES);
	check(!r.e.dev->ops->destroy_qp(r.e.dev, r.qp));
	check(!r.e.dev->ops->destroy_ah(r.e.dev, r.ah));
	end_close(&r.e);
	free(r.v);
	free(r.next);
	check(r.dead == n_killed && r.stops == n_stopped);
	return 0;
}
