# SPDX-License-Identifier: GPL-2.0-or-later
#
# What tux3.ko is made of, for kbuild: linux/Kbuild, and whoever else needs the list.
#
# Of core/ everything but what only the tools do: making, checking and printing volumes.

TUX3_CORE_OBJECTS := apply.o balloc.o cache.o commit.o data.o data_commit.o data_look.o delete.o delta.o device.o error.o \
	file_range.o freemap.o ialloc.o inode.o log_end.o log_read.o log_write.o name.o node.o ops.o options.o pace.o parent.o \
	placement.o prefetch.o replay.o space.o tree.o tree_balance.o tree_edit.o tree_snapshot.o tree_walk.o trim.o unify.o \
	volume.o xattr.o

# Every source in linux/ is part of the module.
TUX3_LINUX_OBJECTS := $(sort $(patsubst %.c,%.o,$(notdir $(wildcard $(TUX3_SOURCE)/linux/*.c))))

TUX3_OBJECTS := $(addprefix core/,$(TUX3_CORE_OBJECTS)) $(addprefix linux/,$(TUX3_LINUX_OBJECTS))

# "core/..." and "linux/..." are ours when quoted: before the kernel's own folders, some of whose files have such names.
TUX3_CFLAGS := -iquote $(TUX3_SOURCE) -iquote $(TUX3_SOURCE)/linux
