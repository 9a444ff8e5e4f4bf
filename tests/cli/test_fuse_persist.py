# SPDX-License-Identifier: GPL-2.0-or-later
"""What is on a volume after it was mounted again, unmounted properly or not."""
import errno
import hashlib
import mmap
import os
import random
import stat
import subprocess
import threading
import time
from pathlib import Path

import pytest

from conftest import wait_until
from posixlib import (FALLOC_KEEP_SIZE, FALLOC_PUNCH_HOLE, fallocate, opened, pattern, read_file, write_file)
from tools_helpers import BLOCK, as_json, edit


def picture(root):
    """Everything about a tree that must be the same later."""
    seen = {}
    for base, dirs, files in os.walk(root):
        for name in dirs + files + ([""] if base == root else []):
            path = os.path.join(base, name)
            st = os.lstat(path)
            what = [st.st_ino, st.st_mode, st.st_uid, st.st_gid, st.st_nlink, st.st_mtime_ns, st.st_ctime_ns, st.st_rdev]
            if stat.S_ISREG(st.st_mode):
                what += [st.st_size, hashlib.sha256(read_file(path)).hexdigest()]
            elif stat.S_ISLNK(st.st_mode):
                what.append(os.readlink(path))
            what.append([(n, os.getxattr(path, n, follow_symlinks=False))
                         for n in sorted(os.listxattr(path, follow_symlinks=False))])
            seen[os.path.relpath(path, root)] = what
    return seen


def make_tree(root, seed=1):
    rng = random.Random(seed)
    for d in range(12):
        os.makedirs(f"{root}/dir{d}/sub{d}", 0o755)
        for f in range(40):
            path = f"{root}/dir{d}/file{f}"
            write_file(path, rng.randbytes(rng.choice([0, 1, 100, 4095, 4096, 4097, 70000])))
            os.chmod(path, rng.choice([0o644, 0o600, 0o4755, 0o000]))
            os.chown(path, rng.randrange(70000), rng.randrange(70000))
            os.utime(path, ns=(rng.randrange(10**19 // 4), rng.randrange(10**19 // 4)))
        os.link(f"{root}/dir{d}/file0", f"{root}/dir{d}/sub{d}/hard")
        os.symlink("../" * d + "target", f"{root}/dir{d}/sym")
        os.mkfifo(f"{root}/dir{d}/fifo")
        os.mknod(f"{root}/dir{d}/dev", 0o600 | stat.S_IFBLK, os.makedev(8, d))
        os.setxattr(f"{root}/dir{d}", "user.name", b"v" * (d * 700))
        os.setxattr(f"{root}/dir{d}/file1", "user.big", rng.randbytes(40000))
        subprocess.run(["setfacl", "-m", f"u:{1000 + d}:rwx,d:u:5:r", f"{root}/dir{d}/sub{d}"], check=True)
    with opened(f"{root}/sparse") as fd:
        os.pwrite(fd, b"far", 1 << 33)
        os.pwrite(fd, rng.randbytes(1 << 20), 4096 * 3)
        fallocate(fd, FALLOC_PUNCH_HOLE | FALLOC_KEEP_SIZE, 4096 * 40, 4096 * 100)
        os.ftruncate(fd, 1 << 22)
    for i in range(0, 40, 3):
        os.unlink(f"{root}/dir3/file{i}")
    os.rename(f"{root}/dir4", f"{root}/dir5/moved")


def test_remount_is_the_same(mount, volume, fsck):
    m = mount(volume)
    make_tree(m.path)
    before = picture(m.path)
    m.unmount()
    fsck(volume)
    for _ in range(2):
        m = mount(volume)
        after = picture(m.path)
        assert after == before
        m.unmount()
    fsck(volume)


def test_remount_sizes(mount, volume):
    """Every size around block boundaries, by write and by truncate."""
    sizes = sorted({max(0, b + d) for b in (0, 64, 512, 1024, 2048, 4096, 8192, 65536, 1 << 20) for d in (-1, 0, 1)})
    m = mount(volume)
    for size in sizes:
        write_file(m / f"w{size}", pattern(size, size))
        write_file(m / f"t{size}")
        os.truncate(m / f"t{size}", size)
        write_file(m / f"a{size}", pattern(10, size))
        with open(m / f"a{size}", "ab") as f:
            f.write(pattern(size, size))
    m.unmount()
    m = mount(volume)
    for size in sizes:
        assert read_file(m / f"w{size}") == pattern(size, size)
        assert read_file(m / f"t{size}") == bytes(size)
        assert read_file(m / f"a{size}") == pattern(10, size) + pattern(size, size)


def test_fsync_survives_kill(mount, volume, fsck):
    m = mount(volume, "age=3600")
    os.mkdir(m / "d")
    with opened(m / "d/synced") as fd:
        os.write(fd, pattern(123456))
        os.fsync(fd)
    write_file(m / "d/not-synced", b"may be gone")
    m.kill()
    m = mount(volume)
    assert read_file(m / "d/synced") == pattern(123456)
    m.unmount()
    fsck(volume)


def test_fsync_of_directory_survives_kill(mount, volume, fsck):
    m = mount(volume, "age=3600")
    write_file(m / "a", b"1")
    os.rename(m / "a", m / "b")
    os.mkdir(m / "d")
    with opened(m.path, os.O_RDONLY) as fd:
        os.fsync(fd)
    m.kill()
    m = mount(volume)
    assert sorted(os.listdir(m.path)) == ["b", "d"] and read_file(m / "b") == b"1"
    m.unmount()
    fsck(volume)


def churn_once(root, rng, count, log):
    path = f"{root}/{rng.randrange(60)}"
    what = rng.random()
    if what < 0.5:
        # A file's first bytes say what all of it must be.
        write_file(path, b"%08d" % count * rng.randrange(1, 4000))
    elif what < 0.65:
        os.rename(path, f"{root}/{rng.randrange(60)}")
    elif what < 0.8:
        os.unlink(path)
    elif what < 0.9:
        os.mkdir(f"{path}.dir")
    else:
        with opened(f"{root}/sync{count}") as fd:
            os.write(fd, b"%d" % count)
            os.fsync(fd)
        log.append(f"{os.path.basename(root)}/sync{count}")


def churn(root, seed, stop, log):
    """Work until the file system dies under us; log what fsync promised."""
    rng = random.Random(seed)
    os.makedirs(root, exist_ok=True)
    count = seed * 1000
    while not stop.is_set():
        count += 1
        try:
            churn_once(root, rng, count, log)
        except OSError as e:
            if e.errno not in (errno.ENOENT, errno.EEXIST) and not stop.is_set():
                raise


@pytest.mark.parametrize("seed", range(4))
def test_kill_while_writing(mount, volume, fsck, seed):
    for round in range(3):
        m = mount(volume, "age=0.05" if seed % 2 else "age=1")
        stop, log = threading.Event(), []
        threads = [threading.Thread(target=churn, args=(m / f"t{t}", seed * 1000 + round * 10 + t, stop, log), daemon=True)
                   for t in range(3)]
        for t in threads:
            t.start()
        time.sleep(1 + 0.37 * seed)
        wait_until(lambda: log, "an fsync")
        promised = list(log)
        stop.set()
        m.kill()
        for t in threads:
            t.join(30)
        m = mount(volume)
        for name in promised:
            assert read_file(m / name) == name.rsplit("sync", 1)[1].encode()
        assert promised
        for base, _, files in os.walk(m.path):
            for name in files:
                data = read_file(os.path.join(base, name))
                if not name.startswith("sync"):
                    assert data == data[:8] * (len(data) // 8), "a mix of two contents"
        m.unmount(after_kill=True)
        fsck(volume)


def test_kill_and_write_on(mount, volume, fsck):
    """A crash is not seen by what comes after it."""
    for i in range(5):
        m = mount(volume, "age=0.1")
        os.mkdir(m / f"round{i}")
        for f in range(200):
            write_file(m / f"round{i}/{f}", pattern(5000, f))
        with opened(m.path, os.O_RDONLY) as fd:
            os.fsync(fd)
        for f in range(0, 200, 2):
            os.unlink(m / f"round{i}/{f}")
        m.kill()
    m = mount(volume)
    for i in range(5):
        for f in range(1, 200, 2):
            assert read_file(m / f"round{i}/{f}") == pattern(5000, f)
    m.unmount(after_kill=True)
    fsck(volume)


def test_fill_and_empty(mount, mkfs, fsck):
    """ENOSPC comes to the writer; removing always works and gives the space back."""
    volume = mkfs("64M")
    m = mount(volume)
    free = os.statvfs(m.path).f_bavail
    chunk = pattern(1 << 20)
    for _ in range(2):
        count = 0
        with pytest.raises(OSError) as e:
            while True:
                with opened(m / f"{count}") as fd:
                    # The last one may be cut short; going on says why.
                    done = os.write(fd, chunk)
                    if done < len(chunk):
                        os.write(fd, chunk[done:])
                    os.fsync(fd)
                count += 1
        assert e.value.errno == errno.ENOSPC
        assert count > 40
        for i in range(count):
            assert read_file(m / f"{i}") == chunk
        for name in os.listdir(m.path):
            os.unlink(m / name)
        for _ in range(50):
            with opened(m.path, os.O_RDONLY) as fd:
                os.fsync(fd)
            if free - os.statvfs(m.path).f_bavail < 200:
                break
            time.sleep(0.1)
        assert free - os.statvfs(m.path).f_bavail < 200
    m.unmount()
    fsck(volume)


@pytest.mark.parametrize("options", ["", "writeback"])
def test_what_does_not_fit_from_the_cache(mount, mkfs, fsck, options):
    """The kernel does not look at how much of a request from its cache was written: whatever was not is an error, told by fsync."""
    volume = mkfs("64M")
    m = mount(volume, options)
    filler = m / "filler"
    with opened(filler) as fd, pytest.raises(OSError):
        for start in range(0, 64 << 20, 100 << 12):
            os.posix_fallocate(fd, start, 100 << 12)
    refused, whole = 0, {}
    for i, size in enumerate(range(30 << 12, 300 << 12, 8 << 12)):
        os.truncate(filler, os.stat(filler).st_size - (100 << 12))
        with opened(m.path, os.O_RDONLY) as fd:
            os.fsync(fd)
        with opened(m / f"{i}", os.O_RDWR | os.O_CREAT) as fd:
            try:
                if options:
                    assert os.write(fd, pattern(size, i)) == size
                else:
                    os.ftruncate(fd, size)
                    with mmap.mmap(fd, size) as stores:
                        stores[:] = pattern(size, i)
                        stores.flush()
                os.fsync(fd)
                whole[i] = size
            except OSError as e:
                assert e.errno == errno.ENOSPC
                refused += 1
    assert refused and whole
    m.unmount()
    fsck(volume)
    m = mount(volume)
    for i, size in whole.items():
        assert read_file(m / f"{i}") == pattern(size, i), f"file {i} of {size} bytes was said to be durable"
    m.unmount()


@pytest.mark.parametrize("options", ["", "writeback"])
def test_damaged_data_is_an_error(mount, mkfs, options):
    """A reply that is too short is the end of the file for the kernel, or a hole: what cannot be read must be an error."""
    volume, block, blocks, bad = mkfs("64M"), 4096, 256, (3, 100, 255)
    m = mount(volume, options)
    content = b"".join(b"blk%05d" % i * (block // 8) for i in range(blocks))
    write_file(m / "file", content)
    m.unmount()
    with open(volume, "r+b") as image:
        text = image.read()
        for i in bad:
            image.seek(text.index(b"blk%05d" % i * (block // 8)))
            image.write(b"damaged")
    for flags, size in ((0, blocks), (os.O_DIRECT, blocks), (0, 1), (os.O_DIRECT, 1)):
        m = mount(volume, options)
        room = mmap.mmap(-1, size * block)      # where pages begin, for O_DIRECT
        wrong = set()
        with opened(m / "file", os.O_RDONLY | flags) as fd:
            for at in range(0, blocks, size):
                try:
                    got = os.preadv(fd, [room], at * block)
                    assert room[:got] == content[at * block:at * block + got]
                    assert got == size * block or at + got // block in bad
                except OSError as e:
                    assert e.errno == errno.EIO
                    wrong.add(at)
            assert os.fstat(fd).st_size == len(content)
        if size == 1:
            assert wrong == set(bad)
        with pytest.raises(OSError) as e:
            read_file(m / "file")
        assert e.value.errno == errno.EIO
        room.close()
        subprocess.run(["umount", m.path], check=True)
        assert "the read fails" in m.ended()


def test_a_bad_block_does_not_stop_new_files(run, mkfs, mount):
    """Each leaf in turn, but for that of the root: what is in it cannot be read; new inodes get numbers elsewhere, and are committed."""
    image = mkfs("64M")
    filled = mount(image)
    sub = Path(filled.path, "sub")
    sub.mkdir()
    for i in range(300):
        (sub / f"file-{i}").write_text(f"{i}\n")
    filled.unmount()
    leaves = [n["addr"] for n in as_json(run("tux3", "show", image, "nodes", "--json")) if n["level"] == 0]
    assert len(leaves) > 8
    before = image.read_bytes()
    for addr in leaves[1:]:
        def spoil(data):
            data[0] ^= 1
        edit(image, addr * BLOCK + 2000, 1, spoil)
        beside = mount(image)
        made = Path(beside.path, "dir")
        made.mkdir()
        for i in range(10):
            (made / f"{i}").write_text(f"{i}\n")
        os.sync()
        assert len(list(made.iterdir())) == 10
        subprocess.run(["umount", beside.path], check=True)
        assert all("cannot read the tree node" in line for line in beside.ended().splitlines())
        again = mount(image, "ro")
        assert [Path(again.path, "dir", f"{i}").read_text() for i in range(10)] == [f"{i}\n" for i in range(10)]
        again.unmount()
        image.write_bytes(before)
