"""The task sizes of AWS Fargate.

https://docs.aws.amazon.com/AmazonECS/latest/developerguide/fargate-tasks-services.html
"""

from collections.abc import Mapping
from typing import Final

from msgspec import Struct

_MB_PER_GB = 1024


class Size(Struct, frozen=True, order=True):
    """A task's size: vCPUs and MiB."""

    vcpu: float
    memory_mb: float


def _sizes() -> tuple[Size, ...]:
    gb = _MB_PER_GB
    memories_mb: Mapping[float, tuple[int, ...]] = {
        0.25: (512, gb, 2 * gb),
        0.5: tuple(range(gb, 4 * gb + 1, gb)),
        1: tuple(range(2 * gb, 8 * gb + 1, gb)),
        2: tuple(range(4 * gb, 16 * gb + 1, gb)),
        4: tuple(range(8 * gb, 30 * gb + 1, gb)),
        8: tuple(range(16 * gb, 60 * gb + 1, 4 * gb)),
        16: tuple(range(32 * gb, 120 * gb + 1, 8 * gb)),
        32: (60 * gb, 120 * gb, 244 * gb),
    }
    return tuple(Size(vcpu, memory_mb) for vcpu, sizes_mb in memories_mb.items() for memory_mb in sizes_mb)


LEGAL_SIZES: Final = _sizes()
LARGEST: Final = LEGAL_SIZES[-1]
LEGAL_VCPUS: Final = tuple(sorted({size.vcpu for size in LEGAL_SIZES}))
