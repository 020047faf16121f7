"""``--setting NAME=VALUE``: environment variables of the monitor. A mistake is found here, not by each task."""

import re

from profiler.core.ecs_terms import CONTAINER_VARIABLE
from profiler.core.errors import UsageError
from profiler.settings import read_settings
from profiler.task_definitions.containers import LOG_GROUP_VARIABLE, STACKS_VARIABLE

_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_PREFIX = "TASK_PROFILER_"
_ENDPOINT = {"ECS_CONTAINER_METADATA_URI_V4": "http://169.254.170.2/v4/unknown"}
_OPTIONS = {CONTAINER_VARIABLE: "--container", LOG_GROUP_VARIABLE: "--log-group", STACKS_VARIABLE: "--stacks"}


class _AskedVariables(dict[str, str]):
    """An environment that remembers the names that were asked for."""

    def __init__(self, variables: dict[str, str]) -> None:
        super().__init__(variables)
        self.asked: set[str] = set()

    def get(self, key: str, default: str = "") -> str:  # type: ignore[override]
        self.asked.add(key)
        return super().get(key, default)


def parse_settings(texts: tuple[str, ...]) -> dict[str, str]:
    """The variables by their names. Raises UsageError for a mistake in a name or a value."""
    settings: dict[str, str] = {}
    for text in texts:
        name, sign, value = text.partition("=")
        if not sign or _NAME.fullmatch(name) is None:
            raise UsageError(f"--setting {text!r} is not NAME=VALUE: write a variable's name, =, and its value.")
        if name in settings:
            raise UsageError(f"--setting {name} is given twice: use one value.")
        if name in _OPTIONS:
            raise UsageError(f"--setting cannot set {name}, which requires further changes: use {_OPTIONS[name]}.")
        _check(name, value)
        settings[name] = value
    return settings


def _check(name: str, value: str) -> None:
    """Refuse a setting that the monitor does not know, or whose value it would not accept."""
    environment = _AskedVariables({**_ENDPOINT, name: value})
    problems = read_settings(environment).problems
    if name.startswith(_PREFIX) and name not in environment.asked:
        raise UsageError(f"--setting {name}: the monitor has no such setting, so check its name in docs/monitor.md.")
    if problems:
        raise UsageError(f"--setting {problems[0]}: correct the value.")
