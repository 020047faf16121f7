"""Generate docs/commands.md, the reference of commands, options, parameters and live metrics,
from the code.

python tools/commands_page.py
"""

import inspect
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import yaml  # type: ignore[import-untyped]  # moto depends on it

from profiler.cli.app import group
from profiler.cli.options import aws_options, source_options
from profiler.monitor.prometheus.prometheus_metrics import LIVE_METRICS
from profiler.record.report_text_and_emf import EMF_METRICS, emf_unit_of
from profiler.record.search_document_fields import FIELDS
from profiler.settings import DEFAULT_EMF_METRICS, SETTINGS, Setting

_ROOT = Path(__file__).resolve().parent.parent
PAGE = _ROOT / "docs" / "commands.md"
_PROGRAM = "task-profiler"
_NO_WRAP_MARK = "\b\n"
_METAVARS = {"integer": "N", "float": "NUMBER"}  # of options without a metavar of their own
_HEAD = """\
# Commands

`--help` after a command prints its help. Errors are one sentence on stderr; the exit code is 2 for an invalid command
line and 1 for a later failure. `run` exits with its command's exit code. The global options `--version` and `--debug`
(print a traceback on failure) precede the command. `--region` (default: AWS_REGION, else the profile's) and `--profile`
(default: AWS_PROFILE) select the AWS account.

`make commands` generates this page. Below the commands: [options for past runs](#options-for-past-runs),
[settings of the monitor](#settings-of-the-monitor), parameters of [the forwarder](#parameters-of-the-forwarder) and of
the clusters for [GPUs](#parameters-of-the-cluster-for-gpus) and [Neuron](#parameters-of-the-cluster-for-neuron), the
forwarder's [alarms](#alarms-of-the-forwarder), [document fields](#document-fields), metrics for
[CloudWatch](#cloudwatch-metrics) and [Prometheus](#live-metrics).
"""
_TEMPLATES = {
    "Parameters of the forwarder": "lambda/template.yaml",
    "Parameters of the cluster for GPUs": "taskdef/cluster-gpu.yaml",
    "Parameters of the cluster for Neuron": "taskdef/cluster-neuron.yaml",
}
_ALARMS = """
## Alarms of the forwarder

The names begin with the name of the stack.

| alarm | meaning and what to do |
|---|---|
"""
_DOCUMENT_FIELDS = """
## Document fields

A run's [document](forwarder.md#documents) has these fields. A field without a path in [the record](record.md) is
calculated or comes from ECS's event. The names follow the Elastic Common Schema.

| field | type | path in the record |
|---|---|---|
"""
_CLOUDWATCH_METRICS = """
## CloudWatch metrics

[CloudWatch](metrics.md#cloudwatch) gets the metrics of `TASK_PROFILER_EMF_METRICS`, by default those with *yes*.

| metric | unit | default |
|---|---|---|
"""
_LIVE_METRICS = """
## Live metrics

[Prometheus](metrics.md#prometheus) reads these from the monitor, each also with the labels `task_family` and `task_id`.
Names that end in `_total` are counters, all others gauges.

| metric | value |
|---|---|
"""
_SETTINGS_OF_THE_MONITOR = """
## Settings of the monitor

Environment variables of [the monitor](monitor.md#settings); some are also `run`'s.

| variable | default | value | meaning |
|---|---|---|---|
"""
_SETTINGS = "[Settings of the monitor](#settings-of-the-monitor) lists them."
# What the help does not say of a setting, and the page that explains it.
_SETTING_NOTES = {
    "container": "[how it is found](monitor.md#the-batch-container)",
    "stop_seconds": "to the monitor's exit; must be below `stopTimeout`",
    "log_group": "[where the report goes](monitor.md#where-the-report-goes)",
    "report_stream": "[where the report goes](monitor.md#where-the-report-goes)",
    "series_points": "half the maximum length of the [time series](record.md#time-series)",
    "stuck_minutes": "[a running batch](notifications.md#a-running-batch)",
    "expected_seconds": "[a running batch](notifications.md#a-running-batch)",
    "tags": "[tags of the task](monitor.md#tags-of-the-task)",
    "gpu": "[NVIDIA GPUs](gpu.md#nvidia-gpus)",
    "gpu_uuids": "[NVIDIA GPUs](gpu.md#nvidia-gpus)",
    "neuron": "[Inferentia and Trainium](gpu.md#inferentia-and-trainium)",
    "scope": "[one monitor for an EC2 instance](instance-monitor.md)",
    "families": "separated by commas",
    "processes": "also the parts of the wall time",
    "process_arguments": "[arguments](monitor.md#arguments), which can contain secrets",
    "stacks": "[call stacks](why-slow.md#call-stacks)",
    "emf": "`live`: from checkpoints too. [CloudWatch](metrics.md#cloudwatch)",
    "emf_metrics": "[CloudWatch metrics](#cloudwatch-metrics), separated by commas",
    "prometheus_port": "[Prometheus](metrics.md#prometheus)",
    "price_vcpu_hour": "on Fargate; [prices](right-size.md#prices)",
    "price_hour": "also on Managed Instances, and of a local machine with a GPU; without it, no cost",
}


# The loader reads the name, which is a function, as nothing.
_ALARM = re.compile(
    r'AlarmName: !Sub "\$\{AWS::StackName\}-([\w-]+)",\n +AlarmDescription: "(.+)",$', re.MULTILINE
)


class _TemplateLoader(yaml.SafeLoader):  # type: ignore[misc]  # untyped
    """Reads CloudFormation's short functions as nothing: parameters have none."""


_TemplateLoader.add_multi_constructor("!", lambda *_: None)


def page_text() -> str:
    """Generate the text of the page."""
    described: dict[str, str] = {}
    sections = [_section(names, command, described) for names, command in leaf_commands(group, ())]
    templates = [_parameters(heading, file) for heading, file in _TEMPLATES.items()]
    return "".join(
        [
            _HEAD,
            *sections,
            _past_run_options(),
            _monitor_settings_table(),
            *templates,
            _alarms_table(),
            _document_fields_table(),
            _cloudwatch_metrics_table(),
            _live_metrics_table(),
        ]
    )


def leaf_commands(
    command: click.Command, names: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Yield each command that does something, with its full name: a group only if it needs no
    subcommand.
    """
    if not isinstance(command, click.Group):
        yield names, command
        return
    context = click.Context(command)
    for name in command.list_commands(context):
        child = command.get_command(context, name)
        if child is not None and not child.hidden:
            yield from leaf_commands(child, (*names, name))
    if names and command.invoke_without_command:
        yield names, command


def _past_run_items() -> list[str]:
    return [
        _option_item(option)
        for option in _leave_out_together(aws_options, _added_by(source_options))[0]
    ]


def _past_run_options() -> str:
    """Generate the section of the options that all commands for past runs have."""
    return "\n".join(["\n## Options for past runs\n", "".join(_past_run_items())])


def _without_past_run_options(options: list[click.Option]) -> tuple[list[click.Option], str]:
    """Leave out the options for past runs, and return a link to them that says which of them the
    command has.
    """
    shared = _past_run_items()
    own = [option for option in options if _option_item(option) not in shared]
    shared_options = [option for option in options if _option_item(option) in shared]
    link = "[options for past runs](#options-for-past-runs)"
    if len(shared_options) == 1:
        return own, f"`{shared_options[0].opts[0]}` of {link}"
    missing = [
        item.partition("`")[2].partition(" ")[0]
        for item in shared
        if item not in map(_option_item, shared_options)
    ]
    return (
        own,
        f"{link}{''.join(f' except `{name}`' for name in missing)}" if shared_options else "",
    )


def _monitor_settings_table() -> str:
    """Generate the table of the monitor's settings, from their help and what they accept."""
    rows = "".join(map(_setting_row, SETTINGS))
    return f"{_SETTINGS_OF_THE_MONITOR}{rows}"


def _setting_row(setting: Setting) -> str:
    meaning, _, default = setting.help.format(setting.default).rpartition(" (")
    default = default.removesuffix(")")
    if setting.instance_default is not None:
        default = f"{default}, with scope `instance` {setting.instance_default:g}"
    value = setting.value.expected or "text"
    parts = [meaning, _SETTING_NOTES.get(setting.name, "")]
    if set(meaning.split(", ")) <= set(re.split(", | or ", value)):
        del parts[0]  # the help has only the words that the setting takes
    description = "; ".join(part for part in parts if part)
    return f"| `{setting.variable}` | {default} | {value} | {description} |\n"


def _parameters(heading: str, file: str) -> str:
    """Generate the section of a CloudFormation template: its parameters and outputs."""
    template = _template(file)
    rows = [
        f"| `{name}` | {_parameter_default(parameter)} | {_parameter_meaning(parameter)} |\n"
        for name, parameter in template["Parameters"].items()
    ]
    outputs = ", ".join(f"`{name}`" for name in template["Outputs"])
    return (
        f"\n## {heading}\n\n[{file}](../{file})\n\n| parameter | default | meaning "
        f"|\n|---|---|---|\n{''.join(rows)}\nOutputs: {outputs}.\n"
    )


def _template(file: str) -> Any:  # noqa: ANN401  YAML
    # A SafeLoader.
    return yaml.load((_ROOT / file).read_text(), Loader=_TemplateLoader)  # noqa: S506


def _alarms_table() -> str:
    """Generate the table of the alarms in the forwarder's template."""
    page_text = (_ROOT / "lambda" / "template.yaml").read_text()
    rows = "".join(
        f"| `-{ending}` | {_escape_table_text(description)} |\n"
        for ending, description in _ALARM.findall(page_text)
    )
    return f"{_ALARMS}{rows}"


def _parameter_meaning(parameter: dict[str, Any]) -> str:
    values = ", ".join(f"`{value}`" for value in parameter.get("AllowedValues", []))
    description = _escape_table_text(" ".join(parameter.get("Description", "").split()))
    return f"{description} One of {values}." if values else description


def _document_fields_table() -> str:
    """Generate the table of the fields of a run's document in the search cluster."""
    rows = [
        (
            f"| `{field.name}` | {field.index_type} | "
            f"{f'`{field.record_path}`' if field.record_path else ''} |\n"
        )
        for field in FIELDS
    ]
    return f"{_DOCUMENT_FIELDS}{''.join(rows)}"


def _parameter_default(parameter: dict[str, Any]) -> str:
    if "Default" not in parameter:
        return "required"
    return f"`{parameter['Default']}`" if parameter["Default"] != "" else ""


def _cloudwatch_metrics_table() -> str:
    """Generate the table of the metrics for CloudWatch."""
    rows = [
        f"| `{name}` | {emf_unit_of(metric)} | {'yes' if name in DEFAULT_EMF_METRICS else ''} |\n"
        for name, metric in EMF_METRICS.items()
    ]
    return f"{_CLOUDWATCH_METRICS}{''.join(rows)}"


def _live_metrics_table() -> str:
    """Generate the table of the metrics for Prometheus."""
    rows = [
        f"| `{metric.full_name}{{{','.join(metric.labels)}}}` | {metric.help.removesuffix('.')} |\n".replace(
            "{}", ""
        )
        for metric in LIVE_METRICS
    ]
    return f"{_LIVE_METRICS}{''.join(rows)}"


def _section(names: tuple[str, ...], command: click.Command, described: dict[str, str]) -> str:
    """Generate the section of a command; ``described`` has the heading below which each option
    was described first.
    """
    context = click.Context(command)
    arguments = [
        option.make_metavar(context)
        for option in command.params
        if isinstance(option, click.Argument)
    ]
    usage = " ".join([_PROGRAM, *names, *(["[OPTION]…"] if _options(command) else []), *arguments])
    parts = [
        f"\n## {' '.join(names)}\n",
        f"`{usage}`\n",
        *_paragraphs(inspect.cleandoc(command.help or "")),
    ]
    own, calls_aws = _leave_out_together(aws_options, _options(command))
    own, past_runs = _without_past_run_options(own)
    heading = " ".join(names)
    new = [
        option for option in own if described.setdefault(_option_item(option), heading) == heading
    ]
    if new:
        parts.append("".join(map(_option_item, new)))
    if seen := [option for option in own if option not in new]:
        parts.append(f"{_repeated_options_text(seen, described)}\n")
    if past_runs:
        parts.append(f"Also: {past_runs}.\n")
    if calls_aws and not past_runs.startswith("["):
        parts.append("Also: `--region`, `--profile`.\n")
    if command.epilog:
        parts.append(f"{_example_text(command.epilog)}\n")
    return "\n".join(parts)


def _paragraphs(help_text: str) -> Iterator[str]:
    """Yield the paragraphs of a help text.

    The list of settings, which click does not wrap, is a table of its own.
    """
    for paragraph in help_text.split("\n\n"):
        lines = paragraph.strip("\n")
        if lines.startswith(_NO_WRAP_MARK):
            yield f"{_SETTINGS}\n"
        else:
            yield f"{_escape_table_text(' '.join(lines.split()))}\n"


def _options(command: click.Command) -> list[click.Option]:
    return [
        option
        for option in command.params
        if isinstance(option, click.Option) and not option.hidden
    ]


def _added_by(
    add_options: Callable[[Callable[..., None]], Callable[..., int | None]],
) -> list[click.Option]:
    return _options(click.command("any")(add_options(lambda **_: None)))


def _leave_out_together(
    add_options: Callable[[Callable[..., None]], Callable[..., int | None]],
    options: list[click.Option],
) -> tuple[list[click.Option], bool]:
    """Leave out the options that this decorator adds if all of them are there, and return
    whether they are.
    """
    shared = {_option_item(option) for option in _added_by(add_options)}
    if not shared <= {_option_item(option) for option in options}:
        return options, False
    return [option for option in options if _option_item(option) not in shared], True


def _repeated_options_text(options: list[click.Option], described: dict[str, str]) -> str:
    """Name options that other commands have, too, with links to their descriptions."""
    headings: dict[str, list[str]] = {}
    for option in options:
        headings.setdefault(described[_option_item(option)], []).append(_option_names(option))
    links = [
        f"{', '.join(names)} of [{heading}](#{heading.replace(' ', '-')})"
        for heading, names in headings.items()
    ]
    return f"Also: {'; '.join(links)}."


def _option_item(option: click.Option) -> str:
    return f"- {_option_names(option)}: {_option_description(option)}\n"


def _option_names(option: click.Option) -> str:
    value = "" if option.is_flag else f" {_option_value_text(option)}"
    return ", ".join(f"`{name}{value}`" for name in option.opts)


def _option_value_text(option: click.Option) -> str:
    if option.metavar is not None:
        return option.metavar
    choices: Any = getattr(option.type, "choices", None)
    return "|".join(choices) if choices else _METAVARS[option.type.name.partition(" ")[0]]


def _option_description(option: click.Option) -> str:
    if option.show_default and option.default is not None:
        default = f" Default: `{option.default}`."
    else:
        default = ""
    return _escape_table_text(
        (option.help or "") + default + (" Required." if option.required else "")
    )


def _example_text(epilog: str) -> str:
    """Format an epilog; if it is only an example, format its command as code."""
    word, _, rest = epilog.partition(": ")
    return (
        f"{word}: `{rest}`" if word == "Example" and "`" not in rest else _escape_table_text(epilog)
    )


def _escape_table_text(page_text: str) -> str:
    return page_text.replace("*", "\\*")


if __name__ == "__main__":
    PAGE.write_text(page_text())
