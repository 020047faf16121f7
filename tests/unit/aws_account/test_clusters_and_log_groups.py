"""Log groups by patterns of names."""

import pytest

from profiler.aws_account.clusters_and_log_groups import matching_log_groups


class Logs:
    """CloudWatch Logs with some groups, in pages of two."""

    def __init__(self, *groups: str) -> None:
        self.groups = sorted(groups)
        self.prefixes: list[str | None] = []

    def get_paginator(self, operation: str) -> "Logs":
        assert operation == "describe_log_groups"
        return self

    def paginate(self, logGroupNamePrefix: str | None = None) -> list[dict[str, list[dict[str, str]]]]:
        self.prefixes.append(logGroupNamePrefix)
        found = [{"logGroupName": group} for group in self.groups if group.startswith(logGroupNamePrefix or "")]
        return [{"logGroups": found[start : start + 2]} for start in range(0, len(found), 2)]


GROUPS = ("/ecs/etl-1", "/ecs/etl-2", "/ecs/etl-30", "/ecs/load", "other")


@pytest.mark.parametrize(
    ("names", "expected", "prefixes"),
    [
        (("/ecs/none", "other"), ("/ecs/none", "other"), []),
        (("/ecs/etl-?",), GROUPS[:2], ["/ecs/etl-"]),
        (
            ("/ecs/etl-[23]*", "/ecs/*"),
            ("/ecs/etl-2", "/ecs/etl-30", "/ecs/etl-1", "/ecs/load"),
            ["/ecs/etl-", "/ecs/"],
        ),
        (("*er",), ("other",), [None]),
    ],
)
def test_only_patterns_are_listed_by_their_literal_prefix(
    names: tuple[str, ...], expected: tuple[str, ...], prefixes: list[str | None]
) -> None:
    logs = Logs(*GROUPS)
    assert matching_log_groups(lambda _service: logs, names) == expected
    assert logs.prefixes == prefixes
