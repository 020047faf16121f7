"""Which of the visible GPUs are the batch's. Pure, but for the reader that is passed in.

A sidecar on an ECS GPU instance sees all GPUs of the instance; those of the batch are named by
the setting, or by the environment of its processes where these are visible (``pidMode: task``).
"""

from collections.abc import Callable, Collection

from msgspec import Struct
from msgspec.structs import replace

from profiler.accelerators.gpu_names import named
from profiler.sources.nvml.readings import GpuFacts
from profiler.sources.task_metadata import ContainerMetadata

_ALL = "all"
_NONE = frozenset({"none", "void"})


class Choice(Struct, frozen=True, kw_only=True):
    """The batch's GPUs, as they were spelled; None for all that are visible.

    ``is_known``: it was told, not assumed. ``is_own``: by this process's own environment, so what is
    visible decides what it means (see ``settled``).
    """

    wanted: frozenset[str] | None = None
    is_known: bool = False
    is_own: bool = False


class GpuScope:
    """Remembers the choice for each batch container, once it is found; ``otherwise`` holds until then."""

    def __init__(
        self,
        configured: tuple[str, ...],
        visible_devices: Callable[[str], str | None] = lambda _: None,
        *,
        otherwise: Choice = Choice(),  # noqa: B008  frozen
    ) -> None:
        self._visible_devices = visible_devices
        self._otherwise = otherwise
        self._configured = Choice(wanted=frozenset(configured), is_known=True) if configured else None
        self._found: dict[str, Choice] = {}

    def look(self, container: ContainerMetadata) -> None:
        """Ask the container's processes, until they have told it once."""
        if self._configured is not None or container.name in self._found or container.docker_id is None:
            return
        value = self._visible_devices(container.docker_id)
        if value is not None:
            self._found[container.name] = choice_of(value)

    def of(self, container_name: str) -> Choice:
        """The GPUs of a container."""
        return self._configured or self._found.get(container_name, self._otherwise)

    def of_all(self) -> Choice:
        """The GPUs of all containers that were looked at."""
        found = [choice.wanted for choice in self._found.values()]
        if self._configured is not None or not found:
            return self._configured or self._otherwise
        named = [wanted for wanted in found if wanted is not None]
        everything = len(named) < len(found)
        return Choice(wanted=None if everything else frozenset[str]().union(*named), is_known=True)


def choice_of(visible_devices: str) -> Choice:
    """What ``NVIDIA_VISIBLE_DEVICES`` means: UUIDs or indices with commas between them, ``all``, ``none`` or ``void``.

    An empty value is like none at all: it tells nothing.
    """
    value = visible_devices.strip()
    if not value:
        return Choice()
    if value == _ALL:
        return Choice(is_known=True)
    if value in _NONE:
        return Choice(wanted=frozenset(), is_known=True)
    return Choice(wanted=frozenset(part.strip() for part in value.split(",") if part.strip()), is_known=True)


def own_choice(visible_devices: str) -> Choice:
    """What ``NVIDIA_VISIBLE_DEVICES`` of this process says of a command that it starts; none is no knowledge."""
    choice = choice_of(visible_devices)
    return Choice() if choice.wanted is not None and not choice.wanted else replace(choice, is_own=choice.is_known)


def settled(choice: Choice, visible: Collection[GpuFacts]) -> Choice:
    """What a choice means where these are visible.

    In a container the indices begin at 0, whatever they were on the machine, and nothing else is
    visible: as many as were named are those that were. Elsewhere it is those that are named, and
    where none is nothing is known.
    """
    if not choice.is_own or choice.wanted is None:
        return choice
    if _are_as_many(choice.wanted, visible):
        return Choice(is_known=True)
    meant = named(choice.wanted, visible)
    return Choice(wanted=meant, is_known=True) if meant else Choice()


def _are_as_many(indices: Collection[str], visible: Collection[GpuFacts]) -> bool:
    """Whether so many GPUs, or instances as ``0:1``, are visible; UUIDs are never given anew."""
    if all(spelling.isdecimal() for spelling in indices):
        return len(indices) == len({facts.board for facts in visible})
    by_place = all(spelling.replace(":", "", 1).isdecimal() for spelling in indices)
    return by_place and len(indices) == len(visible)
