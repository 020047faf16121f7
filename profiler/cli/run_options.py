"""The options of ``run``, and a parser of the usual command lines, which does without click."""

from collections.abc import Callable, Mapping, Sequence
from typing import Literal, NamedTuple

MIN_INTERVAL_SECONDS = 0.02
MAX_INTERVAL_SECONDS = 3600.0
# As many as the history keeps.
MAX_RUNS = 10_000
_STACKS = "--stacks"
_MODES = ("off", "moments", "on")

Format = Literal["auto", "human", "text"]
Stacks = Literal["off", "moments", "on"]


class RunOptions(NamedTuple):
    """The options of ``run`` with their defaults. ``words`` are the command and its arguments.

    ``runs`` is how often the command runs. The budgets are None without a limit.
    """

    words: tuple[str, ...]
    name: str | None = None
    interval_seconds: float = 1.0
    output_format: Format = "auto"
    as_json: bool = False
    output: str | None = None
    no_history: bool = False
    labels: tuple[str, ...] = ()
    live: bool = False
    quiet: bool = False
    stacks: Stacks = "off"
    otlp: bool = False
    runs: int = 1
    max_memory_mb: float | None = None
    max_duration_ms: float | None = None
    max_cpu_seconds: float | None = None


def _number(convert: Callable[[str], object], least: float, most: float) -> Callable[[str], object]:
    def parse(text: str) -> object:
        try:
            number = convert(text)
        except ValueError:
            return None
        return number if isinstance(number, int | float) and least <= number <= most else None

    return parse


def _one_of(*choices: str) -> Callable[[str], object]:
    return lambda text: text if text in choices else None


def _quantity(parser: str) -> Callable[[str], object]:
    def parse(text: str) -> object:
        from profiler.core import quantities  # most runs have none

        try:
            return getattr(quantities, parser)(text)
        except ValueError:
            return None

    return parse


# The option's field, and its parser, which returns None for an invalid value.
_OPTIONS: Mapping[str, tuple[str, Callable[[str], object]]] = {
    "--name": ("name", str),
    "--interval": ("interval_seconds", _number(_quantity("parse_seconds"), MIN_INTERVAL_SECONDS, MAX_INTERVAL_SECONDS)),
    "--format": ("output_format", _one_of("auto", "human", "text")),
    "-o": ("output", str),
    "--output": ("output", str),
    "--label": ("labels", str),
    _STACKS: ("stacks", _one_of(*_MODES)),
    "--runs": ("runs", _number(int, 1, MAX_RUNS)),
    "--max-memory": ("max_memory_mb", _quantity("parse_memory_mb")),
    "--max-duration": ("max_duration_ms", _quantity("parse_duration_ms")),
    "--max-cpu-seconds": ("max_cpu_seconds", _quantity("parse_seconds")),
}
# The field that the option sets, and its value.
_FLAGS: Mapping[str, tuple[str, object]] = {
    "--no-history": ("no_history", True),
    "--live": ("live", True),
    "--otlp": ("otlp", True),
    "-q": ("quiet", True),
    "--quiet": ("quiet", True),
    "--json": ("as_json", True),
}


def joined_stacks(words: Sequence[str]) -> list[str]:
    """``--stacks``, and the word after it if there is one, with the mode behind an equals sign."""
    is_mode = words[1:] and words[1] in _MODES
    return [f"{_STACKS}={words[1]}"] if is_mode else [f"{_STACKS}=on", *words[1:]]


def with_stacks_value(arguments: Sequence[str]) -> list[str]:
    """The arguments with ``--stacks=on`` for ``--stacks``, which takes only a mode for its value, never a command."""
    words = list(arguments)
    position = 0
    while position < len(words) and words[position].startswith("-") and words[position] not in ("-", "--"):
        if words[position] == _STACKS:
            words[position : position + 2] = joined_stacks(words[position : position + 2])
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
            field, value = _FLAGS[option]
            values[field] = value
            continue
        # click parses -o=FILE, whose value begins with the equals sign.
        option, equals, text = option.partition("=") if option.startswith("--") else (option, "", "")
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
