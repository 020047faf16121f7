"""Keeps the libraries from logging what they send and receive: secrets from AWS, signatures, documents.

They do so at level DEBUG (one of them at INFO), and a function's log level is the root logger's, which
holds for all of them. A logger that somebody has given a level by its own name keeps it.
"""

import logging

_LEVELS = {
    "boto3": logging.INFO,
    "botocore": logging.INFO,
    "urllib3": logging.INFO,
    "elastic_transport": logging.INFO,
    "elasticsearch": logging.INFO,
    "opensearch": logging.INFO,
    "opensearchpy.trace": logging.WARNING,
}


def configure_library_logging() -> None:
    """Give them a level of their own."""
    for name, level in _LEVELS.items():
        logger = logging.getLogger(name)
        if logger.level == logging.NOTSET:
            logger.setLevel(level)
