"""The parameters of the forwarder's template: what is given, what keeps its value, and what gets a default."""

import re
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches

from profiler.core.errors import UsageError

# `setup stack` sets them.
_CODE = {"CodeBucket": "use --bucket", "CodeKey": "the command sets it"}
_SECTION = re.compile(r"^Parameters:\n(.*?)^\S", re.MULTILINE | re.DOTALL)
_NAME = re.compile(r"^  (\w+):$", re.MULTILINE)
_RULES = re.compile(r"^    (AllowedPattern|AllowedValues|ConstraintDescription): (.+)$", re.MULTILINE)


def parameter_names(template: str) -> tuple[str, ...]:
    """The names of the parameters of lambda/template.yaml."""
    section = _SECTION.search(template)
    return tuple(_NAME.findall(section[1])) if section else ()


def check_values(template: str, given: Mapping[str, str]) -> None:
    """Check values as CloudFormation will, after the upload. Raises UsageError, which contains no value."""
    section = _SECTION.search(template)
    _, *parts = _NAME.split(section[1] if section else "")
    for name, text in zip(parts[::2], parts[1::2], strict=True):
        rules = dict(_RULES.findall(text))
        values = [value.strip(' "') for value in rules.get("AllowedValues", "").strip("[]").split(",")]
        accepts = given.get(name, "") in values if "AllowedValues" in rules else True
        if "AllowedPattern" in rules:
            accepts = re.fullmatch(rules["AllowedPattern"], given.get(name, ""), re.ASCII) is not None
        if name in given and not accepts:
            wanted = rules.get("ConstraintDescription", f"one of {', '.join(values)}.")
            raise UsageError(f"The parameter {name} of the template has a wrong value: use {wanted}")


def parse_parameters(texts: Iterable[str], names: Sequence[str]) -> dict[str, str]:
    """Parse ``Name=Value``. Raises UsageError for another form or an unknown name."""
    parsed = {}
    for text in texts:
        name, sign, value = text.partition("=")
        if not sign or not name:
            raise UsageError("A --parameter is not NAME=VALUE: write the parameter's name, =, and its value.")
        if name in _CODE:
            raise UsageError(f"--parameter {name} cannot be given: {_CODE[name]}.")
        if name not in names:
            similar = get_close_matches(name, names, n=1)
            hint = f"did you mean {similar[0]}?" if similar else "docs/deployment.md lists the parameters."
            raise UsageError(f"The template has no parameter {name!r}: {hint}")
        parsed[name] = value
    return parsed


def changed_parameters(
    names: Iterable[str], given: Mapping[str, str], current: Mapping[str, str]
) -> list[dict[str, object]]:
    """The parameters as CloudFormation takes them: given values, then those that the stack keeps.

    CloudFormation uses the defaults of the rest, and rejects what the template does not have any more.
    """
    return [
        {"ParameterKey": name, "ParameterValue": given[name]}
        if name in given
        else {"ParameterKey": name, "UsePreviousValue": True}
        for name in names
        if name in given or name in current
    ]
