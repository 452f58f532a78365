/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Programs at the sites that followed objects pass (`biotrail follow`): functions' entries and
 * returns, typed tracepoints. The cookie says what the site is: BT_SITE_… of shared.h.
 */
#ifndef BIOTRAIL_HITS_H
#define BIOTRAIL_HITS_H

#include "objects.h"
#include "open_calls.h"
#include "site_stacks.h"

/* Sites that matter for objects that are not followed. */
#define BT_SITE_MEANING (BT_SITE_BIRTH | BT_SITE_DEATH | BT_SITE_NEW | BT_SITE_LAST)
#define BT_ROLE_OF(cookie) ((cookie) >> BT_SITE_ROLE_SHIFT & 3)
#define BT_PLACE_OF(cookie) ((cookie) >> BT_SITE_PLACE_SHIFT & 0xffff)
#define BT_RESULT_REGISTER 8
#define BT_RESULT_OF(cookie) ((cookie) >> BT_SITE_RESULT_SHIFT & 0xffff)

/* Returns the word at a place in memory. */
static __always_inline __u64 bt_word_at(const void *address)
{
	__u64 word = 0;

	bpf_probe_read_kernel(&word, sizeof(word), address);
	return word;
}

static __always_inline void bt_fill_hit(struct bt_hit *hit, __u64 cookie, __u64 now)
{
	hit->head = (now & BT_TIMESTAMP_MASK) | (__u64)BT_HIT << BT_TIMESTAMP_BITS;
	hit->tid = bpf_get_current_pid_tgid();
	hit->site = cookie & 0xffff;
	hit->role = BT_ROLE_OF(cookie);
	bpf_get_current_comm(hit->comm, sizeof(hit->comm));
}

/* Adds a followed call to the open ones; false: there is no room, counted. */
static __always_inline bool bt_open_call(struct bt_open_calls *calls, const struct bt_hit *hit,
					 __u32 slot, __u64 at, __u64 now)
{
	struct bt_follow_counts *counts = bt_counts_of_lives();
	struct bt_open_call call = {
		.at = at,
		.object = hit->object,
		.detail = hit->detail,
		.life = hit->life,
		.slot = slot,
		.site = hit->site,
	};

	if (!counts)
		return false;
	if (calls && bt_open(calls, &call, now, &counts->unmatched))
		return true;
	bt_count(counts->too_deep);
	return false;
}

/* A followed object passes a site; whether its call's return is waited for. */
static __always_inline bool bt_followed(void *ctx, struct bt_life *life, __u32 slot, __u64 object,
					__u64 cookie, __u64 now, __u32 flags)
{
	__u64 at = bt_stack_place();
	struct bt_open_calls *calls = NULL;
	struct bt_hit hit = { .object = object, .life = life->life, .flags = flags, .stack = -1 };
	bool opened = false;

	if (follow.returns)
		calls = bt_make_calls_of(bt_thread(), now);
	bt_fill_hit(&hit, cookie, now);
	if (!bt_value_of(ctx, NULL, object, &follow.detail, &hit.detail))
		hit.detail = 0;
	if (flags & BT_HIT_BORN || !calls || !bt_has_open_call(calls, hit.life, at))
		hit.stack = bt_site_stack(ctx);
	if (cookie & BT_SITE_DEATH)
		hit.flags |= BT_HIT_ENDED;
	if (follow.returns && hit.role == BT_ROLE_ENTRY)
		opened = bt_open_call(calls, &hit, slot, at, now);
	bt_put_hit(life, slot, &hit, now);
	life->touched = now;
	if (cookie & BT_SITE_LAST)
		life->last = now;
	if (cookie & BT_SITE_DEATH)
		bt_end_life(life, slot, now, false);
	return opened;
}

/* An object that is not followed passes a site that means something for its life. */
static __always_inline struct bt_life *bt_unfollowed(void *ctx, __u64 object, __u64 cookie,
						     __u32 *slot)
{
	if (cookie & BT_SITE_NEW)
		bt_forget_refused(object);
	if (cookie & BT_SITE_BIRTH)
		return bt_begin_life(ctx, object, slot);
	if (cookie & (BT_SITE_DEATH | BT_SITE_LAST))
		bt_forget_refused(object);
	return NULL;
}

/*
 * An object passes a function's entry or a tracepoint; whether the call's return is waited for.
 * For most objects this is one look-up. object: may be a typed pointer to the verifier.
 */
static __always_inline bool on_hit(void *ctx, __u64 object, __u64 cookie)
{
	__u32 slot = 0, flags = 0;
	struct bt_life *life;

	bt_count_run();
	if (!object)
		return false;
	life = bt_life_of(object, &slot);
	if (!life && !(cookie & BT_SITE_MEANING))
		return false;
	object = bt_word_at(&object); /* a number from here on */
	if (life && (cookie & BT_SITE_NEW || (cookie & BT_SITE_BIRTH && life->last))) {
		/* Its death was not seen: the address is another object's now. */
		bt_end_life(life, slot, bpf_ktime_get_ns(), true);
		life = NULL;
	}
	if (!life) {
		life = bt_unfollowed(ctx, object, cookie, &slot);
		flags = BT_HIT_BORN;
	}
	if (!life)
		return false;
	return bt_followed(ctx, life, slot, object, cookie, bpf_ktime_get_ns(), flags);
}

/* A function returns; object: its argument at the entry, 0 where that is not known any more. */
static __always_inline int on_return(__u64 object, __u64 result, __u64 cookie)
{
	struct bt_open_calls *calls = bt_calls_of(bt_thread());
	struct bt_follow_counts *counts;
	struct bt_open_call call;
	struct bt_hit hit = { .stack = -1 };
	__u64 now;

	bt_count_run();
	if (!calls || !calls->depth)
		return 0;
	counts = bt_counts_of_lives();
	if (!counts || !bt_close(calls, cookie & 0xffff, object, bt_stack_place(), &call,
				 &counts->unmatched))
		return 0;
	now = bpf_ktime_get_ns();
	bt_fill_hit(&hit, cookie, now);
	hit.role = BT_ROLE_RETURN;
	hit.object = call.object;
	hit.detail = call.detail;
	hit.life = call.life;
	hit.value = result;
	bt_put_hit(bt_life_at(call.slot), call.slot, &hit, now);
	return 0;
}

/* A typed tracepoint, or a function's entry or return by a trampoline; ctx: the arguments. */
static __always_inline int on_typed_hit(void *ctx, __u64 cookie)
{
	__u64 object = bt_argument(ctx, BT_PLACE_OF(cookie));

	if (BT_ROLE_OF(cookie) != BT_ROLE_RETURN)
		return on_hit(ctx, object, cookie), 0;
	return on_return(bt_word_at(&object), bt_argument(ctx, BT_RESULT_OF(cookie)), cookie);
}

/* A load at a fixed offset in struct pt_regs: that of x86-64, or that of arm64. */
#define BT_LOAD_REGISTER(n, x86, arm)                                                              \
	case n:                                                                                    \
		if (follow.machine == BT_MACHINE_X86_64)                                           \
			asm volatile("%0 = *(u64 *)(%1 + %2)" : "=r"(value) : "r"(ctx), "i"(x86)); \
		else                                                                               \
			asm volatile("%0 = *(u64 *)(%1 + %2)" : "=r"(value) : "r"(ctx), "i"(arm)); \
		break;

/* Returns a function's argument at its entry, or what it returned, at its return. */
static __always_inline __u64 bt_register(void *ctx, __u32 index)
{
	__u64 value = 0;

	switch (index) {
		BT_LOAD_REGISTER(0, 112, 0) /* di */
		BT_LOAD_REGISTER(1, 104, 8) /* si */
		BT_LOAD_REGISTER(2, 96, 16) /* dx */
		BT_LOAD_REGISTER(3, 88, 24) /* cx */
		BT_LOAD_REGISTER(4, 72, 32) /* r8 */
		BT_LOAD_REGISTER(5, 64, 40) /* r9 */
		BT_LOAD_REGISTER(BT_RESULT_REGISTER, 80, 0) /* ax */
	}
	return value;
}

/* A function's entry by a probe; ctx: the registers. */
static __always_inline bool on_probe_entry(void *ctx, __u64 cookie)
{
	return on_hit(ctx, bt_register(ctx, BT_PLACE_OF(cookie)), cookie);
}

static __always_inline int on_probe_return(void *ctx, __u64 cookie)
{
	return on_return(0, bt_register(ctx, BT_RESULT_REGISTER), cookie);
}

/*
 * Entry and return by one program: 1 at an entry spares the call's return probe. bt_is_return
 * stands for bpf_session_is_return(), whose declaration differs between kernels: the loader
 * replaces the call (probes/sites/attaching.py).
 */
static __u64 (*const bt_is_return)(void *ctx) = (void *)BT_SESSION_HELPER;

static __always_inline int on_session(void *ctx, __u64 cookie)
{
	if ((bt_is_return(ctx) & 0xff) == 1)
		return on_probe_return(ctx, cookie);
	return !on_probe_entry(ctx, cookie);
}

#endif
