/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Differences between kernel versions, all in one place.  The code is written for the newest version it is built for; what
 * an older one (6.12 at least) calls differently is given the new name here.
 *
 * It is built and tested on the oldest and on the newest: see vm/series.py, where the newest is raised when this header was
 * gone through for it.  Of those between, the version is given in which the kernel changed.
 */
#ifndef TUX3_LINUX_COMPAT_H
#define TUX3_LINUX_COMPAT_H

#include <linux/fs.h>
#include <linux/pagemap.h>
#include <linux/posix_acl_xattr.h>
#include <linux/version.h>
#if LINUX_VERSION_CODE >= KERNEL_VERSION(7, 0, 0)
#include <linux/fserror.h>
#else
#include <linux/fsnotify.h>
#endif

#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 12, 0)
#error "tux3 needs Linux 6.12 or newer"
#endif
#ifndef CONFIG_64BIT
#error "tux3 needs a 64-bit kernel: positions in files are indices of pages, and all memory has an address"
#endif

/* ---- operations that are called with other arguments or return something else: NAME_op is for the table ---- */

#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 15, 0)
#define COMPAT_MKDIR(name) \
	static struct dentry *name##_op(struct mnt_idmap *idmap, struct inode *dir, struct dentry *dentry, umode_t mode) \
	{ \
		return name(idmap, dir, dentry, mode); \
	}
#else
#define COMPAT_MKDIR(name) \
	static int name##_op(struct mnt_idmap *idmap, struct inode *dir, struct dentry *dentry, umode_t mode) \
	{ \
		return PTR_ERR_OR_ZERO(name(idmap, dir, dentry, mode)); \
	}
#endif

/* What was asked for as exclusive is not there when we are called. */
#if LINUX_VERSION_CODE >= KERNEL_VERSION(7, 3, 0)
#define COMPAT_CREATE(name) \
	static int name##_op(struct mnt_idmap *idmap, struct inode *dir, struct dentry *dentry, umode_t mode) \
	{ \
		return name(idmap, dir, dentry, mode); \
	}
#else
#define COMPAT_CREATE(name) \
	static int name##_op(struct mnt_idmap *idmap, struct inode *dir, struct dentry *dentry, umode_t mode, bool excl) \
	{ \
		return name(idmap, dir, dentry, mode); \
	}
#endif

#if LINUX_VERSION_CODE >= KERNEL_VERSION(7, 0, 0)
#define COMPAT_UPDATE_TIME(name) \
	int name##_op(struct inode *inode, enum fs_update_time type, unsigned int flags) \
	{ \
		return name(inode, type, flags); \
	}
#define UPDATE_TIME_ARGS struct inode *inode, enum fs_update_time type, unsigned int flags
#else
enum fs_update_time {
	FS_UPD_ATIME,
	FS_UPD_CMTIME,
};
#define COMPAT_UPDATE_TIME(name) \
	int name##_op(struct inode *inode, int flags) \
	{ \
		return name(inode, flags & ~S_ATIME ? FS_UPD_CMTIME : FS_UPD_ATIME, 0); \
	}
#define UPDATE_TIME_ARGS struct inode *inode, int flags
#endif

/* The host's clock, struct tux3_host_ops: before multigrain timestamps the VFS had the coarse one, as the core has. */
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 13, 0)
#define COMPAT_NOW vfs_now
#else
#define COMPAT_NOW NULL
#endif

/*
 * ->page_mkwrite is told of one page.  From 6.18 on a fault that finds no page in its page table entry then maps all of the
 * folio for writing; one that finds a page mapped for reading makes that page writable alone, as ever.
 */
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 18, 0)
#define COMPAT_FAULT_MAPS_FOLIO true
#else
#define COMPAT_FAULT_MAPS_FOLIO false
#endif

/*
 * mprotect(2) and userfaultfd handle several pages of a folio at once: when one is dirty, all of them become dirty and writable.
 * compat_protect_pages() takes both from pages of a mapping and returns from how many.
 */
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 17, 0)
#define COMPAT_PROTECTS_BATCHES true
#define compat_protect_pages mapping_wrprotect_range
#else
#define COMPAT_PROTECTS_BATCHES false
static inline int compat_protect_pages(struct address_space *mapping, pgoff_t index, unsigned long pfn, unsigned long count)
{
	return 0;
}
#endif

/* Mappings whose page tables fork copies; guard pages made some of files such ones with 6.19. */
#ifndef VM_COPY_ON_FORK
#define VM_COPY_ON_FORK (VM_PFNMAP | VM_MIXEDMAP | VM_UFFD_WP)
#endif

/*
 * Folios that are to leave the page cache when they are durable.  IOCB_DONTCACHE came with 6.14.  From 6.18 on the filesystem can
 * say when a folio may be dropped; before, that was tried at the end of its writeback, where ours cannot go yet.  There we have a
 * mark of our own, for direct writes, and compat_drops_behind() says, once, that a folio had it and nobody has looked at it since:
 * without a reference to it the caller drops it.
 */
#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 18, 0)
#undef IOCB_DONTCACHE
#undef FOP_DONTCACHE
#undef FGP_DONTCACHE
#define IOCB_DONTCACHE 0
#define FOP_DONTCACHE 0
#define FGP_DONTCACHE 0
#define folio_end_writeback_no_dropbehind folio_end_writeback
#define __folio_set_dropbehind folio_set_checked
static inline bool compat_drops_behind(struct folio *folio)
{
	if (likely(!folio_test_checked(folio)))
		return false;
	folio_clear_checked(folio);
	return !folio_test_referenced(folio) && !folio_test_active(folio);
}
#else
static inline bool compat_drops_behind(struct folio *folio)
{
	folio_end_dropbehind(folio);
	return false;
}
#endif

/* Who listens for errors of file systems is told of one by this; it may sleep. */
#if LINUX_VERSION_CODE >= KERNEL_VERSION(7, 0, 0)
#define compat_tell_error(sb, err) fserror_report_metadata(sb, err, GFP_KERNEL)
#else
#define compat_tell_error(sb, err) fsnotify_sb_error(sb, NULL, -(err))
#endif

/* Programs that fill files when somebody comes for what is in them (FAN_PRE_ACCESS) came with 6.14. */
#ifndef SB_I_ALLOW_HSM
#define SB_I_ALLOW_HSM 0
#endif

/* ---- functions and types ---- */

/* WQ_PERCPU, which newer kernels insist on.  It came with stable updates too; where it has no name the bit means nothing. */
#define COMPAT_WQ_PERCPU (1 << 8)

/* There is no best length below the longest one. */
#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 16, 0)
#define generic_fill_statx_atomic_writes(stat, min, max, best) generic_fill_statx_atomic_writes(stat, min, max)
#endif

#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 17, 0)
#define file_kattr fileattr
#endif

#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 18, 0)
#define inode_generic_drop generic_drop_inode

/* The value, for kvfree. */
static inline void *compat_acl_to_xattr(struct user_namespace *ns, const struct posix_acl *acl, size_t *size_bytes,
					gfp_t gfp)
{
	size_t size = posix_acl_xattr_size(acl->a_count);
	void *value = kvmalloc(size, gfp);
	int err = value ? posix_acl_to_xattr(ns, acl, value, size) : -ENOMEM;

	if (err < 0) {
		kvfree(value);
		return ERR_PTR(err);
	}
	*size_bytes = size;
	return value;
}
#define posix_acl_to_xattr compat_acl_to_xattr
#endif

#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 19, 0)
static inline u32 inode_state_read_once(struct inode *inode)
{
	return READ_ONCE(inode->i_state);
}

static inline void inode_state_clear(struct inode *inode, u32 flags)
{
	lockdep_assert_held(&inode->i_lock);
	WRITE_ONCE(inode->i_state, inode->i_state & ~flags);
}

/* A folio knows no NUMA policy of its file. */
#undef filemap_alloc_folio
#define filemap_alloc_folio(gfp, order, policy) alloc_hooks(filemap_alloc_folio_noprof(gfp, order))
#endif

#endif
