"""Memory that is ready to be written to.

On a virtual machine the first write to a page that the guest has never used costs ten times what the copy
does (some 2 ms a megabyte against 0.2, measured): the host has to find the memory behind it. A broker that
fills the page cache pays that for every new megabyte, and it is charged to the broker's CPU time. It says
nothing about the broker, and whichever is measured first pays for it. So before a round that writes a
lot, the same amount is written to a file and deleted again. Then the pages are free, and the host has them.
"""

from __future__ import annotations

import os
import tempfile

_MEGABYTE = 1 << 20


def make_ready(size: int) -> None:
    """Have about ``size`` bytes of free memory that were used before."""
    block = bytes(_MEGABYTE)
    with tempfile.TemporaryFile(prefix="millstream-bench-", buffering=0) as file:
        for number in range(size // _MEGABYTE + 1):
            os.pwrite(file.fileno(), block, number * _MEGABYTE)
