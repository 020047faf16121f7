"""The types of what the commands print with ``--json``, and their JSON Schemas."""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from profiler.aws_account.doctor.cluster_checks import FamilyHealth
from profiler.aws_account.doctor.findings import Finding
from profiler.aws_account.running_tasks.queued_jobs import QueuedJob
from profiler.aws_account.setup.setup_steps import SetupStep
from profiler.cli.compare_command import ComparisonDocument
from profiler.cli.json_error import ErrorLine
from profiler.cli.report_command import PageDocument
from profiler.cli.resize_rows import FamilyDocument, TotalDocument
from profiler.cli.schedules_command import ScheduleRow
from profiler.cli.taskdef_command import PlanDocument
from profiler.cli.watch_command import RunningDocument
from profiler.core.errors import UsageError
from profiler.record.model_base import json_schema_of_types
from profiler.record.record_model import Report, json_schema
from profiler.record.stacks_line import StacksLine
from profiler.sizing.advice_document import AdviceDocument

RECORD = ""
# By the words of the command.
JSON_LINES: Mapping[str, tuple[type[Struct], ...]] = {
    RECORD: (Report,),
    "run": (Report,),
    "history": (Report,),
    "show": (Report,),
    "show --stacks": (StacksLine,),
    "compare": (ComparisonDocument,),
    "report": (PageDocument,),
    "recommend": (AdviceDocument,),
    "watch": (RunningDocument,),
    "watch --queue": (QueuedJob,),
    "schedules": (ScheduleRow,),
    "setup": (SetupStep,),
    "doctor": (Finding,),
    "doctor --cluster": (FamilyHealth,),
    "taskdef add-monitor": (PlanDocument,),
    "taskdef remove-monitor": (PlanDocument,),
    "taskdef resize": (FamilyDocument, TotalDocument),
    "error": (ErrorLine,),
}


def schema_of_command_lines(words: str) -> dict[str, Any]:
    """The JSON Schema of the lines of a command. Raises UsageError."""
    types = JSON_LINES.get(words)
    if types is None:
        names = ", ".join(filter(None, JSON_LINES))
        raise UsageError(f"No schema is called {words!r}: name one of {names}.")
    if types == (Report,):
        return json_schema()
    return json_schema_of_types(types, f"task-profiler {words} --json")
