"""Queries of DuckDB, whose pool of threads works for the main thread.

python -m tests.programs.queries beside|one|four SECONDS

``beside``: the main thread sleeps beside the idle pool. Else a query sleeps in a function for one
row, or in several threads for four.
"""

import sys

from tests.programs.phases import compute, phase, rounds, sleep, started, time_all, write_down

_PAUSE_SECONDS = 0.45
_WORK_SECONDS = 0.15
_THREADS = 4
# A thread takes so many rows at once.
_GROUP_ROWS = 122_880
_ROWS = {"one": _GROUP_ROWS, "four": _THREADS * _GROUP_ROWS}


def _pause(number: int) -> int:
    sleep(_PAUSE_SECONDS)
    return number


def main() -> None:
    started()
    import duckdb  # type: ignore[import-not-found,unused-ignore]

    time_all()
    how, seconds = sys.argv[1], float(sys.argv[2])
    database = duckdb.connect(config={"threads": _THREADS})
    database.create_function("pause", _pause, ["BIGINT"], "BIGINT", side_effects=True)
    for _ in rounds(seconds):
        compute(_WORK_SECONDS)
        if how == "beside":
            sleep(_PAUSE_SECONDS)
            continue
        query = f"SELECT sum(pause(range)) FROM range({_ROWS[how]}) WHERE range % {_GROUP_ROWS} = 0"
        with phase("others"):
            database.sql(query).fetchall()
    write_down()


if __name__ == "__main__":
    main()
