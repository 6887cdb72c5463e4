"""Reports of errors begin with the sentence that says what to do, in Spark's workers only."""

import importlib.machinery
import os
import sys
from collections.abc import Iterator

import pytest

from ledger_client import ChainNotFoundError
from spark_io.errors import OptionError
from spark_io.sentence_first import TEXT_ONLY, sentence_first


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
