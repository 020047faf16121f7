"""The GPUs that are visible, their readings, and which of them belong to the batch."""

from collections.abc import Callable, Collection, Mapping

from msgspec import Struct

from profiler.core.text import names_in
from profiler.readers.ecs.task_metadata import ContainerMetadata

ENERGY = "energy_millijoules"


class GpuFacts(Struct, frozen=True, kw_only=True):
    """The identity of a GPU."""

    uuid: str
    index: int
    name: str | None = None


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
    return frozenset(
        facts.uuid for facts in visible if not {facts.uuid, str(facts.index)}.isdisjoint(selectors)
    )


class GpuSelection(Struct, frozen=True, kw_only=True):
    """The GPUs of a batch; all visible ones if ``selectors`` is None.

    Without ``is_known``, it is an assumption.
    """

    selectors: frozenset[str] | None = None
    is_known: bool = False


class GpuScope:
    """The GPUs of each batch: configured, else by NVIDIA_VISIBLE_DEVICES of a Docker id, else by
    ``own``.

    ``own`` is the variable of this process. Its selection depends on the GPUs that are visible.
    With ``has_all_ids``, a Docker id without the variable has no GPU.
    """

    def __init__(
        self,
        configured: tuple[str, ...],
        visible_devices: Callable[[str], str | None] = lambda _: None,
        own: str = "",
        *,
        has_all_ids: bool = False,
    ) -> None:
        self._visible_devices = visible_devices
        self._own = parse_visible_devices(own)
        self._configured: GpuSelection | None = None
        if configured:
            self._configured = GpuSelection(selectors=frozenset(configured), is_known=True)
        self._otherwise: GpuSelection | None = None
        if has_all_ids:
            self._otherwise = GpuSelection(selectors=frozenset(), is_known=True)
        self.known: dict[str, GpuSelection] = {}  # by followed_id

    def discover(self, container: ContainerMetadata) -> None:
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
        return GpuSelection(selectors=selectors, is_known=True)

    def _own_selection(self, visible: Collection[GpuFacts]) -> GpuSelection:
        """By the environment.

        In a container, as many visible as selected GPUs are the batch's: indices begin at 0.
        """
        selectors = self._own.selectors
        if selectors is None:
            return self._own
        if selectors and all(map(str.isdecimal, selectors)) and len(selectors) == len(visible):
            return GpuSelection(is_known=True)
        uuids = match_uuids(selectors, visible)
        if not uuids:
            return GpuSelection()
        return GpuSelection(selectors=uuids, is_known=True)


def parse_visible_devices(visible_devices: str) -> GpuSelection:
    """Parse ``NVIDIA_VISIBLE_DEVICES``: UUIDs, indices, ``all``, ``none`` or ``void``; empty is
    unknown.
    """
    value = visible_devices.strip()
    if value in ("", "all"):
        return GpuSelection(is_known=bool(value))
    if value in ("none", "void"):
        return GpuSelection(selectors=frozenset(), is_known=True)
    return GpuSelection(selectors=frozenset(names_in(value)), is_known=True)
