"""The policy of a task role, merged with what is there."""

from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from profiler.core.errors import TaskProfilerError
from profiler.task_definitions.permissions import (
    MAX_INLINE_CHARACTERS,
    characters,
    concerns,
    covers,
    is_allowed,
    planned_policy,
    policy,
)

FIRST, SECOND = (
    "arn:aws:logs:us-east-1:123456789012:log-group:/a:*",
    "arn:aws:logs:us-east-1:123456789012:log-group:/b:*",
)
OWN: dict[str, Any] = {"Sid": "Own", "Effect": "Allow", "Action": "s3:GetObject", "Resource": "*"}
STATEMENTS: Any = policy({FIRST})["Statement"]
PUT: dict[str, Any] = STATEMENTS[0]
planned: Any = partial(planned_policy, "nightly")


@pytest.mark.parametrize("statements", [OWN, [OWN]], ids=["object", "list"])
def test_a_foreign_statement_is_kept(statements: Any) -> None:
    """IAM accepts one statement as an object, without a list."""
    existing = {"Version": "2012-10-17", "Id": "x", "Statement": statements}
    assert planned(frozenset({FIRST}), existing).document == {**existing, "Statement": [OWN, PUT]}


@pytest.mark.parametrize("statements", [PUT, [PUT], {**PUT, "Resource": FIRST}], ids=["object", "list", "text"])
def test_own_streams_are_added_to_and_a_second_time_changes_nothing(statements: Any) -> None:
    existing = {"Version": "2012-10-17", "Statement": statements}
    assert planned(frozenset({FIRST}), existing).document is None
    merged = planned(frozenset({SECOND}), existing).document
    assert merged["Statement"] == [{**PUT, "Resource": [FIRST, SECOND]}]
    assert planned(frozenset({FIRST, SECOND}), merged).document is None


def streams_of(*groups: str) -> frozenset[str]:
    return frozenset(
        f"arn:aws:logs:us-east-1:123456789012:log-group:{group}:log-stream:ecs/batch/*" for group in groups
    )


def test_a_policy_beyond_the_limit_gets_the_longest_prefixes_that_fit() -> None:
    needed = streams_of("/other/one", *(f"/ecs/nightly-{number:03}" for number in range(125)))
    fitted = planned(needed)
    assert fitted.exact_characters > MAX_INLINE_CHARACTERS >= characters(fitted.document)
    assert [prefix.rpartition(":")[2] for prefix in fitted.prefixes] == ["/ecs/nightly-00*", "/ecs/nightly-01*"]
    resources: Any = fitted.document["Statement"]
    assert streams_of("/other/one", "/ecs/nightly-020") <= frozenset(resources[0]["Resource"])
    assert planned(needed, fitted.document).document is None
    less = planned(needed, other_characters=MAX_INLINE_CHARACTERS - 330)
    assert [prefix.rpartition(":")[2] for prefix in less.prefixes] == ["/ecs/nightly-*"]


@pytest.mark.parametrize(
    ("statement", "is_about"),
    [
        ({"Action": "LOGS:Put*", "Resource": FIRST}, True),
        ({"Action": ["logs:Get*", "s3:*"], "Resource": "*"}, False),
        ({"Action": "*", "Resource": [SECOND]}, False),
        ({"NotAction": ["iam:*", "organizations:*"], "Resource": "*"}, True),  # as AWS's PowerUserAccess
        ({"NotAction": "logs:*", "Resource": "*"}, False),
        ({"Action": "logs:*", "NotResource": SECOND}, True),
        ({"Action": "logs:*", "NotResource": [SECOND, FIRST]}, False),
    ],
)
def test_a_statement_is_about_what_it_names_or_about_all_that_it_does_not_name(
    statement: dict[str, Any], *, is_about: bool
) -> None:
    assert (concerns(statement, "logs:PutLogEvents") and covers(statement, FIRST)) is is_about


def test_a_policy_that_does_not_fit_is_refused() -> None:
    with pytest.raises(TaskProfilerError, match=r"other inline policies 10200.*attach what --policy prints"):
        planned(streams_of("/ecs/a", "/ecs/b"), other_characters=10_200)
    with pytest.raises(TaskProfilerError, match="IAM allows 10240"):
        planned(frozenset(streams_of(*(f"/{number:04}/jobs" for number in range(200)))))


names = st.text("abc-_/.", min_size=1, max_size=12).map("/ecs/{}".format)


@given(st.lists(names, min_size=1, max_size=30), st.integers(9_000, 10_000))
def test_a_policy_with_prefixes_allows_all_that_it_must(groups: list[str], others: int) -> None:
    needed = streams_of(*groups)
    fitted = planned(needed, other_characters=others)
    statements: Any = fitted.document["Statement"]
    allowed = statements[0]["Resource"]
    assert all(is_allowed(stream, allowed) for stream in needed)
    assert not any(is_allowed(stream, allowed) for stream in streams_of("/secret"))
    assert characters(fitted.document) + others <= MAX_INLINE_CHARACTERS
    assert planned(needed, fitted.document, other_characters=others).document is None
