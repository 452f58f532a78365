/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Written by recorder/schema/generate.py from recorder/schema/records.py: change the schema, not this file. */
#ifndef BIOTRAIL_RECORDS_H
#define BIOTRAIL_RECORDS_H

#define BT_TIMESTAMP_BITS 56
#define BT_TIMESTAMP_MASK ((1ULL << 56) - 1)
#define BT_BLOCK_BYTES 4096
#define BT_NO_TAG 0xffff
#define BT_CHAIN_SLOTS 6
#define BT_CHAIN_COUNT 0x4000000000000000ULL
#define BT_Q_FLAG_OWN 1
#define BT_D_FLAG_CHAIN_CUT 1
#define BT_FILE_NAME_LAST 1
#define BT_FILE_NAME_CUT 2
#define BT_FILE_NAME_DELETED 4
#define BT_MAX_RECORD_BYTES 64

enum bt_kind {
	BT_Q = 1,
	BT_G = 2,
	BT_M = 3,
	BT_F = 4,
	BT_X = 5,
	BT_A = 6,
	BT_BIO_COMPLETE = 7,
	BT_START = 8,
	BT_I = 9,
	BT_R = 10,
	BT_RQ_MERGE = 11,
	BT_D = 12,
	BT_CHAIN = 13,
	BT_C = 14,
	BT_E = 15,
	BT_DONE = 16,
	BT_P = 17,
	BT_U = 18,
	BT_RQ_REMAP = 19,
	BT_STACK = 20,
	BT_FILE = 21,
	BT_TASK = 32,
	BT_CGROUP = 33,
	BT_FILE_NAME = 34,
	BT_PAD = 255,
};

/* Q block_bio_queue: A bio enters the block layer. */
struct bt_q {
	__u64 head;
	__u64 bio;
	__u64 sector;
	__u32 bytes;
	__u32 opf;
	__u32 dev;
	__u32 tid;
	__u32 part;
	__u16 ioprio;
	__u8 hint;
	__u8 flags;
	__u64 cgroup;
	__u64 page;
};
_Static_assert(sizeof(struct bt_q) == 64, "size of bt_q");
_Static_assert(__builtin_offsetof(struct bt_q, head) == 0, "bt_q.head");
_Static_assert(__builtin_offsetof(struct bt_q, bio) == 8, "bt_q.bio");
_Static_assert(__builtin_offsetof(struct bt_q, sector) == 16, "bt_q.sector");
_Static_assert(__builtin_offsetof(struct bt_q, bytes) == 24, "bt_q.bytes");
_Static_assert(__builtin_offsetof(struct bt_q, opf) == 28, "bt_q.opf");
_Static_assert(__builtin_offsetof(struct bt_q, dev) == 32, "bt_q.dev");
_Static_assert(__builtin_offsetof(struct bt_q, tid) == 36, "bt_q.tid");
_Static_assert(__builtin_offsetof(struct bt_q, part) == 40, "bt_q.part");
_Static_assert(__builtin_offsetof(struct bt_q, ioprio) == 44, "bt_q.ioprio");
_Static_assert(__builtin_offsetof(struct bt_q, hint) == 46, "bt_q.hint");
_Static_assert(__builtin_offsetof(struct bt_q, flags) == 47, "bt_q.flags");
_Static_assert(__builtin_offsetof(struct bt_q, cgroup) == 48, "bt_q.cgroup");
_Static_assert(__builtin_offsetof(struct bt_q, page) == 56, "bt_q.page");

/* G block_getrq: A request was allocated for a bio. */
struct bt_g {
	__u64 head;
	__u64 bio;
	__u64 sector;
	__u32 bytes;
	__u32 opf;
	__u32 dev;
	__u32 tid;
};
_Static_assert(sizeof(struct bt_g) == 40, "size of bt_g");
_Static_assert(__builtin_offsetof(struct bt_g, head) == 0, "bt_g.head");
_Static_assert(__builtin_offsetof(struct bt_g, bio) == 8, "bt_g.bio");
_Static_assert(__builtin_offsetof(struct bt_g, sector) == 16, "bt_g.sector");
_Static_assert(__builtin_offsetof(struct bt_g, bytes) == 24, "bt_g.bytes");
_Static_assert(__builtin_offsetof(struct bt_g, opf) == 28, "bt_g.opf");
_Static_assert(__builtin_offsetof(struct bt_g, dev) == 32, "bt_g.dev");
_Static_assert(__builtin_offsetof(struct bt_g, tid) == 36, "bt_g.tid");

/* M block_bio_backmerge: A bio is about to join a request's end. */
struct bt_m {
	__u64 head;
	__u64 bio;
	__u64 sector;
	__u32 bytes;
	__u32 opf;
	__u32 dev;
	__u32 tid;
	__u64 rq;
};
_Static_assert(sizeof(struct bt_m) == 48, "size of bt_m");
_Static_assert(__builtin_offsetof(struct bt_m, head) == 0, "bt_m.head");
_Static_assert(__builtin_offsetof(struct bt_m, bio) == 8, "bt_m.bio");
_Static_assert(__builtin_offsetof(struct bt_m, sector) == 16, "bt_m.sector");
_Static_assert(__builtin_offsetof(struct bt_m, bytes) == 24, "bt_m.bytes");
_Static_assert(__builtin_offsetof(struct bt_m, opf) == 28, "bt_m.opf");
_Static_assert(__builtin_offsetof(struct bt_m, dev) == 32, "bt_m.dev");
_Static_assert(__builtin_offsetof(struct bt_m, tid) == 36, "bt_m.tid");
_Static_assert(__builtin_offsetof(struct bt_m, rq) == 40, "bt_m.rq");

/* F block_bio_frontmerge: A bio is about to join a request's start. */
struct bt_f {
	__u64 head;
	__u64 bio;
	__u64 sector;
	__u32 bytes;
	__u32 opf;
	__u32 dev;
	__u32 tid;
	__u64 rq;
};
_Static_assert(sizeof(struct bt_f) == 48, "size of bt_f");
_Static_assert(__builtin_offsetof(struct bt_f, head) == 0, "bt_f.head");
_Static_assert(__builtin_offsetof(struct bt_f, bio) == 8, "bt_f.bio");
_Static_assert(__builtin_offsetof(struct bt_f, sector) == 16, "bt_f.sector");
_Static_assert(__builtin_offsetof(struct bt_f, bytes) == 24, "bt_f.bytes");
_Static_assert(__builtin_offsetof(struct bt_f, opf) == 28, "bt_f.opf");
_Static_assert(__builtin_offsetof(struct bt_f, dev) == 32, "bt_f.dev");
_Static_assert(__builtin_offsetof(struct bt_f, tid) == 36, "bt_f.tid");
_Static_assert(__builtin_offsetof(struct bt_f, rq) == 40, "bt_f.rq");

/* X block_split: A bio's front was split off: this record's bio is the front piece. */
struct bt_x {
	__u64 head;
	__u64 bio;
	__u64 sector;
	__u32 bytes;
	__u32 opf;
	__u32 dev;
	__u32 tid;
	__u64 parent;
	__u64 new_sector;
};
_Static_assert(sizeof(struct bt_x) == 56, "size of bt_x");
_Static_assert(__builtin_offsetof(struct bt_x, head) == 0, "bt_x.head");
_Static_assert(__builtin_offsetof(struct bt_x, bio) == 8, "bt_x.bio");
_Static_assert(__builtin_offsetof(struct bt_x, sector) == 16, "bt_x.sector");
_Static_assert(__builtin_offsetof(struct bt_x, bytes) == 24, "bt_x.bytes");
_Static_assert(__builtin_offsetof(struct bt_x, opf) == 28, "bt_x.opf");
_Static_assert(__builtin_offsetof(struct bt_x, dev) == 32, "bt_x.dev");
_Static_assert(__builtin_offsetof(struct bt_x, tid) == 36, "bt_x.tid");
_Static_assert(__builtin_offsetof(struct bt_x, parent) == 40, "bt_x.parent");
_Static_assert(__builtin_offsetof(struct bt_x, new_sector) == 48, "bt_x.new_sector");

/* A block_bio_remap: A bio was redirected to another device or from a partition to its disk. */
struct bt_a {
	__u64 head;
	__u64 bio;
	__u64 sector;
	__u32 bytes;
	__u32 opf;
	__u32 dev;
	__u32 tid;
	__u64 from_sector;
	__u32 from_dev;
	__u32 part;
};
_Static_assert(sizeof(struct bt_a) == 56, "size of bt_a");
_Static_assert(__builtin_offsetof(struct bt_a, head) == 0, "bt_a.head");
_Static_assert(__builtin_offsetof(struct bt_a, bio) == 8, "bt_a.bio");
_Static_assert(__builtin_offsetof(struct bt_a, sector) == 16, "bt_a.sector");
_Static_assert(__builtin_offsetof(struct bt_a, bytes) == 24, "bt_a.bytes");
_Static_assert(__builtin_offsetof(struct bt_a, opf) == 28, "bt_a.opf");
_Static_assert(__builtin_offsetof(struct bt_a, dev) == 32, "bt_a.dev");
_Static_assert(__builtin_offsetof(struct bt_a, tid) == 36, "bt_a.tid");
_Static_assert(__builtin_offsetof(struct bt_a, from_sector) == 40, "bt_a.from_sector");
_Static_assert(__builtin_offsetof(struct bt_a, from_dev) == 48, "bt_a.from_dev");
_Static_assert(__builtin_offsetof(struct bt_a, part) == 52, "bt_a.part");

/* c block_bio_complete: A bio ended without a request: bio-based devices, early failures. */
struct bt_bio_complete {
	__u64 head;
	__u64 bio;
	__u64 sector;
	__u32 bytes;
	__u32 opf;
	__u32 dev;
	__s32 status;
};
_Static_assert(sizeof(struct bt_bio_complete) == 40, "size of bt_bio_complete");
_Static_assert(__builtin_offsetof(struct bt_bio_complete, head) == 0, "bt_bio_complete.head");
_Static_assert(__builtin_offsetof(struct bt_bio_complete, bio) == 8, "bt_bio_complete.bio");
_Static_assert(__builtin_offsetof(struct bt_bio_complete, sector) == 16, "bt_bio_complete.sector");
_Static_assert(__builtin_offsetof(struct bt_bio_complete, bytes) == 24, "bt_bio_complete.bytes");
_Static_assert(__builtin_offsetof(struct bt_bio_complete, opf) == 28, "bt_bio_complete.opf");
_Static_assert(__builtin_offsetof(struct bt_bio_complete, dev) == 32, "bt_bio_complete.dev");
_Static_assert(__builtin_offsetof(struct bt_bio_complete, status) == 36, "bt_bio_complete.status");

/* s block_io_start: A request begins to account: its generation starts here (6.5 and later). */
struct bt_start {
	__u64 head;
	__u64 rq;
	__u64 bio;
	__u64 sector;
	__u32 bytes;
	__u32 opf;
	__u32 dev;
	__u16 tag;
	__u16 sched_tag;
};
_Static_assert(sizeof(struct bt_start) == 48, "size of bt_start");
_Static_assert(__builtin_offsetof(struct bt_start, head) == 0, "bt_start.head");
_Static_assert(__builtin_offsetof(struct bt_start, rq) == 8, "bt_start.rq");
_Static_assert(__builtin_offsetof(struct bt_start, bio) == 16, "bt_start.bio");
_Static_assert(__builtin_offsetof(struct bt_start, sector) == 24, "bt_start.sector");
_Static_assert(__builtin_offsetof(struct bt_start, bytes) == 32, "bt_start.bytes");
_Static_assert(__builtin_offsetof(struct bt_start, opf) == 36, "bt_start.opf");
_Static_assert(__builtin_offsetof(struct bt_start, dev) == 40, "bt_start.dev");
_Static_assert(__builtin_offsetof(struct bt_start, tag) == 44, "bt_start.tag");
_Static_assert(__builtin_offsetof(struct bt_start, sched_tag) == 46, "bt_start.sched_tag");

/* I block_rq_insert: A request was inserted into a scheduler or software queue. */
struct bt_i {
	__u64 head;
	__u64 rq;
	__u64 bio;
	__u64 sector;
	__u32 bytes;
	__u32 opf;
	__u32 dev;
	__u16 tag;
	__u16 sched_tag;
};
_Static_assert(sizeof(struct bt_i) == 48, "size of bt_i");
_Static_assert(__builtin_offsetof(struct bt_i, head) == 0, "bt_i.head");
_Static_assert(__builtin_offsetof(struct bt_i, rq) == 8, "bt_i.rq");
_Static_assert(__builtin_offsetof(struct bt_i, bio) == 16, "bt_i.bio");
_Static_assert(__builtin_offsetof(struct bt_i, sector) == 24, "bt_i.sector");
_Static_assert(__builtin_offsetof(struct bt_i, bytes) == 32, "bt_i.bytes");
_Static_assert(__builtin_offsetof(struct bt_i, opf) == 36, "bt_i.opf");
_Static_assert(__builtin_offsetof(struct bt_i, dev) == 40, "bt_i.dev");
_Static_assert(__builtin_offsetof(struct bt_i, tag) == 44, "bt_i.tag");
_Static_assert(__builtin_offsetof(struct bt_i, sched_tag) == 46, "bt_i.sched_tag");

/* R block_rq_requeue: A request went back from the driver. */
struct bt_r {
	__u64 head;
	__u64 rq;
	__u64 bio;
	__u64 sector;
	__u32 bytes;
	__u32 opf;
	__u32 dev;
	__u16 tag;
	__u16 sched_tag;
};
_Static_assert(sizeof(struct bt_r) == 48, "size of bt_r");
_Static_assert(__builtin_offsetof(struct bt_r, head) == 0, "bt_r.head");
_Static_assert(__builtin_offsetof(struct bt_r, rq) == 8, "bt_r.rq");
_Static_assert(__builtin_offsetof(struct bt_r, bio) == 16, "bt_r.bio");
_Static_assert(__builtin_offsetof(struct bt_r, sector) == 24, "bt_r.sector");
_Static_assert(__builtin_offsetof(struct bt_r, bytes) == 32, "bt_r.bytes");
_Static_assert(__builtin_offsetof(struct bt_r, opf) == 36, "bt_r.opf");
_Static_assert(__builtin_offsetof(struct bt_r, dev) == 40, "bt_r.dev");
_Static_assert(__builtin_offsetof(struct bt_r, tag) == 44, "bt_r.tag");
_Static_assert(__builtin_offsetof(struct bt_r, sched_tag) == 46, "bt_r.sched_tag");

/* m block_rq_merge: This request was absorbed by its neighbour; it has no further events. */
struct bt_rq_merge {
	__u64 head;
	__u64 rq;
	__u64 bio;
	__u64 sector;
	__u32 bytes;
	__u32 opf;
	__u32 dev;
	__u16 tag;
	__u16 sched_tag;
};
_Static_assert(sizeof(struct bt_rq_merge) == 48, "size of bt_rq_merge");
_Static_assert(__builtin_offsetof(struct bt_rq_merge, head) == 0, "bt_rq_merge.head");
_Static_assert(__builtin_offsetof(struct bt_rq_merge, rq) == 8, "bt_rq_merge.rq");
_Static_assert(__builtin_offsetof(struct bt_rq_merge, bio) == 16, "bt_rq_merge.bio");
_Static_assert(__builtin_offsetof(struct bt_rq_merge, sector) == 24, "bt_rq_merge.sector");
_Static_assert(__builtin_offsetof(struct bt_rq_merge, bytes) == 32, "bt_rq_merge.bytes");
_Static_assert(__builtin_offsetof(struct bt_rq_merge, opf) == 36, "bt_rq_merge.opf");
_Static_assert(__builtin_offsetof(struct bt_rq_merge, dev) == 40, "bt_rq_merge.dev");
_Static_assert(__builtin_offsetof(struct bt_rq_merge, tag) == 44, "bt_rq_merge.tag");
_Static_assert(__builtin_offsetof(struct bt_rq_merge, sched_tag) == 46, "bt_rq_merge.sched_tag");

/* D block_rq_issue: A request goes to the driver. CHAIN records of the same rq and head time follow it. */
struct bt_d {
	__u64 head;
	__u64 rq;
	__u64 bio;
	__u64 sector;
	__u32 bytes;
	__u32 opf;
	__u32 dev;
	__u16 tag;
	__u16 sched_tag;
	__u16 hctx;
	__u16 ioprio;
	__u16 nr_bios;
	__u8 hint;
	__u8 flags;
};
_Static_assert(sizeof(struct bt_d) == 56, "size of bt_d");
_Static_assert(__builtin_offsetof(struct bt_d, head) == 0, "bt_d.head");
_Static_assert(__builtin_offsetof(struct bt_d, rq) == 8, "bt_d.rq");
_Static_assert(__builtin_offsetof(struct bt_d, bio) == 16, "bt_d.bio");
_Static_assert(__builtin_offsetof(struct bt_d, sector) == 24, "bt_d.sector");
_Static_assert(__builtin_offsetof(struct bt_d, bytes) == 32, "bt_d.bytes");
_Static_assert(__builtin_offsetof(struct bt_d, opf) == 36, "bt_d.opf");
_Static_assert(__builtin_offsetof(struct bt_d, dev) == 40, "bt_d.dev");
_Static_assert(__builtin_offsetof(struct bt_d, tag) == 44, "bt_d.tag");
_Static_assert(__builtin_offsetof(struct bt_d, sched_tag) == 46, "bt_d.sched_tag");
_Static_assert(__builtin_offsetof(struct bt_d, hctx) == 48, "bt_d.hctx");
_Static_assert(__builtin_offsetof(struct bt_d, ioprio) == 50, "bt_d.ioprio");
_Static_assert(__builtin_offsetof(struct bt_d, nr_bios) == 52, "bt_d.nr_bios");
_Static_assert(__builtin_offsetof(struct bt_d, hint) == 54, "bt_d.hint");
_Static_assert(__builtin_offsetof(struct bt_d, flags) == 55, "bt_d.flags");

/* b block_rq_issue: Continues D: the bios after the head, in order. */
struct bt_chain {
	__u64 head;
	__u64 rq;
	__u64 bios[6];
};
_Static_assert(sizeof(struct bt_chain) == 64, "size of bt_chain");
_Static_assert(__builtin_offsetof(struct bt_chain, head) == 0, "bt_chain.head");
_Static_assert(__builtin_offsetof(struct bt_chain, rq) == 8, "bt_chain.rq");
_Static_assert(__builtin_offsetof(struct bt_chain, bios) == 16, "bt_chain.bios");

/* C block_rq_complete: Bytes of a request were completed; what it held before is still in place. */
struct bt_c {
	__u64 head;
	__u64 rq;
	__u64 bio;
	__u64 sector;
	__u32 bytes;
	__u32 opf;
	__u32 dev;
	__s32 status;
};
_Static_assert(sizeof(struct bt_c) == 48, "size of bt_c");
_Static_assert(__builtin_offsetof(struct bt_c, head) == 0, "bt_c.head");
_Static_assert(__builtin_offsetof(struct bt_c, rq) == 8, "bt_c.rq");
_Static_assert(__builtin_offsetof(struct bt_c, bio) == 16, "bt_c.bio");
_Static_assert(__builtin_offsetof(struct bt_c, sector) == 24, "bt_c.sector");
_Static_assert(__builtin_offsetof(struct bt_c, bytes) == 32, "bt_c.bytes");
_Static_assert(__builtin_offsetof(struct bt_c, opf) == 36, "bt_c.opf");
_Static_assert(__builtin_offsetof(struct bt_c, dev) == 40, "bt_c.dev");
_Static_assert(__builtin_offsetof(struct bt_c, status) == 44, "bt_c.status");

/* E block_rq_error: A completion with an error; follows its C. */
struct bt_e {
	__u64 head;
	__u64 rq;
	__u64 bio;
	__u64 sector;
	__u32 bytes;
	__u32 opf;
	__u32 dev;
	__s32 status;
};
_Static_assert(sizeof(struct bt_e) == 48, "size of bt_e");
_Static_assert(__builtin_offsetof(struct bt_e, head) == 0, "bt_e.head");
_Static_assert(__builtin_offsetof(struct bt_e, rq) == 8, "bt_e.rq");
_Static_assert(__builtin_offsetof(struct bt_e, bio) == 16, "bt_e.bio");
_Static_assert(__builtin_offsetof(struct bt_e, sector) == 24, "bt_e.sector");
_Static_assert(__builtin_offsetof(struct bt_e, bytes) == 32, "bt_e.bytes");
_Static_assert(__builtin_offsetof(struct bt_e, opf) == 36, "bt_e.opf");
_Static_assert(__builtin_offsetof(struct bt_e, dev) == 40, "bt_e.dev");
_Static_assert(__builtin_offsetof(struct bt_e, status) == 44, "bt_e.status");

/* d block_io_done: A request stopped accounting; it is not final. */
struct bt_done {
	__u64 head;
	__u64 rq;
	__u32 dev;
	__u32 reserved;
};
_Static_assert(sizeof(struct bt_done) == 24, "size of bt_done");
_Static_assert(__builtin_offsetof(struct bt_done, head) == 0, "bt_done.head");
_Static_assert(__builtin_offsetof(struct bt_done, rq) == 8, "bt_done.rq");
_Static_assert(__builtin_offsetof(struct bt_done, dev) == 16, "bt_done.dev");
_Static_assert(__builtin_offsetof(struct bt_done, reserved) == 20, "bt_done.reserved");

/* P block_plug: A task holds its I/O back. */
struct bt_p {
	__u64 head;
	__u32 dev;
	__u32 tid;
};
_Static_assert(sizeof(struct bt_p) == 16, "size of bt_p");
_Static_assert(__builtin_offsetof(struct bt_p, head) == 0, "bt_p.head");
_Static_assert(__builtin_offsetof(struct bt_p, dev) == 8, "bt_p.dev");
_Static_assert(__builtin_offsetof(struct bt_p, tid) == 12, "bt_p.tid");

/* U block_unplug: A task lets its I/O go. */
struct bt_u {
	__u64 head;
	__u32 dev;
	__u32 tid;
	__u32 depth;
	__u32 explicit;
};
_Static_assert(sizeof(struct bt_u) == 24, "size of bt_u");
_Static_assert(__builtin_offsetof(struct bt_u, head) == 0, "bt_u.head");
_Static_assert(__builtin_offsetof(struct bt_u, dev) == 8, "bt_u.dev");
_Static_assert(__builtin_offsetof(struct bt_u, tid) == 12, "bt_u.tid");
_Static_assert(__builtin_offsetof(struct bt_u, depth) == 16, "bt_u.depth");
_Static_assert(__builtin_offsetof(struct bt_u, explicit) == 20, "bt_u.explicit");

/* a block_rq_remap: A request was handed to a lower device. */
struct bt_rq_remap {
	__u64 head;
	__u64 rq;
	__u64 bio;
	__u64 sector;
	__u32 bytes;
	__u32 opf;
	__u32 dev;
	__u32 from_dev;
	__u64 from_sector;
};
_Static_assert(sizeof(struct bt_rq_remap) == 56, "size of bt_rq_remap");
_Static_assert(__builtin_offsetof(struct bt_rq_remap, head) == 0, "bt_rq_remap.head");
_Static_assert(__builtin_offsetof(struct bt_rq_remap, rq) == 8, "bt_rq_remap.rq");
_Static_assert(__builtin_offsetof(struct bt_rq_remap, bio) == 16, "bt_rq_remap.bio");
_Static_assert(__builtin_offsetof(struct bt_rq_remap, sector) == 24, "bt_rq_remap.sector");
_Static_assert(__builtin_offsetof(struct bt_rq_remap, bytes) == 32, "bt_rq_remap.bytes");
_Static_assert(__builtin_offsetof(struct bt_rq_remap, opf) == 36, "bt_rq_remap.opf");
_Static_assert(__builtin_offsetof(struct bt_rq_remap, dev) == 40, "bt_rq_remap.dev");
_Static_assert(__builtin_offsetof(struct bt_rq_remap, from_dev) == 44, "bt_rq_remap.from_dev");
_Static_assert(__builtin_offsetof(struct bt_rq_remap, from_sector) == 48, "bt_rq_remap.from_sector");

/* S block_bio_queue: Where a bio was queued from: follows its Q with the same head time, where asked for. */
struct bt_stack {
	__u64 head;
	__u64 bio;
	__s32 kernel;
	__s32 user;
};
_Static_assert(sizeof(struct bt_stack) == 24, "size of bt_stack");
_Static_assert(__builtin_offsetof(struct bt_stack, head) == 0, "bt_stack.head");
_Static_assert(__builtin_offsetof(struct bt_stack, bio) == 8, "bt_stack.bio");
_Static_assert(__builtin_offsetof(struct bt_stack, kernel) == 16, "bt_stack.kernel");
_Static_assert(__builtin_offsetof(struct bt_stack, user) == 20, "bt_stack.user");

/* f block_bio_queue: Whose pages a bio carries: follows its Q with the same head time, where asked for. */
struct bt_file {
	__u64 head;
	__u64 bio;
	__u64 inode;
	__u32 dev;
	__u32 generation;
};
_Static_assert(sizeof(struct bt_file) == 32, "size of bt_file");
_Static_assert(__builtin_offsetof(struct bt_file, head) == 0, "bt_file.head");
_Static_assert(__builtin_offsetof(struct bt_file, bio) == 8, "bt_file.bio");
_Static_assert(__builtin_offsetof(struct bt_file, inode) == 16, "bt_file.inode");
_Static_assert(__builtin_offsetof(struct bt_file, dev) == 24, "bt_file.dev");
_Static_assert(__builtin_offsetof(struct bt_file, generation) == 28, "bt_file.generation");

/* T: A thread's process and name; again whenever either changes. */
struct bt_task {
	__u64 head;
	__u32 tid;
	__u32 tgid;
	char comm[16];
};
_Static_assert(sizeof(struct bt_task) == 32, "size of bt_task");
_Static_assert(__builtin_offsetof(struct bt_task, head) == 0, "bt_task.head");
_Static_assert(__builtin_offsetof(struct bt_task, tid) == 8, "bt_task.tid");
_Static_assert(__builtin_offsetof(struct bt_task, tgid) == 12, "bt_task.tgid");
_Static_assert(__builtin_offsetof(struct bt_task, comm) == 16, "bt_task.comm");

/* K: A cgroup's last path component, once per id. */
struct bt_cgroup {
	__u64 head;
	__u64 cgroup;
	char name[48];
};
_Static_assert(sizeof(struct bt_cgroup) == 64, "size of bt_cgroup");
_Static_assert(__builtin_offsetof(struct bt_cgroup, head) == 0, "bt_cgroup.head");
_Static_assert(__builtin_offsetof(struct bt_cgroup, cgroup) == 8, "bt_cgroup.cgroup");
_Static_assert(__builtin_offsetof(struct bt_cgroup, name) == 16, "bt_cgroup.name");

/* N: One of the names that make a file's path: its own first, then directories upwards. */
struct bt_file_name {
	__u64 head;
	__u64 inode;
	__u32 dev;
	__u32 generation;
	__u8 level;
	__u8 piece;
	__u8 flags;
	__u8 reserved;
	char component[36];
};
_Static_assert(sizeof(struct bt_file_name) == 64, "size of bt_file_name");
_Static_assert(__builtin_offsetof(struct bt_file_name, head) == 0, "bt_file_name.head");
_Static_assert(__builtin_offsetof(struct bt_file_name, inode) == 8, "bt_file_name.inode");
_Static_assert(__builtin_offsetof(struct bt_file_name, dev) == 16, "bt_file_name.dev");
_Static_assert(__builtin_offsetof(struct bt_file_name, generation) == 20, "bt_file_name.generation");
_Static_assert(__builtin_offsetof(struct bt_file_name, level) == 24, "bt_file_name.level");
_Static_assert(__builtin_offsetof(struct bt_file_name, piece) == 25, "bt_file_name.piece");
_Static_assert(__builtin_offsetof(struct bt_file_name, flags) == 26, "bt_file_name.flags");
_Static_assert(__builtin_offsetof(struct bt_file_name, reserved) == 27, "bt_file_name.reserved");
_Static_assert(__builtin_offsetof(struct bt_file_name, component) == 28, "bt_file_name.component");

/* -: Nothing up to the next block of the ring. */
struct bt_pad {
	__u64 head;
};
_Static_assert(sizeof(struct bt_pad) == 8, "size of bt_pad");
_Static_assert(__builtin_offsetof(struct bt_pad, head) == 0, "bt_pad.head");

#endif
