"""Descriptors of files that this process opens for itself."""

import os
from fcntl import F_DUPFD_CLOEXEC, fcntl

_FIRST_UNUSED = 3


def apart_from_the_standard_ones(descriptor: int) -> int:
    """The same open file, not under the number of a standard stream: one that the caller closed stays closed."""
    try:
        return fcntl(descriptor, F_DUPFD_CLOEXEC, _FIRST_UNUSED)
    finally:
        os.close(descriptor)
