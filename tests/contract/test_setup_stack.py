"""``task-profiler setup stack`` against moto's server: planned, created, deleted."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests
from msgspec.structs import replace

import profiler
from profiler.aws_account.aws_errors import OpenClient
from profiler.aws_account.setup.change_sets import StackChanger
from profiler.aws_account.setup.forwarder_deployment import DeploymentRequest, ForwarderDeployment
from profiler.aws_account.setup.forwarder_secrets import SecretStore, read_secret_owner
from profiler.cli.setup.deployment_output import (
    DeploymentOutput,
    ForwarderCluster,
    delete_forwarder,
    deploy_forwarder,
)
from profiler.core.errors import TaskProfilerError
from tests.aws_proxy import AwsProxy
from tests.fake_batch import FakeBatch
from tests.fake_cloudformation import FakeCloudFormation, of_stack
from tests.fakes import FakeClock
from tests.nth_calls import NthCallFails
from tests.setup_account import Account, setup_account
from tests.setup_cluster import Cluster
from tools.moto_server import push_image

ACCOUNT = "123456789012"
BUCKET = f"task-profiler-{ACCOUNT}-us-east-1"
TABLE = {"LogicalResourceId": "Table", "ResourceType": "AWS::DynamoDB::Table"}
CHANGE = {
    "Type": "Resource",
    "ResourceChange": {**TABLE, "Action": "Modify", "Replacement": "Conditional"},
}
APPLY, PLAN = (
    DeploymentOutput(is_applied=is_applied, as_json=False) for is_applied in (True, False)
)
WEBHOOK = "https://hooks.slack.com/services/T/B/hunter2"


@pytest.fixture
def account(tmp_path: Path) -> Iterator[Account]:
    with setup_account(tmp_path) as made:
        yield made


def store_secret(open_client: OpenClient, name: str, values: dict[str, str]) -> str:
    store = SecretStore(open_client=open_client)
    change = store.plan_change(name, values)
    store.store(change)
    return change.effect


def test_another_programs_stack_is_neither_updated_nor_deleted(account: Account) -> None:
    """An update would delete its resources for ours. The name of a stack of ours is the control."""
    queue = {"Resources": {"Orders": {"Type": "AWS::SQS::Queue"}}}
    given = {"Parameters": {"CodeKey": {"Type": "String", "Default": "k"}}}
    account.aws.client("cloudformation").create_stack(
        StackName="orders", TemplateBody=json.dumps(queue | given)
    )
    for words in ((), ("--yes",), ("--delete",), ("--delete", "--yes")):
        done = account.setup("--name", "orders", *words)
        assert done.returncode == 1
        assert "The stack orders is not the forwarder's" in done.stderr
    assert len(account.aws.client("sqs").list_queues()["QueueUrls"]) == 1
    assert account.aws.client("s3").list_buckets()["Buckets"] == []
    assert account.setup("--slack-failure-webhook", WEBHOOK, "--name", "tp", "--yes").stderr == ""
    assert "DELETE_COMPLETE" in account.setup("--name", "tp", "--delete", "--yes").stdout


def check_said_again(account: Account, stays: str) -> None:
    """Check that the next call says what stays of the deleted stack, and nothing of another one."""
    none = "There is no stack task-profiler: nothing to delete."
    again = account.setup("--delete")
    assert again.returncode == 0, again.stderr
    first_line, _, listed = again.stdout.partition("\n")
    assert first_line == f"{none} These stay of the last one, unless somebody has deleted them:"
    assert listed == stays  # as the call said that has deleted it
    as_json = json.loads(account.setup("--delete", "--json").stdout)
    assert as_json["remains"] == [line.strip() for line in listed.splitlines()]
    other = account.setup("--delete", "--name", "other")
    assert other.returncode == 0, other.stderr
    assert other.stdout == none.replace("task-profiler", "other") + "\n"


def test_it_is_planned_created_and_deleted(account: Account) -> None:
    otlp = ("--otlp", "https://otlp.example.com", "--otlp-headers", "api-key=hunter2")
    planned = account.setup("--slack-failure-webhook", WEBHOOK, *otlp)
    assert planned.returncode == 0, planned.stderr
    assert f"would create the bucket {BUCKET}" in planned.stdout
    assert "would create the stack task-profiler (now absent)" in planned.stdout
    assert "  OtlpEndpoint=https://otlp.example.com\n" in planned.stdout
    assert "would store the secret task-profiler/otlp\n" in planned.stdout
    account.check_nothing_was_made()

    key = f"arn:aws:kms:us-east-1:{ACCOUNT}:key/0a"
    given = (
        "--parameter",
        "NotifyFamilies=a,  c",
        "--parameter",
        f"SecretsKeyArn={key}",
        "--tag",
        "team=data",
    )
    created = account.setup("--slack-failure-webhook", WEBHOOK, *given, "--yes")
    assert created.returncode == 0, created.stderr
    lines = created.stdout.splitlines()
    assert lines[0] == f"created the bucket {BUCKET}"
    assert any(re.match(r"Add +TaskStoppedFunction +AWS::Lambda::Function", line) for line in lines)
    assert (
        lines[-1]
        == f"The stack task-profiler in us-east-1 is deployed: version {profiler.__version__}."
    )
    functions = account.aws.client("lambda").list_functions()["Functions"]
    assert "task-profiler-task-stopped" in {one["FunctionName"] for one in functions}
    first = account.parameters()
    assert first["NotifyFamilies"] == "a,  c"
    assert first["SlackSecretId"] == "task-profiler/slack"
    assert WEBHOOK not in first.values()
    assert account.secret("task-profiler/slack") == {"slack_failure_webhook_url": WEBHOOK}
    stored = account.aws.client("secretsmanager").describe_secret(SecretId="task-profiler/slack")
    (stack,), team = account.stacks(), {"Key": "team", "Value": "data"}
    assert stored["KmsKeyId"] == key
    assert team in stored["Tags"]
    assert stack["Tags"] == [team]

    # moto neither notices that nothing changes nor updates log groups: test_stack_changes.py has
    # updates.
    planned = account.setup(
        "--slack-success-webhook", f"{WEBHOOK}-2", "--tag", "cost=1", "--tag", "x="
    )
    assert "  tag team=data\n  tag cost=1\n" in planned.stdout
    assert "tag team" not in account.setup("--tag", "team=").stdout
    assert (
        f"would update the stack task-profiler (now version {profiler.__version__})"
        in planned.stdout
    )
    assert planned.stdout.count(" is there already\n") == 2
    assert re.search(r"^  \d\d other parameters keep their values$", planned.stdout, re.MULTILINE)
    assert account.parameters() == first

    deleted = account.setup("--delete", "--yes")
    assert deleted.returncode == 0, deleted.stderr
    stays = deleted.stdout[
        deleted.stdout.index("The stack task-profiler in us-east-1 is deleted. These stay:") :
    ]
    files = "--exclude '*' --include 'forwarder-*.zip' --include 'template-*.yaml'"
    assert f"aws s3 rm --recursive s3://{BUCKET}/task-profiler/ {files} --region us" in stays
    assert (
        "aws secretsmanager delete-secret --secret-id task-profiler/slack --region us-east-1\n"
        in stays
    )
    check_said_again(account, stays.partition("\n")[2])


def test_what_another_forwarder_uses_is_not_proposed_for_deletion(account: Account) -> None:
    """Its next update could not be undone without the code, and its functions had no webhook. What
    the last one of the two leaves is the control.
    """
    shared = ("--parameter", "SlackSecretId=tp/slack")
    assert account.setup("--slack-failure-webhook", WEBHOOK, "--name", "tp", "--yes").stderr == ""
    assert account.setup("--name", "other", *shared, "--yes").stderr == ""
    files = f"code and templates in s3://{BUCKET}/task-profiler/, which the stack other uses, too\n"
    secret = "the secret tp/slack, which the stack other uses, too\n"
    for words in ((), ("--yes",), ()):  # planned, done, and asked again
        done = account.setup("--name", "tp", "--delete", *words)
        assert done.returncode == 0, done.stderr
        assert f"  {files}  {secret}" in done.stdout
        assert "aws s3" not in done.stdout
        assert "delete-secret" not in done.stdout
    last = account.setup("--name", "other", "--delete").stdout
    assert f"aws s3 rm --recursive s3://{BUCKET}/task-profiler/ --exclude" in last
    assert "the secret tp/slack, which setup stack did not make\n" in last


def test_a_secret_is_proposed_for_deletion_only_by_its_tag(account: Account) -> None:
    """Another program's secret may have the name that `setup stack` gives: the parameter was set by
    hand. The stack's own secrets are the control.
    """
    client = account.aws.client("secretsmanager")
    client.create_secret(Name="tp/search", SecretString='{"password": "its own"}')
    own = ("--name", "tp", "--slack-failure-webhook", WEBHOOK, "--otlp-headers", "a=b")
    set_by_hand = ("--parameter", "ElasticsearchSecretId=tp/search")
    endpoint = ("--parameter", "OtlpEndpoint=https://otlp.example.com")
    done = account.setup(*own, *endpoint, *set_by_hand, "--yes")
    assert done.returncode == 0, done.stderr
    delete = "aws secretsmanager delete-secret --secret-id"
    planned = account.setup("--name", "tp", "--delete")
    foreign = "which has no tag application=task-profiler, and may be another program's"
    assert f"  the secret tp/search, {foreign}\n" in planned.stdout
    assert f"{delete} tp/slack " in planned.stdout
    assert f"{delete} tp/otlp " in planned.stdout
    client.delete_secret(SecretId="tp/otlp")
    deleted = account.setup("--name", "tp", "--delete", "--yes")
    assert "tp/otlp" not in deleted.stdout, "only its name stays"
    assert f"  the secret tp/search, {foreign}\n" in deleted.stdout
    assert f"{delete} tp/slack " in deleted.stdout
    client.delete_secret(SecretId="tp/slack", ForceDeleteWithoutRecovery=True)
    again = account.setup("--name", "tp", "--delete")
    assert "tp/slack" not in again.stdout
    assert f"  the secret tp/search, {foreign}\n" in again.stdout


def test_a_secret_whose_tags_may_not_be_read_is_not_proposed_for_deletion(
    account: Account,
) -> None:
    assert account.setup("--slack-failure-webhook", WEBHOOK, "--name", "tp", "--yes").stderr == ""
    denied = NthCallFails(account.aws.client, denied=frozenset({"describe_secret"}))
    said: list[str] = []
    assert read_secret_owner(denied.open, "tp/slack", said.append) == "unknown"
    assert read_secret_owner(account.aws.client, "tp/slack", pytest.fail) == "ours"
    (sentence,) = said
    assert sentence.startswith("The tags of the secret tp/slack cannot be read: AWS refused (")


def test_one_message_a_job_is_proposed_where_there_is_a_job_queue(account: Account) -> None:
    words = ("--slack-failure-webhook", WEBHOOK)
    proposal = "add --parameter BatchJobs=true"
    with FakeBatch() as batch:
        account.environment |= batch.environment()
        assert proposal not in account.setup(*words).stdout
        batch.add_queue("nightly", "spot")
        planned = account.setup(*words)
        assert planned.returncode == 0, planned.stderr
        assert f"There is a job queue of AWS Batch, nightly: {proposal}" in planned.stdout
        assert proposal not in account.setup(*words, "--parameter", "BatchJobs=true").stdout
        batch.refused.add("DescribeJobQueues")
        planned = account.setup(*words)
        assert planned.returncode == 0, planned.stderr
        assert planned.stdout.count("allow batch:DescribeJobQueues") == 1


def test_an_instance_monitor_is_kept_by_an_update_and_removed_on_request(
    account: Account,
) -> None:
    ecs = account.client("ecs")
    account.aws.create_log_group("/ecs/jobs")
    words = ("--elasticsearch", "https://search.invalid", "--log-group", "/ecs/jobs")
    option = ("--instance-monitor", "jobs")
    absent = account.setup(*words, *option)
    assert absent.returncode == 1, absent.stderr
    assert "There is no ECS cluster 'jobs'" in absent.stderr
    ecs.create_cluster(clusterName="jobs")
    unbuilt = account.setup(*words, *option)
    assert unbuilt.returncode == 1, unbuilt.stderr
    assert "run task-profiler setup image." in unbuilt.stderr
    account.check_nothing_was_made()
    push_image(account.aws)
    planned = account.setup(
        *words, "--instance-monitor", f"arn:aws:ecs:us-east-1:{ACCOUNT}:cluster/jobs"
    )
    assert "  InstanceMonitorCluster=jobs\n" in planned.stdout, planned.stderr

    created = account.setup(*words, *option, "--yes")
    assert created.returncode == 0, created.stderr
    assert re.search(
        r"^Add +InstanceMonitorService +AWS::ECS::Service", created.stdout, re.MULTILINE
    )
    assert len(ecs.list_services(cluster="jobs")["serviceArns"]) == 1
    kept = account.setup(*words, *option)
    assert "remove" not in kept.stdout

    # moto does not update these resources: test_template_deployed.py has a stack without a cluster
    # for the monitor.
    update = account.setup(*words)
    assert "InstanceMonitorCluster" not in update.stdout, "an update keeps what it does not name"
    assert "remove" not in update.stdout
    removal = account.setup(*words, "--no-instance-monitor")
    assert "  InstanceMonitorCluster=\n" in removal.stdout
    assert (
        "would remove the instance monitor of jobs; its log group "
        "/ecs/task-profiler-instance-monitor stays\n" in removal.stdout
    )
    planned = account.setup("--delete")
    assert planned.returncode == 0, planned.stderr
    assert (
        "dashboards of task in https://search.invalid: see Uninstall in docs/operate.md\n"
        in planned.stdout
    )
    assert (
        "aws logs delete-log-group --log-group-name /ecs/task-profiler-instance-monitor --region "
        "us-east-1\n" in planned.stdout
    )
    assert planned.stdout.endswith("Nothing was changed; --yes carries this out.\n")
    assert account.parameters()["InstanceMonitorCluster"] == "jobs"


def test_the_cluster_that_an_update_keeps_must_still_be_there(account: Account) -> None:
    """Else CloudFormation would wait for hours for the service."""
    account.aws.create_log_group("/ecs/jobs")
    account.client("ecs").create_cluster(clusterName="jobs")
    push_image(account.aws)
    words = ("--elasticsearch", "https://search.invalid", "--log-group", "/ecs/jobs")
    assert account.setup(*words, "--instance-monitor", "jobs", "--yes").returncode == 0
    service, *_ = account.client("ecs").list_services(cluster="jobs")["serviceArns"]
    account.client("ecs").delete_service(cluster="jobs", service=service, force=True)
    account.client("ecs").delete_cluster(cluster="jobs")
    update = account.setup("--parameter", "NotifyLogLines=0")
    assert update.returncode == 1
    assert "There is no ECS cluster 'jobs'" in update.stderr
    assert "remove its monitor with --no-instance-monitor." in update.stderr
    assert account.setup("--no-instance-monitor").returncode == 0


@pytest.mark.parametrize(
    ("monitored", "exists", "given"),
    [
        ("", True, "true"),
        ("", False, "false"),
        ("jobs", True, None),
        ("jobs", False, "false"),
    ],
)
def test_the_log_group_that_an_earlier_monitor_left_is_used_again(
    account: Account, monitored: str, *, exists: bool, given: str | None
) -> None:
    """CloudFormation would fail to make it. That of the stack itself stays the stack's."""
    account.client("ecs").create_cluster(clusterName="jobs")
    account.aws.create_log_group("/ecs/jobs")
    push_image(account.aws)
    if exists:
        account.aws.create_log_group("/ecs/tp-instance-monitor")
    before = {"InstanceMonitorCluster": monitored, "LogGroups": "/ecs/jobs"}
    parameters = [{"ParameterKey": name, "ParameterValue": value} for name, value in before.items()]
    cloudformation = FakeCloudFormation(
        stack={"StackStatus": "UPDATE_COMPLETE", "Parameters": parameters}
    )

    def client(service: str) -> Any:
        return cloudformation if service == "cloudformation" else account.client(service)

    request = DeploymentRequest(
        name="tp", zip_file=str(account.zip), settings={"InstanceMonitorCluster": "jobs"}
    )
    changes = StackChanger("tp", client, FakeClock(), print)
    plan, _ = ForwarderDeployment(request, client, changes, print).plan_deployment()
    assert plan.given.get("InstanceMonitorLogGroupExists") == given


def test_an_instance_monitor_needs_a_cluster_or_its_own_removal(account: Account) -> None:
    for words in (("--instance-monitor", ""), ("--instance-monitor", "a", "--no-instance-monitor")):
        done = account.setup(*words)
        assert done.returncode == 2
        assert "give the cluster, or --no-instance-monitor alone." in done.stderr


def test_a_secret_keeps_what_is_not_given(
    account: Account,
) -> None:
    """A secret keeps what is not given and a new sign in replaces the old one."""
    open_client, name = account.aws.client, "task-profiler/search"
    client, sign_in = open_client("secretsmanager"), {"username": "a", "password": "hunter2"}
    assert [store_secret(open_client, name, sign_in) for _ in range(2)] == ["created", "unchanged"]
    assert store_secret(open_client, name, {"api_key": "hunter2"}) == "updated"
    assert account.secret(name) == {"api_key": "hunter2"}
    assert store_secret(open_client, name, {"other": "1"}) == "updated"
    assert account.secret(name) == {"api_key": "hunter2", "other": "1"}
    for text in ("hunter2", '["hunter2"]'):
        client.put_secret_value(SecretId=name, SecretString=text)
        with pytest.raises(TaskProfilerError, match="is not a JSON object") as error:
            store_secret(open_client, name, {"api_key": "hunter2"})
        assert "hunter2" not in str(error.value)
    client.put_secret_value(SecretId=name, SecretString='{"other": "1"}')
    client.delete_secret(SecretId=name)  # which keeps the name for a while
    assert store_secret(open_client, name, {"api_key": "hunter2"}) == "restored"
    assert account.secret(name) == {"api_key": "hunter2"}, "without the old values"


@pytest.mark.parametrize("is_deleted", [False, True])
def test_a_secret_that_another_program_may_read_stays_as_it_is(
    account: Account,
    is_deleted: bool,  # noqa: FBT001
) -> None:
    name = "db/elasticsearch"
    client = account.aws.client("secretsmanager")
    own = json.dumps({"username": "app", "password": "its own"})
    client.create_secret(Name=name, SecretString=own)
    if is_deleted:
        client.delete_secret(SecretId=name)
    with pytest.raises(TaskProfilerError, match="add the tag if it is the stack's") as error:
        store_secret(account.aws.client, name, {"api_key": "hunter2"})
    assert "hunter2" not in str(error.value)
    if is_deleted:
        client.restore_secret(SecretId=name)
    assert client.get_secret_value(SecretId=name)["SecretString"] == own
    client.tag_resource(SecretId=name, Tags=[{"Key": "application", "Value": "task-profiler"}])
    assert store_secret(account.aws.client, name, {"api_key": "hunter2"}) == "updated"


def test_of_two_secrets_none_is_stored_if_one_is_another_programs(account: Account) -> None:
    """The control is the same command once the second one has the stack's tag."""
    client = account.aws.client("secretsmanager")
    client.create_secret(Name="db/search", SecretString='{"password": "its own"}')
    cluster = ("--elasticsearch", "https://search.example.com", "--api-key", "hunter2")
    slack = ("--slack-failure-webhook", WEBHOOK)
    words = ("--name", "db", *slack, *cluster, "--all-log-groups", "--yes")
    done = account.setup(*words)
    assert "The secret db/search was not changed, because it has no tag" in done.stderr
    assert [one["Name"] for one in client.list_secrets()["SecretList"]] == ["db/search"]
    assert account.secret("db/search") == {"password": "its own"}
    assert account.stacks() == []
    client.tag_resource(
        SecretId="db/search", Tags=[{"Key": "application", "Value": "task-profiler"}]
    )
    assert account.setup(*words).returncode == 0
    assert account.secret("db/search") == {"api_key": "hunter2"}
    assert account.secret("db/slack") == {"slack_failure_webhook_url": WEBHOOK}


def test_a_secret_that_is_only_restored_is_said_to_have_its_old_values(account: Account) -> None:
    client = account.aws.client("secretsmanager")
    store_secret(account.aws.client, "tp/search", {"api_key": "old"})
    client.delete_secret(SecretId="tp/search")
    denied = NthCallFails(account.aws.client, denied=frozenset({"put_secret_value"}))
    with pytest.raises(TaskProfilerError, match="tp/search is restored with its old values, and"):
        store_secret(denied.open, "tp/search", {"api_key": "hunter2"})
    assert account.secret("tp/search") == {"api_key": "old"}


def test_settings_that_two_people_store_at_once_are_not_lost_unsaid(account: Account) -> None:
    """Secrets Manager takes each. The control is one after the other."""
    name, store = "tp/slack", SecretStore(open_client=account.aws.client)
    store_secret(account.aws.client, name, {"a": "hunter2"})
    for key in "bc":
        store_secret(account.aws.client, name, {key: "hunter2"})
    assert account.secret(name).keys() == {"a", "b", "c"}
    one, other = (store.plan_change(name, {key: "hunter2"}) for key in "de")
    store.store(other)
    with pytest.raises(TaskProfilerError, match="give the other command again, too") as error:
        store.store(one)
    assert "hunter2" not in str(error.value)
    assert store_secret(account.aws.client, name, {"e": "hunter2"}) == "updated"
    assert account.secret(name).keys() == set("abcde")


def test_an_update_keeps_what_is_not_given_and_stores_secrets_even_without_changes(
    account: Account, capfd: pytest.CaptureFixture[str]
) -> None:
    """CloudFormation is played, because moto neither notices that nothing changes nor updates
    log groups.
    """
    key = "task-profiler/forwarder-0.0.9-0123.zip"
    before = {"Notify": "failure", "CodeBucket": "mine", "CodeKey": key, "Gone": "x"}
    parameters = [{"ParameterKey": name, "ParameterValue": value} for name, value in before.items()]
    cloudformation = FakeCloudFormation(
        stack={"StackStatus": "UPDATE_COMPLETE", "Parameters": parameters}
    )
    account.aws.client("s3").create_bucket(Bucket="mine")

    def client(service: str) -> Any:
        return cloudformation if service == "cloudformation" else account.client(service)

    secrets = {"SlackSecretId": {"slack_failure_webhook_url": WEBHOOK}}
    request = DeploymentRequest(name="tp", zip_file=str(account.zip), secrets=secrets)
    cloudformation.change_set_pages = [
        {"Status": "FAILED", "StatusReason": "No updates are to be performed."}
    ]
    deploy_forwarder(request, client, None, APPLY)
    assert capfd.readouterr().out.splitlines()[-2:] == [
        "created: secret tp/slack",
        "The stack tp is up to date: nothing changed.",
    ]
    assert account.secret("tp/slack") == secrets["SlackSecretId"]
    (asked,) = cloudformation.calls("CreateChangeSet")
    given = {one["ParameterKey"]: one.get("ParameterValue") for one in asked["Parameters"]}
    assert given.pop("CodeKey").startswith(f"task-profiler/forwarder-{profiler.__version__}-")
    kept = dict.fromkeys(("Notify", "ElasticsearchUrl", "TaskStopped"))
    assert given == {**kept, "CodeBucket": "mine", "SlackSecretId": "tp/slack"}
    assert "hunter2" not in str(cloudformation.called)

    cloudformation.change_set_pages = [{"Status": "CREATE_COMPLETE", "Changes": [CHANGE]}]
    cloudformation.happens = [
        [("UPDATE_COMPLETE", "Table", "AWS::DynamoDB::Table"), of_stack("UPDATE_COMPLETE")]
    ]
    outputs = [{"OutputKey": "Url", "OutputValue": "https://x"}]
    cloudformation.stack = {**(cloudformation.stack or {}), "Outputs": outputs}
    deploy_forwarder(request, client, None, APPLY)
    assert capfd.readouterr().out.splitlines() == [
        "ACTION  RESOURCE  TYPE                  REPLACEMENT",
        "Modify  Table     AWS::DynamoDB::Table  possible",
        "unchanged: secret tp/slack",
        "UPDATE_COMPLETE  Table",
        "UPDATE_COMPLETE  tp",
        "OUTPUT  VALUE",
        "Url     https://x",
        "The stack tp in eu-west-1 is deployed: version 0.0.9.",  # as the played stack still says
    ]


@pytest.mark.diagonal
@pytest.mark.parametrize("ends", [KeyboardInterrupt, TaskProfilerError])
@pytest.mark.parametrize(
    "call",
    [
        "forwarder_deployment.ForwarderDeployment.store_secrets",
        "change_sets.StackChanger._new_events",
    ],
)
def test_what_ends_before_the_change_set_is_applied_leaves_none(
    account: Account,
    call: str,
    ends: type[BaseException],
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    def end(*_: object) -> None:
        raise ends

    monkeypatch.setattr(f"profiler.aws_account.setup.{call}", end)
    with pytest.raises(ends):
        deploy_forwarder(DeploymentRequest(zip_file=str(account.zip)), account.client, None, APPLY)
    assert account.stacks() == []
    assert "goes on" not in capfd.readouterr().err


def test_the_first_indices_have_the_prefix_and_the_period_that_the_functions_use(
    account: Account, capfd: pytest.CaptureFixture[str]
) -> None:
    search = Cluster()
    settings = {"ElasticsearchUrl": search.url, "Subscribe": "account"}
    parameters = ("IndexPeriod=day", "IndexPrefix=jobs")
    request = DeploymentRequest(zip_file=str(account.zip), settings=settings, parameters=parameters)
    cluster = ForwarderCluster(search.url, requests.Session())
    deploy_forwarder(request, account.client, cluster, APPLY)
    indices = [path for path in search.put if not path.startswith("/_")]
    assert {re.sub(r"^/jobs-\w+-\d{4}\.\d\d\.\d\d$", "", path) for path in indices} == {""}
    assert any(path.startswith("/_index_template/jobs-reports") for path in search.put)
    printed = capfd.readouterr().out
    assert f"installed: {len(search.put)} index templates, policies and indices\n" in printed
    assert "skipped: lifecycle policy jobs-profiler: this server has no ISM\n" in printed
    assert cluster.engine == "opensearch"
    search.close()


def test_the_result_is_json_for_a_program(account: Account) -> None:
    done = account.setup("--slack-failure-webhook", WEBHOOK, "--yes", "--json")
    (made,) = map(json.loads, done.stdout.splitlines())
    assert made["isApplied"] is True
    assert made["version"] == profiler.__version__
    assert made["stack"] == "task-profiler"
    assert ("Add", "TaskStoppedFunction") in {
        (one["action"], one["resource"]) for one in made["changes"]
    }
    assert f"created the bucket {BUCKET}" in done.stderr
    (gone,) = map(json.loads, account.setup("--delete", "--yes", "--json").stdout.splitlines())
    assert gone["isApplied"]
    assert any("aws s3 rm" in sentence for sentence in gone["remains"])


def test_the_empty_stack_of_a_change_set_that_nobody_applied_is_deleted(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("profiler.core.clock.SystemClock.sleep", lambda *_: None)
    happens = [[of_stack("DELETE_IN_PROGRESS")], [of_stack("DELETE_COMPLETE")]]
    cloudformation = FakeCloudFormation(
        stack={"StackStatus": "REVIEW_IN_PROGRESS"}, happens=happens
    )
    delete_forwarder("tp", cloudformation, PLAN)
    printed = capfd.readouterr().out
    assert "would delete the stack tp in eu-west-1 (REVIEW_IN_PROGRESS)\n" in printed
    assert "queues" not in printed  # it has none
    assert cloudformation.calls("DeleteStack") == []
    delete_forwarder("tp", cloudformation, APPLY)
    assert "The stack tp in eu-west-1 is deleted." in capfd.readouterr().out
    assert len(cloudformation.calls("DeleteStack")) == 1


def test_settings_that_somebody_stored_elsewhere_are_not_replaced(account: Account) -> None:
    given = (
        "--elasticsearch",
        "http://127.0.0.1:9",
        "--parameter",
        "ElasticsearchSecretId=ssm:/mine",
    )
    assert account.setup(*given, "--parameter", "LogGroups=").returncode == 0
    request = DeploymentRequest(zip_file=str(account.zip), parameters=("SlackSecretId=ssm:/mine",))
    deploy_forwarder(request, account.client, None, APPLY)
    done = account.setup("--slack-failure-webhook", WEBHOOK)
    assert done.returncode == 1
    assert (
        "reads these settings from ssm:/mine: change them there, or add --parameter SlackSecretId="
        in done.stderr
    )
    emptied = account.setup("--slack-failure-webhook", WEBHOOK, "--parameter", "SlackSecretId=")
    assert emptied.returncode == 0


def test_the_clusters_product_is_a_setting_unless_a_parameter_sets_it(
    account: Account, capfd: pytest.CaptureFixture[str]
) -> None:
    cluster = ForwarderCluster("http://127.0.0.1:9", requests.Session())
    cluster.engine = "opensearch"
    settings = {"ElasticsearchUrl": "http://127.0.0.1:9", "Subscribe": "account"}
    for parameters, engine in (
        ((), "opensearch"),
        (("SearchEngine=elasticsearch",), "elasticsearch"),
    ):
        request = DeploymentRequest(
            zip_file=str(account.zip), settings=settings, parameters=parameters
        )
        deploy_forwarder(request, account.client, cluster, PLAN)
        assert f"  SearchEngine={engine}\n" in capfd.readouterr().out


# The class and the filters of each log group; AWS allows five filters.
GROUPS = {
    "/ecs/a-b": ("STANDARD", ["a", "b", "c", "d"]),
    "/ecs/full": ("STANDARD", ["a", "b", "c", "d", "e"]),
    "/ecs/rare": ("INFREQUENT_ACCESS", []),
    "/ecs/taken": ("STANDARD", ["task-profiler-groups"]),
}


def listed_groups(asked: dict[str, str]) -> dict[str, Any]:
    prefix = asked.get("logGroupNamePrefix", "")
    names = [name for name in sorted(GROUPS) if name.startswith(prefix)]
    return {
        "logGroups": [{"logGroupName": name, "logGroupClass": GROUPS[name][0]} for name in names]
    }


def listed_filters(asked: dict[str, str]) -> dict[str, Any]:
    return {
        "subscriptionFilters": [{"filterName": name} for name in GROUPS[asked["logGroupName"]][1]]
    }


def test_what_cannot_be_subscribed_is_named_before_anything_is_made(
    account: Account, capfd: pytest.CaptureFixture[str]
) -> None:
    """CloudFormation would fail after minutes, and roll back."""
    policies: dict[str, Any] = {
        "accountPolicies": [{"policyName": "other", "policyDocument": "{}"}]
    }
    answers = {"DescribeLogGroups": listed_groups, "DescribeSubscriptionFilters": listed_filters}
    proxy = AwsProxy(account.aws.url, answers={**answers, "DescribeAccountPolicies": policies})
    logs = replace(account.aws, url=proxy.url).client("logs")

    def plan(groups: str, subscribe: str = "groups") -> None:
        settings = {
            "ElasticsearchUrl": "http://127.0.0.1:9",
            "LogGroups": groups,
            "Subscribe": subscribe,
        }
        request = DeploymentRequest(zip_file=str(account.zip), settings=settings)
        deploy_forwarder(
            request,
            lambda service: logs if service == "logs" else account.client(service),
            None,
            PLAN,
        )

    for groups, said in (
        ("/ecs/a,/ecs/a-b", r"can be subscribed, unlike /ecs/a \(missing\): create them"),
        ("/ecs/a-b,/ecs/rare", r"unlike /ecs/rare \(INFREQUENT_ACCESS\)"),
        (
            "/ecs/a-b,/ecs/full",
            "filter task-profiler-groups cannot be added to /ecs/full, because AWS allows 5",
        ),
        ("/ecs/taken", "cannot be added to /ecs/taken, .* with different names"),
    ):
        with pytest.raises(TaskProfilerError, match=said):
            plan(groups)
    with pytest.raises(
        TaskProfilerError, match=r"The account-wide subscription other exists .*-name other\)\.$"
    ):
        plan("", "account")
    policies["accountPolicies"] = []
    plan("", "account")
    plan("/ecs/a-b")
    assert "unknown" not in capfd.readouterr().out
    proxy.refused = {"DescribeLogGroups"}
    plan("/ecs/a-b")
    assert "The log groups could not be read: AWS refused (AccessDenied" in capfd.readouterr().out
    proxy.close()


def test_a_log_group_and_a_cluster_that_are_nearly_right_are_proposed(account: Account) -> None:
    account.aws.create_log_group("/ecs/jobs")
    account.aws.client("ecs").create_cluster(clusterName="batches")
    for option, wrong, meant in (
        ("--log-group", "/ecs/jbos", "/ecs/jobs"),
        ("--instance-monitor", "bathces", "batches"),
    ):
        done = account.setup("--elasticsearch", "http://127.0.0.1:9", option, wrong)
        assert done.returncode == 1
        assert done.stderr.endswith(f". Did you mean {meant}?\n")
        other = account.setup("--elasticsearch", "http://127.0.0.1:9", option, "zzz")
        assert other.returncode == 1
        assert "Did you mean" not in other.stderr
    account.check_nothing_was_made()


def test_a_pattern_of_log_groups_is_subscribed_as_the_groups_that_exist(account: Account) -> None:
    for group in ("/ecs/etl-1", "/ecs/etl-2", "/ecs/etl-30", "/ecs/load"):
        account.aws.create_log_group(group)
    to_cluster = ("--elasticsearch", "http://127.0.0.1:9")
    planned = account.setup("--log-group", "/ecs/et[lx]-?", *to_cluster)
    assert planned.returncode == 0, planned.stderr
    assert "  LogGroups=/ecs/etl-1,/ecs/etl-2\n" in planned.stdout
    planned = account.setup("--log-group", "/ecs/*", "--all-log-groups", *to_cluster)
    assert "  LogGroups=/ecs/*\n" in planned.stdout
    planned = account.setup("--log-group", "/ecs/none*", *to_cluster)
    assert planned.returncode == 1, planned.stderr
    assert "No log group matches '/ecs/none*'" in planned.stderr


def test_what_is_wrong_is_said_before_anything_is_made(account: Account) -> None:
    for words, said in (
        (("--parameter", "hunter2"), "is not NAME=VALUE"),
        (("--tag", "team"), "--tag 'team' is not KEY=VALUE"),
        (
            ("--slack-failure-webhook", WEBHOOK, "--slack-success-webhook", "hunter2"),
            "--slack-success-webhook is not an address: it begins with https://",
        ),
        (("--user", ":hunter2"), "put a colon between them"),
        (("--user", "hunter2:"), "put a colon between them"),
        (("--otlp", "https://otlp/v1/traces"), "--otlp ends in /v1/traces, which is added to it"),
        (
            ("--parameter", "DigestSchedule=cron(0 8 * * *)", "--parameter", "Notify=failure"),
            "DigestSchedule has a wrong value: a cron has six fields",
        ),
        (
            ("--otlp", "https://otlp", "--otlp-headers", "hunter2"),
            "--otlp-headers is not a list of headers",
        ),
        (("--api-key", "hunter2\r"), "an invalid character"),
        (("--elasticsearch", "https://me:hunter2@search"), "give it as --user NAME:PASSWORD"),
        (("--otlp", "https://me:hunter2@otlp"), "give it in --otlp-headers"),
        (("--user", "hunter2"), "put a colon between them"),
        (("--user", "a:hunter2", "--api-key", "hunter2"), "give one of them"),
        (
            ("--slack-failure-webhook", WEBHOOK, "--parameter", "SlackSecretId=mine"),
            "leave one out",
        ),
        (("--name", "", "--delete"), "--name is empty: give it a value"),
        (
            (
                "--name",
                49 * "s",
                "--parameter",
                "WatchSchedules=true",
                "--slack-failure-webhook",
                WEBHOOK,
            ),
            "AWS Lambda allows 64: use a --name of at most 48.",
        ),
        (("--name", "my stack"), "use at most 50 letters, digits and hyphens, a letter first"),
        (("--zip", "/etc/passwd"), "is not a zip file"),
    ):
        done = account.setup(*words)
        assert done.returncode == 2, words
        assert done.stdout == "", words
        assert said in done.stderr, words
        assert done.stderr.count("\n") == 1
    for words in (("--bucket", "not-there"), ("--bucket", "not-there", "--yes")):
        done = account.setup(*words)
        assert done.returncode == 1, done.stderr
        assert done.stdout == ""
        assert "There is no bucket not-there: create it, or leave --bucket out." in done.stderr
    account.check_nothing_was_made()


def test_an_interruption_of_the_wait_says_that_cloudformation_goes_on(
    account: Account, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(
        "profiler.aws_account.setup.change_sets.StackChanger._wait_for_end", interrupt
    )
    with pytest.raises(KeyboardInterrupt):
        deploy_forwarder(DeploymentRequest(zip_file=str(account.zip)), account.client, None, APPLY)
    assert (
        "CloudFormation goes on with the stack task-profiler: repeat the command later"
        in capfd.readouterr().err
    )
