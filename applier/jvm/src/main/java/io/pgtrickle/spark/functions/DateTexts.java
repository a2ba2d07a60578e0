package io.pgtrickle.spark.functions;

import static org.apache.spark.unsafe.types.UTF8String.fromString;

import io.pgtrickle.spark.values.IsoDate;
import io.pgtrickle.spark.values.PgTimestamp;
import org.apache.spark.unsafe.types.UTF8String;

/** Input and output functions of dates and timestamps; only ISO dates are read. */
public final class DateTexts {
    private DateTexts() {}

    /** The text of a date. */
    @SqlFunction("pg_dates_out_date")
    public static UTF8String printDate(int date) {
        return fromString(PgTimestamp.printDate(date));
    }

    /** The text of a timestamp without time zone. */
    @SqlFunction("pg_dates_out_timestamp")
    public static UTF8String printTimestamp(long timestamp) {
        return fromString(PgTimestamp.print(timestamp));
    }

    /** Reads a date; a time of day is ignored. */
    @SqlFunction("pg_dates_in_date")
    public static int parseDate(UTF8String input) {
        return IsoDate.parse(input.toString(), "date").toDate();
    }

    /** Reads a timestamp without time zone; an offset is ignored. */
    @SqlFunction("pg_dates_in_timestamp")
    public static long parseTimestamp(UTF8String input) {
        return PgTimestamp.check(IsoDate.parse(input.toString(), "timestamp").toTimestamp());
    }

    /** Reads a timestamp with time zone; without an offset it is UTC. */
    @SqlFunction("pg_dates_in_timestamptz")
    public static long parseInstant(UTF8String input) {
        return PgTimestamp.check(IsoDate.parse(input.toString(), "timestamp with time zone").toInstant());
    }
}
