"""Spark's workers keep clients, and their reports of errors begin with what to do."""

import gc
import importlib.machinery
import os
import sys
from collections.abc import Iterator

import pytest

pytest.importorskip("pyarrow", reason="needs the extra `spark`")

from ledger_client import ChainNotFoundError, LinkedLedger
from metadata.ids import LedgerId
from spark_io import workers
from spark_io.common_options import OptionReader, client_options
from spark_io.errors import NoQueryIdError, OptionError
from spark_io.ledgers.options import WriteOptions
from spark_io.ledgers.write import LedgerStreamWriter, WrittenLedgers
from spark_io.topics.options import TopicWriteOptions
from spark_io.topics.write import Columns, HeldRows, OnceStreamWriter
from spark_io.workers import (
    TEXT_ONLY,
    PerCluster,
    query_id_of_job,
    query_id_of_stream,
    sentence_first,
)


@pytest.mark.parametrize("is_worker", [False, True])
def test_imports_are_kept_out_of_garbage_collections_of_workers_only(
    monkeypatch: pytest.MonkeyPatch, *, is_worker: bool
) -> None:
    monkeypatch.setattr(workers, "is_worker", lambda: is_worker)
    monkeypatch.setattr(workers, "_clients", PerCluster(workers.open_client))
    before = gc.get_freeze_count()
    address = {"metadata": "zk://127.0.0.1:1/none"}
    client = workers.client_of(client_options(OptionReader(address, ("metadata",))))
    try:
        assert (gc.get_freeze_count() > before) is is_worker
    finally:
        gc.unfreeze()
        client.close()


@pytest.fixture
def as_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TEXT_ONLY, "")  # removed again after the test
    spec = importlib.machinery.ModuleSpec("pyspark.daemon", None)
    monkeypatch.setattr(sys.modules["__main__"], "__spec__", spec, raising=False)


ERRORS = [OptionError("chain", "missing"), ChainNotFoundError("there is no chain 'events'")]


@pytest.mark.usefixtures("as_worker")
@pytest.mark.parametrize("raised", ERRORS)
def test_a_worker_reports_the_text_and_logs_the_traceback(
    raised: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    @sentence_first()
    def fail() -> None:
        raise raised

    with pytest.raises(type(raised)) as caught:
        fail()
    assert caught.value is raised
    assert os.environ[TEXT_ONLY] == "1"
    assert "in fail" in caplog.text
    assert str(raised) in caplog.text


@pytest.mark.usefixtures("as_worker")
def test_other_errors_and_ends_of_generators_keep_their_traceback() -> None:
    def numbers() -> Iterator[int]:
        with sentence_first():
            yield from (1, 2)

    found = numbers()
    assert next(found) == 1
    found.close()  # type: ignore[attr-defined]  # a generator has it
    with pytest.raises(KeyError), sentence_first():
        raise KeyError("a bug")
    assert not os.environ[TEXT_ONLY]


@pytest.mark.parametrize("raised", ERRORS)
def test_other_processes_are_not_changed(raised: Exception) -> None:
    with pytest.raises(type(raised)), sentence_first():
        raise raised
    assert TEXT_ONLY not in os.environ


def test_a_stream_needs_the_id_of_its_query_and_a_job_may_have_one() -> None:
    assert query_id_of_stream(["", "q", ""]) == query_id_of_job(["", "q", ""]) == "q"
    assert query_id_of_job([""]) == ""
    with pytest.raises(NoQueryIdError):
        query_id_of_stream([""])


@pytest.mark.parametrize("application", [{}, {"txnAppId": "nightly"}])
def test_a_stream_without_the_id_of_its_query_writes_nothing(application: dict[str, str]) -> None:
    """Without the id nothing distinguishes a batch that is run again from one of another query."""
    access = {"metadata": "zk://127.0.0.1:1/none"} | application
    into_chain = LedgerStreamWriter(WriteOptions.of({"chain": "c"} | access), overwrite=False)
    written = WrittenLedgers((LinkedLedger(LedgerId(1), 1, None, None),), 0, b"", "")
    with pytest.raises(NoQueryIdError, match="nothing was written"):
        into_chain.commit([written], 0)
    options = TopicWriteOptions.of({"topic": "t", "exactlyOnce": "true"} | access)
    into_topic = OnceStreamWriter(options, Columns(False, False, False, False), ("h:1",))
    with pytest.raises(NoQueryIdError, match="nothing was written"):
        into_topic.commit([HeldRows(b"rows", "")], 0)
