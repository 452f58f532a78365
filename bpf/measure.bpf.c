// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * The one program of `biotrail metrics` where nothing but sums is asked for: the third BPF object,
 * without rings. bt_measure_p is for kernels whose tracepoints leave preemption on (preemption.h):
 * while a preempted program waits, the kernel would skip it for every other task on the CPU.
 */
#include "measure.h"
#include "preemption.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

SEC("tp_btf/block_rq_complete") int bt_measure(__u64 *ctx)
{
	return on_measure((struct request *)ctx[0], ctx[1], ctx[2]);
}

SEC("tp_btf/block_rq_complete") int bt_measure_p(__u64 *ctx)
{
	bpf_preempt_disable();
	on_measure((struct request *)ctx[0], ctx[1], ctx[2]);
	bt_preempt_enable();
	return 0;
}
