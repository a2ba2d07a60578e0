package io.pgtrickle.spark.values;

import io.pgtrickle.spark.values.PgNumeric.Finite;
import io.pgtrickle.spark.values.PgNumeric.Special;
import java.math.BigDecimal;
import java.math.BigInteger;
import java.math.RoundingMode;

/** Sums, products, quotients, remainders and roots of numerics, with PostgreSQL's scales and its rules for NaN. */
public final class NumericArithmetic {
    private NumericArithmetic() {}

    /** Returns a + b. */
    public static PgNumeric sum(PgNumeric a, PgNumeric b) {
        if (a instanceof Finite x && b instanceof Finite y) return PgNumeric.of(x.value().add(y.value()));
        if (a == Special.NAN || b == Special.NAN) return Special.NAN;
        if (a instanceof Finite) return b;
        return b instanceof Finite || a == b ? a : Special.NAN;
    }

    /** Returns a * b. */
    public static PgNumeric product(PgNumeric a, PgNumeric b) {
        if (a instanceof Finite x && b instanceof Finite y) return PgNumeric.of(x.value().multiply(y.value()));
        if (a == Special.NAN || b == Special.NAN) return Special.NAN;
        int sign = a.sign() * b.sign();
        return sign == 0 ? Special.NAN : Special.infinity(sign);
    }

    /** Returns a / b with the scale that PostgreSQL chooses. */
    public static PgNumeric quotient(PgNumeric a, PgNumeric b) {
        return a instanceof Finite x && b instanceof Finite y ? quotient(x, y) : specialQuotient(a, b);
    }

    /** Returns a / b with the scale that PostgreSQL chooses. */
    public static Finite quotient(Finite a, Finite b) {
        refuseZero(b);
        int scale = NumericMath.clampScale(divisionScale(a, b), Math.max(a.scale(), b.scale()));
        return PgNumeric.of(a.value().divide(b.value(), scale, RoundingMode.HALF_UP));
    }

    /** PostgreSQL's select_div_scale, before its limits. */
    private static int divisionScale(Finite a, Finite b) {
        int quotientWeight = a.weight() - b.weight();
        if (a.digit(0) <= b.digit(0)) quotientWeight--;
        return PgNumeric.MIN_SIG_DIGITS - quotientWeight * 4;
    }

    /** Returns the whole part of a / b. */
    public static PgNumeric wholeQuotient(PgNumeric a, PgNumeric b) {
        if (!(a instanceof Finite x && b instanceof Finite y)) return specialQuotient(a, b);
        refuseZero(y);
        return PgNumeric.of(x.value().divideToIntegralValue(y.value()).setScale(0));
    }

    private static PgNumeric specialQuotient(PgNumeric a, PgNumeric b) {
        if (a == Special.NAN || b == Special.NAN) return Special.NAN;
        if (a instanceof Finite) return Finite.ZERO;
        if (!(b instanceof Finite)) return Special.NAN;
        refuseZero(b);
        return Special.infinity(a.sign() * b.sign());
    }

    /** Returns the remainder of a / b; it has the sign of a. */
    public static PgNumeric remainder(PgNumeric a, PgNumeric b) {
        if (a == Special.NAN || b == Special.NAN) return Special.NAN;
        if (!(a instanceof Finite x)) {
            refuseZero(b);
            return Special.NAN;
        }
        if (!(b instanceof Finite y)) return a;
        refuseZero(y);
        return PgNumeric.of(x.value().remainder(y.value()).setScale(Math.max(x.scale(), y.scale())));
    }

    private static void refuseZero(PgNumeric divisor) {
        if (divisor.sign() == 0) throw new PgError("division by zero");
    }

    /** Returns the absolute value. */
    public static PgNumeric abs(PgNumeric a) {
        return a.sign() < 0 ? a.negate() : a;
    }

    /** Returns the number with another scale, within PostgreSQL's limits; NaN and the infinities stay. */
    public static PgNumeric toScale(PgNumeric a, int scale, RoundingMode mode) {
        if (!(a instanceof Finite x)) return a;
        int limited = Math.min(Math.max(scale, -131073), 16383);
        return PgNumeric.of(x.value().setScale(limited, mode));
    }

    /** numeric(p,s): rounds to s decimals; raises if there are more than p - s digits before the point. */
    public static PgNumeric toPrecision(PgNumeric a, int precision, int scale) {
        if (a == Special.NAN) return a;
        if (!(a instanceof Finite x)) throw new PgError("numeric field overflow");
        BigDecimal rounded = PgNumeric.round(x.value(), scale);
        if (rounded.signum() != 0 && rounded.precision() - rounded.scale() > precision - scale) {
            throw new PgError("numeric field overflow");
        }
        return PgNumeric.of(rounded);
    }

    /** Returns the square root of a number that is not negative, rounded to a scale, halves away from zero. */
    public static Finite squareRoot(Finite a, int scale) {
        // One digit more than the scale decides the rounding: an exact half would have an exact root.
        BigInteger shifted = a.value().movePointRight(2 * (scale + 1)).toBigInteger();
        return PgNumeric.of(PgNumeric.round(new BigDecimal(shifted.sqrt(), scale + 1), scale));
    }
}
