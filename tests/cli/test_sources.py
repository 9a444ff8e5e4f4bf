# SPDX-License-Identifier: GPL-2.0-or-later
"""scripts/check finds what it is there for: a copy of what it reads gets one fault at a time."""
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SPDX = "// SPDX-License-Identifier: GPL-2.0-or-later\n"
OPENING = SPDX + "/* For a test. */\n"


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    top = tmp_path_factory.mktemp("sources")
    for name in ["core", "doc", "linux/trace", "user/lib", "user/env", "scripts"]:
        shutil.copytree(ROOT / name, top / name)
    subprocess.run(["git", "init", "-q", str(top)], check=True)
    subprocess.run(["git", "-C", str(top), "add", "."], check=True)
    return top


def check(top, path):
    done = subprocess.run([top / "scripts/check", path], capture_output=True, text=True)
    assert not done.stderr
    return done.stdout


TREE, HEADER, NEW = "core/tree/tree.c", "core/tree/tree.h", "core/tree/tree_new.c"


@pytest.mark.parametrize("path, where, text, said", [
    (TREE, 2, '#include "core/commit/commit.h"', "core/commit/commit.h is above this room"),
    (TREE, 2, '#include "../commit/commit.h"', "by their whole path"),
    (TREE, 2, '#include "user/lib/lib.h"', "core/ may not include user/lib/lib.h"),
    (TREE, 2, "#include <stdio.h>", "what core/env.h includes"),
    (TREE, 2, '#include "no_such.h"', "is not in the folders"),
    (TREE, 2, "#ifdef __KERNEL__", "core/ has no #if"),
    (TREE, None, "int up(struct volume *vol)\n{\n\treturn unify_verify(vol);\n}", "unify_verify is of core/commit/unify.h, which"),
    (HEADER, -1, "static inline int up(struct volume *vol)\n{\n\treturn unify_verify(vol);\n}", "which is above this room"),
    (TREE, None, "int long_one(void)\n{\n" + "\tcount();\n" * 81 + "}", "a function of 81 lines"),
    (TREE, None, "/* As tree_of_nobody() has it. */", "tree_of_nobody() is nowhere"),
    (TREE, None, "/* See tree_of_nobody.c. */", "there is no tree_of_nobody.c"),
    (TREE, None, "int x; ", "white space at the end"),
    (TREE, None, "    int x;\n        int y;", "spaces where a tab belongs"),
    (TREE, None, "\tif(x)", "no space before the parenthesis"),
    (NEW, None, OPENING, "this file is not in doc/DESIGN.md"),
    (NEW, None, SPDX + "int x;", "what this file is for"),
    (NEW, None, "/* For a test. */\nint x;", "no SPDX-License-Identifier"),
    ("core/room/new.c", None, OPENING + '#include "core/volume.h"', "core/room/ is no room"),
    ("user/env/device_new.c", None, OPENING, "this file is not in doc/DESIGN.md"),
    ("sim/new.c", None, OPENING, "this file is not in doc/DESIGN.md"),
    ("core/tree/tree.c.orig", None, OPENING, "left behind"),
])
def test_fault_is_found(copy, path, where, text, said):
    plant(copy, path, where, text, said)


def test_sources_without_a_repository(copy):
    """As those of a tarball are."""
    git = copy / ".git"
    git.rename(copy.parent / "git-is-away")
    try:
        plant(copy, TREE, None, "int x; ", "white space at the end")
        plant(copy, NEW, None, OPENING, "this file is not in doc/DESIGN.md")
        (copy / "build").mkdir()
        (copy / "build/made.c").write_text("int x; \n")
        assert "made.c" not in check(copy, ".")
        assert f"{TREE}:" not in check(copy, ".")
    finally:
        shutil.rmtree(copy / "build", ignore_errors=True)
        (copy.parent / "git-is-away").rename(git)


def plant(copy, path, where, text, said):
    file = copy / path
    before = file.read_text() if file.exists() else None
    lines = before.splitlines() if before else []
    lines[where if where is not None else len(lines):where if where is not None else len(lines)] = text.split("\n")
    try:
        assert before is None or check(copy, path) == ""
        file.parent.mkdir(exist_ok=True)
        file.write_text("\n".join(lines) + "\n")
        told = check(copy, path)
        assert said in told and told.startswith(f"{path}:"), told
    finally:
        file.unlink()
        if before is not None:
            file.write_text(before)
