# SPDX-License-Identifier: GPL-2.0-or-later
"""The parts of the cache folder that come from the distribution: what they are made of and how."""
import os
import re
import shutil

import cache
from apt import Apt, codename, merge_usr
from cache import CACHE, Failure, say
from images import finish_kernel, make_image, unpack_vmlinux
from series import ALL, DEFAULT, numbers

PARTS = ("tools", "headers", "kernel", "guest")
# Only what asks for them gets these: programs for the guest, each an image of its own.
EXTRA = ("postgresql", "xfsprogs")

# Debian's flavour of kernel for virtual machines.
FLAVOUR = "cloud-amd64"

# What programs of another release need here: kbuild's own, which come with the headers, and its compiler.
FOREIGN = ["libc6", "libelf1t64", "libgmp10", "libisl23", "libmpc3", "libmpfr6", "libzstd1", "zlib1g"]
FOREIGN_COMPILER = ["cpp-{}-x86-64-linux-gnu", "gcc-{}-x86-64-linux-gnu"]
FOREIGN_WITHOUT = ["usr/share", "usr/bin/x86_64-linux-gnu-lto-dump-{}", "usr/libexec/gcc/x86_64-linux-gnu/{}/lto1",
                   "usr/lib/x86_64-linux-gnu/gconv"]

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

# Compiling of queries.
POSTGRESQL_WITHOUT = ["usr/share/doc", "usr/share/man", "usr/share/locale", "usr/lib/postgresql/{0}/lib/bitcode",
                      "usr/lib/postgresql/{0}/lib/llvmjit.so", "usr/lib/postgresql/{0}/lib/llvmjit_types.bc"]

# The first Debian whose mkfs.xfs makes volumes with parent pointers, and what that program and xfs_io need of it.
XFSPROGS_RELEASE = "trixie"
XFSPROGS = ["xfsprogs", "libblkid1", "libc6", "libinih1", "liburcu8t64", "libuuid1",
            "libbsd0", "libdevmapper1.02.1", "libedit2", "libmd0", "libpcre2-8-0", "libselinux1", "libtinfo6", "libudev1"]
XFSPROGS_WITHOUT = ["usr/share", "usr/lib/x86_64-linux-gnu/gconv"]

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

# Exit status.
NOT_SERVED = 126


class NotServed(Failure):
    """The mirror has no kernel of a series."""


def newest_kernel(apt, series):
    """(uname -r, package version) of the newest kernel of the series whose image and headers are both there."""
    pattern = re.compile(rf"linux-headers-(\d+\.\d\S*-{FLAVOUR})$")
    found, newer = [], []
    for name in apt.names("linux-headers-"):
        match = pattern.match(name)
        if match and not series.has(match[1]):
            newer += [match[1]] if not any(one.has(match[1]) for one in ALL) and series.first < numbers(match[1]) else []
            continue
        version = match and apt.version(name)
        images = match and [apt.version(f"linux-image-{match[1]}{end}") for end in ("", "-unsigned")]
        if version and version in images:
            found.append((numbers(version), match[1], version))
    if newer:
        say(f"the mirror has also kernels that the module was not tried with: {', '.join(newer)}")
    if not found:
        raise NotServed(f"the mirror has no linux-headers-...-{FLAVOUR} of Linux {series} with its image"
                        + (f" for Debian {series.release}" if series.release else ""))
    return max(found)[1:]


def pinned_kernel(apt, series, update=False):
    """The version that is used until --update."""
    pin = cache.series_folder(series) / "kernel-version"
    # A checkout may know of fewer versions than the one that fetched last.
    if update or not pin.exists() or not series.has(pin.read_text()):
        apt.update(force=update)
        release, version = newest_kernel(apt, series)
        pin.parent.mkdir(parents=True, exist_ok=True)
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
    here = "$(dir $(realpath $(lastword $(MAKEFILE_LIST))))"
    text = re.sub(r"^KBUILD_OUTPUT *=.*", f"KBUILD_OUTPUT := {here}.", text, flags=re.M)
    makefile.write_text(text.replace("include /usr/src/", f"include {here}../"))
    # Only type information for BPF is made from it, by a program that few have.
    (build / "vmlinux").unlink(missing_ok=True)
    if apt.release:
        make_runnable(apt, tree, build / ".kernelvariables")


def make_runnable(apt, tree, variables):
    """Have the programs of headers for another release run with that release's libraries, and its compiler used.

    The two belong together: a kernel's headers tell what its compiler can do, and they are read by that one.
    """
    text = variables.read_text()
    match = re.search(r"^CC = .*gcc-(\d+)$", text, re.M)
    if not match:
        raise Failure(f"{variables.name} of the kernel's headers does not name a compiler as expected: {text[:200]}")
    foreign = ensure_foreign(apt, match[1])
    for path in find_programs(tree):
        wrap_program(path, foreign)
    compiler = f"$(dir $(realpath $(lastword $(MAKEFILE_LIST)))){os.path.relpath(foreign, variables.parent)}"
    variables.write_text(text.replace(match[0], f"CC := {compiler}/usr/bin/x86_64-linux-gnu-gcc-{match[1]}"))


def ensure_foreign(apt, gcc):
    """Libraries and compiler of the release, as a folder that runs on this machine."""
    folder, name = cache.release_folder(apt.release), f"gcc-{gcc}"
    packages = [*FOREIGN, *(package.format(gcc) for package in FOREIGN_COMPILER)]
    part_key = cache.key(packages, FOREIGN_WITHOUT)
    if not cache.have(name, part_key, folder):
        say(f"fetching {name} of {apt.release}")
        with cache.making(name, part_key, folder) as tree:
            cache_packages = apt.unpack(tree, *packages)
            (tree / "packages").write_text("\n".join(cache_packages) + "\n")
            for path in FOREIGN_WITHOUT:
                cache.remove(tree / path.format(gcc))
            for path in find_programs(tree):
                wrap_program(path, tree)
    return folder / name


def find_programs(tree):
    """Executable files, not scripts nor libraries."""
    for path in sorted(tree.rglob("*")):
        if path.is_file() and not path.is_symlink() and path.stat().st_mode & 0o111 and ".so" not in path.name:
            with open(path, "rb") as file:
                if file.read(4) == b"\x7fELF":
                    yield path


def wrap_program(path, foreign):
    """Put a script in the program's place that runs it with the loader and the libraries in foreign."""
    hidden = path.with_name(f".{path.name}.elf")
    libraries = f"$here/{os.path.relpath(foreign, path.parent)}/usr/lib/x86_64-linux-gnu"
    path.rename(hidden)
    path.write_text(f"""#!/bin/sh
here=${{0%/*}}
exec "{libraries}/ld-linux-x86-64.so.2" --argv0 "$0" --library-path "{libraries}" "$here/{hidden.name}" "$@"
""")
    path.chmod(0o755)


def make_kernel(apt, tree, release, version):
    package = f"linux-image-{release}"
    if apt.version(package) != version:
        package += "-unsigned"
    temp = tree / "unpacked"
    temp.mkdir()
    # Newer ones are in several packages.
    packages = [package, *(f"linux-{part}-{release}" for part in ("base", "binary", "modules"))]
    apt.unpack(temp, *(f"{name}={version}" for name in packages if apt.version(name) == version))
    (tree / "version").write_text(f"{release}\n")
    (tree / "package").write_text(f"{package} {version}\n")
    modules = next(temp / path for path in ("lib/modules", "usr/lib/modules") if (temp / path).exists())
    image, config = (next(path for path in (temp / f"boot/{name}-{release}", modules / release / name) if path.exists())
                     for name in ("vmlinuz", "config"))
    if not unpack_vmlinux(image, tree / "vmlinux"):
        shutil.copy(image, tree / "bzImage")
    shutil.copy(config, tree / "config")
    shutil.copytree(modules, tree / "lib/modules", symlinks=True)
    for name in ("vmlinuz", "config", "System.map"):
        (tree / "lib/modules" / release / name).unlink(missing_ok=True)
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


def make_postgresql(apt, folder):
    """What the guest does not have of it; it finds its files wherever it is mounted."""
    tree = folder / "tree"
    tree.mkdir()
    found = [int(name[1]) for name in map(re.compile(r"postgresql-(\d+)$").match, apt.names("postgresql-"))
             if name and apt.version(name[0])]
    if not found:
        raise Failure("the mirror has no postgresql-NUMBER")
    packages = apt.unpack(tree, f"postgresql-{max(found)}", f"postgresql-client-{max(found)}", "libpq5")
    (folder / "packages").write_text("\n".join(packages) + "\n")
    for name in POSTGRESQL_WITHOUT:
        cache.remove(tree / name.format(max(found)))
    make_image(folder / "root.img", tree)
    cache.remove(tree)


def make_xfsprogs(apt, folder):
    """They run in the guest, wherever the image is mounted, with the libraries of their own release."""
    tree = folder / "tree"
    tree.mkdir()
    merge_usr(tree)
    packages = apt.unpack(tree, *XFSPROGS)
    (folder / "packages").write_text("\n".join(packages) + "\n")
    for name in XFSPROGS_WITHOUT:
        cache.remove(tree / name)
    for path in find_programs(tree / "usr/sbin"):
        wrap_program(path, tree)
    cache.run([tree / "usr/sbin/mkfs.xfs", "-V"])
    make_image(folder / "root.img", tree)
    cache.remove(tree)


def ensure(*parts, series=DEFAULT, update=False):
    """Make the named parts that are missing; headers and kernel of this series."""
    folder, own = cache.series_folder(series), Apt()
    other = Apt(series.release) if series.release else own
    with cache.lock():
        kernel = pinned_kernel(other, series, update) if {"headers", "kernel"} & set(parts) else None
        for name in parts:
            if name in ("headers", "kernel"):
                apt, where, args, part_key = other, folder, kernel, kernel[0]
            elif name == "tools":
                apt, where, args, part_key = own, CACHE, [], cache.key(codename(), TOOLS)
            elif name == "postgresql":
                apt, where, args, part_key = own, CACHE, [], cache.key(codename(), POSTGRESQL_WITHOUT)
            elif name == "xfsprogs":
                apt, where, args = Apt(XFSPROGS_RELEASE), CACHE, []
                part_key = cache.key(XFSPROGS_RELEASE, XFSPROGS, XFSPROGS_WITHOUT)
            else:
                apt, where, args = own, CACHE, []
                part_key = cache.key(codename(), GUEST, GUEST_WITHOUT, GUEST_LINKS, GUEST_ETC)
            if not cache.have(name, part_key, where):
                say(f"fetching {name}" + (f" for Linux {kernel[0]}" if args else ""))
                with cache.making(name, part_key, where) as tree:
                    globals()[f"make_{name}"](apt, tree, *args)
            if name == "headers":
                cache.link(folder / "build", f"headers-{part_key}/usr/src/linux-headers-{part_key}")
