/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Rings and TASK records for the bcc backend, separate from ring.h because bcc has no global
 * variables and rewrites map look-ups. recorder/probes/bcc/source.py puts constants and records.h
 * before this text, and bcc.h after it. Nothing of the kernel's headers is used.
 *
 * The layout is that of ring.h (recorder/probes/rings/ring.py reads both), but only level 0 is used: the
 * kernel runs one tracepoint program at a time on a CPU and counts those that it skips
 * (trace_call_bpf(), bpf_prog_active).
 */
#define BT_LEVELS 3
#define BT_KINDS 64
#define BT_REASONS 16
#define BT_HEADER_BYTES 4096
#define BT_UNKNOWN_HCTX 0xffff
#define BT_TASK_SLOTS 16384

#define opaque(var) asm volatile("" : "+r"(var))
#define bt_barrier() asm volatile("" ::: "memory")

/* Header of each element of bt_rings; recorder/probes/rings/ring.py has the same offsets. */
struct bt_area {
	u64 depth;
	u64 head[BT_LEVELS];
	u64 pad[4];
	u64 lost[BT_LEVELS][BT_KINDS];
	u64 too_deep[BT_KINDS];
	struct {
		u64 position;
		u64 pad[7];
	} tail[BT_LEVELS];
	u64 left_out[BT_REASONS];
	u64 left_events[BT_KINDS];
};

struct bt_element {
	struct bt_area area;
	char rest[BT_AREA_BYTES - sizeof(struct bt_area)];
};

struct bt_slot {
	u32 tid;
	u32 tgid;
	u64 comm[2];
};

BPF_F_TABLE("array", u32, struct bt_element, bt_rings, BT_CPUS, BPF_F_MMAPABLE);
BPF_ARRAY(bt_tasks, struct bt_slot, BT_TASK_SLOTS);

/* A tracepoint's fields; 0 where its format has no such field. */
struct bt_event {
	u64 sector;
	u64 old_sector;
	u64 new_sector;
	u64 rwbs; /* the letters, the first in the lowest byte */
	u32 dev;
	u32 old_dev;
	u32 nr_sector;
	u32 bytes; /* nr_sector * 512 where the format has no bytes */
	u32 nr_rq;
	s32 error;
	u16 ioprio;
};

/* A program's use of its CPU's ring, between bt_begin and bt_end; members as in ring.h. */
struct bt_writer {
	struct bt_area *area;
	u64 now;
	u64 head;
	u64 tail;
};

static inline __attribute__((always_inline)) int bt_begin(struct bt_writer *w, int kind)
{
	u32 cpu = bpf_get_smp_processor_id();
	struct bt_element *element = bt_rings.lookup(&cpu);
	struct bt_area *area;

	if (!element)
		return 0;
	area = &element->area;
	if (*(volatile u64 *)&area->depth) {
		area->too_deep[kind]++;
		return 0;
	}
	*(volatile u64 *)&area->depth = 1;
	bt_barrier();
	w->area = area;
	w->head = area->head[0];
	w->tail = *(volatile u64 *)&area->tail[0].position;
	w->now = bpf_ktime_get_ns() & BT_TIMESTAMP_MASK;
	return 1;
}

static inline __attribute__((always_inline)) void bt_end(struct bt_writer *w)
{
	bt_barrier();
	*(volatile u64 *)&w->area->head[0] = w->head;
	bt_barrier();
	*(volatile u64 *)&w->area->depth = 0;
}

static inline __attribute__((always_inline)) void *bt_at(struct bt_writer *w, u64 position,
							 u64 size)
{
	u64 offset = BT_HEADER_BYTES + (position & (BT_RING_BYTES - 1));

	opaque(offset);
	if (offset > BT_AREA_BYTES - size)
		return NULL;
	return (void *)w->area + offset;
}

/* As bt_reserve of ring.h. */
static inline __attribute__((always_inline)) void *bt_reserve(struct bt_writer *w, int kind,
							      u64 size)
{
	u64 left = BT_BLOCK_BYTES - (w->head & (BT_BLOCK_BYTES - 1));
	u64 at = w->head;
	u64 *record;

	if (left < size)
		at += left;
	if (at + size - w->tail > BT_RING_BYTES)
		goto full;
	if (left < size) {
		record = bt_at(w, w->head, sizeof(struct bt_pad));
		if (!record)
			goto full;
		*record = w->now | (u64)BT_PAD << BT_TIMESTAMP_BITS;
	}
	record = bt_at(w, at, size);
	if (!record)
		goto full;
	*record = w->now | (u64)kind << BT_TIMESTAMP_BITS;
	w->head = at + size;
	return record;
full:
	w->area->lost[0][kind]++;
	return NULL;
}

/* As bt_task of dictionary.h. */
static inline __attribute__((always_inline)) u32 bt_task(struct bt_writer *w)
{
	struct bt_slot now = {};
	struct bt_slot *slot;
	struct bt_task *record;
	u64 ids = bpf_get_current_pid_tgid();
	u32 index;

	now.tid = ids;
	now.tgid = ids >> 32;
	bpf_get_current_comm(&now.comm, sizeof(now.comm));
	index = now.tid & (BT_TASK_SLOTS - 1);
	slot = bt_tasks.lookup(&index);
	if (!slot)
		return now.tid;
	if (slot->tid == now.tid && slot->tgid == now.tgid && slot->comm[0] == now.comm[0] &&
	    slot->comm[1] == now.comm[1])
		return now.tid;
	record = bt_reserve(w, BT_TASK, sizeof(*record));
	if (!record)
		return now.tid;
	record->tid = now.tid;
	record->tgid = now.tgid;
	((u64 *)record->comm)[0] = now.comm[0];
	((u64 *)record->comm)[1] = now.comm[1];
	*slot = now;
	return now.tid;
}
