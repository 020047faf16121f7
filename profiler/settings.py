"""The settings in the environment.

An invalid value is named, and the default is used. An empty one counts as unset.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, get_args

from msgspec import Struct, field

from profiler.core.ecs_terms import ReportStream
from profiler.core.errors import UsageError
from profiler.core.text import split_names
from profiler.record.batch_job import NO_JOB, BatchJob, job_of_variables

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
SCOPE_VARIABLE = f"{_PREFIX}SCOPE"
# Variables of the commands, of which no monitor knows.
_OTHER_VARIABLES = ("FROM", "HISTORY")
_V4 = "ECS_CONTAINER_METADATA_URI_V4"
_V3 = "ECS_CONTAINER_METADATA_URI"


class AcceleratorSettings(Struct, frozen=True, kw_only=True):
    """Which accelerators to read, and the GPUs of the batch if they are set."""

    gpu: Switch
    neuron: Switch
    gpu_uuids: tuple[str, ...]


class TaskSettings(Struct, frozen=True, kw_only=True):
    """What is reported of a task, and where."""

    container: str | None
    checkpoint_seconds: float
    log_group: str | None
    log_stream: str | None
    report_stream: ReportStream
    series_points: int
    prices: "PriceOverrides | None"
    emf: Emf
    emf_metrics: tuple[str, ...]
    stuck_minutes: float
    expected_seconds: float | None
    aws_region: str | None
    batch_job: BatchJob


class MonitorSettings(Struct, frozen=True, kw_only=True):
    """The settings of the monitor's process, and those of its ``task``.

    ``problems`` describes the invalid values.
    """

    endpoint_address: str
    endpoint_version: int
    task: TaskSettings
    interval_seconds: float
    stop_seconds: float
    accelerators: AcceleratorSettings
    process_arguments: Arguments
    stacks: StacksMode
    prometheus_port: int | None
    tags: bool
    scope: Scope
    families: tuple[str, ...]
    processes: Processes
    problems: tuple[str, ...]


class SettingValue(Struct, frozen=True):
    """The values of a setting: the function that parses one, and which ones it expects.

    The function raises ValueError or KeyError.
    """

    parse: Callable[[str], Any] = str
    expected: str = ""


class Setting(Struct, frozen=True):
    """A row of the settings. The help shows the default where it has braces.

    ``scope`` is where the setting has an effect: beside a task, with all tasks of an instance, or
    in both. ``instance_default`` is the default there if it is another one.
    """

    name: str
    default: Any
    value: SettingValue
    help: str
    scope: Scope | Literal["both"] = "both"
    instance_default: Any = None

    @property
    def variable(self) -> str:
        return _PREFIX + self.name.upper()


def _parse_names(text: str) -> tuple[str, ...]:
    """The names in the order in which they are given, each once."""
    return tuple(dict.fromkeys(split_names(text)))


def _parse_gpu_uuids(text: str) -> tuple[str, ...]:
    uuids = _parse_names(text)
    if not all(uuid.startswith("GPU-") for uuid in uuids):
        raise ValueError
    return uuids


def _parse_price(text: str) -> float:
    from profiler.sizing.prices import parse_price  # rarely used

    return parse_price(text)


def _parse_instance_prices(text: str) -> tuple[tuple[str, float], ...]:
    prices = []
    for priced in _parse_names(text):
        name, equals, price = priced.partition("=")
        if not (name.strip() and equals):
            raise ValueError(text)
        prices.append((name.strip(), _parse_price(price)))
    return tuple(prices)


def _number_value(
    minimum: float,
    maximum: float,
    what: str = "a number of seconds",
    kind: Callable[[str], float] = float,
) -> SettingValue:
    def parse(text: str) -> float:
        number = kind(text)
        if not minimum <= number <= maximum:  # nor NaN
            raise ValueError
        return number

    return SettingValue(parse, f"{what} from {minimum:g} to {maximum}")


def _word_value(literal: object) -> SettingValue:
    """One of the words of a literal type, in any case."""
    words = get_args(literal)
    by_text = dict(zip(words, words, strict=True))
    return _choice_value(by_text, f"{', '.join(words[:-1])} or {words[-1]}")


def _choice_value(by_text: Mapping[str, Any], expected: str) -> SettingValue:
    return SettingValue(lambda text: by_text[text.lower()], expected)


_TEXT = SettingValue()
_NAMES = SettingValue(_parse_names)
_PRICE = SettingValue(_parse_price, "a price in USD")
_INSTANCES = SettingValue(_parse_instance_prices, "a list of prices in USD like m5.large=0.096,…")
_GPU_UUIDS = SettingValue(_parse_gpu_uuids, "a comma-separated list like GPU-…,GPU-…")
_TAGS = _choice_value({"true": True, "false": False, "off": False}, "true or false")
_EMF = _choice_value(
    {"true": "report", "live": "live", "false": "off", "off": "off"}, "true, live or false"
)
_POINTS = _number_value(0, MAX_SERIES_POINTS, "a whole number", int)
_SWITCH = _word_value(Switch)

# In the order of the help. A help text ends with the default in parentheses.
SETTINGS: tuple[Setting, ...] = (
    Setting("container", None, _TEXT, "the batch container (the only other one)"),
    Setting("interval_seconds", 1.0, _number_value(0.02, _MAX_SECONDS), "sampling period ({:g})"),
    Setting(
        "checkpoint_seconds",
        60.0,
        _number_value(0, _MAX_SECONDS),
        "period of checkpoints, 0 = none ({:g})",
        instance_default=0.0,  # the lines of all tasks would be in the monitor's stream
    ),
    Setting(
        "stop_seconds", 25.0, _number_value(1, _MAX_SECONDS), "time limit after SIGTERM ({:g})"
    ),
    Setting("log_group", None, _TEXT, "log group of the report (the batch's)"),
    Setting("log_stream", None, _TEXT, "log stream of the report (the batch's)"),
    Setting(
        "report_stream",
        "batch",
        _word_value(ReportStream),
        "monitor: the monitor's own stream ({})",
    ),
    Setting("series_points", 60, _POINTS, "size of the time series, 0 = none ({})"),
    Setting(
        "stuck_minutes",
        30.0,
        _number_value(0, 1440, "a number of minutes"),
        "idle minutes until stuck, 0 = never ({:g})",
    ),
    Setting(
        "expected_seconds", None, _number_value(0.01, 31_536_000), "seconds until overdue (none)"
    ),
    Setting("tags", default=False, value=_TAGS, help="true: record the task's tags (false)"),
    Setting("gpu", "auto", _SWITCH, "auto, on, off ({})"),
    Setting("gpu_uuids", (), _GPU_UUIDS, "the batch's GPUs (all visible ones)"),
    Setting("neuron", "auto", _SWITCH, "auto, on, off ({})"),
    Setting("scope", "task", _word_value(Scope), "instance: all tasks of an instance ({})"),
    Setting("families", (), _NAMES, "with instance: globs of families (all)", "instance"),
    Setting(
        "processes", "off", _word_value(Processes), "with instance: on: processes ({})", "instance"
    ),
    Setting("process_arguments", "off", _word_value(Arguments), "off, redacted, all ({})"),
    Setting("stacks", "off", _word_value(StacksMode), "call stacks of Python: on, moments ({})"),
    Setting("emf", "off", _EMF, "CloudWatch metrics: true, live (false)"),
    Setting("emf_metrics", DEFAULT_EMF_METRICS, _NAMES, "names of these metrics (five)"),
    Setting(
        "prometheus_port",
        None,
        _number_value(1, 65_535, "a port number", int),
        "live metrics for Prometheus (off)",
        "task",
    ),
    Setting("price_vcpu_hour", None, _PRICE, "USD per vCPU-hour (built-in table)"),
    Setting("price_gb_hour", None, _PRICE, "USD per GB-hour (built-in table)"),
    Setting("price_storage_gb_hour", None, _PRICE, "USD per storage GB-hour (built-in table)"),
    Setting("price_hour", None, _PRICE, "USD per hour of the task on EC2 (none)"),
    Setting("price_instances", (), _INSTANCES, "USD per hour: m5.large=0.096,… (none)"),
)
SETTING_NAMES = frozenset(setting.variable for setting in SETTINGS)
_BY_NAME = {setting.name: setting for setting in SETTINGS}
_PRICES = tuple(setting.name for setting in SETTINGS if setting.value in (_PRICE, _INSTANCES))


def settings_help() -> str:
    """A line for each setting: its variable, what it does, and its default."""
    lines: list[str] = []
    for setting in SETTINGS:
        text = setting.help.format(setting.default)
        lines.append(f"{setting.variable:<36}{text}".rstrip())
    return "\n".join(lines)


class SettingsReader(Struct):
    """Reads the settings; several commands share some.

    ``problems`` describes the invalid values that were read.
    """

    _environment: Mapping[str, str]
    problems: list[str] = field(default_factory=list)

    def value(self, name: str) -> Any:  # noqa: ANN401  the type of the setting's field
        """The value of a setting; its default if it is not set or not valid."""
        setting = _BY_NAME[name]
        text = self._text(setting)
        if not text:
            return setting.default
        try:
            return setting.value.parse(text)
        except (ValueError, KeyError):
            self.problems.append(
                f"{setting.variable}={text[:70]!r} is not {setting.value.expected}"
            )
            return setting.default

    def _text(self, setting: Setting) -> str:
        return self._environment.get(setting.variable, "").strip()

    def accelerators(self) -> AcceleratorSettings:
        """Which accelerators to read."""
        return AcceleratorSettings(**self._values(AcceleratorSettings.__struct_fields__))

    def _values(self, names: Iterable[str]) -> dict[str, Any]:
        return {name: self.value(name) for name in names}

    def prices(self) -> "PriceOverrides | None":
        """The prices that replace the table's; None if none is set."""
        if not any(self._text(_BY_NAME[name]) for name in _PRICES):
            return None
        from profiler.sizing.prices import PriceOverrides  # rarely used

        prices: dict[str, Any] = {}
        for name in _PRICES:
            prices[f"{name.removeprefix('price_')}_usd"] = self.value(name)
        return PriceOverrides(**prices)

    def monitor(self, address: str, version: int) -> MonitorSettings:
        """All settings of the monitor, with the address and the version of the task metadata
        endpoint.
        """
        region = (
            self._environment.get("AWS_REGION")
            or self._environment.get("AWS_DEFAULT_REGION")
            or None
        )
        values: dict[str, Any] = {
            "accelerators": self.accelerators(),
            "prices": self.prices(),
            "aws_region": region,
            "batch_job": job_of_variables(self._environment),
        }
        others = {*_PRICES, *AcceleratorSettings.__struct_fields__}
        values |= self._values(name for name in _BY_NAME if name not in others)
        if values["scope"] == "instance":
            self._adapt_to_instance(values)
        self._name_what_has_no_effect(values)
        values["emf_metrics"] = self._known_metrics(values["emf_metrics"])
        task = TaskSettings(**{name: values.pop(name) for name in TaskSettings.__struct_fields__})
        return MonitorSettings(
            endpoint_address=address,
            endpoint_version=version,
            task=task,
            problems=tuple(self.problems),
            **values,
        )

    def _adapt_to_instance(self, values: dict[str, Any]) -> None:
        """Use the defaults of an instance's monitor."""
        values["batch_job"] = NO_JOB  # the instance runs those of many jobs
        for setting in SETTINGS:
            if setting.instance_default is not None and not self._text(setting):
                values[setting.name] = setting.instance_default

    def _name_what_has_no_effect(self, values: Mapping[str, Any]) -> None:
        """Name the settings of the other scope, and those whose names are nearly right."""
        scope = values["scope"]
        for setting in SETTINGS:
            is_of_other_scope = setting.scope not in ("both", scope)
            if is_of_other_scope and values[setting.name] != setting.default:
                self.problems.append(
                    f"{setting.variable} has no effect with {SCOPE_VARIABLE}={scope}"
                )
        for variable in self._environment:
            name = variable.removeprefix(_PREFIX)
            if name == variable or variable in SETTING_NAMES or name in _OTHER_VARIABLES:
                continue
            meant = _meant_setting(name)
            if meant:
                self.problems.append(f"{variable} is no setting, but {_PREFIX}{meant} is one")

    def _known_metrics(self, chosen: tuple[str, ...]) -> tuple[str, ...]:
        if not chosen or chosen == DEFAULT_EMF_METRICS:
            return DEFAULT_EMF_METRICS
        # Its catalogue takes memory; most monitors do without.
        from profiler.record.report_text_and_emf import EMF_METRICS

        unknown = [name for name in chosen if name not in EMF_METRICS]
        if unknown:
            self.problems.append(
                f"{_PREFIX}EMF_METRICS holds the unknown {', '.join(unknown)[:80]!r} (known: "
                f"{', '.join(EMF_METRICS)})"
            )
            return DEFAULT_EMF_METRICS
        return chosen


def _meant_setting(name: str) -> str | None:
    """The setting whose first word, or nearly whose name, a variable has; None if it may be another
    program's.
    """
    known = [setting.name.upper() for setting in SETTINGS]
    longer = [one for one in known if one.startswith(f"{name.upper()}_")]
    if len(longer) == 1:
        return longer[0]
    from profiler.core.similar_names import correct_name  # only for an unknown variable

    return correct_name(name, known)


def read_settings(environment: Mapping[str, str]) -> MonitorSettings:
    """The settings of the monitor.

    Raises UsageError outside of ECS, where there is nothing to monitor.
    """
    endpoint = endpoint_address(environment)
    if environment.get(SCOPE_VARIABLE, "").strip().lower() == "instance":
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
