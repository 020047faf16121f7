"""tools/deploy.py with the real AWS CLI against moto's server: uploaded and deployed."""

import os
import subprocess
import sys
import warnings
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests

from tests.aws import FakeAws, fake_aws
from tests.stack import LOG_GROUPS
from tools.deploy import DeployError, main, parameters

ROOT = Path(__file__).parents[2]
PARAMETERS = f"ElasticsearchUrl=https://search:9200 LogGroups={','.join(LOG_GROUPS)} 'NotifyFamilies=a b,c'"


@pytest.fixture
def aws() -> Iterator[FakeAws]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # moto's server says what its CloudFormation leaves out, see tests/stack.py
        with fake_aws() as played:
            requests.post(f"{played.url}/moto-api/reset", timeout=10)  # what other tests of this process left in moto
            yield played


@pytest.fixture
def zip_file(tmp_path: Path) -> Path:
    path = tmp_path / "forwarder.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("handler.py", "")
    return path


def deployed(aws: FakeAws, aws_cli: Path, zip_file: Path, **settings: str) -> subprocess.CompletedProcess[str]:
    path = f"{aws_cli}{os.pathsep}{os.environ['PATH']}"
    # moto reads a template's URL as that of its own S3 only with this host, and with the bucket in the path.
    environment = {name: value.replace("127.0.0.1", "localhost") for name, value in aws.environment().items()}
    config = zip_file.parent / "aws-config"
    config.write_text("[default]\ns3 =\n  addressing_style = path\n")
    environment |= {"AWS_CONFIG_FILE": str(config), "PATH": path, "HOME": str(zip_file.parent), "BUCKET": "code"}
    environment |= settings
    command = [sys.executable, str(ROOT / "tools" / "deploy.py"), str(zip_file)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def stack_parameters(aws: FakeAws, name: str) -> dict[str, str]:
    (stack,) = aws.client("cloudformation").describe_stacks(StackName=name)["Stacks"]
    return {one["ParameterKey"]: one["ParameterValue"] for one in stack["Parameters"]}


def test_it_is_uploaded_and_deployed(aws: FakeAws, aws_cli: Path, zip_file: Path) -> None:
    aws.client("s3").create_bucket(Bucket="code")
    for group in LOG_GROUPS:
        aws.create_log_group(group)
    first = deployed(aws, aws_cli, zip_file, PARAMETERS=PARAMETERS, STACK="runs")
    assert first.returncode == 0, first.stderr
    # moto gives no outputs to a stack that a change set made, so the functions are looked for themselves.
    functions = aws.client("lambda").list_functions()["Functions"]
    assert {one["FunctionName"] for one in functions} == {"runs-forward-logs", "runs-task-stopped"}
    before = stack_parameters(aws, "runs")
    assert before["NotifyFamilies"] == "a b,c"
    assert aws.client("s3").head_object(Bucket="code", Key=before["CodeKey"])

    # The code's key changes with the code, and only then. (Another stack, as moto cannot update log groups.)
    with zipfile.ZipFile(zip_file, "a") as archive:
        archive.writestr("more.py", "")
    assert deployed(aws, aws_cli, zip_file, STACK="changed").returncode == 0
    assert deployed(aws, aws_cli, zip_file, STACK="unchanged").returncode == 0
    keys = [stack_parameters(aws, name)["CodeKey"] for name in ("runs", "changed", "unchanged")]
    assert keys[0] != keys[1] == keys[2]


def test_a_bucket_that_is_not_there_is_said(aws: FakeAws, aws_cli: Path, zip_file: Path) -> None:
    done = deployed(aws, aws_cli, zip_file)
    assert done.returncode == 1
    assert done.stderr.startswith("The bucket code cannot be reached: create it with aws s3 mb s3://code")
    assert done.stderr.count("\n") == 1


def test_what_the_cli_cannot_do_is_its_to_say(aws: FakeAws, aws_cli: Path, zip_file: Path) -> None:
    aws.client("s3").create_bucket(Bucket="code")
    nobody = {"AWS_ENDPOINT_URL_CLOUDFORMATION": "http://127.0.0.1:9", "AWS_MAX_ATTEMPTS": "1"}
    done = deployed(aws, aws_cli, zip_file, **nobody)
    assert done.returncode == 1
    assert "http://127.0.0.1:9" in done.stderr
    assert done.stderr.strip().endswith("aws cloudformation deploy failed: see its message above.")
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("environment", "said"),
    [
        ({}, "No bucket for the code: make deploy BUCKET=NAME"),
        ({"BUCKET": "code", "PARAMETERS": "LogGroups"}, "'LogGroups', which is not Key=Value"),
        ({"BUCKET": "code", "PARAMETERS": "=x"}, "'=x', which is not Key=Value"),
        ({"BUCKET": "code", "PARAMETERS": "A='x"}, "close the quotes"),
        ({"BUCKET": "code", "PATH": "/nowhere"}, "The AWS CLI is missing"),
    ],
)
def test_what_is_missing_is_said_before_anything_is_done(
    zip_file: Path, environment: dict[str, str], said: str
) -> None:
    with pytest.raises(DeployError, match=said) as error:
        main([str(zip_file)], environment)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("tool", ["deploy.py", "lambda_zip.py"])
def test_deploying_needs_only_the_standard_library_and_pip(tool: str) -> None:
    load = "import runpy, sys; runpy.run_path(sys.argv[1])"
    command = [sys.executable, "-I", "-S", "-c", load, str(ROOT / "tools" / tool)]  # without site-packages
    assert subprocess.run(command, capture_output=True, check=False).stderr == b""


def test_make_deploy_installs_nothing(tmp_path: Path) -> None:
    command = ["make", "--dry-run", "deploy", "BUCKET=code", f"VENV={tmp_path}/empty"]
    shown = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert "tools/deploy.py" in shown
    assert "-m venv" in shown
    assert "pip install" not in shown


def test_a_zip_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(DeployError, match="leave it out, and the zip is built"):
        main([str(tmp_path / "missing.zip")], {"BUCKET": "code"})


def test_parameters_are_read_as_a_shell_would() -> None:
    assert parameters("A=1,2\n  B='x y' C=") == ["A=1,2", "B=x y", "C="]
