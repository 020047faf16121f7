"""``--setting NAME=VALUE``: what it accepts, and what it refuses in one sentence."""

import pytest

from profiler.cli.taskdef.monitor_variables import parse_settings
from profiler.core.errors import UsageError


def test_settings_of_the_monitor_and_other_variables() -> None:
    texts = ("TASK_PROFILER_TAGS=true", "TASK_PROFILER_PRICE_HOUR=1.5", "https_proxy=http://a=b", "EMPTY=")
    assert parse_settings(texts) == {
        "TASK_PROFILER_TAGS": "true",
        "TASK_PROFILER_PRICE_HOUR": "1.5",
        "https_proxy": "http://a=b",
        "EMPTY": "",
    }


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("TASK_PROFILER_TAGS", "is not NAME=VALUE"),
        ("=true", "is not NAME=VALUE"),
        ("A B=1", "is not NAME=VALUE"),
        ("TASK_PROFILER_TAG=true", "no such setting"),
        ("TASK_PROFILER_TAGS=maybe", "'maybe' is not true or false"),
        ("TASK_PROFILER_INTERVAL_SECONDS=0", "is not a number of seconds from 0.02"),
        ("TASK_PROFILER_CONTAINER=etl", "use --container."),
        ("TASK_PROFILER_LOG_GROUP=/ecs/etl", "use --log-group."),
        ("TASK_PROFILER_STACKS=on", "use --stacks."),
    ],
)
def test_a_mistake_is_one_sentence(text: str, reason: str) -> None:
    with pytest.raises(UsageError) as refused:
        parse_settings((text,))
    assert reason in str(refused.value)
    assert str(refused.value).startswith("--setting ")
    assert str(refused.value).endswith(".")


def test_one_name_has_one_value() -> None:
    with pytest.raises(UsageError, match="given twice"):
        parse_settings(("A=1", "A=2"))
