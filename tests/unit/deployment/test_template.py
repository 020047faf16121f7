"""The templates as they stand: the linter, parameters, settings, queries, patterns, and their documentation.

lambda/template.yaml is the forwarder's, and taskdef/cluster-*.yaml make clusters with GPUs or Neuron devices.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from profiler.aws_account.setup.stack_template import with_subscriptions
from profiler.forwarder.function_settings import (
    read_export_targets,
    read_grace_minutes,
    read_key_table,
    read_notice_settings,
    read_retry_settings,
    read_settings,
)
from profiler.forwarder.notifications.channels import read_targets
from profiler.forwarder.notifications.event_details import EndedRun
from profiler.record.model_base import describe_type
from profiler.record.record_model import Container, Record, Report, encode
from tests.cloudformation import (
    CLUSTERS,
    FOLDER,
    PARAMETERS,
    QUERIES,
    TEMPLATE,
    is_in_the_record,
    lint_template,
    read_template,
    template,
)
from tests.documentation import commands_of

DOCS = (TEMPLATE.parents[1] / "docs" / "forwarder.md").read_text()
RESOURCES: dict[str, Any] = template()["Resources"]
_READERS: list[Callable[[Mapping[str, str]], object]] = [
    read_settings,
    read_notice_settings,
    read_key_table,
    lambda environment: read_targets(environment, str),
]
FUNCTIONS = {
    "ForwardLogsFunction": _READERS,
    "TaskStoppedFunction": [*_READERS, read_retry_settings, lambda environment: read_export_targets(environment, str)],
    "WatchSchedulesFunction": [*_READERS, read_grace_minutes],
}

GPU, _ = CLUSTERS
MAX_BYTES = 51_200  # of a template that is not in S3; CloudFormation's quota

# Settings that no parameter reaches, and why.
NOT_REACHED = {
    "ELASTICSEARCH_API_KEY": "a secret: in ElasticsearchSecretId",
    "ELASTICSEARCH_USER": "goes with the password: in ElasticsearchSecretId",
    "ELASTICSEARCH_PASSWORD": "a secret: in ElasticsearchSecretId",
    "ELASTICSEARCH_CA_FILE": "the file is in a layer of your own",
    "SLACK_SUCCESS_WEBHOOK_URL": "a secret: in SlackSecretId",
    "SLACK_FAILURE_WEBHOOK_URL": "a secret: in SlackSecretId",
    "SLACK_BOT_TOKEN": "a secret: in SlackSecretId",
    "OTLP_HEADERS": "a secret: in OtlpSecretId",
    "OTLP_PROTOCOL": "every backend takes protobuf",
    "OTLP_TRACES_ENDPOINT": "a stack exports to one backend",
    "OTLP_LOGS_ENDPOINT": "a stack exports to one backend",
    "OTLP_METRICS_ENDPOINT": "a stack exports to one backend",
    "AWS_REGION": "set by Lambda",
    "AWS_DEFAULT_REGION": "set by Lambda",
}


@pytest.mark.no_cover
@pytest.mark.parametrize("groups", [(), ("/ecs/a", "/ecs/b")])
@pytest.mark.slow
def test_the_linter_finds_nothing(groups: tuple[str, ...]) -> None:
    assert lint_template(with_subscriptions(TEMPLATE.read_text(), groups)) == []


@pytest.mark.parametrize("path", CLUSTERS, ids=lambda path: path.stem)
def test_the_linter_finds_nothing_in_a_cluster_which_can_be_deployed_without_s3(path: Path) -> None:
    assert lint_template(path.read_text()) == []
    assert path.stat().st_size <= MAX_BYTES


def test_the_clusters_differ_only_in_what_the_devices_ask_for() -> None:
    """What is tested of one is then true of the other."""
    gpu, neuron = (read_template(path) for path in CLUSTERS)
    assert gpu["Conditions"] == neuron["Conditions"]
    assert gpu["Outputs"] == neuron["Outputs"]
    assert gpu["Resources"].keys() == neuron["Resources"].keys()
    different = {name for name in gpu["Resources"] if gpu["Resources"][name] != neuron["Resources"][name]}
    assert different == {"LaunchTemplate", "TaskDefinition"}
    mine, other = (one["Resources"]["LaunchTemplate"]["Properties"]["LaunchTemplateData"] for one in (gpu, neuron))
    assert {name for name in mine if mine[name] != other[name]} == {"UserData"}


# Parameters


def parameters(path: Path) -> dict[str, Any]:
    return dict(read_template(path)["Parameters"])


# They take any text.
FREE = {"SlackSuccessChannel", "SlackFailureChannel", "NotifyFamilies", "BatchCommand", "TaskPolicyArns"}


@pytest.mark.parametrize("path", [TEMPLATE, *CLUSTERS], ids=lambda path: path.stem)
def test_every_parameter_is_described_bounded_and_in_one_group(path: Path) -> None:
    whole = read_template(path)
    groups = whole["Metadata"]["AWS::CloudFormation::Interface"]["ParameterGroups"]
    assert sorted(name for group in groups for name in group["Parameters"]) == sorted(whole["Parameters"])
    for name, parameter in whole["Parameters"].items():
        assert parameter["Description"].endswith("."), name
        assert "NoEcho" not in parameter, "secrets are named, never given"
        bounds = {"AllowedValues", "AllowedPattern", "MinValue"}.intersection(parameter)
        checked_by_aws = parameter["Type"].startswith(("AWS::", "List<AWS::"))
        assert len(bounds) == (not checked_by_aws and name not in FREE), name
        assert ("AllowedPattern" in parameter) == ("ConstraintDescription" in parameter), name


HERE = "eu-west-1:123456789012"
SECRETS = ["search", "team/search", "ssm:search", "ssm:/team/search", f"arn:aws:secretsmanager:{HERE}:secret:a-Xy"]


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        (
            "LogGroups",
            ["/ecs/a", ",".join("abcdefghijklmnopqrst"), "/ecs/a.b_c-d#e", "/ecs/*,b"],
            ["a, b", "a,", ",".join("abcdefghijklmnopqrstu"), "a,/aws/lambda/x", "/ecs/*/b", "*a"],
        ),
        (
            "ElasticsearchUrl",
            ["https://es:9200", "http://10.0.0.1:9200/x"],
            ["es:9200", "https://me:pw@es", "https://a b", "https://a1.eu-west-1.aoss.amazonaws.com"],
        ),
        ("ElasticsearchSecretId", SECRETS, ["ssm:", "ssm:/a/", "a b", '{"api_key":"x"}', "arn:aws:ssm:x"]),
        ("RetryOutOfMemory", ["", "nightly", "etl-*,load_?"], ["a, b", "a,", "arn:x", "[ab]"]),
        ("OtlpEndpoint", ["https://otlp.example.com/x", "http://10.0.0.1:4318"], ["otlp:4318", "https://a@b"]),
        ("OtlpSecretId", SECRETS, ["ssm:", "Authorization=Bearer x y"]),
        ("SlackSecretId", SECRETS, ["ssm:", "a b", "https://hooks.slack.com/services/T/B/x"]),
        (
            "OpenSearchArn",
            [f"arn:aws:es:{HERE}:domain/a-b"],
            [f"arn:aws:es:{HERE}:domain/a/*", "*", f"arn:aws:aoss:{HERE}:collection/a1"],
        ),
        ("ClusterArns", [f"arn:aws:ecs:{HERE}:cluster/a"], ["jobs", f"arn:aws:ecs:{HERE}:task/a"]),
        ("Notify", ["all", "failure", "failure,running"], ["", "all,failure", "failure, running", "none"]),
        ("ScheduleQueueArns", [f"arn:aws:sqs:{HERE}:a", f"arn:aws:sqs:{HERE}:*-dlq"], ["*", f"arn:aws:sqs:{HERE}:a,"]),
        # Of the clusters
        ("Family", ["nightly-etl", "a_1"], ["", "a b", "a/b", "a:1"]),
        (
            "BatchImage",
            ["python:3.13-slim", "111122223333.dkr.ecr.us-west-2.amazonaws.com/a/b:1", "r:5000/a@sha256:0f"],
            ["", "a b", "/a", "a/"],
        ),
        ("ScheduleExpression", ["rate(1 day)", "cron(0 3 * * ? *)", "at(2026-11-20T03:00:00)"], ["0 3 * * *", "daily"]),
        (
            "InstanceType",
            ["g4dn.xlarge", "g5.12xlarge", "g6e.2xlarge", "gr6.4xlarge", "p4d.xlarge", "p5.xlarge", "p6-b200.48xlarge"],
            ["m5.large", "g4ad.xlarge", "g5g.xlarge", "p6e-gb200.36xlarge", "g5", "p2.xlarge", "inf2.xlarge"],
        ),
    ],
)
def test_patterns_take_what_is_meant_and_nothing_else(name: str, good: list[str], bad: list[str]) -> None:
    pattern = (parameters(GPU) | PARAMETERS)[name]["AllowedPattern"]
    assert (pattern[0], pattern[-1]) == ("^", "$")
    assert [value for value in (*good, *bad) if re.search(pattern, value)] == good


# Settings


class RecordedLookups(dict[str, str]):
    """An environment in which nothing is set, and what was looked for in it."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()

    def get(self, key: str, default: Any = None) -> Any:
        self.names.add(key)
        return super().get(key, default)


def known_to(function: str) -> set[str]:
    lookups = RecordedLookups()
    for read in FUNCTIONS[function]:
        read(lookups)
    return lookups.names


def variables(function: str) -> dict[str, Any]:
    return dict(RESOURCES[function]["Properties"]["Environment"]["Variables"])


def test_every_variable_is_a_setting_of_the_function_and_every_setting_is_reached_or_there_is_a_reason() -> None:
    for function in FUNCTIONS:
        assert set(variables(function)) - known_to(function) == set(), function
    known = set().union(*(known_to(function) for function in FUNCTIONS))
    reached = set().union(*(variables(function) for function in FUNCTIONS))
    assert known - reached == set(NOT_REACHED)


# Logs Insights

ENDED = "EndedWithoutReport"  # the query of the lines of task_stopped


@pytest.mark.parametrize("name", QUERIES)
def test_queries_begin_with_a_type_of_line(name: str) -> None:
    commands = QUERIES[name].split(" | ")
    assert commands[0].startswith(f"filter type = '{'task.ended' if name == ENDED else 'task.report'}'")
    assert {command.split()[0] for command in commands} <= {"filter", "stats", "fields", "sort", "limit"}


@pytest.mark.parametrize("name", sorted(QUERIES.keys() - {ENDED}))
def test_queries_name_fields_of_the_record(name: str) -> None:
    fields = re.findall(r"\b(?:record|type)\b[\w.]*", re.sub(r"'[^']*'", "", QUERIES[name]))
    assert len(fields) >= 3
    assert [field for field in fields if not is_in_the_record(field)] == []
    aliases = set(re.findall(r" as (\w+)", QUERIES[name]))
    sorted_by = re.findall(r"sort (\S+)", QUERIES[name])
    assert [one for one in sorted_by if one not in aliases and one != "@timestamp" and not is_in_the_record(one)] == []


def is_in_an_ended_run(path: str) -> bool:
    definitions: Any = describe_type(EndedRun, "")["$defs"]
    first, _, rest = path.partition(".")
    properties = definitions["EndedRun"]["properties"]
    return first in properties and (not rest or rest in definitions[first.capitalize()]["properties"])


def test_the_query_of_ended_runs_names_their_fields() -> None:
    fields = re.findall(r"[\w.]+", re.search(r"fields @timestamp, ([^|]*)", QUERIES[ENDED])[1])  # type: ignore[index]
    fields += filter(None, chain(*re.findall(r"ispresent\((.*?)\)|\b(status)\b", QUERIES[ENDED])))
    assert len(fields) >= 3
    assert [field for field in fields if not is_in_an_ended_run(field)] == []
    assert not is_in_an_ended_run("metrics.billedMs")


def test_each_query_is_saved() -> None:
    saved = [one["Properties"] for one in RESOURCES.values() if one["Type"] == "AWS::Logs::QueryDefinition"]
    texts = [one["QueryString"]["Fn::Join"][1]["Fn::Split"][1]["Fn::FindInMap"] for one in saved]
    assert sorted(text[1] for text in texts) == sorted(QUERIES)


def report(*, killed: bool | None = None, kind: Any = "task.report") -> str:
    record = Record(task_id="1", container=Container(name="batch"), status="failure", likely_out_of_memory=killed)
    return encode(Report(time="2026-03-01T10:00:00Z", type=kind, record=record)).decode()


def test_the_query_for_memory_kills_finds_them() -> None:
    (expression,) = re.findall(r"like /(.*?)/", QUERIES["OutOfMemory"])
    assert [one for one in (True, False, None) if re.search(expression, report(killed=one))] == [True]


# The subscription's pattern


def subscription_patterns() -> Iterator[str]:
    for one in RESOURCES.values():
        if one["Type"] == "AWS::Logs::SubscriptionFilter":
            condition, with_cluster, pattern_of_notices = one["Properties"]["FilterPattern"]["Fn::If"]
            assert condition == "HasCluster"
            assert pattern_of_notices == '{ $.type = "task.notice" }'
            all_lines, pattern = with_cluster["Fn::If"][1:]
            assert all_lines == ""
            yield pattern


def test_all_subscriptions_have_one_pattern_which_the_docs_show() -> None:
    (pattern,) = set(subscription_patterns())
    assert pattern == '{ $.type = "task.*" }'
    assert '"type":"task.report"' in report()
    assert pattern in DOCS


# The documentation


def test_the_docs_tell_what_each_alarm_means() -> None:
    alarms = [one["Properties"] for one in RESOURCES.values() if one["Type"] == "AWS::CloudWatch::Alarm"]
    endings = {one["AlarmName"]["Fn::Sub"].removeprefix("${AWS::StackName}-") for one in alarms}
    assert len(endings) == len(alarms)
    rows = re.findall(r"^\| ((?:`-[\w-]+`(?:, )?)+) \|", DOCS, re.MULTILINE)
    assert {name for row in rows for name in re.findall(r"`-([\w-]+)`", row)} == endings
    cost = (TEMPLATE.parents[1] / "docs" / "operate.md").read_text()
    optional = ("watch-schedules", "forward-logs-stream")  # with WatchSchedules, with Ingestion=stream
    count = sum(not ending.startswith(optional) for ending in endings)
    assert f"{count} alarms" in cost
    assert f"{count * 0.1:.2f} USD" in cost


# What a deployment on an emulator does not show


def test_functions_may_use_subnets_and_security_groups_that_another_account_shares() -> None:
    """ec2:CreateNetworkInterface is authorized on their ARNs, too, and before the function is created."""
    policy = json.dumps(RESOURCES["FunctionsPolicy"])
    for kind in ("subnet", "security-group"):
        assert f"arn:${{AWS::Partition}}:ec2:${{AWS::Region}}:*:{kind}/*" in policy
    for function in FUNCTIONS:
        assert {"Ref": "FunctionsPolicy"} in RESOURCES[function]["Metadata"]["Policies"][0]["Fn::If"]


# The documentation of the clusters


def test_the_page_deploys_both_templates_with_what_they_require(tmp_path: Path) -> None:
    deployed = {}
    for words in commands_of("aws", Path("docs/gpu.md"), tmp_path):
        if words[:2] == ["cloudformation", "deploy"]:
            template = words[words.index("--template-file") + 1]
            overrides = words[words.index("--parameter-overrides") + 1 :]
            deployed[FOLDER.parent / template] = {one.split("=")[0] for one in overrides}
    assert set(deployed) == set(CLUSTERS)
    for path, given in deployed.items():
        required = {name for name, one in parameters(path).items() if "Default" not in one}
        assert required <= given <= set(parameters(path))
