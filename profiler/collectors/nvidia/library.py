"""Finds the NVIDIA driver, loads its Python binding only where a driver is, and maps its errors to remedies."""

from collections.abc import Callable
from enum import Enum
from importlib import import_module
from typing import Any, Protocol

from profiler.sources import Unavailable

# The device node is what the container toolkit brings in with any GPU; the library comes with the
# driver capability "utility".
_DEVICE = "/dev/nvidiactl"
_LIBRARY = "libnvidia-ml.so.1"
_FOLDERS = (
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib64",
    "/usr/lib",
    "/usr/local/nvidia/lib64",
    "/usr/lib/wsl/lib",
)
_BINDING = "pynvml"
NOT_INSTALLED = (
    "there is an NVIDIA driver, but the package nvidia-ml-py is not installed: "
    "install task-profiler with its extra, pip install 'task-profiler[gpu]'"
)


class Nvml(Protocol):
    """The module ``pynvml``: its constants; its functions are called by name, see ``call_nvml``."""

    @property
    def NVMLError(self) -> type[Exception]:  # noqa: N802  the binding's own name
        """What every function raises; ``value`` is the error's number."""
        ...

    nvmlMemory_v2: int  # noqa: N815  as above
    NVML_CLOCK_SM: int
    NVML_TEMPERATURE_GPU: int
    NVML_MEMORY_ERROR_TYPE_UNCORRECTED: int
    NVML_VOLATILE_ECC: int
    nvmlEventTypeXidCriticalError: int  # noqa: N815  as above


def is_driver_present(library_path: str | None, exists: Callable[[str], bool]) -> bool:
    """Whether anything here speaks of an NVIDIA driver; ``library_path`` is ``LD_LIBRARY_PATH``."""
    folders = (*(folder for folder in (library_path or "").split(":") if folder), *_FOLDERS)
    return exists(_DEVICE) or any(exists(f"{folder}/{_LIBRARY}") for folder in folders)


def load_binding(import_name: Callable[[str], Any] = import_module) -> Nvml | Unavailable:
    """The module ``pynvml``, or why it cannot be had."""
    try:
        nvml: Nvml = import_name(_BINDING)
    except ImportError:
        return Unavailable(NOT_INSTALLED)
    return nvml


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
