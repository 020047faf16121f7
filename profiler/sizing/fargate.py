"""The task sizes of AWS Fargate.

https://docs.aws.amazon.com/AmazonECS/latest/developerguide/fargate-tasks-services.html
"""

from collections.abc import Mapping, Sequence
from typing import Final

from msgspec import Struct


class Size(Struct, frozen=True, order=True):
    """A task's size: vCPUs and MiB."""

    vcpu: float
    memory_mb: float


_MEMORIES_GB: Mapping[float, Sequence[float]] = {
    0.25: (0.5, 1, 2),
    0.5: range(1, 5),
    1: range(2, 9),
    2: range(4, 17),
    4: range(8, 31),
    8: range(16, 61, 4),
    16: range(32, 121, 8),
    32: (60, 120, 244),
}
LEGAL_VCPUS: Final = tuple(_MEMORIES_GB)
LEGAL_SIZES: Final = tuple(Size(vcpu, round(1024 * gb)) for vcpu, sizes_gb in _MEMORIES_GB.items() for gb in sizes_gb)
LARGEST: Final = LEGAL_SIZES[-1]
