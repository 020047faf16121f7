"""Output that may not be read, and the log on it: JSON lines."""

import json
import os
import pty
import select
import subprocess
import sys
import termios
import threading

import pytest

from profiler.core import deadline_writer
from profiler.core.deadline_writer import Output
from profiler.core.log import JsonLog
from tests.terminals import Pipe, is_readable
from tools.waiting import LIMIT_SECONDS, wait_until

LONG = b"a" * 200_000 + b"\n"  # more than a pipe holds
NOT_READ = "takes no more bytes because nothing reads it"


def wait_for(output: Output) -> None:
    wait_until(lambda: not output._is_writing, "the output")


def read_all(pipe: Pipe, size: int) -> bytes:
    found = b""
    while len(found) < size:
        found += os.read(pipe.read_end, size - len(found))
    return found


def test_a_full_pipe_drops_lines_and_counts_them(pipe: Pipe) -> None:
    pipe.fill()
    output = Output(pipe.write_end, patience_seconds=0)
    assert [output.write(b"%d\n" % number) for number in range(4)] == [NOT_READ] * 4
    assert output._is_writing
    assert output.drain(0), "nothing has to be kept"
    pipe.drop_filling()
    wait_for(output)
    output.write(b"after\n")
    wait_for(output)
    assert pipe.read_lines() == [b"0", b"after"]
    assert output.dropped == 3


def test_a_line_that_was_begun_is_completed_before_the_next(pipe: Pipe) -> None:
    output = Output(pipe.write_end, patience_seconds=0)
    output.write(LONG)
    assert is_readable(pipe.read_end, LIMIT_SECONDS), "a part of the line is in the pipe"
    assert output.write(b"dropped\n") is not None
    output.keep(b"kept\n")
    assert not output.drain(0)
    assert read_all(pipe, len(LONG)) == LONG
    assert output.drain(LIMIT_SECONDS)
    assert pipe.read_lines() == [b"kept"]
    assert output.write(b"taken\n") in (None, NOT_READ)
    wait_for(output)
    assert pipe.read_lines() == [b"taken"]


def test_lines_of_many_threads_do_not_mix(pipe: Pipe) -> None:
    output = Output(pipe.write_end, patience_seconds=LIMIT_SECONDS)
    lines = [b"%d" % number * 9000 + b"\n" for number in range(9)]
    threads = [threading.Thread(target=output.write, args=(line,)) for line in lines]
    for thread in threads:
        thread.start()
    found = read_all(pipe, sum(map(len, lines)))
    for thread in threads:
        thread.join()
    assert sorted(found.splitlines(keepends=True)) == lines
    assert output.dropped == 0


def test_a_descriptor_that_is_not_blocking_is_waited_for(pipe: Pipe) -> None:
    os.set_blocking(pipe.write_end, False)
    output = Output(pipe.write_end, patience_seconds=0)
    output.write(LONG)
    assert read_all(pipe, len(LONG)) == LONG
    wait_for(output)


def test_what_follows_a_line_that_was_cut_off_is_a_line_of_its_own() -> None:
    ours, theirs = os.pipe()
    output = Output(theirs, patience_seconds=0)
    output.write(LONG)
    assert is_readable(ours, LIMIT_SECONDS)
    os.close(ours)  # the write fails in the middle of the line
    wait_for(output)
    with Pipe() as pipe:
        os.dup2(pipe.write_end, theirs)
        output.keep(b"next\n")
        wait_for(output)
        assert pipe.read_lines() == [b"", b"next"]
    os.close(theirs)


def test_a_writer_that_gets_its_processor_late_drops_no_line(
    pipe: Pipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The output is read, so that it is not called unread and the next line is not dropped."""
    may_write, write_blocks = threading.Event(), Output._write_blocks

    def write_late(output: Output) -> None:
        may_write.wait()
        write_blocks(output)

    class AskedOutput(Output):
        def _poll(self) -> select.poll:
            may_write.set()
            return super()._poll()

    monkeypatch.setattr(Output, "_write_blocks", write_late)
    monkeypatch.setattr(deadline_writer, "_MAX_LATE_SECONDS", LIMIT_SECONDS)
    output = AskedOutput(pipe.write_end, patience_seconds=0)
    assert output.write(b"one\n") is None
    assert output.write(b"two\n") is None
    assert pipe.read_lines() == [b"one", b"two"]
    assert output.dropped == 0


@pytest.mark.usefixtures("no_threads")
def test_lines_are_written_if_no_thread_can_be_started(pipe: Pipe) -> None:
    output = Output(pipe.write_end)
    assert output.write(b"one\n") is None
    assert output.keep(b"two\n") is None
    assert output.drain(0)
    assert pipe.read_lines() == [b"one", b"two"]


IN_THE_BACKGROUND = """
import fcntl, os, sys, termios
from profiler.cli.progress import stderr_rows
from profiler.core.deadline_writer import Output
fcntl.ioctl(2, termios.TIOCSCTTY, 0)
child = os.fork()
if child == 0:
    os.setpgid(0, 0)
    stderr_rows(lambda text: os.write(2, text.encode())).draw(lambda _: [[("row", "")]])
    Output(2).write(b"report\\n")
    os._exit(0)
_, status = os.waitpid(child, os.WUNTRACED)
sys.exit(os.WIFSTOPPED(status))
"""


def test_a_terminal_that_stops_its_background_jobs_does_not_stop_this_process() -> None:
    ours, theirs = pty.openpty()
    settings = termios.tcgetattr(theirs)
    settings[3] |= termios.TOSTOP
    termios.tcsetattr(theirs, termios.TCSANOW, settings)
    termios.tcsetwinsize(theirs, (24, 80))
    done = subprocess.run(
        [sys.executable, "-c", IN_THE_BACKGROUND],
        stderr=theirs,
        start_new_session=True,
        check=False,
    )
    assert done.returncode == 0
    assert os.read(ours, 100) == b"report\r\n"
    os.close(ours)
    os.close(theirs)


def test_an_output_that_is_closed_is_a_reason() -> None:
    read, write = os.pipe()
    os.close(read)
    assert Output(write, LIMIT_SECONDS).write(b"line\n") == "cannot be written (Broken pipe)"
    JsonLog(Output(write)).warning("Nobody reads this.")
    os.close(write)


def test_nobody_waits_for_an_output_that_is_known_not_to_be_read(pipe: Pipe) -> None:
    """Only the first line waits: for each of them it would take longer than a test may."""
    pipe.fill()
    output = Output(pipe.write_end, patience_seconds=0.5)
    lines = [b"%d" % number for number in range(1000)]
    for line in lines:
        assert output.keep(line + b"\n") is not None
    pipe.drop_filling()
    assert output.drain(LIMIT_SECONDS)
    assert pipe.read_lines() == lines


def test_log_lines_are_json(pipe: Pipe) -> None:
    log = JsonLog(Output(pipe.write_end))
    log.error("It broke.", reason='with "quotes"\nand a newline')
    log.info("Fine.")
    first, second = [json.loads(line) for line in pipe.read_lines()]
    assert first["level"] == "error"
    assert first["event"] == "It broke."
    assert first["reason"] == 'with "quotes"\nand a newline'
    assert second["level"] == "info"
    assert first["timestamp"].endswith("Z")


def test_errors_wait_for_a_reader_and_other_lines_are_dropped(pipe: Pipe) -> None:
    pipe.fill()
    output = Output(pipe.write_end, patience_seconds=0)
    log = JsonLog(output)
    for _ in range(4):
        log.warning("line")
    log.error("error")
    assert not output.drain(0)
    pipe.drop_filling()
    assert output.drain(LIMIT_SECONDS)
    wait_for(output)
    log.info("last")
    wait_for(output)
    lines = [json.loads(line) for line in pipe.read_lines()]
    assert [line["event"] for line in lines] == ["line", "error", "last"]
