"""A job whose framework has servers, brokers and connections of its own.

    python -m tests.programs.frameworks NAME SECONDS COMPUTE WAIT [ADDRESS]

In each, only one thread computes and sleeps in turn, or waits for a child that sleeps: a task, a
cell, or the driver.
"""

import functools
import json
import os
import queue
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from tests.programs.phases import FOLDER, compute, forget, phase, sleep, write_down


def work(seconds: float, compute_seconds: float, sleep_seconds: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        compute(compute_seconds)
        sleep(sleep_seconds)
    write_down()


def _dask(*times: float, processes: bool) -> None:
    from distributed import Client, LocalCluster  # type: ignore[import-not-found,unused-ignore]

    cluster = LocalCluster(
        n_workers=1, threads_per_worker=1, processes=processes, dashboard_address=None
    )
    with cluster, Client(cluster) as client:
        client.submit(work, *times).result()


def _spark(*times: float) -> None:
    from pyspark.sql import SparkSession  # type: ignore[import-not-found,unused-ignore]

    session = (
        SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
    )
    session.range(10).count()
    work(*times)
    session.stop()


def _papermill(*times: float) -> None:
    import papermill  # type: ignore[import-not-found,import-untyped,unused-ignore]

    cell = f"from tests.programs.frameworks import work\nwork(*{times})"
    notebook = {
        "cells": [
            {"cell_type": "code", "source": cell, "metadata": {}, "outputs": [], "id": "work"}
            | {"execution_count": None}
        ],
        "metadata": {"kernelspec": {"name": "python3", "display_name": "", "language": "python"}},
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    path = Path(os.environ[FOLDER], "job.ipynb")
    path.write_text(json.dumps(notebook))
    papermill.execute_notebook(path, None, progress_bar=False)


def _celery(*times: float, pool: str) -> None:
    """A worker and its task; the worker is told to end when the task has."""
    from celery import Celery, signals  # type: ignore[import-not-found,import-untyped,unused-ignore]

    application = Celery("job", broker=f"redis://{sys.argv[5]}/0")
    worker = os.getpid()

    @application.task(name="work")  # type: ignore[untyped-decorator,unused-ignore]
    def task(*times: float) -> None:
        forget()
        work(*times)

    def end(**_: object) -> None:
        os.kill(worker, signal.SIGTERM)

    signals.task_success.connect(end, weak=False)
    task.delay(*times)
    application.Worker(pool=pool, concurrency=1, loglevel="error", quiet=True).start()


def _watchdog(seconds: float, compute_seconds: float, sleep_seconds: float) -> None:
    """The observer's threads tell the job of the files that a shell makes."""
    from watchdog.events import (  # type: ignore[import-not-found,unused-ignore]
        FileSystemEventHandler,
    )
    from watchdog.observers import Observer  # type: ignore[import-not-found,unused-ignore]

    folder = Path(os.environ[FOLDER], "files")
    folder.mkdir()
    made: queue.Queue[object] = queue.Queue()
    handler = FileSystemEventHandler()
    handler.on_created = made.put
    observer = Observer()
    observer.schedule(handler, str(folder))
    observer.start()
    rounds = round(seconds / (compute_seconds + sleep_seconds))
    script = f"for i in $(seq {rounds}); do sleep {sleep_seconds}; touch $i; done"
    with subprocess.Popen(["sh", "-c", script], cwd=folder):
        for _ in range(rounds):
            with phase("sleep"):
                made.get()
            compute(compute_seconds)
    observer.stop()
    write_down()


NAMES: dict[str, Callable[..., None]] = {
    "dask": functools.partial(_dask, processes=True),
    "dask_threads": functools.partial(_dask, processes=False),
    "spark": _spark,
    "papermill": _papermill,
    "watchdog": _watchdog,
    "celery_solo": functools.partial(_celery, pool="solo"),
    "celery_prefork": functools.partial(_celery, pool="prefork"),
    "celery_threads": functools.partial(_celery, pool="threads"),
}


def main() -> None:
    NAMES[sys.argv[1]](*map(float, sys.argv[2:5]))


if __name__ == "__main__":
    main()
