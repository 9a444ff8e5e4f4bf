# SPDX-License-Identifier: GPL-2.0-or-later
#
# What tux3.ko is made of, for kbuild: linux/Kbuild, and whoever else needs the list.
#
# Of core/ everything but what only the tools do: making, changing, checking, repairing and printing volumes.
TUX3_TOOLS_ONLY := core/mkfs.o core/quota_switch.o core/check/%.o core/repair/%.o core/show/%.o
TUX3_CORE_OBJECTS := $(filter-out $(TUX3_TOOLS_ONLY), \
	$(patsubst $(TUX3_SOURCE)/%.c,%.o,$(wildcard $(TUX3_SOURCE)/core/*.c $(TUX3_SOURCE)/core/*/*.c)))

# Every source in linux/ is part of the module.
TUX3_LINUX_OBJECTS := $(sort $(patsubst %.c,%.o,$(notdir $(wildcard $(TUX3_SOURCE)/linux/*.c))))

TUX3_OBJECTS := $(sort $(TUX3_CORE_OBJECTS)) $(addprefix linux/,$(TUX3_LINUX_OBJECTS))

# "core/..." and "linux/..." are ours when quoted: before the kernel's own folders, some of whose files have such names.
TUX3_CFLAGS := -iquote $(TUX3_SOURCE) -iquote $(TUX3_SOURCE)/linux
