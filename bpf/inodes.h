/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * From a page to the inode whose data it is, and from there to directories' entries. bpf/direct.h
 * has the other ways from a bio to its inode.
 *
 * page->mapping identifies the file only while the page cache does the I/O: then the page is
 * locked (read) or under writeback (write). Without that flag the page may be memory that a program
 * has mapped from one file and uses for direct I/O on another.
 */
#ifndef BIOTRAIL_INODES_H
#define BIOTRAIL_INODES_H

#include "own.h"

#define BT_MODE_TYPE 0170000 /* S_IFMT, include/uapi/linux/stat.h */
#define BT_MODE_BLOCK 0060000 /* S_IFBLK */
#define BT_MODE_FILE 0100000 /* S_IFREG */
#define BT_MODE_DIRECTORY 0040000 /* S_IFDIR */
#define BT_MODE_CHARACTER 0020000 /* S_IFCHR */
#define BT_MODE_PIPE 0010000 /* S_IFIFO */
#define BT_OP_WRITES 1 /* op_is_write(): odd operations move data to the device */
#define BT_BTRFS_MAGIC 0x9123683EUL /* BTRFS_SUPER_MAGIC, include/uapi/linux/magic.h */
#define BT_BTRFS_MAIN 5 /* BTRFS_FS_TREE_OBJECTID: the subvolume that every btrfs has */
#define BT_BTRFS_HASH 0x9e3779b1U

/* From include/linux/page-flags.h; values are relocated to the running kernel's. */
enum pageflags { PG_locked, PG_writeback, PG_reserved };

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
	struct inode *d_inode;
	union {
		struct hlist_node d_alias;
	} d_u;
};

/* As kernels declare it where the union is anonymous. */
struct dentry___flat {
	struct hlist_node d_alias;
};

struct file_system_type;
struct super_block___files {
	unsigned long s_magic;
	struct dentry *s_root;
	struct file_system_type *s_type;
};

#pragma clang attribute pop

/* An inode: mapping->host of a page, or of an open file; or a block device. */
struct bt_host {
	__u64 address; /* 0: a block device, whose dev_t is in `inode` */
	__u64 inode;
	__u32 dev;
	__u32 generation; /* on btrfs with the subvolume in it: bt_mix_in_subvolume() */
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
static __always_inline bool bt_can_identify_files(void)
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

/* Returns the address of the struct btrfs_root of an inode of btrfs. */
static __always_inline __u64 bt_btrfs_root(__u64 inode_address)
{
	return bt_read_u64(inode_address - ways.btrfs_vfs_inode + ways.btrfs_root);
}

/*
 * Mixes an inode's subvolume into its generation: in btrfs a number is used once in each of them,
 * and a snapshot's files have the generations of their originals.
 */
static __always_inline void bt_mix_in_subvolume(struct bt_host *host)
{
	__u32 id = bt_read_u32(bt_btrfs_root(host->address) + ways.btrfs_root_id);

	if (id != BT_BTRFS_MAIN)
		host->generation ^= id * BT_BTRFS_HASH;
}

/* Fills all members from the inode at host->address, but not its mode. */
static __always_inline void bt_read_host(struct bt_host *host)
{
	struct super_block___files *more = NULL;
	struct inode *inode = NULL;
	struct super_block *sb = NULL;
	__u64 super;

	host->inode = bt_read_u64(host->address + bpf_core_field_offset(inode->i_ino));
	host->generation = bt_read_u32(host->address + bpf_core_field_offset(inode->i_generation));
	super = bt_read_u64(host->address + bpf_core_field_offset(inode->i_sb));
	host->dev = bt_read_u32(super + bpf_core_field_offset(sb->s_dev));
	if (ways.btrfs &&
	    bt_read_u64(super + bpf_core_field_offset(more->s_magic)) == BT_BTRFS_MAGIC)
		bt_mix_in_subvolume(host);
}

/* Returns the flags of a head page; they are an unsigned long. */
static __always_inline __u64 bt_page_flags(__u64 page)
{
	struct page___memdesc *new = NULL;
	struct page *cached = NULL;

	if (bpf_core_field_exists(cached->flags))
		return bt_read_u64(page + bpf_core_field_offset(cached->flags));
	return bt_read_u64(page + bpf_core_field_offset(new->flags));
}

/*
 * Fills `host` for a page whose address is a scalar to the verifier: a clone's, or a tail page of
 * a compound page. false: not a page of the page cache, or no I/O by the page cache.
 */
static __always_inline bool bt_host_by_address(__u64 page, __u32 opf, struct bt_host *host)
{
	struct address_space *space = NULL;
	struct inode *inode = NULL;
	struct page *cached = NULL;
	__u64 mapping;

	page = bt_head_page(page);
	mapping = bt_read_u64(page + bpf_core_field_offset(cached->mapping));
	if (!mapping || mapping & BT_NO_FILE)
		return false;
	host->address = bt_read_u64(mapping + bpf_core_field_offset(space->host));
	if (!host->address)
		return false;
	host->mode = bt_read_u32(host->address + bpf_core_field_offset(inode->i_mode));
	if (!bt_host_counts(host, bt_page_flags(page), opf))
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
	if (ways.btrfs && ((struct super_block___files *)inode->i_sb)->s_magic == BT_BTRFS_MAGIC)
		bt_mix_in_subvolume(host);
	return true;
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

/* Whether a dentry is the root of its inode's file system, and no loose piece of a tree. */
static __always_inline bool bt_is_root(__u64 dentry_address, __u64 inode_address)
{
	struct super_block___files *sb = NULL;
	struct inode *inode = NULL;
	__u64 super = bt_read_u64(inode_address + bpf_core_field_offset(inode->i_sb));

	return bt_read_u64(super + bpf_core_field_offset(sb->s_root)) == dentry_address;
}

#endif
