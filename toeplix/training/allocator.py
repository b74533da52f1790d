"""Keep freed memory instead of returning it to the system.

The C library gives large blocks back when they are freed, and every fresh one is zeroed by the system
page by page: on a CPU a training step then spends a noticeable part of its time there. Commands that
train or measure call this once; as a library toeplix leaves its host's allocator alone.
"""

import ctypes
import sys

TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3  # names of mallopt(3)
LARGEST = 2**31 - 1


def keep_freed_memory() -> bool:
    """Whether the allocator took the hint: only that of glibc knows it."""
    if not sys.platform.startswith("linux"):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except AttributeError:
        return False
    accepted = [mallopt(name, LARGEST) == 1 for name in (TRIM_THRESHOLD, MMAP_THRESHOLD)]
    return all(accepted)
