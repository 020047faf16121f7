"""The S3 bucket with the forwarder's code and template.

Every key contains a hash of what it holds, so that an object never changes and the bucket needs no versions. Older
objects stay: CloudFormation reads them when it undoes an update. Every call names the account that must own the bucket,
as anybody can create a bucket with the name that is expected here.
"""

from typing import Any

from profiler.aws_account.aws_errors import OpenClient, aws_errors
from profiler.core.errors import TaskProfilerError

_US_EAST_1 = "us-east-1"  # the one Region that CreateBucket does not accept by name


def default_bucket(account: str, region: str) -> str:
    """The name of the bucket that is created."""
    return f"task-profiler-{account}-{region}"


class CodeBucket:
    """A bucket of this account in this Region. Each method raises TaskProfilerError with AWS's reason.

    Args:
        name: The name.
        account: The account that must own it.
        open_client: Makes boto3's client of a service.
    """

    def __init__(self, name: str, account: str, open_client: OpenClient) -> None:
        self.name = name
        self._owner = {"Bucket": name, "ExpectedBucketOwner": account}
        self._s3 = open_client("s3")

    def exists(self) -> bool:
        """Whether the bucket exists. Raises also if it belongs to another account or Region."""
        found = self._head("s3:ListBucket", self._s3.head_bucket)
        region, here = found and found.get("BucketRegion"), self._s3.meta.region_name
        if region is not None and region != here:
            raise TaskProfilerError(f"The bucket {self.name} is in {region}: Lambda needs a --bucket in {here}.")
        return found is not None

    def create(self) -> None:
        """Create it: private, encrypted."""
        region = self._s3.meta.region_name
        where = {} if region == _US_EAST_1 else {"CreateBucketConfiguration": {"LocationConstraint": region}}
        rule = {"ApplyServerSideEncryptionByDefault": {"SSEAlgorithm": "AES256"}}
        blocks = ("BlockPublicAcls", "IgnorePublicAcls", "BlockPublicPolicy", "RestrictPublicBuckets")
        what = f"The bucket {self.name} cannot be created"
        with aws_errors(what, "s3:CreateBucket"):
            self._s3.create_bucket(Bucket=self.name, **where)
        with aws_errors(what, "s3:PutBucketPublicAccessBlock"):
            blocked = dict.fromkeys(blocks, True)
            self._s3.put_public_access_block(**self._owner, PublicAccessBlockConfiguration=blocked)
        with aws_errors(what, "s3:PutEncryptionConfiguration"):
            self._s3.put_bucket_encryption(**self._owner, ServerSideEncryptionConfiguration={"Rules": [rule]})

    def has(self, key: str) -> bool:
        """Whether an object is there."""
        return self._head("s3:GetObject and s3:ListBucket", self._s3.head_object, Key=key) is not None

    def put(self, key: str, data: bytes) -> None:
        """Write an object."""
        with aws_errors(f"s3://{self.name}/{key} cannot be written", "s3:PutObject"):
            self._s3.put_object(**self._owner, Key=key, Body=data)

    def url(self, key: str) -> str:
        """The address of an object, as CloudFormation takes a template's."""
        return f"{self._s3.meta.endpoint_url}/{self.name}/{key}"

    def _head(self, permission: str, call: Any, **arguments: str) -> dict[str, Any] | None:  # noqa: ANN401  boto3 has no types
        """The answer; None if there is nothing. HEAD requests have no error code but the HTTP status."""
        from botocore.exceptions import ClientError  # slow to import

        with aws_errors(f"The bucket {self.name} cannot be used", permission):
            try:
                found: dict[str, Any] = call(**self._owner, **arguments)
            except ClientError as error:
                status = error.response["ResponseMetadata"]["HTTPStatusCode"]
                if status == 404:  # noqa: PLR2004  not found
                    return None
                if status == 403:  # noqa: PLR2004  forbidden
                    raise TaskProfilerError(
                        f"The bucket {self.name} cannot be used: it belongs to another account, or AWS refused: name "
                        f"another one with --bucket, or allow {permission}."
                    ) from error
                raise
        return found
