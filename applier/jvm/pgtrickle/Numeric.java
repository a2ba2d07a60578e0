package pgtrickle;

import java.math.BigDecimal;
import java.math.BigInteger;
import java.math.RoundingMode;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.unsafe.types.UTF8String;

/** PostgreSQL's numeric over its text: any number of digits, NaN, the infinities, display scales as PostgreSQL's. */
public final class Numeric {
    private static Num num(UTF8String text) {
        return Num.parse(text.toString());
    }

    private static UTF8String text(Num num) {
        return UTF8String.fromString(num.toString());
    }

    /** Returns a text that is the same only for equal numbers and sorts as they do. */
    public static UTF8String sortable(UTF8String a) {
        return UTF8String.fromString(Num.parse(a.toString()).sortable());
    }

    public static UTF8String add(UTF8String a, UTF8String b) {
        return text(sum(num(a), num(b)));
    }

    public static UTF8String sub(UTF8String a, UTF8String b) {
        return text(sum(num(a), num(b).negate()));
    }

    static Num sum(Num a, Num b) {
        if (a.isFinite() && b.isFinite()) return Num.of(a.value.add(b.value));
        if (a.isNan() || b.isNan()) return Num.NAN;
        if (a.isFinite()) return b;
        return b.isFinite() || a.special == b.special ? a : Num.NAN;
    }

    public static UTF8String mul(UTF8String a, UTF8String b) {
        return text(product(num(a), num(b)));
    }

    static Num product(Num a, Num b) {
        if (a.isFinite() && b.isFinite()) return Num.of(a.value.multiply(b.value));
        if (a.isNan() || b.isNan()) return Num.NAN;
        int sign = a.sign() * b.sign();
        return sign == 0 ? Num.NAN : (sign > 0 ? Num.INFINITY : Num.MINUS_INFINITY);
    }

    public static UTF8String div(UTF8String a, UTF8String b) {
        return text(quotient(num(a), num(b)));
    }

    public static UTF8String div(Decimal a, Decimal b) {
        return text(quotient(Num.of(a.toJavaBigDecimal()), Num.of(b.toJavaBigDecimal())));
    }

    static Num quotient(Num a, Num b) {
        if (!a.isFinite() || !b.isFinite()) return specialQuotient(a, b);
        if (b.value.signum() == 0) throw new PgError("division by zero");
        int least = Math.max(a.scale(), b.scale());
        int chosen = NumericMath.divisionScale(a, b);
        return Num.of(a.value.divide(b.value, NumericMath.clamp(chosen, least), RoundingMode.HALF_UP));
    }

    private static Num specialQuotient(Num a, Num b) {
        if (a.isNan() || b.isNan()) return Num.NAN;
        if (a.isFinite()) return Num.ZERO;
        if (!b.isFinite()) return Num.NAN;
        if (b.sign() == 0) throw new PgError("division by zero");
        return a.special * b.sign() > 0 ? Num.INFINITY : Num.MINUS_INFINITY;
    }

    /** div(numeric, numeric): the whole part of the quotient. */
    public static UTF8String div_trunc(UTF8String first, UTF8String second) {
        Num a = num(first);
        Num b = num(second);
        if (!a.isFinite() || !b.isFinite()) return text(specialQuotient(a, b));
        if (b.value.signum() == 0) throw new PgError("division by zero");
        return text(Num.of(a.value.divideToIntegralValue(b.value).setScale(0)));
    }

    public static UTF8String mod(UTF8String first, UTF8String second) {
        Num a = num(first);
        Num b = num(second);
        if (a.isNan() || b.isNan()) return text(Num.NAN);
        if (!a.isFinite()) {
            if (b.sign() == 0) throw new PgError("division by zero");
            return text(Num.NAN);
        }
        if (!b.isFinite()) return text(a);
        if (b.value.signum() == 0) throw new PgError("division by zero");
        return text(Num.of(a.value.remainder(b.value).setScale(Math.max(a.scale(), b.scale()))));
    }

    public static UTF8String neg(UTF8String a) {
        return text(num(a).negate());
    }

    public static UTF8String abs(UTF8String a) {
        Num n = num(a);
        return text(n.sign() < 0 ? n.negate() : n);
    }

    public static UTF8String sign(UTF8String a) {
        Num n = num(a);
        return n.isNan() ? text(n) : text(Num.of(n.sign()));
    }

    public static UTF8String ceil(UTF8String a) {
        return toScale(a, 0, RoundingMode.CEILING);
    }

    public static UTF8String floor(UTF8String a) {
        return toScale(a, 0, RoundingMode.FLOOR);
    }

    public static UTF8String round(UTF8String a, int scale) {
        return toScale(a, scale, RoundingMode.HALF_UP);
    }

    public static UTF8String trunc(UTF8String a, int scale) {
        return toScale(a, scale, RoundingMode.DOWN);
    }

    private static UTF8String toScale(UTF8String a, int scale, RoundingMode mode) {
        Num n = num(a);
        if (!n.isFinite()) return text(n);
        int limited = Math.min(Math.max(scale, -131073), 16383);
        return text(Num.of(n.value.setScale(limited, mode)));
    }

    /** numeric(p,s): rounds to s decimals; raises if there are more than p - s digits before the point. */
    public static UTF8String sized(UTF8String a, int precision, int scale) {
        Num n = num(a);
        if (n.isNan()) return text(n);
        if (!n.isFinite()) throw new PgError("numeric field overflow");
        BigDecimal rounded = Num.round(n.value, scale);
        if (rounded.signum() != 0 && rounded.precision() - rounded.scale() > precision - scale) {
            throw new PgError("numeric field overflow");
        }
        return text(Num.of(rounded));
    }

    public static UTF8String sqrt(UTF8String a) {
        Num n = num(a);
        if (n.sign() < 0) throw new PgError("cannot take square root of a negative number");
        if (!n.isFinite()) return text(n);
        int scale = NumericMath.clamp(Num.MIN_SIG_DIGITS - (n.weight() * 2 + 1), n.scale());
        // One digit more than the scale decides the rounding: an exact half would have an exact root.
        BigInteger shifted = n.value.movePointRight(2 * (scale + 1)).toBigInteger();
        BigDecimal root = new BigDecimal(shifted.sqrt(), scale + 1);
        return text(Num.of(Num.round(root, scale)));
    }

    public static UTF8String exp(UTF8String a) {
        Num n = num(a);
        if (!n.isFinite()) return text(n.special == -1 ? Num.ZERO : n);
        return text(NumericMath.exp(n));
    }

    public static UTF8String ln(UTF8String a) {
        Num n = num(a);
        if (n.special == -1) throw new PgError("cannot take logarithm of a negative number");
        return text(n.isFinite() ? NumericMath.ln(n) : n);
    }

    public static UTF8String log(UTF8String first, UTF8String second) {
        Num base = num(first);
        Num x = num(second);
        if (base.isFinite() && x.isFinite()) return text(NumericMath.log(base, x));
        if (base.isNan() || x.isNan()) return text(Num.NAN);
        if (base.sign() < 0 || x.sign() < 0) throw new PgError("cannot take logarithm of a negative number");
        if (base.sign() == 0 || x.sign() == 0) throw new PgError("cannot take logarithm of zero");
        if (base.isFinite()) return text(Num.INFINITY);
        return text(x.isFinite() ? Num.ZERO : Num.NAN);
    }

    public static UTF8String power(UTF8String first, UTF8String second) {
        Num x = num(first);
        Num y = num(second);
        if (x.isFinite() && y.isFinite()) {
            // PostgreSQL tests these cases before the scale.
            if (x.sign() == 0 && y.sign() < 0) throw new PgError("zero raised to a negative power is undefined");
            if (x.sign() < 0 && !y.isIntegral()) {
                throw new PgError("a negative number raised to a non-integer power yields a complex result");
            }
            return text(NumericMath.power(x, y));
        }
        return text(specialPower(x, y));
    }

    private static Num specialPower(Num x, Num y) {
        if (x.isNan()) return y.isFinite() && y.sign() == 0 ? Num.ONE : Num.NAN;
        boolean isOne = x.isFinite() && x.value.compareTo(BigDecimal.ONE) == 0;
        if (y.isNan()) return isOne ? Num.ONE : Num.NAN;
        if (x.sign() == 0 && y.sign() < 0) throw new PgError("zero raised to a negative power is undefined");
        if (x.sign() < 0 && !y.isIntegral()) {
            throw new PgError("a negative number raised to a non-integer power yields a complex result");
        }
        if (isOne || y.sign() == 0) return Num.ONE;
        if (x.sign() == 0) return Num.ZERO;
        if (!y.isFinite()) {
            if (x.isFinite() && x.value.compareTo(BigDecimal.ONE.negate()) == 0) return Num.ONE;
            boolean large = !x.isFinite() || x.value.abs().compareTo(BigDecimal.ONE) > 0;
            return large == (y.sign() > 0) ? Num.INFINITY : Num.ZERO;
        }
        if (y.sign() < 0) return Num.ZERO;
        if (x.special > 0) return Num.INFINITY;
        return y.value.toBigInteger().testBit(0) ? Num.MINUS_INFINITY : Num.INFINITY;
    }

    public static UTF8String factorial(long n) {
        if (n < 0) throw new PgError("factorial of a negative number is undefined");
        if (n > 32177) throw new PgError("value overflows numeric format");
        BigInteger product = BigInteger.ONE;
        for (long i = 2; i <= n; i++) product = product.multiply(BigInteger.valueOf(i));
        return UTF8String.fromString(product.toString());
    }

    public static UTF8String gcd(UTF8String first, UTF8String second) {
        Num a = num(first);
        Num b = num(second);
        if (!a.isFinite() || !b.isFinite()) return text(Num.NAN);
        int scale = Math.max(a.scale(), b.scale());
        BigInteger found = a.value.setScale(scale).unscaledValue().gcd(b.value.setScale(scale).unscaledValue());
        return text(Num.of(new BigDecimal(found, scale)));
    }

    public static UTF8String lcm(UTF8String first, UTF8String second) {
        Num a = num(first);
        Num b = num(second);
        if (!a.isFinite() || !b.isFinite()) return text(Num.NAN);
        int scale = Math.max(a.scale(), b.scale());
        BigInteger x = a.value.setScale(scale).unscaledValue();
        BigInteger y = b.value.setScale(scale).unscaledValue();
        if (x.signum() == 0 || y.signum() == 0) return text(Num.of(BigDecimal.ZERO.setScale(scale)));
        return text(Num.of(new BigDecimal(x.divide(x.gcd(y)).multiply(y).abs(), scale)));
    }

    public static Integer scale(UTF8String a) {
        Num n = num(a);
        return n.isFinite() ? Integer.valueOf(n.scale()) : null;
    }

    public static Integer min_scale(UTF8String a) {
        Num n = num(a);
        return n.isFinite() ? Integer.valueOf(Math.max(n.value.stripTrailingZeros().scale(), 0)) : null;
    }

    public static UTF8String trim_scale(UTF8String a) {
        Num n = num(a);
        return n.isFinite() ? text(Num.of(n.value.stripTrailingZeros())) : text(n);
    }

    public static int width_bucket(UTF8String value, UTF8String low, UTF8String high, int count) {
        Num x = num(value);
        Num from = num(low);
        Num to = num(high);
        if (count <= 0) throw new PgError("count must be greater than zero");
        if (x.isNan() || from.isNan() || to.isNan()) {
            throw new PgError("operand, lower bound, and upper bound cannot be NaN");
        }
        if (!from.isFinite() || !to.isFinite()) throw new PgError("lower and upper bounds must be finite");
        int order = from.compare(to);
        if (order == 0) throw new PgError("lower bound cannot equal upper bound");
        if (order < 0 ? x.compare(from) < 0 : x.compare(from) > 0) return 0;
        if (order < 0 ? x.compare(to) >= 0 : x.compare(to) <= 0) {
            if (count == Integer.MAX_VALUE) throw new PgError("integer out of range");
            return count + 1;
        }
        BigDecimal done = x.value.subtract(from.value).multiply(BigDecimal.valueOf(count));
        BigDecimal share = done.divide(to.value.subtract(from.value), 0, RoundingMode.DOWN);
        return share.intValueExact() + 1;
    }

    /** Returns -1, 0 or 1 for less, equal or greater; NaN equals itself and is the largest. */
    public static int cmp(UTF8String a, UTF8String b) {
        return num(a).compare(num(b));
    }

    /** Returns the same text for equal values, so that they can be compared and grouped as text. */
    public static UTF8String key(UTF8String a) {
        return trim_scale(a);
    }

    /** Returns the larger value, or the first of two equal ones. */
    public static UTF8String greatest(UTF8String a, UTF8String b) {
        return num(a).compare(num(b)) >= 0 ? a : b;
    }

    public static UTF8String least(UTF8String a, UTF8String b) {
        return num(a).compare(num(b)) <= 0 ? a : b;
    }

    public static long to_int(UTF8String a, long low, long high) {
        Num n = num(a);
        if (n.isNan()) throw new PgError("cannot convert NaN to integer");
        if (!n.isFinite()) throw new PgError("cannot convert infinity to integer");
        BigInteger whole = Num.round(n.value, 0).toBigInteger();
        if (whole.compareTo(BigInteger.valueOf(low)) < 0 || whole.compareTo(BigInteger.valueOf(high)) > 0) {
            throw new PgError("integer out of range");
        }
        return whole.longValue();
    }

    public static double to_float8(UTF8String a) {
        Num n = num(a);
        if (!n.isFinite()) return n.isNan() ? Double.NaN : n.special * Double.POSITIVE_INFINITY;
        // BigDecimal.doubleValue is not correctly rounded in every Java version; parsing the digits is.
        double found = Double.parseDouble(n.value.toString());
        if (Double.isInfinite(found) || (found == 0 && n.value.signum() != 0)) {
            throw new PgError("\"" + n + "\" is out of range for type double precision");
        }
        return found;
    }

    public static float to_float4(UTF8String a) {
        Num n = num(a);
        if (!n.isFinite()) return n.isNan() ? Float.NaN : n.special * Float.POSITIVE_INFINITY;
        float found = Float.parseFloat(n.value.toString());
        if (Float.isInfinite(found) || (found == 0 && n.value.signum() != 0)) {
            throw new PgError("\"" + n + "\" is out of range for type real");
        }
        return found;
    }

    public static UTF8String of_float8(double x) {
        return ofBinary(x, 15);
    }

    public static UTF8String of_float4(float x) {
        return ofBinary(x, 6);
    }

    private static UTF8String ofBinary(double x, int digits) {
        if (Double.isNaN(x)) return text(Num.NAN);
        if (Double.isInfinite(x)) return text(x > 0 ? Num.INFINITY : Num.MINUS_INFINITY);
        BigDecimal rounded = new BigDecimal(x).round(Num.context(digits));
        return text(Num.of(rounded.signum() == 0 ? BigDecimal.ZERO : rounded.stripTrailingZeros()));
    }

    public static UTF8String in(UTF8String text) {
        return text(num(text));
    }
}
