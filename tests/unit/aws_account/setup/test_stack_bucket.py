"""The bucket: whose it must be, and where."""

from types import SimpleNamespace
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError

from profiler.aws_account.setup.stack_deployment import CodeBucket
from profiler.core.errors import TaskProfilerError

ACCOUNT = "123456789012"


class FakeS3:
    """One bucket in Ireland; ``status`` is the answer to HEAD, which has no body."""

    def __init__(self, status: int = 200, region: str = "eu-west-1") -> None:
        self.meta = SimpleNamespace(region_name="eu-west-1")
        self._status = status
        self._region = region
        self.owners: list[str] = []

    def __call__(self, service: str) -> Any:
        assert service == "s3"
        return self

    def head_bucket(self, *, Bucket: str, ExpectedBucketOwner: str) -> dict[str, str]:
        self.owners.append(ExpectedBucketOwner)
        if self._status != 200:
            response: Any = {"Error": {"Code": str(self._status)}, "ResponseMetadata": {"HTTPStatusCode": self._status}}
            raise ClientError(response, "HeadBucket")
        return {"BucketRegion": self._region}


def test_a_bucket_of_another_account_is_not_used() -> None:
    """Anybody can create a bucket with the name that is expected in an account."""
    s3 = FakeS3(403)
    bucket = CodeBucket(f"task-profiler-{ACCOUNT}-eu-west-1", ACCOUNT, s3)
    with pytest.raises(TaskProfilerError, match=f"{bucket.name} cannot be used: it belongs to another"):
        bucket.exists()
    assert s3.owners == [ACCOUNT]


def test_there_is_a_bucket_or_none_or_it_is_in_another_region_or_aws_has_a_fault() -> None:
    said = r"^The bucket code is in us-east-1: Lambda needs a --bucket in eu-west-1\.$"
    with pytest.raises(TaskProfilerError, match=said):
        CodeBucket("code", ACCOUNT, FakeS3(region="us-east-1")).exists()
    assert CodeBucket("code", ACCOUNT, FakeS3()).exists()
    assert not CodeBucket("code", ACCOUNT, FakeS3(404)).exists()
    with pytest.raises(TaskProfilerError, match=r"The bucket code cannot be used: AWS failed \(503"):
        CodeBucket("code", ACCOUNT, FakeS3(503)).exists()


@pytest.mark.parametrize(
    ("region", "domain", "settings"),
    [
        ("eu-west-1", "amazonaws.com", {}),
        (
            "eu-west-1",
            "amazonaws.com",
            {"AWS_ENDPOINT_URL_S3": "https://bucket.vpce-1a.s3.eu-west-1.vpce.amazonaws.com"},
        ),
        ("us-gov-west-1", "amazonaws.com", {"AWS_USE_FIPS_ENDPOINT": "true"}),
        ("eusc-de-east-1", "amazonaws.eu", {}),
    ],
)
def test_the_address_is_one_that_cloudformation_takes(
    monkeypatch: pytest.MonkeyPatch, region: str, domain: str, settings: dict[str, str]
) -> None:
    """CloudFormation refuses every address but S3's own in the Region."""
    for name, value in ({"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"} | settings).items():
        monkeypatch.setenv(name, value)
    bucket = CodeBucket("code", ACCOUNT, boto3.Session(region_name=region).client)
    assert bucket.url("a/b.yaml") == f"https://s3.{region}.{domain}/code/a/b.yaml"
