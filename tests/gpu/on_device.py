"""All checks on a machine with an NVIDIA GPU, with what they found in one folder of few files.

    python3 -m tests.gpu.on_device --into FOLDER [--wheels FOLDER] [--program NAME] [STEP …]

The steps: ``machine`` (the driver, the GPUs, what they support), ``programs`` (what ``run`` says of
known programs beside their truth; four minutes), ``tests`` (the numbers under a load; three minutes),
``cost`` (the CPU time of the readings; two minutes). Without a step: all, nine minutes. Each step
writes while it runs, so that one which is cut short leaves what it has found. Exit code 1 if one is
wrong.

It needs a driver and Python. Where these packages are not installed and there is no network, get
them elsewhere, for the Python of that machine, and name their folder:

    pip download --only-binary :all: --python-version 3.12 --dest wheels \\
        click hypothesis msgspec nvidia-ml-py pytest requests structlog
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

_ROOT = Path(__file__).parents[2]
_COST = "from benchmarks.gpu_cost import cpu_share; print(100 * cpu_share(60), '% of a core')"
# Without the fixtures and plugins of the other tests, whose packages are many.
_BARE_PYTEST = ("-q", "-c", "/dev/null", "--noconftest", "-p", "no:cacheprovider")
# The words after Python's name, the file in which their output is, and the longest time in seconds.
STEPS: Mapping[str, tuple[Sequence[str], str, int]] = {
    "machine": (("-m", "tests.gpu.on_device", "--describe"), "machine.json", 60),
    "programs": (
        ("-m", "tests.gpu.beside_truth", "--reports", "{into}/programs.jsonl"),
        "programs.txt",
        420,
    ),
    "tests": (("-m", "pytest", *_BARE_PYTEST, "tests/gpu/test_real_gpu.py"), "tests.txt", 300),
    "cost": (("-c", _COST), "cost.txt", 240),
}
_PROBED = (
    "nvmlDeviceGetComputeRunningProcesses",
    "nvmlDeviceGetMPSComputeRunningProcesses",
    "nvmlDeviceGetGraphicsRunningProcesses",
    "nvmlDeviceGetUtilizationRates",
    "nvmlDeviceGetTotalEnergyConsumption",
    "nvmlDeviceGetMigMode",
    "nvmlDeviceGetMaxPcieLinkGeneration",
    "nvmlDeviceGetMaxPcieLinkWidth",
    "nvmlGpmQueryDeviceSupport",
)


def main(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description="All checks on a machine with an NVIDIA GPU.")
    parser.add_argument("--into", type=Path, help="the folder of what was found")
    parser.add_argument("--wheels", type=Path, help="a folder with wheels of the packages")
    parser.add_argument("--program", action="append", default=[], help="only these programs")
    parser.add_argument("--describe", action="store_true", help="print what the driver says")
    parser.add_argument("steps", nargs="*", metavar="STEP", help=", ".join(STEPS))
    options = parser.parse_args(words)
    if options.describe:
        print(json.dumps(described(), indent=1))
        return 0
    if options.into is None or not set(options.steps) <= set(STEPS):
        parser.error(f"--into is missing, or a step is none of {', '.join(STEPS)}")
    options.into.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        for wheel in sorted(options.wheels.glob("*.whl")) if options.wheels else ():
            with zipfile.ZipFile(wheel) as packed:
                packed.extractall(folder)
        path = os.pathsep.join(filter(None, (folder, str(_ROOT), os.environ.get("PYTHONPATH"))))
        environment = {**os.environ, "PYTHONPATH": path, "PYTHONUNBUFFERED": "1"}
        codes = {
            name: _take(
                name,
                options.into.resolve(),
                environment,
                options.program if name == "programs" else (),
            )
            for name in options.steps or STEPS
        }
    return int(any(codes.values()))


def _take(name: str, into: Path, environment: Mapping[str, str], more: Sequence[str]) -> int:
    """Take a step, with ``more`` words; returns its exit code, 124 if it took too long."""
    words, file, limit_seconds = STEPS[name]
    command = [sys.executable, *(word.format(into=into) for word in words), *more]
    began = time.monotonic()
    with (into / file).open("w") as output:
        try:
            ended = subprocess.run(
                command,
                cwd=_ROOT,
                env=environment,
                stdout=output,
                stderr=subprocess.STDOUT,
                check=False,
                timeout=limit_seconds,
            )
            code = ended.returncode
        except subprocess.TimeoutExpired:
            code = 124
    line = f"{name}: exit code {code} after {time.monotonic() - began:.0f} s, in {file}\n"
    with (into / "summary.txt").open("a") as summary:
        summary.write(line)
    print(line, end="", flush=True)
    return code


def described() -> Mapping[str, object]:
    """What the driver says of itself and of its GPUs: what a function answers, or its error."""
    import pynvml  # noqa: PLC0415 - the steps begin without any package

    pynvml.nvmlInit()
    gpus = []
    for index in range(pynvml.nvmlDeviceGetCount()):
        handle = pynvml.nvmlDeviceGetHandleByIndex(index)
        answers = {name: _answer(pynvml, name, handle) for name in _PROBED}
        gpus.append({"name": _answer(pynvml, "nvmlDeviceGetName", handle), **answers})
    return {
        "python": sys.version,
        "kernel": " ".join(os.uname()),
        "driver": _answer(pynvml, "nvmlSystemGetDriverVersion"),
        "gpus": gpus,
    }


def _answer(pynvml: object, name: str, *arguments: object) -> str:
    try:
        return str(getattr(pynvml, name)(*arguments))
    except Exception as error:  # noqa: BLE001 - what it says is the answer
        return repr(error)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
