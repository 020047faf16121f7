"""The monitors of an instance that follow one another, and the lines that they leave."""

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

from profiler.sinks import DeliveryFailure, LogTarget
from tests.fakes import FakeLogsSink, FakeStdout, seconds
from tests.instance_world import FakeContainer, FakeInstance


class KilledError(BaseException):
    """SIGKILL: nothing of the program runs any more."""


class Life(Struct, frozen=True):
    """A monitor of these seconds. ``lines``: it is killed after so many lines of its end."""

    began: float
    until: float
    is_killed: bool = False
    lines: int | None = None


class Streams(FakeLogsSink):
    """The batches' log streams, which outlive a monitor. ``refused``: no put is accepted."""

    refused: bool = False
    missing: str | None = None

    def holds_report(self, target: LogTarget, batch: str, seconds: float) -> bool:
        return any(known == target for known, _ in self.lines)

    def put(
        self, line: bytes, target: LogTarget, seconds: float, *, before: bytes | None = None
    ) -> DeliveryFailure | None:
        if self.refused or target.stream == self.missing:
            return DeliveryFailure("AccessDeniedException")
        return super().put(line, target, seconds, before=before)


class Stdout(FakeStdout):
    """The monitors' own stream. The process is killed after ``left`` lines."""

    left: int | None = None

    def write(self, data: bytes) -> str | None:
        if self.left is not None:
            self.left -= 1
            if self.left < 0:
                raise KilledError
        return super().write(data)


class Instance:
    """An instance and what its monitors have left."""

    def __init__(self, boxes: Sequence[FakeContainer], folder: Path) -> None:
        self._boxes = boxes
        self._folder = folder
        self.streams = Streams()
        self.output = Stdout()

    def live(self, life: Life, *, put_seconds: float = 0) -> FakeInstance:
        fakes = FakeInstance(*self._boxes, folder=self._folder, began=life.began, until=life.until)
        fakes.streams = self.streams
        fakes.output = self.output
        fakes.budget.last_seconds = put_seconds
        self.output.left = life.lines
        if life.is_killed:

            def kill() -> None:
                if fakes.clock.now_ns >= seconds(life.until - 1):
                    raise KilledError

            fakes.on_wait = kill
        try:
            fakes.run()
        except KilledError:
            assert life.is_killed or life.lines is not None
        self.output.left = None
        return fakes

    def lines(self) -> list[dict[str, Any]]:
        texts = [line for _, line in self.streams.lines] + self.output.lines
        return [json.loads(text) for text in texts]

    def reports(self) -> Counter[str]:
        return Counter(
            line["record"]["taskId"] for line in self.lines() if line["type"] == "task.report"
        )

    def checkpoints(self) -> list[dict[str, Any]]:
        return [line for line in self.lines() if line["type"] == "task.checkpoint"]
