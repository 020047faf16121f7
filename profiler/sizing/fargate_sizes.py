"""The sizes of tasks on AWS Fargate.

https://docs.aws.amazon.com/AmazonECS/latest/developerguide/fargate-tasks-services.html
"""

from collections.abc import Iterator
from typing import Final

from msgspec import Struct

from profiler.core.ecs_terms import VCPU_SIZES
from profiler.core.optional_math import all_known
from profiler.record.record_model import TaskSize
from profiler.record.units import format_task_size


class Size(Struct, frozen=True, order=True):
    """A task's size: vCPUs and MiB."""

    vcpu: float
    memory_mb: float

    @property
    def text(self) -> str:
        """The size as ``1 vCPU, 2 GB``."""
        return format_task_size(self.vcpu, self.memory_mb)


def whole_size(size: TaskSize) -> Size | None:
    """The size; None if a part of it is unknown."""
    parts = all_known(size.vcpu, size.memory_mb)
    return None if parts is None else Size(*parts)


_MEMORIES_GB = (
    (0.5, 1, 2),
    range(1, 5),
    range(2, 9),
    range(4, 17),
    range(8, 31),
    range(16, 61, 4),
    range(32, 121, 8),
    (60, 120, 244),
)


def _legal_sizes() -> Iterator[Size]:
    for vcpu, sizes_gb in zip(VCPU_SIZES, _MEMORIES_GB, strict=True):
        for gb in sizes_gb:
            yield Size(vcpu, round(1024 * gb))


LEGAL_SIZES: Final = tuple(_legal_sizes())
LARGEST: Final = LEGAL_SIZES[-1]
