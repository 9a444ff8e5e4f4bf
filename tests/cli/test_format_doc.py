# SPDX-License-Identifier: GPL-2.0-or-later
"""doc/FORMAT.md against the code: its tables against core/format/format.h, and a reader written from it against real images."""
import hashlib
import os
import random
import re
import stat
import subprocess

import pytest

import format_reader
from conftest import ROOT

TREE_SEED = 7


# ---- the tables ----

def doc_tables():
    """{struct: (size, [(offset, size, field)])} from the headings and tables of FORMAT.md."""
    tables, rows = {}, None
    for line in (ROOT / "doc/FORMAT.md").read_text().splitlines():
        heading = re.match(r"### (\w+) \((\d+) bytes", line)
        row = re.match(r"\| (\d+) \| (\d+) \| (\w+) \|", line)
        if heading:
            rows = []
            tables[heading[1]] = int(heading[2]), rows
        elif row and rows is not None:
            rows.append((int(row[1]), int(row[2]), row[3]))
        elif line.startswith("##"):
            rows = None
    return tables


def test_tables_have_no_gaps():
    tables = doc_tables()
    assert len(tables) >= 17
    for name, (size, rows) in tables.items():
        at = 0
        for offset, length, field in rows:
            assert offset == at, (name, field)
            at += length
        assert at == size, name


def test_tables_are_those_of_the_header():
    tables, header = doc_tables(), (ROOT / "core/format/format.h").read_text()
    sizes = re.findall(r"TUX3_ASSERT_SIZE\((\w+), (\d+)\)", header)
    assert len(sizes) > 15
    for name, size in sizes:
        if name != "record_attr":		# not a table of its own
            assert tables[name][0] == int(size), name
    for name, field, at in re.findall(r"TUX3_ASSERT_AT\((\w+), (\w+), (\d+)\)", header):
        if field not in ("csum",):
            assert int(at) in [offset for offset, _, f in tables[name][1] if f == field], (name, field)
    # All fields of all structs, in the same order.
    for name, body in re.findall(r"^struct (\w+) \{\n(.*?)^\}", header, re.M | re.S):
        if name in tables:
            body = re.sub(r"/\*.*?\*/", "", body, flags=re.S)
            fields = []
            for names in re.findall(r"^\t(?:__le\d+|__u8|struct \w+) ([^;]+);", body, re.M):
                fields += [re.sub(r"\[.*", "", f) for f in names.split(", ") if not f.endswith("[]")]
            assert fields == [f for _, _, f in tables[name][1]], name


@pytest.mark.parametrize("table, struct", [("TUX3_ITEMS", "item"), ("TUX3_RECORDS", "record")])
def test_numbers_are_those_of_the_header(table, struct):
    header = (ROOT / "core/format/format.h").read_text()
    body = re.search(rf"#define {table}\(X\) \\\n(.*?)\n\n", header, re.S)[1]
    want = re.findall(r"X\((\d+),\s*(\w+),", body)
    doc = re.findall(r"^\| (\d+) \| ([A-Z_]+) \|", (ROOT / "doc/FORMAT.md").read_text(), re.M)
    assert len(want) > 9
    assert set(want) <= set(doc)


def test_features_are_those_of_the_header():
    body = re.search(r"#define TUX3_FEATURES\(X\) \\\n(.*?)\n\n", (ROOT / "core/format/format.h").read_text(), re.S)[1]
    want = [(word.lower(), bit, name, version, module, what) for word, bit, name, version, module, what in re.findall(
        r'X\((\w+), +(\d+), \w+,\s+"([a-z-]+)",\s+(\d+), "([\d.]+)", \w+, +"([^"]+)"\)', body)]
    doc = re.findall(r"^\| ((?:ro_|in)?compat) \| (\d+) \| ([a-z-]+) \| (\d+) \| ([\d.]+) \| (.+) \|$",
                     (ROOT / "doc/FORMAT.md").read_text(), re.M)
    assert len(want) == body.count("X(") > 1 and doc == want


def test_hash_functions():
    assert format_reader.crc32c(b"123456789") ^ 0xffffffff == 0xe3069283
    # The vectors of the SipHash paper: key 00..0f, message 00..0e.
    assert format_reader.siphash24(bytes(range(16)), bytes(range(15))) == 0xa129ca6149be45e5


# ---- images ----

def make_tree(root, seed=TREE_SEED):
    rng = random.Random(seed)
    for d in range(4):
        os.makedirs(f"{root}/dir{d}/sub/empty")
        for f in range(30):
            path = f"{root}/dir{d}/file{f}"
            with open(path, "wb") as file:
                file.write(rng.randbytes(rng.choice([0, 1, 300, 512, 513, 4095, 4096, 4097, 20000])))
            os.chmod(path, rng.choice([0o644, 0o600, 0o4755, 0]))
            os.chown(path, rng.randrange(70000), rng.randrange(70000))
            os.utime(path, ns=(rng.randrange(-10**18, 10**19), rng.randrange(-10**18, 10**19)))
        os.link(f"{root}/dir{d}/file0", f"{root}/dir{d}/sub/hard")
        os.symlink("x" * (1 + d * 1300), f"{root}/dir{d}/sym")
        os.mkfifo(f"{root}/dir{d}/fifo")
        os.mknod(f"{root}/dir{d}/dev", 0o600 | stat.S_IFBLK, os.makedev(8, d))
        os.setxattr(f"{root}/dir{d}", "user.name", b"v" * (d * 100))
        os.setxattr(f"{root}/dir{d}/file1", "user.big", rng.randbytes(1 + d * 20000))
        os.setxattr(f"{root}/dir{d}/file1", "trusted.small", b"1")
    with open(f"{root}/sparse", "wb") as file:
        os.pwrite(file.fileno(), b"far", 1 << 40)
        os.pwrite(file.fileno(), rng.randbytes(1 << 19), 4096 * 3)
        os.posix_fallocate(file.fileno(), 1 << 30, 1 << 20)
        os.pwrite(file.fileno(), b"in the middle", (1 << 30) + 500000)
    with open(f"{root}/grown", "wb") as file:
        file.write(b"small")
        os.truncate(file.fileno(), 100000)
    os.mkdir(f"{root}/many")
    for i in range(1500):
        open(f"{root}/many/{i:04}-{'n' * (i % 240)}", "w").close()


def change_tree(root, seed=TREE_SEED + 1):
    """What replaces, cuts and removes what make_tree made."""
    rng = random.Random(seed)
    for i in range(0, 1500, 3):
        os.unlink(f"{root}/many/{i:04}-{'n' * (i % 240)}")
    with open(f"{root}/sparse", "r+b") as file:
        for _ in range(20):
            os.pwrite(file.fileno(), rng.randbytes(5000), rng.randrange(1 << 19))
    os.truncate(f"{root}/dir0/file9", 10)
    os.truncate(f"{root}/dir1/file9", 9000)
    os.rename(f"{root}/dir1/sub", f"{root}/dir2/moved")
    os.rename(f"{root}/dir2/file2", f"{root}/dir2/file3")
    os.unlink(f"{root}/dir3/file0")
    os.setxattr(f"{root}/dir3/file1", "user.big", rng.randbytes(300))
    os.removexattr(f"{root}/dir2/file1", "user.big")
    os.chown(f"{root}/dir2/file1", 1, 2)
    for path in ("dir0/file20", "dir0/file21"):
        with open(f"{root}/{path}", "ab") as file:
            file.write(rng.randbytes(700))


def sync(root):
    """Commit everything: fsync of what is not changed would do nothing."""
    fd = os.open(root, os.O_RDONLY)
    os.utime(fd)
    os.fsync(fd)
    os.close(fd)


def digest(data):
    return hashlib.sha256(data).hexdigest()


def ranges(size):
    """Which parts of a file to compare: not a terabyte of zeros."""
    if size <= 2 << 20:
        return [(0, size)]
    return [(0, 1 << 20), (1 << 30, 1 << 20), (size - 5000, 5000)]


def picture(root):
    """The tree as the mount shows it."""
    seen = {}
    for base, dirs, files in os.walk(root):
        for name in [""] * (base == str(root)) + dirs + files:
            path = os.path.join(base, name)
            st = os.lstat(path)
            what = [st.st_ino, st.st_mode, st.st_nlink, st.st_uid, st.st_gid, st.st_mtime_ns, st.st_ctime_ns, st.st_rdev]
            if stat.S_ISREG(st.st_mode):
                with open(path, "rb") as file:
                    what += [st.st_size, [digest(os.pread(file.fileno(), n, at)) for at, n in ranges(st.st_size)]]
            elif stat.S_ISLNK(st.st_mode):
                what.append(os.readlink(path))
            what.append({n: digest(os.getxattr(path, n, follow_symlinks=False))
                         for n in os.listxattr(path, follow_symlinks=False)})
            seen[os.path.relpath(path, root)] = what
    return seen


def picture_read(volume):
    """The same, as the document's reader sees it."""
    seen = {}
    for path, ino, attr in volume.walk():
        what = [ino, attr.mode, attr.nlink, attr.uid, attr.gid, attr.mtime_sec * 10**9 + attr.mtime_nsec,
                attr.ctime_sec * 10**9 + attr.ctime_nsec, os.makedev(attr.rdev_major, attr.rdev_minor)]
        if stat.S_ISREG(attr.mode):
            what += [attr.size, [digest(volume.read(ino, at, n)) for at, n in ranges(attr.size)]]
        elif stat.S_ISLNK(attr.mode):
            what.append(volume.target(ino).decode())
        what.append({n: digest(value) for n, value in volume.xattrs(ino).items()})
        seen[path] = what
    return seen


MKFS = [[], ["-O", "quota,^data-csum", "-b", "8192"], ["-b", "65536", "-O", "quota"]]


@pytest.mark.parametrize("options", MKFS, ids=lambda o: " ".join(o) or "default")
def test_reader_after_unmount(mkfs, mount, options):
    image = mkfs("300M", *options)
    m = mount(image)
    make_tree(m.path)
    sync(m.path)
    change_tree(m.path)
    before = picture(m.path)
    m.unmount()
    volume = format_reader.Volume(image)
    assert not volume.commits
    assert picture_read(volume) == before
    volume.check_space()


@pytest.mark.parametrize("options", MKFS, ids=lambda o: " ".join(o) or "default")
def test_reader_replays_the_log(mkfs, mount, fsck, options):
    """Killed, with a log of several commits on top of an anchor that knows the first tree."""
    image = mkfs("300M", *options)
    m = mount(image)
    make_tree(m.path)
    m.unmount()
    m = mount(image, "age=3600,nowriteback")
    change_tree(m.path)
    sync(m.path)
    os.mkdir(m / "late")
    with open(m / "late/file", "wb") as file:
        file.write(b"late" * 5000)
    sync(m.path)
    before = picture(m.path)
    m.kill()
    volume = format_reader.Volume(image)
    assert len(volume.commits) >= 2
    assert picture_read(volume) == before
    fsck(image)


@pytest.mark.parametrize("options", MKFS, ids=lambda o: " ".join(o) or "default")
def test_reader_carries_out_intents(mkfs, mount, fsck, options):
    """Killed after fsyncs that went ahead of the delta: what was synced is there, and nothing else of the delta."""
    def synced(path, data, flags=os.O_CREAT | os.O_WRONLY):
        fd = os.open(path, flags, 0o640)
        os.write(fd, data)
        os.fsync(fd)
        os.close(fd)

    # While fsyncs come a slow machine commits at 256 KiB, and when intents fill a quarter of their area: what is dirty at the end,
    # and written for it, must be less, for no commit to come.
    few = "65536" in options
    image = mkfs("1200M", *options)
    m = mount(image, "age=3600,nowriteback,fsync=ahead")
    make_tree(m.path)
    synced(m / "small", b"in the tree")
    synced(m / "large", b"a" * 100000)
    sync(m.path)		# after an fsync: there is an area from this commit on
    if not few:
        synced(m / "first", b"1")
    with open(m / "lost", "wb") as file:
        file.write(b"lost" * 9999)
    synced(m / "small", b"in an intent", os.O_WRONLY)
    if not few:
        synced(m / "large", b"b" * 70000, os.O_WRONLY)
    for i in range(20):
        synced(m / "new", bytes([65 + i]) * 3000, os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    before = picture(m.path)
    m.kill()
    volume = format_reader.Volume(image)
    assert len(volume.intents) == (21 if few else 23)
    found = picture_read(volume)
    assert "lost" in before and "lost" not in found
    for path in ("small", "new") if few else ("small", "large", "new", "first"):
        assert found[path] == before[path]
    fsck(image)
    mount(image).unmount()
    volume = format_reader.Volume(image)
    assert not volume.intents
    assert picture_read(volume) == found
    volume.check_space()


def test_reader_leaves_out_a_torn_commit(mkfs, mount):
    image = mkfs("64M")
    m = mount(image, "age=3600,nowriteback")
    for name in ("first", "second"):
        with open(m / name, "wb") as file:
            file.write(name.encode() * 3000)
        sync(m.path)
    m.kill()
    volume = format_reader.Volume(image)
    second = next(entry for entry in volume.walk() if entry.path == "second")
    addr = volume.runs(second.ino)[0][1].addr
    assert not volume.torn
    with open(image, "r+b") as file:
        file.seek(addr * volume.block_size + 100)
        file.write(b"not what the commit wrote")
    volume = format_reader.Volume(image)
    assert volume.torn
    assert {entry.path for entry in volume.walk()} == {".", "first"}
    m = mount(image, "ro")
    assert os.listdir(m.path) == ["first"]
    subprocess.run(["umount", m.path], check=True)
    assert "the newest commit, delta 3 with changes of 2 files, was not complete" in m.ended()


def test_reader_as_a_program(mkfs, mount):
    image = mkfs("64M")
    m = mount(image)
    with open(m / "name", "w") as file:
        file.write("text")
    m.unmount()
    done = subprocess.run(["python3", format_reader.__file__, image], capture_output=True, text=True, check=True)
    assert "'name' crc32c" in done.stdout
