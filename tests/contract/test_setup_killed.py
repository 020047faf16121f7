"""``setup stack`` and ``setup image`` that are killed or met by a second person at each of their
calls, or throttled from one on: the same command does the rest, or what is left was named.
"""

import json
from collections.abc import Callable, Mapping

import pytest

from tests.fake_registry import IMAGE, Registry, built
from tests.nth_calls import Failure, KilledError, NthCallFails
from tests.setup_world import (
    ACTS,
    GROUP,
    VALUES,
    Act,
    World,
    asking,
    deployed,
    forwarder_zip,
    removed,
    tried,
)

WRITES = ("create", "put", "delete", "execute")
# The command for the filter that the stack's own parameters name no more.
FILTER = "delete-subscription-filter --log-group-name /ecs/old --filter-name tp-groups"


class EndlessError(Exception):
    """The command waits for what does not come."""


@pytest.fixture(autouse=True)
def waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """No wait takes time, and none is endless."""
    left = iter(range(100_000))

    def sleep(*_: object) -> None:
        if next(left, None) is None:
            raise EndlessError

    monkeypatch.setattr("profiler.core.clock.SystemClock.sleep", sleep)


@pytest.fixture(scope="module")
def zip_file(tmp_path_factory: pytest.TempPathFactory) -> str:
    return forwarder_zip(tmp_path_factory.mktemp("forwarder"))


def done_at_once(
    act: Act, parameters: Mapping[str, str] | None, zip_file: str
) -> tuple[tuple[object, ...], list[str]]:
    """What the act leaves when nothing happens, and its calls."""
    world = World(parameters)
    calls = NthCallFails(world.open)
    assert tried(act, calls, zip_file) == (0, "")
    return world.state(), calls.calls


def carried_on(world: World, act: Act, zip_file: str) -> tuple[int, str]:
    """The command once more, and the name of what was left taken as said."""
    return tried(act, NthCallFails(world.open), zip_file)


def check_next(world: World, act: Act, zip_file: str, said: str) -> None:
    """The next command does the rest; a filter that was named to the user is deleted by hand."""
    assert carried_on(world, act, zip_file) == (0, ""), said
    if FILTER in said:
        world.filters["/ecs/old"] = {}


@ACTS
@pytest.mark.parametrize("failure", ["denied", "lost"])
def test_a_stack_whose_command_is_killed_is_right_after_the_next_one(
    act: Act,
    parameters: Mapping[str, str] | None,
    failure: Failure,
    zip_file: str,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """SIGKILL before AWS has carried a write out, and after it."""
    wanted, names = done_at_once(act, parameters, zip_file)
    writes = [nth for nth, name in enumerate(names, 1) if name.startswith(WRITES)]
    assert len(writes) >= (2 if act is removed else 5)
    for nth in writes:
        world = World(parameters)
        capfd.readouterr()
        with pytest.raises(KilledError):
            act(NthCallFails(world.open, nth, failure, is_killed=True), zip_file)
        said = "".join(capfd.readouterr())
        where = (nth, names[nth - 1], said)
        check_next(world, act, zip_file, said)
        assert world.state() == wanted, where


@pytest.mark.parametrize(
    ("act", "name"), [(deployed, "execute_change_set"), (removed, "delete_stack")]
)
def test_the_next_command_waits_for_a_change_that_a_killed_one_has_begun(
    act: Act, name: str, zip_file: str
) -> None:
    wanted, names = done_at_once(act, VALUES, zip_file)
    world = World(VALUES)
    with pytest.raises(KilledError):
        act(NthCallFails(world.open, names.index(name) + 1, "lost", is_killed=True), zip_file)
    ended = world.cloudformation.stack
    world.cloudformation.stack = {"StackStatus": "UPDATE_IN_PROGRESS", "Parameters": []}
    before = world.state()
    code, error = carried_on(world, act, zip_file)
    assert (code, world.state()) == (1, before)
    assert "wait, and run the command again" in error
    world.cloudformation.stack = ended
    assert carried_on(world, act, zip_file) == (0, "")
    world.filters["/ecs/old"] = {}
    assert world.state() == wanted


def stays(printed: str) -> list[str]:
    """What stays, by what a command has printed."""
    return [line for line in printed.splitlines() if line.startswith("  ")]


@pytest.mark.parametrize("failure", ["denied", "lost"])
def test_what_stays_of_a_stack_is_said_after_a_deletion_that_was_killed(
    failure: Failure, zip_file: str, capfd: pytest.CaptureFixture[str]
) -> None:
    names = done_at_once(removed, VALUES, zip_file)[1]
    wanted = stays(capfd.readouterr().out)
    assert len(wanted) == 2  # the indices, and the log groups of the batches
    for nth in range(names.index("delete_stack") + 1, len(names) + 1):
        world = World(VALUES)
        with pytest.raises(KilledError):
            removed(NthCallFails(world.open, nth, failure, is_killed=True), zip_file)
        capfd.readouterr()
        assert carried_on(world, removed, zip_file) == (0, "")
        assert stays(capfd.readouterr().out) == wanted, (nth, names[nth - 1])


def test_a_deleted_stack_is_no_error_without_the_right_to_list_it(
    zip_file: str, capfd: pytest.CaptureFixture[str]
) -> None:
    world = World(VALUES)
    assert carried_on(world, removed, zip_file) == (0, "")
    counted = NthCallFails(world.open)
    assert tried(removed, counted, zip_file) == (0, "")
    of_the_last = ("list_stacks", "describe_stacks", "describe_stack_events")
    assert counted.calls == ["describe_stacks", *of_the_last, "describe_stacks"]
    for nth in range(2, len(counted.calls) + 1):
        capfd.readouterr()
        assert tried(removed, NthCallFails(world.open, nth), zip_file) == (0, "")
        printed = capfd.readouterr()
        assert "AWS refused (AccessDenied" in printed.err
        if nth == len(counted.calls):  # the other forwarders
            assert "which another forwarder may use" in printed.out
            continue
        assert printed.out == "There is no stack tp: nothing to delete.\n"
        assert "What stays of a stack that was deleted before is unknown." in printed.err


@ACTS
def test_a_stack_whose_calls_are_throttled_from_one_on_is_right_after_the_next_command(
    act: Act, parameters: Mapping[str, str] | None, zip_file: str, capfd: pytest.CaptureFixture[str]
) -> None:
    wanted, names = done_at_once(act, parameters, zip_file)
    for nth in range(1, len(names) + 1):
        world = World(parameters)
        capfd.readouterr()
        failing = NthCallFails(world.open, nth, "throttled", is_lasting=True)
        code, error = tried(act, failing, zip_file)
        said = error + "".join(capfd.readouterr())
        where = (nth, names[nth - 1], said)
        assert "wait a minute" in said, where
        assert code == 1 or world.state() == wanted, where
        check_next(world, act, zip_file, said)
        assert world.state() == wanted, where


@ACTS
@pytest.mark.parametrize("failure", ["denied", "lost"])
def test_two_people_at_once_leave_the_stack_as_one_would(
    act: Act,
    parameters: Mapping[str, str] | None,
    failure: Failure,
    zip_file: str,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """The second one gives the same command before a call of the first one's, or after it."""
    wanted, names = done_at_once(act, parameters, zip_file)
    for nth, name in enumerate(names, 1):
        world = World(parameters)
        second: list[tuple[int, str]] = []

        def meanwhile(second: list[tuple[int, str]] = second, world: World = world) -> None:
            second.append(carried_on(world, act, zip_file))

        capfd.readouterr()
        met = NthCallFails(world.open, nth, failure, meanwhile=meanwhile)
        first = tried(act, met, zip_file)
        said = "".join(capfd.readouterr())
        where = (nth, name, first, second, said)
        if world.state() != wanted:
            assert 1 in (first[0], second[0][0]), where
            assert carried_on(world, act, zip_file) == (0, ""), where
        if FILTER in f"{first}{second}{said}":
            world.filters["/ecs/old"] = {}
        assert world.state() == wanted, where


ONE, OTHER = asking(GROUP, "slack_failure_webhook_url"), asking("/ecs/b", "slack_success_url")


@pytest.mark.parametrize("failure", ["denied", "lost"])
@pytest.mark.parametrize(
    ("act", "other", "parameters"),
    [(ONE, OTHER, VALUES), (ONE, OTHER, None), (ONE, removed, VALUES), (removed, OTHER, VALUES)],
    ids=["update", "create", "delete-meanwhile", "update-meanwhile"],
)
def test_of_two_people_with_different_wishes_nothing_is_lost_unsaid(
    act: Act,
    other: Act,
    parameters: Mapping[str, str] | None,
    failure: Failure,
    zip_file: str,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """A log group is subscribed if the stack names it, and the secret has the settings of both; or
    the first one is told which filter or which settings are not as they should be.
    """
    names = done_at_once(act, parameters, zip_file)[1]
    if act is removed:  # the stack is read just before: no update fits in between
        names = names[: names.index("delete_stack") - 1]
    for nth, name in enumerate(names, 1):
        world = World(parameters)
        second: list[tuple[int, str]] = []

        def meanwhile(second: list[tuple[int, str]] = second, world: World = world) -> None:
            second.append(carried_on(world, other, zip_file))
            capfd.readouterr()

        met = NthCallFails(world.open, nth, failure, meanwhile=meanwhile)
        first = tried(act, met, zip_file)
        said = first[1] + "".join(capfd.readouterr())
        where = (nth, name, first, second, said)
        named = world.named_groups()
        for group, filters in world.filters.items():
            if filters and group not in named:
                told = (
                    f"delete-subscription-filter --log-group-name {group} --filter-name tp-groups"
                )
                assert first[0] == 1, where
                assert told in said, where
        settings = json.loads(world.secrets.get("tp/slack", "{}"))
        if removed not in (act, other):
            assert "slack_success_url" in settings, where
            assert first[0] == 1 or len(settings) == 2, where


def each_call(
    happens: Callable[[Registry, int], str],
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """At each call of ``setup image``: something happens, and the command gives the image then."""
    whole = Registry()
    calls = NthCallFails(whole.open)
    assert built(calls, whole, monkeypatch) == ""
    for nth, name in enumerate(calls.calls, 1):
        registry = Registry()
        error = happens(registry, nth)
        assert error or registry.images == [IMAGE], (nth, name)
        capfd.readouterr()
        assert built(NthCallFails(registry.open), registry, monkeypatch) == "", (nth, name, error)
        assert registry.images == [IMAGE], (nth, name)
        assert f"{IMAGE}\n" in capfd.readouterr().out


@pytest.mark.parametrize("failure", ["denied", "lost"])
def test_an_image_whose_command_is_killed_is_pushed_once(
    failure: Failure, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def killed(registry: Registry, nth: int) -> str:
        with pytest.raises(KilledError):
            built(NthCallFails(registry.open, nth, failure, is_killed=True), registry, monkeypatch)
        return "killed"

    each_call(killed, monkeypatch, capfd)


def test_an_image_whose_calls_are_throttled_from_one_on_is_pushed_once(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def throttled(registry: Registry, nth: int) -> str:
        failing = NthCallFails(registry.open, nth, "throttled", is_lasting=True)
        error = built(failing, registry, monkeypatch)
        assert "wait a minute" in error + "".join(capfd.readouterr()), nth
        return error

    each_call(throttled, monkeypatch, capfd)


@pytest.mark.parametrize("failure", ["denied", "lost"])
def test_an_image_that_two_people_make_at_once_is_pushed_once(
    failure: Failure, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """The second one gives the same command before a call of the first one's, or after it."""

    def met(registry: Registry, nth: int) -> str:
        second: list[str] = []

        def meanwhile() -> None:
            second.append(built(NthCallFails(registry.open), registry, monkeypatch))

        calls = NthCallFails(registry.open, nth, failure, meanwhile=meanwhile)
        first = built(calls, registry, monkeypatch)
        assert second == [""], (nth, first)
        return first

    each_call(met, monkeypatch, capfd)
