# SPDX-License-Identifier: GPL-2.0-or-later
"""The parts of the cache folder that come from the distribution: what they are made of and how."""
import re
import shutil

import cache
from apt import Apt, codename, merge_usr
from cache import CACHE, Failure, say
from images import finish_kernel, make_image, unpack_vmlinux

PARTS = ("tools", "headers", "kernel", "guest")

# The long-term series of stock kernels that the module is for, and Debian's flavour for virtual machines.
SERIES = "6.12"
FLAVOUR = "cloud-amd64"

# What runs on this machine.
TOOLS = ["qemu-system-x86", "erofs-utils", "zstd", "kmod", "busybox-static"]

# What runs in the guest, besides what these depend on.
GUEST = """
base-files bash bc coreutils dash debianutils diffutils file findutils gawk grep gzip hostname iproute2 keyutils kmod
less libc-bin mount ncurses-base netbase procps psmisc sed tar time util-linux xz-utils
acl attr btrfs-progs dmsetup e2fsprogs fuse3 git libblkid1 libcmocka0 libfuse3-3 liburing2 libuuid1 nfs-common
nfs-kernel-server python3 python3-pytest quota rsync xfsprogs
dbench fio fsmark linux-perf strace stress-ng
""".split()

# Of no use in a machine without people.
GUEST_WITHOUT = """
usr/share/doc usr/share/man usr/share/locale usr/share/info usr/share/lintian usr/share/bug usr/share/bash-completion
usr/share/git-core/contrib usr/share/icons usr/share/stress-ng usr/lib/x86_64-linux-gnu/dri
""".split()

# What installation would have linked.
GUEST_LINKS = {"sh": "dash", "awk": "gawk", "which": "which.debianutils"}

GUEST_ETC = {
    "passwd": """root:x:0:0:root:/root:/bin/bash
daemon:x:1:1:daemon:/usr/sbin:/usr/sbin/nologin
bin:x:2:2:bin:/bin:/usr/sbin/nologin
nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin
_rpc:x:101:65534::/run/rpcbind:/usr/sbin/nologin
statd:x:102:65534::/var/lib/nfs:/usr/sbin/nologin
user1:x:1000:1000::/home/user1:/bin/bash
user2:x:1001:1001::/home/user2:/bin/bash
""",
    "group": """root:x:0:
daemon:x:1:
bin:x:2:
tty:x:5:
disk:x:6:
shadow:x:42:
users:x:100:user1,user2
user1:x:1000:
user2:x:1001:
nogroup:x:65534:
""",
    "hosts": "127.0.0.1 localhost tux3\n",
    "hostname": "tux3\n",
    "nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\nservices: files\nprotocols: files\nrpc: files\n",
    "exports": "",
    # Who is root may be anybody: su and runuser ask this.
    "pam.d/other": "".join(f"{what} required pam_permit.so\n" for what in ("auth", "account", "password", "session")),
    "fstab": "",
}


# ---- the kernel's version ----

def newest_kernel(apt):
    """(uname -r, package version) of the newest kernel of the series whose image and headers are both there."""
    pattern = re.compile(rf"linux-headers-({re.escape(SERIES)}\.\S*-{FLAVOUR})$")
    found = []
    for name in apt.names(f"linux-headers-{SERIES}"):
        match = pattern.match(name)
        version = match and apt.version(name)
        images = match and [apt.version(f"linux-image-{match[1]}{end}") for end in ("", "-unsigned")]
        if version and version in images:
            found.append(([int(n) for n in re.findall(r"\d+", version)], match[1], version))
    if not found:
        raise Failure(f"the mirror has no linux-headers-{SERIES}...-{FLAVOUR} with its image")
    return max(found)[1:]


def pinned_kernel(apt, update=False):
    """The version that is used until --update."""
    pin = CACHE / "kernel-version"
    if update or not pin.exists():
        apt.update(force=update)
        release, version = newest_kernel(apt)
        cache.write(pin, f"{release} {version}\n")
        say(f"the kernel is {release}, package version {version}")
    return pin.read_text().split()


# ---- parts ----

def make_headers(apt, tree, release, version):
    """The packages know each other by absolute paths under /usr: make them relative."""
    abi = release.removesuffix(f"-{FLAVOUR}")
    apt.unpack(tree, f"linux-headers-{release}={version}", f"linux-headers-{abi}-common={version}",
               f"linux-kbuild-{abi}={version}")
    shutil.rmtree(tree / "usr/share")
    cache.remove(tree / "lib")
    build = tree / f"usr/src/linux-headers-{release}"
    makefile = build / "Makefile"
    text = makefile.read_text()
    if "include /usr/src/" not in text:
        raise Failure(f"{makefile.name} of linux-headers-{release} does not look as expected: {text[:200]}")
    makefile.write_text(text.replace("include /usr/src/", "include $(dir $(realpath $(lastword $(MAKEFILE_LIST))))../"))
    # Only type information for BPF is made from it, by a program that few have.
    (build / "vmlinux").unlink(missing_ok=True)


def make_kernel(apt, tree, release, version):
    package = f"linux-image-{release}"
    if apt.version(package) != version:
        package += "-unsigned"
    temp = tree / "unpacked"
    temp.mkdir()
    apt.unpack(temp, f"{package}={version}")
    (tree / "version").write_text(f"{release}\n")
    (tree / "package").write_text(f"{package} {version}\n")
    image = temp / f"boot/vmlinuz-{release}"
    if not unpack_vmlinux(image, tree / "vmlinux"):
        shutil.copy(image, tree / "bzImage")
    shutil.copy(temp / f"boot/config-{release}", tree / "config")
    shutil.copytree(temp / "lib/modules", tree / "lib/modules", symlinks=True)
    cache.remove(temp)
    (tree / "build").symlink_to("../build")
    finish_kernel(tree)


def make_tools(apt, tree):
    merge_usr(tree)
    packages = apt.unpack(tree, *TOOLS, closure=True)
    (tree / "packages").write_text("\n".join(packages) + "\n")
    for name in ("usr/share/doc", "usr/share/man", "usr/share/locale"):
        cache.remove(tree / name)


def make_guest(apt, folder):
    tree = folder / "tree"
    tree.mkdir()
    merge_usr(tree)
    packages = apt.unpack(tree, *GUEST, closure=True)
    (folder / "packages").write_text("\n".join(packages) + "\n")
    for name in GUEST_WITHOUT:
        cache.remove(tree / name)
    etc = tree / "etc"
    cache.remove(etc / "pam.d")
    (etc / "pam.d").mkdir()
    for name, text in GUEST_ETC.items():
        (etc / name).write_text(text)
    (etc / "mtab").unlink(missing_ok=True)
    (etc / "mtab").symlink_to("../proc/self/mounts")
    for name in ("dev", "proc", "sys", "run", "tmp", "mnt", "root", "srv", "home/user1", "home/user2", "var/tmp",
                 "var/lib/nfs/sm", "var/lib/nfs/v4recovery", "var/lib/nfs/rpc_pipefs", "usr/lib/modules"):
        (tree / name).mkdir(parents=True, exist_ok=True)
    for name, target in GUEST_LINKS.items():
        path = tree / "usr/bin" / name
        if not path.exists() and not path.is_symlink():
            path.symlink_to(target)
    (tree / "var/run").exists() or (tree / "var/run").symlink_to("../run")
    make_image(folder / "root.img", tree)
    cache.remove(tree)


def ensure(*parts, update=False):
    """Make the named parts that are missing."""
    apt = Apt()
    with cache.lock():
        kernel = pinned_kernel(apt, update) if {"headers", "kernel"} & set(parts) else None
        for name in parts:
            if name in ("headers", "kernel"):
                args, part_key = kernel, kernel[0]
            elif name == "tools":
                args, part_key = [], cache.key(codename(), TOOLS)
            else:
                args, part_key = [], cache.key(codename(), GUEST, GUEST_WITHOUT, GUEST_LINKS, GUEST_ETC)
            if not cache.have(name, part_key):
                say(f"fetching {name}")
                with cache.making(name, part_key) as tree:
                    globals()[f"make_{name}"](apt, tree, *args)
            if name == "headers":
                cache.link(CACHE / "build", f"headers-{part_key}/usr/src/linux-headers-{part_key}")
