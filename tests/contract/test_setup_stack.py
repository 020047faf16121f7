"""``task-profiler setup stack`` against moto's server: planned, created, deleted."""

import json
import re
import warnings
import zipfile
from collections.abc import Iterator
from pathlib import Path
from subprocess import CompletedProcess

import pytest

import profiler
from profiler.account_setup.stack_bucket import CodeBucket
from tests.aws import FakeAws, fake_aws
from tests.command_line import run_here

ACCOUNT = "123456789012"
BUCKET = f"task-profiler-{ACCOUNT}-us-east-1"
WEBHOOK = "https://hooks.slack.com/services/T/B/hunter2"


class Account:
    """An account on moto, and the command."""

    def __init__(self, aws: FakeAws, folder: Path) -> None:
        self.aws = aws
        # moto reads a template's URL as that of its own S3 only with this host, and with the bucket in the path.
        self._environment = {name: value.replace("127.0.0.1", "localhost") for name, value in aws.environment().items()}
        config = folder / "aws-config"
        config.write_text("[default]\ns3 =\n  addressing_style = path\n")
        self._environment |= {"AWS_CONFIG_FILE": str(config), "HOME": str(folder), "PATH": "/usr/bin:/bin"}
        self.zip = folder / "forwarder.zip"
        with zipfile.ZipFile(self.zip, "w") as archive:
            archive.writestr("handler.py", "")

    def setup(self, *words: str) -> CompletedProcess[str]:
        done = run_here(self._environment, "setup", "stack", "--zip", str(self.zip), *words)
        assert "hunter2" not in done.stdout + done.stderr
        assert "Traceback" not in done.stderr
        return done

    def parameters(self, name: str = "task-profiler") -> dict[str, str]:
        (stack,) = self.aws.client("cloudformation").describe_stacks(StackName=name)["Stacks"]
        return {one["ParameterKey"]: one["ParameterValue"] for one in stack["Parameters"]}

    def secret(self, name: str) -> dict[str, str]:
        found: dict[str, str] = json.loads(
            self.aws.client("secretsmanager").get_secret_value(SecretId=name)["SecretString"]
        )
        return found


@pytest.fixture
def account(tmp_path: Path) -> Iterator[Account]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # moto's server says what its CloudFormation leaves out, see tests/stack.py
        with fake_aws() as aws:
            yield Account(aws, tmp_path)


def test_it_is_planned_created_and_deleted(account: Account) -> None:
    planned = account.setup("--slack-failure-webhook", WEBHOOK, "--dry-run")
    assert planned.returncode == 0, planned.stderr
    assert f"would create the bucket {BUCKET}" in planned.stdout
    assert "would create the stack task-profiler (now absent)" in planned.stdout
    assert account.aws.client("s3").list_buckets()["Buckets"] == []

    created = account.setup("--slack-failure-webhook", WEBHOOK, "--parameter", "NotifyFamilies=a b,c")
    assert created.returncode == 0, created.stderr
    lines = created.stdout.splitlines()
    assert lines[0] == f"created the bucket {BUCKET}"
    assert any(re.match(r"Add +TaskStoppedFunction +AWS::Lambda::Function", line) for line in lines)
    assert lines[-1] == f"The stack task-profiler is deployed: version {profiler.__version__}."
    functions = account.aws.client("lambda").list_functions()["Functions"]
    assert "task-profiler-task-stopped" in {one["FunctionName"] for one in functions}
    first = account.parameters()
    assert first["NotifyFamilies"] == "a b,c"
    assert first["SlackSecretId"] == "task-profiler/slack"
    assert WEBHOOK not in first.values()
    assert account.secret("task-profiler/slack") == {"slack_failure_webhook_url": WEBHOOK}

    # moto neither notices that nothing changes nor updates log groups: test_stack_changes.py has updates.
    planned = account.setup("--dry-run", "--slack-success-webhook", f"{WEBHOOK}-2")
    assert f"would update the stack task-profiler (now version {profiler.__version__})" in planned.stdout
    assert planned.stdout.count(" is there already\n") == 2
    assert re.search(r"^  \d\d other parameters keep their values$", planned.stdout, re.MULTILINE)
    assert account.parameters() == first

    deleted = account.setup("--delete")
    assert deleted.returncode == 0, deleted.stderr
    stays = deleted.stdout[deleted.stdout.index("The stack task-profiler is deleted. These stay:") :]
    assert f"aws s3 rm --recursive s3://{BUCKET}/task-profiler/" in stays
    assert "aws secretsmanager delete-secret --secret-id task-profiler/slack" in stays
    nothing = account.setup("--delete")
    assert (nothing.returncode, nothing.stdout) == (0, "There is no stack task-profiler: nothing to delete.\n")


def test_the_bucket_is_private_and_encrypted(account: Account) -> None:
    bucket = CodeBucket(BUCKET, ACCOUNT, account.aws.client)
    assert not bucket.exists()
    bucket.create()
    assert bucket.exists()
    s3 = account.aws.client("s3")
    assert all(s3.get_public_access_block(Bucket=BUCKET)["PublicAccessBlockConfiguration"].values())
    (rule,) = s3.get_bucket_encryption(Bucket=BUCKET)["ServerSideEncryptionConfiguration"]["Rules"]
    assert rule["ApplyServerSideEncryptionByDefault"]["SSEAlgorithm"] == "AES256"
    assert not bucket.has("code")
    bucket.put("code", b"1")
    assert bucket.has("code")


def test_what_is_wrong_is_said_before_anything_is_made(account: Account) -> None:
    for words, said in (
        (
            ("--parameter", "NotifyFamilie=x"),
            "The template has no parameter 'NotifyFamilie': did you mean NotifyFamilies?",
        ),
        (("--parameter", "hunter2"), "is not NAME=VALUE"),
        (("--parameter", "CodeKey=x"), "the command sets it"),
        (("--slack-failure-webhook", "hunter2"), "it begins with https://"),
        (("--elasticsearch", "https://me:hunter2@search"), "give it as --user NAME:PASSWORD"),
        (("--user", "hunter2"), "put a colon between them"),
        (("--user", "a:hunter2", "--api-key", "hunter2"), "give one of them"),
        (("--slack-failure-webhook", WEBHOOK, "--parameter", "SlackSecretId=mine"), "leave one out"),
        (("--zip", "/nowhere"), "leave it out, and the zip is built"),
        (("--zip", "/etc/passwd"), "is not a zip file"),
    ):
        done = account.setup(*words)
        assert (done.returncode, done.stdout) == (2, ""), words
        assert said in done.stderr, words
        assert done.stderr.count("\n") == 1
    done = account.setup("--bucket", "not-there")
    assert (done.returncode, done.stdout) == (1, "")
    assert "There is no bucket not-there: create it, or leave --bucket out." in done.stderr
    assert account.aws.client("s3").list_buckets()["Buckets"] == []
    assert account.aws.client("cloudformation").describe_stacks()["Stacks"] == []
