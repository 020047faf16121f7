"""One line of advice for the end of a run: its story's first, else the size of its family."""

from profiler.record.record_model import NO_RECOMMENDATION, UNKNOWN_SIZE, Record, known_status
from profiler.record.run_outcome import Outcome
from profiler.record.run_summary import Story
from profiler.record.units import format_memory, format_task_size

# A shorter run is little evidence for a size.
_MIN_SIZED_MS = 1000


def next_step(record: Record, story: Story, recommend: str) -> str:
    """The most useful advice that the record supports; "" if there is none.

    ``recommend`` is the command for a size; "" without one.
    """
    if story.outcome.ran_out_of_memory:
        return _more_memory_advice(record, recommend)
    if record.likely_out_of_gpu_memory:
        from profiler.record.gpu_facts import more_gpu_memory_advice  # most runs have no GPU

        return more_gpu_memory_advice(record)
    if known_status(record) != "success":
        return ""
    of_run = next((row.text for row in story.advice), "")
    return of_run or _sufficient_size_advice(record, story, recommend)


def _more_memory_advice(record: Record, recommend: str) -> str:
    """The size that ``recommend`` gives, if it is larger than the size that was too small."""
    size_mb = record.metrics.memory_size_mb
    recommended_mb = record.recommendation.memory_mb
    if recommended_mb is not None and recommended_mb > (size_mb or 0):
        memory = f"{format_memory(recommended_mb)} of memory{recommend and f' ({recommend})'}"
    elif size_mb:
        memory = f"more memory than {format_memory(size_mb)}"
    else:
        memory = "more memory"
    return f"give it {memory} or process less data at a time."


def may_name_size(record: Record, outcome: Outcome) -> bool:
    """Whether the advice can be a size."""
    is_long = (record.metrics.duration_ms or 0) >= _MIN_SIZED_MS
    is_compared = outcome.ran_out_of_memory or (is_long and record.task_size == UNKNOWN_SIZE)
    return is_compared and record.recommendation != NO_RECOMMENDATION


def _sufficient_size_advice(record: Record, story: Story, recommend: str) -> str:
    """The size that the run would have needed as a task; a run of a task has a size to compare
    with.
    """
    recommended = record.recommendation
    if not may_name_size(record, story.outcome):
        return ""
    size = format_task_size(recommended.vcpu, recommended.memory_mb)
    if not size:
        return ""
    beside = story.usage.beside_text
    return f"{size}{beside} would have been enough{recommend and f' ({recommend})'}."
