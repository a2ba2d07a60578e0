package pgtrickle;

/** One value of PostgreSQL's interval. Its text has IntervalStyle postgres. */
final class Span {
    static final long DAY = 86400000000L;

    final int months;
    final int days;
    final long micros;

    Span(int months, int days, long micros) {
        // Since version 17 these two values are the infinities; a finite interval must not reach them.
        if (months == Integer.MAX_VALUE && days == Integer.MAX_VALUE && micros == Long.MAX_VALUE
            || months == Integer.MIN_VALUE && days == Integer.MIN_VALUE && micros == Long.MIN_VALUE) throw outOfRange();
        this.months = months;
        this.days = days;
        this.micros = micros;
    }

    static PgError outOfRange() {
        return new PgError("interval out of range");
    }

    static Span of(long months, long days, long micros) {
        if (months != (int) months || days != (int) days) throw outOfRange();
        return new Span((int) months, (int) days, micros);
    }

    /** Parses the text of interval_out, and plain lists of numbers with units. */
    static Span parse(String text) {
        long months = 0;
        long days = 0;
        long micros = 0;
        String[] words = Text.trimSpace(text).split("\\s+");
        if (words.length == 1 && words[0].isEmpty()) throw invalid(text);
        int i = 0;
        while (i < words.length) {
            String word = words[i];
            if (word.indexOf(':') >= 0) {
                if (i != words.length - 1) throw invalid(text);
                micros = Math.addExact(micros, clock(word, text));
                i++;
                continue;
            }
            if (i + 1 >= words.length) throw invalid(text);
            long n;
            try {
                n = Long.parseLong(word.startsWith("+") ? word.substring(1) : word);
            } catch (NumberFormatException e) {
                throw invalid(text);
            }
            String unit = words[i + 1].toLowerCase(java.util.Locale.ROOT);
            if (unit.endsWith("s") && unit.length() > 1) unit = unit.substring(0, unit.length() - 1);
            if (unit.equals("year")) months += Math.multiplyExact(n, 12L);
            else if (unit.equals("mon") || unit.equals("month")) months += n;
            else if (unit.equals("week")) days += Math.multiplyExact(n, 7L);
            else if (unit.equals("day")) days += n;
            else if (unit.equals("hour")) micros = Math.addExact(micros, Math.multiplyExact(n, 3600000000L));
            else if (unit.equals("minute") || unit.equals("min")) {
                micros = Math.addExact(micros, Math.multiplyExact(n, 60000000L));
            } else if (unit.equals("second") || unit.equals("sec")) {
                micros = Math.addExact(micros, Math.multiplyExact(n, 1000000L));
            } else throw invalid(text);
            i += 2;
        }
        return of(months, days, micros);
    }

    private static PgError invalid(String text) {
        return new PgError("invalid input syntax for type interval: \"" + text + "\"");
    }

    private static final java.util.regex.Pattern CLOCK =
        java.util.regex.Pattern.compile("([+-]?)(\\d+):(\\d\\d)(?::(\\d\\d)(?:\\.(\\d{1,6}))?)?");

    private static long clock(String word, String whole) {
        java.util.regex.Matcher m = CLOCK.matcher(word);
        if (!m.matches()) throw invalid(whole);
        long seconds = Long.parseLong(m.group(2)) * 3600 + Long.parseLong(m.group(3)) * 60
            + (m.group(4) == null ? 0 : Long.parseLong(m.group(4)));
        long part = m.group(5) == null ? 0 : Long.parseLong((m.group(5) + "00000").substring(0, 6));
        // Negate before the sum: the smallest interval has no positive counterpart.
        return m.group(1).equals("-")
            ? Math.subtractExact(Math.multiplyExact(-seconds, 1000000L), part)
            : Math.addExact(Math.multiplyExact(seconds, 1000000L), part);
    }

    public String toString() {
        StringBuilder out = new StringBuilder();
        boolean before = part(out, months / 12, "year", false);
        before = part(out, months % 12, "mon", before);
        before = part(out, days, "day", before);
        if (out.length() == 0 || micros != 0) {
            if (out.length() > 0) out.append(' ');
            out.append(micros < 0 ? "-" : (before ? "+" : ""));
            long hours = Math.abs(micros / 3600000000L);
            out.append(hours < 10 ? "0" : "").append(hours).append(':');
            long rest = Math.abs(micros % 3600000000L);
            two(out, rest / 60000000L).append(':');
            two(out, rest / 1000000L % 60);
            Dates.fraction(out, (int) (rest % 1000000L));
        }
        return out.toString();
    }

    private static boolean part(StringBuilder out, int value, String unit, boolean before) {
        if (value == 0) return before;
        if (out.length() > 0) out.append(' ');
        out.append(before && value > 0 ? "+" : "").append(value).append(' ').append(unit);
        if (value != 1) out.append('s');
        return value < 0;
    }

    static StringBuilder two(StringBuilder out, long value) {
        return out.append(value < 10 ? "0" : "").append(value);
    }

    Span negate() {
        if (months == Integer.MIN_VALUE || days == Integer.MIN_VALUE || micros == Long.MIN_VALUE) throw outOfRange();
        return new Span(-months, -days, -micros);
    }

    Span plus(Span other) {
        try {
            return of((long) months + other.months, (long) days + other.days, Math.addExact(micros, other.micros));
        } catch (ArithmeticException e) {
            throw outOfRange();
        }
    }

    /** 30 days in a month, 24 hours in a day. */
    java.math.BigInteger size() {
        return java.math.BigInteger.valueOf(months * 30L + days).multiply(java.math.BigInteger.valueOf(DAY))
            .add(java.math.BigInteger.valueOf(micros));
    }

    /** TSROUND */
    private static double settle(double seconds) {
        return Math.rint(seconds * 1000000.0) / 1000000.0;
    }

    private static int fit(double value) {
        if (!(value >= -2147483648.0 && value < 2147483648.0)) throw outOfRange();
        return (int) value;
    }

    Span scaled(double byMonths, double byDays, double byMicros) {
        int wholeMonths = fit(byMonths);
        int wholeDays = fit(byDays);
        double restDays = settle((byMonths - wholeMonths) * 30);
        double restSeconds = settle((byDays - wholeDays + restDays - (int) restDays) * 86400);
        long newDays = wholeDays;
        if (Math.abs(restSeconds) >= 86400) {
            newDays += (int) (restSeconds / 86400);
            if (newDays != (int) newDays) throw outOfRange();
            restSeconds -= (int) (restSeconds / 86400) * 86400;
        }
        newDays += (int) restDays;
        double time = Math.rint(byMicros + restSeconds * 1000000.0);
        if (!(time >= -9223372036854775808.0 && time < 9223372036854775808.0)) throw outOfRange();
        return of(wholeMonths, newDays, (long) time);
    }

    Span times(double factor) {
        if (Double.isNaN(factor) || Double.isInfinite(factor)) throw outOfRange();
        return scaled(months * factor, days * factor, micros * factor);
    }

    Span over(double factor) {
        if (factor == 0) throw new PgError("division by zero");
        if (Double.isNaN(factor)) throw outOfRange();
        return scaled(months / factor, days / factor, micros / factor);
    }

    Span justifyHours() {
        long whole = micros / DAY;
        long time = micros % DAY;
        long newDays = days + whole;
        if (newDays > 0 && time < 0) {
            time += DAY;
            newDays--;
        } else if (newDays < 0 && time > 0) {
            time -= DAY;
            newDays++;
        }
        return of(months, newDays, time);
    }

    Span justifyDays() {
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

    Span justify() {
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
        if (newDays > 0 && time < 0) {
            time += DAY;
            newDays--;
        } else if (newDays < 0 && time > 0) {
            time -= DAY;
            newDays++;
        }
        return of(newMonths, newDays, time);
    }
}
