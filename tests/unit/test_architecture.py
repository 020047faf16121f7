"""The arrows between the modules: cli → life → (sources, sinks, numbers) → record. No cycles, no upward arrows."""

import ast
from collections.abc import Iterator
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import profiler

ROOT = Path(profiler.__file__).parent
# Who may be imported at the top level by everybody below the command line.
LEAVES = {
    "profiler",
    "profiler.descriptors",
    "profiler.errors",
    "profiler.known",
    "profiler.points",
    "profiler.record",
    "profiler.times",
}


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


def imports(path: Path, *, only_top_level: bool = False) -> Iterator[str]:
    tree = parsed(path)
    nodes = tree.body if only_top_level else ast.walk(tree)
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def own_imports(path: Path) -> set[str]:
    return {name for name in imports(path) if name in modules()}


def area(module: str) -> str:
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else ""


def test_there_are_no_import_cycles() -> None:
    graph = {module: own_imports(path) - {module} for module, path in modules().items()}
    TopologicalSorter(graph).prepare()


@pytest.mark.parametrize("leaf", sorted(LEAVES))
def test_leaves_import_nothing_of_ours(leaf: str) -> None:
    assert own_imports(modules()[leaf]) <= {"profiler"}


def test_the_record_stands_alone() -> None:
    """The forwarder ships profiler/record.py and nothing else of the profiler."""
    assert own_imports(modules()["profiler.record"]) == set()


def test_only_the_command_line_builds_real_things() -> None:
    """Real clocks and the environment are reached for in profiler.cli alone (and wrapped in one module each)."""
    wrappers = {"profiler.clock", "profiler.cli", "profiler.stop"}
    for module, path in modules().items():
        text = path.read_text()
        if area(module) == "cli" or module in wrappers:
            continue
        assert "os.environ" not in text, module
        assert "SystemClock()" not in text, module
        for call in ("time.time(", "time.time_ns(", "time.monotonic(", "time.monotonic_ns(", "datetime.now("):
            assert call not in text, (module, call)


def test_sources_and_sinks_know_neither_the_life_nor_the_numbers_nor_each_other() -> None:
    below = {"", "clock", "descriptors", "errors", "known", "logs", "points", "record", "times"}
    for module, path in modules().items():
        if area(module) in ("sources", "sinks"):
            upward = {name for name in own_imports(path) if area(name) not in {*below, area(module)}}
            assert not upward, module


def test_nothing_imports_the_command_line() -> None:
    for module, path in modules().items():
        if area(module) not in ("cli", "__main__"):
            assert not {name for name in own_imports(path) if area(name) == "cli"}, module


def reached_by_top_level_imports(*roots: str, without: str) -> set[str]:
    reached: set[str] = set()
    waiting = [*roots]
    while waiting:
        module = waiting.pop()
        if module in reached:
            continue
        reached.add(module)
        for name in imports(modules()[module], only_top_level=True):
            assert without not in (name, name.split(".")[0]), module
            if name in modules():
                waiting.append(name)
    return reached


@pytest.mark.parametrize(
    "heavy",
    ["boto3", "botocore", "requests", "urllib3", "structlog", "psutil", "pynvml", "click", "rich", "prometheus_client"],
)
def test_the_monitor_imports_heavy_modules_only_when_needed(heavy: str) -> None:
    """What ``profiler.cli.monitor`` reaches by top-level imports is in memory beside the batch."""
    reached = reached_by_top_level_imports("profiler.cli", "profiler.cli.monitor", without=heavy)
    assert "profiler.monitor" in reached
    assert not [module for module in reached if area(module) == "prometheus"]


def test_right_sizing_takes_no_memory_while_the_batch_runs() -> None:
    """It is imported for the report: a megabyte that the monitor does not have before."""
    reached = reached_by_top_level_imports("profiler.cli", "profiler.cli.monitor", without="profiler.sizing.advised")
    assert not reached & {"profiler.sizing.evidence", "profiler.fargate", "profiler.rightsizing"}


@pytest.mark.parametrize("heavy", ["boto3", "botocore", "pynvml", "requests", "rich", "sqlite3", "structlog"])
def test_a_local_command_does_not_wait_for_heavy_modules(heavy: str) -> None:
    reached = reached_by_top_level_imports("profiler.cli.commands", "profiler.cli.run", without=heavy)
    assert "profiler.run" in reached


def test_no_module_is_a_crowd() -> None:
    for module, path in modules().items():
        assert len(path.read_text().splitlines()) <= 300, module
