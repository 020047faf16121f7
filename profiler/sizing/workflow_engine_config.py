"""Lines for the configuration of engines that submit jobs to AWS Batch and set their sizes.

An engine's own name of the work is known only by the jobs' names: Batch allows letters, digits,
``-`` and ``_``, so that Nextflow leaves colons and parentheses out of them.
"""

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final

from msgspec import Struct

from profiler.core.optional_math import known_values
from profiler.core.text import words_if_known
from profiler.record.units import MB_PER_GB
from profiler.sizing.advice import Advice
from profiler.sizing.fargate_sizes import LEGAL_SIZES, Size
from profiler.sizing.job_grouping import Engine, JobsRow
from profiler.sizing.sizing_rules import advice_verdict

# Job names are anybody's words.
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_.:-]+", re.ASCII)
# What engines write in front of their name of the work; Seqera's Platform before Nextflow's.
_BEGINNINGS: Final[Mapping[Engine, str]] = {"nextflow": "tw-", "snakemake": "snakejob-"}


class JobSize(Struct, frozen=True, kw_only=True):
    """The size for all jobs of a name, in whole vCPUs as engines take them; None: unknown."""

    name: str
    vcpu: int | None
    memory_mb: int


def engine_config_lines(engine: Engine, advices: Iterable[Advice]) -> Sequence[str]:
    """The lines that set the recommended sizes of jobs; empty where none is to be changed."""
    sizes = list(_sizes_by_job_name(engine, advices))
    if not sizes:
        return ()
    return list(_WRITERS[engine](sizes))


def _sizes_by_job_name(engine: Engine, advices: Iterable[Advice]) -> Iterator[JobSize]:
    """The sizes by name. One that is set for jobs of several sizes must be enough for all."""
    by_name: dict[str, list[JobSize]] = {}
    changed: set[str] = set()
    for advice, row in _advices_of_engine(engine, advices):
        size = _whole_vcpu_size(advice)
        if size is None:
            continue
        name = _NOT_IN_NAMES.sub("_", row.name.removeprefix(_BEGINNINGS.get(engine, "")))
        by_name.setdefault(name, []).append(size)
        if advice.choice.is_other_size_better and advice_verdict(advice) in (
            "saves",
            "too small",
            "less is enough",
        ):
            changed.add(name)
    for name in sorted(changed):
        vcpus = [size.vcpu for size in by_name[name]]
        known_vcpus = known_values(vcpus)
        yield JobSize(
            name=name,
            vcpu=max(known_vcpus) if len(known_vcpus) == len(vcpus) else None,
            memory_mb=max(size.memory_mb for size in by_name[name]),
        )


def _advices_of_engine(
    engine: Engine, advices: Iterable[Advice]
) -> Sequence[tuple[Advice, JobsRow]]:
    """The advice on jobs whose definitions the engine registered; without any, on those whose
    engine is not known.
    """
    by_engine: dict[Engine | None, list[tuple[Advice, JobsRow]]] = {}
    for advice in advices:
        row = advice.evidence.family
        if isinstance(row, JobsRow):
            by_engine.setdefault(row.engine, []).append((advice, row))
    return by_engine.get(engine) or by_engine.get(None) or ()


def _whole_vcpu_size(advice: Advice) -> JobSize | None:
    """The recommended size in whole vCPUs, on Fargate a legal one; None without its memory."""
    size = advice.choice.size
    if size.memory_mb is None:
        return None
    memory_mb = math.ceil(size.memory_mb)
    vcpu = None if size.vcpu is None else max(math.ceil(size.vcpu), 1)
    if advice.choice.is_fargate and vcpu is not None:
        enough = (one for one in LEGAL_SIZES if one.vcpu >= vcpu and one.memory_mb >= memory_mb)
        smallest = next(enough, Size(vcpu, memory_mb))
        vcpu, memory_mb = round(smallest.vcpu), round(smallest.memory_mb)
    return JobSize(name=advice.evidence.family.name, vcpu=vcpu, memory_mb=memory_mb)


def _nextflow_lines(sizes: Sequence[JobSize]) -> Iterator[str]:
    """Nextflow's MB and GB are powers of 1,024."""
    yield "process {"
    for size in sizes:
        cpus = words_if_known("cpus = {}; ", size.vcpu)
        memory = f"{size.memory_mb} MB"
        if size.memory_mb % MB_PER_GB == 0:
            memory = f"{size.memory_mb // MB_PER_GB} GB"
        yield f"  withName: '{size.name}' {{ {cpus}memory = '{memory}' }}"
    yield "}"


def _snakemake_lines(sizes: Sequence[JobSize]) -> Iterator[str]:
    """A profile. The plugin passes ``mem_mb`` to Batch, whose unit is MiB."""
    yield "set-resources:"
    for size in sizes:
        yield f"  {_yaml_key(size.name)}:"
        yield f"    mem_mb: {size.memory_mb}"
    threads = [size for size in sizes if size.vcpu is not None]
    if threads:
        yield "set-threads:"
    for size in threads:
        yield f"  {_yaml_key(size.name)}: {size.vcpu}"


def _metaflow_lines(sizes: Sequence[JobSize]) -> Iterator[str]:
    """The decorator of a step. A job's name is user, flow and step, each before a hyphen."""
    for size in sizes:
        flow, _, step = size.name.strip("-").rpartition("-")
        cpu = words_if_known("cpu={}, ", size.vcpu)
        of_flow = f" of {flow}" if flow else ""
        yield f"@resources({cpu}memory={size.memory_mb})  # step {step or size.name}{of_flow}"


def _cromwell_lines(sizes: Sequence[JobSize]) -> Iterator[str]:
    """The section of a task in WDL."""
    for size in sizes:
        yield f"runtime {{  # {size.name}"
        if size.vcpu is not None:
            yield f"  cpu: {size.vcpu}"
        yield f'  memory: "{size.memory_mb} MiB"'
        yield "}"


def _yaml_key(name: str) -> str:
    """A name as a key of YAML, where a colon would end it."""
    return name.replace(":", "_").replace(".", "_").strip("-") or "job"


_WRITERS: Final[Mapping[Engine, Callable[[Sequence[JobSize]], Iterator[str]]]] = {
    "nextflow": _nextflow_lines,
    "snakemake": _snakemake_lines,
    "metaflow": _metaflow_lines,
    "cromwell": _cromwell_lines,
}
