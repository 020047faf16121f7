"""AWS Neuron devices, read through the subprocess neuron-monitor, which prints JSON reports, one per line."""

import os
from collections.abc import Callable

# The folder of the package aws-neuronx-tools, which only login shells have in PATH.
NEURON_MONITOR = "/opt/aws/neuron/bin/neuron-monitor"


def is_program(path: str) -> bool:
    """Whether ``path`` is an executable file."""
    return os.path.isfile(path) and os.access(path, os.X_OK)  # noqa: PTH113  two stats, no objects


def find_neuron_monitor(search_path: str | None, exists: Callable[[str], bool] = is_program) -> str | None:
    """Find neuron-monitor in its package's folder, then in ``search_path`` (as in PATH).

    Relative folders of the search path are skipped, so that no file from the working folder is executed. Returns the
    absolute path, or None.
    """
    folders = [folder for folder in (search_path or "").split(os.pathsep) if folder.startswith("/")]
    candidates = (NEURON_MONITOR, *(f"{folder.rstrip('/')}/neuron-monitor" for folder in folders))
    return next(filter(exists, candidates), None)


def neuron_devices(folder: str = "/dev") -> tuple[str, ...]:
    """The device nodes that the Neuron driver has created."""
    try:
        names = os.listdir(folder)  # noqa: PTH208  only names are needed
    except OSError:
        return ()
    nodes = (name for name in names if name.startswith("neuron") and name.removeprefix("neuron").isdecimal())
    return tuple(sorted(f"{folder}/{name}" for name in nodes))
