package io.pgtrickle.spark.values;

import java.math.BigInteger;
import java.util.Locale;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/** One value of PostgreSQL's interval: months, days and microseconds. Its text has IntervalStyle postgres. */
public record PgInterval(int months, int days, long micros) {
    /** Microseconds of a second. */
    public static final long SECOND = 1_000_000L;
    /** Microseconds of a minute. */
    public static final long MINUTE = 60 * SECOND;
    /** Microseconds of an hour. */
    public static final long HOUR = 60 * MINUTE;
    /** Microseconds of a day. */
    public static final long DAY = 24 * HOUR;

    private static final Pattern CLOCK = Pattern.compile("([+-]?)(\\d+):(\\d\\d)(?::(\\d\\d)(?:\\.(\\d{1,6}))?)?");

    /** Refuses the two values that are the infinities since version 17: a finite interval must not reach them. */
    public PgInterval {
        boolean infinity = months == Integer.MAX_VALUE && days == Integer.MAX_VALUE && micros == Long.MAX_VALUE;
        boolean minusInfinity = months == Integer.MIN_VALUE && days == Integer.MIN_VALUE && micros == Long.MIN_VALUE;
        if (infinity || minusInfinity) throw outOfRange();
    }

    /** Returns the interval; raises if months or days do not fit. */
    public static PgInterval of(long months, long days, long micros) {
        if (months != (int) months || days != (int) days) throw outOfRange();
        return new PgInterval((int) months, (int) days, micros);
    }

    /** Returns the error for an interval that is too large. */
    public static PgError outOfRange() {
        return new PgError("interval out of range");
    }

    /** Reads the text of interval_out, and plain lists of numbers with units. */
    public static PgInterval parse(String text) {
        long months = 0;
        long days = 0;
        long micros = 0;
        String[] words = CharacterClass.trimSpace(text).split("\\s+");
        if (words.length == 1 && words[0].isEmpty()) throw invalid();
        for (int i = 0; i < words.length; i += 2) {
            boolean isLast = i == words.length - 1;
            if (words[i].indexOf(':') >= 0) {
                if (!isLast) throw invalid();
                micros = Math.addExact(micros, parseClock(words[i]));
                break;
            }
            if (isLast) throw invalid();
            long number = parseNumber(words[i]);
            switch (singular(words[i + 1])) {
                case "year" -> months += Math.multiplyExact(number, 12L);
                case "mon", "month" -> months += number;
                case "week" -> days += Math.multiplyExact(number, 7L);
                case "day" -> days += number;
                case "hour" -> micros = Math.addExact(micros, Math.multiplyExact(number, HOUR));
                case "minute", "min" -> micros = Math.addExact(micros, Math.multiplyExact(number, MINUTE));
                case "second", "sec" -> micros = Math.addExact(micros, Math.multiplyExact(number, SECOND));
                default -> throw invalid();
            }
        }
        return of(months, days, micros);
    }

    private static long parseNumber(String word) {
        try {
            return Long.parseLong(word.startsWith("+") ? word.substring(1) : word);
        } catch (NumberFormatException e) {
            throw invalid();
        }
    }

    private static String singular(String word) {
        String unit = word.toLowerCase(Locale.ROOT);
        return unit.endsWith("s") && unit.length() > 1 ? unit.substring(0, unit.length() - 1) : unit;
    }

    private static PgError invalid() {
        return new PgError.NotComputed("an interval is read only as PostgreSQL prints it");
    }

    private static long parseClock(String word) {
        Matcher parts = CLOCK.matcher(word);
        if (!parts.matches()) throw invalid();
        long seconds = Long.parseLong(parts.group(2)) * 3600 + Long.parseLong(parts.group(3)) * 60
            + (parts.group(4) == null ? 0 : Long.parseLong(parts.group(4)));
        long fraction = parts.group(5) == null ? 0 : Long.parseLong((parts.group(5) + "00000").substring(0, 6));
        // Negate before the sum: the smallest interval has no positive counterpart.
        return parts.group(1).equals("-")
            ? Math.subtractExact(Math.multiplyExact(-seconds, SECOND), fraction)
            : Math.addExact(Math.multiplyExact(seconds, SECOND), fraction);
    }

    /** Returns the text of interval_out. */
    @Override
    public String toString() {
        var out = new StringBuilder();
        boolean afterNegative = appendPart(out, months / 12, "year", false);
        afterNegative = appendPart(out, months % 12, "mon", afterNegative);
        afterNegative = appendPart(out, days, "day", afterNegative);
        if (out.isEmpty() || micros != 0) {
            if (!out.isEmpty()) out.append(' ');
            out.append(micros < 0 ? "-" : afterNegative ? "+" : "");
            // The hours first: the smallest number of microseconds has no positive counterpart.
            ClockText.append(out, Math.abs(micros / HOUR), Math.abs(micros % HOUR));
        }
        return out.toString();
    }

    private static boolean appendPart(StringBuilder out, int value, String unit, boolean afterNegative) {
        if (value == 0) return afterNegative;
        if (!out.isEmpty()) out.append(' ');
        out.append(afterNegative && value > 0 ? "+" : "").append(value).append(' ').append(unit);
        if (value != 1) out.append('s');
        return value < 0;
    }

    /** Returns the interval with all signs changed. */
    public PgInterval negate() {
        if (months == Integer.MIN_VALUE || days == Integer.MIN_VALUE || micros == Long.MIN_VALUE) throw outOfRange();
        return new PgInterval(-months, -days, -micros);
    }

    /** Returns this + other. */
    public PgInterval plus(PgInterval other) {
        try {
            return of((long) months + other.months, (long) days + other.days, Math.addExact(micros, other.micros));
        } catch (ArithmeticException e) {
            throw outOfRange();
        }
    }

    /** Returns this - other. */
    public PgInterval minus(PgInterval other) {
        try {
            return of((long) months - other.months, (long) days - other.days, Math.subtractExact(micros, other.micros));
        } catch (ArithmeticException e) {
            throw outOfRange();
        }
    }

    /** Returns the length in microseconds by which intervals are compared: months of 30 days, days of 24 hours. */
    public BigInteger size() {
        return BigInteger.valueOf(months * 30L + days).multiply(BigInteger.valueOf(DAY)).add(BigInteger.valueOf(micros));
    }

    /** Returns this * factor. */
    public PgInterval times(double factor) {
        if (Double.isNaN(factor) || Double.isInfinite(factor)) throw outOfRange();
        return ofParts(months * factor, days * factor, micros * factor);
    }

    /** Returns this / divisor. */
    public PgInterval dividedBy(double divisor) {
        if (divisor == 0) throw new PgError("division by zero");
        if (Double.isNaN(divisor)) throw outOfRange();
        return ofParts(months / divisor, days / divisor, micros / divisor);
    }

    /** Carries fractions of months to days and fractions of days to the time, as interval_mul does. */
    private static PgInterval ofParts(double months, double days, double micros) {
        int wholeMonths = toInt(months);
        int wholeDays = toInt(days);
        double restDays = roundToMicros((months - wholeMonths) * 30);
        double restSeconds = roundToMicros((days - wholeDays + restDays - (int) restDays) * 86400);
        long newDays = wholeDays;
        if (Math.abs(restSeconds) >= 86400) {
            newDays += (int) (restSeconds / 86400);
            if (newDays != (int) newDays) throw outOfRange();
            restSeconds -= (int) (restSeconds / 86400) * 86400;
        }
        newDays += (int) restDays;
        double time = Math.rint(micros + restSeconds * 1000000.0);
        if (!(time >= -9223372036854775808.0 && time < 9223372036854775808.0)) throw outOfRange();
        return of(wholeMonths, newDays, (long) time);
    }

    /** PostgreSQL's TSROUND. */
    private static double roundToMicros(double value) {
        return Math.rint(value * 1000000.0) / 1000000.0;
    }

    private static int toInt(double value) {
        if (!(value >= -2147483648.0 && value < 2147483648.0)) throw outOfRange();
        return (int) value;
    }

    /** justify_hours: whole days of the time become days. */
    public PgInterval justifyHours() {
        return ofSameSigns(months, days + micros / DAY, micros % DAY);
    }

    /** justify_days: each 30 days become a month. */
    public PgInterval justifyDays() {
        long newMonths = months + (long) (days / 30);
        long newDays = days % 30;
        if (newMonths > 0 && newDays < 0) {
            newDays += 30;
            newMonths--;
        } else if (newMonths < 0 && newDays > 0) {
            newDays -= 30;
            newMonths++;
        }
        return of(newMonths, newDays, micros);
    }

    /** justify_interval: both of the above, and all parts have the same sign. */
    public PgInterval justify() {
        long newMonths = months;
        long newDays = days;
        if ((days > 0 && micros > 0) || (days < 0 && micros < 0)) {
            newMonths += newDays / 30;
            newDays %= 30;
        }
        newDays += micros / DAY;
        long time = micros % DAY;
        newMonths += newDays / 30;
        newDays %= 30;
        if (newMonths > 0 && (newDays < 0 || (newDays == 0 && time < 0))) {
            newDays += 30;
            newMonths--;
        } else if (newMonths < 0 && (newDays > 0 || (newDays == 0 && time > 0))) {
            newDays -= 30;
            newMonths++;
        }
        return ofSameSigns(newMonths, newDays, time);
    }

    /** Moves one day between days and time if their signs differ. */
    private static PgInterval ofSameSigns(long months, long days, long time) {
        if (days > 0 && time < 0) return of(months, days - 1, time + DAY);
        if (days < 0 && time > 0) return of(months, days + 1, time - DAY);
        return of(months, days, time);
    }
}
