"""A proxy before moto: throttles, refuses, cuts lists into pages, and answers what moto does not
know.
"""

import json
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler
from subprocess import CompletedProcess
from typing import Any
from urllib.parse import parse_qs, urlencode

import requests

from tests.command_line import run_here
from tests.http_server import FakeHttpServer
from tools.local_answers import LocalRequest, answer_here, answer_over_sockets, local_answer
from tools.moto_server import FakeAws, push_image

Answer = tuple[int, Mapping[str, str], bytes]
Request = BaseHTTPRequestHandler | LocalRequest
# Of an operation that moto does not know, or what makes it of the request.
Reply = Mapping[str, Any] | Callable[[dict[str, Any]], Mapping[str, Any]]
_USER = "User: arn:aws:sts::123456789012:assumed-role/ci/session"
# The operations that the commands page through: the list of the response, and the name of the
# token.
_LISTS = {
    "ListTaskDefinitionFamilies": ("families", "nextToken"),
    "ListTasks": ("taskArns", "nextToken"),
    "ListClusters": ("clusterArns", "nextToken"),
    "ListServices": ("serviceArns", "nextToken"),
    "ListEventBuses": ("EventBuses", "NextToken"),
    "ListRules": ("Rules", "NextToken"),
    "ListTargetsByRule": ("Targets", "NextToken"),
    "DescribeSubscriptionFilters": ("subscriptionFilters", "nextToken"),
    "GET /schedules": ("Schedules", "NextToken"),
    "ListTaskDefinitions": ("taskDefinitionArns", "nextToken"),
    "GetResources": ("ResourceTagMappingList", "PaginationToken"),
    "DescribeLogGroups": ("logGroups", "nextToken"),
}


class AwsProxy(FakeHttpServer):
    """Passes requests on to moto.

    Every ``throttled_share``-th request is throttled (0: none), and operations in ``refused`` are
    not allowed, nor are the log groups in ``denied_groups`` read. A list has ``page_size`` items a
    page, or all; with 0, its first page is empty, and the second one has all. No revision of the
    families ``denied`` is registered. ``answers`` has those to operations that moto does not know.
    ``before`` is called with each operation and its body before moto gets it.
    """

    def __init__(
        self,
        target: str,
        *,
        throttled_share: int = 0,
        page_size: int | None = None,
        answers: Mapping[str, Reply] | None = None,
    ) -> None:
        super().__init__()
        answer_here(self.url, self.answer)
        self._target = target
        self._throttled_share = throttled_share
        self._page_size = page_size
        self.answers = dict(answers or {})
        self.denied: set[str] = set()
        self.denied_groups: set[str] = set()
        self.refused: set[str] = set()
        self.operations: list[str] = []
        self.bodies: list[tuple[str, bytes]] = []
        self.throttled = 0
        self.before: Callable[[str, bytes], None] = lambda _operation, _body: None

    def close(self) -> None:
        answer_over_sockets(self.url)
        super().close()

    def answer(self, request: Request, body: bytes) -> Answer:
        path, _, query = request.path.partition("?")
        operation = (
            request.headers.get("X-Amz-Target", "").rpartition(".")[2]
            or _query_action(body)
            or f"{request.command} {path}"
        )
        if b"Action=GetCallerIdentity" in body:
            operation = "GetCallerIdentity"  # of STS, which needs no permission
        self.operations.append(operation)
        self.bodies.append((operation, body))
        self.before(operation, body)
        is_json = "json" in request.headers.get("Content-Type", "json")  # IAM's errors are XML
        if self._throttled_share and len(self.operations) % self._throttled_share == 0 and is_json:
            self.throttled += 1
            return _error("ThrottlingException", "Rate exceeded")
        if operation in self.refused and not is_json:
            return _query_error("AccessDenied", operation, body)
        action = self._denied_action(operation, body)
        if operation in self.refused or action:
            what = f" to perform: {action}" if action else ""
            return _error("AccessDeniedException", f"{_USER} is not authorized{what}")
        if operation in self.answers:
            reply = self.answers[operation]
            content = reply(json.loads(body)) if callable(reply) else reply
            return 200, {"Content-Type": "application/x-amz-json-1.1"}, json.dumps(content).encode()
        if self._page_size is not None and operation in _LISTS:
            return self._page(request, operation, body, query)
        return self._passed(request, request.path, body)

    def _denied_action(self, operation: str, body: bytes) -> str:
        """What may not be done with this family or log group; empty if it may be done."""
        if operation == "RegisterTaskDefinition" and json.loads(body)["family"] in self.denied:
            return f"ecs:{operation}"
        reads = operation == "FilterLogEvents"
        if reads and json.loads(body)["logGroupName"] in self.denied_groups:
            return f"logs:{operation}"
        return ""

    def _passed(self, request: Request, path: str, body: bytes) -> Answer:
        host = self._target.removeprefix("http://")
        sent = LocalRequest(host=host, command=request.command, path=path, headers=request.headers)
        status, headers, content = local_answer(self._target, sent, body)
        return status, {"Content-Type": headers.get("Content-Type", "")}, content

    def _page(self, request: Request, operation: str, body: bytes, query: str) -> Answer:
        """One page of moto's complete list; the token is the index of the page's first item."""
        field, token = _LISTS[operation]
        path = request.path.partition("?")[0]
        is_get = request.command == "GET"
        given = (
            {name: values[0] for name, values in parse_qs(query).items()}
            if is_get
            else json.loads(body)
        )
        is_first = not given.get(token)
        start = int(given.pop(token, None) or 0)
        if is_get:
            path = f"{path}?{urlencode(given)}"
        else:
            body = json.dumps(given).encode()
        status, headers, content = self._passed(request, path, body)
        answered = json.loads(content)
        if status != requests.codes.ok:
            return status, headers, content
        items = answered[field]
        end = start + (self._page_size or len(items))
        is_empty = is_first and self._page_size == 0
        if is_empty:
            end = 0
        answered[field] = items[start:end]
        if end < len(items) or is_empty:
            answered[token] = str(end)
        return status, headers, json.dumps(answered).encode()


class ProxiedAccount:
    """An account on moto with the cluster "jobs" and the monitor's image, behind a proxy, and the
    commands that use it.
    """

    def __init__(self, aws: FakeAws, proxy: AwsProxy) -> None:
        self.aws, self.proxy = aws, proxy
        self.ecs, self.events, self.scheduler, self.iam = map(
            aws.client, ("ecs", "events", "scheduler", "iam")
        )
        self.ecs.create_cluster(clusterName="jobs")
        push_image(aws)

    def command(self, *words: str) -> CompletedProcess[str]:
        return run_here(self.aws.environment() | {"AWS_ENDPOINT_URL": self.proxy.url}, *words)


def _query_action(body: bytes) -> str:
    """The operation of CloudFormation, whose requests are forms; empty for another service."""
    is_query = body.startswith(b"Action=") and b"Version=2010-05-15" in body
    return parse_qs(body.decode())["Action"][0] if is_query else ""


def _query_error(code: str, operation: str, body: bytes) -> Answer:
    """The refusal of CloudFormation, or of IAM."""
    action = f"cloudformation:{operation}"
    if b"Version=2010-05-08" in body:
        action = f"iam:{parse_qs(body.decode())['Action'][0]}"
    message = f"{_USER} is not authorized to perform: {action}"
    error = f"<Type>Sender</Type><Code>{code}</Code><Message>{message}</Message>"
    content = f"<ErrorResponse><Error>{error}</Error><RequestId>1</RequestId></ErrorResponse>"
    return 403, {"Content-Type": "text/xml"}, content.encode()


def _error(code: str, message: str) -> Answer:
    headers = {"Content-Type": "application/x-amz-json-1.1", "x-amzn-ErrorType": code}
    return 400, headers, json.dumps({"__type": code, "message": message}).encode()
