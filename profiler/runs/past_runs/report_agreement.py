"""What ECS said about ended tasks: the ``task.ended`` lines that task_stopped writes for their
events.

Any task definition of an account can name any log group, prefix and container as its own, so a line
with a report is not ECS's word. Such a line of task_stopped is, in a stream of Lambda.
"""

from hashlib import blake2b
from typing import Final, Literal

import msgspec
from msgspec import Struct

from profiler.core.completeness import Gap
from profiler.core.json_fields import decoded_or_none
from profiler.record.line_trust import is_lambda_stream
from profiler.record.record_model import Metrics
from profiler.runs.past_runs.past_run import PastRun

ENDED_TYPE = "task.ended"
Word = Literal["agrees", "nothing", "contradicts"]
# Of a number that two programs have written.
_TOLERANCE = 1e-6


class _EndedLine(Struct, frozen=True, kw_only=True, rename="camel"):
    """The part of a line that is compared."""

    type: str
    task_id: str
    family: str
    revision: str | None = None
    container: str | None = None
    outcome: str | None = None
    metrics: Metrics = Metrics()


_decoder = msgspec.json.Decoder(_EndedLine)


class BelievedLines:
    """ECS is not asked: each line is believed."""

    gaps: tuple[Gap, ...] = ()

    def agreement_with(self, run: PastRun) -> Word:  # noqa: ARG002
        """What a line says of the run's task, family, end and peak."""
        return "agrees"


ALL_BELIEVED: Final = BelievedLines()


class EndedTaskLines(BelievedLines):
    """The tasks of the lines, in little memory: there may be a hundred thousand.

    ``group`` is the log group of task_stopped; ``gaps``: why its lines are only a part.
    """

    def __init__(self, group: str) -> None:
        self.group = group
        self._tasks: set[bytes] = set()
        self._peaks_mb: dict[bytes, float] = {}
        self._successes: set[bytes] = set()

    def add_line(self, log_stream: str, message: str) -> None:
        """Add a line. Others, and those in other streams than Lambda's, do not count."""
        if not is_lambda_stream(self.group, log_stream):
            return
        line = decoded_or_none(_decoder.decode, message.encode(errors="replace"))
        if line is None or line.type != ENDED_TYPE:
            return
        self._tasks.add(_digest(line.task_id, line.family, line.revision or ""))
        if line.container is None:
            return
        name = _digest(line.task_id, line.container)
        peak_mb = line.metrics.max_memory_used_mb
        if peak_mb is not None:
            self._peaks_mb[name] = peak_mb
        if line.outcome == "success":
            self._successes.add(name)

    def agreement_with(self, run: PastRun) -> Word:
        """What a line says of the run's task, family, end and peak. A run that is not from
        CloudWatch Logs needs none.
        """
        if run.place is None:
            return "agrees"
        record = run.record
        task = record.task_id
        family = record.family or ""
        names = {_digest(task, family, revision) for revision in (record.revision or "", "")}
        if names.isdisjoint(self._tasks):
            return "nothing"
        name = _digest(task, record.container.name)
        if name in self._successes and run.outcome.ran_out_of_memory:
            return "contradicts"
        # A line without the report has the peak of a checkpoint, and no peak falls again.
        least_mb = self._peaks_mb.get(name, 0)
        peak_mb = record.metrics.max_memory_used_mb
        if peak_mb is not None and peak_mb < least_mb * (1 - _TOLERANCE):
            return "contradicts"
        return "agrees"


def _digest(*parts: str) -> bytes:
    text = "\0".join(parts).encode("utf-8", "surrogatepass")
    return blake2b(text, digest_size=8).digest()
