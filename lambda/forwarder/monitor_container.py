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
# As the command of our own image, whose entry point is the program.
_MONITOR, _WRAP = "monitor", "run"


class Candidate(Struct, frozen=True, kw_only=True):
    """A container by its name; whether it starts the monitor, and whether its image at least is the monitor's."""

    name: str
    starts_monitor: bool = False
    uses_monitor_image: bool = False

    @property
    def has_monitor_name(self) -> bool:
        """Whether it has the name that only the monitor has."""
        return self.name == _MONITOR_NAME


def read_candidate(container: Mapping[str, object]) -> Candidate:
    """A container of a task definition."""
    command = _words(container.get("command"))
    started = " ".join([*_words(container.get("entryPoint")), *command])
    uses_monitor_image = has_monitor_image(container.get("image"))
    wraps_batch = _WRAPS_BATCH.search(started) is not None or (uses_monitor_image and command[:1] == [_WRAP])
    starts_monitor = _STARTS_MONITOR.search(started) is not None or (uses_monitor_image and command[:1] == [_MONITOR])
    return Candidate(
        name=str(container.get("name")),
        starts_monitor=starts_monitor and not wraps_batch,
        uses_monitor_image=uses_monitor_image and not wraps_batch,
    )


def has_monitor_image(image: object) -> bool:
    """Whether the image is called task-profiler; its registry and namespace say nothing."""
    return str(image or "").rsplit("/", 1)[-1].split("@", 1)[0].split(":", 1)[0] == _MONITOR_IMAGE


def find_monitor(candidates: Sequence[Candidate], batch: str | None) -> str | None:
    """The container with the monitor's name, else one that starts it, else one of its image that is not the batch."""
    named = (one.name for one in candidates if one.has_monitor_name)
    starting = (one.name for one in candidates if one.starts_monitor)
    alike = (one.name for one in candidates if one.uses_monitor_image and one.name != batch)
    return next(named, None) or next(starting, None) or next(alike, None)


def find_batches(candidates: Sequence[Candidate]) -> tuple[str, ...]:
    """Those that can be the batch; one that has no more of the monitor than its image is it if all others are, too."""
    others = [one for one in candidates if not (one.has_monitor_name or one.starts_monitor)]
    return tuple(one.name for one in others if not one.uses_monitor_image) or tuple(one.name for one in others)


def _words(value: object) -> list[str]:
    return [str(word) for word in value] if isinstance(value, list) else []
