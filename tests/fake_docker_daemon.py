"""A Docker daemon on a Unix socket that answers from what a test gives it, and the documents of
a real one.
"""

import json
import socket
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

# Recorded from Docker 20.10: the inspect documents of a container that runs, that was stopped and
# that ran out of memory, the list of the last two, and all events meanwhile.
RECORDED = cast(
    "dict[str, Any]", json.loads((Path(__file__).parent / "data" / "docker.json").read_text())
)
_HEAD = "HTTP/1.1 {} X\r\nDate: Tue, 24 Nov 2026 19:49:15 GMT\r\nContent-Type: application/json\r\n"


class FakeDockerDaemon:
    """``answers`` are bodies by the beginnings of paths, others do not exist; ``paths`` are all
    requests so far.

    Streams of events stay open until ``hang_up``, and get what ``send`` sends.
    """

    def __init__(self, path: Path, answers: Mapping[str, bytes]) -> None:
        self.path = str(path)
        self.answers = dict(answers)
        self.paths: list[str] = []
        self.streams: list[socket.socket] = []
        self._begun = threading.Condition()
        self._server = socket.socket(socket.AF_UNIX)
        self._server.bind(self.path)
        self._server.listen()
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self._server.accept()
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with suppress(OSError), connection, connection.makefile("rb") as file:
            while line := file.readline():
                while file.readline().strip():
                    pass
                path = line.split()[1].decode()
                self.paths.append(path)
                if path.startswith("/events"):
                    connection.sendall(
                        (_HEAD.format(200) + "Transfer-Encoding: chunked\r\n\r\n").encode()
                    )
                    with self._begun:
                        self.streams.append(connection)
                        self._begun.notify_all()
                    continue
                body = next(
                    (body for start, body in self.answers.items() if path.startswith(start)), None
                )
                head = _HEAD.format(404 if body is None else 200)
                body = b'{"message": "No such container"}' if body is None else body
                connection.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)

    def send(self, *parts: bytes) -> None:
        """Send chunks on the last stream, once it has begun."""
        with self._begun:
            self._begun.wait_for(lambda: self.streams)
        for part in parts:
            self.streams[-1].sendall(b"%x\r\n%b\r\n" % (len(part), part))

    def hang_up(self) -> None:
        with self._begun:
            self._begun.wait_for(lambda: self.streams)
        self._end_streams()

    def _end_streams(self) -> None:
        # Whoever was on a stream may begin another one before all are ended.
        ended = self.streams[:]
        self.streams.clear()
        for stream in ended:
            with suppress(OSError):
                stream.shutdown(socket.SHUT_RDWR)  # its thread closes it

    def close(self) -> None:
        self._server.close()
        self._end_streams()
