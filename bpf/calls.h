/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * System calls. A CALL record after the Q of a call's first bio has its number and arguments, from the
 * registers that the thread had when it entered the kernel (bpf_task_pt_regs(), since 5.15). If
 * calls are timed, a RETURN record is written when a call ends that queued a bio, waited for I/O or
 * in state D, reaped I/O after a wait, or took longer than path.over_ns, but for those that wait by their
 * nature (path.idles); unless it queued bios, and the filters left out all of them. A call in which
 * its thread ends (exit_group) does not return: it ends where the thread leaves its CPU for good.
 */
#ifndef BIOTRAIL_CALLS_H
#define BIOTRAIL_CALLS_H

#include "files.h"
#include "follow.h"
#include "path.h"
#include "registers.h"

#define BT_MANY 0xffff
#define BT_OFTEN 0xff
/* What a descriptor is of: bt_call_file.other and one. */
enum bt_open { BT_OPEN_FILE = 1, BT_OPEN_NAMED = 2, BT_OPEN_PIPE = 3 };

/*
 * Whether the call in the slot has a CALL record that a bio queued now can refer to. Not one that an
 * interrupting program wrote after this one read the clock: what reads the log looks back in time.
 */
static __always_inline bool bt_call_is_recorded(struct bt_call_slot *slot, __u64 now)
{
	return slot->call_written >= slot->entry && now - slot->call_written < BT_CALL_REPEAT_NS;
}

/*
 * Counts a bio that this thread queues, if calls are timed, and writes its CALL record, if calls
 * are recorded: once per timed call and BT_CALL_REPEAT_NS, as the Q of further bios, `q`, refer to it.
 * Calls that are not timed cannot be distinguished, so theirs is written for each bio. The
 * slot is marked only if the ring had room, so a Q never refers to a record that was not written.
 */
static __always_inline void bt_call(struct bt_writer *w, struct bio *bio, struct bt_q *q, __u32 tid)
{
	struct bt_call_slot *slot = NULL;
	struct bt_regs now = {};
	struct bt_call *r;
	__u64 entry = 0;
	__u32 turn = 0;

	if (path.time) {
		slot = bt_call_slot(tid);
		if (bt_is_inside(slot, tid)) {
			slot->bios++;
			entry = slot->entry;
			turn = slot->turn;
			if (path.call && bt_call_is_recorded(slot, w->now)) {
				q->flags |= turn << BT_Q_TURN_SHIFT;
				return;
			}
			if (slot->call_written < entry)
				turn = turn < BT_CALL_TURNS ? turn + 1 : 1;
		}
	}
	if (!path.call || !bt_running_call(&now))
		return;
	r = bt_reserve(w, BT_CALL, sizeof(*r));
	if (!r)
		return;
	if (slot && turn) {
		slot->call_written = w->now;
		slot->turn = turn;
	}
	r->bio = (__u64)bio;
	r->entry = entry;
	r->arg0 = now.args[0];
	r->arg1 = now.args[1];
	r->arg2 = now.args[2];
	r->arg3 = now.args[3];
	r->number = now.number;
	r->foreign = now.foreign;
	r->turn = turn;
	__builtin_memset(r->reserved, 0, sizeof(r->reserved));
}

/*
 * Whether the filters by task let the running thread's calls be timed: as they judge the bios that
 * it queues, its cgroup taken for theirs. The recorder's own calls are not, unless its bios are.
 */
static __always_inline bool bt_call_wanted(__u64 ids)
{
	if (config.leave_own && bt_by_recorder(ids >> 32))
		return false;
	return bt_judge_task() == BT_ADMITTED && (!config.by_cgroup || bt_cgroup_of_task_wanted());
}

/* The running thread queued a bio that a filter left out, if calls are timed. */
static __always_inline void bt_call_left_out(void)
{
	struct bt_call_slot *slot;
	__u32 tid;

	if (!path.time)
		return;
	tid = bpf_get_current_pid_tgid();
	slot = bt_call_slot(tid);
	if (bt_is_inside(slot, tid))
		slot->left_out++;
}

/* Whether the call has queued bios, of which filters left out all. */
static __always_inline bool bt_is_of_others(struct bt_call_slot *slot)
{
	return slot->left_out && !slot->bios;
}

static __always_inline int on_sys_enter(void *ctx, __u64 number)
{
	struct bt_entered *runs = bt_runs();
	__u64 timing = bt_timing;
	struct bt_call_slot *slot;
	__u64 ids;
	__u32 tid;

	if (!(timing & 1)) /* timing has ended, and this program has not been detached yet */
		return 0;
	runs->calls++;
	runs->inside = 0;
	ids = bpf_get_current_pid_tgid();
	if (!bt_call_wanted(ids))
		return 0;
	runs->timed++;
	tid = ids;
	runs->inside = tid;
	slot = bt_call_slot(tid);
	if (!slot)
		return 0;
	slot->tid = tid;
	slot->number = number;
	slot->blocked = 0;
	slot->runnable = 0;
	slot->bios = 0;
	slot->left_out = 0;
	slot->waits = 0;
	slot->io_waits = 0;
	slot->timing = timing;
	slot->base = (__u64)ctx;
	slot->entry = bt_now();
	return 0;
}

/*
 * Whether a call that ends now is recorded. 32-bit programs' calls have other numbers than those
 * whose bits are set.
 */
static __always_inline bool bt_call_counts(struct bt_call_slot *slot)
{
	if (slot->bios || slot->io_waits)
		return true;
	if (bt_now() - slot->entry > path.over_ns &&
	    (!bt_names(path.idles, slot->number) || bt_is_foreign()))
		return true;
	return slot->waits && bt_names(path.reaps, slot->number);
}

/*
 * The beginning of the name that the kernel gives an open file without a path: "TCP", "UNIX-STREAM",
 * "[eventfd]", "kvm-vcpu:0"; 0: none. It is the file's own: all anonymous files have one inode.
 */
static __always_inline __u64 bt_anon_file_name(__u64 open)
{
	struct file *file = NULL;
	__u64 name = 0;

	if (!bpf_core_field_exists(file->f_path.dentry))
		return 0;
	open = bt_read_u64(open + bpf_core_field_offset(file->f_path.dentry));
	bpf_probe_read_kernel_str(&name, sizeof(name), (void *)bt_name_of(open));
	return name;
}

/*
 * Fills `host` with the file, directory or device that the running thread has open as `fd`, and writes
 * its path unless it is cached. Returns a positive BT_OPEN_…, or 0: it is not known. Of a block device
 * `inode` is its dev_t and `dev` 0. What else is open, such as a socket, counts only for a call that
 * queued no bio: else the bios' file says more. Not inlined, as bt_put_file().
 */
static __noinline int bt_call_host(struct bt_writer *w, __u32 fd, __u64 bios, struct bt_host *host)
{
	struct inode *inode = NULL;
	struct file *file = NULL;
	__u32 type;
	__u64 at;

	if (!bt_can_identify_files() ||
	    !bpf_core_enum_value_exists(enum bpf_func_id___task,
					BPF_FUNC_get_current_task_btf___task))
		return 0;
	at = bt_open_file(fd);
	if (!at || !bt_host_at(bt_read_u64(at + bpf_core_field_offset(file->f_inode)), host))
		return 0;
	type = host->mode & BT_MODE_TYPE;
	if (type == BT_MODE_BLOCK) {
		host->inode = bt_read_u32(host->address + bpf_core_field_offset(inode->i_rdev));
		host->dev = 0;
		return BT_OPEN_FILE;
	}
	if (type == BT_MODE_FILE || type == BT_MODE_DIRECTORY || type == BT_MODE_CHARACTER) {
		bt_name_file(w, host);
		return BT_OPEN_FILE;
	}
	if (bios)
		return 0;
	host->inode = type == BT_MODE_PIPE ? 0 : bt_anon_file_name(at);
	host->dev = 0;
	host->generation = 0;
	return type == BT_MODE_PIPE ? BT_OPEN_PIPE : BT_OPEN_NAMED;
}

/*
 * Writes the CALL_FILE record of a call whose RETURN, or whose wait's WAIT, was just written. what: as
 * bt_call_host() returned it.
 */
static __always_inline void bt_put_call_file(struct bt_writer *w, __u32 tid, __u64 inode, __u32 dev,
					     __u32 generation, __u32 what)
{
	struct bt_call_file *r = bt_reserve(w, BT_CALL_FILE, sizeof(*r));

	if (!r)
		return;
	r->inode = inode;
	r->dev = dev;
	r->generation = generation;
	r->tid = tid;
	r->other = what - BT_OPEN_FILE;
}

/* The running thread's call ends. regs: those at its entry; NULL: not known. */
static __always_inline int bt_call_ends(const void *regs, __u64 result, __u32 tid)
{
	struct bt_call_slot *slot = bt_call_slot(tid);
	struct bt_regs now = {};
	struct bt_host host = {};
	struct bt_return *r;
	struct bt_writer w;
	int what;

	if (!bt_is_inside(slot, tid))
		return 0;
	slot->tid = 0;
	if (!bt_call_counts(slot))
		return 0;
	if (bt_is_of_others(slot)) {
		bt_left_event(BT_RETURN);
		return 0;
	}
	if (!bt_begin(&w, BT_RETURN))
		return 0;
	bt_task(&w);
	r = bt_reserve(&w, BT_RETURN, sizeof(*r));
	if (r) {
		if (regs)
			bt_read_regs(&now, regs);
		r->entry = slot->entry;
		r->blocked = slot->blocked;
		r->runnable = slot->runnable;
		r->fd = now.args[0];
		r->length = (__u64)slot->number == path.ioctl ? now.args[1] : now.args[2];
		r->offset = now.args[3];
		r->result = result;
		r->tid = tid;
		r->number = slot->number;
		r->foreign = bt_is_foreign();
		r->queued = slot->bios > BT_MANY ? BT_MANY : slot->bios;
		r->waits = slot->waits > BT_OFTEN ? BT_OFTEN : slot->waits;
		what = config.files && regs && !r->foreign && bt_names(path.fds, slot->number) ?
			       bt_call_host(&w, now.args[0], slot->bios, &host) :
			       0;
		if (what > 0)
			bt_put_call_file(&w, tid, host.inode, host.dev, host.generation, what);
	}
	bt_end(&w);
	return 0;
}

static __always_inline int on_sys_exit(const void *regs, __u64 result)
{
	return bt_call_ends(regs, result, bpf_get_current_pid_tgid());
}

#endif
