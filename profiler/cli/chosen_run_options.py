"""The options of one call of ``run``."""

from typing import Literal

from msgspec import Struct

Format = Literal["auto", "human", "text"]


class RunOptions(Struct, frozen=True, kw_only=True):
    """The command and its arguments (``words``), and each option of the table in
    :mod:`profiler.cli.run_options`, which has their defaults.
    """

    words: tuple[str, ...]
    name: str | None
    interval_seconds: float
    output_format: Format
    as_json: bool
    output: str | None
    no_history: bool
    labels: tuple[str, ...]
    live: bool
    quiet: bool
    stacks: str
    otlp: bool
    runs: int
    max_memory_mb: float | None
    max_duration_ms: float | None
    max_cpu_seconds: float | None
    max_gpu_memory_mb: float | None
    max_gpu_idle_percent: float | None
