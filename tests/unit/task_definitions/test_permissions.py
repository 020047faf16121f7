"""The policy of a task role, merged with what is there."""

import re
from fnmatch import fnmatchcase
from functools import partial
from itertools import chain, product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from profiler.core.errors import TaskProfilerError
from profiler.task_definitions import permissions
from profiler.task_definitions.permissions import (
    MAX_INLINE_CHARACTERS,
    iam_policy_length,
    is_covered,
)
from tests.cases import each_case

FIRST, SECOND = (f"arn:aws:logs:us-east-1:123456789012:log-group:/{name}:*" for name in "ab")
OF_TEAM = "arn:aws:logs:*:*:log-group:/${aws:PrincipalTag/team}:*"
OWN: dict[str, Any] = {"Sid": "Own", "Effect": "Allow", "Action": "s3:GetObject", "Resource": "*"}
STATEMENTS: Any = permissions.report_policy({FIRST})["Statement"]
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
    assert fitted.exact_characters > MAX_INLINE_CHARACTERS >= iam_policy_length(fitted.document)
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


@each_case(
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
    is_named = permissions.is_about_action(statement, "logs:PutLogEvents")
    assert (permissions.covers_resource(statement, FIRST) if is_named else "no") == is_about


STREAMS = f"{FIRST[:-1]}log-stream:ecs/batch/*"


@each_case(
    ("statement", "is_about"),
    [
        # A task whose id begins with a gets no report, another one does.
        ({"Effect": "Deny", "Resource": f"{STREAMS[:-1]}a*"}, "unknown"),
        ({"Effect": "Deny", "Resource": "*/batch/?f*"}, "unknown"),
        (
            {"Effect": "Deny", "Resource": f"{FIRST[:-1]}log-stream:${{aws:username}}/batch/1"},
            "unknown",
        ),
        ({"Effect": "Allow", "NotResource": f"{STREAMS[:-1]}a*"}, "unknown"),
        ({"Effect": "Deny", "Resource": "*:log-stream:ecs/other/*"}, "no"),
        ({"Effect": "Deny", "Resource": SECOND}, "no"),
        ({"Effect": "Deny", "Resource": FIRST}, "yes"),
        ({"Effect": "Allow", "NotResource": "*/other/*"}, "yes"),
        ({"Effect": "Allow", "NotResource": SECOND}, "yes"),
        # Most tasks get no report.
        ({"Effect": "Allow", "Resource": f"{STREAMS[:-1]}a*"}, "no"),
        ({"Effect": "Deny", "NotResource": f"{STREAMS[:-1]}a*"}, "yes"),
    ],
)
def test_a_refused_part_of_the_streams_is_unknown(statement: dict[str, Any], is_about: str) -> None:
    assert permissions.covers_resource(statement, STREAMS) == is_about


def test_a_deny_on_something_else_does_not_refuse_an_action_without_a_resource() -> None:
    """Such as ``ecr:GetAuthorizationToken``."""
    statement = {"Effect": "Deny", "Action": "*", "Resource": "arn:aws:s3:::secret/*"}
    assert permissions.covers_resource(statement, "*") == "no"
    assert permissions.covers_resource({**statement, "Resource": "*"}, "*") == "yes"


@given(st.text("ab/*", max_size=3), st.text("ab/*?", max_size=4))
def test_a_pattern_may_name_a_stream_where_a_text_fits_both(stream: str, pattern: str) -> None:
    texts = chain.from_iterable(product("ab/", repeat=size) for size in range(8))
    of_stream = re.compile(stream.replace("*", "[ab]*"))
    fitting = (
        of_stream.fullmatch(text) and fnmatchcase(text, pattern) for text in map("".join, texts)
    )
    assert permissions.may_name_stream(stream, pattern) == any(fitting)


# IAM takes a policy of 6,144 characters, of which one pattern may be nearly all.
@pytest.mark.parametrize("character", ["*", "a"])
def test_a_pattern_may_be_as_long_as_a_policy(character: str) -> None:
    pattern = character * 6_000
    assert permissions.may_name_stream("*", pattern)
    assert permissions.may_name_stream("stream", pattern) == (character == "*")


names = st.text("abc-_/.", min_size=1, max_size=12).map("/ecs/{}".format)


@given(st.lists(names, min_size=1, max_size=30), st.integers(9_000, 10_000))
def test_a_policy_with_prefixes_allows_all_that_it_must(groups: list[str], others: int) -> None:
    needed = streams_of(*groups)
    fitted = planned(needed, other_characters=others)
    statements: Any = fitted.document["Statement"]
    allowed = statements[0]["Resource"]
    assert all(is_covered(stream, allowed) for stream in needed)
    assert not any(is_covered(stream, allowed) for stream in streams_of("/secret"))
    assert iam_policy_length(fitted.document) + others <= MAX_INLINE_CHARACTERS
    assert planned(needed, fitted.document, other_characters=others).document is None
