"""What stays the same in the names of jobs."""

from hypothesis import given
from hypothesis import strategies as st

from profiler.record.job_names import common_name, name_without_changes
from tests.cases import each_case


@each_case(
    ("name", "lasting"),
    [
        ("STAR_ALIGN (WT_REP1)", "STAR_ALIGN"),
        ("STAR_ALIGN_(12)", "STAR_ALIGN"),
        ("NFCORE_RNASEQRNASEQSTAR_ALIGN_WT_REP1", "NFCORE_RNASEQRNASEQSTAR_ALIGN_WT_REP"),
        ("tw-4Bi5xBK6E2Nbhj-FASTQC_S1", "tw-FASTQC_S"),
        ("snakejob-map_reads-0f8fad5b-d9cb-469f-a165-70867728950e", "snakejob-map_reads"),
        ("alice-TrainFlow-123-train-456-0", "alice-TrainFlow-train"),
        ("cromwell_quay_io_0beec7b5ea3f0fdbc95d0dd47f3c5bc275da8a33", "cromwell_quay_io"),
        ("orders-2026-11-01", "orders"),
        ("load_20261101T020000Z", "load"),
        ("2026-11-01-load", "load"),
        ("build-4f2a91c-linux", "build-linux"),
        ("wf::call-3", "wf::call"),
        ("a [x] b", "a b"),
        ("shard#3", "shard"),
        # Words that are like a hash or a number, and are none.
        ("facade", "facade"),
        ("deadbeef", "deadbeef"),
        ("s3copy", "s3copy"),
        ("bwa-mem2mem", "bwa-mem2mem"),
        ("nightly-etl", "nightly-etl"),
        # Nothing would be left.
        ("12345", "12345"),
        ("(a)", "(a)"),
        ("", ""),
    ],
)
def test_uuids_hashes_numbers_and_parentheses_change(name: str, lasting: str) -> None:
    assert name_without_changes(name) == lasting


@each_case(
    ("names", "common"),
    [
        (["BWAMEM2_MEM_S1", "BWAMEM2_MEM_S2"], "BWAMEM2_MEM"),
        (["BWAMEM2_MEM (S1)"], "BWAMEM2_MEM"),
        (["orders-2026-11-01", "orders-2026-11-02"], "orders"),
        (["orders-2026-11-01"], "orders"),
        (["chr1", "chr2"], "chr"),
        (["step", "step-1"], "step"),
        (["12345"], "12345"),
        ([], None),
    ],
)
def test_a_number_that_all_names_have_stays(names: list[str], common: str | None) -> None:
    assert common_name(names) == common


@given(st.text(max_size=200))
def test_of_any_text_something_is_left(name: str) -> None:
    lasting = name_without_changes(name)
    assert bool(lasting) == bool(name)
    assert len(lasting) <= len(name)
    assert common_name([name]) in (name, lasting) or len(common_name([name]) or "") <= len(name)
