package io.pgtrickle.spark.values;

import static io.pgtrickle.spark.values.PgInterval.SECOND;

import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * An ISO date, with or without a time of day and an offset, as a text has it; an offset is null if there is none. Any
 * other form raises, even if PostgreSQL accepts it.
 */
public record IsoDate(int year, int month, int dayOfMonth, int hour, int minute, int second, int micros, String offset) {
    private static final int MAX_OFFSET_S = 57600 - 60;
    private static final Pattern INPUT = Pattern.compile(
        "(\\d{4,})-(\\d{1,2})-(\\d{1,2})(?:[ T]+(\\d{1,2}):(\\d{2})(?::(\\d{2})(?:\\.(\\d{1,6}))?)?)?"
            + "\\s*(Z|UTC|[+-]\\d{2}(?::?\\d{2})?)?", Pattern.CASE_INSENSITIVE);

    /** Reads the text of a value of this type. */
    public static IsoDate parse(String input, String type) {
        Matcher parts = INPUT.matcher(CharacterClass.trimSpace(input));
        if (!parts.matches()) throw new PgError.NotIsoDate(type, input);
        if (parts.group(1).length() > 4) throw new PgError.NotComputed("years after 9999 are not held here");
        int second = number(parts.group(6));
        if (second > 60) throw new PgError("date/time field value out of range");
        String fraction = parts.group(7);
        return new IsoDate(number(parts.group(1)), number(parts.group(2)), number(parts.group(3)),
            number(parts.group(4)), number(parts.group(5)), second,
            fraction == null ? 0 : Integer.parseInt((fraction + "00000").substring(0, 6)), parts.group(8));
    }

    private static int number(String digits) {
        return digits == null ? 0 : Integer.parseInt(digits);
    }

    /** Returns the date in days since 1970; the time of day is checked and ignored. */
    public int toDate() {
        toTimestamp();
        return PgTimestamp.ofDate(year, month, dayOfMonth);
    }

    /** Returns the timestamp without time zone; the offset is ignored, as in PostgreSQL. */
    public long toTimestamp() {
        return PgTimestamp.of(year, month, dayOfMonth, hour, minute, 0) + second * SECOND + micros;
    }

    /** Returns the instant; without an offset the time is UTC. */
    public long toInstant() {
        long local = toTimestamp();
        if (offset == null || offset.equalsIgnoreCase("Z") || offset.equalsIgnoreCase("UTC")) return local;
        String digits = offset.substring(1).replace(":", "");
        long seconds = Integer.parseInt(digits.substring(0, 2)) * 3600L;
        if (digits.length() > 2) seconds += Integer.parseInt(digits.substring(2)) * 60L;
        if (seconds > MAX_OFFSET_S) throw new PgError("time zone displacement out of range");
        return local - (offset.charAt(0) == '-' ? -seconds : seconds) * SECOND;
    }
}
