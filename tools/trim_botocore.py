"""Delete the botocore models of AWS services that this project does not call: 90 % of botocore.

    python tools/trim_botocore.py ENVIRONMENT

This makes the image smaller, which Fargate pulls for every task. The script runs during the image
build, so it uses only the standard library.
"""

import shutil
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

# The services that this project calls, and those that botocore calls for credentials.
SERVICES = frozenset(
    {
        "batch",
        "cloudformation",
        "cloudtrail",
        "cloudwatch",
        "dynamodb",
        "ecr",
        "ecs",
        "events",
        "iam",
        "lambda",
        "logs",
        "resourcegroupstaggingapi",
        "scheduler",
        "secretsmanager",
        "sqs",
        "ssm",
        "stepfunctions",
        "sts",
    }
)
CREDENTIAL_SERVICES = frozenset({"signin", "sso", "sso-oidc", "sts"})


def main(arguments: Sequence[str]) -> int:
    """Trim botocore in one virtual environment."""
    (environment,) = arguments
    models = list(Path(environment).glob("lib/python3*/site-packages/botocore/data"))
    if len(models) != 1:
        sys.stderr.write(
            f"{environment} must contain one botocore but contains {len(models)}: name a "
            "virtualenv.\n"
        )
        return 1
    trim(models[0], SERVICES | CREDENTIAL_SERVICES)
    return 0


def trim(models: Path, services: Iterable[str]) -> None:
    """Delete the model folders of all other services.

    Files (endpoints, partitions, retries) stay.
    """
    kept = set(services)
    for folder in models.iterdir():
        if folder.is_dir() and folder.name not in kept:
            shutil.rmtree(folder)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
