# SPDX-License-Identifier: GPL-2.0-or-later
"""What goes wrong in a careless user's hands: a sentence with the name in it, and nothing half done is left."""
import contextlib
import errno
import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from conftest import ROOT, fuse_io_uring, is_mounted, wait_until
from test_tools import sentence
from tools_helpers import fill


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 4 MiB that is full but for 16 KiB."""
    path = tmp_path / "small"
    path.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4M", "tmpfs", path], check=True)
    try:
        (path / "fill").write_bytes(bytes((4 << 20) - (16 << 10)))
        yield path
    finally:
        subprocess.run(["umount", path], check=True)


def test_mkfs_names_what_it_is_about(run, tmp_path):
    (tmp_path / "dangling").symlink_to("nowhere")
    for args, said in ((("dangling", "64M"), "is a symbolic link to something that does not exist"),
                       (("no-folder/x", "64M"), "cannot be made: No such file or directory"),
                       (("x", "10k"), "too few for a volume"),
                       (("x", "8000000T"), "are too many for a volume with blocks of 4096 bytes")):
        text = sentence(run("mkfs.tux3", *args, status=1, cwd=tmp_path))
        assert f"mkfs.tux3: {args[0]}" in text and said in text, text
        assert os.listdir(tmp_path) == ["dangling"]


def test_mkfs_of_a_file_that_cannot_be_so_long(build, tmp_path):
    done = subprocess.run(["sh", "-c", 'ulimit -f 2 && exec "$@"', "sh", build / "mkfs.tux3", tmp_path / "x", "64M"],
                          capture_output=True, text=True)
    assert done.returncode == 1 and "cannot be made 67108864 bytes long: File too large for" in done.stderr, done.stderr
    assert not os.listdir(tmp_path)


@pytest.mark.parametrize("args", [("mkfs.tux3", "OUT", "64M"), ("tux3", "image", "IN", "OUT"), ("tux3", "image", "--scramble", "IN", "OUT"),
                                  ("tux3", "graph", "IN", "--limit", "100000", "-o", "OUT")])
def test_a_full_disk(run, build, mkfs, small_disk, args):
    path = mkfs("64M")
    fill(build, path)
    out = small_disk / "out"
    words = [str({"IN": path, "OUT": out}.get(word, word)) for word in args]
    text = sentence(run(*words, status=1))
    assert str(out) in text and "o space left on" in text
    assert os.listdir(small_disk) == ["fill"]


@pytest.mark.parametrize("args,status", [(("tux3", "stat"), 1), (("tux3", "show"), 1), (("tux3", "graph"), 1), (("fsck.tux3",), 8),
                                         (("fsck.tux3", "--json"), 8)])
def test_output_that_goes_nowhere(build, mkfs, args, status):
    with open("/dev/full", "w") as full:
        done = subprocess.run([str(build / args[0]), *args[1:], str(mkfs("16M"))], stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == status
    assert done.stderr.startswith(f"{args[0]}: The ") and "No space left on device" in done.stderr


def test_a_remount_of_something_else(build, tmp_path):
    for name in ("mount.tux3", "mount.fuse.tux3"):
        (tmp_path / name).symlink_to(build / "tux3-fuse")
        done = subprocess.run([tmp_path / name, "none", "/proc", "-o", "remount,noexec"], capture_output=True, text=True)
        assert done.returncode == 32 and "/proc is no Tux3 volume: a proc file system is mounted there." in done.stderr


def test_numbers(run, mkfs):
    path = mkfs("16M")
    assert '"x" is no number' in sentence(run("tux3", "graph", path, "--limit", "x", status=16))
    assert '"x" is no number' in sentence(run("fsck.tux3", path, "--limit", "x", status=16))


@pytest.mark.parametrize("program", ["mkfs.tux3", "fsck.tux3", "tux3", "tux3-fuse", "tux3-sim"])
def test_version_and_wrong_options(run, program):
    assert run(program, "--version").stdout.startswith(f"{program} 0.1.0")
    text = run(program, "--no-such-option", status=None).stderr
    assert f"{program}: " in text and "--no-such-option" in text and "--help" in text


def test_the_disk_below_a_mounted_volume_is_full(run, small_disk, mount, tmp_path):
    """It is that one that is full, not the volume; what was synced before is there."""
    (small_disk / "fill").unlink()
    image, log = small_disk / "sparse.img", tmp_path / "log"
    run("mkfs.tux3", image, "64M")
    m = mount(image, f"log={log}")
    with open(m / "safe", "w") as f:
        f.write("safe")
    subprocess.run(["sync", m.path], check=True)
    with contextlib.suppress(OSError), open(m / "large", "wb") as f:
        f.write(bytes(8 << 20))
    assert subprocess.run(["sync", m.path], capture_output=True).returncode
    m.kill()
    assert f"{image}: cannot write at offset " in log.read_text()
    assert "the filesystem that it is on is full" in log.read_text() and "on the volume" not in log.read_text()
    assert ": clean: 2 inodes" in run("fsck.tux3", image).stdout


def test_a_user_can_use_the_volume_that_he_makes(build, run, tmp_path):
    """Its root directory is his."""
    (tmp_path / "his").mkdir()
    (tmp_path / "his").chmod(0o777)
    program = os.open(build / "mkfs.tux3", os.O_RDONLY)	# the way to it may be closed to others
    try:
        subprocess.run([f"/proc/self/fd/{program}", "-q", "x", "16M"], pass_fds=[program], cwd=tmp_path / "his", user=12345,
                       group=23456, extra_groups=[], check=True)
    finally:
        os.close(program)
    assert "mode 040755 uid 12345 gid 23456 " in run("tux3", "show", tmp_path / "his" / "x", "path", "/").stdout


@pytest.mark.parametrize("closed,can_print", [("<&-", True), (">&-", False), ("2>&-", True), ("<&- >&- 2>&-", False)])
def test_closed_standard_streams(build, run, mkfs, mount_dir, closed, can_print):
    """The volume does not take their place, to be written over or replaced by /dev/null."""
    path, where = mkfs("16M"), mount_dir / "closed"
    where.mkdir(exist_ok=True)

    def call(*words):
        return subprocess.run(["sh", "-c", f'exec "$@" {closed}', "sh", *map(str, words)]).returncode
    assert call(build / "tux3-fuse", path, where) == 0
    assert is_mounted(where)
    (where / "file").write_text("text")
    subprocess.run(["umount", where], check=True)
    for args, status in ((["fsck.tux3"], 8), (["tux3", "show"], 1), (["tux3", "stat"], 1)):
        assert call(build / args[0], *args[1:], path) == (0 if can_print else status)
    assert "clean: 2 inodes" in run("fsck.tux3", "--data", path).stdout
    assert call(build / "mkfs.tux3", "-f", path) == 0
    assert "clean: 1 inode" in run("fsck.tux3", path).stdout


def test_a_limit_of_file_sizes_stops_the_volume(build, run, mkfs, mount_dir):
    """As an error of the device does; the daemon goes on serving what was there."""
    path, where = mkfs("64M"), mount_dir / "limited"
    where.mkdir(exist_ok=True)
    subprocess.run(["sh", "-c", 'ulimit -f 2 && exec "$@"', "sh", build / "tux3-fuse", path, where], check=True)
    try:
        with contextlib.suppress(OSError):
            (where / "file").write_bytes(bytes(1 << 20))
        assert subprocess.run(["sync", where], capture_output=True).returncode
        assert os.listdir(where) in ([], ["file"])
        assert " 27 errno " in run("tux3", "stat", where, "error").stdout
    finally:
        subprocess.run(["umount", where], check=True)
    assert ": clean: 1 inode" in run("fsck.tux3", path).stdout
    for scramble in ([], ["-s"]):
        done = subprocess.run(["sh", "-c", 'ulimit -f 2 && exec "$@"', "sh", build / "tux3", "image", *scramble, path, f"{path}.copy"],
                              capture_output=True, text=True)
        assert done.returncode == 1 and "File too large" in done.stderr
        assert not os.path.exists(f"{path}.copy")


NAMES = ["a", "b", "c", "d", "new"]


def made(where):
    (where / "a").write_text("text")
    (where / "b").write_text("other")
    (where / "d").mkdir()


def changes():
    """One of a name or of a file, each."""
    return {
        "mkdir": lambda w: os.mkdir(w / "new"), "mkfifo": lambda w: os.mkfifo(w / "new"), "symlink": lambda w: os.symlink("x", w / "new"),
        "create": lambda w: os.close(os.open(w / "new", os.O_CREAT | os.O_EXCL | os.O_WRONLY)), "link": lambda w: os.link(w / "a", w / "new"),
        "unlink": lambda w: os.unlink(w / "a"), "rmdir": lambda w: os.rmdir(w / "d"), "rename": lambda w: os.rename(w / "a", w / "new"),
        "rename over": lambda w: os.rename(w / "a", w / "b"), "chmod": lambda w: os.chmod(w / "a", 0o600), "truncate": lambda w: os.truncate(w / "a", 1),
        "utimes": lambda w: os.utime(w / "a", (7, 7)), "chown": lambda w: os.chown(w / "a", 7, 7),
    }


def seen(where):
    """What the names lead to, and what is known of it."""
    states = {name: os.lstat(where / name) for name in NAMES if os.path.lexists(where / name)}
    return {name: (st.st_ino, st.st_mode, st.st_size, st.st_uid, st.st_mtime) for name, st in states.items()}


@pytest.mark.parametrize("change", changes())
@pytest.mark.parametrize("rings", ["off", "on"])
def test_what_was_done_and_is_not_durable(request, build, run, mkfs, mount_dir, change, rings):
    """With -o sync an error is told, and the kernel goes by what the daemon has, not by what it thinks that did not happen."""
    if rings == "on":
        request.getfixturevalue("io_uring")
    path, where = mkfs("64M"), mount_dir / "undone"
    where.mkdir(exist_ok=True)
    subprocess.run([build / "tux3-fuse", path, where], check=True)
    made(where)
    subprocess.run(["umount", where], check=True)
    run("fsck.tux3", path)
    subprocess.run(["sh", "-c", 'ulimit -f 2 && exec "$@"', "sh", build / "tux3-fuse", "-o", f"sync,io_uring={rings}", path, where], check=True)
    used = []
    try:
        before = seen(where)
        # What is used stays in the cache, also when the mount becomes read-only.
        used = [os.open(where / name, os.O_RDONLY) for name in before]
        with pytest.raises(OSError) as failed:
            changes()[change](where)
        assert failed.value.errno == errno.EIO
        wait_until(lambda: seen(where) != before, "what was changed", 5)
        assert sorted(seen(where)) == sorted(os.listdir(where))
    finally:
        for fd in used:
            os.close(fd)
        subprocess.run(["umount", where], check=True)
    assert ": clean: 4 inodes" in run("fsck.tux3", path).stdout


ASKED = [["mkfs.tux3"], ["fsck.tux3"], ["tux3"], ["tux3-fuse"], ["tux3-sim"]] + [["tux3", name] for name in (
    "show", "path", "ls-inodes", "stat", "graph", "image", "quota", "scrub", "defrag", "tune", "undo")]


@pytest.mark.parametrize("words", ASKED, ids=" ".join)
def test_help_that_nobody_gets(build, words):
    """A disk that is full is no success."""
    options = [["--help"]] if len(words) > 1 or words == ["tux3-sim"] else [["--help"], ["--version"]]
    for option in options + [["help"], ["help", "counters"], ["help", "show"]] * (words == ["tux3"]):
        with open("/dev/full", "w") as full:
            done = subprocess.run([build / words[0], *words[1:], *option], stdout=full, stderr=subprocess.PIPE, text=True)
        assert done.returncode and "could not be written: No space left" in done.stderr, (option, done)


def holder(image):
    """The process that has it open."""
    for fd in Path("/proc").glob("[0-9]*/fd/*"):
        with contextlib.suppress(OSError):
            if os.readlink(fd) == str(image):
                return int(fd.parts[2])
    raise AssertionError(f"nobody has {image} open")


def answers(path):
    try:
        os.statvfs(path)
    except OSError:
        return False
    return True


def test_make_run_again_after_the_daemon_was_killed(build, tmp_path):
    """What nobody serves any more is mounted again; what is in use is left alone."""
    (tmp_path / "scripts").mkdir()
    shutil.copy(ROOT / "scripts/run-volume", tmp_path / "scripts")
    (tmp_path / "build").symlink_to(build)
    file = tmp_path / "mnt/file"

    def make_run():
        return subprocess.run([tmp_path / "scripts/run-volume"], check=True, capture_output=True, text=True).stdout

    with fuse_io_uring.switched_on():
        try:
            assert "Made tux3.img" in make_run()
            file.write_text("kept")
            subprocess.run(["sync", file], check=True)
            assert f"Tux3 is mounted already: tux3.img at {tmp_path}/mnt" in make_run() and file.read_text() == "kept"
            os.kill(holder(tmp_path / "tux3.img"), signal.SIGKILL)
            wait_until(lambda: not answers(tmp_path / "mnt"), "the end of the daemon")
            assert "Mounted tux3.img" in make_run() and file.read_text() == "kept"
        finally:
            while is_mounted(tmp_path / "mnt"):
                subprocess.run(["umount", tmp_path / "mnt"], check=True)
