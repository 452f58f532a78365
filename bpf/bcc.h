/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Functions of the bcc backend that write records. recorder/probes/bcc/source.py generates the
 * programs from this kernel's tracepoint formats and puts them behind this text: each program
 * fills a struct bt_event and calls one of the on_* functions below, all of which return 0.
 */
/*
 * Returns whether an event is to be recorded. Counts an event that is not: by kind in left_events,
 * a Q also by reason in left_out.
 */
static inline __attribute__((always_inline)) int bt_wanted(struct bt_event *event, int kind)
{
	u64 reason = bt_judge(event);
	u32 cpu = bpf_get_smp_processor_id();
	struct bt_element *element;

	if (!BT_FILTERING || reason == BT_ADMITTED)
		return 1;
	element = bt_rings.lookup(&cpu);
	if (!element)
		return 0;
	element->area.left_events[kind]++;
	if (kind == BT_Q) {
		opaque(reason);
		element->area.left_out[reason & (BT_REASONS - 1)]++;
	}
	return 0;
}

/* As bt_wanted, for a remap: also true where only the source device is wanted. */
static inline __attribute__((always_inline)) int bt_remap_wanted(struct bt_event *event, int kind)
{
	return (bt_judge(event) == BT_BY_DEVICE && bt_wanted_source(event->old_dev)) ||
	       bt_wanted(event, kind);
}

/*
 * Returns operation and flags (bi_opf) for the letters of blk_fill_rwbs(), the first lowest. other:
 * the operation for N and unknown letters. recorder/schema/kernel_names.py has the same tables.
 */
static inline __attribute__((always_inline)) u32 bt_opf(u64 rwbs, u32 other)
{
	u32 first = rwbs & 0xff, next = rwbs >> 8 & 0xff;
	u32 opf = 0;

	if (first == 'F' && (next == 'R' || next == 'W' || next == 'D' || next == 'F' ||
			     next == 'Z' || next == 'N')) {
		opf = BT_PREFLUSH;
		rwbs >>= 8;
		first = next;
		next = rwbs >> 8 & 0xff;
	}
	rwbs >>= 8;
	if (first == 'R') {
		opf |= BT_OP_READ;
	} else if (first == 'W') {
		opf |= next == 'Z' ? BT_OP_WRITE_ZEROES : BT_OP_WRITE;
		rwbs >>= next == 'Z' ? 8 : 0;
	} else if (first == 'F') {
		opf |= BT_OP_FLUSH;
	} else if (first == 'D') {
		opf |= next == 'E' ? BT_OP_SECURE_ERASE : BT_OP_DISCARD;
		rwbs >>= next == 'E' ? 8 : 0;
	} else if (first == 'Z') {
		rwbs >>= 8;
		if (next == 'A') {
			opf |= BT_OP_ZONE_APPEND;
		} else if (next == 'F') {
			opf |= BT_OP_ZONE_FINISH;
		} else if (next == 'O') {
			opf |= BT_OP_ZONE_OPEN;
		} else if (next == 'C') {
			opf |= BT_OP_ZONE_CLOSE;
		} else if ((rwbs & 0xff) == 'A') {
			opf |= BT_OP_ZONE_RESET_ALL;
			rwbs >>= 8;
		} else {
			opf |= BT_OP_ZONE_RESET;
		}
	} else {
		opf |= other;
	}
#pragma unroll
	for (int i = 0; i < 5; i++) {
		u32 letter = rwbs & 0xff;

		if (!letter)
			break;
		opf |= letter == 'S' ? BT_SYNC :
		       letter == 'M' ? BT_META :
		       letter == 'F' ? BT_FUA :
		       letter == 'A' ? BT_RAHEAD :
				       0;
		rwbs >>= 8;
	}
	return opf;
}

/* Fills the members that all bio records share. */
#define FILL_BIO(record, event)                                                                     \
	do {                                                                                       \
		(record)->bio = 0;                                                                 \
		(record)->sector = (event)->sector;                                                 \
		(record)->bytes = (event)->bytes;                                                   \
		(record)->opf = bt_opf((event)->rwbs, BT_OP_WRITE_ZEROES);                          \
		(record)->dev = (event)->dev;                                                       \
	} while (0)

/* Declares `w` and `r` for a bio's record, and begins writing; returns if it is not wanted. */
#define BEGIN_BIO(type, kind)                                                                      \
	struct bt_writer w;                                                                        \
	struct type *r;                                                                            \
                                                                                                   \
	if (!bt_wanted(event, kind) || !bt_begin(&w, kind))                                               \
		return 0

static inline __attribute__((always_inline)) int on_queue(struct bt_event *event)
{
	BEGIN_BIO(bt_q, BT_Q);
	u32 tid = bt_task(&w), tgid = bpf_get_current_pid_tgid() >> 32;

	r = bt_reserve(&w, BT_Q, sizeof(*r));
	if (r) {
		FILL_BIO(r, event);
		r->tid = tid;
		r->part = event->dev; /* the disk: the tracepoint does not report the partition */
		r->ioprio = 0;
		r->hint = 0;
		r->flags = BT_RECORDER && tgid == BT_RECORDER ? BT_Q_FLAG_OWN : 0;
		r->cgroup = 0;
		r->page = 0;
	}
	bt_end(&w);
	return 0;
}

static inline __attribute__((always_inline)) int on_getrq(struct bt_event *event)
{
	BEGIN_BIO(bt_g, BT_G);
	u32 tid = bt_task(&w);

	r = bt_reserve(&w, BT_G, sizeof(*r));
	if (r) {
		FILL_BIO(r, event);
		r->tid = tid;
	}
	bt_end(&w);
	return 0;
}

static inline __attribute__((always_inline)) int on_merge(struct bt_event *event, int kind)
{
	BEGIN_BIO(bt_m, kind);
	u32 tid = bt_task(&w);

	r = bt_reserve(&w, kind, sizeof(*r));
	if (r) {
		FILL_BIO(r, event);
		r->tid = tid;
		r->rq = 0;
	}
	bt_end(&w);
	return 0;
}

/*
 * The record is the front piece's: from its sector to new_sector, where the rest begins. The
 * difference is taken in 32 bits, as the kernel passes new_sector as an unsigned int.
 */
static inline __attribute__((always_inline)) int on_split(struct bt_event *event)
{
	BEGIN_BIO(bt_x, BT_X);
	u32 tid = bt_task(&w);

	r = bt_reserve(&w, BT_X, sizeof(*r));
	if (r) {
		FILL_BIO(r, event);
		r->bytes = ((u32)event->new_sector - (u32)event->sector) << 9;
		r->tid = tid;
		r->parent = 0;
		r->new_sector = event->new_sector;
	}
	bt_end(&w);
	return 0;
}

static inline __attribute__((always_inline)) int on_remap(struct bt_event *event)
{
	struct bt_writer w;
	struct bt_a *r;
	u32 tid;

	if (!bt_remap_wanted(event, BT_A) || !bt_begin(&w, BT_A))
		return 0;
	tid = bt_task(&w);
	r = bt_reserve(&w, BT_A, sizeof(*r));
	if (r) {
		FILL_BIO(r, event);
		r->tid = tid;
		r->from_sector = event->old_sector;
		r->from_dev = event->old_dev;
		r->part = event->dev; /* the disk: a partition is only in from_dev */
	}
	bt_end(&w);
	return 0;
}

static inline __attribute__((always_inline)) int on_bio_complete(struct bt_event *event)
{
	BEGIN_BIO(bt_bio_complete, BT_BIO_COMPLETE);

	r = bt_reserve(&w, BT_BIO_COMPLETE, sizeof(*r));
	if (r) {
		FILL_BIO(r, event);
		r->status = bt_status(event->error);
	}
	bt_end(&w);
	return 0;
}

/*
 * Returns whether a request has no position: a flush request or passthrough, for which the
 * tracepoint reports sector 0. Tests the letters again, not the opf: comparing the opf would make
 * the verifier follow every combination of letters to the end of the program.
 */
static inline __attribute__((always_inline)) int bt_has_no_sector(struct bt_event *event)
{
	u32 first = event->rwbs & 0xff, next = event->rwbs >> 8 & 0xff;

	if (first == 'F' && next != 'N')
		return next == 'F' || !next || next == 'S' || next == 'M' || next == 'A';
	if (first != 'N' && first != 'F')
		return 0;
	return event->sector == BT_NO_SECTOR || (!event->sector && !event->nr_sector);
}

/*
 * Fills the members that all request records share. N without a position is passthrough, whose
 * direction the tracepoint does not report: recorded as DRV_IN.
 */
#define FILL_RQ(record, event)                                                                      \
	do {                                                                                       \
		int nowhere = bt_has_no_sector(event);                                                    \
                                                                                                   \
		(record)->rq = 0;                                                                  \
		(record)->bio = 0;                                                                 \
		(record)->sector = nowhere ? BT_NO_SECTOR : (event)->sector;                        \
		(record)->bytes = (event)->bytes;                                                   \
		(record)->opf =                                                                    \
			bt_opf((event)->rwbs, nowhere ? BT_OP_DRV_IN : BT_OP_WRITE_ZEROES);         \
		(record)->dev = (event)->dev;                                                       \
	} while (0)

static inline __attribute__((always_inline)) int on_request(struct bt_event *event, int kind)
{
	struct bt_writer w;
	struct bt_start *r;

	if (!bt_wanted(event, kind) || !bt_begin(&w, kind))
		return 0;
	r = bt_reserve(&w, kind, sizeof(*r));
	if (r) {
		FILL_RQ(r, event);
		r->tag = BT_NO_TAG;
		r->sched_tag = BT_NO_TAG;
	}
	bt_end(&w);
	return 0;
}

static inline __attribute__((always_inline)) int on_issue(struct bt_event *event)
{
	struct bt_writer w;
	struct bt_d *r;

	if (!bt_wanted(event, BT_D) || !bt_begin(&w, BT_D))
		return 0;
	r = bt_reserve(&w, BT_D, sizeof(*r));
	if (r) {
		FILL_RQ(r, event);
		r->tag = BT_NO_TAG;
		r->sched_tag = BT_NO_TAG;
		r->hctx = BT_UNKNOWN_HCTX;
		r->ioprio = event->ioprio;
		r->nr_bios = 0;
		r->hint = 0;
		r->flags = 0;
	}
	bt_end(&w);
	return 0;
}

static inline __attribute__((always_inline)) int on_complete(struct bt_event *event, int kind)
{
	struct bt_writer w;
	struct bt_c *r;

	if (!bt_wanted(event, kind) || !bt_begin(&w, kind))
		return 0;
	r = bt_reserve(&w, kind, sizeof(*r));
	if (r) {
		FILL_RQ(r, event);
		r->status = bt_status(event->error);
	}
	bt_end(&w);
	return 0;
}

static inline __attribute__((always_inline)) int on_rq_remap(struct bt_event *event)
{
	struct bt_writer w;
	struct bt_rq_remap *r;

	if (!bt_remap_wanted(event, BT_RQ_REMAP) || !bt_begin(&w, BT_RQ_REMAP))
		return 0;
	r = bt_reserve(&w, BT_RQ_REMAP, sizeof(*r));
	if (r) {
		FILL_RQ(r, event);
		r->from_dev = event->old_dev;
		r->from_sector = event->old_sector;
	}
	bt_end(&w);
	return 0;
}

static inline __attribute__((always_inline)) int on_done(struct bt_event *event)
{
	struct bt_writer w;
	struct bt_done *r;

	if (!bt_wanted(event, BT_DONE) || !bt_begin(&w, BT_DONE))
		return 0;
	r = bt_reserve(&w, BT_DONE, sizeof(*r));
	if (r) {
		r->rq = 0;
		r->dev = event->dev;
		r->reserved = 0;
	}
	bt_end(&w);
	return 0;
}

/* block_plug and block_unplug do not report a device. */
static inline __attribute__((always_inline)) int on_plug(struct bt_event *event)
{
	struct bt_writer w;
	struct bt_p *r;
	u32 tid;

	if (!bt_begin(&w, BT_P))
		return 0;
	tid = bt_task(&w);
	r = bt_reserve(&w, BT_P, sizeof(*r));
	if (r) {
		r->dev = 0;
		r->tid = tid;
	}
	bt_end(&w);
	return 0;
}

static inline __attribute__((always_inline)) int on_unplug(struct bt_event *event)
{
	struct bt_writer w;
	struct bt_u *r;
	u32 tid;

	if (!bt_begin(&w, BT_U))
		return 0;
	tid = bt_task(&w);
	r = bt_reserve(&w, BT_U, sizeof(*r));
	if (r) {
		r->dev = 0;
		r->tid = tid;
		r->depth = event->nr_rq;
		r->explicit = 0;
	}
	bt_end(&w);
	return 0;
}
