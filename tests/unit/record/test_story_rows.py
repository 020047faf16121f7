"""The rows that outputs tell of a run beside its numbers."""

from profiler.record.record_model import AverageAndMaximum, Metrics
from profiler.record.story_rows import StoryRow, memory_rows


def test_what_the_memory_used_lacks_has_a_row_each() -> None:
    metrics = Metrics(
        max_memory_used_mb=300,
        memory_mapped_file_mb=AverageAndMaximum(max=900),
        memory_huge_pages_mb=AverageAndMaximum(max=64),
    )
    files, huge = memory_rows(metrics)
    assert (files.name, huge.name) == ("files", "huge")
    assert "900 MB" in files.text
    assert huge.sentence == (
        "It also holds up to 64 MB of huge pages, which the memory used lacks."
    )


def test_a_run_that_lacks_nothing_has_no_row() -> None:
    assert memory_rows(Metrics(max_memory_used_mb=300)) == []
    assert StoryRow("files", "it kept a file").sentence == "It kept a file."
