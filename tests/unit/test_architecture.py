"""The arrows between the packages, and the shape of what is in them.

``LAYERS`` is the plan of the house: a package may import packages below it and never one above it.
"""

import ast
import re
from collections.abc import Iterator, Sequence
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import profiler
from profiler.aws_account.setup.forwarder_zip import own_zip_files
from tests.cases import each_case

ROOT = Path(profiler.__file__).parent
HANDLER = ROOT.parent / "lambda" / "handler.py"
# From the bottom to the top. A line's packages may import each other as long as there is no cycle.
LAYERS = (
    ("core",),
    ("record",),
    ("readers", "sinks", "search_setup"),
    ("aggregation", "sizing", "schedules"),
    ("settings", "task_definitions", "runs"),
    ("collectors", "otlp", "report_page"),
    ("monitor", "local_run", "cdk"),
    ("aws_account",),
    ("forwarder",),
    ("cli",),
    ("__main__",),
)
LEVELS = {package: level for level, packages in enumerate(LAYERS) for package in packages}
# What `task-profiler run` imports before it forks the process of the command.
RUN = ("profiler.cli", "profiler.cli.run_options", "profiler.cli.wiring.run_and_report")
MAX_FUNCTION_LINES = 60
MAX_NESTING = 4
MAX_CONSTRUCTOR_PARAMETERS = 8


@cache
def modules() -> dict[str, Path]:
    found = {}
    for path in ROOT.rglob("*.py"):
        parts = path.relative_to(ROOT.parent).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


@cache
def nodes_of(path: Path) -> tuple[ast.AST, ...]:
    return tuple(ast.walk(parsed(path)))


def imports(path: Path, *, only_top_level: bool = False) -> Iterator[str]:
    for node in parsed(path).body if only_top_level else nodes_of(path):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


@cache
def own_imports(path: Path) -> set[str]:
    return {name for name in imports(path) if name in modules()}


def package(module: str) -> str:
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else ""


@cache
def package_arrows() -> dict[str, set[str]]:
    arrows: dict[str, set[str]] = {name: set() for layer in LAYERS for name in layer}
    for module, path in modules().items():
        if package(module):
            arrows[package(module)] |= {package(name) for name in own_imports(path)} - {
                "",
                package(module),
            }
    return arrows


def code_files() -> list[Path]:
    return [*modules().values(), HANDLER]


def functions(path: Path) -> Iterator[ast.FunctionDef]:
    yield from (node for node in nodes_of(path) if isinstance(node, ast.FunctionDef))


def test_every_package_has_its_layer() -> None:
    assert {package(module) for module in modules()} - {""} == set(LEVELS)


def test_there_are_no_import_cycles() -> None:
    graph = {module: own_imports(path) - {module} for module, path in modules().items()}
    TopologicalSorter(graph).prepare()
    TopologicalSorter(package_arrows()).prepare()


def test_no_arrow_points_upward() -> None:
    for name, targets in package_arrows().items():
        assert not {target for target in targets if LEVELS[target] > LEVELS[name]}, name


def test_nothing_imports_the_public_api_which_is_above_all() -> None:
    assert not [
        module for module, path in modules().items() if module and "profiler" in own_imports(path)
    ]


@cache
def shipped() -> dict[str, Path]:
    """The modules that the forwarder's zip ships."""
    paths = {path for _, path in own_zip_files()}
    return {module: path for module, path in modules().items() if path in paths}


def test_the_forwarder_imports_only_what_its_zip_ships() -> None:
    for path in (*shipped().values(), HANDLER):
        assert own_imports(path) <= shipped().keys(), path


def test_only_the_command_line_builds_real_things() -> None:
    """Real clocks and the environment are used in profiler.cli alone (and wrapped in one module
    each).
    """
    wrappers = {"profiler.core.clock", "profiler.cli", "profiler.core.signal_handler"}
    wrappers |= {"profiler.aws_account.proof.witness"}  # a program of its own
    for module, path in modules().items():
        text = path.read_text()
        if package(module) == "cli" or module in wrappers:
            continue
        assert "os.environ" not in text, module
        assert "SystemClock()" not in text, module
        for call in (
            "time.time(",
            "time.time_ns(",
            "time.monotonic(",
            "time.monotonic_ns(",
            "datetime.now(",
        ):
            assert call not in text, (module, call)


def test_clients_of_aws_are_made_in_one_place() -> None:
    using = {
        path.name
        for path in code_files()
        if "boto3" in {name.split(".")[0] for name in imports(path)}
    }
    assert using == {"aws_clients.py"}


def test_sources_and_sinks_import_neither_the_life_nor_the_numbers_nor_each_other() -> None:
    arrows = package_arrows()
    assert arrows["readers"] == {"core"}
    assert arrows["sinks"] == {"core"}


_TERMINAL = "profiler.cli.terminal"
_NOTIFICATIONS = "profiler.forwarder.notifications"
_DECIDERS = {
    "profiler.record.cpu_wait",
    "profiler.record.task_needs",
    *(f"profiler.record.device_totals.{name}" for name in ("gpu_totals", "neuron_totals")),
    *(f"profiler.record.run_usage.{name}" for name in ("cpu_use", "usage_of")),
}


@each_case(
    "printer",
    [
        *(f"{_TERMINAL}.{name}" for name in ("run_page", "end_page", "run_curves", "time_bar")),
        "profiler.sizing.size_summary",
        *(f"{_NOTIFICATIONS}.{name}" for name in ("slack_messages", "event_details")),
        f"{_NOTIFICATIONS}.value_formats",
        "profiler.report_page.page_activity",
    ],
)
def test_what_prints_a_run_asks_its_story_and_decides_no_use_itself(printer: str) -> None:
    assert not _DECIDERS & set(imports(modules()[printer]))


_MONITOR = ("profiler.cli", "profiler.cli.wiring.build_monitor")
_LOCAL_SESSION = (*RUN, "profiler.cli.wiring.build_session")
_READERS = tuple(
    f"profiler.cli.{name}_command" for name in ("history", "show", "recommend", "compare")
)


@pytest.mark.parametrize(
    ("roots", "reached", "without"),
    [
        # What the monitor reaches is in memory beside the batch. Right-sizing is imported for the
        # report.
        (
            _MONITOR,
            "profiler.monitor.loop",
            [
                *(
                    "boto3",
                    "botocore",
                    "requests",
                    "urllib3",
                    "structlog",
                    "psutil",
                    "pynvml",
                    "click",
                ),
                *("profiler.local_run", "profiler.monitor.prometheus"),
                *("profiler.cli.wiring.build_stacks", "profiler.collectors.stacks"),
                *(
                    f"profiler.sizing.{name}"
                    for name in ("advice", "evidence", "choose_size", "what_if")
                ),
                "profiler.sizing.advice_reasons",
            ],
        ),
        # A command waits for what is imported before its end.
        (
            _LOCAL_SESSION,
            "profiler.local_run.session",
            [
                *("boto3", "botocore", "click", "ctypes", "http", "inspect", "pathlib", "pynvml"),
                *("requests", "sqlite3", "structlog", "tempfile", "urllib"),
                *(
                    "profiler.cli.wiring.build_export",
                    "profiler.cli.wiring.build_stacks",
                    "profiler.collectors.stacks",
                ),
                "profiler.collectors.nvidia.nvml_calls",
                "profiler.core.signal_handler",
                "profiler.readers.ecs.container_stats",
                "profiler.readers.ecs.task_metadata",
                "profiler.readers.linux.script_names",
                "profiler.sizing.prices",
            ],
        ),
        # Its process is forked before the rest is imported: the kernel moves it into its control
        # group meanwhile.
        (
            RUN,
            "profiler.local_run.prepared_run",
            [
                "profiler.cli.wiring.build_session",
                *(
                    f"profiler.{name}"
                    for name in LEVELS.keys() - {"cli", "core", "local_run", "readers"}
                ),
            ],
        ),
        # Runs are read from a file without them.
        (_READERS, "profiler.cli.styled_text", ["boto3", "botocore", "requests"]),
    ],
)
def test_heavy_modules_are_imported_only_when_needed(
    roots: Sequence[str], reached: str, without: Sequence[str]
) -> None:
    """What the top-level imports of these modules reach has some modules, with all below them,
    not.
    """
    seen: set[str] = set()
    waiting = [*roots]
    while waiting:
        module = waiting.pop()
        if module in seen:
            continue
        seen.add(module)
        for name in imports(modules()[module], only_top_level=True):
            assert not [one for one in without if f"{name}.".startswith(f"{one}.")], module
            if name in modules():
                waiting.append(name)
    assert reached in seen


def test_a_file_name_leads_to_one_place() -> None:
    """A reader who sees only the name of a file knows the file."""
    folders: dict[str, list[str]] = {}
    for top in ("profiler", "lambda", "kibana", "tools"):
        for path in (ROOT.parent / top).rglob("*.py"):
            folders.setdefault(path.name, []).append(str(path.parent.relative_to(ROOT.parent)))
    repeated = {name: sorted(places) for name, places in folders.items() if len(places) > 1}
    assert repeated.pop("__init__.py")
    assert not repeated


@pytest.mark.parametrize("folder", ["benchmarks", "tools"])
def test_what_measures_and_makes_needs_no_test(folder: str) -> None:
    for path in (ROOT.parent / folder).rglob("*.py"):
        packages = {name.partition(".")[0] for name in imports(path)}
        assert "tests" not in packages, path


def test_the_tests_are_in_the_folders_of_the_code() -> None:
    tests = ROOT.parent / "tests" / "unit"
    others = {"docs", "deployment"}
    for folder in {path.parent.relative_to(tests) for path in tests.rglob("test_*.py")} - {Path()}:
        places = (ROOT / folder, ROOT.parent / folder)
        assert folder.parts[0] in others or any(place.is_dir() for place in places), folder


def nesting(node: ast.AST) -> int:
    """How many blocks are inside each other; an ``elif`` is no deeper than its ``if``."""
    elifs = (
        [one for one in node.orelse if isinstance(one, ast.If)] if isinstance(node, ast.If) else []
    )
    deeper = elifs if len(getattr(node, "orelse", ())) == 1 else []
    kinds = (ast.stmt, ast.excepthandler)
    inner = [
        nesting(one)
        for one in ast.iter_child_nodes(node)
        if isinstance(one, kinds) and one not in deeper
    ]
    own = isinstance(node, (ast.If, ast.For, ast.While, ast.With, ast.Try))
    return max(own + max(inner, default=0), *map(nesting, deeper), 0)


def code_lines(function: ast.FunctionDef) -> int:
    """The lines of a function without its docstring, which may be as long as it has to be."""
    whole = (function.end_lineno or 0) - function.lineno + 1
    first = function.body[0]
    if ast.get_docstring(function) is None:
        return whole
    return whole - ((first.end_lineno or 0) - first.lineno + 1)


def test_functions_can_be_seen_whole_and_constructors_take_few_parameters() -> None:
    for path in code_files():
        for function in functions(path):
            lines = code_lines(function)
            assert lines <= MAX_FUNCTION_LINES, (path, function.name, lines)
            assert nesting(function) <= MAX_NESTING, (path, function.name)
            if function.name == "__init__":
                count = len(function.args.args) + len(function.args.kwonlyargs) - 1
                assert count <= MAX_CONSTRUCTOR_PARAMETERS, (path, count)


# A command that people can copy: one of AWS with arguments, or one of this program's that acts.
COMMAND = re.compile(r"\baws [a-z0-9-]+ [a-z0-9-]+ (?:-|\{)|.\btask-profiler (?:setup|replay)\b")


COPIED_FROM = {"aws_account", "cli", "record", "runs", "sizing", "task_definitions"}


def written(node: ast.AST) -> str:
    """A text of the code, with braces for the values in it."""
    if isinstance(node, ast.JoinedStr):
        return "".join(written(part) or "{}" for part in node.values)
    return str(node.value) if isinstance(node, ast.Constant) else ""


def test_one_module_writes_the_commands_that_people_copy() -> None:
    """It repeats --region and --profile: without them, a command acts in another account."""
    found: list[str] = []
    for module, path in modules().items():
        if package(module) not in COPIED_FROM:
            continue
        documented = {id(node.value) for node in nodes_of(path) if isinstance(node, ast.Expr)}
        for node in nodes_of(path):
            if id(node) in documented or not isinstance(node, ast.Constant | ast.JoinedStr):
                continue
            text = written(node)
            if COMMAND.search(text) and not text.startswith("Example: "):
                found.append(f"{path.name}:{node.lineno} {text}")
    assert found == []


# The words of a search that say which documents it finds.
SEARCH_WORDS = {"bool", "term", "exists", "prefix", "must_not", "should", "minimum_should_match"}


def test_one_module_words_the_conditions_of_searches() -> None:
    """What it means that a run is confirmed, say, is asked of the cluster in one way."""
    found: set[str] = set()
    for module, path in modules().items():
        keys = (node.keys for node in nodes_of(path) if isinstance(node, ast.Dict))
        words = {key.value for of_one in keys for key in of_one if isinstance(key, ast.Constant)}
        if words & SEARCH_WORDS:
            found.add(module)
    assert found == {"profiler.record.query_clauses"}


# Parts of a record that are never None: a constant says that nothing is known of them.
NEVER_NONE = {
    *("sampling", "task_size", "processor", "visible", "cost", "recommendation"),
    "time_breakdown",
}


def test_no_part_of_a_record_is_set_to_none() -> None:
    """JSON would have null there. The types do not say it: ``replace`` takes any value."""
    found: list[str] = []
    for path in code_files():
        for node in nodes_of(path):
            if not (isinstance(node, ast.keyword) and node.arg in NEVER_NONE):
                continue
            if isinstance(node.value, ast.Constant) and node.value.value is None:
                found.append(f"{path.name}:{node.value.lineno} {node.arg}")
    assert found == []


def test_no_test_module_imports_from_another() -> None:
    """What several need is a module of its own."""
    imported = re.compile(r"^\s*(?:from|import) tests\.(?:\w+\.)*test_\w+", re.MULTILINE)
    modules = [*(ROOT.parent / "tests").rglob("*.py")]
    assert len(modules) > 500
    assert [path.name for path in modules if imported.search(path.read_text())] == []
