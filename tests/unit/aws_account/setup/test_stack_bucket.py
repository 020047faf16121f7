"""The bucket: whose it must be, and where."""

from types import SimpleNamespace
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError

from profiler.aws_account.setup.forwarder_deployment import CodeBucket
from profiler.core.errors import TaskProfilerError

ACCOUNT = "123456789012"


class FakeS3:
    """One bucket in Ireland; ``status`` is the answer to HEAD, which has no body."""

    def __init__(self, status: int = 200, region: str = "eu-west-1") -> None:
        self.meta = SimpleNamespace(region_name="eu-west-1")
        self._status, self._region = status, region
        self.owners: list[str] = []

    def __call__(self, service: str) -> Any:
        assert service == "s3"
        return self

    def head_bucket(self, *, Bucket: str, ExpectedBucketOwner: str) -> dict[str, str]:
        self.owners.append(ExpectedBucketOwner)
        if self._status != 200:
            response: Any = {
                "Error": {"Code": str(self._status)},
                "ResponseMetadata": {"HTTPStatusCode": self._status},
            }
            raise ClientError(response, "HeadBucket")
        return {"BucketRegion": self._region}


def test_the_bucket_must_be_of_this_account_and_region() -> None:
    """Anybody can create a bucket with the name that is expected in an account."""
    for s3, said in (
        (
            FakeS3(403),
            r"AWS refused \(403\): allow s3:ListBucket, or name a bucket of this account with --bucket\.$",
        ),
        (
            FakeS3(region="us-east-1"),
            r"^The bucket code is in us-east-1: Lambda needs a --bucket in eu-west-1\.$",
        ),
        (FakeS3(503), r"The bucket code cannot be used: AWS failed \(503"),
    ):
        with pytest.raises(TaskProfilerError, match=said):
            CodeBucket("code", ACCOUNT, s3).exists()
        assert s3.owners == [ACCOUNT]
    assert CodeBucket("code", ACCOUNT, FakeS3()).exists()
    assert not CodeBucket("code", ACCOUNT, FakeS3(404)).exists()


@pytest.mark.parametrize(
    ("region", "domain", "settings"),
    [
        ("eu-west-1", "amazonaws.com", {}),
        (
            "eu-west-1",
            "amazonaws.com",
            {"AWS_ENDPOINT_URL_S3": "https://bucket.vpce-1a.s3.eu-west-1.amazonaws.com"},
        ),
        ("us-gov-west-1", "amazonaws.com", {"AWS_USE_FIPS_ENDPOINT": "true"}),
        ("eusc-de-east-1", "amazonaws.eu", {}),
    ],
)
def test_the_address_is_one_that_cloudformation_takes(
    monkeypatch: pytest.MonkeyPatch, region: str, domain: str, settings: dict[str, str]
) -> None:
    """CloudFormation refuses every address but S3's own in the Region."""
    for name, value in (
        {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"} | settings
    ).items():
        monkeypatch.setenv(name, value)
    bucket = CodeBucket("code", ACCOUNT, boto3.Session(region_name=region).client)
    assert bucket.object_url("a/b.yaml") == f"https://s3.{region}.{domain}/code/a/b.yaml"
