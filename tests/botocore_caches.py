"""What botocore makes anew for each session and client, made once in a process of tests, which
opens thousands of them. Their results are the same.
"""

import inspect
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from types import FunctionType, MethodType
from typing import Any
from unittest.mock import patch

from botocore import hooks
from botocore.client import ClientCreator
from botocore.hooks import EventAliaser, NodeList
from botocore.loaders import JSONFileLoader, Loader


@contextmanager
def cached_botocore() -> Iterator[None]:
    """Read botocore's files, and make the names of its events, the models of services and the
    classes of clients once, not for each session and client.
    """
    load_file, list_services = JSONFileLoader.load_file, Loader.list_available_services
    alias, load_model = EventAliaser._alias_event_name, ClientCreator._load_service_model
    create_class = ClientCreator._create_client_class
    file_loader, aliaser = JSONFileLoader(), EventAliaser(None)
    loaded = cache(lambda path: load_file(file_loader, path))
    listed = cache(lambda paths, kind: list_services(Loader(extra_search_paths=list(paths)), kind))
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

    replaced: dict[tuple[Any, str], Callable[..., Any]] = {
        (JSONFileLoader, "load_file"): lambda _loader, path: loaded(path),
        (Loader, "list_available_services"): lambda loader, type_name: listed(
            tuple(loader.search_paths), type_name
        ),
        (EventAliaser, "_alias_event_name"): lambda _aliaser, name: alias(aliaser, name),
        (ClientCreator, "_load_service_model"): model,
        (ClientCreator, "_create_client_class"): client_class,
        (hooks, "accepts_kwargs"): _accepts_kwargs,
        (NodeList, "__copy__"): _copied_handlers,
    }
    with ExitStack() as stack:
        for (owner, name), function in replaced.items():
            stack.enter_context(patch.object(owner, name, function))
        yield


_inspected = hooks.accepts_kwargs


def _accepts_kwargs(function: Any) -> Any:
    """As botocore's, which parses the signature of each of the 200 handlers of a session."""
    plain = function.__func__ if isinstance(function, MethodType) else function
    if isinstance(plain, FunctionType):
        return bool(plain.__code__.co_flags & inspect.CO_VARKEYWORDS)
    return _inspected(function)


def _copied_handlers(handlers: NodeList) -> NodeList:
    """As botocore's, which goes through ``copy.copy`` for each of the three lists."""
    return NodeList(handlers.first[:], handlers.middle[:], handlers.last[:])
