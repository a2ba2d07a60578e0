package pgtrickle;

import java.math.BigDecimal;
import java.math.BigInteger;
import java.math.RoundingMode;
import org.apache.spark.unsafe.types.UTF8String;

/** float8 and float4: PostgreSQL's range errors, its rounding, its text. */
public final class Floats {
    private static double checked(double result, boolean infiniteIsFine, boolean zeroIsFine) {
        if (Double.isInfinite(result) && !infiniteIsFine) throw new PgError("value out of range: overflow");
        if (result == 0 && !zeroIsFine) throw new PgError("value out of range: underflow");
        return result;
    }

    private static float checked4(float result, boolean infiniteIsFine, boolean zeroIsFine) {
        if (Float.isInfinite(result) && !infiniteIsFine) throw new PgError("value out of range: overflow");
        if (result == 0 && !zeroIsFine) throw new PgError("value out of range: underflow");
        return result;
    }

    private static boolean inf(double a) {
        return Double.isInfinite(a);
    }

    public static double add(double a, double b) {
        return checked(a + b, inf(a) || inf(b), true);
    }

    public static double sub(double a, double b) {
        return checked(a - b, inf(a) || inf(b), true);
    }

    public static double mul(double a, double b) {
        return checked(a * b, inf(a) || inf(b), a == 0 || b == 0);
    }

    public static double div(double a, double b) {
        if (b == 0 && !Double.isNaN(a)) throw new PgError("division by zero");
        return checked(a / b, inf(a), a == 0 || inf(b));
    }

    public static float add4(float a, float b) {
        return checked4(a + b, inf(a) || inf(b), true);
    }

    public static float sub4(float a, float b) {
        return checked4(a - b, inf(a) || inf(b), true);
    }

    public static float mul4(float a, float b) {
        return checked4(a * b, inf(a) || inf(b), a == 0 || b == 0);
    }

    public static float div4(float a, float b) {
        if (b == 0 && !Float.isNaN(a)) throw new PgError("division by zero");
        return checked4(a / b, inf(a), a == 0 || inf(b));
    }

    public static float to_float4(double a) {
        return checked4((float) a, inf(a), a == 0);
    }

    public static double sqrt(double a) {
        if (a < 0) throw new PgError("cannot take square root of a negative number");
        return Math.sqrt(a);
    }

    public static double ceil(double a) {
        return Math.ceil(a);
    }

    public static double floor(double a) {
        return Math.floor(a);
    }

    public static double trunc(double a) {
        return a >= 0 ? Math.floor(a) : -Math.floor(-a);
    }

    public static double sign(double a) {
        return a > 0 ? 1 : (a < 0 ? -1 : 0);
    }

    /** Raises a whole base to a whole power: if the result fits into 53 bits, all mathematics libraries agree. */
    public static double whole_power(double a, double b) {
        BigInteger found = new BigDecimal(a).toBigInteger().pow((int) b);
        if (found.bitLength() > 53) {
            throw new PgError("nothing; but the last digit of a power of more than 53 bits depends on its library: "
                + "cast the base to numeric");
        }
        return found.doubleValue();
    }

    public static long to_int(double a, double low, double high) {
        double whole = Math.rint(a);
        // The upper bound is exclusive: 2^63 - 1 is not a double.
        if (!(whole >= low && whole < high)) throw new PgError("integer out of range");
        return (long) whole;
    }

    public static UTF8String out8(double x) {
        return UTF8String.fromString(print(x));
    }

    public static UTF8String out4(float x) {
        return UTF8String.fromString(print4(x));
    }

    static String print(double x) {
        if (Double.isNaN(x)) return "NaN";
        if (Double.isInfinite(x)) return x > 0 ? "Infinity" : "-Infinity";
        if (x == 0) return 1 / x < 0 ? "-0" : "0";
        boolean usual = Math.abs(x) >= Double.MIN_NORMAL;
        BigDecimal exact = new BigDecimal(Math.abs(x));
        // Up to 15 digits identify a double uniquely, so one try finds them; other doubles need 16 or 17.
        for (int digits = usual ? 15 : 1; digits <= 17; digits++) {
            BigDecimal found = nearest(exact, digits, Math.abs(x), false);
            if (found != null) return layout(x < 0, found, 15);
        }
        throw new IllegalStateException("a double that 17 digits do not name");
    }

    static String print4(float x) {
        if (Float.isNaN(x)) return "NaN";
        if (Float.isInfinite(x)) return x > 0 ? "Infinity" : "-Infinity";
        if (x == 0) return 1 / x < 0 ? "-0" : "0";
        boolean usual = Math.abs(x) >= Float.MIN_NORMAL;
        BigDecimal exact = new BigDecimal(Math.abs((double) x));
        for (int digits = usual ? 6 : 1; digits <= 9; digits++) {
            BigDecimal found = nearest(exact, digits, Math.abs((double) x), true);
            if (found != null) return layout(x < 0, found, 6);
        }
        throw new IllegalStateException("a float that 9 digits do not name");
    }

    /** Returns the closest number with this many digits that parses back to x; null if there is none. */
    private static BigDecimal nearest(BigDecimal exact, int digits, double x, boolean single) {
        BigDecimal below = exact.round(new java.math.MathContext(digits, RoundingMode.DOWN));
        int gap = digits - below.precision();
        BigDecimal step = new BigDecimal(BigInteger.ONE, below.scale() + gap);
        BigDecimal above = below.compareTo(exact) == 0 ? below : below.add(step);
        boolean belowReads = reads(below, x, single);
        boolean aboveReads = reads(above, x, single);
        if (!belowReads && !aboveReads) return null;
        if (belowReads && aboveReads) {
            int closer = exact.subtract(below).compareTo(above.subtract(exact));
            if (closer == 0) {
                boolean even = !below.setScale(below.scale() + gap).unscaledValue().testBit(0);
                return even ? below : above;
            }
            return closer < 0 ? below : above;
        }
        return belowReads ? below : above;
    }

    private static boolean reads(BigDecimal candidate, double x, boolean single) {
        String text = candidate.toString();
        return single ? Float.parseFloat(text) == (float) x : Double.parseDouble(text) == x;
    }

    private static String layout(boolean negative, BigDecimal value, int plainBelow) {
        BigDecimal bare = value.stripTrailingZeros();
        String digits = bare.unscaledValue().toString();
        int exponent = digits.length() - 1 - bare.scale();
        StringBuilder out = new StringBuilder(negative ? "-" : "");
        if (exponent >= -4 && exponent < plainBelow) return out.append(bare.toPlainString()).toString();
        out.append(digits.charAt(0));
        if (digits.length() > 1) out.append('.').append(digits, 1, digits.length());
        out.append('e').append(exponent < 0 ? '-' : '+');
        int size = Math.abs(exponent);
        return out.append(size < 10 ? "0" : "").append(size).toString();
    }

    public static double in8(UTF8String input) {
        String t = plain(input, "double precision");
        double special = special(t);
        if (special != 0) return special;
        double found = Double.parseDouble(t);
        if (inf(found) || (found == 0 && new BigDecimal(t).signum() != 0)) {
            throw new PgError("\"" + t + "\" is out of range for type double precision");
        }
        return found;
    }

    public static float in4(UTF8String input) {
        String t = plain(input, "real");
        double special = special(t);
        if (special != 0) return (float) special;
        float found = Float.parseFloat(t);
        if (Float.isInfinite(found) || (found == 0 && new BigDecimal(t).signum() != 0)) {
            throw new PgError("\"" + t + "\" is out of range for type real");
        }
        return found;
    }

    private static final java.util.regex.Pattern INPUT = java.util.regex.Pattern.compile(
        "[+-]?(\\d+\\.?\\d*|\\.\\d+)([eE][+-]?\\d{1,9})?|(?i:nan|[+-]?inf|[+-]?infinity)");

    private static String plain(UTF8String input, String type) {
        String t = Text.trimSpace(input.toString());
        if (!INPUT.matcher(t).matches()) {
            throw new PgError("invalid input syntax for type " + type + ": \"" + input + "\"");
        }
        return t;
    }

    private static double special(String t) {
        String lower = t.toLowerCase(java.util.Locale.ROOT);
        if (lower.endsWith("nan")) return Double.NaN;
        if (lower.endsWith("inf") || lower.endsWith("infinity")) {
            return lower.startsWith("-") ? Double.NEGATIVE_INFINITY : Double.POSITIVE_INFINITY;
        }
        return 0;
    }
}
