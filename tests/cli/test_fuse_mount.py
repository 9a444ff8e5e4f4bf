# SPDX-License-Identifier: GPL-2.0-or-later
"""tux3-fuse as a program: options, errors, daemon, signals, unmounting."""
import errno
import fcntl
import os
import resource
import select
import signal
import struct
import subprocess
import threading
import time
from pathlib import Path

import pytest

from conftest import is_mounted, wait_until
from posixlib import fails, in_child, opened, pattern, read_file, rest_of_entries, some_entries, write_file


def one_sentence(done):
    """What a user should get: one line on stderr, nothing else."""
    assert done.stdout == ""
    lines = done.stderr.strip().split("\n")
    assert len(lines) == 1 and lines[0].startswith("tux3-fuse: ") and lines[0].endswith("."), done.stderr
    return lines[0]


def daemon_pid(image):
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
        except OSError:
            continue
        if words[0].endswith(b"tux3-fuse") and os.fsencode(image) in words:
            return int(path.parent.name)
    return None


def test_help_and_version(run):
    text = run("tux3-fuse", "--help").stdout
    assert "Usage: tux3-fuse" in text and "Examples:" in text and "norecovery" in text
    assert run("tux3-fuse", "--version").stdout.startswith("tux3-fuse ")


@pytest.mark.parametrize("args", [[], ["one"], ["a", "b", "c"], ["-o", "nonsense", "a", "b"], ["-o", "age=x", "a", "b"],
                                  ["-o", "cache=1Q", "a", "b"], ["-o", "norecovery", "a", "b"],
                                  ["-o", "threads=0", "a", "b"], ["-o", "nonsense=1", "a", "b"]])
def test_usage_errors(run, args):
    one_sentence(run("tux3-fuse", *args, status=1))


def test_bad_image(run, image, tmp_path):
    one_sentence(run("tux3-fuse", "/no/such/image", tmp_path, status=32))
    zeros = image("64M")
    one_sentence(run("tux3-fuse", zeros, tmp_path, status=32))
    assert read_file(zeros) == bytes(64 << 20)
    one_sentence(run("tux3-fuse", image("0"), tmp_path, status=32))


def test_bad_mountpoint(run, volume, tmp_path):
    before = read_file(volume)[:1 << 20]
    one_sentence(run("tux3-fuse", volume, tmp_path / "none", status=32))
    one_sentence(run("tux3-fuse", volume, volume, status=32))
    assert read_file(volume)[:1 << 20] == before


def test_log_that_cannot_be_written(run, volume, tmp_path):
    (tmp_path / "mnt").mkdir()
    done = run("tux3-fuse", "-o", f"log={tmp_path}/missing/log", volume, tmp_path / "mnt", status=32)
    assert f"{tmp_path}/missing/log" in done.stderr and not is_mounted(tmp_path / "mnt")


def test_log_that_is_the_volume(run, volume, tmp_path):
    """Messages would make it longer than it is."""
    (tmp_path / "mnt").mkdir()
    (tmp_path / "link").symlink_to(volume)
    for log in (volume, tmp_path / "link"):
        done = run("tux3-fuse", "-o", f"log={log}", volume, tmp_path / "mnt", status=1)
        assert f"{log}: that is the volume itself" in done.stderr and not is_mounted(tmp_path / "mnt")


def test_daemon(run, volume, tmp_path, fsck):
    mnt = tmp_path / "mnt"
    mnt.mkdir()
    os.chdir(tmp_path)
    done = run("tux3-fuse", volume.name, "mnt", cwd=tmp_path)
    assert done.stdout == done.stderr == ""
    assert is_mounted(mnt)
    write_file(mnt / "f", b"x")
    pid = daemon_pid(volume.name)
    assert os.readlink(f"/proc/{pid}/cwd") == "/" and os.getsid(pid) == pid
    with open("/proc/self/mountinfo") as f:
        line = [line for line in f if f" {mnt} " in line][0]
    assert "fuse.tux3" in line and str(volume) in line
    subprocess.run(["fusermount3", "-u", mnt], check=True)
    wait_until(lambda: daemon_pid(volume.name) is None, "end of the daemon")
    fsck(volume)


@pytest.mark.parametrize("options", ["age=1", "log=log", "auto_unmount"])
def test_daemon_keeps_nothing_of_who_started_it(build, volume, tmp_path, options):
    """A script's lock ends with the script, and a pipe with those who are to write to it."""
    mnt = tmp_path / "mnt"
    mnt.mkdir()
    with open(tmp_path / "lock", "w") as lock, open(tmp_path / "lock") as other:
        fcntl.flock(lock, fcntl.LOCK_EX)
        end, pipe = os.pipe()
        with open(end, "rb") as end:
            subprocess.run([build / "tux3-fuse", "-o", options, volume, mnt], pass_fds=(pipe, lock.fileno()), cwd=tmp_path, check=True)
            try:
                os.close(pipe)
                lock.close()
                fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
                assert select.select([end], [], [], 0)[0] and end.read() == b""
                write_file(mnt / "f", b"x")
            finally:
                subprocess.run(["umount", mnt], check=True)
    wait_until(lambda: daemon_pid(volume) is None, "end of the daemon")


def test_second_mount_is_refused(run, mounted, tmp_path):
    write_file(mounted / "f", b"x")
    other = tmp_path / "other"
    other.mkdir()
    one_sentence(run("tux3-fuse", mounted.image, other, status=32))
    one_sentence(run("tux3-fuse", "-f", mounted.image, other, status=32))
    assert not is_mounted(other)
    assert read_file(mounted / "f") == b"x"


def test_defrag_is_refused_once(run, mounted):
    for n in range(20):
        write_file(mounted / f"f{n}", b"x")
    done = run("tux3", "defrag", mounted.path, status=1)
    assert len(done.stderr.splitlines()) == 1 and "kernel's module" in done.stderr and done.stdout.startswith("0 files")


def test_read_only(mount, volume):
    m = mount(volume)
    write_file(m / "f", b"x")
    m.unmount()
    before = read_file(volume)
    m = mount(volume, "ro")
    assert read_file(m / "f") == b"x" and os.listdir(m.path) == ["f"]
    for call in (lambda: write_file(m / "g"), lambda: os.unlink(m / "f"), lambda: os.chmod(m / "f", 0),
                 lambda: os.mkdir(m / "d")):
        with fails(errno.EROFS):
            call()
    m.unmount()
    assert read_file(volume) == before


def test_read_only_after_crash_leaves_the_image(mount, volume):
    m = mount(volume)
    with opened(m / "f") as fd:
        os.write(fd, b"synced")
        os.fsync(fd)
    m.kill()
    before = read_file(volume)
    for options in ("ro", "ro,norecovery"):
        m = mount(volume, options)
        if options == "ro":
            assert read_file(m / "f") == b"synced"
        else:
            os.listdir(m.path)
        m.unmount()
        assert read_file(volume) == before


def test_write_protected_image(run, mount, volume):
    m = mount(volume)
    write_file(m / "f", b"x")
    m.unmount()
    subprocess.run(["losetup", "-a"], check=True)
    loop = subprocess.run(["losetup", "-r", "-f", "--show", str(volume)], check=True, capture_output=True,
                          text=True).stdout.strip()
    try:
        result = run("tux3-fuse", loop, m.path, status=32)
        assert result.stderr == f"tux3-fuse: {loop} is a read-only device: mount it with -o ro.\n"
        m = mount(loop, "ro")
        assert read_file(m / "f") == b"x"
        m.unmount()
    finally:
        subprocess.run(["losetup", "-d", loop], check=True)
        subprocess.run(["blockdev", "--setrw", loop])


def test_block_device(mount, volume, fsck):
    loop = subprocess.run(["losetup", "-f", "--show", str(volume)], check=True, capture_output=True,
                          text=True).stdout.strip()
    try:
        m = mount(loop)
        write_file(m / "f", pattern(100000))
        m.unmount()
        m = mount(loop)
        assert read_file(m / "f") == pattern(100000)
        m.unmount()
    finally:
        subprocess.run(["losetup", "-d", loop], check=True)
    fsck(volume)


@pytest.mark.parametrize("which", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_signal_unmounts(mount, volume, fsck, which):
    m = mount(volume, "age=60")
    write_file(m / "f", pattern(300000))
    m.daemon.send_signal(which)
    assert m.ended() == ""
    assert not is_mounted(m.path)
    fsck(volume)
    assert read_file(mount(volume) / "f") == pattern(300000)


def test_signal_with_files_open(mount, volume, fsck):
    m = mount(volume, "age=60")
    fd = os.open(m / "f", os.O_CREAT | os.O_RDWR)
    os.write(fd, b"written before")
    m.daemon.send_signal(signal.SIGTERM)
    wait_until(lambda: not is_mounted(m.path), "unmount")
    os.write(fd, b" and after")
    assert os.pread(fd, 100, 0) == b"written before and after"
    os.close(fd)
    assert m.ended() == ""
    fsck(volume)
    assert read_file(mount(volume) / "f") == b"written before and after"


def test_signal_with_files_never_closed(mount, volume, fsck):
    m = mount(volume, "age=60")
    fd = os.open(m / "f", os.O_CREAT | os.O_RDWR)
    os.write(fd, b"written before")
    os.unlink(m / "f")
    write_file(m / "g", b"g")
    m.daemon.send_signal(signal.SIGTERM)
    assert "still open" in m.ended()
    with fails(errno.ENOTCONN, errno.ECONNABORTED):
        os.fsync(fd) or os.pread(fd, 1, 1 << 20)
    os.close(fd)
    fsck(volume)
    assert os.listdir(mount(volume).path) == ["g"]


def test_busy_umount_is_refused(mounted):
    with opened(mounted / "f"):
        assert subprocess.run(["umount", mounted.path], capture_output=True).returncode != 0
        assert is_mounted(mounted.path)
    mounted.unmount()


def test_unlinked_open_file_at_unmount(mount, volume, fsck):
    """The kernel does not say "forget" when it unmounts: what only it kept must go all the same."""
    m = mount(volume)
    free = os.statvfs(m.path).f_bfree
    fd = os.open(m / "big", os.O_CREAT | os.O_RDWR)
    os.write(fd, b"x" * (8 << 20))
    os.unlink(m / "big")
    subprocess.run(["umount", "-l", m.path], check=True)
    os.close(fd)
    m.ended()
    fsck(volume)
    m = mount(volume)
    assert free - os.statvfs(m.path).f_bfree < 1024


@pytest.mark.parametrize("options", ["writeback", "noreaddirplus", "age=0.1,cache=16M,data_cache=8M,names=1000",
                                     "threads=1", "noexec,nosuid,nodev,noatime", "dirty=1M"])
def test_options_work(mount, volume, fsck, options):
    m = mount(volume, options)
    data = pattern(3 << 20)
    os.mkdir(m / "d")
    for i in range(300):
        write_file(m / f"d/{i}", data[i:i + i * 100])
    write_file(m / "big", data)
    assert sorted(os.listdir(m / "d"), key=int) == [str(i) for i in range(300)]
    m.unmount()
    fsck(volume)
    m = mount(volume, options)
    for i in range(300):
        assert read_file(m / f"d/{i}") == data[i:i + i * 100]
    assert read_file(m / "big") == data


def test_holes_beside_what_the_kernel_keeps(mount, volume):
    """With writeback the daemon does not know yet what was written: cp asks where data is, and must not lose it."""
    m = mount(volume, "writeback")
    size = 1 << 20
    fresh, sparse = write_file(m / "fresh", pattern(size)), write_file(m / "sparse")
    os.truncate(sparse, size)
    with opened(sparse) as fd:
        os.pwrite(fd, b"data", size // 2)
        assert os.lseek(fd, 0, os.SEEK_DATA) <= size // 2
        assert os.lseek(fd, size // 2, os.SEEK_HOLE) > size // 2
        with fails(errno.ENXIO):
            os.lseek(fd, size, os.SEEK_DATA)
    for path in fresh, sparse:
        subprocess.run(["cp", path, path + ".copy"], check=True)
        assert read_file(path + ".copy") == read_file(path)
    m.unmount()


def test_other_users(mounted, mount, mkfs):
    write_file(mounted / "f", b"x", 0o644)
    from posixlib import as_user
    os.chmod(mounted.path, 0o755)
    private = mount(mkfs("64M"), "noallow_other")
    assert as_user(lambda: read_file(mounted / "f")) == b"x"
    with fails(errno.EACCES):
        as_user(lambda: os.listdir(private.path))


def test_flags_and_project(mounted):
    """chattr, lsattr; project ids."""
    path = write_file(mounted / "f", b"x")
    get_flags, get_fsx, set_fsx = 0x80086601, 0x801c581f, 0x401c5820
    with opened(path) as fd:
        flags = struct.unpack("l", fcntl.ioctl(fd, get_flags, bytes(8)))[0]
        assert flags & 0xffffffff == 0
        fsx = fcntl.ioctl(fd, get_fsx, bytes(28))
        assert struct.unpack("IIIII", fsx[:20])[3] == 0
        fcntl.ioctl(fd, set_fsx, struct.pack("IIIII8x", 0, 0, 0, 4711, 0))
        assert struct.unpack("IIIII", fcntl.ioctl(fd, get_fsx, bytes(28))[:20])[3] == 4711
        with fails(errno.ENOTTY):
            fcntl.ioctl(fd, 0x1234)


def test_label(mkfs, mount, run):
    """FS_IOC_GETFSLABEL and FS_IOC_SETFSLABEL; only root may set it; the label is in the anchor when the call returns."""
    from posixlib import as_user

    get, put = 0x81009431, 0x41009432
    image = mkfs("64M", "--label", "first")
    mounted = mount(image)

    def label(new=None):
        with opened(mounted.path, os.O_RDONLY) as fd:
            if new is not None:
                fcntl.ioctl(fd, put, new.ljust(256, b"\0"))
            return fcntl.ioctl(fd, get, bytes(256)).rstrip(b"\0")

    os.chmod(mounted.path, 0o777)
    assert label() == b"first"
    assert label(b"second") == b"second"
    assert label(b"x" * 64) == b"x" * 64
    with fails(errno.EINVAL):
        label(b"x" * 65)
    for bad in (b"two\nlines", b"\x1b[31m", b"\x7f"):
        with fails(errno.EINVAL):
            label(bad)
    with fails(errno.EPERM):
        as_user(lambda: label(b"mine"))
    assert label(b"third") == b"third"
    mounted.kill()
    mounted = mount(image)
    assert label() == b"third"
    assert label(b"") == b""


def test_chattr(mounted):
    """lsattr shows what chattr set, and it holds."""
    path = write_file(mounted / "f", b"x")

    def shown():
        return subprocess.run(["lsattr", path], check=True, capture_output=True, text=True).stdout.split()[0]

    for letter, change in (("i", lambda: os.unlink(path)), ("a", lambda: os.truncate(path, 0))):
        assert letter not in shown()
        subprocess.run(["chattr", f"+{letter}", path], check=True)
        assert letter in shown()
        with fails(errno.EPERM):
            change()
        subprocess.run(["chattr", f"-{letter}", path], check=True)
        assert letter not in shown()
    # One that we do not have: a clear no, and nothing changed.
    assert subprocess.run(["chattr", "+c", path], capture_output=True).returncode
    os.truncate(path, 0)


def test_unmount_commits_everything(mount, volume, fsck):
    m = mount(volume, "age=3600")
    write_file(m / "f", pattern(50 << 20))
    start = time.monotonic()
    m.unmount()
    assert time.monotonic() - start < 60
    fsck(volume)
    assert read_file(mount(volume) / "f") == pattern(50 << 20)


def test_age_commits_without_being_asked(mount, volume):
    m = mount(volume, "age=0.2")
    write_file(m / "f", b"soon safe")
    time.sleep(3)
    m.kill()
    assert read_file(mount(volume) / "f") == b"soon safe"


def test_absent_names_are_cached(mounted):
    """Two looks at a name that is not there are one request (counted by time would be fragile: ask the kernel)."""
    with fails(errno.ENOENT):
        os.stat(mounted / "none")
    write_file(mounted / "none")
    os.stat(mounted / "none")
    in_child(lambda: os.unlink(mounted / "none"))
    with fails(errno.ENOENT):
        os.stat(mounted / "none")


def test_listings_are_cached(mount, volume):
    """What nobody changed is listed without a request, also after a listing that was left, and then a change."""
    m = mount(volume, "age=3600")
    for i in range(5):
        write_file(m / f"name-{i}")
    with opened(m.path, os.O_DIRECTORY) as left:
        some_entries(left, 32768)
    write_file(m / "more")
    lists = []
    for _ in range(3):
        with opened(m.path, os.O_DIRECTORY) as fd:
            if len(lists) == 2:
                m.daemon.send_signal(signal.SIGSTOP)
                rescue = threading.Timer(30, m.daemon.send_signal, [signal.SIGCONT])
                rescue.start()
            lists.append(rest_of_entries(fd, 32768))
    assert rescue.is_alive(), "the kernel asked for a directory that it had listed"
    rescue.cancel()
    m.daemon.send_signal(signal.SIGCONT)
    assert lists[0] == lists[1] == lists[2] and len(lists[0]) == 8


def fsync_error(fd):
    try:
        os.fsync(fd)
        return 0
    except OSError as error:
        return error.errno


def test_each_open_file_hears_once_of_what_was_lost(mount, volume):
    """As from the module: EIO once, then EROFS, as to who opened it later; and what is durable is."""
    m = mount(volume)
    write_file(m / "safe", b"safe")
    subprocess.run(["sync", "-f", m.path], check=True)
    subprocess.run(["sync", m.path], check=True)
    with opened(m / "lost") as writer, opened(m / "lost") as other, opened(m / "safe") as safe:
        os.write(writer, b"lost")
        # The image cannot be written any more.
        resource.prlimit(m.daemon.pid, resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
        assert [fsync_error(writer) for _ in range(3)] == [errno.EIO, errno.EROFS, errno.EROFS]
        assert [fsync_error(other) for _ in range(2)] == [errno.EIO, errno.EROFS]
        with open(m / "lost", "rb") as later:
            assert fsync_error(later.fileno()) == errno.EROFS
        assert [fsync_error(safe) for _ in range(2)] == [0, 0]
        assert fsync_error(other) == errno.EROFS
    subprocess.run(["umount", m.path], check=True)
    assert "nothing more is written" in m.ended(32)


def leaf_of(run, volume, ino):
    """A leaf with extents of this inode, but not its attributes: its address, and the first file block in it."""
    leaves, leaf = [], None
    for line in run("tux3", "show", volume, "tree").stdout.splitlines():
        words = line.split()
        if words[0] == "object":
            leaf = {"at": int(words[3]), "extents": [], "attr": False}
            leaves.append(leaf)
        elif words[:2] == ["ino", str(ino)]:
            leaf["attr"] |= words[3] == "attr"
            if words[3] == "extent":
                leaf["extents"].append(int(words[5]))
    best = max((leaf for leaf in leaves if not leaf["attr"]), key=lambda leaf: len(leaf["extents"]))
    return best["at"], best["extents"][0]


def flip(volume, block):
    with open(volume, "r+b") as f:
        f.seek(block * 4096 + 60)
        byte = f.read(1)[0]
        f.seek(-1, os.SEEK_CUR)
        f.write(bytes([byte ^ 1]))


def test_each_open_file_hears_once_of_what_could_not_be_committed(run, mount, volume, fsck):
    """What is written where the tree cannot be read is lost, and all else goes on."""
    m = mount(volume)
    with opened(m / "pieces") as fd:
        for i in range(1500):
            os.pwrite(fd, b"x" * 4096, i * 8192)
        ino = os.fstat(fd).st_ino
    write_file(m / "other", b"safe")
    m.unmount()
    leaf, first = leaf_of(run, volume, ino)
    flip(volume, leaf)
    m = mount(volume)
    with opened(m / "pieces") as writer, opened(m / "pieces") as other, opened(m / "other") as safe:
        os.pwrite(writer, b"n" * 4096, 0)
        os.pwrite(writer, b"n" * 8192, (first + 4) * 4096)
        os.pwrite(safe, b"more", 4)
        assert [fsync_error(writer) for _ in range(2)] == [errno.EIO, 0]
        assert [fsync_error(other) for _ in range(2)] == [errno.EIO, 0]
        assert [fsync_error(safe) for _ in range(2)] == [0, 0]
        with opened(m / "pieces") as later:
            assert fsync_error(later) == 0
            os.pwrite(writer, b"o" * 4096, (first + 4) * 4096)
            assert [fsync_error(fd) for fd in (later, other, writer, writer)] == [errno.EIO, errno.EIO, errno.EIO, 0]
        write_file(m / "new", b"new")
    subprocess.run(["umount", m.path], check=True)
    said = m.ended(32)		# nobody has called sync, to be told
    assert f"inode {ino} (/pieces) cannot be committed" in said and "read-only" not in said
    assert "not everything could be committed" in said
    m = mount(volume)
    assert read_file(m / "other") == b"safemore" and read_file(m / "new") == b"new"
    m.unmount()
    flip(volume, leaf)
    fsck(volume)
    m = mount(volume)
    data = read_file(m / "pieces")
    assert data[:4096] == b"n" * 4096 and data[(first + 4) * 4096:][:4096] == b"x" * 4096
