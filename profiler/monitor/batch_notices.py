"""The notices of the running batches of a task, from the samples of the batches."""

from collections.abc import Iterator

from msgspec import Struct

from profiler.aggregation.container_usage import BLOCK_COUNTERS, ContainerUsage
from profiler.aggregation.idle_time import NoticeReading
from profiler.aggregation.record_parts import container_limits
from profiler.aggregation.run_notices import NoticeFinding, RunNotices
from profiler.core.clock import Clock
from profiler.core.ecs_terms import FARGATE
from profiler.core.optional_math import any_known, sum_of_both
from profiler.monitor.followed_container import FollowedContainer, NoticeState
from profiler.monitor.task_sampler import TaskSampler
from profiler.readers.container_sample import ContainerSample
from profiler.readers.ecs.task_metadata import ContainerMetadata, TaskMetadata
from profiler.settings import TaskSettings


class BatchNotices(Struct, eq=False):
    """The notices of all batches of the task."""

    _settings: TaskSettings
    _sampler: TaskSampler
    _clock: Clock
    _own_line_ns: int | None = None

    def find_new(
        self, batch: FollowedContainer, task: TaskMetadata
    ) -> Iterator[tuple[RunNotices, NoticeFinding]]:
        """The conditions that the last sample of a running batch meets for the first time, with its
        notices so far.
        """
        state = self._notice_state(batch)
        usage = batch.usage
        if state is None or usage.last_sample is None or usage.samples == state.samples:
            return
        state.samples = usage.samples
        for finding in state.notices.add_reading(
            self._notice_reading(state, batch.container, task, usage, usage.last_sample)
        ):
            yield state.notices, finding

    def find_overdue(self, batch: FollowedContainer) -> Iterator[tuple[RunNotices, NoticeFinding]]:
        """The finding, once, that a running batch takes longer than expected."""
        state = self._notice_state(batch)
        if state is None:
            return
        for finding in state.notices.find_if_overdue(self._now_ns(state)):
            yield state.notices, finding

    def _notice_state(self, batch: FollowedContainer) -> NoticeState | None:
        """The notices of a batch, which begin now if it has none; None unless it runs."""
        if batch.container.is_ending:
            return None
        state = batch.notices
        if state is None and batch.container.started_ns is not None:
            notices = RunNotices(
                batch.container.started_ns,
                stuck_minutes=self._settings.stuck_minutes,
                expected_seconds=self._settings.expected_seconds,
                interval_ns=self._sampler.interval_ns,
            )
            state = NoticeState(notices, self._clock.wall_ns() - self._clock.monotonic_ns())
            batch.notices = state
        return state

    def on_line(self) -> None:
        self._own_line_ns = self._clock.monotonic_ns()

    @property
    def want_silence(self) -> bool:
        """Whether the monitor's own lines should wait, because they would hide that a batch is
        stuck.
        """
        task = self._sampler.task
        if task is None or task.launch_type != FARGATE:
            return False
        for followed in self._sampler.followed.all:
            state = followed.notices
            if state is not None and state.notices.wants_silence(self._now_ns(state)):
                return True
        return False

    def _now_ns(self, state: NoticeState) -> int:
        return self._clock.monotonic_ns() + state.wall_offset_ns

    def _measures_blocks(self) -> bool:
        """Whether a container has counters of block devices: one without them has done no I/O
        then (cgroup v2).
        """
        for followed in self._sampler.followed.all:
            traffic = followed.usage.traffic_by_counter()
            if any_known(*(traffic[name] for name in BLOCK_COUNTERS)):
                return True
        return False

    def _notice_reading(
        self,
        state: NoticeState,
        container: ContainerMetadata,
        task: TaskMetadata,
        usage: ContainerUsage,
        sample: ContainerSample,
    ) -> NoticeReading:
        """The last sample; the CPU time counts as missing, not as idle, if the container was
        restarted.
        """
        cpu_ns = None if sample.cpu_ns is None else usage.cpu_total_ns
        if task is not state.task:  # the task is read every few seconds
            state.measures_blocks = self._measures_blocks()
            state.task = task
            attempt = (container.docker_id, container.restart_count)
            state.memory_size_bytes = container_limits(
                container, task, self._sampler.host, usage.memory_limit_bytes
            ).memory_bytes
            if attempt != state.attempt:
                state.attempt = attempt
                cpu_ns = None
        own_line_ns = None
        # On Fargate, the log driver uses the network of the task.
        if task.launch_type == FARGATE and container.shares_network:
            own_line_ns = sum_of_both(self._own_line_ns, state.wall_offset_ns)
        network_bytes, block_bytes = usage.traffic_bytes()
        has_blocks = any_known(sample.block_read_bytes, sample.block_write_bytes)
        is_network_known = None not in (sample.network_rx_bytes, sample.network_tx_bytes)
        return NoticeReading(
            at_ns=usage.last_read_by_start_ns or sample.read_ns,
            cpu_ns=cpu_ns,
            network_bytes=network_bytes if is_network_known else None,
            block_bytes=block_bytes if has_blocks or state.measures_blocks else None,
            own_line_ns=own_line_ns,
            memory_used_bytes=sample.memory_used_bytes,
            memory_size_bytes=state.memory_size_bytes,
            disk_used_mb=task.ephemeral_storage_used_mib,
            disk_size_mb=task.ephemeral_storage_size_mib,
        )
