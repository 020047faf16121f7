"""The batches that were reported, in a small file on a volume of the instance, for the monitor's
successor.
"""

from collections.abc import Set as AbstractSet
from pathlib import Path

from profiler.core.files import write_atomically
from profiler.core.log import Log
from profiler.monitor.shared_parts import ReportedBatches

# Lines of containers that Docker has removed, before the file is written again.
_MAX_OLD_LINES = 1000


class ReportedFile(ReportedBatches):
    """One Docker id a line, for as long as Docker shows the container.

    Without a writable file, only in memory.
    """

    def __init__(self, path: Path, log: Log) -> None:
        self._path = path
        self._log = log
        self._reported: set[str] = set()
        self._unsure: set[str] = set()
        self._lines = 0
        self._can_write = True

    def load(self) -> None:
        """Read the file; without one, no batch was reported."""
        try:
            lines = self._path.read_text(errors="replace").split("\n")
        except OSError:
            return
        self._reported = set(lines) - {""}
        self._lines = len(lines)

    def has(self, batch: str) -> bool:
        return batch in self._reported

    def is_unsure_of(self, batch: str) -> bool:
        """Whether only the log stream shows if the batch was reported."""
        return batch in self._unsure

    def on_ended_before(self, batch: str) -> None:
        """The batch ended before this monitor began: its report may be on its way, or the file
        may be lost.
        """
        self._unsure.add(batch)

    def on_reported(self, batch: str) -> None:
        """The batch was reported. A file that cannot be written is a warning, once."""
        self._reported.add(batch)
        self._unsure.discard(batch)
        self._lines += 1
        try:
            if self._lines > len(self._reported) + _MAX_OLD_LINES:
                text = "".join(f"{reported}\n" for reported in self._reported)
                write_atomically(self._path, text.encode(), mode=0o600)
                self._lines = len(self._reported)
            else:
                with self._path.open("a") as file:
                    file.write(f"{batch}\n")
            self._can_write = True
        except OSError as error:
            if self._can_write:
                self._can_write = False
                self._log.warning(
                    f"{self._path} cannot be written ({type(error).__name__}): mount a volume of "
                    "the instance there, or a restarted monitor has to look for each report in "
                    "its log stream."
                )

    def keep_only(self, shown: AbstractSet[str]) -> None:
        """Forget the containers that Docker does not show."""
        self._reported &= shown
        self._unsure &= shown

    def forget(self, batch: str) -> None:
        """Docker has removed the container."""
        self._reported.discard(batch)
        self._unsure.discard(batch)
