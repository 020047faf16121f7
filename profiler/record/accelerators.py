"""What to say about GPUs that were given to a run and not used. Pure."""

from collections.abc import Sequence

from profiler.record.model import Gpu

# The record's ``gpuScope`` where it is not known which of the GPUs are the batch's.
WHOLE_INSTANCE = "instance"


def is_idle(gpu: Gpu) -> bool:
    """Whether a GPU was watched and no kernel ever ran on it."""
    return gpu.utilization_percent is not None and gpu.utilization_percent.max == 0


def idle_advice(gpus: Sequence[Gpu]) -> str | None:
    """A sentence on the GPUs that no kernel ever ran on; None if there is none."""
    idle = [gpu for gpu in gpus if is_idle(gpu)]
    if not idle:
        return None
    if len(idle) < len(gpus):
        return f"{len(idle)} of {len(gpus)} GPUs were never used: ask for {len(gpus) - len(idle)}, or spread the work."
    subject = "The GPU was" if len(gpus) == 1 else f"All {len(gpus)} GPUs were"
    return f"{subject} allocated and never used: run the task without, or see why the batch did not find it."
