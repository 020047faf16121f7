"""The memory that an instance of EC2 registers with ECS, which is less than the memory it is sold
with: what no job gets.

https://docs.aws.amazon.com/batch/latest/userguide/memory-management.html
"""

from typing import Final

from msgspec import Struct

from profiler.core.ecs_terms import EC2
from profiler.record.record_model import Record
from profiler.record.task_needs import is_job
from profiler.record.units import MB_PER_GB

# AWS's example: an m4.large, which has 8,192 MiB, registers 7,985.
_REGISTERED_SHARE: Final = 7985 / 8192
# AWS Batch keeps this for ECS's agent.
_AGENT_MB: Final = 32
# With less than this of its nominal memory, an instance is of another size.
_MIN_SEEN_SHARE: Final = 0.9
# Of most instances, in GiB: powers of two, and from 96 on three of them.
_NOMINAL_GB: Final = (2, 4, 8, 16, 32, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048)


class SmallestInstance(Struct, frozen=True, kw_only=True):
    """The least memory that instances have which is not below a size, and what they register of
    it. ``is_seen``: a run saw it.
    """

    nominal_mb: int
    registered_mb: int
    is_seen: bool


def registered_mb(nominal_mb: float) -> int:
    """What an instance with this memory registers of it for jobs."""
    return int(nominal_mb * _REGISTERED_SHARE - _AGENT_MB)


def room_for_jobs_mb(seen_mb: float) -> int:
    """What an instance on which a run saw this memory has for jobs."""
    return int(seen_mb - _AGENT_MB)


def smallest_instance_for(memory_mb: float, task: Record) -> SmallestInstance | None:
    """The smallest instance that could have room for the memory of a job like this one; None for
    other tasks, and above all sizes.
    """
    if task.launch_type != EC2 or not is_job(task):
        return None
    nominal_gb = next((gb for gb in _NOMINAL_GB if gb * MB_PER_GB >= memory_mb), None)
    if nominal_gb is None:
        return None
    nominal_mb = nominal_gb * MB_PER_GB
    seen_mb: float = task.visible.memory_mb or 0
    is_seen = _MIN_SEEN_SHARE * nominal_mb < seen_mb <= nominal_mb
    if not is_seen:
        seen_mb = nominal_mb * _REGISTERED_SHARE
    return SmallestInstance(
        nominal_mb=nominal_mb, registered_mb=room_for_jobs_mb(seen_mb), is_seen=is_seen
    )
