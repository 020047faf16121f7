"""What ``run`` says of programs on a real GPU, beside what they know themselves: one table.

    python3 -m tests.gpu.beside_truth [--reports FILE] [NAME …]

It needs a GPU and its driver, and of Python's packages those of the extra ``gpu``. About four
minutes. Exit code 1 if a row is wrong. ``--reports``: each truth and report as a line of JSON.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from profiler.collectors.nvidia.nvml_calls import load_binding
from profiler.readers import Unavailable
from profiler.record.device_totals import gpu_totals
from profiler.record.gpu_facts import gpu_error_text, gpu_memory_evidence_text, gpu_work_texts
from profiler.record.gpu_sentences import gpu_advice, gpu_idle_texts
from profiler.record.record_model import Gpu, Record, Report, decode
from profiler.record.stop_causes import outcome_of
from profiler.runs.past_runs.past_run import PastRun
from profiler.runs.past_runs.verdict_sentence import verdict_of

_ROOT = Path(__file__).parents[2]
_MODULE = "tests.gpu.known_programs"
_LIMIT_SECONDS = 200
# A program's own need, beside the bytes that it asked for: its context.
_CONTEXT_MB = 1500
# Just after a load, a GPU that does nothing takes more than later.
_IDLE_WATTS = 150


class Asked(Struct, frozen=True, kw_only=True):
    """A program, and the words that have to follow, or must not. ``beside``: another program on
    the same GPU, which is none of the run's. ``is_own``: the record has the GPU.
    """

    name: str
    says: tuple[str, ...] = ()
    never: tuple[str, ...] = ("never used",)
    beside: str | None = None
    is_own: bool = True
    is_assigned: bool = False


ASKED: Sequence[Asked] = (
    Asked(name="burn", never=("never used", "between")),
    Asked(name="burn-half"),
    Asked(name="one-block", says=("larger than needed",)),
    Asked(name="late", says=("its work on the GPU began after 1[2-9]", "slept")),
    Asked(name="bursts", says=("between",), never=("never used", "more workers")),
    Asked(name="starved", says=("for one CPU: use more workers",), never=("larger than needed",)),
    Asked(name="copies", says=("copied over PCIe",), never=("larger than needed",)),
    Asked(name="grow", never=("never used", "ran out of GPU memory")),
    Asked(name="oom", says=("ran out of GPU memory",)),
    Asked(name="pool", never=("ran out of GPU memory",)),
    Asked(name="fault", says=("Xid 31", "compute-sanitizer"), never=("ran out of GPU memory",)),
    Asked(name="two"),
    Asked(name="no-gpu", beside="burn", is_own=False),
    Asked(name="no-gpu", says=("never used",), never=(), is_assigned=True),
    Asked(name="burn-half", beside="burn", says=("another program used this GPU",)),
)


class Row(Struct, frozen=True, kw_only=True):
    """What was said of one program, and what is wrong with it."""

    asked: Asked
    record: Record
    truth: Mapping[str, Any]
    joules: tuple[float, float] | None  # the least and the most of the run's time
    sentences: tuple[str, ...]

    @property
    def gpu(self) -> Gpu | None:
        return self.record.gpus[0] if self.record.gpus else None

    def line(self) -> bytes:
        return msgspec.json.encode(
            {
                "asked": self.asked,
                "truth": self.truth,
                "joules": self.joules,
                "faults": [*self.faults()],
                "sentences": self.sentences,
                "record": self.record,
            }
        )

    def numbers(self) -> Iterator[tuple[str, float | None, float | None, Callable[..., bool]]]:
        """The names, the true and the reported value, and how they have to agree."""
        gpu = self.gpu
        if gpu is None:
            return
        seconds = (self.record.metrics.duration_ms or 0) / 1000
        is_shared = bool(gpu.shared)
        used = None if gpu.idle_seconds is None else seconds - gpu.idle_seconds
        true = self.truth.get
        near = _within(0.25, 0.05)
        if not is_shared:
            yield "use s", true("used_seconds"), used, near
            yield "first s", true("first_seconds"), gpu.first_used_seconds, _within(0.8, 0)
            if self.joules is not None:
                least, most = self.joules
                yield "J", most, gpu.energy_joules, lambda _, said: least <= said <= most
        held = true("held_mb")
        yield "MB", held, gpu.memory_used_mb.max, _between(0.98, 1, _CONTEXT_MB)
        copied = true("copied_gb_per_second")
        rate = None if gpu.copy_bytes_per_second is None else gpu.copy_bytes_per_second / 1e9
        yield "GB/s", copied, rate, _between(0.98, 1.12, 0)

    def faults(self) -> Iterator[str]:
        text = "\n".join(self.sentences)
        if (self.gpu is not None) != self.asked.is_own and not self.asked.is_assigned:
            yield "has a GPU" if self.gpu else "has no GPU"
        for name, true, said, agrees in self.numbers():
            if true is not None and (said is None or not agrees(true, said)):
                yield f"{name} {true:.4g}, not {'absent' if said is None else f'{said:.4g}'}"
        for words in self.asked.says:
            if not re.search(words, text):
                yield f"does not say {words!r}"
        for words in self.asked.never:
            if re.search(words, text):
                yield f"says {words!r}"


def _within(absolute: float, share: float) -> Callable[..., bool]:
    return lambda true, said: abs(said - true) <= max(absolute, share * true)


def _between(least: float, most: float, more: float) -> Callable[..., bool]:
    return lambda true, said: least * true <= said <= most * true + more


def main(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description="What run says of known programs.")
    parser.add_argument("--reports", type=Path, help="a file for the truths and reports")
    parser.add_argument("names", nargs="*", metavar="NAME")
    options = parser.parse_args(words)
    pynvml = load_binding()
    if isinstance(pynvml, Unavailable):
        sys.exit(pynvml.reason)
    pynvml.nvmlInit()
    handle = pynvml.nvmlDeviceGetHandleByIndex(0)
    print(f"{pynvml.nvmlDeviceGetName(handle)}, driver {_driver(pynvml)}\n", flush=True)
    wrong = 0
    print(f"{'program':22}{'':4}{'true → said':62}sentences", flush=True)
    for asked in ASKED:
        if options.names and asked.name not in options.names:
            continue
        row = run(asked, pynvml, handle)
        wrong += _print(row)
        if options.reports is not None:
            with options.reports.open("ab") as reports:
                reports.write(row.line() + b"\n")
    print(f"\n{wrong} rows are wrong." if wrong else "\nAll rows are right.")
    return 1 if wrong else 0


def _driver(pynvml: Any) -> str:
    try:
        return str(pynvml.nvmlSystemGetDriverVersion())
    except pynvml.NVMLError:
        return "of unknown version"


def run(asked: Asked, pynvml: Any, handle: Any) -> Row:
    """Run one program under ``run``, the other program beside it."""
    environment = {**os.environ, "TASK_PROFILER_GPU": "auto"}
    if asked.is_assigned:
        environment["TASK_PROFILER_GPU_UUIDS"] = pynvml.nvmlDeviceGetUUID(handle)
    program = [sys.executable, "-m", _MODULE]
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        truth = Path(folder) / "truth"
        if asked.beside is not None:
            beside = stack.enter_context(
                subprocess.Popen([*program, asked.beside], cwd=_ROOT, stderr=subprocess.DEVNULL)
            )
            stack.callback(beside.kill)
            _wait_for_work(pynvml, handle)
        before = _millijoules(pynvml, handle)
        began = time.monotonic()
        profiled = [sys.executable, "-m", "profiler", "run", "--json", "--", *program]
        ended = subprocess.run(
            [*profiled, asked.name, "--truth", str(truth)],
            cwd=_ROOT,
            env=environment,
            capture_output=True,
            check=False,
            text=True,
            timeout=_LIMIT_SECONDS,
        )
        after = _millijoules(pynvml, handle)
        seconds = time.monotonic() - began
        known = json.loads(truth.read_text()) if truth.exists() else {}
    line = next((one for one in reversed(ended.stderr.splitlines()) if one[:1] == "{"), None)
    if line is None:
        sys.exit(f"{asked.name}: no report:\n{ended.stderr}")
    report = decode(line)
    record = report.record
    joules = None
    if before is not None and after is not None:
        # The counter's window is longer than the run, by a time in which the GPU does nothing.
        most = (after - before) / 1000
        spare_seconds = seconds - (record.metrics.duration_ms or 0) / 1000
        joules = (0.98 * most - _IDLE_WATTS * spare_seconds, most + 1)
    return Row(
        asked=asked,
        record=record,
        truth=known,
        joules=joules,
        sentences=tuple(sentences_of(report)),
    )


def _wait_for_work(pynvml: Any, handle: Any) -> None:
    """Until the program beside computes: its first kernel is compiled for seconds."""
    for _ in range(400):
        if pynvml.nvmlDeviceGetUtilizationRates(handle).gpu >= 50:
            return
        time.sleep(0.05)
    sys.exit("The program beside did not begin.")


def _millijoules(pynvml: Any, handle: Any) -> int | None:
    try:
        return int(pynvml.nvmlDeviceGetTotalEnergyConsumption(handle))
    except pynvml.NVMLError:
        return None


def sentences_of(report: Report) -> Iterator[str]:
    """What the outputs say of the run's GPUs."""
    record = report.record
    totals = gpu_totals(record)
    verdict = verdict_of(PastRun(report=report), 0)
    yield from filter(None, [totals.text, verdict.text])
    yield from filter(None, [gpu_memory_evidence_text(record), gpu_error_text(record)])
    yield from gpu_idle_texts(record)
    yield from gpu_work_texts(record, totals, outcome_of(record))
    yield from gpu_advice(record, totals)
    yield from record.monitor.warnings or ()


def _print(row: Row) -> bool:
    """Print a row; returns whether it is wrong."""
    faults = list(row.faults())
    asked = row.asked
    title = asked.name + (f" beside {asked.beside}" if asked.beside else "")
    title += " (assigned)" if asked.is_assigned else ""
    numbers = "  ".join(
        f"{name} {_short(true)}→{_short(said)}" for name, true, said, _ in row.numbers()
    )
    first, *others = (*row.sentences, "")
    print(f"{title:22}{'BAD ' if faults else 'ok  '}{numbers:62}{first}")
    for sentence in filter(None, others):
        print(f"{'':88}{sentence}")
    for fault in faults:
        print(f"{'':26}! {fault}")
    sys.stdout.flush()
    return bool(faults)


def _short(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
