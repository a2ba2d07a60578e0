package io.pgtrickle.spark.values;

import io.pgtrickle.spark.values.PgNumeric.Finite;
import java.math.BigDecimal;
import java.math.BigInteger;
import java.math.MathContext;
import java.math.RoundingMode;

/** exp, ln, log and power of finite numerics: computed with extra digits, rounded to PostgreSQL's scale. */
public final class NumericMath {
    private static final double LOG10_E = 0.434294481903252;
    private static final double LN_10 = 2.302585092994046;
    private static final BigDecimal POINT_NINE = new BigDecimal("0.9");
    private static final BigDecimal ONE_POINT_ONE = new BigDecimal("1.1");
    private static final BigDecimal TWO_TO_31 = BigDecimal.valueOf(2147483648L);
    private static final int MAX_RESULT_SCALE = 2000;

    private NumericMath() {}

    /** Limits the scale of a result: at least that of its arguments, at most PostgreSQL's largest. */
    public static int clampScale(int scale, int atLeast) {
        return Math.min(Math.max(Math.max(scale, atLeast), 0), PgNumeric.MAX_DISPLAY_SCALE);
    }

    /** Returns e^x. */
    public static Finite exp(Finite x) {
        double weight = x.value().doubleValue() * LOG10_E;
        double limited = Math.min(Math.max(weight, -MAX_RESULT_SCALE), MAX_RESULT_SCALE);
        return expAtScale(x.value(), clampScale(PgNumeric.MIN_SIG_DIGITS - (int) limited, x.scale()));
    }

    /** Returns the natural logarithm; raises for zero and negative numbers. */
    public static Finite ln(Finite x) {
        requirePositive(x);
        int scale = clampScale(PgNumeric.MIN_SIG_DIGITS - estimateLnWeight(x), x.scale());
        return PgNumeric.of(PgNumeric.round(lnWithScale(x.value(), scale), scale));
    }

    /** Returns the logarithm to a base; raises for zero and negative numbers. */
    public static Finite log(Finite base, Finite x) {
        requirePositive(base);
        requirePositive(x);
        int baseWeight = estimateLnWeight(base);
        int weight = estimateLnWeight(x) - baseWeight;
        int scale = clampScale(PgNumeric.MIN_SIG_DIGITS - weight, Math.max(base.scale(), x.scale()));
        BigDecimal below = lnWithScale(base.value(), scale + 30 + Math.abs(baseWeight) * 2);
        if (below.signum() == 0) throw new PgError("division by zero");
        BigDecimal above = lnWithScale(x.value(), scale + 30 + Math.abs(baseWeight) * 2);
        return PgNumeric.of(above.divide(below, scale, RoundingMode.HALF_UP));
    }

    private static void requirePositive(Finite x) {
        if (x.sign() < 0) throw new PgError("cannot take logarithm of a negative number");
        if (x.sign() == 0) throw new PgError("cannot take logarithm of zero");
    }

    /** Returns base^exponent; a whole exponent is computed by multiplication, any other through the logarithm. */
    public static Finite power(Finite base, Finite exponent) {
        BigDecimal bare = exponent.value().stripTrailingZeros();
        if (bare.scale() <= 0 && bare.abs().compareTo(TWO_TO_31) <= 0 && bare.compareTo(TWO_TO_31) < 0) {
            return integralPower(base, bare.intValueExact(), exponent.scale());
        }
        if (base.sign() == 0) return PgNumeric.zero(PgNumeric.MIN_SIG_DIGITS);
        if (base.sign() > 0) return fractionalPower(base, exponent);
        if (bare.scale() > 0) {
            throw new PgError("a negative number raised to a non-integer power yields a complex result");
        }
        Finite found = fractionalPower(base.negate(), exponent);
        return bare.toBigInteger().testBit(0) ? found.negate() : found;
    }

    private static Finite fractionalPower(Finite base, Finite exponent) {
        int lnWeight = estimateLnWeight(base);
        int rough = Math.max(8 - lnWeight, 0);
        double weight = PgNumeric.round(lnWithScale(base.value(), rough + 4), rough).multiply(exponent.value())
            .setScale(rough, RoundingMode.HALF_UP).doubleValue();
        if (Math.abs(weight) > MAX_RESULT_SCALE * 3.01) {
            if (weight > 0) throw PgNumeric.overflow();
            return PgNumeric.zero(PgNumeric.MAX_DISPLAY_SCALE);
        }
        weight *= LOG10_E;
        int scale = clampScale(PgNumeric.MIN_SIG_DIGITS - (int) weight, Math.max(base.scale(), exponent.scale()));
        int digits = Math.max(scale + (int) weight, 0) - Math.min(lnWeight, 0) + 40 + exponent.value().precision();
        return expAtScale(lnWithScale(base.value(), digits).multiply(exponent.value()), scale);
    }

    private static Finite integralPower(Finite base, int exponent, int exponentScale) {
        double weight = estimatePowerWeight(base, exponent);
        if (weight > 131072) throw PgNumeric.overflow();
        if (weight + 1 < -PgNumeric.MAX_DISPLAY_SCALE) return PgNumeric.zero(PgNumeric.MAX_DISPLAY_SCALE);
        int scale = clampScale(PgNumeric.MIN_SIG_DIGITS - (int) weight, Math.max(base.scale(), exponentScale));
        if (exponent == 0) return PgNumeric.of(BigDecimal.ONE.setScale(scale));
        if (base.sign() == 0) {
            if (exponent < 0) throw new PgError("division by zero");
            return PgNumeric.zero(scale);
        }
        MathContext context = PgNumeric.context(Math.max(scale + (int) Math.ceil(weight), 0) + 42);
        BigDecimal result = BigDecimal.ONE;
        BigDecimal factor = base.value();
        for (long times = Math.abs((long) exponent); times > 0; ) {
            if ((times & 1) == 1) result = result.multiply(factor, context);
            times >>= 1;
            if (times > 0) factor = factor.multiply(factor, context);
        }
        if (exponent < 0) result = BigDecimal.ONE.divide(result, context);
        return PgNumeric.of(PgNumeric.round(result, scale));
    }

    /** Returns the decimal logarithm of a power, from the first 16 digits of its base. */
    private static double estimatePowerWeight(Finite base, int exponent) {
        if (base.sign() == 0) return 0;
        double leading = base.digit(0);
        int position = base.weight() * 4;
        int digits = base.digits();
        for (int i = 1; i < digits && i * 4 < 16; i++) {
            leading = leading * 10000 + base.digit(i);
            position -= 4;
        }
        return exponent * (Math.log10(leading) + position);
    }

    /** PostgreSQL's estimate_ln_dweight: the position of the first digit of ln x. */
    private static int estimateLnWeight(Finite x) {
        if (x.sign() <= 0) return 0;
        if (x.value().compareTo(POINT_NINE) >= 0 && x.value().compareTo(ONE_POINT_ONE) <= 0) {
            Finite rest = PgNumeric.of(x.value().subtract(BigDecimal.ONE));
            return rest.sign() == 0 ? 0 : rest.weight() * 4 + (int) Math.log10(rest.digit(0));
        }
        int digits = x.digit(0);
        int weight = x.weight() * 4;
        if (x.digits() > 1) {
            digits = digits * 10000 + x.digit(1);
            weight -= 4;
        }
        return (int) Math.log10(Math.abs(Math.log(digits) + weight * LN_10));
    }

    /** PostgreSQL's exp_var: overflow raises, underflow is zero. */
    private static Finite expAtScale(BigDecimal x, int scale) {
        double size = x.doubleValue();
        if (Math.abs(size) >= MAX_RESULT_SCALE * 3) {
            if (size > 0) throw PgNumeric.overflow();
            return PgNumeric.zero(scale);
        }
        int weight = (int) Math.ceil(size * LOG10_E);
        BigDecimal found = expWithDigits(x, Math.max(scale + weight, 0) + 10);
        return PgNumeric.of(PgNumeric.round(found, scale));
    }

    /** Returns e^x with this many significant digits: the series for a small x, squared as often as x was halved. */
    private static BigDecimal expWithDigits(BigDecimal x, int digits) {
        if (x.signum() == 0) return BigDecimal.ONE;
        int magnitude = Math.max(x.precision() - x.scale(), 0);
        int halvings = Math.max((int) (magnitude * 3.33) + 8, 8);
        MathContext context = PgNumeric.context(digits + 10 + magnitude + halvings / 3);
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
        for (int i = 0; i < halvings; i++) sum = sum.multiply(sum, context);
        return sum;
    }

    /** Returns ln x with about this many digits after the point: the series near 1, doubled for each root taken. */
    private static BigDecimal lnWithScale(BigDecimal x, int scale) {
        int magnitude = Math.abs(x.precision() - x.scale());
        MathContext context = PgNumeric.context(Math.max(scale, 0) + 20 + magnitude + x.precision());
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
}
