"""GPUs and Neuron devices: which are visible, and what would make them so. Pure."""

from collections.abc import Collection, Iterator

from profiler.accelerators.gpu_scope import GpuSelection
from profiler.doctor.finding import Finding, note, ok, problem
from profiler.sources import Unavailable
from profiler.sources.nvml.readings import GpuReading

_GPUS, _SCOPE, _NEURON = "GPUs", "batch's GPUs", "Neuron"
_GPU_ADVICE = (
    "Where the task has a GPU: set NVIDIA_VISIBLE_DEVICES=all and NVIDIA_DRIVER_CAPABILITIES=utility in the "
    "environment of the monitor's container definition, and no GPU requirement."
)
_NEURON_ADVICE = (
    "Where the task has Neuron devices: list them in linuxParameters.devices of the monitor, add IPC_LOCK, run it as "
    "root, and use an image with neuron-monitor in /opt/aws/neuron/bin."
)


def gpu_findings(reading: GpuReading | Unavailable | None, selection: GpuSelection) -> Iterator[Finding]:
    """``reading`` None: nothing here speaks of a driver."""
    if reading is None:
        yield note(_GPUS, "No NVIDIA driver is visible here.", _GPU_ADVICE)
        return
    if isinstance(reading, Unavailable):
        yield problem(_GPUS, f"There is an NVIDIA driver, but no GPU can be read: {reading.reason}.", _GPU_ADVICE)
        return
    for sample in reading.samples:
        facts = sample.facts
        yield ok(_GPUS, f"GPU {facts.index}: {facts.name or 'of unknown kind'} ({facts.uuid}).")
    for text in reading.notes:
        yield note(_GPUS, text)
    if not selection.is_known:
        yield note(
            _SCOPE,
            "Which of the GPUs are the batch's is not known, so all are reported.",
            'If the instance runs other tasks: set TASK_PROFILER_GPU_UUIDS, or "pidMode": "task" in the definition.',
        )
    elif selection.selectors is None:
        yield ok(_SCOPE, "All of them are the batch's.")
    else:
        yield ok(_SCOPE, f"The batch's are {', '.join(sorted(selection.selectors)) or 'none of them'}.")


def neuron_findings(program: str | None, devices: Collection[str]) -> Iterator[Finding]:
    """``program`` is where neuron-monitor is, ``devices`` the device nodes in this container."""
    if program is not None and devices:
        yield ok(_NEURON, f"{len(devices)} Neuron devices ({', '.join(sorted(devices))}), read by {program}.")
    elif program is not None:
        yield problem(_NEURON, f"{program} is here, but no device /dev/neuron*.", _NEURON_ADVICE)
    elif devices:
        yield problem(
            _NEURON, f"Neuron devices are here ({', '.join(sorted(devices))}), but not neuron-monitor.", _NEURON_ADVICE
        )
    else:
        yield note(_NEURON, "No Neuron device and no neuron-monitor is here.", _NEURON_ADVICE)
