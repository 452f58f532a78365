/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The tracepoints of an I/O page fault, as a driver of an SMMU has them: handling begins and ends. */
#undef TRACE_SYSTEM
#define TRACE_SYSTEM smmu

#if !defined(_SMMU_TRACE_H) || defined(TRACE_HEADER_MULTI_READ)
#define _SMMU_TRACE_H

#include <linux/tracepoint.h>
#include <linux/version.h>

#ifndef SMMU_ASSIGN_NAME
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 10, 0)
#define SMMU_ASSIGN_NAME(value) __assign_str(name)
#else
#define SMMU_ASSIGN_NAME(value) __assign_str(name, value)
#endif
#endif

DECLARE_EVENT_CLASS(io_fault,
	TP_PROTO(const char *device, u32 pasid, u64 iova),
	TP_ARGS(device, pasid, iova),
	TP_STRUCT__entry(
		__string(name, device)
		__field(u64, iova)
		__field(u32, pasid)
	),
	TP_fast_assign(
		SMMU_ASSIGN_NAME(device);
		__entry->iova = iova;
		__entry->pasid = pasid;
	),
	TP_printk("%s iova=0x%llx pasid=%u", __get_str(name), __entry->iova, __entry->pasid)
);

DEFINE_EVENT(io_fault, io_fault_entry,
	TP_PROTO(const char *device, u32 pasid, u64 iova),
	TP_ARGS(device, pasid, iova)
);

DEFINE_EVENT(io_fault, io_fault_exit,
	TP_PROTO(const char *device, u32 pasid, u64 iova),
	TP_ARGS(device, pasid, iova)
);

#endif

#undef TRACE_INCLUDE_PATH
#define TRACE_INCLUDE_PATH .
#undef TRACE_INCLUDE_FILE
#define TRACE_INCLUDE_FILE smmu_trace
#include <trace/define_trace.h>
