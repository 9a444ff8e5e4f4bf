#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""One process's operations in a fixed order, so that after a crash the tree can be told to be that after some K of them.

    sequence.py run DIR --seed S [--count N] [--pause-ms P]
        Make operations in DIR, which is empty, until N are made or forever.  Each is one system call, and so belongs to one
        delta.  Prints "synced K" when the first K operations are known to be durable (sync), "done K" at the end.

    sequence.py check DIR --seed S --from K [--to N]
        Does DIR hold exactly what it holds after some number of operations between K and N?  Prints "equal to M", exit
        status 0; or the difference to the nearest state, exit status 1.

The model is a dictionary; which operation comes next depends on nothing but the seed and the model.
"""
import argparse
import hashlib
import os
import random
import stat
import sys
import time

DIRECTORIES, NAMES = 6, 12
WRITE_MAX = 192 << 10		# below what one delta takes of one write
FILE_MAX = 1 << 20
CHECK_LIMIT = 30_000		# operations, where the caller gives no end


def digest(data):
    return hashlib.blake2b(data, digest_size=8).hexdigest()


class Inode:
    """What several names may lead to."""

    def __init__(self, kind, data=b"", target=""):
        self.kind, self.data, self.target = kind, bytearray(data), target
        self.mode = 0o755 if kind == "dir" else 0o644
        self.xattrs = {}

    def describe(self):
        if self.kind == "dir":
            return "dir", self.mode, self._xattr_digests()
        if self.kind == "link":
            return "link", self.target
        return "file", self.mode, len(self.data), digest(self.data), self._xattr_digests()

    def outline(self):
        """What is cheap to compare."""
        return self.kind, self.kind == "link" or self.mode, len(self.data), len(self.target), len(self.xattrs)

    def _xattr_digests(self):
        return tuple((name, digest(value)) for name, value in sorted(self.xattrs.items()))


class Model:
    def __init__(self, seed):
        self.random = random.Random(seed)
        self.names = {"": Inode("dir")}
        self.counter = 0

    def _path(self):
        directory = self.random.choice([p for p, i in self.names.items() if i.kind == "dir" and p.count("/") < 3])
        return f"{directory}/n{self.random.randrange(NAMES)}"

    def _some(self, kind):
        found = [p for p, i in self.names.items() if p and (kind is None or i.kind == kind)]
        return self.random.choice(found) if found else None

    def _below(self, path):
        return [p for p in self.names if p.startswith(path + "/")]

    def _bytes(self, size):
        """Contents that say where they come from; no two operations write the same."""
        self.counter += 1
        unit = hashlib.blake2b(self.counter.to_bytes(8, "little"), digest_size=64).digest()
        return (unit * (size // len(unit) + 1))[:size]

    def next(self):
        """The next operation as (name, arguments), already made in the model."""
        while True:
            kind = self.random.choices(
                ["create", "write", "append", "truncate", "mkdir", "unlink", "rmdir", "rename", "link", "symlink", "chmod",
                 "xattr", "punch"], [14, 16, 14, 6, 5, 12, 4, 12, 4, 3, 4, 4, 2])[0]
            made = getattr(self, "_" + kind)()
            if made:
                return kind, made

    def _create(self):
        path = self._path()
        if path in self.names:
            return None
        self.names[path] = Inode("file")
        return (path,)

    def _mkdir(self):
        path = self._path()
        if path in self.names or sum(i.kind == "dir" for i in self.names.values()) > DIRECTORIES:
            return None
        self.names[path] = Inode("dir")
        return (path,)

    def _symlink(self):
        path = self._path()
        if path in self.names:
            return None
        target = "t" * self.random.randrange(1, 200)
        self.names[path] = Inode("link", target=target)
        return path, target

    def _size(self):
        return self.random.choice([self.random.randrange(1, 300), self.random.randrange(1, 9000),
                                   self.random.randrange(1, WRITE_MAX)])

    def _write_at(self, path, offset):
        inode, data = self.names[path], self._bytes(self._size())
        if len(inode.data) < offset:
            inode.data.extend(bytes(offset - len(inode.data)))
        inode.data[offset:offset + len(data)] = data
        return path, offset, data

    def _write(self):
        path = self._some("file")
        if not path:
            return None
        return self._write_at(path, self.random.randrange(min(len(self.names[path].data) + 5000, FILE_MAX)))

    def _append(self):
        path = self._some("file")
        if not path or len(self.names[path].data) > FILE_MAX:
            return None
        return self._write_at(path, len(self.names[path].data))

    def _truncate(self):
        path = self._some("file")
        if not path:
            return None
        data = self.names[path].data
        size = self.random.choice([0, self.random.randrange(len(data) + 1), self.random.randrange(FILE_MAX)])
        if size < len(data):
            del data[size:]
        else:
            data.extend(bytes(size - len(data)))
        return path, size

    def _punch(self):
        path = self._some("file")
        if not path or len(self.names[path].data) < 2:
            return None
        data = self.names[path].data
        start = self.random.randrange(len(data) - 1)
        length = self.random.randrange(1, len(data) - start)
        data[start:start + length] = bytes(length)
        return path, start, length

    def _unlink(self):
        path = self._some(self.random.choice(["file", "file", "file", "link"]))
        if not path:
            return None
        del self.names[path]
        return (path,)

    def _rmdir(self):
        path = self._some("dir")
        if not path or self._below(path):
            return None
        del self.names[path]
        return (path,)

    def _rename(self):
        old, new = self._some(None), self._path()
        if not old or old == new or (new + "/").startswith(old + "/"):
            return None
        inode, target = self.names[old], self.names.get(new)
        if target is inode:
            return None
        if target and ((inode.kind == "dir") != (target.kind == "dir") or self._below(new)):
            return None
        below = self._below(old)
        if inode.kind == "dir" and max((p.count("/") - old.count("/") for p in below), default=0) + new.count("/") > 4:
            return None
        self.names[new] = self.names.pop(old)
        for path in below:
            self.names[new + path[len(old):]] = self.names.pop(path)
        return old, new

    def _link(self):
        old, new = self._some("file"), self._path()
        if not old or new in self.names:
            return None
        self.names[new] = self.names[old]
        return old, new

    def _chmod(self):
        path = self._some(self.random.choice(["file", "dir"]))
        if not path:
            return None
        self.names[path].mode = 0o700 | self.random.randrange(0o100)
        return path, self.names[path].mode

    def _xattr(self):
        path = self._some(self.random.choice(["file", "dir"]))
        if not path:
            return None
        name, value = f"user.x{self.random.randrange(3)}", self._bytes(self.random.choice([5, 100, 2000]))
        self.names[path].xattrs[name] = value
        return path, name, value

    def state(self):
        return {path: inode.describe() for path, inode in self.names.items() if path}

    def outline(self):
        return {path: inode.outline() for path, inode in self.names.items() if path}


def perform(base, kind, args):
    path = base + args[0]
    if kind == "create":
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644))
    elif kind in ("write", "append"):
        fd = os.open(path, os.O_WRONLY)
        assert os.pwrite(fd, args[2], args[1]) == len(args[2])
        os.close(fd)
    elif kind == "truncate":
        os.truncate(path, args[1])
    elif kind == "punch":
        fd = os.open(path, os.O_WRONLY)
        punch_hole(fd, args[1], args[2])
        os.close(fd)
    elif kind == "mkdir":
        os.mkdir(path, 0o755)
    elif kind == "unlink":
        os.unlink(path)
    elif kind == "rmdir":
        os.rmdir(path)
    elif kind == "rename":
        os.rename(path, base + args[1])
    elif kind == "link":
        os.link(path, base + args[1])
    elif kind == "symlink":
        os.symlink(args[1], path)
    elif kind == "chmod":
        os.chmod(path, args[1])
    elif kind == "xattr":
        os.setxattr(path, args[1], args[2])


def punch_hole(fd, offset, length):
    import ctypes
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.fallocate(fd, 3, ctypes.c_long(offset), ctypes.c_long(length)):	# PUNCH_HOLE | KEEP_SIZE
        raise OSError(ctypes.get_errno(), "fallocate")


def make_durable(base):
    """sync(2) does not reach a FUSE daemon, an fsync does."""
    os.sync()
    fd = os.open(base, os.O_RDONLY)
    os.fsync(fd)
    os.close(fd)


def run(args):
    model, extra = Model(args.seed), random.Random(args.seed + 1)
    done = 0
    while args.count is None or done < args.count:
        perform(args.dir, *model.next())
        done += 1
        if extra.random() < args.sync_share:
            make_durable(args.dir)
            print(f"synced {done}", flush=True)
        if args.pause_ms:
            time.sleep(args.pause_ms / 1000)
    print(f"done {done}", flush=True)


def read_tree(base):
    """Path: Inode"""
    found = {}
    for where, directories, files in os.walk(base):
        for name in directories + files:
            path = os.path.join(where, name)
            status = os.lstat(path)
            inode = Inode("dir")
            inode.mode = stat.S_IMODE(status.st_mode)
            if stat.S_ISLNK(status.st_mode):
                inode.kind, inode.target = "link", os.readlink(path)
            else:
                inode.xattrs = {n: os.getxattr(path, n) for n in os.listxattr(path) if n.startswith("user.")}
                if stat.S_ISREG(status.st_mode):
                    inode.kind = "file"
                    with open(path, "rb") as f:
                        inode.data = f.read()
            found[path[len(base):]] = inode
    return found


def difference(found, expected):
    lines = []
    for path in sorted(found.keys() | expected.keys()):
        if found.get(path) != expected.get(path):
            lines.append(f"  {path}: found {found.get(path)}, expected {expected.get(path)}")
    return lines


def check(args):
    tree, model = read_tree(args.dir), Model(args.seed)
    found = {path: inode.describe() for path, inode in tree.items()}
    outline = {path: inode.outline() for path, inode in tree.items()}
    nearest = None
    last = args.to if args.to is not None else args.from_ + CHECK_LIMIT
    for number in range(last + 1):
        if number:
            model.next()
        if number < args.from_:
            continue
        distance = len(outline.items() ^ model.outline().items())
        if nearest and distance > nearest[0]:
            continue
        lines = difference(found, model.state())
        if not lines:
            print(f"equal to {number}")
            return 0
        nearest = distance, number, lines
    print(f"{args.dir} is in no state from {args.from_} to {last}; nearest is {nearest[1]}:")
    print("\n".join(nearest[2][:20]))
    return 1


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser("run")
    one.add_argument("--count", type=int)
    one.add_argument("--pause-ms", type=float, default=0)
    one.add_argument("--sync-share", type=float, default=0.02)
    one.set_defaults(go=run)
    one = commands.add_parser("check")
    one.add_argument("--from", dest="from_", type=int, default=0)
    one.add_argument("--to", type=int)
    one.set_defaults(go=check)
    for one in commands.choices.values():
        one.add_argument("dir")
        one.add_argument("--seed", type=int, required=True)
    args = parser.parse_args()
    sys.exit(args.go(args))


if __name__ == "__main__":
    main()
