# SPDX-License-Identifier: GPL-2.0-or-later
"""tux3-fuse on a block device: mounted as fuseblk, so that the kernel has the device and umount(2) waits for the daemon."""
import errno
import os
import subprocess

import pytest

from test_device_use import loop_device
from test_fuse_helpers import script  # noqa: F401  (a fixture)

RINGS = pytest.mark.parametrize("ring", ["io_uring=off", "io_uring=on"])


@pytest.fixture
def device(mkfs):
    with loop_device(mkfs("128M")) as path:
        yield path


def entry(m):
    with open("/proc/self/mountinfo") as f:
        return next(line.split() for line in f if line.split()[4] == m.path)


def exclusive(path):
    """Can the device be had?"""
    try:
        os.close(os.open(path, os.O_RDONLY | os.O_EXCL))
        return True
    except OSError as e:
        assert e.errno == errno.EBUSY
        return False


def umount_without_help(path):
    subprocess.run(["umount", "-i", path], check=True, timeout=120)


@RINGS
def test_a_copy_made_at_once_is_complete(request, build, mount, device, tmp_path, run, ring):
    if ring == "io_uring=on":
        request.getfixturevalue("io_uring")
    copy, contents = tmp_path / "copy", {}
    for n in range(10):
        m = mount(device, f"age=60,{ring}")
        for i in range(50):
            contents[f"{n}-{i}"] = os.urandom(3000 * (i % 20))
            with open(m / f"{n}-{i}", "wb") as f:
                f.write(contents[f"{n}-{i}"])
        umount_without_help(m.path)
        # No waiting here: that is what is tested.  All is in the tree: nobody need look at the log.
        subprocess.run(["cp", "--sparse=always", device, copy], check=True)
        assert exclusive(device)
        assert m.ended() == ""
        run("fsck.tux3", "-n", copy)
    m = mount(copy, "ro,norecovery")
    assert {name: open(m / name, "rb").read() for name in os.listdir(m.path)} == contents


def test_the_kernel_has_the_device(build, run, mount, device):
    m = mount(device)
    line = entry(m)
    assert line[line.index("-") + 1:][:2] == ["fuseblk.tux3", device]
    assert os.stat(m.path).st_dev == os.stat(device).st_rdev
    assert not exclusive(device)
    assert f"mounted on {m.path}" in run("mkfs.tux3", "-f", device, status=1).stderr
    assert subprocess.run(["mkfs.ext4", "-q", "-F", device], capture_output=True).returncode != 0
    assert "fuseblk" in subprocess.run(["df", "-T", m.path], capture_output=True, text=True, check=True).stdout
    assert run("tux3", "stat", m.path, "ops").stdout.startswith("ops ")
    m.unmount()
    assert exclusive(device)


def test_what_is_read_ahead_while_it_is_unmounted(mount, device):
    """Requests that nobody waits for any more are under way when the kernel says good-bye."""
    m = mount(device)
    with open(m / "big", "wb") as f:
        f.write(bytes(64 << 20))
    m.unmount()
    for _ in range(20):
        m = mount(device, "threads=4")
        with open(m / "big", "rb") as f:
            f.read(1 << 20)
        umount_without_help(m.path)
        assert m.ended() == ""


def test_a_signal(mount, device, fsck):
    for hold in (False, True):
        m = mount(device, "age=60")
        f = open(m / "held", "w")
        f.write("x" * 10000)
        f.flush()
        if not hold:
            f.close()
        m.daemon.terminate()
        said = m.ended()
        assert ("still open" in said) == hold, said
        if hold:
            # The kernel lets go of the device with the last user of the mount.
            f.close()
        assert exclusive(device)
        fsck(device)
        m = mount(device)
        assert os.path.getsize(m / "held") == 10000
        m.unmount()


def test_a_crash(mount, device, fsck):
    m = mount(device, "age=60")
    with open(m / "safe", "w") as f:
        f.write("safe")
        f.flush()
        os.fsync(f.fileno())
    m.kill()
    assert exclusive(device)
    fsck(device)
    m = mount(device)
    assert open(m / "safe").read() == "safe"


def test_read_only_more_than_once(mount, device, mkfs):
    one = mount(device, "ro")
    two = mount(device, "ro")
    assert os.listdir(one.path) == os.listdir(two.path) == []
    one.unmount()
    two.unmount()
    assert exclusive(device)


def test_lazily_with_a_file_open(mount, device):
    m = mount(device, "age=60")
    with open(m / "f", "w") as f:
        subprocess.run(["umount", "-l", m.path], check=True)
        f.write("late")
    assert m.ended() == ""
    assert exclusive(device)
    assert open(mount(device) / "f").read() == "late"


def test_as_fstab_has_it(script, device):
    """mount(8): from fstab, remount in both directions, auto_unmount; no helper is needed to unmount."""
    script(f"""
D={device}
echo "$D $M fuse.tux3 age=60,user_xattr,errors=remount-ro,nofail,noatime 0 0" >$T/fstab
mount -T $T/fstab $M
[ $(findmnt -n -o FSTYPE $M) = fuseblk.tux3 ]
echo x >$M/f
mount -o remount,ro $M
! touch $M/g 2>/dev/null
grep "$M ro,noatime.* - fuseblk.tux3 .* ro," /proc/self/mountinfo
mount -o remount,rw $M && touch $M/g
umount $D
mount -t fuseblk.tux3 $D $M && ls $M/f $M/g && umount $M
mount -t fuse.tux3 -o auto_unmount $D $M
[ $(findmnt -n -o FSTYPE $M) = fuseblk.tux3 ]
for p in /proc/[0-9]*; do
	if [ $p/exe -ef $B/tux3-fuse ] && tr '\\0' ' ' <$p/cmdline | grep -q "$D"; then kill -9 ${{p#/proc/}}; fi
done
while grep -q " $M " /proc/self/mountinfo; do sleep 0.05; done
mount -t fuse.tux3 -o auto_unmount $D $M && umount $M
""")
