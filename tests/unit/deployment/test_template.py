"""The templates as they stand: parameters, settings, queries, patterns, and their
documentation.

lambda/template.yaml is the forwarder's, and taskdef/cluster-*.yaml make clusters with GPUs or
Neuron devices.
"""

import json
import re
from collections.abc import Callable, Mapping
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from profiler.aws_account.setup.template_parameters import (
    parameter_defaults,
    why_stack_does_nothing,
)
from profiler.core.notice_channels import (
    CHANNEL_PARAMETERS,
    CHANNELS,
    EMAIL,
    EVENT_BUS,
    SLACK,
    Channel,
    has_channel,
)
from profiler.core.queue_messages import KEPT_SECONDS, TRIED_SECONDS
from profiler.forwarder import function_settings as of_functions
from profiler.forwarder.notifications.channels import read_slack_targets
from profiler.forwarder.notifications.event_details import EndedRunDetail
from profiler.forwarder.notifications.idempotency import KEY_SECONDS
from profiler.record.model_base import json_schema_of_type
from profiler.record.record_model import Container, Record, Report, encode
from tests.cases import each_case
from tests.cloudformation import (
    CLUSTERS,
    FOLDER,
    PARAMETERS,
    QUERIES,
    TEMPLATE,
    broken_rules,
    is_in_the_record,
    read_template,
    template,
)
from tests.documentation import commands_of

DOCS = (TEMPLATE.parents[1] / "docs" / "forwarder.md").read_text()
RESOURCES: dict[str, Any] = template()["Resources"]
_READERS: list[Callable[[Mapping[str, str]], object]] = [
    of_functions.read_settings,
    of_functions.read_notice_settings,
    of_functions.read_key_table,
    lambda environment: read_slack_targets(environment, str),
]
FUNCTIONS = {
    "ForwardLogsFunction": _READERS,
    "TaskStoppedFunction": [
        *(*_READERS, of_functions.read_retry_settings),
        lambda environment: of_functions.read_export_targets(environment, str),
    ],
    "WatchSchedulesFunction": [*_READERS, of_functions.read_grace_minutes],
}

GPU, _ = CLUSTERS
DEFAULTS = parameter_defaults(TEMPLATE.read_text())
MAX_BYTES = 51_200  # of a template that is not in S3; CloudFormation's quota

# Settings that no parameter reaches, and why.
NOT_REACHED = {
    "in ElasticsearchSecretId": "ELASTICSEARCH_API_KEY ELASTICSEARCH_USER ELASTICSEARCH_PASSWORD",
    "the file is in a layer of your own": "ELASTICSEARCH_CA_FILE",
    f"in {SLACK.parameter}": " ".join({*SLACK.in_secret} - {*SLACK.variables.values()}),
    "in OtlpSecretId": "OTLP_HEADERS",
    "every backend takes protobuf": "OTLP_PROTOCOL",
    "a stack exports to one backend": "OTLP_TRACES_ENDPOINT OTLP_LOGS_ENDPOINT OTLP_METRICS_ENDPOINT",
    "set by Lambda": "AWS_REGION AWS_DEFAULT_REGION",
}


@pytest.mark.parametrize("path", CLUSTERS, ids=lambda path: path.stem)
def test_a_cluster_can_be_deployed_without_s3(path: Path) -> None:
    assert path.stat().st_size <= MAX_BYTES


def test_the_clusters_differ_only_in_what_the_devices_ask_for() -> None:
    """What is tested of one is then true of the other."""
    gpu, neuron = (read_template(path) for path in CLUSTERS)
    assert gpu["Conditions"] == neuron["Conditions"]
    assert gpu["Outputs"] == neuron["Outputs"]
    assert gpu["Resources"].keys() == neuron["Resources"].keys()
    different = {
        name for name in gpu["Resources"] if gpu["Resources"][name] != neuron["Resources"][name]
    }
    assert different == {"LaunchTemplate", "TaskDefinition"}
    mine, other = (
        one["Resources"]["LaunchTemplate"]["Properties"]["LaunchTemplateData"]
        for one in (gpu, neuron)
    )
    assert {name for name in mine if mine[name] != other[name]} == {"UserData"}


# Parameters


def parameters(path: Path) -> dict[str, Any]:
    return dict(read_template(path)["Parameters"])


# They take any text.
FREE = {
    "SlackSuccessChannel",
    "SlackFailureChannel",
    "BatchCommand",
    "TaskPolicyArns",
}


@pytest.mark.parametrize("path", [TEMPLATE, *CLUSTERS], ids=lambda path: path.stem)
def test_every_parameter_is_described_bounded_and_in_one_group(path: Path) -> None:
    whole = read_template(path)
    groups = whole["Metadata"]["AWS::CloudFormation::Interface"]["ParameterGroups"]
    assert sorted(name for group in groups for name in group["Parameters"]) == sorted(
        whole["Parameters"]
    )
    for name, parameter in whole["Parameters"].items():
        assert parameter["Description"].endswith("."), name
        assert "NoEcho" not in parameter, "secrets are named, never given"
        bounds = {"AllowedValues", "AllowedPattern", "MinValue"}.intersection(parameter)
        checked_by_aws = parameter["Type"].startswith(("AWS::", "List<AWS::"))
        assert len(bounds) == (not checked_by_aws and name not in FREE), name
        assert ("AllowedPattern" in parameter) == ("ConstraintDescription" in parameter), name


HERE = "eu-west-1:123456789012"
LETTERS = ",".join("abcdefghijklmnopqrstu")  # one more than is allowed
BAD_GROUPS = ["a, b", "a,", "a,/aws/lambda/x", "/ecs/*/b", "*a"]
BAD_URLS = [
    "https://a b",
    "https://a1.eu-west-1.aoss.amazonaws.com",
    "https://a1.aoss.eu-west-1.on.aws",
    "https://a1.eu-west-1.aoss-fips.amazonaws.com",
]
DOMAIN = f"arn:aws:es:{HERE}:domain/a-b"
REGISTRY = "111122223333.dkr.ecr.us-west-2.amazonaws.com"
GPU_TYPES = "g4dn.xlarge g5.12xlarge g6e.2xlarge gr6.4xlarge p4d.xlarge p5.xlarge p6-b200.48xlarge"
NO_GPU_TYPES = "m5.large g4ad.xlarge g5g.xlarge p6e-gb200.36xlarge g5 p2.xlarge inf2.xlarge"
SECRETS = [
    "search",
    "team/search",
    "ssm:search",
    "ssm:/team/search",
    f"arn:aws:secretsmanager:{HERE}:secret:a-Xy",
]


@each_case(
    ("name", "good", "bad"),
    [
        (
            "LogGroups",
            ["/ecs/a", LETTERS[:39], "/ecs/a.b_c-d#e", "/ecs/*,b"],
            [*BAD_GROUPS, LETTERS],
        ),
        (
            "ElasticsearchUrl",
            ["https://es:9200", "http://10.0.0.1:9200/x"],
            ["es:9200", "https://me:pw@es", *BAD_URLS],
        ),
        (
            "ElasticsearchSecretId",
            SECRETS,
            ["ssm:", "ssm:/a/", "a b", '{"api_key":"x"}', "arn:aws:ssm:x"],
        ),
        ("NotifyFamilies", ["", "nightly", "etl-*, load_?", "a,[!b]c"], ["a b", "a,", "a;b", ","]),
        ("RetryOutOfMemory", ["", "nightly", "etl-*,load_?"], ["a, b", "a,", "arn:x", "[ab]"]),
        (
            "OtlpEndpoint",
            ["https://otlp.example.com/x", "http://10.0.0.1:4318"],
            ["otlp:4318", "https://a@b"],
        ),
        ("OtlpSecretId", SECRETS, ["ssm:", "Authorization=Bearer x y"]),
        ("SlackSecretId", SECRETS, ["ssm:", "a b", "https://hooks.slack.com/services/T/B/x"]),
        ("OpenSearchArn", [DOMAIN], [f"{DOMAIN}/*", "*", f"arn:aws:aoss:{HERE}:collection/a1"]),
        ("ClusterArns", [f"arn:aws:ecs:{HERE}:cluster/a"], ["jobs", f"arn:aws:ecs:{HERE}:task/a"]),
        (
            "Notify",
            ["all", "failure", "failure,running"],
            ["", "all,failure", "failure, running", "none"],
        ),
        (
            "ScheduleQueueArns",
            [f"arn:aws:sqs:{HERE}:a", f"arn:aws:sqs:{HERE}:*-dlq"],
            ["*", f"arn:aws:sqs:{HERE}:a,"],
        ),
        # Of the clusters
        ("Family", ["nightly-etl", "a_1"], ["", "a b", "a/b", "a:1"]),
        (
            "BatchImage",
            ["python:3.13-slim", f"{REGISTRY}/a/b:1", "r:5000/a@sha256:0f"],
            ["", "a b", "/a", "a/"],
        ),
        (
            "ScheduleExpression",
            ["rate(1 day)", "cron(0 3 * * ? *)", "at(2026-11-20T03:00:00)"],
            ["0 3 * * *", "daily"],
        ),
        ("InstanceType", GPU_TYPES.split(), NO_GPU_TYPES.split()),
    ],
)
def test_patterns_take_what_is_meant_and_nothing_else(
    name: str, good: list[str], bad: list[str]
) -> None:
    pattern = (parameters(GPU) | PARAMETERS)[name]["AllowedPattern"]
    assert pattern[0] == "^"
    assert pattern[-1] == "$"
    assert [value for value in (*good, *bad) if re.search(pattern, value)] == good


# Settings


class RecordedLookups(dict[str, str]):
    """An environment in which nothing is set, and adds to ``names`` what is looked for in it."""

    names: set[str]

    def get(self, key: str, default: Any = None) -> Any:
        self.names.add(key)
        return super().get(key, default)


def test_every_variable_is_a_setting_of_the_function() -> None:
    """Every variable is a setting of the function and every setting is reached or there is a
    reason.
    """
    known, reached = set[str](), set[str]()
    for function, readers in FUNCTIONS.items():
        lookups = RecordedLookups()
        lookups.names = set()
        for read in readers:
            read(lookups)
        variables = set(RESOURCES[function]["Properties"]["Environment"]["Variables"])
        assert variables - lookups.names == set(), function
        known, reached = known | lookups.names, reached | variables
    assert known - reached == set(" ".join(NOT_REACHED.values()).split())


@pytest.mark.parametrize("channel", CHANNELS, ids=lambda channel: channel.name)
def test_each_channel_reaches_every_function_that_posts(channel: Channel) -> None:
    """The functions get its variables from its parameters, and it alone makes a stack notify."""
    posting = [*FUNCTIONS, "MorningDigestFunction"]
    for parameter, variable in channel.variables.items():
        for function in posting:
            variables = RESOURCES[function]["Properties"]["Environment"]["Variables"]
            if channel is EMAIL:
                continue  # the template makes the mail of the bus's event
            # A morning message only goes to the success channel.
            is_of_failures = variable in channel.of_kind.get("failure", ())
            if is_of_failures and function == "MorningDigestFunction":
                assert variable not in variables
            else:
                assert parameter in json.dumps(variables[variable])
    alone = {**DEFAULTS, channel.parameter: "given"}
    assert not why_stack_does_nothing(alone)[0]
    assert has_channel(alone)
    assert not has_channel(DEFAULTS)
    assert broken_rules({**alone, "DigestSchedule": "rate(1 day)"}) == []


def test_a_morning_message_names_every_channel_that_it_can_have() -> None:
    (told,) = broken_rules({**DEFAULTS, "DigestSchedule": "rate(1 day)"})
    *first, last = CHANNEL_PARAMETERS
    assert told == f"The morning message has no channel: set {', '.join(first)} or {last}."


def test_a_mail_needs_no_bus_of_its_own() -> None:
    variables = RESOURCES["TaskStoppedFunction"]["Properties"]["Environment"]["Variables"]
    default = {"Fn::If": ["HasEmail", "default", ""]}
    given = {"Ref": EVENT_BUS.parameter}
    assert variables[EVENT_BUS.setting] == {"Fn::If": ["HasEventBus", given, default]}
    assert EMAIL.sender == EVENT_BUS.name


# Logs Insights

ENDED = "EndedWithoutReport"  # the query of the lines of task_stopped


@pytest.mark.parametrize("name", QUERIES)
def test_queries_begin_with_a_type_of_line(name: str) -> None:
    commands = QUERIES[name].split(" | ")
    assert commands[0].startswith(
        f"filter type = '{'task.ended' if name == ENDED else 'task.report'}'"
    )
    assert {command.split()[0] for command in commands} <= {
        "filter",
        "stats",
        "fields",
        "sort",
        "limit",
    }


@pytest.mark.parametrize(
    ("stream", "is_listed"),
    [
        ("2026/11/25/[$LATEST]7b3f0c2d9e1a4855", True),
        ("2026/11/25/tp-task-stopped[$LATEST][7b3f0c2d-9e1a]", True),
        ("ecs/batch/7b3f0c2d9e1a4855", False),
        ("2026/11/25/[$LATEST]/batch/7b3f0c2d9e1a4855", False),
        ("2026/11/25/[$LATEST]0/batch/7b3f0c2d9e1a4855", False),
        ("x[$/LATEST/7b3f0c2d9e1a4855", False),
        ("2026/11/25/$LATEST/b/7b3f0c2d9e1a4855", False),
    ],
)
def test_the_query_of_ended_runs_lists_lines_of_the_function_alone(
    stream: str, *, is_listed: bool
) -> None:
    """Every task can write into the function's log group."""
    pattern = re.search(r"@logStream like /(.*)/ ", QUERIES[ENDED])
    assert pattern is not None
    assert bool(re.search(pattern[1], stream)) == is_listed


@pytest.mark.parametrize("name", sorted(QUERIES.keys() - {ENDED}))
def test_queries_name_fields_of_the_record(name: str) -> None:
    fields = re.findall(r"\b(?:record|type)\b[\w.]*", re.sub(r"'[^']*'", "", QUERIES[name]))
    assert len(fields) >= 3
    assert [field for field in fields if not is_in_the_record(field)] == []
    aliases = set(re.findall(r" as (\w+)", QUERIES[name]))
    sorted_by = re.findall(r"sort (\S+)", QUERIES[name])
    assert [
        one
        for one in sorted_by
        if one not in aliases and one != "@timestamp" and not is_in_the_record(one)
    ] == []


def is_in_an_ended_run(path: str) -> bool:
    definitions: Any = json_schema_of_type(EndedRunDetail, "")["$defs"]
    first, _, rest = path.partition(".")
    properties = definitions["EndedRunDetail"]["properties"]
    return first in properties and (
        not rest or rest in definitions[first.capitalize()]["properties"]
    )


def test_the_query_of_ended_runs_names_their_fields() -> None:
    fields = re.findall(r"[\w.]+", re.search(r"fields @timestamp, ([^|]*)", QUERIES[ENDED])[1])  # type: ignore[index]
    fields += filter(None, chain(*re.findall(r"ispresent\((.*?)\)|\b(status)\b", QUERIES[ENDED])))
    assert len(fields) >= 3
    assert [field for field in fields if not is_in_an_ended_run(field)] == []
    assert not is_in_an_ended_run("metrics.billedMs")


def test_each_query_is_saved() -> None:
    saved = [
        one["Properties"]
        for one in RESOURCES.values()
        if one["Type"] == "AWS::Logs::QueryDefinition"
    ]
    texts = [one["QueryString"]["Fn::Join"][1]["Fn::Split"][1]["Fn::FindInMap"] for one in saved]
    assert sorted(text[1] for text in texts) == sorted(QUERIES)


def report(*, killed: bool | None = None) -> str:
    record = Record(
        task_id="1",
        container=Container(name="batch"),
        status="failure",
        likely_out_of_memory=killed,
    )
    return encode(Report(time="2026-03-01T10:00:00Z", type="task.report", record=record)).decode()


def test_the_query_for_memory_kills_finds_them() -> None:
    (expression,) = re.findall(r"like /(.*?)/", QUERIES["OutOfMemory"])
    assert [one for one in (True, False, None) if re.search(expression, report(killed=one))] == [
        True
    ]


# The subscription's pattern


def test_all_subscriptions_have_one_pattern_which_the_docs_show() -> None:
    patterns = [
        one["Properties"]["FilterPattern"]["Fn::If"]
        for one in RESOURCES.values()
        if one["Type"] == "AWS::Logs::SubscriptionFilter"
    ]
    assert all(one == patterns[0] for one in patterns)
    condition, with_cluster, of_notices = patterns[0]
    assert condition == "HasCluster"
    assert of_notices == '{ $.type = "task.notice" }'
    all_lines, pattern = with_cluster["Fn::If"][1:]
    assert all_lines == ""
    assert pattern == '{ $.type = "task.*" }'
    assert '"type":"task.report"' in report()
    assert pattern in DOCS


# The documentation


def test_the_docs_tell_what_each_alarm_means() -> None:
    alarms = [
        one["Properties"] for one in RESOURCES.values() if one["Type"] == "AWS::CloudWatch::Alarm"
    ]
    endings = {one["AlarmName"]["Fn::Sub"].removeprefix("${AWS::StackName}-") for one in alarms}
    assert len(endings) == len(alarms)
    page = (TEMPLATE.parents[1] / "docs" / "commands.md").read_text()
    assert set(re.findall(r"^\| `-([\w-]+)` \| .+ \|$", page, re.MULTILINE)) == endings
    cost = (TEMPLATE.parents[1] / "docs" / "operate.md").read_text()
    optional = (
        "watch-schedules",
        "forward-logs-stream",
        "morning-digest",
    )  # with WatchSchedules, with Ingestion=stream, with DigestSchedule
    count = sum(not ending.startswith(optional) for ending in endings)
    assert f"{count} alarms" in cost
    assert f"{count * 0.1:.2f} USD" in cost


# What a deployment on an emulator does not show


def test_functions_may_use_subnets_and_security_groups_that_another_account_shares() -> None:
    """ec2:CreateNetworkInterface is authorized on their ARNs, too, and before the function is
    created.
    """
    policy = json.dumps(RESOURCES["FunctionsPolicy"])
    for kind in ("subnet", "security-group"):
        assert f"arn:${{AWS::Partition}}:ec2:${{AWS::Region}}:*:{kind}/*" in policy
    for function in FUNCTIONS:
        assert {"Ref": "FunctionsPolicy"} in RESOURCES[function]["Metadata"]["Policies"][0][
            "Fn::If"
        ]


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


def test_the_keys_of_notices_outlive_the_messages_of_each_queue() -> None:
    queues = [one for one in RESOURCES.values() if one["Type"] == "AWS::SQS::Queue"]
    kept = {one["Properties"]["MessageRetentionPeriod"] for one in queues}
    assert kept == {KEPT_SECONDS}
    invokes = [one for one in RESOURCES.values() if one["Type"] == "AWS::Lambda::EventInvokeConfig"]
    tried = {one["Properties"]["MaximumEventAgeInSeconds"] for one in invokes}
    assert max(tried) == TRIED_SECONDS
    assert KEY_SECONDS >= 2 * (KEPT_SECONDS + TRIED_SECONDS)
