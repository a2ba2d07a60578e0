package io.pgtrickle.spark.functions;

import static org.apache.spark.unsafe.types.UTF8String.fromString;

import io.pgtrickle.spark.values.PgRow;
import org.apache.spark.sql.catalyst.util.ArrayData;
import org.apache.spark.unsafe.types.UTF8String;

/** Composite values. */
public final class RowFunctions {
    private RowFunctions() {}

    /** Returns the text of a row; each field is the output text of its type. */
    @SqlFunction("pg_rows_of")
    public static UTF8String make(ArrayData fields) {
        return fromString(PgRow.print(ArrayFunctions.stringsOf(fields)));
    }
}
