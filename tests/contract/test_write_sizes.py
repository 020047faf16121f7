"""``taskdef resize --write-sizes``: the sizes that would be registered, as data that definitions in
code read.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

import profiler
from tests.aws_proxy import AwsProxy
from tests.command_line import run_here
from tests.resize_account import BATCH, KILLED, LOG_GROUP, MONITOR, NEW, STACK_TAG, Account
from tools.moto_server import OwnedResource, fake_aws

ROOT = Path(profiler.__file__).parent.parent
UNLIMITED = {name: value for name, value in BATCH.items() if name != "memory"}
SMALL = {"cpu": 256, "memory": 512, "why": "Saves 75 %."}


@pytest.fixture
def account(tmp_path: Path) -> Iterator[Account]:
    """An account with a family that each test must see written."""
    with fake_aws() as aws:
        made = Account(aws, tmp_path)
        oversized(made, "control")
        yield made


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "sizes.json"


def oversized(account: Account, *names: str, **more: Any) -> None:
    """Families that need a quarter of their size, and whose containers have no limit."""
    for name in names:
        account.family(name, containerDefinitions=[UNLIMITED, MONITOR], **more)
        account.runs(name, 25)


def written(account: Account, file: Path, *words: str) -> Any:
    """What the file has after a successful call, which registers nothing."""
    families = account.ecs.list_task_definitions()["taskDefinitionArns"]
    done = account.resize("--write-sizes", str(file), *words)
    assert done.returncode == 0, done.stderr
    assert account.ecs.list_task_definitions()["taskDefinitionArns"] == families
    return json.loads(file.read_text())


def deploy(account: Account, file: Path, *names: str) -> None:
    """Register the sizes of the file, as a pipeline does."""
    sizes = json.loads(file.read_text())
    for name in names:
        size = (sizes[name]["cpu"] / 1024, sizes[name]["memory"])
        account.family(name, size, containerDefinitions=[UNLIMITED, MONITOR])


def test_the_file_has_what_would_be_registered_in_the_order_of_names(
    account: Account, file: Path
) -> None:
    oversized(account, "nightly", "a-first")
    account.family("fits")
    account.runs("fits", 25, peak_mb=1500, p95=0.9)
    sizes = written(account, file)
    assert list(sizes) == ["a-first", "control", "nightly"]
    assert sizes["control"] == SMALL
    assert file.read_text().startswith('{\n  "a-first": {\n    "cpu": 256,\n')
    assert file.read_text().endswith("}\n")


def test_a_second_call_changes_nothing_before_and_after_the_deployment(
    account: Account, file: Path
) -> None:
    written(account, file)
    before = file.read_text(), file.stat().st_mtime_ns
    again = account.resize("--write-sizes", str(file), "--json")
    assert again.returncode == 0, again.stderr
    assert f"control: {file} has this size, which is not deployed yet." in again.stderr
    assert json.loads(again.stdout.splitlines()[-1])["changes"] == 0
    deploy(account, file, "control")
    account.runs("control", 1, revision=2, size=NEW)
    written(account, file)
    assert (file.read_text(), file.stat().st_mtime_ns) == before, "its definition still needs it"


def test_only_the_families_that_change_are_written_and_unknown_members_are_kept(
    account: Account, file: Path
) -> None:
    account.family("fits")
    account.runs("fits", 25, peak_mb=1500, p95=0.9)
    others = {
        "control": {"cpu": 1024, "memory": 2048, "why": "Set by hand.", "owner": "team"},
        "fits": {"cpu": 1024, "memory": 2048, "owner": {"team": None}},
        "gone": {"cpu": 512, "memory": 4096, "ephemeral": 21},
    }
    file.write_text(json.dumps(others))
    assert written(account, file) == {**others, "control": {**SMALL, "owner": "team"}}


def test_a_size_that_somebody_has_set_and_not_deployed_is_kept(
    account: Account, file: Path
) -> None:
    oversized(account, "nightly")
    larger = {"cpu": 2048, "memory": 8192}
    file.write_text(json.dumps({"nightly": larger}))
    assert written(account, file) == {"nightly": larger, "control": SMALL}
    said = account.resize("--write-sizes", str(file)).stderr
    assert f"nightly: {file} has 2 vCPU, 8 GB, and nightly:1 another size: deploy it" in said


@pytest.mark.parametrize(
    "content",
    [
        '{"name": "jobs", "version": "1.0.0"}',
        '{"compilerOptions": {"strict": true}}',
        '[{"cpu": 256, "memory": 512}]',
        '{"control": {"cpu": "256", "memory": 512}}',
        '{"control": {"cpu": true, "memory": 512}}',
        '{"control": {"cpu": 256}}',
        '{"family": "control", "cpu": "1024", "containerDefinitions": [{"name": "batch"}]}',
        "sizes: yes",
        "",
        "[" * 100_000,
    ],
)
def test_a_file_that_is_something_else_is_left_alone(
    account: Account, file: Path, content: str
) -> None:
    file.write_text(content)
    done = account.resize("--write-sizes", str(file))
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert file.read_text() == content


def test_a_file_that_cannot_be_written_is_named_before_anything_is_read(
    account: Account, tmp_path: Path
) -> None:
    done = account.resize("--write-sizes", str(tmp_path / "none" / "sizes.json"))
    assert done.returncode == 1
    assert "its folder does not exist" in done.stderr
    assert done.stdout == ""
    for place, reason in ((str(tmp_path), "cannot be read (Is a"), ("/dev/zero", "has more than")):
        done = account.resize("--write-sizes", place)
        assert done.returncode == 1
        assert f"{place} {reason}" in done.stderr
        assert done.stderr.endswith(": name the file of sizes, which may be new.\n")


@pytest.mark.parametrize("option", ["--write-sizes", "--apply"])
def test_a_file_that_is_changed_is_no_standard_output(account: Account, option: str) -> None:
    done = account.resize(option, "-")
    assert done.returncode == 2
    assert (
        done.stderr == f"task-profiler: {option} reads its FILE and writes it again: name a file.\n"
    )


def test_a_link_and_the_permissions_stay(account: Account, file: Path, tmp_path: Path) -> None:
    real = tmp_path / "real.json"
    real.write_text("{}")
    real.chmod(0o640)
    file.symlink_to(real)
    assert written(account, file) == {"control": SMALL}
    assert file.is_symlink()
    assert real.stat().st_mode & 0o777 == 0o640


def test_the_owner_of_a_definition_is_who_reads_the_file(account: Account, file: Path) -> None:
    """A stack that owns it, and a pipeline that registers its old size again, are its source."""
    definition = "AWS::ECS::TaskDefinition"
    oversized(account, "stacks")
    oversized(account, "tagged", tags=[STACK_TAG])
    arn = account.described("stacks")[0]["taskDefinitionArn"]
    account.aws.own(
        OwnedResource(stack_name="jobs", physical_resource_id=arn, resource_type=definition)
    )
    oversized(account, "piped")
    assert account.resize("piped", "--register").returncode == 0
    account.family("piped", containerDefinitions=[UNLIMITED, MONITOR])
    account.runs("piped", 5, revision=3)
    account.runs("control", 1)
    rows, _ = account.rows()
    assert [rows[name]["action"] for name in ("stacks", "tagged", "piped")] == ["none"] * 3
    assert set(written(account, file)) == {"control", "piped", "stacks", "tagged"}


def test_who_says_that_a_family_stays_is_heard(account: Account, file: Path) -> None:
    oversized(account, "off", tags=[{"key": "task-profiler:resize", "value": "off"}])
    oversized(account, "windows", runtimePlatform={"operatingSystemFamily": "WINDOWS_SERVER_2022"})
    oversized(account, "api", "overridden")
    account.ecs.create_service(
        cluster="jobs", serviceName="api", taskDefinition="api", desiredCount=0
    )
    account.schedule("night", "overridden", {"memory": "16384"})
    assert written(account, file) == {"control": SMALL}


def test_what_ecs_would_refuse_beside_the_size_is_in_the_file(account: Account, file: Path) -> None:
    account.family("limited")
    account.runs("limited", 25)
    assert written(account, file)["limited"] == {
        "cpu": 256,
        "memory": 512,
        "containers": {"batch": {"memory": 480}},
        "why": "Saves 75 %. The memory of 'batch' is lowered from 1900 to 480 MiB, because ECS "
        "refuses more.",
    }


def test_a_family_that_is_killed_gets_more_and_keeps_its_containers_sizes(
    account: Account, file: Path
) -> None:
    limits = {"batch": {"memory": 512}}
    file.write_text(json.dumps({"control": {"cpu": 256, "memory": 512, "containers": limits}}))
    account.family("control", NEW, containerDefinitions=[UNLIMITED, MONITOR])
    account.runs("control", 2, revision=2, size=NEW, **KILLED)
    control = written(account, file)["control"]
    assert control["memory"] > 512
    assert control["why"].startswith("2 runs ran out of memory.")
    assert control["containers"] == limits


def test_a_verdict_by_the_tag_puts_the_old_size_into_the_file(account: Account, file: Path) -> None:
    account.resized()
    account.runs("nightly", 1, revision=2, size=NEW, **KILLED)
    sizes = written(account, file)["nightly"]
    assert (sizes["cpu"], sizes["memory"]) == (1024, 2048)
    assert sizes["containers"] == {"batch": {"memory": 1900}}


def test_without_ecs_word_log_groups_write_nothing(account: Account, file: Path) -> None:
    account.put_reports(LOG_GROUP)
    account.aws.client("cloudformation").delete_stack(StackName="task-profiler")
    words = ("taskdef", "resize", "--from", "logs:*", "--write-sizes", str(file))
    refused = account.command(*words)
    assert refused.returncode == 1
    assert "Nothing is changed by log groups alone. There is no stack" in refused.stderr
    assert not file.exists()
    done = account.command(*words, "--believe-logs")
    assert done.returncode == 0, done.stderr
    assert json.loads(file.read_text()) == {"control": SMALL}


def test_schedules_that_cannot_be_read_may_override_the_size(account: Account, file: Path) -> None:
    with AwsProxy(account.aws.url) as proxy:
        account.url = proxy.url
        proxy.refused = {"ListRules"}
        done = account.resize("--write-sizes", str(file))
    assert done.returncode == 1
    assert "events:ListRules" in done.stderr
    assert not file.exists()


@pytest.mark.parametrize(
    "words",
    ["--register", "--apply a.json", "control --revert", "--update-schedules", "--first 1"],
)
def test_another_act_beside_it_is_a_mistake(account: Account, file: Path, words: str) -> None:
    done = account.resize("--write-sizes", str(file), *words.split())
    assert done.returncode == 2, done.stderr
    assert done.stderr.count("\n") == 1
    assert not file.exists()


def test_container_insights_writes_nothing(account: Account, file: Path) -> None:
    words = ("taskdef", "resize", "--from", "insights:jobs", "--write-sizes", str(file))
    refused = run_here(account.aws.environment(), *words)
    assert refused.returncode == 2
    assert "--write-sizes needs runs with peaks and ends" in refused.stderr


def test_the_pull_requests_job_writes_the_file_with_the_rights_that_read(
    account: Account, file: Path
) -> None:
    account.put_reports(LOG_GROUP)
    path = ROOT / "examples" / "resize_pull_request.yml"
    job = YAML(typ="safe").load(path)["jobs"]["resize"]
    (step,) = (step for step in job["steps"] if step.get("name") == "Write the sizes")
    words = step["run"].splitlines()[0].split()[2:]
    assert words[-4:] == ["--write-sizes", "sizes.json", "--format", "github"]
    words[-3] = str(file)
    with AwsProxy(account.aws.url) as proxy:
        environment = account.aws.environment() | {"AWS_ENDPOINT_URL": proxy.url} | job["env"]
        done = run_here(environment, *words)
        assert done.returncode == 0, done.stderr
        reads = ("Describe", "List", "Get", "Filter")
        made = {name for name in proxy.operations if "/schedules" not in name}
        assert not {name for name in made if not name.startswith(reads)}
    assert json.loads(file.read_text()) == {"control": SMALL}
