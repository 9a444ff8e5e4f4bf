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
 * Nor may the kernel make pages writable without a fault because their neighbours in the folio are: see unmap_pages(), and
 * folio_find_strays() for where it asks nobody.
 *
 * Locking: mmap_lock or the VMA's is held by the fault; then freeze protection, invalidate_lock (shared: no truncate
 * or punch runs meanwhile), the delta, inside which the folio lock is only tried.
 */
#include <linux/mm.h>
#include <linux/pagemap.h>
#include <linux/rmap.h>
#include <linux/userfaultfd_k.h>
#include "core/data/data_change.h"
#include "linux/folio.h"

#define FAULT_COMMITS_MAX 4u		/* for want of memory */

/* Blocks that are to be dirtied; what else that takes, and its price, are the core's (data_change.h). */
struct make_dirty {
	struct tux3_node *node;
	struct data_change change;
	struct folio_part parts[2];	/* the folio; the first block of a file that may be inline */
	u32 count;
};

/* The edge is the first block.  It may be in our folio. */
static int get_edge(struct data_change *change, u32 i)
{
	struct make_dirty *make = container_of(change, struct make_dirty, change);
	struct folio_part *part = &make->parts[0];
	struct folio *first;

	if (!folio_block(make->node, part->folio)) {
		part->mask |= 1;
		return 0;
	}
	first = file_get_block(make->node, change->edge[i].block, change->edge[i].even_hole);
	if (IS_ERR_OR_NULL(first))
		return PTR_ERR_OR_ZERO(first);
	make->parts[1] = (struct folio_part){ .folio = first, .mask = 1 };
	make->count = 2;
	return 1;
}

static void drop_edge(struct make_dirty *make)
{
	if (likely(make->count == 1))
		return;
	folio_change_cancel(&make->parts[1]);
	folio_put(make->parts[1].folio);
	make->count = 1;
}

static bool part_is_dirty(struct make_dirty *make, unsigned int slot)
{
	return folio_dirty_mask(make->node, make->parts[0].folio, slot) & make->parts[0].mask;
}

static int price(struct make_dirty *make)
{
	const struct folio_part *part = &make->parts[0];
	bool dirty = make->change.flags & TUX3_ATTR_PREALLOC && (part_is_dirty(make, 0) || part_is_dirty(make, 1));

	return data_price_store(&make->change, folio_block(make->node, part->folio) + __ffs64(part->mask),
				hweight64(part->mask), dirty);
}

/* Everything that may wait. */
static int prepare(struct make_dirty *make)
{
	int err;
	u32 i;

	drop_edge(make);
	data_plan_store(&make->change, &make->node->core);
	err = data_change_edges(&make->change, get_edge);
	for (i = 0; i < make->count && !err; i++) {
		struct folio *folio = make->parts[i].folio;

		err = folio_change_prepare(make->node, &make->parts[i], false, GFP_KERNEL);
		/* Punched or truncated since the fault found it: the fault is tried again. */
		if (err && READ_ONCE(folio->mapping) != make->node->vfs.i_mapping)
			err = -EFAULT;
	}
	return err ? err : price(make);
}

/* Inside the delta, the folio locked.  Returns how many blocks were not dirty; -EAGAIN: from the beginning; -EFAULT. */
static int begin(struct make_dirty *make, struct delta_op *op)
{
	struct tux3_node *node = make->node;
	struct folio *folio = make->parts[0].folio;
	int newly;

	if (folio->mapping != node->vfs.i_mapping || folio_pos(folio) >= i_size_read(&node->vfs))
		return -EFAULT;
	/* Another fault may have been faster, and its delta may be the back one. */
	if (make->change.unwritten && data_store_is_stale(&make->change, op, part_is_dirty(make, ~op->delta & 1)))
		return -EAGAIN;
	newly = folio_change_begin(op, node, make->parts, make->count, true);
	if (newly >= 0)
		folio_change_end(node, make->parts, make->count);
	return newly;
}

static int try_once(struct make_dirty *make)
{
	struct folio *folio = make->parts[0].folio;
	struct delta_op op;
	bool locked;
	int newly, err = prepare(make);

	if (!err)
		err = data_change_enter(&make->change, &op);
	if (err)
		return err;
	locked = folio_trylock(folio);
	newly = locked ? begin(make, &op) : -EAGAIN;
	data_settle_store(&make->change, &op, newly);
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
	struct make_dirty make;
	int err;

	make.node = node;
	make.parts[0] = (struct folio_part){ .folio = folio, .mask = mask };
	make.count = 1;
	do {
		err = try_once(&make);
	} while (err == -EAGAIN);
	folio_change_cancel(&make.parts[0]);
	drop_edge(&make);
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
 * mapped for reading; or once more one of this kind, if somebody had the folio locked.  Where there is no page table yet,
 * as when the first access of all is a store, nothing would be mapped, however often: so it is made.
 */
static vm_fault_t map_for_reading(struct folio *folio, struct vm_fault *vmf)
{
	unsigned long index = folio_page_idx(folio, vmf->page), entry = pte_index(vmf->address);
	unsigned long in_vma = (vmf->address - vmf->vma->vm_start) >> PAGE_SHIFT;
	unsigned long before = min3(index, entry, in_vma);
	unsigned long after = min3(folio_nr_pages(folio) - index, PTRS_PER_PTE - entry, vma_pages(vmf->vma) - in_vma);
	enum fault_flag flags = vmf->flags;

	if (pmd_none(*vmf->pmd) && apply_to_page_range(vmf->vma->vm_mm, vmf->address & PAGE_MASK, PAGE_SIZE, NULL, NULL))
		return VM_FAULT_OOM;
	folio_clear_readahead(folio);		/* one with this mark is passed over */
	vmf->flags &= ~FAULT_FLAG_WRITE;
	filemap_map_pages(vmf, vmf->pgoff - before, vmf->pgoff + after - 1);
	vmf->flags = flags;
	return VM_FAULT_NOPAGE;
}

/* ---- pages that become writable with their neighbours ---- */

/*
 * userfaultfd write-protects pages and takes that back as mprotect does (below), and asks nobody.  So on kernels where that matters
 * (COMPAT_PROTECTS_BATCHES) the pages of blocks that are in no delta are looked at before the back end takes something of the
 * folio, or puts its file off, and before a file becomes durable.  What is dirty or writable there is write-protected now, and its
 * blocks are strays.
 *
 * Page tables may be taken down before that.  Then we are told of the folio only, and all of it is stray, in a file for which
 * NODE_UNTOLD is set: as it is after a fault in a mapping that userfaultfd watches, and when such pages were found.  Not seen is
 * who registers a mapping, protects, unprotects and leaves it again without one fault, stores, and unmaps before the next commit.
 *
 * Fork with userfaultfd is seen by file_vma_open().  NUMA balancing passes over folios that are dirty; mremap() and migration
 * leave each page what it had.
 *
 * The folio is locked: so no fault is between its announcement and the page table entry.  Inside the folio lock come, as in
 * folio_mkclean(), i_mmap_rwsem and the locks of page tables; data_lock is not held meanwhile.
 */
void folio_find_strays(struct tux3_node *node, struct folio *folio)
{
	struct address_space *mapping = node->vfs.i_mapping;
	u32 shift = node->core.vol->block_shift - PAGE_SHIFT;
	struct folio_state *state;
	u64 rest = 0, found = 0;

	if (!COMPAT_PROTECTS_BATCHES || !mapping_writably_mapped(mapping) || !folio_mapped(folio) || folio->mapping != mapping)
		return;
	spin_lock(&node->data_lock);
	state = folio_get_private(folio);
	if (state && state->blocks > 1)
		rest = folio_mask(0, state->blocks) & ~(state->dirty[0] | state->dirty[1] | state->stray);
	spin_unlock(&node->data_lock);
	while (rest) {
		u32 from = __ffs64(rest), count = ~(rest >> from) ? __ffs64(~(rest >> from)) : 64;
		unsigned long page = (unsigned long)from << shift;

		if (compat_protect_pages(mapping, folio->index + page, folio_pfn(folio) + page, (unsigned long)count << shift) > 0)
			found |= folio_mask(from, count);
		rest &= ~folio_mask(from, count);
	}
	if (!found)
		return;
	spin_lock(&node->data_lock);
	state->stray |= found & ~(state->dirty[0] | state->dirty[1]);	/* by write(2) since we looked */
	set_bit(NODE_UNTOLD, &node->flags);
	set_bit(NODE_STRAYS, &node->flags);
	spin_unlock(&node->data_lock);
}

static void note_userfaultfd(struct tux3_node *node, struct vm_area_struct *vma)
{
	if (COMPAT_PROTECTS_BATCHES && unlikely(userfaultfd_armed(vma)) && !test_bit(NODE_UNTOLD, &node->flags))
		set_bit(NODE_UNTOLD, &node->flags);
}

/* ---- operations of a mapping ---- */

static vm_fault_t file_page_mkwrite(struct vm_fault *vmf)
{
	struct inode *inode = file_inode(vmf->vma->vm_file);
	struct tux3_node *node = node_of(inode);
	struct folio *folio = page_folio(vmf->page);
	size_t offset = folio_page_idx(folio, vmf->page) << PAGE_SHIFT;
	int err = -EFAULT;

	if (maps_folio(node, folio, vmf))
		return map_for_reading(folio, vmf);
	note_userfaultfd(node, vmf->vma);
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

/* Without the OOM killer. */
static vm_fault_t fault_easily(struct vm_fault *vmf)
{
	struct vm_fault easy = {
		.vma = vmf->vma,
		.gfp_mask = vmf->gfp_mask | __GFP_NORETRY | __GFP_NOWARN,
		.pgoff = vmf->pgoff,
		.address = vmf->address,
		.real_address = vmf->real_address,
		.flags = vmf->flags,
		.pmd = vmf->pmd,
		.pud = vmf->pud,
		.orig_pte = vmf->orig_pte,
		.cow_page = vmf->cow_page,
	};
	vm_fault_t result = filemap_fault(&easy);

	vmf->page = easy.page;
	return result;
}

/*
 * A memory cgroup that is full of our dirty pages, as for write_locked().  The kernel holds up who stores through mappings by
 * statistics of the group that are up to some seconds old, which is all it takes to fill a small one.
 */
static vm_fault_t file_fault(struct vm_fault *vmf)
{
	struct tux3_node *node = node_of(file_inode(vmf->vma->vm_file));
	vm_fault_t result;
	u32 commits;

	note_userfaultfd(node, vmf->vma);
	for (commits = 0; commits < FAULT_COMMITS_MAX; commits++) {
		result = fault_easily(vmf);
		if (!(result & VM_FAULT_OOM))
			return result;
		if (fatal_signal_pending(current) || delta_commit(node->core.vol))
			break;
	}
	return filemap_fault(vmf);
}

/*
 * The kernel handles pages of a folio that lie side by side at once.  When it changes their protection (COMPAT_PROTECTS_BATCHES)
 * or copies a page table for fork, all of them become writable if it finds one that is dirty or writable: stores to the others
 * would never be announced, and lost.  So it shall find none.
 *
 * mmap_lock is held for writing, and no i_mmap_rwsem: mprotect takes it later, and who copies or splits a mapping does when he
 * has called ->open.  So i_mmap_rwsem, page table locks and data_lock (file_dirty_folio()) come here in the kernel's order.
 */
static void unmap_pages(struct vm_area_struct *vma, unsigned long start, unsigned long end)
{
	pgoff_t index = vma->vm_pgoff + ((start - vma->vm_start) >> PAGE_SHIFT);

	if (vma->vm_flags & VM_SHARED)
		unmap_mapping_pages(vma->vm_file->f_mapping, index, (end - start) >> PAGE_SHIFT, false);
}

static int file_mprotect(struct vm_area_struct *vma, unsigned long start, unsigned long end, unsigned long flags)
{
	if (!COMPAT_PROTECTS_BATCHES || !(flags & VM_WRITE))
		return 0;
	vma_start_write(vma);	/* as the kernel will: no fault maps pages again in between */
	unmap_pages(vma, start, end);
	return 0;
}

/*
 * Fork comes here before it copies the page table, which it does for few mappings only: others are filled by faults.  It keeps
 * faults away from the mapping that it copies.
 */
static void file_vma_open(struct vm_area_struct *vma)
{
	if (vma->vm_flags & VM_COPY_ON_FORK)
		unmap_pages(vma, vma->vm_start, vma->vm_end);
}

static const struct vm_operations_struct file_vm_ops = {
	.open = file_vma_open,
	.mprotect = file_mprotect,
	.fault = file_fault,
	.map_pages = filemap_map_pages,
	.page_mkwrite = file_page_mkwrite,
};

int file_mmap(struct file *file, struct vm_area_struct *vma)
{
	file_accessed(file);
	vma->vm_ops = &file_vm_ops;
	return 0;
}
