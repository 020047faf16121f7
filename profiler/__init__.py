"""Task Profiler: the REPORT line that Amazon ECS does not print.

The public API reads and writes the record of a run::

    from profiler import decode

    report = decode(line)
    print(report.record.metrics.max_memory_used_mb)

``import profiler`` loads no other module. Each name is imported at its first use.
"""

TYPE_CHECKING = (
    False  # type checkers take this name for true; importing typing would cost time at every start
)
if TYPE_CHECKING:
    from profiler.core.version import __version__
    from profiler.record.record_model import Record, Report, decode, encode, json_schema

__all__ = ["Record", "Report", "__version__", "decode", "encode", "json_schema"]

if not TYPE_CHECKING:  # a checker would accept any name from a module that has __getattr__

    def __getattr__(name: str) -> object:
        """Import a name of the public API (PEP 562)."""
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        if name == "__version__":
            from profiler.core import version as module
        else:
            from profiler.record import record_model as module
        value = getattr(module, name)
        globals()[name] = value
        return value

    def __dir__() -> list[str]:
        """The module's attributes, with the names of the public API that were not imported yet."""
        return sorted({*globals(), *__all__})
