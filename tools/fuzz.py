"""Searches for inputs that break a property of the unit tests: rounds with new seeds, until the
time is up.

python -m tools.fuzz [--seconds 600] [--seed SEED] [TEST …]
"""

import argparse
import itertools
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TESTS = ("tests/unit",)
_MAX_PROCESSES = "8"
# 250 examples on a busy machine take long, and hypothesis would shrink one that was only slow.
_TEST_SECONDS = "1800"


def main() -> int:
    """Run rounds; the exit code is 1 after the first round with a failure."""
    parser = argparse.ArgumentParser(
        prog="make fuzz", description="Search for inputs that break a property."
    )
    parser.add_argument(
        "--seconds", type=float, default=600, help="begin no round after this time (default: 600)"
    )
    parser.add_argument("--seed", type=int, help="repeat the round with this seed")
    parser.add_argument(
        "tests", nargs="*", default=TESTS, help="what pytest runs (default: the unit tests)"
    )
    given = parser.parse_args()
    seeds: Iterable[int]
    if given.seed is None:
        seeds = (random.SystemRandom().getrandbits(32) for _ in itertools.count())
    else:
        seeds = (given.seed,)
    return fuzz(
        seeds,
        lambda seed: _run_round(seed, given.tests),
        seconds=given.seconds,
        monotonic=time.monotonic,
    )


def fuzz(
    seeds: Iterable[int],
    run_round: Callable[[int], int],
    *,
    seconds: float,
    monotonic: Callable[[], float],
) -> int:
    """Run a round with each seed until a round fails or the time is up.

    A round that has begun is completed.

    Args:
        seeds: The seeds, one for each round.
        run_round: Runs a round and returns its exit code.
        seconds: No round begins after this time. The first round always begins.
        monotonic: The clock.

    Returns:
        0, or the exit code of the failed round.
    """
    end = monotonic() + seconds
    for number, seed in enumerate(seeds, start=1):
        print(f"Round {number}, seed {seed}", flush=True)
        code = run_round(seed)
        if code:
            print(f"Round {number} failed. make fuzz SEED={seed} repeats it.", flush=True)
            return code
        if monotonic() >= end:
            break
    return 0


def _run_round(seed: int, tests: Sequence[str]) -> int:
    command = [
        sys.executable,
        "-m",
        "pytest",
        "--quiet",
        "-m",
        "hypothesis",
        "-p",
        "no:cacheprovider",
    ]
    command += [
        "--numprocesses",
        "auto",
        "--maxprocesses",
        _MAX_PROCESSES,
        "--timeout",
        _TEST_SECONDS,
    ]
    command += [
        "--hypothesis-profile",
        "new-examples",
        "--hypothesis-seed",
        str(seed),
        f"--randomly-seed={seed}",
    ]
    return subprocess.run([*command, *tests], cwd=ROOT, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
