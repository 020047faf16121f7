"""Programs with a fixed amount of work, for the comparison of measured and computed slowdowns.

    python slowdown_programs.py calibrate
    python slowdown_programs.py PROGRAM SECONDS PARSE_SECONDS BLOCK_SECONDS

A container runs this file alone, so that it uses only the standard library. ``calibrate`` prints the CPU seconds of the
two units of work: parsing and writing a JSON document, which holds Python's global lock, and compressing a block, which
does not. The amount of work of a program follows from its arguments, so that two runs with the same arguments do the
same work. ``SECONDS`` is roughly the duration without a CPU limit on two cores.
"""

import hashlib
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

_BLOCK_BYTES = 1 << 18
_CALIBRATION_SECONDS = 0.5
_CALIBRATION_ROUNDS = 5
_FILE_THREADS = 4
_CLIENT_THREADS = 8
_RESPONSE_SECONDS, _RESPONSE_WORK_SECONDS = 0.05, 0.005


@dataclass(frozen=True)
class Amount:
    """The duration that is aimed at, and the CPU seconds of the two units of work."""

    seconds: float
    parse_seconds: float
    block_seconds: float

    def parse(self, cpu_seconds: float) -> None:
        """Work for about this CPU time; the number of units depends on the arguments only."""
        document = json.dumps(_rows(random.Random(1), 40))
        for _ in range(max(1, round(cpu_seconds / self.parse_seconds))):
            _parse_once(document)

    def blocks(self, cpu_seconds: float) -> int:
        """The number of blocks that take about this CPU time to compress."""
        return max(1, round(cpu_seconds / self.block_seconds))


def _rows(randomness: random.Random, count: int) -> list[dict[str, object]]:
    return [
        {"id": row, "name": f"customer-{randomness.randrange(10**6)}", "total": round(randomness.random() * 1e4, 2)}
        for row in range(count)
    ]


def _parse_once(document: str) -> str:
    rows = json.loads(document)
    rows.sort(key=lambda row: row["total"])
    return hashlib.sha256(json.dumps(rows).encode()).hexdigest()


def _text_blocks(count: int) -> Iterator[bytes]:
    """Blocks of JSON lines, no two alike."""
    randomness = random.Random(2)
    text = "\n".join(json.dumps(row) for row in _rows(randomness, 2 * _BLOCK_BYTES // 50)).encode()
    for number in range(count):
        start = randomness.randrange(len(text) - _BLOCK_BYTES)
        yield number.to_bytes(8, "big") + text[start : start + _BLOCK_BYTES]


def single(amount: Amount) -> None:
    """One thread that computes."""
    amount.parse(amount.seconds)


def _in_processes(count: int, work: Callable[[], None]) -> None:
    children = []
    for _ in range(count):
        pid = os.fork()
        if pid == 0:
            work()
            os._exit(0)
        children.append(pid)
    for pid in children:
        if os.waitpid(pid, 0)[1]:
            raise SystemExit("A child process failed.")


def four_processes(amount: Amount) -> None:
    """Four processes that compute."""
    _in_processes(4, lambda: amount.parse(amount.seconds / 2))


def _half_waiting(amount: Amount, grain_seconds: float) -> None:
    for _ in range(max(2, round(amount.seconds / (2 * grain_seconds)))):
        amount.parse(grain_seconds)
        time.sleep(grain_seconds)


def phases(amount: Amount) -> None:
    """Twice: one thread computes, then two processes compute."""
    for _ in range(2):
        amount.parse(amount.seconds / 4)
        _in_processes(2, lambda: amount.parse(amount.seconds / 4))


def files(amount: Amount) -> None:
    """Four threads that read a file, compress it and write it durably."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as name:
        folder = Path(name)
        sources = []
        for number, block in enumerate(_text_blocks(16)):
            sources.append(folder / f"source-{number}")
            sources[-1].write_bytes(block)

        def compress(number: int) -> None:
            packed = zlib.compress(sources[number % len(sources)].read_bytes())
            with (folder / f"packed-{number % (4 * _FILE_THREADS)}").open("wb") as target:
                target.write(hashlib.sha256(packed).digest() + packed)
                target.flush()
                os.fsync(target.fileno())

        with ThreadPoolExecutor(_FILE_THREADS) as pool:
            list(pool.map(compress, range(amount.blocks(1.5 * amount.seconds))))


def clients(amount: Amount) -> None:
    """Eight threads that wait 50 ms for a response and parse it for 5 ms."""
    rounds = _CLIENT_THREADS * amount.seconds / (_RESPONSE_SECONDS + 2 * _RESPONSE_WORK_SECONDS)

    def ask(_: int) -> None:
        time.sleep(_RESPONSE_SECONDS)
        amount.parse(_RESPONSE_WORK_SECONDS)

    with ThreadPoolExecutor(_CLIENT_THREADS) as pool:
        list(pool.map(ask, range(round(rounds))))


def pipeline(amount: Amount) -> None:
    """A process writes JSON lines, gzip compresses them, and sha256sum reads the result."""
    with (
        subprocess.Popen([_tool("gzip"), "-6"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as gzip,
        subprocess.Popen([_tool("sha256sum")], stdin=gzip.stdout, stdout=subprocess.DEVNULL) as checksum,
    ):
        if gzip.stdin is None or gzip.stdout is None:
            raise SystemExit("gzip has no pipes.")
        gzip.stdout.close()
        document = json.dumps(_rows(random.Random(3), 1000))
        for block in _text_blocks(amount.blocks(0.8 * amount.seconds)):
            _parse_once(document)
            gzip.stdin.write(block)
        gzip.stdin.close()
        if gzip.wait() or checksum.wait():
            raise SystemExit("The pipeline failed.")


def _tool(name: str) -> str:
    path = shutil.which(name)
    if path is None:
        raise SystemExit(f"{name} is not installed.")
    return path


PROGRAMS: dict[str, Callable[[Amount], None]] = {
    "single": single,
    "processes": four_processes,
    "waiting-10ms": lambda amount: _half_waiting(amount, 0.01),
    "waiting-300ms": lambda amount: _half_waiting(amount, 0.3),
    "waiting-3s": lambda amount: _half_waiting(amount, 3),
    "phases": phases,
    "files": files,
    "clients": clients,
    "pipeline": pipeline,
}


def _fastest_unit_seconds(unit: Callable[[], object]) -> float:
    """The CPU seconds of a unit of work in the fastest of some rounds."""
    fastest = float("inf")
    for _ in range(_CALIBRATION_ROUNDS):
        count, start = 0, time.process_time()
        while time.process_time() - start < _CALIBRATION_SECONDS:
            unit()
            count += 1
        fastest = min(fastest, (time.process_time() - start) / count)
    return fastest


def main() -> None:
    """Run one program, or print the CPU seconds of the units of work."""
    if sys.argv[1] == "calibrate":
        document = json.dumps(_rows(random.Random(1), 40))
        block = next(_text_blocks(1))
        units = (lambda: _parse_once(document), lambda: zlib.compress(block))
        print(json.dumps([_fastest_unit_seconds(unit) for unit in units]))
        return
    PROGRAMS[sys.argv[1]](Amount(*map(float, sys.argv[2:5])))


if __name__ == "__main__":
    main()
