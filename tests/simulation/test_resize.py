"""Eight weeks of forty families in an account on moto, with ``taskdef resize --register`` each
week.

What a run needs is known here only. The command reads reports and the account, as it would from
AWS.
"""

import json
import random
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct, field

from profiler.core.ecs_terms import family_of
from profiler.record.record_model import Report, TaskSize
from profiler.sizing.fargate_sizes import LEGAL_SIZES, Size
from profiler.sizing.prices import REFERENCE_PRICES
from profiler.task_definitions.size_changes import definition_size, without_size
from tests.aws_proxy import AwsProxy, ProxiedAccount
from tests.family_windows import lately
from tests.runs import lines, report, slowdown
from tools.moto_server import fake_aws, start_by_schedule

# No size goes down before two weeks were seen.
WEEKS_BEFORE, WEEKS, DAYS, RUNS_A_DAY = 1, 8, 7, 3
ACCOUNT = "123456789012"
ARN = f"arn:aws:ecs:us-east-1:{ACCOUNT}"
KINDS = {
    "plain": 17,
    "tenth day": 4,  # needs three times as much memory every tenth day
    "heap": 2,  # a JVM, whose heap is a quarter of its limit
    "limits": 4,  # of each container, with the monitor's
    "schedule": 2,  # pinned, like the rules
    "rule": 2,
    "deployed": 2,  # a new image every second week, on the newest revision
    "meanwhile": 1,  # a new image between the plan and the call
    "pipeline": 1,  # registers its file three times a week
    "refused": 1,  # in the first week
    "stack": 1,
    "service": 1,
    "override": 1,  # RunTask gets another size
    "ec2": 1,
}
LEFT_ALONE = ("stack", "service", "override", "ec2")
MONITOR = {
    "name": "task-monitor",
    "image": "team/task-profiler:1",
    "memory": 128,
    "memoryReservation": 32,
}
KILLED: dict[str, Any] = {"likely_out_of_memory": True, "status": "failure", "exit_code": 137}
HEAP_IS_FULL: dict[str, Any] = {"status": "failure", "exit_code": 1}


class Family(Struct):
    """A family, and what its runs need. ``started`` is the definition that its next runs have."""

    name: str
    kind: str
    need_mb: float
    vcpu: float
    started: dict[str, Any] = {}
    image: str = "etl:1"
    reports: list[Report] = field(default_factory=list)

    @property
    def first_size(self) -> Size:
        """More than the family needs, as in most accounts."""
        if self.kind not in ("plain", "tenth day"):
            return Size(1, 4096)
        fits = [
            size
            for size in LEGAL_SIZES
            if size.memory_mb >= 3.2 * self.need_mb and size.vcpu >= self.vcpu
        ]
        return fits[int(self.need_mb) % 6]

    def run(self, day: int, at: int, rng: random.Random) -> None:
        size = definition_size(self.started)
        if self.kind == "override":
            size = TaskSize(vcpu=2 * (size.vcpu or 0), memory_mb=2 * (size.memory_mb or 0))
        vcpu, limit_mb = (
            size.vcpu or 0,
            self.started["containerDefinitions"][0].get("memory", size.memory_mb),
        )
        need_mb = (
            self.need_mb
            * rng.uniform(0.9, 1)
            * (3 if self.kind == "tenth day" and day % 10 == 9 else 1)
        )
        room_mb = limit_mb / 4 if self.kind == "heap" else limit_mb
        failure = {} if need_mb <= room_mb else HEAP_IS_FULL if self.kind == "heap" else KILLED
        ms = 590_000 * max(self.vcpu / vcpu, 1) * rng.uniform(0.9, 1.1) * (0.5 if failure else 1)
        bounds = {f"v{one:g}".replace(".", "_"): self.vcpu / one for one in (0.25, 0.5, 1, 2)}
        self.reports.append(
            report(
                day,
                peak_mb=min(need_mb, room_mb),
                p95=min(self.vcpu, vcpu),
                size=(vcpu, size.memory_mb or 0),
                metrics={
                    "memory_size_mb": limit_mb,
                    "duration_ms": ms,
                    "billed_duration_ms": ms + 10_000,
                    "slowdown_at_vcpu": slowdown(
                        **{name: (one, 1.05 * one) for name, one in bounds.items()}
                    ),
                },
                family=self.name,
                account_id=ACCOUNT,
                task_id=f"{self.name}-{day}-{at}",
                revision=str(self.started["revision"]),
                launch_type="EC2" if self.kind == "ec2" else "FARGATE",
                **failure,
            )
        )


class SimulatedWeeks:
    """The account and its weeks. ``registered`` counts the command's revisions by family."""

    def __init__(self, account: ProxiedAccount, folder: Path) -> None:
        self.account, self.ecs, self.file = account, account.ecs, folder / "runs.jsonl"
        self.rng, self.registered = random.Random(7), Counter[str]()
        self.usd: list[float] = []
        kinds = [f"{kind}-{number}" for kind, count in KINDS.items() for number in range(count)]
        self.families = {name.replace(" ", "-"): self._family(name) for name in kinds}
        account.proxy.before = self._deploy_meanwhile
        self._described: Counter[str] = Counter()

    def _family(self, title: str) -> Family:
        name, kind = title.replace(" ", "-"), title.rpartition("-")[0]
        need_mb = self.rng.uniform(
            *((300, 3000) if kind in ("plain", "tenth day") else (600, 1000))
        )
        family = Family(name, kind, need_mb, self.rng.choice([0.1, 0.2, 0.4, 0.8]))
        size = family.first_size
        batch: dict[str, Any] = {"name": "batch", "image": family.image}
        other: dict[str, Any] = {"name": "proxy", "image": "proxy:1", "essential": False}
        if kind == "limits":
            batch |= {"memory": size.memory_mb - 300, "cpu": round(1024 * size.vcpu) - 64}
            other |= {"memory": 128, "cpu": 64}
        self.ecs.register_task_definition(
            family=name,
            cpu=str(round(size.vcpu * 1024)),
            memory=str(size.memory_mb),
            containerDefinitions=[batch, other, MONITOR],
            requiresCompatibilities=["EC2" if kind == "ec2" else "FARGATE"],
            tags=[{"key": "aws:cloudformation:stack-name", "value": "jobs"}]
            if kind == "stack"
            else [],
        )
        parameters = {"TaskDefinitionArn": f"{ARN}:task-definition/{name}:1"}
        target = {
            "Id": "1",
            "Arn": f"{ARN}:cluster/jobs",
            "RoleArn": "r",
            "EcsParameters": parameters,
        }
        if kind == "schedule":
            start_by_schedule(self.account.scheduler, name, f"{name}:1")
        elif kind == "rule":
            self.account.events.put_rule(Name=name, ScheduleExpression="rate(8 hours)")
            self.account.events.put_targets(Rule=name, Targets=[target])
        elif kind == "service":
            self.ecs.create_service(
                cluster="jobs", serviceName=name, taskDefinition=name, desiredCount=0
            )
        return family

    def described(self, name: str) -> tuple[dict[str, Any], list[dict[str, str]]]:
        answer = self.ecs.describe_task_definition(taskDefinition=name, include=["TAGS"])
        return answer["taskDefinition"], answer.get("tags", [])

    def started(self, family: Family) -> str:
        """The revision that the next runs have."""
        if family.kind == "schedule":
            target = self.account.scheduler.get_schedule(Name=family.name)["Target"]
        elif family.kind == "rule":
            (target,) = self.account.events.list_targets_by_rule(Rule=family.name)["Targets"]
        else:
            return family.name
        return str(target["EcsParameters"]["TaskDefinitionArn"])

    def deploy(self, name: str, base: str = "") -> None:
        """A new image in the newest revision, or in another one; of another one, without its
        tags.
        """
        definition, tags = self.described(base or name)
        family = self.families[name]
        family.image = f"{family.image}+"
        batch, *others = definition["containerDefinitions"]
        self.ecs.register_task_definition(
            family=name,
            containerDefinitions=[{**batch, "image": family.image}, *others],
            **{one: definition[one] for one in ("cpu", "memory", "requiresCompatibilities")},
            tags=[] if base else tags,
        )

    def _deploy_meanwhile(self, operation: str, body: bytes) -> None:
        name = (
            json.loads(body).get("taskDefinition") if operation == "DescribeTaskDefinition" else ""
        )
        self._described[str(name)] += 1
        if name == "meanwhile-0" and self._described[name] == 2:
            self.deploy(name)

    def week(self, number: int) -> None:
        families = self.families.values()
        for family in self.of_kind("pipeline") if number else ():
            for _ in range(3):
                self.deploy(family.name, f"{family.name}:1")
        for family in families:
            family.started, _ = self.described(self.started(family))
        for day in range(number * DAYS, (number + 1) * DAYS):
            for family in families:
                for at in range(RUNS_A_DAY):
                    family.run(day, at, self.rng)
        self.usd.append(sum(map(week_usd, families)))
        reports = [one for family in families for one in family.reports]
        self.file.write_bytes(lines(lately(reports, time.time_ns())))
        for family in families:
            if family.kind == "deployed" and number % 2:
                self.deploy(family.name)
        if number < WEEKS_BEFORE:
            return
        is_first = number == WEEKS_BEFORE
        self.account.proxy.denied = {"refused-0"} if is_first else set()
        self._resize(1 if is_first else 0)

    def _resize(self, expected: int) -> None:
        words = ("--from", str(self.file), "--register", "--update-schedules", "--yes", "--json")
        done = self.account.command("taskdef", "resize", *words)
        assert done.returncode == expected, done.stderr
        if expected:
            assert "refused-0: No revision was registered: AWS refused" in done.stderr
            assert (
                "meanwhile-0 changed meanwhile, so it is planned again from meanwhile-0:2: none"
                in done.stderr
            )
        steps = (line.split() for line in done.stderr.splitlines())
        self.registered.update(
            family_of(words[-1]) for words in steps if words[-2:-1] == ["registered"]
        )

    def of_kind(self, *kinds: str) -> Iterator[Family]:
        return (family for family in self.families.values() if family.kind in kinds)


def week_usd(family: Family) -> float:
    """What the last week's runs cost."""
    total = 0.0
    for one in family.reports[-DAYS * RUNS_A_DAY :]:
        size = one.record.task_size
        hours = (one.record.metrics.billed_duration_ms or 0) / 3_600_000
        total += hours * REFERENCE_PRICES.size_hour_price_usd(size.vcpu or 0, size.memory_mb or 0)
    return total


def fixed(definition: Mapping[str, Any], **deployed: str) -> Mapping[str, object]:
    """What the command may not change, with what was deployed to the batch."""
    batch, *others = definition["containerDefinitions"]
    own = ("revision", "taskDefinitionArn", "registeredAt", "containerDefinitions")
    kept = {name: value for name, value in definition.items() if name not in own}
    return {**kept, "containerDefinitions": [{**batch, **deployed}, *others]}


@pytest.mark.slow
def test_the_cost_falls_without_a_see_saw_and_what_others_own_stays(tmp_path: Path) -> None:
    with fake_aws() as aws, AwsProxy(aws.url) as proxy:
        fakes = SimulatedWeeks(ProxiedAccount(aws, proxy), tmp_path)
        for number in range(WEEKS_BEFORE + WEEKS):
            fakes.week(number)
        newest = {name: fakes.described(name)[0] for name in fakes.families}
        started = {
            name: fakes.described(fakes.started(family))[0]
            for name, family in fakes.families.items()
        }
        first = {name: fakes.described(f"{name}:1")[0] for name in fakes.families}
    records = [one.record for family in fakes.families.values() for one in family.reports]
    counts = [fakes.registered[name] for name in fakes.families]
    assert fakes.usd[-1] <= 0.7 * fakes.usd[0]
    assert sum(bool(record.likely_out_of_memory) for record in records) <= 0.01 * len(records)
    assert sum(counts) <= 2.2 * len(counts)
    assert max(counts) <= 4
    assert [fakes.registered[family.name] for family in fakes.of_kind(*LEFT_ALONE)] == [0] * len(
        LEFT_ALONE
    )
    assert [
        fakes.registered[f"{kind}-0"] for kind in ("pipeline", "refused", "meanwhile", "limits")
    ] == [1] * 4
    assert started == newest  # the pinned ones have moved
    # A heap that follows its limit fails without a kill: the old size comes back, and stays.
    for family in fakes.of_kind("heap"):
        assert fakes.registered[family.name] == 2
        assert newest[family.name]["memory"] == first[family.name]["memory"]
        assert family.reports[-1].record.status == "success"
    for name, family in fakes.families.items():
        assert without_size(fixed(newest[name])) == without_size(
            fixed(first[name], image=family.image)
        )
