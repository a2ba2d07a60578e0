package io.pgtrickle.spark.functions;

import static io.pgtrickle.spark.values.PgInterval.DAY;
import static org.apache.spark.unsafe.types.UTF8String.fromString;

import io.pgtrickle.spark.values.ClockText;
import io.pgtrickle.spark.values.PgInterval;
import io.pgtrickle.spark.values.PgTimestamp;
import org.apache.spark.unsafe.types.UTF8String;

/** Functions of time: hh:mm:ss[.ffffff], up to 24:00:00. The texts sort as the times do. */
public final class TimeFunctions {
    private TimeFunctions() {}

    private static long parse(UTF8String timeOrInterval) {
        return PgInterval.parse(timeOrInterval.toString()).micros();
    }

    private static UTF8String intervalText(long micros) {
        return fromString(new PgInterval(0, 0, micros).toString());
    }

    /** make_time. */
    @SqlFunction("pg_dates_make_time")
    public static UTF8String make(int hour, int minute, double second) {
        return fromString(ClockText.ofTime(PgTimestamp.ofTime(hour, minute, second)));
    }

    /** The time of day of a timestamp. */
    @SqlFunction("pg_dates_time_of")
    public static UTF8String ofTimestamp(long timestamp) {
        return fromString(ClockText.ofTime(PgTimestamp.timeOf(timestamp)));
    }

    /** time + interval for the sign 1, time - interval for the sign -1. */
    @SqlFunction("pg_dates_time_add")
    public static UTF8String add(UTF8String time, UTF8String interval, int sign) {
        // A sum that is too large wraps, as in PostgreSQL.
        return fromString(ClockText.ofTime(Math.floorMod(parse(time) + sign * parse(interval), DAY)));
    }

    /** time - time, as an interval. */
    @SqlFunction("pg_dates_time_diff")
    public static UTF8String difference(UTF8String a, UTF8String b) {
        return intervalText(parse(a) - parse(b));
    }

    /** The cast of a time to interval. */
    @SqlFunction("pg_dates_time_interval")
    public static UTF8String toInterval(UTF8String time) {
        return intervalText(parse(time));
    }

    /** date + time. */
    @SqlFunction("pg_dates_with_time")
    public static long addToDate(int date, UTF8String time) {
        return PgTimestamp.check(date * DAY + parse(time));
    }
}
