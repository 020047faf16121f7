"""``task-profiler recommend`` from record lines and the history, and into a task definition."""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from profiler.core.errors import TaskProfilerError, UsageError
from profiler.record.batch_job import BatchJob
from profiler.record.record_model import Cost, Gpu, GpuIdle, Report
from tests.gpu_runs import gpu_run
from tests.runs import lines, report, slowdown
from tests.unit.cli.conftest import Cli

pytestmark = pytest.mark.usefixtures("here")


def kept(reports: Iterable[Report], *, more: bytes = b"") -> str:
    """A file with the runs.

    A task belongs to one family, so that its id contains the family here.
    """
    named = (
        replace(
            one, record=replace(one.record, task_id=f"{one.record.family}-{one.record.task_id}")
        )
        for one in reports
    )
    Path("runs.jsonl").write_bytes(lines(named) + more)
    return "runs.jsonl"


def test_json_is_an_object_a_line_and_family(cli: Cli) -> None:
    weekly = [
        replace(one, record=replace(one.record, family="weekly")) for one in (report(0), report(1))
    ]
    found = cli("recommend", "--json", "--from", kept([*weekly, report()]))
    assert found.code == 0
    assert [(one["family"], one["runs"]) for one in found.objects] == [
        ("nightly", 1),
        ("weekly", 2),
    ]
    assert found.objects[0]["recommended"] == {"vcpu": 0.25, "memoryMB": 512}
    assert found.err == ""


def test_the_table_has_sizes_saving_and_reasons(cli: Cli) -> None:
    source = kept(report(n) for n in range(7))
    found = cli("recommend", "nightly", "--from", source)
    head, row, *_ = found.out.splitlines()
    hint = "The same command with FAMILY gives the reasons."
    assert cli("recommend", "--from", source).out.splitlines() == [head, row, "", hint]
    assert re.split("  +", head) == [
        "Family",
        "Runs",
        "Current",
        "Recommended",
        "Saving",
        "$ a month",
    ]
    assert re.split("  +", row) == [
        "nightly",
        "7",
        "1 vCPU, 2 GB",
        "0.25 vCPU, 512 MB",
        "75 %",
        "$0.19",
    ]
    assert (
        "- 7 runs in 6d 00h used up to 400 MB or more of memory (sampled) and for 95 % of the time at most "
        "0.2 vCPU."
    ) in found.out


@pytest.mark.parametrize(
    ("gpu_hours", "shown"),
    [(0.5, ["nightly: 15.22 idle GPU-hours a month"]), (0.0, []), (None, [])],
)
def test_the_idle_time_of_the_gpus_in_a_month(
    cli: Cli, gpu_hours: float | None, shown: list[str]
) -> None:
    """The mean of a run times 30.4375 runs a month; nothing of GPUs that may be others'."""
    for scope in (None, "instance"):
        is_own = scope is None
        factors = (0.5, 1.5, 1, 1, 1)
        idle = [
            None if gpu_hours is None else GpuIdle(percent=50, gpu_hours=gpu_hours * one)
            for one in factors
        ]
        source = kept(report(n, gpu_idle=one, gpu_scope=scope) for n, one in enumerate(idle))
        rows = cli("recommend", "--from", source).out.splitlines()
        assert [one for one in rows if "GPU-hours" in one] == (shown if is_own else [])
        (found,) = cli("recommend", "--json", "--from", source).objects
        hours = gpu_hours and gpu_hours * 30.4375
        assert found["idleGpuHoursPerMonth"] == (hours if is_own else None)
        assert found["atLeast"] == ["evidence.peakMB"]


def test_idle_time_that_was_not_seen_throughout_is_the_least_of_a_month(cli: Cli) -> None:
    partial = Gpu(uuid="GPU-a", utilization_covered_percent=80.0)
    runs = [
        report(n, gpu_idle=GpuIdle(percent=50, gpu_hours=0.5), gpus=(partial,)) for n in range(5)
    ]
    source = kept(runs)
    rows = cli("recommend", "--from", source).out.splitlines()
    assert "nightly: ≥15.22 idle GPU-hours a month" in rows
    (found,) = cli("recommend", "--json", "--from", source).objects
    assert "idleGpuHoursPerMonth" in found["atLeast"]


def test_a_family_on_a_gpu_says_how_it_uses_it(cli: Cli) -> None:
    runs = [gpu_run(tape) for tape in ("starved", "beside", "neighbour")]
    rows = cli("recommend", "--from", kept(runs)).out.splitlines()
    assert "starved: GPU 3 % on average, ≥1.7 GB of 79.6 GB, idle 30 % between its work" in rows
    assert "beside: GPU ≥838 MB of 79.6 GB" in rows
    assert not any(row.startswith("neighbour: GPU") for row in rows)


def test_a_family_without_a_measured_run_is_a_sentence_and_no_line(cli: Cli) -> None:
    bare = report(peak_mb=None, p95=None, family="bare")
    found = cli("recommend", "--json", "--from", kept([bare, report()]))
    assert [one["family"] for one in found.objects] == ["nightly"]
    assert (
        found.err
        == "task-profiler: No run of bare was measured, so its size cannot be recommended.\n"
    )
    alone = cli("recommend", "--json", "--from", kept([bare]))
    assert alone.code == 0
    assert alone.out == ""


def test_families_are_chosen_by_name_or_pattern(cli: Cli) -> None:
    source = kept(report(family=name) for name in ("nightly-a", "nightly-b", "weekly"))
    found = cli("recommend", "weekly", "nightly-[a]", "--json", "--from", source)
    assert [one["family"] for one in found.objects] == ["nightly-a", "weekly"]
    missing = cli("recommend", "weekly", "monthly", "--json", "--from", source)
    assert [one["family"] for one in missing.objects] == ["weekly"]
    assert missing.err == "task-profiler: No run of monthly in runs.jsonl.\n"
    with pytest.raises(TaskProfilerError, match=r"No run of monthly in runs.jsonl"):
        cli("recommend", "monthly", "--from", source)


def slow(**more: Any) -> Report:
    """A run that half the vCPUs would slow down by at most 40 %."""
    metrics = {
        "slowdown_at_vcpu": slowdown(v0_25=(2, 3), v0_5=(1.1, 1.4)),
        "vcpu_saturated_percent": 12.0,
    }
    return report(metrics=metrics, **more)


@pytest.mark.parametrize(
    ("words", "size"),
    [
        ("", (1, 2048)),
        ("--max-slowdown 40", (0.5, 1024)),
        ("--faster", (2, 4096)),
        ("--memory-margin 500", (1, 3072)),
        ("--last 1", (0.25, 1024)),
    ],
)
def test_the_policy_and_the_number_of_runs_are_options(
    words: str, size: tuple[float, int], cli: Cli
) -> None:
    runs = [slow(number=0), report(1, peak_mb=500)]
    (found,) = cli("recommend", *words.split(), "--json", "--from", kept(runs)).objects
    vcpu, memory_mb = size
    assert found["recommended"]["vcpu"] == vcpu
    assert found["recommended"]["memoryMB"] == memory_mb


def test_sizes_prints_what_each_size_would_take_and_cost(cli: Cli) -> None:
    found = cli(
        "recommend", "--sizes", "--from", kept([slow(number=n, peak_mb=500) for n in range(7)])
    )
    assert [" ".join(line.split()) for line in found.out.splitlines()[4:9]] == [
        "Size Times as long Run Month Saving",
        "0.25 vCPU, 1 GB 2 to 3 $0.0072 $0.22 13 % too slow",
        "0.5 vCPU, 1 GB 1.1 to 1.4 $0.0057 $0.17 30 % too slow",
        "1 vCPU, 2 GB 1 $0.0082 $0.25 0 % current, recommended",
        "2 vCPU, 4 GB 0.94 to 1 $0.016 $0.50 -100 %",
    ]
    alone = cli("recommend", "--sizes", "--from", kept([report(region="mars-1", size=(1, 512))]))
    assert [" ".join(line.split()) for line in alone.out.splitlines()[5:8]] == [
        "0.25 vCPU, 512 MB 1 - - - recommended",
        "0.5 vCPU, 1 GB 1 - - -",
        "1 vCPU, 512 MB 1 - - - current",
    ]
    killed = cli("recommend", "--sizes", "--from", kept([report(peak_mb=2000)]))
    row = "1 vCPU, 2 GB 1 $0.0082 ≈ $0.25 0 % current, too little memory"
    assert row in " ".join(killed.out.split())
    local = cli("recommend", "--sizes", "--from", kept([report(launch_type="LOCAL")]))
    assert "Times as long" not in local.out
    assert "There is no table of sizes: the runs were outside Fargate." in local.out


@pytest.mark.parametrize(
    ("reports", "problem"),
    [
        (
            [report()],
            "nightly fails the check: the recommended size saves 75 %, ≈ $0.19 a month.",
        ),
        ([report(status="failure")], None),
        ([report(peak_mb=400, size=(0.25, 512))], None),
        (
            [report(peak_mb=200, size=(0.25, 512), likely_out_of_memory=True)],
            "1 run ran out of memory.",
        ),
        ([report(launch_type="EC2", peak_mb=100)], None),
        ([report(launch_type="LOCAL", size=None)], None),
        (
            [report(peak_mb=400, size=(0.25, 512)), report(family="weekly")],
            "weekly fails the check",
        ),
    ],
)
def test_check_ends_with_3_for_a_risk_or_a_saving(
    reports: list[Report], problem: str | None, cli: Cli
) -> None:
    source = kept(reports)
    found = cli("recommend", "--from", source, "--check")
    assert found.code == (0 if problem is None else 3)
    assert (problem or "") in found.err
    assert bool(found.err) is (problem is not None)
    assert cli("recommend", "--from", source).code == 0


def test_the_saving_of_a_month_sorts_the_families(cli: Cli) -> None:
    """1 vCPU and 2 GiB for ten minutes, 30.4375 runs a month, of which three quarters are saved."""
    made = [
        report(
            n,
            family=name,
            metrics={"duration_ms": 590_000 * longer, "billed_duration_ms": 600_000 * longer},
        )
        for name, count, longer in (("hourly", 7, 1), ("nightly", 7, 100), ("new", 1, 1))
        for n in range(count)
    ]
    source = kept(made)
    found = cli("recommend", "--from", source, "--check", "--min-saving-usd", "1")
    rows = [re.split("  +", row.strip()) for row in found.out.splitlines()[2:6]]
    amounts = [
        ["nightly", "75 %", "$18.78"],
        ["hourly", "75 %", "$0.19"],
        ["new", "75 %", "≈ $0.031"],
        ["Total", "75 %", "≈ $19.00"],
    ]
    assert [[row[0], *row[-2:]] for row in rows] == amounts
    assert "3 of 3 families, ≈ $19.00 a month of ≈ $25.34." in found.out
    assert "≈ is an estimate: as many runs a day as seen of 1 family." in found.out
    problem = "nightly fails the check: the recommended size saves 75 %, $18.78 a month."
    assert found.code == 3
    assert found.err == f"task-profiler: {problem}\n"
    assert (
        cli(
            "recommend", "--from", source, "--check", "--min-saving-usd", "1", "--min-saving", "76"
        ).code
        == 0
    )
    first, *_ = cli("recommend", "--from", source, "--json").objects
    assert first["family"] == "nightly"
    assert first["usdPerMonth"] == 25.04
    assert first["savingUsdPerMonth"] == 18.78


def test_the_least_that_spot_costs_is_marked(cli: Cli) -> None:
    cost = Cost(usd=0.1, price_basis="at least, on FARGATE_SPOT: 30% of the on-demand price")
    source = kept([report(number, cost=cost) for number in range(7)])
    found = cli("recommend", "--from", source, "--sizes", "--check")
    assert re.search(r"nightly +7 .* 75 % +≈ \$0\.056\n", found.out)
    assert re.search(r"0\.25 vCPU, 512 MB +1 +≈ \$0\.00062 +≈ \$0\.019 ", found.out)
    assert "≈ is an estimate: the least that Spot costs of 1 family." in found.out
    assert "saves 75 %, ≈ $0.056 a month." in found.err
    (line,) = cli("recommend", "--json", "--from", source).objects
    assert line["atLeast"] == [
        *("usdPerMonth", "savingUsdPerMonth", "sizes.usdPerRun", "evidence.peakMB")
    ]


def test_an_estimate_of_the_month_is_no_saving_of_a_minimum(cli: Cli) -> None:
    long = {"duration_ms": 59_000_000, "billed_duration_ms": 60_000_000}
    source = kept([report(metrics=long)])
    check = ("recommend", "--from", source, "--check")
    found = cli(*check, "--min-saving-usd", "1")
    assert "≈ $18.78" in found.out
    assert found.code == 0
    assert cli(*check).code == 3


def test_the_last_runs_are_those_that_the_filters_leave(cli: Cli) -> None:
    source = kept(report(n, cluster="a" if n % 2 else "b") for n in range(6))
    (found,) = cli("recommend", "--json", "--from", source, "--cluster", "a", "--last", "2").objects
    assert found["runs"] == 2
    with pytest.raises(
        TaskProfilerError, match=r"No run in runs.jsonl matches: use fewer filters."
    ):
        cli("recommend", "--from", source, "--cluster", "c")


def in_accounts(*accounts: str | None) -> list[Report]:
    return [
        report(number, account_id=account, task_id=f"{account}-{number}", peak_mb=300 + 1000 * at)
        for at, account in enumerate(accounts)
        for number in range(3)
    ]


def test_families_of_one_name_in_several_accounts_are_apart_and_only_they_name_it(cli: Cli) -> None:
    source = kept(in_accounts("111122223333", "444455556666"))
    found = cli("recommend", "nightly", "--json", "--from", source)
    assert [(one["accountId"], one["region"], one["runs"]) for one in found.objects] == [
        ("111122223333", "us-east-1", 3),
        ("444455556666", "us-east-1", 3),
    ]
    assert [one["evidence"]["peakMB"] for one in found.objects] == [300, 1300]
    one = cli("recommend", "--account", "444455556666", "--json", "--from", source)
    assert [each["accountId"] for each in one.objects] == ["444455556666"]
    with pytest.raises(TaskProfilerError, match="No run in"):
        cli("recommend", "--task-region", "eu-west-1", "--from", source)
    several = cli("recommend", "--from", kept(in_accounts("111122223333", "444455556666", None)))
    money = ["Runs", "Current", "Recommended", "Saving", "$ a month"]
    assert re.split("  +", several.out.splitlines()[0]) == ["Family", "Account", *money]
    assert "nightly (unknown account)" in cli("recommend", "nightly", "--from", source).out
    alone = cli("recommend", "--from", kept(in_accounts("111122223333")))
    assert re.split("  +", alone.out.splitlines()[0]) == ["Family", *money]
    assert "1111" not in alone.out


def test_local_runs_are_priced_as_if_on_fargate_and_the_header_says_so(cli: Cli) -> None:
    runs = [
        report(n, launch_type="LOCAL", region=None, size=None, metrics=MACHINE) for n in range(6)
    ]
    source = kept(runs)
    found = cli("recommend", "--on-fargate", "us-east-1", "--sizes", "--from", source)
    assert found.out.startswith(
        "Runs outside Fargate are treated as if they had run on Fargate in us-east-1: the "
        "machine counts as the current size unless the task has one, and whole seconds are "
        "billed, at least 60.\n"
    )
    assert "$" in found.out
    unknown = cli("recommend", "--on-fargate", "eu-south-2", "--from", source)
    assert "Fargate's prices in eu-south-2 are unknown" in unknown.err
    with pytest.raises(UsageError, match="ECS is not known in a Region 'eu-wst-1': check the name"):
        cli("recommend", "--check", "--on-fargate", "eu-wst-1", "--from", source)
    several = [*runs, *(replace(one, record=replace(one.record, family="other")) for one in runs)]
    without = cli("recommend", "--sizes", "--from", kept(several))
    assert without.out.count("--on-fargate REGION") == 1
    assert re.search(r"\$\d", without.out) is None


MACHINE: dict[str, Any] = {
    "vcpu_size": 4,
    "memory_size_mb": 16_000,
    "slowdown_at_vcpu": slowdown(v0_25=(1, 1.1)),
}


def test_the_total_is_a_row_of_the_table(cli: Cli) -> None:
    source = kept(in_accounts("111122223333", "444455556666"))
    rows = cli("recommend", "--from", source).out.splitlines()
    heading = rows[0].index("$ a month")
    (total,) = [row for row in rows if row.startswith("Total")]
    amounts = [float(row[heading:].lstrip(" ≈$")) for row in rows if "1111" in row or "4444" in row]
    assert len(amounts) == 2
    assert float(total[heading:].lstrip(" ≈$")) == pytest.approx(sum(amounts), abs=0.01)
    assert re.split("  +", total)[1] == "6", "the runs"


def test_one_family_has_no_total(cli: Cli) -> None:
    assert "Total" not in cli("recommend", "--from", kept([report()])).out


def test_a_family_without_a_size_is_no_changed_one(cli: Cli) -> None:
    killed: dict[str, Any] = {"status": "failure", "exit_code": 137, "likely_out_of_memory": True}
    largest = [
        report(n, family="huge", size=(32, 244 * 1024), peak_mb=244 * 1024, **killed)
        for n in range(7)
    ]
    found = cli("recommend", "--from", kept([*largest, *(report(n) for n in range(7))]))
    assert "1 of 2 families, $0.19 a month of " in found.out
    (row,) = [line for line in found.out.splitlines() if "huge" in line]
    assert re.split("  +", row.strip()) == ["huge", "7", "32 vCPU, 244 GB", "-", "-", "-"]


def _jobs() -> str:
    """Jobs of two processes that run in one image."""
    reports = []
    for number in range(6):
        name, size = [("STAR_ALIGN_S", (8, 65_536)), ("FASTQC_S", (2, 4_096))][number % 2]
        job = BatchJob(
            job_id="0f8fad5b-d9cb-469f-a165-70867728950e",
            job_name=f"{name}{number}",
            job_definition="nf-quay-io-star",
        )
        reports.append(
            report(number, family="nf-quay-io-star", launch_type="EC2", batch=job, size=size)
        )
    return kept(reports)


def test_jobs_of_an_engine_are_rows_by_name_with_lines_for_its_configuration(cli: Cli) -> None:
    source = _jobs()
    found = cli("recommend", "--from", source)
    assert re.findall("  (STAR_ALIGN|FASTQC) +3 ", found.out) == ["FASTQC", "STAR_ALIGN"]
    assert (
        "task-profiler recommend --format nextflow prints the sizes as its configuration."
        in found.out
    )
    # A name that only jobs have.
    (star,) = cli("recommend", "STAR_*", "--json", "--from", source).objects
    assert (star["family"], star["runs"]) == ("STAR_ALIGN", 3)
    assert star["requested"] == {"vcpu": 8, "memoryMB": 65_536}
    explained = cli("recommend", "nf-*", "--from", source).out
    assert "STAR_ALIGN (8 vCPU, 64 GB)\n" in explained
    assert "      withName: 'STAR_ALIGN' { cpus = 1; memory = '512 MB' }\n" in explained
    written = cli("recommend", "--format", "nextflow", "--from", source).out
    assert written == (
        "process {\n"
        "  withName: 'FASTQC' { cpus = 1; memory = '512 MB' }\n"
        "  withName: 'STAR_ALIGN' { cpus = 1; memory = '512 MB' }\n"
        "}\n"
    )


def test_by_definition_all_jobs_of_an_image_are_one_row(cli: Cli) -> None:
    source = _jobs()
    (row,) = cli("recommend", "--by", "definition", "--json", "--from", source).objects
    assert (row["family"], row["runs"]) == ("nf-quay-io-star", 6)
    assert "requested" not in row
    assert "submitted" not in "".join(row["reasons"])


def test_the_size_of_own_jobs_by_name_is_changed_where_they_are_submitted(cli: Cli) -> None:
    job = BatchJob(
        job_id="0f8fad5b-d9cb-469f-a165-70867728950e", job_name="load-1", job_definition="etl"
    )
    found = cli("recommend", "--by", "name", "--json", "--from", kept([report(batch=job)]))
    assert "change it where they are submitted" in found.objects[0]["reasons"][-1]


def test_without_jobs_there_are_no_lines_for_an_engine(cli: Cli) -> None:
    found = cli("recommend", "--format", "snakemake", "--from", kept([report()]))
    assert found.out == ""
    assert "No job needs another size than it asks for." in found.err


@pytest.mark.parametrize("other", [["--json"], ["--by", "definition"]])
def test_format_excludes_other_output(cli: Cli, other: list[str]) -> None:
    with pytest.raises(UsageError, match="--format"):
        cli("recommend", "--format", "nextflow", *other, "--from", kept([report()]))
