"""Jobs of AWS Batch on EC2: a limit of memory, none of CPU, and instances with less memory than they
are sold with.
"""

from typing import Any

import msgspec
import pytest

from profiler.record import task_needs
from profiler.record.ecs_event_outcome import judge_candidates
from profiler.record.record_model import NOTHING_VISIBLE, UNKNOWN_COST, Gpu, Record, Report, Visible
from profiler.record.stop_causes import outcome_of
from profiler.record.stopped_task import parse_stopped_task
from profiler.sizing.advice import Advice
from profiler.sizing.choose_size import SizePolicy, recommend_size
from profiler.sizing.instance_memory import smallest_instance_for
from profiler.sizing.prices import PriceOverrides, cost_of
from profiler.sizing.run_collector import FamilyRunCollector
from profiler.sizing.sizing_rules import advice_verdict
from tests.batch_jobs import arn, submitted, task_event
from tests.runs import add_reports, report, slowdown
from tests.sized_runs import advice, reasons
from tests.values import present

JOBS = "AWSBatch-spot-0a1b2c3d-1111-2222-3333-444455556666"


def jobs(
    *,
    peak_mb: float = 3_000,
    p95: float = 2,
    size: tuple[float, float] = (4, 16_384),
    seen_mb: float | None = None,
    cluster: str = JOBS,
    saturated: float = 0.0,
    **record: Any,
) -> list[Report]:
    """Thirty runs, which need their own margin, that of samples of each second."""
    visible = NOTHING_VISIBLE if seen_mb is None else Visible(memory_mb=seen_mb)
    return [
        report(
            number,
            peak_mb=peak_mb,
            p95=p95,
            size=size,
            launch_type="EC2",
            cluster=cluster,
            visible=visible,
            metrics={"vcpu_saturated_percent": saturated},
            **record,
        )
        for number in range(30)
    ]


def size_of(found: Advice) -> tuple[float | None, float | None]:
    return found.choice.size.vcpu, found.choice.size.memory_mb


def test_a_job_may_use_more_vcpus_than_it_asked_for() -> None:
    found = advice(jobs(p95=14.6, saturated=90))
    assert size_of(found)[0] == 14.75
    said = "\n".join(found.reasons)
    assert (
        "The jobs asked for 4 vCPU and used 14.6 vCPU: on EC2, AWS Batch limits no job's CPU, so "
        "they took what others on the instance left."
    ) in said
    assert "for 95 % of the time at most 14.6 vCPU" in said
    assert "all of its" not in said
    assert "%" not in said.partition("14.6")[2].partition(":")[0]
    # No reservation is too large that a part of is too small.
    assert advice_verdict(found) == "fits"


@pytest.mark.parametrize(
    ("launch_type", "cluster"), [("EC2", "jobs"), ("FARGATE", JOBS), ("MANAGED_INSTANCES", JOBS)]
)
def test_other_tasks_use_at_most_their_size(launch_type: str, cluster: str) -> None:
    runs = [
        report(number, p95=14.6, size=(4, 16_384), launch_type=launch_type, cluster=cluster)
        for number in range(30)
    ]
    found = advice(runs)
    assert (found.choice.size.vcpu or 0) <= 4
    assert "limits no job's CPU" not in "\n".join(found.reasons)


def test_a_smaller_size_that_slows_no_run_does_not_cap_what_was_used() -> None:
    bounds = slowdown(v1=(1.2, 1.5))
    beyond = [
        report(
            number,
            p95=14.6,
            size=(4, 16_384),
            launch_type="EC2",
            cluster=JOBS,
            metrics={"slowdown_at_vcpu": bounds},
        )
        for number in range(30)
    ]
    assert size_of(advice(beyond))[0] == 14.75
    within = [
        report(
            number,
            p95=1.9,
            size=(4, 16_384),
            launch_type="EC2",
            cluster=JOBS,
            metrics={"slowdown_at_vcpu": bounds},
        )
        for number in range(30)
    ]
    assert size_of(advice(within))[0] == 2


def test_the_memory_lies_below_what_an_instance_registers() -> None:
    # 10 % above are 8,030 MB, for which an instance of 8 GB has no room.
    found = advice(jobs(peak_mb=7_300))
    assert size_of(found)[1] == 7_936
    assert (
        "An instance with 8 GB registers about 7953 MB for jobs: with more, a job would need the "
        "next larger instance."
    ) in found.reasons
    # It asks for all of an instance's memory.
    all_of_it = advice(jobs(peak_mb=7_300, size=(4, 8_192)))
    assert size_of(all_of_it)[1] == 7_936
    assert advice_verdict(all_of_it) == "less is enough"


def test_a_run_that_saw_the_instance_knows_what_it_registers() -> None:
    assert size_of(advice(jobs(peak_mb=7_100, seen_mb=7_680))) == (2, 7_616)
    assert "An instance with 8 GB registers 7648 MB" in reasons(*jobs(peak_mb=7_100, seen_mb=7_680))
    # An instance of another size says nothing about those of 8 GB.
    assert "registers about 7953 MB" in reasons(*jobs(peak_mb=7_300, seen_mb=15_800))


def test_what_no_instance_of_a_size_has_room_for_needs_the_next_one() -> None:
    found = advice(jobs(peak_mb=7_900))
    assert size_of(found)[1] == 8_704
    assert not [reason for reason in found.reasons if "registers" in reason]


@pytest.mark.parametrize("percent", [10, 12])
def test_a_margin_that_was_asked_for_stays(percent: float) -> None:
    found = advice(jobs(peak_mb=7_290), memory_margin_percent=percent)
    assert (size_of(found)[1] or 0) > 7_953
    assert "this size needs the next larger one." in "\n".join(found.reasons)


def test_a_size_that_was_too_small_is_no_room() -> None:
    killed = jobs(peak_mb=7_300, size=(4, 8_000), likely_out_of_memory=True, status="failure")
    good = jobs(peak_mb=7_300, size=(4, 8_000), started_at="2026-11-01T00:00:00.000Z")
    found = advice([*killed, *good])
    assert (size_of(found)[1] or 0) > 8_000


def test_only_jobs_on_ec2_are_placed_so() -> None:
    (job, *_) = jobs()
    assert smallest_instance_for(8_000, job.record) is not None
    assert smallest_instance_for(3e9, job.record) is None
    assert smallest_instance_for(8_000, report(launch_type="EC2").record) is None
    assert smallest_instance_for(8_000, report(cluster=JOBS).record) is None
    elsewhere = advice(jobs(peak_mb=7_300, cluster="jobs"))
    assert size_of(elsewhere)[1] == 8_064


@pytest.mark.parametrize("exit_code", [137, 1, 2])
@pytest.mark.parametrize(
    "reason",
    [
        "OutOfMemoryError: Container killed due to memory usage",
        "OutOfMemoryError: container killed due to memory usage",
    ],
)
def test_a_run_killed_for_memory_is_known_by_its_reason_whatever_its_exit_code(
    exit_code: int, reason: str
) -> None:
    definition = {"jobDefinitionArn": arn("job-definition", "etl:1"), "containerProperties": {}}
    queue = {"jobQueueArn": arn("job-queue", "spot")}
    (job,) = submitted({"jobName": "load"}, queue, definition, 1, 0)
    killed = {"name": "default", "exitCode": exit_code, "reason": reason}
    event = task_event(job, containers=[killed], cluster=JOBS, launchType="EC2")
    task = parse_stopped_task(event)
    assert task is not None
    end, batch = judge_candidates(task, task.containers)
    assert batch == "default"
    failed = jobs(peak_mb=3_000, size=(4, 4_096), status="failure", exit_code=exit_code)
    families = FamilyRunCollector()
    for one in failed:
        families.add_run(one, outcome_of(one.record, end))
    (evidence,) = families.evidence_by_row().values()
    assert evidence is not None
    assert evidence.outcomes.out_of_memory == 30
    decision = recommend_size(evidence, SizePolicy(), PriceOverrides())
    assert (decision.size.memory_mb or 0) > 4_096


def test_a_report_of_the_wrapper_has_the_size_that_the_job_asked_for() -> None:
    """Batch's tasks on EC2 have no limits: the container has shares of CPU and a limit of memory."""
    measured = {"vcpu_size": 16, "vcpu_share": 4, "memory_size_mb": 16_384}
    runs = [
        report(
            number,
            p95=14.6,
            peak_mb=9_000,
            size=None,
            launch_type="EC2",
            cluster=JOBS,
            metrics=measured,
        )
        for number in range(30)
    ]
    found = advice(runs)
    assert (found.choice.current.vcpu, found.choice.current.memory_mb) == (4, 16_384)
    assert size_of(found) == (14.75, 9_920)
    assert "The jobs asked for 4 vCPU and used 14.6 vCPU" in "\n".join(found.reasons)
    families = FamilyRunCollector(jobs_by="name")
    add_reports(families, runs)
    (row,) = families.evidence_by_row()
    assert row.distinguishing_text == "4 vCPU, 16 GB"
    # Another task on the instance has no such size.
    (other,) = runs[:1]
    elsewhere = msgspec.structs.replace(other.record, cluster="jobs")
    assert task_needs.task_size_of(elsewhere).vcpu is None


PRICES = PriceOverrides(
    instances_usd=(("m5.4xlarge", 0.768), ("c5.large", 0.085), ("g5.48xlarge", 16.0), ("x9.a", 1.0))
)


def on_instance(**own: Any) -> Record:
    """An hour of a job with a quarter of the instance's vCPUs, and half of its memory."""
    made = report(
        size=None,
        launch_type="EC2",
        cluster=JOBS,
        visible=Visible(memory_mb=64_000, cpus=16, instance_type="m5.4xlarge"),
        metrics={
            "vcpu_size": 16,
            "vcpu_share": 4,
            "memory_size_mb": 32_000,
            "billed_duration_ms": 3_600_000,
        },
        **own,
    )
    return made.record


def test_a_job_costs_its_share_of_an_instance_with_a_known_price() -> None:
    cost = cost_of(on_instance(), PRICES)
    assert cost.usd == 0.384
    assert cost.price_basis == "EC2 m5.4xlarge with TASK_PROFILER_PRICE_INSTANCES, 50 % of it"
    whole = cost_of(on_instance(), PriceOverrides(hour_usd=0.1, instances_usd=PRICES.instances_usd))
    assert whole.usd == 0.1


def test_a_job_has_no_price_where_its_share_or_the_instances_price_is_not_known() -> None:
    record = on_instance()
    replace = msgspec.structs.replace
    other = replace(present(record.visible), instance_type="m5.large")
    unknown = replace(present(record.visible), instance_type=None)
    for without in (
        replace(record, visible=other),
        replace(record, visible=unknown),
        replace(record, visible=NOTHING_VISIBLE),
        replace(record, metrics=replace(record.metrics, vcpu_share=None)),
        # The type has no GPU in the table.
        replace(record, gpus=(Gpu(index=0, uuid="GPU-0"),)),
    ):
        assert cost_of(without, PRICES) == UNKNOWN_COST
    assert cost_of(record, PriceOverrides()) == UNKNOWN_COST


def with_gpus(*uuids: str, instance_type: str = "g5.48xlarge", **own: Any) -> Record:
    """The job with these GPUs: its larger share of vCPUs and memory is a half."""
    visible = Visible(memory_mb=64_000, cpus=16, instance_type=instance_type)
    gpus = tuple(Gpu(index=number, uuid=uuid) for number, uuid in enumerate(uuids))
    return msgspec.structs.replace(on_instance(), visible=visible, gpus=gpus, **own)


@pytest.mark.parametrize(("number", "usd"), [(1, 8.0), (4, 8.0), (6, 12.0), (8, 16.0)])
def test_the_gpus_of_a_job_are_its_share_where_they_are_the_largest(
    number: int, usd: float
) -> None:
    cost = cost_of(with_gpus(*(f"GPU-{index}" for index in range(number))), PRICES)
    assert cost.usd == usd


def test_gpus_of_which_the_share_is_not_known_have_no_price() -> None:
    shared = (Gpu(index=0, uuid="GPU-0", shared=True),)
    for record in (
        with_gpus("GPU-0", instance_type="x9.a"),
        with_gpus("MIG-0"),
        with_gpus("GPU-0", gpu_scope="instance"),
        msgspec.structs.replace(with_gpus(), gpus=shared),
    ):
        assert cost_of(record, PRICES) == UNKNOWN_COST


def test_a_job_on_a_gpu_instance_that_has_none_of_its_gpus_pays_for_cpu_and_memory() -> None:
    cost = cost_of(with_gpus(), PRICES)
    assert cost.usd == 8.0
