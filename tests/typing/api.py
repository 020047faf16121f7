"""The types of the public API. mypy checks this file (``make types``); it is never run."""

from typing import Any, assert_type

from profiler import Record, Report, __version__, decode, encode, json_schema
from profiler.record.record_model import Metrics, known_status
from profiler.record.run_outcome import Status

report = decode(b"{}")
assert_type(report, Report)
assert_type(decode("{}"), Report)
assert_type(report.record, Record)
assert_type(report.record.status, str)
assert_type(known_status(report.record), Status)
assert_type(report.record.metrics, Metrics)
assert_type(report.record.metrics.max_memory_used_mb, int | float | None)
assert_type(encode(report), bytes)
assert_type(json_schema(), dict[str, Any])
assert_type(__version__, str)

decode(1)  # type: ignore[arg-type]  # a line is bytes or text
report.record = report.record  # type: ignore[misc]  # records are immutable
from profiler import no_such_name  # type: ignore[attr-defined]  # noqa: E402, F401  lazy names are checked, too
