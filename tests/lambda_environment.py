"""A new Lambda environment for the handler, which caches settings and clients between invocations, and its table."""

from collections.abc import Sequence
from typing import Any

import boto3
from aws_lambda_powertools.utilities import parameters

import handler


def forget_environment() -> None:
    """Clear all caches, as in a new Lambda environment."""
    for value in vars(handler).values():
        if hasattr(value, "cache_clear"):
            value.cache_clear()
    parameters.clear_caches()  # type: ignore[no-untyped-call]


def create_idempotency_table(name: str) -> None:
    """Create the table that ``IDEMPOTENCY_TABLE`` names, as the template does."""
    boto3.client("dynamodb").create_table(
        TableName=name,
        KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": "id", "AttributeType": "S"}],
        BillingMode="PAY_PER_REQUEST",
    )


def register_revisions(family: str, containers: Sequence[Any]) -> None:
    """Register the five revisions up to that of the tests' events."""
    for _ in range(5):
        boto3.client("ecs").register_task_definition(family=family, containerDefinitions=containers)
