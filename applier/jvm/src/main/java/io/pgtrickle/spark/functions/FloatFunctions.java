package io.pgtrickle.spark.functions;

import static java.lang.Double.isInfinite;
import static org.apache.spark.unsafe.types.UTF8String.fromString;

import io.pgtrickle.spark.values.FloatText;
import io.pgtrickle.spark.values.PgError;
import java.math.BigDecimal;
import java.math.BigInteger;
import org.apache.spark.unsafe.types.UTF8String;

/** float8 and float4: PostgreSQL's range errors, its rounding, its text. */
public final class FloatFunctions {
    private FloatFunctions() {}

    private static double check(double result, boolean mayBeInfinite, boolean mayBeZero) {
        if (isInfinite(result) && !mayBeInfinite) throw new PgError("value out of range: overflow");
        if (result == 0 && !mayBeZero) throw new PgError("value out of range: underflow");
        return result;
    }

    private static float check(float result, boolean mayBeInfinite, boolean mayBeZero) {
        check((double) result, mayBeInfinite, mayBeZero);
        return result;
    }

    private static void refuseZero(double dividend, double divisor) {
        if (divisor == 0 && !Double.isNaN(dividend)) throw new PgError("division by zero");
    }

    /** float8 + float8. */
    @SqlFunction("pg_floats_add")
    public static double add(double a, double b) {
        return check(a + b, isInfinite(a) || isInfinite(b), true);
    }

    /** float8 - float8. */
    @SqlFunction("pg_floats_sub")
    public static double subtract(double a, double b) {
        return check(a - b, isInfinite(a) || isInfinite(b), true);
    }

    /** float8 * float8. */
    @SqlFunction("pg_floats_mul")
    public static double multiply(double a, double b) {
        return check(a * b, isInfinite(a) || isInfinite(b), a == 0 || b == 0);
    }

    /** float8 / float8. */
    @SqlFunction("pg_floats_div")
    public static double divide(double a, double b) {
        refuseZero(a, b);
        return check(a / b, isInfinite(a), a == 0 || isInfinite(b));
    }

    /** float4 + float4. */
    @SqlFunction("pg_floats_add4")
    public static float add4(float a, float b) {
        return check(a + b, isInfinite(a) || isInfinite(b), true);
    }

    /** float4 - float4. */
    @SqlFunction("pg_floats_sub4")
    public static float subtract4(float a, float b) {
        return check(a - b, isInfinite(a) || isInfinite(b), true);
    }

    /** float4 * float4. */
    @SqlFunction("pg_floats_mul4")
    public static float multiply4(float a, float b) {
        return check(a * b, isInfinite(a) || isInfinite(b), a == 0 || b == 0);
    }

    /** float4 / float4. */
    @SqlFunction("pg_floats_div4")
    public static float divide4(float a, float b) {
        refuseZero(a, b);
        return check(a / b, isInfinite(a), a == 0 || isInfinite(b));
    }

    /** The cast of float8 to float4. */
    @SqlFunction("pg_floats_to_float4")
    public static float toFloat(double a) {
        return check((float) a, isInfinite(a), a == 0);
    }

    /** sqrt. */
    @SqlFunction("pg_floats_sqrt")
    public static double squareRoot(double a) {
        if (a < 0) throw new PgError("cannot take square root of a negative number");
        return Math.sqrt(a);
    }

    /** ceil. */
    @SqlFunction("pg_floats_ceil")
    public static double ceiling(double a) {
        return Math.ceil(a);
    }

    /** floor. */
    @SqlFunction("pg_floats_floor")
    public static double floor(double a) {
        return Math.floor(a);
    }

    /** trunc. */
    @SqlFunction("pg_floats_trunc")
    public static double truncate(double a) {
        return a >= 0 ? Math.floor(a) : -Math.floor(-a);
    }

    /** sign; that of NaN is 0. */
    @SqlFunction("pg_floats_sign")
    public static double sign(double a) {
        return a > 0 ? 1 : a < 0 ? -1 : 0;
    }

    /** Raises a whole base to a whole power: if the result fits into 53 bits, all mathematics libraries agree. */
    @SqlFunction("pg_floats_whole_power")
    public static double wholePower(double base, double exponent) {
        BigInteger power = new BigDecimal(base).toBigInteger().pow((int) exponent);
        if (power.bitLength() > 53) {
            throw new PgError.NotComputed("the last digit of a power of more than 53 bits depends on its library: "
                + "cast the base to numeric");
        }
        return power.doubleValue();
    }

    /** The cast to an integer type from `low` up to but without `high`: the largest int8 is not a double. */
    @SqlFunction("pg_floats_to_int")
    public static long toInteger(double a, double low, double high) {
        double whole = Math.rint(a);
        if (!(whole >= low && whole < high)) throw new PgError("integer out of range");
        return (long) whole;
    }

    /** The text of a float8. */
    @SqlFunction("pg_floats_out8")
    public static UTF8String print(double x) {
        return fromString(FloatText.print(x));
    }

    /** The text of a float4. */
    @SqlFunction("pg_floats_out4")
    public static UTF8String print4(float x) {
        return fromString(FloatText.print(x));
    }

    /** Reads a float8. */
    @SqlFunction("pg_floats_in8")
    public static double parse(UTF8String input) {
        return FloatText.parseDouble(input.toString());
    }

    /** Reads a float4. */
    @SqlFunction("pg_floats_in4")
    public static float parse4(UTF8String input) {
        return FloatText.parseFloat(input.toString());
    }
}
