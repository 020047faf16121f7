"""The GPUs that are visible, their readings, and which of them belong to the batch."""

from collections.abc import Callable, Collection, Mapping
from typing import Protocol

from msgspec import Struct

from profiler.aggregation.record_parts import RecordPart
from profiler.aggregation.statistics import UseWindow
from profiler.core.text import split_names
from profiler.readers.ecs.task_metadata import ContainerMetadata
from profiler.record.record_model import Record
from profiler.record.units import MIB

ENERGY = "energy_millijoules"
# A process that comes or goes changes a GPU's memory by more: a context takes 250 to 650 MiB.
CHANGED_BYTES = 64 * MIB
_NO_DRIVER = "NVIDIA's driver is not in its container"


class MigPart(Struct, frozen=True, kw_only=True):
    """Which part of a GPU that MIG (Multi-Instance GPU) divides: the ``place``-th of the GPU.

    ``instance`` is the driver's number of it in error events, None if it does not say it.
    """

    gpu_uuid: str
    gpu_index: int
    place: int
    instance: int | None = None


class GpuFacts(Struct, frozen=True, kw_only=True):
    """The identity of a GPU, or of a part of one. ``link_bytes_per_second``: what its PCIe link
    can move one way. ``is_divided``: MIG divides it, and its parts are not visible here.
    """

    uuid: str
    index: int
    name: str | None = None
    link_bytes_per_second: float | None = None
    part: MigPart | None = None
    is_divided: bool = False

    @property
    def selectors(self) -> frozenset[str]:
        """The words of ``NVIDIA_VISIBLE_DEVICES`` that select it."""
        if self.part is None:
            return frozenset({self.uuid, str(self.index)})
        part, index = self.part, str(self.part.gpu_index)
        return frozenset({self.uuid, part.gpu_uuid, index, f"{index}:{part.place}"})


class GpuProcess(Struct, frozen=True, gc=False):
    """A process with a context on a GPU, by its id in the pid namespace of this process.

    ``memory_bytes`` is None if the driver does not say it, or says 0 (drivers before 565 do so in
    a container).
    """

    pid: int
    memory_bytes: int | None = None
    is_only_graphics: bool = False  # as a display server


class GpuSample(Struct, frozen=True, kw_only=True):
    """One GPU at one moment; a field that the GPU did not report is None.

    Utilization is the share of the driver's last averaging window (1/6 to 1 s) in which a kernel
    ran. ``counters`` (the driver's, read rarely: energy in millijoules, and others) and ``amounts``
    are by the record's field, but for ENERGY. ``impossible`` are the values that were read and
    cannot be: they are missing. The fields from ``sm_active_percent`` on are GPM's
    (Hopper and newer), over the last ``gpm_ns``.
    """

    facts: GpuFacts
    utilization_percent: float | None = None
    memory_used_bytes: int | None = None
    memory_size_bytes: int | None = None
    power_watts: float | None = None
    sm_clock_mhz: int | None = None
    temperature_celsius: int | None = None
    throttle_reasons: int | None = None
    counters: Mapping[str, int] = {}
    sm_active_percent: float | None = None
    sm_occupancy_percent: float | None = None
    tensor_active_percent: float | None = None
    dram_active_percent: float | None = None
    amounts: Mapping[str, int] = {}
    gpm_ns: int | None = None
    impossible: tuple[str, ...] = ()
    # GPM's share of the time in which any kernel ran; copies do not count.
    kernel_percent: float | None = None
    # Its first sample was taken now: it says nothing of the time before.
    is_gpm_begun: bool = False
    # None if the driver does not list them.
    processes: tuple[GpuProcess, ...] | None = None
    # The driver's own samples of utilization since the last that were read; None if not read now.
    windows: tuple[UseWindow, ...] | None = None


class GpuLimits(Struct, frozen=True, kw_only=True):
    """What CUDA's Multi-Process Service lets a container have of a GPU that it shares.

    ``memory`` is ``CUDA_MPS_PINNED_DEVICE_MEM_LIMIT`` in bytes by the device's number.
    """

    memory: Mapping[str, int] = {}
    compute_percent: float | None = None
    is_mps: bool = False

    def memory_bytes(self, index: int) -> int | None:
        """The limit on a GPU. A container numbers its GPUs from 0 on: the only one is meant."""
        if len(self.memory) == 1:
            return next(iter(self.memory.values()))
        return self.memory.get(str(index))


_PERCENT = 100
_SIZES = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def parse_limits(environment: Mapping[str, str]) -> GpuLimits:
    """Read the limits of MPS from a container's environment; ECS sets ``0=4096M`` and ``25``."""
    memory: dict[str, int] = {}
    for part in environment.get("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "").split(","):
        device, _, size = part.strip().partition("=")
        size = size.strip().upper().removesuffix("B")
        if device.strip() and size[:-1].isdecimal() and size[-1:] in _SIZES:
            memory[device.strip()] = int(size[:-1]) * _SIZES[size[-1]]
    percent = environment.get("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "").strip()
    compute = None
    if percent.replace(".", "", 1).isdecimal() and 0 < float(percent) <= _PERCENT:
        compute = float(percent)
    is_mps = bool(memory) or compute is not None or "CUDA_MPS_PIPE_DIRECTORY" in environment
    return GpuLimits(memory=memory, compute_percent=compute, is_mps=is_mps)


class Xid(Struct, frozen=True):
    """An error event of the driver (Xid).

    ``uuid`` is None if the GPU can no longer be identified.
    """

    uuid: str | None
    code: int


class DriverReading(Struct, frozen=True, kw_only=True):
    """All GPUs; those that were lost since the last reading, errors since then, and sentences
    about gaps.
    """

    samples: tuple[GpuSample, ...] = ()
    xids: tuple[Xid, ...] = ()
    lost: tuple[GpuFacts, ...] = ()
    notes: tuple[str, ...] = ()


def match_uuids(selectors: Collection[str], visible: Collection[GpuFacts]) -> frozenset[str]:
    """The UUIDs of the visible GPUs that the selectors match, which are UUIDs or indices."""
    return frozenset(facts.uuid for facts in visible if not facts.selectors.isdisjoint(selectors))


class GpuSelection(Struct, frozen=True, kw_only=True):
    """The GPUs of a batch; all visible ones if ``selectors`` is None.

    Without ``is_known``, it is an assumption. ``is_assigned``: a person or ECS named them, so that
    they are the batch's even if it does not use them.
    """

    selectors: frozenset[str] | None = None
    is_known: bool = False
    is_assigned: bool = False


class GpuScope:
    """The GPUs of each batch: configured, else by NVIDIA_VISIBLE_DEVICES of a Docker id, else by
    ``own``.

    ``own`` is the variable of this process. Its selection depends on the GPUs that are visible;
    they are the batch's even if it does not use them with ``is_own_assigned``.
    With ``has_all_ids``, a Docker id without the variable has no GPU.
    """

    def __init__(
        self,
        configured: tuple[str, ...],
        visible_devices: Callable[[str], str | None] = lambda _: None,
        own: str = "",
        *,
        has_all_ids: bool = False,
        is_own_assigned: bool = True,
    ) -> None:
        self._visible_devices = visible_devices
        self._own = parse_visible_devices(own)
        self._is_own_assigned = is_own_assigned
        self._configured: GpuSelection | None = None
        if configured:
            self._configured = GpuSelection(
                selectors=frozenset(configured), is_known=True, is_assigned=True
            )
        self._otherwise: GpuSelection | None = None
        if has_all_ids:
            self._otherwise = GpuSelection(selectors=frozenset(), is_known=True)
        self.known: dict[str, GpuSelection] = {}  # by followed_id

    def discover_selection(self, container: ContainerMetadata) -> None:
        """Read the selection from the container's processes, unless it is known already."""
        if (
            self._configured is not None
            or container.followed_id in self.known
            or container.docker_id is None
        ):
            return
        value = self._visible_devices(container.docker_id)
        if value is not None:
            self.known[container.followed_id] = parse_visible_devices(value)

    def forget(self, batch: str) -> None:
        self.known.pop(batch, None)

    def selection_for(self, batch: str, visible: Collection[GpuFacts]) -> GpuSelection:
        return (
            self._configured
            or self.known.get(batch)
            or self._otherwise
            or self._own_selection(visible)
        )

    def selection_for_all(self, visible: Collection[GpuFacts]) -> GpuSelection:
        """The GPUs of all containers with a known selection."""
        known = [selection.selectors for selection in self.known.values()]
        if self._configured is not None or not known:
            return self._configured or self._own_selection(visible)
        selectors = None
        if None not in known:
            selectors = frozenset[str]().union(*filter(None, known))
        is_assigned = selectors is not None
        return GpuSelection(selectors=selectors, is_known=True, is_assigned=is_assigned)

    def _own_selection(self, visible: Collection[GpuFacts]) -> GpuSelection:
        """The selection by the environment.

        In a container, as many visible as selected GPUs are the batch's: indices begin at 0.
        """
        selectors = self._own.selectors
        if selectors is None:
            return self._own
        if selectors and all(map(str.isdecimal, selectors)) and len(selectors) == len(visible):
            return GpuSelection(is_known=True, is_assigned=self._is_own_assigned)
        uuids = match_uuids(selectors, visible)
        if not uuids:
            return GpuSelection()
        return GpuSelection(selectors=uuids, is_known=True, is_assigned=self._is_own_assigned)


def parse_visible_devices(visible_devices: str) -> GpuSelection:
    """Parse ``NVIDIA_VISIBLE_DEVICES``: UUIDs, indices, ``all``, ``none`` or ``void``; empty is
    unknown.
    """
    value = visible_devices.strip()
    if value in ("", "all"):
        return GpuSelection(is_known=bool(value))
    if value in ("none", "void"):
        return GpuSelection(selectors=frozenset(), is_known=True)
    return GpuSelection(selectors=frozenset(split_names(value)), is_known=True, is_assigned=True)


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
