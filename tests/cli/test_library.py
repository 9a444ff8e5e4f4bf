# SPDX-License-Identifier: GPL-2.0-or-later
"""libtux3 as others see it: its header in their dialects, what is passed wrongly, and what a process may lack."""
import ctypes
import errno
import shutil
import struct
import subprocess
import sys

import pytest

from conftest import ROOT
from tools_helpers import BLOCK, Options, Volume, as_json, edit, seal


@pytest.mark.parametrize("compiler", ["gcc -std=c99", "gcc -std=c11", "gcc -std=gnu17", "g++ -x c++ -std=c++98", "g++ -x c++ -std=c++20"])
def test_header(compiler, tmp_path):
    words = compiler.split()
    if not shutil.which(words[0]):
        pytest.skip(f"no {words[0]} here")
    source = tmp_path / "user.c"
    source.write_text('#include "tux3.h"\nint main(void) { struct tux3_stat stat; (void)stat; return 0; }\n')
    subprocess.run([*words, "-pedantic", "-Wall", "-Wextra", "-Werror", "-I", ROOT / "user/lib", "-fsyntax-only", source], check=True)


def test_nothing_is_passed(build, mkfs):
    path = mkfs("64M")
    volume = Volume(build, path)
    lib, node = volume.lib, ctypes.c_void_p()
    why = ctypes.create_string_buffer(200)
    assert lib.tux3_format(None, None, why, 200) == -errno.EINVAL and b"name" in why.value
    assert lib.tux3_format(None, None, None, 0) == -errno.EINVAL
    assert lib.tux3_format(str(path).encode(), None, None, 200) == -errno.EBUSY
    for arguments in ((None, None, b"/", 0, 0, ctypes.byref(node)), (volume.handle, None, None, 0, 0, ctypes.byref(node)),
                      (volume.handle, None, b"/", 0, 0, None)):
        assert lib.tux3_path(*arguments) == -errno.EINVAL
    other = ctypes.c_void_p()
    assert lib.tux3_open(None, None, ctypes.byref(other), why, 200) == -errno.EINVAL and b"name" in why.value
    assert lib.tux3_open(str(path).encode(), None, None, why, 200) == -errno.EINVAL
    assert lib.tux3_path_mkdir(volume.handle, None, None, 0o755) == -errno.EINVAL
    assert lib.tux3_path_unlink(volume.handle, None, None) == -errno.EINVAL
    assert lib.tux3_set_label(volume.handle, None) == -errno.EINVAL
    volume.close()


@pytest.mark.parametrize("options,said", [({"no_recovery": True}, b"needs read_only"), ({"fsync": 4}, b"fsync is"), ({"atime": 4}, b"atime is")])
def test_wrong_options(build, mkfs, options, said):
    """As tux3-fuse refuses them: what is passed over here would be missed when it counts."""
    path, handle, why = mkfs("64M"), ctypes.c_void_p(), ctypes.create_string_buffer(200)
    lib = ctypes.CDLL(str(build / "libtux3.so"))
    assert lib.tux3_open(str(path).encode(), ctypes.byref(Options(**options)), ctypes.byref(handle), why, 200) == -errno.EINVAL
    assert said in why.value and handle.value is None


@pytest.mark.parametrize("call", ["close", "sync", "statfs", "set_label", "counter", "node_get", "path_of", "bulkstat", "path",
                                  "path_mkdir", "path_unlink", "path_rename", "quota_get", "quota_next", "quota_set", "scrub", "check"])
def test_no_volume(build, call):
    """In a process of its own: what is wrong here crashes."""
    room = "ctypes.create_string_buffer(4096)"
    arguments = {"set_label": 'b"x"', "counter": f"0, {room}", "node_get": f"2, 0, {room}", "path_of": f"2, 0, {room}, {room}, 100",
                 "bulkstat": f"{room}, {room}, 1", "path": f'None, b"/", 0, 0, {room}', "path_mkdir": 'None, b"/x", 0o755',
                 "path_unlink": 'None, b"/x"', "path_rename": 'None, b"/x", b"/y", 0', "quota_get": f"0, 1, {room}",
                 "quota_next": f"0, {room}, {room}", "quota_set": f"0, 1, {room}, 0", "scrub": f"{room}, None, None",
                 "check": "None, None", "statfs": room}.get(call, "")
    code = f"import ctypes\nprint(ctypes.CDLL({str(build / 'libtux3.so')!r}).tux3_{call}(None, {arguments}))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (result.returncode, result.stdout) == (0, f"{-errno.EINVAL}\n"), result.stderr


ALONE = """
import ctypes, os, resource, sys
sys.path[:0] = [{tests!r}]
from tools_helpers import Volume
{before}
volume = Volume({build!r}, {path!r}, {options})
def change():
    for name in ("/one", "/two"):
        volume.write(name, os.urandom(4 << 20))
        assert volume.lib.tux3_sync(volume.handle) == 0
"""


def run_alone(build, path, code, options="", before=""):
    """In a process of its own, which is given up when it takes too long."""
    head = ALONE.format(tests=str(ROOT / "tests/cli"), build=str(build), path=str(path), options=options, before=before)
    result = subprocess.run([sys.executable, "-c", head + code], capture_output=True, text=True, timeout=60)
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")


def test_no_more_threads(build, run, mkfs):
    """The kernel cancels what it has no thread for, as in a container with a limit: no reason to stop the volume."""
    path = mkfs("64M")
    run_alone(build, path, """
if os.geteuid() == 0:       # whom no limit stops
    os.setgid(65534)
    os.setuid(65534)
resource.setrlimit(resource.RLIMIT_NPROC, (1, 1))
change()
assert volume.lib.tux3_close(volume.handle) == 0
""")
    run("fsck.tux3", "-n", "--data", path)


def test_fork_without_threads(build, run, mkfs):
    """manual and sync_io: a program may open a volume, and go on in the background."""
    path = mkfs("64M")
    run_alone(build, path, """
def threads():
    return len(os.listdir("/proc/self/task"))
assert threads() == 1
if os.fork():
    assert os.wait()[1] == 0
    os._exit(0)
change()
assert threads() == 1
os._exit(-volume.lib.tux3_close(volume.handle))
""", "manual=True, sync_io=True")
    run_alone(build, path, 'volume.node("/two")\nassert len(os.listdir("/proc/self/task")) == 1', "read_only=True")
    run("fsck.tux3", "-n", "--data", path)


CHILD = """
import errno
def opened():
    other = ctypes.c_void_p()
    err = volume.lib.tux3_open({path!r}.encode(), None, ctypes.byref(other), None, 0)
    assert err or volume.lib.tux3_close(other) == 0
    return err
ended, end = os.pipe()
if not os.fork():
    os.close(end)
    os.read(ended, 1)
    os._exit({child})
assert opened() == -errno.EBUSY
assert volume.lib.tux3_close(volume.handle) == 0
assert opened() == {err}
os.close(end)
assert os.wait()[1] == 0
assert opened() == 0
"""


@pytest.mark.parametrize("options,has_it", [("", False), ("sync_io=True", False), ("manual=True", False), ("read_only=True", True),
                                            ("manual=True, sync_io=True", True)])
def test_a_child_does_not_keep_what_was_closed(build, mkfs, options, has_it):
    """A worker of multiprocessing has all descriptors.  Where it can use the volume, it has it until it closes it itself."""
    path = mkfs("64M")
    child, err = ("-volume.lib.tux3_close(volume.handle)", -errno.EBUSY) if has_it else ("0", 0)
    run_alone(build, path, CHILD.format(path=str(path), child=child, err=err), options)


@pytest.mark.parametrize("options", ["", "sync_io=True", "manual=True, sync_io=True", "read_only=True"])
@pytest.mark.parametrize("closed", [[0, 1, 2], [1], [2]])
def test_closed_streams(build, run, mkfs, options, closed):
    """A daemon may have none: what it prints does not get into the volume, and /dev/null in their places does not replace it."""
    path = mkfs("64M")
    run_alone(build, path, f"""
for stream in {closed}:
    assert not os.path.exists(f"/proc/self/fd/{{stream}}"), os.readlink(f"/proc/self/fd/{{stream}}")
null = os.open("/dev/null", os.O_RDWR)
for stream in {closed}:
    os.dup2(null, stream)
if not {"read_only" in options}:
    change()
assert volume.lib.tux3_close(volume.handle) == 0
""", options, f"""
for stream in {closed}:
    os.close(stream)
""")
    run("fsck.tux3", "-n", "--data", path)


def test_symlink_without_target(build, run, mkfs):
    """Damaged: an error, and no link that leads nowhere."""
    path = mkfs("64M")
    volume = Volume(build, path)
    volume.symlink("link", "target")
    volume.close()
    items = as_json(run("tux3", "show", "--json", path, "path", "/link"))
    attr = next(item for item in items if item["type"] == "attr")
    assert attr["size"] == 6
    with open(path, "rb") as f:
        data = f.read()
    nodes = [at for at in range(0, len(data), BLOCK) if data[at:at + 4] == b"T3ND" and b"target" in data[at:at + BLOCK]]
    assert nodes

    def no_size(block):
        """Its mode is that of a symlink; the size comes somewhere behind."""
        at = block.index(struct.pack("<I", 0o120777))
        size = block.index(struct.pack("<Q", 6), at)
        block[size:size + 8] = bytes(8)
        seal(block, 4)
    for at in nodes:
        edit(path, at, BLOCK, no_size)
    volume = Volume(build, path, read_only=True)
    node, target = ctypes.c_void_p(), ctypes.create_string_buffer(100)
    assert volume.lib.tux3_path(volume.handle, None, b"/link", 1, 0, ctypes.byref(node)) == 0
    assert volume.lib.tux3_readlink(node, target, ctypes.c_size_t(100)) == -errno.EIO
    volume.lib.tux3_node_put(node, 1)
    volume.close()


MEMORY_FAILS = r"""
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include "tux3.h"

void *__libc_malloc(size_t size);
void *__libc_calloc(size_t n, size_t size);
void *__libc_memalign(size_t align, size_t size);
static long fails_in;		/* allocations from now, 0: none does */
static int fails(void) { return fails_in > 0 && !--fails_in; }	/* manual: there is one thread */
void *malloc(size_t size) { return fails() ? NULL : __libc_malloc(size); }
void *calloc(size_t n, size_t size) { return fails() ? NULL : __libc_calloc(n, size); }
void *aligned_alloc(size_t align, size_t size) { return fails() ? NULL : __libc_memalign(align, size); }

int main(int argc, char **argv)
{
	static char data[70000];
	struct tux3_options options = { .manual = true };
	struct tux3_node *root, *file;
	struct tux3 *volume;
	char name[20], why[256];
	int err, nth;

	if (tux3_open(argv[1], &options, &volume, why, sizeof(why)))
		return 2;
	root = tux3_root(volume);
	for (nth = 1; ; nth++) {
		snprintf(name, sizeof(name), "file%d", nth);
		if (tux3_mknod(root, NULL, name, S_IFREG | 0644, 0, 0, &file) || tux3_setxattr(file, NULL, "user.x", data, 9, 0) ||
		    tux3_write(file, data, sizeof(data), 0) != sizeof(data))
			return 3;
		tux3_node_put(file, 1);
		fails_in = nth;
		err = tux3_sync(volume);
		if (err)
			return printf("%d when allocation %d fails\n", err, nth), 1;
		if (fails_in)
			break;
	}
	fails_in = 0;
	tux3_node_put(root, 1);
	return nth < 3 ? 4 : -tux3_close(volume);
}
"""


def test_memory_that_is_short_for_a_moment(build, run, mkfs, tmp_path):
    """A commit waits for it: else the volume would stop, and what was not synced be lost."""
    source, program, path = tmp_path / "short.c", tmp_path / "short", mkfs("64M")
    source.write_text(MEMORY_FAILS)
    subprocess.run(["cc", "-fno-builtin", "-I", ROOT / "user/lib", source, "-o", program, "-L", build, "-ltux3", f"-Wl,-rpath,{build}"],
                   check=True)
    result = subprocess.run([program, path], capture_output=True, text=True, timeout=60)
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")
    run("fsck.tux3", "-n", "--data", path)
