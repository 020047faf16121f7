"""Descriptors of files that this process opens for itself."""

import os
from fcntl import F_DUPFD_CLOEXEC, fcntl

_FIRST_NON_STANDARD = 3


def dup_above_standard_streams(descriptor: int) -> int:
    """The same open file, not under the number of a standard stream: one that the caller closed stays closed."""
    try:
        return fcntl(descriptor, F_DUPFD_CLOEXEC, _FIRST_NON_STANDARD)
    finally:
        os.close(descriptor)
