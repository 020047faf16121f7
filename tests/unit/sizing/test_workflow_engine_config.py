"""Lines for the configuration of engines, by a strict grammar. The engines themselves read them in
tests/orchestrators.
"""

import re
from collections.abc import Sequence

from profiler.record.batch_job import BatchJob
from profiler.record.record_model import Report
from profiler.sizing.advice import Advice, advise_on_size
from profiler.sizing.choose_size import SizePolicy
from profiler.sizing.fargate_sizes import LEGAL_SIZES, Size
from profiler.sizing.job_grouping import Engine
from profiler.sizing.prices import PriceOverrides
from profiler.sizing.run_collector import FamilyRunCollector
from profiler.sizing.workflow_engine_config import engine_config_lines
from tests.cases import each_case
from tests.runs import add_reports, report

JOB_ID = "0f8fad5b-d9cb-469f-a165-70867728950e"
NEXTFLOW = re.compile(
    r"process \{\n"
    r"(?:  withName: '(?P<name>[A-Za-z0-9_.:-]+)' \{ "
    r"(?:cpus = [1-9][0-9]*; )?memory = '[1-9][0-9]* [MG]B' \}\n)+"
    r"\}\n",
    re.ASCII,
)
SNAKEMAKE = re.compile(
    r"set-resources:\n(?:  [A-Za-z0-9_-]+:\n    mem_mb: [1-9][0-9]*\n)+"
    r"(?:set-threads:\n(?:  [A-Za-z0-9_-]+: [1-9][0-9]*\n)+)?",
    re.ASCII,
)
METAFLOW = re.compile(
    r"(?:@resources\((?:cpu=[1-9][0-9]*, )?memory=[1-9][0-9]*\)  # step [A-Za-z0-9_.:-]+"
    r"(?: of [A-Za-z0-9_.:-]+)?\n)+",
    re.ASCII,
)
CROMWELL = re.compile(
    r'(?:runtime \{  # [A-Za-z0-9_.:-]+\n(?:  cpu: [1-9][0-9]*\n)?  memory: "[1-9][0-9]* MiB"\n\}\n)+',
    re.ASCII,
)
GRAMMARS: dict[Engine, re.Pattern[str]] = {
    "nextflow": NEXTFLOW,
    "snakemake": SNAKEMAKE,
    "metaflow": METAFLOW,
    "cromwell": CROMWELL,
}


def jobs(
    name: str,
    *,
    definition: str = "nf-quay-io-star",
    size: tuple[float, float] = (8, 65_536),
    peak_mb: float = 25_000,
    p95: float | None = 3.1,
    launch_type: str = "EC2",
    runs: int = 3,
) -> list[Report]:
    batch = BatchJob(job_id=JOB_ID, job_name=name, job_definition=definition)
    return [
        report(
            number,
            task_id=f"{name}-{size[1]}-{number}",
            family=definition,
            cluster="AWSBatch-spot-1",
            launch_type=launch_type,
            size=size,
            peak_mb=peak_mb,
            p95=p95,
            batch=batch,
        )
        for number in range(runs)
    ]


def advices(*reports: Sequence[Report]) -> list[Advice]:
    families = FamilyRunCollector(jobs_by="name")
    for of_jobs in reports:
        add_reports(families, of_jobs)
    return [
        advise_on_size(evidence, SizePolicy(), PriceOverrides())
        for evidence in families.evidence_by_row().values()
        if evidence is not None
    ]


def text(engine: Engine, *reports: Sequence[Report]) -> str:
    return "".join(f"{line}\n" for line in engine_config_lines(engine, advices(*reports)))


def test_nextflows_lines_select_the_process_and_set_whole_cpus() -> None:
    assert text("nextflow", jobs("STAR_ALIGN (S1)")) == (
        "process {\n  withName: 'STAR_ALIGN' { cpus = 4; memory = '30016 MB' }\n}\n"
    )


def test_the_other_engines_have_their_own_words() -> None:
    snakemake = jobs(
        "snakejob-map_reads-0f8fad5b-d9cb-469f-a165-70867728950e", definition="snakejob-def-x"
    )
    assert text("snakemake", snakemake) == (
        "set-resources:\n  map_reads:\n    mem_mb: 30016\nset-threads:\n  map_reads: 4\n"
    )
    metaflow = jobs("ann-TrainFlow-12-train-34-0", definition="metaflow_1")
    assert text("metaflow", metaflow) == (
        "@resources(cpu=4, memory=30016)  # step train of ann-TrainFlow\n"
    )
    cromwell = jobs("align.bwa", definition="cromwell_x_1")
    assert text("cromwell", cromwell) == (
        'runtime {  # align.bwa\n  cpu: 4\n  memory: "30016 MiB"\n}\n'
    )


@each_case("engine", GRAMMARS)
@each_case(
    "name",
    [
        "STAR_ALIGN",
        "a' } ; println 'x",
        'a": "b"\n  c: [',
        "x\\",
        "\x1b[31mred",
        "*/ \u202e",
        "ünïcode",
        "- - -",
        "---",
        "A:B:C.d",
        "n" * 300,
    ],
)
def test_any_name_gives_lines_that_the_engine_can_read(engine: Engine, name: str) -> None:
    for p95 in (3.1, None):
        written = text(engine, jobs(name, definition="etl", p95=p95))
        assert GRAMMARS[engine].fullmatch(written), written


def test_jobs_of_several_sizes_get_what_is_enough_for_all() -> None:
    small = jobs("STAR_ALIGN", size=(4, 16_384), peak_mb=2_000, p95=1.2)
    large = jobs("STAR_ALIGN", size=(8, 65_536), peak_mb=25_600, p95=5)
    assert text("nextflow", small, large) == (
        "process {\n  withName: 'STAR_ALIGN' { cpus = 5; memory = '30 GB' }\n}\n"
    )


def test_only_jobs_that_need_another_size_have_lines() -> None:
    right = jobs("FASTQC", size=(4, 3_072), peak_mb=2_400, p95=3.9)
    assert text("nextflow", right) == ""
    assert "FASTQC" not in text("nextflow", right, jobs("STAR_ALIGN"))


def test_on_fargate_the_lines_have_a_size_that_it_has() -> None:
    tiny = jobs("FASTQC", size=(4, 8_192), peak_mb=300, p95=0.1, launch_type="FARGATE")
    assert text("nextflow", tiny) == (
        "process {\n  withName: 'FASTQC' { cpus = 1; memory = '2 GB' }\n}\n"
    )
    assert Size(1, 2_048) in LEGAL_SIZES


def test_an_engine_gets_no_lines_of_another_ones_jobs() -> None:
    of_snakemake = jobs("snakejob-map", definition="snakejob-def-map")
    own = jobs("load", definition="etl")
    assert "load" in text("nextflow", of_snakemake, own)
    assert "map" not in text("nextflow", of_snakemake, own)
    assert "load" not in text("nextflow", jobs("STAR_ALIGN"), own)
