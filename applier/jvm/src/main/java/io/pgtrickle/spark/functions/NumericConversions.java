package io.pgtrickle.spark.functions;

import static io.pgtrickle.spark.functions.NumericFunctions.parse;
import static io.pgtrickle.spark.functions.NumericFunctions.text;

import io.pgtrickle.spark.values.FloatText;
import io.pgtrickle.spark.values.PgError;
import io.pgtrickle.spark.values.PgNumeric;
import io.pgtrickle.spark.values.PgNumeric.Finite;
import io.pgtrickle.spark.values.PgNumeric.Special;
import java.math.BigDecimal;
import java.math.BigInteger;
import org.apache.spark.unsafe.types.UTF8String;

/** Casts between numeric and other types of numbers. */
public final class NumericConversions {
    private NumericConversions() {}

    /** Reads a numeric and writes it as PostgreSQL does. */
    @SqlFunction("pg_numeric_in")
    public static UTF8String normalize(UTF8String input) {
        return text(parse(input));
    }

    /** The cast to an integer type from `low` to `high`. */
    @SqlFunction("pg_numeric_to_int")
    public static long toInteger(UTF8String a, long low, long high) {
        PgNumeric number = parse(a);
        if (!(number instanceof Finite x)) {
            throw new PgError("cannot convert " + (number == Special.NAN ? "NaN" : "infinity") + " to integer");
        }
        BigInteger whole = PgNumeric.round(x.value(), 0).toBigInteger();
        if (whole.compareTo(BigInteger.valueOf(low)) < 0 || whole.compareTo(BigInteger.valueOf(high)) > 0) {
            throw new PgError("integer out of range");
        }
        return whole.longValue();
    }

    /** The cast to float8. */
    @SqlFunction("pg_numeric_to_float8")
    public static double toDouble(UTF8String a) {
        PgNumeric number = parse(a);
        if (!(number instanceof Finite x)) return specialToDouble(number);
        // BigDecimal.doubleValue is not correctly rounded in every Java version; parsing the digits is.
        double found = Double.parseDouble(x.value().toString());
        if (Double.isInfinite(found) || (found == 0 && x.sign() != 0)) {
            throw FloatText.outOfRange(x, "double precision");
        }
        return found;
    }

    /** The cast to float4. */
    @SqlFunction("pg_numeric_to_float4")
    public static float toFloat(UTF8String a) {
        PgNumeric number = parse(a);
        if (!(number instanceof Finite x)) return (float) specialToDouble(number);
        float found = Float.parseFloat(x.value().toString());
        if (Float.isInfinite(found) || (found == 0 && x.sign() != 0)) throw FloatText.outOfRange(x, "real");
        return found;
    }

    private static double specialToDouble(PgNumeric number) {
        return number == Special.NAN ? Double.NaN : number.sign() * Double.POSITIVE_INFINITY;
    }

    /** The cast of a float8, which keeps 15 digits. */
    @SqlFunction("pg_numeric_of_float8")
    public static UTF8String ofDouble(double x) {
        return ofBinary(x, 15);
    }

    /** The cast of a float4, which keeps 6 digits. */
    @SqlFunction("pg_numeric_of_float4")
    public static UTF8String ofFloat(float x) {
        return ofBinary(x, 6);
    }

    private static UTF8String ofBinary(double x, int digits) {
        if (Double.isNaN(x)) return text(Special.NAN);
        if (Double.isInfinite(x)) return text(Special.infinity(x > 0 ? 1 : -1));
        BigDecimal rounded = new BigDecimal(x).round(PgNumeric.context(digits));
        return text(PgNumeric.of(rounded.signum() == 0 ? BigDecimal.ZERO : rounded.stripTrailingZeros()));
    }
}
