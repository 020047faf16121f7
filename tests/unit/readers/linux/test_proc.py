import os
import subprocess
import sys

from profiler.readers.linux import proc


def test_a_process_has_a_name_until_it_ends() -> None:
    with subprocess.Popen((sys.executable, "-c", "input()"), stdin=subprocess.PIPE) as process:
        stat = proc.parse_stat(proc.read(f"/proc/{process.pid}/stat") or b"")
        assert stat is not None
        assert proc.read_live_name(process.pid, stat.started_ticks) == stat.name
        assert proc.read_live_name(process.pid, stat.started_ticks - 1) is None
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert proc.read_live_name(process.pid, stat.started_ticks) is None
