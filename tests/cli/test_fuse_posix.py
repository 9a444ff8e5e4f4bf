# SPDX-License-Identifier: GPL-2.0-or-later
"""The tests of tests/posix on tux3-fuse, with requests by /dev/fuse and by io_uring.

To run one: -k NAME, all by io_uring: -k io-uring.  More mount options: $TUX3_TEST_OPTIONS.
"""
import importlib
from pathlib import Path

import pytest

for _path in sorted((Path(__file__).parents[1] / "posix").glob("test_*.py")):
    pytest.register_assert_rewrite(_path.stem)
    for _name, _test in vars(importlib.import_module(_path.stem)).items():
        if _name.startswith("test_"):
            assert _name not in globals(), f"two tests are called {_name}"
            globals()[_name] = _test
