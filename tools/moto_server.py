"""Plays Amazon CloudWatch Logs with moto, over HTTP, for containers and tests alike."""

import contextlib
import json
import pickle
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from datetime import timedelta
from functools import cache, lru_cache
from inspect import getfullargspec
from itertools import count
from types import SimpleNamespace
from typing import Any, ClassVar
from unittest.mock import patch
from urllib.parse import parse_qsl

import boto3
import xmltodict  # type: ignore[import-untyped]  # moto depends on it
import yaml  # type: ignore[import-untyped]  # moto depends on it
from botocore.endpoint import Endpoint
from botocore.exceptions import ClientError
from botocore.useragent import UserAgentString
from moto import backends
from moto.cloudformation import parsing
from moto.cloudformation.exceptions import ValidationError
from moto.cloudformation.responses import CloudFormationResponse
from moto.cloudformation.utils import yaml_tag_constructor
from moto.core import errors, responses
from moto.core.request import EnvironHeaders
from moto.core.responses import ActionResult
from moto.core.serialize import (
    AttributePickerContext,
    BaseRestSerializer,
    ResponseSerializer,
    XFormedAttributePicker,
)
from moto.core.utils import camelcase_to_underscores, method_names_from_class, utcnow
from moto.ecr.responses import ECRResponse
from moto.ecs.exceptions import TaskDefinitionNotFoundException
from moto.ecs.models import EC2ContainerServiceBackend, ecs_backends
from moto.ecs.responses import EC2ContainerServiceResponse
from moto.iam.responses import IamResponse
from moto.moto_api._internal.models import moto_api_backend
from moto.moto_server.werkzeug_app import (
    BackendRequest,
    DomainDispatcherApplication,
    MotoRequestHandler,
    create_backend_app,
)
from moto.resourcegroupstaggingapi.responses import ResourceGroupsTaggingAPIResponse
from moto.scheduler.exceptions import ValidationException
from moto.scheduler.models import Schedule, scheduler_backends
from moto.sqs import models as sqs_models
from moto.utilities import paginator
from moto.utilities.utils import get_partition
from msgspec import Struct
from werkzeug.datastructures.structures import ImmutableMultiDict, iter_multi_items
from werkzeug.exceptions import HTTPException
from werkzeug.serving import make_server

from profiler import __version__
from profiler.core.aws_clients import service_domain
from tools.local_answers import (
    answer_here,
    answer_over_sockets,
    wsgi_answerer,
)
from tools.unsigned_requests import create_request

# 2026-01-01T00:00:00Z
_LONG_AGO = 1_767_225_600
_STOP_POLL_SECONDS = 0.02  # moto's own server takes half a second to stop
_CREDENTIALS = {"AWS_ACCESS_KEY_ID": "testing", "AWS_SECRET_ACCESS_KEY": "testing"}
# moto reads templates by yaml.Loader, in Python, which takes a third of the time of a deployment.
FastLoader: Any = type("FastLoader", (yaml.CLoader,), {})
FastLoader.add_multi_constructor("", yaml_tag_constructor)
_MODULES = tuple(backends.list_of_moto_modules())
_method_names = cache(method_names_from_class)
_underscored = cache(camelcase_to_underscores)
_errors_of_services = errors.ErrorLookupFactory()
_validate_name = cache(xmltodict._validate_name)  # noqa: SLF001  of each element of an answer
_INSPECT = SimpleNamespace(getfullargspec=cache(getfullargspec))  # for each list in pages


_FORM = "application/x-www-form-urlencoded"
_NO_FORM = ImmutableMultiDict[str, Any]()


@cache
def _environ_name(header: str) -> str:
    """The name of a header in the environment of WSGI."""
    name = header.upper().replace("-", "_")
    return name if name in ("CONTENT_TYPE", "CONTENT_LENGTH") else f"HTTP_{name}"


class _Headers(EnvironHeaders):
    """As moto's, which makes the name of a header again for each look."""

    def _get_key(self, key: str) -> str:
        return str(self.environ[_environ_name(key)])


class _Request(BackendRequest):
    """As moto's, with what it asks of each request."""

    def __init__(self, environ: dict[str, Any]) -> None:
        super().__init__(environ)
        self.headers = _Headers(environ)

    @property
    def raw_url(self) -> str:
        return f"http://{self.environ['HTTP_HOST']}{self.environ['RAW_URI']}"

    def have_read(self, body: bytes) -> None:
        """Its body, which is no form and not compressed."""
        vars(self).update(_cached_data=body, data=body, form=_NO_FORM, files=_NO_FORM)

    def have_read_form(self, body: bytes) -> None:
        """Its body, the form of a call of IAM or CloudFormation."""
        form = ImmutableMultiDict(parse_qsl(body.decode(), keep_blank_values=True))
        vars(self).update(_cached_data=b"", data=b"", form=form, files=_NO_FORM)


@cache
def _backend_app(service: Any) -> Any:
    """The routes of a service, without state. In moto's debug mode, Flask makes a class for each
    request.
    """
    app = create_backend_app(service)
    app.debug = False
    app.config["PROPAGATE_EXCEPTIONS"] = True  # as in the debug mode
    return app


_HEADERS = {"content-type": "text/html; charset=utf-8"}  # Flask's, for an answer without any


@cache
def _view(service_app: Any, method: str, path: str) -> Any:
    """What moto does for a path. Raises werkzeug's HTTPException for an unknown one."""
    endpoint, _ = service_app.url_map.bind("localhost").match(path, method)
    return service_app.view_functions[endpoint].callback


def _without_flask(app: DomainDispatcherApplication) -> Callable[..., Iterable[bytes]]:
    """The same answers without Flask's contexts and responses, which take half as long as moto's
    answer itself.
    """

    def answer(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        service_app: Any = app.get_application(environ)
        request = _Request(environ)
        if "HTTP_CONTENT_ENCODING" not in environ:
            if environ["CONTENT_TYPE"].startswith(_FORM):
                request.have_read_form(environ["wsgi.input"].getvalue())
            elif not environ["CONTENT_TYPE"].startswith("multipart/"):
                request.have_read(environ["wsgi.input"].getvalue())
        try:
            view = _view(service_app, request.method, request.path)
            answered = view(request, request.raw_url, request.headers)
        except ClientError as error:
            answered = 400, {}, error.response["Error"]["Message"]
        except HTTPException as error:
            return error.get_response(environ)(environ, start_response)
        is_content = isinstance(answered, str | bytes)
        status, headers, content = (200, {}, answered) if is_content else answered
        body = content.encode() if isinstance(content, str) else bytes(content)
        given = {name.lower(): str(value) for name, value in iter_multi_items(headers)}
        start_response(
            f"{status} ", [*{**_HEADERS, "content-length": str(len(body)), **given}.items()]
        )
        return () if request.method == "HEAD" else (body,)

    return answer


_backend_of_host = cache(DomainDispatcherApplication(_backend_app).get_backend_for_host)
_request_numbers = count(1)

_clean_json = parsing.clean_json


def _drop_no_values(value: Any, resources: Any) -> Any:
    """CloudFormation drops AWS::NoValue from lists, moto leaves a None, such as a role that a
    policy is for.
    """
    cleaned = _clean_json(value, resources)
    return [item for item in cleaned if item is not None] if isinstance(cleaned, list) else cleaned


_make_resources = parsing.ResourceMap.__init__


def _in_partition(resources: Any, *given: Any, **named: Any) -> None:
    """A stack's pseudo parameters have the partition of its Region; moto's always have ``aws``."""
    _make_resources(resources, *given, **named)
    own = resources._parsed_resources  # noqa: SLF001  moto's own
    own["AWS::Partition"] = get_partition(own["AWS::Region"])
    own["AWS::URLSuffix"] = service_domain(own["AWS::Partition"])


class _AttributePicker(XFormedAttributePicker):
    """As moto's, with the names under which a member may be found in a class made once."""

    _names: ClassVar[dict[tuple[int, str, type], tuple[Any, tuple[str, ...]]]] = {}

    def __call__(self, context: Any) -> Any:
        if type(context.obj) is not dict:
            return super().__call__(context)
        value = None
        for name in self._made_once(context):
            if name in context.obj:
                value = context.obj[name]
                break
            if "." in name:  # moto takes it for a path
                return super().__call__(context)
        for path, transform in self.response_transformers.items():
            if f"{context.key_path}.{context.key}".endswith(path):
                return transform(value)
        return value

    def get_possible_keys(self, context: Any) -> Generator[str, None, None]:
        return (name for name in self._made_once(context))

    def _made_once(self, context: Any) -> tuple[str, ...]:
        key = id(context.shape), context.key, type(context.obj)
        if key not in self._names:
            names = tuple(dict.fromkeys(super().get_possible_keys(context)))
            self._names[key] = context.shape, names  # the shape stays, and so does its id
        return self._names[key][1]


_serialize_members = ResponseSerializer._serialize_type_structure  # noqa: SLF001  moto's own
_MISSING = object()


class _Member(Struct, frozen=True):
    """A member of a structure, and the names that it may have in an object of a class. A plain one
    has no transformer and no name that moto takes for a path.
    """

    key: str
    shape: Any
    names: tuple[str, ...]
    is_plain: bool


_members_of: dict[tuple[int, int, int, type], tuple[Any, Any, tuple[_Member, ...]]] = {}


def _named_members(picker: _AttributePicker, shape: Any, value: Any) -> tuple[_Member, ...]:
    """The members of a structure in objects of the class of this one."""
    transformers = picker.response_transformers
    ident = id(transformers) if transformers else 0
    known = id(shape), ident, len(transformers), type(value)
    if known not in _members_of:
        transformed = {path.rpartition(".")[2] for path in transformers}
        members = []
        for key, member in shape.members.items():
            member.parent = shape
            context = AttributePickerContext(obj=value, key=key, shape=member)
            names = tuple(picker.get_possible_keys(context))
            is_plain = key not in transformed and not any("." in name for name in names)
            members.append(_Member(key, member, names, is_plain))
        # What has these ids stays, and so do they.
        _members_of[known] = shape, transformers, tuple(members)
    return _members_of[known][-1]


def _serialize_structure(
    serializer: Any, serialized: Any, value: Any, shape: Any, key: str
) -> None:
    """As moto's, which makes an object for each member that there may be."""
    picker = serializer._value_picker  # noqa: SLF001  moto's own
    is_dict = type(value) is dict
    if (
        value is None
        or (not is_dict and hasattr(value, "__getitem__"))
        or not isinstance(picker, _AttributePicker)
        or isinstance(serializer, BaseRestSerializer)  # looks for members of the URL and headers
    ):
        _serialize_members(serializer, serialized, value, shape, key)
        return
    wrapper = serializer.MAP_TYPE() if key else serialized
    for member in _named_members(picker, shape, value):
        if not member.is_plain:
            serializer._serialize_structure_member(  # noqa: SLF001
                wrapper, value, member.shape, member.key
            )
            continue
        for name in member.names:
            found = value.get(name, _MISSING) if is_dict else getattr(value, name, _MISSING)
            if found is not _MISSING:
                if found is not None:
                    serializer._serialize(wrapper, found, member.shape, member.key)  # noqa: SLF001
                break
    if key:
        serializer._default_serialize(serialized, wrapper, shape, key)  # noqa: SLF001


_load_yaml = yaml.load


@lru_cache(maxsize=16)
def _pickled_yaml(text: str) -> bytes:
    return pickle.dumps(_load_yaml(text, FastLoader))


def _load_once(text: str, Loader: Any) -> Any:  # noqa: N803  as yaml.load
    """As yaml.load. Tests deploy the same few templates a hundred times, and moto changes what it
    gets.
    """
    if Loader is FastLoader:
        return pickle.loads(_pickled_yaml(text))  # noqa: S301  pickled here
    return _load_yaml(text, Loader)


def _request_id(headers: dict[str, str]) -> str:
    """As moto's, which chooses each of 52 letters at random."""
    request_id = f"{next(_request_numbers):052}"
    headers["x-amzn-requestid"] = request_id
    return request_id


# moto looks twice for a key of AWS in each request's authorization.
_ACCESS_KEY = SimpleNamespace(search=lru_cache(responses.BaseResponse.access_key_regex.search))


def _service_of(_app: Any, host: str | None) -> Any:
    return _backend_of_host(host)


@contextlib.contextmanager
def patched_moto() -> Iterator[None]:
    """Lists without AWS::NoValue; templates that libyaml reads once; moto's modules, the methods and
    errors of each service and the names of members, listed once, not for each request; short ways
    to the names of requests and to the service of a host; no signature, a tenth of the time of a
    call.
    """
    with (
        patch.object(parsing, "clean_json", _drop_no_values),
        patch.object(parsing.ResourceMap, "__init__", _in_partition),
        patch.object(yaml, "Loader", FastLoader),
        patch.object(yaml, "load", _load_once),
        patch.object(backends, "list_of_moto_modules", lambda: _MODULES),
        patch.object(responses, "method_names_from_class", _method_names),
        patch.object(responses, "camelcase_to_underscores", _underscored),
        patch.object(sqs_models, "camelcase_to_underscores", _underscored),
        patch.object(paginator, "inspect", _INSPECT),
        patch.object(xmltodict, "_validate_name", _validate_name),
        patch.object(errors, "ErrorLookupFactory", lambda: _errors_of_services),
        patch.object(responses, "XFormedAttributePicker", _AttributePicker),
        patch.object(responses, "gen_amzn_requestid_long", _request_id),
        patch.object(responses.BaseResponse, "access_key_regex", _ACCESS_KEY),
        patch.object(DomainDispatcherApplication, "get_backend_for_host", _service_of),
        patch.object(Endpoint, "create_request", create_request),
        patch.object(UserAgentString, "to_string", lambda _agent: "botocore"),  # nobody reads it
        patch.object(ResponseSerializer, "_serialize_type_structure", _serialize_structure),
    ):
        yield


class OwnedResource(Struct, frozen=True, kw_only=True):
    """A resource of a stack as DescribeStackResources returns it."""

    stack_name: str
    physical_resource_id: str
    resource_type: str
    logical_resource_id: str = "Resource"
    resource_status: str = "CREATE_COMPLETE"
    timestamp: str = "2026-11-01T02:00:00Z"


_describe_stack_resources = CloudFormationResponse.describe_stack_resources
_owned_resources: list[OwnedResource] = []
_stack_states: dict[str, str] = {}  # of stacks by their names, if they are not created


def _of_physical_id(response: Any) -> Any:
    """The stack of a physical id, which moto does not look for: all of its resources."""
    physical_id = response._get_param("PhysicalResourceId")  # noqa: SLF001  moto's own
    if physical_id is None:
        return _describe_stack_resources(response)
    owners = [
        resource for resource in _owned_resources if resource.physical_resource_id == physical_id
    ]
    if not owners:
        raise ValidationError(message=f"Stack for {physical_id} does not exist")
    stack = owners[0].stack_name
    listed = [resource for resource in _owned_resources if resource.stack_name == stack]
    return ActionResult({"StackResources": listed[:100]})


def _list_stacks(response: Any) -> Any:
    """The deleted stacks with their dates, or the stacks of the owned resources: moto knows
    neither.
    """
    if response._get_param("StackStatusFilter") == ["DELETE_COMPLETE"]:  # noqa: SLF001  moto's own
        return _deleted_stacks(response.cloudformation_backend.deleted_stacks.values())
    names = dict.fromkeys(resource.stack_name for resource in _owned_resources)
    stacks = [
        {
            "StackId": f"arn:aws:cloudformation:us-east-1:123456789012:stack/{name}/1",
            "StackName": name,
            "CreationTime": OwnedResource.__struct_defaults__[-1],
            "StackStatus": _stack_states.get(name, "CREATE_COMPLETE"),
        }
        for name in {**names, **_stack_states}
    ]
    return ActionResult({"StackSummaries": stacks})


def _deleted_stacks(stacks: Iterable[Any]) -> Any:
    """The summaries of deleted stacks, each deleted a second after the one before it."""
    summaries = []
    for number, stack in enumerate(stacks):
        summary = {
            "StackId": stack.stack_id,
            "StackName": stack.name,
            "CreationTime": stack.creation_time,
            "DeletionTime": utcnow() + timedelta(seconds=number),
            "StackStatus": "DELETE_COMPLETE",
        }
        summaries.append(summary)
    return ActionResult({"StackSummaries": summaries})


def _list_stack_resources(response: Any) -> Any:
    """All owned resources of a stack."""
    stack_id = response._get_param("StackName")  # noqa: SLF001  moto's own
    name = stack_id.split("/")[1]
    if _stack_states.get(name) == "REVIEW_IN_PROGRESS":
        raise ValidationError(message=f"Stack with id {stack_id} does not exist")
    listed = [resource for resource in _owned_resources if resource.stack_name == name]
    return ActionResult({"StackResourceSummaries": listed})


_cache_prefixes: list[str] = []


def _pull_through_cache_rules(_response: Any) -> str:
    """The pull through cache rules, which moto's ECR does not know."""
    rules = [{"ecrRepositoryPrefix": prefix} for prefix in _cache_prefixes]
    return json.dumps({"pullThroughCacheRules": rules})


def _simulate_principal_policy(response: Any) -> Any:
    """The simulation of a role's policies, which moto's IAM does not know, in an account without
    an organization: the decision is not read.
    """
    actions = response._get_param("ActionNames")  # noqa: SLF001  moto's own
    return ActionResult(
        {
            "IsTruncated": False,
            "EvaluationResults": [
                {"EvalActionName": action, "EvalDecision": "allowed"} for action in actions
            ],
        }
    )


def _tagged_definitions(response: Any) -> Any:
    """The task definitions with a tag, which moto's GetResources does not know."""
    (wanted,) = response._get_param("TagFilters")  # noqa: SLF001  moto's own
    backend = ecs_backends[response.current_account][response.region]
    tagged = []
    for revisions in backend.task_definitions.values():
        for definition in revisions.values():
            tags = [{"Key": tag["key"], "Value": tag["value"]} for tag in definition.tags or ()]
            if wanted["Key"] in [tag["Key"] for tag in tags]:
                tagged.append({"ResourceARN": definition.arn, "Tags": tags})
    return ActionResult({"PaginationToken": "", "ResourceTagMappingList": tagged})


_describe_definition = EC2ContainerServiceBackend.describe_task_definition
_register_definition = EC2ContainerServiceBackend.register_task_definition


def _register_with_date(backend: Any, *given: Any, **named: Any) -> Any:
    """A revision with the date of its registration, which moto leaves out."""
    registered: Any = _register_definition(backend, *given, **named)
    registered.registered_at = utcnow()
    return registered


def _describe_newest_active(backend: Any, task_definition_str: str) -> Any:
    """A family's newest active revision; moto's is the newest of all."""
    name = task_definition_str.rpartition("/")[2]
    if ":" in name:
        return _describe_definition(backend, task_definition_str)
    active = [
        number
        for number, definition in backend.task_definitions.get(name, {}).items()
        if definition.status == "ACTIVE"
    ]
    if not active:
        raise TaskDefinitionNotFoundException
    return _describe_definition(backend, f"{name}:{max(active)}")


def _list_as_sorted(response: Any) -> Any:
    """The first revisions in the order that is asked for, which moto ignores."""
    given = response._get_param  # noqa: SLF001  moto's own
    arns = response.ecs_backend.list_task_definitions(
        given("familyPrefix"), given("status", "ACTIVE")
    )
    arns.sort(
        key=lambda arn: (arn.rpartition(":")[0], int(arn.rpartition(":")[2])),
        reverse=given("sort") == "DESC",
    )
    return ActionResult({"taskDefinitionArns": arns[: int(given("maxResults") or 100)]})


def _list_active_families(response: Any) -> Any:
    """The families with an active revision; moto's are all of them."""
    backend = response.ecs_backend
    active = [
        family
        for family in backend.list_task_definition_families()
        if any(one.status == "ACTIVE" for one in backend.task_definitions[family].values())
    ]
    return ActionResult({"families": active})


class LogEvent(Struct, frozen=True, kw_only=True):
    timestamp_ms: int
    message: str


class FakeAws(Struct, frozen=True, kw_only=True):
    url: str
    region: str = "us-east-1"

    def environment(self) -> dict[str, str]:
        """Return the variables with which boto3 in a container reaches this server."""
        return _CREDENTIALS | {
            "AWS_ENDPOINT_URL": self.url,
            "AWS_REGION": self.region,
            "AWS_DEFAULT_REGION": self.region,
        }

    def create_log_group(self, group: str) -> None:
        self.client("logs").create_log_group(logGroupName=group)

    def create_log_stream(self, group: str, stream: str) -> None:
        """Create a stream in an existing group, as the awslogs driver does when it starts a
        container.
        """
        self.client("logs").create_log_stream(logGroupName=group, logStreamName=stream)

    def events(self, group: str, stream: str) -> tuple[LogEvent, ...]:
        """Return all lines of a stream, oldest first."""
        logs = self.client("logs")
        answer = logs.get_log_events(logGroupName=group, logStreamName=stream, startFromHead=True)
        return tuple(
            LogEvent(timestamp_ms=event["timestamp"], message=event["message"])
            for event in answer["events"]
        )

    def start_task(self, family: str, **options: Any) -> str:
        """Start a task on Fargate in the cluster "jobs" and the default network. Returns its id."""
        subnet = self.client("ec2").describe_subnets()["Subnets"][0]["SubnetId"]
        network = {"awsvpcConfiguration": {"subnets": [subnet], "securityGroups": []}}
        words = {
            "cluster": "jobs",
            "launchType": "FARGATE",
            "networkConfiguration": network,
            **options,
        }
        task, *_ = self.client("ecs").run_task(taskDefinition=family, **words)["tasks"]
        return str(task["taskArn"].rpartition("/")[2])

    def own(self, *resources: OwnedResource) -> None:
        """Let a stack of CloudFormation own resources."""
        _owned_resources.extend(resources)

    def disown(self) -> None:
        """Let no stack own a resource any more."""
        _owned_resources.clear()

    def set_stack_state(self, stack: str, state: str) -> None:
        _stack_states[stack] = state

    def pull_through(self, prefix: str) -> None:
        """Let ECR bring the images of a prefix from another registry."""
        _cache_prefixes.append(prefix)

    def client(self, service: str) -> Any:
        return _client(service, self.url, self.region)


@cache
def _client(service: str, url: str, region: str) -> Any:
    """The same client each time: making one costs more than a call."""
    keys = {name.lower(): value for name, value in _CREDENTIALS.items()}
    return boto3.client(service, endpoint_url=url, region_name=region, **keys)


def push_image(aws: FakeAws, tag: str = __version__, repository: str = "task-profiler") -> None:
    """Put an image into ECR, as ``docker push`` does. A missing repository is created."""
    ecr = aws.client("ecr")
    with contextlib.suppress(ecr.exceptions.RepositoryAlreadyExistsException):
        ecr.create_repository(repositoryName=repository)
    media_type = "application/vnd.docker.distribution.manifest.v2+json"
    manifest = {
        "schemaVersion": 2,
        "mediaType": media_type,
        "config": {"digest": f"sha256:{tag}"},
        "layers": [],
    }
    ecr.put_image(repositoryName=repository, imageManifest=json.dumps(manifest), imageTag=tag)


def start_by_schedule(
    scheduler: Any, name: str, definition: str = "", cluster: str = "jobs", **more: Any
) -> None:
    """Make a schedule that starts the latest revision of a family, else its own, in a cluster
    each night.
    """
    arn = "arn:aws:ecs:us-east-1:123456789012"
    scheduler.create_schedule(
        Name=name,
        ScheduleExpression="cron(0 3 * * ? *)",
        FlexibleTimeWindow={"Mode": "OFF"},
        Target={
            "Arn": f"{arn}:cluster/{cluster}",
            "RoleArn": "arn:aws:iam::123456789012:role/schedules",
            "EcsParameters": {"TaskDefinitionArn": f"{arn}:task-definition/{definition or name}"},
        },
        **more,
    )


_update_schedule = Schedule.update


def _update_as_aws(schedule: Any, **content: Any) -> None:
    """As UpdateSchedule: a start date that has passed is refused, which moto does for new
    schedules with a cron expression alone.
    """
    start = content["start_date"]
    if start is not None and float(start) < time.time() - 300:
        raise ValidationException("The StartDate you specify cannot be earlier than 5 minutes ago.")
    _update_schedule(schedule, **content)


def begin_schedule_long_ago(name: str, account: str = "123456789012") -> None:
    """Give a schedule a start date that has passed, as it has after some time."""
    schedule = scheduler_backends[account]["us-east-1"].get_schedule("default", name)
    schedule.start_date = str(_LONG_AGO)


def create_schedule_long_ago(name: str, region: str, account: str = "123456789012") -> None:
    """Date a schedule back, as one that nobody has changed for some time."""
    schedule = scheduler_backends[account][region].get_schedule("default", name)
    schedule.creation_date = schedule.last_modified_date = _LONG_AGO


@contextlib.contextmanager
def fake_aws(host: str = "127.0.0.1") -> Iterator[FakeAws]:
    """Run a server on a free port, with nothing in it, for the length of the block; one at a
    time.
    """
    app = DomainDispatcherApplication(_backend_app)
    server = make_server(host, 0, app, threaded=True, request_handler=MotoRequestHandler)
    thread = threading.Thread(target=server.serve_forever, args=(_STOP_POLL_SECONDS,), daemon=True)
    thread.start()
    url = f"http://{host}:{server.server_port}"
    try:
        answer_here(url, wsgi_answerer(_without_flask(app), url))
        # All servers of a process have one state: what the last one was told is still there.
        moto_api_backend.reset()
        _owned_resources.clear()
        _stack_states.clear()
        _cache_prefixes.clear()
        by_physical_id = patch.object(
            CloudFormationResponse, "describe_stack_resources", _of_physical_id
        )
        by_tag = patch.object(
            ResourceGroupsTaggingAPIResponse, "get_resources", _tagged_definitions
        )
        by_prefix = patch.object(
            ECRResponse, "describe_pull_through_cache_rules", _pull_through_cache_rules, create=True
        )
        by_simulation = patch.object(
            IamResponse, "simulate_principal_policy", _simulate_principal_policy, create=True
        )
        by_start = patch.object(Schedule, "update", _update_as_aws)
        by_family = patch.object(
            EC2ContainerServiceBackend, "describe_task_definition", _describe_newest_active
        )
        by_date = patch.object(
            EC2ContainerServiceBackend, "register_task_definition", _register_with_date
        )
        by_order = patch.object(
            EC2ContainerServiceResponse, "list_task_definitions", _list_as_sorted
        )
        by_status = patch.object(
            EC2ContainerServiceResponse, "list_task_definition_families", _list_active_families
        )
        by_stack = patch.object(CloudFormationResponse, "list_stacks", _list_stacks)
        by_resource = patch.object(
            CloudFormationResponse, "list_stack_resources", _list_stack_resources
        )
        answers = (
            *(by_physical_id, by_tag, by_prefix, by_simulation, by_start, by_family),
            *(by_date, by_order, by_status, by_stack, by_resource),
        )
        with patched_moto(), contextlib.ExitStack() as stack:
            for answer in answers:
                stack.enter_context(answer)
            yield FakeAws(url=url)
    finally:
        answer_over_sockets(url)
        _client.cache_clear()
        server.shutdown()
        thread.join()
        server.server_close()
