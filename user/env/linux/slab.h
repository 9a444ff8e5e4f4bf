/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * User-space stand-in for the kernel's header: see core/env.h.
 *
 * malloc() with the kernel's names.  user/env/fault.h makes chosen allocations fail.
 */
#ifndef TUX3_ENV_SLAB_H
#define TUX3_ENV_SLAB_H

#include <linux/compiler.h>
#include <linux/types.h>

#define GFP_KERNEL	0x01u
#define GFP_NOFS	0x02u
#define GFP_NOWAIT	0x04u
#define GFP_ATOMIC	0x08u
#define __GFP_NOWARN	0x10u
#define __GFP_ZERO	0x20u
#define __GFP_NOFAIL	0x40u
#define __GFP_NORETRY	0x80u

void *kmalloc(size_t bytes, gfp_t flags);
void *kcalloc(size_t n, size_t bytes, gfp_t flags);
void *kmalloc_array(size_t n, size_t bytes, gfp_t flags);
void *krealloc(const void *ptr, size_t bytes, gfp_t flags);
void *kmemdup(const void *src, size_t bytes, gfp_t flags);
void kfree(const void *ptr);

static inline void *kzalloc(size_t bytes, gfp_t flags)
{
	return kmalloc(bytes, flags | __GFP_ZERO);
}

#define kvmalloc(bytes, flags)		kmalloc(bytes, flags)
#define kvzalloc(bytes, flags)		kzalloc(bytes, flags)
#define kvmalloc_array(n, bytes, flags)	kmalloc_array(n, bytes, flags)
#define kvcalloc(n, bytes, flags)	kcalloc(n, bytes, flags)
#define kvfree(ptr)			kfree(ptr)

#define SLAB_HWCACHE_ALIGN	0x01u
#define SLAB_RECLAIM_ACCOUNT	0x02u
#define SLAB_ACCOUNT		0x04u

struct kmem_cache;

struct kmem_cache *kmem_cache_create(const char *name, unsigned int bytes, unsigned int align,
				     unsigned int flags, void (*ctor)(void *object));
void *kmem_cache_alloc(struct kmem_cache *cache, gfp_t flags);
void kmem_cache_free(struct kmem_cache *cache, void *object);
/* Warns if objects are left. */
void kmem_cache_destroy(struct kmem_cache *cache);

static inline void *kmem_cache_zalloc(struct kmem_cache *cache, gfp_t flags)
{
	return kmem_cache_alloc(cache, flags | __GFP_ZERO);
}

#define KMEM_CACHE(type, flags) \
	kmem_cache_create(#type, sizeof(struct type), __alignof__(struct type), flags, NULL)

#endif
