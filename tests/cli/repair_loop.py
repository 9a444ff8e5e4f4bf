#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Damage and repair, again and again: what must hold after fsck.tux3 -y, whatever was wrong before.

	repair_loop.py [--seed FIRST] [--seeds COUNT]	volumes of four kinds (BASES), damaged as the seed says
	repair_loop.py --image FILE			one that a run has kept; FILE.json and FILE.base are beside it

The damage is 1 to 40 metadata blocks overwritten, bits flipped in nodes, free maps and the log with the checksum made right
again, blocks of file data, or a mixture.  Then:

- fsck.tux3 -y ends with 0 or 1, and does not crash.  Only a volume that has lost all four anchors may be given up (8).
- fsck.tux3 finds nothing afterwards, nor does a second fsck.tux3 -y.  With --data it may find file data that cannot be read:
  what was damaged, and blocks of files of which nobody knows any more where they are.
- All can be read.  A file whose path is there has the content that it had, or reading it is an error, or repair has said that
  something of it is lost.  With bits flipped under a right checksum nobody can know what was there: some may differ then.
- The volume can be written to: files, names, directories, attributes; and is clean after it.

A failure keeps the damaged image in build/repair-loop, and prints the command that tries it again.
"""
import argparse
import ctypes
import json
import os
import pickle
import random
import re
import shutil
import stat
import subprocess
import sys
import tempfile
from collections import namedtuple
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import format_reader
from tools_helpers import CREATE, STRIDE, Volume, seal

ROOT = Path(__file__).resolve().parents[2]
KEPT = ROOT / "build/repair-loop"
TIMEOUT_S = 120
SAID_MAX = 600
NOFOLLOW = 1
FALLOC_KEEP_SIZE, FALLOC_PUNCH_HOLE = 1, 2
EIO_OR_STALE = (5, 22, 61, 116)
SIZE = 32 << 20

# What is made, by name: options of mkfs, and whether the last changes are only in the log.
BASES = {
    "plain": ((), False),
    "quota": (("-O", "quota"), False),
    "log": ((), True),
    "large-blocks": (("-b", "8192", "-O", "quota"), True),
}
DAMAGES = ("wipe", "wipe", "flip", "wipe flip", "wipe data")
DATA_PROBLEMS = {"data-checksum", "data-read", "xattr-value"}


def build():
    return Path(os.environ.get("TUX3_BUILD", ROOT / "build")).resolve()


def has_repair():
    text = subprocess.run([str(build() / "fsck.tux3"), "--help"], capture_output=True, text=True).stdout
    return "not there yet" not in text


class Failure(Exception):
    pass


def expect(condition, what):
    if not condition:
        raise Failure(what)


def tool(name, *args, codes=None):
    try:
        done = subprocess.run([str(build() / name), *map(str, args)], capture_output=True, text=True, errors="replace",
                              timeout=TIMEOUT_S)
    except subprocess.TimeoutExpired:
        raise Failure(f"{name} {' '.join(map(str, args))}: not within {TIMEOUT_S} s") from None
    said = f"{done.stdout[-SAID_MAX:]}{done.stderr[-SAID_MAX:]}"
    expect(done.returncode >= 0, f"{name} died of signal {-done.returncode}\n{said}")
    expect("Sanitizer" not in done.stderr, said)
    expect(codes is None or done.returncode in codes, f"{name} {' '.join(map(str, args))}: exit {done.returncode}\n{said}")
    return done


# ---- libtux3 ----

class Stat(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in ("ino", "size", "blocks_512")] + \
        [(name, ctypes.c_uint32) for name in ("mode", "uid", "gid", "nlink", "rdev_major", "rdev_minor", "block_size",
                                              "flags", "generation", "projid")] + \
        [(name, ctypes.c_uint64) for name in ("change", "atime", "atime_ns", "mtime", "mtime_ns", "ctime", "ctime_ns",
                                              "btime", "btime_ns")]


# content, and each of the values: bytes, or a negative error
Seen = namedtuple("Seen", "mode content values ino")


class Dirent(ctypes.Structure):
    _fields_ = [("ino", ctypes.c_uint64), ("next", ctypes.c_uint64), ("name", ctypes.c_char_p), ("type", ctypes.c_ubyte)]


ENTRY_FN = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.POINTER(Dirent))
SET_UID, SET_GID, SET_PROJID = 2, 4, 1024


class Tree(Volume):
    """An open volume, with the calls that only we need.  What fails says so by a negative number."""

    def __init__(self, path, **options):
        try:
            super().__init__(build(), path, **options)
        except AssertionError as e:
            raise Failure(f"it cannot be opened: {e}") from None

    def declare(self, lib):
        super().declare(lib)
        void, u64 = ctypes.c_void_p, ctypes.c_uint64
        lib.tux3_read.restype = lib.tux3_getxattr.restype = lib.tux3_listxattr.restype = ctypes.c_ssize_t
        lib.tux3_read.argtypes = [void, ctypes.c_char_p, ctypes.c_size_t, u64]
        lib.tux3_getxattr.argtypes = [void, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_size_t]
        lib.tux3_listxattr.argtypes = [void, ctypes.c_char_p, ctypes.c_size_t]
        lib.tux3_readlink.argtypes = [void, ctypes.c_char_p, ctypes.c_size_t]
        lib.tux3_readdir.argtypes = [void, ctypes.POINTER(u64), ENTRY_FN, void]
        lib.tux3_lookup.argtypes = [void, void, ctypes.c_char_p, ctypes.POINTER(void)]
        lib.tux3_stat_node.argtypes = [void, ctypes.POINTER(Stat)]
        lib.tux3_setattr.argtypes = [void, void, ctypes.POINTER(Stat), ctypes.c_uint32]
        lib.tux3_fallocate.argtypes = [void, ctypes.c_int, u64, u64]
        lib.tux3_truncate.argtypes = [void, u64]
        lib.tux3_mknod.argtypes = [void, void, ctypes.c_char_p, ctypes.c_uint32, ctypes.c_uint32, ctypes.c_uint32, void]
        lib.tux3_path_rename.argtypes = [void, void, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_uint]
        lib.tux3_removexattr.argtypes = [void, void, ctypes.c_char_p]

    def at(self, path, flags=0):
        """A node, put again at the end of the with."""
        return Held(self, path, flags)

    def own(self, path, uid, gid, projid):
        with self.at(path) as node:
            assert self.lib.tux3_setattr(node, None, Stat(uid=uid, gid=gid, projid=projid), SET_UID | SET_GID | SET_PROJID) == 0

    def entries(self, directory):
        found = []

        def take(_, entry):
            if entry.contents.name not in (b".", b".."):
                found.append(entry.contents.name)
            return 0
        err = self.lib.tux3_readdir(directory, ctypes.byref(ctypes.c_uint64()), ENTRY_FN(take), None)
        return found, err

    def content(self, node, info):
        """Bytes, or a negative error."""
        room = max(info.size, 4096) + 1
        if room > 4 << 20:
            return -27  # none that we made is so large
        data = ctypes.create_string_buffer(room)
        if stat.S_ISLNK(info.mode):
            got = self.lib.tux3_readlink(node, data, room)
        elif stat.S_ISREG(info.mode):
            got = 0
            while got < info.size:
                part = self.lib.tux3_read(node, ctypes.cast(ctypes.addressof(data) + got, ctypes.c_char_p), info.size - got, got)
                if part <= 0:
                    got = part or -5
                    break
                got += part
        else:
            return b""
        return got if got < 0 else data.raw[:got]

    def values(self, node):
        """{name: value or negative error}"""
        names, value = ctypes.create_string_buffer(1 << 16), ctypes.create_string_buffer(1 << 17)
        size = self.lib.tux3_listxattr(node, names, 1 << 16)
        found = {}
        for name in names.raw[:max(size, 0)].split(b"\0")[:-1]:
            got = self.lib.tux3_getxattr(node, name, value, 1 << 17)
            found[name] = got if got < 0 else value.raw[:got]
        return found

    def walk(self):
        """{path: Seen}"""
        found, root = {}, self.lib.tux3_root(self.handle)
        self.walk_directory(root, b"", found)
        self.lib.tux3_node_put(root, 1)
        return found

    def walk_directory(self, directory, path, found):
        names, err = self.entries(directory)
        expect(err == 0, f"{path!r} cannot be listed: {os.strerror(-err)}")
        expect(path.count(b"/") < 100, f"{path!r} is too deep: a circle?")
        for name in names:
            node, info, below = ctypes.c_void_p(), Stat(), path + b"/" + name
            err = self.lib.tux3_lookup(directory, None, name, ctypes.byref(node))
            expect(err == 0, f"{below!r} leads nowhere: {os.strerror(-err)}")
            err = self.lib.tux3_stat_node(node, ctypes.byref(info))
            expect(err == 0, f"{below!r} has no attributes: {os.strerror(-err)}")
            found[below] = Seen(info.mode, self.content(node, info), self.values(node), info.ino)
            if stat.S_ISDIR(info.mode):
                self.walk_directory(node, below, found)
            self.lib.tux3_node_put(node, 1)


class Held:
    def __init__(self, tree, path, flags):
        self.tree, self.path, self.flags = tree, path, flags

    def __enter__(self):
        self.node = ctypes.c_void_p()
        err = self.tree.lib.tux3_path(self.tree.handle, None, os.fsencode(self.path), self.flags, 0o644, ctypes.byref(self.node))
        expect(err == 0, f"{self.path!r}: {os.strerror(-err)}")
        return self.node

    def __exit__(self, *_):
        self.tree.lib.tux3_node_put(self.node, 1)


# ---- the tree ----

def fill(tree, rng):
    directories = ["", "/many"]
    for n in range(24):
        parent = rng.choice(directories[:1] + directories[2:])
        directories.append(f"{parent}/directory {n}")
    for path in directories[1:]:
        tree.mkdir(path)
    files = []
    for n in range(120):
        files.append(f"/many/{'long ' * (n % 40)}{n}")
        tree.write(files[-1], rng.randbytes(rng.choice((0, 1, 20, 500))))
    for n in range(120):
        files.append(f"{rng.choice(directories)}/file {n}")
        tree.write(files[-1], rng.randbytes(rng.choice((0, 7, 100, 1000, 4096, 5000, 20000, 60000))))
    tree.write("/large", rng.randbytes(700000))
    make_odd_ones(tree, rng)
    for n in range(30):
        tree.link(rng.choice(files), rng.choice(directories) or "/", f"link {n}")
        tree.symlink(f"symlink {n}", "x" * rng.choice((3, 60, 900, 4000)))
    for path in rng.sample(files, 60):
        for n in range(rng.choice((1, 1, 2, 12))):
            tree.xattr(path, f"user.value{n}", rng.randbytes(rng.choice((0, 10, 200, 1000, 5000, 20000, 65536))))
    for path in rng.sample(files, 80):
        tree.own(path, rng.randrange(4) * 1000, rng.randrange(3) * 500, rng.randrange(3) * 7)


def make_odd_ones(tree, rng):
    block = 8192
    with tree.at("/holes", CREATE) as node:
        for n in range(200):
            data = rng.randbytes(3000)
            assert tree.lib.tux3_write(node, data, len(data), 2 * n * block) == len(data)
    with tree.at("/preallocated", CREATE) as node:
        assert tree.lib.tux3_fallocate(node, 0, 0, 40 * block) == 0
        data = rng.randbytes(5 * block)
        assert tree.lib.tux3_write(node, data, len(data), 7 * block) == len(data)
    with tree.at("/beyond the end", CREATE) as node:
        assert tree.lib.tux3_fallocate(node, FALLOC_KEEP_SIZE, 0, 20 * block) == 0
    with tree.at("/punched", CREATE) as node:
        data = rng.randbytes(60 * block)
        assert tree.lib.tux3_write(node, data, len(data), 0) == len(data)
        for n in range(1, 60, 3):
            assert tree.lib.tux3_fallocate(node, FALLOC_PUNCH_HOLE | FALLOC_KEEP_SIZE, n * block, block) == 0
    root = tree.lib.tux3_root(tree.handle)
    for name, mode in (("pipe", stat.S_IFIFO), ("device", stat.S_IFCHR), ("socket", stat.S_IFSOCK)):
        assert tree.lib.tux3_mknod(root, None, name.encode(), mode | 0o600, 1, 3, None) == 0
    tree.lib.tux3_node_put(root, 1)


def change(tree, rng, files):
    """What is only in the log then.  Returns nodes that are still in use: orphans."""
    held = []
    for n in range(20):
        tree.write(f"/new {n}", rng.randbytes(rng.choice((0, 300, 9000))))
    for path in rng.sample(files, 12):
        tree.write(path, rng.randbytes(rng.choice((50, 5000, 30000))))
    tree.sync()
    for n in range(6):
        assert tree.lib.tux3_path_rename(tree.handle, None, f"/new {n}".encode(), f"/many/renamed {n}".encode(), 0) == 0
    for n in range(8, 12):
        held.append(tree.node(f"/new {n}"))
        tree.unlink(f"/new {n}")
    tree.sync()
    return held


class Base:
    """A volume that is not damaged, what is in it, and where its metadata is."""

    def __init__(self, name, folder):
        self.name, self.image = name, Path(folder) / f"{name}.img"
        self.states = []
        features, logged = BASES[name]
        rng = random.Random(name)
        with open(self.image, "wb") as f:
            f.truncate(SIZE)
        tool("mkfs.tux3", "-q", *features, self.image, codes=[0])
        tree = Tree(self.image)
        fill(tree, rng)
        self.states.append(tree.walk())
        tree.close()
        if logged:
            tree = Tree(self.image)
            files = sorted(os.fsdecode(p) for p, seen in self.states[0].items() if stat.S_ISREG(seen.mode) and p.count(b"/") > 1)
            change(tree, rng, files)
            self.states.append(tree.walk())
            tree.abandon()
        self.block_size = 8192 if "8192" in features else 4096
        self.metadata, self.data = self.blocks()

    def blocks(self):
        """Numbers of the blocks with metadata, and of those with other things, that are not empty."""
        copy = self.image.with_suffix(".metadata")
        tool("tux3", "image", "-f", self.image, copy, codes=[0])
        metadata = not_empty(copy, self.block_size)
        copy.unlink()
        return metadata, sorted(set(not_empty(self.image, self.block_size)) - set(metadata))

    def known(self):
        """{path: contents that it may have}"""
        known = {}
        for state in self.states:
            for path, seen in state.items():
                known.setdefault(path, []).append((stat.S_IFMT(seen.mode), seen.content))
        return known


def not_empty(path, block_size):
    found = []
    with open(path, "rb") as f:
        n = 0
        while block := f.read(block_size):
            if block.count(0) != len(block):
                found.append(n)
            n += 1
    return found


# ---- damage ----

MAGICS = {b"T3ND": 4, b"T3LG": 4, b"T3MP": 4, b"T3IN": 4}


def flip_bits(rng, block):
    """Some bits, and the checksum made right again.  False: this is no object that has one there."""
    if bytes(block[:4]) not in MAGICS:
        return False
    used = len(block)
    for _ in range(rng.choice((1, 1, 1, 2, 8))):
        # Most of a block is empty; where there is something is more interesting.
        places = [at for at in range(8, used) if block[at]] if rng.random() < 0.8 else range(8, used)
        block[rng.choice(places)] ^= 1 << rng.randrange(8)
    seal(block, MAGICS[bytes(block[:4])])
    return True


def damage(base, image, seed):
    """What was done."""
    rng = random.Random(seed)
    kinds = rng.choice(DAMAGES).split()
    done = {"seed": seed, "base": base.name, "wiped": [], "flipped": [], "data": []}
    size = base.block_size
    with open(image, "r+b") as f:
        def read(n):
            f.seek(n * size)
            return bytearray(f.read(size))

        def write(n, data):
            f.seek(n * size)
            f.write(data)

        if "wipe" in kinds:
            for n in rng.sample(base.metadata, min(rng.choice((1, 1, 2, 4, 10, 40)), len(base.metadata) // 2)):
                write(n, rng.choice((bytes(size), rng.randbytes(size), read(rng.choice(base.metadata)))))
                done["wiped"].append(n)
        if "flip" in kinds:
            for n in rng.sample(base.metadata, min(rng.choice((1, 1, 3, 10)), len(base.metadata))):
                block = read(n)
                if flip_bits(rng, block):
                    write(n, block)
                    done["flipped"].append(n)
        if "data" in kinds:
            for n in rng.sample(base.data, rng.choice((1, 5, 30))):
                write(n, rng.randbytes(size))
                done["data"].append(n)
    return done


def anchors_left(image):
    """Valid ones."""
    left, size = 0, os.path.getsize(image)
    with open(image, "rb") as f:
        for at in (STRIDE, 2 * STRIDE, size - 2 * STRIDE, size - STRIDE):
            f.seek(at)
            data = f.read(512)
            left += data[:8] == b"TUX3ANC1" and format_reader.sealed(data, 8) and \
                int.from_bytes(data[24:32], "little") == at
    return left


# ---- what must hold ----

def check_clean(image, what, data_damaged):
    for options in [], ["--data"]:
        done = tool("fsck.tux3", "-n", "--json", *options, image, codes=[0, 4])
        problems = json.loads(done.stdout)["problems"]
        left = [p for p in problems if not (data_damaged and options and p["name"] in DATA_PROBLEMS)]
        expect(not left, f"{what}: {len(left)} problems: {json.dumps(left[:6])}")
        expect(bool(problems) == bool(done.returncode), f"{what}: exit {done.returncode}, {len(problems)} problems")


def lost_of(repair):
    """Inodes of which something is lost, or that may be of an earlier state, as fsck.tux3 --json tells."""
    notes = [note for note in json.loads(repair.stdout)["notes"] if note["kind"] == "lost"]
    lost = {note["inode"] for note in notes}
    for note in notes:
        if earlier := re.match(r"Inodes (\d+) to (\d+) may be as they were", note["text"]):
            lost.update(range(int(earlier[1]), int(earlier[2]) + 1))
    return lost


def compare(found, base, done, lost):
    """Is what is at a path what was there, or an error, or told?  How many are told, how many differ otherwise."""
    known, told, wrong = base.known(), 0, []
    for path, seen in found.items():
        if path not in known:
            continue
        if isinstance(seen.content, int):
            expect(seen.content < 0, f"{path!r}: {seen.content}")
        elif not any(stat.S_IFMT(seen.mode) == kind and seen.content == was for kind, was in known[path]):
            if seen.ino in lost:
                told += 1
            else:
                wrong.append(path)
    allowed = 8 * len(done["flipped"])
    expect(len(wrong) <= allowed, f"wrong content without an error: {len(wrong)} files, {wrong[:5]}")
    return told, len(wrong)


def use(image):
    """As somebody does who goes on with it."""
    tree = Tree(image)
    rng = random.Random(1)
    lib, handle = tree.lib, tree.handle
    expect(lib.tux3_path_mkdir(handle, None, b"/after repair", 0o755) == 0, "mkdir after repair")
    contents = {}
    for n in range(40):
        path = f"/after repair/{n}"
        contents[path] = rng.randbytes(rng.choice((0, 100, 5000, 50000)))
        tree.write(path, contents[path])
        tree.xattr(path, "user.a", rng.randbytes(rng.choice((10, 3000))))
    names = [path for path, seen in tree.walk().items() if stat.S_ISREG(seen.mode) and not path.startswith(b"/after")]
    for path in rng.sample(names, min(len(names), 25)):
        err = lib.tux3_path_rename(handle, None, path, b"/after repair/r" + str(rng.random()).encode(), 0)
        expect(err == 0, f"rename of {path!r}: {os.strerror(-err)}")
        names.remove(path)
    for path in rng.sample(names, min(len(names), 25)):
        err = lib.tux3_path_unlink(handle, None, path)
        expect(err == 0, f"unlink of {path!r}: {os.strerror(-err)}")
        names.remove(path)
    for path in rng.sample(names, min(len(names), 25)):
        with tree.at(os.fsdecode(path), NOFOLLOW) as node:
            data = rng.randbytes(3000)
            got = lib.tux3_write(node, data, len(data), rng.choice((0, 100, 10000)))
            # To change a part of a block, it is read first.
            expect(got == len(data) or -got in EIO_OR_STALE, f"write to {path!r}: {got}")
            lib.tux3_truncate(node, rng.choice((0, 4096, 100000)))
    tree.sync()
    for path, data in contents.items():
        with tree.at(path) as node:
            info = Stat()
            lib.tux3_stat_node(node, ctypes.byref(info))
            expect(tree.content(node, info) == data, f"{path}: not what was written after repair")
    tree.close()


def try_image(image, base, done):
    """All that must hold; a sentence about what was found."""
    anchors = anchors_left(image)
    before = tool("fsck.tux3", "-n", "--json", image)
    repair = tool("fsck.tux3", "-y", "--json", "-l", 1000000, image)
    if repair.returncode == 8 and not anchors:
        return "no anchor was left, and it was given up"
    expect(repair.returncode in (0, 1), f"fsck.tux3 -y: exit {repair.returncode}\n{repair.stdout[-SAID_MAX:]}{repair.stderr[-SAID_MAX:]}")
    check_clean(image, "after repair", True)
    again = tool("fsck.tux3", "-y", image)
    expect(again.returncode == 0, f"the second fsck.tux3 -y: exit {again.returncode}\n{again.stdout[-SAID_MAX:]}")
    tree = Tree(image)
    found = tree.walk()
    tree.close()
    told, wrong = compare(found, base, done, lost_of(repair))
    back = sum(path in found for path in base.states[-1])
    use(image)
    check_clean(image, "after it was used", True)
    return f"exit {before.returncode}, {repair.returncode}; {back} of {len(base.states[-1])} paths, {told} told, {wrong} different"


# ---- one seed ----

def run_seed(base, seed, folder):
    """None, or what is wrong."""
    image = Path(folder) / f"{seed}.img"
    shutil.copyfile(base.image, image)
    done = damage(base, image, seed)
    damaged = image.with_suffix(".damaged")
    shutil.copyfile(image, damaged)
    told = f"seed {seed}, {base.name}: {len(done['wiped'])} wiped, {len(done['flipped'])} flipped, {len(done['data'])} of data"
    try:
        print(f"{told}: {in_child(image, base, done)}", flush=True)
        return None
    except Failure as e:
        KEPT.mkdir(parents=True, exist_ok=True)
        kept = KEPT / f"{base.name}-{seed}.img"
        subprocess.run(["cp", "--sparse=always", damaged, kept], check=True)
        Path(f"{kept}.base").write_bytes(pickle.dumps([{path: tuple(seen) for path, seen in state.items()} for state in base.states]))
        Path(f"{kept}.json").write_text(json.dumps(done))
        why = f"{told}: FAILED: {e}\n    again: {Path(__file__).relative_to(ROOT)} --image {kept.relative_to(ROOT)}"
        print(why, flush=True)
        return why
    finally:
        image.unlink()
        damaged.unlink()


def in_child(image, base, done):
    """In a process of its own: a crash of libtux3 is a failure, too."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        os.close(reader)
        code = 1
        # What libtux3 says of damage is not what this is about.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        try:
            text, code = try_image(image, base, done), 0
        except Failure as e:
            text = str(e)
        except BaseException as e:
            text = f"{type(e).__name__}: {e}"
        with os.fdopen(writer, "w", errors="replace") as f:
            f.write(text)
        os._exit(code)
    os.close(writer)
    with os.fdopen(reader, errors="replace") as f:
        text = f.read()
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    expect(status >= 0, f"libtux3 died of signal {-status}")
    expect(status == 0, text)
    return text


class Bases:
    """Made when they are needed."""

    def __init__(self, folder):
        self.folder, self.made = folder, {}

    def of(self, seed):
        name = list(BASES)[seed % len(BASES)]
        if name not in self.made:
            self.made[name] = Base(name, self.folder)
        return self.made[name]


class KeptBase(Base):
    """Of a kept image: what was in it."""

    def __init__(self, name, states):
        states = pickle.loads(Path(states).read_bytes())
        self.name, self.states = name, [{path: Seen(*seen) for path, seen in state.items()} for state in states]


def run_kept(path):
    done = json.loads(Path(f"{path}.json").read_text())
    base = KeptBase(done["base"], f"{path}.base")
    with tempfile.TemporaryDirectory() as folder:
        image = Path(folder) / "again.img"
        shutil.copyfile(path, image)
        print(try_image(image, base, done))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--image")
    args = parser.parse_args()
    if args.image:
        try:
            run_kept(args.image)
        except Failure as e:
            print(f"FAILED: {e}")
            return 1
        return 0
    with tempfile.TemporaryDirectory(prefix="repair-loop-") as folder:
        bases = Bases(folder)
        failed = [seed for seed in range(args.seed, args.seed + args.seeds) if run_seed(bases.of(seed), seed, folder)]
    print(f"{args.seeds - len(failed)} passed, {len(failed)} failed" + (f": seeds {failed}" if failed else ""))
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
