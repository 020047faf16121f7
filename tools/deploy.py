"""Deploy the forwarder with the AWS CLI: build the zip, upload it to S3, and deploy the CloudFormation template.

    BUCKET=NAME [STACK=task-profiler] [PARAMETERS="Key=Value …"] python tools/deploy.py [ZIP]

ZIP is an existing zip to deploy instead of a new build. The AWS CLI determines Region, account and credentials. Stack
parameters that are not given keep their values. Quote values that contain spaces, as in a shell.
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
KEY_PREFIX = "task-profiler"
_KEY_HASH_DIGITS = 16


class DeployError(Exception):
    """A problem that prevents the deployment. The message says what to do."""


def main(arguments: Sequence[str], environment: Mapping[str, str]) -> None:
    """Upload the zip, deploy the stack and print its outputs.

    Raises:
        DeployError: Something is missing or invalid (nothing has changed yet), or an AWS CLI command failed.
    """
    bucket = environment.get("BUCKET", "").strip()
    stack = environment.get("STACK", "").strip() or "task-profiler"
    if not bucket:
        raise DeployError("No bucket for the code: make deploy BUCKET=NAME, an S3 bucket in the Region of the stack.")
    overrides = parameters(environment.get("PARAMETERS", ""))
    if arguments and not Path(arguments[0]).is_file():
        raise DeployError(f"{arguments[0]} does not exist: leave it out, and the zip is built.")
    aws = shutil.which("aws", path=environment.get("PATH"))
    if aws is None:
        raise DeployError("The AWS CLI is missing: install it (https://aws.amazon.com/cli/) and sign in.")
    if subprocess.run([aws, "s3api", "head-bucket", "--bucket", bucket], check=False, capture_output=True).returncode:
        raise DeployError(
            f"The bucket {bucket} cannot be reached: create it with aws s3 mb s3://{bucket}, or check your credentials."
        )
    zip_file = Path(arguments[0]) if arguments else build()
    key = f"{KEY_PREFIX}/forwarder-{hashlib.sha256(zip_file.read_bytes()).hexdigest()[:_KEY_HASH_DIGITS]}.zip"
    for command in commands(zip_file, bucket, key, stack, overrides):
        result = subprocess.run([aws, *command], check=False)
        if result.returncode:
            raise DeployError(f"aws {' '.join(command[:2])} failed: see its message above.")


def build() -> Path:
    """Build the zip from this checkout and return its path."""
    subprocess.run([sys.executable, str(ROOT / "tools" / "lambda_zip.py"), str(ZIP)], check=True)
    return ZIP


def parameters(text: str) -> list[str]:
    """Split the text into ``Key=Value`` items. Raises DeployError if it is invalid."""
    try:
        overrides = shlex.split(text)
    except ValueError as error:
        raise DeployError(f"PARAMETERS cannot be read ({error}): close the quotes.") from error
    for parameter in overrides:
        if "=" not in parameter.lstrip("="):
            raise DeployError(f"PARAMETERS has {parameter!r}, which is not Key=Value: quote values with spaces.")
    return overrides


def commands(zip_file: Path, bucket: str, key: str, stack: str, overrides: Sequence[str]) -> list[list[str]]:
    """The AWS CLI commands of a deployment.

    The S3 key contains a hash of the zip: CloudFormation updates the functions only if the key changes.
    """
    code = [f"CodeBucket={bucket}", f"CodeKey={key}"]
    return [
        ["s3", "cp", "--only-show-errors", str(zip_file), f"s3://{bucket}/{key}"],
        [
            *("cloudformation", "deploy", "--stack-name", stack, "--template-file", str(TEMPLATE)),
            # Without a bucket, a template has at most 51,200 bytes.
            *("--s3-bucket", bucket, "--s3-prefix", KEY_PREFIX),
            *("--capabilities", "CAPABILITY_IAM", "--no-fail-on-empty-changeset"),
            *("--parameter-overrides", *code, *overrides),
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
