# SPDX-License-Identifier: GPL-2.0-or-later
"""The cache folder: what vm/ has downloaded and made, so that it is done once and then works without a network.

It is cache/vm, or where TUX3_CACHE says.  A part of it is a folder NAME-KEY, of which NAME is a link:

	build		the kernel's build folder, for make -C: in headers-VERSION
	headers kernel	of the stock kernel whose version the file kernel-version records
	tools		QEMU and what else runs on this machine, with all its libraries
	guest		the root file system of the virtual machine
	postgresql	programs for the guest that only a benchmark uses; xfsprogs, too
	debug		a kernel with checkers: vm/debug-kernel makes it

Another series of kernels than the default has its kernel-version, build, headers and kernel in series-NAME.  What comes
from another release of Debian is in release-CODENAME:

	apt		package lists
	gcc-VERSION	the compiler that release built its kernel with, and the libraries of programs from there

A part is made under another name and renamed when it is complete, so one that is there is whole.  KEY says what it was
made from: a part of another KEY is made anew.  Parts are made under a lock, and only added to by their makers.
"""
import contextlib
import fcntl
import hashlib
import os
import subprocess
import sys
from pathlib import Path

from series import DEFAULT

ROOT = Path(__file__).resolve().parent.parent
CACHE = Path(os.environ.get("TUX3_CACHE") or ROOT / "cache/vm").absolute()
DEBUG = "debug"


class Failure(Exception):
    """What went wrong, as a sentence for the user."""


def say(text):
    print(f"# {text}", file=sys.stderr, flush=True)


def key(*what):
    return hashlib.sha256(repr(what).encode()).hexdigest()[:12]


@contextlib.contextmanager
def lock(name="lock"):
    CACHE.mkdir(parents=True, exist_ok=True)
    with open(CACHE / name, "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def series_folder(series):
    """Where headers and kernel of this series (of vm/series.py) are."""
    return CACHE if series == DEFAULT else CACHE / f"series-{series.name}"


def release_folder(release):
    return CACHE / f"release-{release}"


def have(name, part_key, folder=CACHE):
    """The folder of this part if it is there and made from this key."""
    path = folder / f"{name}-{part_key}"
    return path if path.is_dir() else None


@contextlib.contextmanager
def making(name, part_key, folder=CACHE):
    """An empty folder that becomes the part when the block ends without an exception.  The caller has the lock."""
    final = folder / f"{name}-{part_key}"
    temp = folder / f".making-{name}"
    remove(temp)
    temp.mkdir(parents=True)
    yield temp
    temp.rename(final)
    link(folder / name, final.name)
    for other in folder.glob(f"{name}-*"):
        if other != final and other.is_dir():
            remove(other)


def link(path, target):
    """Point the link to the target, in one step."""
    temp = path.parent / f".link-{path.name}"
    temp.unlink(missing_ok=True)
    temp.symlink_to(target)
    temp.replace(path)


def write(path, text):
    """Replace a file in one step."""
    temp = path.parent / f".write-{path.name}"
    temp.write_text(text)
    temp.replace(path)


def remove(path):
    if path.is_symlink() or path.is_file():
        path.unlink()
    elif path.exists():
        run(["rm", "-rf", path])


def tool(program, *args, name=None):
    """The command line that runs an unpacked program with the loader and libraries that came with it.

    name: what the program takes itself for.
    """
    tree = CACHE / "tools"
    libraries = tree / "usr/lib/x86_64-linux-gnu"
    return [str(word) for word in (libraries / "ld-linux-x86-64.so.2", "--argv0", name or Path(program).name,
                                   "--library-path", libraries, tree / program, *args)]


def run(command, **options):
    """Run a command that must succeed; what it printed is told when it does not."""
    options.setdefault("stdin", subprocess.DEVNULL)
    done = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          text=True, errors="replace", **options)
    if done.returncode:
        text = (done.stdout + done.stderr).strip().splitlines()
        raise Failure("\n".join([f"\"{' '.join(map(str, command))[:300]}\" failed:", *text[-20:]]))
    return done.stdout
