// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Loading and unloading the module, and the slab caches that all mounts share.
 *
 * The module stays loaded while a volume is mounted: the VFS holds a reference.  What may still come after the last
 * umount are inode objects on their way through RCU; so the caches are destroyed after a barrier.
 */
#include <linux/module.h>
#include "linux/vfs.h"
#include "linux/folio.h"

#ifndef TUX3_VERSION
#define TUX3_VERSION "0.1.0"
#endif

struct kmem_cache *tux3_node_cache, *tux3_folio_state_cache;

static void node_init_once(void *object)
{
	struct tux3_node *node = object;

	inode_init_once(&node->vfs);
}

static void caches_exit(void)
{
	rcu_barrier();
	kmem_cache_destroy(tux3_folio_state_cache);
	kmem_cache_destroy(tux3_node_cache);
}

static int caches_init(void)
{
	tux3_node_cache = kmem_cache_create("tux3_node", sizeof(struct tux3_node), __alignof__(struct tux3_node),
					    SLAB_RECLAIM_ACCOUNT | SLAB_ACCOUNT, node_init_once);
	tux3_folio_state_cache = kmem_cache_create("tux3_folio_state", sizeof(struct folio_state),
						   __alignof__(struct folio_state), SLAB_RECLAIM_ACCOUNT, NULL);
	if (tux3_node_cache && tux3_folio_state_cache)
		return 0;
	caches_exit();
	return -ENOMEM;
}

static int __init tux3_init(void)
{
	int err = caches_init();

	if (err)
		return err;
	err = read_init();
	if (err)
		goto out_caches;
	err = direct_init();
	if (err)
		goto out_read;
	err = sysfs_init();
	if (err)
		goto out_direct;
	err = register_filesystem(&tux3_fs_type);
	if (!err)
		return 0;
	sysfs_exit();
out_direct:
	direct_exit();
out_read:
	read_exit();
out_caches:
	caches_exit();
	return err;
}

static void __exit tux3_exit(void)
{
	unregister_filesystem(&tux3_fs_type);
	sysfs_exit();
	direct_exit();
	read_exit();
	caches_exit();
}

module_init(tux3_init);
module_exit(tux3_exit);

MODULE_ALIAS_FS("tux3");
MODULE_SOFTDEP("pre: crc32c");
MODULE_DESCRIPTION("Tux3, a filesystem whose deltas are all or nothing, file data included");
MODULE_VERSION(TUX3_VERSION);
MODULE_LICENSE("GPL");
