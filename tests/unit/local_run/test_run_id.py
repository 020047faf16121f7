"""A run's id is what Python's ``uuid`` makes."""

from uuid import RFC_4122, UUID

from profiler.local_run.prepared_run import new_run_id


def test_a_run_has_a_random_uuid() -> None:
    ids = {new_run_id() for _ in range(64)}
    assert len(ids) == 64
    for run_id in ids:
        number = UUID(run_id)
        assert (str(number), number.version, number.variant) == (run_id, 4, RFC_4122)
    digits = zip(*ids, strict=True)
    assert [len(set(seen)) for seen in digits if len(set(seen)) < 8] == [1, 1, 1, 1, 4, 1]
