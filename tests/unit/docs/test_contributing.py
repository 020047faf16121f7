"""What CONTRIBUTING.md says of the ways that a change takes is true of the code."""

import ast
import re
from pathlib import Path

from msgspec.structs import fields

from profiler.record import metric_catalogue
from profiler.record.metric_catalogue import METRICS, Metric
from profiler.record.record_model import Metrics
from profiler.record.record_paths import RunView
from tests.documentation import ROOT, blocks
from tests.full_record import FULL

PAGE = Path("CONTRIBUTING.md")
TEXT = (ROOT / PAGE).read_text()
VALUES = {field.name for field in fields(Metrics)}


def paragraph(title: str) -> str:
    """What follows a bold title, up to the next one."""
    return TEXT.partition(f"**{title}")[2].partition("\n**")[0]


def named_values(path: Path) -> set[str]:
    """The values of the record that the code of a module names, also as texts."""
    named: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call):
            named |= {keyword.arg or "" for keyword in node.keywords}
        elif isinstance(node, ast.Constant):
            named.add(str(node.value))
        elif isinstance(node, ast.Attribute):
            named.add(node.attr)
    return named & VALUES


def test_the_way_of_a_metric_has_every_module_that_sets_one() -> None:
    way = re.findall(r"^\d\. `([\w/]+\.py)`", paragraph("A metric:"), re.MULTILINE)
    assert len(way) == 6
    for module in way:
        assert (ROOT / module).is_file()
    in_aggregation = [ROOT / module for module in way if "/aggregation/" in module]
    assert set[str]().union(*map(named_values, in_aggregation)) == VALUES


def calls_with(path: Path, function: str, keyword: str = "") -> bool:
    """Whether a module calls a function, with this keyword if one is given."""
    text = path.read_text()
    if f"{function}(" not in text:
        return False
    calls = (node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call))
    made = [call for call in calls if ast.unparse(call.func) == function]
    return any(not keyword or keyword in [one.arg for one in call.keywords] for call in made)


def sets_samples(path: Path) -> bool:
    """Whether a module makes whole samples: those with the number of processes."""
    return calls_with(path, "ContainerSample", "pids")


def test_the_way_of_a_metric_begins_at_every_reader() -> None:
    (first,) = re.findall(r"^1\. (.*?)\n2\. ", paragraph("A metric:"), re.MULTILINE | re.DOTALL)
    _, *readers = re.findall(r"`([\w/]+\.py)`", first)
    modules = [*(ROOT / "profiler").rglob("*.py")]
    assert {str(path.relative_to(ROOT)) for path in modules if sets_samples(path)} == {*readers}


def test_the_way_of_a_metric_has_what_makes_evidence_of_it() -> None:
    step = paragraph("A metric:").partition("\n5. ")[2].partition("\n6. ")[0]
    modules = (ROOT / "profiler").rglob("*.py")
    makers = [path for path in modules if calls_with(path, "RunEvidence", "max_pids")]
    assert makers
    assert [path for path in makers if f"`{path.relative_to(ROOT)}`" not in step] == []


def test_each_value_of_the_record_has_a_test_of_what_sets_it() -> None:
    unit = ROOT / "tests" / "unit"
    tests = [*unit.glob("aggregation/test_*.py"), *unit.glob("collectors/**/test_*.py")]
    assert VALUES - set[str]().union(*map(named_values, tests)) == set()


def test_the_row_of_the_page_makes_a_metric() -> None:
    (block,) = blocks(PAGE, "python")
    row = eval(block.text, vars(metric_catalogue))
    assert isinstance(row, Metric)
    assert row.record_path == "metrics.maxPids"
    assert row.get(RunView(FULL)) == FULL.metrics.max_pids
    assert row.record_path not in {metric.record_path for metric in METRICS}, "it is an example"


def names_channel(path: Path) -> bool:
    """Whether the code of a module knows the channel of the event bus."""
    text, words = path.read_text(), {"EVENT_BUS", "event_bus_name"}
    if not any(word in text for word in words):
        return False
    names = {
        getattr(node, "id", None) or getattr(node, "attr", None)
        for node in ast.walk(ast.parse(text))
    }
    return not names.isdisjoint(words)


def test_the_way_of_a_channel_has_every_module_that_knows_one() -> None:
    way = re.findall(r"^\d\. `([\w/]+\.(?:py|yaml))`", paragraph("A notification"), re.MULTILINE)
    modules = [*(ROOT / "profiler").rglob("*.py"), *(ROOT / "lambda").rglob("*.py")]
    knowing = {str(path.relative_to(ROOT)) for path in modules if names_channel(path)}
    assert {*way} == {*knowing, "lambda/template.yaml"}
    assert "\n  EventBusName:\n" in (ROOT / "lambda" / "template.yaml").read_text()


def test_the_way_of_a_channel_has_every_caller_that_gives_it_clients() -> None:
    modules = [*(ROOT / "profiler").rglob("*.py"), *(ROOT / "lambda").rglob("*.py")]
    callers = [path for path in modules if calls_with(path, "configured_channels")]
    assert len(callers) > 1
    way = paragraph("A notification")
    assert [path for path in callers if f"`{path.relative_to(ROOT)}`" not in way] == []


def test_every_schema_of_a_command_is_on_the_page_for_agents() -> None:
    page = (ROOT / "docs" / "agents.md").read_text()
    files = [path.name for path in (ROOT / "docs" / "json").iterdir()]
    assert len(files) > 10
    assert [name for name in files if f"](json/{name})" not in page] == []


def test_every_file_that_the_page_names_is_there() -> None:
    folders = [ROOT, *(ROOT / name for name in ("profiler", "tests", "profiler/record"))]
    folders.append(ROOT / "profiler" / "aggregation")
    named = set(re.findall(r"`([\w/]+\.(?:py|md|yaml))`", TEXT))
    assert len(named) > 30
    assert [name for name in named if not any((at / name).is_file() for at in folders)] == []


def test_the_protocols_of_a_collector_are_in_the_module_that_the_page_names() -> None:
    (module,) = re.findall(r"Protocols in `([\w/]+\.py)`", paragraph("A collector"))
    bases = [
        ast.unparse(base)
        for node in ast.parse((ROOT / module).read_text()).body
        if isinstance(node, ast.ClassDef)
        for base in node.bases
    ]
    assert set(bases) == {"Protocol"}


def test_the_page_has_every_package_and_no_other() -> None:
    (tree,) = (block.text for block in blocks(PAGE, "") if "profiler/\n" in block.text)
    rows = tree.partition("profiler/\n")[2].partition("\nlambda/")[0]
    listed: set[str] = set()
    for row in rows.splitlines():
        listed |= {name.strip("/ ") for name in row.strip().partition("  ")[0].split(",")}
    packages = {path.parent.name for path in (ROOT / "profiler").glob("*/__init__.py")}
    assert {name.partition("/")[0] for name in listed} - {"schema"} == packages
