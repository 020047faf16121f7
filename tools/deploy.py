"""Deploys the forwarder: builds the zip, puts it into S3 and the template into CloudFormation, both by the AWS CLI.

    BUCKET=NAME [STACK=task-profiler] [PARAMETERS="Key=Value …"] python tools/deploy.py [ZIP]

With ZIP that one is deployed. Region, account and credentials are those that the CLI finds. Parameters that
are not named keep the value they have in the stack. A value with blanks stands in quotes, as in a shell.
"""

import hashlib
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ZIP = ROOT / "dist" / "task-profiler-forwarder.zip"
TEMPLATE = ROOT / "lambda" / "template.yaml"
FOLDER = "task-profiler"
_KEY_DIGITS = 16


class DeployError(Exception):
    """What is missing, and what to do."""


def main(arguments: Sequence[str], environment: Mapping[str, str]) -> None:
    """Upload, deploy, show the outputs. Raises DeployError before anything is changed."""
    bucket = environment.get("BUCKET", "").strip()
    stack = environment.get("STACK", "").strip() or "task-profiler"
    if not bucket:
        raise DeployError("No bucket for the code: make deploy BUCKET=NAME, an S3 bucket in the Region of the stack.")
    given = parameters(environment.get("PARAMETERS", ""))
    if arguments and not Path(arguments[0]).is_file():
        raise DeployError(f"{arguments[0]} is not there: leave it out, and the zip is built.")
    aws = shutil.which("aws", path=environment.get("PATH"))
    if aws is None:
        raise DeployError("The AWS CLI is missing: install it (https://aws.amazon.com/cli/) and sign in.")
    if subprocess.run([aws, "s3api", "head-bucket", "--bucket", bucket], check=False, capture_output=True).returncode:
        raise DeployError(
            f"The bucket {bucket} cannot be reached: make it with aws s3 mb s3://{bucket}, or check who is signed in."
        )
    zip_file = Path(arguments[0]) if arguments else build()
    key = f"{FOLDER}/forwarder-{hashlib.sha256(zip_file.read_bytes()).hexdigest()[:_KEY_DIGITS]}.zip"
    for command in commands(zip_file, bucket, key, stack, given):
        done = subprocess.run([aws, *command], check=False)
        if done.returncode:
            raise DeployError(f"aws {' '.join(command[:2])} failed: see what it says above.")


def build() -> Path:
    """The zip of this checkout."""
    subprocess.run([sys.executable, str(ROOT / "tools" / "lambda_zip.py"), str(ZIP)], check=True)
    return ZIP


def parameters(text: str) -> list[str]:
    """``Key=Value`` each. Raises DeployError."""
    try:
        given = shlex.split(text)
    except ValueError as error:
        raise DeployError(f"PARAMETERS cannot be read ({error}): close the quotes.") from error
    for one in given:
        if "=" not in one.lstrip("="):
            raise DeployError(f"PARAMETERS has {one!r}, which is not Key=Value: put values with blanks into quotes.")
    return given


def commands(zip_file: Path, bucket: str, key: str, stack: str, given: Sequence[str]) -> list[list[str]]:
    """What the AWS CLI is to do. The code's key changes with the code, so that functions are updated."""
    code = [f"CodeBucket={bucket}", f"CodeKey={key}"]
    return [
        ["s3", "cp", "--only-show-errors", str(zip_file), f"s3://{bucket}/{key}"],
        [
            *("cloudformation", "deploy", "--stack-name", stack, "--template-file", str(TEMPLATE)),
            *("--capabilities", "CAPABILITY_IAM", "--no-fail-on-empty-changeset"),
            *("--parameter-overrides", *code, *given),
        ],
        [
            *("cloudformation", "describe-stacks", "--stack-name", stack, "--output", "table"),
            *("--query", "Stacks[0].Outputs[].[OutputKey, OutputValue]"),
        ],
    ]


if __name__ == "__main__":
    try:
        main(sys.argv[1:], os.environ)
    except DeployError as error:
        sys.exit(str(error))
