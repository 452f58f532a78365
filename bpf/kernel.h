/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The few members of kernel structures that are read, relocated to the running kernel (CO-RE).
 * A flavour (name with ___) declares a member as only some kernels have it; the running kernel's
 * BTF decides whether it is there, never the kernel's version.
 */
#ifndef BIOTRAIL_KERNEL_H
#define BIOTRAIL_KERNEL_H

typedef unsigned char __u8;
typedef unsigned short __u16;
typedef unsigned int __u32;
typedef unsigned long long __u64;
typedef signed char __s8;
typedef short __s16;
typedef int __s32;
typedef long long __s64;
typedef __u16 __be16;
typedef __u32 __be32;
typedef __u64 __be64;
typedef __u32 __wsum;

typedef _Bool bool;
#define true 1
#define false 0

/* include/uapi/linux/bpf.h */
enum bpf_map_type {
	BPF_MAP_TYPE_HASH = 1,
	BPF_MAP_TYPE_ARRAY = 2,
	BPF_MAP_TYPE_PERCPU_HASH = 5,
	BPF_MAP_TYPE_PERCPU_ARRAY = 6,
	BPF_MAP_TYPE_STACK_TRACE = 7,
	BPF_MAP_TYPE_LRU_HASH = 9,
	BPF_MAP_TYPE_QUEUE = 22,
	BPF_MAP_TYPE_RINGBUF = 27,
};
#define BPF_F_STACK_BUILD_ID (1U << 5)
#define BPF_F_USER_STACK (1U << 8)
#define BPF_F_FAST_STACK_CMP (1U << 9)
#define BPF_F_MMAPABLE (1U << 10)
#define BPF_NOEXIST 1
#define BPF_RB_NO_WAKEUP 1
#define BPF_RB_FORCE_WAKEUP 2
enum bpf_func_id___task { BPF_FUNC_get_current_task_btf___task = 158 };

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct block_device;
struct request_queue;
struct gendisk {
	int major;
	int first_minor;
	struct request_queue *queue;
};

struct block_device {
	struct gendisk *bd_disk;
	__u32 bd_dev;
};

/* `disk` is here since 5.17; before, the request has a pointer to it (struct request___disk). */
struct request_queue {
	struct gendisk *disk;
};

struct page;
struct bio_vec {
	struct page *bv_page;
	__u32 bv_len;
	__u32 bv_offset;
};

/* Packed in the kernel. Not here, or clang would load the members byte by byte. */
struct bvec_iter {
	__u64 bi_sector;
	__u32 bi_size;
	__u32 bi_idx;
};

struct kernfs_node {
	const char *name;
	__u64 id;
};

struct cgroup_root {
	__u32 hierarchy_id; /* an int in the kernel */
};

struct cgroup {
	struct kernfs_node *kn;
	struct cgroup_root *root;
};

/* The directory that a kernfs_node is in: NULL of the root. */
struct kernfs_node___parent {
	struct kernfs_node *parent;
};

/* Since 6.15. */
struct kernfs_node___rcu {
	struct kernfs_node *__parent;
};

struct cgroup_subsys_state {
	struct cgroup *cgroup;
	struct cgroup_subsys_state *parent;
};

struct blkcg {
	struct cgroup_subsys_state css;
};

struct blkcg_gq {
	struct blkcg *blkcg;
};

struct bio {
	struct bio *bi_next;
	struct block_device *bi_bdev;
	__u32 bi_opf;
	__u16 bi_ioprio;
	__u8 bi_status;
	struct bvec_iter bi_iter;
	void *bi_end_io; /* only compared */
	void *bi_private;
	struct blkcg_gq *bi_blkg;
	struct bio_vec *bi_io_vec;
};

/* Before 5.12: no bi_bdev; bi_partno is 0 once bi_sector has been remapped to the disk. */
struct bio___disk {
	struct gendisk *bi_disk;
};

/* The write hint: unsigned short up to 5.17, absent until 6.8, an enum of one byte since 6.9. */
enum rw_hint { WRITE_LIFE_NOT_SET } __attribute__((packed));

struct bio___hint16 {
	__u16 bi_write_hint;
};

struct bio___hint8 {
	enum rw_hint bi_write_hint;
};

struct blk_mq_hw_ctx {
	__u32 queue_num;
};

struct request {
	struct request_queue *q;
	struct blk_mq_hw_ctx *mq_hctx;
	__u32 cmd_flags;
	int tag;
	int internal_tag;
	__u32 __data_len;
	__u64 __sector;
	struct bio *bio;
	struct bio *biotail;
};

struct request___disk {
	struct gendisk *rq_disk;
};

/* Up to 6.11 a request has a priority of its own; since then only its bio has one. */
struct request___ioprio {
	__u16 ioprio;
};

struct request___hint16 {
	__u16 write_hint;
};

struct request___hint8 {
	enum rw_hint write_hint;
};

struct task_struct {
	__u32 flags;
	int pid;
	int tgid;
	char comm[16];
	struct task_struct *group_leader;
};

#pragma clang attribute pop

#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>

#define barrier() asm volatile("" ::: "memory")

/* Hides a scalar's value from the compiler, so that it keeps a bounds check where it is written. */
#define opaque(value) asm volatile("" : "+r"(value))

/* At an address that is a scalar to the verifier; a read that faults gives 0. */
static __always_inline __u64 bt_read_u64(__u64 address)
{
	__u64 value = 0;

	bpf_probe_read_kernel(&value, sizeof(value), (void *)address);
	return value;
}

static __always_inline __u32 bt_read_u32(__u64 address)
{
	__u32 value = 0;

	bpf_probe_read_kernel(&value, sizeof(value), (void *)address);
	return value;
}

#endif
