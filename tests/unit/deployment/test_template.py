"""lambda/template.yaml as it stands: the linter, the settings, the queries, the patterns, and its documentation."""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forwarder.function_settings import read_export_targets, read_grace_minutes, read_notice_settings, read_settings
from forwarder.notices.ended_run import json_schema as ended_run_schema
from forwarder.notices.slack_settings import read_targets
from forwarder.task_lines import read_line
from profiler.record.record_model import Container, Record, Report, encode, json_schema
from tests.cloudformation import lint_template
from tests.stack import TEMPLATE, template

DOCS = (TEMPLATE.parents[1] / "docs" / "deployment.md").read_text()
PARAMETERS: dict[str, Any] = template()["Parameters"]
RESOURCES: dict[str, Any] = template()["Resources"]
MAX_BYTES = 1_000_000  # of a template in S3, where setup stack and the console put it; CloudFormation's quota
_READERS: list[Callable[[Mapping[str, str]], object]] = [
    read_settings,
    read_notice_settings,
    lambda environment: read_targets(environment, str),
]
FUNCTIONS = {
    "ForwardLogsFunction": _READERS,
    "TaskStoppedFunction": [*_READERS, lambda environment: read_export_targets(environment, str)],
    "WatchSchedulesFunction": [*_READERS, read_grace_minutes],
}

# Settings that no parameter reaches, and why.
NOT_REACHED = {
    "ELASTICSEARCH_API_KEY": "a secret: in ElasticsearchSecretId",
    "ELASTICSEARCH_USERNAME": "goes with the password: in ElasticsearchSecretId",
    "ELASTICSEARCH_PASSWORD": "a secret: in ElasticsearchSecretId",
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
def test_the_linter_finds_nothing() -> None:
    assert lint_template(TEMPLATE.read_text()) == []


def test_the_linter_finds_what_is_broken() -> None:
    """One small template has all faults: a run over the whole template takes seconds."""
    broken = """
        AWSTemplateFormatVersion: "2010-09-09"
        Parameters:
          Architecture: {Type: String, Default: arm65, AllowedValues: [arm64, x86_64]}
        Resources:
          Function:
            Type: AWS::Lambda::Function
            Properties:
              Handlr: handler.forward_logs
              Role: !GetAtt MissingRole.Arn
              Architectures: [!Ref Architecture]
              Code: {ZipFile: "pass"}
              Runtime: python3.13
              Handler: index.handler
          Invokes:
            Type: AWS::Lambda::EventInvokeConfig
            Properties: {FunctionName: !Ref Function, Qualifier: $LATEST, MaximumRetryAttempts: 3}
          Queue:
            Type: AWS::SQS::Queue
            DeletionPolicy: Retain
    """
    found = {one.split()[0] for one in lint_template(broken)}
    assert found >= {"E3002", "E2015", "E3034", "E1010", "W3011"}


def test_it_is_not_too_large_for_cloudformation() -> None:
    assert TEMPLATE.stat().st_size <= MAX_BYTES


# Parameters


def test_every_parameter_is_described_bounded_and_in_one_group() -> None:
    groups = template()["Metadata"]["AWS::CloudFormation::Interface"]["ParameterGroups"]
    assert sorted(name for group in groups for name in group["Parameters"]) == sorted(PARAMETERS)
    free_text = {"SlackSuccessChannel", "SlackFailureChannel", "NotifyFamilies"}
    for name, parameter in PARAMETERS.items():
        assert parameter["Description"].endswith("."), name
        assert "NoEcho" not in parameter, "secrets are named, never given"
        bounds = {"AllowedValues", "AllowedPattern", "MinValue"}.intersection(parameter)
        assert len(bounds) == (name not in free_text), name
        assert ("AllowedPattern" in parameter) == ("ConstraintDescription" in parameter), name


@pytest.mark.parametrize(
    "name", [name for name, one in PARAMETERS.items() if "AllowedPattern" in one and "Default" in one]
)
def test_defaults_are_allowed(name: str) -> None:
    assert re.search(PARAMETERS[name]["AllowedPattern"], PARAMETERS[name]["Default"])


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
            ["es:9200", "https://me:pw@es", "https://a b"],
        ),
        ("ElasticsearchSecretId", SECRETS, ["ssm:", "ssm:/a/", "a b", '{"api_key":"x"}', "arn:aws:ssm:x"]),
        ("OtlpEndpoint", ["https://otlp.example.com/x", "http://10.0.0.1:4318"], ["otlp:4318", "https://a@b"]),
        ("OtlpSecretId", SECRETS, ["ssm:", "Authorization=Bearer x y"]),
        ("SlackSecretId", SECRETS, ["ssm:", "a b", "https://hooks.slack.com/services/T/B/x"]),
        ("OpenSearchArn", [f"arn:aws:es:{HERE}:domain/a-b"], [f"arn:aws:es:{HERE}:domain/a/*", "*"]),
        ("OpenSearchArn", [f"arn:aws-cn:aoss:{HERE}:collection/a1"], [f"arn:aws:aoss:{HERE}:index/a"]),
        ("ClusterArns", [f"arn:aws:ecs:{HERE}:cluster/a"], ["jobs", f"arn:aws:ecs:{HERE}:task/a"]),
        ("EventBusName", ["default", "a/b.c-d_E"], ["a b", "arn:aws:events:x"]),
        ("Notify", ["all", "failure", "failure,running"], ["", "all,failure", "failure, running", "none"]),
        ("ScheduleQueueArns", [f"arn:aws:sqs:{HERE}:a", f"arn:aws:sqs:{HERE}:*-dlq"], ["*", f"arn:aws:sqs:{HERE}:a,"]),
        ("NoticeEmail", ["ops@example.com"], ["ops", "a b@example.com", "@"]),
        ("SlackBaseUrl", ["https://slack-gov.com/api/"], ["https://slack-gov.com/api", "slack.com/"]),
        ("SubnetIds", ["subnet-0a", "subnet-0a,subnet-0b"], ["sg-0a", "subnet-0a, subnet-0b"]),
        ("SecretsKeyArn", [f"arn:aws:kms:{HERE}:key/mrk-0a"], [f"arn:aws:kms:{HERE}:alias/a"]),
        ("CodeKey", ["task-profiler/a.zip"], ["a.tar", "a b.zip"]),
    ],
)
def test_patterns_take_what_is_meant_and_nothing_else(name: str, good: list[str], bad: list[str]) -> None:
    pattern = PARAMETERS[name]["AllowedPattern"]
    assert pattern.startswith("^")
    assert pattern.endswith("$")
    assert [value for value in good if not re.search(pattern, value)] == []
    assert [value for value in bad if re.search(pattern, value)] == []


def holds(function: Any, values: Mapping[str, str]) -> bool:
    """The few functions that the rules are made of."""
    ((name, arguments),) = function.items()
    if name == "Fn::Equals":
        left, right = (values[one["Ref"]] if isinstance(one, dict) else one for one in arguments)
        return bool(left == right)
    results = [holds(one, values) for one in arguments]
    return {"Fn::And": all(results), "Fn::Or": any(results), "Fn::Not": not results[0]}[name]


def refused(**values: str) -> list[str]:
    """What the rules say to these parameters."""
    filled = {name: str(one.get("Default", "")) for name, one in PARAMETERS.items()} | values
    return [
        assertion["AssertDescription"]
        for rule in template()["Rules"].values()
        if "RuleCondition" not in rule or holds(rule["RuleCondition"], filled)
        for assertion in rule["Assertions"]
        if not holds(assertion["Assert"], filled)
    ]


DOMAIN = {"OpenSearchArn": "arn:…", "SearchEngine": "opensearch", "ElasticsearchUrl": "https://x"}


def test_parameters_that_make_sense_together_pass() -> None:
    assert refused() == []
    assert refused(**DOMAIN) == []
    assert refused(TaskStopped="false", ElasticsearchUrl="https://x") == []
    assert refused(TaskStopped="false", WatchSchedules="true") == []
    assert refused(SubnetIds="subnet-0a", SecurityGroupIds="sg-0a") == []
    assert refused(Ingestion="stream", ElasticsearchUrl="https://x") == []
    assert refused(SlackSecretId="slack", SlackFailureChannel="C1") == []
    assert refused(OtlpEndpoint="https://x", OtlpSecretId="otlp", OtlpAwsAuth="true") == []


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"TaskStopped": "false"}, "The stack would contain no function"),
        ({**DOMAIN, "SearchEngine": "elasticsearch"}, "set SearchEngine=opensearch"),
        ({**DOMAIN, "ElasticsearchSecretId": "x"}, "two ways to sign in"),
        ({**DOMAIN, "ElasticsearchUrl": ""}, "set ElasticsearchUrl"),
        ({"SlackSuccessChannel": "C1"}, "set SlackSecretId"),
        ({"SlackFailureChannel": "C1"}, "set SlackSecretId"),
        ({"Ingestion": "stream"}, "set ElasticsearchUrl"),
        ({"OtlpSecretId": "otlp"}, "set OtlpEndpoint"),
        ({"OtlpAwsAuth": "true"}, "set OtlpEndpoint"),
        ({"OtlpEndpoint": "https://x", "TaskStopped": "false", "WatchSchedules": "true"}, "set TaskStopped=true"),
        ({"SubnetIds": "subnet-0a"}, "set both or none"),
        ({"SecurityGroupIds": "sg-0a"}, "set both or none"),
    ],
)
def test_parameters_that_contradict_each_other_are_refused(values: dict[str, str], said: str) -> None:
    (sentence,) = refused(**values)
    assert said in sentence


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


@pytest.mark.parametrize("function", FUNCTIONS)
def test_every_variable_is_a_setting_of_the_function(function: str) -> None:
    assert set(variables(function)) - known_to(function) == set()


def test_every_setting_is_reached_or_there_is_a_reason() -> None:
    known = set().union(*(known_to(function) for function in FUNCTIONS))
    reached = set().union(*(variables(function) for function in FUNCTIONS))
    assert known - reached == set(NOT_REACHED)


def test_settings_come_from_parameters_or_from_what_the_stack_makes() -> None:
    for function in FUNCTIONS:
        for name, value in variables(function).items():
            source = value["Ref"] if "Ref" in value else value["Fn::If"][0]
            made = {"FAILED_ITEMS_QUEUE_URL": "FailedItemsQueue", "IDEMPOTENCY_TABLE": "IdempotencyTable"}
            conditions = {"SignsRequests", "HasEventBus"}
            if source in ("HasCluster", "ForwardsNotices", "ExportsRuns"):
                source = value["Fn::If"][1]["Ref"]
            assert source in {*PARAMETERS, *conditions, made.get(name)}, name


# Logs Insights

QUERIES = {name: one["Text"] for name, one in template()["Mappings"]["Query"].items()}
# The queries of the lines of task_stopped.
ENDED = {"EndedWithoutReport"}


def properties_of(part: Mapping[str, Any], schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """The properties of a part of the schema, through references and "or null"."""
    for option in [part, *part.get("anyOf", [])]:
        if "$ref" in option:
            return dict(schema["$defs"][option["$ref"].rsplit("/", 1)[-1]]["properties"])
    return {}


def is_in_the_record(path: str) -> bool:
    schema = json_schema()
    part: Mapping[str, Any] = schema
    for name in path.split("."):
        properties = properties_of(part, schema)
        if name not in properties:
            return False
        part = properties[name]
    return not properties_of(part, schema)  # a number or a text, no object


def test_a_wrong_field_would_be_noticed() -> None:
    assert is_in_the_record("record.metrics.cpuUtilizationPercent.avg")
    assert not is_in_the_record("record.metrics.cpuUtilizationPercent.mean")
    assert not is_in_the_record("record.metrics.cpuUtilizationPercent")


@pytest.mark.parametrize("name", QUERIES)
def test_queries_begin_with_a_type_of_line(name: str) -> None:
    commands = QUERIES[name].split(" | ")
    assert commands[0].startswith(f"filter type = '{'task.ended' if name in ENDED else 'task.report'}'")
    assert {command.split()[0] for command in commands} <= {"filter", "stats", "fields", "sort", "limit"}


@pytest.mark.parametrize("name", sorted(QUERIES.keys() - ENDED))
def test_queries_name_fields_of_the_record(name: str) -> None:
    fields = re.findall(r"\b(?:record|type)\b[\w.]*", re.sub(r"'[^']*'", "", QUERIES[name]))
    assert len(fields) >= 3
    assert [field for field in fields if not is_in_the_record(field)] == []
    aliases = set(re.findall(r" as (\w+)", QUERIES[name]))
    sorted_by = re.findall(r"sort (\S+)", QUERIES[name])
    assert [one for one in sorted_by if one not in aliases and one != "@timestamp" and not is_in_the_record(one)] == []


def is_in_an_ended_run(path: str) -> bool:
    definitions: Any = ended_run_schema()["$defs"]
    first, _, rest = path.partition(".")
    properties = definitions["EndedRun"]["properties"]
    return first in properties and (not rest or rest in definitions[first.capitalize()]["properties"])


@pytest.mark.parametrize("name", sorted(ENDED))
def test_queries_name_fields_of_an_ended_run(name: str) -> None:
    fields = re.findall(r"[\w.]+", re.search(r"fields @timestamp, ([^|]*)", QUERIES[name])[1])  # type: ignore[index]
    fields += [
        field for field in re.findall(r"ispresent\((.*?)\)|\b(status)\b", QUERIES[name]) for field in field if field
    ]
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
    assert [bool(re.search(expression, report(killed=killed))) for killed in (True, False, None)] == [
        True,
        False,
        False,
    ]


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


def matches(pattern: str, line: str) -> bool:
    """CloudWatch's filter pattern { $.NAME = "TEXT" }, where * in TEXT stands for anything.

    A line that is no JSON object never matches, nor one in which the field is missing or no text. See "Filter pattern
    syntax for metric filters, subscription filters" in the CloudWatch Logs guide, "JSON".
    """
    parsed = re.fullmatch(r'\{ \$\.(\w+) = "([^"]+)" \}', pattern)
    assert parsed is not None, "another kind of pattern: read it here, too"
    name, text = parsed.groups()
    try:
        value = msgspec.json.decode(line, type=dict[str, Any]).get(name)
    except (msgspec.DecodeError, UnicodeError):
        return False
    expression = ".*".join(re.escape(part) for part in text.split("*"))
    return isinstance(value, str) and re.fullmatch(expression, value, re.DOTALL) is not None


def test_all_subscriptions_have_one_pattern_which_the_docs_show() -> None:
    (pattern,) = set(subscription_patterns())
    assert pattern in DOCS
    assert pattern in (TEMPLATE.parents[1] / "docs" / "forwarder.md").read_text()


def test_reports_and_checkpoints_match_and_ordinary_lines_do_not() -> None:
    pattern = next(subscription_patterns())
    assert matches(pattern, report())
    assert matches(pattern, report(kind="task.checkpoint"))
    for line in (
        "",
        "done",
        '{"type":"etl"}',
        '{"type":7}',
        '["task.report"]',
        f"copy: {report()}",
        '{"msg":"task.report"}',
    ):
        assert not matches(pattern, line), line


@given(st.one_of(st.text(), st.dictionaries(st.text(max_size=5) | st.just("type"), st.text()).map(json.dumps)))
def test_what_does_not_match_is_no_report(line: str) -> None:
    """Nothing is kept from the forwarder that it would index."""
    assert matches(next(subscription_patterns()), line) or not isinstance(read_line(line), Report)


# The documentation


def test_the_docs_have_every_parameter_with_its_default() -> None:
    rows = dict(re.findall(r"^\| `(\w+)` \| (.*?) \|", DOCS, re.MULTILINE))
    defaults = {name: one.get("Default", "required") for name, one in PARAMETERS.items()}
    assert {name: value.strip("`") for name, value in rows.items() if name in PARAMETERS} == {
        name: str(value) for name, value in defaults.items()
    }


def test_the_docs_tell_what_each_alarm_means() -> None:
    alarms = [one["Properties"] for one in RESOURCES.values() if one["Type"] == "AWS::CloudWatch::Alarm"]
    endings = {one["AlarmName"]["Fn::Sub"].removeprefix("${AWS::StackName}-") for one in alarms}
    assert len(endings) == len(alarms)
    rows = re.findall(r"^\| ((?:`-[\w-]+`(?:, )?)+) \|", DOCS, re.MULTILINE)
    assert {name for row in rows for name in re.findall(r"`-([\w-]+)`", row)} == endings
    cost = (TEMPLATE.parents[1] / "docs" / "cost.md").read_text()
    count = sum(not ending.startswith("watch-schedules") for ending in endings)  # without WatchSchedules
    assert f"{count} alarms" in cost
    assert f"{count * 0.1:.2f} USD" in cost


def test_the_docs_name_every_output() -> None:
    assert [name for name in template()["Outputs"] if f"`{name}`" not in DOCS] == []
