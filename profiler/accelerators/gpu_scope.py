"""Which of the visible GPUs are the batch's. Pure, but for the reader that is passed in.

A sidecar on an ECS GPU instance sees all GPUs of the instance; those of the batch are named by
the setting, or by the environment of its processes where these are visible (``pidMode: task``).
"""

from collections.abc import Callable

from msgspec import Struct

from profiler.sources.task_metadata import ContainerMetadata

_ALL = "all"
_NONE = frozenset({"none", "void"})


class Choice(Struct, frozen=True, kw_only=True):
    """The batch's GPUs: UUIDs or indices, None for all that are visible.

    ``is_known``: it was told, not assumed.
    """

    wanted: frozenset[str] | None = None
    is_known: bool = False


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
