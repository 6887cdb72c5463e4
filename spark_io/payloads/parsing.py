"""Parsing of payloads into columns, a batch at a time.

Leaves the columns and their types to `payload_columns`. Needs no session: it runs in tasks.

A payload is one JSON object, or one line of CSV. A JSON object may have other fields, and a missing
one is null. A line of CSV has a field for each column, in order; an empty field is null. Dates and
times are in ISO 8601, and times without a zone are in UTC.

Invariants: a batch has one row for each payload, in order. What a payload means does not depend on
other payloads. One that cannot be parsed, or has a value of another type than its column's or out
of its range, is a row with its text in the column for such payloads, and null in all others;
without that column it is an error that names the entry.

Source: Spark design, "Reading".
"""

import csv
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, date, datetime
from functools import partial
from typing import Any, Final, NoReturn

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    DateType,
    DoubleType,
    FloatType,
    StringType,
    StructType,
    TimestampType,
)

from spark_io.errors import CorruptPayloadError
from spark_io.payloads.payload_columns import JSON, PayloadColumns

Row = Sequence[Any] | None
"""Values of one payload, in the order of the parsed columns; None if it cannot be parsed."""

UNFIT: Final = (ValueError, TypeError, OverflowError, pa.ArrowException)
"""Errors of values that their type does not hold."""
FLOAT_MAX: Final = 3.4028234663852886e38
"""Maximum of a float of 32 bits."""


def parsed(batches: Iterable[pa.RecordBatch], columns: PayloadColumns) -> Iterator[pa.RecordBatch]:
    """Yield batches of ledger rows as batches of their payloads' columns. Raises
    CorruptPayloadError.
    """
    schema = to_arrow_schema(columns.schema, timezone="UTC")
    row_of = _json_rows(columns) if columns.form == JSON else _csv_rows(columns)
    for batch in batches:
        payloads = batch.column("data").to_pylist()
        arrays, corrupt = _arrays([row_of(each) for each in payloads], columns, schema)
        if corrupt and not columns.has_corrupt_column:
            at = corrupt[0]
            ledger_id, entry_id = (
                batch.column(name)[at].as_py() for name in ("ledger_id", "entry_id")
            )
            raise CorruptPayloadError(ledger_id, entry_id, columns.form, columns.corrupt_column)
        if columns.has_corrupt_column:
            texts: list[str | None] = [None] * len(payloads)
            for at in corrupt:
                texts[at] = payloads[at].decode(errors="replace")
            arrays[columns.corrupt_column] = pa.array(texts, pa.string())
        yield pa.RecordBatch.from_arrays([arrays[name] for name in schema.names], schema=schema)


def _arrays(
    rows: list[Row], columns: PayloadColumns, schema: pa.Schema
) -> tuple[dict[str, pa.Array], list[int]]:
    """Return a column for each parsed name, and the places of rows that cannot be parsed."""
    names = columns.parsed_names
    corrupt = dict.fromkeys(at for at, row in enumerate(rows) if row is None)
    empty = (None,) * len(names)
    values = [list(each) for each in zip(*[row or empty for row in rows], strict=True)]
    values = values or [[] for _ in names]
    kinds = [schema.field(name).type for name in names]
    arrays = [_array_of(*each) for each in zip(values, kinds, strict=True)]
    if corrupt or any(each is None for each in arrays):
        for column, kind, array in zip(values, kinds, arrays, strict=True):
            if array is None:
                bad = (at for at, each in enumerate(column) if _array_of([each], kind) is None)
                corrupt.update(dict.fromkeys(bad))
        for at in corrupt:
            for column in values:
                column[at] = None
        arrays = [_array_of(*each) for each in zip(values, kinds, strict=True)]
    return dict(zip(names, arrays, strict=True)), sorted(corrupt)


def _array_of(values: list[Any], kind: pa.DataType) -> pa.Array | None:
    """Return values as an array; None if one of them is not in the range of its type."""
    try:
        return pa.array(values, kind)
    except UNFIT:
        return None


def _json_rows(columns: PayloadColumns) -> Callable[[bytes], Row]:
    names = columns.parsed_names
    converters = [_of_json(columns.schema[name].dataType) for name in names]
    decode = json.JSONDecoder(parse_constant=_refuse_constant).decode
    fields = list(zip(names, converters, strict=True))

    def row_of(payload: bytes) -> Row:
        try:
            found = decode(payload.decode())
            if type(found) is not dict:
                return None
            get = found.get
            return [convert(get(name)) for name, convert in fields]
        except (ValueError, TypeError, OverflowError, RecursionError):
            return None

    return row_of


def _csv_rows(columns: PayloadColumns) -> Callable[[bytes], Row]:
    converters = [_of_text(columns.schema[name].dataType) for name in columns.parsed_names]

    def row_of(payload: bytes) -> Row:
        try:
            [texts] = csv.reader((payload.decode(),), strict=True)
            return [
                convert(text) if text else None
                for convert, text in zip(converters, texts, strict=True)
            ]
        except (ValueError, OverflowError, csv.Error):
            return None

    return row_of


def _of_json(kind: DataType) -> Callable[[Any], Any]:
    """Return the conversion of a JSON value, which raises ValueError for one of another type:
    Arrow's own would turn 1.5 into 1, and a string into a list.
    """
    convert: Callable[[Any], Any]
    match kind:
        case StringType():
            convert = partial(_exactly, str)
        case BooleanType():
            convert = partial(_exactly, bool)
        case FloatType():
            convert = partial(_number, FLOAT_MAX)
        case DoubleType():
            convert = partial(_number, sys.float_info.max)
        case DateType():
            convert = date.fromisoformat
        case TimestampType():
            convert = _timestamp
        case ArrayType():
            convert = partial(_array, _of_json(kind.elementType))
        case StructType():
            convert = partial(_struct, {each.name: _of_json(each.dataType) for each in kind.fields})
        case _:
            convert = partial(_exactly, int)
    return lambda value: None if value is None else convert(value)


def _of_text(kind: DataType) -> Callable[[str], Any]:
    """Return the conversion of a field of CSV."""
    match kind:
        case StringType():
            return str
        case BooleanType():
            return _truth
        case DateType():
            return date.fromisoformat
        case TimestampType():
            return _timestamp
        case FloatType():
            return partial(_decimal, FLOAT_MAX)
        case DoubleType():
            return partial(_decimal, sys.float_info.max)
        case _:
            return partial(_digits, int)


def _exactly(kind: type, value: Any) -> Any:
    if type(value) is not kind:
        raise ValueError(f"{value!r} is not of the type {kind.__name__}")
    return value


def _number(most: float, value: Any) -> float:
    if type(value) is not float:
        value = float(_exactly(int, value))
    if not -most <= value <= most:
        raise ValueError(f"{value} is out of range")
    return float(value)


def _array(element: Callable[[Any], Any], value: Any) -> list[Any]:
    return [element(each) for each in _exactly(list, value)]


def _struct(fields: dict[str, Callable[[Any], Any]], value: Any) -> dict[str, Any]:
    get = _exactly(dict, value).get
    return {name: convert(get(name)) for name, convert in fields.items()}


def _digits(kind: Callable[[str], Any], text: str) -> Any:
    if "_" in text or not text.isascii() or text != text.strip():
        raise ValueError(f"{text!r} is a number in Python only")
    return kind(text)


def _decimal(most: float, text: str) -> float:
    return _number(most, _digits(float, text))


def _truth(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError(f"{text!r} is neither true nor false")
    return text.lower() == "true"


def _timestamp(text: str) -> datetime:
    found = datetime.fromisoformat(text)
    return found.replace(tzinfo=UTC) if found.tzinfo is None else found


def _refuse_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is not JSON")
