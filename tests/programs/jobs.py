"""A job of joblib, whose workers ask a server.

python -m tests.programs.jobs BACKEND SECONDS WORKERS PORT
"""

import sys

from tests.programs.phases import phase, rounds, started, write_down
from tests.programs.pools import ask, ask_in_a_process


def main() -> None:
    from joblib import (  # type: ignore[import-not-found,import-untyped,unused-ignore]
        Parallel,
        delayed,
    )

    started()
    backend, seconds, workers, port = sys.argv[1:]
    count = int(workers)
    task = ask if backend == "threading" else ask_in_a_process
    with Parallel(n_jobs=count, backend=backend) as parallel:
        for _ in rounds(float(seconds)):
            with phase("others"):
                parallel(delayed(task)(port, 0.4 + 0.4 * number / count) for number in range(count))
    write_down()


if __name__ == "__main__":
    main()
