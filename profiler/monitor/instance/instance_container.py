"""One container of a task on the instance: its phase, its attempts and its samples.

A restart policy starts the same container again, 0.2 to 0.4 s after its end. :data:`_NEXT` is the
table of the phases; what it does not list changes nothing:

| phase   | seen    | next    | meaning                                                  |
|---------|---------|---------|----------------------------------------------------------|
| running | died    | ending  | an attempt is over; another one may follow               |
| running | removed | lost    | Docker removed it, and nobody saw how it ended           |
| ending  | started | running | another attempt                                          |
| ending  | settled | ended   | no attempt follows: its end is reported                  |
| ended   | started | again   | an attempt after the report: only its CPU time counts    |
| again   | died    | ended   |                                                          |
| again   | removed | lost    |                                                          |
"""

from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from profiler.core.ecs_terms import CPU_UNITS
from profiler.core.optional_math import any_known, sum_known
from profiler.monitor.instance.stop_signals import StopSignals
from profiler.readers import Unavailable
from profiler.readers.cgroup.container_group import GroupReading
from profiler.readers.container_sample import ContainerSample
from profiler.readers.docker.docker_api import ContainerEvent
from profiler.readers.docker.ecs_container import EcsContainer
from profiler.readers.docker.task_groups import (
    CLOSED_GROUP,
    InstanceCgroups,
    OpenGroup,
    UnopenedGroup,
    unopened_missing_group,
)
from profiler.readers.ecs.task_metadata import (
    CPU_UNITS_UNSET,
    RUNNING,
    STOPPED,
    ContainerMetadata,
)

Phase = Literal["running", "ending", "ended", "again", "lost"]
Seen = Literal["died", "started", "settled", "removed"]
_NEXT: Mapping[tuple[Phase, Seen], Phase] = {
    ("running", "died"): "ending",
    ("running", "removed"): "lost",
    ("ending", "started"): "running",
    ("ending", "settled"): "ended",
    ("ended", "started"): "again",
    ("again", "died"): "ended",
    ("again", "removed"): "lost",
}
# The agent's own container uses next to nothing.
_PAUSE = "~internal~"
_BLOCK_BYTES = ("block_read_bytes", "block_write_bytes")
_NETWORK_BYTES = ("network_rx_bytes", "network_tx_bytes")
# The network of the agent's pause container (awsvpc) lasts longer than an attempt.
_NETWORK_OF_TASK = "container:"
# The bytes that a process's network namespace has received and sent; None if they are not visible.
ReadNetwork = Callable[[int], tuple[int, int] | None]


def next_phase(phase: Phase, seen: Seen) -> Phase:
    """The phase after something was seen."""
    return _NEXT.get((phase, seen), phase)


def is_pause_container(container_name: str) -> bool:
    """Whether the agent has added the container."""
    return container_name.startswith(_PAUSE)


class InstanceContainer(Struct, eq=False):
    """A container and its state.

    ``earlier_starts_ns`` are those of the attempts before it was inspected for the first time,
    ``start_seen_ns`` is that of the last start event (wall clock), some ms after the start itself.
    ``cpu_ns`` is the CPU time of all its attempts, ``base_cpu_ns`` that of the earlier ones, and
    ``base_bytes`` are their bytes by the field of a sample.
    ``died`` is the event of its end, which was seen at ``died_ns`` (monotonic), ``at_end`` the
    task's group at ``at_end_ns`` (wall clock). Then ``cpu_ns`` is the group's less that of the
    ``counted`` containers, None if that of one of them was unknown. ``starting_at_end`` were being
    started by Docker at the time. ``task_mark_bytes`` is that
    group's mark when the container's rose to ``mark_bytes``: it includes some memory of the group's
    own, so it is above the container's. ``machine_kills`` are the kernel's kills on the machine
    when the container was first seen to run; ``excludes_memory_kill``: the last attempt ended
    without one.
    """

    inspected: EcsContainer
    phase: Phase = "running"
    group: OpenGroup | UnopenedGroup = CLOSED_GROUP
    last: ContainerSample | None = None
    earlier_starts_ns: tuple[int, ...] = ()
    start_seen_ns: int | None = None
    cpu_ns: int | None = None
    base_cpu_ns: int = 0
    base_bytes: Mapping[str, int | None] = {}
    died_ns: int = 0
    died: ContainerEvent | None = None
    at_end: GroupReading = GroupReading()
    at_end_ns: int = 0
    counted: frozenset[str] | None = None
    starting_at_end: frozenset[str] = frozenset()
    mark_bytes: int | None = None
    task_mark_bytes: int | None = None
    stop_signals: StopSignals = StopSignals()
    was_out_of_memory: bool = False
    machine_kills: int | None = None
    excludes_memory_kill: bool = False
    is_removed: bool = False

    @property
    def docker_id(self) -> str:
        return self.inspected.docker_id

    @property
    def name(self) -> str:
        return self.inspected.labels.container_name

    @property
    def is_pause(self) -> bool:
        return is_pause_container(self.name)

    @property
    def has_run(self) -> bool:
        """Docker may hang after it has shown a container that was only created."""
        return any_known(self.inspected.started_ns, self.died, self.start_seen_ns)

    def is_cpu_time_known(self, sharers: AbstractSet[str]) -> bool:
        """Whether its CPU time at its end is known without that of these."""
        return self.counted is not None and sharers <= self.counted

    @property
    def has_ended(self) -> bool:
        """Whether the last attempt is over."""
        return self.phase in ("ending", "ended")

    @property
    def is_ending(self) -> bool:
        return self.phase == "ending"

    @property
    def is_settled(self) -> bool:
        """Whether its end was accepted: it is reported once."""
        return self.phase in ("ended", "again")

    @property
    def finished_ns(self) -> int | None:
        if self.inspected.finished_ns is not None or self.died is None:
            return self.inspected.finished_ns
        return self.died.time_ns

    @property
    def exit_code(self) -> int | None:
        if self.inspected.exit_code is not None or self.died is None:
            return self.inspected.exit_code
        return self.died.exit_code

    def note_seen(self, seen: Seen) -> None:
        self.phase = next_phase(self.phase, seen)

    def open_group(self, groups: InstanceCgroups) -> None:
        """Open the group of the attempt that runs."""
        self.close()
        if self.machine_kills is None:
            self.machine_kills = groups.machine_oom_kills()
        group = groups.open_container(self.docker_id, self.inspected.cgroup_parent)
        self.group = unopened_missing_group(group) if isinstance(group, Unavailable) else group

    def read_sample(
        self, read_ns: int, read_network: ReadNetwork = lambda _pid: None
    ) -> ContainerSample | Unavailable | None:
        """The sample of a running container, with the CPU time of its earlier attempts; None if
        it has just ended.
        """
        sample = self.group.read_sample(read_ns)
        if isinstance(sample, Unavailable):
            return None if sample.is_gone else sample
        if self.base_cpu_ns and sample.cpu_ns is not None:
            sample = replace(sample, cpu_ns=sample.cpu_ns + self.base_cpu_ns)
        if self.inspected.network_mode != "host":
            network = read_network(self.inspected.pid or 0)
            if network is not None:
                received_bytes, sent_bytes = network
                sample = replace(
                    sample, network_rx_bytes=received_bytes, network_tx_bytes=sent_bytes
                )
        if self.base_bytes:
            totals = {}
            for name, base_bytes in self.base_bytes.items():
                totals[name] = sum_known(base_bytes, getattr(sample, name))
            sample = replace(sample, **totals)
        self.last = sample
        self.cpu_ns = sample.cpu_ns
        return sample

    def note_mark(self, sample: ContainerSample, task_group: OpenGroup | UnopenedGroup) -> None:
        """Read the task's mark if the container's has changed: else it rose without this
        container, or not at all.
        """
        if self.task_mark_bytes is None or sample.memory_usage_peak_bytes != self.mark_bytes:
            self.mark_bytes = sample.memory_usage_peak_bytes
            self.task_mark_bytes = task_group.mark_bytes()

    def begin_again(self) -> None:
        """Another attempt has begun, whose group counts from 0."""
        self.note_seen("started")
        self.base_cpu_ns = self.cpu_ns or 0
        counted = list(_BLOCK_BYTES)
        if not (self.inspected.network_mode or "").startswith(_NETWORK_OF_TASK):
            counted += _NETWORK_BYTES
        if self.last is not None:
            self.base_bytes = {name: getattr(self.last, name) for name in counted}
        self.died = None
        self.excludes_memory_kill = False
        self.stop_signals = StopSignals()

    def end_attempt(self, died_ns: int, machine_kills: int | None) -> None:
        """An attempt is over; the kernel counts a kill before the process ends."""
        if machine_kills is not None and machine_kills == self.machine_kills:
            self.excludes_memory_kill = True
        self.note_seen("died")
        self.died_ns = died_ns
        self.counted = None
        self.close()

    def close(self) -> None:
        self.group.close()
        self.group = CLOSED_GROUP

    def as_described(self, known: ContainerMetadata) -> ContainerMetadata:
        """The container as Docker shows it; what is left is from the agent."""
        inspected = self.inspected
        known_status = known.known_status
        if self.has_run:
            known_status = RUNNING
        if self.is_settled:
            known_status = STOPPED
        vcpu_share = known.vcpu_share
        if not vcpu_share and (inspected.cpu_shares or 0) > CPU_UNITS_UNSET:
            vcpu_share = (inspected.cpu_shares or 0) / CPU_UNITS
        first_start_ns = inspected.started_ns or self.start_seen_ns
        if self.earlier_starts_ns and first_start_ns is not None:
            first_start_ns = min(*self.earlier_starts_ns, first_start_ns)
        return replace(
            known,
            docker_id=inspected.docker_id,
            image=known.image or inspected.image,
            image_digest=known.image_digest or inspected.image_digest,
            known_status=known_status,
            exit_code=self.exit_code if self.is_settled else None,
            started_ns=first_start_ns,
            attempt_started_ns=inspected.started_ns,
            seen_restarts=len(self.earlier_starts_ns),
            finished_ns=self.finished_ns if self.is_settled else None,
            is_ending=self.is_ending,
            vcpu_share=vcpu_share,
            memory_limit_bytes=inspected.memory_limit_bytes or known.memory_limit_bytes,
            log_driver=inspected.log_driver,
            log_options=inspected.log_options,
            stop_signalled_ns=self.stop_signals.signalled_ns,
            is_stop_denied=self.stop_signals.is_stop_denied,
            was_out_of_memory=self.was_out_of_memory or inspected.oom_killed,
            excludes_memory_kill=self.excludes_memory_kill and self.is_settled,
        )
