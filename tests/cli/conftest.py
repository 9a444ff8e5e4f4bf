# SPDX-License-Identifier: GPL-2.0-or-later
"""Fixtures for the tests of the programs.  They need root, fuse3, attr and acl.

	build		the directory with the programs: $TUX3_BUILD, or build/ beside tests/
	run		run("mkfs.tux3", args...): a program to its end, its exit status checked
	image		image("256M"): a new sparse file
	mkfs		mkfs("256M", args...): a new image with a volume in it
	fsck		fsck(image): check it, must be clean
	mount		mount(image, "age=1"): a Mount: .path, .unmount(), .kill(); undone after the test
	volume		a fresh volume of 512M
	mounted		that, mounted
	io_uring	FUSE over io_uring is switched on meanwhile; skips the test where that cannot be
"""
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests/posix"), str(ROOT / "scripts")]
import fuse_io_uring  # noqa: E402

TIMEOUT_S = 120


def wait_until(condition, what, seconds=30, pause=0.01):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"{what}: not within {seconds} s"
        time.sleep(pause)


def catches(process, which):
    """Whether it has a handler for this signal by now."""
    with open(f"/proc/{process.pid}/status") as f:
        caught = next(line.split()[1] for line in f if line.startswith("SigCgt:"))
    return bool(int(caught, 16) & 1 << which - 1)


def is_mounted(path):
    with open("/proc/self/mountinfo") as f:
        return any(line.split()[4] == str(path) for line in f)


def size_bytes(size):
    if isinstance(size, int):
        return size
    number, unit = re.fullmatch(r"(\d+)([KMGT]?)", size).groups()
    return int(number) << {"": 0, "K": 10, "M": 20, "G": 30, "T": 40}[unit]


def one_commit_less(said):
    """Whether all that was said is that the commit under way at the crash is not there."""
    return said.count("\n") == 1 and ": the newest commit, delta " in said and "was not complete when the power failed" in said


class Mount:
    """A volume mounted by a tux3-fuse of its own, which stays our child (-f)."""

    def __init__(self, build, image, path, options):
        self.image, self.path = str(image), str(path)
        os.makedirs(path, exist_ok=True)
        command = [str(build / "tux3-fuse"), "-f", self.image, self.path]
        if options:
            command[2:2] = ["-o", options]
        self.daemon = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        wait_until(lambda: is_mounted(self.path) or self.daemon.poll() is not None, "mount")
        if self.daemon.poll() is not None:
            raise AssertionError(f"{command}: {self.daemon.returncode}: {self.daemon.stderr.read()}")

    def __truediv__(self, name):
        return os.path.join(self.path, name)

    def ended(self, status=0):
        """Wait for the daemon's end; what it had to say."""
        said = self.daemon.communicate(timeout=TIMEOUT_S)[1]
        assert self.daemon.returncode == status, (self.daemon.returncode, said)
        return said

    def unmount(self, after_kill=False):
        """after_kill: an earlier daemon died at work, perhaps between the writes of a commit, which is told."""
        subprocess.run(["umount", self.path], check=True, timeout=TIMEOUT_S)
        said = self.ended()
        assert not said or after_kill and one_commit_less(said), said

    def kill(self, meanwhile=lambda: None):
        """As a crash: nothing more reaches the image.  meanwhile: before the mount is gone, and with it who would use what is below."""
        self.daemon.send_signal(signal.SIGKILL)
        self.daemon.communicate()
        meanwhile()
        subprocess.run(["umount", "-l", self.path], check=True)

    def cleanup(self):
        if self.daemon.poll() is None:
            subprocess.run(["umount", self.path], stderr=subprocess.DEVNULL)
            try:
                self.daemon.communicate(timeout=10)
            except subprocess.TimeoutExpired:
                self.daemon.kill()
                self.daemon.communicate()
        while is_mounted(self.path):
            subprocess.run(["umount", "-l", self.path])


@pytest.fixture(scope="session")
def build():
    path = Path(os.environ.get("TUX3_BUILD", ROOT / "build")).resolve()
    if not path.is_dir():
        pytest.fail(f"no programs in {path}: run make, or set TUX3_BUILD")
    return path


@pytest.fixture(scope="session")
def run(build):
    def call(program, *args, status=0, input=None, cwd=None):
        done = subprocess.run([str(build / program), *map(str, args)], capture_output=True, text=True,
                              input=input, cwd=cwd, timeout=TIMEOUT_S)
        if status is not None:
            assert done.returncode == status, (program, args, done.returncode, done.stdout, done.stderr)
        return done
    return call


@pytest.fixture
def image(tmp_path):
    count = iter(range(1000))

    def make(size="512M"):
        path = tmp_path / f"{next(count)}.img"
        with open(path, "wb") as f:
            f.truncate(size_bytes(size))
        return path
    return make


@pytest.fixture
def mkfs(run, image):
    def make(size="512M", *args):
        path = image(size)
        run("mkfs.tux3", *args, path)
        return path
    return make


@pytest.fixture(scope="session")
def fsck(run):
    def check(path, *args, status=0):
        return run("fsck.tux3", "-n", *args, path, status=status)
    return check


@pytest.fixture(scope="session")
def mount_dir():
    """Where to mount: unlike pytest's own directories, other users can get there."""
    path = Path(tempfile.mkdtemp(prefix="tux3-test-"))
    path.chmod(0o755)
    yield path
    for mounted in path.iterdir():
        mounted.rmdir()
    path.rmdir()


@pytest.fixture
def mount(build, mount_dir):
    mounts = []

    def do(image, options=""):
        m = Mount(build, image, mount_dir / f"{len(list(mount_dir.iterdir()))}", options)
        mounts.append(m)
        return m
    yield do
    for m in reversed(mounts):
        m.cleanup()


@pytest.fixture
def volume(mkfs):
    return mkfs("512M")


@pytest.fixture
def mounted(volume, mount):
    return mount(volume)


@pytest.fixture(scope="session")
def io_uring():
    with fuse_io_uring.switched_on() as was_on:
        if was_on is None:
            pytest.skip(f"this kernel has no {fuse_io_uring.PARAMETER}, or we are not root")
        yield


@pytest.fixture(scope="module", params=["io_uring=off", "io_uring=on"], ids=["dev-fuse", "io-uring"])
def posix_mount(request, build, run, mount_dir, tmp_path_factory):
    """One mount for a whole module of tests; its volume must be clean afterwards."""
    options = [request.param, *filter(None, [os.environ.get("TUX3_TEST_OPTIONS")])]
    if request.param == "io_uring=on":
        request.getfixturevalue("io_uring")
    base = tmp_path_factory.mktemp("posix")
    image = base / "posix.img"
    with open(image, "wb") as f:
        f.truncate(2 << 30)
    run("mkfs.tux3", image)
    m = Mount(build, image, mount_dir / "posix", ",".join(options))
    yield m
    try:
        m.unmount()
    finally:
        m.cleanup()
    run("fsck.tux3", "-n", image)


@pytest.fixture
def mnt(request, posix_mount):
    """An empty directory on the module's mount, as the tests in tests/posix want it."""
    path = posix_mount / re.sub(r"\W", "_", request.node.name)[:100]
    os.mkdir(path)
    os.chmod(path, 0o777)
    yield path
    shutil.rmtree(path)
