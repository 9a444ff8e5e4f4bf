# SPDX-License-Identifier: GPL-2.0-or-later
"""What a kernel and its first programs are booted from: initramfs archives, read-only images, kernel folders.

A kernel folder, of the stock kernel or of any other for vm/run --kernel, has

	vmlinux or bzImage	(vmlinux boots without unpacking itself)
	version			as uname -r prints it
	config			its configuration; if there is none, the kernel measures how fast it is
	lib/modules/VERSION/	modules, uncompressed, with what depmod makes
	modules.img		the same as an image
	initramfs.cpio		busybox and the modules that are needed to mount the rest
	build			the kernel's build folder, if modules are to be built for it
"""
import lzma
import stat
import struct
from pathlib import Path

import cache

# What the guest's disks and root file system need, if it is not built in.  crc32c_intel comes before what brings
# libcrc32c with it, which stays with the implementation that it finds when it is loaded; all file systems use it.
FIRST_MODULES = ("virtio_pci", "virtio_blk", "virtio_console", "crc32c_intel", "erofs", "overlay")


class Cpio:
    """An initramfs archive ("newc") in memory.  The kernel takes several, one behind the other."""

    def __init__(self):
        self.parts, self.number, self.folders = [], 0, set()

    def add(self, name, mode, data=b"", device=(0, 0)):
        name = str(name).strip("/")
        self._folders(name)
        self._entry(name, mode, data, device)

    def folder(self, name):
        self._folders(f"{name}/".lstrip("/"))

    def file(self, name, path, mode=0o755):
        self.add(name, stat.S_IFREG | mode, Path(path).read_bytes())

    def text(self, name, text, mode=0o644):
        self.add(name, stat.S_IFREG | mode, text.encode(errors="surrogateescape"))

    def link(self, name, target):
        self.add(name, stat.S_IFLNK | 0o777, target.encode())

    def node(self, name, mode, major, minor):
        self.add(name, mode, device=(major, minor))

    def bytes(self):
        self._entry("TRAILER!!!", 0, b"", (0, 0))
        return b"".join(self.parts)

    def _folders(self, name):
        for end in (i for i, c in enumerate(name) if c == "/"):
            if name[:end] and name[:end] not in self.folders:
                self.folders.add(name[:end])
                self._entry(name[:end], stat.S_IFDIR | 0o755, b"", (0, 0))

    def _entry(self, name, mode, data, device):
        self.number += 1
        encoded = name.encode() + b"\0"
        fields = (self.number, mode, 0, 0, 1, 0, len(data), 0, 0, *device, len(encoded), 0)
        head = b"070701" + b"".join(b"%08X" % field for field in fields) + encoded
        self.parts += [head, bytes(-len(head) % 4), data, bytes(-len(data) % 4)]


def make_image(image, tree, *options):
    """A read-only image of the tree, all of it owned by root.  Uncompressed: the guest's CPU is the slow part.

    The caller has the lock of the image.
    """
    temp = image.with_name(f".{image.name}")
    temp.unlink(missing_ok=True)
    # The same tree gives the same image.
    cache.run(cache.tool("usr/bin/mkfs.erofs", "--all-root", "-T0", "--quiet", *options, temp, tree))
    temp.replace(image)


def unpack_vmlinux(bzimage, vmlinux):
    """The kernel proper from a bzImage: booting it saves the time in which a bzImage unpacks itself."""
    data = bzimage.read_bytes()
    if data[0x202:0x206] != b"HdrS":
        raise cache.Failure(f"{bzimage} is no bzImage")
    start = (data[0x1f1] + 1) * 512 + struct.unpack_from("<I", data, 0x248)[0]
    payload = data[start:start + struct.unpack_from("<I", data, 0x24c)[0]]
    # What follows the compressed data is the length.
    if not payload.startswith(b"\x28\xb5\x2f\xfd"):
        return False
    packed = vmlinux.with_name(".payload.zst")
    packed.write_bytes(payload[:-4])
    cache.run(cache.tool("usr/bin/zstd", "-q", "-d", "-f", packed, "-o", vmlinux))
    packed.unlink()
    return True


def first_modules(modules):
    """Paths of the modules that the initramfs loads, in the order in which they are to be loaded."""
    needs = {}
    for line in (modules / "modules.dep").read_text().splitlines():
        path, _, needed = line.partition(":")
        needs[path] = needed.split()
    by_name = {Path(path).name.removesuffix(".ko").replace("-", "_"): path for path in needs}
    order = []
    for name in FIRST_MODULES:
        if name in by_name:
            # modules.dep has the deepest need last.
            order += [p for p in [*reversed(needs[by_name[name]]), by_name[name]] if p not in order]
    return order


def finish_kernel(folder):
    """Make a kernel folder that has vmlinux or bzImage, version and modules complete."""
    version = (folder / "version").read_text().strip()
    modules = folder / "lib/modules" / version
    for path in list(modules.rglob("*.ko.xz")):
        path.with_suffix("").write_bytes(lzma.decompress(path.read_bytes()))
        path.unlink()
    for name in ("build", "source"):
        cache.remove(modules / name)
    cache.run(cache.tool("usr/bin/kmod", "-b", folder, version, name="depmod"))
    make_image(folder / "modules.img", folder / "lib/modules")

    cpio = Cpio()
    for name in ("dev", "proc", "sys", "root", "lower", "upper"):
        cpio.folder(f"{name}/")
    cpio.node("dev/console", stat.S_IFCHR | 0o600, 5, 1)
    cpio.file("bin/busybox", cache.CACHE / "tools/usr/bin/busybox")
    order = first_modules(modules)
    for path in order:
        cpio.file(f"modules/{Path(path).name}", modules / path)
    cpio.text("modules/order", "".join(f"{Path(path).name}\n" for path in order))
    (folder / "initramfs.cpio").write_bytes(cpio.bytes())
