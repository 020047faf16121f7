"""The policy of a task role, merged with what is there."""

from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from profiler.core.errors import TaskProfilerError
from profiler.task_definitions import permissions
from profiler.task_definitions.permissions import MAX_INLINE_CHARACTERS, characters, is_allowed

FIRST, SECOND = (f"arn:aws:logs:us-east-1:123456789012:log-group:/{name}:*" for name in "ab")
OF_TEAM = "arn:aws:logs:*:*:log-group:/${aws:PrincipalTag/team}:*"
OWN: dict[str, Any] = {"Sid": "Own", "Effect": "Allow", "Action": "s3:GetObject", "Resource": "*"}
STATEMENTS: Any = permissions.policy({FIRST})["Statement"]
PUT: dict[str, Any] = STATEMENTS[0]
planned: Any = partial(permissions.planned_policy, "nightly")


def test_a_foreign_statement_is_kept_and_own_streams_are_added_to_once() -> None:
    """IAM accepts one statement as an object, without a list."""
    for statements in (OWN, [OWN]):
        foreign = {"Version": "2012-10-17", "Id": "x", "Statement": statements}
        assert planned(frozenset({FIRST}), foreign).document == {**foreign, "Statement": [OWN, PUT]}
    for statements in (PUT, [PUT], {**PUT, "Resource": FIRST}):
        existing = {"Version": "2012-10-17", "Statement": statements}
        assert planned(frozenset({FIRST}), existing).document is None
        merged = planned(frozenset({SECOND}), existing).document
        assert merged["Statement"] == [{**PUT, "Resource": [FIRST, SECOND]}]
        assert planned(frozenset({FIRST, SECOND}), merged).document is None


def streams_of(*groups: str) -> frozenset[str]:
    logs = "arn:aws:logs:us-east-1:123456789012"
    return frozenset(f"{logs}:log-group:{group}:log-stream:ecs/batch/*" for group in groups)


def test_a_policy_beyond_the_limit_gets_the_longest_prefixes_that_fit_or_is_refused() -> None:
    needed = streams_of("/other/one", *(f"/ecs/nightly-{number:03}" for number in range(125)))
    fitted = planned(needed)
    assert fitted.exact_characters > MAX_INLINE_CHARACTERS >= characters(fitted.document)
    assert [prefix.rpartition(":")[2] for prefix in fitted.prefixes] == [
        "/ecs/nightly-00*",
        "/ecs/nightly-01*",
    ]
    resources: Any = fitted.document["Statement"]
    assert streams_of("/other/one", "/ecs/nightly-020") <= frozenset(resources[0]["Resource"])
    assert planned(needed, fitted.document).document is None
    less = planned(needed, other_characters=MAX_INLINE_CHARACTERS - 330)
    assert [prefix.rpartition(":")[2] for prefix in less.prefixes] == ["/ecs/nightly-*"]
    with pytest.raises(
        TaskProfilerError, match=r"other inline policies 10200.*attach what --policy prints"
    ):
        planned(streams_of("/ecs/a", "/ecs/b"), other_characters=10_200)
    with pytest.raises(TaskProfilerError, match="IAM allows 10240"):
        planned(streams_of(*(f"/{number:04}/jobs" for number in range(200))))


@pytest.mark.parametrize(
    ("statement", "is_about"),
    [
        ({"Action": "LOGS:Put*", "Resource": FIRST}, "yes"),
        ({"Action": ["logs:Get*", "s3:*"], "Resource": "*"}, "no"),
        ({"Action": "*", "Resource": [SECOND]}, "no"),
        (
            {"NotAction": ["iam:*", "organizations:*"], "Resource": "*"},
            "yes",
        ),  # as AWS's PowerUserAccess
        ({"NotAction": "logs:*", "Resource": "*"}, "no"),
        ({"Action": "logs:*", "NotResource": SECOND}, "yes"),
        ({"Action": "logs:*", "NotResource": [SECOND, FIRST]}, "no"),
        ({"Action": "logs:*", "Resource": OF_TEAM}, "unknown"),
        ({"Action": "logs:*", "NotResource": OF_TEAM}, "unknown"),
        ({"Action": "logs:*", "Resource": [OF_TEAM, FIRST]}, "yes"),
        ({"Action": "logs:*", "NotResource": [OF_TEAM, FIRST]}, "no"),
        ({"Action": "logs:*", "Resource": "arn:aws:s3:::${aws:username}/*"}, "no"),
    ],
)
def test_a_statement_is_about_what_it_names_or_does_not_name(
    statement: dict[str, Any], is_about: str
) -> None:
    """A statement is about what it names or about all that it does not name. A variable of a
    principal can have any value.
    """
    is_named = permissions.concerns(statement, "logs:PutLogEvents")
    assert (permissions.covers(statement, FIRST) if is_named else "no") == is_about


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
