"""Errors of the `topic` source and sink begin with their text in Spark's workers."""

import importlib.machinery
import os
import sys
from dataclasses import replace

import pytest

pytest.importorskip("pyarrow", reason="needs the extra `spark`")
pytest.importorskip("pyspark", reason="needs the extra `spark`")

import pyarrow as pa
from pyspark.sql.types import StructType

from spark_io.errors import OptionError, SchemaError, TooManyRowsError
from spark_io.topics.options import TopicWriteOptions
from spark_io.topics.source import TopicDataSource
from spark_io.topics.write import (
    HELD_BYTES_MAX,
    Columns,
    HeldRows,
    OnceBatchWriter,
)
from spark_io.workers import TEXT_ONLY

OPTIONS = TopicWriteOptions.of(
    {"metadata": "zk://127.0.0.1:1/none", "topic": "t", "exactlyOnce": "true"}
)
VALUES = Columns(has_key=False, has_topic=False, has_partition=False, has_headers=False)
TOO_MANY = HeldRows(b"x" * (HELD_BYTES_MAX + 1), "")


@pytest.fixture(autouse=True)
def as_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TEXT_ONLY, "")  # removed again after the test
    spec = importlib.machinery.ModuleSpec("pyspark.daemon", None)
    monkeypatch.setattr(sys.modules["__main__"], "__spec__", spec, raising=False)


def test_columns_that_the_source_does_not_have() -> None:
    source = TopicDataSource({"topic": "t"})
    with pytest.raises(SchemaError):
        source.reader(StructType())
    assert os.environ[TEXT_ONLY] == "1"


@pytest.mark.parametrize("call", ["initialOffset", "latestOffset"])
def test_a_stream_is_refused_at_its_first_call(call: str) -> None:
    """PySpark would hide an error of `streamReader`."""
    reader = TopicDataSource({"topic": "t"}).streamReader(StructType())
    with pytest.raises(SchemaError):
        getattr(reader, call)()
    assert os.environ[TEXT_ONLY] == "1"


@pytest.mark.parametrize("kind", ["writer", "streamWriter"])
def test_a_misspelled_option_of_a_write(kind: str) -> None:
    source = TopicDataSource({"topik": "t"})
    with pytest.raises(OptionError):
        getattr(source, kind)(StructType(), overwrite=False)
    assert os.environ[TEXT_ONLY] == "1"


def test_a_row_that_cannot_be_a_record() -> None:
    rows = pa.record_batch({"value": pa.array([None], pa.binary()), "topic": [None]})
    options, columns = replace(OPTIONS, topic=""), replace(VALUES, has_topic=True)
    with pytest.raises(SchemaError):
        OnceBatchWriter(options, columns, ()).write(iter([rows]))
    assert os.environ[TEXT_ONLY] == "1"


def test_a_batch_that_cannot_be_appended() -> None:
    with pytest.raises(TooManyRowsError):
        OnceBatchWriter(OPTIONS, VALUES, ()).commit([TOO_MANY])
    assert os.environ[TEXT_ONLY] == "1"
