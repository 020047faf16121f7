"""Jobs as people write them, with what the standard library has: beside each, threads that help.

python -m tests.programs.runners NAME SECONDS PORT
"""

import logging
import queue
import socket
import subprocess
import sys
import threading
import time
from logging.handlers import QueueHandler, QueueListener

from tests.programs.phases import compute, phase, rounds, sleep, started, write_down

_ANSWER_SECONDS, _WORK_SECONDS, _SLEEP_SECONDS = 0.5, 0.25, 0.8


class _Client:
    """A client that keeps its connection."""

    def __init__(self, port: str) -> None:
        self._connection = socket.create_connection(("127.0.0.1", int(port)))

    def ask(self, seconds: float) -> None:
        self._connection.sendall(f"{seconds}\n".encode())
        self._connection.recv(1)


def task(seconds: float, _port: str) -> None:
    """It prints a line each time that it has worked."""
    for _ in rounds(seconds):
        compute(_WORK_SECONDS)
        sys.stdout.write("done\n")
        sys.stdout.flush()
        sleep(_SLEEP_SECONDS)


def lines_of_task(seconds: float, port: str) -> None:
    """A runner reads what its task prints, and a thread of it sends heartbeats, as Airflow's."""
    client = _Client(port)

    def beat() -> None:
        while True:
            time.sleep(0.7)
            client.ask(0.05)

    threading.Thread(target=beat, daemon=True).start()
    words = [sys.executable, "-m", __spec__.name, "task", str(seconds), port]
    with subprocess.Popen(words, stdout=subprocess.PIPE) as child:
        for _ in child.stdout or ():
            pass


class _SlowHandler(logging.Handler):
    """It sends each line to a server."""

    def __init__(self, client: _Client) -> None:
        super().__init__()
        self._client = client

    def emit(self, _record: logging.LogRecord) -> None:
        self._client.ask(0.2)


def log_by_thread(seconds: float, port: str) -> None:
    """A thread sends what is logged, and the job sleeps and asks in turn."""
    lines: queue.Queue[logging.LogRecord] = queue.Queue()
    listener = QueueListener(lines, _SlowHandler(_Client(port)))
    listener.start()
    log = logging.getLogger(__name__)
    log.addHandler(QueueHandler(lines))
    client = _Client(port)
    for _ in rounds(seconds):
        log.warning("begin")
        compute(_WORK_SECONDS)
        sleep(_SLEEP_SECONDS)
        log.warning("ask")
        compute(_WORK_SECONDS)
        with phase("network"):
            client.ask(_ANSWER_SECONDS)


def retries(seconds: float, port: str) -> None:
    """A client asks again after longer and longer times, until its third answer is good."""
    client = _Client(port)
    for _ in rounds(seconds):
        for pause_seconds in (0.2, 0.4, None):
            with phase("network"):
                client.ask(_ANSWER_SECONDS)
            if pause_seconds is not None:
                sleep(pause_seconds)
        compute(_WORK_SECONDS)


def schedule(seconds: float, port: str) -> None:
    """A loop looks four times a second whether one of its two jobs is due."""
    client = _Client(port)
    next_question = next_report = time.monotonic()
    for _ in rounds(seconds):
        if time.monotonic() >= next_question:
            with phase("network"):
                client.ask(_ANSWER_SECONDS)
            compute(_WORK_SECONDS)
            next_question += 2
        if time.monotonic() >= next_report:
            compute(_WORK_SECONDS)
            next_report += 3
        sleep(0.25)


PROGRAMS = {each.__name__: each for each in (task, lines_of_task, log_by_thread, retries, schedule)}


def main() -> None:
    started()
    PROGRAMS[sys.argv[1]](float(sys.argv[2]), sys.argv[3])
    write_down()


if __name__ == "__main__":
    main()
