"""Bytes in, lines out: neuron-monitor's lines reach 450 kB and come in pieces."""

MAX_LINE_BYTES = 16 * 1024 * 1024


class LineSplitter:
    """Puts lines together again; empty ones are passed over.

    A line above ``max_bytes`` is dropped as soon as it is known to be one, and the next line
    begins after its newline. ``dropped`` counts these, and the half line at the end of a stream.
    """

    def __init__(self, max_bytes: int = MAX_LINE_BYTES) -> None:
        self._max_bytes = max_bytes
        self._buffer = bytearray()
        self._is_skipping = False
        self.dropped = 0

    def feed(self, chunk: bytes) -> list[bytes]:
        """Take the next bytes; the lines that they complete, without their newlines."""
        lines = []
        *ends, rest = chunk.split(b"\n")
        for end in ends:
            self._append(end)
            line, self._buffer = bytes(self._buffer), bytearray()
            if line:
                lines.append(line)
            self._is_skipping = False
        self._append(rest)
        return lines

    def finish(self) -> bool:
        """No more bytes come; says whether that cut a line in half."""
        cut = bool(self._buffer)
        self.dropped += cut
        self._buffer, self._is_skipping = bytearray(), False
        return cut

    def _append(self, part: bytes) -> None:
        if self._is_skipping:
            return
        if len(self._buffer) + len(part) > self._max_bytes:
            self._buffer, self._is_skipping = bytearray(), True
            self.dropped += 1
        else:
            self._buffer += part
