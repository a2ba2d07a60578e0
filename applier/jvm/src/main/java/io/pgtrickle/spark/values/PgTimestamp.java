package io.pgtrickle.spark.values;

import static io.pgtrickle.spark.values.PgInterval.DAY;
import static io.pgtrickle.spark.values.PgInterval.MINUTE;

import java.time.DateTimeException;
import java.time.LocalDate;

/** Dates as days and timestamps as microseconds since 1970-01-01, both without a time zone, in the years 1 to 9999. */
public final class PgTimestamp {
    private static final long FIRST_DAY = LocalDate.of(1, 1, 1).toEpochDay();
    private static final long LAST_DAY = LocalDate.of(9999, 12, 31).toEpochDay();

    private PgTimestamp() {}

    /** Returns the days if the years 1 to 9999 contain them, else raises. */
    public static int checkDay(long days) {
        if (days < FIRST_DAY || days > LAST_DAY) {
            throw new PgError.NotComputed("years before 1 or after 9999 are not held here");
        }
        return (int) days;
    }

    /** Returns the timestamp if the years 1 to 9999 contain it, else raises. */
    public static long check(long micros) {
        checkDay(Math.floorDiv(micros, DAY));
        return micros;
    }

    /** Returns the date of a timestamp. */
    public static LocalDate dateOf(long timestamp) {
        return LocalDate.ofEpochDay(Math.floorDiv(timestamp, DAY));
    }

    /** Returns the microseconds since midnight. */
    public static long timeOf(long timestamp) {
        return Math.floorMod(timestamp, DAY);
    }

    /** make_date. */
    public static int ofDate(int year, int month, int dayOfMonth) {
        if (year < 1) throw new PgError("date field value out of range, or a year before 1, which is not held here");
        try {
            return checkDay(LocalDate.of(year, month, dayOfMonth).toEpochDay());
        } catch (DateTimeException e) {
            throw new PgError("date field value out of range");
        }
    }

    /** make_time, as microseconds since midnight; 24:00:00 is allowed. */
    public static long ofTime(int hour, int minute, double second) {
        boolean outOfRange = hour < 0 || hour > 24 || minute < 0 || minute > 59 || !(second >= 0 && second <= 60);
        long time = outOfRange ? 0 : (hour * 60L + minute) * MINUTE + (long) Math.rint(second * 1000000.0);
        if (outOfRange || time > DAY) throw new PgError("time field value out of range");
        return time;
    }

    /** make_timestamp. */
    public static long of(int year, int month, int dayOfMonth, int hour, int minute, double second) {
        return check(ofDate(year, month, dayOfMonth) * DAY + ofTime(hour, minute, second));
    }

    /** Returns the timestamp moved by an interval: first the months, then the days, then the time. */
    public static long plus(long timestamp, PgInterval interval) {
        LocalDate date = dateOf(timestamp);
        try {
            // plusMonths uses the last day of a shorter month, as PostgreSQL does.
            if (interval.months() != 0) date = date.plusMonths(interval.months());
            long days = Math.addExact(date.toEpochDay(), (long) interval.days());
            long midnight = Math.multiplyExact(days, DAY);
            return check(Math.addExact(Math.addExact(midnight, timeOf(timestamp)), interval.micros()));
        } catch (ArithmeticException | DateTimeException e) {
            throw new PgError("timestamp out of range");
        }
    }

    /** Returns the text of date_out. */
    public static String printDate(int days) {
        return ClockText.ofDate(LocalDate.ofEpochDay(days));
    }

    /** Returns the text of timestamp_out. */
    public static String print(long timestamp) {
        return ClockText.ofDate(dateOf(timestamp)) + " " + ClockText.ofTime(timeOf(timestamp));
    }
}
