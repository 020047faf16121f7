"""How the forwarder says to a cluster who it is, alike for both engines."""

from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager

from forwarder.errors import SettingsError
from forwarder.settings import Credentials

_SCHEMES = ("https://", "http://")
_INVALID_URL = "ELASTICSEARCH_URL is no address of a cluster: set it to one like https://search.example.com:9200."


def authorization(credentials: Credentials) -> dict[str, str]:
    """The header of the first sign-in that is filled: API key, then user name and password; none for the others.

    Raises SettingsError for a key that no header can hold: the clients would quote it.
    """
    key = credentials.api_key
    if key is not None:
        if not (key.isascii() and key.isprintable()):
            raise SettingsError(
                "ELASTICSEARCH_API_KEY, or api_key in the secret of ELASTICSEARCH_SECRET_ID, holds a line break or "
                "another character that no API key has: set it to the encoded key alone."
            )
        return {"authorization": f"ApiKey {key}"}
    if credentials.basic is not None:
        return {"authorization": "Basic " + b64encode(":".join(credentials.basic).encode()).decode()}
    return {}


@contextmanager
def checked_url(url: str) -> Iterator[None]:
    """What a client makes of an address that is none, as a SettingsError.

    Without a scheme, one client would send the password in the clear and the other refuses.
    """
    if not url.lower().startswith(_SCHEMES):
        raise SettingsError(_INVALID_URL)
    try:
        yield
    except (TypeError, ValueError):
        # Not "from": the client's error may quote the address, in which a password may stand.
        raise SettingsError(_INVALID_URL) from None
