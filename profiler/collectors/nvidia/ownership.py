"""Which of the visible GPUs belong to the batch."""

from collections.abc import Callable, Collection, Iterator

from msgspec import Struct
from msgspec.structs import replace

from profiler.collectors.nvidia.readings import GpuFacts
from profiler.sources.ecs.task_metadata import ContainerMetadata

# Below that it is the beginning of every UUID.
_UUID_TYPE_PREFIXES = ("gpu-", "mig-")


def match_uuids(selectors: Collection[str], visible: Collection[GpuFacts]) -> frozenset[str]:
    """The UUIDs of those that are meant; what is ambiguous or names nothing adds none."""
    return frozenset(uuid for selector in selectors for uuid in _matching_uuids(selector.casefold(), visible))


def _matching_uuids(selector: str, visible: Collection[GpuFacts]) -> Iterator[str]:
    uuid = _resolve_uuid(selector, visible)
    for facts in visible:
        if uuid in _uuids(facts) or selector in (str(facts.index), f"{facts.index}:{facts.mig_index}"):
            yield facts.uuid


def _resolve_uuid(selector: str, visible: Collection[GpuFacts]) -> str | None:
    """What begins so, if that is one GPU or instance only."""
    known = {uuid for facts in visible for uuid in _uuids(facts)}
    if selector in known:
        return selector
    prefixed = [uuid for uuid in known if uuid.startswith(selector)]
    is_uuid_prefix = selector.startswith(_UUID_TYPE_PREFIXES) and selector not in _UUID_TYPE_PREFIXES
    return prefixed[0] if is_uuid_prefix and len(prefixed) == 1 else None


def _uuids(facts: GpuFacts) -> tuple[str, ...]:
    """Its own UUID, and that of the GPU of which it is an instance."""
    return tuple(uuid.casefold() for uuid in (facts.uuid, facts.parent_uuid) if uuid is not None)


_ALL = "all"
_NONE = frozenset({"none", "void"})


class GpuSelection(Struct, frozen=True, kw_only=True):
    """The batch's GPUs, as they were spelled; None for all that are visible.

    ``is_known``: it was told, not assumed. ``is_from_own_environment``: by this process's own environment, so what is
    visible decides what it means (see ``resolve``).
    """

    selectors: frozenset[str] | None = None
    is_known: bool = False
    is_from_own_environment: bool = False


class GpuScope:
    """Remembers the selection for each batch container, once it is found; ``default`` holds until then."""

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
        """Ask the container's processes, until they have told it once."""
        if self._configured is not None or container.name in self._by_container or container.docker_id is None:
            return
        value = self._visible_devices(container.docker_id)
        if value is not None:
            self._by_container[container.name] = parse_visible_devices(value)

    def selection_for(self, container_name: str) -> GpuSelection:
        """The GPUs of a container."""
        return self._configured or self._by_container.get(container_name, self._default)

    def selection_for_all(self) -> GpuSelection:
        """The GPUs of all containers that were looked at."""
        found = [selection.selectors for selection in self._by_container.values()]
        if self._configured is not None or not found:
            return self._configured or self._default
        restricted = [selectors for selectors in found if selectors is not None]
        is_any_unrestricted = len(restricted) < len(found)
        return GpuSelection(
            selectors=None if is_any_unrestricted else frozenset[str]().union(*restricted), is_known=True
        )


def parse_visible_devices(visible_devices: str) -> GpuSelection:
    """What ``NVIDIA_VISIBLE_DEVICES`` means: UUIDs or indices with commas between them, ``all``, ``none`` or ``void``.

    An empty value is like none at all: it tells nothing.
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
    """What ``NVIDIA_VISIBLE_DEVICES`` of this process says of a command that it starts; none is no knowledge."""
    selection = parse_visible_devices(visible_devices)
    return (
        GpuSelection()
        if selection.selectors is not None and not selection.selectors
        else replace(selection, is_from_own_environment=selection.is_known)
    )


def resolve(selection: GpuSelection, visible: Collection[GpuFacts]) -> GpuSelection:
    """What a selection means where these are visible.

    In a container the indices begin at 0, whatever they were on the machine, and nothing else is
    visible: as many as were named are those that were. Elsewhere it is those that are named, and
    where none is nothing is known.
    """
    if not selection.is_from_own_environment or selection.selectors is None:
        return selection
    if _count_matches(selection.selectors, visible):
        return GpuSelection(is_known=True)
    meant = match_uuids(selection.selectors, visible)
    return GpuSelection(selectors=meant, is_known=True) if meant else GpuSelection()


def _count_matches(indices: Collection[str], visible: Collection[GpuFacts]) -> bool:
    """Whether so many GPUs, or instances as ``0:1``, are visible; UUIDs are never given anew."""
    if all(selector.isdecimal() for selector in indices):
        return len(indices) == len({facts.physical_uuid for facts in visible})
    by_place = all(selector.replace(":", "", 1).isdecimal() for selector in indices)
    return by_place and len(indices) == len(visible)
