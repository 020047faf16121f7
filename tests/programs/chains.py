"""A process that waits for a second one, which waits for a third one.

python -m tests.programs.chains PROGRAM SECONDS [PORT]
"""

import os
import select
import socket
import sys
import threading
from collections.abc import Callable
from pathlib import Path

from tests.programs.phases import (
    FOLDER,
    compute,
    fork_child,
    phase,
    rounds,
    sleep,
    started,
    time_all,
    time_whole,
    write_down,
)

_PAUSE_SECONDS = 0.9
_WORK_SECONDS = 0.1
_TIMER_SECONDS = 0.1
_QUESTION = b"0.7\n"  # to a server that is not of the run


def _receive(connection: socket.socket) -> bytes:
    with phase("others"):
        return connection.recv(1)


def _serve_one(listener: socket.socket) -> None:
    """The last one: it sleeps before each answer."""
    connection, _ = listener.accept()
    while _receive(connection):
        sleep(_PAUSE_SECONDS)
        compute(0.02)
        connection.sendall(b"!")


def _forward_in_turn(listener: socket.socket, server: socket.socket) -> None:
    """The second one waits for either side only."""
    client, _ = listener.accept()
    while question := _receive(client):
        server.sendall(question)
        client.sendall(_receive(server))
    server.close()


def _forward_by_select(listener: socket.socket, server: socket.socket) -> None:
    """The second one watches all connections, and does a little ten times a second."""
    client, _ = listener.accept()
    ends = {client: server, server: client}
    while True:
        with phase("others"):
            ready, _, _ = select.select([listener, *ends], [], [], _TIMER_SECONDS)
        for end in ready:
            said = end.recv(len(_QUESTION))
            if not said:
                server.close()
                return
            ends[end].sendall(said)


def _ask_through(
    seconds: float,
    forward: Callable[[socket.socket, socket.socket], None],
    listen: Callable[[str], socket.socket],
) -> None:
    last, middle = listen("last"), listen("middle")
    pids = [fork_child(lambda: _serve_one(last))]
    server = socket.socket(last.family)
    server.connect(last.getsockname())
    pids.append(fork_child(lambda: forward(middle, server)))
    server.close()
    last.close()
    with socket.socket(middle.family) as connection:
        connection.connect(middle.getsockname())
        middle.close()
        for _ in rounds(seconds):
            connection.sendall(b"?")
            _receive(connection)
            compute(_WORK_SECONDS)
    _wait_for(pids)


def _wait_for(pids: list[int]) -> None:
    for pid in pids:
        with phase("others"):
            os.waitpid(pid, 0)


def _listen_tcp(_: str) -> socket.socket:
    return socket.create_server(("127.0.0.1", 0))


def _listen_unix(name: str) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(Path(os.environ[FOLDER], name)))
    listener.listen()
    return listener


def proxy(seconds: float) -> None:
    _ask_through(seconds, _forward_in_turn, _listen_tcp)


def proxy_by_select(seconds: float) -> None:
    _ask_through(seconds, _forward_by_select, _listen_tcp)


def unix_proxy_by_select(seconds: float) -> None:
    _ask_through(seconds, _forward_by_select, _listen_unix)


def broker(seconds: float, listen: Callable[[str], socket.socket] = _listen_tcp) -> None:
    """A producer sends rows to a broker, which passes them to the consumer."""
    listener = listen("broker")

    def produce() -> None:
        with socket.socket(listener.family) as connection:
            connection.connect(listener.getsockname())
            connection.sendall(b"p")
            for _ in rounds(seconds):
                sleep(_PAUSE_SECONDS)
                compute(0.02)
                connection.sendall(b"r")

    def pass_on() -> None:
        clients: dict[bytes, socket.socket] = {}
        while True:
            with phase("others"):
                ready, _, _ = select.select([listener, *clients.values()], [], [], _TIMER_SECONDS)
            for end in ready:
                if end is listener:
                    connection, _ = listener.accept()
                    clients[connection.recv(1)] = connection
                elif not (row := end.recv(1)):
                    return
                else:
                    clients[b"c"].sendall(row)

    pids = [fork_child(pass_on)]
    with socket.socket(listener.family) as connection:
        connection.connect(listener.getsockname())
        connection.sendall(b"c")
        pids.append(fork_child(produce))
        listener.close()
        while _receive(connection):
            compute(_WORK_SECONDS)
    _wait_for(pids)


def unix_broker(seconds: float) -> None:
    broker(seconds, _listen_unix)


def pipes(seconds: float) -> None:
    """A producer, a filter and a consumer."""
    first, second = os.pipe(), os.pipe()

    def produce() -> None:
        os.close(first[0])
        os.close(second[0])
        os.close(second[1])
        for _ in rounds(seconds):
            sleep(_PAUSE_SECONDS)
            compute(0.02)
            os.write(first[1], b"r")

    def pass_on() -> None:
        os.close(first[1])
        os.close(second[0])
        while True:
            with phase("others"):
                row = os.read(first[0], 1)
            if not row:
                return
            os.write(second[1], row)

    pids = [fork_child(produce), fork_child(pass_on)]
    os.close(first[0])
    os.close(first[1])
    os.close(second[1])
    while True:
        with phase("others"):
            row = os.read(second[0], 1)
        if not row:
            break
        compute(_WORK_SECONDS)
    _wait_for(pids)


def terminal(seconds: float) -> None:
    """A program that writes to a terminal, which the first one has made, as ``script`` does."""
    made, opened = os.openpty()

    def write() -> None:
        os.close(made)
        for _ in rounds(seconds):
            sleep(_PAUSE_SECONDS)
            compute(0.02)
            os.write(opened, b"r")

    pids = [fork_child(write)]
    os.close(opened)
    while True:
        try:
            with phase("others"):
                os.read(made, 1)
        except OSError:  # nobody has the other end
            break
        compute(_WORK_SECONDS)
    _wait_for(pids)


def threads_of_proxy(seconds: float) -> None:
    """The second one accepts in its first thread, and has a thread for each connection."""

    def forward(listener: socket.socket, server: socket.socket) -> None:
        client, _ = listener.accept()

        def do() -> None:
            time_all()
            while question := _receive(client):
                server.sendall(question)
                client.sendall(_receive(server))
            server.close()
            write_down()
            os._exit(0)

        threading.Thread(target=do).start()
        with phase("others"):
            listener.accept()

    _ask_through(seconds, forward, _listen_tcp)


def proxy_for_others(seconds: float) -> None:
    """A child asks through a proxy that watches all connections, and the server is not of the run."""
    listener = _listen_tcp("middle")

    def forward() -> None:
        server = socket.create_connection(("127.0.0.1", int(sys.argv[3])))
        _forward_by_select(listener, server)

    def ask() -> None:
        with socket.create_connection(listener.getsockname()) as connection:
            for _ in rounds(seconds):
                connection.sendall(_QUESTION)
                with phase("network"):
                    select.select([connection], [], [])
                    connection.recv(1)
                compute(_WORK_SECONDS)

    pids = [fork_child(forward), fork_child(ask)]
    _wait_for(pids[::-1])


PROGRAMS: dict[str, Callable[[float], None]] = {
    "proxy_for_others": proxy_for_others,
    "proxy": proxy,
    "proxy_by_select": proxy_by_select,
    "unix_proxy_by_select": unix_proxy_by_select,
    "threads_of_proxy": threads_of_proxy,
    "broker": broker,
    "unix_broker": unix_broker,
    "pipes": pipes,
    "terminal": terminal,
}


def main() -> None:
    started()
    time_whole(lambda: PROGRAMS[sys.argv[1]](float(sys.argv[2])))
    write_down()


if __name__ == "__main__":
    main()
