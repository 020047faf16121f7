"""The policy of a repository in Amazon ECR, which may allow a pull that the role's own do not."""

import json

from profiler.aws_account.aws_errors import OpenClient
from profiler.core.json_fields import mapping
from profiler.task_definitions.permissions import concerns, statements_of


def may_allow_pull(open_client: OpenClient, account: str, region: str, repository: str) -> bool:
    """Whether the policy of a repository may allow the pull; of another Region, it may.

    Raises boto3's errors.
    """
    ecr = open_client("ecr")
    if ecr.meta.region_name != region:
        return True
    try:
        answer = ecr.get_repository_policy(registryId=account, repositoryName=repository)
    except (
        ecr.exceptions.RepositoryPolicyNotFoundException,
        ecr.exceptions.RepositoryNotFoundException,
    ):
        return False
    return any(
        statement.get("Effect") == "Allow" and concerns(statement, "ecr:BatchGetImage")
        for statement in statements_of(mapping(json.loads(answer["policyText"])))
    )
