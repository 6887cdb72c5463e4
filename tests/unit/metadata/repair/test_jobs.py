"""Jobs of repair: names in the order of the work, and stored form."""

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from metadata.errors import MetadataFormatError
from metadata.ids import LEDGER_ID_MAX, LedgerId
from metadata.repair.jobs import (
    BYTES_MAX,
    JOB_CODEC,
    URGENCY_MAX,
    Job,
    JobName,
    JobState,
    job_name_of,
)

NAME = JobName(2, 5_000, LedgerId(17))
QUEUED = Job(NAME, ("bookie-a is lost",), 1_700_000_000_000)
BLOCKED = Job(NAME, (), 0, JobState.BLOCKED, "needs 4 bookies, has 3")

names = st.builds(
    JobName,
    st.integers(0, URGENCY_MAX),
    st.integers(0, BYTES_MAX),
    st.integers(0, LEDGER_ID_MAX).map(LedgerId),
)


@given(names)
def test_a_name_is_read_back(name: JobName) -> None:
    assert job_name_of(name.text) == name


@given(names, names)
def test_names_sort_as_jobs_are_done(one: JobName, other: JobName) -> None:
    assert (one < other) == (one.text < other.text)


def test_a_name_reads_as_documented() -> None:
    assert NAME.text == "2-0000000000005000-0000000000000000017"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "2-5000-17",
        "12-0000000000005000-0000000000000000017",
        "2-000000000000500a-0000000000000000017",
        "2-0000000000005000-9999999999999999999",
        "2-0000000000005000-0000000000000000017-",
        "²-0000000000005000-0000000000000000017",
    ],
)
def test_other_names_are_no_jobs(text: str) -> None:
    assert job_name_of(text) is None


@pytest.mark.parametrize("job", [QUEUED, BLOCKED])
def test_a_job_round_trips(job: Job) -> None:
    assert JOB_CODEC.unpack("a job", JOB_CODEC.pack("a job", job), name=NAME) == job
    assert job.ledger_id == 17


@pytest.mark.parametrize(
    "fields",
    [
        [1, [7], 0, "queued", ""],
        [1, [], 0, "done", ""],
        [1, [], 0, "queued", None],
        [1, [], -1, "queued", ""],
        [1, [], 0, "queued"],
        [2, [], 0, "queued", ""],
    ],
)
def test_other_values_are_a_format_error(fields: list[object]) -> None:
    with pytest.raises(MetadataFormatError, match="a job"):
        JOB_CODEC.unpack("a job", msgpack.packb(fields), name=NAME)
