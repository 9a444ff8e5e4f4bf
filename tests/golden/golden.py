# SPDX-License-Identifier: GPL-2.0-or-later
"""Golden images: how they are stored, and what is seen in a volume.

A folder for each version of the format.  In it NAME.xz is an image, NAME.json what must be seen in it:

	unpack(path, image)		the image, as a sparse file
	picture(tree)			what libtux3 shows: {path: {...}} with attributes, contents, xattrs
	picture_read(volume)		the same by format_reader.py, with the extents

damaged.xz holds many images that differ in a few blocks from one of two volumes; unpack_all() makes files of them.
"""
import ctypes
import hashlib
import json
import lzma
import os
import stat
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(ROOT / "tests/cli"))
import format_reader  # noqa: E402
from repair_loop import Stat, Tree  # noqa: E402

UNIT = 4096
PIECE = 1 << 20
ATIME_NEVER = 3
FILTERS = [{"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME}]


# ---- how they are stored: a line of JSON, then the units of 4096 bytes that it names ----

def pack(path, image):
    pack_all(path, {"": image}, [""])


def units(image):
    """{number: bytes} of those that are not empty."""
    found = {}
    with open(image, "rb") as f:
        n = 0
        while data := f.read(UNIT):
            if any(data):
                found[n] = data
            n += 1
    return found


def pack_all(path, images, bases):
    """{name: file}.  Of those that are not bases only what differs from the first base of that size that is most like them."""
    head, body, whole = {"unit": UNIT, "images": {}}, [], {name: units(images[name]) for name in bases}
    for name, image in images.items():
        here = units(image)
        base, diff = None, here
        if name not in bases:
            base, diff = min(((b, {n: here.get(n, bytes(UNIT)) for n in here.keys() | old.keys() if here.get(n) != old.get(n)})
                              for b, old in whole.items()), key=lambda found: len(found[1]))
        head["images"][name] = {"size": os.path.getsize(image), "base": base, "units": sorted(diff)}
        body += [diff[n] for n in sorted(diff)]
    raw = json.dumps(head).encode() + b"\n" + b"".join(body)
    Path(path).write_bytes(lzma.compress(raw, format=lzma.FORMAT_XZ, filters=FILTERS))


class Packed:
    def __init__(self, path):
        line, self.body = lzma.decompress(Path(path).read_bytes()).split(b"\n", 1)
        self.images = json.loads(line)["images"]
        at = 0
        for entry in self.images.values():
            entry["at"] = at
            at += len(entry["units"]) * UNIT
        assert at == len(self.body), f"{path} is cut short"

    def unpack(self, name, image):
        entry = self.images[name]
        if entry["base"] is not None:
            self.unpack(entry["base"], image)
        with open(image, "r+b" if entry["base"] is not None else "wb") as f:
            f.truncate(entry["size"])
            for i, n in enumerate(entry["units"]):
                f.seek(n * UNIT)
                f.write(self.body[entry["at"] + i * UNIT:entry["at"] + (i + 1) * UNIT])


def unpack(path, image):
    Packed(path).unpack("", image)


# ---- what is seen ----

def digest(data):
    return hashlib.sha256(data).hexdigest()[:32]


def time_ns(sec, nsec):
    return sec * 10**9 + nsec


SEEN_FLAGS = ~7  # of those in disk_attr: how the data is stored is not among them


class View(Tree):
    """A volume opened with libtux3; looking at it changes no times."""

    def __init__(self, path, **options):
        super().__init__(path, atime=ATIME_NEVER, **options)

    def picture(self):
        root, seen = self.lib.tux3_root(self.handle), {}
        self.see(root, b".", seen)
        self.lib.tux3_node_put(root, 1)
        return seen

    def content_digest(self, node, size, path):
        data, hashed = ctypes.create_string_buffer(PIECE), hashlib.sha256()
        for at in range(0, size, PIECE):
            want = min(PIECE, size - at)
            got = self.lib.tux3_read(node, data, want, at)
            assert got == want, f"{path}: reading {want} bytes at {at} is {got}"
            hashed.update(data.raw[:got])
        return hashed.hexdigest()[:32]

    def see(self, node, path, seen):
        info = Stat()
        assert self.lib.tux3_stat_node(node, ctypes.byref(info)) == 0, path
        what = {
            "ino": info.ino, "mode": info.mode, "uid": info.uid, "gid": info.gid, "projid": info.projid, "nlink": info.nlink,
            "size": info.size, "flags": info.flags & SEEN_FLAGS, "generation": info.generation,
            "change": info.change, "rdev": [info.rdev_major, info.rdev_minor],
            **{name: time_ns(ctypes.c_int64(getattr(info, name)).value, getattr(info, f"{name}_ns"))
               for name in ("atime", "mtime", "ctime", "btime")},
        }
        if stat.S_ISREG(info.mode):
            what["content"] = self.content_digest(node, info.size, path)
        elif stat.S_ISLNK(info.mode):
            what["content"] = digest(self.content(node, info))
        seen[os.fsdecode(path)] = what = without_zeros(what)
        values = self.values(node)
        if values:
            what["xattrs"] = {os.fsdecode(name): digest(value) for name, value in sorted(values.items())}
        if stat.S_ISDIR(info.mode):
            names, err = self.entries(node)
            assert err == 0, (path, err)
            for name in sorted(names):
                below = ctypes.c_void_p()
                err = self.lib.tux3_lookup(node, None, name, ctypes.byref(below))
                assert err == 0, f"{path}/{name} leads nowhere: error {err}"
                self.see(below, name if path == b"." else path + b"/" + name, seen)
                self.lib.tux3_node_put(below, 1)


def picture_read(volume):
    """The same, as the reader sees it that knows only FORMAT.md; and which extents there are."""
    seen = {}
    for path, ino, attr in volume.walk():
        what = {
            "ino": ino, "mode": attr.mode, "uid": attr.uid, "gid": attr.gid, "projid": attr.projid, "nlink": attr.nlink,
            "size": attr.size, "flags": attr.flags & SEEN_FLAGS, "generation": attr.generation, "change": attr.change,
            "rdev": [attr.rdev_major, attr.rdev_minor],
            **{name: time_ns(getattr(attr, f"{name}_sec"), getattr(attr, f"{name}_nsec"))
               for name in ("atime", "mtime", "ctime", "btime")},
        }
        if stat.S_ISREG(attr.mode):
            what["content"] = digest(volume.read(ino))
            what["stored"] = "inline" if attr.flags & format_reader.ATTR_INLINE else [
                [at, e.len, e.flags & ~format_reader.EXTENT_CSUM] for at, e in volume.runs(ino)
                if at << volume.anchor.block_shift < attr.size or e.flags & format_reader.EXTENT_UNWRITTEN]
        elif stat.S_ISLNK(attr.mode):
            what["content"] = digest(volume.target(ino))
        seen[path] = what = without_zeros(what)
        values = volume.xattrs(ino)
        if values:
            what["xattrs"] = {name: digest(value) for name, value in sorted(values.items())}
    return seen


def without_zeros(what):
    return {name: value for name, value in what.items() if value not in (0, [0, 0])}


def without_stored(seen):
    return {path: {name: value for name, value in what.items() if name != "stored"} for path, what in seen.items()}


def first_difference(seen, must):
    """In words, or None."""
    for path in sorted(seen.keys() | must.keys()):
        if path not in seen or path not in must:
            return f"{path!r} is {'there' if path in seen else 'not there'}"
        for name in sorted(seen[path].keys() | must[path].keys()):
            if seen[path].get(name) != must[path].get(name):
                return f"{name} of {path!r} is {seen[path].get(name)}, not {must[path].get(name)}"
    return None


def quotas(volume):
    """{"type id": all the numbers of the item}"""
    return {f"{kind} {who}": list(format_reader.QUOTA.unpack(data)) for (ino, kind, who), data in sorted(volume.items.items())
            if ino == format_reader.INO_VOLUME and kind != format_reader.ORPHAN}


def orphans(volume):
    """[kind, inode number] of each."""
    return [[int.from_bytes(data[:4], "little"), ino] for (_, kind, ino), data in sorted(volume.items.items()) if kind == format_reader.ORPHAN]


def chains(volume):
    """{type of item: the most entries that share one}"""
    parse = {format_reader.DIRENT: format_reader.dirents, format_reader.PARENT: format_reader.parents,
             format_reader.XATTR: format_reader.xattr_entries}
    longest = {}
    for (_, kind, _), data in volume.items.items():
        if kind in parse:
            longest[str(kind)] = max(longest.get(str(kind), 0), len(list(parse[kind](data))))
    return longest


def repair(build, image):
    """What fsck.tux3 -y says that it did: of what it lost, reading is an error from then on."""
    done = subprocess.run([str(build / "fsck.tux3"), "-y", "--data", "--json", str(image)], capture_output=True, text=True)
    assert done.returncode in (0, 1, 4, 5), f"fsck.tux3 -y ends with {done.returncode}: {done.stdout[-500:]}{done.stderr[-500:]}"
    return json.loads(done.stdout)["summary"]


def problems(build, image):
    """Names of what fsck.tux3 -n finds, each as often as it is there."""
    done = subprocess.run([str(build / "fsck.tux3"), "-n", "--data", "--json", str(image)], capture_output=True, text=True)
    assert done.returncode in (0, 4), f"fsck.tux3 -n ends with {done.returncode}: {done.stdout[-500:]}{done.stderr[-500:]}"
    return sorted(problem["name"] for problem in json.loads(done.stdout)["problems"])


def records(build, image):
    """{type: how many are in the log}"""
    done = subprocess.run([str(build / "tux3"), "show", str(image), "log", "--json"], capture_output=True, text=True, check=True)
    found = {}
    for commit in json.loads(done.stdout):
        for record in commit["records"]:
            found[record["record"]] = found.get(record["record"], 0) + 1
    return found
