# SPDX-License-Identifier: GPL-2.0-or-later
#
# The kernel module.  Included by the Makefile; vm/run also uses it alone.
#
#	make module			build/module/tux3.ko for the stock kernel that vm/ boots (its headers are fetched)
#	make module SERIES=7		build/module-7/tux3.ko for another series of stock kernels: vm/series.py has them
#	make module KDIR=/lib/modules/$(uname -r)/build		for this machine's own kernel
#	make module W=1 V=1		as for any kernel module
#	make module-check		sparse, if it is installed
#	make module-install		into /lib/modules of the KDIR's kernel
#	make vm				a shell in a virtual machine, in a mounted volume
#
# Kbuild works in MODULE_OUT, where it finds a Kbuild file that names the sources where they are.  So messages have the
# true file names, and no object lands among the sources.

VERSION ?= $(shell sed -n 's/^VERSION := //p' Makefile)
VM_CACHE := $(or $(TUX3_CACHE),$(CURDIR)/cache/vm)
# The default series' folders are not named after it.
SERIES ?=
OTHER_SERIES := $(filter-out 6.12,$(SERIES))
VM_BUILD := $(VM_CACHE)$(OTHER_SERIES:%=/series-%)/build
KDIR ?= $(VM_BUILD)
MODULE_OUT ?= build/module$(OTHER_SERIES:%=-%)
MODULE_INPUT := $(sort $(wildcard core/*.[ch] core/*/*.[ch] linux/*.[ch] linux/*/*.[ch] linux/*.mk))

# -Wextra without what the kernel's own headers do everywhere.  A frame may take a tenth of the stack; with KASAN's zones
# around each variable, what the kernel allows.
MODULE_WARNINGS := -Wall -Wextra -Wno-unused-parameter -Wno-sign-compare -Wno-missing-field-initializers \
	-Wno-type-limits -Wno-shift-negative-value -Wno-override-init

# linux/objects.mk says which sources, and how they find headers.  The list of files is there so that the Kbuild file
# changes with it.
define MODULE_KBUILD
# Made by vm/module.mk, for $(abspath $(KDIR)), from
# $(MODULE_INPUT)
TUX3_SOURCE := $(CURDIR)
include $$(TUX3_SOURCE)/linux/objects.mk
obj-m := tux3.o
tux3-y := $$(TUX3_OBJECTS)
ccflags-y := $$(TUX3_CFLAGS) -DTUX3_VERSION='"$(VERSION)"'
ccflags-y += -g -fmacro-prefix-map=$$(TUX3_SOURCE)/= $(MODULE_WARNINGS)
ccflags-y += $$(if $$(CONFIG_KASAN),,-Wframe-larger-than=1536)
$$(obj)/core/%.o: $$(TUX3_SOURCE)/core/%.c FORCE
	$$(call if_changed_rule,cc_o_c)
	$$(call cmd,force_checksrc)
$$(obj)/linux/%.o: $$(TUX3_SOURCE)/linux/%.c FORCE
	$$(call if_changed_rule,cc_o_c)
	$$(call cmd,force_checksrc)
endef

# Type information for BPF needs pahole and the kernel's vmlinux, which few have; so the version of pahole is no matter.
KBUILD = $(MAKE) --no-print-directory -C $(abspath $(KDIR)) M=$(abspath $(MODULE_OUT)) CONFIG_DEBUG_INFO_BTF_MODULES= \
	'PAHOLE_VERSION=$$(CONFIG_PAHOLE_VERSION)'

.PHONY: module module-list module-check module-install vm
module: $(MODULE_OUT)/tux3.ko

$(VM_BUILD):
	@vm/fetch $(OTHER_SERIES:%=--series %) headers

# Written when it changes.
export MODULE_KBUILD
$(MODULE_OUT)/Kbuild: module-list
	@mkdir -p $(@D)
	@printf '%s\n' "$$MODULE_KBUILD" | cmp -s - $@ || printf '%s\n' "$$MODULE_KBUILD" >$@

# The lock is for vm/run, which may run several times and wants a whole file.
$(MODULE_OUT)/tux3.ko: $(MODULE_INPUT) $(MODULE_OUT)/Kbuild | $(filter $(VM_BUILD),$(KDIR))
	$(if $(wildcard linux/*.c),,$(error there is no module yet: linux/ has no sources))
	+@flock $(MODULE_OUT)/lock $(KBUILD) modules
	@touch $@

module-check: $(MODULE_OUT)/Kbuild | $(filter $(VM_BUILD),$(KDIR))
	@command -v sparse >/dev/null || { echo "make module-check: sparse is not installed" >&2; exit 1; }
	+@flock $(MODULE_OUT)/lock $(KBUILD) C=2 modules

module-install: module
	+@$(KBUILD) modules_install

# Leave it with "exit".
vm:
	@vm/run --shell --disk 2G -- vm/volume
