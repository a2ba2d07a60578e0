package io.pgtrickle.spark.values;

import java.math.BigDecimal;
import java.math.BigInteger;
import java.math.MathContext;
import java.math.RoundingMode;
import java.util.Locale;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/** One value of PostgreSQL's numeric: a decimal whose scale is the display scale, or NaN or an infinity. */
public sealed interface PgNumeric permits PgNumeric.Finite, PgNumeric.Special {
    /** PostgreSQL's NUMERIC_MIN_SIG_DIGITS: quotients, roots and logarithms have at least so many digits. */
    int MIN_SIG_DIGITS = 16;

    /** PostgreSQL's NUMERIC_MAX_DISPLAY_SCALE. */
    int MAX_DISPLAY_SCALE = 1000;

    /** Returns -1, 0 or 1; NaN is positive. */
    int sign();

    /** Returns the number with the other sign; NaN stays NaN. */
    PgNumeric negate();

    /** Returns whether the number has no fraction; the infinities have none. */
    boolean isIntegral();

    /** Returns the order among -Infinity, all finite numbers, Infinity and NaN. */
    int rank();

    /**
     * Returns a text that is the same only for equal numbers, and whose bytes sort as the numbers do: a digit for the
     * kind, the position of the first digit, the digits. For negative numbers digits are inverted, and the end of the
     * digits sorts after every digit.
     */
    String sortable();

    /** Returns a negative number, zero or a positive number. NaN equals itself and is the largest. */
    default int compare(PgNumeric other) {
        if (this instanceof Finite a && other instanceof Finite b) return a.value.compareTo(b.value);
        return Integer.compare(rank(), other.rank());
    }

    /** Returns a whole number. */
    static Finite of(long value) {
        return new Finite(BigDecimal.valueOf(value));
    }

    /** Returns a finite number with at least scale 0; raises if it has more digits than PostgreSQL can hold. */
    static Finite of(BigDecimal value) {
        BigDecimal shown = value.scale() < 0 ? value.setScale(0) : value;
        if (shown.precision() - shown.scale() > 131072) throw overflow();
        return new Finite(shown);
    }

    /** Returns zero with a display scale. */
    static Finite zero(int scale) {
        return new Finite(BigDecimal.ZERO.setScale(scale));
    }

    /** Reads what numeric_in accepts, except hexadecimal, octal and binary integers. */
    static PgNumeric parse(String text) {
        String trimmed = CharacterClass.trimSpace(text);
        Matcher parts = Finite.INPUT.matcher(trimmed);
        if (parts.matches()) return parseFinite(parts);
        return switch (trimmed.toLowerCase(Locale.ROOT)) {
            case "nan" -> Special.NAN;
            case "infinity", "+infinity", "inf", "+inf" -> Special.INFINITY;
            case "-infinity", "-inf" -> Special.MINUS_INFINITY;
            default -> throw Finite.SINCE_16.matcher(trimmed).matches()
                ? new PgError.NotComputed("PostgreSQL reads underscores and prefixes of numbers only since version 16")
                : PgError.invalidInput("numeric", text);
        };
    }

    private static Finite parseFinite(Matcher parts) {
        String whole = parts.group(2) == null ? "" : parts.group(2);
        String fraction = parts.group(2) == null ? parts.group(4) : parts.group(3) == null ? "" : parts.group(3);
        String digits = whole + fraction;
        long scale = fraction.length();
        if (parts.group(5) != null) {
            String exponent = parts.group(5);
            if (exponent.length() > 9) throw overflow();
            scale -= Long.parseLong(exponent);
        }
        if (scale > 16383 || scale < -200000) throw overflow();
        BigDecimal value = new BigDecimal(new BigInteger(digits), (int) scale);
        return of("-".equals(parts.group(1)) ? value.negate() : value);
    }

    /** Returns the error for a number with too many digits. */
    static PgError overflow() {
        return new PgError("value overflows numeric format");
    }

    /** Rounds to a scale, halves away from zero, as PostgreSQL rounds numerics. */
    static BigDecimal round(BigDecimal value, int scale) {
        return value.setScale(scale, RoundingMode.HALF_UP);
    }

    /** Returns a context for intermediate results with so many digits. */
    static MathContext context(int digits) {
        return new MathContext(Math.max(digits, 1), RoundingMode.HALF_EVEN);
    }

    /** NaN and the infinities. */
    enum Special implements PgNumeric {
        /** Smaller than every number. */
        MINUS_INFINITY(-1, "-Infinity", "0"),
        /** Larger than every number. */
        INFINITY(1, "Infinity", "4"),
        /** Not a number; the largest value. */
        NAN(2, "NaN", "5");

        private final int rank;
        private final String text;
        private final String sortable;

        Special(int rank, String text, String sortable) {
            this.rank = rank;
            this.text = text;
            this.sortable = sortable;
        }

        /** Returns the infinity with this sign. */
        public static Special infinity(int sign) {
            return sign > 0 ? INFINITY : MINUS_INFINITY;
        }

        @Override
        public int sign() {
            return this == MINUS_INFINITY ? -1 : 1;
        }

        @Override
        public PgNumeric negate() {
            return switch (this) {
                case MINUS_INFINITY -> INFINITY;
                case INFINITY -> MINUS_INFINITY;
                case NAN -> NAN;
            };
        }

        @Override
        public boolean isIntegral() {
            return this != NAN;
        }

        @Override
        public int rank() {
            return rank;
        }

        @Override
        public String sortable() {
            return sortable;
        }

        @Override
        public String toString() {
            return text;
        }
    }

    /** A decimal; the scale of `value` is the display scale and never negative. */
    record Finite(BigDecimal value) implements PgNumeric {
        /** Zero without decimals. */
        public static final Finite ZERO = new Finite(BigDecimal.ZERO);

        /** One without decimals. */
        public static final Finite ONE = new Finite(BigDecimal.ONE);

        /** Sign, whole part, fraction, a fraction without a whole part, exponent. */
        private static final Pattern SINCE_16 = Pattern.compile("[+-]?(?:0[xX][0-9a-fA-F_]+|0[oO][0-7_]+|0[bB][01_]+"
            + "|[0-9._]*[0-9]_[0-9][0-9._]*(?:[eE][+-]?[0-9_]+)?)");
        private static final Pattern INPUT = Pattern.compile("([+-]?)"
            + "(?:(\\d+)(?:\\.(\\d*))?|\\.(\\d+))(?:[eE]([+-]?\\d+))?");

        @Override
        public int sign() {
            return value.signum();
        }

        /** Returns the display scale: the number of decimals. */
        public int scale() {
            return value.scale();
        }

        @Override
        public Finite negate() {
            return new Finite(value.negate());
        }

        @Override
        public boolean isIntegral() {
            return value.stripTrailingZeros().scale() <= 0;
        }

        @Override
        public int rank() {
            return 0;
        }

        /** Returns the position of the first digit in base 10000, 0 for zero; the scale of a quotient depends on it. */
        public int weight() {
            return sign() == 0 ? 0 : Math.floorDiv(value.precision() - value.scale() - 1, 4);
        }

        /** Returns the n-th digit in base 10000, counted from the first that is not zero. */
        public int digit(int n) {
            if (sign() == 0) return 0;
            BigDecimal shifted = value.abs().scaleByPowerOfTen(-4 * (weight() - n));
            return shifted.toBigInteger().mod(BigInteger.valueOf(10000)).intValue();
        }

        /** Returns the number of digits in base 10000 without zeros at the end. */
        public int digits() {
            if (sign() == 0) return 0;
            int last = Math.floorDiv(-value.stripTrailingZeros().scale(), 4);
            return weight() - last + 1;
        }

        @Override
        public String sortable() {
            if (sign() == 0) return "2";
            BigDecimal bare = value.stripTrailingZeros();
            String digits = (200000 + bare.precision() - bare.scale()) + bare.unscaledValue().abs().toString();
            if (sign() > 0) return "3" + digits;
            var out = new StringBuilder("1");
            for (int i = 0; i < digits.length(); i++) out.append((char) ('0' + '9' - digits.charAt(i)));
            return out.append('~').toString();
        }

        @Override
        public String toString() {
            return value.toPlainString();
        }
    }
}
