package pgtrickle;

import org.apache.spark.unsafe.types.UTF8String;

/** Functions of interval over its text. */
public final class Intervals {
    private static Span span(UTF8String text) {
        return Span.parse(text.toString());
    }

    private static UTF8String text(Span span) {
        return UTF8String.fromString(span.toString());
    }

    public static UTF8String in(UTF8String input) {
        return text(span(input));
    }

    public static UTF8String add(UTF8String a, UTF8String b) {
        return text(span(a).plus(span(b)));
    }

    public static UTF8String sub(UTF8String a, UTF8String b) {
        Span x = span(a);
        Span y = span(b);
        try {
            return text(Span.of((long) x.months - y.months, (long) x.days - y.days,
                Math.subtractExact(x.micros, y.micros)));
        } catch (ArithmeticException e) {
            throw Span.outOfRange();
        }
    }

    public static UTF8String neg(UTF8String a) {
        return text(span(a).negate());
    }

    public static UTF8String mul(UTF8String a, double factor) {
        return text(span(a).times(factor));
    }

    public static UTF8String div(UTF8String a, double factor) {
        return text(span(a).over(factor));
    }

    public static int cmp(UTF8String a, UTF8String b) {
        return span(a).size().compareTo(span(b).size());
    }

    /** Returns a text that is the same only for equal intervals and sorts as they do. */
    public static UTF8String sortable(UTF8String a) {
        return UTF8String.fromString(Num.of(new java.math.BigDecimal(span(a).size())).sortable());
    }

    public static UTF8String greatest(UTF8String a, UTF8String b) {
        return cmp(a, b) >= 0 ? a : b;
    }

    public static UTF8String least(UTF8String a, UTF8String b) {
        return cmp(a, b) <= 0 ? a : b;
    }

    public static UTF8String justify_hours(UTF8String a) {
        return text(span(a).justifyHours());
    }

    public static UTF8String justify_days(UTF8String a) {
        return text(span(a).justifyDays());
    }

    public static UTF8String justify_interval(UTF8String a) {
        return text(span(a).justify());
    }

    public static UTF8String make(int years, int months, int weeks, int days, int hours, int mins, double secs) {
        if (Double.isNaN(secs) || Double.isInfinite(secs)) throw Span.outOfRange();
        double micros = Math.rint(secs * 1000000.0);
        if (!(Math.abs(micros) < 9.2e18)) throw Span.outOfRange();
        return text(Span.of(years * 12L + months, weeks * 7L + days,
            hours * 3600000000L + mins * 60000000L + (long) micros));
    }

    /** Returns the time of day in the time part of an interval. */
    public static UTF8String to_time(UTF8String a) {
        long micros = span(a).micros;
        // PostgreSQL before 17 overflows here and returns times that do not exist.
        if (micros < Long.MIN_VALUE + 2 * Span.DAY) throw Span.outOfRange();
        return UTF8String.fromString(Dates.clock(Math.floorMod(micros, Span.DAY)));
    }

    /** Returns the value of a field in units of 10^-scale. */
    public static long field(UTF8String unit, UTF8String a) {
        Span s = span(a);
        String field = unit.toString();
        long seconds = s.micros % 60000000L;
        if (field.equals("microseconds") || field.equals("milliseconds") || field.equals("second")) return seconds;
        if (field.equals("minute")) return s.micros / 60000000L % 60;
        if (field.equals("hour")) return s.micros / 3600000000L;
        if (field.equals("day")) return s.days;
        if (field.equals("month")) return s.months % 12;
        if (field.equals("year")) return s.months / 12;
        if (field.equals("decade")) return s.months / 12 / 10;
        if (field.equals("century")) return s.months / 12 / 100;
        if (field.equals("millennium")) return s.months / 12 / 1000;
        throw new PgError("unit \"" + field + "\" not supported for type interval");
    }

    /** Returns seconds as a numeric with scale 6. */
    public static UTF8String epoch(UTF8String a) {
        Span s = span(a);
        java.math.BigInteger seconds = java.math.BigInteger.valueOf(
            (1461L * (s.months / 12) + 120L * (s.months % 12) + 4L * s.days) * 21600L);
        java.math.BigInteger micros = seconds.multiply(java.math.BigInteger.valueOf(1000000L))
            .add(java.math.BigInteger.valueOf(s.micros));
        return UTF8String.fromString(new java.math.BigDecimal(micros, 6).toPlainString());
    }

    public static double epoch_double(UTF8String a) {
        Span s = span(a);
        double result = s.micros / 1000000.0;
        result += (365.25 * 86400) * (s.months / 12);
        result += (30.0 * 86400) * (s.months % 12);
        result += 86400.0 * s.days;
        return result;
    }
}
