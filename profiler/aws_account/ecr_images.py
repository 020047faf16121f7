"""Images in Amazon ECR by their names, and whether the account's own registry has them."""

import re

from msgspec import Struct

from profiler.aws_account.aws_errors import OpenClient, answer_unless
from profiler.aws_account.registered_definitions import read_items
from profiler.core.aws_error_codes import error_code

# 111122223333.dkr.ecr.us-west-2.amazonaws.com/NAME:TAG@DIGEST, also with FIPS or dual stack
_NAME = re.compile(
    r"(?P<account>\d{12})\.dkr[.-]ecr(?:-fips)?\.(?P<region>[a-z0-9-]+)\.[a-z.-]+/"
    r"(?P<repository>[^:@]+)(?::(?P<tag>[^@]+))?(?:@(?P<digest>.+))?",
    re.ASCII,
)
_DEFAULT_TAG = "latest"
_MISSING = frozenset({"ImageNotFoundException", "RepositoryNotFoundException"})
# The prefix of a rule for the repositories of all other rules' prefixes.
_ANY_PREFIX = "ROOT"


class EcrImage(Struct, frozen=True, kw_only=True):
    """An image's name, of which the digest counts more than the tag."""

    account: str
    region: str
    repository: str
    tag: str | None = None
    digest: str | None = None

    @property
    def name_without_registry(self) -> str:
        """The name without the registry."""
        if self.digest:
            return f"{self.repository}@{self.digest}"
        return f"{self.repository}:{self.tag or _DEFAULT_TAG}"


def ecr_image(name: str) -> EcrImage | None:
    """The image with this name; None if it is not in a private registry of Amazon ECR."""
    match = _NAME.fullmatch(name)
    return EcrImage(**match.groupdict()) if match else None


def is_in_registry(open_client: OpenClient, image: EcrImage) -> bool | None:
    """Whether an image is in the account's registry of its Region; None: it is in another Region
    than the client. Raises boto3's errors.
    """
    ecr = open_client("ecr")
    if ecr.meta.region_name != image.region:
        return None
    wanted = {"imageTag": image.tag or _DEFAULT_TAG}
    if image.digest:
        wanted = {"imageDigest": image.digest}
    answer = answer_unless(
        lambda error: error_code(error) in _MISSING,
        ecr.describe_images,
        registryId=image.account,
        repositoryName=image.repository,
        imageIds=[wanted],
    )
    return answer is not None


def is_pulled_through(open_client: OpenClient, image: EcrImage) -> bool:
    """Whether the first pull brings an image into the account's registry from another one.

    Raises boto3's errors.
    """
    rules = read_items(
        open_client("ecr"),
        "describe_pull_through_cache_rules",
        "pullThroughCacheRules",
        registryId=image.account,
    )
    prefixes = {rule["ecrRepositoryPrefix"] for rule in rules}
    return any(
        prefix == _ANY_PREFIX or image.repository.startswith(f"{prefix}/") for prefix in prefixes
    )
