"""The `ledger` data source, as registered with Spark.

Leaves everything to the modules that its methods import; nothing connects before a query runs.

Source: Spark design; docs/spark.md lists columns and options.
"""

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

from spark_io.common_options import SHARED, OptionReader
from spark_io.errors import SchemaError
from spark_io.ledgers.options import INCLUDE_LINK, INCLUDE_VALUE, READING, ReadOptions, WriteOptions
from spark_io.readers import describe_columns, require_columns, stream_reader
from spark_io.workers import sentence_first

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceStreamReader
    from pyspark.sql.types import StructType

    from spark_io.ledgers.readers import LedgerBatchReader
    from spark_io.ledgers.write import LedgerBatchWriter, LedgerStreamWriter
    from spark_io.payloads import PayloadColumns

WRITABLE = ("binary", "string")


class LedgerDataSource(DataSource):
    """`spark.read.format("ledger")`, and the same for streams and for writing."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "ledger"

    def schema(self) -> str:
        """Return the columns: those of the payloads if they are parsed; without `data` if values
        are not wanted.
        """
        from spark_io.ledgers.rows import columns_of  # noqa: PLC0415
        from spark_io.payloads import declared_columns  # noqa: PLC0415

        with sentence_first():
            given = self._given()
            declared = declared_columns(given)
            include_value = given.truth(INCLUDE_VALUE, default=True)
            include_link = given.truth(INCLUDE_LINK, default=False)
        columns = columns_of(include_value=include_value, include_link=include_link)
        return ", ".join(columns) if declared is None else declared

    @sentence_first()
    def reader(self, schema: "StructType") -> "LedgerBatchReader":
        """Return the reader of a batch query."""
        from spark_io.ledgers.readers import LedgerBatchReader  # noqa: PLC0415

        return LedgerBatchReader(*self._read_options(schema))

    def streamReader(self, schema: "StructType") -> "DataSourceStreamReader":  # noqa: N802
        """Return the reader of a streaming query."""
        from spark_io.ledgers.readers import LedgerStreamReader  # noqa: PLC0415

        return stream_reader(lambda: LedgerStreamReader(*self._read_options(schema)))

    @sentence_first()
    def writer(self, schema: "StructType", overwrite: bool) -> "LedgerBatchWriter":  # noqa: FBT001
        """Return the writer of a batch job."""
        from spark_io.ledgers.write import LedgerBatchWriter, make_chain  # noqa: PLC0415

        options = self._write_options(schema)
        writer = LedgerBatchWriter(options, overwrite=overwrite)
        make_chain(options)
        return writer

    @sentence_first()
    def streamWriter(self, schema: "StructType", overwrite: bool) -> "LedgerStreamWriter":  # noqa: FBT001, N802
        """Return the writer of a streaming query."""
        from spark_io.ledgers.write import LedgerStreamWriter, make_chain  # noqa: PLC0415

        options = self._write_options(schema)
        make_chain(options)
        return LedgerStreamWriter(options, overwrite=overwrite)

    def _given(self) -> OptionReader:
        return OptionReader(self.options, (*SHARED, *READING))

    def _read_options(self, schema: "StructType") -> "tuple[ReadOptions, PayloadColumns | None]":
        from spark_io.payloads import payload_columns  # noqa: PLC0415

        options, columns = ReadOptions.of(self.options), payload_columns(self._given(), schema)
        if columns is None:
            require_columns("ledgers", self.schema(), schema)
        return options, columns

    def _write_options(self, schema: "StructType") -> WriteOptions:
        fields = [(field.name, field.dataType.simpleString()) for field in schema.fields]
        if len(fields) != 1 or fields[0][0] != "data" or fields[0][1] not in WRITABLE:
            raise SchemaError(
                "a ledger takes one column, `data binary` or `data string`, and the DataFrame has "
                f"{describe_columns(schema)!r}: for example "
                "df.select(F.to_json(F.struct('*')).alias('data'))"
            )
        return WriteOptions.of(self.options)
