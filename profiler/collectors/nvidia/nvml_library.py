"""The NVIDIA driver library (NVML): the Python binding, and what to do about each error.

The binding ``pynvml`` is imported only on machines with a driver.
"""

from collections.abc import Callable
from enum import Enum
from importlib import import_module
from typing import Any, TypeAlias

from profiler.readers import Unavailable

_BINDING = "pynvml"
NOT_INSTALLED = "there is an NVIDIA driver, but the package nvidia-ml-py is not installed: pip install nvidia-ml-py"

# Error numbers of nvml.h.
UNINITIALIZED = 1
NOT_SUPPORTED = 3
NO_PERMISSION = 4
NOT_FOUND = 6
DRIVER_NOT_LOADED = 9
LIBRARY_NOT_FOUND = 12
FUNCTION_NOT_FOUND = 13
GPU_IS_LOST = 15
RESET_REQUIRED = 16
LIB_RM_VERSION_MISMATCH = 18
NO_DATA = 21
ARGUMENT_VERSION_MISMATCH = 25
GPU_NOT_FOUND = 28


# The module pynvml, which has no types. ``call_nvml`` calls its functions by name.
Nvml: TypeAlias = Any


def load_binding(import_name: Callable[[str], Any] = import_module) -> Nvml | Unavailable:
    """Import the module ``pynvml``; returns the reason if it is not installed."""
    try:
        return import_name(_BINDING)
    except ImportError:
        return Unavailable(NOT_INSTALLED)


class ErrorAction(Enum):
    """What to do about an NVML error."""

    UNSUPPORTED = "this GPU does not support the call: do not repeat it"
    NO_VALUE = "the GPU has no value at the moment"
    PERMISSION_DENIED = "the container lacks the permission for the call"
    RETRY = "the error may be transient: try again"
    DEVICE_LOST = "this GPU is lost; the others still work"
    REINITIALIZE = "the driver was replaced: shut NVML down and initialize it again"
    NO_DRIVER = "no driver is installed or loaded"


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
    """What to do about an error number; unknown errors are retried."""
    return _ACTIONS.get(value, ErrorAction.RETRY) if value is not None else ErrorAction.RETRY
