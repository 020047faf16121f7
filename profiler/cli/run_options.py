"""The options of ``run`` with their defaults and their help, and a parser of the usual command
lines, which does without click and msgspec.
"""

from collections.abc import Callable, Sequence
from typing import Any

_STACKS = "--stacks"
_MODES = ("off", "moments", "on")


class Amount:
    """A number within limits, parsed by a function of ``profiler.core.quantity_parsing``; by
    ``int`` a whole number.
    """

    def __init__(self, parser: str, least: float = 0, most: float = float("inf")) -> None:
        self.parser = parser
        self.least = least
        self.most = most


class StacksWords:
    """When call stacks are sampled: one of the modes, or a rate such as ``50hz``."""

    modes = _MODES
    max_hz = 100

    def parse(self, text: str) -> str | None:
        """The word; None if it is not valid."""
        is_valid = text in self.modes or rate_hz(text) is not None
        return text if is_valid else None


def rate_hz(word: str) -> int | None:
    """The rate in a word such as ``50hz``; None for other words and other rates."""
    number = word.removesuffix("hz")
    if number == word or not number.isdecimal() or len(number) > len(str(StacksWords.max_hz)):
        return None
    rate = int(number)
    return rate if 1 <= rate <= StacksWords.max_hz else None


class RunOption:
    """An option of ``run``: its spellings and perhaps its field, the name of its value, its help,
    and its default.

    Default False: a flag. Default (): repeatable. A name in brackets: the value is optional.
    """

    # A named tuple takes 0.1 ms more to define, and the command waits for it.
    def __init__(
        self,
        names: str,
        metavar: str,
        text: str,
        values: Amount | StacksWords | tuple[str, ...] | None = None,
        *,
        default: object = None,
    ) -> None:
        self.names = names
        self.metavar = metavar
        self.text = text
        self.values = values
        self.field = names.rsplit(maxsplit=1)[-1].lstrip("-").replace("-", "_")
        self.default = default

    def parse(self, text: str) -> object:
        """The value; None if it is not valid."""
        if self.values is None:
            return text or None
        if isinstance(self.values, StacksWords):
            return self.values.parse(text)
        if not isinstance(self.values, Amount):
            return text if text in self.values else None
        parse: Callable[[str], float] = int
        if self.values.parser != "int":
            from profiler.core import quantity_parsing  # most runs have none

            parse = getattr(quantity_parsing, self.values.parser)
        try:
            number = parse(text)
        except ValueError:
            return None
        return number if self.values.least <= number <= self.values.most else None


# In the order of the help.
RUN_OPTIONS = (
    RunOption(
        "--name",
        "NAME",
        "Family of the run, at most 255 characters (default: the base name of CMD).",
    ),
    RunOption(
        "--interval interval_seconds",
        "TIME",
        "Sampling period, 20ms to 1h.",
        Amount("parse_seconds", 0.02, 3600),
        default=1.0,
    ),
    RunOption(
        "--json as_json", "", "Print the report as one line of JSON, for programs.", default=False
    ),
    RunOption(
        "--format output_format",
        "",
        "Format of the report: a summary for people, or text like AWS Lambda's REPORT. auto is "
        "human, but JSON with --output and in an ECS task.",
        ("auto", "human", "text"),
        default="auto",
    ),
    RunOption(
        "-q --quiet",
        "",
        "Print to stderr only why CMD did not start or which budget it exceeded.",
        default=False,
    ),
    RunOption(
        "-o --output",
        "FILE",
        "Append the report line to FILE (-: standard output), and print nothing.",
    ),
    RunOption("--no-history", "", "Do not add the run to the history.", default=False),
    RunOption("--label labels", "NAME=VALUE", "Add a label to the run.", default=()),
    RunOption(
        "--live",
        "",
        "Show CPU, memory, the time left and the largest processes while CMD runs.",
        default=False,
    ),
    RunOption(
        _STACKS,
        "[=50hz|moments]",
        "Sample the call stacks of Python processes (py-spy), 20 times a second at a bounded cost; "
        "--stacks=50hz: 50 times; --stacks=moments: only while memory rises, nothing runs or all "
        "CPUs are in use.",
        StacksWords(),
        default="off",
    ),
    RunOption(
        "--otlp",
        "",
        "Export each run over OTLP, to localhost:4318 unless OTEL_EXPORTER_OTLP_… are set.",
        default=False,
    ),
    # At most as many as the history keeps.
    RunOption(
        "--runs",
        "N",
        "Run CMD N times, until the first failure; if N > 1, its input is empty.",
        Amount("int", 1, 10_000),
        default=1,
    ),
    RunOption(
        *("--max-memory max_memory_mb", "SIZE"),
        (
            "Exit with 3 if CMD succeeds but its memory peak is above SIZE, such as 900MB, "
            "900MiB or 1.5g."
        ),
        Amount("parse_memory_mb"),
    ),
    RunOption(
        *("--max-duration max_duration_ms", "TIME"),
        (
            "Exit with 3 if CMD succeeds but takes longer than TIME, such as 90s or 1h30m. CMD "
            "is not killed."
        ),
        Amount("parse_duration_ms"),
    ),
    RunOption(
        "--max-cpu-seconds",
        "TIME",
        "Exit with 3 if CMD succeeds but uses more than this.",
        Amount("parse_seconds"),
    ),
    RunOption(
        *("--max-gpu-memory max_gpu_memory_mb", "SIZE"),
        "Exit with 3 if CMD succeeds but was seen to hold more memory of a GPU.",
        Amount("parse_memory_mb"),
    ),
    RunOption(
        *("--max-gpu-idle max_gpu_idle_percent", "PERCENT"),
        "Exit with 3 if CMD succeeds but its GPUs were idle for more of its time.",
        Amount("parse_percent", 0, 100),
    ),
)


def _by_spelling() -> dict[str, RunOption]:
    options: dict[str, RunOption] = {}
    for row in RUN_OPTIONS:
        for name in row.names.split():
            if name.startswith("-"):
                options[name] = row
    return options


_BY_SPELLING = _by_spelling()


def with_joined_stacks_word(words: Sequence[str]) -> list[str]:
    """``--stacks``, and the word after it if there is one, with the mode behind an equals sign."""
    if words[1:] and words[1] in _MODES:
        return [f"{_STACKS}={words[1]}"]
    return [f"{_STACKS}=on", *words[1:]]


def with_stacks_value(arguments: Sequence[str]) -> list[str]:
    """The arguments with ``--stacks=on`` for ``--stacks``, which takes only a mode for its
    value, never a command.
    """
    words = list(arguments)
    position = 0
    while (
        position < len(words)
        and words[position].startswith("-")
        and words[position] not in ("-", "--")
    ):
        if words[position] == _STACKS:
            words[position : position + 2] = with_joined_stacks_word(words[position : position + 2])
        option = _BY_SPELLING.get(words[position])
        position += 1
        if option is not None and option.default is not False:
            position += 1
    return words


def parse_usual_arguments(arguments: Sequence[str]) -> dict[str, Any] | None:
    """Parse the arguments of ``run`` as click does, and return the value of each option, and the
    command's words; None for help and for errors, which click prints.
    """
    rest = with_stacks_value(arguments)
    values: dict[str, Any] = {row.field: row.default for row in RUN_OPTIONS}
    while rest and rest[0].startswith("-") and rest[0] != "-":
        word = rest.pop(0)
        if word == "--":
            break
        # click parses -o=FILE, whose value begins with the equals sign.
        spelling, equals, text = word.partition("=") if word.startswith("--") else (word, "", "")
        option = _BY_SPELLING.get(spelling)
        if option is None or (equals and option.default is False):
            return None
        if option.default is False:
            values[option.field] = True
            continue
        if not equals and not rest:
            return None
        value = option.parse(text if equals else rest.pop(0))
        if value is None:
            return None
        if option.default == ():
            value = (*values[option.field], value)
        values[option.field] = value
    if not rest:
        return None
    return {"words": tuple(rest), **values}
