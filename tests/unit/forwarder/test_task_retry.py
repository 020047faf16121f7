"""Retries of killed runs: when, with how much memory, by which calls of boto3's clients; and
what is said.
"""

import json
from datetime import timedelta
from typing import Any

import pytest
from botocore.session import get_session
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from profiler.forwarder.ended_run import EndedRun, MemoryRetry
from profiler.forwarder.invocation import DeliveryError, SearchClusterError
from profiler.forwarder.memory_retry_rules import RetryRefusedError
from profiler.forwarder.notifications.event_details import ended_run_detail
from profiler.forwarder.notifications.slack_messages import ended_task_message
from profiler.forwarder.report_finder import ReportLine
from profiler.forwarder.task_retry import choose_larger_memory, should_retry
from profiler.record.family_statistics import NeedAtSize
from profiler.sizing.fargate_sizes import LEGAL_SIZES, Size
from tests.cases import each_case
from tests.counting_search import CountingSearch
from tests.fake_search import AnsweringSearch
from tests.memory_retries import (
    BATCH,
    CLUSTER,
    FAMILY_ARN,
    KILLED,
    MAX_MB,
    NEW_ARN,
    NEW_ID,
    STOPPED,
    TARGET,
    TASK_ID,
    RetryAccount,
    batch,
    ended,
    killed,
    need_of,
    request,
    target,
)
from tests.notices import report_line as read
from tests.stopped_tasks import WITH_MONITOR, report
from tests.task_events import ARN, container, definition, task
from tests.values import present


def report_line(evidence: str = "kernel-counter", kind: str = "task.report") -> ReportLine:
    return read(report(kind, outOfMemoryEvidence=evidence))


MONITOR_KILLED = {"name": "task-monitor", "exitCode": 137, "reason": KILLED}


@each_case(
    ("run", "is_retried"),
    [
        (ended(), True),
        (ended(containers=batch(None, KILLED)), True),
        (ended(containers=batch(137), stoppedReason=KILLED), True),
        (ended(containers=batch(1), line=report_line()), True),
        (ended(containers=batch(137), line=report_line()), True),
        (ended(startedBy="events-rule/nightly"), True),
        # no proof
        (ended(containers=batch(137)), False),
        (ended(containers=batch(137), line=report_line("exit-137-at-limit")), False),
        (ended(containers=batch(137), line=report_line("a-later-word")), False),
        (ended(containers=batch(1), line=report_line(kind="task.checkpoint")), False),
        (ended(containers=[*batch(1), MONITOR_KILLED]), False),
        (ended(containers=[*batch(137), MONITOR_KILLED], stoppedReason=KILLED), False),
        # no failure
        (ended(containers=batch(0, KILLED)), False),
        (ended(containers=batch(0), line=report_line()), False),
        (ended(stopCode="UserInitiated"), False),
        # other starters
        (ended(startedBy=None), False),
        (ended(startedBy="airflow"), False),
        (ended(startedBy="task-profiler-retry/4dd5853f"), False),
    ],
)
def test_a_run_is_retried_only_with_proof_that_memory_ran_out(
    run: EndedRun, *, is_retried: bool
) -> None:
    assert should_retry(run, ("other", "night*")) is is_retried
    assert not should_retry(run, ("other",))


needs = st.builds(NeedAtSize, peak_mb=st.none() | st.floats(1, 300_000), was_killed=st.booleans())


def wanted(killed_mb: float, defined_mb: float, need: NeedAtSize) -> float:
    least_mb = max(1.5 * killed_mb, 1.5 * defined_mb * need.was_killed, 1.2 * (need.peak_mb or 0))
    return min(least_mb, 4 * defined_mb)


@given(
    st.sampled_from(LEGAL_SIZES),
    st.none() | st.sampled_from([512, 1024, 4096, 30_720]),
    needs,
    st.none() | st.floats(0.01, 0.9),
    st.integers(512, 250_000),
)
def test_the_size_is_the_least_legal_one_that_is_enough(
    size: Size, defined_mb: int | None, need: NeedAtSize, limit: float | None, maximum_mb: int
) -> None:
    limit_mb = None if limit is None else max(round(limit * size.memory_mb), 8)
    described = definition(container("batch", memory=limit_mb), container("other", memory=50))
    if defined_mb is not None:
        described["memory"] = str(defined_mb)
    killed = task(cpu=str(round(size.vcpu * 1024)), memory=str(size.memory_mb))
    defined = defined_mb or size.memory_mb
    needed = wanted(size.memory_mb, defined, need)
    grown_limit = 0 if limit_mb is None else wanted(limit_mb, limit_mb, need)
    try:
        chosen = choose_larger_memory(killed, described, "batch", need, maximum_mb)
    except RetryRefusedError:
        enough = max(needed, grown_limit + 51)
        legal = [one for one in LEGAL_SIZES if one.vcpu >= size.vcpu and one.memory_mb >= enough]
        first = min(legal, default=Size(0, 1_000_000))
        assert first.memory_mb > maximum_mb or needed <= size.memory_mb
        return
    assert Size(present(chosen.vcpu), chosen.new_mb) in LEGAL_SIZES
    assert needed <= chosen.new_mb <= maximum_mb
    assert chosen.old_mb == size.memory_mb < chosen.new_mb
    if limit_mb is None:
        assert chosen.limit_mb is None
        same = [one for one in LEGAL_SIZES if one.vcpu == size.vcpu and one.memory_mb >= needed]
        assert chosen.vcpu == size.vcpu or not same
        legal = [one for one in LEGAL_SIZES if one.vcpu == chosen.vcpu and one.memory_mb >= needed]
        assert chosen.new_mb == min(one.memory_mb for one in legal)
    else:
        assert grown_limit <= present(chosen.limit_mb) < grown_limit + 1
        assert present(chosen.limit_mb) + 50 <= chosen.new_mb


@given(limit_mb=st.integers(4, 30_000), need=needs)
def test_on_ec2_only_the_limit_of_the_batch_grows(limit_mb: int, need: NeedAtSize) -> None:
    described = definition(container("batch", memory=limit_mb), container("other", memory=64))
    killed = task(
        launchType="EC2", memory="9999", containers=[{"name": "batch", "memory": str(limit_mb)}]
    )
    chosen = choose_larger_memory(killed, described, "batch", need, 250_000)
    least = wanted(limit_mb, limit_mb, need)
    assert chosen.old_mb == limit_mb
    assert chosen.vcpu is None
    assert chosen.new_mb == chosen.limit_mb
    assert least <= chosen.new_mb <= least + 128


PLACE = {"family": "nightly", "confirmed": True}


def earlier(
    days_ago: float,
    size_mb: float,
    peak_mb: float,
    status: str = "success",
    *,
    killed: bool = False,
) -> dict[str, Any]:
    """The document of a run of the family before the killed one."""
    ended_at = STOPPED - timedelta(days=days_ago)
    return {
        "@timestamp": ended_at.isoformat(timespec="milliseconds"),
        "cloud": {"account": {"id": "111122223333"}, "region": "us-west-2"},
        "container": {"name": "batch"},
        "task": {
            **PLACE,
            "id": f"{days_ago}",
            "status": status,
            "out_of_memory": killed,
            "size": {"memory_mb": size_mb},
        },
        "usage": {"memory": {"used_mb": {"max": peak_mb}}},
    }


OWN = [earlier(day, 2048, 1500) for day in range(1, 30)]


@pytest.mark.parametrize(
    ("runs", "change"),
    [
        (OWN, "3 GB (was 2 GB)"),
        # a person's backfills, which had another size
        ([*OWN, earlier(90, 65_536, 30_000), earlier(100, 65_536, 52_000)], "3 GB (was 2 GB)"),
        ([*OWN, earlier(3, 65_536, 52_000)], "3 GB (was 2 GB)"),
        ([*OWN, earlier(3, 65_536, 60_000, "failure", killed=True)], "3 GB (was 2 GB)"),
        # what the size once held does not say anything of now
        ([*OWN, earlier(36, 2048, 2040)], "3 GB (was 2 GB)"),
        ([*OWN, earlier(2, 2048, 2040, "failure", killed=True)], "3 GB (was 2 GB)"),
    ],
)
def test_runs_of_other_sizes_and_times_do_not_make_the_retry_larger(
    runs: list[dict[str, Any]], change: str
) -> None:
    search = CountingSearch(*runs, now_ns=round(STOPPED.timestamp() * 10**9))
    described = {**WITH_MONITOR, "memory": "2048"}
    run = ended(cpu="1024", memory="2048", described=described)
    retry = present(RetryAccount(search).handle(run, described))
    assert retry.sentence == f"Started again with {change}: task 99999999."


@pytest.mark.parametrize(
    ("memory", "runs", "sentence"),
    [
        # The schedule gives less than the definition has, at which a run was killed, too.
        ("1024", [], "Started again with 2 GB (was 1 GB)"),
        (
            "1024",
            [earlier(2, 2048, 2040, "failure", killed=True)],
            "Started again with 3 GB (was 1 GB)",
        ),
        ("1024", [earlier(2, 2048, 2000)], "Started again with 3 GB (was 1 GB)"),
        # The schedule gives more.
        ("6144", [], "Started again with 8 GB (was 6 GB)"),
        (
            "8192",
            [],
            "Not started again: it had 8 GB, and a retry has at most 4 times the 2 GB of its",
        ),
    ],
)
def test_the_definitions_size_bounds_the_retry(
    memory: str, runs: list[dict[str, Any]], sentence: str
) -> None:
    search = CountingSearch(*runs, now_ns=round(STOPPED.timestamp() * 10**9))
    described = {**WITH_MONITOR, "memory": "2048"}
    run = ended(cpu="1024", memory=memory, described=described)
    retry = present(RetryAccount(search).handle(run, described))
    assert retry.sentence.startswith(sentence)


def test_a_part_of_the_cluster_says_nothing_about_the_size() -> None:
    search = CountingSearch(*OWN, earlier(1.5, 512, 1e5))
    search.now_ns = round(STOPPED.timestamp() * 10**9)
    search.answer = {"_shards": {"total": 2, "successful": 1}}
    assert RetryAccount(search).handle() == STARTED
    search.answer = {}
    search.closed = f"task-reports-{STOPPED:%Y.%m}"  # it may stay so for days
    assert RetryAccount(search).handle() == STARTED
    search.closed = None
    search.answer = {"timed_out": True}  # another search can be whole
    fakes = RetryAccount(search)
    with pytest.raises(SearchClusterError):
        fakes.handle()
    assert fakes.aws.calls == []


def test_the_limit_in_an_override_counts_before_the_definition() -> None:
    overrides = {"containerOverrides": [{"name": "batch", "memory": 1000}]}
    killed = task(cpu="1024", memory="2048", containers=batch(137), overrides=overrides)
    chosen = choose_larger_memory(
        killed, definition(container("batch", memory=500)), "batch", NeedAtSize(), MAX_MB
    )
    assert chosen.limit_mb == 1500


# The request

NETWORK = {
    "awsvpcConfiguration": {
        "Subnets": ["subnet-1"],
        "SecurityGroups": ["sg-1"],
        "AssignPublicIp": "ENABLED",
    }
}
EVERYTHING = {
    "TaskDefinitionArn": FAMILY_ARN,
    "TaskCount": 3,
    "NetworkConfiguration": NETWORK,
    "PlatformVersion": "1.4.0",
    "Group": "nights",
    "CapacityProviderStrategy": [{"capacityProvider": "FARGATE_SPOT", "weight": 1, "base": 0}],
    "EnableECSManagedTags": True,
    "EnableExecuteCommand": False,
    "PlacementConstraints": [{"type": "distinctInstance"}],
    "PlacementStrategy": [{"type": "spread", "field": "host"}],
    "PropagateTags": "TASK_DEFINITION",
    "ReferenceId": "ref",
    "Tags": [
        {"Key": "team", "Value": "a"},
        {"key": "stage", "value": "b"},
        {"owner": "c"},
    ],  # all forms are valid
}


@pytest.mark.parametrize("kind", ["schedule", "rule"])
def test_everything_that_the_target_says_is_passed_on(kind: str) -> None:
    made = request(target(EVERYTHING, kind))
    assert made == {
        "cluster": CLUSTER,
        "taskDefinition": f"{FAMILY_ARN}:5",
        "count": 1,
        "startedBy": "task-profiler-retry/4dd5853f",
        "clientToken": "task-profiler-retry-4dd5853f44b341ee8281f38229bee377",
        "networkConfiguration": {
            "awsvpcConfiguration": {
                "subnets": ["subnet-1"],
                "securityGroups": ["sg-1"],
                "assignPublicIp": "ENABLED",
            }
        },
        "platformVersion": "1.4.0",
        "group": "nights",
        "capacityProviderStrategy": [{"capacityProvider": "FARGATE_SPOT", "weight": 1, "base": 0}],
        "enableECSManagedTags": True,
        "enableExecuteCommand": False,
        "placementConstraints": [{"type": "distinctInstance"}],
        "placementStrategy": [{"type": "spread", "field": "host"}],
        "propagateTags": "TASK_DEFINITION",
        "referenceId": "ref",
        "tags": [
            *(
                {"key": key, "value": value}
                for key, value in (("team", "a"), ("stage", "b"), ("owner", "c"))
            ),
            {"key": "task-profiler:retry-of", "value": "4dd5853f44b341ee8281f38229bee377"},
        ],
        "overrides": {"cpu": "256", "memory": "1024"},
    }


@pytest.mark.parametrize(("count", "has_own"), [(49, True), (50, False)])
def test_a_target_with_all_tags_that_a_task_can_have_is_started_without_another(
    count: int, *, has_own: bool
) -> None:
    tags = [{"Key": f"tag-{number}", "Value": ""} for number in range(count)]
    made = request(target({**EVERYTHING, "Tags": tags}))
    keys = [tag["key"] for tag in made["tags"]]
    assert keys[:count] == [tag["Key"] for tag in tags]
    assert keys[count:] == ["task-profiler:retry-of"] * has_own
    assert made["startedBy"] == "task-profiler-retry/4dd5853f"


@pytest.mark.parametrize(
    ("propagates", "of_definition", "has_own"),
    [
        ("TASK_DEFINITION", 29, True),
        ("TASK_DEFINITION", 30, False),
        ("TASK_DEFINITION", 50, False),
        (None, 50, True),
    ],
)
def test_tags_that_a_task_gets_from_its_definition_count(
    propagates: str | None, of_definition: int, *, has_own: bool
) -> None:
    """A key that both have is one tag."""
    own = [{"Key": f"tag-{number}", "Value": ""} for number in range(20)]
    shared = [{"key": "tag-0", "value": ""}]
    tags = [{"key": f"more-{number}", "value": ""} for number in range(of_definition)]
    parameters = {"TaskDefinitionArn": FAMILY_ARN, "Tags": own}
    if propagates:
        parameters["PropagateTags"] = propagates
    made = request(target(parameters), {**WITH_MONITOR, "tags": [*shared, *tags]})
    keys = [tag["key"] for tag in made["tags"]]
    assert keys[:20] == [tag["Key"] for tag in own]
    assert keys[20:] == ["task-profiler:retry-of"] * has_own


def test_every_field_of_a_target_is_known() -> None:
    for service in ("scheduler", "events"):
        members = get_session().get_service_model(service).shape_for("EcsParameters").members
        assert set(members) == {*EVERYTHING, "LaunchType"}


def test_the_whole_input_is_kept_but_for_the_size_and_the_limit() -> None:
    other, own = (
        {"name": "other", "command": ["y"]},
        {"name": "batch", "environment": [{"name": "A", "value": "1"}]},
    )
    overrides = [other, {**own, "memory": 400}]
    given_input = {
        "memory": "512",
        "taskRoleArn": "arn:aws:iam::111122223333:role/x",
        "containerOverrides": overrides,
    }
    described = definition(container("batch", memory=400), container("other"))
    made = request(target(Input=json.dumps(given_input)), described)
    overrides = [other, {**own, "memory": 600}]
    assert made["overrides"] == {
        **given_input,
        "cpu": "256",
        "memory": "1024",
        "containerOverrides": overrides,
    }


def test_on_ec2_the_overrides_have_the_raised_limit_alone() -> None:
    made = request(target(), definition(container("batch", memory=400)), launchType="EC2")
    assert made["overrides"] == {"containerOverrides": [{"name": "batch", "memory": 640}]}


@pytest.mark.parametrize(
    "started",
    [
        {"Input": "[]"},
        {
            "Input": '{"containerOverrides":[{"name":"batch","command":["<aws.scheduler.scheduled-time>"]}]}'
        },
        {"Input": '{"ephemeralStorage": {"sizeInGiB": 1e999}}'},
        {"InputPath": "$.detail"},
        {"InputTransformer": {"InputTemplate": "{}"}},
    ],
)
def test_an_unknown_input_is_refused(started: dict[str, Any]) -> None:
    with pytest.raises(RetryRefusedError, match="the input of its schedule is"):
        request(target(**started))
    with pytest.raises(RetryRefusedError, match="the size of a task is changed on Fargate only"):
        request(
            target(Input='{"memory":"1024"}'),
            definition(container("batch", memory=400)),
            launchType="EC2",
        )


# The calls

CALLS = (
    *("ListSchedules", "GetSchedule"),
    *("ListEventBuses", "ListRules", "ListTargetsByRule"),
    "RunTask",
)


STARTED = MemoryRetry(
    sentence="Started again with 1 GB (was 512 MB): task 99999999.", retried_as=NEW_ID
)


def test_a_killed_run_is_started_again_as_its_schedule_says() -> None:
    fakes = RetryAccount()
    assert fakes.handle() == STARTED
    assert fakes.aws.calls == ["ListSchedules", "ListSchedules", "GetSchedule", "RunTask"]
    (request,) = fakes.aws.requests
    own = [{"name": "batch", "command": ["x"]}]
    assert request["overrides"] == {"containerOverrides": own, "cpu": "256", "memory": "1024"}
    assert request["count"] == 1
    assert request["launchType"] == "FARGATE"
    assert request["cluster"] == CLUSTER


def of_rule(fakes: RetryAccount, operation: str) -> EndedRun:
    """A run of a rule if the operation is a rule's, else of a schedule."""
    fakes.aws.rules = {
        "nightly": [
            {**TARGET, "Id": "1"},
            {"Id": "2", "Arn": "arn:aws:sqs:us-west-2:111122223333:q"},
        ]
    }
    is_of_rule = operation in ("ListEventBuses", "ListRules", "ListTargetsByRule")
    return ended(startedBy="events-rule/nightly") if is_of_rule else ended()


def test_a_run_of_a_rule_on_another_event_bus_is_started_again() -> None:
    fakes = RetryAccount()
    run = of_rule(fakes, "ListRules")
    fakes.aws.bus = "orders"
    assert fakes.handle(run) == STARTED


OF_ANOTHER = {**TARGET, "EcsParameters": {"TaskDefinitionArn": f"{FAMILY_ARN}-2"}}
ELSEWHERE = {**TARGET, "Arn": CLUSTER.replace("111122223333", "444455556666")}


def test_a_cut_name_finds_its_schedule_or_rule_by_family_and_account() -> None:
    """Those that cannot be distinguished must say the same."""
    name = "a-name-of-more-than-24-characters"
    for starter in ("events-rule/", "chronos-schedule/"):
        fakes = RetryAccount()
        fakes.aws.targets = {
            ("a", name): TARGET,
            ("b", name): TARGET,
            ("b", f"{name}-2"): ELSEWHERE,
        }
        fakes.aws.rules = {
            name: [TARGET] * 2,
            f"{name}-2": [OF_ANOTHER, ELSEWHERE],
            "a": [{**TARGET, "Input": "{}"}],
        }
        run = ended(startedBy=f"{starter}{name}"[:36])
        assert fakes.handle(run) == STARTED
        parameters = {"TaskDefinitionArn": FAMILY_ARN, "PlatformVersion": "1.3.0"}
        other, changed = RetryAccount(), {**TARGET, "EcsParameters": parameters}
        other.aws.targets, other.aws.rules = (
            {("a", name): TARGET, ("b", name): changed},
            {name: [TARGET, changed]},
        )
        assert other.refusal(run) == "Not started again: several schedules can have started it."
        assert not other.aws.requests


def test_a_token_in_use_counts_as_started() -> None:
    """The peak of another run that ended meanwhile changes the size: the token is in use with
    the first one.
    """
    search = AnsweringSearch()
    fakes = RetryAccount(search)
    fakes.table = None
    assert fakes.handle() == STARTED
    search.answer = need_of(1500)
    assert fakes.handle() == MemoryRetry(
        sentence="Started again with more memory: task 99999999.", retried_as=NEW_ID
    )
    assert len(fakes.aws.tasks) == 1


@pytest.mark.diagonal
@pytest.mark.parametrize("operation", CALLS)
@pytest.mark.parametrize(
    ("status", "code"),
    [
        (400, "ThrottlingException"),
        (429, "TooManyRequestsException"),
        (500, "ServerException"),
        (503, "x"),
    ],
)
def test_a_throttled_call_raises_and_the_next_event_starts_it_once(
    operation: str, status: int, code: str
) -> None:
    fakes = RetryAccount()
    fakes.aws.errors[operation] = [(status, code, "Rate exceeded")] * 2
    run = of_rule(fakes, operation)
    for _ in range(2):
        with pytest.raises(
            DeliveryError, match=r"A killed run is not started again yet.*Lambda retries\.$"
        ):
            fakes.handle(run)
    assert not fakes.aws.tasks
    assert [fakes.handle(run), fakes.handle(run)] == [STARTED] * 2
    assert len(fakes.aws.tasks) == 1
    assert fakes.warnings == []


@pytest.mark.parametrize("operation", CALLS)
def test_an_answer_that_is_lost_does_not_start_it_twice(operation: str) -> None:
    fakes = RetryAccount()
    fakes.aws.lost = operation
    run = of_rule(fakes, operation)
    with pytest.raises(DeliveryError, match="ReadTimeoutError"):
        fakes.handle(run)
    assert fakes.handle(run) == STARTED
    assert len(fakes.aws.tasks) == 1


@pytest.mark.parametrize("content", [b"", b"{}", b'{"tasks": [{', b"<html>", b"\xff", b"[]"])
def test_an_unreadable_answer_is_asked_for_again(content: bytes) -> None:
    """ECS has started the task: "not started again" would be false, and another one its double."""
    fakes = RetryAccount()
    fakes.aws.garbled = content
    with pytest.raises(DeliveryError, match="ECS's answer to RunTask cannot be read"):
        fakes.handle()
    assert fakes.handle() == STARTED
    assert len(fakes.aws.tasks) == 1


INACTIVE, DENIED = (
    (400, "ClientException", "It is inactive."),
    (403, "AccessDeniedException", "not authorized"),
)
REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "refused": ({"errors": {"RunTask": [INACTIVE]}}, "(ClientException: It is inactive.)"),
    "failures": (
        {"failures": [{"arn": "x", "reason": "RESOURCE:MEMORY"}]},
        "ECS did not start it (RESOURCE:MEMORY).",
    ),
    "a code alone": (
        {"failures": [{"arn": "x", "reason": "ATTRIBUTE"}]},
        (
            "ECS did not start it (ATTRIBUTE (no container instance has an attribute that the task "
            "requires))."
        ),
    ),
    "unreadable": (
        {"errors": {"GetSchedule": [DENIED]}},
        "its schedule could not be read (AccessDeniedException: not",
    ),
    "gone": ({"targets": {("default", "nightly-2"): TARGET}}, "its schedule no longer exists."),
    "of another family": (
        {"targets": {("default", "nightly"): OF_ANOTHER}},
        "its schedule no longer exists.",
    ),
}


@pytest.mark.parametrize(("answers", "said"), REFUSED.values(), ids=REFUSED)
def test_what_aws_refuses_is_said_and_is_no_error(answers: dict[str, Any], said: str) -> None:
    fakes = RetryAccount()
    for name, answer in answers.items():
        setattr(fakes.aws, name, answer)
    assert said in fakes.refusal()
    assert not fakes.aws.tasks


DAY_SECONDS = 86_400


@pytest.mark.parametrize(
    ("kind", "settings", "sentence"),
    [
        ("schedule", {"State": "DISABLED"}, "its schedule nightly is disabled"),
        ("rule", {"State": "DISABLED"}, "its rule nightly is disabled"),
        (
            "schedule",
            {"ScheduleExpression": "rate(1 day)", "EndDate": STOPPED.timestamp()},
            "its schedule nightly has ended",
        ),
    ],
)
def test_a_schedule_that_somebody_switched_off_is_not_started_again(
    kind: str, settings: dict[str, Any], sentence: str
) -> None:
    fakes = RetryAccount()
    run = of_rule(fakes, "ListRules" if kind == "rule" else "")
    fakes.aws.settings = settings
    assert fakes.refusal(run) == f"Not started again: {sentence}."
    assert not fakes.aws.tasks


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        ("rule", {}),
        ("schedule", {"EndDate": STOPPED.timestamp() + DAY_SECONDS}),
        ("schedule", {"ScheduleExpression": "at(2026-03-01T10:00:00)", "EndDate": 1_700_000_000}),
    ],
    ids=["a rule", "it ends tomorrow", "once, for which AWS ignores the end"],
)
def test_a_schedule_that_is_in_force_is_started_again(kind: str, settings: dict[str, Any]) -> None:
    fakes = RetryAccount()
    run = of_rule(fakes, "ListRules" if kind == "rule" else "")
    fakes.aws.settings = settings
    assert fakes.handle(run) == STARTED


LIMITED = {**definition(container("batch", memory=512)), "memory": "1024"}


@pytest.mark.parametrize(
    ("detail", "described", "hours", "reason"),
    [
        ({}, None, 0, "its task definition could not be read"),
        (
            {},
            WITH_MONITOR,
            13,
            "it ended more than 12 hours ago",
        ),  # ECS forgets its tokens, the table its keys
        ({"memory": None}, WITH_MONITOR, 0, "the size of its task is unknown"),
        (
            {"cpu": "8192", "memory": "61440"},
            WITH_MONITOR,
            0,
            "it needs 96 GB, and RETRY_MAX_MEMORY_MB allows 60 GB",
        ),
        ({"cpu": "32768", "memory": "249856"}, WITH_MONITOR, 0, "Fargate has no size with 366 GB"),
        (
            {"launchType": "EC2"},
            WITH_MONITOR,
            0,
            "its batch container has no memory limit of its own",
        ),
        *(
            ({"launchType": place}, LIMITED, 0, "the size of a task is changed on Fargate only")
            for place in ("EC2", "MANAGED_INSTANCES")
        ),
    ],
)
def test_what_cannot_be_retried_asks_nothing_of_aws(
    detail: dict[str, Any], described: Any, hours: int, reason: str
) -> None:
    fakes = RetryAccount()
    fakes.now += timedelta(hours=hours)
    assert fakes.refusal(ended(**detail), described) == f"Not started again: {reason}."
    assert fakes.aws.calls == []


def test_the_report_alone_is_enough_proof_and_other_runs_ask_and_say_nothing() -> None:
    """The first event found no report; its repeat does."""
    fakes = RetryAccount(search := AnsweringSearch())
    assert (
        fakes.handle(ended(containers=batch(1))) is fakes.handle(ended(startedBy="airflow")) is None
    )
    assert fakes.aws.calls == []
    assert fakes.warnings == []
    assert present(fakes.table).done == {}
    assert search.bodies == []
    assert fakes.handle(ended(containers=batch(1), line=report_line())) == STARTED
    assert fakes.handle(ended(containers=batch(1))) is None
    assert len(fakes.aws.tasks) == 1


# The search cluster


def test_a_cluster_that_does_not_respond_starts_nothing_yet() -> None:
    fakes = RetryAccount(AnsweringSearch(error=SearchClusterError("down", status=None)))
    with pytest.raises(SearchClusterError):
        fakes.handle()
    assert fakes.aws.calls == []


@pytest.mark.parametrize(
    "search",
    [AnsweringSearch(error=SearchClusterError("no", status=403)), AnsweringSearch({"hits": {}})],
)
def test_without_a_peak_the_size_alone_counts(search: AnsweringSearch) -> None:
    assert RetryAccount(search).handle() == STARTED


# The retry's own end


def retry_run(exit_code: int = 0, reason: str | None = None, **detail: Any) -> EndedRun:
    line = read(report(status="success", metrics={"billedDurationMs": 3_600_000}))
    x86 = {"attributes": [{"name": "ecs.cpu-architecture", "value": "x86_64"}]}
    own = {"taskArn": NEW_ARN, "startedBy": "task-profiler-retry/4dd5853f", "memory": "1024", **x86}
    return ended(line=line, **{**own, "containers": batch(exit_code, reason), **detail})


FOUND = AnsweringSearch({"hits": {"hits": [killed()]}})
AMBIGUOUS = AnsweringSearch({"hits": {"hits": [killed(), killed(taskArn=f"{ARN}-another")]}})
DOWN = AnsweringSearch(error=SearchClusterError("down", status=503))
PRICE = " (+$0.0022 a run)"
THIS = "This was the retry of 4dd5853f"


@pytest.mark.parametrize(
    ("search", "run", "sentence"),
    [
        *(
            (search, retry_run(), f"{THIS}: it succeeded with 1 GB.")
            for search in (None, AMBIGUOUS, DOWN)
        ),
        (FOUND, retry_run(), f"Succeeded with 1 GB after 512 MB were too little: set 1 GB{PRICE}."),
        (
            FOUND,
            retry_run(attributes=[]),
            "Succeeded with 1 GB after 512 MB were too little: set 1 GB.",
        ),
        (
            FOUND,
            retry_run(137, KILLED),
            "This was the retry of 4dd5853f with 1 GB: it is not started again.",
        ),
        (
            AnsweringSearch(
                {
                    "hits": {
                        "hits": [killed(launchType="EC2", containers=[{**BATCH, "memory": "400"}])]
                    }
                }
            ),
            retry_run(
                launchType="EC2", containers=[{"name": "batch", "exitCode": 0, "memory": "640"}]
            ),
            "Succeeded with 640 MB after 400 MB were too little: set 640 MB.",
        ),
    ],
)
def test_the_end_of_a_retry_says_so_and_starts_nothing(
    search: AnsweringSearch | None, run: EndedRun, sentence: str
) -> None:
    """A killed run that is not certain is not named."""
    fakes, killed_id = RetryAccount(search), None if search in (None, AMBIGUOUS, DOWN) else TASK_ID
    for _ in range(2):
        assert fakes.handle(run) == MemoryRetry(sentence=sentence, retry_of=killed_id)
    assert fakes.aws.calls == []


# Settings and notifications


def test_slack_and_the_event_contain_the_sentence() -> None:
    notice = replace(ended(), retry=replace(STARTED, sentence='Not started again: <x> & "y".'))
    assert "Not started again: &lt;x&gt; &amp;" in json.dumps(
        ended_task_message(notice, kibana_url=None).blocks
    )
    assert ended_run_detail(notice, kibana_url=None).text.endswith("Not started again: <x> & 'y'.")
