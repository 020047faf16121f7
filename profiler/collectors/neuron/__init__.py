"""AWS Neuron devices, read through the subprocess neuron-monitor, which prints JSON reports, one per line."""

import os

from profiler.core.files import find_program

# The folder of the package aws-neuronx-tools, which only login shells have in PATH.
_NEURON_TOOLS = "/opt/aws/neuron/bin"


def find_neuron_monitor(search_path: str | None) -> str | None:
    """Find neuron-monitor in its package's folder, then in ``search_path`` (as in PATH)."""
    return find_program("neuron-monitor", _NEURON_TOOLS, search_path)


def neuron_devices(folder: str = "/dev") -> tuple[str, ...]:
    """The device nodes that the Neuron driver has created."""
    try:
        names = os.listdir(folder)  # noqa: PTH208  only names are needed
    except OSError:
        return ()
    nodes = (name for name in names if name.startswith("neuron") and name.removeprefix("neuron").isdecimal())
    return tuple(sorted(f"{folder}/{name}" for name in nodes))
