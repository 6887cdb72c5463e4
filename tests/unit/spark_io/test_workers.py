"""Spark's workers keep clients, and their reports of errors begin with what to do."""

import gc
import importlib.machinery
import os
import sys
from collections.abc import Iterator

import pytest

pytest.importorskip("pyarrow", reason="needs the extra `spark`")

from ledger_client import ChainNotFoundError
from spark_io import workers
from spark_io.common_options import OptionReader, client_options
from spark_io.errors import OptionError
from spark_io.workers import TEXT_ONLY, PerCluster, sentence_first


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
