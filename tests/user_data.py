"""The user data of an instance, read by the parser that cloud-init has, too."""

import email
from email.message import Message


def script_of(document: str) -> str:
    """The script that is the only part of a MIME document without defects."""
    message = email.message_from_string(document)
    assert message.get_content_type() == "multipart/mixed"
    assert not message.defects
    parts = message.get_payload()
    assert isinstance(parts, list)
    (part,) = parts
    assert isinstance(part, Message)
    assert part.get_content_type() == "text/x-shellscript"
    payload = part.get_payload(decode=True)
    assert isinstance(payload, bytes)
    return payload.decode("ascii")
