"""What the documentation tells people to type is there: commands, options, targets, files, JSON."""

import gzip
import json
import re
import runpy
import shlex
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import click
import pytest

from profiler.aws_account.setup.forwarder_deployment import DeploymentRequest
from profiler.aws_account.setup.template_parameters import (
    parameter_defaults,
    parameter_values,
    parse_parameters,
    why_stack_does_nothing,
)
from profiler.cli.app import group
from profiler.cli.setup.setup_commands import stack
from tests.cloudformation import TEMPLATE, broken_rules
from tests.documentation import ROOT, blocks, commands_of, pages, synopses
from tests.values import present
from tools import left_alone
from tools.commands_page import PAGE, leaf_commands, page_text

PAGES = pytest.mark.parametrize("page", pages(), ids=str)
COMMANDS = dict(leaf_commands(group, ()))
NAMES = {names[0] for names in COMMANDS if names[1:]}
GROUPS = {(name,): present(group.get_command(click.Context(group), name)) for name in NAMES}
OUR_FOLDERS = {path.name for path in ROOT.iterdir() if path.is_dir() and path.name[0] != "."} - {
    "dist",
    "build",
}


def inline_code(page: Path) -> list[str]:
    prose = re.sub(
        r"^ *```.*?^ *```$", "", (ROOT / page).read_text(), flags=re.MULTILINE | re.DOTALL
    )
    return [" ".join(code.split()) for code in re.findall(r"`([^`]+)`", prose)]


def parse(words: list[str]) -> None:
    """Raises click's own errors. A file that is only an example need not be there."""
    command: click.Command = group
    context = click.Context(group, info_name="task-profiler")
    while isinstance(command, click.Group):
        if (
            command.invoke_without_command
            and command is not group
            and (not words or words[0].startswith("-"))
        ):
            break
        name, *words = words or [""]
        child = command.get_command(context, name)
        if child is None:
            raise click.UsageError(f"there is no command {name!r}")
        command = child
        if isinstance(child, click.Group):
            context = click.Context(child, parent=context, info_name=name)
    try:
        command.make_context(command.name, words, parent=context)
    except click.BadParameter as error:
        is_file = (
            isinstance(error.param and error.param.type, click.File)
            or "that follows @" in error.message
        )
        if not is_file:
            raise


def options_of(words: list[str]) -> set[str]:
    """All spellings of the options of the command that the words begin with."""
    for names, command in COMMANDS.items():
        if tuple(words[: len(names)]) == names:
            return {spelling for one in command.params for spelling in one.opts} | {"--help"}
    raise AssertionError(f"no such command: {words}")


@PAGES
def test_every_command_line_of_ours_is_one_that_the_command_takes(page: Path) -> None:
    for words in commands_of("task-profiler", page):
        try:
            parse(words)
        except click.ClickException as error:
            pytest.fail(f"{shlex.join(words)}: {error.format_message()}")


def test_the_command_lines_of_the_demo_are_taken_and_its_batch_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`make slow` runs the demo."""
    done = list[list[str]]()

    def run(words: Iterable[str], **_: object) -> subprocess.CompletedProcess[str]:
        done.append([*words])
        return subprocess.CompletedProcess(done[-1], 0)

    with monkeypatch.context() as patch:
        patch.setattr(subprocess, "run", run)
        patch.setattr(sys, "argv", ["demo.py", "task-profiler", str(tmp_path / "page.html")])
        patch.setenv("TASK_PROFILER_HISTORY", "replaced by the demo")
        with pytest.raises(SystemExit, match="0"):
            runpy.run_path(str(ROOT / "examples" / "demo.py"), run_name="__main__")
    for words in done:
        parse(words[1:])
    assert {words[1] for words in done} == {"run", "report", "history"}
    batch = done[0][done[0].index("--") + 1 :]
    for options, code in (("1000", 0), ("0", 2), ("1000 --target missing", 1)):
        words = [*batch, "--rows", *options.split()]
        assert subprocess.run(words, check=False, cwd=tmp_path).returncode == code
    target = tmp_path / "target"
    target.mkdir()
    subprocess.run([*batch, "--rows", "1000", "--target", str(target)], check=True)
    assert len(gzip.decompress((target / "orders.jsonl.gz").read_bytes()).splitlines()) == 1001


@PAGES
def test_every_setup_stack_deploys_a_stack_that_does_something(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The template's rules accept the values, and reports or notifications arrive somewhere."""
    template, requests = TEMPLATE.read_text(), list[DeploymentRequest]()
    monkeypatch.setattr(
        "profiler.cli.setup.deployment_output.deploy_forwarder",
        lambda request, *_, **__: requests.append(request),
    )
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION"):
        monkeypatch.setenv(name, "us-east-1")
    for words in commands_of("task-profiler", page):
        if words[:2] == ["setup", "stack"] and "--delete" not in words:
            monkeypatch.chdir(tmp_path)
            for file in (word[1:] for word in words if word.startswith("@")):
                (tmp_path / file).write_text("https://hooks.slack.com/services/T/B/x")
            stack.main(words[2:], standalone_mode=False)
    assert requests or page not in (
        Path("README.md"),
        Path("docs/tutorial.md"),
        Path("docs/forwarder.md"),
    )
    for request in requests:
        secrets = dict.fromkeys(request.secrets, "name")
        parameters = parse_parameters(request.parameters, tuple(parameter_defaults(template)))
        given = {**parameters, **request.settings, **secrets}
        engine = (
            {"SearchEngine": "opensearch"} if "OpenSearchArn" in given else {}
        )  # as the domain answers
        values = parameter_values(template, {**given, **engine}, {})
        assert not broken_rules(values)
        assert why_stack_does_nothing(values) == ("", ())


def mentioned(page: Path) -> Iterator[list[str]]:
    """The words of each command of ours in prose and in synopses, up to the command that it
    starts.
    """
    texts = [code for code in inline_code(page) if code.startswith("task-profiler ")]
    texts += [
        line
        for block in synopses(page)
        for line in re.findall(r"\btask-profiler .*(?:\n +.*)*", block)
    ]
    for whole in texts:
        for part in re.split(r"\| *(?=task-profiler )", whole):
            own = re.split(r" --(?: |$)", part)[0]
            yield re.sub(r"[\[\]|…]", " ", own).split()[1:]


@PAGES
def test_commands_of_ours_in_prose_and_synopses_have_only_options_that_there_are(
    page: Path,
) -> None:
    for words in mentioned(page):
        used = {word for word in words if word.startswith("-") and word != "-"}
        if words[0] in {"taskdef", "kibana"} and len(words) == 1:
            continue
        known = (
            {"--version", "--debug", "--help"} if words[0].startswith("-") else options_of(words)
        )
        assert used <= known, words


@pytest.mark.parametrize(("words", "command"), [((), group), *(GROUPS | COMMANDS).items()])
def test_the_help_of_every_command_has_an_example_that_it_takes(
    words: tuple[str, ...], command: click.Command
) -> None:
    """Some are called by a definition and not by a command line."""
    call = ("task-profiler", *words)
    assert command.epilog is not None
    assert re.match(r"Example\b.*: ", command.epilog)
    assert call[-1] in command.epilog
    for example in re.findall(r"task-profiler [^>]*", command.epilog):
        assert example.startswith(" ".join(call))
        parse(shlex.split(example)[1:])


def test_the_page_of_commands_is_that_of_the_commands() -> None:
    assert PAGE.read_text() == page_text(), "run make commands"


def test_the_page_lists_what_resize_leaves_alone_by_its_rules() -> None:
    page = left_alone.PAGE.read_text()
    assert page == left_alone.page_with_list(page), "run make commands"
    assert "- with the tag" in page


def targets() -> set[str]:
    return set(re.findall(r"^([a-z][a-z0-9-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE))


@PAGES
def test_every_target_of_make_is_there(page: Path) -> None:
    lines = [*commands_of("make", page)]
    lines += [code.split()[1:] for code in inline_code(page) if re.match(r"make [a-z]", code)]
    named = {word for words in lines for word in words if re.fullmatch(r"[a-z][a-z0-9-]*", word)}
    assert named <= targets()


def test_the_tests_that_contributors_run_alone_are_there() -> None:
    calls = commands_of("pytest", Path("CONTRIBUTING.md"))
    assert len(calls) == 2
    for place, *options in calls:
        assert (ROOT / place).exists()
        names = options[1::2]
        assert all(
            any(f"def {name}" in file.read_text() for file in (ROOT / place).rglob("*.py"))
            for name in names
        )


@PAGES
def test_every_file_of_ours_is_there(page: Path) -> None:
    for code in inline_code(page):
        name = code.partition(" ")[0].rstrip("/")
        if (
            "/" in name
            and name.partition("/")[0] in OUR_FOLDERS
            and re.fullmatch(r"[\w./*-]+", name)
        ):
            assert [*ROOT.glob(name)], name


@PAGES
def test_every_block_of_json_is_json(page: Path) -> None:
    """As a whole, or as members of an object."""
    for block in blocks(page, "json"):
        if "…" not in block.text:
            try:
                json.loads(block.text)
            except json.JSONDecodeError:
                json.loads("{" + block.text + "}")


def anchors(page: Path) -> Iterator[str]:
    for heading in re.findall(r"^#+ (.*)$", (ROOT / page).read_text(), re.MULTILINE):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "")
        yield re.sub(r"[^\w\- ]", "", plain.lower()).replace(" ", "-")


@PAGES
def test_links_lead_to_files_and_headings_that_there_are(page: Path) -> None:
    for target, anchor in re.findall(r"\]\(([^)#]*)(?:#([^)]*))?\)", (ROOT / page).read_text()):
        if "://" not in target:
            file = (ROOT / page.parent / target).resolve() if target else ROOT / page
            assert file.exists(), target
            assert not anchor or anchor in set(anchors(file.relative_to(ROOT))), (
                f"{target}#{anchor}"
            )


def test_every_page_is_in_the_index() -> None:
    index = (ROOT / "docs" / "README.md").read_text()
    ours = [page for page in pages() if page.parts[0] == "docs" and page.name != "README.md"]
    assert [page for page in ours if str(page.relative_to("docs")) not in index] == []
