package io.pgtrickle.spark.functions;

import static io.pgtrickle.spark.values.PgInterval.DAY;
import static io.pgtrickle.spark.values.PgInterval.HOUR;
import static io.pgtrickle.spark.values.PgInterval.MINUTE;
import static io.pgtrickle.spark.values.PgInterval.SECOND;
import static org.apache.spark.unsafe.types.UTF8String.fromString;

import io.pgtrickle.spark.values.PgError;
import io.pgtrickle.spark.values.PgTimestamp;
import java.time.LocalDate;
import java.time.temporal.IsoFields;
import java.util.List;
import java.util.Locale;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.spark.unsafe.types.UTF8String;

/** to_char, to_date and to_timestamp for the patterns that applier.functions.datetime.formats accepts. */
public final class TimestampFormat {
    /** FM, a field, an ordinal suffix; or a text in quotes; or any other character. */
    private static final Pattern TOKEN = Pattern.compile(
        "(FM)?(YYYY|YY|IYYY|IW|MONTH|Month|month|MON|Mon|mon|MM|MI|MS|DDD|DD|DAY|Day|day|DY|Dy|dy|ID|D"
            + "|HH24|HH12|HH|SSSS|SS|US|AM|PM|am|pm|WW|Q)(TH|th)?|\"([^\"]*)\"|(.)", Pattern.DOTALL);
    private static final List<String> MONTHS = List.of("January", "February", "March", "April", "May", "June", "July",
        "August", "September", "October", "November", "December");
    private static final List<String> DAYS =
        List.of("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday");

    private TimestampFormat() {}

    /** to_char(timestamp, text). */
    @SqlFunction("pg_format_timestamp")
    public static UTF8String print(long timestamp, UTF8String format) {
        LocalDate date = PgTimestamp.dateOf(timestamp);
        long time = PgTimestamp.timeOf(timestamp);
        var out = new StringBuilder();
        Matcher token = TOKEN.matcher(format.toString());
        while (token.find()) {
            if (token.group(2) == null) {
                out.append(literal(token));
                continue;
            }
            String field = printField(token.group(2), token.group(1) != null, date, time);
            out.append(field);
            if (token.group(3) != null) out.append(ordinalSuffix(field, token.group(3).equals("TH")));
        }
        return fromString(out.toString());
    }

    private static String literal(Matcher token) {
        return token.group(4) != null ? token.group(4) : token.group(5);
    }

    private static String printField(String field, boolean fill, LocalDate date, long time) {
        int hour = (int) (time / HOUR);
        int micros = (int) (time % SECOND);
        return switch (field) {
            case "YYYY" -> number(date.getYear(), fill ? 0 : 4);
            case "YY" -> number(date.getYear() % 100, fill ? 0 : 2);
            case "IYYY" -> number(date.get(IsoFields.WEEK_BASED_YEAR), fill ? 0 : 4);
            case "IW" -> number(date.get(IsoFields.WEEK_OF_WEEK_BASED_YEAR), fill ? 0 : 2);
            case "MM" -> number(date.getMonthValue(), fill ? 0 : 2);
            case "DD" -> number(date.getDayOfMonth(), fill ? 0 : 2);
            case "DDD" -> number(date.getDayOfYear(), fill ? 0 : 3);
            case "D" -> number(date.getDayOfWeek().getValue() % 7 + 1, 0);
            case "ID" -> number(date.getDayOfWeek().getValue(), 0);
            case "WW" -> number((date.getDayOfYear() - 1) / 7 + 1, fill ? 0 : 2);
            case "Q" -> number((date.getMonthValue() - 1) / 3 + 1, 0);
            case "HH24" -> number(hour, fill ? 0 : 2);
            case "HH12", "HH" -> number(hour % 12 == 0 ? 12 : hour % 12, fill ? 0 : 2);
            case "MI" -> number(time / MINUTE % 60, fill ? 0 : 2);
            case "SS" -> number(time / SECOND % 60, fill ? 0 : 2);
            case "MS" -> number(micros / 1000, 3);
            case "US" -> number(micros, 6);
            case "SSSS" -> number(time / SECOND, 0);
            case "AM", "PM" -> hour >= 12 ? "PM" : "AM";
            case "am", "pm" -> hour >= 12 ? "pm" : "am";
            default -> printName(field, fill, date);
        };
    }

    private static String number(long value, int width) {
        String digits = Long.toString(value);
        return "0".repeat(Math.max(width - digits.length(), 0)) + digits;
    }

    /** The name of a month or of a day, in the case of the field; the long ones are padded to nine characters. */
    private static String printName(String field, boolean fill, LocalDate date) {
        boolean isMonth = field.toLowerCase(Locale.ROOT).startsWith("mo");
        String name = isMonth ? MONTHS.get(date.getMonthValue() - 1) : DAYS.get(date.getDayOfWeek().getValue() % 7);
        boolean isShort = isMonth ? field.length() == 3 : field.length() == 2;
        if (isShort) name = name.substring(0, 3);
        if (Character.isLowerCase(field.charAt(0))) name = name.toLowerCase(Locale.ROOT);
        else if (Character.isUpperCase(field.charAt(1))) name = name.toUpperCase(Locale.ROOT);
        return fill || isShort ? name : name + " ".repeat(9 - name.length());
    }

    private static String ordinalSuffix(String number, boolean upper) {
        int length = number.length();
        boolean isTeen = length > 1 && number.charAt(length - 2) == '1';
        char last = number.charAt(length - 1);
        String suffix = isTeen || last > '3' || last == '0' ? "th" : last == '1' ? "st" : last == '2' ? "nd" : "rd";
        return upper ? suffix.toUpperCase(Locale.ROOT) : suffix;
    }

    /** to_date. */
    @SqlFunction("pg_format_to_date")
    public static int parseDate(UTF8String text, UTF8String format) {
        return (int) Math.floorDiv(parse(text.toString(), format.toString()), DAY);
    }

    /** to_timestamp. */
    @SqlFunction("pg_format_to_timestamp")
    public static long parseTimestamp(UTF8String text, UTF8String format) {
        return parse(text.toString(), format.toString());
    }

    /** Reads strictly by the format: each field has all its digits, and the separators are the same. */
    private static long parse(String text, String format) {
        int year = 0;
        int month = 1;
        int day = 1;
        long time = 0;
        int at = 0;
        boolean hasYear = false;
        Matcher token = TOKEN.matcher(format);
        while (token.find()) {
            String field = token.group(2);
            if (field == null) {
                if (!text.startsWith(literal(token), at)) throw unreadable(text, format);
                at += literal(token).length();
                continue;
            }
            int width = field.equals("YYYY") ? 4 : field.equalsIgnoreCase("mon") ? 3 : 2;
            if (width != 3 && at + width > text.length()) throw unreadable(text, format);
            switch (field) {
                case "Mon", "MON", "mon" -> month = parseMonth(text, at, format);
                case "YYYY" -> {
                    year = parseDigits(text, at, width, format);
                    hasYear = true;
                }
                case "MM" -> month = Math.max(parseDigits(text, at, width, format), 1);
                case "DD" -> day = Math.max(parseDigits(text, at, width, format), 1);
                case "HH24" -> time += HOUR * checkField(parseDigits(text, at, width, format), 23, text);
                case "MI" -> time += MINUTE * checkField(parseDigits(text, at, width, format), 59, text);
                default -> time += SECOND * checkField(parseDigits(text, at, width, format), 59, text);
            }
            at += width;
        }
        if (at != text.length() || !hasYear) throw unreadable(text, format);
        return PgTimestamp.ofDate(year, month, day) * DAY + time;
    }

    private static int parseMonth(String text, int at, String format) {
        for (int i = 0; i < 12; i++) {
            if (text.regionMatches(true, at, MONTHS.get(i), 0, 3)) return i + 1;
        }
        throw unreadable(text, format);
    }

    private static int parseDigits(String text, int at, int width, String format) {
        int value = 0;
        for (int i = 0; i < width; i++) {
            int digit = Character.digit(text.charAt(at + i), 10);
            if (digit < 0) throw unreadable(text, format);
            value = value * 10 + digit;
        }
        return value;
    }

    private static int checkField(int value, int most, String text) {
        if (value > most) throw new PgError("date/time field value out of range: \"" + text + "\"");
        return value;
    }

    private static PgError unreadable(String text, String format) {
        return new PgError("an error, or something else: \"" + text + "\" is not written exactly as \"" + format + "\"");
    }
}
