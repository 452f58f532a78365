/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The file that a bio's first page belongs to: a FILE record behind its Q. Before the first FILE
 * record of a file come FILE_NAME records with its path, one component each; again when another
 * file has replaced it in its cache slot.
 *
 * page->mapping identifies the file only while the page cache does the I/O: then the page is
 * locked (read) or under writeback (write). Without that flag the page may be memory that a program
 * has mapped from one file and uses for direct I/O on another. For direct I/O by iomap (ext4, XFS
 * and others) the file is found by bi_private, a struct iomap_dio, if bi_end_io is
 * iomap_dio_bio_end_io().
 */
#ifndef BIOTRAIL_FILES_H
#define BIOTRAIL_FILES_H

#include "own.h"

#define BT_FILE_SLOT_BITS 15 /* recorder/log/file_names.py has the same */
#define BT_FILE_HASH 0x9e3779b97f4a7c15ULL /* 2^64 / golden ratio */
#define BT_NAME_RECORDS 32 /* at most, for one path */
#define BT_MODE_TYPE 0170000 /* S_IFMT, include/uapi/linux/stat.h */
#define BT_MODE_BLOCK 0060000 /* S_IFBLK */
#define BT_OP_WRITES 1 /* op_is_write(): odd operations move data to the device */

struct bt_file_slot {
	__u64 inode;
	__u32 dev;
	__u32 generation;
	__u64 log; /* bt_generation when the path was written */
};

/* The loader sets 2^BT_FILE_SLOT_BITS entries if files are recorded. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct bt_file_slot);
} bt_file_slots SEC(".maps");

/* From include/linux/page-flags.h; values are relocated to the running kernel's. */
enum pageflags { PG_locked, PG_writeback };

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

/* Since 6.18 the flags are in a structure. */
typedef struct {
	unsigned long f;
} memdesc_flags_t;
struct page___memdesc {
	memdesc_flags_t flags;
};

struct hlist_node {
	struct hlist_node *next;
};

struct qstr {
	const unsigned char *name;
};

struct dentry {
	struct dentry *d_parent;
	struct qstr d_name;
	union {
		struct hlist_node d_alias;
	} d_u;
};

struct file {
	struct inode *f_inode;
};

struct kiocb {
	struct file *ki_filp;
};

struct iomap_dio {
	struct kiocb *iocb;
};

/* As kernels declare it where the union is anonymous. */
struct dentry___flat {
	struct hlist_node d_alias;
};

#pragma clang attribute pop

/* An inode: mapping->host of a page, or of an open file. */
struct bt_host {
	__u64 address;
	__u64 inode;
	__u32 dev;
	__u32 generation;
	__u32 mode;
};

/* The page flag that the page cache sets while it does this operation. */
static __always_inline __u64 bt_transit_bit(__u32 opf)
{
	if (opf & BT_OP_WRITES)
		return 1ULL << bpf_core_enum_value(enum pageflags, PG_writeback);
	return 1ULL << bpf_core_enum_value(enum pageflags, PG_locked);
}

/* Whether this kernel has the members that lead from a page to its inode. */
static __always_inline bool bt_tells_files(void)
{
	struct page___memdesc *new = NULL;
	struct inode *inode = NULL;
	struct page *page = NULL;

	return bpf_core_field_exists(page->mapping) && bpf_core_field_exists(inode->i_mode) &&
	       (bpf_core_field_exists(page->flags) || bpf_core_field_exists(new->flags));
}

/* Whether the page cache does this I/O, by the page's flag. A block device's pages need none. */
static __always_inline bool bt_host_counts(const struct bt_host *host, __u64 flags, __u32 opf)
{
	return (host->mode & BT_MODE_TYPE) == BT_MODE_BLOCK || flags & bt_transit_bit(opf);
}

/* Fills all members from the inode at host->address, but not its mode. */
static __always_inline void bt_read_host(struct bt_host *host)
{
	struct inode *inode = NULL;
	struct super_block *sb = NULL;
	__u64 super;

	host->inode = bt_read_u64(host->address + bpf_core_field_offset(inode->i_ino));
	host->generation = bt_read_u32(host->address + bpf_core_field_offset(inode->i_generation));
	super = bt_read_u64(host->address + bpf_core_field_offset(inode->i_sb));
	host->dev = bt_read_u32(super + bpf_core_field_offset(sb->s_dev));
}

/* Fills `host` for a bio of iomap's direct I/O, from its struct iomap_dio; false: not found. */
static __always_inline bool bt_host_of_direct(struct bio *bio, struct bt_host *host)
{
	struct iomap_dio *dio = NULL;
	struct kiocb *iocb = NULL;
	struct file *file = NULL;
	__u64 at;

	if (!bpf_core_field_exists(dio->iocb))
		return false;
	at = bt_read_u64((__u64)bio->bi_private + bpf_core_field_offset(dio->iocb));
	at = bt_read_u64(at + bpf_core_field_offset(iocb->ki_filp));
	host->address = bt_read_u64(at + bpf_core_field_offset(file->f_inode));
	if (!host->address)
		return false;
	host->mode = 0; /* not a block device: those do direct I/O without iomap */
	bt_read_host(host);
	return true;
}

/*
 * Fills `host` for a page whose address is a scalar to the verifier: a clone's, or a tail page of
 * a compound page. false: not a page of the page cache, or no I/O by the page cache.
 */
static __always_inline bool bt_host_by_address(__u64 page, __u32 opf, struct bt_host *host)
{
	struct page___memdesc *new = NULL;
	struct address_space *space = NULL;
	struct inode *inode = NULL;
	struct page *cached = NULL;
	__u64 mapping, flags;

	page = bt_head_page(page);
	mapping = bt_read_u64(page + bpf_core_field_offset(cached->mapping));
	if (!mapping || mapping & BT_NO_FILE)
		return false;
	if (bpf_core_field_exists(cached->flags))
		flags = bt_read_u64(page + bpf_core_field_offset(cached->flags));
	else
		flags = bt_read_u64(page + bpf_core_field_offset(new->flags));
	host->address = bt_read_u64(mapping + bpf_core_field_offset(space->host));
	if (!host->address)
		return false;
	host->mode = bt_read_u32(host->address + bpf_core_field_offset(inode->i_mode));
	if (!bt_host_counts(host, flags, opf))
		return false;
	bt_read_host(host);
	return true;
}

/*
 * As bt_host_by_address, but by direct loads, which a typed pointer allows. word: memory through
 * which pointers pass, so that the verifier takes them for scalars and permits bit operations.
 */
static __always_inline bool bt_host_by_type(struct page *page, __u32 opf, volatile __u64 *word,
					    struct bt_host *host)
{
	struct inode *inode;
	__u64 flags;

	*word = (__u64)page->mapping;
	if (!*word || *word & BT_NO_FILE)
		return false;
	if (bpf_core_field_exists(page->flags))
		flags = page->flags;
	else
		flags = ((struct page___memdesc *)page)->flags.f;
	inode = page->mapping->host;
	*word = (__u64)inode;
	host->address = *word;
	if (!host->address)
		return false;
	host->mode = inode->i_mode;
	if (!bt_host_counts(host, flags, opf))
		return false;
	host->inode = inode->i_ino;
	host->generation = inode->i_generation;
	host->dev = inode->i_sb->s_dev;
	return true;
}

/* Whether bv_page of the first bio_vec is the bio's first page, and no tail page. */
static __always_inline bool bt_is_head(struct bio *bio, struct page *page, volatile __u64 *word)
{
	if (bpf_core_field_exists(page->compound_head))
		*word = page->compound_head;
	else if (bpf_core_field_exists(((struct page___info *)page)->compound_info))
		*word = ((struct page___info *)page)->compound_info;
	else
		return false;
	return !(*word & 1) && !bio->bi_iter.bi_idx;
}

/* Fills `host` with the inode of the bio's first page (r->page); false: it is no file's. */
static __always_inline bool bt_host_of(struct bt_writer *w, struct bio *bio, struct bt_q *r,
				       struct bt_host *host)
{
	volatile __u64 *word = &w->area->scratch[w->level];
	struct page *page;

	*word = r->page;
	if (!*word)
		return false;
	if (config.iomap_end_io && (__u64)bio->bi_end_io == config.iomap_end_io)
		return bt_host_of_direct(bio, host);
	page = bio->bi_io_vec->bv_page;
	if (bt_is_head(bio, page, word))
		return bt_host_by_type(page, r->opf, word, host);
	*word = r->page;
	return bt_host_by_address(*word, r->opf, host);
}

/* Returns the address of one of the inode's dentries (i_dentry); 0: none is cached. */
static __always_inline __u64 bt_dentry_of(__u64 inode_address)
{
	struct dentry___flat *flat = NULL;
	struct dentry *dentry = NULL;
	struct inode *inode = NULL;
	__u64 alias;

	if (!bpf_core_field_exists(inode->i_dentry))
		return 0;
	alias = bt_read_u64(inode_address + bpf_core_field_offset(inode->i_dentry.first));
	if (!alias)
		return 0;
	if (bpf_core_field_exists(dentry->d_u.d_alias))
		return alias - bpf_core_field_offset(dentry->d_u.d_alias);
	if (bpf_core_field_exists(flat->d_alias))
		return alias - bpf_core_field_offset(flat->d_alias);
	return 0;
}

static __always_inline __u64 bt_parent_of(__u64 dentry_address)
{
	struct dentry *dentry = NULL;

	return bt_read_u64(dentry_address + bpf_core_field_offset(dentry->d_parent));
}

static __always_inline __u64 bt_name_of(__u64 dentry_address)
{
	struct dentry *dentry = NULL;

	return bt_read_u64(dentry_address + bpf_core_field_offset(dentry->d_name.name));
}

/*
 * Writes the path's components from the file up to its file system's root, long ones in pieces.
 * false: the ring is full, or there is no dentry with a parent.
 */
static __always_inline bool bt_write_names(struct bt_writer *w, const struct bt_host *host)
{
	__u64 dentry = bt_dentry_of(host->address), parent, above, name;
	struct inode *inode = NULL;
	struct bt_file_name *r;
	__u32 links = bt_read_u32(host->address + bpf_core_field_offset(inode->i_nlink));
	__u8 level = 0, piece = 0;

	parent = dentry ? bt_parent_of(dentry) : 0;
	if (parent == dentry) /* IS_ROOT(): disconnected; or no dentry at all */
		return false;
	name = bt_name_of(dentry);
	for (int i = 0; i < BT_NAME_RECORDS; i++) {
		r = bt_reserve(w, BT_FILE_NAME, sizeof(*r));
		if (!r)
			return false;
		r->inode = host->inode;
		r->dev = host->dev;
		r->generation = host->generation;
		r->level = level;
		r->piece = piece;
		r->flags = links ? 0 : BT_FILE_NAME_DELETED;
		r->reserved = 0;
		__builtin_memset(r->component, 0, sizeof(r->component));
		if (bpf_probe_read_kernel_str(r->component, sizeof(r->component),
					      (void *)name) == sizeof(r->component)) {
			piece++;
			name += sizeof(r->component) - 1;
		} else {
			above = bt_parent_of(parent);
			if (!parent || above == parent) {
				r->flags |= BT_FILE_NAME_LAST;
				return true;
			}
			name = bt_name_of(parent);
			parent = above;
			level++;
			piece = 0;
		}
		if (i == BT_NAME_RECORDS - 1)
			r->flags |= BT_FILE_NAME_LAST | BT_FILE_NAME_CUT;
	}
	return true;
}

/* Writes the file's path unless it is cached. */
static __always_inline void bt_name_file(struct bt_writer *w, const struct bt_host *host)
{
	__u32 place = ((host->inode + ((__u64)host->dev << 32)) * BT_FILE_HASH) >>
		      (64 - BT_FILE_SLOT_BITS);
	struct bt_file_slot *slot = bpf_map_lookup_elem(&bt_file_slots, &place);
	__u64 log = bt_generation;

	if (!slot || (slot->inode == host->inode && slot->dev == host->dev &&
		      slot->generation == host->generation && slot->log == log))
		return;
	if (!bt_write_names(w, host))
		return;
	slot->inode = host->inode;
	slot->dev = host->dev;
	slot->generation = host->generation;
	slot->log = log;
}

/*
 * Writes the FILE record of a bio, if it has a file. r: its Q record. Not inlined, so that in a
 * recording without files, where the verifier removes the call, on_queue() spills no registers.
 */
static __noinline int bt_put_file(struct bt_writer *w, struct bio *bio, struct bt_q *r)
{
	struct inode *inode = NULL;
	struct bt_file *record;
	struct bt_host host;

	if (!bt_tells_files() || !bt_host_of(w, bio, r, &host))
		return 0;
	if ((host.mode & BT_MODE_TYPE) == BT_MODE_BLOCK) {
		/* Old kernels leave i_ino of these inodes unset: i_rdev takes its place. */
		host.inode = bt_read_u32(host.address + bpf_core_field_offset(inode->i_rdev));
		host.dev = 0;
	} else {
		bt_name_file(w, &host);
	}
	record = bt_reserve(w, BT_FILE, sizeof(*record));
	if (!record)
		return 0;
	record->bio = (__u64)bio;
	record->inode = host.inode;
	record->dev = host.dev;
	record->generation = host.generation;
	return 0;
}

static __always_inline void bt_file(struct bt_writer *w, struct bio *bio, struct bt_q *r)
{
	if (config.files)
		bt_put_file(w, bio, r);
}

#endif
