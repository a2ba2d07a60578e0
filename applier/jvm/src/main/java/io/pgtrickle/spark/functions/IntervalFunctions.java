package io.pgtrickle.spark.functions;

import static io.pgtrickle.spark.values.PgInterval.DAY;
import static io.pgtrickle.spark.values.PgInterval.HOUR;
import static io.pgtrickle.spark.values.PgInterval.MINUTE;
import static org.apache.spark.unsafe.types.UTF8String.fromString;

import io.pgtrickle.spark.values.ClockText;
import io.pgtrickle.spark.values.PgInterval;
import io.pgtrickle.spark.values.PgNumeric;
import java.math.BigDecimal;
import org.apache.spark.unsafe.types.UTF8String;

/** Functions of interval. An interval is PostgreSQL's text of it. */
public final class IntervalFunctions {
    private IntervalFunctions() {}

    private static PgInterval parse(UTF8String text) {
        return PgInterval.parse(text.toString());
    }

    private static UTF8String text(PgInterval interval) {
        return fromString(interval.toString());
    }

    /** Reads an interval and writes it as PostgreSQL does. */
    @SqlFunction("pg_intervals_in")
    public static UTF8String normalize(UTF8String input) {
        return text(parse(input));
    }

    /** a + b. */
    @SqlFunction("pg_intervals_add")
    public static UTF8String add(UTF8String a, UTF8String b) {
        return text(parse(a).plus(parse(b)));
    }

    /** a - b. */
    @SqlFunction("pg_intervals_sub")
    public static UTF8String subtract(UTF8String a, UTF8String b) {
        return text(parse(a).minus(parse(b)));
    }

    /** -a. */
    @SqlFunction("pg_intervals_neg")
    public static UTF8String negate(UTF8String a) {
        return text(parse(a).negate());
    }

    /** a * factor. */
    @SqlFunction("pg_intervals_mul")
    public static UTF8String multiply(UTF8String a, double factor) {
        return text(parse(a).times(factor));
    }

    /** a / divisor. */
    @SqlFunction("pg_intervals_div")
    public static UTF8String divide(UTF8String a, double divisor) {
        return text(parse(a).dividedBy(divisor));
    }

    /** Returns -1, 0 or 1 for less, equal or greater; a month has 30 days. */
    @SqlFunction("pg_intervals_cmp")
    public static int compare(UTF8String a, UTF8String b) {
        return parse(a).size().compareTo(parse(b).size());
    }

    /** Returns a text that is the same only for equal intervals and sorts as they do. */
    @SqlFunction("pg_intervals_sortable")
    public static UTF8String sortable(UTF8String a) {
        return fromString(PgNumeric.of(new BigDecimal(parse(a).size())).sortable());
    }

    /** Returns the longer interval, or the first of two equal ones. */
    @SqlFunction("pg_intervals_greatest")
    public static UTF8String greatest(UTF8String a, UTF8String b) {
        return compare(a, b) >= 0 ? a : b;
    }

    /** Returns the shorter interval, or the first of two equal ones. */
    @SqlFunction("pg_intervals_least")
    public static UTF8String least(UTF8String a, UTF8String b) {
        return compare(a, b) <= 0 ? a : b;
    }

    /** justify_hours. */
    @SqlFunction("pg_intervals_justify_hours")
    public static UTF8String justifyHours(UTF8String a) {
        return text(parse(a).justifyHours());
    }

    /** justify_days. */
    @SqlFunction("pg_intervals_justify_days")
    public static UTF8String justifyDays(UTF8String a) {
        return text(parse(a).justifyDays());
    }

    /** justify_interval. */
    @SqlFunction("pg_intervals_justify_interval")
    public static UTF8String justify(UTF8String a) {
        return text(parse(a).justify());
    }

    /** make_interval. */
    @SqlFunction("pg_intervals_make")
    public static UTF8String make(int years, int months, int weeks, int days, int hours, int minutes, double seconds) {
        double micros = Math.rint(seconds * 1000000.0);
        if (!(Math.abs(micros) < 9.2e18)) throw PgInterval.outOfRange();
        return text(PgInterval.of(years * 12L + months, weeks * 7L + days,
            hours * HOUR + minutes * MINUTE + (long) micros));
    }

    /** Returns the time of day in the time part of an interval. */
    @SqlFunction("pg_intervals_to_time")
    public static UTF8String toTime(UTF8String a) {
        long micros = parse(a).micros();
        // PostgreSQL before 17 overflows here and returns times that do not exist.
        if (micros < Long.MIN_VALUE + 2 * DAY) throw PgInterval.outOfRange();
        return fromString(ClockText.ofTime(Math.floorMod(micros, DAY)));
    }
}
