"""Which instance monitors a reader of log groups trusts, and when it asks ECS for them."""

from collections.abc import Sequence

from profiler.record.line_trust import (
    AccountTrust,
    InstanceMonitorGroup,
    LineClaim,
    TrustedGroups,
    read_trusted_globs,
)
from tests.cases import each_case

ACCOUNT = "111122223333"
TASK, MONITOR_TASK = "a" * 32, "b" * 32
CONTAINER_ID = "c" * 64
OWN = f"ecs/task-monitor/{MONITOR_TASK}"
STACK_GROUP = "/ecs/prod-instance-monitor"
CLAIM = LineClaim(task_id=TASK, container="batch", cluster="gpu")


def monitor(log_group: str, prefix: str | None = "ecs") -> InstanceMonitorGroup:
    return InstanceMonitorGroup(
        account_id=ACCOUNT, log_group=log_group, cluster="gpu", stream_prefix=prefix
    )


def verdict(trust: AccountTrust, log_group: str, log_stream: str) -> str | None:
    """What vouches for a line about another task than the stream's."""
    return trust.trust_in_stream(log_group, log_stream).judge_line(CLAIM, None).voucher


@each_case(
    ("log_group", "log_stream", "is_asked"),
    [
        ("/ecs/batch", OWN, True),
        ("/ecs/batch", f"ecs/batch/{TASK}", False),  # its own task's stream
        ("/ecs/batch", f"ecs/batch/{MONITOR_TASK}", False),
        ("/ecs/batch", CONTAINER_ID, False),
        (STACK_GROUP, CONTAINER_ID, True),
        (f"{STACK_GROUP}-2", CONTAINER_ID, False),
        ("/aws/lambda/web", "2026/11/30/[$LATEST]abc", False),
    ],
)
def test_ecs_is_asked_for_monitors_only_if_a_line_may_be_one_of_theirs(
    log_group: str, log_stream: str, *, is_asked: bool
) -> None:
    """Else each line of an outsider would cost calls of AWS."""
    trust = AccountTrust(account_id=ACCOUNT, find_monitors=lambda: ())
    stream = trust.trust_in_stream(log_group, log_stream)
    found = stream.judge_line(CLAIM, None)
    assert trust.is_decided_by_monitors(stream, log_group, found) is is_asked
    known = trust.trust_with_monitors(log_group)
    assert not known.is_decided_by_monitors(stream, log_group, found), "it was asked"


def test_the_stream_of_a_monitor_that_ecs_has_speaks_for_the_tasks_of_its_cluster() -> None:
    asked: list[int] = []

    def find() -> Sequence[InstanceMonitorGroup]:
        asked.append(1)
        return [monitor("/ecs/gpu")]

    trust = AccountTrust(account_id=ACCOUNT, find_monitors=find)
    assert verdict(trust, "/ecs/gpu", OWN) is None
    found = trust.trust_with_monitors("/ecs/gpu")
    assert verdict(found, "/ecs/gpu", OWN) == "defined-monitor", "its definition names the stream"
    assert verdict(found, "/ecs/other", OWN) is None
    assert verdict(found, "/ecs/gpu", f"other/task-monitor/{MONITOR_TASK}") is None
    assert verdict(found.trust_with_monitors("/ecs/gpu"), "/ecs/gpu", OWN) == "defined-monitor"
    assert asked == [1]


def test_a_monitor_that_was_removed_is_known_by_the_group_that_its_stack_made() -> None:
    """Nobody vouches for its runs any more: they are listed, and count nowhere."""
    trust = AccountTrust(account_id=ACCOUNT, find_monitors=lambda: ())
    removed = trust.trust_with_monitors(STACK_GROUP)
    assert verdict(removed, STACK_GROUP, OWN) == "unproven-monitor"
    assert verdict(trust.trust_with_monitors("/ecs/batch"), "/ecs/batch", OWN) is None
    present = AccountTrust(account_id=ACCOUNT, find_monitors=lambda: [monitor(STACK_GROUP)])
    found = present.trust_with_monitors(STACK_GROUP)
    assert found.groups.instance_monitors == (monitor(STACK_GROUP),), "the group is its own"
    kept = AccountTrust(
        account_id=ACCOUNT, groups=TrustedGroups(instance_monitors=(monitor("/ecs/kept"),))
    ).trust_with_monitors(STACK_GROUP)
    assert [one.log_group for one in kept.groups.instance_monitors] == ["/ecs/kept", STACK_GROUP]


def test_a_group_is_trusted_only_by_name() -> None:
    assert read_trusted_globs({}) == ()
    assert read_trusted_globs({"TRUSTED_LOG_GROUPS": " , "}) == ()
    assert read_trusted_globs({"TRUSTED_LOG_GROUPS": "/ecs/a, /ecs/b-*"}) == ("/ecs/a", "/ecs/b-*")
