"""A played AWS for retries of jobs of AWS Batch that were killed for memory."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

from msgspec.structs import replace

from profiler.aws_account.scheduled_targets import ScheduledTarget
from profiler.forwarder.ended_run import MemoryRetry
from profiler.forwarder.job_retry import JobAwsClients, JobRetrier
from profiler.record.batch_job_detail import JobDetail, parse_job
from tests.batch_jobs import ACCOUNT, REGION
from tests.fake_batch import FakeBatch
from tests.notices import KeyTable
from tests.values import present

KILLED = "OutOfMemoryError: Container killed due to memory usage"
RETRY_OF = "task-profiler:retry-of"
INSTANCE = f"arn:aws:ecs:{REGION}:{ACCOUNT}:container-instance/AWSBatch-spot/0a1b"
Json = dict[str, Any]
Job = Json


@contextmanager
def batch_with_etl() -> Iterator[FakeBatch]:
    """A played Batch with a queue, ``nightly``, and a definition, ``etl``, of two attempts."""
    with FakeBatch() as fake:
        fake.add_queue("nightly", "spot")
        fake.define("etl", 1, 4096, retryStrategy={"attempts": 2})
        yield fake


class Instances:
    """The ECS client: one instance, which registers so much memory; None: it is gone."""

    def __init__(self) -> None:
        self.registered_mb: int | None = 7_985

    def describe_container_instances(self, *, cluster: str, containerInstances: list[str]) -> Any:
        assert (cluster, containerInstances) == ("AWSBatch-spot", [INSTANCE])
        if self.registered_mb is None:
            return {"containerInstances": [], "failures": [{"reason": "MISSING"}]}
        memory = {"name": "MEMORY", "integerValue": self.registered_mb}
        return {"containerInstances": [{"registeredResources": [{"name": "CPU"}, memory]}]}


class JobSchedules:
    """The schedules and rules, which are all asked for once."""

    def __init__(self) -> None:
        self.targets: list[ScheduledTarget] = []
        self.error: Exception | None = None

    def add(self, **settings: Any) -> None:
        target = ScheduledTarget(
            kind="schedule",
            name=f"night-{len(self.targets)}",
            group="default",
            cluster_arn="",
            definition_arn="etl",
            content=settings,
            job_name="orders",
        )
        self.targets.append(target)

    def targets_of_job(
        self, job_name: str, definition: str, queue_arn: str
    ) -> tuple[ScheduledTarget, ...]:
        assert ":job-queue/" in queue_arn
        if self.error is not None:
            raise self.error
        asked = (job_name, definition)
        return tuple(one for one in self.targets if (one.job_name, one.family) == asked)


class RetriedJobs:
    """Everything that a retry of a job uses. ``table`` is that of keys, ``begun`` of calls."""

    def __init__(self, batch: FakeBatch) -> None:
        self.batch = batch
        self.instances = Instances()
        self.table: KeyTable = KeyTable()
        self.begun: KeyTable | None = KeyTable()
        self.warnings: list[str] = []
        client = batch.client()
        self.schedules: Any = JobSchedules()
        self.clients = JobAwsClients(client, client, self.instances, self.schedules)

    @property
    def retries(self) -> JobRetrier:
        return JobRetrier(
            ("etl*", "nf-*"),
            61_440,
            aws=lambda: self.clients,
            remember=self.table.once,
            begin=None if self.begun is None else self.begun.once,
            now=lambda: datetime.fromtimestamp(self.batch.now_ms / 1000, UTC),
            warn=self.warnings.append,
        )

    def handle(self, job: Job, **told: Any) -> MemoryRetry | None:
        return self.retries.retry_killed_job(replace(detail(job), **told))

    def refusal(self, job: Job, **told: Any) -> str:
        """Why a job is not started again; the log has it with the job's id, and a repeat says it,
        too.
        """
        retry = present(self.handle(job, **told))
        assert retry.retried_as is None
        assert self.warnings == [f"Job {job['jobId']}: {retry.sentence}"]
        assert self.handle(job, **told) == retry
        assert self.batch.requests("SubmitJob") == []
        return retry.sentence.removeprefix("Not started again: ")

    def request(self, job: Job) -> Json:
        """What was submitted for the job."""
        retry = present(self.handle(job))
        assert retry.sentence.startswith("Started again with "), retry.sentence
        (request,) = self.batch.requests("SubmitJob")
        return request


def detail(job: Job) -> JobDetail:
    return present(parse_job(job))


def killed(batch: FakeBatch, definition: str = "etl", **asked: Any) -> Job:
    """A job whose only attempt was killed for memory."""
    asked = {"retryStrategy": {"attempts": 1}} | asked
    job = batch.submit("orders", "nightly", definition, **asked)
    fail(batch, job)
    return job


def fail(batch: FakeBatch, job: Job, code: int = 137, reason: str | None = KILLED) -> None:
    batch.begin(job)
    batch.now_ms += 60_000
    batch.end(job, code, reason)
