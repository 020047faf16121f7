"""Which containers of a task are the monitor: by name, by image, by what they start.

``profiler/batch.py`` tells them apart inside the task, where each is known by its name and image alone.
"""

import re
from collections.abc import Mapping, Sequence

from msgspec import Struct

_MONITOR_NAME = "task-monitor"
_MONITOR_IMAGE = "task-profiler"
# The program by its name or path, or as a module; "my-task-profiler" and "task-profiler-demo" are others.
_PROGRAM = r"(?<![\w.-])(?:task-profiler|-m\s+profiler)\s+"
_STARTS_MONITOR = re.compile(_PROGRAM + r"monitor(?![\w.-])")
_WRAPS_BATCH = re.compile(_PROGRAM + r"run(?![\w.-])")
_WRAP = "run"


class Candidate(Struct, frozen=True, kw_only=True):
    """A container by its name, and whether its image or what it starts are the monitor's."""

    name: str
    is_alike: bool = False

    @property
    def has_the_name(self) -> bool:
        """Whether it has the name that only the monitor has."""
        return self.name == _MONITOR_NAME


def as_candidate(container: Mapping[str, object]) -> Candidate:
    """A container of a task definition."""
    return Candidate(name=str(container.get("name")), is_alike=_is_alike(container))


def has_monitor_image(image: object) -> bool:
    """Whether the image is called task-profiler; its registry and namespace say nothing."""
    return str(image or "").rsplit("/", 1)[-1].split("@", 1)[0].split(":", 1)[0] == _MONITOR_IMAGE


def monitor_of(candidates: Sequence[Candidate], batch: str | None) -> str | None:
    """The container with the monitor's name, else the first that is like it and not the batch."""
    named = (one.name for one in candidates if one.has_the_name)
    alike = (one.name for one in candidates if one.is_alike and one.name != batch)
    return next(named, None) or next(alike, None)


def batches_of(candidates: Sequence[Candidate]) -> tuple[str, ...]:
    """Those that can be the batch. It may have the monitor's image: what is only like the monitor is it, if all are."""
    unnamed = [one for one in candidates if not one.has_the_name]
    return tuple(one.name for one in unnamed if not one.is_alike) or tuple(one.name for one in unnamed)


def _is_alike(container: Mapping[str, object]) -> bool:
    command = _words(container.get("command"))
    started = " ".join([*_words(container.get("entryPoint")), *command])
    has_image = has_monitor_image(container.get("image"))
    if _WRAPS_BATCH.search(started) or (has_image and command[:1] == [_WRAP]):
        return False
    return has_image or _STARTS_MONITOR.search(started) is not None


def _words(value: object) -> list[str]:
    return [str(word) for word in value] if isinstance(value, list) else []
