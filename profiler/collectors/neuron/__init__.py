"""AWS Neuron devices, read through the subprocess neuron-monitor, which prints JSON reports, one
per line.
"""

import os

from profiler.core.files import find_program

# Of AWS's package; only login shells have it in PATH.
NEURON_TOOLS_FOLDER = "/opt/aws/neuron/bin"


def find_neuron_monitor(
    search_path: str | None, tools_folder: str = NEURON_TOOLS_FOLDER
) -> str | None:
    """The path of neuron-monitor in its package's folder, else in ``search_path``."""
    return find_program("neuron-monitor", tools_folder, search_path)


def neuron_devices(folder: str = "/dev") -> tuple[str, ...]:
    """The device nodes that the Neuron driver has created."""
    try:
        names = os.listdir(folder)  # noqa: PTH208  only names are needed
    except OSError:
        return ()
    nodes = (
        name
        for name in names
        if name.startswith("neuron") and name.removeprefix("neuron").isdecimal()
    )
    return tuple(sorted(f"{folder}/{name}" for name in nodes))
