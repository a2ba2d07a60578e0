package io.pgtrickle.spark.functions;

import static org.apache.spark.unsafe.types.UTF8String.fromString;

import io.pgtrickle.spark.values.NumericArithmetic;
import io.pgtrickle.spark.values.NumericMath;
import io.pgtrickle.spark.values.PgError;
import io.pgtrickle.spark.values.PgNumeric;
import io.pgtrickle.spark.values.PgNumeric.Finite;
import io.pgtrickle.spark.values.PgNumeric.Special;
import java.math.BigDecimal;
import java.math.BigInteger;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.unsafe.types.UTF8String;

/** Arithmetic of numeric: any number of digits, NaN, the infinities, PostgreSQL's scales. A numeric is its text. */
public final class NumericFunctions {
    private NumericFunctions() {}

    static PgNumeric parse(UTF8String text) {
        return PgNumeric.parse(text.toString());
    }

    static UTF8String text(PgNumeric number) {
        return fromString(number.toString());
    }

    /** a + b. */
    @SqlFunction("pg_numeric_add")
    public static UTF8String add(UTF8String a, UTF8String b) {
        return text(NumericArithmetic.sum(parse(a), parse(b)));
    }

    /** a - b. */
    @SqlFunction("pg_numeric_sub")
    public static UTF8String subtract(UTF8String a, UTF8String b) {
        return text(NumericArithmetic.sum(parse(a), parse(b).negate()));
    }

    /** a * b. */
    @SqlFunction("pg_numeric_mul")
    public static UTF8String multiply(UTF8String a, UTF8String b) {
        return text(NumericArithmetic.product(parse(a), parse(b)));
    }

    /** a / b. */
    @SqlFunction("pg_numeric_div")
    public static UTF8String divide(UTF8String a, UTF8String b) {
        return text(NumericArithmetic.quotient(parse(a), parse(b)));
    }

    /** a / b of Spark's decimals. */
    @SqlFunction("pg_numeric_div")
    public static UTF8String divide(Decimal a, Decimal b) {
        return text(NumericArithmetic.quotient(
            PgNumeric.of(a.toJavaBigDecimal()), PgNumeric.of(b.toJavaBigDecimal())));
    }

    /** div(numeric, numeric): the whole part of the quotient. */
    @SqlFunction("pg_numeric_div_trunc")
    public static UTF8String divideWhole(UTF8String a, UTF8String b) {
        return text(NumericArithmetic.wholeQuotient(parse(a), parse(b)));
    }

    /** a % b. */
    @SqlFunction("pg_numeric_mod")
    public static UTF8String modulo(UTF8String a, UTF8String b) {
        return text(NumericArithmetic.remainder(parse(a), parse(b)));
    }

    /** -a. */
    @SqlFunction("pg_numeric_neg")
    public static UTF8String negate(UTF8String a) {
        return text(parse(a).negate());
    }

    /** abs. */
    @SqlFunction("pg_numeric_abs")
    public static UTF8String abs(UTF8String a) {
        return text(NumericArithmetic.abs(parse(a)));
    }

    /** sign; that of NaN is NaN. */
    @SqlFunction("pg_numeric_sign")
    public static UTF8String sign(UTF8String a) {
        PgNumeric number = parse(a);
        return text(number == Special.NAN ? number : PgNumeric.of(number.sign()));
    }

    /** sqrt. */
    @SqlFunction("pg_numeric_sqrt")
    public static UTF8String squareRoot(UTF8String a) {
        PgNumeric number = parse(a);
        if (number.sign() < 0) throw new PgError("cannot take square root of a negative number");
        if (!(number instanceof Finite x)) return text(number);
        int scale = NumericMath.clampScale(PgNumeric.MIN_SIG_DIGITS - (x.weight() * 2 + 1), x.scale());
        return text(NumericArithmetic.squareRoot(x, scale));
    }

    /** exp. */
    @SqlFunction("pg_numeric_exp")
    public static UTF8String exp(UTF8String a) {
        PgNumeric number = parse(a);
        if (number instanceof Finite x) return text(NumericMath.exp(x));
        return text(number == Special.MINUS_INFINITY ? Finite.ZERO : number);
    }

    /** ln. */
    @SqlFunction("pg_numeric_ln")
    public static UTF8String ln(UTF8String a) {
        PgNumeric number = parse(a);
        if (number == Special.MINUS_INFINITY) throw logarithmOfNegative();
        return text(number instanceof Finite x ? NumericMath.ln(x) : number);
    }

    private static PgError logarithmOfNegative() {
        return new PgError("cannot take logarithm of a negative number");
    }

    /** log(base, x). */
    @SqlFunction("pg_numeric_log")
    public static UTF8String log(UTF8String first, UTF8String second) {
        PgNumeric base = parse(first);
        PgNumeric x = parse(second);
        if (base instanceof Finite finiteBase && x instanceof Finite finiteX) {
            return text(NumericMath.log(finiteBase, finiteX));
        }
        if (base == Special.NAN || x == Special.NAN) return text(Special.NAN);
        if (base.sign() < 0 || x.sign() < 0) throw logarithmOfNegative();
        if (base.sign() == 0 || x.sign() == 0) throw new PgError("cannot take logarithm of zero");
        if (base instanceof Finite) return text(Special.INFINITY);
        return text(x instanceof Finite ? Finite.ZERO : Special.NAN);
    }

    /** power. */
    @SqlFunction("pg_numeric_power")
    public static UTF8String power(UTF8String first, UTF8String second) {
        PgNumeric x = parse(first);
        PgNumeric y = parse(second);
        if (x instanceof Finite base && y instanceof Finite exponent) {
            // PostgreSQL tests these cases before the scale.
            refuseUndefinedPower(x, y);
            return text(NumericMath.power(base, exponent));
        }
        return text(specialPower(x, y));
    }

    private static void refuseUndefinedPower(PgNumeric x, PgNumeric y) {
        if (x.sign() == 0 && y.sign() < 0) throw new PgError("zero raised to a negative power is undefined");
        if (x.sign() < 0 && !y.isIntegral()) {
            throw new PgError("a negative number raised to a non-integer power yields a complex result");
        }
    }

    /** Returns the power if x or y is NaN or an infinity, by the rules of POSIX. */
    private static PgNumeric specialPower(PgNumeric x, PgNumeric y) {
        if (x == Special.NAN) return y.sign() == 0 ? Finite.ONE : Special.NAN;
        boolean isOne = x.compare(Finite.ONE) == 0;
        if (y == Special.NAN) return isOne ? Finite.ONE : Special.NAN;
        refuseUndefinedPower(x, y);
        if (isOne || y.sign() == 0) return Finite.ONE;
        if (x.sign() == 0) return Finite.ZERO;
        if (!(y instanceof Finite exponent)) {
            if (x.compare(Finite.ONE.negate()) == 0) return Finite.ONE;
            boolean isLarge = NumericArithmetic.abs(x).compare(Finite.ONE) > 0;
            return isLarge == (y.sign() > 0) ? Special.INFINITY : Finite.ZERO;
        }
        if (y.sign() < 0) return Finite.ZERO;
        boolean isOdd = exponent.value().toBigInteger().testBit(0);
        return x.sign() < 0 && isOdd ? Special.MINUS_INFINITY : Special.INFINITY;
    }

    /** factorial. */
    @SqlFunction("pg_numeric_factorial")
    public static UTF8String factorial(long n) {
        if (n < 0) throw new PgError("factorial of a negative number is undefined");
        if (n > 32177) throw PgNumeric.overflow();
        BigInteger product = BigInteger.ONE;
        for (long i = 2; i <= n; i++) product = product.multiply(BigInteger.valueOf(i));
        return fromString(product.toString());
    }

    /** gcd. */
    @SqlFunction("pg_numeric_gcd")
    public static UTF8String gcd(UTF8String first, UTF8String second) {
        PgNumeric x = parse(first);
        PgNumeric y = parse(second);
        if (!(x instanceof Finite a && y instanceof Finite b)) return text(Special.NAN);
        int scale = Math.max(a.scale(), b.scale());
        BigInteger divisor = unscaled(a, scale).gcd(unscaled(b, scale));
        return text(PgNumeric.of(new BigDecimal(divisor, scale)));
    }

    /** lcm. */
    @SqlFunction("pg_numeric_lcm")
    public static UTF8String lcm(UTF8String first, UTF8String second) {
        PgNumeric x = parse(first);
        PgNumeric y = parse(second);
        if (!(x instanceof Finite a && y instanceof Finite b)) return text(Special.NAN);
        int scale = Math.max(a.scale(), b.scale());
        if (a.sign() == 0 || b.sign() == 0) return text(PgNumeric.zero(scale));
        BigInteger p = unscaled(a, scale);
        BigInteger q = unscaled(b, scale);
        return text(PgNumeric.of(new BigDecimal(p.divide(p.gcd(q)).multiply(q).abs(), scale)));
    }

    private static BigInteger unscaled(Finite number, int scale) {
        return number.value().setScale(scale).unscaledValue();
    }
}
