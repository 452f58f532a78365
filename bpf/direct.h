/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * From a bio to the inode that it moves data of. In this order, each where the one before does not
 * apply:
 *
 * 1. By the function that ends the bio (bi_end_io): that of iomap's direct I/O, of the older direct
 *    I/O code, of a block device's, or of btrfs, whose bios have their inode. Exact.
 * 2. By the bio's first page, while the page cache moves it (inodes.h). Exact.
 * 3. By the running system call: a read or write of a file that is open with O_DIRECT, if the bio
 *    moves data in the call's direction between a program's memory and the device that the file is
 *    or lies on. A bio that carries anything else, such as metadata that the call needs first, is
 *    not the file's data: its page is a block device's, or a buffer of the file system's.
 */
#ifndef BIOTRAIL_DIRECT_H
#define BIOTRAIL_DIRECT_H

#include "inodes.h"
#include "registers.h"

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct path {
	struct dentry *dentry;
};

struct file {
	struct inode *f_inode;
	__u32 f_flags;
	struct path f_path;
};

struct kiocb {
	struct file *ki_filp;
};

struct iomap_dio {
	struct kiocb *iocb;
};

struct fdtable {
	__u32 max_fds;
	struct file **fd;
};

struct files_struct {
	struct fdtable *fdt;
};

struct block_device___held {
	void *bd_holder;
};

struct task_struct___files {
	struct files_struct *files;
};

#pragma clang attribute pop

/* What a bio's bi_end_io says of its inode. */
enum bt_found { BT_FOUND, BT_NOT_FOUND, BT_NOT_BY_END_IO };

/* Fills `host` from the inode at an address; 0: false. */
static __always_inline bool bt_host_at(__u64 inode_address, struct bt_host *host)
{
	struct inode *inode = NULL;

	host->address = inode_address;
	if (!inode_address)
		return false;
	host->mode = bt_read_u32(inode_address + bpf_core_field_offset(inode->i_mode));
	bt_read_host(host);
	return true;
}

/* Fills `host` for a bio of iomap's direct I/O, from its struct iomap_dio; false: not found. */
static __always_inline bool bt_host_of_iomap(struct bio *bio, struct bt_host *host)
{
	struct iomap_dio *dio = NULL;
	struct kiocb *iocb = NULL;
	struct file *file = NULL;
	__u64 at;

	if (!bpf_core_field_exists(dio->iocb))
		return false;
	at = bt_read_u64((__u64)bio->bi_private + bpf_core_field_offset(dio->iocb));
	at = bt_read_u64(at + bpf_core_field_offset(iocb->ki_filp));
	return bt_host_at(bt_read_u64(at + bpf_core_field_offset(file->f_inode)), host);
}

/* Fills `host` for a bio of fs/direct-io.c, from its struct dio; false: not found. */
static __always_inline bool bt_host_of_dio(struct bio *bio, struct bt_host *host)
{
	return bt_host_at(bt_read_u64((__u64)bio->bi_private + ways.dio_inode), host);
}

/* Fills `host` for a bio inside a struct btrfs_bio; false: it is of no inode (scrub). */
static __always_inline bool bt_host_of_btrfs(__u64 bio, struct bt_host *host)
{
	__u64 inode = bt_read_u64(bio - ways.btrfs_bio + ways.btrfs_bio_inode);

	return bt_host_at(inode ? inode + ways.btrfs_bio_vfs : 0, host);
}

/* Fills `host` for a copy of a bio that btrfs writes to several devices. */
static __always_inline bool bt_host_of_copy(struct bio *bio, struct bt_host *host)
{
	__u64 at = bt_read_u64((__u64)bio->bi_private + ways.btrfs_stripe_context);

	return bt_host_of_btrfs(bt_read_u64(at + ways.btrfs_context_bio), host);
}

/* Fills `host` for a bio of direct I/O on a block device itself. */
static __always_inline void bt_host_of_device(struct bio *bio, struct bt_host *host)
{
	struct bt_place place = bt_bio_place(bio);

	host->address = 0;
	host->inode = place.part;
	host->dev = 0;
	host->generation = 0;
	host->mode = BT_MODE_BLOCK;
}

/* By bi_end_io. word: memory through which a pointer passes, as for bt_host_by_type(). */
static __always_inline enum bt_found bt_host_by_end(struct bio *bio, volatile __u64 *word,
						    struct bt_host *host)
{
	__u64 end = (__u64)bio->bi_end_io;

	if (config.iomap_end_io && end == config.iomap_end_io)
		return bt_host_of_iomap(bio, host) ? BT_FOUND : BT_NOT_FOUND;
	if (ways.device_ends[0] && (end == ways.device_ends[0] || end == ways.device_ends[1])) {
		bt_host_of_device(bio, host);
		return BT_FOUND;
	}
	if (ways.dio_ends[0] && (end == ways.dio_ends[0] || end == ways.dio_ends[1]))
		return bt_host_of_dio(bio, host) ? BT_FOUND : BT_NOT_FOUND;
	if (!ways.btrfs_ends[0])
		return BT_NOT_BY_END_IO;
	if (end == ways.btrfs_ends[0] || end == ways.btrfs_ends[1]) {
		*word = (__u64)bio;
		return bt_host_of_btrfs(*word, host) ? BT_FOUND : BT_NOT_BY_END_IO;
	}
	if (end == ways.btrfs_copy_end)
		return bt_host_of_copy(bio, host) ? BT_FOUND : BT_NOT_BY_END_IO;
	return BT_NOT_BY_END_IO;
}

/* Returns the address of the struct file that the running task has open as `fd`; 0: none. */
static __always_inline __u64 bt_open_file(__u32 fd)
{
	struct task_struct___files *task = (void *)bpf_get_current_task_btf();
	struct fdtable *table = BPF_CORE_READ(task, files, fdt);

	if (fd >= BPF_CORE_READ(table, max_fds))
		return 0;
	return bt_read_u64((__u64)BPF_CORE_READ(table, fd) + fd * 8ULL);
}

/*
 * Whether a page is memory of a program and not moved by the kernel for its own ends, such as to
 * swap: anonymous, or of a file that is mapped, or the page of zeroes. Buffers of the kernel's have
 * no mapping.
 */
static __always_inline bool bt_is_programs(__u64 page, __u32 opf)
{
	struct page *cached = NULL;
	__u64 mapping, flags;

	page = bt_head_page(page);
	mapping = bt_read_u64(page + bpf_core_field_offset(cached->mapping));
	flags = bt_page_flags(page);
	if (flags & bt_transit_bit(opf))
		return false;
	if (!mapping)
		return bpf_core_enum_value_exists(enum pageflags, PG_reserved) &&
		       flags >> bpf_core_enum_value(enum pageflags, PG_reserved) & 1;
	return (mapping & BT_NO_FILE) != BT_MOVABLE;
}

/*
 * Whether a bio goes to the device that an inode is, or to one that its file system holds. Before
 * 6.6 a device's holder may be the type of file system alone; that tells the file system's devices
 * from those below them, which the bios of device mapper and md go to.
 */
static __always_inline bool bt_goes_to(struct bio *bio, const struct bt_host *host)
{
	struct super_block___files *sb = NULL;
	struct inode *inode = NULL;
	__u64 super, holder;

	if ((host->mode & BT_MODE_TYPE) == BT_MODE_BLOCK)
		return bt_read_u32(host->address + bpf_core_field_offset(inode->i_rdev)) ==
		       bt_bio_place(bio).part;
	if ((host->mode & BT_MODE_TYPE) != BT_MODE_FILE || !bt_has_bdev() || !bio->bi_bdev)
		return false;
	super = bt_read_u64(host->address + bpf_core_field_offset(inode->i_sb));
	holder = (__u64)((struct block_device___held *)bio->bi_bdev)->bd_holder;
	return holder && (holder == super ||
			  holder == bt_read_u64(super + bpf_core_field_offset(sb->s_type)));
}

/* By the running system call. page: a scalar to the verifier. */
static __always_inline bool bt_host_by_call(struct bio *bio, __u64 page, __u32 opf,
					    struct bt_host *host)
{
	struct file *file = NULL;
	struct bt_regs now = {};
	__u64 at;

	if (!ways.direct_flag || opf & ways.not_data || (opf & BT_OP_MASK) > BT_OP_WRITES)
		return false;
	if (!bt_running_call(&now) || now.foreign || !bt_names(ways.calls, now.number) ||
	    bt_names(ways.writes, now.number) != (opf & BT_OP_WRITES))
		return false;
	at = bt_open_file(now.args[0]);
	if (!at || !(bt_read_u32(at + bpf_core_field_offset(file->f_flags)) & ways.direct_flag))
		return false;
	if (!bt_host_at(bt_read_u64(at + bpf_core_field_offset(file->f_inode)), host))
		return false;
	return bt_goes_to(bio, host) && bt_is_programs(page, opf);
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

/* By the bio's first page, whose address is `first`. */
static __always_inline bool bt_host_by_page(struct bio *bio, __u64 first, __u32 opf,
					    volatile __u64 *word, struct bt_host *host)
{
	struct page *page = bio->bi_io_vec->bv_page;

	if (bt_is_head(bio, page, word))
		return bt_host_by_type(page, opf, word, host);
	*word = first;
	return bt_host_by_address(*word, opf, host);
}

/*
 * Fills `host` with the inode whose data the bio moves; false: not known, or there is no data.
 * first: address of the bio's first page. word: memory that the verifier does not track.
 */
static __always_inline bool bt_host_of(struct bio *bio, __u64 first, __u32 opf,
				       volatile __u64 *word, struct bt_host *host)
{
	enum bt_found found;

	*word = first;
	if (!*word)
		return false;
	found = bt_host_by_end(bio, word, host);
	if (found != BT_NOT_BY_END_IO)
		return found == BT_FOUND;
	if (bt_host_by_page(bio, first, opf, word, host))
		return true;
	*word = first;
	return bt_host_by_call(bio, *word, opf, host);
}

#endif
