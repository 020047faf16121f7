"""The commands of the documentation run in the demo account, and what the pages do with their
output by jq and SQLite.
"""

import re
import runpy
import shlex
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from profiler.record.record_model import encode
from profiler.runs.history.run_database import HistoryStore
from tests.command_line import run_here
from tests.demo_account import DemoAccount, demo_account
from tests.documentation import ROOT, blocks, commands_of, is_shortened, pages, scripts
from tests.fakes import FakeClock
from tests.prerequisites import skip_or_fail
from tests.runs import report
from tests.tutorial import CLUSTER, register_families
from tests.tutorial import PAGE as TUTORIAL
from tools.moto_server import fake_aws

# What cannot run here, by the beginning of its words, and why.
NOT_RUN = {
    "run": "profiles a program: tests/integration",
    "setup image": "builds an image with Docker: tests/contract/test_setup_image.py",
    "setup stack": "deploys a stack: tests/contract/test_setup_stack.py",
    "setup proof": "starts tasks: tests/contract/test_setup_proof.py",
    "setup batch-instances": "needs the image in ECR: tests/contract/test_setup_batch_instances.py",
    "kibana import": "needs Kibana: tests/integration/test_kibana_import.py",
    "replay": "needs the forwarder: tests/contract/test_replay_command.py",
    "taskdef add-monitor --family nightly-training": "has a family of GPUs",
    "taskdef add-monitor nightly-etl.json": "has a file of the reader's",
    "taskdef add-monitor template.yaml": "has a file of the reader's",
    "taskdef add-monitor job.json --image": "has a job on Fargate with ecsProperties",
    "taskdef add-monitor": "registers images that ECR lacks: tests/contract/test_taskdef_rollout.py",
    "doctor nightly-etl.json": "has a file of the reader's",
    "doctor JOB-ID": "has a job of the reader's",
    "show nightly-training": "has a family of GPUs",
    "show nightly-etl --logs": "has an example run without a log stream",
    "show 9c41d07b": "has the ids of the page's example",
    "report --run": "has the id of the page's example",
    "history --label batch.queue=nightly": "has a label of jobs that ended",
    "history --from docs/images/show.jsonl": "has an example of this repository",
    "recommend words": "has a run of a local program",
    "recommend base": "has a run of a local program",
    "recommend --from insights:AWSBatch-*": "has a cluster of AWS Batch",
    "recommend --from jobs.jsonl": "has a file of the reader's",
    "recommend nightly-etl --sizes --from reports.jsonl": "is in tests/unit/docs/test_docs.py",
    "compare nightly-etl@25": "has revisions of the page's example",
    "compare base new": "has runs of a local program",
}
EXIT_CODES = {"doctor": {0, 1}, "recommend": {0, 3}}
JQ_PIPES = re.compile(r"task-profiler ([^|\n]*)\|\s*jq ((?:-r )?'[^']*')")


@pytest.fixture(scope="module")
def account(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DemoAccount]:
    with demo_account(tmp_path_factory.mktemp("demo")) as made:
        yield made


def reason_not_run(words: list[str]) -> str:
    """The beginning of the list above that the words have, or nothing. A plan runs."""
    if words[:2] == ["taskdef", "add-monitor"] and words[2:] == [
        "--cluster",
        "jobs",
        "--scheduled",
    ]:
        return ""
    if words[:2] == ["taskdef", "add-monitor"] and "--wrap" in words:
        return ""
    text = " ".join(words)
    return max((one for one in NOT_RUN if f"{text} ".startswith(f"{one} ")), key=len, default="")


def in_the_account(words: list[str]) -> list[str]:
    """Without a browser, and with the runs of the account in place of a search cluster's."""
    text = shlex.join(word for word in words if word != "--open")
    return shlex.split(re.sub(r" --from (?:https:|logs:)\S+", "", text))


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(
            page, marks=() if page.name == "tutorial.md" else pytest.mark.slow, id=str(page)
        )
        for page in pages()
    ],
)
def test_every_command_of_the_documentation_runs(
    account: DemoAccount, page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for words in commands_of("task-profiler", page, tmp_path):
        if reason_not_run(words):
            continue
        done = account.command(*in_the_account(words))
        said = (shlex.join(words), done.stderr)
        assert done.returncode in EXIT_CODES.get(words[0], {0}), said
        assert "Traceback" not in done.stderr, said


def test_each_reason_is_for_a_command_of_the_documentation() -> None:
    found = {
        reason_not_run(words) for page in pages() for words in commands_of("task-profiler", page)
    }
    assert found == {"", *NOT_RUN}


def test_the_first_look_at_an_account_is_the_one_of_the_tutorial() -> None:
    (shown,) = [block.text for block in blocks(TUTORIAL, "text") if "1 image" in block.text]
    with fake_aws() as aws:
        register_families(aws, 1)
        done = run_here(aws.environment(), "setup", "--cluster", CLUSTER)
    assert is_shortened(shown, done.stdout)


def jq(filter_words: str, text: str) -> str:
    if shutil.which("jq") is None:
        skip_or_fail("jq is not installed.")
    done = subprocess.run(
        ["jq", *shlex.split(filter_words)], input=text, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, (filter_words, done.stderr)
    return done.stdout


def test_jq_reads_what_the_commands_print(account: DemoAccount) -> None:
    answers = {}
    for script in scripts(Path("docs/agents.md")):
        for words, filter_words in JQ_PIPES.findall(script):
            done = account.command(*shlex.split(words))
            answers[words.split()[0]] = jq(filter_words, done.stdout)
    assert answers.keys() == {"history", "recommend", "doctor"}
    assert answers["history"].split() == [
        *("nightly-etl", "9f70bacb30634e8fb82f83239391318f"),
        *("137", "true"),
    ]
    assert '"level": "problem"' in answers["doctor"]


def test_jq_reads_the_sizes_of_the_page() -> None:
    page = Path("docs/from-advice-to-effect.md")
    (sizes,) = (one.text for one in blocks(page, "json") if '"nightly-etl"' in one.text)
    filters = re.findall(r"jq ((?:-r )?'[^']*') sizes.json", (ROOT / page).read_text())
    parameters, patches = (jq(words, sizes) for words in filters)
    assert parameters == "Cpu=512 Memory=2048\n"
    assert patches.count('"op": "replace"') == 2
    assert [jq(words, "{}") for words in filters] == ["", "[]\n"]


def test_the_query_of_the_history_names_the_peak_of_each_family(tmp_path: Path) -> None:
    file = tmp_path / "history.sqlite3"
    made = report(1, family="nightly-etl", peak_mb=821)
    HistoryStore(file, FakeClock()).add_run(encode(made), made, b"[]", max_runs=10)
    ((place, query),) = commands_of("sqlite3", Path("docs/past-runs.md"), tmp_path)
    assert place.endswith(".local/share/task-profiler/history.sqlite3")
    with closing(sqlite3.connect(file)) as history:
        found = history.execute(query).fetchall()
    assert found == [("nightly-etl", 821)]


@pytest.mark.slow
def test_the_demo_ends_with_a_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """With a tenth of its rows, which take 40 s of a CPU."""
    for name in ("demo.py", "nightly_etl.py"):
        text = (ROOT / "examples" / name).read_text()
        tenth = re.sub(
            r"(?m)^(_\w*ROWS) = ([\d_]+)$", lambda one: f"{one[1]} = {int(one[2]) // 10}", text
        )
        assert tenth != text
        (tmp_path / name).write_text(tenth)
    page = tmp_path / "page.html"
    command = str(Path(sys.executable).with_name("task-profiler"))
    demo = tmp_path / "demo.py"
    monkeypatch.setattr(sys, "argv", [str(demo), command, str(page)])
    monkeypatch.setenv("TASK_PROFILER_HISTORY", "replaced by the demo")
    with pytest.raises(SystemExit, match="0"):
        runpy.run_path(str(demo), run_name="__main__")
    output = capfd.readouterr().out
    assert f"Open {page} in a browser" in output
    assert page.read_text().startswith("<!DOCTYPE html>")
    runs = subprocess.run([command, "history", "--json"], check=True, capture_output=True).stdout
    assert runs.count(b"nightly-etl") >= 5, "three by hand, and a job's two attempts"
