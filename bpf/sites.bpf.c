// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Templates of programs for sites that are chosen at run time: the second BPF object, loaded for
 * `biotrail pairs` and `biotrail follow` alone. Each template is attached nowhere; the loader
 * copies its instructions, writes the copy's cookie and loads it for a site (probes/sites/).
 *
 * A template whose name ends in _p disables preemption itself (preemption.h). Programs of a
 * tracepoint's record need none: the kernel calls them with preemption off.
 */
#include "cgroups.h"
#include "hits.h"
#include "pairs.h"
#include "preemption.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* Typed templates need some tracepoint to be verified for, which every kernel has. */
#define TYPED(name, body)                                                                          \
	SEC("tp_btf/sched_process_exit") int name(void *ctx)                                       \
	{                                                                                          \
		return body;                                                                       \
	}                                                                                          \
	SEC("tp_btf/sched_process_exit") int name##_p(void *ctx)                                   \
	{                                                                                          \
		bpf_preempt_disable();                                                             \
		body;                                                                              \
		bt_preempt_enable();                                                               \
		return 0;                                                                          \
	}
#define RECORD(name, body)                                                                         \
	SEC("tracepoint") int name(void *ctx)                                                      \
	{                                                                                          \
		return body;                                                                       \
	}

/* Loaded where cgroups are chosen by name: sends the recorder paths of new ones (cgroups.h). */
SEC("tp_btf/cgroup_mkdir") int bt_cgroup_made(__u64 *ctx)
{
	return on_cgroup_made((struct cgroup *)ctx[0]);
}

TYPED(bt_pair_begin, on_pair_begin(ctx))
TYPED(bt_pair_end, on_pair_end(ctx))
RECORD(bt_pair_begin_f, on_pair_begin(ctx))
RECORD(bt_pair_end_f, on_pair_end(ctx))

/* Tracepoints, and functions by trampolines: all are passed their arguments. */
TYPED(bt_hit_typed, on_typed_hit(ctx, bt_cookie()))

/* Functions by probes: copies with a cookie each, or one program that asks for the cookie. */
#define PROBE(name, body)                                                                          \
	SEC("kprobe") int name(void *ctx)                                                          \
	{                                                                                          \
		return body;                                                                       \
	}
PROBE(bt_hit_entry_copy, (on_probe_entry(ctx, bt_cookie()), 0))
PROBE(bt_hit_return_copy, on_probe_return(ctx, bt_cookie()))
PROBE(bt_hit_entry, (on_probe_entry(ctx, bpf_get_attach_cookie(ctx)), 0))
PROBE(bt_hit_return, on_probe_return(ctx, bpf_get_attach_cookie(ctx)))
PROBE(bt_hit_session, on_session(ctx, bpf_get_attach_cookie(ctx)))
