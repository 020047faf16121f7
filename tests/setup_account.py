"""An account on moto's server, and ``task-profiler setup stack`` in it."""

import json
import warnings
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest
from msgspec.structs import replace

from tests.command_line import run_here
from tools.moto_server import FakeAws, fake_aws


class Account:
    def __init__(self, aws: FakeAws, folder: Path) -> None:
        self.aws = aws
        # moto reads a template's URL as that of its own S3 only with this host, and with the bucket
        # in the path.
        self.environment = {
            name: value.replace("127.0.0.1", "localhost")
            for name, value in aws.environment().items()
        }
        config = folder / "aws-config"
        config.write_text("[default]\ns3 =\n  addressing_style = path\n")
        self.environment |= {
            "AWS_CONFIG_FILE": str(config),
            "HOME": str(folder),
            "PATH": "/usr/bin:/bin",
        }
        self.zip = folder / "forwarder.zip"
        with zipfile.ZipFile(self.zip, "w") as archive:
            archive.writestr("handler.py", "")

    def client(self, service: str) -> Any:
        """boto3's client, as the command's."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("AWS_CONFIG_FILE", self.environment["AWS_CONFIG_FILE"])
            return replace(self.aws, url=self.environment["AWS_ENDPOINT_URL"]).client(service)

    def setup(self, *words: str) -> CompletedProcess[str]:
        code = () if "--delete" in words else ("--zip", str(self.zip))
        done = run_here(self.environment, "setup", "stack", *code, *words)
        assert "hunter2" not in done.stdout + done.stderr
        assert "Traceback" not in done.stderr
        return done

    def stacks(self) -> list[dict[str, Any]]:
        return list(self.aws.client("cloudformation").describe_stacks()["Stacks"])

    def parameters(self) -> dict[str, str]:
        (stack,) = self.stacks()
        return {one["ParameterKey"]: one["ParameterValue"] for one in stack["Parameters"]}

    def check_nothing_was_made(self) -> None:
        assert self.stacks() == []
        assert self.aws.client("s3").list_buckets()["Buckets"] == []
        assert self.aws.client("secretsmanager").list_secrets()["SecretList"] == []

    def secret(self, name: str) -> dict[str, str]:
        stored = self.aws.client("secretsmanager").get_secret_value(SecretId=name)
        return dict(json.loads(stored["SecretString"]))


@contextmanager
def setup_account(folder: Path) -> Iterator[Account]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # moto's server says what its CloudFormation leaves out
        with fake_aws() as aws:
            yield Account(aws, folder)
