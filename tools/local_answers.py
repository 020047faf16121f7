"""Requests of botocore to a server of this process, which a call answers: over a socket, each takes
three times as long.
"""

from collections.abc import Callable, Iterable, Mapping
from email.message import Message
from functools import cache
from io import BytesIO
from typing import IO, Any
from urllib.parse import SplitResult, unquote, urlsplit

from botocore.auth import SIGV4_TIMESTAMP, SigV4Auth, get_current_datetime
from botocore.awsrequest import AWSPreparedRequest, AWSRequest, AWSResponse, HeadersDict
from botocore.handlers import BUILTIN_HANDLERS
from botocore.useragent import UserAgentString
from moto.core.botocore_stubber import MockRawResponse
from msgspec import Struct


class LocalHeaders(dict[str, str]):
    """Headers by their names in lower case. As in http.server's handler, ``get`` takes any case."""

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


_add_auth = SigV4Auth.add_auth


def add_auth(auth: SigV4Auth, request: AWSRequest) -> None:
    """As botocore's; without a signature for what a call answers, which verifies none: it looks for
    the key, the Region and the service.
    """
    is_signed = type(auth) is not SigV4Auth  # S3's sums are in its answers
    if is_signed or auth.credentials is None or _address(request.url) not in _answerers:
        _add_auth(auth, request)
        return
    request.context["timestamp"] = get_current_datetime().strftime(SIGV4_TIMESTAMP)
    del request.headers["Authorization"]  # of an earlier attempt, if there is one
    request.headers["Authorization"] = (
        f"AWS4-HMAC-SHA256 Credential={auth.scope(request)}, SignedHeaders=host, Signature="
    )


_rebuild_user_agent = UserAgentString.rebuild_and_replace_user_agent_handler


def rebuild_user_agent(agent: UserAgentString, request: AWSRequest, **more: object) -> None:
    """As botocore's, which writes the features of this call into the header; for what a call
    answers, the header stays that of the client.
    """
    if _address(request.url) not in _answerers:
        _rebuild_user_agent(agent, request=request, **more)


def local_answer(url: str, request: LocalRequest, body: bytes) -> LocalAnswer:
    """The answer of the server with this address. Raises KeyError if none answers here."""
    return _answerers[_address(url)](request, body)


def _address(url: str) -> str:
    return urlsplit(url).netloc.replace("localhost", "127.0.0.1")


def _answer_botocore(request: AWSPreparedRequest, **_: object) -> AWSResponse | None:
    """Answer in the event in which moto's own decorator does."""
    answer = _answerers.get(_address(request.url))
    if answer is None:
        return None
    headers = LocalHeaders()
    for name, value in request.headers.items():
        headers[name.lower()] = value.decode() if isinstance(value, bytes) else str(value)
    url = urlsplit(request.url)
    sent = LocalRequest(host=url.netloc, command=request.method, path=_path(url), headers=headers)
    status, answered, content = answer(sent, _body_bytes(request.body))
    return AWSResponse(request.url, status, HeadersDict(answered), MockRawResponse(content))


BUILTIN_HANDLERS.append(("before-send", _answer_botocore))


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
