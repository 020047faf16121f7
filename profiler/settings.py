"""The settings in the environment.

An invalid value is named, and the default is used. An empty one counts as unset.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, get_args

from msgspec import Struct, field
from msgspec.structs import asdict

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

MAX_SERIES_POINTS = 240
_MAX_SECONDS = 86_400
DEFAULT_EMF_METRICS = (
    "durationMs",
    "maxMemoryUsedMB",
    "cpuUtilizationPercent",
    "costUsd",
    "failed",
)
_PREFIX = "TASK_PROFILER_"
_V4 = "ECS_CONTAINER_METADATA_URI_V4"
_V3 = "ECS_CONTAINER_METADATA_URI"


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
    series_points: int = 60
    prices: "PriceOverrides | None" = None
    emf: Emf = "off"
    emf_metrics: tuple[str, ...] = DEFAULT_EMF_METRICS
    stuck_minutes: float = 30.0
    expected_seconds: float | None = None
    aws_region: str | None = None


class MonitorSettings(Struct, frozen=True, kw_only=True):
    """The settings of the monitor's process, and those of its ``task``.

    ``problems`` describes the invalid values.
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
    families: tuple[str, ...] = ()
    processes: Processes = "off"
    problems: tuple[str, ...] = ()


def _names(value: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name.strip() for name in value.split(",") if name.strip()))


def _gpu_uuids(value: str) -> tuple[str, ...]:
    uuids = _names(value)
    if not all(uuid.startswith("GPU-") for uuid in uuids):
        raise ValueError
    return uuids


def _price(value: str) -> float:
    from profiler.sizing.prices import parse_price  # rarely used

    return parse_price(value)


class _Setting(Struct, frozen=True):
    """What the help says of a setting, with its default in braces; the function that parses it,
    and what it expects.
    """

    help: str
    parse: Callable[[str], Any] = str
    expected: str = ""


def _number(
    text: str,
    minimum: float,
    maximum: float,
    what: str = "a number of seconds",
    kind: Callable[[str], float] = float,
) -> _Setting:
    def parse(value: str) -> float:
        number = kind(value)
        if not minimum <= number <= maximum:  # nor NaN
            raise ValueError
        return number

    return _Setting(text, parse, f"{what} from {minimum:g} to {maximum}")


def _word(text: str, literal: object) -> _Setting:
    """One of the words of a literal type."""
    *first, last = words = get_args(literal)
    return _Setting(
        text, lambda value: words[words.index(value.lower())], f"{', '.join(first)} or {last}"
    )


# By field, in the order of the help. The name of the variable is that of the field, and the default
# is the field's.
_SETTINGS: Mapping[str, _Setting] = {
    "container": _Setting("the batch container (the only other one)"),
    "interval_seconds": _number("sampling period ({:g})", 0.02, _MAX_SECONDS),
    "checkpoint_seconds": _number("period of checkpoints, 0 = none ({:g})", 0, _MAX_SECONDS),
    "stop_seconds": _number("time limit after SIGTERM ({:g})", 1, _MAX_SECONDS),
    "log_group": _Setting("destination of the report (the batch's"),
    "log_stream": _Setting("awslogs options)"),
    "report_stream": _word("monitor: the monitor's own stream ({})", ReportStream),
    "series_points": _number(
        "size of the time series, 0 = none ({})", 0, MAX_SERIES_POINTS, "a whole number", int
    ),
    "stuck_minutes": _number(
        "idle minutes until stuck, 0 = never ({:g})", 0, 1440, "a number of minutes"
    ),
    "expected_seconds": _number("seconds until overdue (none)", 0.01, 31_536_000),
    "tags": _Setting(
        "true: record the task's tags (false)",
        lambda value: {"true": True, "false": False, "off": False}[value.lower()],
        "true or false",
    ),
    "gpu": _word("auto, on, off ({})", Switch),
    "gpu_uuids": _Setting(
        "the batch's GPUs (all visible ones)", _gpu_uuids, "a comma-separated list like GPU-…,GPU-…"
    ),
    "neuron": _word("auto, on, off ({})", Switch),
    "scope": _word("instance: all tasks of an instance ({})", Scope),
    "families": _Setting("with instance: globs of families (all)", _names),
    "processes": _word("with instance: on: processes ({})", Processes),
    "process_arguments": _word("off, redacted, all ({})", Arguments),
    "stacks": _word("call stacks of Python: on, moments ({})", StacksMode),
    "emf": _Setting(
        "CloudWatch metrics: true, live (false)",
        lambda value: {"true": "report", "live": "live", "false": "off", "off": "off"}[
            value.lower()
        ],
        "true, live or false",
    ),
    "emf_metrics": _Setting("names of these metrics", _names),
    "prometheus_port": _number(
        "live metrics for Prometheus (off)", 1, 65_535, "a port number", int
    ),
    "price_vcpu_hour": _Setting("Fargate prices in USD (built-in table)", _price, "a price in USD"),
    "price_gb_hour": _Setting("", _price, "a price in USD"),
    "price_storage_gb_hour": _Setting("", _price, "a price in USD"),
    "price_hour": _Setting("USD per hour of the task on EC2 (none)", _price, "a price in USD"),
}
SETTING_NAMES = frozenset(_PREFIX + name.upper() for name in _SETTINGS)
_PRICES = tuple(name for name, one in _SETTINGS.items() if one.parse is _price)
_DEFAULTS: Mapping[str, Any] = {
    **asdict(MonitorSettings(endpoint_address="", endpoint_version=0)),
    **asdict(AcceleratorSettings()),
    **asdict(TaskSettings()),
}


def settings_help() -> str:
    """A line for each setting: its variable, what it does, and its default."""
    rows = (
        (_PREFIX + name.upper(), one.help.format(_DEFAULTS.get(name)))
        for name, one in _SETTINGS.items()
    )
    return "\n".join(f"{variable:<36}{text}".rstrip() for variable, text in rows)


class SettingsReader(Struct):
    """Reads the settings; several commands share some.

    ``problems`` describes the invalid values that were read.
    """

    _environment: Mapping[str, str]
    problems: list[str] = field(default_factory=list)

    def value(self, name: str) -> Any:  # noqa: ANN401  the type of the setting's field
        """The value of a setting; its default if it is not set or not valid."""
        text = self._text(name)
        default = _DEFAULTS.get(name)
        if not text:
            return default
        try:
            return _SETTINGS[name].parse(text)
        except (ValueError, KeyError):
            self.problems.append(
                f"{_PREFIX}{name.upper()}={text[:80]!r} is not {_SETTINGS[name].expected}"
            )
            return default

    def _text(self, name: str) -> str:
        return self._environment.get(_PREFIX + name.upper(), "").strip()

    def accelerators(self) -> AcceleratorSettings:
        """Which accelerators to read."""
        return AcceleratorSettings(
            **{name: self.value(name) for name in AcceleratorSettings.__struct_fields__}
        )

    def prices(self) -> "PriceOverrides | None":
        """The prices that replace the table's; None if none is set."""
        if not any(map(self._text, _PRICES)):
            return None
        from profiler.sizing.prices import PriceOverrides  # rarely used

        return PriceOverrides(
            **{f"{name.removeprefix('price_')}_usd": self.value(name) for name in _PRICES}
        )

    def monitor(self, address: str, version: int) -> MonitorSettings:
        """All settings of the monitor, with the address and the version of the task metadata
        endpoint.
        """
        region = (
            self._environment.get("AWS_REGION")
            or self._environment.get("AWS_DEFAULT_REGION")
            or None
        )
        others = {
            "accelerators": self.accelerators(),
            "prices": self.prices(),
            "aws_region": region,
        }
        own = _SETTINGS.keys() - _PRICES - set(AcceleratorSettings.__struct_fields__)
        values = others | {name: self.value(name) for name in _SETTINGS if name in own}
        if values["scope"] == "instance":
            if not self._text("checkpoint_seconds"):
                values["checkpoint_seconds"] = (
                    0.0  # the lines of all tasks would be in the monitor's stream
                )
            if values["prometheus_port"] is not None:
                self.problems.append(
                    f"{_PREFIX}PROMETHEUS_PORT has no effect with {_PREFIX}SCOPE=instance"
                )
        values["emf_metrics"] = self._known_metrics(values["emf_metrics"])
        task = TaskSettings(**{name: values.pop(name) for name in TaskSettings.__struct_fields__})
        return MonitorSettings(
            endpoint_address=address,
            endpoint_version=version,
            task=task,
            problems=tuple(self.problems),
            **values,
        )

    def _known_metrics(self, chosen: tuple[str, ...]) -> tuple[str, ...]:
        if not chosen or chosen == DEFAULT_EMF_METRICS:
            return DEFAULT_EMF_METRICS
        from profiler.record.report_line import (
            EMF_METRICS,
        )  # its catalogue takes memory; most monitors do without

        unknown = [name for name in chosen if name not in EMF_METRICS]
        if unknown:
            self.problems.append(
                f"{_PREFIX}EMF_METRICS holds the unknown {', '.join(unknown)[:80]!r} (known: "
                f"{', '.join(EMF_METRICS)})"
            )
            return DEFAULT_EMF_METRICS
        return chosen


def read_settings(environment: Mapping[str, str]) -> MonitorSettings:
    """The settings of the monitor.

    Raises UsageError outside of ECS, where there is nothing to monitor.
    """
    endpoint = endpoint_address(environment)
    if environment.get(f"{_PREFIX}SCOPE", "").strip().lower() == "instance":
        endpoint = endpoint or ("", 4)
    if endpoint is None:
        raise UsageError(
            f"The monitor measures a batch in an ECS task, and {_V4} is not set here: add the "
            "monitor to a task definition, or profile a local command with 'task-profiler run -- "
            "CMD'."
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
