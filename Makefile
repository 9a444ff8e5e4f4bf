# SPDX-License-Identifier: GPL-2.0-or-later
#
# Builds the user-space side of Tux3 into build/.
#
#	make			library, programs
#	make unit		unit tests: build and run
#	make check		a minute's worth of checks, without root: form and includes of the sources, unit tests, simulator
#	make check T=tree	the part of them whose name has "tree"
#	make unit VARIANT=asan	unit tests under AddressSanitizer and UBSan (or VARIANT=tsan: ThreadSanitizer)
#	make install		DESTDIR=, PREFIX=/usr/local; make uninstall with the same removes all that
#	make clean
#
# The release variant goes to build/, the others to build/<variant>/; objects to build/obj/<variant>/.
# Sources are found by wildcard.  A program whose main source is not there is left out.

VARIANT ?= release
PREFIX ?= /usr/local
LIBDIR ?= $(PREFIX)/lib
INCLUDEDIR ?= $(PREFIX)/include
SBINDIR ?= $(PREFIX)/sbin
BINDIR ?= $(PREFIX)/bin
MANDIR ?= $(PREFIX)/share/man
# mount(8) and umount(8) look for their helpers in /sbin only.
HELPERDIR ?= $(if $(filter /usr /usr/local,$(PREFIX)),/sbin,$(SBINDIR))
HELPERS := mount.tux3 mount.fuse.tux3 mount.fuseblk.tux3 umount.tux3 umount.fuse.tux3
DESTDIR ?=
VERSION := 0.1.0
SONAME := libtux3.so.0

# TUX3_LOCKDEP: locks know their owner, and functions assert what they are to be called with.
# Sanitizers make gcc see uninitialized variables where there are none; the release build looks for them.
FLAGS_release := -O2 -g
FLAGS_asan := -O1 -g -DTUX3_LOCKDEP -fno-omit-frame-pointer -fsanitize=address,undefined -fno-sanitize-recover=all \
	-Wno-maybe-uninitialized
# bench/run lines: its own functions take note of each access, in the place of ThreadSanitizer's.
FLAGS_lines := -O2 -g -fsanitize=thread -U__SANITIZE_THREAD__ -Wno-tsan -Wno-maybe-uninitialized
FLAGS_tsan := -O1 -g -DTUX3_LOCKDEP -fno-omit-frame-pointer -fsanitize=thread -Wno-maybe-uninitialized
ifeq ($(FLAGS_$(VARIANT)),)
$(error VARIANT is release, asan, tsan or lines, not "$(VARIANT)")
endif

OUT := build$(if $(filter-out release,$(VARIANT)),/$(VARIANT))
OBJ := build/obj/$(VARIANT)

PKG_CONFIG ?= pkg-config
pkg = $(shell $(PKG_CONFIG) --exists $(1) 2>/dev/null && $(PKG_CONFIG) $(2) $(1))

CFLAGS ?=
TUX3_CFLAGS := -std=gnu11 -Wall -Wextra -Werror -Wno-unused-parameter -Wno-sign-compare \
	-pthread -D_GNU_SOURCE= -DTUX3_VERSION='"$(VERSION)"' \
	-Iuser/env -I. -Iuser/lib -fPIC -fvisibility=hidden $(FLAGS_$(VARIANT))
LDLIBS_BASE := -pthread -luring -lblkid
FUSE_CFLAGS := $(call pkg,fuse3,--cflags)
FUSE_LIBS := $(call pkg,fuse3,--libs)

objects = $(patsubst %.c,$(OBJ)/%.o,$(1))

CORE_SRC := $(wildcard core/*.c core/*/*.c)
ENV_SRC := $(wildcard user/env/*.c)
LIB_SRC := $(wildcard user/lib/*.c)
FUSE_SRC := $(wildcard user/fuse/*.c)
SIM_SRC := $(wildcard sim/*.c)
TOOLS_SRC := $(wildcard user/tools/*.c)
COMMON_SRC := $(filter user/tools/common%.c,$(TOOLS_SRC))
MKFS_SRC := $(filter user/tools/mkfs%.c,$(TOOLS_SRC))
FSCK_SRC := $(filter user/tools/fsck%.c,$(TOOLS_SRC))
TUX3_SRC := $(filter-out $(COMMON_SRC) $(MKFS_SRC) $(FSCK_SRC),$(TOOLS_SRC))
UNIT_SRC := $(wildcard tests/unit/test_*.c)
SUPPORT_SRC := $(wildcard tests/unit/support*.c)

# What tools, daemon, simulator and tests link: internal names included.
INTERNAL := $(call objects,$(CORE_SRC) $(ENV_SRC) $(LIB_SRC))
COMMON := $(call objects,$(COMMON_SRC))
UNIT := $(patsubst tests/unit/%.c,$(OUT)/tests/%,$(UNIT_SRC))
# These start no thread (nothing calls pthread_create() in them), so ThreadSanitizer has nothing to see there.
WITHOUT_THREADS := apply_map attr_damage bad_attribute bad_block bad_file bad_name bad_neighbour chain charges \
	check cold commit_order core costs data_change early estimate forged forged_large freemap groups lib_abort options \
	prefetch promise quota_switch remap repair repair_cases repair_lost repair_random rows show sim tree_ahead \
	tree_damage verify
ifeq ($(VARIANT),tsan)
UNIT := $(filter-out $(WITHOUT_THREADS:%=$(OUT)/tests/test_%),$(UNIT))
endif

LIBRARIES := $(if $(LIB_SRC),$(OUT)/libtux3.a $(OUT)/libtux3.so $(if $(wildcard user/lib/tux3.pc.in),$(OUT)/tux3.pc))
TOOLS := $(if $(wildcard user/tools/mkfs.c),$(OUT)/mkfs.tux3) \
	$(if $(wildcard user/tools/fsck.c),$(OUT)/fsck.tux3) \
	$(if $(wildcard user/tools/tux3.c),$(OUT)/tux3)
FUSE := $(if $(FUSE_SRC),$(OUT)/tux3-fuse)
SIM := $(if $(SIM_SRC),$(OUT)/tux3-sim)

.PHONY: all unit install uninstall clean
.DELETE_ON_ERROR:
.SECONDARY:

all: $(INTERNAL) $(LIBRARIES) $(TOOLS) $(FUSE) $(SIM)

# Objects are made anew when the compiler flags change.
FLAGS_NOW := $(CC) $(TUX3_CFLAGS) $(CFLAGS) $(FUSE_CFLAGS)
ifneq ($(file <$(OBJ)/flags),$(FLAGS_NOW))
$(shell mkdir -p $(OBJ))
$(file >$(OBJ)/flags,$(FLAGS_NOW))
endif
$(OBJ)/flags:
	$(shell mkdir -p $(@D))$(file >$@,$(FLAGS_NOW))

$(OBJ)/user/fuse/%.o: TUX3_CFLAGS += $(FUSE_CFLAGS)

# What is missing is told before the compiler does it in its words: once, and when the flags change.  NAME:PACKAGE.
need = $(1) $(word 1,$(subst :, ,$(2))) >/dev/null || { echo "make needs $(subst :,: apt-get install ,$(2))" >&2; exit 1; };
need_tool = $(call need,command -v,$(1))
need_library = $(call need,$(PKG_CONFIG) --exists,$(1))
.PHONY: needs-check
$(OBJ)/needs: $(OBJ)/flags
	@$(foreach tool,$(firstword $(filter-out ccache,$(CC))):gcc ld:binutils $(firstword $(PKG_CONFIG)):pkg-config,\
		$(call need_tool,$(tool)))
	@$(foreach library,liburing:liburing-dev blkid:libblkid-dev fuse3:libfuse3-dev,$(call need_library,$(library)))
	@touch $@
needs-check: $(OBJ)/needs
	@$(foreach tool,$(if $(wildcard .git),git:git) python3:python3,$(call need_tool,$(tool)))
	@$(call need_library,cmocka:libcmocka-dev)

$(OBJ)/%.o: %.c $(OBJ)/flags | $(OBJ)/needs
	@mkdir -p $(@D)
	@echo "  CC    $<"
	@$(CC) $(TUX3_CFLAGS) $(CFLAGS) -MMD -MP -c -o $@ $<

# One object whose hidden names are local, so that they cannot meet those of the program.
$(OBJ)/libtux3.o: $(INTERNAL)
	@$(LD) -r -o $@.tmp $^
	@objcopy --localize-hidden $@.tmp $@
	@rm -f $@.tmp

$(OUT)/libtux3.a: $(OBJ)/libtux3.o
	@mkdir -p $(@D)
	@echo "  AR    $@"
	@rm -f $@
	@$(AR) rcs $@ $<

$(OUT)/$(SONAME): $(INTERNAL)
	@mkdir -p $(@D)
	@echo "  LD    $@"
	@$(CC) $(TUX3_CFLAGS) $(LDFLAGS) -shared -Wl,-soname,$(SONAME) -o $@ $^ $(LDLIBS_BASE)

$(OUT)/libtux3.so: $(OUT)/$(SONAME)
	@ln -sf $(SONAME) $@

# make install writes it again: it may be given another PREFIX than what was built was.
PC_TEXT = sed -e 's|@PREFIX@|$(PREFIX)|g' -e 's|@LIBDIR@|$(LIBDIR)|g' -e 's|@INCLUDEDIR@|$(INCLUDEDIR)|g' \
	-e 's|@VERSION@|$(VERSION)|g' -e 's|@LIBS_PRIVATE@|$(LDLIBS_BASE)|g'
$(OUT)/tux3.pc: user/lib/tux3.pc.in Makefile
	@mkdir -p $(@D)
	@$(PC_TEXT) $< >$@

define link
	@mkdir -p $(@D)
	@echo "  LD    $@"
	@$(CC) $(TUX3_CFLAGS) $(LDFLAGS) -o $@ $(filter %.o,$^) $(1) $(LDLIBS_BASE)
endef

$(OUT)/mkfs.tux3: $(call objects,$(MKFS_SRC)) $(COMMON) $(INTERNAL)
	$(call link)
$(OUT)/fsck.tux3: $(call objects,$(FSCK_SRC)) $(COMMON) $(INTERNAL)
	$(call link)
$(OUT)/tux3: $(call objects,$(TUX3_SRC)) $(COMMON) $(INTERNAL)
	$(call link)
$(OUT)/tux3-fuse: $(call objects,$(FUSE_SRC)) $(INTERNAL)
	$(call link,$(FUSE_LIBS))
$(OUT)/tux3-sim: $(call objects,$(SIM_SRC)) $(INTERNAL)
	$(call link)
$(OUT)/tests/%: $(OBJ)/tests/unit/%.o $(call objects,$(SUPPORT_SRC)) $(INTERNAL)
	$(call link,-lcmocka)

# A line for each suite; the whole output of one that fails.
unit: $(UNIT)
	@failed=0; total=0; \
	for test in $(UNIT); do \
		begun=$$(date +%s.%N); \
		if $$test >$$test.log 2>&1; then word=passed; else word=FAILED; failed=$$((failed + 1)); fi; \
		passed=$$(sed -n 's/^\[  PASSED  \] \([0-9]*\) test.*/\1/p' $$test.log | awk '{n += $$1} END {print n + 0}'); \
		total=$$((total + passed)); \
		[ $$word = passed ] || cat $$test.log; \
		printf '%-6s %-24s %3d tests passed %6.1f s\n' $$word $$(basename $$test) $$passed \
			$$(echo "$$(date +%s.%N) $$begun" | awk '{print $$1 - $$2}'); \
	done; \
	echo "$(VARIANT): $$total tests passed, $$failed of $(words $(UNIT)) suites failed"; \
	[ $$failed = 0 ]

# What is installed where, as DIRECTORY:FILE; and links, as DIRECTORY:NAME:TARGET.  Uninstall goes by the same lists.
INSTALL_PROGRAMS := $(foreach p,$(filter %/mkfs.tux3 %/fsck.tux3,$(TOOLS)),$(SBINDIR):$(p)) \
	$(foreach p,$(filter %/tux3,$(TOOLS)) $(FUSE) $(SIM),$(BINDIR):$(p)) \
	$(if $(LIBRARIES),$(LIBDIR):$(OUT)/$(SONAME))
INSTALL_FILES := $(if $(LIBRARIES),$(LIBDIR):$(OUT)/libtux3.a $(INCLUDEDIR):user/lib/tux3.h) \
	$(foreach p,$(filter %.pc,$(LIBRARIES)),$(LIBDIR)/pkgconfig:$(p)) \
	$(foreach p,$(wildcard share/profiles/*.conf),$(PREFIX)/share/tux3/profiles:$(p)) \
	$(foreach p,$(wildcard user/man/*),$(MANDIR)/man$(patsubst .%,%,$(suffix $(p))):$(p))
INSTALL_LINKS := $(if $(LIBRARIES),$(LIBDIR):libtux3.so:$(SONAME)) \
	$(if $(FUSE),$(foreach h,$(HELPERS),$(HELPERDIR):$(h):$(BINDIR)/tux3-fuse) \
	$(foreach h,$(filter-out mount.tux3,$(HELPERS)),$(MANDIR)/man8:$(h).8:mount.tux3.8))

word_of = $(word $(1),$(subst :, ,$(2)))
install_one = install -D -m $(1) $(call word_of,2,$(2)) "$$DESTDIR"$(call word_of,1,$(2))/$(notdir $(call word_of,2,$(2)))

# The lists have colons and spaces between their parts, so a directory that has one in its name would be taken for others, and
# uninstall would remove what is there.  DESTDIR is in no list: the shell gets it from the environment, as it is.
export DESTDIR
places_usable = $(foreach v,PREFIX LIBDIR INCLUDEDIR SBINDIR BINDIR MANDIR HELPERDIR,\
	$(if $(filter-out 1,$(words [$(subst :, ,$($(v)))])),$(error $(v)="$($(v))": there can be no spaces or colons in it)))

# What to run before each commit.  With T only the unit tests of that name, and nothing of the simulator.
.PHONY: check
CHECKED := $(if $(T),$(filter $(foreach t,$(UNIT),$(if $(findstring $(T),$(notdir $(t))),$(t))),$(UNIT)),$(UNIT))
check: | needs-check
	@[ -n "$(CHECKED)" ] || { echo "make check T=$(T): there is no tests/unit/test_*$(T)*.c" >&2; exit 1; }
	@scripts/check
	@mkdir -p build
	@$(MAKE) --no-print-directory -j$$(nproc) $(if $(T),,all) $(CHECKED) >build/make.log 2>&1 || \
		{ tail -n 30 build/make.log; exit 1; }
	@$(MAKE) --no-print-directory unit UNIT="$(CHECKED)"
	@$(if $(T),,$(SIM) --canary >/dev/null)
	@$(if $(T),,$(SIM) --seeds 1500)

install: all
	$(places_usable)
	@set -e; $(foreach p,$(INSTALL_PROGRAMS),echo "  INST  $(notdir $(call word_of,2,$(p)))"; $(call install_one,755,$(p));)
	@set -e; $(foreach p,$(INSTALL_FILES),echo "  INST  $(notdir $(call word_of,2,$(p)))"; $(call install_one,644,$(p));)
	@set -e; $(foreach p,$(INSTALL_LINKS),echo "  LINK  $(call word_of,2,$(p))"; install -d "$$DESTDIR"$(call word_of,1,$(p)); \
		ln -sf $(call word_of,3,$(p)) "$$DESTDIR"$(call word_of,1,$(p))/$(call word_of,2,$(p));)
	@$(PC_TEXT) user/lib/tux3.pc.in >"$$DESTDIR"$(LIBDIR)/pkgconfig/tux3.pc
	$(if $(DESTDIR),,@[ $$(id -u) != 0 ] || PATH=$$PATH:/sbin ldconfig)

# Needs nothing built.
uninstall:
	$(places_usable)
	rm -f $(foreach p,$(INSTALL_PROGRAMS) $(INSTALL_FILES),"$$DESTDIR"$(call word_of,1,$(p))/$(notdir $(call word_of,2,$(p)))) \
		$(foreach p,$(INSTALL_LINKS),"$$DESTDIR"$(call word_of,1,$(p))/$(call word_of,2,$(p)))
	@rmdir "$$DESTDIR"$(PREFIX)/share/tux3/profiles "$$DESTDIR"$(PREFIX)/share/tux3 2>/dev/null || true
	$(if $(DESTDIR),,@[ $$(id -u) != 0 ] || PATH=$$PATH:/sbin ldconfig)

clean:
	rm -rf build

# What drives the whole project: see README.md.
.PHONY: run test test-long unit-programs bench-programs
run:
	@scripts/deps.sh run
	@mkdir -p build
	@$(MAKE) --no-print-directory -j$$(nproc) all >build/make.log 2>&1 || { tail -n 30 build/make.log; exit 1; }
	@scripts/run-volume

test:
	@scripts/deps.sh run test
	@tests/run

test-long:
	@scripts/deps.sh run test
	@tests/run --long

unit-programs: $(UNIT)

# For the virtual machine: needs nothing of it.
GUEST_PROGRAMS := $(patsubst tests/vm/guest/%.c,$(OUT)/tests/%,$(wildcard tests/vm/guest/*.c))
.PHONY: guest-programs
guest-programs: $(GUEST_PROGRAMS)
$(OUT)/tests/registers: tests/registers.h
$(OUT)/tests/%: tests/vm/guest/%.c
	@mkdir -p $(@D)
	@echo "  LD    $@"
	@$(CC) -std=gnu11 -Wall -Wextra -Werror -Wno-unused-parameter -Wno-sign-compare -D_GNU_SOURCE -O2 -static -pthread -I . \
		-o $@ $<

# Damaged images and volumes, best with VARIANT=asan: build/asan/tests/fuzz_image --seconds 60
# Each tests/fuzz/fuzz_*.c is a program, and the other sources there are of all of them.
FUZZ := $(patsubst tests/fuzz/%.c,$(OUT)/tests/%,$(wildcard tests/fuzz/fuzz_*.c))
FUZZ_SRC := $(filter-out tests/fuzz/fuzz_%,$(wildcard tests/fuzz/*.c))
.PHONY: fuzz-programs
fuzz-programs: $(FUZZ)
$(OUT)/tests/%: $(OBJ)/tests/fuzz/%.o $(call objects,$(FUZZ_SRC) $(SUPPORT_SRC)) $(INTERNAL)
	$(call link,-lcmocka)

BENCH := $(patsubst bench/%.c,$(OUT)/bench/%,$(wildcard bench/*.c))
bench-programs: $(BENCH)

# As an embedding program is built: the public header and the library.
$(OUT)/bench/%: bench/%.c $(wildcard bench/*.h) user/lib/tux3.h $(OUT)/libtux3.a
	@mkdir -p $(@D)
	@echo "  LD    $@"
	@$(CC) -std=gnu11 -Wall -Wextra -Werror -Wno-unused-parameter -D_GNU_SOURCE $(FLAGS_$(VARIANT)) -Iuser/lib \
		-o $@ $< $(OUT)/libtux3.a $(LDLIBS_BASE)

-include $(shell find $(OBJ) -name '*.d' 2>/dev/null)

# The kernel module, and virtual machines to try it in.
include vm/module.mk
