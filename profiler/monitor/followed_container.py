"""The containers of a task, each with everything that is kept of it while the task is monitored."""

from functools import partial

from msgspec import Struct, field
from msgspec.structs import replace

from profiler.aggregation.container_usage import ContainerUsage
from profiler.aggregation.run_notices import RunNotices
from profiler.aggregation.slowdown import CpuDemand
from profiler.aggregation.statistics import DeviceReadings
from profiler.core.timestamps import NS_PER_SECOND
from profiler.monitor.report_destination import BatchStreams
from profiler.readers.ecs.task_metadata import ContainerMetadata, TaskMetadata, with_first_start_of
from profiler.record.mention_limits import NEAR_FULL_SHARE
from profiler.sinks import DeliveryFailure

_NO_STREAMS = BatchStreams(report=DeliveryFailure("Its log stream was not determined."))


class NoticeState(Struct, eq=False):
    """The notices of a batch, its last reading, and the wall clock as it was set when the batch
    was found.
    """

    notices: RunNotices
    wall_offset_ns: int
    samples: int = 0
    attempt: tuple[str | None, int] | None = None
    task: TaskMetadata | None = None
    memory_size_bytes: float | None = None
    measures_blocks: bool = False


class FollowedContainer(Struct, eq=False):
    """A container over all its attempts.

    Collectors keep what they know of it by ``container.followed_id``.

    ``container`` is as it was listed last; it has only the name before. ``usage`` is empty until
    the first sample. From ``may_be_batch`` on, which is True from the first sample until the
    batches are others, the data is for batches: ``demand`` covers all containers of the task, in
    the steps of this one, ``vcpu_size`` is the task's size, else the host's, ``interval_devices``
    are the readings of the devices since the last checkpoint, ``streams`` are known from the
    selection of the batches on.
    """

    container: ContainerMetadata
    is_listed: bool = False
    usage: ContainerUsage = field(default_factory=partial(ContainerUsage, NS_PER_SECOND))
    shift_at_start_ns: int | None = None
    may_be_batch: bool = False
    demand: CpuDemand = field(default_factory=CpuDemand)
    vcpu_size: float | None = None
    interval_devices: DeviceReadings = field(default_factory=DeviceReadings)
    interval_started_ns: int | None = None
    notices: NoticeState | None = None
    streams: BatchStreams = _NO_STREAMS
    reads_without_end: int = 0
    stop_seen_ns: int | None = None
    is_reported: bool = False
    _before: ContainerMetadata | None = None

    @property
    def was_listed(self) -> bool:
        return self._before is not None

    @property
    def is_fuller(self) -> bool:
        """Whether more of its memory is in use than any line has said."""
        return self.notices is not None and self.notices.notices.is_fuller

    def has_free_memory(self, used_bytes: int | None) -> bool:
        """Whether so little of its memory is in use that no line is due; False until its notices
        have begun.
        """
        if self.notices is None:
            return False
        size_bytes = self.notices.memory_size_bytes
        return not size_bytes or used_bytes is None or used_bytes < NEAR_FULL_SHARE * size_bytes

    def add_listed(self, listed: ContainerMetadata) -> ContainerMetadata:
        """Add the container as it is listed now."""
        before = self._before
        self.container = with_first_start_of(self._before, listed)
        known_id = listed.docker_id or (before or listed).docker_id
        self._before = replace(self.container, docker_id=known_id)
        self.is_listed = True
        return self.container

    def keep_totals_only(self) -> None:
        """Drop the data that only batches need."""
        self.may_be_batch = False
        self.usage.keep_totals_only()


class FollowedContainers:
    """The containers of one task: ``all`` of them, and those that are ``listed`` at present, in
    the task's order.
    """

    def __init__(self) -> None:
        self.all: list[FollowedContainer] = []
        self.listed: list[FollowedContainer] = []

    def container_named(self, name: str) -> FollowedContainer:
        """The container of this task with the name, also before it is listed."""
        for followed in self.all:
            if followed.container.name == name:
                return followed
        new = FollowedContainer(ContainerMetadata(name=name))
        self.all.append(new)
        return new

    def add_task(self, task: TaskMetadata) -> TaskMetadata:
        """Add the task as it is now.

        Returns it with one container a name, which has all its attempts.
        """
        for followed in self.listed:
            followed.is_listed = False
        self.listed = []
        joined: list[ContainerMetadata] = []
        for container in task.containers_by_name.values():
            followed = self.container_named(container.name)
            self.listed.append(followed)
            joined.append(followed.add_listed(container))
        return replace(task, containers=tuple(joined))
