"""Which of the visible GPUs are the batch's. Pure, but for the reader that is passed in.

A sidecar on an ECS GPU instance sees all GPUs of the instance; those of the batch are named by
the setting, or by the environment of its processes where these are visible (``pidMode: task``).
"""

from collections.abc import Callable, Collection

from msgspec import Struct
from msgspec.structs import replace

from profiler.accelerators.gpu_names import match_uuids
from profiler.sources.nvml.readings import GpuFacts
from profiler.sources.task_metadata import ContainerMetadata

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
