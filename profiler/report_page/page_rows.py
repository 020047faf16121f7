"""The rows of the report page's data: what its scripts read, field by field.

``tools/page_types.py`` writes the JavaScript types from these. A field without a value is left out.
Memory is in MB, times are in milliseconds, and percentages go to 100 unless a field says otherwise.
"""

from typing import cast

import msgspec
from msgspec import Struct

from profiler.core.json_fields import Json
from profiler.record.measured import Number


class PageRow(Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """The base of all rows."""

    def as_json(self) -> dict[str, Json]:
        """The fields that have a value, under their names on the page."""
        return cast("dict[str, Json]", msgspec.to_builtins(self))


class PageRun(PageRow, frozen=True, kw_only=True):
    """What tables and overview charts show of a run.

    ``family`` is a label that only this family has; ``name`` is the family itself where the label
    differs. ``began`` is milliseconds since 1970, of the first line if ``start_unknown``. ``cpu``
    and ``memory`` are the averages in percent of the size, ``vcpu_avg``, ``vcpu_p95`` and
    ``vcpu_max`` are in vCPU, ``vcpu_size`` as well: if ``vcpu_asked``, it is what a job asked for,
    and no limit. ``size``, ``memory_avg`` and ``peak`` are the container's memory, which may
    include mapped files if ``counts_files``.
    ``task_size`` is vCPU and memory. ``read``, ``written``, ``received`` and ``sent`` are bytes.
    ``gpu``, ``gpu_sm`` and ``gpu_peak`` are of all GPUs together, ``gpu_word`` stands in place of
    their use, ``gpu_idle`` and ``gpu_between`` are shares of the run, and ``gpu_size`` is the
    memory of the GPU with the largest peak.
    ``course`` has the memory peaks of 24 equal parts as digits to the base 36. ``ending`` stands in
    place of ``outcome`` where that says too little, and ``why`` says why the run ended in a few
    words. ``at_least`` has the fields of the numbers that may have been larger,
    ``estimated`` those of estimates.
    """

    id: str
    family: str
    name: str | None = None
    revision: str | None = None
    container: str
    outcome: str
    ending: str | None = None
    why: str | None = None
    exit: int | None = None
    began: int | None = None
    start_unknown: bool | None = None
    ms: Number | None = None
    init: Number | None = None
    billed: Number | None = None
    cpu: Number | None = None
    memory: Number | None = None
    vcpu_size: Number | None = None
    vcpu_asked: bool | None = None
    vcpu_avg: Number | None = None
    vcpu_p95: Number | None = None
    vcpu_max: Number | None = None
    saturated: Number | None = None
    cpu_seconds: Number | None = None
    size: Number | None = None
    memory_avg: Number | None = None
    peak: Number | None = None
    peak_by: str | None = None
    counts_files: bool | None = None
    usd: Number | None = None
    account: str | None = None
    cluster: str | None = None
    launch: str | None = None
    region: str | None = None
    task_size: tuple[Number | None, Number | None] | None = None
    read: int | None = None
    written: int | None = None
    received: int | None = None
    sent: int | None = None
    pids: int | None = None
    gpu: Number | None = None
    gpu_word: str | None = None
    gpu_sm: Number | None = None
    gpu_idle: Number | None = None
    gpu_between: Number | None = None
    gpu_peak: Number | None = None
    gpu_size: Number | None = None
    at_least: list[str] | None = None
    estimated: list[str] | None = None
    course: str | None = None


# Name, arguments, number, CPU seconds, peak memory, the number of processes that held it, and
# whether the CPU time and the memory are lower bounds.
PageProcess = tuple[
    str, str | None, int | None, Number | None, Number | None, int | None, bool, bool
]


class PageGpu(PageRow, frozen=True, kw_only=True):
    """One GPU: ``percent`` and ``top`` are the texts of its mean and largest utilization, ``sm`` of
    how active its multiprocessors were;
    ``memory`` says how much of its ``size`` in MB the run was seen to hold. ``whose`` names the
    programs of these numbers, if they may not be the run's alone.
    """

    name: str
    percent: str | None = None
    top: str | None = None
    sm: str | None = None
    idle: str | None = None
    whose: str | None = None
    memory: str | None = None
    size: Number | None = None
    watts: Number | None = None
    celsius: Number | None = None
    xids: list[int] | None = None


class PageNeuron(PageRow, frozen=True, kw_only=True):
    """The NeuronCores, each with its index, its mean and its largest utilization; the devices'
    memory, and the executions.
    """

    cores: list[tuple[int, Number | None, Number | None]] | None = None
    mb: Number | None = None
    size: Number | None = None
    completed: int | None = None
    failed: int | None = None


# Function, file, line, and the percentages of its own and its total samples.
PageFunction = tuple[str, str | None, int | None, Number | None, Number | None]


class RunActivity(PageRow, frozen=True, kw_only=True):
    """Where the time of a run went.

    ``time`` has the parts in the order of the record's time breakdown, ``targets`` kind, name and
    percent of what it waited for. ``cpu_wait`` is a sentence. ``has_activity``: the run may have
    processes over time, or call stacks.
    """

    time: list[Number | None] | None = None
    targets: list[tuple[str, str, Number | None]] | None = None
    covered: Number | None = None
    cpu_wait: str | None = None
    cpu_wait_partial: bool | None = None
    processor: str | None = None
    has_activity: bool | None = None
    stack_source: str | None = None
    samples: int | None = None
    functions: list[PageFunction] | None = None


class RunDetails(RunActivity, frozen=True, kw_only=True):
    """What only an opened run shows, with its activity.

    ``verdict`` is a tone, a sentence and perhaps its evidence. ``moments`` are kind, start and end
    after the start of the run, and text. ``files`` and
    ``huge_pages`` say what the memory used lacks. ``peak_at`` is also after the start. ``kills`` is
    a sentence on kills for memory, and the processes. ``usual`` are the fields of the compared
    numbers that are within the spread of the family's earlier successes, ``unusual`` those
    that are not; a number of fewer than five runs is in neither. ``device_use`` says in a line
    what the GPUs or NeuronCores did, ``beside`` which of them a size of vCPU and memory leaves out.
    """

    verdict: list[str]
    moments: list[tuple[str, int, int, str]] | None = None
    files: str | None = None
    huge_pages: str | None = None
    peak_at: int | None = None
    command: str | None = None
    image: str | None = None
    log_group: str | None = None
    log_stream: str | None = None
    processes: list[PageProcess] | None = None
    kills: tuple[str, list[PageProcess]] | None = None
    usual: list[str] | None = None
    unusual: list[str] | None = None
    unmeasured: str | None = None
    run_advice: list[str] | None = None
    device_use: str | None = None
    beside: str | None = None
    gpus: list[PageGpu] | None = None
    gpu_notes: list[str] | None = None
    neuron: PageNeuron | None = None
    labels: list[str] | None = None
    job: str | None = None
    tags: list[str] | None = None
    warnings: list[str] | None = None
    notices: list[str] | None = None


class PageNotice(PageRow, frozen=True, kw_only=True):
    """A notice of a schedule, with the names of a run's fields, so that filters select both.

    ``came_late``: the missed task started later.
    """

    family: str
    account: str | None = None
    region: str | None = None
    cluster: str | None = None
    outcome: str
    began: int | None = None
    came_late: bool | None = None
    text: str


class PageNightText(PageRow, frozen=True, kw_only=True):
    """A piece of the sentence of the last night. ``run`` is the row of the run that it opens."""

    text: str
    is_number: bool | None = None
    run: int | None = None


class PageNight(PageRow, frozen=True, kw_only=True):
    """The sentence of the last night, and its bounds, also as times of ``zone``, in which it was
    made.
    """

    texts: list[PageNightText]
    start: int
    end: int
    begins: str
    ends: str
    zone: str
