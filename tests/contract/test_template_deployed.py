"""The template deployed on moto: what is there afterwards, and that reports and events find
their way through it.
"""

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import boto3
import msgspec
import pytest
from moto.awslambda.models import LambdaFunction
from msgspec.structs import replace

import handler
from profiler.aws_account.setup.template_parameters import parameter_values
from profiler.core.index_names import IndexNames
from profiler.core.timestamps import format_datetime
from profiler.forwarder import function_settings
from profiler.forwarder.function_settings import (
    Credentials,
    ForwarderSettings,
    read_notice_settings,
    read_settings,
)
from profiler.forwarder.invocation import ForwarderError
from profiler.forwarder.notifications.event_details import (
    ended_run_detail,
    run_notice_detail,
    schedule_notice_detail,
)
from profiler.record.notice_model import ScheduleNoticeLine, decode_notice_json
from tests.bus_events import RUN, mail_of
from tests.cloudformation import (
    ACCOUNT,
    LOG_GROUPS,
    REGION,
    TEMPLATE,
    MotoStack,
    Stack,
    broken_rules,
    create_stack,
    deploy,
    deploy_template,
    in_camel_case,
    template,
    validate_arguments,
)
from tests.documentation import ROOT
from tests.ended_runs import changed, ended
from tests.fake_batch import FakeBatch
from tests.http_server import FakeElasticsearch
from tests.lambda_environment import InvocationContext, forget_environment, moto_account
from tests.log_subscriptions import REPORT, TASK_ID, put_lines
from tests.scheduled_account import ScheduledAccount
from tests.shown_runs import missed_notice, stuck_notice
from tests.task_events import EVENT, event

CLUSTER = "arn:aws:ecs:us-west-2:111122223333:cluster/jobs"
TOPIC = f"arn:aws:sns:{REGION}:{ACCOUNT}:alerts"


@pytest.fixture(autouse=True)
def aws(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with moto_account(monkeypatch, REGION):
        yield


def attributes_of(queue_url: str) -> dict[str, str]:
    found = boto3.client("sqs").get_queue_attributes(QueueUrl=queue_url, AttributeNames=["All"])
    return dict(found["Attributes"])


def queue_arn(url: str) -> str:
    return attributes_of(url)["QueueArn"]


def who_may_invoke(function: str) -> dict[str, Any]:
    """The only statement of the policy of a function."""
    (statement,) = json.loads(boto3.client("lambda").get_policy(FunctionName=function)["Policy"])[
        "Statement"
    ]
    return dict(statement)


def alarms(*names: str) -> list[dict[str, Any]]:
    return list(boto3.client("cloudwatch").describe_alarms(AlarmNames=names)["MetricAlarms"])


def filters_of(group: str) -> list[dict[str, Any]]:
    found = boto3.client("logs").describe_subscription_filters(logGroupName=group)
    return list(found["subscriptionFilters"])


def filter_of(group: str) -> dict[str, Any]:
    (found,) = filters_of(group)
    return found


def resources_of(stack: Stack, sid: str, role: str = "TaskStoppedRole") -> list[Any]:
    """The resources of a role's statement, if it has that one."""
    return [one["Resource"] for one in stack.statements(role) if one["Sid"] == sid]


def test_both_functions_are_there_with_their_roles() -> None:
    boundary = "arn:aws:iam::aws:policy/PowerUserAccess"
    stack = deploy(
        Ingestion="stream", TimeoutSeconds="300", PermissionsBoundary=boundary, RolePath="/team/"
    )
    for name, handled in (("ForwardLogs", "forward_logs"), ("TaskStopped", "task_stopped")):
        deployed = stack.outputs[f"{name}FunctionName"]
        configuration = boto3.client("lambda").get_function_configuration(FunctionName=deployed)
        assert configuration["Handler"] == f"handler.{handled}"
        assert configuration["Timeout"] == 300
        assert callable(getattr(handler, handled))
        assert configuration["Role"].endswith(stack.physical_id(f"{name}Role"))
    made = stack.resources("AWS::IAM::Role")
    assert len(made) == 3
    assert {(one["Path"], one["PermissionsBoundary"]) for one in made.values()} == {
        ("/team/", boundary)
    }


def test_each_log_group_has_one_filter() -> None:
    """Each log group has one filter and events that fail are kept with their error."""
    stack = deploy()
    for group in LOG_GROUPS:
        filter_ = filter_of(group)
        assert filter_["filterPattern"] == '{ $.type = "task.*" }'
        assert filter_["destinationArn"] == stack.outputs["ForwardLogsFunctionArn"]
    statement = who_may_invoke(stack.outputs["ForwardLogsFunctionName"])
    assert statement["Principal"] == {"Service": "logs.amazonaws.com"}
    assert statement["Condition"] == {
        "ArnLike": {"AWS:SourceArn": f"arn:aws:logs:{REGION}:{ACCOUNT}:log-group:*"},
        "StringEquals": {"AWS:SourceAccount": ACCOUNT},
    }
    for name in ("ForwardLogs", "TaskStopped"):
        queue = stack.outputs[f"{name}DeadLetterQueueUrl"]
        function = stack.outputs[f"{name}FunctionName"]
        config = boto3.client("lambda").get_function_event_invoke_config(FunctionName=function)
        assert config["MaximumRetryAttempts"] == 2
        assert config["MaximumEventAgeInSeconds"] == 21600
        assert config["DestinationConfig"]["OnFailure"] == {"Destination": queue_arn(queue)}
    assert (
        stack.environment("ForwardLogsFunction")["FAILED_ITEMS_QUEUE_URL"]
        == stack.outputs["FailedItemsQueueUrl"]
    )


def test_without_setup_stack_one_log_group_is_subscribed() -> None:
    stack = deploy_template(TEMPLATE, LogGroups="/ecs/jobs")
    (filter_,) = stack.resources("AWS::Logs::SubscriptionFilter").values()
    assert filter_["FilterName"] == "tp-group"
    assert filter_["LogGroupName"] == "/ecs/jobs"
    for groups in ("", "/ecs/jobs,/ecs/monitor"):
        other = deploy_template(TEMPLATE, f"other{len(groups)}", LogGroups=groups)
        assert other.resources("AWS::Logs::SubscriptionFilter") == {}


def test_the_whole_account_is_subscribed_except_for_the_functions_own_log_groups() -> None:
    stack = deploy(Subscribe="account", LogGroups="/ecs/*,/batch", WatchSchedules="true")
    assert stack.resources("AWS::Logs::SubscriptionFilter") == {}
    (policy,) = stack.resources("AWS::Logs::AccountPolicy").values()
    assert policy["PolicyType"] == "SUBSCRIPTION_FILTER_POLICY"
    assert policy["Scope"] == "ALL"
    document = json.loads(policy["PolicyDocument"])
    assert document["FilterPattern"] == '{ $.type = "task.*" }'
    assert document["DestinationArn"] == stack.outputs["ForwardLogsFunctionArn"]
    own = [
        one["LoggingConfig"]["LogGroup"]
        for one in stack.resources("AWS::Lambda::Function").values()
    ]
    assert policy["SelectionCriteria"] == f"LogGroupName NOT IN {json.dumps(own)}"
    arn = "arn:*:logs:*:*:log-group"
    assert {query.partition(" WHERE ")[2] for query in deliveries()} == {
        "PolicyLevel = 'AccountPolicy'"
    }
    (tails,) = resources_of(stack, "ReadTails")
    assert tails == [f"{arn}:/ecs/*:log-stream:*", f"{arn}:/batch:log-stream:*"]
    assert stack.resources("AWS::CloudWatch::Dashboard") == {}
    assert all(
        "LogGroupNames" not in one
        for one in stack.resources("AWS::Logs::QueryDefinition").values()
        if "task.ended" not in one["QueryString"]
    )


def test_the_rule_hands_ended_tasks_to_the_function() -> None:
    stack = deploy()
    (rule,) = boto3.client("events").list_rules()["Rules"]
    (target,) = boto3.client("events").list_targets_by_rule(Rule=rule["Name"])["Targets"]
    assert target["Arn"].endswith(f":function:{stack.outputs['TaskStoppedFunctionName']}")
    queue = stack.outputs["TaskStoppedDeadLetterQueueUrl"]
    assert target["DeadLetterConfig"] == {"Arn": queue_arn(queue)}
    statement = who_may_invoke(stack.outputs["TaskStoppedFunctionName"])
    assert statement["Principal"] == {"Service": "events.amazonaws.com"}
    assert statement["Condition"] == {"ArnLike": {"AWS:SourceArn": rule["Arn"]}}
    (allowed,) = json.loads(attributes_of(queue)["Policy"])["Statement"]
    assert allowed["Principal"] == {"Service": "events.amazonaws.com"}
    assert allowed["Condition"] == {"ArnEquals": {"aws:SourceArn": rule["Arn"]}}
    assert allowed["Action"] == "sqs:SendMessage"
    assert allowed["Resource"] == queue_arn(queue)


def matched_by_the_rule(*events: dict[str, Any], target: str = "task-stopped") -> list[bool]:
    """moto has no TestEventPattern, but it brings events to queues: one is made the target of
    the deployed rule with this target.
    """
    queue = boto3.client("sqs").create_queue(QueueName="probe")["QueueUrl"]
    client = boto3.client("events")
    (rule,) = (
        rule
        for rule in client.list_rules()["Rules"]
        if client.list_targets_by_rule(Rule=rule["Name"])["Targets"][0]["Id"] == target
    )
    client.remove_targets(Rule=rule["Name"], Ids=[target])  # moto calls no functions
    client.put_targets(Rule=rule["Name"], Targets=[{"Id": "probe", "Arn": queue_arn(queue)}])
    matched = []
    for one in events:
        entry = {
            "Source": one["source"],
            "DetailType": one["detail-type"],
            "Detail": json.dumps(one["detail"]),
        }
        client.put_events(Entries=[entry])
        arrived = boto3.client("sqs").receive_message(QueueUrl=queue).get("Messages", [])
        matched.append(bool(arrived))
        for message in arrived:
            boto3.client("sqs").delete_message(
                QueueUrl=queue, ReceiptHandle=message["ReceiptHandle"]
            )
    return matched


def test_only_ended_tasks_of_the_named_clusters_match_the_rule() -> None:
    deploy()
    others = [
        event(lastStatus=status)
        for status in ("PROVISIONING", "PENDING", "RUNNING", "DEPROVISIONING")
    ]
    service = {**EVENT, "detail-type": "ECS Service Action"}
    somebody = {**EVENT, "source": "com.example"}
    elsewhere = event(clusterArn=f"{CLUSTER}-2")
    assert matched_by_the_rule(EVENT, *others, service, somebody, elsewhere) == [
        True,
        *[False] * 6,
        True,
    ]
    boto3.client("cloudformation").delete_stack(StackName="tp")
    deploy(ClusterArns=f"{CLUSTER},{CLUSTER}-3")
    events = [event(clusterArn=f"{CLUSTER}{ending}") for ending in ("", "-2", "-3")]
    assert matched_by_the_rule(*events) == [True, False, True]


def test_ended_jobs_and_blocked_queues_match_the_rule_of_jobs() -> None:
    stack = deploy(BatchJobs="true")
    assert stack.environment("TaskStoppedFunction")["BATCH_JOBS"] == "true"
    assert resources_of(stack, "NameJobs") == ["*"]
    # EventBridge looks into the items of a list, moto does not.
    repeated: dict[str, Any] = {"status": "RUNNABLE", "attempts": {"stoppedAt": 1}}
    jobs = [
        {"source": "aws.batch", "detail-type": kind, "detail": detail}
        for kind, detail in (
            ("Batch Job State Change", {"status": "SUCCEEDED"}),
            ("Batch Job State Change", {"status": "FAILED"}),
            ("Batch Job State Change", {"status": "RUNNABLE", "attempts": []}),
            ("Batch Job State Change", repeated),
            ("Batch Job State Change", repeated | {"status": "STARTING"}),
            ("Batch Job Queue Blocked", {"status": "RUNNABLE"}),
            ("Batch Service Job State Change", {"status": "FAILED"}),
        )
    ]
    matched = matched_by_the_rule(*jobs, target="batch-jobs")
    assert matched == [True, True, False, True, False, True, False]


def test_jobs_need_task_stopped() -> None:
    defaults = {name: str(one.get("Default", "")) for name, one in template()["Parameters"].items()}
    chosen = {"BatchJobs": "true", "TaskStopped": "false", "ElasticsearchUrl": "https://a"}
    assert any("set TaskStopped=true" in one for one in broken_rules({**defaults, **chosen}))


def test_a_mail_is_sent_for_each_ended_run_and_for_each_notice() -> None:
    stack = deploy(NoticeEmail="ops@example.com")
    assert stack.environment("TaskStoppedFunction")["EVENT_BUS_NAME"] == "default"
    assert resources_of(stack, "PutEvents") == [
        f"arn:aws:events:{REGION}:{ACCOUNT}:event-bus/default"
    ]
    (subscription,) = boto3.client("sns").list_subscriptions()["Subscriptions"]
    assert subscription["Protocol"] == "email"
    assert subscription["Endpoint"] == "ops@example.com"
    client = boto3.client("events")
    rules = [one for one in client.list_rules()["Rules"] if "task-profiler" in one["EventPattern"]]
    types = [kind for rule in rules for kind in json.loads(rule["EventPattern"])["detail-type"]]
    assert sorted(types) == [
        "Batch Job Notice",
        "Night Summary",
        "Schedule Notice",
        "Task Run Ended",
        "Task Run Notice",
    ]
    for rule in rules:
        (target,) = client.list_targets_by_rule(Rule=rule["Name"])["Targets"]
        assert target["Arn"] == subscription["TopicArn"] == stack.physical_id("EmailTopic")
    policy = boto3.client("sns").get_topic_attributes(TopicArn=subscription["TopicArn"])[
        "Attributes"
    ]["Policy"]
    (statement,) = json.loads(policy)["Statement"]
    assert statement["Principal"] == {"Service": "events.amazonaws.com"}
    assert sorted(statement["Condition"]["ArnEquals"]["aws:SourceArn"]) == sorted(
        rule["Arn"] for rule in rules
    )


def test_quotes_in_the_reason_of_ecs_break_neither_the_mail_nor_the_teams_message() -> None:
    run = ended(RUN, cause="failure", exit_code=127, reason='exec: "C:\\etl.exe": file not found\n')
    detail = msgspec.to_builtins(ended_run_detail(run, kibana_url=None))
    sentence = "etl_daily:7 failed with exit code 127: exec: 'C:/etl.exe': file not found."
    (target,) = template()["Resources"]["EmailRule"]["Properties"]["Targets"]
    lines = [json.loads(line) for line in mail_of(target["InputTransformer"], detail).splitlines()]
    assert lines[0] == sentence
    assert all(lines)
    (teams,) = json.loads((ROOT / "examples" / "teams_target.json").read_text())
    card = json.loads(mail_of(teams["InputTransformer"], detail))
    first, numbers, second = card["attachments"][0]["content"]["body"]
    assert first["text"] == sentence
    assert numbers["text"].startswith("The task ran ")
    assert second["text"].startswith("Task 0123 in cluster jobs: https://")


def test_pagerduty_takes_the_template_of_the_page_also_of_a_run_without_a_cluster() -> None:
    """It refuses events that lack one of its fields: reference/events-v2 of PagerDuty's API schema.
    It cuts a summary of more than 1,024 characters, and a key to merge by has at most 255.
    """
    page = (ROOT / "docs" / "notifications.md").read_text().rpartition("**PagerDuty:**")[2]
    found = re.search(r"```json\n(.*)\n```", page)
    assert found
    paths = dict(zip(("task", "text", "cluster"), re.findall(r"`(\$\.\S+)`", page), strict=True))
    transformer = {"InputPathsMap": paths, "InputTemplate": found[1]}
    reason = 'exec: "C:\\etl.exe" ' + "x" * 2000
    for cluster in ("jobs", ""):
        run = ended(RUN, cause="failure", exit_code=127, reason=reason)
        run = changed(run, task=replace(run.task, cluster=cluster))
        detail = msgspec.to_builtins(ended_run_detail(run, kibana_url=None))
        event = json.loads(mail_of(transformer, detail))
        assert event["event_action"] == "trigger"
        assert 0 < len(event["dedup_key"]) <= 255
        payload = event["payload"]
        assert payload["severity"] in {"critical", "error", "warning", "info"}
        assert payload["source"]
        assert 0 < len(payload["summary"]) <= 1024
        assert payload["group"] == cluster


def test_the_mail_of_a_run_that_did_not_start_has_no_holes() -> None:
    run = changed(
        ended(RUN, cause="image", exit_code=None, reason="CannotPullContainerError"),
        report_line=None,
        report_log=None,
        log=None,
        task=replace(RUN.task, started_at=None),
    )
    detail = msgspec.to_builtins(ended_run_detail(run, kibana_url=None))
    (target,) = template()["Resources"]["EmailRule"]["Properties"]["Targets"]
    lines = [json.loads(line) for line in mail_of(target["InputTransformer"], detail).splitlines()]
    assert lines[0] == (
        "etl_daily:7 failed: The container's image could not be pulled. CannotPullContainerError."
    )
    assert lines[1] == "The task did not run."
    assert lines[2].startswith("Task 0123 in cluster jobs: https://")
    assert lines[2].endswith(" To look: task-profiler doctor etl_daily --region eu-west-1")


def test_teams_shows_the_link_of_a_batch_as_text() -> None:
    line = stuck_notice()
    forged = "[sign in again](https://evil.example/login)"
    forged_line = replace(line, notice=replace(line.notice, message=forged))
    detail = msgspec.to_builtins(run_notice_detail(forged_line, kibana_url=None))
    (teams,) = json.loads((ROOT / "examples" / "teams_target.json").read_text())
    card = json.loads(mail_of(teams["InputTransformer"], detail))
    (first, *_) = card["attachments"][0]["content"]["body"]
    assert first["text"].endswith("evil.example/login)")
    assert "](" not in first["text"]
    assert "://" not in first["text"]


def test_the_mails_of_notices_are_readable() -> None:
    (target,) = template()["Resources"]["EmailNoticeRule"]["Properties"]["Targets"]
    details = (
        run_notice_detail(stuck_notice(), kibana_url=None),
        schedule_notice_detail(missed_notice(), kibana_url=None),
    )
    mails = (mail_of(target["InputTransformer"], msgspec.to_builtins(detail)) for detail in details)
    stuck, missed = map(str.splitlines, mails)
    assert stuck[0].startswith(
        '"nightly-etl:26 has been stuck for 30 minutes. The run used less than 0.01 vCPU'
    )
    assert stuck[1].startswith('"Running for ')
    assert stuck[2].startswith('"Task ')
    assert "To stop it: aws ecs stop-task --cluster jobs --task" in stuck[2]
    assert missed[0].startswith(
        '"nightly-etl was due at 03:00 and no task was started: RunTask was refused'
    )
    assert all(
        line.startswith('"') and line.endswith('"') and "<" not in line and len(line) > len('""')
        for line in (*stuck, *missed)
    )


@pytest.mark.parametrize(
    "parameters", [{}, {"EventBusName": "runs"}, {"EventBusName": "runs", "NoticeEmail": "a@b.c"}]
)
def test_events_go_to_the_named_bus(parameters: dict[str, str]) -> None:
    bus = parameters.get("EventBusName")
    boto3.client("events").create_event_bus(Name="runs")
    stack = deploy(**parameters)
    assert read_notice_settings(stack.environment("TaskStoppedFunction")).event_bus_name == bus
    assert resources_of(stack, "PutEvents") == (
        [f"arn:aws:events:{REGION}:{ACCOUNT}:event-bus/{bus}"] if bus else []
    )
    assert len(boto3.client("events").list_rules(EventBusName="runs")["Rules"]) == 3 * (
        "NoticeEmail" in parameters
    )


def test_the_morning_message_is_sent_when_its_schedule_says_in_its_zone() -> None:
    stack = deploy(
        DigestSchedule="cron(0 8 * * ? *)",
        DigestTimeZone="Europe/Berlin",
        NoticeEmail="ops@example.com",
        TaskStopped="true",
    )
    environment = stack.environment("MorningDigestFunction")
    assert str(function_settings.read_digest_zone(environment)) == "Europe/Berlin"
    assert function_settings.read_key_table(environment) is not None
    assert "SLACK_FAILURE_CHANNEL" not in environment
    name = stack.outputs["MorningDigestFunctionName"]
    configuration = boto3.client("lambda").get_function_configuration(FunctionName=name)
    assert configuration["Handler"] == f"handler.{handler.morning_digest.__name__}"
    schedule = template()["Resources"]["MorningDigestSchedule"]["Properties"]
    assert schedule["ScheduleExpression"] == {"Ref": "DigestSchedule"}
    assert schedule["ScheduleExpressionTimezone"] == {"Ref": "DigestTimeZone"}


@pytest.mark.parametrize(
    ("parameters", "sentence"),
    [
        ({}, "The morning message has no channel"),
        ({"NoticeEmail": "ops@example.com", "TaskStopped": "false"}, "set TaskStopped=true"),
    ],
)
def test_a_morning_message_without_a_channel_or_runs_is_refused(
    parameters: dict[str, str], sentence: str
) -> None:
    defaults = {name: str(one.get("Default", "")) for name, one in template()["Parameters"].items()}
    chosen = {"DigestSchedule": "rate(1 day)", "ElasticsearchUrl": "https://a"}
    broken = broken_rules({**defaults, **chosen, **parameters})
    assert any(sentence in one for one in broken)


def test_the_watch_of_schedules_is_invoked_every_five_minutes_and_never_twice_for_one() -> None:
    stack = deploy(WatchSchedules="true", AlarmTopicArn=TOPIC, ScheduleGraceMinutes="20")
    assert function_settings.read_grace_minutes(stack.environment("WatchSchedulesFunction")) == 20
    name = stack.outputs["WatchSchedulesFunctionName"]
    configuration = boto3.client("lambda").get_function_configuration(FunctionName=name)
    assert configuration["Handler"] == f"handler.{handler.watch_schedules.__name__}"
    (rule,) = [
        one for one in boto3.client("events").list_rules()["Rules"] if "ScheduleExpression" in one
    ]
    assert rule["ScheduleExpression"] == "rate(5 minutes)"
    assert rule["State"] == "ENABLED"
    (target,) = boto3.client("events").list_targets_by_rule(Rule=rule["Name"])["Targets"]
    assert target["Arn"].endswith(f":function:{name}")
    assert who_may_invoke(name)["Condition"] == {"ArnLike": {"AWS:SourceArn": rule["Arn"]}}
    invokes = boto3.client("lambda").get_function_event_invoke_config(FunctionName=name)
    assert invokes["MaximumRetryAttempts"] == 0
    assert invokes["MaximumEventAgeInSeconds"] == 300
    (silence,) = alarms("tp-watch-schedules-not-invoked")
    assert silence["MetricName"] == "Invocations"
    assert silence["TreatMissingData"] == "breaching"
    assert silence["AlarmActions"] == [TOPIC]


@pytest.mark.parametrize(
    ("parameters", "is_made"),
    [
        ({"SlackSecretId": "slack", "Notify": "running"}, True),
        ({"EventBusName": "runs", "Notify": "success,failure,running"}, True),
        ({"SlackSecretId": "slack", "Notify": "success,failure"}, False),
        ({"SlackSecretId": "slack", "Notify": "running", "LogGroups": ""}, False),
        ({"Notify": "running"}, False),
        # The filters of a log group may be used up, and an update without a changed parameter must
        # not fail.
        ({"SlackSecretId": "slack", "EventBusName": "runs"}, False),
    ],
)
def test_without_a_cluster_forward_logs_gets_notices_only_if_they_are_asked_for(
    parameters: dict[str, str], *, is_made: bool
) -> None:
    boto3.client("events").create_event_bus(Name="runs")
    stack = deploy(**{"ElasticsearchUrl": "", **parameters})
    patterns = {one["filterPattern"] for group in LOG_GROUPS for one in filters_of(group)}
    assert patterns == ({'{ $.type = "task.notice" }'} if is_made else set())
    assert ("ForwardLogsFunctionName" in stack.outputs) is is_made
    assert "FailedItemsQueueUrl" not in stack.outputs
    if not parameters.get(
        "LogGroups", "named"
    ):  # nothing else has the numbers of the notifications
        assert resources_of(stack, "ReadTails") == [["arn:*:logs:*:*:log-group:*:log-stream:*"]]
    if is_made:
        environment = stack.environment("ForwardLogsFunction")
        assert read_settings(environment).failed_items_queue_url is None
        assert environment["IDEMPOTENCY_TABLE"] == stack.physical_id("IdempotencyTable")


def deliveries() -> list[str]:
    """The Metrics Insights queries of the alarms on deliveries: there may be many log groups."""
    return [one["Metrics"][0]["Expression"] for one in alarms() if one.get("Metrics")]


def test_every_alarm_is_quiet_without_data_and_calls_the_topic() -> None:
    stack = deploy(AlarmTopicArn=TOPIC)
    found = alarms()
    assert len(found) == 13
    name = filter_of(LOG_GROUPS[0])["filterName"]
    assert deliveries() == [
        f"SELECT SUM(Delivery{what}) FROM \"AWS/Logs\" WHERE FilterName = '{name}'"
        for what in ("Errors", "Throttling")
    ]
    watched = {
        (one["MetricName"], one["Dimensions"][0]["Value"]) for one in found if "MetricName" in one
    }
    functions = [stack.outputs["ForwardLogsFunctionName"], stack.outputs["TaskStoppedFunctionName"]]
    metrics = ("Errors", "Throttles", "AsyncEventAge", "DestinationDeliveryFailures")
    queues = (
        "ForwardLogsDeadLetterQueueUrl",
        "TaskStoppedDeadLetterQueueUrl",
        "FailedItemsQueueUrl",
    )
    depths = {
        ("ApproximateNumberOfMessagesVisible", stack.outputs[queue].rsplit("/", 1)[-1])
        for queue in queues
    }
    assert watched == {(metric, function) for metric in metrics for function in functions} | depths
    for alarm in found:
        assert alarm["AlarmName"].startswith("tp-")
        assert alarm["TreatMissingData"] == "notBreaching"
        assert alarm["AlarmActions"] == alarm["OKActions"] == [TOPIC]


def dashboard_widgets() -> list[dict[str, Any]]:
    dashboard = boto3.client("cloudwatch").get_dashboard(DashboardName=f"tp-{REGION}")
    return list(json.loads(dashboard["DashboardBody"])["widgets"])


def test_the_dashboard_shows_the_saved_queries_over_the_log_groups() -> None:
    """The dashboard shows the saved queries over the log groups and what is not asked for is not
    made.
    """
    stack = deploy()
    assert all(not one["AlarmActions"] for one in alarms())
    for kind in ("AWS::SNS::Topic", "AWS::ECS::TaskDefinition", "AWS::ECS::Service"):
        assert stack.resources(kind) == {}
    assert boto3.client("kinesis").list_streams()["StreamNames"] == []
    assert boto3.client("lambda").list_event_source_mappings()["EventSourceMappings"] == []
    assert "ReportStreamArn" not in stack.outputs
    assert resources_of(stack, "ReadStream", "ForwardLogsRole") == []
    widgets = dashboard_widgets()
    shown = [one["properties"]["query"] for one in widgets if one["type"] == "log"]
    saved = [
        one["QueryString"].replace("\n", " ")
        for one in stack.resources("AWS::Logs::QueryDefinition").values()
    ]
    of_reports = [query for query in shown if "task.ended" not in query]
    assert sorted(of_reports) == sorted(
        f"SOURCE '/ecs/jobs' | SOURCE '/ecs/monitor' | {query}"
        for query in saved
        if "task.ended" not in query
    )
    assert len(of_reports) == 6
    assert len(shown) == len(saved) == 7
    assert {one["properties"]["region"] for one in widgets} == {REGION}
    # Dashboards are global in an account: a stack of this name in a second Region needs another
    # name.
    assert stack.outputs["DashboardUrl"].endswith(f"#dashboards/dashboard/tp-{REGION}")


def test_a_query_and_a_widget_show_the_runs_without_a_report() -> None:
    stack = deploy(ElasticsearchUrl="")
    widgets = dashboard_widgets()
    (shown,) = [one["properties"]["query"] for one in widgets if "task.ended" in json.dumps(one)]
    queries = stack.resources("AWS::Logs::QueryDefinition").values()
    (saved,) = [
        one for one in queries if one["QueryString"].startswith("filter type = 'task.ended'")
    ]
    (function,) = stack.resources("AWS::Lambda::Function").values()
    assert saved["LogGroupNames"] == [function["LoggingConfig"]["LogGroup"]]
    assert shown == f"SOURCE '{saved['LogGroupNames'][0]}' | {saved['QueryString']}".replace(
        "\n", " "
    )
    places = [(one["x"], one["y"]) for one in widgets]
    assert len(set(places)) == len(places) == 9


@pytest.mark.parametrize(
    ("parameters", "made", "not_made"),
    [
        ({"ElasticsearchUrl": ""}, "TaskStopped", "ForwardLogs"),
        ({"TaskStopped": "false"}, "ForwardLogs", "TaskStopped"),
        (
            {"ElasticsearchUrl": "", "TaskStopped": "false", "WatchSchedules": "true"},
            "WatchSchedules",
            "TaskStopped",
        ),
    ],
)
def test_each_function_works_without_the_others(
    parameters: dict[str, str], made: str, not_made: str
) -> None:
    stack = deploy(**parameters)
    (function,) = boto3.client("lambda").list_functions()["Functions"]
    assert function["FunctionName"] == stack.outputs[f"{made}FunctionName"]
    kinds = {resource["Type"] for resource in template()["Resources"].values()}
    assert not [
        name for kind in kinds for name in stack.resources(kind) if name.startswith(not_made)
    ]
    assert not [name for name in stack.outputs if name.startswith(not_made)]


def test_the_functions_read_their_settings_from_the_parameters() -> None:
    stack = deploy(
        SearchEngine="opensearch",
        OpenSearchArn=f"arn:aws:es:{REGION}:{ACCOUNT}:domain/runs",
        IndexPrefix="team-a",
        ForwardLogLines="true",
        Notify="failure",
        NotifyFamilies="nightly-*,hourly",
        NotifyServices="true",
        ReportWaitSeconds="45",
        NotifyLogLines="7",
        KibanaUrl="https://kibana:5601/",
        IndexPeriod="day",
    )
    assert {filter_of(group)["filterPattern"] for group in LOG_GROUPS} == {""}
    forwarding = stack.environment("ForwardLogsFunction")
    assert read_settings(forwarding) == ForwarderSettings(
        url="https://search:9200",
        engine="opensearch",
        credentials=Credentials(aws="es"),
        indices=IndexNames(prefix="team-a", period="day"),
        forward_log_lines=True,
        failed_items_queue_url=stack.outputs["FailedItemsQueueUrl"],
        kibana_url="https://kibana:5601",
    )
    noticing = read_notice_settings(stack.environment("TaskStoppedFunction"))
    assert noticing.subjects == frozenset({"failure"})
    assert noticing.services is True
    assert noticing.families == ("nightly-*", "hourly")
    assert noticing.report_wait_seconds == 45
    assert noticing.kibana_url == "https://kibana:5601"
    assert noticing.log_lines == 7
    table = function_settings.read_key_table(stack.environment("TaskStoppedFunction"))
    assert table == stack.physical_id("IdempotencyTable")
    index_settings = read_settings(stack.environment("TaskStoppedFunction"))
    assert index_settings.indices == IndexNames(prefix="team-a", period="day")


def test_a_missed_run_is_logged_once_without_a_cluster(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With real clients: EventBridge, ECS, CloudTrail, SQS, DynamoDB."""
    account = ScheduledAccount(monkeypatch)
    account.make_cluster()
    queue = account.make_queue("failed-starts")
    for name in ("nightly", "hourly"):
        account.make_schedule(name, f"at({account.at(5):%Y-%m-%dT%H:%M}:00)", queue)
    account.make_rule("weekly", "rate(7 days)")
    due = format_datetime(account.at(5).replace(second=0, microsecond=0))
    arn = f"arn:aws:scheduler:{REGION}:{ACCOUNT}:schedule/default/nightly"
    account.send(
        queue,
        SCHEDULE_ARN=arn,
        SCHEDULED_TIME=due,
        ERROR_CODE="AccessDenied",
        ERROR_MESSAGE="No role.",
    )
    account.start_task("hourly", 5.2)
    stack = deploy(ElasticsearchUrl="", WatchSchedules="true", ScheduleQueueArns=queue)
    for name, value in stack.environment("WatchSchedulesFunction").items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("AWS_LAMBDA_FUNCTION_NAME", "watch")
    answers = []
    for account.minutes in (4, 16, 21, 26):
        if account.minutes != 21:  # a new environment of Lambda
            forget_environment()
        answers.append(handler.watch_schedules({}, InvocationContext()))
    counts = {"schedules": 3, "unknown": 1, "missed": 0, "late": 0, "overlapped": 0, "slow": 0}
    assert answers == [counts, counts, {**counts, "missed": 1}, counts]
    (line,) = (decode_notice_json(line) for line in capsys.readouterr().out.splitlines())
    assert isinstance(line, ScheduleNoticeLine)
    assert line.schedule.name == "nightly"
    assert line.notice.kind == "missed"
    assert line.notice.due_at == due
    assert line.notice.reason == "AccessDenied: No role."


def test_a_schedule_that_calls_run_task_itself_is_watched(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One that does not say how its tasks are to be marked is unknown."""
    account = ScheduledAccount(monkeypatch)
    account.make_cluster()
    due = f"at({account.at(5):%Y-%m-%dT%H:%M}:00)"
    for name in ("missed", "ran"):
        account.make_universal_schedule(name, due, StartedBy=f"by-{name}")
    account.make_universal_schedule("unmarked", due)
    account.start_task("by-ran", 5.2, starter="")
    stack = deploy(ElasticsearchUrl="", WatchSchedules="true")
    for name, value in stack.environment("WatchSchedulesFunction").items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("AWS_LAMBDA_FUNCTION_NAME", "watch")
    forget_environment()
    account.minutes = 21
    counts = handler.watch_schedules({}, InvocationContext())
    assert (counts["schedules"], counts["missed"], counts["unknown"]) == (3, 1, 1)
    (line,) = (decode_notice_json(line) for line in capsys.readouterr().out.splitlines())
    assert isinstance(line, ScheduleNoticeLine)
    assert (line.schedule.name, line.cluster, line.family) == ("missed", "jobs", "nightly")


@pytest.mark.parametrize("refused", ["", "DescribeStateMachine", "ListExecutions"])
def test_a_missed_run_of_a_state_machine_is_logged(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], refused: str
) -> None:
    """Nothing is known of a machine of the type Express, nor of one that may not be read."""
    account = ScheduledAccount(monkeypatch)
    due = f"at({account.at(5):%Y-%m-%dT%H:%M}:00)"
    account.make_machine_schedule("missed", due, "extract", "load")
    account.make_machine_schedule("ran", due, "load", alias="live")
    account.make_machine_schedule("quick", due, "load", kind="EXPRESS")
    account.execute("ran", 5.2)
    stack = deploy(ElasticsearchUrl="", WatchSchedules="true", NotifyFamilies="load")
    for name, value in stack.environment("WatchSchedulesFunction").items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("AWS_LAMBDA_FUNCTION_NAME", "watch")
    forget_environment()
    account.refused = {refused}
    account.minutes = 21
    if refused == "ListExecutions":
        with pytest.raises(ForwarderError, match="allow states:ListExecutions"):
            handler.watch_schedules({}, InvocationContext())
        assert capsys.readouterr().out == ""
        return
    counts = handler.watch_schedules({}, InvocationContext())
    if refused:
        assert (counts["schedules"], counts["missed"]) == (0, 0)
        assert "allow states:DescribeStateMachine and states:" in capsys.readouterr().out
        return
    assert (counts["schedules"], counts["missed"], counts["unknown"]) == (2, 1, 0)
    (line,) = (decode_notice_json(line) for line in capsys.readouterr().out.splitlines())
    assert isinstance(line, ScheduleNoticeLine)
    assert (line.schedule.name, line.family, line.cluster, line.queue) == (
        "missed",
        "extract, load",
        None,
        None,
    )
    assert "and no execution of the state machine missed had begun by" in line.notice.message


def test_a_state_machine_that_starts_nothing_is_not_read_each_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It may be changed, and is read again after an hour."""
    account = ScheduledAccount(monkeypatch)
    account.make_machine_schedule("mails", "rate(1 day)")
    account.make_machine_schedule("nights", "rate(1 day)", "load")
    stack = deploy(ElasticsearchUrl="", WatchSchedules="true")
    for name, value in stack.environment("WatchSchedulesFunction").items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("AWS_LAMBDA_FUNCTION_NAME", "watch")
    forget_environment()
    reads = []
    for account.minutes in (1, 6, 59, 62):
        account.operations.clear()
        assert handler.watch_schedules({}, InvocationContext())["schedules"] == 1
        reads.append(account.operations.count("DescribeStateMachine"))
    assert reads == [2, 1, 1, 2]


@pytest.mark.parametrize("is_refused", [False, True])
def test_a_missed_job_is_logged_and_a_missing_right_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *, is_refused: bool
) -> None:
    account = ScheduledAccount(monkeypatch)
    due = f"at({account.at(5):%Y-%m-%dT%H:%M}:00)"
    for name in ("missed", "ran"):
        account.make_job_schedule(name, due, "nights", f"{name}-job")
    stack = deploy(ElasticsearchUrl="", WatchSchedules="true")
    with FakeBatch() as batch:
        batch.add_queue("nights", "spot")
        batch.define("etl")
        batch.now_ms = round(account.at(5.5).timestamp() * 1000)
        batch.submit("ran-job", "nights", "etl")
        if is_refused:
            batch.refused.add("ListJobs")
        settings = stack.environment("WatchSchedulesFunction") | batch.environment()
        for name, value in settings.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("AWS_LAMBDA_FUNCTION_NAME", "watch")
        forget_environment()
        account.minutes = 21
        if is_refused:
            with pytest.raises(ForwarderError, match="allow batch:ListJobs"):
                handler.watch_schedules({}, InvocationContext())
            assert capsys.readouterr().out == ""
            return
        counts = handler.watch_schedules({}, InvocationContext())
    assert (counts["schedules"], counts["missed"], counts["unknown"]) == (2, 1, 0)
    (line,) = (decode_notice_json(line) for line in capsys.readouterr().out.splitlines())
    assert isinstance(line, ScheduleNoticeLine)
    assert (line.schedule.name, line.queue, line.cluster, line.family) == (
        "missed",
        "nights",
        None,
        "etl",
    )
    assert ", and no job was submitted by " in line.notice.message


@pytest.mark.parametrize(
    ("ingestion", "answer"),
    [
        ("direct", {"indexed": 1, "skipped": 0, "failed": 0, "untrusted": 0}),
        ("stream", {"batchItemFailures": []}),
    ],
)
def test_a_report_in_a_log_group_reaches_the_cluster(
    ingestion: str, answer: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = FakeElasticsearch()
    stack = deploy(ElasticsearchUrl=cluster.url, Ingestion=ingestion)
    answers = []

    def invoke(_function: LambdaFunction, body: str, *_headers: Any) -> str:
        for name, value in stack.environment("ForwardLogsFunction").items():
            monkeypatch.setenv(name, value)
        forget_environment()
        answers.append(handler.forward_logs(json.loads(body), InvocationContext()))
        return ""

    monkeypatch.setattr(LambdaFunction, "invoke", invoke)
    line = json.dumps({**REPORT, "time": format_datetime(datetime.now(UTC))})
    put_lines(boto3.client("logs"), "/ecs/jobs", f"ecs/batch/{TASK_ID}", line)
    cluster.close()
    assert answers == [answer]
    ((action, body),) = cluster.bulks
    assert action["update"]["_id"] == f"{TASK_ID}/batch"
    assert body["upsert"]["task"]["complete"] is True


def test_a_stream_takes_the_log_groups_and_repeats_only_what_failed() -> None:
    """A stream takes the log groups and repeats only what failed and keeps what it gives up."""
    stack = deploy(Ingestion="stream", StreamShards="3")
    arn = stack.outputs["ReportStreamArn"]
    stream = boto3.client("kinesis").describe_stream(StreamARN=arn)["StreamDescription"]
    assert len(stream["Shards"]) == 3
    assert stream["RetentionPeriodHours"] == 24
    for group in LOG_GROUPS:
        filter_ = filter_of(group)
        assert filter_["destinationArn"] == arn
        assert filter_["roleArn"].endswith(stack.physical_id("ReportStreamRole"))
    (statement,) = stack.statements("ReportStreamRole")
    assert statement["Action"] == "kinesis:PutRecord"
    assert statement["Resource"] == arn
    assert resources_of(stack, "ReadStream", "ForwardLogsRole") == [arn]
    (mapping,) = stack.resources("AWS::Lambda::EventSourceMapping").values()
    assert mapping["FunctionResponseTypes"] == ["ReportBatchItemFailures"]
    assert mapping["BisectBatchOnFunctionError"] is True
    queue = queue_arn(stack.outputs["ForwardLogsDeadLetterQueueUrl"])
    assert mapping["DestinationConfig"]["OnFailure"] == {"Destination": queue}
    assert mapping["MaximumRecordAgeInSeconds"] < 24 * 60 * 60 / 2, "half of the stream's retention"
    assert "MaximumRetryAttempts" not in mapping
    (made,) = boto3.client("lambda").list_event_source_mappings()["EventSourceMappings"]
    assert made["EventSourceArn"] == arn


def test_an_instance_monitor_is_the_definition_in_the_file_and_may_only_put_reports() -> None:
    boto3.client("ecs").create_cluster(clusterName="jobs")
    stack = deploy(InstanceMonitorCluster="jobs")
    (made,) = stack.resources("AWS::ECS::TaskDefinition").values()
    wanted = json.loads((ROOT / "taskdef" / "instance-monitor.json").read_text())
    definition = in_camel_case(made)
    (container,), (expected,) = definition["containerDefinitions"], wanted["containerDefinitions"]
    assert container.pop("image").rpartition("/")[2] == expected.pop("image").rpartition("/")[2]
    options = container["logConfiguration"].pop("options")
    assert options == {
        "awslogs-group": "/ecs/tp-instance-monitor",
        "awslogs-region": REGION,
        "awslogs-stream-prefix": "instance",
    }
    assert options.keys() == expected["logConfiguration"].pop("options").keys()
    own = {name: definition.pop(name) for name in ("family", "taskRoleArn", "tags")}
    assert own["family"] == "tp-instance-monitor"
    assert definition == {name: value for name, value in wanted.items() if name not in own}

    (service,) = stack.resources("AWS::ECS::Service").values()
    assert service["Cluster"] == "jobs"
    assert service["SchedulingStrategy"] == "DAEMON"
    assert service["LaunchType"] == "EC2"
    role = stack.resources("AWS::IAM::Role")["InstanceMonitorRole"]
    (trust,) = role["AssumeRolePolicyDocument"]["Statement"]
    assert trust["Principal"] == {"Service": "ecs-tasks.amazonaws.com"}
    assert trust["Condition"] == {"StringEquals": {"aws:SourceAccount": ACCOUNT}}
    (put,) = stack.statements("InstanceMonitorRole")
    assert put["Action"] == ["logs:CreateLogStream", "logs:PutLogEvents", "logs:GetLogEvents"]
    assert put["Resource"] == [f"arn:*:logs:*:*:log-group:{group}:*" for group in LOG_GROUPS]
    assert (
        filter_of("/ecs/tp-instance-monitor")["destinationArn"]
        == filter_of(LOG_GROUPS[0])["destinationArn"]
    )


def test_the_log_group_of_an_instance_monitor_stays_and_is_used_again() -> None:
    """It has the reports of batches with another log driver. A second one cannot be made."""
    made = template()["Resources"]["InstanceMonitorLogGroup"]
    assert made["DeletionPolicy"] == "RetainExceptOnCreate"
    assert made["UpdateReplacePolicy"] == "Retain"
    boto3.client("ecs").create_cluster(clusterName="jobs")
    group = "/ecs/tp-instance-monitor"
    boto3.client("logs").create_log_group(logGroupName=group)
    stack = deploy(InstanceMonitorCluster="jobs", InstanceMonitorLogGroupExists="true")
    assert "InstanceMonitorLogGroup" not in stack.resources("AWS::Logs::LogGroup")
    (definition,) = stack.resources("AWS::ECS::TaskDefinition").values()
    (container,) = definition["ContainerDefinitions"]
    assert container["LogConfiguration"]["Options"]["awslogs-group"] == group
    assert filter_of(group)["filterName"] == "tp-groups"


def test_prefixes_are_rights_but_no_subscription_and_no_query() -> None:
    stack = deploy_template(TEMPLATE, LogGroups="/ecs/*")
    assert stack.resources("AWS::Logs::SubscriptionFilter") == {}
    assert stack.resources("AWS::CloudWatch::Dashboard") == {}
    assert resources_of(stack, "ReadTails") == [["arn:*:logs:*:*:log-group:/ecs/*:log-stream:*"]]
    (query, *_) = stack.resources("AWS::Logs::QueryDefinition").values()
    assert "LogGroupNames" not in query


def test_an_instance_monitor_needs_the_log_groups_unless_all_are_subscribed() -> None:
    given = parameter_values(TEMPLATE.read_text(), {"InstanceMonitorCluster": "jobs"}, {})
    assert "LogGroups" in broken_rules(given)[0]
    url = {"ElasticsearchUrl": "https://search"}
    assert broken_rules({**given, **url, "Subscribe": "account"}) == []
    boto3.client("ecs").create_cluster(clusterName="jobs")
    stack = deploy(Subscribe="account", LogGroups="", InstanceMonitorCluster="jobs")
    (put,) = stack.statements("InstanceMonitorRole")
    assert put["Resource"] == ["arn:*:logs:*:*:log-group:*:*"]
    assert stack.resources("AWS::Logs::SubscriptionFilter") == {}


DESTINATION = (ROOT / "lambda" / "destination.yaml").read_text()


def test_the_destinations_role_and_policy_name_the_accounts(tmp_path: Path) -> None:
    path = tmp_path / "destination.yaml"
    path.write_text(
        DESTINATION.partition("Outputs:")[0]
    )  # moto cannot resolve an output of the destination
    stream = f"arn:aws:kinesis:{REGION}:{ACCOUNT}:stream/reports"
    accounts = ["111122223333", "444455556666"]
    parameters = {"StreamArn": stream, "AccountIds": ",".join(accounts)}
    create_stack("destination", path, parameters)
    stack = MotoStack("destination", path)
    (role,) = stack.resources("AWS::IAM::Role").values()
    (trust,) = role["AssumeRolePolicyDocument"]["Statement"]
    sources = [f"arn:*:logs:*:{account}:*" for account in (ACCOUNT, *accounts)]
    assert trust["Condition"] == {"StringLike": {"aws:SourceArn": sources}}
    (destination,) = stack.resources("AWS::Logs::Destination").values()
    (statement,) = json.loads(destination["DestinationPolicy"])["Statement"]
    assert statement["Principal"] == {"AWS": accounts}
    assert statement["Resource"].endswith(
        f":{REGION}:{ACCOUNT}:destination:{destination['DestinationName']}"
    )
    given = {
        f"{name[0].lower()}{name[1:]}": destination[name]
        for name in ("DestinationName", "TargetArn", "RoleArn")
    }
    validate_arguments("logs", "PutDestination", given)
