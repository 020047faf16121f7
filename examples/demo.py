"""The program behind ``make demo``: profile a small batch three times, then as a job of AWS Batch
with two attempts, and generate the HTML report of all runs.

python examples/demo.py TASK_PROFILER_COMMAND PAGE.html
"""

import os
import subprocess
import sys
from pathlib import Path

_BATCH = Path(__file__).with_name("nightly_etl.py")
# On the second day there is less to do, and the end of the run shows what changed.
_QUIET_DAY_ROWS = 600_000
_HOLIDAY_ROWS = 300_000
# What Batch sets in a job's container.
_JOB_VARIABLES = {
    "AWS_BATCH_JOB_ID": "4109c2d6-7c5e-4b0e-9f5a-1d2e3f4a5b6c",
    "AWS_BATCH_JQ_NAME": "nightly",
}
_JOB_ROWS = 100_000


def main() -> None:
    """Run the batch with its usual rows and with fewer, each with the end for a person, and
    generate the page.
    """
    command, page = sys.argv[1], Path(sys.argv[2])
    page.parent.mkdir(parents=True, exist_ok=True)
    file = page.with_name("history.sqlite3")
    file.unlink(missing_ok=True)
    os.environ["TASK_PROFILER_HISTORY"] = str(file)
    run = (
        command,
        "run",
        "--name",
        "nightly-etl",
        "--",
        sys.executable,
        str(_BATCH),
    )
    print("$ task-profiler run --name nightly-etl -- python nightly_etl.py", flush=True)
    exit_code = subprocess.run(run, check=False).returncode
    rows = ("--rows", str(_QUIET_DAY_ROWS))
    print(
        f"\n$ task-profiler run --name nightly-etl -- python nightly_etl.py {' '.join(rows)}",
        flush=True,
    )
    subprocess.run([*run, *rows], stdout=subprocess.DEVNULL, check=True)
    print("\na third run, for the page of past runs …", flush=True)
    subprocess.run([*run, "--rows", str(_HOLIDAY_ROWS)], capture_output=True, check=True)
    _run_job(command)
    subprocess.run(
        [command, "report", "--from", "history", "-o", str(page)],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    print(
        f"\nOpen {page.resolve()} in a browser: all runs with their time series "
        "(task-profiler report)."
    )
    print("For programs, run prints one line of JSON (--json).")
    sys.exit(exit_code)


def _run_job(command: str) -> None:
    """Run the batch as a job of AWS Batch whose second attempt succeeds, and list its runs."""
    print("the same batch with the variables of a job of AWS Batch, whose first attempt fails …")
    missing = _BATCH.with_name("no-such-folder")
    # The first attempt has done all its work when it fails.
    for attempt, target in enumerate((("--target", str(missing)), ()), 1):
        words = (command, "run", "--name", "orders", "--", sys.executable, str(_BATCH))
        variables = _JOB_VARIABLES | {"AWS_BATCH_JOB_ATTEMPT": str(attempt)}
        subprocess.run(
            [*words, "--rows", str(_JOB_ROWS), *target],
            env=os.environ | variables,
            capture_output=True,
            check=False,
        )
    print("\n$ task-profiler history --label batch.queue=nightly", flush=True)
    listing = ("history", "--from", "history", "--label", "batch.queue=nightly")
    subprocess.run([command, *listing], check=True)


if __name__ == "__main__":
    main()
