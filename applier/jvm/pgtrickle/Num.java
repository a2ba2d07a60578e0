package pgtrickle;

import java.math.BigDecimal;
import java.math.BigInteger;
import java.math.MathContext;
import java.math.RoundingMode;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/** One value of PostgreSQL's numeric: a decimal whose scale is the display scale, or NaN, Infinity, -Infinity. */
public final class Num {
    static final int MIN_SIG_DIGITS = 16;
    static final int MAX_DISPLAY_SCALE = 1000;

    static final Num NAN = new Num(null, 2);
    static final Num INFINITY = new Num(null, 1);
    static final Num MINUS_INFINITY = new Num(null, -1);
    static final Num ZERO = new Num(BigDecimal.ZERO, 0);
    static final Num ONE = new Num(BigDecimal.ONE, 0);

    private static final Pattern INPUT = Pattern.compile(
        "([+-]?)(?:(\\d(?:_?\\d)*)(?:\\.((?:\\d(?:_?\\d)*)?))?|\\.(\\d(?:_?\\d)*))(?:[eE]([+-]?\\d(?:_?\\d)*))?");

    final BigDecimal value;
    /** 0: finite; 2: NaN; 1 and -1: the infinities. */
    final int special;

    private Num(BigDecimal value, int special) {
        this.value = value;
        this.special = special;
    }

    static Num of(BigDecimal value) {
        BigDecimal shown = value.scale() < 0 ? value.setScale(0) : value;
        if (shown.precision() - shown.scale() > 131072) throw new PgError("value overflows numeric format");
        return new Num(shown, 0);
    }

    static Num of(long value) {
        return new Num(BigDecimal.valueOf(value), 0);
    }

    /** Parses what numeric_in accepts, except hexadecimal, octal and binary integers. */
    static Num parse(String text) {
        String t = Text.trimSpace(text);
        String lower = t.toLowerCase(java.util.Locale.ROOT);
        if (lower.equals("nan")) return NAN;
        if (lower.equals("infinity") || lower.equals("+infinity") || lower.equals("inf") || lower.equals("+inf")) {
            return INFINITY;
        }
        if (lower.equals("-infinity") || lower.equals("-inf")) return MINUS_INFINITY;
        Matcher m = INPUT.matcher(t);
        if (!m.matches()) throw new PgError("invalid input syntax for type numeric: \"" + text + "\"");
        String whole = m.group(2) == null ? "" : m.group(2);
        String part = m.group(2) == null ? m.group(4) : (m.group(3) == null ? "" : m.group(3));
        String digits = (whole + part).replace("_", "");
        int scale = part.replace("_", "").length();
        long exponent = 0;
        if (m.group(5) != null) {
            String e = m.group(5).replace("_", "");
            if (e.length() > 9) throw new PgError("value overflows numeric format");
            exponent = Long.parseLong(e.startsWith("+") ? e.substring(1) : e);
        }
        long finalScale = scale - exponent;
        if (finalScale > 16383 || finalScale < -200000) throw new PgError("value overflows numeric format");
        BigDecimal found = new BigDecimal(new BigInteger(digits), (int) finalScale);
        return of("-".equals(m.group(1)) ? found.negate() : found);
    }

    boolean isFinite() {
        return special == 0;
    }

    boolean isNan() {
        return special == 2;
    }

    int sign() {
        return special == 0 ? value.signum() : (special == 2 ? 1 : special);
    }

    int scale() {
        return value.scale();
    }

    boolean isIntegral() {
        return special != 2 && (special != 0 || value.stripTrailingZeros().scale() <= 0);
    }

    /** NaN equals itself and is the largest. */
    int compare(Num other) {
        if (special == 0 && other.special == 0) return value.compareTo(other.value);
        return rank() < other.rank() ? -1 : (rank() > other.rank() ? 1 : 0);
    }

    private int rank() {
        return special;
    }

    Num negate() {
        if (special == 0) return new Num(value.negate(), 0);
        return special == 2 ? this : (special > 0 ? MINUS_INFINITY : INFINITY);
    }

    public String toString() {
        if (special == 0) return value.toPlainString();
        return special == 2 ? "NaN" : (special > 0 ? "Infinity" : "-Infinity");
    }

    /**
     * Returns a text that is the same only for equal numbers, and whose bytes sort as the numbers do: a digit for the
     * kind, the position of the first digit, the digits. For negative numbers digits are inverted, and the end of the
     * digits sorts after every digit.
     */
    String sortable() {
        if (special != 0) return special < 0 ? "0" : (special == 1 ? "4" : "5");
        if (value.signum() == 0) return "2";
        BigDecimal bare = value.stripTrailingZeros();
        String digits = (200000 + bare.precision() - bare.scale()) + bare.unscaledValue().abs().toString();
        if (value.signum() > 0) return "3" + digits;
        StringBuilder out = new StringBuilder("1");
        for (int i = 0; i < digits.length(); i++) out.append((char) ('0' + '9' - digits.charAt(i)));
        return out.append('~').toString();
    }

    /** Position of the first digit in base 10000, 0 for zero. */
    int weight() {
        if (value.signum() == 0) return 0;
        return Math.floorDiv(value.precision() - value.scale() - 1, 4);
    }

    /** The n-th digit in base 10000 from the first that is not zero. */
    int digit(int n) {
        if (value.signum() == 0) return 0;
        BigDecimal shifted = value.abs().scaleByPowerOfTen(-4 * (weight() - n));
        return shifted.toBigInteger().mod(BigInteger.valueOf(10000)).intValue();
    }

    /** Number of digits in base 10000 without zeros at the end. */
    int digits() {
        if (value.signum() == 0) return 0;
        BigDecimal bare = value.stripTrailingZeros();
        int last = Math.floorDiv(-bare.scale(), 4);
        return weight() - last + 1;
    }

    static BigDecimal round(BigDecimal value, int scale) {
        return value.setScale(scale, RoundingMode.HALF_UP);
    }

    static MathContext context(int digits) {
        return new MathContext(Math.max(digits, 1), RoundingMode.HALF_EVEN);
    }
}
