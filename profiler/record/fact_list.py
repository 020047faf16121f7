"""What outputs say of a run: one list of facts, with the same digits and marks in all of them.

The terminal, Slack, the events and the report page print these. A fact has a value, its text with
the mark ``≥`` if it may have been larger, and, where the text alone says too little, a sentence.
The numbers are the rows of ``NUMBERS``; a comparison of two runs and the page print them row by
row.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import product
from operator import itemgetter
from typing import Final, Literal

from msgspec import Struct

from profiler.core.optional_math import known
from profiler.core.text import words_if_known
from profiler.record.activity_model import TimeBreakdown, WaitTarget
from profiler.record.cpu_wait import is_cpu_wait_partial
from profiler.record.mapped_files import means_same_memory
from profiler.record.measured import (
    UNKNOWN,
    Approximately,
    AtLeast,
    Exactly,
    Measured,
    Number,
    measured_from,
)
from profiler.record.mention_limits import (
    MIN_WAIT_PERCENT,
    PAST_WAITS,
    WAIT_FOR_CPU,
    are_bytes_partial,
    is_cpu_partial,
    is_gpu_use_approximate,
    is_gpu_use_estimated,
    is_gpu_use_partial,
)
from profiler.record.record_model import Cost, MemoryKills, Record
from profiler.record.record_paths import RunView, Unit, is_of_gpus, may_be_of_others, view_reader
from profiler.record.spot_price import is_on_spot, measured_cost
from profiler.record.task_needs import vcpu_size
from profiler.record.units import (
    format_count,
    format_memory,
    format_time_share,
    format_usd,
    format_value,
)

_MAX_TARGETS: Final = 5
_MAX_VICTIMS: Final = 5


class Fact(Struct, frozen=True, kw_only=True):
    """One fact: its number in its unit, and the number as text with its mark. ``sentence`` is ""
    where name and text say everything.
    """

    name: str
    number: Measured
    unit: Unit
    text: str
    sentence: str = ""

    @property
    def list_text(self) -> str:
        """The fact in a list: ``memory peak ≥512 MB``."""
        return f"{self.name} {self.text}"


def _is_peak_sampled(record: Record) -> bool:
    return isinstance(record.metrics.memory_peak, AtLeast)


def _is_cost_on_spot(record: Record) -> bool:
    return is_on_spot(record.cost)


def _never_true(record: Record) -> bool:  # noqa: ARG001
    return False


def _always_true(record: Record) -> bool:  # noqa: ARG001
    return True


class NumberRow(Struct, frozen=True):
    """A number of a run: its name, its unit, and its path in the view of a record.

    ``is_least`` says of a record whether the number may have been larger: a part of the run was not
    seen, or AWS does not say the price; ``is_estimate`` whether it may also have been smaller.
    ``bounds_have_change``: where such lower bounds of two runs have a change.
    ``page_field`` is its field in the page's row of the run, "" if it has none. Of two runs the
    terminal compares the numbers that are ``compared``, and the page those that are
    ``compared_on_page``.
    """

    name: str
    unit: Unit
    path: str
    page_field: str = ""
    compared: bool = True
    compared_on_page: bool = False
    is_least: Callable[[Record], bool] = _never_true
    is_estimate: Callable[[Record], bool] = _never_true
    bounds_have_change: Literal["never", "of both", "always"] = "never"


DURATION = NumberRow("duration", "ms", "metrics.duration_ms", "ms", compared_on_page=True)
COST = NumberRow(
    "cost",
    "USD",
    "record.cost.usd",
    "usd",
    compared_on_page=True,
    is_least=_is_cost_on_spot,
    bounds_have_change="of both",
)
CPU_TIME = NumberRow(
    "CPU time",
    "s",
    "metrics.cpu_seconds",
    "cpuSeconds",
    compared_on_page=True,
    is_least=is_cpu_partial,
)
MEMORY_PEAK = NumberRow(
    "memory peak",
    "MB",
    "metrics.max_memory_used_mb",
    "peak",
    compared_on_page=True,
    is_least=_is_peak_sampled,
    bounds_have_change="always",  # with a note
)
MEMORY_AVERAGE = NumberRow("memory average", "MB", "metrics.memory_used_mb.avg", "memoryAvg")
# Their meaning differs between versions: see profiler.record.mapped_files.
MEMORY_ROWS = (MEMORY_AVERAGE, MEMORY_PEAK)
READ = NumberRow(
    "read",
    "bytes",
    "metrics.block_read_bytes",
    "read",
    compared_on_page=True,
    is_least=are_bytes_partial,
)
WRITTEN = NumberRow(
    "written",
    "bytes",
    "metrics.block_write_bytes",
    "written",
    compared_on_page=True,
    is_least=are_bytes_partial,
)
RECEIVED = NumberRow(
    "received", "bytes", "metrics.network_rx_bytes", "received", is_least=are_bytes_partial
)
SENT = NumberRow("sent", "bytes", "metrics.network_tx_bytes", "sent", is_least=are_bytes_partial)
VCPU_SIZE = NumberRow("vCPU size", "vCPU", "metrics.vcpu_size", "vcpuSize", compared_on_page=True)
VCPU_AVERAGE = NumberRow(
    "vCPU average", "vCPU", "metrics.vcpu_used.avg", "vcpuAvg", compared_on_page=True
)
GPU_AVERAGE = NumberRow(
    "GPU average",
    "%",
    "gpus.utilization_percent.avg",
    "gpu",
    compared_on_page=True,
    is_estimate=is_gpu_use_approximate,
)
# The same readings say how much of a GPU was active, and, where there is no better source, how much
# it worked: a time without them lacks both.
GPU_SM_ACTIVE = NumberRow(
    "SM active average",
    "%",
    "gpus.sm_active_percent.avg",
    "gpuSm",
    is_estimate=is_gpu_use_partial,
)
GPU_IDLE = NumberRow(
    "GPU idle",
    "%",
    "record.gpu_idle.percent",
    "gpuIdle",
    is_least=is_gpu_use_partial,
    is_estimate=is_gpu_use_estimated,
)
GPU_IDLE_BETWEEN = NumberRow(
    "GPU idle between", "%", "record.gpu_idle.between_percent", "gpuBetween", compared_on_page=True
)
# It is sampled.
GPU_MEMORY_PEAK = NumberRow(
    "GPU memory peak",
    "MB",
    "gpus.memory_used_mb.max",
    "gpuPeak",
    compared_on_page=True,
    is_least=_always_true,
    bounds_have_change="of both",
)
NEURON_AVERAGE = NumberRow("NeuronCore average", "%", "neuron.utilization_percent.avg")
# In the order in which outputs list them.
NUMBERS: tuple[NumberRow, ...] = (
    DURATION,
    NumberRow("pull and start", "ms", "metrics.init_duration_ms", "init"),
    COST,
    VCPU_SIZE,
    CPU_TIME,
    VCPU_AVERAGE,
    NumberRow("vCPU 95 %", "vCPU", "metrics.vcpu_used.p95", "vcpuP95"),
    NumberRow("vCPU peak", "vCPU", "metrics.vcpu_used.max", "vcpuMax", compared=False),
    NumberRow("all vCPU in use", "%", "metrics.vcpu_saturated_percent", "saturated"),
    NumberRow("memory size", "MB", "metrics.memory_size_mb", "size", compared_on_page=True),
    MEMORY_AVERAGE,
    MEMORY_PEAK,
    READ,
    WRITTEN,
    RECEIVED,
    SENT,
    NumberRow("most threads", "count", "metrics.max_pids", "pids"),
    GPU_AVERAGE,
    GPU_SM_ACTIVE,
    GPU_IDLE,
    GPU_IDLE_BETWEEN,
    GPU_MEMORY_PEAK,
    NEURON_AVERAGE,
)
# What may have been larger, also of the numbers that are in no list.
_BOUNDED: Final = (
    *(row for row in NUMBERS if row.is_least is not _never_true),
    NumberRow("CPU wait", "s", "metrics.cpu_wait_seconds", is_least=is_cpu_wait_partial),
    NumberRow("idle GPU-hours", "h", "record.gpu_idle.gpu_hours", is_least=is_gpu_use_partial),
)
# The numbers that may be estimates, also those that are in no list.
_ESTIMATED: Final = (
    *(row for row in NUMBERS if row.is_estimate is not _never_true),
    NumberRow("GPU peak", "%", "gpus.utilization_percent.max", is_estimate=is_gpu_use_approximate),
    *(
        NumberRow(name, "%", f"gpus.{name}_active_percent.{value}", is_estimate=is_gpu_use_partial)
        for name, value in product(("sm", "tensor", "dram"), ("avg", "max"))
        if (name, value) != ("sm", "avg")  # it is in the list
    ),
    NumberRow("idle GPU-hours", "h", "record.gpu_idle.gpu_hours", is_estimate=is_gpu_use_estimated),
    NumberRow(
        "GPU since the checkpoint before",
        "%",
        "interval.gpu_utilization_percent.avg",
        is_estimate=is_gpu_use_estimated,
    ),
)
# Several numbers share a question, which is asked once of a run: them, each with its reader.
_Question = Callable[[Record], bool]
_Readers = Sequence[tuple[NumberRow, Callable[[RunView], object]]]


def _readers_by_question(
    rows: Iterable[tuple[_Question, NumberRow]],
) -> Mapping[_Question, _Readers]:
    readers: dict[_Question, list[tuple[NumberRow, Callable[[RunView], object]]]] = {}
    for question, row in rows:
        readers.setdefault(question, []).append((row, view_reader(row.path)))
    return readers


_BOUNDS: Final = _readers_by_question((row.is_least, row) for row in _BOUNDED)
# Most records have no GPUs.
_BOUNDS_WITHOUT_GPUS: Final = _readers_by_question(
    (row.is_least, row) for row in _BOUNDED if not is_of_gpus(row.path)
)
_ESTIMATES: Final = _readers_by_question((row.is_estimate, row) for row in _ESTIMATED)
_BYTES = (((READ, "read"), (WRITTEN, "wrote")), ((RECEIVED, "received"), (SENT, "sent")))


def number_of_row(row: NumberRow, record: Record) -> Number | None:
    """The value alone, for comparisons with many runs: its text takes longer than the value. None
    where it may be other programs'.
    """
    if row is VCPU_SIZE:  # a job's is not the machine's, which the metrics have
        return vcpu_size(record)
    if may_be_of_others(row.path, record):
        return None
    value: Number | None = view_reader(row.path)(RunView(record))
    return value


def measured_number(row: NumberRow, record: Record) -> Measured:
    """The value, and whether it may have been larger; at least 0 is unknown."""
    is_least = row.is_least(record)
    value = number_of_row(row, record)
    return measured_from(
        value or None if is_least else value,
        is_least=is_least,
        is_estimate=row.is_estimate(record),
    )


def lower_bound_rows(run: RunView) -> list[NumberRow]:
    """The known numbers of a run that may have been larger."""
    return _known_rows(run, _BOUNDS if run.record.gpus else _BOUNDS_WITHOUT_GPUS)


def lower_bound_paths(run: RunView) -> frozenset[str]:
    """Where the view of the run has the numbers that may have been larger."""
    return frozenset([row.path for row in lower_bound_rows(run)])


def estimated_rows(run: RunView) -> list[NumberRow]:
    """The known numbers of a run that are estimates."""
    return _known_rows(run, _ESTIMATES)


def estimated_paths(run: RunView) -> frozenset[str]:
    """Where the view of the run has the numbers that are estimates."""
    return frozenset([row.path for row in estimated_rows(run)])


def _known_rows(run: RunView, readers: Mapping[_Question, _Readers]) -> list[NumberRow]:
    """The known numbers of the questions to which the record's answer is yes."""
    rows: list[NumberRow] = []
    for question, of_question in readers.items():
        if question(run.record):
            rows += [row for row, read in of_question if read(run) is not None]
    return rows


def number_fact(row: NumberRow, record: Record) -> Fact:
    """A number of a run; without a value its text is "-"."""
    number = measured_number(row, record)
    text = number.text(partial(format_value, unit=row.unit)) or "-"
    return Fact(name=row.name, number=number, unit=row.unit, text=text)


class NumberPair(Struct, frozen=True):
    """A number of two runs, this one's and that one's. ``has_change``: whether their difference
    says something about the runs.
    """

    this: Fact
    that: Fact
    has_change: bool

    @property
    def is_unknown(self) -> bool:
        """Whether neither run has the number."""
        return self.this.number is UNKNOWN and self.that.number is UNKNOWN


def number_pair(row: NumberRow, this: Record, that: Record) -> NumberPair:
    """The number of both runs."""
    new = number_fact(row, this)
    old = number_fact(row, that)
    has_change = _are_comparable(row, new.number, old.number)
    if row in MEMORY_ROWS and not means_same_memory(this.metrics, that.metrics):
        has_change = False
    return NumberPair(new, old, has_change)


def _are_comparable(row: NumberRow, *numbers: Measured) -> bool:
    """Whether two numbers have a change: an estimate has none, and of lower bounds the row says
    it.
    """
    if any(isinstance(number, Approximately) for number in numbers):
        return False
    are_least = [isinstance(number, AtLeast) for number in numbers]
    if row.bounds_have_change == "always" or not any(are_least):
        return True
    return row.bounds_have_change == "of both" and all(are_least)


def cost_text(cost: Cost) -> str:
    """The cost, ``≥ $0.12 (Spot)`` where only the least is known; "" if it is unknown."""
    number = measured_cost(cost)
    text = number.text(format_usd)
    return f"{text} (Spot)" if isinstance(number, AtLeast) else text


def bytes_texts(record: Record) -> list[str]:
    """The bytes read and written, and those received and sent, as far as they were measured."""
    texts = []
    for group in _BYTES:
        parts = []
        for row, verb in group:
            fact = number_fact(row, record)
            if fact.number is not UNKNOWN:
                parts.append(f"{verb} {fact.text}")
        if parts:
            texts.append(", ".join(parts))
    return texts


def count_fact(name: str, count: int, text: str, sentence: str) -> Fact:
    """A number of things."""
    return Fact(name=name, number=Exactly(count), unit="count", text=text, sentence=sentence)


NO_KILLS: Final = count_fact("killed", 0, "", "")


def kills_fact(kills: MemoryKills | None) -> Fact:
    """The processes that the kernel killed for lack of memory, with the names that are known;
    NO_KILLS if it killed none.
    """
    if kills is None or not kills.count:
        return NO_KILLS
    count = format_count(kills.count, "process")
    victims = []
    for process in kills.processes:
        peak = known(format_memory, process.max_memory_used_mb)
        victims.append(process.name + words_if_known(" at {}", peak))
    text = f"{count} by the kernel, for lack of memory"
    sentence = f"The kernel killed {count} for lack of memory"
    if victims:
        text += f": {', '.join(victims)}"
        names = dict.fromkeys(process.name for process in kills.processes[:_MAX_VICTIMS])
        sentence += f": {', '.join(filter(None, names))}"
    return count_fact("killed", kills.count, text, f"{sentence}.")


def longest_wait_targets(times: TimeBreakdown) -> tuple[WaitTarget, ...]:
    """The waits of the run, the longest one first, without short ones."""
    by_time = sorted(times.waiting_for, key=lambda target: -target.percent)
    long = [target for target in by_time if target.percent >= MIN_WAIT_PERCENT]
    return tuple(long[:_MAX_TARGETS])


def wait_name(target: WaitTarget) -> str:
    """The target with its kind: ``10.0.0.3:5432 (network)``."""
    return target.target if target.target == target.kind else f"{target.target} ({target.kind})"


class LargestWait(Struct, frozen=True, kw_only=True):
    """The largest part of the time in which the run was not on a CPU, and its longest target,
    "" if that is unknown.
    """

    kind: str
    percent: float
    target: str = ""
    target_percent: float = 0

    @property
    def text(self) -> str:
        """The wait: ``63 % of the time it waited for the network, 25 % for 10.0.3.9:5432``."""
        text = f"{format_time_share(self.percent)} of the time it {PAST_WAITS[self.kind]}"
        if self.target_percent and self.target != self.kind:
            text += f", {format_time_share(self.target_percent)} for {self.target}"
        return text


NO_WAIT: Final = LargestWait(kind="", percent=0)


def largest_wait(times: TimeBreakdown, *, with_cpu: bool = True) -> LargestWait:
    """What the run waited for longest; NO_WAIT if it waited for nothing known.

    ``with_cpu``: the wait for a CPU counts.
    """
    shares = {kind: getattr(times, f"{kind}_percent", None) or 0 for kind in PAST_WAITS}
    if not with_cpu:
        del shares[WAIT_FOR_CPU]
    kind, percent = max(shares.items(), key=itemgetter(1))
    if not percent:
        return NO_WAIT
    longest = LargestWait(kind=kind, percent=percent)
    targets: Sequence[WaitTarget] = [row for row in times.waiting_for if row.kind == kind]
    if not targets:
        return longest
    target = max(targets, key=lambda row: row.percent)
    return LargestWait(
        kind=kind, percent=percent, target=target.target, target_percent=target.percent
    )
