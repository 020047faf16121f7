"""The line with the call stacks of a run over time."""

import re
from collections.abc import Mapping
from functools import partial
from typing import Literal

from msgspec import field

from profiler.core.json_fields import decoded_or_none
from profiler.core.optional_math import known
from profiler.record.model_base import Model

# How the lines of the sampler begin.
STACKS_BEGINNING = b'{"type":"task.stacks"'
# A line's type is at its beginning, or at its end if a program has sorted the names.
_STACKS_TYPE = rb'[{,]\s*"type"\s*:\s*"task\.stacks"'
_MAX_END_BYTES = 1024


class StackStep(Model, frozen=True, kw_only=True):
    """The stacks of one step of the run: how often each folded stack was seen.

    A folded stack lists its functions from the outermost on, separated by semicolons: ``main
    (job.py);load (etl.py)``.
    """

    offset_ms: int
    duration_ms: int
    stacks: Mapping[str, int]


class StacksLine(Model, frozen=True, kw_only=True):
    """The call stacks of a run over time, as a separate JSON line in the batch's log stream
    before the report.

    ``ownFiles`` are the files of the user's code in the stacks; lines of schema 1.2 and earlier
    lack it.
    """

    type: Literal["task.stacks"]
    task_id: str
    container: str
    format: str = field(default_factory=lambda: "folded")
    steps: tuple[StackStep, ...] = ()
    own_files: tuple[str, ...] | None = None


def is_stacks_line(line: bytes) -> bool:
    """Whether the line has the call stacks of a run.

    Decoding it would take longer than decoding a report.
    """
    head = line[:_MAX_END_BYTES].lstrip()
    if len(line) <= _MAX_END_BYTES:
        ends = head
    else:
        ends = head + line[-_MAX_END_BYTES:]
    return head.startswith(b"{") and bool(re.search(_STACKS_TYPE, ends))


def decode_stacks_line(line: bytes) -> StacksLine | None:
    """Decode the line without steps whose times are impossible.

    None: it is another line, or it is damaged.
    """
    # Only readers import it.
    from profiler.record.impossible_values import decode_leniently, without_impossible

    stacks = decoded_or_none(partial(decode_leniently, StacksLine), line)
    return known(without_impossible, stacks)
