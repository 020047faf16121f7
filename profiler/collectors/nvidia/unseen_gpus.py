"""A batch with GPUs, on an instance whose monitor sees none: a warning in its record."""

from collections.abc import Callable
from typing import Protocol

from profiler.aggregation.task_record import RecordPart
from profiler.record.record_model import Record

_NO_DRIVER = "NVIDIA's driver is not in its container"


class GpuReadings(Protocol):
    """The collector of the GPUs."""

    @property
    def unseen_reason(self) -> str | None: ...


class UnseenGpus:
    """Compares the GPUs that ECS assigned with those that were read.

    ``gpus_of`` returns ``NVIDIA_VISIBLE_DEVICES`` of a Docker id. Without ``readings``, the
    monitor's container has no driver: the ECS agent gives NVIDIA's runtime only to tasks that
    request a GPU.
    """

    def __init__(self, gpus_of: Callable[[str], str | None], readings: GpuReadings | None) -> None:
        self._gpus_of = gpus_of
        self._readings = readings

    def part(self, record: Record, batch: str) -> RecordPart:  # noqa: ARG002
        reason = _NO_DRIVER if self._readings is None else self._readings.unseen_reason
        if reason is None or self._gpus_of(batch) is None:
            return RecordPart()
        warning = (
            f"The monitor of the instance cannot see the container's GPUs ({reason}), so their "
            "numbers are missing: make nvidia Docker's default runtime "
            "(docs/instance-monitor.md, GPUs)."
        )
        return RecordPart(warnings=(warning,))
