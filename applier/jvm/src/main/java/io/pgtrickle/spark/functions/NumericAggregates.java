package io.pgtrickle.spark.functions;

import static org.apache.spark.unsafe.types.UTF8String.fromString;

import io.pgtrickle.spark.values.NumericArithmetic;
import io.pgtrickle.spark.values.PgError;
import io.pgtrickle.spark.values.PgInterval;
import io.pgtrickle.spark.values.PgNumeric;
import io.pgtrickle.spark.values.PgNumeric.Finite;
import java.math.BigDecimal;
import java.math.BigInteger;
import org.apache.spark.sql.catalyst.util.ArrayData;
import org.apache.spark.unsafe.types.UTF8String;

/** Aggregates of numerics and intervals over all values of a group, none of them NULL. */
public final class NumericAggregates {
    /** Sums of numerics are kept in parts of 15 digits, which add up in any order. */
    private static final BigInteger LIMB = BigInteger.TEN.pow(15);

    private NumericAggregates() {}

    private static PgNumeric numeric(ArrayData values, int i) {
        return PgNumeric.parse(values.getUTF8String(i).toString());
    }

    private static PgNumeric total(ArrayData values) {
        PgNumeric total = numeric(values, 0);
        for (int i = 1; i < values.numElements(); i++) total = NumericArithmetic.sum(total, numeric(values, i));
        return total;
    }

    /** sum(numeric). */
    @SqlFunction("pg_aggregates_numeric_sum")
    public static UTF8String sum(ArrayData values) {
        return fromString(total(values).toString());
    }

    /** avg(numeric). */
    @SqlFunction("pg_aggregates_numeric_avg")
    public static UTF8String average(ArrayData values) {
        PgNumeric count = PgNumeric.of(values.numElements());
        return fromString(NumericArithmetic.quotient(total(values), count).toString());
    }

    /** min(numeric) and max(numeric): the first of the smallest, or of the largest. */
    @SqlFunction("pg_aggregates_numeric_extreme")
    public static UTF8String extreme(ArrayData values, boolean largest) {
        PgNumeric best = numeric(values, 0);
        for (int i = 1; i < values.numElements(); i++) {
            PgNumeric next = numeric(values, i);
            int order = next.compare(best);
            if (largest ? order > 0 : order < 0) best = next;
        }
        return fromString(best.toString());
    }

    /** Returns the variance, or with root the standard deviation; of the sample or of the population. */
    @SqlFunction("pg_aggregates_numeric_variance")
    public static UTF8String variance(ArrayData values, boolean sample, boolean root) {
        int n = values.numElements();
        if (n <= (sample ? 1 : 0)) return null;
        BigDecimal sum = BigDecimal.ZERO;
        BigDecimal squares = BigDecimal.ZERO;
        for (int i = 0; i < n; i++) {
            if (!(numeric(values, i) instanceof Finite next)) return fromString("NaN");
            sum = sum.add(next.value());
            squares = squares.add(next.value().multiply(next.value()));
        }
        BigDecimal count = BigDecimal.valueOf(n);
        BigDecimal numerator = count.multiply(squares).subtract(sum.multiply(sum));
        if (numerator.signum() <= 0) return fromString("0");
        BigDecimal divisor = count.multiply(BigDecimal.valueOf(sample ? n - 1L : n));
        Finite variance = NumericArithmetic.quotient(PgNumeric.of(numerator), PgNumeric.of(divisor));
        return fromString((root ? NumericArithmetic.squareRoot(variance, variance.scale()) : variance).toString());
    }

    /** Returns one 15-digit part, 0 for the lowest, of a finite value times 10^scale; the part has the value's sign. */
    @SqlFunction("pg_aggregates_limb")
    public static long limb(UTF8String value, int scale, int place) {
        Finite number = (Finite) PgNumeric.parse(value.toString());
        BigInteger rest = number.value().setScale(scale).unscaledValue();
        for (int i = 0; i < place; i++) rest = rest.divide(LIMB);
        if (place == 3 && rest.abs().compareTo(LIMB) >= 0) throw new PgError("numeric with more digits than expected");
        return rest.remainder(LIMB).longValue();
    }

    /** Returns the value that has these parts, the lowest first; each part may have any size. */
    @SqlFunction("pg_aggregates_of_limbs")
    public static UTF8String ofLimbs(int scale, UTF8String a, UTF8String b, UTF8String c, UTF8String d) {
        BigInteger total = BigInteger.ZERO;
        for (UTF8String limb : new UTF8String[] {d, c, b, a}) {
            total = total.multiply(LIMB).add(new BigInteger(limb.toString()));
        }
        return fromString(PgNumeric.of(new BigDecimal(total, scale)).toString());
    }

    private static PgInterval totalInterval(ArrayData values) {
        PgInterval total = PgInterval.parse(values.getUTF8String(0).toString());
        for (int i = 1; i < values.numElements(); i++) {
            total = total.plus(PgInterval.parse(values.getUTF8String(i).toString()));
        }
        return total;
    }

    /** sum(interval). */
    @SqlFunction("pg_aggregates_interval_sum")
    public static UTF8String sumOfIntervals(ArrayData values) {
        return fromString(totalInterval(values).toString());
    }

    /** avg(interval). */
    @SqlFunction("pg_aggregates_interval_avg")
    public static UTF8String averageOfIntervals(ArrayData values) {
        return fromString(totalInterval(values).dividedBy(values.numElements()).toString());
    }
}
