# SPDX-License-Identifier: GPL-2.0-or-later
"""The manual pages and --help say what the programs accept, no more and no less; what is installed can be removed again."""
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MAN = ROOT / "user/man"
GENERIC = {"h", "V", "help", "version"}


def source(path):
    return (ROOT / path).read_text()


def accepted(text):
    """Of a source: its getopt() strings, and the long options of its tables."""
    short = {c for string in re.findall(r'getopt(?:_long)?\(argc, argv, "([^"]*)"', text) for c in string if c != ":"}
    return short | set(re.findall(r'\{ "([a-z-]+)", (?:no|required|optional)_argument', text))


def options_of_page(page, section=None):
    """What stands in the lines after .TP."""
    text = (MAN / page).read_text()
    if section:
        text = re.split(r"^\.S[SH] ", text.split(f".SS {section}\n")[1], maxsplit=1, flags=re.M)[0]
    lines = re.findall(r"^\.TP\n(.*)$", text, re.M)
    return {o.lstrip("-") for line in lines for o in re.findall(r"(?<![\w-])--?[a-zA-Z][a-z-]*", line.replace("\\-", "-"))}


def options_of_help(text):
    found = set()
    for line in re.findall(r"^ {2,6}(-.*)$", text, re.M):
        words = line.split()
        for i, word in enumerate(words):
            if not word.startswith("-"):
                break
            found.add(word.rstrip(",").lstrip("-"))
            if not word.endswith(","):
                break
    return found


@pytest.mark.parametrize("program,path", [("mkfs.tux3", "user/tools/mkfs.c"), ("fsck.tux3", "user/tools/fsck.c"),
                                          ("tux3-fuse", "user/fuse/main.c")])
def test_options(run, program, path):
    has = accepted(source(path))
    assert len(has) > 4
    assert options_of_page(f"{program}.8") == has
    # -F is for those who know it from elsewhere.
    assert options_of_help(run(program, "--help").stdout) | {"F"} == has | {"F"}


@pytest.mark.parametrize("command", ["show", "path", "ls-inodes", "stat", "graph", "image", "quota", "scrub", "tune", "undo"])
def test_commands(run, command):
    has = accepted(source(f"user/tools/tux3_{command.replace('-', '_')}.c")) - GENERIC
    assert has and options_of_page("tux3.8", f"tux3 {command}".replace("-", "\\-")) == has
    assert {o for o in options_of_help(run("tux3", "help", command).stdout)} >= {o for o in has if len(o) > 1}


def test_all_commands_are_in_the_page(run):
    commands = re.findall(r"^  tux3 ([\w-]+) ", run("tux3", "--help").stdout.split("Examples:")[0], re.M)
    page = (MAN / "tux3.8").read_text()
    assert len(commands) == 12 and all(f".B tux3 {c}\n".replace("-", "\\-") in page for c in commands)


def test_helpers():
    assert options_of_page("mount.tux3.8") - GENERIC == accepted(source("user/fuse/helper.c")) - {"?"}
    helpers = re.search(r"^HELPERS := (.*)$", source("Makefile"), re.M).group(1).split()
    assert all(h in (MAN / "mount.tux3.8").read_text() for h in helpers)


def names_of_page(section):
    text = re.split(r"^\.S[SH] ", (MAN / "tux3.5").read_text().split(f".SS {section}\n")[1], maxsplit=1, flags=re.M)[0]
    names = {n for line in re.findall(r"^\.TP\n\.\S+ (.*)$", text, re.M)
             for n in re.findall(r"[a-z_]+", re.sub(r"=.*", "", line.replace('"', "")))}
    # nodiscard is discard, switched off.
    return {n for n in names if not (n.startswith("no") and n[2:] in names)}, text


def test_mount_options():
    module = set(re.findall(r'^\tX\(\w+,\s+"(\w+)",', source("linux/options.c"), re.M))
    fuse = set(re.findall(r"^\tX\((\w+), OPTION_", source("user/fuse/options.c"), re.M))
    assert len(module) > 10 and len(fuse) > 10
    both, text = names_of_page("Module and tux3-fuse")
    assert both == (module & fuse) | {"ro"}
    assert names_of_page("Module only")[0] == module - fuse
    assert names_of_page("tux3-fuse only")[0] == fuse - module - {"ro"}
    for name in re.findall(r"^\tX\((\w+), OPTION_\w+, [\w.]+, \w+, CHANGES", source("user/fuse/options.c"), re.M):
        page = (MAN / "tux3.5").read_text()
        entry = re.search(rf"^\.TP\n\.BI {name}=.*?(?=^\.[TS])", page, re.M | re.S).group(0)
        assert "Can be changed by a remount." in entry, name


def test_options_in_readme():
    """README has the module's options, all of them, and of tux3-fuse's those that matter; what they are without is the same."""
    readme = source("README.md")
    rows = re.findall(r'^\tX\(\w+,\s+"(\w+)",\s+(OPTION_\w+),', source("linux/options.c"), re.M)
    module = {"no" + name if kind == "OPTION_SWITCH_OFF" else name for name, kind in rows if kind != "OPTION_SO_ANYWAY"}
    told = re.search(r"^Mount options: (.*?)\n`lazytime`", readme, re.M | re.S).group(1)
    assert set(re.findall(r"`(\w+)", told)) == module | {"ro"}
    table = source("user/fuse/options.c").split("#define FUSE_OPTIONS(X)")[1].split("\n\n")[0]
    fuse = {row.split(",")[0]: row for row in table.split("\n\tX(")[1:]}
    told = re.search(r"^\| `tux3-fuse .*? Options: (.*)$", readme, re.M).group(1)
    for name in re.findall(r"`(\w+)", told):
        assert name in fuse or name.removeprefix("no") in fuse, name
    for name, size in (("dirty", "64M"), ("cache", "128M"), ("data_cache", "32M"), ("age", "5")):
        assert size in told and f"({size}" in fuse[name], name


def test_features(run):
    page = (MAN / "tux3.5").read_text().replace("\\", "")
    names = re.findall(r'^\tX\(\w+, +\d+, \w+,\s+"([a-z-]+)"', source("core/format/format.h"), re.M)
    assert len(names) > 1
    for name in names:
        assert f".B {name}\n" in page and name in run("mkfs.tux3", "--help").stdout


@pytest.mark.skipif(not shutil.which("groff"), reason="no groff")
@pytest.mark.parametrize("page", sorted(p.name for p in MAN.iterdir()))
def test_pages_are_formatted(page):
    done = subprocess.run(["groff", "-man", "-ww", "-z", str(MAN / page)], capture_output=True, text=True)
    assert done.returncode == 0 and not done.stderr
    assert (MAN / page).read_text().startswith('.\\" SPDX-License-Identifier: GPL-2.0-or-later\n')


def test_counters(run, mounted):
    """tux3 stat of a mount tells what tux3 help counters explains, in that order."""
    listed = [line.split()[0] for line in run("tux3", "help", "counters").stdout.splitlines()[2:]]
    told = [line.split()[0] for line in run("tux3", "stat", mounted.path).stdout.splitlines()]
    assert told == listed and len(set(listed)) == len(listed) > 50


@pytest.mark.parametrize("settings", [[], ["PREFIX=/usr"], ["PREFIX=/opt/tux3", "LIBDIR=/opt/tux3/lib64"]])
def test_install_and_uninstall(build, tmp_path, settings):
    if build != ROOT / "build":
        pytest.skip("make installs what is in build/")
    dest = tmp_path / "a dest"
    beside = tmp_path / "a"
    beside.write_text("what the name of the destination begins with\n")
    # Nothing is made, and make does not note the flags that it would make it with.
    words = ["make", "-C", str(ROOT), f"DESTDIR={dest}", f"OBJ={tmp_path / 'obj'}", *settings]
    subprocess.run([*words, "-o", "all", "install"], check=True, capture_output=True)
    files = {str(p.relative_to(dest)) for p in dest.rglob("*") if not p.is_dir()}
    prefix = settings[0].split("=/")[1] if settings else "usr/local"
    assert {f"{prefix}/share/tux3/profiles/{p.name}" for p in (ROOT / "share/profiles").iterdir()} <= files
    # The program finds them where they are installed with it.
    text = subprocess.run([dest / prefix / "sbin/mkfs.tux3", "--profile", "nix", tmp_path / "new.img", "32M"], capture_output=True,
                          text=True, env={**os.environ, "LC_ALL": "C"}).stderr
    assert "lts-6.12" in text
    sbin = f"{prefix}/sbin" if prefix.startswith("opt") else "sbin"
    assert {f"{prefix}/share/man/man5/tux3.5", f"{prefix}/share/man/man8/umount.tux3.8", f"{prefix}/bin/tux3-fuse",
            f"{prefix}/sbin/mkfs.tux3", f"{sbin}/mount.fuseblk.tux3"} <= files
    assert os.readlink(dest / sbin / "mount.tux3") == f"/{prefix}/bin/tux3-fuse"
    libdir = settings[1].split("=/")[1] if len(settings) > 1 else f"{prefix}/lib"
    told = (dest / libdir / "pkgconfig" / "tux3.pc").read_text()
    assert f"/{libdir}\n" in told and f"/{prefix}/include\n" in told or f"prefix=/{prefix}\n" in told, told
    for path in files:
        link = dest / path
        if link.is_symlink() and not os.readlink(link).startswith("/"):
            assert link.exists(), path
    subprocess.run([*words, "uninstall"], check=True, capture_output=True)
    assert [p for p in dest.rglob("*") if not p.is_dir()] == []
    assert not (dest / prefix / "share/tux3").exists() and beside.exists()


@pytest.mark.parametrize("what", ["install", "uninstall"])
@pytest.mark.parametrize("setting", ["PREFIX", "LIBDIR", "HELPERDIR"])
@pytest.mark.parametrize("name", ["a place", "a:place"])
def test_install_refuses_what_it_would_split(build, tmp_path, what, setting, name):
    if build != ROOT / "build":
        pytest.skip("make installs what is in build/")
    beside = tmp_path / "a"
    beside.write_text("what the name begins with\n")
    words = ["make", "-C", str(ROOT), f"OBJ={tmp_path / 'obj'}", "PREFIX=" + str(tmp_path / "prefix"),
             f"{setting}={tmp_path / name}", "-o", "all", what]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode != 0 and f'{setting}="{tmp_path / name}"' in done.stderr
    assert beside.exists() and {p.name for p in tmp_path.iterdir()} == {"a", "obj"}
