"""Modules that ``run`` and ``monitor`` never use are executed at their first use, each by its real name."""

import subprocess
import sys
from textwrap import dedent

_UNUSED = (
    "msgspec._json_schema",
    "msgspec.inspect",
    "msgspec.msgpack",
    "msgspec.toml",
    "msgspec.yaml",
    "decimal",
    "platform",
    "textwrap",
    "uuid",
)
_START = """
    import sys
    from profiler.cli.stub_modules import import_msgspec, unused_modules_deferred
    with unused_modules_deferred():
        import_msgspec()
    import msgspec
"""


def _printed(code: str, before: str = "") -> str:
    """What a new Python prints that runs ``before``, imports msgspec with stand-ins, then runs
    ``code``.
    """
    return _of_new_python(f"{before}{dedent(_START)}{dedent(code)}")


def _of_new_python(code: str) -> str:
    program = f"import sys; sys.path[:] = {sys.path!r}\n{code}"
    words = (sys.executable, "-I", "-S", "-c", program)
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout.strip()


def test_neither_the_modules_nor_the_stand_ins_are_there_afterwards() -> None:
    assert _printed(f"print([name for name in {_UNUSED!r} if name in sys.modules])") == "[]"


def test_the_monitor_starts_without_them() -> None:
    code = f"""
        import os
        os._exit = lambda code: print(code, [name for name in {_UNUSED!r} if name in sys.modules])
        from profiler.cli import run_monitor_process
        run_monitor_process()
    """
    assert _of_new_python(dedent(code)) == "0 []"


def test_a_later_import_gets_the_real_module() -> None:
    code = """
        import importlib
        for name in NAMES:
            print(bool(importlib.import_module(name).__spec__.origin))
        import platform
        import textwrap
        print(textwrap.fill("a b", 1).split(), platform.python_version() == sys.version.split()[0])
    """.replace("NAMES", repr(_UNUSED))
    assert _printed(code).splitlines() == ["True"] * len(_UNUSED) + ["['a', 'b'] True"]


def test_who_has_a_stand_in_uses_the_real_module() -> None:
    code = """
        print(msgspec.json.schema(dict[str, int]), msgspec.inspect.type_info(str))
        print(msgspec.msgpack.decode(msgspec.msgpack.encode(7)))
        import platform
        print(platform.system())
    """
    schema, number, system = _printed(code).splitlines()
    assert schema.startswith("{'type': 'object', 'additionalProperties': {'type': 'integer'}} ")
    assert schema.endswith("StrType(min_length=None, max_length=None, pattern=None)")
    assert (number, system) == ("7", "Linux")


def test_a_name_that_is_used_within_the_block_is_the_real_one() -> None:
    code = """
        sys.modules.pop("textwrap", None)
        with unused_modules_deferred():
            import textwrap as stand_in
            print(stand_in.dedent("  a"))
            print(type(sys.modules["textwrap"]).__name__)
        print("textwrap" in sys.modules)
    """
    assert _printed(code).split() == ["a", "module", "True"]


def test_a_module_that_is_there_already_stays() -> None:
    code = """
        import textwrap
        with unused_modules_deferred():
            import textwrap as same
        print(same is textwrap is sys.modules["textwrap"])
    """
    assert _printed(code) == "True"


def test_a_warning_of_the_interpreter_is_given_though_its_module_is_deferred() -> None:
    code = """
        sys.stderr = sys.stdout
        compile("1 is 1", "some.py", "exec")
        import warnings
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            warnings.warn("own")
        print(*[warning.message for warning in caught])
    """
    first, *_, last = _printed(code).splitlines()
    assert first.startswith("some.py:1: SyntaxWarning: ")
    assert last == "own"


def test_what_msgspec_does_without_is_there_afterwards() -> None:
    code = """
        import typing
        import uuid
        print(msgspec._utils.Required is typing.Required, uuid.uuid4().version)
        import typing_extensions
        print(uuid.SafeUUID.unknown.name, typing_extensions.__name__)
    """
    assert _printed(code).splitlines() == ["True 4", "unknown typing_extensions"]


def test_patterns_and_enumerations_are_there_when_they_are_used() -> None:
    code = """
        import re
        import enum
        print([type(sys.modules[name]).__name__ for name in ("re", "enum")], "re._parser" in sys.modules)
        print(re.compile("b+").search("abb")[0], re.sub("a", "c", "ab"), re.IGNORECASE.name)
        import re as real
        print(type(real).__name__, isinstance(re.compile("x"), re.Pattern), real.Match is re.Match)
        class Colour(enum.Enum):
            RED = 1
        import enum as real
        print(Colour.RED.name, type(real).__name__, enum.EnumMeta is type(Colour) is real.EnumMeta)
        import typing
        print(typing.Pattern[str])
    """
    first, *others = _printed(code).splitlines()
    assert first == "['_StandIn', '_StandIn'] False"
    assert others == [
        "bb cb IGNORECASE",
        "module True True",
        "RED module True",
        "typing.Pattern[str]",
    ]


def test_threads_that_use_a_stand_in_at_once_get_one_module() -> None:
    code = """
        import re
        import threading
        sys.setswitchinterval(1e-6)
        together = threading.Barrier(8)
        found = []
        def use() -> None:
            together.wait()
            found.append((re.sub("a", "b", "a"), re.Scanner))
        users = [threading.Thread(target=use) for _ in range(8)]
        for user in users:
            user.start()
        for user in users:
            user.join()
        import re as real
        print(set(found) == {("b", real.Scanner)}, len(found))
    """
    assert _printed(code) == "True 8"


_SIGNALS = """
    import signal
    print(type(signal.SIGTERM).__name__, signal.SIGTERM, sorted(signal.sigpending()))
    print(signal.getsignal(signal.SIGTERM) == signal.SIG_DFL, signal.default_int_handler.__name__)
"""


def test_signals_are_plain_numbers_until_an_enumeration_is_used() -> None:
    code = """
        print("Signals" in vars(signal))
        print(signal.Signals(15).name, signal.strsignal(15))
        import signal as real
        print(real is not signal, isinstance(real.SIGTERM, real.Signals), real.SIGTERM == signal.SIGTERM)
        print([name for name in vars(real) if name[0] != "_" and not hasattr(signal, name)])
    """
    printed = _printed(dedent(_SIGNALS) + dedent(code)).splitlines()
    assert printed[:2] == ["int 15 []", "True default_int_handler"]
    assert printed[2:] == ["False", "SIGTERM Terminated", "True True True", "[]"]


def test_enumerations_of_signals_that_are_there_already_stay() -> None:
    assert _printed(_SIGNALS, before="import signal\n").startswith("Signals 15 []\nTrue ")


def test_datetime_has_what_python_offers_with_the_same_classes() -> None:
    code = """
        import datetime
        import importlib.util
        spec = importlib.util.find_spec("_strptime")
        used = datetime.datetime
        at = used.strptime("2026-11-20 03", "%Y-%m-%d %H").replace(tzinfo=datetime.UTC)
        print(msgspec.json.encode(at).decode(), msgspec.json.decode(b'"2026-11-20T03:00:00Z"', type=used) == at)
        own = dict(vars(datetime))
        del sys.modules["datetime"]
        import datetime as pythons
        print([name for name in pythons.__all__ if own[name] is not getattr(pythons, name)])
    """
    encoded, others = _printed(code).splitlines()
    assert encoded == '"2026-11-20T03:00:00Z" True'
    assert others == "[]"


def test_msgspec_compiles_no_text_and_forward_references_work_afterwards() -> None:
    code = """
        import typing
        print(typing.get_type_hints(typing.NamedTuple("Pair", [("one", "list[int]")]))["one"])
        class Tree(msgspec.Struct):
            name: "str"
            parts: "list[Tree] | None" = None
        tree = msgspec.json.decode(b'{"name": "a", "parts": [{"name": "b"}]}', type=Tree)
        print(tree.parts[0].name)
    """
    hook = dedent(
        """
        import sys
        sys.addaudithook(lambda event, of: event == "compile" and of[0] == b"Foo" and print("Foo"))
        """
    )
    assert _printed(code, before=hook).splitlines() == ["list[int]", "b"]
    # The control: without stand-ins it does.
    if sys.version_info < (3, 14):
        assert _of_new_python(f"{hook}import msgspec") == "Foo"
