# SPDX-License-Identifier: GPL-2.0-or-later
"""POSIX tests for any mounted directory: `pytest tests/posix --mnt DIR` (as root).

Each test gets `mnt`, an empty directory of its own that everybody may write to.  The same tests run
on tux3-fuse through tests/cli/test_fuse_posix.py, which brings its own `mnt`.
"""
import os
import re
import shutil
import sys

import pytest

sys.path.insert(0, os.path.dirname(__file__))


def pytest_addoption(parser):
    parser.addoption("--mnt", help="a directory on the file system to test")


@pytest.fixture
def mnt(request, tmp_path):
    base = request.config.getoption("--mnt")
    if not base:
        pytest.skip("no --mnt DIR given")
    path = os.path.join(base, re.sub(r"\W", "_", request.node.name)[:100])
    shutil.rmtree(path, ignore_errors=True)
    os.mkdir(path)
    os.chmod(path, 0o777)
    yield path
    shutil.rmtree(path)
