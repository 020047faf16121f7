"""What is told of a task that has ended: the verdict, its reason, and the run's numbers as far as they are known."""

from typing import Literal

from msgspec import Struct

Verdict = Literal["success", "failure", "stopped", "unknown"]
StopCategory = Literal["oom", "spot", "user", "scheduler", "image", "resources", "exit", "unknown"]


class AcceleratorUse(Struct, frozen=True, kw_only=True):
    """All GPUs, or all Neuron cores, of a run together; percent 0 to 100, memory in MiB."""

    count: int
    average_percent: float | None = None
    maximum_percent: float | None = None
    maximum_memory_mb: float | None = None


class SizeAdvice(Struct, frozen=True, kw_only=True):
    """The size to try next; ``saving_percent`` may be negative."""

    vcpu: float | None = None
    memory_mb: float | None = None
    saving_percent: float | None = None
    reasons: tuple[str, ...] = ()


class KilledProcesses(Struct, frozen=True, kw_only=True):
    """How many of the batch's processes the kernel killed for want of memory, and the names of those that were seen."""

    count: int
    names: tuple[str, ...] = ()


class RunNumbers(Struct, frozen=True, kw_only=True):
    """What the run used; None where it is not known. Percentages are of what bounds the container."""

    duration_ms: float | None = None
    billed_duration_ms: float | None = None
    cost_usd: float | None = None
    vcpu_size: float | None = None
    cpu_average_percent: float | None = None
    cpu_maximum_percent: float | None = None
    memory_size_mb: float | None = None
    memory_average_percent: float | None = None
    memory_maximum_percent: float | None = None
    memory_maximum_mb: float | None = None
    gpus: AcceleratorUse | None = None
    neuron: AcceleratorUse | None = None
    killed: KilledProcesses | None = None
    advice: SizeAdvice | None = None


class Notice(Struct, frozen=True, kw_only=True):
    """One ended task.

    ``reason`` is what ECS itself said, ``comparison`` a sentence about the family's recent runs.
    ``is_complete`` is False if the numbers are a checkpoint's or the event's alone.
    """

    verdict: Verdict
    category: StopCategory
    family: str
    revision: str | None = None
    cluster: str | None = None
    region: str | None = None
    task_id: str
    task_arn: str | None = None
    container: str | None = None
    exit_code: int | None = None
    reason: str | None = None
    started_at: str | None = None
    numbers: RunNumbers = RunNumbers()
    is_complete: bool = False
    comparison: str | None = None
    log_group: str | None = None
    log_stream: str | None = None
