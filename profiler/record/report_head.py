"""The part of a report that filters read, without the measurements."""

from collections.abc import Mapping

from profiler.record.batch_job import NO_JOB, BatchJob
from profiler.record.measured import Number
from profiler.record.model_base import Model
from profiler.record.record_model import SCHEMA_VERSION, UNKNOWN_SIZE, RecordType, TaskSize


class ContainerHead(Model, frozen=True, kw_only=True):
    """The part of a container that filters read."""

    name: str


class SizesHead(Model, frozen=True, kw_only=True):
    """What a container asked for."""

    vcpu_share: Number | None = None
    memory_size_mb: Number | None = None


class RecordHead(Model, frozen=True, kw_only=True):
    """The part of a record that filters read."""

    task_id: str
    task_arn: str | None = None
    cluster: str | None = None
    family: str | None = None
    account_id: str | None = None
    region: str | None = None
    container: ContainerHead
    status: str = "unknown"
    started_at: str | None = None
    finished_at: str | None = None
    labels: Mapping[str, str] | None = None
    batch: BatchJob = NO_JOB
    launch_type: str | None = None
    task_size: TaskSize = UNKNOWN_SIZE
    metrics: SizesHead = SizesHead()
    tags: Mapping[str, str] | None = None


class ReportHead(Model, frozen=True, kw_only=True):
    """The part of a report that filters read.

    Decoding it takes a third of the time of the whole report.
    """

    time: str
    type: RecordType
    schema_version: str = ""
    record: RecordHead

    @property
    def is_of_other_schema(self) -> bool:
        """Whether values may mean something else than here: the version of the schema begins with
        a larger number, or is none.
        """
        number, _, _ = self.schema_version.partition(".")
        own, _, _ = SCHEMA_VERSION.partition(".")
        if not number.isdecimal():
            return bool(self.schema_version)
        return int(number) > int(own)
