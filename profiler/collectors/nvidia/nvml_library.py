"""The NVIDIA driver library (NVML): its binding, imported only where a driver is, and what to do about each error."""

from collections.abc import Callable
from enum import Enum
from importlib import import_module
from typing import Any, TypeAlias

from profiler.readers import Unavailable

NOT_INSTALLED = "there is an NVIDIA driver, but the package nvidia-ml-py is not installed: pip install nvidia-ml-py"

# The module pynvml, which has no types. ``call_nvml`` calls its functions by name.
Nvml: TypeAlias = Any


def load_binding(import_name: Callable[[str], Any] = import_module) -> Nvml | Unavailable:
    """Import the module ``pynvml``; returns the reason if it is not installed."""
    try:
        return import_name("pynvml")
    except ImportError:
        return Unavailable(NOT_INSTALLED)


class ErrorAction(Enum):
    """What to do about an NVML error."""

    UNSUPPORTED = "this GPU does not support the call: do not repeat it"
    PERMISSION_DENIED = "the container lacks the permission for the call"
    RETRY = "the error may be transient: try again"
    DEVICE_LOST = "this GPU is lost; the others still work"
    REINITIALIZE = "the driver was replaced: shut NVML down and initialize it again"
    NO_DRIVER = "no driver is installed or loaded"


# The error numbers of nvml.h.
_ACTIONS: dict[int | None, ErrorAction] = {
    **dict.fromkeys((3, 13, 25), ErrorAction.UNSUPPORTED),  # not supported, function not found, argument version
    4: ErrorAction.PERMISSION_DENIED,
    **dict.fromkeys((15, 16, 28), ErrorAction.DEVICE_LOST),  # lost, reset required, not found
    **dict.fromkeys((1, 18), ErrorAction.REINITIALIZE),  # uninitialized, other version of the library
    **dict.fromkeys((9, 12), ErrorAction.NO_DRIVER),  # driver not loaded, library not found
}


def action_for_error(value: int | None) -> ErrorAction:
    """What to do about an error number; unknown errors are retried."""
    return _ACTIONS.get(value, ErrorAction.RETRY)
