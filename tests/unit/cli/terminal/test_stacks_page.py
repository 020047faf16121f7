"""The tree of functions, and the command that prints it."""

import json
import random
from collections.abc import Mapping
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from profiler.cli.terminal.stacks_page import function_tree, stacks_lines
from profiler.core.errors import TaskProfilerError
from profiler.record.activity_model import NO_STACKS, Stacks
from profiler.record.record_model import Container, OtherContainer, encode
from profiler.record.stacks_line import StacksLine, StackStep
from tests.shown_runs import etl, waiting, waiting_stacks
from tests.terminals import texts
from tests.unit.cli.conftest import Cli
from tests.values import present


def made(*steps: Mapping[str, int]) -> StacksLine:
    parts = tuple(StackStep(offset_ms=0, duration_ms=1, stacks=stacks) for stacks in steps)
    return replace(waiting_stacks(), steps=parts)


def shown(stacks: StacksLine, width: int = 80, known: Stacks = NO_STACKS) -> list[str]:
    return texts(stacks_lines(waiting(stacks=known).record, stacks, width))


def tree(
    *steps: Mapping[str, int], width: int = 80, own_files: tuple[str, ...] | None = None
) -> list[str]:
    """The rows of the tree alone."""
    return shown(replace(made(*steps), own_files=own_files), width)[3:]


def test_the_whole_page() -> None:
    assert shown(waiting_stacks(), known=waiting().record.stacks) == [
        "nightly-etl 7b3f0c2d9e1a4855b6d0aa41c7f2e893: 412 samples, 412 stacks by py-spy",
        "0.4.3",
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


RARE = {f"a (a.py);rare{number} (a.py)": 1 for number in range(5)}
RECURSIVE = {";".join(["main (a.py)", *["fib (a.py)"] * depth]): depth for depth in range(1, 900)}


@pytest.mark.parametrize(
    ("steps", "rows"),
    [
        ([{"a (a.py)": 1}], ["100 %  a (a.py)"]),
        # the same stack in several steps
        (
            [{"a (a.py);b (b.py)": 1}, {"a (a.py)": 2, "a (a.py);b (b.py)": 1}],
            ["100 %  a (a.py)", " 50 %    b (b.py)"],
        ),
        (
            [{"a (a.py);b (a.py)": 995, **RARE}],
            ["100 %  a (a.py)", "100 %    b (a.py)", "  0 %    … 5 more"],
        ),
        # a function that waits, and the same that runs
        (
            [{"a (a.py) [waiting]": 3, "a (a.py)": 1}],
            [" 75 %  a (a.py) [waiting]", " 25 %  a (a.py)"],
        ),
        ([RECURSIVE], ["100 %  main (a.py)", "100 %    fib (a.py)"]),
    ],
)
def test_the_tree(steps: list[dict[str, int]], rows: list[str]) -> None:
    assert tree(*steps) == rows


def test_calls_between_functions_of_packages_are_counted() -> None:
    packages = [f"f{number} (django/base.py)" for number in range(9)]
    text = ";".join(
        [
            "main (manage.py)",
            *packages,
            "handle (shop/load.py)",
            "get (queue.py)",
            "wait (threading.py)",
        ]
    )
    assert tree({text: 1}, own_files=("manage.py", "shop/load.py")) == [
        "100 %  main (manage.py)",
        "100 %    … 9 calls in Python and packages",
        "100 %      handle (shop/load.py)",
        "100 %        get (queue.py)",
        "100 %          wait (threading.py)",
    ]


def test_a_run_without_samples_has_only_a_title() -> None:
    for stacks in (made(), made({}), made({"a (a.py)": 0, "b (b.py)": -3})):
        assert shown(stacks) == ["nightly-etl 7b3f0c2d9e1a4855b6d0aa41c7f2e893: 0 stacks"]


@pytest.mark.parametrize(
    ("samples", "running", "few"), [(412, 2, True), (412, 400, False), (2, None, True)]
)
def test_few_samples_of_running_threads_are_a_matter_of_chance(
    samples: int, running: int | None, *, few: bool
) -> None:
    known = replace(present(waiting().record.stacks), samples=samples, running_samples=running)
    title = next(row for row in shown(waiting_stacks(), known=known) if row.startswith("Share of"))
    assert title.endswith(" in only 2 samples: a matter of chance") is few


@pytest.mark.parametrize(("count", "width"), [(1, 60), (100, 80), (5000, 120)])
def test_the_tree_of_any_number_of_stacks_is_short(count: int, width: int) -> None:
    chance = random.Random(count)
    stacks: dict[str, int] = {}
    while len(stacks) < count:
        path = [
            f"step_{chance.randint(0, 9)}_of_the_nightly_rebuild (shop/orders/rebuild.py)"
            for _ in range(40)
        ]
        stacks[";".join(["<module> (job.py)", *path[: chance.randint(1, 40)]])] = chance.randint(
            1, 500
        )
    lines = shown(made(stacks), width)
    assert len(lines) <= 90
    assert max(map(len, lines)) <= width


# --- the command ----------------------------------------------------------------------------------


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "runs.jsonl"
    path.write_bytes(
        b"\n".join((msgspec.json.encode(waiting_stacks()), encode(waiting()), encode(etl())))
    )
    return path


def test_the_command_prints_the_tree_and_the_line(file: Path, cli: Cli) -> None:
    words = ("7b3f", "--from", str(file), "--stacks")
    assert "parse_row (etl/parse.py)" in cli("show", *words).out
    line = cli("show", *words, "--json").out
    assert msgspec.json.decode(line, type=StacksLine) == waiting_stacks()
    assert json.loads(line)["type"] == "task.stacks"


def test_of_several_containers_those_with_stacks_are_shown_and_no_stacks_are_a_sentence(
    file: Path, cli: Cli
) -> None:
    with pytest.raises(TaskProfilerError, match=r"TASK_PROFILER_STACKS=on.*run --stacks"):
        cli("show", "158d", "--from", str(file), "--stacks")
    batch = waiting(containers=(OtherContainer(name="side"), OtherContainer(name="task-monitor")))
    side = waiting(container=Container(name="side"), containers=(OtherContainer(name="batch"),))
    file.write_bytes(
        b"\n".join((msgspec.json.encode(waiting_stacks()), encode(side), encode(batch)))
    )
    assert cli("show", "7b3f", "--from", str(file), "--stacks").out.count("412 stacks") == 1
    with pytest.raises(
        TaskProfilerError,
        match=r"no call stacks of nightly-etl .*--from logs:/ecs/nightly-etl --region us-west-2",
    ):
        cli("show", f"{waiting().record.task_id}/side", "--from", str(file), "--stacks")
    file.write_bytes(encode(waiting(task_arn=None, log_group=None)))
    with pytest.raises(
        TaskProfilerError,
        match=r"no call stacks of .*: the local history keeps those of the newest",
    ):
        cli("show", "--from", str(file), "--stacks")


@given(
    st.lists(
        st.dictionaries(
            st.text(max_size=30) | st.sampled_from([";", " [waiting]", "a;a;b"]), st.integers()
        )
    ),
    st.integers(60, 120),
)
def test_any_stacks_have_a_page(steps: list[dict[str, int]], width: int) -> None:
    assert shown(made(*steps), width)
    root = function_tree(made(*steps))
    assert root.count == sum(count for step in steps for count in step.values() if count > 0)
