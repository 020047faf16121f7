"""Calls of NVML, the driver's library: a failure is a value, with what to do about it. The names
of its numbers.
"""

from collections.abc import Callable
from enum import Enum
from importlib import import_module
from typing import Any, TypeAlias

from msgspec import Struct

from profiler.core.text import install_hint
from profiler.readers import Unavailable

NO_DRIVER = "no NVIDIA driver was found"
NOT_INSTALLED = f"the package nvidia-ml-py is missing: {install_hint('nvidia-ml-py')}"
# The module pynvml, which has no types. ``call_nvml`` calls its functions by name.
Nvml: TypeAlias = Any


def load_binding(
    import_name: Callable[[str], Any] = import_module, *, has_driver: bool = True
) -> Nvml | Unavailable:
    """Import the module ``pynvml``, if it is installed; else the reason is the driver, unless this
    machine ``has_driver``.
    """
    try:
        return import_name("pynvml")
    except ImportError:
        return Unavailable(NOT_INSTALLED if has_driver else NO_DRIVER)


class ErrorAction(Enum):
    """What to do about an NVML error."""

    UNSUPPORTED = "this GPU does not support the call: do not repeat it"
    PERMISSION_DENIED = "the container lacks the permission for the call"
    RETRY = "the error may be transient: try again"
    DEVICE_LOST = "this GPU is lost; the others still work"
    REINITIALIZE = "the driver was replaced: shut NVML down and initialize it again"
    NO_DRIVER = "no driver is installed or loaded"


# The error numbers of nvml.h; others are retried.
_ACTIONS: dict[int | None, ErrorAction] = {
    # Not supported, function not found, argument version.
    **dict.fromkeys((3, 13, 25), ErrorAction.UNSUPPORTED),
    4: ErrorAction.PERMISSION_DENIED,
    # Lost, reset required, not found.
    **dict.fromkeys((15, 16, 28), ErrorAction.DEVICE_LOST),
    # Uninitialized, other version of the library.
    **dict.fromkeys((1, 18), ErrorAction.REINITIALIZE),
    # Driver not loaded, library not found.
    **dict.fromkeys((9, 12), ErrorAction.NO_DRIVER),
}

# nvmlClocksThrottleReason*: the bits of a reduced clock. Bit 0 (idle) is not one of them.
THROTTLE_REASONS = {
    0x002: "applicationsClocksSetting",
    0x004: "swPowerCap",
    0x008: "hwSlowdown",
    0x010: "syncBoost",
    0x020: "swThermalSlowdown",
    0x040: "hwThermalSlowdown",
    0x080: "hwPowerBrakeSlowdown",
    0x100: "displayClockSetting",
}


class Failure(Struct, frozen=True):
    """A failed NVML call: what to do about it, and the driver's message."""

    action: ErrorAction
    reason: str


# The driver's types.
def call_nvml(
    nvml: Nvml,
    function: str,
    *arguments: Any,  # noqa: ANN401
    **options: Any,  # noqa: ANN401
) -> Any | Failure:  # noqa: ANN401
    """Call an NVML function by name; returns its result, or the failure as a value."""
    try:
        return getattr(nvml, function)(*arguments, **options)
    except getattr(nvml, "NVMLLibraryMismatchError", ()) as error:
        # The driver lacks the newest version of the function. It is no NVMLError.
        return Failure(ErrorAction.UNSUPPORTED, str(error))
    except nvml.NVMLError as error:
        value = getattr(error, "value", None)
        return Failure(
            _ACTIONS.get(value, ErrorAction.RETRY), f"{str(error).rstrip('.')} (NVML error {value})"
        )
