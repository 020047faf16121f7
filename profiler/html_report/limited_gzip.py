"""JSON, compressed by gzip, as base64 of a limited length. The browser's ``DecompressionStream`` reads it."""

import base64
import json
import zlib
from collections.abc import Iterable

_GZIP_FORMAT = 31
# A tenth less time for the whole page than level 6, for a tenth more bytes.
_LEVEL = 4
_BASE64_BYTES, _BASE64_CHARACTERS = 3, 4
# The compressor holds back 16,384 literals or matches of at most 6 bytes each.
_MAX_PENDING_BYTES = 16_384 * 6
# Header and trailer of the format, and those of a block.
_FORMAT_BYTES = 64
_encoder = json.JSONEncoder(separators=(",", ":"), allow_nan=False)


def to_json(value: object) -> str:
    """Encode as JSON in ASCII, without spaces."""
    return _encoder.encode(value)


def compressed_json(value: object) -> str:
    """Encode as JSON, compressed, as base64."""
    return base64.b64encode(zlib.compress(to_json(value).encode("ascii"), _LEVEL, _GZIP_FORMAT)).decode("ascii")


class LimitedGzip:
    """Compresses JSON piece by piece, and refuses a piece that might not fit.

    Compressed text is never longer than the text, so that this is known before a piece is compressed.
    """

    def __init__(self, max_characters: int) -> None:
        self._compressor = zlib.compressobj(_LEVEL, wbits=_GZIP_FORMAT)
        self._chunks: list[bytes] = []
        self._emitted_bytes = 0
        self._pending_bytes = 0
        self._max_bytes = max_characters // _BASE64_CHARACTERS * _BASE64_BYTES - _FORMAT_BYTES

    def write(self, text: str) -> None:
        """Add text in ASCII, even if it does not fit."""
        chunk = self._compressor.compress(text.encode("ascii"))
        self._chunks.append(chunk)
        self._emitted_bytes += len(chunk)
        # A chunk holds all earlier text, and perhaps a part of this one.
        self._pending_bytes = len(text) if chunk else self._pending_bytes + len(text)

    def write_array(
        self, elements: Iterable[object], *, share: float = 1, at_least: int = 0, has_gaps: bool = False
    ) -> int:
        """Add a JSON array of the elements that fit, and return their number.

        Args:
            elements: The elements.
            share: The share of the free space that they may take.
            at_least: The number of first elements that are added even if they do not fit.
            has_gaps: Whether null takes the place of an element that does not fit. Otherwise the array ends before it.
        """
        limit_bytes = self._used_bytes + share * (self._max_bytes - self._used_bytes)
        separator, count = "[", 0
        for element in elements:
            piece = to_json(element)
            if count >= at_least and self._used_bytes + len(piece) > limit_bytes:
                if not has_gaps:
                    break
                piece = "null"
            else:
                count += 1
            self.write(separator + piece)
            separator = ","
        self.write("[]" if separator == "[" else "]")
        return count

    def finish(self) -> str:
        """Return the whole as base64."""
        return base64.b64encode(b"".join((*self._chunks, self._compressor.flush()))).decode("ascii")

    @property
    def _used_bytes(self) -> int:
        return self._emitted_bytes + min(self._pending_bytes, _MAX_PENDING_BYTES)
