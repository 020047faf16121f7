"""Which runs of AWS Batch's jobs are one row of advice.

A submission can ask for another size than its job's definition has, and engines of workflows
register definitions of their own: one for each image, or for each job. Runs of a job count together
that have one name, without what changes in it, and ask for one size; or those of a definition.
"""

from collections.abc import Iterable, Mapping
from typing import Final, Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from profiler.core.optional_math import known, known_values
from profiler.record.family_identity import FamilyKey, family_key
from profiler.record.job_names import common_name, name_without_changes
from profiler.record.record_model import Record, TaskSize
from profiler.record.report_head import RecordHead
from profiler.record.task_needs import is_job, task_size_of

# None: by name where a definition's jobs ask for several sizes, or an engine registered it.
JobsBy = Literal["definition", "name"]
Engine = Literal["nextflow", "snakemake", "metaflow", "cromwell"]

# How the names of definitions begin that engines register.
_ENGINES: Final[Mapping[str, Engine]] = {
    "nf-": "nextflow",
    "snakejob-def-": "snakemake",
    "metaflow_": "metaflow",
    "cromwell_": "cromwell",
}
MAX_NAMES: Final = 200
# Jobs of a definition can be of several names and sizes: so many times the last runs are read.
KINDS_OF_JOBS: Final = 20
# Those of these engines end with a hash or with the id of the job.
_NAMED_BY_HASH: Final = frozenset({"snakemake", "metaflow", "cromwell"})


class JobsRow(FamilyKey, frozen=True):
    """Jobs of one name, without what changes in it, that asked for one size."""

    asked: TaskSize = TaskSize()
    engine: Engine | None = None

    @property
    def sort_key(self) -> tuple[str, str, str]:
        vcpu = self.asked.vcpu or 0
        memory_mb = self.asked.memory_mb or 0
        name, account_id, region = super().sort_key
        return name, account_id, f"{region} {vcpu:09.2f} {memory_mb:012.2f}"

    @property
    def distinguishing_text(self) -> str:
        return self.asked.text


class JobKind(Struct, frozen=True):
    """What the runs of jobs have in common that may be one row; ``family`` is of their definition.

    Without a job's name, ``name`` is the family's.
    """

    family: FamilyKey
    name: str
    asked: TaskSize
    engine: Engine | None

    def jobs_row(self) -> JobsRow:
        """The row of these jobs by their name."""
        family = self.family
        return JobsRow(self.name, family.account_id, family.region, self.asked, self.engine)


# Whose newest runs are looked for: a family's, or those of a kind of jobs.
RunsOf: TypeAlias = FamilyKey | JobKind


def engine_of_definition(definition: str) -> Engine | None:
    """The engine that registers definitions with such names."""
    for beginning, engine in _ENGINES.items():
        if definition.startswith(beginning):
            return engine
    return None


class RunKinds:
    """Tells with which other runs a run counts: those of its family, or of its kind of jobs.

    Of a definition, the first names have rows of their own, so that memory is bounded: jobs with
    further names count under the definition's.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[object, ...], JobKind] = {}
        self._names: dict[FamilyKey, set[str]] = {}

    def kind_of_run(self, record: Record | RecordHead) -> RunsOf:
        family = family_key(record)
        if not is_job(record):
            return family
        job = record.batch
        size = task_size_of(record)
        name = known(name_without_changes, job.job_name)
        # A file has a million of them, and few kinds.
        values = (family, job.job_definition, name, size.vcpu, size.memory_mb)
        kind = self._known.get(values)
        if kind is None:
            kind = self._job_kind(family, job.job_definition, name, size)
            if name is None or kind.name == name:
                self._known[values] = kind
        return kind

    def _job_kind(
        self, family: FamilyKey, definition: str | None, name: str | None, asked: TaskSize
    ) -> JobKind:
        definition = definition or family.name
        engine = engine_of_definition(definition)
        if engine in _NAMED_BY_HASH:
            definition = name_without_changes(definition)
        family = replace(family, name=definition)
        names = self._names.setdefault(family, set())
        if name is not None and name not in names and len(names) < MAX_NAMES:
            names.add(name)
        if name not in names:
            name = definition
        return JobKind(family, name or definition, asked, engine)


class RowsByAskedSize:
    """The sizes that jobs of one revision of a definition asked for, and the rows that follow."""

    def __init__(self, jobs_by: JobsBy | None) -> None:
        self._jobs_by = jobs_by
        self._first: dict[tuple[FamilyKey, int | None], TaskSize] = {}
        self._mixed: set[FamilyKey] = set()

    def add_job_run(self, kind: JobKind, record: Record) -> None:
        """Add the run of a job. A definition of which a revision is unknown has only one."""
        revision = record.batch.job_definition_revision
        first = self._first.setdefault((kind.family, revision), kind.asked)
        if first != kind.asked:
            self._mixed.add(kind.family)

    def row_of(self, runs: RunsOf) -> FamilyKey:
        """The row to which runs belong."""
        if isinstance(runs, FamilyKey):
            return runs
        is_by_name = self._jobs_by == "name"
        if self._jobs_by is None:
            is_by_name = runs.engine is not None or runs.family in self._mixed
        return runs.jobs_row() if is_by_name else runs.family


def row_with_common_name(row: FamilyKey, records: Iterable[Record]) -> FamilyKey:
    """The row with the name that the jobs of its runs have in common, as far as they are known."""
    if not isinstance(row, JobsRow):
        return row
    names = {record.batch.job_name for record in records}
    given = sorted(known_values(names))
    if any(name_without_changes(name) != row.name for name in given):
        return row
    return replace(row, name=common_name(given) or row.name)
