"""Requests of botocore to a server of this process, which a call answers: over a socket, each takes
three times as long.
"""

from collections.abc import Callable, Iterable, Mapping
from email.message import Message
from functools import cache, lru_cache
from io import BytesIO
from typing import IO, Any
from urllib.parse import SplitResult, unquote, urlsplit

from botocore.awsrequest import AWSPreparedRequest, AWSResponse
from botocore.handlers import BUILTIN_HANDLERS
from moto.core.botocore_stubber import MockRawResponse
from moto.core.models import botocore_stubber
from msgspec import Struct


class LocalHeaders(dict[str, str]):
    """Headers by their names in lower case. As in http.server's handler, a look takes any case."""

    def __contains__(self, name: object) -> bool:  # noqa: D105
        return super().__contains__(str(name).lower())

    def __getitem__(self, name: str) -> str:  # noqa: D105
        return super().__getitem__(name.lower())

    def get(self, name: str, default: Any = None) -> Any:  # noqa: ANN401  as Message.get
        return super().get(name.lower(), default)


class LocalRequest(Struct, frozen=True, kw_only=True):
    """A request with the names of http.server's handler. ``path`` includes the query, and ``host``
    the port.
    """

    host: str
    command: str
    path: str
    headers: LocalHeaders | Message


LocalAnswer = tuple[int, Mapping[str, str], bytes]
Answerer = Callable[[LocalRequest, bytes], LocalAnswer]
_answerers: dict[str, Answerer] = {}  # by host and port


def answer_here(url: str, answer: Answerer) -> None:
    """From now on, ``answer`` gets what botocore in this process sends to this address."""
    _answerers[_address(url)] = answer


def answer_over_sockets(url: str) -> None:
    """From now on, this address is reached over its socket alone, also from this process."""
    _answerers.pop(_address(url), None)


def is_answered_here(url: str) -> bool:
    """Whether a call answers what botocore sends to this URL: one of ours, or moto's decorator."""
    address = _address(url)
    return address in _answerers or (botocore_stubber.enabled and ".amazonaws.com" in address)


def local_answer(url: str, request: LocalRequest, body: bytes) -> LocalAnswer:
    """The answer of the server with this address. Raises KeyError if none answers here."""
    return _answerers[_address(url)](request, body)


@lru_cache
def _address(url: str) -> str:
    return urlsplit(url).netloc.replace("localhost", "127.0.0.1")


def _answer_botocore(request: AWSPreparedRequest, **_: object) -> AWSResponse | None:
    """Answer in the event in which moto's own decorator does."""
    answer = _answerers.get(_address(request.url))
    if answer is None:
        return None
    given = request.headers
    headers = given if isinstance(given, LocalHeaders) else local_headers(given)
    url = urlsplit(request.url)
    sent = LocalRequest(host=url.netloc, command=request.method, path=_path(url), headers=headers)
    status, answered, content = answer(sent, _body_bytes(request.body))
    response = AWSResponse(request.url, status, (), MockRawResponse(content))
    response.headers = LocalHeaders({name.lower(): value for name, value in answered.items()})
    return response


BUILTIN_HANDLERS.append(("before-send", _answer_botocore))


def local_headers(headers: Mapping[str, str | bytes]) -> LocalHeaders:
    """Headers as botocore has them, by their names in lower case."""
    return LocalHeaders(
        (name.lower(), value.decode() if isinstance(value, bytes) else str(value))
        for name, value in headers.items()
    )


def _path(url: SplitResult) -> str:
    path = url.path or "/"
    return f"{path}?{url.query}" if url.query else path


def _body_bytes(body: IO[bytes] | bytes | str | None) -> bytes:
    """A body as botocore has it: a text, bytes, a file, or nothing."""
    if body is None:
        return b""
    if isinstance(body, str):
        return body.encode()
    return body if isinstance(body, bytes | bytearray) else body.read()


@cache
def _environ_name(header: str) -> str:
    return f"HTTP_{header.upper().replace('-', '_')}"


def wsgi_answerer(app: Callable[..., Iterable[bytes]], url: str) -> Answerer:
    """What an application of WSGI answers at this address."""
    address = urlsplit(url)

    def answer(request: LocalRequest, body: bytes) -> LocalAnswer:
        path, _, query = request.path.partition("?")
        environ: dict[str, Any] = {
            "wsgi.version": (1, 0),
            "wsgi.url_scheme": "http",
            "wsgi.input": BytesIO(body),
            "wsgi.errors": BytesIO(),
            "wsgi.multithread": True,
            "wsgi.multiprocess": False,
            "wsgi.run_once": False,
            "REQUEST_METHOD": request.command,
            "SCRIPT_NAME": "",
            "PATH_INFO": unquote(path, "latin-1"),
            "QUERY_STRING": query,
            "RAW_URI": request.path,
            "REMOTE_ADDR": address.hostname,
            "SERVER_NAME": address.hostname,
            "SERVER_PORT": str(address.port),
            "SERVER_PROTOCOL": "HTTP/1.1",
        }
        for name, value in request.headers.items():
            environ[_environ_name(name)] = value
        environ["HTTP_HOST"] = request.host
        environ["CONTENT_TYPE"] = environ.pop("HTTP_CONTENT_TYPE", "")
        environ["CONTENT_LENGTH"] = str(len(body))
        begun: list[tuple[int, dict[str, str]]] = []

        def start_response(status: str, headers: list[tuple[str, str]], *_: object) -> None:
            begun.append((int(status.partition(" ")[0]), dict(headers)))

        try:
            content = b"".join(app(environ, start_response))
        except NotImplementedError:  # moto does not know the operation
            return 500, {}, b""
        status, headers = begun[-1]
        return status, headers, content

    return answer
