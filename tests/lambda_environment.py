"""A new Lambda environment for the handler, which caches settings and clients between invocations."""

from aws_lambda_powertools.utilities import parameters

import handler


def forget_environment() -> None:
    """Clear all caches, as in a new Lambda environment."""
    for value in vars(handler).values():
        if hasattr(value, "cache_clear"):
            value.cache_clear()
    parameters.clear_caches()  # type: ignore[no-untyped-call]
