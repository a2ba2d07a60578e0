package io.pgtrickle.spark.functions;

import static org.apache.spark.unsafe.types.UTF8String.fromString;

import io.pgtrickle.spark.values.PgError;
import io.pgtrickle.spark.values.PgNumeric;
import java.math.BigDecimal;
import org.apache.spark.unsafe.types.UTF8String;

/** to_char of numbers; the pattern has only 9, 0, comma and point, and FM before them. */
public final class NumberFormat {
    private NumberFormat() {}

    /** A pattern: whether it begins with FM, the part before the point, and the part after it, null without a point. */
    private record Format(boolean fill, String whole, String fraction) {
        static Format parse(String text) {
            boolean fill = text.startsWith("FM");
            String pattern = fill ? text.substring(2) : text;
            int point = pattern.indexOf('.');
            return point < 0 ? new Format(fill, pattern, null)
                : new Format(fill, pattern.substring(0, point), pattern.substring(point + 1));
        }

        int decimals() {
            return fraction == null ? 0 : fraction.length();
        }
    }

    /** to_char(numeric, text). */
    @SqlFunction("pg_format_number")
    public static UTF8String print(UTF8String value, UTF8String format) {
        Format pattern = Format.parse(format.toString());
        if (!(PgNumeric.parse(value.toString()) instanceof PgNumeric.Finite number)) {
            throw new PgError.NotComputed("to_char of NaN or an infinity is not computed here");
        }
        return fromString(print(PgNumeric.round(number.value(), pattern.decimals()), pattern));
    }

    private static String print(BigDecimal rounded, Format format) {
        int decimals = format.decimals();
        String digits = rounded.abs().unscaledValue().toString();
        if (digits.length() < decimals) digits = "0".repeat(decimals - digits.length()) + digits;
        String left = digits.substring(0, digits.length() - decimals);
        String right = digits.substring(digits.length() - decimals);
        if (left.equals("0")) left = "";
        boolean overflows = left.length() > format.whole().replace(",", "").length();
        StringBuilder whole = overflows ? new StringBuilder(format.whole().replaceAll("[^,]", "#"))
            : printWhole(left, format.whole());
        boolean showsDigit = overflows || whole.chars().anyMatch(Character::isDigit);
        // A 9 without a fraction shows at least one digit.
        boolean needsDigit = decimals == 0 || (format.fill() && rounded.signum() == 0);
        if (!showsDigit && whole.length() > 0 && needsDigit) whole.setCharAt(whole.length() - 1, '0');
        int sign = 0;
        while (sign < whole.length() && whole.charAt(sign) == ' ') sign++;
        whole.insert(sign, rounded.signum() < 0 ? '-' : ' ');
        if (format.fraction() != null) whole.append('.').append(overflows ? "#".repeat(decimals) : right);
        if (!format.fill()) return whole.toString();
        String filled = whole.toString().replace(" ", "");
        return format.fraction() == null || overflows ? filled : trimZeros(filled, format.fraction());
    }

    /** Returns the digits before the point at their places, with commas between digits and spaces before them. */
    private static StringBuilder printWhole(String digits, String pattern) {
        String places = pattern.replace(",", "");
        int firstZero = places.indexOf('0');
        int spaces = places.length() - digits.length();
        var out = new StringBuilder();
        boolean hasStarted = false;
        int place = 0;
        for (char c : pattern.toCharArray()) {
            if (c == ',') {
                out.append(hasStarted ? ',' : ' ');
                continue;
            }
            boolean isZero = firstZero >= 0 && place >= firstZero;
            if (place >= spaces) out.append(digits.charAt(place - spaces));
            else out.append(isZero ? '0' : ' ');
            hasStarted = hasStarted || place >= spaces || isZero;
            place++;
        }
        return out;
    }

    /** Removes zeros at the end, but not where the pattern has a 0. */
    private static String trimZeros(String number, String fraction) {
        int end = number.length();
        int shortest = number.indexOf('.') + 1 + fraction.lastIndexOf('0') + 1;
        while (end > shortest && number.charAt(end - 1) == '0') end--;
        return number.substring(0, end);
    }
}
