# SPDX-License-Identifier: GPL-2.0-or-later
"""Tests of vm/run: that what a test in the virtual machine says is what arrives here.

	/usr/bin/python3 -m pytest tests/vm/test_run.py

Each boots a machine, so a test has several things to say where they do not disturb each other.
"""
import os
import re
import signal
import subprocess
import tempfile
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CACHE = Path(os.environ.get("TUX3_CACHE") or ROOT / "cache/vm")
TIMEOUT_S = 300
KERNEL_DEFECT, TIMEOUT, NO_MACHINE = 97, 124, 125


def vm(*args, module=False, **options):
    """A vm/run to its end."""
    command = [ROOT / "vm/run", *([] if module else ["--no-module"]), *args]
    return subprocess.run([str(word) for word in command], capture_output=True, text=True, errors="replace",
                          stdin=subprocess.DEVNULL, timeout=TIMEOUT_S, check=False, **options)


def bash(script, *options, **more):
    return vm(*options, "--", "bash", "-c", script, **more)


def machines():
    """Machines with this test's mark that are there."""
    return subprocess.run(["pgrep", "-f", f"qemu-system.*mark={os.getpid()} "], capture_output=True, text=True,
                          check=False).stdout.split()


def leftovers():
    return set(Path(os.environ["TMPDIR"]).glob("tux3-vm-*-*"))


@pytest.fixture(autouse=True)
def folder():
    """A place in memory for what vm/run leaves, which is nothing but the kernel's messages when something was wrong."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as name, pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", name)
        yield
        assert not leftovers()


def test_output_and_status_are_passed_on():
    """All of it, however much it is."""
    done = bash("echo to stdout; seq 400000; echo to stderr >&2; seq 100000 >&2; exit 7")
    assert done.returncode == 7
    assert done.stdout == "to stdout\n" + "".join(f"{n}\n" for n in range(1, 400001))
    lines = [line for line in done.stderr.splitlines(keepends=True) if not line.startswith("#")]
    assert "".join(lines) == "to stderr\n" + "".join(f"{n}\n" for n in range(1, 100001))


def test_the_configuration_is_told_and_used():
    done = bash("nproc; grep MemTotal /proc/meminfo; cat /proc/cmdline; uname -r; "
                "lsblk -bno NAME,SIZE /dev/vda /dev/vdb; echo $NAME; "
                "cat /sys/devices/system/clocksource/clocksource0/current_clocksource; "
                "dmesg | sed -n 's/.*tsc: Detected \\([0-9]*\\)\\.[0-9]* MHz processor.*/\\1/p'",
                "--cpus", 1, "--memory", 777, "--append", "quiet", "--disk", "64M", "--disk", "3M",
                "--env", "NAME=a 'b' $c")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == "1"
    assert 600_000 < int(lines[1].split()[1]) < 777 * 1024
    assert lines[2].endswith(" quiet") and "mitigations=off" in lines[2]
    assert [line.split() for line in lines[4:6]] == [["vda", str(64 << 20)], ["vdb", str(3 << 20)]]
    assert lines[6] == "a 'b' $c"
    assert lines[7] == "tsc"
    # Its clock is as fast as ours, however busy we are.
    if khz := re.search(r" tsc_early_khz=(\d+)", lines[2]):
        assert abs(int(lines[8]) * 1000 / int(khz[1]) - 1) < 0.1
    [told] = [line for line in done.stderr.splitlines() if line.startswith("# vm:")]
    for word in (lines[3], "QEMU", "max,-erms,-fsrm,-fsrs,-sse4.2", "1 CPU", "777 MB", lines[2], "vda 64M", "vdb 3M"):
        assert word in told


def test_the_project_is_there_and_read_only(tmp_path):
    done = bash("pwd; cmp vm/run /project/vm/run ; touch x; echo y >/tmp/x && cat /tmp/x; ls build/obj .git")
    assert done.stdout == f"{ROOT}\ny\n"
    assert "Read-only file system" in done.stderr
    # What changes here is seen by the next.
    path = ROOT / f"build/vm-test-{os.getpid()}"
    path.parent.mkdir(exist_ok=True)
    try:
        path.write_text("new\n")
        assert vm("cat", path).stdout == "new\n"
    finally:
        path.unlink()


def test_modules_load():
    """The kernel's; and ours, which is built before."""
    done = bash("for m in ext4 xfs btrfs loop dm_flakey dm_log_writes null_blk brd; do modprobe $m || exit 1; done; "
                "mkfs.ext4 -q /dev/vda && mount /dev/vda /mnt && echo stays >/mnt/x && "
                "grep -w tux3 /proc/filesystems && cat /sys/module/tux3/version", "--disk", "32M", module=True)
    version = re.search(r"^VERSION := (.*)", (ROOT / "Makefile").read_text(), re.M)[1]
    assert (done.returncode, done.stdout) == (0, f"\ttux3\n{version}\n"), done.stderr


DEFECTIVE = """// SPDX-License-Identifier: GPL-2.0-or-later
#include <linux/module.h>
#include <linux/slab.h>

static DEFINE_MUTEX(one);
static DEFINE_MUTEX(two);

static int __init defective_init(void)
{
	char *memory = kmalloc(64, GFP_KERNEL);

	mutex_lock(&one), mutex_lock(&two), mutex_unlock(&two), mutex_unlock(&one);
	mutex_lock(&two), mutex_lock(&one), mutex_unlock(&one), mutex_unlock(&two);
	kfree(memory);
	((volatile char *)memory)[3] = 1;
	return 0;
}
module_init(defective_init);
MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("has two defects");
"""


@pytest.mark.skipif(not (CACHE / "debug").exists(), reason="vm/debug-kernel has not been run")
def test_the_debug_kernel_finds_defects(tmp_path):
    (tmp_path / "Kbuild").write_text("obj-m := defective.o\n")
    (tmp_path / "defective.c").write_text(DEFECTIVE)
    subprocess.run(["make", "-C", CACHE / "debug/build", f"M={tmp_path}", "modules"], check=True, capture_output=True)
    done = vm("--debug", "--module", tmp_path / "defective.ko", "--", "uname", "-r", module=True)
    assert done.returncode == KERNEL_DEFECT
    assert "-tux3-debug" in done.stdout
    assert "possible circular locking dependency" in done.stderr
    assert "KASAN: slab-use-after-free in defective_init" in done.stderr


def test_a_failing_machine_is_told():
    # A command line that has no console and no init.
    done = vm("--append", "init=/nowhere rdinit=/nowhere", "--", "true")
    assert done.returncode in (KERNEL_DEFECT, NO_MACHINE)
    assert "Kernel panic" in done.stderr
    # Nothing of ours has run by then: so it is tried three times, unlike what goes wrong later.
    assert (done.stdout + done.stderr).count("it is booted again") == 2
    done = vm("--disk", "/nowhere/disk", "--", "true")
    assert done.returncode == NO_MACHINE and "/nowhere/disk" in done.stderr
    assert vm("--", "no-such-command").returncode == 127


def test_a_machine_that_hangs_in_its_panic_is_ended():
    done = bash("echo c >/proc/sysrq-trigger", "--append", "panic=0")
    assert done.returncode == KERNEL_DEFECT
    assert "sysrq triggered crash" in done.stderr


def test_an_oops_is_told():
    done = bash("echo before; echo c >/proc/sysrq-trigger; echo after")
    assert done.returncode == KERNEL_DEFECT
    assert done.stdout == "before\n"
    assert "sysrq triggered crash" in done.stderr
    assert "it is booted again" not in done.stderr


def test_a_warning_is_told_unless_allowed(tmp_path):
    # A line as the kernel writes it.
    script = "echo '<4>WARNING: CPU: 0 PID: 1 at fs/tux3/x.c:1 nowhere' >/dev/kmsg; exit 3"
    log = tmp_path / "log"
    done = bash(script, "--kernel-log", log)
    assert done.returncode == KERNEL_DEFECT
    assert "fs/tux3/x.c:1" in done.stderr
    assert "Linux version" in log.read_text() and "fs/tux3/x.c:1" in log.read_text()
    done = bash(script, "--allow-warnings")
    assert done.returncode == 3


def test_the_timeout_ends_it():
    begun = time.monotonic()
    done = bash("echo begun; sleep 1000", "--timeout", 25)
    assert done.returncode == TIMEOUT
    assert time.monotonic() - begun < 45
    assert done.stdout == "begun\n"
    assert "not done after 25 s" in done.stderr


def test_disks_stay_as_they_were_when_the_power_was_cut(tmp_path):
    disk = tmp_path / "disk"
    with open(disk, "wb") as file:
        file.truncate(16 << 20)
    script = """n=0
    while :; do
        n=$((n + 1))
        printf '%-511s\n' $n | dd of=/dev/vda bs=512 count=1 conv=fdatasync status=none
        echo $n
    done"""
    done = bash(script, "--disk", disk, "--kill-after", 2)
    assert done.returncode == 0, done.stderr
    said = int(done.stdout.split()[-1])
    assert said > 5
    with open(disk, "rb") as file:
        assert int(file.read(512)) in (said, said + 1)
    # And the next machine sees that.
    assert vm("--disk", disk, "--", "head", "-c", 10, "/dev/vda").stdout.split() == [str(int(disk.read_bytes()[:512]))]


def test_a_disk_can_be_slow():
    script = "date +%s.%N; dd if=/dev/zero of=/dev/vda bs=1M count=12 oflag=direct status=none; date +%s.%N"
    done = bash(script, "--disk", "64M", "--throttle", "4M")
    begun, ended = map(float, done.stdout.split())
    assert ended - begun > 1.5


def test_files_are_copied_in_and_out(tmp_path):
    tree = tmp_path / "a tree&"
    (tree / "sub").mkdir(parents=True)
    (tree / "x").write_text("one\n")
    os.link(tree / "x", tree / "sub/hard")
    (tree / "soft").symlink_to("sub/hard")
    done = bash("cat '/tmp/a tree&/soft' /srv/in/x; stat -c %h /srv/in/x; cp -a /srv/in /tmp/out; "
                "echo two >/tmp/out/new; echo three >/tmp/three",
                "--copy-in", tree, "--copy-in", f"{tree}:/srv/in",
                "--copy-out", f"/tmp/out:{tmp_path}/out", "--copy-out", "/tmp/three", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "one\none\n2\n"
    assert (tmp_path / "out/new").read_text() == "two\n"
    assert (tmp_path / "out/soft").read_text() == "one\n"
    assert (tmp_path / "out/x").stat().st_nlink == 2
    assert (tmp_path / "three").read_text() == "three\n"
    done = vm("--copy-out", "/tmp/none", "--", "true", cwd=tmp_path)
    assert done.returncode == NO_MACHINE and "/tmp/none" in done.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_signal_ends_the_machine_too(number):
    process = subprocess.Popen([ROOT / "vm/run", "--no-module", "--append", f"mark={os.getpid()} ", "--",
                                "bash", "-c", "echo begun; sleep 1000"],
                               stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert process.stdout.readline() == "begun\n"
    assert machines()
    process.send_signal(number)
    assert process.wait(30)
    end = time.monotonic() + 10
    while machines():
        assert time.monotonic() < end, "the machine outlives vm/run"
        time.sleep(0.1)
    if number == signal.SIGKILL:
        # Nobody could tidy up: the next vm/run does.
        assert vm("--", "true").returncode == 0
        assert not leftovers()


def test_several_at_once():
    several = [subprocess.Popen([ROOT / "vm/run", "--no-module", "--memory", "512", "--disk", "8M", "--", "bash", "-c",
                                 f"echo {n}; exit {n}"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
               for n in (11, 12, 13)]
    for n, process in zip((11, 12, 13), several):
        out, err = process.communicate(timeout=TIMEOUT_S)
        assert (process.returncode, out) == (n, f"{n}\n"), err


def test_the_shell_has_a_terminal():
    done = subprocess.run(["script", "-qec", f"{ROOT}/vm/run --no-module --shell -- bash -c 'tty; stty size; exit 4'",
                           "/dev/null"], capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=TIMEOUT_S,
                          check=False)
    assert done.returncode == 4
    assert re.search(r"/dev/hvc0\s+\d+ \d+", done.stdout), done.stdout
