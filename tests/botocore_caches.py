"""What botocore makes anew for each session and client, made once in a process of tests, which
opens thousands of them. Their results are the same.
"""

import inspect
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from copy import copy
from functools import cache, lru_cache
from itertools import count
from threading import Lock
from types import FunctionType, MethodType, SimpleNamespace
from typing import IO, Any
from unittest.mock import patch
from uuid import UUID
from weakref import WeakKeyDictionary, ref

import msgspec
from botocore import awsrequest, endpoint, hooks, parsers, regions, utils
from botocore.client import ClientCreator
from botocore.endpoint_provider import EndpointProvider
from botocore.handlers import BUILTIN_HANDLERS
from botocore.hooks import EventAliaser, NodeList, _PrefixTrie
from botocore.httpsession import URLLib3Session
from botocore.loaders import JSONFileLoader, Loader
from botocore.model import Shape
from botocore.session import Session
from botocore.utils import get_environ_proxies


@contextmanager
def cached_botocore() -> Iterator[None]:
    """Read botocore's files, register its handlers, and make the names of its events, the models of
    services and the classes of clients once, not for each session and client.
    """
    list_services = Loader.list_available_services
    load_service = Loader.load_service_model
    alias, load_model = EventAliaser._alias_event_name, ClientCreator._load_service_model
    create_class = ClientCreator._create_client_class
    aliaser = EventAliaser(None)
    loaded = cache(_PlainFiles().load_file)
    listed = cache(lambda paths, kind: list_services(Loader(extra_search_paths=list(paths)), kind))
    described = cache(
        lambda paths, service, kind, version: load_service(
            Loader(extra_search_paths=list(paths)), service, kind, version
        )
    )
    models: dict[tuple[str, str | None], Any] = {}
    classes: dict[Any, Any] = {}

    def model(creator: Any, service: str, version: str | None = None) -> Any:
        if (service, version) not in models:
            models[service, version] = load_model(creator, service, version)
        return models[service, version]

    def client_class(creator: Any, service: str, of_model: Any) -> Any:
        if of_model not in classes:
            classes[of_model] = create_class(creator, service, of_model)
        return classes[of_model]

    replaced: dict[tuple[Any, str], Any] = {
        (JSONFileLoader, "load_file"): lambda _loader, path: loaded(path),
        (Loader, "list_available_services"): lambda loader, type_name: listed(
            tuple(loader.search_paths), type_name
        ),
        (Loader, "load_service_model"): lambda loader, service_name, type_name, api_version=None: (
            described(tuple(loader.search_paths), service_name, type_name, api_version)
        ),
        (EventAliaser, "_alias_event_name"): lambda _aliaser, name: alias(aliaser, name),
        (EventAliaser, "emit"): lambda given, event_name, **event: given._emitter._emit(
            alias(aliaser, event_name), event
        ),
        (ClientCreator, "_load_service_model"): model,
        (ClientCreator, "_create_client_class"): client_class,
        (Session, "_register_builtin_handlers"): _registered(),
        (Session, "create_client"): _create_client,
        (hooks, "accepts_kwargs"): _accepts_kwargs,
        (hooks, "_PrefixTrie"): _SharedNames,
        (Shape, "MAP_TYPE"): dict,  # the members of a structure, which each answer goes through
        (regions, "EndpointProvider"): _endpoint_provider(),
        (regions.EndpointRulesetResolver, "construct_endpoint"): _endpoint_of_operation(),
        (endpoint, "get_environ_proxies"): _environ_proxies,
        (utils, "get_environ_proxies"): _environ_proxies,
        (endpoint, "uuid"): SimpleNamespace(uuid4=_numbered_ids()),
        (awsrequest, "urlencode"): _urlencode,
        (parsers, "DEFAULT_TIMESTAMP_PARSER"): _parse_timestamp,
        **_sessions_made_when_used(),
    }
    with ExitStack() as stack:
        for (owner, name), function in replaced.items():
            stack.enter_context(patch.object(owner, name, function))
        yield


class _PlainFiles(JSONFileLoader):  # type: ignore[misc]  # botocore has no types
    """As botocore's, which reads each object into an OrderedDict: a file takes three times as long,
    and each look into a model takes longer.
    """

    def _load_file(self, full_path: str, open_method: Callable[..., IO[bytes]]) -> object:
        if not os.path.isfile(full_path):  # noqa: PTH113  as botocore asks
            return None
        with open_method(full_path, "rb") as file:
            return msgspec.json.decode(file.read())


_inspected = hooks.accepts_kwargs


def _accepts_kwargs(function: Any) -> Any:
    """As botocore's, which parses the signature of each of the 200 handlers of a session."""
    plain = function.__func__ if isinstance(function, MethodType) else function
    if isinstance(plain, FunctionType):
        return bool(plain.__code__.co_flags & inspect.CO_VARKEYWORDS)
    return _inspected(function)


class _SharedNames(_PrefixTrie):  # type: ignore[misc]  # botocore has no types
    """As botocore's names of events, of which each client has a copy: what a copy does not change
    stays shared.
    """

    _root: dict[str, Any]
    _own: set[int] | None = None  # the ids of the nodes that are no other's; None: all

    def __copy__(self) -> "_SharedNames":
        copied = _SharedNames()
        copied._root = self._root
        self._own, copied._own = set(), set()
        return copied

    def append_item(self, key: str, value: Any, section: int = 1) -> None:
        self._make_own(key)
        super().append_item(key, value, section)
        self._make_own(key)  # the new ones, too

    def remove_item(self, key: str, value: Any) -> None:
        self._make_own(key)
        super().remove_item(key, value)

    def _make_own(self, key: str) -> None:
        """Copy what is shared on the way to a name."""
        if self._own is None:
            return
        node = self._root = self._own_node(self._root, self._own)
        for part in key.split("."):
            children = node["children"]
            if part not in children:
                return
            node = children[part] = self._own_node(children[part], self._own)

    @staticmethod
    def _own_node(node: dict[str, Any], own: set[int]) -> dict[str, Any]:
        if id(node) in own:
            return node
        values = node["values"]
        if values is not None:
            values = NodeList(values.first[:], values.middle[:], values.last[:])
        copied = {"chunk": node["chunk"], "children": {**node["children"]}, "values": values}
        own.add(id(copied))
        return copied


def _registered() -> Callable[..., None]:
    """A function that gives a session a copy of botocore's 200 registered handlers."""
    register = Session._register_builtin_handlers
    made: dict[int, Any] = {}  # by the number of handlers: modules add theirs at import

    def give(session: Any, events: Any) -> None:
        number = len(BUILTIN_HANDLERS)
        if number not in made:
            register(session, events)
            made[number] = copy(events._emitter)
        else:
            session._original_handler = events._emitter = copy(made[number])

    return give


def _numbered_ids() -> Callable[[], UUID]:
    """A function that gives each call another id: the kernel's random numbers take longer."""
    numbers = count(1)
    return lambda: UUID(int=next(numbers))


_made_client = Session.create_client


def _create_client(session: Any, *arguments: Any, **options: Any) -> Any:
    """As botocore's, which looks for the profile's part of the configuration fifty times for each
    client.
    """
    scoped = vars(session)
    scoped["get_scoped_config"] = cache(lambda: Session.get_scoped_config(session))
    try:
        return _made_client(session, *arguments, **options)
    finally:
        scoped.pop("get_scoped_config", None)  # another thread may have made one, too


def _endpoint_provider() -> Callable[..., Any]:
    """A function that makes botocore's provider of endpoints once for the rules of a service, which
    are read once (see ``load_file``).
    """
    made: dict[int, tuple[Any, Any]] = {}

    def provider(*, ruleset_data: Any, **more: Any) -> Any:
        if id(ruleset_data) not in made:
            one = EndpointProvider(ruleset_data=ruleset_data, **more)
            made[id(ruleset_data)] = ruleset_data, one
        return made[id(ruleset_data)][1]

    return provider


def _endpoint_of_operation() -> Callable[..., Any]:
    """A function that goes through the rules of a service once for all clients with the same
    settings, where no argument of the operation changes the endpoint. A handler changes that of S3.
    """
    construct = regions.EndpointRulesetResolver.construct_endpoint
    made: dict[Any, Any] = {}

    def endpoint(resolver: Any, operation_model: Any, call_args: Any, request_context: Any) -> Any:
        service = resolver._service_model.service_name
        if (
            service in ("s3", "s3control")
            or "AccountId" in resolver._param_definitions
            or operation_model.context_parameters
            or operation_model.operation_context_parameters
        ):
            return construct(resolver, operation_model, call_args, request_context)
        settings = {**resolver._builtins, **(resolver._client_context or {})}
        settings.pop(regions.EndpointResolverBuiltins.ACCOUNT_ID, None)  # a function
        key = (service, operation_model.name, resolver._use_ssl, *settings.items())
        if key not in made:
            made[key] = construct(resolver, operation_model, call_args, request_context)
        return made[key]

    return endpoint


_encode = awsrequest.urlencode
_encoded = lru_cache(maxsize=64)(lambda parameters: _encode(parameters, doseq=True))


def _urlencode(parameters: Any, **options: bool) -> str:
    """As Python's, which encodes a template of CloudFormation byte by byte. botocore encodes each
    body three times.
    """
    if all(isinstance(value, bytes) for _, value in parameters):
        return str(_encoded(tuple(parameters)))
    return str(_encode(parameters, **options))


_parse = parsers.DEFAULT_TIMESTAMP_PARSER
_parsed = lru_cache(maxsize=64)(_parse)


def _parse_timestamp(value: Any) -> Any:
    """As botocore's, which takes longer for a text in UTC than for the rest of a role of IAM."""
    is_utc = isinstance(value, str) and value.endswith("Z")
    return _parsed(value) if is_utc else _parse(value)


def _environ_proxies(url: str) -> dict[str, str]:
    """As botocore's, which goes through the environment three times, and decodes it."""
    if not any(name.lower().endswith(b"_proxy") for name in os.environb):
        return {}
    proxies: dict[str, str] = get_environ_proxies(url)
    return proxies


def _sessions_made_when_used() -> dict[tuple[Any, str], Callable[..., Any]]:
    """Each client has an HTTP session with a TLS context, which a server of this process never
    gets.
    """
    make, send, close = URLLib3Session.__init__, URLLib3Session.send, URLLib3Session.close
    lock = Lock()
    unused: WeakKeyDictionary[Any, Callable[[], None]] = WeakKeyDictionary()

    def prepare(session: Any, *arguments: Any, **options: Any) -> None:
        reference = ref(session)
        unused[session] = lambda: make(reference(), *arguments, **options)

    def use(session: Any, request: Any) -> Any:
        with lock:
            if session in unused:
                unused.pop(session)()
        return send(session, request)

    def end(session: Any) -> None:
        if session not in unused:
            close(session)

    return {
        (URLLib3Session, "__init__"): prepare,
        (URLLib3Session, "send"): use,
        (URLLib3Session, "close"): end,
    }
