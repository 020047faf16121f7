"""Finds the driver by a few looks at the file system, and loads its Python binding only where one is.

Importing the binding costs 17 MiB and opening the library as much again, so neither happens on
a machine without a GPU.
"""

from collections.abc import Callable
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
