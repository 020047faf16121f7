"""Programs that know how their time was spent, as a table.

A row of ``PROGRAMS`` is a command; what its words name in braces is prepared for it
(``tests/timed_runs.py``). The programs are in ``tests/programs``, and time their own phases.
"""

import os
from typing import Literal

from msgspec import Struct

ALONE_POINTS, IN_TURNS_POINTS = 3.0, 6.0
_MANY_WORKERS = 8
# `test`: a few seconds, only Python and what every machine has. `slow`: the same, but long. `waits`:
# servers, frameworks and languages that are installed for it.
Lane = Literal["test", "slow", "waits"]


class Program(Struct, frozen=True, kw_only=True):
    """A command, and how far each part may be from the truth on a machine that does nothing else.

    ``cpus`` is on how many CPUs it computes at most. ``needs_quiet_network``: what it waits for is
    only known while nobody connects to anything in its network, so no other program runs meanwhile.
    """

    command: str
    lane: Lane
    points: float = ALONE_POINTS
    interval_seconds: float = 1.0
    cpus: int = os.cpu_count() or 1
    needs_quiet_network: bool = False


def _beside(
    bystander: str, *, work: str = "sleep", address: str = "", python: str = "python"
) -> str:
    words = f"bystanders {bystander} {work} {{times}} {address}"
    return f"{{{python}}} -m tests.programs.{words}"


# Seconds of the whole, and in turn of computing and of waiting.
_SHORT, _LONG = "2 0.05 0.35", "9 0.3 0.9"


def _short(command: str) -> Program:
    """Two seconds are few looks."""
    return Program(
        command=command.replace("{times}", _SHORT),
        lane="test",
        points=IN_TURNS_POINTS,
        interval_seconds=0.3,
    )


def _long(
    command: str, lane: Lane = "slow", points: float = ALONE_POINTS, cpus: int = 2
) -> Program:
    return Program(command=command.replace("{times}", _LONG), lane=lane, points=points, cpus=cpus)


def _turns(words: str) -> str:
    return f"{{python}} -m tests.programs.turns {words}"


def _shared_lock(name: str, words: str) -> str:
    return f"{{python}} -m tests.programs.shared_locks {name} {words}"


_SHORT_PROGRAMS = {
    "beside nothing": _short(_beside("nothing")),
    "beside a web server (poll of 0.5 s)": _short(_beside("http_server")),
    "beside accept": _short(_beside("accept")),
    "beside CUDA's threads": _short(_beside("cuda")),
    "beside accept: child": _short(_beside("accept", work="child")),
    "beside a subscriber": _short(_beside("subscriber", address="{answers}")),
    "beside a kept connection": _short(_beside("keep_alive", address="{answers}")),
    "beside a forked accept": _short(_beside("forked_accept")),
    "beside a child that nobody reaped": _short(_beside("unreaped", work="child")),
    "beside an asyncio server": _short(_beside("asyncio_server")),
    "child that waits for a file's lock": _short(
        _beside("accept", work="file_lock", address="{locked}")
    ),
    "slow server": _short(_turns("ask_again 2 {port} 0.3")),
    "two processes compute together": _short(_turns("compute_together 2.4 0.08 0.32")),
    "queue between processes": _short(_shared_lock("joinable_queue", "2 - sleep 0.4")),
    "lock that nobody releases": _short(_shared_lock("nobody_releases", "2 - sleep")),
}
_LONG_PROGRAMS = {
    **{
        f"beside {name}": _long(_beside(name))
        for name in (
            "nothing",
            "event",
            "ticker",
            "fifo",
            "http_server",
            "accept",
            "cuda",
            "asyncio_server",
        )
    },
    **{
        f"beside {name}: child": _long(_beside(name, work="child"))
        for name in ("accept", "forked_accept", "forked_recv", "http_server", "unreaped")
    },
    "beside ticker: poll": _long(_beside("ticker", work="poll", address="{answers}")),
    "beside a pool that is left": _long(_beside("left_pool", work="poll", address="{answers}")),
    "beside nothing: limited_time": _long(_beside("nothing", work="limited_time")),
    "beside accept: lock": _long(_beside("accept", work="lock")),
    "beside asyncio_idle": _long(_beside("asyncio_idle", address="{answers}")),
    "beside forked_recv": _long(_beside("forked_recv")),
    "asyncio beside nothing": _long("{python} -m tests.programs.loops nothing sleep {times}"),
    **{
        f"asyncio beside a server: {work}": _long(
            f"{{python}} -m tests.programs.loops server {work} {{times}}"
        )
        for work in ("sleep", "child", "to_thread", "after_thread")
    },
    "asyncio beside rows: sleep": _long(
        "{python} -m tests.programs.loops rows sleep {times} {port}"
    ),
    "asyncio tasks that ask and pause": _long(
        "{python} -m tests.programs.tasks 40 4 0.7 0.3 {port}", points=IN_TURNS_POINTS
    ),
    # Nothing follows the last answer that would tell what the sleep before held back.
    "asyncio: answer after sleep": _long(
        "{python} -m tests.programs.loops nothing answer_after_sleep 40 0.3 0.6 {port}",
        points=IN_TURNS_POINTS,
    ),
    "asyncio beside a timer: row": _long(
        "{python} -m tests.programs.loops clock row {times} {port}"
    ),
    "asyncio beside a thread's rows: sleep": _long(
        "{python} -m tests.programs.loops rows_of_thread sleep 30 0.3 0.9 {port}",
        points=IN_TURNS_POINTS,
    ),
    **{
        f"asyncio beside a {name}: {what}": Program(
            command=f"{{python}} -m tests.programs.loops {bystander} {work} 20 0.3 0.9 {{port}}",
            lane="slow",
            points=IN_TURNS_POINTS,
            cpus=2,
            needs_quiet_network=bystander == "server_and_ticks",
        )
        for name, bystander in (("timer", "ticks"), ("server with a timer", "server_and_ticks"))
        for work, what in (("sleep", "sleep"), ("answer_in_thread", "answer in a thread"))
    },
    "shell beside nothing": _long("bash {sources}/job.sh {times}"),
    "shell beside a listener": _long(
        "bash {sources}/job.sh {times} {python} -c "
        "'import socket; socket.create_server((\"127.0.0.1\", 0)).accept()'"
    ),
    "slow server": _long(_turns("ask_again 10 {port} 0.7")),
    "long polling": _long(_turns("long_poll 12 {port}")),
    "rows every 2 s": _long(_turns("rows 12 {port}")),
    "accept and nobody comes": _long(_turns("accept_nobody 8")),
    "web server to which nobody comes": _long(_turns("serve_nobody 8")),
    "web server whose pool works": _long(_turns("serve_by_pool 10 {visited}")),
    "child of which its parent asks whether it has ended": _long(_turns("ask_for_child 10 {port}")),
    "child of which its parent asks, and works more": _long(
        _turns("ask_for_idle_child 12 {port}"), points=IN_TURNS_POINTS
    ),
    **{
        f"child that {words} its children": _long(
            _turns(f"wait_for_parent 12 {{port}} {how}"), points=IN_TURNS_POINTS
        )
        for how, words in (("asks", "asks for"), ("is_told", "is told of"))
    },
    "child that holds the lock of a file": _long(_turns("locked_by_child 10 {folder}/lock")),
    "signal that does not come": _long(_turns("wait_for_signal 8")),
    "16 threads: network, disk": _long(
        _turns("pool_of_network_and_disk 60 {port} {slow_disk}"), points=IN_TURNS_POINTS
    ),
    "16 threads: network 80 %, disk 20 %": _long(
        _turns("pool_of_network_and_disk 60 {port} {slow_disk} 4"), points=IN_TURNS_POINTS
    ),
    "4 threads: child, network": _long(
        _turns("pool_of_child_and_network 60 {port}"), points=IN_TURNS_POINTS
    ),
    "16 threads: sleep 88 %, network 12 %": _long(
        _turns("pool_of_network_and_sleep 60 {port} 0.12"), points=IN_TURNS_POINTS
    ),
    "32 threads: sleep 30 %, network 70 %": _long(
        _turns("pool_of_network_and_sleep 60 {port} 0.7 32"), points=IN_TURNS_POINTS
    ),
    "two processes compute together, 100/100": _long(
        _turns("compute_together 10 0.1 0.1"), points=IN_TURNS_POINTS
    ),
    "two processes compute together, 50/150": _long(
        _turns("compute_together 10 0.05 0.15"), points=IN_TURNS_POINTS
    ),
    "fetch and compress on one CPU": _long(
        _turns("fetch_and_compress 20 {port}"), points=IN_TURNS_POINTS, cpus=1
    ),
    **{
        f"period of {period} s": _long(_turns(f"periods 60 {{port}} {period} {share}"))
        for period, share in (("1", "0.5"), ("0.5", "0.6"), ("0.2", "0.53"), ("0.37", "0.62"))
    },
    **{  # while it sleeps, there are fewer looks, and then none but the readings
        f"an answer of {share} in each {period} s": _long(
            _turns(f"periods 60 {{port}} {period} {share}")
        )
        for period, share in (("1", "0.06"), ("33", "0.06"))
    },
    **{
        f"pool: {name}": _long(f"{{python}} -m tests.programs.pools {name} 20 {{port}}")
        for name in (
            *("as_they_complete", "wait_for_all", "in_order", "imap_unordered", "join_a_queue"),
            *("to_threads", "processes_as_they_complete", "asked_again_and_again"),
            "slow_generator",
        )
    },
    **{
        f"runner: {name}": _long(f"{{python}} -m tests.programs.runners {name} 20 {{port}}")
        for name in ("lines_of_task", "log_by_thread", "schedule")
    },
    # Each look sees one of five short waits in turn.
    "runner: retries": _long(
        "{python} -m tests.programs.runners retries 40 {port}", points=IN_TURNS_POINTS
    ),
    **{
        f"handed on: {name}": _long(
            f"{{python}} -m tests.programs.handed_on {name} {{times}} {{port}}"
        )
        for name in (
            *("selector", "selector_with_timeout"),
            *("loop", "wheel", "timer", "scheduler"),
        )
    },
    # How its last wait ends, nobody sees.
    "handed on: woken_selector": _long(
        "{python} -m tests.programs.handed_on woken_selector 30 0.15 0.45 {port}",
        points=IN_TURNS_POINTS,
    ),
    **{
        f"server of the run: {name}": _long(
            f"{{python}} -m tests.programs.pools {name} 20 {{port}}"
        )
        for name in (
            *("managers_queue", "unix_server", "tcp_server", "udp_server", "polling_server"),
            *("server_in_a_thread", "loop_that_asks_itself"),
        )
    },
    "server of the run: loop_server_of_new_clients": _long(
        "{python} -m tests.programs.pools loop_server_of_new_clients 20 {port}",
        points=IN_TURNS_POINTS,
    ),
    # Of the last wait, nobody sees how it ended.
    "server of the run: loop_server": _long(
        "{python} -m tests.programs.pools loop_server 30 {port}", points=IN_TURNS_POINTS
    ),
    **{
        f"lock of processes: {name}, {work}": _long(_shared_lock(name, f"12 {where} {work}"))
        for name in (
            *("joinable_queue", "event", "timed_event", "held_lock", "semaphore_in_memory"),
        )
        for work, where in (
            *(("sleep", "-"), ("network", "{port}"), ("compute", "-"), ("disk", "{slow_disk}")),
        )
    },
    **{
        f"lock of threads: {shape}, {work}": _long(
            f"{{python}} -m tests.programs.locks {shape} 12 {work} {{port}}", points=IN_TURNS_POINTS
        )
        for shape in ("one_holder", "in_pieces", "in_turns", "chain")
        for work in ("sleep", "network", "compute")
    },
    **{
        f"chain: {name}": _long(f"{{python}} -m tests.programs.chains {name} 12")
        for name in (
            *("proxy", "proxy_by_select", "unix_proxy_by_select", "threads_of_proxy"),
            *("broker", "unix_broker", "pipes", "terminal"),
        )
    },
    "chain: proxy_for_others": _long(
        "{python} -m tests.programs.chains proxy_for_others 12 {port}"
    ),
    **{
        f"told by: {name}": _long(
            f"{{python}} -m tests.programs.told {name} 15 {{port}}", points=IN_TURNS_POINTS
        )
        for name in (
            *(
                "event",
                "answer_by_event",
                "answer_to_any_thread",
                "time_beside_rows",
                "sleeper_beside_rows",
                "answers_and_times_beside_rows",
                "signal_of_child",
                "handler_of_signal",
                "handler_that_wakes_two",
            ),
            *("files", "files_of_thread", "message_queue", "message", "semaphore"),
            *("pipe_of_processes", "pair_of_processes", "pipe_of_thread", "loop_with_heir"),
            *("queue_for_a_time", "pool_for_each_round"),
        )
    },
    **{
        f"stopped: {wait}": Program(
            command=f"{{python}} -m tests.programs.stopped {wait} 12",
            lane="slow",
            interval_seconds=0.2,
        )
        for wait in ("child", "thread", "pipe", "answer", "file_lock", "memory_lock")
    },
    **{
        f"frozen: {wait}": Program(
            command=f"{{python}} -m tests.programs.stopped {wait} 12 cgroup.freeze {{groups}}",
            lane="slow",
            interval_seconds=0.2,
        )
        for wait in ("child", "pipe")
    },
    **{
        f"uninterruptible: {wait}": _long(
            f"{{python}} -m tests.programs.uninterruptible {wait} 12 {{{where}}}"
        )
        for wait, where in (("read_directly", "folder"), ("sync", "folder"), ("vfork", "vforks"))
    },
    "frozen in a group of version 1": Program(
        command="{python} -m tests.programs.stopped child 12 freezer.state {freezers}",
        lane="slow",
    ),
    **{
        f"io_uring: {name}": _long(f"{{python}} -m tests.programs.rings {name} 9 {{port}}{{ring}}")
        for name in ("timer", "timer_beside_listener", "answer")
    },
    "slow disk": _long(_turns("read 10 {slow_disk}")),
    "slow disk by io_uring": _long(_turns("read_by_ring 10 {slow_disk}{ring}")),
    "sort": _long("{python} -m tests.programs.tools sort 6 {folder}"),
    **{
        f"short children: {name}": _long(
            f"{{python}} -m tests.programs.tools {name} {seconds} {{folder}}",
            points=IN_TURNS_POINTS,
        )
        for seconds, names in (
            (6, ("gzip", "captured", "xargs", "pool")),
            (20, ("double_fork", "ignored")),  # level 1 has a look a second
        )
        for name in names
    },
    "make -j2": _long("{python} -m tests.programs.tools make 6 {folder}", points=IN_TURNS_POINTS),
}


def _java(options: str, work: str = "sleep", bystander: str = "nothing") -> Program:
    """The virtual machine's own threads compile while the program waits."""
    command = f"java {options} -cp {{java}} Idle {bystander} {work} {{times}}"
    return _long(command, "waits", IN_TURNS_POINTS)


def _node(bystander: str, work: str = "sleep") -> Program:
    return _long(f"node {{sources}}/idle.mjs {bystander} {work} {{times}} {{port}}", "waits")


def _go(bystander: str, work: str) -> Program:
    return _long(f"{{go}} {bystander} {work} {{times}} {{port}}", "waits")


def _shell(server: str) -> Program:
    return _long(f"bash {{sources}}/job.sh {{times}} {server}", "waits")


def _framework(name: str, times: str, address: str = "") -> Program:
    command = f"{{frameworks}} -m tests.programs.frameworks {name} {times} {address}"
    return _long(command, "waits", IN_TURNS_POINTS)


def _java_pool(how: str, workers: int) -> Program:
    return _long(f"java -cp {{java}} Pool {how} 15 {workers} {{port}}", "waits", IN_TURNS_POINTS)


def _node_workers(how: str, workers: int) -> Program:
    """Of more processes, each with a dozen threads, a look costs so much that a second has few."""
    seconds = 15 if workers < _MANY_WORKERS else 60
    command = f"node {{sources}}/workers.mjs {how} {seconds} {workers} {{port}}"
    return _long(command, "waits", IN_TURNS_POINTS)


def _joblib(backend: str, workers: int) -> Program:
    command = f"{{frameworks}} -m tests.programs.jobs {backend} 15 {workers} {{port}}"
    return _long(command, "waits", IN_TURNS_POINTS)


_JMX = (
    "-Dcom.sun.management.jmxremote.port=0 -Dcom.sun.management.jmxremote.ssl=false "
    "-Dcom.sun.management.jmxremote.authenticate=false"
)
_JDWP = "-agentlib:jdwp=transport=dt_socket,server=y,suspend=n,address=127.0.0.1:0"
_PROGRAMS_OF_OTHERS = {
    **{f"Java with JMX: {work}": _java(_JMX, work) for work in ("sleep", "child", "queue")},
    "Java with jdwp": _java(_JDWP),
    "Java with jdwp: child": _java(_JDWP, "child"),
    "Java's HttpServer": _java("-Xshare:auto", bystander="server"),
    **{
        f"Java's virtual threads{pollers}: {work}": _long(
            f"{{virtual}} {option} Virtual {work} {{times}} {{port}}", "waits", IN_TURNS_POINTS
        )
        for pollers, option in (("", ""), (" and their own pollers", "-Djdk.pollerMode=1"))
        for work in ("ask", "reconnect", "sleep")
    },
    **{
        f"Java's lock that a downloader holds: {how}": _long(
            f"java -cp {{java}} Locks {how} 12 {{port}}", "waits", IN_TURNS_POINTS
        )
        for how in ("synchronized", "reentrant")
    },
    **{
        f"Go serves: {work}": _go("serve", work) for work in ("sleep", "child", "channel", "locked")
    },
    **{
        f"Go keeps a connection: {work}": _go("keep_alive", work)
        for work in ("sleep", "child", "locked")
    },
    **{f"Go reads rows: {work}": _go("rows", work) for work in ("sleep", "channel")},
    "Node": _node("nothing"),
    "Node reads rows": _node("rows"),
    "Node after a fetch": _node("fetch"),
    "Node after a fetch: child": _node("fetch", "child"),
    "Node with an agent that keeps": _node("agent"),
    "Node that serves": _node("server"),
    **{
        f"beside {name}": _long(
            _beside(name, address=address, python="frameworks"), "waits", IN_TURNS_POINTS
        )
        for name, address in (
            ("debugpy", ""),
            ("redis", "{redis}"),
            ("redis_thread", "{redis}"),
            ("postgres", "{postgres}"),
            ("grpc", ""),
        )
    },
    **{
        f"asyncio beside {name}: {work}": _long(
            f"{{frameworks}} -m tests.programs.loops {name} {work} {{times}} {port}", "waits"
        )
        for name, port in (("aiohttp", "{port}"), ("redis", "{redis_port}"))
        for work in ("sleep", "child", "to_thread")
    },
    "shell beside socat": _shell("socat TCP-LISTEN:0,bind=127.0.0.1 -"),
    "shell beside sshd": _shell("{sshd}"),
    "shell beside dbus-daemon": _shell(
        "dbus-daemon --session --nofork --address=unix:tmpdir={folder}"
    ),
    "shell beside ssh-agent": _shell("ssh-agent -D"),
    "shell beside a Go server": _shell("{go} serve sleep 60 0.001 59"),
    "shell beside redis-server": _shell(
        "redis-server --port 0 --dir {folder} --unixsocket {folder}/socket"
    ),
    "shell beside nginx": _shell("{nginx}"),
    "shell beside node": _shell("node {sources}/idle.mjs server sleep 60 0.001 59 0"),
    "psql": _long("{python} -m tests.programs.tools psql 8 {postgres}", "waits"),
    "dask": _framework("dask", "12 0.5 0.5"),
    "dask in threads": _framework("dask_threads", "12 0.5 0.5"),
    "papermill": _framework("papermill", "12 0.5 0.5"),
    "watchdog": _framework("watchdog", "15 0.25 0.9"),
    "PySpark": _framework("spark", "30 0.5 0.5"),
    **{
        f"Java's pool of {workers}: {how}": _java_pool(how, workers)
        for how, workers in (
            *(("invoke_all", 2), ("get", 12), ("get_for_a_time", 2), ("completion", 12)),
        )
    },
    # Long enough that the looks leave threads of the virtual machine for later ones.
    "Java's pool of 4: futures": _long(
        "java -cp {java} Pool futures 30 4 {port}", "waits", IN_TURNS_POINTS
    ),
    **{
        f"Node's {workers} workers: {how}": _node_workers(how, workers)
        for how, workers in (
            *(("threads", 1), ("threads", 8)),
            *(("cluster", 3), ("cluster", 8), ("fork", 3)),
        )
    },
    **{
        f"Node's worker that tells by {how}: {work}": _long(
            f"node {{sources}}/messages.mjs {how} {work} 20 0.2 0.7 {{port}}", "waits"
        )
        for how in ("message", "channel", "atomics")
        for work in ("fetch", "timer")
    },
    **{
        f"joblib's {workers} workers: {backend}": _joblib(backend, workers)
        for backend, workers in (
            *(("loky", 2), ("loky", 6), ("multiprocessing", 2), ("threading", 6)),
        )
    },
    **{
        f"DuckDB: {how}": _long(
            f"{{frameworks}} -m tests.programs.queries {how} 15", "waits", IN_TURNS_POINTS
        )
        for how in ("beside", "one", "four")
    },
    # Its jobs wait, and it looks after them again and again.
    **{
        f"GNU parallel, {jobs}": _long(f"parallel -N0 {jobs} {job}", "waits", IN_TURNS_POINTS)
        for jobs, job in (
            ("-j1", f"{_beside('nothing')} ::: 1 2"),
            ("-j2", f"{_turns('ask_again 5 {port} 0.7')} ::: 1 2 3 4"),
            ("-j4 --lb", f"{_beside('nothing')} ::: 1 2 3 4"),
        )
    },
    **{
        f"celery {pool}": _framework(f"celery_{pool}", "12 0.5 0.5", "{redis}")
        for pool in ("solo", "prefork", "threads")
    },
}
PROGRAMS: dict[str, Program] = {
    **{f"short: {name}": program for name, program in _SHORT_PROGRAMS.items()},
    **_LONG_PROGRAMS,
    **_PROGRAMS_OF_OTHERS,
}


def of_lane(lane: Lane) -> dict[str, Program]:
    return {name: program for name, program in PROGRAMS.items() if program.lane == lane}
