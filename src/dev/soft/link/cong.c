/* SPDX-License-Identifier: MIT */
/*
 * cong.c - see cong.h.
 */
#include "dev/soft/link/cong.h"

#include "dev/soft/link/packet.h"

#define LEAST 2u /* of half a window */

/* relaxed: nothing else hangs on these counts */
static uint32_t get(const _Atomic uint32_t *v)
{
	return atomic_load_explicit(v, memory_order_relaxed);
}

static void set(_Atomic uint32_t *v, uint32_t to)
{
	atomic_store_explicit(v, to, memory_order_relaxed);
}

static void add(_Atomic uint32_t *v, uint32_t n)
{
	atomic_fetch_add_explicit(v, n, memory_order_relaxed);
}

void cong_init(struct cong *c, uint32_t max)
{
	c->max = max;
	set(&c->window, CONG_FIRST < max ? CONG_FIRST : max);
	set(&c->threshold, max);
}

void cong_join(struct cong_part *p, struct cong *c, uint32_t psn)
{
	p->cong = c;
	p->fresh = psn;
	if (c)
		p->cuts = get(&c->cuts);
}

uint32_t cong_share(const struct cong_part *p)
{
	uint32_t users, share;

	if (!p->cong)
		return UINT32_MAX;
	users = get(&p->cong->users) + !p->uses;
	share = get(&p->cong->window) / users;
	return share ? share : 1;
}

void cong_sent(struct cong_part *p, uint32_t psn)
{
	if (!p->cong)
		return;
	if (!p->uses)
		add(&p->cong->users, 1);
	p->uses = true;
	if (p->cuts == get(&p->cong->cuts))
		return;
	p->cuts = get(&p->cong->cuts);
	p->fresh = psn;
}

void cong_idle(struct cong_part *p)
{
	if (p->uses)
		add(&p->cong->users, -1u);
	p->uses = false;
}

void cong_timer(struct cong_part *p)
{
	if (p->cong)
		p->acked = get(&p->cong->acked);
}

void cong_acked(struct cong_part *p, uint32_t n)
{
	struct cong *c = p->cong;
	uint32_t window;

	if (!c || !n)
		return;
	add(&c->acked, n);
	window = get(&c->window);
	if (window < get(&c->threshold)) {
		window += n;
	} else {
		add(&c->grown, n);
		if (get(&c->grown) >= window) {
			set(&c->grown, 0);
			window++;
		}
	}
	set(&c->window, window < c->max ? window : c->max);
}

/* Was the packet of that PSN sent after the last cut? */
static bool is_fresh(const struct cong_part *p, uint32_t psn)
{
	return p->cuts == get(&p->cong->cuts) &&
	       packet_psn_diff(psn, p->fresh) >= 0;
}

static void cut(struct cong *c, bool to_one)
{
	uint32_t half = get(&c->window) / 2;

	set(&c->threshold, half > LEAST ? half : LEAST);
	set(&c->window, to_one ? 1 : get(&c->threshold));
	set(&c->grown, 0);
	add(&c->cuts, 1);
}

bool cong_gap(struct cong_part *p, uint32_t psn)
{
	if (!p->cong || !is_fresh(p, psn))
		return false;
	cut(p->cong, false);
	return true;
}

/* A mark has no PSN: what was sent before the last cut may have been meant until
 * all of it was acknowledged. */
bool cong_mark(struct cong_part *p, uint32_t una)
{
	return cong_gap(p, una);
}

bool cong_timeout(struct cong_part *p, uint32_t una)
{
	if (!p->cong || p->acked != get(&p->cong->acked))
		return false;
	if (is_fresh(p, una))
		cut(p->cong, true);
	else
		set(&p->cong->window, 1);
	return true;
}
