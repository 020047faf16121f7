"""What is known of a task definition and its surroundings, when its size is decided on."""

import math
from collections.abc import Mapping

from msgspec import Struct

from profiler.core.ecs_terms import CPU_UNITS
from profiler.core.optional_math import any_known, first_known
from profiler.record.record_model import TaskSize
from profiler.sizing.fargate_sizes import LEGAL_SIZES, Size

# The tags in which a revision remembers the size before.
TAG_PREFIX = "task-profiler:"
RESIZED_FROM = f"{TAG_PREFIX}resized-from"
REVERTED_FROM = f"{TAG_PREFIX}reverted-from"
# The tag of a revision that was registered again, because one of ours hid it: the number of ours,
# which nobody should have started.
RESTORED_OVER = f"{TAG_PREFIX}restored-over"
_TAG_PARTS = 3


class SizeBefore(Struct, frozen=True, kw_only=True):
    """The size of an earlier revision, as a tag remembers it: ``REVISION/CPU/MEMORY``."""

    revision: str
    size: TaskSize

    @property
    def tag_value(self) -> str:
        units = (self.size.vcpu or 0) * CPU_UNITS
        return f"{self.revision}/{units:.0f}/{self.size.memory_mb or 0:.0f}"


def parse_size_before_tag(tag: str | None) -> SizeBefore | None:
    """The size in a tag, None without one or for another text."""
    parts = (tag or "").split("/")
    if len(parts) != _TAG_PARTS or not all(part.isdecimal() for part in parts):
        return None
    revision, cpu, memory = parts
    return SizeBefore(
        revision=revision, size=TaskSize(vcpu=int(cpu) / CPU_UNITS, memory_mb=int(memory))
    )


class SizedRevision(Struct, frozen=True, kw_only=True):
    """The newest revision of a family, and the sizes that it remembers; of a file, without a
    ``revision``.

    ``overwritten`` is a plan's size, if a later revision has the old one. ``withdrawn``: a later
    revision that somebody has deregistered, in words. ``killed_limit`` is a container's, in words.
    ``registered_ns``: when the revision was registered. ``under_raised_limits``: if a container was
    killed at a lower limit than it has now, the revisions whose runs had none so low; None: all.
    """

    revision: str | None
    size: TaskSize
    resized_from: SizeBefore | None = None
    reverted_from: SizeBefore | None = None
    overwritten: TaskSize | None = None
    withdrawn: str | None = None
    killed_limit: str | None = None
    registered_ns: int | None = None
    under_raised_limits: frozenset[str] | None = None

    @property
    def was_sized_by_us(self) -> bool:
        """Whether this project has set its size."""
        return any_known(self.resized_from, self.reverted_from)


class TargetOverride(Struct, frozen=True, kw_only=True):
    """The sizes with which a schedule or rule starts the family.

    ``target`` names it in a sentence: "the schedule nightly". ``vcpu`` and ``memory_mb`` replace
    the task's. ``least_vcpu`` and ``least_memory_mb`` are what its containers need of the task's,
    with their overrides: ECS refuses to start them in a smaller one.
    """

    target: str
    vcpu: float | None = None
    memory_mb: float | None = None
    least_vcpu: float = 0
    least_memory_mb: float = 0

    def allows_definition_size(self, size: Size) -> bool:
        """Whether ECS would start the target, if the definition had this size."""
        if self.vcpu is not None and self.memory_mb is not None:
            return True
        vcpu = first_known(self.vcpu, size.vcpu)
        memory_mb = first_known(self.memory_mb, size.memory_mb)
        has_room = vcpu >= self.least_vcpu and memory_mb >= self.least_memory_mb
        return has_room and Size(vcpu, memory_mb) in LEGAL_SIZES


class FamilyCircumstances(Struct, frozen=True, kw_only=True):
    """What the account says about a family, beside its runs. By default, nothing is in the way.

    ``off_tag`` is the tag by which its owner forbids changes. ``intervals_ms`` are the shortest
    times to the next due time of its schedules and rules, by the hour of the day in UTC in which a
    run may start. ``starters`` name what starts its runs, in words, as far as it is known: "AWS
    Step Functions". ``missing_runs`` is why its runs are only a part of the window's, in words.
    ``is_job``: its runs are jobs of AWS Batch, whose submissions can override the size;
    ``left_to``: why its size is nobody's here, in words; ``least_vcpu``: what its containers need
    together; ``timeout_ms``: the shortest time after which Batch stops an attempt;
    ``time_limits_ms``: those after which the states of these titles end a run; ``most_vcpu``:
    what the environments of its queues allow.
    """

    operating_system: str | None = None
    off_tag: str | None = None
    is_service: bool = False
    stack: str | None = None
    missing_runs: str = ""
    intervals_ms: Mapping[int, float] = {}
    overrides: tuple[TargetOverride, ...] = ()
    starters: tuple[str, ...] = ()
    is_job: bool = False
    left_to: str | None = None
    least_vcpu: float = 0
    timeout_ms: float | None = None
    time_limits_ms: Mapping[str, float] = {}
    most_vcpu: float = math.inf
