"""Payloads of ledgers as columns, parsed from JSON or CSV, a batch at a time.

Parsing needs no session: it runs in tasks. Options are given by a query, and columns by a query or
by a table.

Format of the options: `payloadFormat` json or csv; `payloadSchema` the columns as DDL;
`columnNameOfCorruptRecord` the name of a string column that has the text of a payload that cannot
be parsed. Without `payloadSchema` the columns are those of the table or of `.schema(...)`.

A payload is one JSON object, or one line of CSV. A JSON object may have other fields, and a missing
one is null. A line of CSV has a field for each column, in order; an empty field is null. Dates and
times are in ISO 8601, and times without a zone are in UTC.

Invariants: the types are those of TYPES, in JSON also arrays and structs of them without dates and
times; each column may be null. A batch has one row for each payload, in order. What a payload means
does not depend on other payloads. One that cannot be parsed, or has a value of another type than
its column's or out of its range, is a row with its text in the column for such payloads, and null
in all others; without that column it is an error that names the entry.

Source: Spark design, "Reading".
"""

import csv
import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from functools import partial
from typing import Any, Final, NoReturn

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructType,
    TimestampType,
)

from spark_io.common_options import OptionReader
from spark_io.errors import CorruptPayloadError, OptionError, SchemaError
from spark_io.ledgers.options import (
    CORRUPT_COLUMN,
    INCLUDE_LINK,
    INCLUDE_VALUE,
    PAYLOAD_FORMAT,
    PAYLOAD_SCHEMA,
)

JSON: Final = "json"
CSV: Final = "csv"
CORRUPT_COLUMN_NAME: Final = "_corrupt_record"
COLUMNS_MAX: Final = 1_000
NUMBERS: Final = (ByteType, ShortType, IntegerType, LongType, FloatType, DoubleType)
NESTABLE: Final = (StringType, BooleanType, *NUMBERS)
TYPES: Final = (*NESTABLE, DateType, TimestampType)
UNFIT: Final = (ValueError, TypeError, OverflowError, pa.ArrowException)
"""Errors of values that their type does not hold."""
FLOAT_MAX: Final = 3.4028234663852886e38
"""Maximum of a float of 32 bits."""
Row = Sequence[Any] | None
"""Values of one payload, in the order of the parsed columns; None if it cannot be parsed."""


@dataclass(frozen=True)
class PayloadColumns:
    """Columns of payloads in one format."""

    form: str
    schema: StructType
    corrupt_column: str
    """Name of the column for payloads that cannot be parsed; the columns may be without it."""

    @property
    def has_corrupt_column(self) -> bool:
        """Whether payloads that cannot be parsed have a column."""
        return self.corrupt_column in self.schema.fieldNames()

    @property
    def parsed_names(self) -> list[str]:
        """Names of the columns that are in a payload."""
        return [name for name in self.schema.fieldNames() if name != self.corrupt_column]


def payload_columns(given: OptionReader, schema: StructType) -> PayloadColumns | None:
    """Return the columns of the payloads; None if they are not parsed. `schema` is what the query
    or the table gives. Raises OptionError, SchemaError.
    """
    form = format_of(given)
    if form is None:
        return None
    columns = PayloadColumns(form, schema, given.text(CORRUPT_COLUMN) or CORRUPT_COLUMN_NAME)
    _check(columns)
    return columns


def declared_columns(given: OptionReader) -> str | None:
    """Return the columns as DDL, with one for payloads that cannot be parsed; None if payloads are
    not parsed. Raises OptionError.
    """
    if format_of(given) is None:
        return None
    text = given.text(PAYLOAD_SCHEMA)
    if not text:
        why = 'missing: give the columns as DDL, such as "id bigint, level string"'
        raise OptionError(PAYLOAD_SCHEMA, why)
    corrupt = given.text(CORRUPT_COLUMN) or CORRUPT_COLUMN_NAME
    is_named = re.search(rf"(?<!\w){re.escape(corrupt)}(?!\w)", text) is not None
    return text if is_named else f"{text}, `{corrupt}` string"


def format_of(given: OptionReader) -> str | None:
    """Return the format of the payloads; None if they are not parsed. Raises OptionError."""
    form = (given.text(PAYLOAD_FORMAT) or "").lower()
    if not form:
        for name in (PAYLOAD_SCHEMA, CORRUPT_COLUMN):
            if given.text(name) is not None:
                raise OptionError(name, f"needs {PAYLOAD_FORMAT}=json or {PAYLOAD_FORMAT}=csv")
        return None
    if form not in (JSON, CSV):
        raise OptionError(PAYLOAD_FORMAT, f"{form!r} is neither {JSON} nor {CSV}")
    if not given.truth(INCLUDE_VALUE, default=True):
        raise OptionError(PAYLOAD_FORMAT, "needs the payloads: leave out includeValue=false")
    if given.truth(INCLUDE_LINK, default=False):
        raise OptionError(INCLUDE_LINK, f"the columns are those of payloads: omit {PAYLOAD_FORMAT}")
    return form


def _check(columns: PayloadColumns) -> None:
    names = columns.schema.fieldNames()
    if not columns.parsed_names:
        raise SchemaError("no column is parsed from payloads: name at least one")
    if len(names) > COLUMNS_MAX or len(set(names)) < len(names):
        raise SchemaError(f"give at most {COLUMNS_MAX} columns, each with another name: {names}")
    for field in columns.schema.fields:
        kind = field.dataType
        if field.name == columns.corrupt_column and not isinstance(kind, StringType):
            raise SchemaError(
                f"column {field.name!r} has payloads that cannot be parsed: its type is string"
            )
        if not field.nullable:
            raise SchemaError(
                f"column {field.name!r} is NOT NULL, but a payload may lack it: remove NOT NULL"
            )
        if not (isinstance(kind, TYPES) or (columns.form == JSON and _is_nested(kind))):
            raise SchemaError(
                f"column {field.name!r}: {kind.simpleString()} cannot be parsed from "
                f"{columns.form}. Use string, boolean, tinyint, smallint, int, bigint, float, "
                "double, date or timestamp; in JSON also array and struct of "
                "these without date and timestamp"
            )


def _is_nested(kind: DataType) -> bool:
    match kind:
        case ArrayType():
            return _is_nested(kind.elementType)
        case StructType():
            return all(_is_nested(field.dataType) for field in kind.fields)
        case _:
            return isinstance(kind, NESTABLE)


def parsed(batches: Iterable[pa.RecordBatch], columns: PayloadColumns) -> Iterator[pa.RecordBatch]:
    """Yield batches of ledger rows as batches of their payloads' columns. Raises
    CorruptPayloadError.
    """
    schema = to_arrow_schema(columns.schema, timezone="UTC")
    row_of = _json_rows(columns) if columns.form == JSON else _csv_rows(columns)
    for batch in batches:
        payloads = batch.column("data").to_pylist()
        arrays, corrupt = _arrays([row_of(payload) for payload in payloads], columns, schema)
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
    values = [list(cells) for cells in zip(*[row or empty for row in rows], strict=True)]
    values = values or [[] for _ in names]
    kinds = [schema.field(name).type for name in names]
    arrays = [_array_of(*pair) for pair in zip(values, kinds, strict=True)]
    if corrupt or any(array is None for array in arrays):
        for column, kind, array in zip(values, kinds, arrays, strict=True):
            if array is None:
                bad = (at for at, cell in enumerate(column) if _array_of([cell], kind) is None)
                corrupt.update(dict.fromkeys(bad))
        for at in corrupt:
            for column in values:
                column[at] = None
        arrays = [_array_of(*pair) for pair in zip(values, kinds, strict=True)]
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
            record = decode(payload.decode())
            if type(record) is not dict:
                return None
            get = record.get
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
            convert = partial(_struct, {part.name: _of_json(part.dataType) for part in kind.fields})
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
    return [element(item) for item in _exactly(list, value)]


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
    moment = datetime.fromisoformat(text)
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment


def _refuse_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is not JSON")
