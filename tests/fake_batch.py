"""Plays AWS Batch over HTTP as the service answers: pages, limits, codes of errors, the seven days
for which it keeps jobs, and ``ecsProperties``, which moto lacks.

Each answer is checked against botocore's model of the service. ``tests/batch_jobs.py`` lets jobs
live, and makes their events.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from functools import cache
from typing import Any
from urllib.parse import unquote

import boto3
from botocore.config import Config
from botocore.session import get_session
from botocore.validate import ParamValidator

from tests import batch_jobs
from tests.batch_jobs import ACCOUNT, REGION, Json, arn, submitted
from tests.http_server import FakeHttpServer
from tools.local_answers import answer_here, answer_over_sockets

NOW_MS = 1_772_359_953_000  # 1 March 2026
KEPT_MS = 7 * 86_400_000
ENDED = ("SUCCEEDED", "FAILED")
_MAX_IDS = 100
_PAGE = 100
_TAGS = "/v1/tags/"
_MAX_TAGS = 50
_LEAST_MIB = 4
# What the service adds to a container of a definition.
_EMPTY_LISTS = ("command", "environment", "mountPoints", "secrets", "ulimits", "volumes")
_STATUS_PAGE = 1_000
_MAX_OVERRIDES = 8_192
_PROPERTIES = ("containerProperties", "ecsProperties", "eksProperties", "nodeProperties")
_STATUS = {"ClientException": 400, "ServerException": 500, "TooManyRequestsException": 429}
_FARGATE_MIB: Mapping[float, Sequence[int]] = {
    0.25: (512, 1024, 2048),
    0.5: range(1024, 4097, 1024),
    1: range(2048, 8193, 1024),
    2: range(4096, 16385, 1024),
    4: range(8192, 30721, 1024),
    8: range(16384, 61441, 4096),
    16: range(32768, 122881, 8192),
    32: (61440, 122880, 249856),
}
Answer = tuple[int, Mapping[str, str], bytes]


class BatchError(Exception):
    """An error with the code that Batch answers."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code, self.message = code, message


@cache
def _operations() -> Mapping[str, Any]:
    """The operations' models by their paths."""
    model = get_session().get_service_model("batch")
    models = [model.operation_model(name) for name in model.operation_names]
    # Of those about tags, only one is a POST.
    return {str(one.http["requestUri"]): one for one in models if one.http["method"] == "POST"}


class FakeBatch(FakeHttpServer):
    """One account and Region. ``now_ms`` is its clock.

    ``refused`` operations are not allowed, ``failing`` ones answer with a server's fault, ``lost``
    ones as well, after they were done, and the next ``throttled`` requests are too many. ``calls``
    has each operation with its request, which ``before`` sees before the answer. ``on_submit`` and
    ``on_terminate`` see each job of such a request.
    """

    def __init__(self) -> None:
        super().__init__()
        answer_here(self.url, self.answer)
        self.now_ms = NOW_MS
        self.queues: dict[str, Json] = {}
        self.environments: dict[str, Json] = {}
        self.definitions: list[Json] = []
        self.jobs: dict[str, Json] = {}
        self.consumables: dict[str, int] = {}
        self.refused: set[str] = set()
        self.failing: set[str] = set()
        self.lost: set[str] = set()
        self.throttled = 0
        self.calls: list[tuple[str, Json]] = []
        self.on_submit: Callable[[Json], object] = lambda _job: None
        self.on_terminate: Callable[[Json], object] = lambda _job: None
        self.before: Callable[[str, Json], object] = lambda _operation, _asked: None

    def close(self) -> None:
        answer_over_sockets(self.url)
        super().close()

    def environment(self) -> dict[str, str]:
        """The variable by which boto3 reaches this server alone for Batch."""
        return {"AWS_ENDPOINT_URL_BATCH": self.url}

    def client(self) -> Any:
        return boto3.client(
            "batch",
            endpoint_url=self.url,
            region_name=REGION,
            aws_access_key_id="a",
            aws_secret_access_key="b",
            config=Config(retries={"total_max_attempts": 1}),
        )

    def requests(self, operation: str) -> list[Json]:
        return [request for name, request in self.calls if name == operation]

    def add_environment(self, name: str, **more: Any) -> None:
        """A managed environment on Fargate."""
        resources = {"type": "FARGATE", "maxvCpus": 16, "subnets": ["subnet-1"]}
        cluster = f"AWSBatch-{name}-0a1b2c3d-1111-2222-3333-444455556666"
        self.environments[name] = {
            "computeEnvironmentName": name,
            "computeEnvironmentArn": arn("compute-environment", name),
            "ecsClusterArn": arn("cluster", cluster, service="ecs"),
            "type": "MANAGED",
            "state": "ENABLED",
            "status": "VALID",
            "statusReason": "ComputeEnvironment Healthy",
            "computeResources": resources | more.pop("computeResources", {}),
            "containerOrchestrationType": "ECS",
            **more,
        }

    def add_queue(self, name: str, *environments: str, **more: Any) -> None:
        """A queue with its environments in this order, which are made on Fargate if missing."""
        for environment in environments:
            if environment not in self.environments:
                self.add_environment(environment)
        order = [
            {"order": place, "computeEnvironment": arn("compute-environment", environment)}
            for place, environment in enumerate(environments, 1)
        ]
        self.queues[name] = {
            "jobQueueName": name,
            "jobQueueArn": arn("job-queue", name),
            "state": "ENABLED",
            "status": "VALID",
            "statusReason": "JobQueue Healthy",
            "priority": 1,
            "computeEnvironmentOrder": order,
            **more,
        }

    def define(self, name: str, vcpu: float = 1, memory_mb: int = 2048, **more: Any) -> str:
        """Register a definition with one container on Fargate; returns its ARN."""
        sizes = [
            {"type": "VCPU", "value": f"{vcpu:g}"},
            {"type": "MEMORY", "value": str(memory_mb)},
        ]
        container = {
            "image": "etl:26",
            "environment": [dict(one) for one in batch_jobs.SECRET_VARIABLES],
            "resourceRequirements": sizes,
        }
        given: Json = {"jobDefinitionName": name, "type": "container", **more}
        if not any(kind in given for kind in _PROPERTIES):
            given["containerProperties"] = container
            given.setdefault("platformCapabilities", ["FARGATE"])
        made = self._RegisterJobDefinition(given)
        return str(made["jobDefinitionArn"])

    def submit(self, name: str, queue: str, definition: str, **more: Any) -> Json:
        """Submit a job; returns it as the service keeps it."""
        asked = {"jobName": name, "jobQueue": queue, "jobDefinition": definition, **more}
        return self.jobs[self._SubmitJob(asked)["jobId"]]

    def begin(self, job: Json, **more: Any) -> None:
        """The next attempt starts now."""
        batch_jobs.begin(job, self.now_ms, **more)

    def end(
        self, job: Json, exit_code: int | None = 0, reason: str | None = None, **more: Any
    ) -> None:
        """The attempt ends now."""
        batch_jobs.end(job, self.now_ms, exit_code, reason, **more)

    def event(self, job: Json) -> Json:
        """Batch's event of the job's present state."""
        return batch_jobs.job_event(job, self.now_ms)

    def answer(self, request: Any, body: bytes) -> Answer:
        path = request.path.partition("?")[0]
        asked: Json = json.loads(body or b"{}")
        if path.startswith(_TAGS):
            asked["resourceArn"] = unquote(path.removeprefix(_TAGS))
            path = f"{_TAGS}{{resourceArn}}"
        model = _operations()[path]
        self.calls.append((model.name, asked))
        self.before(model.name, asked)
        try:
            self._check(model, asked)
            answered = getattr(self, f"_{model.name}")(asked)
            if model.name == "SubmitJob":
                self.on_submit(self.jobs[answered["jobId"]])
        except BatchError as error:
            return _error(error)
        if model.name in self.lost:
            return _error(BatchError("ServerException", "Internal Server Error"))
        _check_shape(model.output_shape, _with_starts(answered))
        return 200, {"Content-Type": "application/json"}, json.dumps(answered).encode()

    def _check(self, model: Any, asked: Json) -> None:
        if self.throttled:
            self.throttled -= 1
            raise BatchError("TooManyRequestsException", "Too Many Requests")
        if model.name in self.refused:
            user = f"User: arn:aws:sts::{ACCOUNT}:assumed-role/ci/session"
            message = f"{user} is not authorized to perform: batch:{model.name} on resource: *"
            raise BatchError("AccessDeniedException", message)
        if model.name in self.failing:
            raise BatchError("ServerException", "Internal Server Error")
        report = ParamValidator().validate(asked, model.input_shape)
        if report.has_errors():
            raise _refusal(report.generate_report())

    def _kept(self) -> list[Json]:
        """The jobs that Batch still knows: those that ended are forgotten after seven days."""
        return [
            job
            for job in self.jobs.values()
            if job["status"] not in ENDED or self.now_ms - job["stoppedAt"] <= KEPT_MS
        ]

    def _DescribeJobs(self, asked: Json) -> Json:  # noqa: N802  the name of the operation
        if len(asked["jobs"]) > _MAX_IDS:
            raise _refusal(f"jobs must be at most {_MAX_IDS} items.")
        kept = {job["jobId"]: job for job in self._kept()}
        named = [kept[name] for name in dict.fromkeys(asked["jobs"]) if name in kept]
        return {"jobs": list(map(self._with_children, named))}

    def _ListJobs(self, asked: Json) -> Json:  # noqa: N802
        places = [name for name in ("jobQueue", "arrayJobId", "multiNodeJobId") if asked.get(name)]
        if len(places) != 1:
            raise _refusal("Please specify exactly one of jobQueue, arrayJobId, multiNodeJobId.")
        filters = asked.get("filters", ())
        if len(filters) > 1 or (filters and places != ["jobQueue"]):
            raise _refusal("Only one filter can be used, and only with jobQueue.")
        if places == ["jobQueue"]:
            queue = self._queue(asked["jobQueue"])
            listed = [job for job in self._kept() if job["jobQueue"] == queue["jobQueueArn"]]
            listed = [job for job in listed if not re.search("[:#]", job["jobId"])]
        else:
            parent, mark = asked[places[0]], "#" if places == ["multiNodeJobId"] else ":"
            listed = [job for job in self._kept() if job["jobId"].startswith(f"{parent}{mark}")]
        if filters:
            name, values = filters[0]["name"], filters[0]["values"]
            listed = [job for job in listed if _passes(job, name, values)]
            listed.sort(key=lambda job: job["createdAt"], reverse=True)
            if name == "JOB_NAME":
                groups = list(dict.fromkeys(map(_name_and_version, listed)))
                listed.sort(key=lambda job: groups.index(_name_and_version(job)))
        else:
            status = asked.get("jobStatus", "RUNNING")
            listed = [job for job in listed if job["status"] == status]
        page = _PAGE if filters else _STATUS_PAGE
        listed = list(map(self._with_children, listed))
        return _page("jobSummaryList", list(map(_summary, listed)), asked, page)

    def _with_children(self, job: Json) -> Json:
        """The job; the parent of an array with its children by their status."""
        array = job.get("arrayProperties", {})
        if "size" not in array or array.get("statusSummary"):
            return job
        children = [one for name, one in self.jobs.items() if name.startswith(f"{job['jobId']}:")]
        counts = Counter(child["status"] for child in children)
        return {**job, "arrayProperties": {**array, "statusSummary": dict(counts)}}

    def _DescribeJobQueues(self, asked: Json) -> Json:  # noqa: N802
        found = _named(self.queues, asked.get("jobQueues", ()))
        return _page("jobQueues", found, asked)

    def _DescribeComputeEnvironments(self, asked: Json) -> Json:  # noqa: N802
        found = _named(self.environments, asked.get("computeEnvironments", ()))
        return _page("computeEnvironments", found, asked)

    def _DescribeJobDefinitions(self, asked: Json) -> Json:  # noqa: N802
        names = asked.get("jobDefinitions")
        if names and len(names) > _MAX_IDS:
            raise _refusal(f"jobDefinitions must be at most {_MAX_IDS} items.")
        found = [
            one
            for one in reversed(self.definitions)
            if asked.get("status") in (None, one["status"])
            and asked.get("jobDefinitionName") in (None, one["jobDefinitionName"])
            and (not names or _definition_names(one) & set(names))
        ]
        return _page("jobDefinitions", found, asked)

    def _GetJobQueueSnapshot(self, asked: Json) -> Json:  # noqa: N802
        queue = self._queue(asked["jobQueue"])["jobQueueArn"]
        runnable = [
            {"jobArn": job["jobArn"], "earliestTimeAtPosition": job["createdAt"]}
            for job in self._kept()
            if job["jobQueue"] == queue and job["status"] == "RUNNABLE"
        ]
        return {"frontOfQueue": {"jobs": runnable[:100], "lastUpdatedAt": self.now_ms}}

    def _DescribeConsumableResource(self, asked: Json) -> Json:  # noqa: N802
        name = asked["consumableResource"].rpartition("/")[2]
        if name not in self.consumables:
            raise _refusal(f"Consumable resource {name} not found.")
        return {
            "consumableResourceName": name,
            "consumableResourceArn": arn("consumable-resource", name),
            "availableQuantity": self.consumables[name],
        }

    def _RegisterJobDefinition(self, asked: Json) -> Json:  # noqa: N802
        name = asked["jobDefinitionName"]
        if not re.fullmatch(r"[A-Za-z0-9_-]{1,128}", name):
            raise _refusal(f"Job definition name should match valid pattern: {name}")
        if sum(kind in asked for kind in _PROPERTIES) != 1:
            raise _refusal(f"exactly one of {', '.join(_PROPERTIES)} must be given.")
        tasks = asked.get("ecsProperties", {}).get("taskProperties", [])
        if "ecsProperties" in asked and len(tasks) != 1:
            raise _refusal("taskProperties must have exactly one element.")
        containers = tasks[0]["containers"] if tasks else [asked.get("containerProperties", {})]
        if "FARGATE" in asked.get("platformCapabilities", ()):
            _check_fargate(containers)
        elif not {"nodeProperties", "eksProperties"} & asked.keys():
            _check_instances(containers)
        if len(asked.get("tags", {})) > _MAX_TAGS:
            raise _refusal(f"Number of tags must be at most {_MAX_TAGS}.")
        revisions = [one["revision"] for one in self._revisions(name)]
        revision = max(revisions, default=0) + 1
        made = {
            "revision": revision,
            "jobDefinitionArn": arn("job-definition", f"{name}:{revision}"),
        }
        orchestration = "EKS" if "eksProperties" in asked else "ECS"
        kept = {"parameters": {}, "tags": {}, **deepcopy(asked)}
        if "containerProperties" in kept:
            kept["containerProperties"] = {
                **{name: [] for name in _EMPTY_LISTS},
                **kept["containerProperties"],
            }
        self.definitions.append(
            {**kept, **made, "status": "ACTIVE", "containerOrchestrationType": orchestration}
        )
        return {"jobDefinitionName": name, **made}

    def _DeregisterJobDefinition(self, asked: Json) -> Json:  # noqa: N802
        self.definition(asked["jobDefinition"])["status"] = "INACTIVE"
        return {}

    def _TagResource(self, asked: Json) -> Json:  # noqa: N802
        found = [one for one in self.definitions if one["jobDefinitionArn"] == asked["resourceArn"]]
        if not found:
            raise _refusal(f"Resource {asked['resourceArn']} not found.")
        found[0]["tags"] = {**found[0]["tags"], **asked["tags"]}
        return {}

    def _SubmitJob(self, asked: Json) -> Json:  # noqa: N802
        queue = self._queue(asked["jobQueue"])
        if queue["state"] != "ENABLED" or queue["status"] != "VALID":
            raise _refusal(f"JobQueue {queue['jobQueueArn']} is not in ENABLED state")
        definition = self.definition(asked["jobDefinition"])
        if definition["status"] != "ACTIVE":
            raise _refusal(f"JobDefinition {definition['jobDefinitionArn']} is not active.")
        if "containerOverrides" in asked and "containerProperties" not in definition:
            raise _refusal("containerOverrides are not allowed for this job definition.")
        if "ecsPropertiesOverride" in asked and "ecsProperties" not in definition:
            raise _refusal("ecsPropertiesOverride is not allowed for this job definition.")
        if len(json.dumps(asked.get("containerOverrides", {}))) > _MAX_OVERRIDES:
            raise _refusal("Container Overrides length must be at most 8192")
        made = submitted(asked, queue, definition, len(self.jobs), self.now_ms)
        if "FARGATE" in made[0]["platformCapabilities"]:
            of_task = made[0].get("ecsProperties", {}).get("taskProperties", [{}])[0]
            _check_fargate(of_task.get("containers") or [made[0]["container"]])
        self.jobs |= {job["jobId"]: job for job in made}
        return {name: made[0][name] for name in ("jobArn", "jobName", "jobId")}

    def _TerminateJob(self, asked: Json) -> Json:  # noqa: N802
        job = self.jobs.get(asked["jobId"])
        if job is None:
            raise _refusal(f"Job {asked['jobId']} not found.")
        if job["status"] not in ENDED:
            batch_jobs.terminate(job, self.now_ms, asked["reason"])
            self.on_terminate(job)
        return {}

    def _queue(self, name: str) -> Json:
        found = _named(self.queues, [name])
        if not found:
            raise _refusal(f"JobQueue {name} not found.")
        return found[0]

    def _revisions(self, name: str) -> list[Json]:
        return [one for one in self.definitions if one["jobDefinitionName"] == name]

    def definition(self, name: str) -> Json:
        """The definition of an ARN, or of ``NAME:REVISION``; of a name, the newest active one."""
        for one in reversed(self.definitions):
            if name in _definition_names(one):
                return one
            is_named = name.rpartition("/")[2] == one["jobDefinitionName"]
            if is_named and one["status"] == "ACTIVE":
                return one
        raise _refusal(f"Unable to find job definition {name}.")


def _definition_names(definition: Json) -> set[str]:
    arn_, name = definition["jobDefinitionArn"], definition["jobDefinitionName"]
    return {arn_, f"{name}:{definition['revision']}"}


def _refusal(reason: str) -> BatchError:
    return BatchError("ClientException", f"Error executing request, Exception : {reason}")


def _error(error: BatchError) -> Answer:
    headers = {"Content-Type": "application/json", "x-amzn-ErrorType": error.code}
    return _STATUS.get(error.code, 403), headers, json.dumps({"message": error.message}).encode()


def _check_shape(shape: Any, answered: Json) -> None:
    report = ParamValidator().validate(answered, shape)
    assert not report.has_errors(), report.generate_report()


def _with_starts(answered: Json) -> Json:
    """The model requires ``startedAt`` of a job, which the service leaves out before its start."""
    jobs = answered.get("jobs")
    return answered if jobs is None else {"jobs": [{"startedAt": 0, **job} for job in jobs]}


def _named(items: Mapping[str, Json], names: Iterable[str]) -> list[Json]:
    """The items with these names or ARNs, or all; an unknown name is left out."""
    wanted = [name.rpartition("/")[2] for name in names]
    return [item for name, item in items.items() if not wanted or name in wanted]


def _page(field: str, items: Sequence[Json], asked: Json, most: int = _PAGE) -> Json:
    """One page; the token is the index of the next one's first item."""
    start = int(asked.get("nextToken", 0))
    end = start + min(asked.get("maxResults", most), most)
    answered: Json = {field: list(items[start:end])}
    return answered | ({"nextToken": str(end)} if end < len(items) else {})


def _name_and_version(job: Json) -> tuple[str, str]:
    """By which the results of the filter JOB_NAME are grouped."""
    return job["jobName"], job["jobDefinition"]


def _passes(job: Json, name: str, values: Sequence[str]) -> bool:
    definition = job["jobDefinition"].rpartition("/")[2].partition(":")[0]
    checks: Mapping[str, Callable[[str], bool]] = {
        "JOB_NAME": lambda value: _begins(job["jobName"].lower(), value.lower()),
        "JOB_DEFINITION": lambda value: (
            job["jobDefinition"] == value if ":" in value else _begins(definition, value)
        ),
        "BEFORE_CREATED_AT": lambda value: job["createdAt"] < int(value),
        "AFTER_CREATED_AT": lambda value: job["createdAt"] > int(value),
        "SHARE_IDENTIFIER": lambda value: job.get("shareIdentifier") == value,
    }
    if name not in checks:
        raise _refusal(f"Unknown filter {name}.")
    return any(map(checks[name], values))


def _begins(name: str, value: str) -> bool:
    return name.startswith(value[:-1]) if value.endswith("*") else name == value


def _summary(job: Json) -> Json:
    """The job in a list: without its container's sizes and its attempts."""
    names = (
        *("jobArn", "jobId", "jobName", "createdAt", "shareIdentifier", "status", "statusReason"),
        *("startedAt", "stoppedAt", "jobDefinition", "isCancelled", "isTerminated"),
    )
    summary = {name: job[name] for name in names if name in job}
    container = job.get("container", {})
    ended = {name: container[name] for name in ("exitCode", "reason") if name in container}
    array = job.get("arrayProperties", {})
    of_array = ("size", "index", "statusSummary") if "size" in array else ("index",)
    placed = {name: array[name] for name in of_array if name in array}
    return (
        summary
        | ({"container": ended} if ended else {})
        | ({"arrayProperties": placed} if placed else {})
    )


def _check_fargate(containers: Sequence[Json]) -> None:
    """The sums of all containers are one size of Fargate."""
    if any("vcpus" in one or "memory" in one for one in containers):
        raise _refusal("vcpus and memory are not supported on Fargate: use resourceRequirements.")
    vcpu = round(sum(requirement(one, "VCPU") for one in containers), 6)
    memory_mb = sum(requirement(one, "MEMORY") for one in containers)
    if memory_mb not in _FARGATE_MIB.get(vcpu, ()):
        sentence = "Fargate resource requirements (%.2f vCPU, %d MiB) not valid."
        raise _refusal(sentence % (vcpu, memory_mb))


def _check_instances(containers: Sequence[Json]) -> None:
    """A container on EC2 has at least one vCPU, if it says how many."""
    for one in containers:
        if 0 < requirement(one, "VCPU") < 1 or 0 < requirement(one, "MEMORY") < _LEAST_MIB:
            raise _refusal("Invalid vCPU or memory: at least 1 vCPU and 4 MiB are needed.")


def requirement(container: Json, kind: str) -> float:
    """What the container asks for of one kind; 0 for nothing."""
    values = (
        float(one["value"])
        for one in container.get("resourceRequirements", ())
        if one["type"] == kind
    )
    return next(values, float(container.get({"VCPU": "vcpus", "MEMORY": "memory"}[kind], 0)))
