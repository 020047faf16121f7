"""Compare the time breakdown of real programs with what they know about their own time.

    python -m tests.waits.time_breakdown [--lanes test slow waits] [--only TEXT …] [--monitor]

Each program runs alone under ``task-profiler run``, or beside a monitor (root). A row has its name, whether all parts are
within its tolerance, and of the parts that matter the truth (or its bounds) and what the record
says.
"""

import argparse

from tests.timed_programs import PROGRAMS, Program
from tests.timed_runs import MissingError, Observation, observe, points_of

_SHOWN_PERCENT = 2.0


def _row(seen: Observation) -> str:
    cells = []
    for part, percent in seen.said.items():
        truth = seen.truth[part]
        if max(truth.least, percent) >= _SHOWN_PERCENT:
            between = f"{truth.least:.1f}"
            if truth.most - truth.least >= _SHOWN_PERCENT / 2:
                between += f"-{truth.most:.1f}"
            cells.append(f"{part} {percent:.1f} ({between})")
    return ", ".join(cells)


def _measure(name: str, program: Program, *, by_monitor: bool) -> bool | None:
    try:
        seen = observe(program, by_monitor=by_monitor)
    except MissingError as error:
        print(f"| {name} | ? | needs {error} |", flush=True)
        return None
    except AssertionError as error:
        print(f"| {name} | ! | {' '.join(str(error).split())[:300]} |", flush=True)
        return None
    is_right = not seen.wrong(points_of(program, by_monitor=by_monitor))
    named = [row.target for row in seen.breakdown.waiting_for if row.kind == "network"]
    print(
        f"| {name} | {'right' if is_right else '**wrong**'} | {_row(seen)} | {' '.join(named)} |",
        flush=True,
    )
    return is_right


def main() -> None:
    """Print one row for each program, and how many are right."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--lanes", nargs="+", default=["test", "slow", "waits"])
    parser.add_argument("--only", nargs="+", default=[""], help="parts of names")
    parser.add_argument(
        "--monitor", action="store_true", help="beside a monitor with SYS_PTRACE, in place of run"
    )
    options = parser.parse_args()
    print("| program | | reported (true), percent | named peers |\n|---|---|---|---|", flush=True)
    answers = [
        _measure(name, program, by_monitor=options.monitor)
        for name, program in PROGRAMS.items()
        if program.lane in options.lanes and any(text in name for text in options.only)
    ]
    known = [answer for answer in answers if answer is not None]
    print(f"\n{sum(known)} of {len(known)} right, {len(answers) - len(known)} not measured")


if __name__ == "__main__":
    main()
