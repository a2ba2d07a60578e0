package io.pgtrickle.spark.functions;

import static io.pgtrickle.spark.values.PgInterval.DAY;
import static io.pgtrickle.spark.values.PgInterval.SECOND;
import static org.apache.spark.unsafe.types.UTF8String.fromString;

import io.pgtrickle.spark.values.PgError;
import io.pgtrickle.spark.values.PgInterval;
import io.pgtrickle.spark.values.PgTimestamp;
import java.time.DateTimeException;
import java.time.Instant;
import java.time.LocalDate;
import java.time.LocalDateTime;
import java.time.ZoneId;
import java.time.ZoneOffset;
import java.time.zone.ZoneOffsetTransition;
import java.time.zone.ZoneRules;
import org.apache.spark.unsafe.types.UTF8String;

/** Arithmetic of dates (days since 1970) and timestamps (microseconds since 1970), and time zones. */
public final class DateFunctions {
    /** 2000-01-01, PostgreSQL's own zero, in seconds. */
    private static final long YEAR_2000_S = 946684800L;

    private DateFunctions() {}

    private static PgInterval parse(UTF8String interval) {
        return PgInterval.parse(interval.toString());
    }

    /** date + days. */
    @SqlFunction("pg_dates_add_days")
    public static int addDays(int date, int days) {
        return PgTimestamp.checkDay((long) date + days);
    }

    /** date - days. */
    @SqlFunction("pg_dates_sub_days")
    public static int subtractDays(int date, int days) {
        return PgTimestamp.checkDay((long) date - days);
    }

    /** timestamp + interval. */
    @SqlFunction("pg_dates_add")
    public static long add(long timestamp, UTF8String interval) {
        return PgTimestamp.plus(timestamp, parse(interval));
    }

    /** timestamp - interval. */
    @SqlFunction("pg_dates_sub")
    public static long subtract(long timestamp, UTF8String interval) {
        return PgTimestamp.plus(timestamp, parse(interval).negate());
    }

    /** Returns the timestamps from first to last, one interval apart, in microseconds; an empty text if none. */
    @SqlFunction("pg_dates_series")
    public static UTF8String series(long first, long last, UTF8String interval) {
        PgInterval step = parse(interval);
        boolean rises = step.size().signum() > 0;
        var out = new StringBuilder();
        for (long at = first; rises ? at <= last : at >= last; at = PgTimestamp.plus(at, step)) {
            if (!out.isEmpty()) out.append(',');
            out.append(at);
        }
        return fromString(out.toString());
    }

    /** timestamp - timestamp, as an interval. */
    @SqlFunction("pg_dates_diff")
    public static UTF8String difference(long a, long b) {
        return fromString(new PgInterval(0, 0, a - b).justifyHours().toString());
    }

    /** age(timestamp, timestamp): years, months, days and a time of day. */
    @SqlFunction("pg_dates_age")
    public static UTF8String age(long first, long second) {
        boolean isNegative = first < second;
        long later = Math.max(first, second);
        long earlier = Math.min(first, second);
        LocalDate laterDate = PgTimestamp.dateOf(later);
        LocalDate earlierDate = PgTimestamp.dateOf(earlier);
        long time = PgTimestamp.timeOf(later) - PgTimestamp.timeOf(earlier);
        long days = laterDate.getDayOfMonth() - earlierDate.getDayOfMonth();
        long months = 12L * (laterDate.getYear() - earlierDate.getYear())
            + laterDate.getMonthValue() - earlierDate.getMonthValue();
        if (time < 0) {
            time += DAY;
            days--;
        }
        // Days are always borrowed from the month of the earlier date.
        while (days < 0) {
            days += earlierDate.lengthOfMonth();
            months--;
        }
        PgInterval age = PgInterval.of(months, days, time);
        return fromString((isNegative ? age.negate() : age).toString());
    }

    /** date_bin. */
    @SqlFunction("pg_dates_bin")
    public static long bin(UTF8String stride, long timestamp, long origin) {
        PgInterval interval = parse(stride);
        if (interval.months() != 0) {
            throw new PgError("timestamps cannot be binned into intervals containing months or years");
        }
        long step;
        try {
            step = Math.addExact(Math.multiplyExact((long) interval.days(), DAY), interval.micros());
        } catch (ArithmeticException e) {
            throw PgInterval.outOfRange();
        }
        if (step <= 0) throw new PgError("stride must be greater than zero");
        try {
            return PgTimestamp.check(Math.subtractExact(timestamp, Math.floorMod(timestamp - origin, step)));
        } catch (ArithmeticException e) {
            throw new PgError("timestamp out of range");
        }
    }

    /** make_date. */
    @SqlFunction("pg_dates_make_date")
    public static int makeDate(int year, int month, int dayOfMonth) {
        return PgTimestamp.ofDate(year, month, dayOfMonth);
    }

    /** make_timestamp. */
    @SqlFunction("pg_dates_make_timestamp")
    public static long makeTimestamp(int year, int month, int dayOfMonth, int hour, int minute, double second) {
        return PgTimestamp.of(year, month, dayOfMonth, hour, minute, second);
    }

    /** to_timestamp(float8). */
    @SqlFunction("pg_dates_of_epoch")
    public static long ofEpoch(double seconds) {
        if (Double.isNaN(seconds)) throw new PgError("timestamp cannot be NaN");
        if (!(Math.abs(seconds) < 1e12)) throw new PgError("timestamp out of range");
        // PostgreSQL rounds relative to the year 2000.
        return PgTimestamp.check((long) Math.rint((seconds - YEAR_2000_S) * 1000000.0) + YEAR_2000_S * SECOND);
    }

    // The session's zone is UTC; a named zone is an argument of the call.

    /** Converts local time to an instant: a gap uses the offset before it, an overlap the later (standard) offset. */
    @SqlFunction("pg_dates_from_zone")
    public static long fromZone(UTF8String zone, long local) {
        ZoneRules rules = zoneOf(zone).getRules();
        LocalDateTime when = LocalDateTime.ofEpochSecond(
            Math.floorDiv(local, SECOND), (int) Math.floorMod(local, SECOND) * 1000, ZoneOffset.UTC);
        ZoneOffsetTransition change = rules.getTransition(when);
        ZoneOffset offset = change == null ? rules.getOffset(when)
            : change.isGap() ? change.getOffsetBefore() : change.getOffsetAfter();
        return PgTimestamp.check(local - offset.getTotalSeconds() * SECOND);
    }

    /** Converts an instant to local time. */
    @SqlFunction("pg_dates_to_zone")
    public static long toZone(UTF8String zone, long instant) {
        Instant at = Instant.ofEpochSecond(Math.floorDiv(instant, SECOND));
        return PgTimestamp.check(instant + zoneOf(zone).getRules().getOffset(at).getTotalSeconds() * SECOND);
    }

    private static ZoneId zoneOf(UTF8String name) {
        try {
            return ZoneId.of(name.toString());
        } catch (DateTimeException e) {
            throw new PgError("time zone \"" + name + "\" not recognized");
        }
    }
}
