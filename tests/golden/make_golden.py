#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Makes the golden images of this version of the format: see golden.py and doc/FORMAT.md ("Changes").

	make && make unit-programs && tests/golden/make_golden.py [NAME...]

Only when a change of the format is meant to lose what was written before: every later build has to read what is here.  What must
be seen in an image is written down by this build's libtux3, and by tests/cli/format_reader.py, which have to agree.
"""
import ctypes
import json
import os
import random
import stat
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

import golden
from golden import ROOT, View
import format_reader
import repair_loop
from repair_loop import CREATE, FALLOC_KEEP_SIZE, FALLOC_PUNCH_HOLE, NOFOLLOW, Stat
from tools_helpers import STRIDE, edit, edit_anchors

VERSION = 1
FOLDER = golden.HERE / str(VERSION)
BUILD = ROOT / "build"
SET_MODE, SET_UID, SET_GID, SET_SIZE, SET_ATIME, SET_MTIME, SET_FLAGS, SET_PROJID = 1, 2, 4, 8, 16, 32, 512, 1024
IMMUTABLE, APPEND, NODUMP, NOATIME, PROJINHERIT = 0x100, 0x200, 0x400, 0x800, 0x1000
USER, GROUP, PROJECT = range(3)
AHEAD = 3		# fsync: always ahead of the delta
COLLAPSE, INSERT = 8, 32		# fallocate
TO_EOF, FILE1_WRITTEN = 1, 8		# exchange

# With this key, in the root directory, these entries have the same hash: found by trying five thousand million names.
HASH_SEED = bytes(range(16))
COLLIDING_NAMES = ("dRcTA1b2_XA3", "dlHa0n_mRzx4")


def text(name, size):
    """Content that is different for each name, and compresses well."""
    piece = f"{name} of {size} ".encode()
    return (piece * (size // len(piece) + 1))[:size]


class Quota(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in ("bytes", "inodes", "bytes_soft", "bytes_hard", "inodes_soft", "inodes_hard")] + \
        [(name, ctypes.c_int64) for name in ("bytes_time", "inodes_time")]


class Maker(View):
    """A volume that commits when it is told to."""

    library = None

    def __init__(self, image, slice_extents=0, fsync=0, cut_log=False):
        self.lib = ctypes.CDLL(str(self.library))
        self.declare(self.lib)
        void = ctypes.c_void_p
        self.lib.golden_uncheck.argtypes = [void, ctypes.c_uint64]
        self.lib.tux3_fsync.argtypes = [void, ctypes.c_bool]
        self.lib.tux3_exchange_range.argtypes = [void, ctypes.c_uint64, void, *3 * [ctypes.c_uint64], void]
        self.lib.tux3_quota_set.argtypes = [void, ctypes.c_int, ctypes.c_uint32, ctypes.POINTER(Quota), ctypes.c_uint32]
        self.handle = void()
        why = ctypes.create_string_buffer(512)
        err = self.lib.golden_open(os.fsencode(image), slice_extents, fsync, cut_log, ctypes.byref(self.handle), why, 512)
        assert err == 0, why.value

    def put(self, path, size, offset=0, what=None):
        with self.at(path, CREATE) as node:
            data = text(what or path, size)
            assert self.lib.tux3_write(node, data, size, offset) == size, path

    def allocate(self, path, mode, offset, length):
        with self.at(path, CREATE) as node:
            assert self.lib.tux3_fallocate(node, mode, offset, length) == 0, path

    def exchange(self, path1, offset1, path2, offset2, length=0, flags=0):
        with self.at(path1) as one, self.at(path2) as two:
            assert self.lib.tux3_exchange_range(one, offset1, two, offset2, length, flags, None) == 0, (path1, path2)

    def set(self, path, bits, **values):
        with self.at(path, NOFOLLOW) as node:
            assert self.lib.tux3_setattr(node, None, Stat(**values), bits) == 0, path

    def times(self, path, atime, mtime):
        mask = (1 << 64) - 1
        self.set(path, SET_ATIME | SET_MTIME, atime=atime & mask, atime_ns=1, mtime=mtime & mask, mtime_ns=999999999)

    def rename(self, old, new, flags=0):
        assert self.lib.tux3_path_rename(self.handle, None, old.encode(), new.encode(), flags) == 0, old

    def remove_xattr(self, path, name):
        with self.at(path) as node:
            assert self.lib.tux3_removexattr(node, None, name.encode()) == 0, (path, name)

    def limit(self, kind, number, bits, **values):
        assert self.lib.tux3_quota_set(self.handle, kind, number, Quota(**values), bits) == 0

    def make_node(self, name, mode, major=0, minor=0):
        root = self.lib.tux3_root(self.handle)
        assert self.lib.tux3_mknod(root, None, name, mode, major, minor, None) == 0, name
        self.lib.tux3_node_put(root, 1)

    def uncheck(self, path, blocks):
        with self.at(path) as node:
            assert self.lib.golden_uncheck(node, blocks) == 0, path

    def truncate(self, path, size):
        with self.at(path) as node:
            assert self.lib.tux3_truncate(node, size) == 0, path

    def fsync(self, path):
        with self.at(path) as node:
            assert self.lib.tux3_fsync(node, False) == 0, path


# ---- what is in all of them ----

def spread(tree, path, block, count):
    """A file of so many extents."""
    for n in range(count):
        tree.put(path, 100, 2 * n * block, f"{path} {n}")


def fill(tree, block, quota, many):
    for path in ("/dir", "/dir/sub", "/dir/sub/empty", "/many", "/project"):
        tree.mkdir(path)
    for name, size in (("empty", 0), ("one byte", 1), ("inline", block // 8), ("not inline", block // 8 + 1), ("a block", block),
                       ("a block and a byte", block + 1), ("blocks", 40 * block - 7)):
        tree.put(f"/dir/{name}", size)
    tree.put("/dir/sparse", 1000, 400 * block)
    tree.put("/dir/sparse", 3 * block, 7 * block)
    tree.truncate("/dir/sparse", 450 * block + 1)
    tree.allocate("/dir/preallocated", 0, 0, 24 * block)
    tree.put("/dir/preallocated", 5 * block, 3 * block)
    tree.put("/dir/beyond the end", 10)
    tree.allocate("/dir/beyond the end", FALLOC_KEEP_SIZE, 0, 16 * block)
    tree.put("/dir/punched", 30 * block)
    tree.allocate("/dir/punched", FALLOC_PUNCH_HOLE | FALLOC_KEEP_SIZE, 10 * block + 5, 5 * block)
    tree.put("/dir/swap", 16 * block)
    tree.allocate("/dir/swap", 0, 16 * block, 8 * block)
    tree.put("/later swap", 8 * block)
    for n in range(3):
        tree.link("/dir/inline", "/dir/sub", f"link {n}")
    for n, length in enumerate((1, 1024, 1025, 4095)):
        tree.symlink(f"symlink {n}", f"{n}{'target/' * 600}"[:length])
    for name, mode in ((b"pipe", stat.S_IFIFO), (b"socket", stat.S_IFSOCK), (b"not UTF-8 \xff\xfe", stat.S_IFREG), (b"n" * 255, stat.S_IFREG)):
        tree.make_node(name, mode | 0o604)
    tree.make_node(b"character device", stat.S_IFCHR | 0o600, 4095, 1048575)
    tree.make_node(b"block device", stat.S_IFBLK | 0o660, 8, 1)
    for n, size in enumerate((0, 1, 256, 257, 4096, 4097, 65536)):
        tree.xattr("/dir/blocks", f"user.{size} bytes", text(n, size))
    tree.xattr("/dir", "trusted.of a directory", b"value")
    tree.xattr("/dir/inline", "security.test", b"\0" * 20)
    tree.xattr("/dir/one byte", f"user.{'n' * 250}", b"a long name")
    for n, name in enumerate(COLLIDING_NAMES):
        tree.put(f"/{name}", 10 + n)
    for n in range(many):
        tree.put(f"/many/file {n}", n % 7)
    tree.put("/large", 1)
    spread(tree, "/dir/many extents", block, 40)
    for path in ("/to be cut", "/to be deleted"):
        spread(tree, path, block, 90)
    tree.put("/many xattrs", 0)
    for n in range(120):
        tree.xattr("/many xattrs", f"user.{n}", text(n, 10 + 300 * (n % 3 == 0)))
    tree.set("/dir/one byte", SET_MODE, mode=0o4711)
    tree.set("/dir/sub", SET_MODE, mode=0o3777)
    tree.times("/dir/a block", -2**40, 2**40)
    tree.set("/project", SET_FLAGS | SET_PROJID, flags=PROJINHERIT | NODUMP, projid=42)
    tree.put("/project/of the project", 3 * block)
    for path, uid, gid, projid in (("/dir/blocks", 1000, 100, 7), ("/dir/inline", 1000, 0xfffffffe, 0), ("/dir/a block", 0xfffffffe, 1, 42)):
        tree.own(path, uid, gid, projid)
    for path, flags in (("/dir/empty", IMMUTABLE), ("/dir/a block and a byte", APPEND | NOATIME)):
        tree.set(path, SET_FLAGS, flags=flags)
    if quota:
        set_limits(tree)


def set_limits(tree):
    tree.limit(USER, 1000, 15, bytes_soft=1 << 20, bytes_hard=1 << 30, inodes_soft=1, inodes_hard=100)	# above a soft one
    tree.limit(GROUP, 100, 2, bytes_hard=1 << 32)
    tree.limit(PROJECT, 42, 12, inodes_soft=10, inodes_hard=20)
    tree.limit(PROJECT, 4242, 8, inodes_hard=1)		# of nobody
    tree.limit(USER, 0, 48, bytes_time=3600, inodes_time=7200)
    tree.sync()
    tree.set("/dir/many extents", SET_UID, uid=1000)	# the grace begins


# ---- a log on top of it ----

def change(tree, block, quota, many, ahead):
    """Commits with every type of record.  What is held when the power fails is not put."""
    tree.put("/new", 20)
    tree.put("/dir/inline", 2 * block, 0, "no more inline")		# ITEM_DELETE
    tree.put("/dir/blocks", 3 * block, 5 * block + 17, "again")
    tree.unlink("/dir/sub/link 1")
    tree.unlink("/dir/not inline")
    tree.unlink("/dir/a block")
    tree.rename("/dir/one byte", "/dir/sub/renamed")
    tree.rename("/dir/sub/empty", "/moved")
    tree.mkdir("/moved/new")
    tree.xattr("/dir", "user.new", text("new", 3000))
    tree.xattr("/dir/blocks", "user.257 bytes", b"short now")
    tree.remove_xattr("/dir/blocks", "user.65536 bytes")
    tree.sync()
    tree.allocate("/dir/punched", FALLOC_PUNCH_HOLE | FALLOC_KEEP_SIZE, 20 * block, 5 * block)
    tree.put("/dir/preallocated", block, 20 * block, "in the middle")
    tree.uncheck("/later swap", 8)
    if quota:
        tree.limit(GROUP, 100, 3, bytes_soft=1 << 31, bytes_hard=1 << 32)
        tree.own("/dir/sparse", 1000, 1, 42)
    for n in range(many):
        if n % 10:
            tree.unlink(f"/many/file {n}")			# TREE_MERGE
    tree.sync()
    held = tree.node("/dir/swap")
    tree.unlink("/dir/swap")
    tree.unlink("/many xattrs")					# XATTR_PUNCH
    tree.truncate("/to be cut", 1)
    tree.unlink("/to be deleted")
    if ahead:
        tree.put("/dir/synced", 10)
        tree.fsync("/dir/synced")				# an area for intents
    tree.sync()
    return held


def go_ahead(tree, block):
    """Batches of intents that count."""
    tree.put("/dir/new and synced", 2 * block + 5)
    tree.fsync("/dir/new and synced")
    tree.put("/dir/synced", 3 * block, 0, "synced again")
    tree.fsync("/dir/synced")
    tree.put("/not synced", 5 * block)


def go_ahead_with_records(tree, block):
    """What else intents say: that all was removed, and extended attributes."""
    for path in ("/later swap", "/dir/punched"):
        tree.truncate(path, 0)
        tree.put(path, 100, 4 * block, "where there was something")
        tree.fsync(path)
    tree.put("/dir/new with xattrs", block)
    tree.xattr("/dir/new with xattrs", "user.a", b"")
    tree.xattr("/dir/new with xattrs", "security.label", text("label", 256))
    tree.fsync("/dir/new with xattrs")
    tree.remove_xattr("/dir/blocks", "user.4096 bytes")
    tree.xattr("/dir/blocks", "user.257 bytes", b"short now")
    tree.fsync("/dir/blocks")


def go_ahead_with_names(tree, block):
    """Names that files lost and got: by saves, backups, links; and of directories."""
    tree.put("/dir/tmp", 2 * block)
    tree.fsync("/dir/tmp")
    tree.rename("/dir/tmp", "/dir/swap")			# over a file: that is an orphan
    tree.fsync("/dir")
    tree.rename("/dir/punched", "/moved away")
    tree.put("/dir/punched", 100)
    tree.fsync("/dir/punched")				# brings the other's new name
    tree.link("/dir/sparse", "/dir/sub", "linked")
    tree.fsync("/dir/sparse")
    tree.put("/dir/tmp", 10)
    tree.rename("/dir/tmp", "/dir/sub/new by another name")
    tree.fsync("/dir/sub/new by another name")
    tree.unlink("/dir/inline")
    tree.fsync("/dir")
    tree.rename("/moved away", "/not synced yet")


def go_ahead_with_dirs(tree, block):
    """Directories that are new: with what is in them, one in the other, by an fsync of the one above, and of their own."""
    tree.mkdir("/dir/new")
    tree.xattr("/dir/new", "user.a", b"of a new directory")
    tree.mkdir("/dir/new/below")
    tree.put("/dir/new/below/synced", block + 5)
    tree.put("/dir/new/not synced", 10)
    tree.fsync("/dir/new/below/synced")
    tree.mkdir("/dir/listed")
    tree.fsync("/dir")
    tree.mkdir("/dir/new and empty")
    tree.fsync("/dir/new and empty")
    tree.mkdir("/project/inherits")
    tree.rename("/project/of the project", "/project/inherits/moved")
    tree.fsync("/project/inherits/moved")
    tree.mkdir("/not synced, either")


def go_ahead_with_large(tree, block):
    """Data that is not in the intent area: of files with more than 256 KiB."""
    tree.put("/dir/large", 80 * block + 7)
    tree.fsync("/dir/large")
    tree.put("/dir/large", 70 * block, 5 * block, "written again")
    tree.fsync("/dir/large")
    tree.put("/dir/synced", 90 * block, block, "large now")
    tree.fsync("/dir/synced")
    tree.put("/dir/large", 80 * block, 0, "not synced")


def move(tree, block):
    """Data that come to another place of a file, or to another file: of each kind of extent, and what is inline."""
    tree.allocate("/dir/blocks", COLLAPSE, 3 * block, 4 * block)
    tree.allocate("/dir/punched", INSERT, 2 * block, 5 * block)
    tree.allocate("/dir/many extents", COLLAPSE, block, 7 * block)
    tree.exchange("/dir/sparse", 7 * block, "/dir/blocks", 5 * block, 3 * block)
    tree.exchange("/dir/inline", 0, "/dir/preallocated", 0, flags=TO_EOF)
    tree.exchange("/dir/swap", 4 * block, "/project/of the project", block, 2 * block)
    tree.sync()
    tree.put("/dir/blocks", 100, 6 * block + 5, "where others were")
    tree.exchange("/to be cut", 0, "/dir/sparse", 0, flags=TO_EOF | FILE1_WRITTEN)
    tree.exchange("/dir/blocks", 0, "/dir/blocks", 10 * block, 2 * block)
    tree.allocate("/to be deleted", INSERT, 20 * block, block)


# ---- the images ----

class Recipe:
    def __init__(self, block=4096, size=48 << 20, features="quota", logged=False, ahead=False, torn=False, label="golden", many=0,
                 keep=0, moved=False, cut=False, more=False, names=False, dirs=False, large=False):
        self.block, self.size, self.features, self.label = block, size, features, label
        self.keep = keep	# of its log, so many commits
        self.many = many or (10 if not logged else 430 if block > 4096 else 280)	# so many that leaves are merged
        self.logged, self.ahead, self.torn, self.moved, self.cut = logged, ahead, torn, moved, cut
        self.more, self.names, self.dirs = more, names, dirs	# intents with records; with records of names; of new directories
        self.large = large	# intents of large files

    def make(self, image):
        with open(image, "wb") as f:
            f.truncate(self.size)
        tool("mkfs.tux3", "-q", "-b", self.block, "-L", self.label, *(["-O", self.features] if self.features else []), image)
        edit_anchors(image, set_hash_seed)
        quota = "quota" in self.features.split(",")
        tree = Maker(image)
        fill(tree, self.block, quota, self.many)
        tree.sync()
        tree.uncheck("/dir/swap", 24)
        tree.close()
        if self.logged or self.ahead or self.torn or self.moved or self.cut:
            tree = Maker(image, slice_extents=2, fsync=AHEAD)
            if self.logged:
                change(tree, self.block, quota, self.many, not self.keep)
            elif self.ahead:
                tree.put("/dir/synced", 10)
                tree.fsync("/dir/synced")
                tree.sync()
            if self.ahead:
                go_ahead(tree, self.block)
            if self.more:
                go_ahead_with_records(tree, self.block)
            if self.names:
                go_ahead_with_names(tree, self.block)
            if self.dirs:
                go_ahead_with_dirs(tree, self.block)
            if self.large:
                go_ahead_with_large(tree, self.block)
            if self.torn:
                tree.put("/whole", 3 * self.block)
                tree.sync()
                tree.put("/torn", 3 * self.block)
                tree.sync()
            if self.moved:
                move(tree, self.block)
            if self.cut:
                for path in ("/before the cut", "/damaged", "/behind it", "/far behind it"):
                    tree.put(path, 3 * self.block)
                    tree.sync()
            tree.abandon()
        if self.cut:
            go_on_cut(image, self.block)
        if self.torn:
            tear(image)
        if self.keep:
            cut_log(image, self.keep)


def set_hash_seed(data):
    data[160:176] = HASH_SEED


def tear(image):
    """A block of data of the last commit is not there."""
    volume = format_reader.Volume(image)
    ino = next(entry.ino for entry in volume.walk() if entry.path == "torn")
    addr = volume.runs(ino)[0][1].addr
    edit(image, addr * volume.block_size, volume.block_size, lambda data: data.__setitem__(slice(100, 120), bytes(20)))


def go_on_cut(image, block):
    """A block in the middle of the log is damaged, and somebody goes on before that: what is behind it never counts again."""
    volume = format_reader.Volume(image)
    edit(image, volume.commits[-3].addrs[0] * volume.block_size, volume.block_size,
         lambda data: data.__setitem__(slice(100, 120), bytes(20)))
    tree = Maker(image, cut_log=True)
    for path in ("/after the cut", "/dir/after the cut"):
        tree.put(path, 2 * block)
        tree.sync()
    tree.abandon()
    assert len(format_reader.Volume(image).commits) >= 3


def cut_log(image, keep):
    """As if the power had failed earlier: what follows are slices of deletes, which write nothing but the log."""
    volume = format_reader.Volume(image)
    assert len(volume.commits) > keep
    for commit in volume.commits[keep:]:
        for addr in commit.addrs:
            edit(image, addr * volume.block_size, volume.block_size, lambda data: data.__setitem__(slice(None), bytes(len(data))))


RECIPES = {
    "tree": Recipe(label="every item of the tree", many=280),
    "tree-64k": Recipe(65536, 96 << 20, many=430),
    "log": Recipe(logged=True),
    "log-64k": Recipe(65536, 96 << 20, logged=True),
    "log-groups": Recipe(size=300 << 20, features="", logged=True, ahead=True, label=""),
    "no-checksums": Recipe(features="^data-csum", logged=True, ahead=True),
    "intents": Recipe(ahead=True),
    "intents-64k": Recipe(65536, 96 << 20, ahead=True),
    "intents-records": Recipe(ahead=True, more=True),
    "intents-names": Recipe(ahead=True, names=True),
    "intents-dirs": Recipe(ahead=True, dirs=True),
    "intents-large": Recipe(ahead=True, large=True),
    "orphans": Recipe(logged=True, keep=8),
    "orphans-64k": Recipe(65536, 96 << 20, logged=True, keep=8),
    "torn": Recipe(torn=True),
    "moved": Recipe(moved=True),
    "moved-64k": Recipe(65536, 96 << 20, moved=True),
    "cut": Recipe(cut=True),
}


def tool(name, *args, status=0):
    done = subprocess.run([str(BUILD / name), *map(str, args)], capture_output=True, text=True)
    assert done.returncode == status, (name, args, done.returncode, done.stdout, done.stderr)
    return done.stdout


# ---- what must be seen ----

def describe(image):
    volume = format_reader.Volume(image)
    shown = json.loads(tool("tux3", "show", image, "--json"))[0]
    read = golden.picture_read(volume)
    tree = View(image, read_only=True)
    seen = tree.picture()
    tree.close()
    assert seen == golden.without_stored(read), golden.first_difference(seen, golden.without_stored(read))
    assert volume.delta == shown["newest_delta"]
    kinds = {kind for _, kind, _ in volume.items} | {format_reader.EXTENT}
    return {
        "delta": volume.delta, "commits": len(volume.commits), "torn": bool(volume.torn), "intents": len(volume.intents),
        "skips": volume.skips,
        "label": shown["label"], "block_size": shown["block_size"], "items": sorted(kinds), "records": golden.records(BUILD, image),
        "extent_flags": sorted({e.flags for extents in volume.extents.values() for e in extents.values()}),
        "chains": golden.chains(volume), "quota": golden.quotas(volume), "orphans": golden.orphans(volume), "problems": golden.problems(BUILD, image), "tree": read,
    }


def make_helper(folder):
    """libtux3 with golden_help.c, which calls what is internal."""
    library = Path(folder) / "golden.so"
    objects = [path for room in ("core", "user/env", "user/lib") for path in (BUILD / "obj/release" / room).rglob("*.o")]
    subprocess.run(["gcc", "-shared", "-fPIC", "-std=gnu11", "-D_GNU_SOURCE=", "-fvisibility=hidden", "-O1", "-Iuser/env", "-I.",
                    "-Iuser/lib", "tests/golden/golden_help.c", *objects, "-pthread", "-luring", "-lblkid", "-o", library],
                   check=True, cwd=ROOT)
    return library


def make_damaged(folder):
    """test_check keeps the volumes that it damages; those of a problem that only a device can have are good."""
    subprocess.run([BUILD / "tests/test_check"], check=True, env={**os.environ, "TUX3_KEEP_DAMAGED": str(folder)},
                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    images = {path.stem: path for path in sorted(Path(folder).glob("*.img"))}
    bases = [name for name in images if name.startswith("good")]
    images = {**{name: images[name] for name in bases}, **images}
    golden.pack_all(FOLDER / "damaged.xz", images, bases)
    verdicts = {name: golden.problems(BUILD, path) for name, path in images.items()}
    (FOLDER / "damaged.json").write_text(json.dumps(verdicts, indent=1) + "\n")
    print(f"damaged: {len(images)} images, {(FOLDER / 'damaged.xz').stat().st_size} bytes")


def write_lines(path, must):
    """JSON, with a line for each path of the tree."""
    rest = {name: value for name, value in must.items() if name != "tree"}
    lines = [f"{json.dumps(name)}: {json.dumps(value)}" for name, value in sorted(rest.items())]
    tree = ",\n".join(f"{json.dumps(name)}: {json.dumps(value)}" for name, value in sorted(must["tree"].items()))
    path.write_text("{" + ",\n".join([*lines, '"tree": {\n' + tree + "}"]) + "}\n")


def main(names):
    FOLDER.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="golden-") as folder:
        Maker.library = make_helper(folder)
        for name in names or [*RECIPES, "damaged"]:
            if name == "damaged":
                (Path(folder) / "damaged").mkdir()
                make_damaged(Path(folder) / "damaged")
                continue
            image = Path(folder) / f"{name}.img"
            RECIPES[name].make(image)
            must = describe(image)
            golden.pack(FOLDER / f"{name}.xz", image)
            write_lines(FOLDER / f"{name}.json", must)
            print(f"{name}: {(FOLDER / f'{name}.xz').stat().st_size} bytes, {len(must['tree'])} paths, {must['records']}")
            image.unlink()


if __name__ == "__main__":
    main(sys.argv[1:])
