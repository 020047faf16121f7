"""Deletes the models of the AWS services that nothing here calls: nine tenths of botocore.

    python tools/trim_botocore.py ENVIRONMENT

For the image, which Fargate pulls anew for every task. Standard library only: it runs where the
image is built.
"""

import shutil
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

# What this project calls, then what botocore itself calls to get credentials.
SERVICES = frozenset({"dynamodb", "ecs", "lambda", "logs", "secretsmanager", "sqs", "ssm", "sts"})
CREDENTIAL_SERVICES = frozenset({"signin", "sso", "sso-oidc", "sts"})


def main(arguments: Sequence[str]) -> int:
    """Trim the botocore of one virtual environment."""
    (environment,) = arguments
    models = list(Path(environment).glob("lib/python3*/site-packages/botocore/data"))
    if len(models) != 1:
        sys.stderr.write(f"{environment} should hold one botocore and holds {len(models)}: name an environment.\n")
        return 1
    trim(models[0], SERVICES | CREDENTIAL_SERVICES)
    return 0


def trim(models: Path, kept: Iterable[str]) -> None:
    """Delete the folders of all other services; the files beside them (endpoints, partitions, retries) stay."""
    wanted = set(kept)
    for folder in models.iterdir():
        if folder.is_dir() and folder.name not in wanted:
            shutil.rmtree(folder)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
