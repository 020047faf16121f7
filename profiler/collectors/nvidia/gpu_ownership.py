"""Determines which of the visible GPUs belong to the batch, by settings or by ``NVIDIA_VISIBLE_DEVICES``."""

from collections.abc import Callable, Collection, Iterator

from msgspec import Struct
from msgspec.structs import replace

from profiler.collectors.nvidia.gpu_reading_types import GpuFacts
from profiler.readers.ecs.task_metadata import ContainerMetadata

# Every UUID begins with one of these: alone they identify nothing.
_UUID_TYPE_PREFIXES = ("gpu-", "mig-")
_ALL = "all"
_NONE = frozenset({"none", "void"})


def match_uuids(selectors: Collection[str], visible: Collection[GpuFacts]) -> frozenset[str]:
    """The UUIDs of the visible GPUs that the selectors name.

    Args:
        selectors: UUIDs or unique beginnings of them, GPU indices, or ``GPU:INSTANCE``. An ambiguous or unknown one
            matches nothing.
        visible: All GPUs and instances that were read.
    """
    return frozenset(uuid for selector in selectors for uuid in _matching_uuids(selector.casefold(), visible))


def _matching_uuids(selector: str, visible: Collection[GpuFacts]) -> Iterator[str]:
    uuid = _resolve_uuid(selector, visible)
    for facts in visible:
        if uuid in _uuids(facts) or selector in (str(facts.index), f"{facts.index}:{facts.mig_index}"):
            yield facts.uuid


def _resolve_uuid(selector: str, visible: Collection[GpuFacts]) -> str | None:
    """The UUID that begins with the selector; None unless it is exactly one."""
    known = {uuid for facts in visible for uuid in _uuids(facts)}
    if selector in known:
        return selector
    prefixed = [uuid for uuid in known if uuid.startswith(selector)]
    is_uuid_prefix = selector.startswith(_UUID_TYPE_PREFIXES) and selector not in _UUID_TYPE_PREFIXES
    return prefixed[0] if is_uuid_prefix and len(prefixed) == 1 else None


def _uuids(facts: GpuFacts) -> tuple[str, ...]:
    """The device's own UUID and, for an instance, that of its GPU."""
    return tuple(uuid.casefold() for uuid in (facts.uuid, facts.parent_uuid) if uuid is not None)


class GpuSelection(Struct, frozen=True, kw_only=True):
    """The GPUs of a batch: ``selectors`` as configured, None for all visible GPUs.

    ``is_known`` is False if the selection is only an assumption. ``is_from_own_environment`` means that it was read
    from this process's environment; its meaning then depends on the visible GPUs (see :func:`resolve`).
    """

    selectors: frozenset[str] | None = None
    is_known: bool = False
    is_from_own_environment: bool = False


class GpuScope:
    """Keeps the GPU selection of each batch container.

    Args:
        configured: The UUIDs of the settings, which take precedence; empty for none.
        visible_devices: Returns ``NVIDIA_VISIBLE_DEVICES`` of a container by its Docker id, None if it is unknown.
        default: The selection of a container whose own is unknown.
    """

    def __init__(
        self,
        configured: tuple[str, ...],
        visible_devices: Callable[[str], str | None] = lambda _: None,
        *,
        default: GpuSelection = GpuSelection(),  # noqa: B008  frozen
    ) -> None:
        self._visible_devices = visible_devices
        self._default = default
        self._configured = GpuSelection(selectors=frozenset(configured), is_known=True) if configured else None
        self._by_container: dict[str, GpuSelection] = {}

    def discover(self, container: ContainerMetadata) -> None:
        """Read the selection from the container's processes, unless it is known already."""
        if self._configured is not None or container.name in self._by_container or container.docker_id is None:
            return
        value = self._visible_devices(container.docker_id)
        if value is not None:
            self._by_container[container.name] = parse_visible_devices(value)

    def selection_for(self, container_name: str) -> GpuSelection:
        return self._configured or self._by_container.get(container_name, self._default)

    def selection_for_all(self) -> GpuSelection:
        """The GPUs of all containers with a known selection."""
        known = [selection.selectors for selection in self._by_container.values()]
        if self._configured is not None or not known:
            return self._configured or self._default
        restricted = [selectors for selectors in known if selectors is not None]
        is_any_unrestricted = len(restricted) < len(known)
        return GpuSelection(
            selectors=None if is_any_unrestricted else frozenset[str]().union(*restricted), is_known=True
        )


def parse_visible_devices(visible_devices: str) -> GpuSelection:
    """Parse ``NVIDIA_VISIBLE_DEVICES``: UUIDs or indices separated by commas, ``all``, ``none`` or ``void``.

    An empty value is the same as an absent variable: the selection is unknown.
    """
    value = visible_devices.strip()
    if not value:
        return GpuSelection()
    if value == _ALL:
        return GpuSelection(is_known=True)
    if value in _NONE:
        return GpuSelection(selectors=frozenset(), is_known=True)
    return GpuSelection(selectors=frozenset(part.strip() for part in value.split(",") if part.strip()), is_known=True)


def own_selection(visible_devices: str) -> GpuSelection:
    """The selection of a command, by ``NVIDIA_VISIBLE_DEVICES`` of the process that starts it.

    ``none`` and ``void`` make the selection unknown.
    """
    selection = parse_visible_devices(visible_devices)
    return (
        GpuSelection()
        if selection.selectors is not None and not selection.selectors
        else replace(selection, is_from_own_environment=selection.is_known)
    )


def resolve(selection: GpuSelection, visible: Collection[GpuFacts]) -> GpuSelection:
    """Resolve a selection from this process's environment against the visible GPUs.

    In a container only the selected GPUs are visible, and their indices begin at 0 whatever they were on the machine:
    if as many GPUs are visible as were selected, all of them are meant. Otherwise the selectors are matched; if
    nothing matches, the selection is unknown.
    """
    if not selection.is_from_own_environment or selection.selectors is None:
        return selection
    if _count_matches(selection.selectors, visible):
        return GpuSelection(is_known=True)
    uuids = match_uuids(selection.selectors, visible)
    return GpuSelection(selectors=uuids, is_known=True) if uuids else GpuSelection()


def _count_matches(indices: Collection[str], visible: Collection[GpuFacts]) -> bool:
    """Whether as many GPUs, or instances as ``0:1``, are visible as there are indices; False for UUIDs, which stay."""
    if all(selector.isdecimal() for selector in indices):
        return len(indices) == len({facts.physical_uuid for facts in visible})
    are_instances = all(selector.replace(":", "", 1).isdecimal() for selector in indices)
    return are_instances and len(indices) == len(visible)
