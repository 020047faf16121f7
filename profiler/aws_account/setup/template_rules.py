"""The rules of the template: which parameters contradict each other.

CloudFormation evaluates them, too, but after the bucket and the code were made. They are written in
short forms and flow style, with ``!Equals``, ``!Not``, ``!And`` and ``!Or`` of ``!Ref``.
"""

import re
from collections import deque
from collections.abc import Mapping

from profiler.core.errors import UsageError

_RULE = re.compile(r"^  \w+:\n((?:    .+\n)+)", re.MULTILINE)
_CONDITION = re.compile(r"RuleCondition: (.+)")
_ASSERTION = re.compile(r'Assert: (.+)\n +AssertDescription: "(.+)"')
_WORD = re.compile(r'![A-Za-z]+|"[^"]*"|[][]|[^\s\[\],"]+')

# A text, or whether a condition holds.
Value = str | bool


def check_rules(template: str, values: Mapping[str, str]) -> None:
    """Raise UsageError with the sentences of the broken rules."""
    section = template.partition("\nRules:\n")[2].partition("\nMappings:\n")[0]
    broken: list[str] = []
    for rule in _RULE.findall(section):
        condition = _CONDITION.search(rule)
        if condition and not _is_rule_met(condition[1], values):
            continue
        for assertion, sentence in _ASSERTION.findall(rule):
            if not _is_rule_met(assertion, values):
                broken.append(sentence)
    if broken:
        raise UsageError(" ".join(broken))


def _is_rule_met(expression: str, values: Mapping[str, str]) -> bool:
    words = deque(_WORD.findall(expression))
    return bool(_evaluate_expression(words, values))


def _evaluate_expression(words: deque[str], values: Mapping[str, str]) -> Value:
    """The value of the first expression, whose words are taken from the left."""
    word = words.popleft()
    if not word.startswith("!"):
        return word.strip('"')
    if word == "!Ref":
        return values[words.popleft()]
    arguments: list[Value] = []
    words.popleft()  # the opening bracket
    while words[0] != "]":
        arguments.append(_evaluate_expression(words, values))
    words.popleft()
    if word == "!Equals":
        left, right = arguments
        return left == right
    if word == "!Not":
        (argument,) = arguments
        return not argument
    return all(arguments) if word == "!And" else any(arguments)
