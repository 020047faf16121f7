"""The options of ``run``, and a parser of the usual command lines, which does without click."""

from collections.abc import Callable, Mapping, Sequence
from typing import Literal

from msgspec import Struct

MIN_INTERVAL_SECONDS = 0.02
MAX_INTERVAL_SECONDS = 3600.0
# As many as the history keeps.
MAX_RUNS = 10_000
_STACKS = "--stacks"

Format = Literal["auto", "human", "json", "text"]
Stacks = Literal["off", "moments", "on"]
PrintedFormat = Literal["human", "json", "text"]


class RunOptions(Struct, frozen=True, kw_only=True):
    """The options of ``run`` with their defaults. ``words`` are the command and its arguments.

    ``runs`` is how often the command runs. The budgets are None without a limit.
    """

    words: tuple[str, ...]
    name: str | None = None
    interval_seconds: float = 1.0
    output_format: Format = "auto"
    output: str | None = None
    history_file: str | None = None
    no_history: bool = False
    labels: tuple[str, ...] = ()
    live: bool = False
    stacks: Stacks = "off"
    otlp: bool = False
    runs: int = 1
    max_memory_mb: float | None = None
    max_duration_ms: float | None = None
    max_cpu_seconds: float | None = None


def printed_format(output_format: Format, *, has_output: bool, is_terminal: bool) -> PrintedFormat:
    """The format of the report. ``auto`` is for a person if the report goes to a terminal."""
    if output_format != "auto":
        return output_format
    return "human" if is_terminal and not has_output else "json"


def _parse_interval(text: str) -> float | None:
    try:
        seconds = float(text)
    except ValueError:
        return None
    return seconds if MIN_INTERVAL_SECONDS <= seconds <= MAX_INTERVAL_SECONDS else None


def _parse_format(text: str) -> str | None:
    return text if text in ("auto", "human", "json", "text") else None


def _parse_stacks(text: str) -> str | None:
    return text if text in ("off", "moments", "on") else None


def _parse_runs(text: str) -> int | None:
    try:
        runs = int(text)
    except ValueError:
        return None
    return runs if 1 <= runs <= MAX_RUNS else None


def _parse_budget(parser: str) -> Callable[[str], object]:
    def parse(text: str) -> object:
        from profiler.local_run import run_budgets  # most runs have no budget

        try:
            return getattr(run_budgets, parser)(text)
        except ValueError:
            return None

    return parse


# The option's field, and its parser, which returns None for an invalid value.
_OPTIONS: Mapping[str, tuple[str, Callable[[str], object]]] = {
    "--name": ("name", str),
    "--interval": ("interval_seconds", _parse_interval),
    "--format": ("output_format", _parse_format),
    "--output": ("output", str),
    "--history": ("history_file", str),
    "--label": ("labels", str),
    _STACKS: ("stacks", _parse_stacks),
    "--runs": ("runs", _parse_runs),
    "--max-memory": ("max_memory_mb", _parse_budget("parse_memory_mb")),
    "--max-duration": ("max_duration_ms", _parse_budget("parse_duration_ms")),
    "--max-cpu-seconds": ("max_cpu_seconds", _parse_budget("parse_cpu_seconds")),
}
_FLAGS = {"--no-history": "no_history", "--live": "live", "--otlp": "otlp"}


def with_stacks_value(arguments: Sequence[str]) -> list[str]:
    """The arguments with ``--stacks=on`` for ``--stacks``, which never takes the next word for its value."""
    words = list(arguments)
    position = 0
    while position < len(words) and words[position].startswith("-") and words[position] not in ("-", "--"):
        if words[position] == _STACKS:
            words[position] += "=on"
        position += 2 if words[position] in _OPTIONS else 1
    return words


def parse_usual(arguments: Sequence[str]) -> RunOptions | None:
    """Parse the arguments of ``run`` as click does; None for help and for errors, which click prints."""
    rest = with_stacks_value(arguments)
    values: dict[str, object] = {}
    labels: list[str] = []
    while rest and rest[0].startswith("-") and rest[0] != "-":
        option = rest.pop(0)
        if option == "--":
            break
        if option in _FLAGS:
            values[_FLAGS[option]] = True
            continue
        option, equals, text = option.partition("=")
        if option not in _OPTIONS or not (equals or rest):
            return None
        field, parse = _OPTIONS[option]
        value = parse(text if equals else rest.pop(0))
        if value is None:
            return None
        if field == "labels":
            labels.append(str(value))
        else:
            values[field] = value
    if not rest:
        return None
    return RunOptions(words=tuple(rest), labels=tuple(labels), **values)  # type: ignore[arg-type]  # see _OPTIONS
