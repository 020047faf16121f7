"""Modules that msgspec and ``run`` import, and of which ``run`` uses nothing, or only a part.

Their execution is a tenth of the instructions of ``run -- true``: ``textwrap`` and ``platform``
compile twelve patterns, and ``msgspec.inspect`` creates forty classes. While msgspec is imported,
modules without content stand in for them; each of these executes the real module when one of its
names is used. Modules without which msgspec takes Python's own way look as if they were not
installed: ``typing_extensions`` alone takes longer than the rest of msgspec.

``datetime`` is the module in C alone, as from Python 3.12 on: before, Python defines its classes
twice, first in Python.

``signal`` is the module in C alone until one of the enumerations is used: to create them takes
0.8 ms. The numbers are plain then.

msgspec makes a forward reference to see whether it may. Before Python 3.14 that compiles a text,
for which Python creates the 119 classes of syntax trees: a twenty-fifth of the instructions. It is
told that it may, as it may from Python 3.11 on.
"""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

_SCHEMAS = "msgspec._json_schema"
_UNUSED = (
    _SCHEMAS,
    "msgspec.inspect",
    "msgspec.msgpack",
    "msgspec.toml",
    "msgspec.yaml",
    "decimal",
    "platform",
    "textwrap",
    "uuid",
)
# From Python 3.11 on, typing has what msgspec takes from it.
_UNNEEDED = ("typing_extensions",)
# The name to which msgspec's forward reference refers.
_TRIED = "Foo"


class _NoDecimal:
    """What msgspec takes for the type of decimal numbers: it cannot encode the real one then."""


class _NoUuid:
    """What msgspec takes for the type of UUIDs, and for its enumeration: as above."""

    unknown = None


class _StandIn(ModuleType):
    """Has the names of the real module, which it imports when one of them is used."""

    def __getattr__(self, name: str) -> object:
        if name == "__path__":  # none is a package; an import of names asks for it
            raise AttributeError(name)
        from importlib import import_module  # only if a name is used

        _remove(self)
        return getattr(import_module(self.__name__), name)


@contextmanager
def unused_modules_deferred() -> Iterator[None]:
    """Put stand-ins into ``sys.modules`` for modules that are not imported yet, and take them out
    at the end: later imports get the real modules. The one for ``signal`` stays.

    Only for a process with one thread.
    """
    _define_datetime_once()
    _define_plain_signals()
    stand_ins = [_StandIn(name) for name in _UNUSED if name not in sys.modules]
    hidden = [name for name in _UNNEEDED if name not in sys.modules]
    for stand_in in stand_ins:
        # What is used while msgspec is imported.
        stand_in.__dict__.update(_USED.get(stand_in.__name__, {}))
        sys.modules[stand_in.__name__] = stand_in
    for name in hidden:
        sys.modules[name] = None  # type: ignore[assignment]  # its import fails
    try:
        _import_msgspec()
        yield
    finally:
        for stand_in in stand_ins:
            _remove(stand_in)
        for name in hidden:
            sys.modules.pop(name, None)


def _remove(stand_in: _StandIn) -> None:
    if sys.modules.get(stand_in.__name__) is stand_in:
        del sys.modules[stand_in.__name__]


def _define_datetime_once() -> None:
    if "datetime" in sys.modules or sys.version_info >= (3, 12):
        return
    try:
        in_c = __import__("_datetime")  # type checkers do not know the private module
    except ImportError:  # a Python without the module in C
        return
    module = ModuleType("datetime", in_c.__doc__)
    module.__dict__.update(_public_names(in_c))
    sys.modules["datetime"] = module


def _define_plain_signals() -> None:
    if "signal" in sys.modules:
        return
    try:
        in_c = __import__("_signal")  # as above
    except ImportError:
        return
    stand_in = _StandIn("signal", in_c.__doc__)
    stand_in.__dict__.update(_public_names(in_c))
    sys.modules["signal"] = stand_in


def _public_names(module: ModuleType) -> dict[str, object]:
    return {name: value for name, value in vars(module).items() if name[0] != "_"}


def _import_msgspec() -> None:
    import typing  # msgspec imports it

    real: Any = typing.ForwardRef

    def untried(text: str, **options: bool) -> object:
        return None if text == _TRIED else real(text, **options)

    if sys.version_info < (3, 14):
        typing.ForwardRef = untried  # type: ignore[misc,assignment]
    try:
        import msgspec  # noqa: F401  as every module that is imported next
    finally:
        typing.ForwardRef = real  # type: ignore[misc]


def _system() -> str:
    return os.uname().sysname


def _schema(name: str) -> Callable[..., object]:
    """A function of the real module, which it imports when it is called."""

    def call(*arguments: object, **options: object) -> object:
        from importlib import import_module  # only if it is called

        return getattr(import_module(_SCHEMAS), name)(*arguments, **options)

    return call


_USED: dict[str, dict[str, object]] = {
    _SCHEMAS: {name: _schema(name) for name in ("schema", "schema_components")},
    "platform": {"system": _system},
    "decimal": {"Decimal": _NoDecimal},
    "uuid": {"UUID": _NoUuid, "SafeUUID": _NoUuid},
}
