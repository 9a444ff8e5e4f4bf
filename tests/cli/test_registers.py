# SPDX-License-Identifier: GPL-2.0-or-later
"""What is seen of a mounted volume lies between what was there before and what was there after: tests/registers.h."""
import os
import subprocess

import pytest

# SEEK_DATA does not know of stores through mappings: the kernel keeps them to itself.  So these go without "stores".
CASES = {
    "short deltas": ("age=0.02,dirty=256K,data_cache=128K", "memory"),
    "as it is": ("", "memory"),
    "the kernel gathers": ("age=0.02,writeback", "pieces"),
    "names": ("age=0.02,names=6", "memory names"),
}


@pytest.mark.skipif(os.geteuid() != 0, reason="drops caches")
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("ring", ["io_uring=off", "io_uring=on"], ids=["dev-fuse", "io-uring"])
def test_registers(request, build, mount, volume, fsck, ring, case):
    if ring == "io_uring=on":
        request.getfixturevalue("io_uring")
    options, words = CASES[case]
    mounted = mount(volume, ",".join(filter(None, (ring, options))))
    seed = 1 + list(CASES).index(case)
    done = subprocess.run([build / "tests/registers", mounted.path, "4000", str(seed), *words.split()], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{done.stdout}{done.stderr}"
    mounted.unmount()
    fsck(volume)
