"""The settings in the environment.

An invalid value never stops the monitor: it uses the default, and one message names all invalid
values. An empty value counts as unset.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeVar, get_args

from msgspec import Struct, field

from profiler.core.ecs_terms import ReportStream
from profiler.core.errors import UsageError

if TYPE_CHECKING:
    from profiler.sizing.prices import PriceOverrides

Switch = Literal["auto", "on", "off"]
Emf = Literal["off", "report", "live"]
Arguments = Literal["off", "redacted", "all"]
StacksMode = Literal["off", "moments", "on"]
Scope = Literal["task", "instance"]
Processes = Literal["off", "on"]

MIN_INTERVAL_SECONDS = 0.02
MAX_SECONDS = 86_400.0
DEFAULT_SERIES_POINTS = 60
DEFAULT_STUCK_MINUTES = 30.0
MAX_SERIES_POINTS = 240
_MAX_STUCK_MINUTES = 1440.0
_MIN_EXPECTED_SECONDS = 0.01
_MAX_EXPECTED_SECONDS = 31_536_000.0  # a year
_EMF: Mapping[str, Emf] = {"true": "report", "live": "live", "false": "off", "off": "off"}
_TAGS: Mapping[str, bool] = {"true": True, "false": False, "off": False}
DEFAULT_EMF_METRICS = ("durationMs", "maxMemoryUsedMB", "cpuUtilizationPercent", "costUsd", "failed")
_PREFIX = "TASK_PROFILER_"
_PRICES = {
    "PRICE_VCPU_HOUR": "vcpu_hour_usd",
    "PRICE_GB_HOUR": "gb_hour_usd",
    "PRICE_STORAGE_GB_HOUR": "storage_gb_hour_usd",
    "PRICE_HOUR": "hour_usd",
}
_V4 = "ECS_CONTAINER_METADATA_URI_V4"
_V3 = "ECS_CONTAINER_METADATA_URI"

_T = TypeVar("_T")
_N = TypeVar("_N", int, float)


class AcceleratorSettings(Struct, frozen=True, kw_only=True):
    """Which accelerators to read, and the GPUs of the batch if they are set."""

    gpu: Switch = "auto"
    neuron: Switch = "auto"
    gpu_uuids: tuple[str, ...] = ()


class TaskSettings(Struct, frozen=True, kw_only=True):
    """What is reported of a task, and where."""

    container: str | None = None
    checkpoint_seconds: float = 60.0
    log_group: str | None = None
    log_stream: str | None = None
    report_stream: ReportStream = "batch"
    series_points: int = DEFAULT_SERIES_POINTS
    prices: "PriceOverrides | None" = None
    emf: Emf = "off"
    emf_metrics: tuple[str, ...] = DEFAULT_EMF_METRICS
    stuck_minutes: float = DEFAULT_STUCK_MINUTES
    expected_seconds: float | None = None
    aws_region: str | None = None


class MonitorSettings(Struct, frozen=True, kw_only=True):
    """The settings of the monitor's process, and those of its ``task``. ``problems`` describes the invalid values.

    ``families`` and ``processes`` are for the scope ``instance``.
    """

    endpoint_address: str
    endpoint_version: int
    task: TaskSettings = TaskSettings()
    interval_seconds: float = 1.0
    stop_seconds: float = 25.0
    accelerators: AcceleratorSettings = AcceleratorSettings()
    process_arguments: Arguments = "off"
    stacks: StacksMode = "off"
    prometheus_port: int | None = None
    tags: bool = False
    scope: Scope = "task"
    families: tuple[str, ...] = ("*",)
    processes: Processes = "off"
    problems: tuple[str, ...] = ()


class SettingsReader(Struct):
    """Reads the settings; several commands share some. ``problems`` describes the invalid values that were read."""

    _environment: Mapping[str, str]
    problems: list[str] = field(default_factory=list)

    def accelerators(self) -> AcceleratorSettings:
        """Which accelerators to read."""
        return AcceleratorSettings(
            gpu=self._word("GPU", Switch),
            neuron=self._word("NEURON", Switch),
            gpu_uuids=self._parsed("GPU_UUIDS", (), _gpu_uuids, "a comma-separated list like GPU-…,GPU-…"),
        )

    def prices(self) -> "PriceOverrides | None":
        """The prices that replace the table's; None if none is set."""
        if not any(map(self._text, _PRICES)):
            return None
        from profiler.sizing.prices import PriceOverrides, parse_price  # rarely used

        parse: Callable[[str], float | None] = parse_price
        return PriceOverrides(
            **{field: self._parsed(name, None, parse, "a price in USD") for name, field in _PRICES.items()}
        )

    def stuck_minutes(self) -> float:
        """After how many idle minutes a batch is stuck; 0 for never."""
        expected = f"0 (off) or a number of minutes up to {_MAX_STUCK_MINUTES:.0f}"
        return self._parsed("STUCK_MINUTES", DEFAULT_STUCK_MINUTES, _number(0, _MAX_STUCK_MINUTES), expected)

    def expected_seconds(self) -> float | None:
        """After how many seconds a batch is overdue; None for never."""
        parse: Callable[[str], float | None] = _number(_MIN_EXPECTED_SECONDS, _MAX_EXPECTED_SECONDS)
        expected = f"a number of seconds from {_MIN_EXPECTED_SECONDS:g} to {_MAX_EXPECTED_SECONDS:.0f}"
        return self._parsed("EXPECTED_SECONDS", None, parse, expected)

    def series_points(self) -> int:
        """Half the largest number of steps of the time series; 0 for none."""
        expected = f"0 (none) or a whole number up to {MAX_SERIES_POINTS}"
        return self._parsed("SERIES_POINTS", DEFAULT_SERIES_POINTS, _number(0, MAX_SERIES_POINTS, int), expected)

    def _text(self, name: str) -> str | None:
        return self._environment.get(_PREFIX + name, "").strip() or None

    def _parsed(self, name: str, default: _T, parse: Callable[[str], _T], expected: str) -> _T:
        value = self._text(name)
        if value is None:
            return default
        try:
            return parse(value)
        except (ValueError, KeyError):
            self.problems.append(f"{_PREFIX}{name}={value[:80]!r} is not {expected}")
            return default

    def _word(self, name: str, literal: object) -> Any:  # noqa: ANN401  one of the words of the literal type
        """One of the words of a literal type, of which the first is the default."""
        words = get_args(literal)
        expected = f"{', '.join(words[:-1])} or {words[-1]}"
        return self._parsed(name, words[0], lambda value: words[words.index(value.lower())], expected)

    def monitor(self, address: str, version: int) -> MonitorSettings:
        """All settings of the monitor, with the address and the version of the task metadata endpoint."""
        port: Callable[[str], int | None] = _number(1, 65_535, int)
        scope: Scope = self._word("SCOPE", Scope)
        values: dict[str, Any] = {
            "container": self._text("CONTAINER"),
            "interval_seconds": self._parsed(
                "INTERVAL_SECONDS",
                1.0,
                _number(MIN_INTERVAL_SECONDS, MAX_SECONDS),
                f"a number of seconds from {MIN_INTERVAL_SECONDS} to {MAX_SECONDS:.0f}",
            ),
            "checkpoint_seconds": self._parsed(
                "CHECKPOINT_SECONDS",
                60.0 if scope == "task" else 0.0,  # the lines of all tasks would be in the monitor's stream
                _number(0, MAX_SECONDS),
                f"0 (off) or a number of seconds up to {MAX_SECONDS:.0f}",
            ),
            "log_group": self._text("LOG_GROUP"),
            "log_stream": self._text("LOG_STREAM"),
            "report_stream": self._word("REPORT_STREAM", ReportStream),
            "stop_seconds": self._parsed(
                "STOP_SECONDS", 25.0, _number(1, MAX_SECONDS), "a number of seconds of at least 1"
            ),
            "series_points": self.series_points(),
            "accelerators": self.accelerators(),
            "process_arguments": self._word("PROCESS_ARGUMENTS", Arguments),
            "stacks": self._word("STACKS", StacksMode),
            "prices": self.prices(),
            "emf": self._parsed("EMF", "off", lambda value: _EMF[value.lower()], "true, live or false"),
            "emf_metrics": self._emf_metrics(),
            "prometheus_port": self._parsed("PROMETHEUS_PORT", None, port, "a port number from 1 to 65535"),
            "stuck_minutes": self.stuck_minutes(),
            "expected_seconds": self.expected_seconds(),
            "tags": self._parsed(
                "TAGS", default=False, parse=lambda value: _TAGS[value.lower()], expected="true or false"
            ),
            "scope": scope,
            "families": _names(self._text("FAMILIES") or "*"),
            "processes": self._word("PROCESSES", Processes),
            "aws_region": self._environment.get("AWS_REGION") or self._environment.get("AWS_DEFAULT_REGION") or None,
        }
        task = TaskSettings(**{name: values.pop(name) for name in TaskSettings.__struct_fields__})
        return MonitorSettings(
            endpoint_address=address, endpoint_version=version, task=task, problems=tuple(self.problems), **values
        )

    def _emf_metrics(self) -> tuple[str, ...]:
        chosen = tuple(dict.fromkeys(_names(self._text("EMF_METRICS") or "")))
        if not chosen:
            return DEFAULT_EMF_METRICS
        from profiler.record.report_line import EMF_METRICS  # its catalogue takes memory; most monitors do without

        unknown = [name for name in chosen if name not in EMF_METRICS]
        if unknown:
            self.problems.append(
                f"{_PREFIX}EMF_METRICS holds the unknown {', '.join(unknown)[:80]!r} (known: {', '.join(EMF_METRICS)})"
            )
            return DEFAULT_EMF_METRICS
        return chosen


def read_settings(environment: Mapping[str, str]) -> MonitorSettings:
    """The settings of the monitor. Raises UsageError outside of ECS, where there is nothing to monitor."""
    endpoint = endpoint_address(environment)
    if environment.get(f"{_PREFIX}SCOPE", "").strip().lower() == "instance":
        endpoint = endpoint or ("", 4)
    if endpoint is None:
        raise UsageError(
            f"The monitor measures a batch in an ECS task, and {_V4} is not set here: "
            "add the monitor to a task definition, or profile a local command with 'task-profiler run -- CMD'."
        )
    return SettingsReader(environment).monitor(*endpoint)


def problems_message(problems: Sequence[str]) -> str:
    """One sentence about all invalid values."""
    return f"Bad settings, defaults are used instead: {'; '.join(problems)}."


def endpoint_address(environment: Mapping[str, str]) -> tuple[str, int] | None:
    """The address and version of the task metadata endpoint; None outside of ECS."""
    for name, version in ((_V4, 4), (_V3, 3)):
        address = environment.get(name, "").strip()
        if address:
            return address, version
    return None


def _number(minimum: _N, maximum: _N, kind: Callable[[str], Any] = float) -> Callable[[str], _N]:
    def parse(value: str) -> _N:
        number: _N = kind(value)
        if not minimum <= number <= maximum:  # nor NaN
            raise ValueError
        return number

    return parse


def _names(value: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in value.split(",") if name.strip())


def _gpu_uuids(value: str) -> tuple[str, ...]:
    uuids = _names(value)
    if not all(uuid.startswith("GPU-") for uuid in uuids):
        raise ValueError
    return uuids
