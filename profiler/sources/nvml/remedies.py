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


class ErrorAction(Enum):
    """What to do about an error."""

    UNSUPPORTED = "this GPU will never answer this"
    NO_VALUE = "there is no value this time"
    PERMISSION_DENIED = "somebody has to allow it"
    RETRY = "it may pass"
    DEVICE_LOST = "this GPU is gone; the others are not"
    REINITIALIZE = "the driver was changed under us: shut down and initialize"
    NO_DRIVER = "there is no driver to talk to"


_ACTIONS = {
    NOT_SUPPORTED: ErrorAction.UNSUPPORTED,
    FUNCTION_NOT_FOUND: ErrorAction.UNSUPPORTED,
    ARGUMENT_VERSION_MISMATCH: ErrorAction.UNSUPPORTED,
    NOT_FOUND: ErrorAction.NO_VALUE,
    NO_DATA: ErrorAction.NO_VALUE,
    NO_PERMISSION: ErrorAction.PERMISSION_DENIED,
    GPU_IS_LOST: ErrorAction.DEVICE_LOST,
    RESET_REQUIRED: ErrorAction.DEVICE_LOST,
    GPU_NOT_FOUND: ErrorAction.DEVICE_LOST,
    UNINITIALIZED: ErrorAction.REINITIALIZE,
    LIB_RM_VERSION_MISMATCH: ErrorAction.REINITIALIZE,
    LIBRARY_NOT_FOUND: ErrorAction.NO_DRIVER,
    DRIVER_NOT_LOADED: ErrorAction.NO_DRIVER,
}


def action_for_error(value: int | None) -> ErrorAction:
    """The remedy for an error by its number; an unknown one may pass."""
    return _ACTIONS.get(value, ErrorAction.RETRY) if value is not None else ErrorAction.RETRY
