"""Payloads become columns; those that cannot be parsed are kept apart, one by one."""

import csv
import io
import json
from datetime import UTC, date, datetime
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="needs the extra `spark`")

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from spark_io.common_options import OptionReader
from spark_io.errors import CorruptPayloadError, OptionError, SchemaError
from spark_io.ledgers.options import READING
from spark_io.payloads import PayloadColumns, declared_columns, parsed, payload_columns

CORRUPT = "_corrupt_record"


def columns(form: str = "json", *, corrupt: bool = True, **kinds: DataType) -> PayloadColumns:
    fields = [StructField(name, kind) for name, kind in kinds.items()]
    if corrupt:
        fields.append(StructField(CORRUPT, StringType()))
    found = payload_columns(OptionReader({"payloadFormat": form}, READING), StructType(fields))
    assert found is not None
    return found


def rows(payloads: list[bytes], wanted: PayloadColumns) -> list[dict[str, Any]]:
    batch = pa.RecordBatch.from_arrays(
        [pa.array([7] * len(payloads)), pa.array(range(len(payloads))), pa.array(payloads)],
        names=["ledger_id", "entry_id", "data"],
    )
    found = list(parsed([batch], wanted))
    assert sum(each.num_rows for each in found) == len(payloads)
    return [row for each in found for row in each.to_pylist()]


def test_json() -> None:
    wanted = columns(id=LongType(), level=StringType(), tags=ArrayType(StringType()))
    found = rows(
        [b'{"id": 1, "level": "a", "tags": ["x"], "more": {}}', b'{"level": null}'], wanted
    )
    assert found == [
        {"id": 1, "level": "a", "tags": ["x"], CORRUPT: None},
        {"id": None, "level": None, "tags": None, CORRUPT: None},
    ]


def test_csv() -> None:
    wanted = columns("csv", id=LongType(), level=StringType(), on=BooleanType(), at=DoubleType())
    found = rows([b'1,"a, ""b""",TRUE,1.5', b"2,,false,"], wanted)
    assert found == [
        {"id": 1, "level": 'a, "b"', "on": True, "at": 1.5, CORRUPT: None},
        {"id": 2, "level": None, "on": False, "at": None, CORRUPT: None},
    ]


@pytest.mark.parametrize("form", ["json", "csv"])
def test_dates_and_times(form: str) -> None:
    wanted = columns(form, day=DateType(), at=TimestampType())
    texts = ["2026-02-28", "2026-02-28T01:02:03.5+01:00"], ["2026-02-28", "2026-02-28 01:02:03"]
    as_json = [json.dumps({"day": day, "at": at}).encode() for day, at in texts]
    as_csv = [",".join(text).encode() for text in texts]
    found = rows(as_json if form == "json" else as_csv, wanted)
    assert [each["day"] for each in found] == [date(2026, 2, 28)] * 2
    assert found[0]["at"] == datetime(2026, 2, 28, 0, 2, 3, 500_000, UTC)
    assert found[1]["at"] == datetime(2026, 2, 28, 1, 2, 3, tzinfo=UTC)


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"{",
        b"[1]",
        b"null",
        b'{"id": 1}{"id": 2}',
        b'{"id": "1"}',
        b'{"id": 1.5}',
        b'{"id": true}',
        b'{"id": 128}',
        b'{"at": NaN}',
        b'{"at": "x"}',
        b'{"level": 5}',
        b'{"level": "\xff"}',
        b'{"level": "\\ud800"}',
        b'{"inner": {"n": "x"}}',
        b'{"inner": [1]}',
        b'{"inner": {"n": 1.5}}',
        b'{"tags": "ab"}',
        b'{"tags": [1]}',
        b'{"ratio": 1e39}',
        b'{"at": 1e999}',
        b'{"day": "2026-02-30"}',
        b'{"day": 5}',
        b"[" * 100_000,
    ],
)
def test_a_bad_json_payload_is_kept_apart_and_changes_no_other(payload: bytes) -> None:
    inner = StructType([StructField("n", LongType())])
    wanted = columns(
        id=ByteType(),
        at=DoubleType(),
        level=StringType(),
        inner=inner,
        day=DateType(),
        tags=ArrayType(StringType()),
        ratio=FloatType(),
    )
    good = b'{"id": 1, "at": 2, "level": "b", "inner": {"n": 3}, "day": "2026-01-01"}'
    before, bad, after = rows([good, payload, good], wanted)
    assert before == after
    assert (before["id"], before["level"], before[CORRUPT]) == (1, "b", None)
    assert bad.pop(CORRUPT) == payload.decode(errors="replace")
    assert set(bad.values()) == {None}


@pytest.mark.parametrize(
    "payload", [b"", b"1", b"1,2,3", b"x,a", b"1_0,a", b'1,"a', b"1,a\n2,b", b"1,\xff"]
)
def test_a_bad_line_of_csv_is_kept_apart(payload: bytes) -> None:
    wanted = columns("csv", id=LongType(), level=StringType())
    before, bad, after = rows([b"1,a", payload, b"1,a"], wanted)
    assert before == after == {"id": 1, "level": "a", CORRUPT: None}
    assert bad == {"id": None, "level": None, CORRUPT: payload.decode(errors="replace")}


@pytest.mark.parametrize(
    ("ratio", "at", "count"),
    [
        ("1e39", "1", "1"),
        ("1", "1e400", "1"),
        ("inf", "1", "1"),
        ("1", "nan", "1"),
        ("1", "1", " 7 "),
        ("1", "1", "\u0663"),
    ],
)
def test_a_number_of_csv_out_of_range_or_of_another_form_is_kept_apart(
    ratio: str, at: str, count: str
) -> None:
    wanted = columns("csv", ratio=FloatType(), at=DoubleType(), count=LongType())
    good, bad = rows([b"1.5,-2e300,7", ",".join((ratio, at, count)).encode()], wanted)
    assert good == {"ratio": 1.5, "at": -2e300, "count": 7, CORRUPT: None}
    assert bad == {"ratio": None, "at": None, "count": None, CORRUPT: f"{ratio},{at},{count}"}


def test_without_a_column_for_it_a_bad_payload_is_an_error_with_its_entry() -> None:
    wanted = columns(corrupt=False, id=LongType())
    assert rows([b'{"id": 5}'], wanted) == [{"id": 5}]
    with pytest.raises(CorruptPayloadError, match="ledger 7, entry 2: its payload is not json"):
        rows([b"{}", b"{}", b"x", b"y"], wanted)


def test_no_rows() -> None:
    assert rows([], columns(id=LongType())) == []


values = st.fixed_dictionaries(
    {"id": st.none() | st.integers(-(2**63), 2**63 - 1), "level": st.none() | st.text(min_size=1)}
)


@given(
    st.lists(st.tuples(values, st.none() | st.binary(max_size=9))), st.sampled_from(["json", "csv"])
)
def test_good_payloads_round_trip_whatever_is_between_them(
    pairs: list[tuple[dict[str, Any], bytes | None]], form: str
) -> None:
    wanted = columns(form, id=LongType(), level=StringType())
    payloads: list[bytes] = []
    places: list[int] = []
    expected: list[dict[str, Any]] = []
    for value, noise in pairs:
        if noise is not None:
            payloads.append(noise)
        text = json.dumps(value)
        if form == "csv":
            if any(each in (value["level"] or "") for each in "\r\n\0"):
                continue
            line = io.StringIO()
            csv.writer(line, lineterminator="").writerow([value["id"], value["level"]])
            text = line.getvalue()
        places.append(len(payloads))
        payloads.append(text.encode())
        expected.append(value | {CORRUPT: None})
    found = rows(payloads, wanted)
    assert [found[at] for at in places] == expected


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"payloadFormat": "xml", "payloadSchema": "a int"}, "'xml' is neither json nor csv"),
        ({"payloadFormat": "json"}, "'payloadSchema': missing: give the columns"),
        ({"payloadSchema": "a int"}, "needs payloadFormat"),
        ({"columnNameOfCorruptRecord": "a"}, "needs payloadFormat"),
        ({"payloadFormat": "csv", "payloadSchema": "a int", "includeValue": "false"}, "payloads"),
    ],
)
def test_wrong_options(options: dict[str, str], said: str) -> None:
    with pytest.raises(OptionError, match=said):
        declared_columns(OptionReader(options, READING))


@pytest.mark.parametrize(
    ("options", "ddl"),
    [
        ({}, None),
        ({"payloadFormat": "JSON", "payloadSchema": "a int"}, "a int, `_corrupt_record` string"),
        (
            {
                "payloadFormat": "csv",
                "payloadSchema": "bad string, a int",
                "columnNameOfCorruptRecord": "bad",
            },
            "bad string, a int",
        ),
    ],
)
def test_declared_columns(options: dict[str, str], ddl: str | None) -> None:
    assert declared_columns(OptionReader(options, READING)) == ddl


@pytest.mark.parametrize(
    ("form", "schema", "said"),
    [
        ("json", StructType(), "no column is parsed"),
        ("json", StructType([StructField("a", DecimalType(5, 2))]), "cannot be parsed from json"),
        ("json", StructType([StructField("a", ArrayType(DateType()))]), "cannot be parsed"),
        ("csv", StructType([StructField("a", ArrayType(LongType()))]), "cannot be parsed from csv"),
        ("json", StructType([StructField("a", FloatType(), nullable=False)]), "NOT NULL"),
        ("json", StructType([StructField("a", FloatType())] * 2), "each with another name"),
        (
            "json",
            StructType([StructField("a", LongType()), StructField(CORRUPT, LongType())]),
            "its type is string",
        ),
    ],
)
def test_wrong_columns(form: str, schema: StructType, said: str) -> None:
    with pytest.raises(SchemaError, match=said):
        payload_columns(OptionReader({"payloadFormat": form}, READING), schema)
