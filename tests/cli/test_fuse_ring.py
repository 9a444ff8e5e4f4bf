# SPDX-License-Identifier: GPL-2.0-or-later
"""Requests by io_uring: when it is used, and what is particular to it.  The rest is in test_fuse_posix.py."""
import contextlib
import errno
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from conftest import is_mounted, wait_until
from posixlib import fails, pattern, read_file, write_file
from test_fuse_mount import daemon_pid, one_sentence

pytestmark = pytest.mark.usefixtures("io_uring")
CPU = min(os.sched_getaffinity(0))


def ring_threads(pid):
    """Threads that get requests by io_uring."""
    return sum(path.read_text() == "tux3-ring\n" for path in Path(f"/proc/{pid}/task").glob("*/comm"))


def on_one_cpu(function):
    """function in a child that runs on one CPU; its exit status."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            os.sched_setaffinity(0, {CPU})
            function()
            status = 0
        finally:
            os._exit(status)
    return os.waitpid(pid, 0)[1]


def free_blocks(path):
    return os.statvfs(path).f_bfree


def test_option(mount, volume, run, tmp_path):
    for option, used in (("io_uring=off", False), ("io_uring=auto", True), ("io_uring=on", True), ("", True)):
        m = mount(volume, option)
        write_file(m / "f", b"x")
        assert (ring_threads(m.daemon.pid) > 0) == used, option
        m.unmount()
    one_sentence(run("tux3-fuse", "-o", "io_uring=maybe", volume, tmp_path, status=1))


@pytest.mark.parametrize("value, word", [("N", "switched off"), ("", "this kernel has no")])
def test_switched_off(build, volume, tmp_path, value, word):
    """What the daemon sees is a file of ours in place of the kernel's parameter."""
    parameter, mnt = tmp_path / "enable_uring", tmp_path / "mnt"
    parameter.write_text(value)
    mnt.mkdir()

    def mount_there(options, *more):
        script = ('mount --make-rprivate / && mount --bind "$0" /sys/module/fuse/parameters/enable_uring && '
                  '"$1" -o "$2" "$3" "$4" && shift 4 && "$@"')
        return subprocess.run(["unshare", "-m", "sh", "-c", script, parameter, build / "tux3-fuse", options, volume,
                               mnt, *more], capture_output=True, text=True, timeout=60)
    done = mount_there("io_uring=on", "true")
    assert done.returncode == 32 and word in one_sentence(done) and not is_mounted(mnt)
    done = mount_there("io_uring=auto", "sh", "-c", f"echo hello >{mnt}/f && cat {mnt}/f; umount {mnt}")
    assert done.returncode == 0 and done.stdout == "hello\n", done.stderr


def test_one_thread(mount, volume, fsck):
    """One for each CPU is the least there is."""
    m = mount(volume, "io_uring=on,threads=1")
    data = pattern(3 << 20)
    write_file(m / "f", data)
    assert read_file(m / "f") == data
    assert ring_threads(m.daemon.pid) >= 1
    m.unmount()
    fsck(volume)


def test_waiting_requests_get_threads(mount, volume, fsck):
    """All callers on one CPU, so in one queue of the kernel."""
    m = mount(volume, "io_uring=on,age=60")

    def sync_often():
        def one(number):
            fd = os.open(m / f"file{number}", os.O_CREAT | os.O_WRONLY, 0o644)
            for _ in range(20):
                os.write(fd, b"x" * 10000)
                os.fsync(fd)
            os.close(fd)
        threads = [threading.Thread(target=one, args=(n,)) for n in range(12)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    before = ring_threads(m.daemon.pid)
    assert on_one_cpu(sync_often) == 0
    assert before + 2 <= ring_threads(m.daemon.pid) <= 8 * os.cpu_count() + 8
    assert all(os.path.getsize(m / f"file{n}") == 200000 for n in range(12))
    m.unmount()
    fsck(volume)


def test_largest_requests(mount, volume, fsck):
    """Those that fill the payload to its end, read back without the kernel's cache."""
    data = pattern(5 << 20)
    m = mount(volume, "io_uring=on")
    write_file(m / "f", data)
    os.setxattr(m / "f", "user.long", b"v" * 65536)
    os.setxattr(m / "f", "user." + "n" * 250, b"w" * 10)
    os.symlink("t" * 4095, m / "link")
    for n in range(300):
        write_file(m / f"{n:0200}")
    m.unmount()
    m = mount(volume, "io_uring=on")
    assert read_file(m / "f") == data
    assert os.getxattr(m / "f", "user.long") == b"v" * 65536
    assert sorted(os.listxattr(m / "f")) == ["user.long", "user." + "n" * 250]
    assert os.readlink(m / "link") == "t" * 4095
    assert len(os.listdir(m.path)) == 302
    m.unmount()
    fsck(volume)


def test_deleted_files_are_freed(mount, volume):
    """"forget" comes another way than other requests."""
    m = mount(volume, "io_uring=on")
    os.sync()
    free = free_blocks(m.path)
    for n in range(50):
        write_file(m / f"f{n}", b"x" * (1 << 20))
    for n in range(50):
        os.unlink(m / f"f{n}")
    fd = os.open(m.path, os.O_RDONLY)

    def all_free():
        os.fsync(fd)
        return free_blocks(m.path) > free - 500
    wait_until(all_free, "space of deleted files")
    os.close(fd)
    m.unmount()


def test_interrupted_callers(mount, volume, fsck):
    m = mount(volume, "io_uring=on")
    code = ("import os, sys\nfd = os.open(sys.argv[1], os.O_CREAT | os.O_RDWR)\n"
            "while True: os.pwrite(fd, b'x' * 100000, 0); os.fsync(fd); os.pread(fd, 100000, 0)\n")
    for number in range(20):
        callers = [subprocess.Popen([sys.executable, "-c", code, m / f"f{n}"]) for n in range(4)]
        time.sleep(0.03 + number * 0.005)
        for caller in callers:
            caller.send_signal(signal.SIGKILL if number % 2 else signal.SIGTERM)
        for caller in callers:
            caller.wait(30)
    write_file(m / "after", b"served")
    assert read_file(m / "after") == b"served"
    m.unmount()
    fsck(volume)


def test_daemon_killed(mount, volume, fsck):
    """Callers get an error, and the volume is as good as ever."""
    m = mount(volume, "io_uring=on,age=0.1")
    failed = []

    def work(number):
        try:
            while True:
                write_file(m / f"w{number}", b"x" * 300000)
                os.unlink(m / f"w{number}")
        except OSError as e:
            failed.append(e.errno)
    threads = [threading.Thread(target=work, args=(n,), daemon=True) for n in range(6)]
    for thread in threads:
        thread.start()
    write_file(m / "safe", b"safe")
    fd = os.open(m.path, os.O_RDONLY)
    os.fsync(fd)
    os.close(fd)
    time.sleep(0.3)

    def all_end():
        for thread in threads:
            thread.join(30)
    # Below the mount is a directory, in which they would go on for ever.
    m.kill(meanwhile=all_end)
    # Which one depends on how far a request was.
    expected = {errno.ENOTCONN, errno.ECONNABORTED, errno.ECANCELED, errno.EIO}
    assert len(failed) == 6 and set(failed) <= expected, failed
    m = mount(volume, "io_uring=on")
    assert read_file(m / "safe") == b"safe"
    m.unmount(after_kill=True)
    fsck(volume)


def test_signal_while_in_use(mount, volume, fsck):
    """The daemon ends in the end, though files are open and callers go on."""
    m = mount(volume, "io_uring=on")
    fd = os.open(m / "f", os.O_CREAT | os.O_RDWR)
    os.write(fd, b"x" * 100000)
    m.daemon.terminate()
    assert "still open" in m.ended()
    with fails(errno.ENOTCONN, errno.ECONNABORTED):
        os.pwrite(fd, b"y", 0)
    with contextlib.suppress(OSError):
        os.close(fd)
    fsck(volume)


def test_one_cpu_allowed(build, volume, mount_dir, fsck):
    """A daemon that is kept to one CPU stays there, and serves callers on all."""
    mnt = mount_dir / "one-cpu"
    mnt.mkdir()
    subprocess.run(["taskset", "-c", str(CPU), build / "tux3-fuse", "-o", "io_uring=on", volume, mnt], check=True)
    try:
        pid = daemon_pid(volume)
        for cpu in os.sched_getaffinity(0):
            assert subprocess.run(["taskset", "-c", str(cpu), "sh", "-c", f"echo {cpu} >{mnt}/{cpu}; cat {mnt}/{cpu}"],
                                  capture_output=True, text=True, check=True).stdout == f"{cpu}\n"
        for task in Path(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(ProcessLookupError):	# it has just ended
                assert os.sched_getaffinity(int(task.name)) == {CPU}
    finally:
        subprocess.run(["umount", mnt], check=True)
    wait_until(lambda: not Path(f"/proc/{pid}").exists(), "end of the daemon")
    fsck(volume)
