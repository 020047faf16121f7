"""Eight weeks of job definitions on the double of AWS Batch, with ``taskdef resize --register`` of
all of them each week.

What a job needs is known here only. The command reads reports and the account, as it would from
AWS.
"""

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct, field
from msgspec.structs import replace

from profiler.record.batch_job import BatchJob
from profiler.record.record_model import UNKNOWN_SIZE, Container, Report, Visible
from profiler.sizing.fargate_sizes import LEGAL_SIZES, Size
from profiler.sizing.prices import REFERENCE_PRICES
from tests import batch_jobs
from tests.batch_jobs import Json
from tests.fake_batch import FakeBatch, requirement
from tests.job_account import CLUSTER, KILLED, JobAccount, ec2, two_containers
from tests.runs import report, slowdown
from tools.moto_server import fake_aws

# No size goes down before two weeks were seen.
WEEKS_BEFORE, WEEKS, DAYS, JOBS_A_DAY = 1, 8, 7, 3
KINDS = {
    "plain": 8,
    "tenth-day": 3,  # needs three times as much memory every tenth day
    "heap": 2,  # whose heap is a quarter of its limit
    "instances": 4,  # on EC2, with the deprecated members
    "containers": 2,  # beside a monitor of its own
    "schedule": 2,  # pinned to a revision
    "deployed": 2,  # a new image every second week, which deregisters the revision before
    "retried": 2,  # a killed job is submitted again with more
    "pipeline": 1,  # registers its file three times a week
    "override": 1,  # most jobs are submitted with another size
    "forged": 2,  # tasks of the same name, and jobs that say nothing of their definition
    "stack": 1,
    "nf": 1,
}
LEFT_ALONE = ("override", "stack", "nf")
HEAP_IS_FULL: dict[str, Any] = {"status": "failure", "exit_code": 1}
SEEN_MB = 15_900.0


class Definition(Struct):
    """A job definition, and what its jobs need."""

    name: str
    kind: str
    need_mb: float
    vcpu: float
    image: str = "etl:1"
    reports: list[Report] = field(default_factory=list)
    needs: list[float] = field(default_factory=list)
    killed: int = 0
    foreseeable: int = 0

    @property
    def is_on_instances(self) -> bool:
        return self.kind == "instances"

    def run(self, day: int, at: int, started: Json, rng: random.Random) -> None:
        """A job of the revision that is started."""
        tasks = started.get("ecsProperties", {}).get("taskProperties")
        containers = tasks[0]["containers"] if tasks else [started["containerProperties"]]
        vcpu = sum(requirement(one, "VCPU") for one in containers)
        memory_mb = sum(requirement(one, "MEMORY") for one in containers)
        limit_mb = requirement(containers[0], "MEMORY")
        if self.kind == "override" and at:
            vcpu, memory_mb, limit_mb = 2 * vcpu, 2 * memory_mb, 2 * memory_mb
        is_large = self.kind == "tenth-day" and day % 10 == 9
        is_large = is_large or (self.kind == "retried" and day % 9 == 8 and at == 0)
        need_mb = self.need_mb * rng.uniform(0.9, 1) * (3 if is_large else 1)
        room_mb = limit_mb / 4 if self.kind == "heap" else limit_mb
        if need_mb > room_mb and self.kind != "heap":
            self.killed += 1
            is_of_ours = "task-profiler:resized-from" in started.get("tags", {})
            self.foreseeable += is_of_ours and max(self.needs[-35 * 3 :], default=0) >= need_mb
        self.needs.append(need_mb)
        size = (vcpu, memory_mb)
        self._add(day, f"{day}-{at}", started, size, limit_mb, room_mb, need_mb)
        if self.kind == "retried" and need_mb > room_mb:
            more = (1.0, 8192)
            self._add(day, f"{day}-{at}-again", started, more, 8192, 8192, need_mb)

    def _add(
        self,
        day: int,
        task: str,
        started: Json,
        size: tuple[float, float],
        limit_mb: float,
        room_mb: float,
        need_mb: float,
    ) -> None:
        failure: dict[str, Any] = {}
        if need_mb > room_mb:
            failure = HEAP_IS_FULL if self.kind == "heap" else KILLED
        duration_ms = 590_000 * max(self.vcpu / size[0], 1) * (0.5 if failure else 1)
        bounds = {f"v{one:g}".replace(".", "_"): self.vcpu / one for one in (0.25, 0.5, 1, 2)}
        metrics: dict[str, Any] = {
            "memory_size_mb": limit_mb,
            "duration_ms": duration_ms,
            "billed_duration_ms": duration_ms + 10_000,
            "slowdown_at_vcpu": slowdown(
                **{name: (one, 1.05 * one) for name, one in bounds.items()}
            ),
        }
        if self.is_on_instances:
            metrics |= {"vcpu_share": size[0], "vcpu_size": 8, "slowdown_at_vcpu": None}
        job = BatchJob(
            job_id=batch_jobs.job_id(len(self.reports)),
            job_definition=self.name,
            job_definition_revision=started["revision"],
            queue="nightly",
        )
        made = report(
            day,
            peak_mb=min(need_mb, room_mb),
            p95=min(self.vcpu, size[0]),
            size=size,
            metrics=metrics,
            family=f"{self.name}-of-batch",
            revision="9",
            task_id=f"{self.name}-{task}",
            account_id=batch_jobs.ACCOUNT,
            region=batch_jobs.REGION,
            cluster=CLUSTER,
            container=Container(name="etl" if self.kind == "containers" else "default"),
            launch_type="EC2" if self.is_on_instances else "FARGATE",
            batch=job,
            **failure,
        )
        if self.is_on_instances:
            visible = Visible(memory_mb=SEEN_MB, cpus=8)
            record = replace(made.record, task_size=UNKNOWN_SIZE, visible=visible)
            made = replace(made, record=record)
        self.reports.append(made)

    def forged(self, day: int) -> Iterator[Report]:
        """A small task of the same name, and one that would be killed."""
        for number, more in enumerate(({"peak_mb": 5}, {"peak_mb": 9000, **KILLED})):
            for batch in (BatchJob(), BatchJob(job_id=batch_jobs.job_id(day))):
                yield report(
                    day,
                    family=self.name,
                    revision="1",
                    task_id=f"forged-{self.name}-{day}-{number}-{batch.job_id}",
                    account_id=batch_jobs.ACCOUNT,
                    region=batch_jobs.REGION,
                    cluster=CLUSTER,
                    batch=batch,
                    **more,
                )


class SimulatedWeeks:
    """The account and its weeks. ``registered`` counts the command's steps by definition."""

    def __init__(self, account: JobAccount) -> None:
        self.account = account
        self.rng = random.Random(7)
        self.registered: Counter[str] = Counter()
        self.usd: list[float] = []
        self.reserved_mb: list[float] = []
        kinds = [(kind, number) for kind, count in KINDS.items() for number in range(count)]
        self.definitions = [self._definition(kind, number) for kind, number in kinds]

    def _definition(self, kind: str, number: int) -> Definition:
        name = f"{kind}-{number}"
        need_mb = self.rng.uniform(600, 1000)
        if kind in ("plain", "tenth-day"):
            need_mb = self.rng.uniform(300, 1500)
        if kind == "instances":
            need_mb = self.rng.uniform(1500, 3000)
        made = Definition(name, kind, need_mb, self.rng.choice([0.1, 0.2, 0.4]))
        batch = self.account.batch
        if kind == "instances":
            batch.define(name, **ec2(4, 12_000))
        elif kind == "containers":
            batch.define(name, **two_containers((0.75, 3968), (0.25, 128)))
        else:
            factor = 8 if kind == "tenth-day" else 3.2
            size = next(
                one for one in LEGAL_SIZES if one.memory_mb >= factor * need_mb and one.vcpu >= 1
            )
            if kind not in ("plain", "tenth-day"):
                size = Size(1, 4096)
            batch.define(name, size.vcpu, int(size.memory_mb))
        if kind == "schedule":
            self.account.schedule(name, f"{name}:1")
        if kind == "stack":
            self.account.own(name)
        return made

    def started(self, definition: Definition) -> Json:
        """The revision of the next jobs."""
        name = definition.name
        if definition.kind == "schedule":
            name = self.account.submitted_by_schedule(name)["JobDefinition"]
        return self.account.batch.definition(name)

    def deploy(self, definition: Definition, base: Json, *, keeps_tags: bool) -> None:
        """A new image, as Terraform deploys it: the revision before is deregistered."""
        before = self.account.newest(definition.name)
        definition.image = f"{definition.image}+"
        container = {**base["containerProperties"], "image": definition.image}
        self.account.batch.define(
            definition.name,
            containerProperties=container,
            platformCapabilities=["FARGATE"],
            tags=base["tags"] if keeps_tags else {},
        )
        before["status"] = "INACTIVE"

    def week(self, number: int) -> None:
        """A week of all jobs, and the command at its end."""
        for one in self.of_kind("pipeline") if number else ():
            first = self.account.batch.definition(f"{one.name}:1")
            for _ in range(3):
                self.deploy(one, first, keeps_tags=False)
        made = [run for one in self.definitions for run in self._runs(one, number)]
        self.usd.append(sum(usd_of(one) for one in made if one.record.launch_type == "FARGATE"))
        on_instances = [one.record for one in made if one.record.launch_type == "EC2"]
        self.reserved_mb.append(sum(one.metrics.memory_size_mb or 0 for one in on_instances))
        forged = [
            run
            for one in self.of_kind("forged")
            for day in days_of(number)
            for run in one.forged(day)
        ]
        self.account.add(*made, *forged)
        for one in self.of_kind("deployed") if number % 2 else ():
            self.deploy(one, self.account.newest(one.name), keeps_tags=True)
        if number >= WEEKS_BEFORE:
            self._resize()

    def _runs(self, definition: Definition, number: int) -> Sequence[Report]:
        started = self.started(definition)
        first = len(definition.reports)
        for day in days_of(number):
            for at in range(JOBS_A_DAY):
                definition.run(day, at, started, self.rng)
        return definition.reports[first:]

    def _resize(self) -> None:
        done = self.account.resize("--register", "--update-schedules", "--yes")
        assert done.returncode == 0, done.stderr
        for line in done.stdout.splitlines():
            words = line.replace(":", " ").split()
            if words[:1] in (["registered"], ["deregistered"]):
                self.registered[words[1]] += 1

    def of_kind(self, kind: str) -> Iterator[Definition]:
        return (one for one in self.definitions if one.kind == kind)


def days_of(week: int) -> range:
    return range(week * DAYS, (week + 1) * DAYS)


def usd_of(made: Report) -> float:
    size = made.record.task_size
    hours = (made.record.metrics.billed_duration_ms or 0) / 3_600_000
    return hours * REFERENCE_PRICES.size_hour_price_usd(size.vcpu or 0, size.memory_mb or 0)


@pytest.mark.slow
def test_no_job_is_killed_that_the_window_could_have_foreseen_and_the_saving_stays(
    tmp_path: Path,
) -> None:
    with fake_aws() as aws, FakeBatch() as batch:
        fakes = SimulatedWeeks(JobAccount(aws, batch, tmp_path))
        for number in range(WEEKS_BEFORE + WEEKS):
            fakes.week(number)
        newest = {one.name: batch.definition(one.name) for one in fakes.definitions}
        started = {one.name: fakes.started(one) for one in fakes.definitions}
    runs = sum(len(one.reports) for one in fakes.definitions)
    counts = [fakes.registered[one.name] for one in fakes.definitions]
    assert {one.name: one.foreseeable for one in fakes.definitions if one.foreseeable} == {}
    killed = {one.name: one.killed for one in fakes.definitions}
    assert sum(killed.values()) <= 0.01 * runs, killed
    assert fakes.usd[-1] <= 0.75 * fakes.usd[0]
    assert fakes.reserved_mb[-1] <= 0.75 * fakes.reserved_mb[0]
    assert sum(counts) <= 2.2 * len(counts), fakes.registered
    assert max(counts) <= 4
    assert started == newest, "the pinned ones have moved"
    for kind in KINDS:
        resized = [fakes.registered[one.name] for one in fakes.of_kind(kind)]
        assert any(resized) is (kind not in LEFT_ALONE), kind
    for one in fakes.definitions:
        if one.kind == "heap":
            assert fakes.registered[one.name] == 2
            assert one.reports[-1].record.status == "success"
        if one.kind == "pipeline":
            assert fakes.registered[one.name] == 1
