"""The other end of a profiled program's connections: a server that is no process of the run."""

import contextlib
import socket
import socketserver
import threading
import time
from collections.abc import Iterator

_MAX_REQUEST_BYTES = 4096
_SUBSCRIBED = b"*3\r\n$9\r\nsubscribe\r\n$4\r\nnews\r\n:1\r\n"
_HTTP_ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: keep-alive\r\n\r\nok"


class _Answers(socketserver.BaseRequestHandler):
    """Answers a number of seconds after this time; ``ROWS SECONDS`` with a byte each time they
    have passed; a subscriber of redis once, and a request of HTTP for so many seconds after them.
    """

    def handle(self) -> None:
        with contextlib.suppress(OSError):  # the program has ended
            while request := self.request.recv(_MAX_REQUEST_BYTES):
                self._answer(request)

    def _answer(self, request: bytes) -> None:
        words = request.split()
        if words[0] == b"ROWS":
            while True:
                time.sleep(float(words[1]))
                self.request.sendall(b".")
        elif b"SUBSCRIBE" in words:
            self.request.sendall(_SUBSCRIBED)
        elif words[0] == b"GET":
            time.sleep(float(words[1].strip(b"/") or 0))
            self.request.sendall(_HTTP_ANSWER)
        else:
            time.sleep(float(words[0]))
            self.request.sendall(b".")


class _Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True


@contextlib.contextmanager
def visited_port(port: str, seconds: float) -> Iterator[None]:
    """Somebody connects to this port each time so many seconds have passed."""
    is_over = threading.Event()

    def visit() -> None:
        while not is_over.wait(seconds):
            with (
                contextlib.suppress(OSError),
                socket.create_connection(("127.0.0.1", int(port))) as connection,
            ):
                connection.recv(1)

    thread = threading.Thread(target=visit, daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


@contextlib.contextmanager
def answering_server() -> Iterator[int]:
    """Serve on a free port of the loopback interface."""
    with _Server(("127.0.0.1", 0), _Answers) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
