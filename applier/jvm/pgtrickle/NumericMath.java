package pgtrickle;

import java.math.BigDecimal;
import java.math.BigInteger;
import java.math.MathContext;

/** exp, ln, log and power of finite numerics: computed with extra digits, rounded to PostgreSQL's scale. */
final class NumericMath {
    private static final double LOG10_E = 0.434294481903252;
    private static final BigDecimal POINT_NINE = new BigDecimal("0.9");
    private static final BigDecimal ONE_POINT_ONE = new BigDecimal("1.1");
    private static final int MAX_RESULT_SCALE = 2000;

    static int clamp(int scale, int atLeast) {
        return Math.min(Math.max(Math.max(scale, atLeast), 0), Num.MAX_DISPLAY_SCALE);
    }

    static int divisionScale(Num a, Num b) {
        int quotientWeight = a.weight() - b.weight();
        if (a.digit(0) <= b.digit(0)) quotientWeight--;
        return Num.MIN_SIG_DIGITS - quotientWeight * 4;
    }

    /** Returns e^x with this many significant digits. */
    static BigDecimal exp(BigDecimal x, int digits) {
        if (x.signum() == 0) return BigDecimal.ONE;
        int magnitude = Math.max(x.precision() - x.scale(), 0);
        int halvings = Math.max((int) (magnitude * 3.33) + 8, 8);
        MathContext context = Num.context(digits + 10 + magnitude + halvings / 3);
        BigDecimal small = x.divide(new BigDecimal(BigInteger.ONE.shiftLeft(halvings)), context);
        BigDecimal sum = BigDecimal.ONE;
        BigDecimal term = BigDecimal.ONE;
        for (int i = 1; i < 10000; i++) {
            term = term.multiply(small, context).divide(BigDecimal.valueOf(i), context);
            if (term.signum() == 0) break;
            BigDecimal next = sum.add(term, context);
            if (next.compareTo(sum) == 0) break;
            sum = next;
        }
        for (int i = 0; i < halvings; i++) {
            sum = sum.multiply(sum, context);
        }
        return sum;
    }

    /** Returns ln x with about this many digits after the point. */
    static BigDecimal ln(BigDecimal x, int scale) {
        int magnitude = Math.abs(x.precision() - x.scale());
        MathContext context = Num.context(Math.max(scale, 0) + 20 + magnitude + x.precision());
        BigDecimal y = x;
        int roots = 0;
        while (y.compareTo(POINT_NINE) < 0 || y.compareTo(ONE_POINT_ONE) > 0) {
            y = y.sqrt(context);
            roots++;
        }
        // ln y = 2 (z + z^3/3 + z^5/5 ...), z = (y - 1) / (y + 1)
        BigDecimal z = y.subtract(BigDecimal.ONE).divide(y.add(BigDecimal.ONE), context);
        BigDecimal square = z.multiply(z, context);
        BigDecimal power = z;
        BigDecimal sum = z;
        for (int i = 3; i < 100000 && power.signum() != 0; i += 2) {
            power = power.multiply(square, context);
            BigDecimal next = sum.add(power.divide(BigDecimal.valueOf(i), context), context);
            if (next.compareTo(sum) == 0) break;
            sum = next;
        }
        return sum.multiply(new BigDecimal(BigInteger.ONE.shiftLeft(roots + 1)), context);
    }

    static int lnWeight(Num x) {
        if (x.value.signum() <= 0) return 0;
        if (x.value.compareTo(POINT_NINE) >= 0 && x.value.compareTo(ONE_POINT_ONE) <= 0) {
            Num rest = Num.of(x.value.subtract(BigDecimal.ONE));
            return rest.value.signum() == 0 ? 0 : rest.weight() * 4 + (int) Math.log10(rest.digit(0));
        }
        int digits = x.digit(0);
        int weight = x.weight() * 4;
        if (x.digits() > 1) {
            digits = digits * 10000 + x.digit(1);
            weight -= 4;
        }
        return (int) Math.log10(Math.abs(Math.log((double) digits) + weight * 2.302585092994046));
    }

    static Num exp(Num x) {
        double weight = Math.min(Math.max(x.value.doubleValue() * LOG10_E, -MAX_RESULT_SCALE), MAX_RESULT_SCALE);
        int scale = clamp(Num.MIN_SIG_DIGITS - (int) weight, x.scale());
        return expAt(x.value, scale);
    }

    /** exp_var: overflow raises, underflow is zero. */
    static Num expAt(BigDecimal x, int scale) {
        double size = x.doubleValue();
        if (Math.abs(size) >= MAX_RESULT_SCALE * 3) {
            if (size > 0) throw new PgError("value overflows numeric format");
            return Num.of(BigDecimal.ZERO.setScale(scale));
        }
        int weight = (int) Math.ceil(size * LOG10_E);
        BigDecimal found = exp(x, Math.max(scale + weight, 0) + 10);
        return Num.of(Num.round(found, scale));
    }

    static Num ln(Num x) {
        positive(x);
        int scale = clamp(Num.MIN_SIG_DIGITS - lnWeight(x), x.scale());
        return Num.of(Num.round(ln(x.value, scale), scale));
    }

    static Num log(Num base, Num x) {
        positive(base);
        positive(x);
        int baseWeight = lnWeight(base);
        int weight = lnWeight(x) - baseWeight;
        int scale = clamp(Num.MIN_SIG_DIGITS - weight, Math.max(base.scale(), x.scale()));
        BigDecimal below = ln(base.value, scale + 30 + Math.abs(baseWeight) * 2);
        if (below.signum() == 0) throw new PgError("division by zero");
        BigDecimal above = ln(x.value, scale + 30 + Math.abs(baseWeight) * 2);
        return Num.of(above.divide(below, scale, java.math.RoundingMode.HALF_UP));
    }

    private static void positive(Num x) {
        if (x.value.signum() < 0) throw new PgError("cannot take logarithm of a negative number");
        if (x.value.signum() == 0) throw new PgError("cannot take logarithm of zero");
    }

    static Num power(Num base, Num exponent) {
        BigDecimal bare = exponent.value.stripTrailingZeros();
        if (bare.scale() <= 0 && bare.abs().compareTo(BigDecimal.valueOf(2147483648L)) <= 0
            && bare.longValueExact() <= Integer.MAX_VALUE && bare.longValueExact() >= Integer.MIN_VALUE) {
            return integral(base, bare.intValueExact(), exponent.scale());
        }
        if (base.value.signum() == 0) return Num.of(BigDecimal.ZERO.setScale(Num.MIN_SIG_DIGITS));
        boolean negative = false;
        BigDecimal from = base.value;
        if (from.signum() < 0) {
            if (bare.scale() > 0) {
                throw new PgError("a negative number raised to a non-integer power yields a complex result");
            }
            negative = bare.toBigInteger().testBit(0);
            from = from.negate();
        }
        Num positive = Num.of(from);
        int lnWeight = lnWeight(positive);
        int rough = Math.max(8 - lnWeight, 0);
        double weight = Num.round(ln(from, rough + 4), rough).multiply(exponent.value).setScale(rough,
            java.math.RoundingMode.HALF_UP).doubleValue();
        if (Math.abs(weight) > MAX_RESULT_SCALE * 3.01) {
            if (weight > 0) throw new PgError("value overflows numeric format");
            return Num.of(BigDecimal.ZERO.setScale(Num.MAX_DISPLAY_SCALE));
        }
        weight *= LOG10_E;
        int scale = clamp(Num.MIN_SIG_DIGITS - (int) weight, Math.max(base.scale(), exponent.scale()));
        int digits = Math.max(scale + (int) weight, 0) - Math.min(lnWeight, 0) + 40 + exponent.value.precision();
        BigDecimal logarithm = ln(from, digits).multiply(exponent.value);
        Num found = expAt(logarithm, scale);
        return negative ? found.negate() : found;
    }

    private static Num integral(Num base, int exponent, int exponentScale) {
        double weight = 0;
        if (base.value.signum() != 0) {
            double f = base.digit(0);
            int p = base.weight() * 4;
            int digits = base.digits();
            for (int i = 1; i < digits && i * 4 < 16; i++) {
                f = f * 10000 + base.digit(i);
                p -= 4;
            }
            weight = exponent * (Math.log10(f) + p);
        }
        if (weight > 131072) throw new PgError("value overflows numeric format");
        if (weight + 1 < -Num.MAX_DISPLAY_SCALE) return Num.of(BigDecimal.ZERO.setScale(Num.MAX_DISPLAY_SCALE));
        int scale = clamp(Num.MIN_SIG_DIGITS - (int) weight, Math.max(base.scale(), exponentScale));
        if (exponent == 0) return Num.of(BigDecimal.ONE.setScale(scale));
        if (base.value.signum() == 0) {
            if (exponent < 0) throw new PgError("division by zero");
            return Num.of(BigDecimal.ZERO.setScale(scale));
        }
        int digits = Math.max(scale + (int) Math.ceil(weight), 0) + 30;
        MathContext context = Num.context(digits + 12);
        long times = Math.abs((long) exponent);
        BigDecimal result = BigDecimal.ONE;
        BigDecimal factor = base.value;
        while (times > 0) {
            if ((times & 1) == 1) result = result.multiply(factor, context);
            times >>= 1;
            if (times > 0) factor = factor.multiply(factor, context);
        }
        if (exponent < 0) result = BigDecimal.ONE.divide(result, context);
        return Num.of(Num.round(result, scale));
    }
}
