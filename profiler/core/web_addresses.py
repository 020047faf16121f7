"""What is wrong with an address and a sign-in that a person typed, and which address is meant."""

from collections.abc import Sequence
from typing import Final
from urllib.parse import urlsplit

from profiler.core.text import similar_name

WEB_SCHEMES: Final[Sequence[str]] = ("https", "http")
NO_PORT: Final = "what follows the host is no port: write a number up to 65535, as in :9200."
HALF_A_SIGN_IN: Final = (
    "Only one of ELASTICSEARCH_USER and ELASTICSEARCH_PASSWORD is set: set both or neither."
)
# Of an address whose scheme, or what follows it, is spelled wrong.
_SEPARATORS = ("://", ":/", "//")


def is_web_scheme(scheme: str) -> bool:
    """Whether a web server's address begins with it, in any letters."""
    return scheme.lower() in WEB_SCHEMES


def meant_address(text: str) -> str:
    """The address that is meant by ``https:://HOST``, ``htps://HOST`` and the like; "" if none is
    near.
    """
    separator = next((one for one in _SEPARATORS if one in text), "")
    if not separator:
        return ""
    scheme, _, rest = text.partition(separator)
    meant = similar_name(scheme.strip(":"), WEB_SCHEMES)
    return f"{meant}://{rest.lstrip(':/')}" if meant else ""


def has_usable_port(address: str) -> bool:
    """Whether what follows the colon after the host, if anything does, is a port."""
    try:
        urlsplit(address).port  # noqa: B018  it raises
    except ValueError:
        return False
    return True
