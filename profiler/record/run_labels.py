"""A run's labels: what ``--label NAME=VALUE`` and ``FAMILY@NAME=VALUE`` select runs by, and the
commit of a local run.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from profiler.record.batch_job import known_job_fields
from profiler.record.record_model import Record

if TYPE_CHECKING:
    from profiler.record.report_head import RecordHead

BATCH_PREFIX = "batch."
COMMIT = "gitCommit"
_SHORT_COMMIT_LENGTH = 7  # as in git log --oneline


def label_values(record: "Record | RecordHead") -> Mapping[str, str]:
    """The labels of a run, and its job of AWS Batch as ``batch.job_id`` and so on."""
    labels = dict(record.labels or {})
    for name, value in known_job_fields(record.batch).items():
        labels[f"{BATCH_PREFIX}{name}"] = str(value)
    return labels


def short_commit_label(record: Record) -> str:
    """The beginning of the commit at which a local run's command stood; "" if it is unknown."""
    return (record.labels or {}).get(COMMIT, "")[:_SHORT_COMMIT_LENGTH]
