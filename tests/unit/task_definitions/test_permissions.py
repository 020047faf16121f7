"""The policy of a task role, merged with what is there."""

from typing import Any

import pytest

from profiler.task_definitions.permissions import merged_policy, policy, read_policy

FIRST, SECOND = (
    "arn:aws:logs:us-east-1:123456789012:log-group:/a:*",
    "arn:aws:logs:us-east-1:123456789012:log-group:/b:*",
)
OWN: dict[str, Any] = {"Sid": "Own", "Effect": "Allow", "Action": "s3:GetObject", "Resource": "*"}
STATEMENTS: Any = policy({FIRST})["Statement"]
PUT: dict[str, Any] = STATEMENTS[0]


@pytest.mark.parametrize("statements", [OWN, [OWN]], ids=["object", "list"])
def test_a_foreign_statement_is_kept(statements: Any) -> None:
    """IAM accepts one statement as an object, without a list."""
    existing = {"Version": "2012-10-17", "Id": "x", "Statement": statements}
    assert merged_policy(existing, frozenset({FIRST})) == {**existing, "Statement": [OWN, PUT]}


@pytest.mark.parametrize("statements", [PUT, [PUT], {**PUT, "Resource": FIRST}], ids=["object", "list", "text"])
def test_own_streams_are_added_to_and_a_second_time_changes_nothing(statements: Any) -> None:
    existing = {"Version": "2012-10-17", "Statement": statements}
    assert merged_policy(existing, frozenset({FIRST})) is existing
    merged = merged_policy(existing, frozenset({SECOND}))
    assert merged["Statement"] == [{**PUT, "Resource": [FIRST, SECOND]}]
    assert merged_policy(merged, frozenset({FIRST, SECOND})) is merged


def test_a_policy_is_read_as_text_and_as_an_object() -> None:
    assert read_policy('{"Statement": []}') == read_policy({"Statement": []}) == {"Statement": []}
    assert merged_policy(None, frozenset({FIRST})) == policy({FIRST})
