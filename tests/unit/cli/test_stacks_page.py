"""The tree of functions, and the command that prints it."""

import json
import random
from collections.abc import Mapping
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from profiler.cli.show import command
from profiler.cli.show.stacks_page import function_tree, stacks_lines
from profiler.cli.styled_text import ASCII, BLOCKS, Glyphs
from profiler.core.errors import TaskProfilerError, UsageError
from profiler.past_runs.local_history import LocalRuns
from profiler.past_runs.log_group_runs import LogGroupRuns
from profiler.past_runs.run_source import RunSource, no_stacks_sentence
from profiler.past_runs.search_runs import IndexedRuns
from profiler.record.activity_model import StackFunction, StackMoment, Stacks, StacksLine, StackStep
from profiler.record.record_model import Container, OtherContainer, encode
from tests.run_sources import ListedRuns
from tests.shown_runs import etl, waiting, waiting_stacks


def made(*steps: Mapping[str, int]) -> StacksLine:
    parts = tuple(StackStep(offset_ms=0, duration_ms=1, stacks=stacks) for stacks in steps)
    return replace(waiting_stacks(), steps=parts)


def shown(stacks: StacksLine, width: int = 80, glyphs: Glyphs = BLOCKS, known: Stacks | None = None) -> list[str]:
    lines = stacks_lines(waiting(stacks=known).record, stacks, width, glyphs)
    return ["".join(span.text for span in one).rstrip() for one in lines]


def tree(*steps: Mapping[str, int], width: int = 80) -> list[str]:
    """The rows of the tree alone."""
    return shown(made(*steps), width)[3:]


def test_the_whole_page() -> None:
    assert shown(waiting_stacks(), known=waiting().record.stacks) == [
        "nightly-etl 7b3f0c2d9e1a4855b6d0aa41c7f2e893: 412 stacks by py-spy 0.4.3",
        "",
        "Functions in 1 % of the stacks or more, each below its caller",
        "100 %  <module> (job.py)",
        " 42 %    transform (etl/transform.py)",
        " 42 %      parse_row (etl/parse.py)",
        " 42 %    merge (etl/merge.py)",
        " 42 %      concat (pandas/core/reshape/concat.py)",
        " 16 %    load_orders (etl/load.py)",
        " 16 %      recv (socket.py) [waiting]",
        "",
        "Share of the stacks of running threads",
        "itself  with calls  function   file",
        "  31 %        64 %  parse_row  etl/parse.py:88",
        "   0 %       100 %  <module>   job.py:18",
        "",
        "Where it was idle from +7m to +8m, this stack in 92 % of 58 samples",
        "  <module> (job.py:14)",
        "  load_orders (etl/load.py:40)",
        "  recv (socket.py:706)",
        "",
        "What ran while the memory rose from +15m to +16m, this stack in 72 % of 60",
        "samples",
        "  <module> (job.py:18)",
        "  merge (etl/merge.py:112)",
        "  concat (pandas/core/reshape/concat.py:372)",
    ]


def test_a_record_with_more_rows_than_the_monitor_writes_is_cut() -> None:
    function = StackFunction(function="f", file="a.py", self_percent=1.0)
    moment = StackMoment(kind="idle", stack=("g (a.py)",) * 60)
    rows = shown(waiting_stacks(), known=Stacks(source="", top=(function,) * 20, moments=(moment,) * 7))
    assert sum(row.endswith("f         a.py") for row in rows) == 10
    assert rows.count("Where it was idle") == 5
    assert rows.count("  g (a.py)") == 5 * 50


def test_one_stack() -> None:
    assert tree({"a (a.py)": 1}) == ["100 %  a (a.py)"]


def test_the_same_stack_in_several_steps_is_one() -> None:
    assert tree({"a (a.py);b (b.py)": 1}, {"a (a.py)": 2, "a (a.py);b (b.py)": 1}) == [
        "100 %  a (a.py)",
        " 50 %    b (b.py)",
    ]


def test_rare_functions_are_counted() -> None:
    rare = {f"a (a.py);rare{number} (a.py)": 1 for number in range(5)}
    assert tree({"a (a.py);b (a.py)": 995, **rare}) == ["100 %  a (a.py)", "100 %    b (a.py)", "  0 %    … 5 more"]


def test_a_function_that_waits_differs_from_the_same_that_runs() -> None:
    assert tree({"a (a.py) [waiting]": 3, "a (a.py)": 1}) == [" 75 %  a (a.py) [waiting]", " 25 %  a (a.py)"]


def test_a_name_that_is_cut_still_waits() -> None:
    rows = tree({"a_function_with_a_long_name (job.py) [waiting]": 1}, width=40)
    assert rows[-1] == "100 %  a_function_with_a_long… [waiting]"


def test_a_function_that_calls_itself_is_one() -> None:
    stacks = {";".join(["main (a.py)", *["fib (a.py)"] * depth]): depth for depth in range(1, 900)}
    assert tree(stacks) == ["100 %  main (a.py)", "100 %    fib (a.py)"]


def test_calls_between_functions_of_packages_are_counted() -> None:
    packages = [f"f{number} (site-packages/django/base.py)" for number in range(9)]
    text = ";".join(["main (manage.py)", *packages, "handle (shop/load.py)", "get (queue.py)", "wait (threading.py)"])
    assert tree({text: 1}) == [
        "100 %  main (manage.py)",
        "100 %    … 9 calls in Python and packages",
        "100 %      handle (shop/load.py)",
        "100 %        get (queue.py)",
        "100 %          wait (threading.py)",
    ]


def test_a_run_without_samples_has_only_a_title() -> None:
    for stacks in (made(), made({}), made({"a (a.py)": 0, "b (b.py)": -3})):
        assert shown(stacks) == ["nightly-etl 7b3f0c2d9e1a4855b6d0aa41c7f2e893: 0 stacks"]


@pytest.mark.parametrize("width", [60, 80, 120])
@pytest.mark.parametrize("count", [1, 100, 5000])
@pytest.mark.parametrize("glyphs", [BLOCKS, ASCII], ids=["blocks", "ascii"])
def test_the_tree_of_any_number_of_stacks_is_short(count: int, width: int, glyphs: Glyphs) -> None:
    chance = random.Random(count)
    stacks: dict[str, int] = {}
    while len(stacks) < count:
        path = [f"step_{chance.randint(0, 9)}_of_the_nightly_rebuild (shop/orders/rebuild.py)" for _ in range(40)]
        stacks[";".join(["<module> (job.py)", *path[: chance.randint(1, 40)]])] = chance.randint(1, 500)
    lines = shown(made(stacks), width, glyphs)
    assert len(lines) <= 90
    assert max(map(len, lines)) <= width
    assert not glyphs.is_ascii or "".join(lines).isascii()


def test_a_moment_of_a_newer_kind_and_without_times() -> None:
    known = Stacks(source="", moments=(StackMoment(kind="stuck", stack=("a (a.py:1)",)),))
    assert shown(made({"a (a.py)": 1}), known=known)[-2:] == ["stuck", "  a (a.py:1)"]


@given(
    st.lists(st.dictionaries(st.text(max_size=30) | st.sampled_from([";", " [waiting]", "a;a;b"]), st.integers())),
    st.integers(60, 120),
)
def test_any_stacks_have_a_page(steps: list[dict[str, int]], width: int) -> None:
    assert shown(made(*steps), width)
    root = function_tree(made(*steps))
    assert root.count == sum(count for step in steps for count in step.values() if count > 0)


# --- the command ----------------------------------------------------------------------------------


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "runs.jsonl"
    path.write_bytes(b"\n".join((msgspec.json.encode(waiting_stacks()), encode(waiting()), encode(etl()))))
    return path


def show(*words: str, written: list[bytes], patch: pytest.MonkeyPatch) -> Result:
    for module in ("profiler.cli.show", "profiler.cli.styled_text"):
        patch.setattr(f"{module}.write_out", written.append)
    return CliRunner().invoke(command, words)


def test_the_command_prints_the_tree_and_the_line(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[bytes] = []
    words = ("7b3f", "--from", str(file), "--stacks")
    assert show(*words, written=written, patch=monkeypatch).exit_code == 0
    assert show(*words, "--json", written=written, patch=monkeypatch).exit_code == 0
    page, line = written
    assert b"parse_row (etl/parse.py)" in page
    assert msgspec.json.decode(line, type=StacksLine) == waiting_stacks()
    assert json.loads(line)["type"] == "task.stacks"


def test_the_page_of_a_run_names_the_stacks(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[bytes] = []
    for name in ("7b3f", "158d"):
        show(name, "--from", str(file), written=written, patch=monkeypatch)
    with_stacks, without = (text.decode() for text in written)
    assert "  stacks   412 samples: --stacks shows the functions\n" in with_stacks
    assert "stacks" not in without


def test_a_run_without_stacks_is_a_sentence(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    error = show("158d", "--from", str(file), "--stacks", written=[], patch=monkeypatch).exception
    assert isinstance(error, TaskProfilerError)
    assert "TASK_PROFILER_STACKS=on" in str(error)
    assert "run --stacks" in str(error)


def test_of_several_containers_those_with_stacks_are_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    batch = waiting(containers=(OtherContainer(name="side"), OtherContainer(name="task-monitor")))
    side = waiting(container=Container(name="side"), containers=(OtherContainer(name="batch"),))
    path = tmp_path / "runs.jsonl"
    path.write_bytes(b"\n".join((msgspec.json.encode(waiting_stacks()), encode(side), encode(batch))))
    written: list[bytes] = []
    assert show("7b3f", "--from", str(path), "--stacks", written=written, patch=monkeypatch).exit_code == 0
    assert written[0].count(b"412 stacks") == 1
    error = show(f"{waiting().record.task_id}/side", "--from", str(path), "--stacks", written=[], patch=monkeypatch)
    assert "no call stacks of nightly-etl" in str(error.exception)


@pytest.mark.parametrize("words", [("--logs",), ("--against", "last-success")])
def test_stacks_are_shown_alone(words: tuple[str, ...], file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    error = show("--from", str(file), "--stacks", *words, written=[], patch=monkeypatch).exception
    assert isinstance(error, UsageError)


@pytest.mark.parametrize("kind", [LocalRuns, LogGroupRuns, IndexedRuns, ListedRuns])
def test_lost_stacks_are_a_sentence_that_says_what_to_do(kind: type[RunSource]) -> None:
    class Source(ListedRuns):
        stacks_remedy = kind.stacks_remedy

    sentence = no_stacks_sentence(Source([]), waiting().record)
    assert sentence.startswith("the list has no call stacks of nightly-etl 7b3f")
    assert sentence.count(": ") == 1
    assert sentence.endswith(".")
