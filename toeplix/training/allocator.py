"""Keep freed memory in the process instead of returning it to the operating system.

The C library returns large blocks when they are freed, and the operating system zeroes every new block
page by page, which takes a noticeable part of a training step, and of prefill, on a CPU. Commands that
train, measure, generate or serve call `keep_freed_memory` once; as a library toeplix does not change the
allocator of its host.
"""

import ctypes
import sys

TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3  # names of mallopt(3)
MAX_INT = 2**31 - 1


def keep_freed_memory() -> bool:
    """Configure the allocator; return whether it accepted (only that of glibc does)."""
    if not sys.platform.startswith("linux"):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except AttributeError:
        return False
    accepted = [mallopt(name, MAX_INT) == 1 for name in (TRIM_THRESHOLD, MMAP_THRESHOLD)]
    return all(accepted)
