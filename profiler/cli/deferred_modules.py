"""Modules that msgspec and uuid import, and of which ``run`` uses nothing.

Their execution is a tenth of the instructions of ``run -- true``: ``textwrap`` and ``platform``
compile twelve patterns, and ``msgspec.inspect`` creates forty classes. While msgspec is imported,
modules without content stand in for them; each of these executes the real module when one of its
names is used. Modules without which msgspec and uuid take Python's own way look as if they were not
installed: ``typing_extensions`` alone takes longer than the rest of msgspec.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType

_UNUSED = (
    "msgspec.inspect",
    "msgspec.msgpack",
    "msgspec.toml",
    "msgspec.yaml",
    "platform",
    "textwrap",
)
# From Python 3.11 on, typing has what msgspec takes from the first. The second makes UUIDs of
# version 1.
_UNNEEDED = ("typing_extensions", "_uuid")


class _StandIn(ModuleType):
    """Has the names of the real module, which it imports when one of them is used."""

    def __getattr__(self, name: str) -> object:
        from importlib import import_module  # only if a name is used

        _remove(self)
        return getattr(import_module(self.__name__), name)


@contextmanager
def unused_modules_deferred() -> Iterator[None]:
    """Put stand-ins into ``sys.modules`` for modules that are not imported yet, and take them out
    at the end: later imports get the real modules.

    Only for a process with one thread.
    """
    stand_ins = [_StandIn(name) for name in _UNUSED if name not in sys.modules]
    hidden = [name for name in _UNNEEDED if name not in sys.modules]
    for stand_in in stand_ins:
        if stand_in.__name__ == "platform":
            stand_in.__dict__["system"] = _system  # uuid calls it while it is imported
        sys.modules[stand_in.__name__] = stand_in
    for name in hidden:
        sys.modules[name] = None  # type: ignore[assignment]  # its import fails
    try:
        yield
    finally:
        for stand_in in stand_ins:
            _remove(stand_in)
        for name in hidden:
            sys.modules.pop(name, None)


def _remove(stand_in: _StandIn) -> None:
    if sys.modules.get(stand_in.__name__) is stand_in:
        del sys.modules[stand_in.__name__]


def _system() -> str:
    return os.uname().sysname
