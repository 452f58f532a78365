/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Kernel stacks with which followed objects pass sites, each distinct one once, as in stacks.h. */
#ifndef BIOTRAIL_SITE_STACKS_H
#define BIOTRAIL_SITE_STACKS_H

#include "sites.h"

#define BT_EEXIST 17
#define BT_TRACING_FRAMES 3 /* innermost frames, of program and site, in every stack */

/* The loader sets the sizes. */
struct {
	__uint(type, BPF_MAP_TYPE_STACK_TRACE);
	__uint(max_entries, 1);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(__u64));
} bt_site_stacks SEC(".maps");

/* Returns the stack's id, or a negative errno; as bt_kernel_stack of stacks.h. */
static __always_inline int bt_site_stack(void *ctx)
{
	int id = bpf_get_stackid(ctx, &bt_site_stacks, 0);

	for (int skip = 1; skip <= BT_TRACING_FRAMES && id == -BT_EEXIST; skip++)
		id = bpf_get_stackid(ctx, &bt_site_stacks, skip);
	return id;
}

#endif
