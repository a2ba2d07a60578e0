package io.pgtrickle.spark.functions;

import static io.pgtrickle.spark.values.PgInterval.DAY;
import static io.pgtrickle.spark.values.PgInterval.HOUR;
import static io.pgtrickle.spark.values.PgInterval.MINUTE;
import static io.pgtrickle.spark.values.PgInterval.SECOND;
import static org.apache.spark.unsafe.types.UTF8String.fromString;

import io.pgtrickle.spark.values.PgError;
import io.pgtrickle.spark.values.PgInterval;
import io.pgtrickle.spark.values.PgTimestamp;
import java.math.BigDecimal;
import java.math.BigInteger;
import java.time.LocalDate;
import java.time.temporal.IsoFields;
import org.apache.spark.unsafe.types.UTF8String;

/** extract and date_trunc of timestamps, intervals and times; the unit is in lower case and in the singular. */
public final class DateFields {
    /** The Julian day of 1970-01-01 in PostgreSQL. */
    private static final int JULIAN_1970 = 2440588;
    private static final long MILLISECOND = 1000L;

    private DateFields() {}

    private static PgError notSupported(UTF8String unit, String type) {
        return new PgError("unit \"" + unit + "\" not supported for type " + type);
    }

    /** Returns a field as a whole number; seconds and their parts as microseconds of the minute. */
    @SqlFunction("pg_dates_field")
    public static long ofTimestamp(UTF8String unit, long timestamp) {
        LocalDate date = PgTimestamp.dateOf(timestamp);
        long time = PgTimestamp.timeOf(timestamp);
        int year = date.getYear();
        return switch (unit.toString()) {
            case "microseconds", "milliseconds", "second" -> time % MINUTE;
            case "minute" -> time / MINUTE % 60;
            case "hour" -> time / HOUR;
            case "day" -> date.getDayOfMonth();
            case "month" -> date.getMonthValue();
            case "quarter" -> (date.getMonthValue() - 1) / 3 + 1;
            case "week" -> date.get(IsoFields.WEEK_OF_WEEK_BASED_YEAR);
            case "year" -> year;
            case "decade" -> year / 10;
            case "century" -> (year + 99) / 100;
            case "millennium" -> (year + 999) / 1000;
            case "isoyear" -> {
                // The week of 0001-01-01 may belong to the year before: there is no year 0.
                int isoYear = date.get(IsoFields.WEEK_BASED_YEAR);
                yield isoYear <= 0 ? isoYear - 1 : isoYear;
            }
            case "dow" -> date.getDayOfWeek().getValue() % 7;
            case "isodow" -> date.getDayOfWeek().getValue();
            case "doy" -> date.getDayOfYear();
            case "julian" -> date.toEpochDay() + JULIAN_1970;
            case "epoch" -> timestamp;
            case "timezone", "timezone_hour", "timezone_minute" -> 0;
            default -> throw notSupported(unit, "timestamp");
        };
    }

    /** Returns a field of a time of day; seconds and their parts as microseconds of the minute. */
    @SqlFunction("pg_dates_time_field")
    public static long ofTime(UTF8String unit, UTF8String time) {
        long micros = PgInterval.parse(time.toString()).micros();
        return switch (unit.toString()) {
            case "epoch" -> micros;
            case "hour" -> micros / HOUR;
            case "minute" -> micros / MINUTE % 60;
            default -> micros % MINUTE;
        };
    }

    /** Returns a field of an interval; seconds and their parts as microseconds of the minute. */
    @SqlFunction("pg_intervals_field")
    public static long ofInterval(UTF8String unit, UTF8String interval) {
        PgInterval value = PgInterval.parse(interval.toString());
        int years = value.months() / 12;
        return switch (unit.toString()) {
            case "microseconds", "milliseconds", "second" -> value.micros() % MINUTE;
            case "minute" -> value.micros() / MINUTE % 60;
            case "hour" -> value.micros() / HOUR;
            case "day" -> value.days();
            case "month" -> value.months() % 12;
            case "year" -> years;
            case "decade" -> years / 10;
            case "century" -> years / 100;
            case "millennium" -> years / 1000;
            default -> throw notSupported(unit, "interval");
        };
    }

    /** extract(epoch FROM interval): seconds as a numeric with scale 6, years of 365.25 and months of 30 days. */
    @SqlFunction("pg_intervals_epoch")
    public static UTF8String epoch(UTF8String interval) {
        PgInterval value = PgInterval.parse(interval.toString());
        int years = value.months() / 12;
        long quarterDays = 1461L * years + 120L * (value.months() % 12) + 4L * value.days();
        BigInteger micros = BigInteger.valueOf(quarterDays * 21600L).multiply(BigInteger.valueOf(SECOND))
            .add(BigInteger.valueOf(value.micros()));
        return fromString(new BigDecimal(micros, 6).toPlainString());
    }

    /** date_part('epoch', interval), in the order of PostgreSQL's own sum. */
    @SqlFunction("pg_intervals_epoch_double")
    public static double epochAsDouble(UTF8String interval) {
        PgInterval value = PgInterval.parse(interval.toString());
        double result = value.micros() / 1000000.0;
        result += (365.25 * 86400) * (value.months() / 12);
        result += (30.0 * 86400) * (value.months() % 12);
        result += 86400.0 * value.days();
        return result;
    }

    /** date_trunc(unit, timestamp). */
    @SqlFunction("pg_dates_trunc")
    public static long truncate(UTF8String unit, long timestamp) {
        LocalDate date = PgTimestamp.dateOf(timestamp);
        int year = date.getYear();
        return switch (unit.toString()) {
            case "microseconds" -> timestamp;
            case "milliseconds" -> timestamp - Math.floorMod(timestamp, MILLISECOND);
            case "second" -> timestamp - Math.floorMod(timestamp, SECOND);
            case "minute" -> timestamp - Math.floorMod(timestamp, MINUTE);
            case "hour" -> timestamp - Math.floorMod(timestamp, HOUR);
            case "day" -> midnight(date);
            case "week" -> midnight(date.minusDays(date.getDayOfWeek().getValue() - 1));
            case "month" -> midnight(date.withDayOfMonth(1));
            case "quarter" -> midnight(LocalDate.of(year, (date.getMonthValue() - 1) / 3 * 3 + 1, 1));
            case "year" -> midnight(LocalDate.of(year, 1, 1));
            case "decade" -> midnight(LocalDate.of(year / 10 * 10, 1, 1));
            case "century" -> midnight(LocalDate.of((year + 99) / 100 * 100 - 99, 1, 1));
            case "millennium" -> midnight(LocalDate.of((year + 999) / 1000 * 1000 - 999, 1, 1));
            default -> throw notSupported(unit, "timestamp");
        };
    }

    private static long midnight(LocalDate date) {
        return PgTimestamp.check(date.toEpochDay() * DAY);
    }

    /** date_trunc(unit, interval). */
    @SqlFunction("pg_dates_trunc_interval")
    public static UTF8String truncateInterval(UTF8String unit, UTF8String interval) {
        PgInterval value = PgInterval.parse(interval.toString());
        long years = value.months() / 12;
        return fromString(switch (unit.toString()) {
            case "microseconds" -> interval.toString();
            case "milliseconds" -> truncateTime(value, MILLISECOND).toString();
            case "second" -> truncateTime(value, SECOND).toString();
            case "minute" -> truncateTime(value, MINUTE).toString();
            case "hour" -> truncateTime(value, HOUR).toString();
            case "day" -> new PgInterval(value.months(), value.days(), 0).toString();
            case "month" -> ofMonths(value.months()).toString();
            case "quarter" -> ofMonths(years * 12 + value.months() % 12 / 3 * 3).toString();
            case "year" -> ofMonths(years * 12).toString();
            case "decade" -> ofMonths(years / 10 * 120).toString();
            case "century" -> ofMonths(years / 100 * 1200).toString();
            case "millennium" -> ofMonths(years / 1000 * 12000).toString();
            default -> throw notSupported(unit, "interval");
        });
    }

    private static PgInterval truncateTime(PgInterval value, long unit) {
        return new PgInterval(value.months(), value.days(), value.micros() - value.micros() % unit);
    }

    private static PgInterval ofMonths(long months) {
        return PgInterval.of(months, 0, 0);
    }
}
