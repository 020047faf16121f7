"""What the memory used of a record counts, which changed with schema version 1.4."""

import re

from profiler.record.record_model import Report, is_sampled_each_minute

_EXACT_SINCE = (1, 4)
_VERSION = re.compile(r"(\d{1,4})\.(\d{1,4})", re.ASCII)


def may_count_mapped_files(report: Report) -> bool:
    """Whether memory used may include mapped pages of files, which the kernel can drop.

    It does before schema version 1.4, and in the records of Container Insights. A version that
    cannot be read counts as an old one.
    """
    version = _VERSION.match(report.schema_version)
    if version is None or is_sampled_each_minute(report.record):
        return True
    major, minor = version.groups()
    return (int(major), int(minor)) < _EXACT_SINCE
