// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Files in memory maps: faults that make a page writable.
 *
 * The back end write-protects a page when it takes its contents.  So the first store after that comes here, and the
 * block becomes dirty in the front delta, its space charged to the one who stores: when there is none, he gets
 * SIGBUS, and no commit fails later.  What is stored until the page is taken again belongs to the delta that is taken
 * then.
 *
 * Before an operation returns to the page fault with the folio locked, the block is dirty; the fault makes the page
 * table entry writable before it unlocks the folio, so the back end, which wants the lock, finds the entry.
 *
 * The page that a fault announces is dirty then, and no other of its folio: a store costs one block of space and of I/O.  Where
 * the kernel would map all of the folio for writing, its pages are first mapped for reading (map_for_reading()).  A folio that
 * one entry of a page middle directory can map would be mapped by it, whole, for writing on kernels before 6.18 and for reading
 * ever again on later ones.  So there is none: node_set_ops() says how large they get.
 *
 * Locking: mmap_lock or the VMA's is held by the fault; then freeze protection, invalidate_lock (shared: no truncate
 * or punch runs meanwhile), the delta, inside which the folio lock is only tried.
 */
#include <linux/mm.h>
#include <linux/pagemap.h>
#include <linux/userfaultfd_k.h>
#include "core/data/data_change.h"
#include "linux/folio.h"

/* Blocks that are to be dirtied, and what that was thought to cost. */
struct make_dirty {
	struct tux3_node *node;
	struct folio_part parts[2];	/* the folio; the first block of a file that may be inline */
	u32 count;
	u32 blocks, new_blocks;
	bool unwritten;			/* new_blocks is 0: the block is preallocated and nothing was written there */
	u64 cost;
};

/* If the file may be inline, its first block must get dirty too (data_change.h). */
static int add_first_block(struct make_dirty *make, const struct tux3_attr *attr)
{
	struct folio_part *part = &make->parts[0];
	struct folio *first;

	if (!data_maybe_inline(make->node->core.vol, attr->flags, attr->size))
		return 0;
	if (!folio_block(make->node, part->folio)) {
		part->mask |= 1;
		return 0;
	}
	first = file_get_block(make->node, 0, attr->flags & TUX3_ATTR_INLINE);
	if (IS_ERR_OR_NULL(first))
		return PTR_ERR_OR_ZERO(first);
	make->parts[1] = (struct folio_part){ .folio = first, .mask = 1 };
	make->count = 2;
	return 0;
}

/* A block of an unwritten extent needs no new space, if it is not dirty yet. */
static int price(struct make_dirty *make, const struct tux3_attr *attr)
{
	struct folio_part *part = &make->parts[0];
	struct tux3_node *node = make->node;
	struct data_extent extent;
	int err = 0;

	make->blocks = hweight64(part->mask) + make->count - 1;
	make->new_blocks = make->blocks;
	make->unwritten = false;
	if (attr->flags & TUX3_ATTR_PREALLOC && make->blocks == 1 &&
	    !((folio_dirty_mask(node, part->folio, 0) | folio_dirty_mask(node, part->folio, 1)) & part->mask)) {
		err = data_map(&node->core, folio_block(node, part->folio) + __ffs64(part->mask), 1, &extent, NULL, 0);
		make->unwritten = !err && extent.kind == DATA_UNWRITTEN;
		if (make->unwritten)
			make->new_blocks = 0;
	}
	make->cost = space_cost_data(node->core.vol, make->blocks, make->new_blocks);
	return err;
}

/* Everything that may wait. */
static int prepare(struct make_dirty *make)
{
	struct tux3_attr attr;
	int err = 0;
	u32 i;

	inode_get_attr(&make->node->core, &attr);
	if (make->count == 1)
		err = add_first_block(make, &attr);
	for (i = 0; i < make->count && !err; i++) {
		struct folio *folio = make->parts[i].folio;

		err = folio_change_prepare(make->node, &make->parts[i], false, GFP_KERNEL);
		/* Punched or truncated since the fault found it: the fault is tried again. */
		if (err && READ_ONCE(folio->mapping) != make->node->vfs.i_mapping)
			err = -EFAULT;
	}
	return err ? err : price(make, &attr);
}

/* Inside the delta, the folio locked.  Returns how many blocks were not dirty; -EAGAIN: from the beginning; -EFAULT. */
static int begin(struct make_dirty *make, struct delta_op *op)
{
	struct tux3_node *node = make->node;
	struct folio *folio = make->parts[0].folio;
	int newly;

	if (folio->mapping != node->vfs.i_mapping || folio_pos(folio) >= i_size_read(&node->vfs))
		return -EFAULT;
	/* Another fault was faster, and its delta is being committed: this time new space is needed. */
	if (make->unwritten && folio_dirty_mask(node, folio, ~op->delta & 1) & make->parts[0].mask)
		return -EAGAIN;
	newly = folio_change_begin(op, node, make->parts, make->count);
	if (newly >= 0)
		folio_change_end(node, make->parts, make->count);
	return newly;
}

static int try_once(struct make_dirty *make)
{
	struct volume *vol = make->node->core.vol;
	struct folio *folio = make->parts[0].folio;
	struct delta_op op;
	bool locked;
	int newly, err = prepare(make);

	if (!err)
		err = delta_enter(vol, &op, make->cost, make->new_blocks ? 0 : DELTA_PAID);
	if (err)
		return err;
	locked = folio_trylock(folio);
	newly = locked ? begin(make, &op) : -EAGAIN;
	if (newly < (s32)make->blocks) {
		u32 used = max(newly, 0);

		delta_refund(&op, make->cost, used ? space_cost_data(vol, used, min(used, make->new_blocks)) : 0);
	}
	if (newly > 0 && make->unwritten)
		data_paid(&op, &make->node->core, newly);
	delta_leave(&op);
	if (newly >= 0)
		return 0;
	if (locked) {
		folio_unlock(folio);
	} else {		/* wait for whoever has it */
		folio_lock(folio);
		folio_unlock(folio);
	}
	return newly;
}

int folio_make_dirty(struct tux3_node *node, struct folio *folio, u64 mask)
{
	struct make_dirty make = { .node = node, .parts[0] = { .folio = folio, .mask = mask }, .count = 1 };
	int err;

	do {
		err = try_once(&make);
	} while (err == -EAGAIN);
	folio_change_cancel(&make.parts[0]);
	if (make.count == 2) {
		folio_change_cancel(&make.parts[1]);
		folio_put(make.parts[1].folio);
	}
	return err;
}

/* Would this fault map more for writing than the one block that is made dirty?  (userfaultfd wants single pages.) */
static bool maps_folio(struct tux3_node *node, struct folio *folio, struct vm_fault *vmf)
{
	return COMPAT_FAULT_MAPS_FOLIO && folio_blocks(node, folio) > 1 && pte_none(vmf->orig_pte) &&
	       !userfaultfd_armed(vmf->vma);
}

/*
 * What of the folio is in the VMA and in this page table.  The store is then tried again, and is a fault of a page that is
 * mapped for reading; or once more one of this kind, if somebody had the folio locked.
 */
static void map_for_reading(struct folio *folio, struct vm_fault *vmf)
{
	unsigned long index = folio_page_idx(folio, vmf->page), entry = pte_index(vmf->address);
	unsigned long in_vma = (vmf->address - vmf->vma->vm_start) >> PAGE_SHIFT;
	unsigned long before = min3(index, entry, in_vma);
	unsigned long after = min3(folio_nr_pages(folio) - index, PTRS_PER_PTE - entry, vma_pages(vmf->vma) - in_vma);
	enum fault_flag flags = vmf->flags;

	folio_clear_readahead(folio);		/* one with this mark is passed over */
	vmf->flags &= ~FAULT_FLAG_WRITE;
	filemap_map_pages(vmf, vmf->pgoff - before, vmf->pgoff + after - 1);
	vmf->flags = flags;
}

static vm_fault_t file_page_mkwrite(struct vm_fault *vmf)
{
	struct inode *inode = file_inode(vmf->vma->vm_file);
	struct tux3_node *node = node_of(inode);
	struct folio *folio = page_folio(vmf->page);
	size_t offset = folio_page_idx(folio, vmf->page) << PAGE_SHIFT;
	int err = -EFAULT;

	if (maps_folio(node, folio, vmf)) {
		map_for_reading(folio, vmf);
		return VM_FAULT_NOPAGE;
	}
	sb_start_pagefault(inode->i_sb);
	file_update_time(vmf->vma->vm_file);
	filemap_invalidate_lock_shared(inode->i_mapping);
	if (unlikely(test_bit(NODE_SWAP, &node->flags)))	/* swap.c */
		err = -ETXTBSY;
	else if (folio_pos(folio) + offset < i_size_read(inode))
		err = folio_make_dirty(node, folio, folio_mask(offset >> node->core.vol->block_shift, 1));
	filemap_invalidate_unlock_shared(inode->i_mapping);
	sb_end_pagefault(inode->i_sb);
	return vmf_fs_error(err);
}

static const struct vm_operations_struct file_vm_ops = {
	.fault = filemap_fault,
	.map_pages = filemap_map_pages,
	.page_mkwrite = file_page_mkwrite,
};

int file_mmap(struct file *file, struct vm_area_struct *vma)
{
	file_accessed(file);
	vma->vm_ops = &file_vm_ops;
	return 0;
}
