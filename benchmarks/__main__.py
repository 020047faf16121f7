"""All measurements after one another: a table of every figure, met or not, and the same as JSON.

    python -m benchmarks [--quick] [--rivals .venv-rivals/bin] [--only PART …] [--output build/bench]

Each part runs in a process of its own, and can be run alone (``python -m benchmarks.monitor --help``).
A part that cannot run here is named with the reason; the others are measured all the same.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import msgspec
from msgspec import Struct

from benchmarks.figures import Part, page
from benchmarks.machine import Machine, describe

_ROOT = Path(__file__).resolve().parent.parent


class Kind(Struct, frozen=True):
    """A module, its title, and its options; with others for a short pass."""

    module: str
    title: str
    options: tuple[str, ...] = ()
    quick: tuple[str, ...] = ()


def kinds(rivals: Path) -> tuple[Kind, ...]:
    """All there is to measure."""
    return (
        Kind("monitor", "Monitor", quick=("--seconds", "8")),
        Kind("local", "Local runs, beside rivals from PyPI", (str(rivals),), (str(rivals), "--quick")),
        Kind("forwarder", "Forwarder", quick=("--reports", "5000")),
        Kind("nvml", "NVIDIA GPUs"),
        Kind("neuron", "AWS Neuron", ("--lines", "20000"), ("--lines", "2000")),
    )


def measure(kind: Kind, *, quick: bool) -> Part:
    """Run one part; if it fails, a part that says why."""
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        path = Path(folder) / "part.json"
        options = kind.quick if quick else kind.options
        command = [sys.executable, "-m", f"benchmarks.{kind.module}", *options, "--json", str(path)]
        ended = subprocess.run(command, cwd=_ROOT, check=False, stderr=subprocess.PIPE, text=True)
        if ended.returncode == 0:
            return msgspec.json.decode(path.read_bytes(), type=Part)
    sys.stderr.write(ended.stderr)
    last = ended.stderr.strip().splitlines()[-1:] or [f"it ended with {ended.returncode}"]
    return Part(title=kind.title, missing=last[0])


def write(folder: Path, machine: Machine, when: datetime, parts: Sequence[Part]) -> None:
    """``bench.json`` and ``bench.md``."""
    folder.mkdir(parents=True, exist_ok=True)
    measured = {"measuredAt": when.isoformat(timespec="seconds"), "machine": msgspec.to_builtins(machine)}
    document = {**measured, "parts": msgspec.to_builtins(parts)}
    (folder / "bench.json").write_text(json.dumps(document, indent=2) + "\n")
    head = f"Measured on {when:%Y-%m-%d}: {machine.sentence()}."
    (folder / "bench.md").write_text(f"{head}\n\n{page(parts)}")


def main(arguments: Sequence[str]) -> int:
    """Measure, print, write. Gives 1 if a part could not run; a figure that is not met may be the machine's fault."""
    parser = argparse.ArgumentParser(description="Measure everything against its figures.")
    parser.add_argument("--quick", action="store_true", help="short stretches and few repetitions, for a first look")
    parser.add_argument("--rivals", type=Path, default=_ROOT / ".venv-rivals" / "bin", help="see make bench")
    parser.add_argument("--only", nargs="+", help="some of: monitor local forwarder nvml neuron")
    parser.add_argument(
        "--output", type=Path, default=_ROOT / "build" / "bench", help="folder of bench.json and bench.md"
    )
    options = parser.parse_args(arguments)
    machine, when = describe(), datetime.now(UTC)
    chosen = [kind for kind in kinds(options.rivals) if options.only is None or kind.module in options.only]
    if not chosen:
        parser.error(f"there is no part {' '.join(options.only)}: see --help")
    parts = []
    for kind in chosen:
        print(f"\n{kind.title}", flush=True)
        parts.append(measure(kind, quick=options.quick))
        # After each, so that a long run that is stopped leaves what it has.
        write(options.output, machine, when, parts)
    print("\n" + (options.output / "bench.md").read_text())
    return 0 if all(part.missing is None for part in parts) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
