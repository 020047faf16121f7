"""NVIDIA GPUs through NVML, the library of the driver, and the detection of that driver."""

from collections.abc import Callable

# The container toolkit adds the device node with any GPU, and the library with the driver
# capability "utility".
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


def is_driver_present(library_path: str | None, exists: Callable[[str], bool]) -> bool:
    """Whether a path of an NVIDIA device node or driver library exists; ``library_path`` is
    ``LD_LIBRARY_PATH``.
    """
    folders = (*(folder for folder in (library_path or "").split(":") if folder), *_FOLDERS)
    return exists(_DEVICE) or any(exists(f"{folder}/{_LIBRARY}") for folder in folders)
