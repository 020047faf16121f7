"""The deployment of the forwarder: code and template in a bucket, secrets by name, and the stack
of both.
"""

import hashlib
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from http import HTTPStatus
from itertools import islice
from operator import attrgetter
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from profiler.aws_account.aws_errors import OpenClient, answer_unless, aws_errors, noted_errors
from profiler.aws_account.clusters_and_log_groups import log_group_class
from profiler.aws_account.forwarder_stack import (
    CODE_PREFIX,
    FORWARDER_STACK,
    ForwarderStack,
    change_obstacle,
    check_is_own_stack,
    monitor_log_group,
    other_forwarders,
    read_forwarder,
)
from profiler.aws_account.registered_definitions import read_items
from profiler.aws_account.setup.change_sets import ChangeSet, StackChanger
from profiler.aws_account.setup.forwarder_secrets import (
    SecretChange,
    SecretStore,
    own_secret_names,
)
from profiler.aws_account.setup.forwarder_zip import build_zip, forwarder_folder, zip_fingerprint
from profiler.aws_account.setup.group_filters import (
    FilterDelivery,
    FilterPlan,
    GroupFilters,
    GroupSelection,
    check_group_names,
    delivery_of_stack_values,
    log_groups_parameter,
    removal_command,
)
from profiler.aws_account.setup.template_limits import (
    check_digest_time,
    check_function_names,
    check_limits,
    check_values,
)
from profiler.aws_account.setup.template_parameters import (
    MONITOR_GROUP_EXISTS,
    MONITORED_CLUSTER,
    changed_parameters,
    check_account,
    check_instance_monitor,
    parameter_defaults,
    parameter_values,
    parse_parameters,
    subscribes_groups,
    without_subscription,
)
from profiler.aws_account.setup.template_rules import check_rules
from profiler.core.aws_clients import service_domain
from profiler.core.aws_error_codes import error_status
from profiler.core.errors import TaskProfilerError, UsageError
from profiler.core.optional_math import known
from profiler.core.text import first_names, on_one_line, split_names
from profiler.core.version import __version__
from profiler.record.units import format_count

_HASH_DIGITS = 16
_FILTER_TYPE = "AWS::Logs::SubscriptionFilter"
_US_EAST_1 = "us-east-1"  # the one Region that CreateBucket does not accept by name


class DeploymentRequest(Struct, frozen=True, kw_only=True):
    """The requested deployment."""

    name: str = FORWARDER_STACK
    bucket: str | None = None  # None: the stack's, else one of the account's own
    zip_file: str | None = None  # None: the code is built
    parameters: tuple[str, ...] = ()  # ``Name=Value`` each
    settings: Mapping[str, str] = {}  # values of parameters from their own options
    secrets: Mapping[
        str, dict[str, str]
    ] = {}  # values by the parameter that gets the secret's name
    tags: Mapping[str, str] = {}  # an empty value removes one of the stack's


class DeploymentPlan(Struct, frozen=True, kw_only=True):
    """The effects of a deployment.

    ``given`` are the parameters that are given now, ``tags`` all of the stack.
    """

    state: ForwarderStack
    template: str
    code_key: str
    given: Mapping[str, str]
    secrets: Mapping[str, dict[str, str]]
    tags: Mapping[str, str]
    filters: FilterPlan

    @property
    def template_key(self) -> str:
        digest = hashlib.sha256(self.template.encode()).hexdigest()
        return f"task-profiler/template-{digest[:_HASH_DIGITS]}.yaml"

    @property
    def parameter_values_after(self) -> Mapping[str, str]:
        return parameter_values(self.template, self.given, self.state.parameters)


class CodeBucket:
    """The bucket of code and template, in this account and Region.

    Methods raise TaskProfilerError with AWS's reason.

    Keys contain a hash of the content. Older objects stay: CloudFormation reads them when it undoes
    an update. Calls contain the account that must own the bucket, because anybody can create one
    with the expected name.
    """

    def __init__(self, name: str, account: str, open_client: OpenClient) -> None:
        self.name = name
        self._owner = {"Bucket": name, "ExpectedBucketOwner": account}
        self._s3 = open_client("s3")
        self._open = open_client

    def exists(self) -> bool:
        """Whether the bucket exists.

        Also raises if the bucket belongs to another account or Region.
        """
        answer = self._head_or_none("s3:ListBucket", self._s3.head_bucket)
        region = answer and answer.get("BucketRegion")
        here = self._s3.meta.region_name
        if region not in (None, here):
            raise TaskProfilerError(
                f"The bucket {self.name} is in {region}: Lambda needs a --bucket in {here}."
            )
        return answer is not None

    def create_bucket(self) -> None:
        """Create the bucket. S3 makes every new bucket private and encrypted."""
        region = self._s3.meta.region_name
        if region == _US_EAST_1:
            where = {}
        else:
            where = {"CreateBucketConfiguration": {"LocationConstraint": region}}
        with aws_errors(f"The bucket {self.name} cannot be created", "s3:CreateBucket"):
            self._s3.create_bucket(Bucket=self.name, **where)

    def has_object(self, key: str) -> bool:
        return (
            self._head_or_none("s3:GetObject and s3:ListBucket", self._s3.head_object, Key=key)
            is not None
        )

    def put_object(self, key: str, data: bytes) -> None:
        with aws_errors(f"s3://{self.name}/{key} cannot be written", "s3:PutObject"):
            self._s3.put_object(**self._owner, Key=key, Body=data)

    def object_url(self, key: str) -> str:
        """The address of an object, as CloudFormation takes a template's: not a VPC endpoint or
        FIPS endpoint of S3.
        """
        s3 = self._s3.meta
        endpoint = f"https://s3.{s3.region_name}.{service_domain(s3.partition)}"
        # One emulator serves both.
        if s3.endpoint_url == self._open("cloudformation").meta.endpoint_url:
            endpoint = s3.endpoint_url
        return f"{endpoint}/{self.name}/{key}"

    def _head_or_none(
        self,
        permission: str,
        call: Any,  # noqa: ANN401  boto3 has no types
        **arguments: str,
    ) -> dict[str, Any] | None:
        """The answer; None if there is nothing.

        HEAD requests have no error code but the HTTP status.
        """
        allowed = f"{permission}, or name a bucket of this account with --bucket"
        with aws_errors(f"The bucket {self.name} cannot be used", allowed):
            answer: dict[str, Any] | None = answer_unless(
                lambda error: error_status(error) == HTTPStatus.NOT_FOUND,
                call,
                **self._owner,
                **arguments,
            )
        return answer


class ForwarderDeployment(Struct, frozen=True):
    """Carries out a request.

    Each method raises TaskProfilerError; ``on_step`` gets a sentence about each step.
    """

    request: DeploymentRequest
    open_client: OpenClient
    changes: StackChanger
    on_step: Callable[[str], None]

    def plan_deployment(self) -> tuple[DeploymentPlan, CodeBucket]:
        """Read the stack and the account.

        Raises UsageError for an unknown parameter before anything is read.
        """
        request = self.request
        template = (forwarder_folder() / "template.yaml").read_text()
        given = _given_parameters(request, tuple(parameter_defaults(template)))
        zip_file = request.zip_file
        if zip_file is None:
            digest = zip_fingerprint()
        else:
            digest = hashlib.sha256(_read_zip(zip_file)).hexdigest()
        code_key = f"{CODE_PREFIX}{__version__}-{digest[:_HASH_DIGITS]}.zip"
        state = read_forwarder(self.open_client, request.name)
        check_is_own_stack(state)
        problem = change_obstacle(state)
        if problem:
            raise TaskProfilerError(problem)
        if state.possible_action == "absent":
            self._name_other_forwarders()
        secrets = {}
        for parameter, values in request.secrets.items():
            name = own_secret_names(request.name)[parameter]
            present = given.get(parameter, state.parameters.get(parameter, ""))
            if present not in ("", name):
                raise TaskProfilerError(
                    f"The stack {request.name} reads these settings from {present}: change them "
                    f"there, or add --parameter {parameter}= to let it use {name}."
                )
            secrets[name] = values
            given[parameter] = name
        self._plan_instance_monitor(template, given, state)
        self._propose_jobs(parameter_values(template, given, state.parameters))
        filters = self._plan_filters(template, given, state)
        check_values(template, given)
        template = without_subscription(template)
        values = parameter_values(template, given, state.parameters)
        check_digest_time(values)
        check_rules(template, values)
        check_limits(template, values)
        check_function_names(template, request.name, values)
        bucket = self._code_bucket(state)
        given |= {"CodeBucket": bucket.name, "CodeKey": code_key}
        tags = {key: value for key, value in {**state.tags, **request.tags}.items() if value}
        plan = DeploymentPlan(
            state=state,
            template=template,
            code_key=code_key,
            given=given,
            secrets=secrets,
            tags=tags,
            filters=filters,
        )
        return plan, bucket

    def _name_other_forwarders(self) -> None:
        """Say that a new stack is a second one, with messages of its own."""
        with noted_errors(
            self.on_step,
            "Whether there is another forwarder is unknown",
            "cloudformation:DescribeStacks",
        ):
            for other in other_forwarders(self.open_client, self.request.name):
                if not other.is_owned:
                    remedy = f"to change it instead, add --name {other.name}."
                else:
                    remedy = f"it is {other.owner.what}, so change it there."
                self.on_step(
                    f"There is a forwarder already, the stack {other.name}: each of the two sends "
                    f"its own messages of the same tasks; {remedy}"
                )

    def _plan_instance_monitor(
        self, template: str, given: dict[str, str], state: ForwarderStack
    ) -> None:
        """Check the monitor that the stack gets or keeps, and give the parameter of its log group.

        CloudFormation could not make a log group that stayed when a monitor was removed.
        """
        values = parameter_values(template, given, state.parameters)
        cluster = values[MONITORED_CLUSTER]
        if not cluster:
            return
        check_instance_monitor(self.open_client, cluster, self.on_step)
        group = monitor_log_group(state.name)
        exists = False
        with noted_errors(
            self.on_step,
            f"Whether the log group {group} exists is unknown",
            "logs:DescribeLogGroups",
        ):
            exists = log_group_class(self.open_client, group) is not None
            is_new = not state.parameters.get(MONITORED_CLUSTER)
            if is_new or not exists:
                given.setdefault(MONITOR_GROUP_EXISTS, "true" if exists else "false")

    def _propose_jobs(self, values: Mapping[str, str]) -> None:
        """Say that jobs can have one message each, where the account has a queue of AWS Batch."""
        if values["TaskStopped"] != "true" or values["BatchJobs"] == "true":
            return
        with noted_errors(
            self.on_step,
            "Whether there are job queues of AWS Batch is unknown",
            "batch:DescribeJobQueues",
        ):
            queues = read_items(self.open_client("batch"), "describe_job_queues", "jobQueues")
            for queue in islice(queues, 1):
                self.on_step(
                    f"There is a job queue of AWS Batch, {on_one_line(queue['jobQueueName'])}: add "
                    "--parameter BatchJobs=true, and a job has one message at its end instead of "
                    "one for each attempt and child."
                )

    def _plan_filters(
        self, template: str, given: dict[str, str], state: ForwarderStack
    ) -> FilterPlan:
        """Plan the subscription filters, and give the parameter of the log groups.

        Refuses what would fail after the stack was made.
        """
        before = parameter_values(template, {}, state.parameters)
        values = parameter_values(template, given, state.parameters)
        if values["DigestSchedule"] and values["Notify"] == "all":
            self.on_step(
                "With DigestSchedule, successes are in the morning message: Notify=failure sends "
                "only failures at once."
            )
        are_given = "LogGroups" in given
        names = split_names(values["LogGroups"])
        filters = GroupFilters(state.name, self.open_client, self.on_step)
        wanted = GroupSelection()
        delivery = None
        if values["Subscribe"] == "account" and before["Subscribe"] == "groups":
            check_account(self.open_client, self.on_step)
        if values["Subscribe"] == "groups":
            check_group_names(names)
            wanted = filters.select_groups(names, are_given=are_given)
        if are_given and values["Subscribe"] == "groups":
            given["LogGroups"] = log_groups_parameter(names, wanted.groups)
            values = parameter_values(template, given, state.parameters)
        if subscribes_groups(values):
            delivery = delivery_of_stack_values(values, state)
        dropped: list[str] = []
        if before["Subscribe"] == "groups":
            dropped += split_names(before["LogGroups"])
        if delivery is not None:
            dropped = [name for name in dropped if name not in names]
        return filters.plan_filters(wanted, dropped, delivery)

    def _code_bucket(self, state: ForwarderStack) -> CodeBucket:
        sts = self.open_client("sts")
        with aws_errors("The account cannot be read", "sts:GetCallerIdentity"):
            account = sts.get_caller_identity()["Account"]
        chosen = self.request.bucket or state.parameters.get("CodeBucket")
        default = f"task-profiler-{account}-{sts.meta.region_name}"
        bucket = CodeBucket(chosen or default, account, self.open_client)
        if self.request.bucket is not None and not bucket.exists():
            raise TaskProfilerError(
                f"There is no bucket {bucket.name}: create it, or leave --bucket out."
            )
        return bucket

    def plan_lines(self, plan: DeploymentPlan, bucket: CodeBucket) -> Iterator[str]:
        """The plan, as lines for people."""
        exists = bucket.exists()
        yield f"would {'use' if exists else 'create'} the bucket {bucket.name}"
        for key in (plan.code_key, plan.template_key):
            verb = "is there already" if exists and bucket.has_object(key) else "would be uploaded"
            yield f"s3://{bucket.name}/{key} {verb}"
        for name in plan.secrets:
            yield f"would store the secret {name}"
        if plan.state.possible_action == "absent":
            yield f"would create the stack {plan.state.name} (now absent)"
        elif plan.state.version:
            yield f"would update the stack {plan.state.name} (now version {plan.state.version})"
        else:
            yield f"would update the stack {plan.state.name} (now of an unknown version)"
        for name, value in plan.given.items():
            if name not in ("CodeBucket", "CodeKey"):
                yield f"  {name}={value}"
        for key, value in plan.tags.items():
            yield f"  tag {key}={value}"
        monitored = plan.state.parameters.get(MONITORED_CLUSTER)
        if monitored and not plan.parameter_values_after[MONITORED_CLUSTER]:
            yield (
                f"would remove the instance monitor of {monitored}; its log group "
                f"{monitor_log_group(plan.state.name)} stays"
            )
        kept = len(plan.state.parameters.keys() - plan.given.keys())
        if kept:
            yield f"  {kept} other parameters keep their values"
        yield from filter_sentences(plan.filters)

    def upload_and_create_change_set(
        self, plan: DeploymentPlan, bucket: CodeBucket
    ) -> ChangeSet | None:
        """Upload code and template, and create a change set; None if nothing would change."""
        if plan.filters.unread:
            raise TaskProfilerError(
                f"The stack {plan.state.name} is not changed. Its parameters would no longer name "
                f"{first_names(plan.filters.unread)}, and it is unknown whether a subscription "
                "filter of it would stay there."
            )
        if not bucket.exists():
            bucket.create_bucket()
            self.on_step(f"created the bucket {bucket.name}")
        for key, read in (
            (plan.code_key, self._read_code),
            (plan.template_key, plan.template.encode),
        ):
            if not bucket.has_object(key):
                bucket.put_object(key, read())
                self.on_step(f"uploaded s3://{bucket.name}/{key}")
        parameters = changed_parameters(
            parameter_defaults(plan.template), plan.given, plan.state.parameters
        )
        is_new = plan.state.possible_action == "absent"
        return self.changes.create_change_set(
            bucket.object_url(plan.template_key), parameters, plan.tags, is_new=is_new
        )

    def _read_code(self) -> bytes:
        if self.request.zip_file is not None:
            return _read_zip(self.request.zip_file)
        self.on_step("building the forwarder's code with pip (about ten seconds)")
        with tempfile.TemporaryDirectory(prefix="task-profiler-setup-") as folder:
            path = Path(folder) / "forwarder.zip"
            build_zip(path)
            return path.read_bytes()

    def plan_secrets(self, plan: DeploymentPlan) -> tuple[SecretChange, ...]:
        """The changes of all secrets, none of which is another program's."""
        store = self._secret_store(plan)
        return tuple(store.plan_change(name, values) for name, values in plan.secrets.items())

    def store_secrets(self, plan: DeploymentPlan, changes: Iterable[SecretChange]) -> None:
        """Store the secrets. Running functions read a changed one within five minutes."""
        store = self._secret_store(plan)
        for change in changes:
            store.store(change)
            self.on_step(f"{change.effect}: secret {change.name}")

    def _secret_store(self, plan: DeploymentPlan) -> SecretStore:
        key_arn = plan.parameter_values_after["SecretsKeyArn"]
        return SecretStore(open_client=self.open_client, key_arn=key_arn, tags=plan.tags)

    def put_filters(
        self, plan: DeploymentPlan, state: ForwarderStack, change_set: ChangeSet | None
    ) -> tuple[str, ...]:
        """Put and delete the subscription filters of the deployed stack.

        Returns a sentence about each failure.
        """
        filters = plan.filters
        for change in known(attrgetter("changes"), change_set) or ():
            # The filter of the template alone, maybe under the same name.
            if change.type == _FILTER_TYPE and change.action == "Remove":
                filters = replace(filters, put=filters.groups)
        delivery: FilterDelivery | None = delivery_of_stack_values(
            plan.parameter_values_after, state
        )
        failures = GroupFilters(state.name, self.open_client, self.on_step).carry_out(
            filters, delivery, self.changes.clock, self.on_step
        )
        return (*failures, *self._unnamed_group_sentences(filters))

    def _unnamed_group_sentences(self, filters: FilterPlan) -> Iterator[str]:
        """Log groups whose filter was put, and that the stack does not name any more, because
        somebody has changed it meanwhile: no later command would find the filter.
        """
        if not filters.put:
            return
        stack = read_forwarder(self.open_client, self.request.name)
        names = split_names(stack.parameters.get("LogGroups", ""))
        for group in filters.put:
            if not any(fnmatchcase(group, name) for name in names):
                yield (
                    f"{group} is subscribed, but somebody has changed the stack {stack.name} "
                    "since, which does not name it any more: run the command again, or "
                    f"{removal_command(group, filters.name)}"
                )


def filter_sentences(filters: FilterPlan) -> Iterator[str]:
    """The changes of the subscription filters, a line for each log group."""
    for verb, groups in (("put", filters.put), ("delete", filters.delete)):
        if groups:
            yield (
                f"would {verb} the subscription filter {filters.name} of "
                f"{format_count(len(groups), 'log group')}:"
            )
        for group in groups:
            yield f"  {group}"
    unchanged = len(filters.groups) - len(filters.put) - len(filters.refused)
    if unchanged:
        yield f"  subscribed already: {format_count(unchanged, 'log group')}"
    yield from filters.left_out
    yield from filters.refused


def _given_parameters(request: DeploymentRequest, names: tuple[str, ...]) -> dict[str, str]:
    given = parse_parameters(request.parameters, names)
    for name in (*request.settings, *request.secrets):
        if given.get(name):
            raise UsageError(
                f"--parameter {name} and the option for it are both given: leave one out."
            )
    return {**given, **request.settings}


def _read_zip(path: str) -> bytes:
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise UsageError(
            f"--zip {path} cannot be read ({error.strerror}): leave it out, and the zip is built."
        ) from error
    if not data.startswith(b"PK"):
        raise UsageError(
            f"--zip {path} is not a zip file: use task-profiler-forwarder.zip of the release."
        )
    return data
