# SPDX-License-Identifier: GPL-2.0-or-later
"""Packages of the distribution, unpacked into the cache folder: nothing is installed, the machine's apt stays as it is.

The lists, the settings and what is downloaded are in CACHE/apt.  The mirror is the one in the machine's own sources;
backports and other releases come from the same one.  Signatures are checked as ever.
"""
import os
import re
import shutil
import subprocess
import time
from pathlib import Path

import cache

KEYRING = "usr/share/keyrings/debian-archive-keyring.gpg"
LISTS_MAX_AGE_S = 12 * 3600

# Where backports are newer in a way that matters: Debian 12's QEMU 7.2 corrupts 6.12 guests under TCG with two CPUs,
# and perf should be as new as the kernel.
PREFERENCES = """Package: qemu-* seabios ipxe-qemu linux-perf
Pin: release n={codename}-backports
Pin-Priority: 990
"""

# An empty package status: apt then tells everything a package needs, not what this machine lacks.
CONFIG = """Dir::State "{dir}/state";
Dir::State::status "{dir}/status";
Dir::Cache "{dir}/cache";
Dir::Etc::sourcelist "{dir}/sources.list";
Dir::Etc::sourceparts "-";
Dir::Etc::preferences "{dir}/preferences";
Dir::Etc::preferencesparts "-";
APT::Install-Recommends "false";
APT::Install-Suggests "false";
APT::Sandbox::User "root";
APT::Architecture "amd64";
APT::Architectures {{ "amd64"; }};
Acquire::Languages "none";
Acquire::IndexTargets::deb::DEP-11::DefaultEnabled "false";
Acquire::Retries "3";
"""


def codename():
    """The release of this machine, which is that of the guest too: programs built here run there."""
    text = Path("/etc/os-release").read_text()
    found = re.search(r"^VERSION_CODENAME=\W?(\w+)", text, re.M)
    if not re.search(r"^ID=\W?debian", text, re.M) or not found:
        raise cache.Failure("this machine is no Debian, so its package mirror has no kernel and QEMU for vm/")
    return found[1]


def find_sources(other=None, keyring=f"/{KEYRING}"):
    """Lines of a sources.list: this release, its updates and security updates as this machine has them; backports.

    other: the same suites of another release.
    """
    release = codename()
    wanted = [release, f"{release}-updates", f"{release}-security", f"{release}/updates"]
    told = cache.run(["apt-get", "indextargets", "--no-release-info", "--format", "$(REPO_URI) $(RELEASE) $(COMPONENT)",
                      "Created-By: Packages"])
    found = {tuple(line.split()) for line in told.splitlines()}
    suites = {(uri, suite) for uri, suite, component in found if suite in wanted and component == "main"}
    suites |= {(uri, f"{release}-backports") for uri, suite in suites if suite == release}
    if not any(suite == release for _, suite in suites):
        raise cache.Failure(f"apt's sources on this machine name no mirror for Debian {release}")
    if other:
        suites = {(uri, suite.replace(release, other, 1)) for uri, suite in suites}
    signed = f"[signed-by={keyring}] " if Path(keyring).exists() else ""
    return "".join(f"deb {signed}{uri} {suite} main\n" for uri, suite in sorted(suites))


def find_keyring(release):
    """A keyring with the keys of this release: the machine's own, or that of the newest package, if it is younger."""
    keys = f"usr/share/keyrings/debian-archive-{release}-stable.gpg"
    if Path("/", keys).exists():
        return Path("/", KEYRING)
    folder = cache.release_folder(release)
    if not cache.have("keyring", release, folder):
        with cache.making("keyring", release, folder) as tree:
            Apt().unpack(tree, "debian-archive-keyring")
            if not (tree / keys).exists():
                raise cache.Failure(f"debian-archive-keyring of this machine's Debian has no keys of {release}")
    return cache.have("keyring", release, folder) / KEYRING


class Apt:
    def __init__(self, release=None):
        """release: of Debian, if it is not this machine's."""
        self.release = release
        self.dir = (cache.release_folder(release) if release else cache.CACHE) / "apt"
        self.updated = False

    def run(self, program, *args, **options):
        env = dict(os.environ, APT_CONFIG=str(self.dir / "apt.conf"), LC_ALL="C", DEBIAN_FRONTEND="noninteractive")
        return cache.run([program, *args], env=env, **options)

    def update(self, force=False):
        """Package lists, unless they are there and fresh."""
        if self.updated:
            return
        for name in ("state/lists/partial", "cache/archives/partial"):
            (self.dir / name).mkdir(parents=True, exist_ok=True)
        sources = find_sources(self.release, find_keyring(self.release)) if self.release else find_sources()
        source_list, stamp = self.dir / "sources.list", self.dir / "updated"
        fresh = (stamp.exists() and time.time() - stamp.stat().st_mtime < LISTS_MAX_AGE_S
                 and source_list.exists() and source_list.read_text() == sources)
        source_list.write_text(sources)
        (self.dir / "apt.conf").write_text(CONFIG.format(dir=self.dir))
        (self.dir / "preferences").write_text(PREFERENCES.format(codename=self.release or codename()))
        (self.dir / "status").touch()
        if force or not fresh:
            cache.say("reading the package lists of the mirror" + (f" for {self.release}" if self.release else ""))
            self.run("apt-get", "-q", "update")
            stamp.touch()
        self.updated = True

    def names(self, prefix):
        self.update()
        return self.run("apt-cache", "pkgnames", prefix).split()

    def version(self, name):
        """The version that would be taken, None when there is no such package."""
        self.update()
        found = re.search(r"^  Candidate: (\d\S*)", self.run("apt-cache", "policy", name), re.M)
        return found[1] if found else None

    def unpack(self, tree, *packages, closure=False):
        """Unpack packages ("name" or "name=version") into the tree, with all they depend on if closure.

        Returns "name version" lines.  The tree may have links to folders: what is for /lib lands in /usr/lib.
        """
        self.update()
        archives = self.dir / "cache/archives"
        cache.remove(archives)
        (archives / "partial").mkdir(parents=True)
        if closure:
            self.run("apt-get", "-q", "-y", "--download-only", "install", *packages)
        else:
            self.run("apt-get", "-q", "download", *packages, cwd=archives)
        debs = sorted(archives.glob("*.deb"))
        for deb in debs:
            with subprocess.Popen(["dpkg-deb", "--fsys-tarfile", deb], stdout=subprocess.PIPE) as source:
                cache.run(["tar", "-x", "--keep-directory-symlink", "-C", tree], stdin=source.stdout)
            if source.returncode:
                raise cache.Failure(f"{deb.name} could not be unpacked")
        lines = [cache.run(["dpkg-deb", "-W", "--showformat=${Package} ${Version}", deb]) for deb in debs]
        shutil.rmtree(archives)
        return lines


def merge_usr(tree):
    """The links that make / and /usr one, before anything is unpacked."""
    for name in ("bin", "sbin", "lib", "lib64"):
        (tree / "usr" / name).mkdir(parents=True, exist_ok=True)
        (tree / name).symlink_to(f"usr/{name}")
