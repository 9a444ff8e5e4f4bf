// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * For tests: holds pages of a program's memory as NFS, Ceph or ublk do, by references and without pinning
 * them, and writes to them later.  Each open file of /dev/holder holds one page, with the ioctls below; what it does not let go
 * is let go, untold, when it is closed.  It has no lock: a file is used by one thread at a time.
 */
#include <linux/fs.h>
#include <linux/highmem.h>
#include <linux/miscdevice.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/pagemap.h>

/* The number of pages of its folio. */
#define HOLDER_GET	_IO('H', 1)	/* the page at the address that this u64 is */
#define HOLDER_FILL	_IO('H', 2)	/* each byte of it becomes this one; nobody is told */
#define HOLDER_PUT	_IO('H', 3)	/* it was changed, and is let go */
#define HOLDER_CHANGE	_IO('H', 4)	/* fill it with one byte after the other, for so many ms */

static long holder_get(struct file *file, u64 __user *at)
{
	struct page *page;
	u64 addr;
	int got;

	if (file->private_data)
		return -EBUSY;
	if (get_user(addr, at))
		return -EFAULT;
	got = get_user_pages_fast(addr, 1, FOLL_WRITE, &page);
	if (got != 1)
		return got < 0 ? got : -EFAULT;
	file->private_data = page;
	return folio_nr_pages(page_folio(page));
}

static void holder_fill(struct page *page, int value)
{
	void *to = kmap_local_page(page);

	memset(to, value, PAGE_SIZE);
	kunmap_local(to);
}

static void holder_change(struct page *page, unsigned int ms)
{
	unsigned long end = jiffies + msecs_to_jiffies(ms);
	int value = 0;

	do {
		holder_fill(page, value++);
		cond_resched();
	} while (time_before(jiffies, end));
}

static void holder_put(struct file *file)
{
	struct folio *folio = page_folio((struct page *)file->private_data);

	folio_lock(folio);
	folio_mark_dirty(folio);
	folio_unlock(folio);
	folio_put(folio);
	file->private_data = NULL;
}

static long holder_ioctl(struct file *file, unsigned int cmd, unsigned long arg)
{
	if (cmd == HOLDER_GET)
		return holder_get(file, (u64 __user *)arg);
	if (!file->private_data)
		return -ENXIO;
	switch (cmd) {
	case HOLDER_FILL:
		holder_fill(file->private_data, arg);
		return 0;
	case HOLDER_CHANGE:
		holder_change(file->private_data, arg);
		return 0;
	case HOLDER_PUT:
		holder_put(file);
		return 0;
	default:
		return -ENOTTY;
	}
}

/* The misc device leaves itself there. */
static int holder_open(struct inode *inode, struct file *file)
{
	file->private_data = NULL;
	return 0;
}

static int holder_release(struct inode *inode, struct file *file)
{
	if (file->private_data)
		put_page(file->private_data);
	return 0;
}

static const struct file_operations holder_fops = {
	.owner = THIS_MODULE,
	.open = holder_open,
	.release = holder_release,
	.unlocked_ioctl = holder_ioctl,
};

static struct miscdevice holder_device = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = "holder",
	.fops = &holder_fops,
};

module_misc_device(holder_device);
MODULE_DESCRIPTION("Holds pages of user memory, for tests of tux3");
MODULE_LICENSE("GPL");
