package pgtrickle;

import java.math.BigDecimal;
import java.time.LocalDate;
import java.time.temporal.IsoFields;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.spark.unsafe.types.UTF8String;

/** to_char, to_date and to_timestamp for the patterns that applier.functions.datetime.formats accepts. */
public final class Format {
    private static final Pattern TOKEN = Pattern.compile(
        "(FM)?(YYYY|YY|IYYY|IW|MONTH|Month|month|MON|Mon|mon|MM|MI|MS|DDD|DD|DAY|Day|day|DY|Dy|dy|ID|D"
            + "|HH24|HH12|HH|SSSS|SS|US|AM|PM|am|pm|WW|Q)(TH|th)?|\"([^\"]*)\"|(.)", Pattern.DOTALL);
    private static final String[] MONTHS = {"January", "February", "March", "April", "May", "June", "July", "August",
        "September", "October", "November", "December"};
    private static final String[] DAYS = {"Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"};

    public static UTF8String timestamp(long micros, UTF8String format) {
        LocalDate date = LocalDate.ofEpochDay(Math.floorDiv(micros, Span.DAY));
        long clock = Math.floorMod(micros, Span.DAY);
        StringBuilder out = new StringBuilder();
        Matcher m = TOKEN.matcher(format.toString());
        while (m.find()) {
            if (m.group(4) != null) out.append(m.group(4));
            else if (m.group(5) != null) out.append(m.group(5));
            else {
                int start = out.length();
                field(out, m.group(2), m.group(1) != null, date, clock);
                if (m.group(3) != null) out.append(ordinal(out.substring(start), m.group(3).equals("TH")));
            }
        }
        return UTF8String.fromString(out.toString());
    }

    private static void field(StringBuilder out, String key, boolean fill, LocalDate date, long clock) {
        int hour = (int) (clock / 3600000000L);
        int micros = (int) (clock % 1000000L);
        if (key.equals("YYYY")) number(out, date.getYear(), fill ? 0 : 4);
        else if (key.equals("YY")) number(out, date.getYear() % 100, fill ? 0 : 2);
        else if (key.equals("IYYY")) number(out, date.get(IsoFields.WEEK_BASED_YEAR), fill ? 0 : 4);
        else if (key.equals("IW")) number(out, date.get(IsoFields.WEEK_OF_WEEK_BASED_YEAR), fill ? 0 : 2);
        else if (key.equals("MM")) number(out, date.getMonthValue(), fill ? 0 : 2);
        else if (key.equals("DD")) number(out, date.getDayOfMonth(), fill ? 0 : 2);
        else if (key.equals("DDD")) number(out, date.getDayOfYear(), fill ? 0 : 3);
        else if (key.equals("D")) out.append(date.getDayOfWeek().getValue() % 7 + 1);
        else if (key.equals("ID")) out.append(date.getDayOfWeek().getValue());
        else if (key.equals("WW")) number(out, (date.getDayOfYear() - 1) / 7 + 1, fill ? 0 : 2);
        else if (key.equals("Q")) out.append((date.getMonthValue() - 1) / 3 + 1);
        else if (key.equals("HH24")) number(out, hour, fill ? 0 : 2);
        else if (key.equals("HH12") || key.equals("HH")) number(out, hour % 12 == 0 ? 12 : hour % 12, fill ? 0 : 2);
        else if (key.equals("MI")) number(out, (int) (clock / 60000000L % 60), fill ? 0 : 2);
        else if (key.equals("SS")) number(out, (int) (clock / 1000000L % 60), fill ? 0 : 2);
        else if (key.equals("MS")) number(out, micros / 1000, 3);
        else if (key.equals("US")) number(out, micros, 6);
        else if (key.equals("SSSS")) out.append(clock / 1000000L);
        else if (key.equals("AM") || key.equals("PM")) out.append(hour >= 12 ? "PM" : "AM");
        else if (key.equals("am") || key.equals("pm")) out.append(hour >= 12 ? "pm" : "am");
        else {
            boolean month = key.toLowerCase().startsWith("mo");
            String name = month ? MONTHS[date.getMonthValue() - 1] : DAYS[date.getDayOfWeek().getValue() % 7];
            boolean brief = key.length() == 3 && month || key.length() == 2;
            if (brief) name = name.substring(0, 3);
            if (Character.isLowerCase(key.charAt(0))) name = name.toLowerCase();
            else if (Character.isUpperCase(key.charAt(1))) name = name.toUpperCase();
            out.append(name);
            for (int i = name.length(); i < 9 && !fill && !brief; i++) out.append(' ');
        }
    }

    private static void number(StringBuilder out, int value, int width) {
        String digits = Integer.toString(value);
        for (int i = digits.length(); i < width; i++) out.append('0');
        out.append(digits);
    }

    private static String ordinal(String number, boolean upper) {
        int n = number.length();
        char last = number.charAt(n - 1);
        boolean teen = n > 1 && number.charAt(n - 2) == '1';
        String found = teen || last > '3' || last == '0' ? "th" : last == '1' ? "st" : last == '2' ? "nd" : "rd";
        return upper ? found.toUpperCase() : found;
    }

    /** Formats a number; the pattern has only 9, 0, comma and point, and FM before them. */
    public static UTF8String number(UTF8String value, UTF8String format) {
        String f = format.toString();
        boolean fill = f.startsWith("FM");
        if (fill) f = f.substring(2);
        int point = f.indexOf('.');
        String whole = point < 0 ? f : f.substring(0, point);
        String part = point < 0 ? "" : f.substring(point + 1);
        Num n = Num.parse(value.toString());
        if (!n.isFinite()) throw new PgError("nothing; but to_char of NaN or an infinity is not computed here");
        BigDecimal rounded = Num.round(n.value, part.length());
        boolean negative = rounded.signum() < 0;
        String digits = rounded.abs().setScale(part.length()).unscaledValue().toString();
        while (digits.length() < part.length()) digits = "0" + digits;
        String left = digits.substring(0, digits.length() - part.length());
        String right = digits.substring(digits.length() - part.length());
        if (left.equals("0")) left = "";
        int places = whole.replace(",", "").length();
        boolean overflow = left.length() > places;
        StringBuilder body = new StringBuilder();
        boolean started = false;
        int place = 0;
        int zeroFrom = whole.replace(",", "").indexOf('0');
        for (int i = 0; i < whole.length(); i++) {
            char c = whole.charAt(i);
            if (c == ',') {
                body.append(overflow ? ',' : started ? ',' : ' ');
                continue;
            }
            int index = place - (places - left.length());
            boolean zero = zeroFrom >= 0 && place >= zeroFrom;
            if (overflow) body.append('#');
            else if (index >= 0) {
                body.append(left.charAt(index));
                started = true;
            } else if (zero) {
                body.append('0');
                started = true;
            } else body.append(' ');
            place++;
        }
        // A 9 without a fraction shows at least one digit.
        if (!started && !overflow && body.length() > 0 && (part.isEmpty() || fill && rounded.signum() == 0)) {
            body.setCharAt(body.length() - 1, '0');
            started = true;
        }
        int sign = 0;
        while (sign < body.length() && body.charAt(sign) == ' ') sign++;
        StringBuilder out = new StringBuilder();
        out.append(body, 0, sign).append(negative ? '-' : ' ').append(body, sign, body.length());
        if (point >= 0) {
            out.append('.');
            if (overflow) for (int i = 0; i < part.length(); i++) out.append('#');
            else out.append(right);
        }
        String found = out.toString();
        if (!fill) return UTF8String.fromString(found);
        found = found.replace(" ", "");
        if (point >= 0 && !overflow) {
            int keep = part.lastIndexOf('0') + 1;
            int end = found.length();
            int limit = found.indexOf('.') + 1 + keep;
            while (end > limit && found.charAt(end - 1) == '0') end--;
            found = found.substring(0, end);
        }
        return UTF8String.fromString(found);
    }

    /** Parses strictly by the format: each field has all its digits, and the separators are the same. */
    private static long parse(String text, String format) {
        int year = 1;
        int month = 1;
        int day = 1;
        long clock = 0;
        boolean hasYear = false;
        int at = 0;
        Matcher m = TOKEN.matcher(format);
        while (m.find()) {
            String key = m.group(2);
            if (key == null) {
                String literal = m.group(4) != null ? m.group(4) : m.group(5);
                if (!text.startsWith(literal, at)) throw unread(text, format);
                at += literal.length();
                continue;
            }
            if (key.equals("Mon") || key.equals("MON") || key.equals("mon")) {
                int found = -1;
                for (int i = 0; i < 12; i++) {
                    if (text.regionMatches(true, at, MONTHS[i], 0, 3)) found = i;
                }
                if (found < 0) throw unread(text, format);
                month = found + 1;
                at += 3;
                continue;
            }
            int width = key.equals("YYYY") ? 4 : 2;
            if (at + width > text.length()) throw unread(text, format);
            int value = 0;
            for (int i = 0; i < width; i++) {
                int digit = Character.digit(text.charAt(at + i), 10);
                if (digit < 0) throw unread(text, format);
                value = value * 10 + digit;
            }
            at += width;
            if (key.equals("YYYY")) {
                year = value;
                hasYear = true;
            } else if (key.equals("MM")) month = Math.max(value, 1);
            else if (key.equals("DD")) day = Math.max(value, 1);
            else {
                int most = key.equals("HH24") ? 23 : 59;
                if (value > most) throw new PgError("date/time field value out of range: \"" + text + "\"");
                clock += value * (key.equals("HH24") ? 3600000000L : key.equals("MI") ? 60000000L : 1000000L);
            }
        }
        if (at != text.length() || !hasYear) throw unread(text, format);
        return Dates.make_date(year, month, day) * Span.DAY + clock;
    }

    private static PgError unread(String text, String format) {
        return new PgError("an error, or something else: \"" + text + "\" is not written exactly as \"" + format + "\"");
    }

    public static int to_date(UTF8String text, UTF8String format) {
        return (int) Math.floorDiv(parse(text.toString(), format.toString()), Span.DAY);
    }

    public static long to_timestamp(UTF8String text, UTF8String format) {
        return parse(text.toString(), format.toString());
    }
}
