"""Which of NVML's errors asks for what. Pure.

The values are those of ``nvmlReturn_t``, which never change; they stand here so that nothing of
the binding is needed to know them.
"""

from enum import Enum

UNINITIALIZED = 1
NOT_SUPPORTED = 3
NO_PERMISSION = 4
NOT_FOUND = 6
DRIVER_NOT_LOADED = 9
TIMEOUT = 10
LIBRARY_NOT_FOUND = 12
FUNCTION_NOT_FOUND = 13
GPU_IS_LOST = 15
RESET_REQUIRED = 16
LIB_RM_VERSION_MISMATCH = 18
NO_DATA = 21
ARGUMENT_VERSION_MISMATCH = 25
GPU_NOT_FOUND = 28


class Remedy(Enum):
    """What to do about an error."""

    NEVER_AGAIN = "this GPU will never answer this"
    NOTHING_NEW = "there is no value this time"
    FORBIDDEN = "somebody has to allow it"
    TRY_AGAIN = "it may pass"
    LOST = "this GPU is gone; the others are not"
    START_ANEW = "the driver was changed under us: shut down and initialize"
    NO_DRIVER = "there is no driver to talk to"


_REMEDIES = {
    NOT_SUPPORTED: Remedy.NEVER_AGAIN,
    FUNCTION_NOT_FOUND: Remedy.NEVER_AGAIN,
    ARGUMENT_VERSION_MISMATCH: Remedy.NEVER_AGAIN,
    NOT_FOUND: Remedy.NOTHING_NEW,
    NO_DATA: Remedy.NOTHING_NEW,
    NO_PERMISSION: Remedy.FORBIDDEN,
    GPU_IS_LOST: Remedy.LOST,
    RESET_REQUIRED: Remedy.LOST,
    GPU_NOT_FOUND: Remedy.LOST,
    UNINITIALIZED: Remedy.START_ANEW,
    LIB_RM_VERSION_MISMATCH: Remedy.START_ANEW,
    LIBRARY_NOT_FOUND: Remedy.NO_DRIVER,
    DRIVER_NOT_LOADED: Remedy.NO_DRIVER,
}


def remedy_for(value: int | None) -> Remedy:
    """The remedy for an error by its number; an unknown one may pass."""
    return _REMEDIES.get(value, Remedy.TRY_AGAIN) if value is not None else Remedy.TRY_AGAIN
