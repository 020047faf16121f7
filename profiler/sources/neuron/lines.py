"""Bytes in, lines out: neuron-monitor's lines reach 450 kB and come in pieces."""

LONGEST_LINE_BYTES = 16 * 1024 * 1024


class LineSplitter:
    """Puts lines together again; empty ones are passed over.

    A line above ``longest_bytes`` is dropped as soon as it is known to be one, and the next line
    begins after its newline. ``dropped`` counts these, and the half line at the end of a stream.
    """

    def __init__(self, longest_bytes: int = LONGEST_LINE_BYTES) -> None:
        self._longest_bytes = longest_bytes
        self._held = bytearray()
        self._skipping = False
        self.dropped = 0

    def feed(self, chunk: bytes) -> list[bytes]:
        """Take the next bytes; the lines that they complete, without their newlines."""
        lines = []
        *ends, rest = chunk.split(b"\n")
        for end in ends:
            self._hold(end)
            line, self._held = bytes(self._held), bytearray()
            if line:
                lines.append(line)
            self._skipping = False
        self._hold(rest)
        return lines

    def end(self) -> bool:
        """No more bytes come; says whether that cut a line in half."""
        cut = bool(self._held)
        self.dropped += cut
        self._held, self._skipping = bytearray(), False
        return cut

    def _hold(self, part: bytes) -> None:
        if self._skipping:
            return
        if len(self._held) + len(part) > self._longest_bytes:
            self._held, self._skipping = bytearray(), True
            self.dropped += 1
        else:
            self._held += part
