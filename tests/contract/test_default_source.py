"""Where commands that name things in AWS read runs if nobody names a source: in the log groups of
the families' newest definitions, on moto. Each is attacked in its own test.
"""

import json
import os
import shlex
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest

from profiler.core.commands_to_copy import command_line
from tests.aws_proxy import AwsProxy
from tests.resize_account import BATCH, LOG_GROUP, MONITOR, STOPPED_GROUP, Account, logs_to
from tests.runs import history_of, report
from tools.moto_server import fake_aws
from tools.waiting import LIMIT_SECONDS

LISTED = "ListTaskDefinitionFamilies"
SAID = "task-profiler: Runs are read from the log group"


@pytest.fixture
def empty(tmp_path: Path) -> Iterator[Account]:
    with fake_aws() as aws:
        yield Account(aws, tmp_path)


@pytest.fixture
def account(empty: Account) -> Account:
    """Two families, whose runs are each in a log group of their own."""
    empty.logging_to("/ecs/a", "a")
    empty.logging_to("/ecs/b", "b")
    return empty


@pytest.fixture
def proxy(empty: Account) -> Iterator[AwsProxy]:
    with AwsProxy(empty.aws.url) as made:
        empty.url = made.url
        yield made


def rows(stdout: str) -> dict[str, dict[str, Any]]:
    """The rows of a plan by their families."""
    *families, _ = map(json.loads, stdout.splitlines())
    return {one["family"]: one for one in families}


def run_ids(stdout: str) -> set[str]:
    return {json.loads(line)["record"]["taskId"] for line in stdout.splitlines()}


# taskdef resize


def test_a_named_family_is_judged_by_the_runs_in_its_own_log_group(account: Account) -> None:
    done = account.command("taskdef", "resize", "a", "--json")
    assert done.returncode == 0
    assert rows(done.stdout)["a"]["action"] == "resize"
    assert done.stderr == f"{SAID} /ecs/a (--from chooses another source).\n"


def test_scheduled_families_are_judged_by_the_runs_in_their_log_groups(account: Account) -> None:
    account.schedule("nightly", "b")
    done = account.command("taskdef", "resize", "--scheduled", "--json")
    assert [row["runs"] for row in rows(done.stdout).values()] == [25]
    assert "/ecs/b (--from" in done.stderr


def test_the_families_of_a_cluster_are_judged_by_the_runs_in_their_log_groups(
    account: Account,
) -> None:
    account.schedule("nightly", "b")
    account.aws.start_task("a")
    done = account.command("taskdef", "resize", "--cluster", "jobs", "--json")
    assert [row["runs"] for row in rows(done.stdout).values()] == [25, 25]
    assert f"{SAID}s /ecs/a and /ecs/b (--from" in done.stderr


def test_the_sentence_names_two_of_many_log_groups(account: Account) -> None:
    for name in ("c", "d", "e"):
        account.logging_to(f"/ecs/{name}", name)
    done = account.command("taskdef", "resize", "*")
    assert f"{SAID}s /ecs/a, /ecs/b and 3 more (--from chooses another source)." in done.stderr


def test_the_variable_comes_before_the_definitions_log_groups(account: Account) -> None:
    done = account.command("taskdef", "resize", "a", "--json", TASK_PROFILER_FROM="logs:/ecs/b")
    assert rows(done.stdout)["a"]["runs"] == 0
    assert SAID not in done.stderr


@pytest.mark.parametrize("words", [(), ("a", "--from", "history"), ("--from", "history")])
def test_an_empty_local_history_is_an_error_that_names_the_option(
    empty: Account, words: tuple[str, ...]
) -> None:
    empty.family("a")
    done = empty.command("taskdef", "resize", *words)
    assert done.returncode == 1
    assert done.stdout == ""
    assert "history.sqlite3: name the source of the runs by --from" in done.stderr


def test_a_local_history_of_other_programs_is_an_error_that_names_the_option(
    empty: Account,
) -> None:
    empty.family("nightly")
    history_of(empty.home / "task-profiler" / "history.sqlite3", report(family="words"))
    done = empty.command("taskdef", "resize")
    assert done.returncode == 1
    assert "No family of the local history is one of this account: name the source" in done.stderr


def test_a_denied_log_group_is_named_and_the_others_are_read(
    account: Account, proxy: AwsProxy
) -> None:
    account.logging_to("/ecs/c", "c")
    proxy.denied_groups = {"/ecs/b"}
    done = account.command("taskdef", "resize", "*", "--json")
    assert done.returncode == 1
    assert "/ecs/b cannot be read: AWS refused" in done.stderr
    assert "allow logs:FilterLogEvents" in done.stderr
    found = rows(done.stdout)
    assert [found[name]["action"] for name in ("a", "b", "c")] == ["resize", "none", "resize"]
    assert found["b"]["reason"] == "Its log group /ecs/b could not be read."


def test_a_family_whose_log_group_is_denied_half_way_is_not_registered(
    account: Account, proxy: AwsProxy
) -> None:
    def deny_the_second_read(operation: str, body: bytes) -> None:
        if operation == "FilterLogEvents" and b'"/ecs/b"' in body:
            reads.append(body)
            if len(reads) > 1:
                proxy.denied_groups = {"/ecs/b"}

    reads: list[bytes] = []
    proxy.before = deny_the_second_read
    done = account.command("taskdef", "resize", "*", "--register")
    assert done.returncode == 1
    assert account.newest("a", "b") == [2, 1]


@pytest.mark.slow
def test_a_denied_log_group_is_named_for_a_glob_of_log_groups_too(
    account: Account, proxy: AwsProxy
) -> None:
    proxy.denied_groups = {"/ecs/b"}
    done = account.command("taskdef", "resize", "*", "--from", "logs:/ecs/*", "--register")
    assert done.returncode == 1
    assert account.newest("a", "b") == [2, 1]


@pytest.mark.parametrize("source", ["nowhere", "logs:/ecs/none*"])
def test_nothing_is_registered_while_one_of_two_sources_cannot_be_read(
    account: Account, source: str
) -> None:
    words = ("taskdef", "resize", "a", "--from", "logs:/ecs/a", "--from", source)
    assert account.command(*words).returncode == 1
    done = account.command(*words, "--register")
    assert done.returncode == 1
    assert "could not be read as a whole, so nothing was changed" in done.stderr
    assert account.newest("a") == [1]


def test_the_runs_of_the_team_whose_log_group_a_definition_names_are_not_its_own(
    account: Account,
) -> None:
    account.moved_logs("stranger", "/ecs/b")
    done = account.command("taskdef", "resize", "stranger", "--json")
    found = rows(done.stdout)
    assert set(found) == {"stranger"}
    assert found["stranger"]["runs"] == 0


def test_a_pattern_in_a_definition_is_the_name_of_one_log_group(account: Account) -> None:
    account.moved_logs("sly", "/ecs/*")
    done = account.command("taskdef", "resize", "a", "sly", "--json")
    assert rows(done.stdout)["sly"]["runs"] == 0
    assert f"{SAID}s /ecs/a and /ecs/* (--from" in done.stderr
    assert "/ecs/*: no such log group" in done.stderr


def test_the_log_group_of_a_sidecar_is_not_read(empty: Account, proxy: AwsProxy) -> None:
    sidecar = {"name": "proxy", "image": "x", "essential": False, "memory": 64}
    containers = [BATCH, MONITOR, {**sidecar, **logs_to("/ecs/proxy")}]
    empty.family("c", containerDefinitions=containers)
    empty.runs("c", 25)
    empty.put_reports(LOG_GROUP)
    empty.command("taskdef", "resize", "c")
    bodies = [json.loads(body) for name, body in proxy.bodies if name == "FilterLogEvents"]
    assert {body["logGroupName"] for body in bodies} == {LOG_GROUP, STOPPED_GROUP}


def test_log_groups_in_two_regions_are_both_read(account: Account) -> None:
    keys = {"aws_access_key_id": "testing", "aws_secret_access_key": "testing"}
    logs = boto3.client("logs", endpoint_url=account.url, region_name="us-west-2", **keys)
    logs.create_log_group(logGroupName="/ecs/west")
    options = {**logs_to("/ecs/west")["logConfiguration"]["options"], "awslogs-region": "us-west-2"}
    west = {"logConfiguration": {"logDriver": "awslogs", "options": options}}
    account.family("west", containerDefinitions=[{**BATCH, **west}, {**MONITOR, **west}])
    account.runs("west", 25)
    account.put_reports("/ecs/west", logs=logs)
    done = account.command("taskdef", "resize", "a", "west", "--json")
    assert done.returncode == 0, done.stderr
    assert [row["runs"] for row in rows(done.stdout).values()] == [25, 25]


@pytest.mark.parametrize("is_missing", [True, False])
def test_a_log_group_that_cannot_be_read_in_another_region_stops_its_own_family_alone(
    account: Account, proxy: AwsProxy, *, is_missing: bool
) -> None:
    options = {**logs_to("/ecs/west")["logConfiguration"]["options"], "awslogs-region": "us-west-2"}
    west = {"logConfiguration": {"logDriver": "awslogs", "options": options}}
    account.family("west", containerDefinitions=[{**BATCH, **west}, {**MONITOR, **west}])
    if not is_missing:
        proxy.denied_groups = {"/ecs/west"}
    done = account.command("taskdef", "resize", "a", "west", "--register")
    assert done.returncode == (0 if is_missing else 1)
    assert account.newest("a", "west") == [2, 1]
    if is_missing:
        assert "No run is read from /ecs/west: no such log group." in done.stderr
    else:
        assert "Its log group /ecs/west could not be read" in done.stderr + done.stdout


def test_without_a_known_account_nothing_is_changed_and_the_sentence_says_why(
    account: Account, proxy: AwsProxy
) -> None:
    proxy.refused = {"GetCallerIdentity"}
    plan = account.command("taskdef", "resize", "a")
    assert plan.returncode == 0
    assert "so no run is confirmed: AWS refused" in plan.stderr
    done = account.command("taskdef", "resize", "a", "--register")
    assert done.returncode == 1
    assert "so no run is confirmed: AWS refused" in done.stderr
    assert "/ecs/a could not be read as a whole, so nothing was changed" in done.stderr
    assert account.newest("a") == [1]


def test_without_credentials_the_sentence_says_so(account: Account) -> None:
    none = {"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": "", "AWS_EC2_METADATA_DISABLED": "1"}
    done = account.command("taskdef", "resize", "a", **none)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "there are no AWS credentials: sign in" in done.stderr


def test_throttled_reads_are_repeated(account: Account) -> None:
    with AwsProxy(account.aws.url, throttled_share=3) as proxy:
        account.url = proxy.url
        done = account.command("taskdef", "resize", "a", "b", "--json")
        assert proxy.throttled > 0
    assert done.returncode == 0
    assert [row["runs"] for row in rows(done.stdout).values()] == [25, 25]


def test_a_family_that_does_not_log_to_cloudwatch_is_named(account: Account) -> None:
    fluent = {**BATCH, "logConfiguration": {"logDriver": "awsfirelens", "options": {}}}
    account.family("dark", containerDefinitions=[fluent])
    done = account.command("taskdef", "resize", "a", "dark", "--json")
    assert done.returncode == 0
    assert "No runs are read of dark: neither the batch nor the monitor" in done.stderr
    assert rows(done.stdout)["a"]["runs"] == 25


def test_families_that_do_not_log_to_cloudwatch_are_an_error_that_names_the_option(
    empty: Account,
) -> None:
    empty.family("dark", containerDefinitions=[{"name": "batch", "image": "x", "memory": 64}])
    done = empty.command("taskdef", "resize", "dark")
    assert done.returncode == 1
    assert done.stderr.endswith("Name the source of the runs by --from.\n")


def test_a_log_group_that_does_not_exist_yet_has_no_run(account: Account) -> None:
    account.moved_logs("new", "/ecs/new")
    done = account.command("taskdef", "resize", "a", "new", "--json")
    assert done.returncode == 0
    assert "No run is read from /ecs/new: no such log group." in done.stderr
    assert rows(done.stdout)["a"]["action"] == "resize"


def test_definitions_that_may_not_be_read_are_named_once_each(
    account: Account, proxy: AwsProxy
) -> None:
    proxy.refused = {"DescribeTaskDefinition"}
    done = account.command("taskdef", "resize", "a")
    assert done.returncode == 1
    assert done.stderr.count("allow ecs:DescribeTaskDefinition") == 1


def test_each_definition_is_read_three_times_at_most(account: Account, proxy: AwsProxy) -> None:
    done = account.command("taskdef", "resize", "a", "b", "--register")
    assert done.returncode == 0
    assert account.newest("a", "b") == [2, 2]
    assert proxy.operations.count("DescribeTaskDefinition") <= 3 * 2


def test_the_logs_of_services_are_not_read(account: Account, proxy: AwsProxy) -> None:
    account.moved_logs("web", "/ecs/web")
    account.ecs.create_service(
        cluster="jobs", serviceName="web", taskDefinition="web", desiredCount=0
    )
    done = account.command("taskdef", "resize", "a", "web")
    assert "/ecs/web" not in done.stderr
    bodies = [json.loads(body) for name, body in proxy.bodies if name == "FilterLogEvents"]
    assert {body["logGroupName"] for body in bodies} == {"/ecs/a", STOPPED_GROUP}


def test_a_family_that_is_nearly_right_gets_a_suggestion(empty: Account) -> None:
    empty.family("nightly-etl")
    for command in ("resize", "add-monitor"):
        option = () if command == "resize" else ("--family",)
        done = empty.command("taskdef", command, *option, "nightly-elt")
        assert done.returncode == 1
        assert done.stderr.endswith("Did you mean nightly-etl?\n")


@pytest.mark.slow
@pytest.mark.parametrize("command", ["resize", "add-monitor"])
def test_a_long_reading_has_a_sign_of_life_on_a_pipe(
    empty: Account, proxy: AwsProxy, command: str
) -> None:
    empty.logging_to("/ecs/a", "a", count=1)
    words = ("taskdef", command, *(() if command == "resize" else ("--family",)), "a")
    environment = {**os.environ, **empty.aws.environment(), "AWS_ENDPOINT_URL": proxy.url}
    said = threading.Event()

    def wait(operation: str, _body: bytes) -> None:
        if operation == LISTED:
            said.wait(LIMIT_SECONDS)

    proxy.before = wait
    process = subprocess.Popen(
        (sys.executable, "-m", "profiler", *words), env=environment, stderr=subprocess.PIPE
    )
    assert process.stderr is not None
    line = process.stderr.readline().decode()
    said.set()
    process.communicate(timeout=LIMIT_SECONDS)
    assert line == "task-profiler: Reading task definitions, schedules and tasks …\n"


# Printed commands


def test_a_printed_command_runs_in_a_shell_with_credentials_alone(account: Account) -> None:
    line = command_line("taskdef", "resize", "a", log_group="/ecs/a", region="us-east-1")
    _, *words = shlex.split(line)
    elsewhere = {"AWS_REGION": "eu-west-1", "AWS_DEFAULT_REGION": "", "TASK_PROFILER_FROM": "none"}
    done = account.command(*words, "--json", **elsewhere)
    assert done.returncode == 0, done.stderr
    assert rows(done.stdout)["a"]["runs"] == 25


# Reading commands with --cluster


@pytest.fixture
def scheduled(empty: Account) -> Account:
    """Two families with runs, each started by a schedule in the cluster jobs."""
    for name in ("a", "b"):
        empty.logging_to(f"/ecs/{name}", name, count=3)
        empty.schedule(f"{name}-nightly", name)
    return empty


@pytest.mark.parametrize(
    "words",
    [
        ("history",),
        ("recommend",),
        ("show", "a"),
        ("compare", "a", "b"),
        ("report", "-o", "page.html"),
    ],
)
def test_a_cluster_selects_the_log_groups_of_its_families(
    scheduled: Account, words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    done = scheduled.command(*words, "--cluster", "jobs")
    assert done.returncode == 0, done.stderr
    assert SAID in done.stderr


def test_the_cluster_stays_a_filter(scheduled: Account) -> None:
    scheduled.runs("a", 1, cluster="other")
    scheduled.put_reports("/ecs/a")
    done = scheduled.command("history", "--cluster", "jobs", "--last", "100", "--json")
    clusters = {json.loads(line)["record"]["cluster"] for line in done.stdout.splitlines()}
    assert clusters == {"jobs"}
    assert len(run_ids(done.stdout)) == 6


def test_only_the_log_group_of_a_named_family_is_read(scheduled: Account) -> None:
    for words in (("recommend", "a"), ("show", "a"), ("history", "a*")):
        done = scheduled.command(*words, "--cluster", "jobs")
        assert f"{SAID} /ecs/a (--from" in done.stderr


def test_the_families_of_tasks_are_read_where_schedules_may_not_be(
    scheduled: Account, proxy: AwsProxy
) -> None:
    scheduled.aws.start_task("a")
    proxy.refused = {"ListEventBuses"}
    done = scheduled.command("history", "--cluster", "jobs", "--json")
    assert done.returncode == 1
    assert "allow events:ListEventBuses" in done.stderr
    assert len(run_ids(done.stdout)) == 3


def test_a_cluster_without_the_right_to_list_anything_names_the_right(
    scheduled: Account, proxy: AwsProxy
) -> None:
    proxy.refused = {"ListEventBuses", "ListTasks"}
    done = scheduled.command("history", "--cluster", "jobs")
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "The tasks of the cluster 'jobs' could not be listed: AWS refused" in done.stderr


def test_a_definition_that_was_deleted_is_named_and_the_others_are_read(
    scheduled: Account,
) -> None:
    scheduled.schedule("gone-nightly", "gone")
    done = scheduled.command("history", "--cluster", "jobs", "--json")
    assert done.returncode == 1
    assert "The task definition 'gone' could not be read" in done.stderr
    assert len(run_ids(done.stdout)) == 6


@pytest.mark.parametrize("cluster", ["empty", "none"])
def test_a_cluster_without_families_is_an_error(empty: Account, cluster: str) -> None:
    empty.ecs.create_cluster(clusterName="empty")
    done = empty.command("history", "--cluster", cluster)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1


def test_the_local_history_without_a_run_of_the_cluster_names_the_option(empty: Account) -> None:
    done = empty.command("history", "--cluster", "jobs", "--from", "history")
    assert done.returncode == 1
    assert "name another source (--from" in done.stderr


@pytest.mark.parametrize("words", [("history", "--last", "1"), ("show", "a"), ("show", "ID")])
def test_a_reading_that_has_what_was_wanted_names_no_limit_of_days(
    scheduled: Account, words: tuple[str, ...]
) -> None:
    source = ("--from", "logs:/ecs/a")
    listed = scheduled.command("history", *source, "--json").stdout
    task_id = min(run_ids(listed))
    done = scheduled.command(*(word.replace("ID", task_id[:8]) for word in words), *source)
    assert done.returncode == 0, done.stderr
    assert "30 days" not in done.stderr


def test_a_reading_that_may_lack_older_runs_names_the_limit_of_days(scheduled: Account) -> None:
    done = scheduled.command("history", "--from", "logs:/ecs/a")
    assert "only the last 30 days were read" in done.stderr


def test_tasks_of_services_select_no_log_group(scheduled: Account) -> None:
    scheduled.moved_logs("web", "/ecs/web")
    scheduled.aws.start_task("web", group="service:web")
    done = scheduled.command("history", "--cluster", "jobs")
    assert f"{SAID}s /ecs/a and /ecs/b (--from" in done.stderr


def test_without_a_cluster_the_local_history_is_read(empty: Account) -> None:
    done = empty.command("history")
    assert done.returncode == 1
    assert "history.sqlite3" in done.stderr
    assert SAID not in done.stderr
