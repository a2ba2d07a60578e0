package pgtrickle;

import java.time.LocalDate;
import java.time.LocalDateTime;
import java.time.ZoneId;
import java.time.ZoneOffset;
import java.time.temporal.ChronoField;
import java.time.temporal.IsoFields;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.spark.unsafe.types.UTF8String;

/** Functions of date (days since 1970), timestamp (microseconds since 1970), both without a zone, and time (text). */
public final class Dates {
    private static final long DAY = Span.DAY;
    private static final long FIRST = LocalDate.of(1, 1, 1).toEpochDay();
    private static final long LAST = LocalDate.of(9999, 12, 31).toEpochDay();
    /** The Julian day of 1970-01-01 in PostgreSQL. */
    private static final int JULIAN = 2440588;

    private static int day(long days) {
        if (days < FIRST || days > LAST) throw new PgError("nothing; but years before 1 or after 9999 are not held here");
        return (int) days;
    }

    private static long moment(long micros) {
        day(Math.floorDiv(micros, DAY));
        return micros;
    }

    private static LocalDate date(long micros) {
        return LocalDate.ofEpochDay(Math.floorDiv(micros, DAY));
    }

    public static int add_days(int date, int days) {
        return day((long) date + days);
    }

    public static int sub_days(int date, int days) {
        return day((long) date - days);
    }

    public static long add(long timestamp, UTF8String interval) {
        return shifted(timestamp, Span.parse(interval.toString()));
    }

    public static long sub(long timestamp, UTF8String interval) {
        return shifted(timestamp, Span.parse(interval.toString()).negate());
    }

    /** Returns the timestamps from first to last, one interval apart, in microseconds; an empty text if none. */
    public static UTF8String series(long first, long last, UTF8String interval) {
        Span step = Span.parse(interval.toString());
        boolean rising = step.size().signum() > 0;
        StringBuilder out = new StringBuilder();
        for (long at = first; rising ? at <= last : at >= last; at = shifted(at, step)) {
            if (out.length() > 0) out.append(',');
            out.append(at);
        }
        return UTF8String.fromString(out.toString());
    }

    private static long shifted(long timestamp, Span span) {
        long clock = Math.floorMod(timestamp, DAY);
        LocalDate date = date(timestamp);
        try {
            // plusMonths uses the last day of a shorter month, as PostgreSQL does.
            if (span.months != 0) date = date.plusMonths(span.months);
            long days = Math.addExact(date.toEpochDay(), (long) span.days);
            return moment(Math.addExact(Math.addExact(Math.multiplyExact(days, DAY), clock), span.micros));
        } catch (ArithmeticException e) {
            throw new PgError("timestamp out of range");
        } catch (java.time.DateTimeException e) {
            throw new PgError("timestamp out of range");
        }
    }

    public static UTF8String diff(long a, long b) {
        return UTF8String.fromString(new Span(0, 0, a - b).justifyHours().toString());
    }

    public static UTF8String age(long first, long second) {
        boolean before = first < second;
        long later = before ? second : first;
        long earlier = before ? first : second;
        LocalDate one = date(later);
        LocalDate two = date(earlier);
        long clock = Math.floorMod(later, DAY) - Math.floorMod(earlier, DAY);
        long days = one.getDayOfMonth() - two.getDayOfMonth();
        long months = one.getMonthValue() - two.getMonthValue();
        long years = one.getYear() - two.getYear();
        if (clock < 0) {
            clock += DAY;
            days--;
        }
        // Days are always borrowed from the month of the earlier date.
        while (days < 0) {
            days += two.lengthOfMonth();
            months--;
        }
        while (months < 0) {
            months += 12;
            years--;
        }
        Span found = Span.of(years * 12 + months, days, clock);
        return UTF8String.fromString((before ? found.negate() : found).toString());
    }

    public static long trunc(UTF8String unit, long timestamp) {
        String field = unit.toString();
        LocalDate date = date(timestamp);
        if (field.equals("microseconds")) return timestamp;
        if (field.equals("milliseconds")) return timestamp - Math.floorMod(timestamp, 1000L);
        if (field.equals("second")) return timestamp - Math.floorMod(timestamp, 1000000L);
        if (field.equals("minute")) return timestamp - Math.floorMod(timestamp, 60000000L);
        if (field.equals("hour")) return timestamp - Math.floorMod(timestamp, 3600000000L);
        int year = date.getYear();
        if (field.equals("week")) date = date.minusDays(date.getDayOfWeek().getValue() - 1);
        else if (field.equals("month")) date = date.withDayOfMonth(1);
        else if (field.equals("quarter")) date = LocalDate.of(year, (date.getMonthValue() - 1) / 3 * 3 + 1, 1);
        else if (field.equals("year")) date = LocalDate.of(year, 1, 1);
        else if (field.equals("decade")) date = LocalDate.of(year / 10 * 10, 1, 1);
        else if (field.equals("century")) date = LocalDate.of((year + 99) / 100 * 100 - 99, 1, 1);
        else if (field.equals("millennium")) date = LocalDate.of((year + 999) / 1000 * 1000 - 999, 1, 1);
        else if (!field.equals("day")) throw new PgError("unit \"" + field + "\" not supported for type timestamp");
        return moment(date.toEpochDay() * DAY);
    }

    public static UTF8String trunc_interval(UTF8String unit, UTF8String interval) {
        String field = unit.toString();
        Span s = Span.parse(interval.toString());
        long years = s.months / 12;
        if (field.equals("microseconds")) return interval;
        if (field.equals("milliseconds")) return span(s.months, s.days, s.micros - s.micros % 1000L);
        if (field.equals("second")) return span(s.months, s.days, s.micros - s.micros % 1000000L);
        if (field.equals("minute")) return span(s.months, s.days, s.micros - s.micros % 60000000L);
        if (field.equals("hour")) return span(s.months, s.days, s.micros - s.micros % 3600000000L);
        if (field.equals("day")) return span(s.months, s.days, 0);
        if (field.equals("month")) return span(s.months, 0, 0);
        if (field.equals("quarter")) return span(years * 12 + s.months % 12 / 3 * 3, 0, 0);
        if (field.equals("year")) return span(years * 12, 0, 0);
        if (field.equals("decade")) return span(years / 10 * 120, 0, 0);
        if (field.equals("century")) return span(years / 100 * 1200, 0, 0);
        if (field.equals("millennium")) return span(years / 1000 * 12000, 0, 0);
        throw new PgError("unit \"" + field + "\" not supported for type interval");
    }

    private static UTF8String span(long months, long days, long micros) {
        return UTF8String.fromString(Span.of(months, days, micros).toString());
    }

    public static long bin(UTF8String stride, long timestamp, long origin) {
        Span s = Span.parse(stride.toString());
        if (s.months != 0) {
            throw new PgError("timestamps cannot be binned into intervals containing months or years");
        }
        long step;
        try {
            step = Math.addExact(Math.multiplyExact((long) s.days, DAY), s.micros);
        } catch (ArithmeticException e) {
            throw Span.outOfRange();
        }
        if (step <= 0) throw new PgError("stride must be greater than zero");
        try {
            return moment(Math.subtractExact(timestamp, Math.floorMod(timestamp - origin, step)));
        } catch (ArithmeticException e) {
            throw new PgError("timestamp out of range");
        }
    }

    /** Returns a field as a whole number; seconds and their parts as microseconds of the minute. */
    public static long field(UTF8String unit, long timestamp) {
        String field = unit.toString();
        LocalDate date = date(timestamp);
        long clock = Math.floorMod(timestamp, DAY);
        int year = date.getYear();
        if (field.equals("microseconds") || field.equals("milliseconds") || field.equals("second")) {
            return clock % 60000000L;
        }
        if (field.equals("minute")) return clock / 60000000L % 60;
        if (field.equals("hour")) return clock / 3600000000L;
        if (field.equals("day")) return date.getDayOfMonth();
        if (field.equals("month")) return date.getMonthValue();
        if (field.equals("quarter")) return (date.getMonthValue() - 1) / 3 + 1;
        if (field.equals("week")) return date.get(IsoFields.WEEK_OF_WEEK_BASED_YEAR);
        if (field.equals("year")) return year;
        if (field.equals("decade")) return year / 10;
        if (field.equals("century")) return (year + 99) / 100;
        if (field.equals("millennium")) return (year + 999) / 1000;
        if (field.equals("isoyear")) {
            int found = date.get(IsoFields.WEEK_BASED_YEAR);
            return found <= 0 ? found - 1 : found;
        }
        if (field.equals("dow")) return date.getDayOfWeek().getValue() % 7;
        if (field.equals("isodow")) return date.getDayOfWeek().getValue();
        if (field.equals("doy")) return date.getDayOfYear();
        if (field.equals("julian")) return date.toEpochDay() + JULIAN;
        if (field.equals("epoch")) return timestamp;
        if (field.equals("timezone") || field.equals("timezone_hour") || field.equals("timezone_minute")) return 0;
        throw new PgError("unit \"" + field + "\" not supported for type timestamp");
    }

    public static int make_date(int year, int month, int dayOfMonth) {
        if (year < 1) throw new PgError("date field value out of range, or a year before 1, which is not held here");
        try {
            return day(LocalDate.of(year, month, dayOfMonth).toEpochDay());
        } catch (java.time.DateTimeException e) {
            throw new PgError("date field value out of range");
        }
    }

    private static long clockOf(int hour, int minute, double second) {
        if (hour < 0 || minute < 0 || minute > 59 || !(second >= 0 && second <= 60) || hour > 24) {
            throw new PgError("time field value out of range");
        }
        long clock = (hour * 60L + minute) * 60000000L + (long) Math.rint(second * 1000000.0);
        if (clock > DAY) throw new PgError("time field value out of range");
        return clock;
    }

    public static long make_timestamp(int year, int month, int dayOfMonth, int hour, int minute, double second) {
        return moment(make_date(year, month, dayOfMonth) * DAY + clockOf(hour, minute, second));
    }

    public static UTF8String make_time(int hour, int minute, double second) {
        return UTF8String.fromString(clock(clockOf(hour, minute, second)));
    }

    public static long of_epoch(double seconds) {
        if (Double.isNaN(seconds)) throw new PgError("timestamp cannot be NaN");
        if (!(Math.abs(seconds) < 1e12)) throw new PgError("timestamp out of range");
        // PostgreSQL rounds relative to the year 2000.
        return moment((long) Math.rint((seconds - 946684800.0) * 1000000.0) + 946684800000000L);
    }

    // Zones. The session's zone is UTC; a named zone is an argument of the call.

    /** Converts local time to an instant: a gap uses the offset before it, an overlap the later (standard) offset. */
    public static long from_zone(UTF8String zone, long local) {
        java.time.zone.ZoneRules rules = zone(zone).getRules();
        LocalDateTime when = LocalDateTime.ofEpochSecond(
            Math.floorDiv(local, 1000000L), (int) Math.floorMod(local, 1000000L) * 1000, ZoneOffset.UTC);
        java.time.zone.ZoneOffsetTransition change = rules.getTransition(when);
        ZoneOffset offset = change == null ? rules.getOffset(when)
            : (change.isGap() ? change.getOffsetBefore() : change.getOffsetAfter());
        return moment(local - offset.getTotalSeconds() * 1000000L);
    }

    public static long to_zone(UTF8String zone, long instant) {
        java.time.Instant at = java.time.Instant.ofEpochSecond(Math.floorDiv(instant, 1000000L));
        return moment(instant + zone(zone).getRules().getOffset(at).getTotalSeconds() * 1000000L);
    }

    private static ZoneId zone(UTF8String name) {
        try {
            return ZoneId.of(name.toString());
        } catch (java.time.DateTimeException e) {
            throw new PgError("time zone \"" + name + "\" not recognized");
        }
    }

    // Texts.

    static void fraction(StringBuilder out, int micros) {
        if (micros == 0) return;
        String digits = Integer.toString(1000000 + micros).substring(1);
        int end = 6;
        while (digits.charAt(end - 1) == '0') end--;
        out.append('.').append(digits, 0, end);
    }

    static String clock(long micros) {
        StringBuilder out = new StringBuilder();
        Span.two(out, micros / 3600000000L).append(':');
        Span.two(out, micros / 60000000L % 60).append(':');
        Span.two(out, micros / 1000000L % 60);
        fraction(out, (int) (micros % 1000000L));
        return out.toString();
    }

    static String print(LocalDate date) {
        StringBuilder out = new StringBuilder();
        String year = Integer.toString(date.getYear());
        for (int i = year.length(); i < 4; i++) out.append('0');
        out.append(year).append('-');
        Span.two(out, date.getMonthValue()).append('-');
        return Span.two(out, date.getDayOfMonth()).toString();
    }

    public static UTF8String out_date(int date) {
        return UTF8String.fromString(print(LocalDate.ofEpochDay(date)));
    }

    public static UTF8String out_timestamp(long timestamp) {
        return UTF8String.fromString(print(date(timestamp)) + " " + clock(Math.floorMod(timestamp, DAY)));
    }

    private static final Pattern INPUT = Pattern.compile(
        "(\\d{4,})-(\\d{1,2})-(\\d{1,2})(?:[ T]+(\\d{1,2}):(\\d{2})(?::(\\d{2})(?:\\.(\\d{1,6}))?)?)?"
            + "\\s*(Z|UTC|[+-]\\d{2}(?::?\\d{2})?)?", Pattern.CASE_INSENSITIVE);

    /** Parses ISO dates only, with or without a time of day; any other form raises, even if PostgreSQL accepts it. */
    private static Matcher iso(UTF8String input, String type) {
        Matcher m = INPUT.matcher(Text.trimSpace(input.toString()));
        if (!m.matches()) {
            throw new PgError("invalid input syntax for type " + type + ": \"" + input + "\" (or not an ISO date)");
        }
        return m;
    }

    private static int number(String digits) {
        return digits == null ? 0 : Integer.parseInt(digits);
    }

    private static long read(Matcher m) {
        if (m.group(1).length() > 4) throw new PgError("nothing; but years after 9999 are not held here");
        int seconds = number(m.group(6));
        if (seconds > 60) throw new PgError("date/time field value out of range");
        int micros = m.group(7) == null ? 0 : Integer.parseInt((m.group(7) + "00000").substring(0, 6));
        return make_timestamp(number(m.group(1)), number(m.group(2)), number(m.group(3)), number(m.group(4)),
            number(m.group(5)), 0) + seconds * 1000000L + micros;
    }

    public static int in_date(UTF8String input) {
        Matcher m = iso(input, "date");
        read(m);
        return make_date(number(m.group(1)), number(m.group(2)), number(m.group(3)));
    }

    public static long in_timestamp(UTF8String input) {
        // A zone in the text of a timestamp without time zone is ignored, as in PostgreSQL.
        return moment(read(iso(input, "timestamp")));
    }

    public static long in_timestamptz(UTF8String input) {
        Matcher m = iso(input, "timestamp with time zone");
        String zone = m.group(8);
        long local = read(m);
        if (zone == null || zone.equalsIgnoreCase("Z") || zone.equalsIgnoreCase("UTC")) return moment(local);
        String digits = zone.substring(1).replace(":", "");
        long offset = Integer.parseInt(digits.substring(0, 2)) * 3600L;
        if (digits.length() > 2) offset += Integer.parseInt(digits.substring(2)) * 60L;
        if (offset > 57600 - 60) throw new PgError("time zone displacement out of range");
        return moment(local - (zone.charAt(0) == '-' ? -offset : offset) * 1000000L);
    }

    // Time of day: hh:mm:ss[.ffffff], up to 24:00:00; the texts sort as the times do.

    static long ofClock(String text) {
        return Span.parse(text).micros;
    }

    public static UTF8String time_of(long timestamp) {
        return UTF8String.fromString(clock(Math.floorMod(timestamp, DAY)));
    }

    public static UTF8String time_add(UTF8String time, UTF8String interval, int sign) {
        // A sum that is too large wraps, as in PostgreSQL.
        long moved = ofClock(time.toString()) + sign * Span.parse(interval.toString()).micros;
        return UTF8String.fromString(clock(Math.floorMod(moved, DAY)));
    }

    public static UTF8String time_diff(UTF8String a, UTF8String b) {
        return span(0, 0, ofClock(a.toString()) - ofClock(b.toString()));
    }

    public static UTF8String time_interval(UTF8String a) {
        return span(0, 0, ofClock(a.toString()));
    }

    public static long with_time(int date, UTF8String time) {
        return moment(date * DAY + ofClock(time.toString()));
    }

    public static long time_field(UTF8String unit, UTF8String time) {
        long clock = ofClock(time.toString());
        String field = unit.toString();
        if (field.equals("epoch")) return clock;
        if (field.equals("hour")) return clock / 3600000000L;
        if (field.equals("minute")) return clock / 60000000L % 60;
        return clock % 60000000L;
    }
}
