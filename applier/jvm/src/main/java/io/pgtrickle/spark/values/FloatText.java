package io.pgtrickle.spark.values;

import java.math.BigDecimal;
import java.math.BigInteger;
import java.math.MathContext;
import java.math.RoundingMode;
import java.util.Locale;
import java.util.function.Predicate;
import java.util.regex.Pattern;

/** Texts of float8 and float4: the shortest that reads back to the same value, in PostgreSQL's layout. */
public final class FloatText {
    private static final Pattern INPUT = Pattern.compile(
        "[+-]?(\\d+\\.?\\d*|\\.\\d+)([eE][+-]?\\d{1,9})?|(?i:nan|[+-]?inf|[+-]?infinity)");

    private FloatText() {}

    /** Returns the text of float8out. */
    public static String print(double x) {
        if (!isOrdinary(x)) return printSpecial(x);
        double size = Math.abs(x);
        // Up to 15 digits identify a double uniquely, so one try finds them; other doubles need 16 or 17.
        int fewest = size >= Double.MIN_NORMAL ? 15 : 1;
        return print(x < 0, size, fewest, 17, 15, text -> Double.parseDouble(text) == size);
    }

    /** Returns the text of float4out. */
    public static String print(float x) {
        if (!isOrdinary(x)) return printSpecial(x);
        float size = Math.abs(x);
        int fewest = size >= Float.MIN_NORMAL ? 6 : 1;
        return print(x < 0, size, fewest, 9, 6, text -> Float.parseFloat(text) == size);
    }

    private static boolean isOrdinary(double x) {
        return x != 0 && !Double.isNaN(x) && !Double.isInfinite(x);
    }

    private static String printSpecial(double x) {
        if (Double.isNaN(x)) return "NaN";
        if (Double.isInfinite(x)) return x > 0 ? "Infinity" : "-Infinity";
        return 1 / x < 0 ? "-0" : "0";
    }

    private static String print(
        boolean negative, double size, int fewest, int most, int plainBelow, Predicate<String> readsBack) {
        var exact = new BigDecimal(size);
        for (int digits = fewest; digits <= most; digits++) {
            BigDecimal found = nearest(exact, digits, readsBack);
            if (found != null) return layOut(negative, found, plainBelow);
        }
        throw new IllegalStateException("a float that " + most + " digits do not name");
    }

    /** Returns the closest number with this many digits that reads back to the float; null if there is none. */
    private static BigDecimal nearest(BigDecimal exact, int digits, Predicate<String> readsBack) {
        BigDecimal below = exact.round(new MathContext(digits, RoundingMode.DOWN));
        int gap = digits - below.precision();
        BigDecimal step = new BigDecimal(BigInteger.ONE, below.scale() + gap);
        BigDecimal above = below.compareTo(exact) == 0 ? below : below.add(step);
        boolean belowReads = readsBack.test(below.toString());
        boolean aboveReads = readsBack.test(above.toString());
        if (!belowReads || !aboveReads) return belowReads ? below : aboveReads ? above : null;
        int closer = exact.subtract(below).compareTo(above.subtract(exact));
        if (closer != 0) return closer < 0 ? below : above;
        boolean belowIsEven = !below.setScale(below.scale() + gap).unscaledValue().testBit(0);
        return belowIsEven ? below : above;
    }

    /** Writes plain decimals for exponents from -4 up to `plainBelow`, else digits and an exponent. */
    private static String layOut(boolean negative, BigDecimal value, int plainBelow) {
        BigDecimal bare = value.stripTrailingZeros();
        String digits = bare.unscaledValue().toString();
        int exponent = digits.length() - 1 - bare.scale();
        var out = new StringBuilder(negative ? "-" : "");
        if (exponent >= -4 && exponent < plainBelow) return out.append(bare.toPlainString()).toString();
        out.append(digits.charAt(0));
        if (digits.length() > 1) out.append('.').append(digits, 1, digits.length());
        out.append('e').append(exponent < 0 ? '-' : '+');
        int size = Math.abs(exponent);
        return out.append(size < 10 ? "0" : "").append(size).toString();
    }

    /** Reads what float8in accepts, except hexadecimal numbers. */
    public static double parseDouble(String input) {
        String text = checkSyntax(input, "double precision");
        double special = parseSpecial(text);
        if (special != 0) return special;
        double found = Double.parseDouble(text);
        if (Double.isInfinite(found) || (found == 0 && new BigDecimal(text).signum() != 0)) {
            throw outOfRange(text, "double precision");
        }
        return found;
    }

    /** Reads what float4in accepts, except hexadecimal numbers. */
    public static float parseFloat(String input) {
        String text = checkSyntax(input, "real");
        double special = parseSpecial(text);
        if (special != 0) return (float) special;
        float found = Float.parseFloat(text);
        if (Float.isInfinite(found) || (found == 0 && new BigDecimal(text).signum() != 0)) {
            throw outOfRange(text, "real");
        }
        return found;
    }

    private static String checkSyntax(String input, String type) {
        String text = CharacterClass.trimSpace(input);
        if (!INPUT.matcher(text).matches()) throw PgError.invalidInput(type, input);
        return text;
    }

    /** Returns NaN or an infinity, or 0 for the text of a finite number. */
    private static double parseSpecial(String text) {
        String lower = text.toLowerCase(Locale.ROOT);
        if (lower.endsWith("nan")) return Double.NaN;
        if (!lower.endsWith("inf") && !lower.endsWith("infinity")) return 0;
        return lower.startsWith("-") ? Double.NEGATIVE_INFINITY : Double.POSITIVE_INFINITY;
    }

    /** Returns the error for a number that the type cannot represent. */
    public static PgError outOfRange(Object number, String type) {
        return new PgError("\"" + number + "\" is out of range for type " + type);
    }
}
