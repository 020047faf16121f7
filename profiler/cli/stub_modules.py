"""Modules that msgspec, ``run`` and ``monitor`` import, and of which these commands use nothing, or
only a part.

Their execution is a tenth of the instructions of ``run -- true``: ``textwrap`` and ``platform``
compile twelve patterns, and ``msgspec.inspect`` creates forty classes. While msgspec is imported,
modules without content stand in for them; each of these executes the real module when one of its
names is used. Modules without which msgspec takes Python's own way look as if they were not
installed: ``typing_extensions`` alone takes longer than the rest of msgspec.

``datetime`` is the module in C alone, as from Python 3.12 on: before, Python defines its classes
twice, first in Python.

``signal`` is the module in C alone until one of the enumerations is used: to create them takes
0.8 ms. The numbers are plain then.

``sqlite3`` is the module in C alone (:func:`define_plain_sqlite`): the package adds converters of
dates, which the history does not use, and takes a third of its import.

``re`` and ``enum`` are imported by typing and msgspec, which only keep three of their names, and a
run whose command has no secret looks for no pattern: a fifteenth of its CPU time. ``warnings`` is
imported by typing, too, and nothing warns. A script that pip made before version 25.2 has imported
``re`` and ``enum``.

msgspec makes a forward reference to see whether it may. Before Python 3.14 that compiles a text,
for which Python creates the 119 classes of syntax trees: a twenty-fifth of the instructions. It is
told that it may, as it may from Python 3.11 on.
"""

import os
import sys
from _thread import allocate_lock
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType

TYPE_CHECKING = False  # type checkers treat this name as true; typing imports what is deferred
if TYPE_CHECKING:
    from typing import Any

_SCHEMAS = "msgspec._json_schema"
_ENUMERATIONS, _PATTERNS = "enum", "re"
# Later modules import them, too, and a short run uses none of their names.
_STAYING = (_ENUMERATIONS, _PATTERNS, "warnings")
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
    *_STAYING,
)
# From Python 3.11 on, typing has what msgspec takes from it.
_UNNEEDED = ("typing_extensions",)
_ONLY_FOR_MSGSPEC = {_ENUMERATIONS: ("EnumMeta",)}
_removal = allocate_lock()
# The name to which msgspec's forward reference refers.
_TRIED = "Foo"


class _NoDecimal:
    """What msgspec takes for the type of decimal numbers: it cannot encode the real one then."""


class _NoUuid:
    """What msgspec takes for the type of UUIDs, and for its enumeration: as above."""

    unknown = None


class _NoEnumeration(type):
    """What msgspec takes for the type of enumerations: it cannot encode the real one then."""


class _StandIn(ModuleType):
    """Has the names of the real module, which it imports when one of them is used."""

    def __getattr__(self, name: str) -> object:
        # An import of names asks for it. Of what has modules within, only one stays.
        if name == "__path__" and self.__name__ != _PATTERNS:
            raise AttributeError(name)
        return getattr(_real_module(self.__name__), name)


@contextmanager
def unused_modules_deferred() -> Iterator[None]:
    """Put stand-ins into ``sys.modules`` for modules that are not imported yet, and take them out
    at the end: later imports get the real modules. Those for ``signal``, ``re``, ``enum`` and
    ``warnings`` stay.

    Only for a process with one thread.
    """
    _define_datetime_once()
    _define_as_in_c("signal", _StandIn)
    stand_ins = [_StandIn(name) for name in _UNUSED if name not in sys.modules]
    hidden = [name for name in _UNNEEDED if name not in sys.modules]
    for stand_in in stand_ins:
        # What is used while msgspec is imported.
        stand_in.__dict__.update(_USED.get(stand_in.__name__, {}))
        sys.modules[stand_in.__name__] = stand_in
    for name in hidden:
        sys.modules[name] = None  # type: ignore[assignment]  # its import fails
    try:
        yield
    finally:
        for stand_in in stand_ins:
            if stand_in.__name__ not in _STAYING:
                _remove(stand_in)
            for name in _ONLY_FOR_MSGSPEC.get(stand_in.__name__, ()):
                vars(stand_in).pop(name, None)
        for name in hidden:
            sys.modules.pop(name, None)


def _real_module(name: str) -> ModuleType:
    """The module for which something stands in, imported."""
    from importlib import import_module  # only if a name is used

    stand_in = sys.modules.get(name)
    if isinstance(stand_in, _StandIn):
        _remove(stand_in)
    return import_module(name)


def _remove(stand_in: _StandIn) -> None:
    with _removal:  # another thread may have begun to import the real one
        if sys.modules.get(stand_in.__name__) is stand_in:
            del sys.modules[stand_in.__name__]


def _define_datetime_once() -> None:
    if sys.version_info < (3, 12):
        _define_as_in_c("datetime")


def define_plain_sqlite() -> None:
    """Define ``sqlite3`` for the history; without the module in C, its import fails as before."""
    _define_as_in_c("sqlite3")


def _define_as_in_c(name: str, kind: type[ModuleType] = ModuleType) -> None:
    """Define a module that is not imported yet as what its part in C has."""
    if name in sys.modules:
        return
    try:
        in_c = __import__(f"_{name}")  # type checkers do not know the private module
    except ImportError:  # a Python without it
        return
    module = kind(name, in_c.__doc__)
    module.__dict__.update(_public_names(in_c))
    sys.modules[name] = module


def _public_names(module: ModuleType) -> dict[str, object]:
    return {name: value for name, value in vars(module).items() if name[0] != "_"}


def import_msgspec() -> None:
    """Import msgspec, which tries no forward reference."""
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


def _function(module: str, name: str) -> Callable[..., object]:
    """A function of the real module, which it imports when it is called."""

    def call(*arguments: object, **options: object) -> object:
        function: Callable[..., object] = getattr(_real_module(module), name)
        return function(*arguments, **options)

    return call


def _types_of_patterns() -> dict[str, object]:
    """The two types of ``re``, of which typing and type hints make others."""
    sre = __import__("_sre")  # type checkers do not know the private module
    pattern = sre.compile("", 0, [1], 0, {}, (None,))  # the one instruction: the end of a match
    return {"Pattern": type(pattern), "Match": type(pattern.match(""))}


_USED: dict[str, dict[str, object]] = {
    _SCHEMAS: {name: _function(_SCHEMAS, name) for name in ("schema", "schema_components")},
    "platform": {"system": _system},
    "decimal": {"Decimal": _NoDecimal},
    _ENUMERATIONS: {"EnumMeta": _NoEnumeration},
    _PATTERNS: {"compile": _function(_PATTERNS, "compile"), **_types_of_patterns()},
    "uuid": {"UUID": _NoUuid, "SafeUUID": _NoUuid},
}
