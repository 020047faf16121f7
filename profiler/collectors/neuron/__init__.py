"""AWS Neuron devices, read through neuron-monitor: a subprocess that prints one JSON report a line."""

import os
from collections.abc import Callable

# The package's own folder, which only login shells have in PATH.
NEURON_MONITOR = "/opt/aws/neuron/bin/neuron-monitor"


def is_program(path: str) -> bool:
    """Whether a file can be executed at ``path``."""
    return os.path.isfile(path) and os.access(path, os.X_OK)  # noqa: PTH113  two stats, no objects


def find_neuron_monitor(search_path: str | None, exists: Callable[[str], bool] = is_program) -> str | None:
    """The absolute path of neuron-monitor: its package's folder first, then ``search_path`` (as in PATH).

    None if it is nowhere. Relative folders of the search path are passed over: what a batch left
    in a current folder is not started.
    """
    folders = [folder for folder in (search_path or "").split(os.pathsep) if folder.startswith("/")]
    places = (NEURON_MONITOR, *(f"{folder.rstrip('/')}/neuron-monitor" for folder in folders))
    return next(filter(exists, places), None)
