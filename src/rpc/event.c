/* SPDX-License-Identifier: MIT */
/*
 * event.c - the switch between polling and sleeping: docs/protocol/rpc.md,
 * section 8. Modelled in tests/model/event.pml.
 */
#include <errno.h>

#include "conn/conn.h"
#include "rpc/event.h"
#include "rpc/port.h"

static bool may_doze(struct rpc_event *ev, uint64_t now_ns)
{
	if (!ev->asked_ns) {
		ev->asked_ns = now_ns;
		ev->doze_ns = RPC_EVENT_PATIENCE_NS;
		return false;
	}
	if (now_ns - ev->asked_ns < RPC_EVENT_PATIENCE_NS)
		return false;
	ev->doze_end_ns = now_ns + ev->doze_ns;
	if (ev->doze_ns < RPC_EVENT_DOZE_MAX_NS)
		ev->doze_ns *= 2;
	if (ev->doze_ns > RPC_EVENT_DOZE_MAX_NS)
		ev->doze_ns = RPC_EVENT_DOZE_MAX_NS;
	return true;
}

bool rpc_event_want_sleep(struct rpc_event *ev, uint64_t now_ns)
{
	ev->doze_end_ns = 0;
	switch (ev->rx) {
	case RPC_RX_EVENT:
		ev->busy = 0;
		return true;
	case RPC_RX_ASKED:
		return may_doze(ev, now_ns);
	case RPC_RX_POLLING:
		/* At most one ask and one poll are under way, in this order: an
		 * owed poll would undo an ask posted before it. */
		if (ev->owe_poll)
			return false;
		ev->rx = RPC_RX_ASKED;
		ev->owe_ask = true;
		ev->asked_ns = 0;
		return false;
	}
	return false;
}

int rpc_event_signal(struct rpc_event *ev, uint32_t value)
{
	switch (value) {
	case RPC_EVENT_ASK:
		if (ev->wake)
			return -SKEIN_EPEER;
		__atomic_store_n(&ev->wake, true, __ATOMIC_RELAXED);
		ev->owe_granted = true;
		return 0;
	case RPC_EVENT_GRANTED:
		if (ev->rx != RPC_RX_ASKED || ev->owe_ask)
			return -SKEIN_EPEER;
		ev->rx = RPC_RX_EVENT;
		ev->busy = 0;
		return 0;
	case RPC_EVENT_POLL:
		if (!ev->wake || ev->owe_granted)
			return -SKEIN_EPEER;
		__atomic_store_n(&ev->wake, false, __ATOMIC_RELAXED);
		/* The peer polls: it finds the message without the wake-up. */
		ev->owe_wake = false;
		return 0;
	default:
		return -SKEIN_EPEER;
	}
}

int rpc_port_send_wake(struct rpc_port *port, uint64_t off, uint32_t len)
{
	bool woke = false;
	int rc = port->ops->write(port, off, len, &woke);

	if (rc)
		return rc;
	if (woke)
		port->stats.wakeups_sent++;
	else
		port->event.owe_wake = true;
	return 0;
}

static int send_owed(struct rpc_port *port, bool *owed, uint32_t imm)
{
	int rc;

	if (!*owed)
		return 0;
	rc = port->ops->signal(port, imm);
	if (!rc)
		*owed = false;
	return rc;
}

int rpc_event_flush(struct rpc_port *port)
{
	struct rpc_event *ev = &port->event;
	int rc;

	rc = send_owed(port, &ev->owe_granted,
		       CONN_IMM(CONN_IMM_EVENT_MODE, RPC_EVENT_GRANTED));
	if (!rc)
		rc = send_owed(port, &ev->owe_wake, CONN_IMM(CONN_IMM_WAKE, 0));
	if (!rc)
		rc = send_owed(port, &ev->owe_poll,
			       CONN_IMM(CONN_IMM_EVENT_MODE, RPC_EVENT_POLL));
	if (!rc)
		rc = send_owed(port, &ev->owe_ask,
			       CONN_IMM(CONN_IMM_EVENT_MODE, RPC_EVENT_ASK));
	return rc == -EAGAIN ? 0 : rc;
}
