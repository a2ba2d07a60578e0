package io.pgtrickle.spark.functions;

import static io.pgtrickle.spark.functions.NumericFunctions.parse;
import static io.pgtrickle.spark.functions.NumericFunctions.text;

import io.pgtrickle.spark.values.NumericArithmetic;
import io.pgtrickle.spark.values.PgError;
import io.pgtrickle.spark.values.PgNumeric;
import io.pgtrickle.spark.values.PgNumeric.Finite;
import io.pgtrickle.spark.values.PgNumeric.Special;
import java.math.BigDecimal;
import java.math.RoundingMode;
import org.apache.spark.unsafe.types.UTF8String;

/** Rounding of numerics, their scales and their order. */
public final class NumericRounding {
    private NumericRounding() {}

    /** ceil. */
    @SqlFunction("pg_numeric_ceil")
    public static UTF8String ceiling(UTF8String a) {
        return text(NumericArithmetic.toScale(parse(a), 0, RoundingMode.CEILING));
    }

    /** floor. */
    @SqlFunction("pg_numeric_floor")
    public static UTF8String floor(UTF8String a) {
        return text(NumericArithmetic.toScale(parse(a), 0, RoundingMode.FLOOR));
    }

    /** round. */
    @SqlFunction("pg_numeric_round")
    public static UTF8String round(UTF8String a, int scale) {
        return text(NumericArithmetic.toScale(parse(a), scale, RoundingMode.HALF_UP));
    }

    /** trunc. */
    @SqlFunction("pg_numeric_trunc")
    public static UTF8String truncate(UTF8String a, int scale) {
        return text(NumericArithmetic.toScale(parse(a), scale, RoundingMode.DOWN));
    }

    /** The cast to numeric(precision, scale). */
    @SqlFunction("pg_numeric_sized")
    public static UTF8String toPrecision(UTF8String a, int precision, int scale) {
        return text(NumericArithmetic.toPrecision(parse(a), precision, scale));
    }

    /** scale. */
    @SqlFunction("pg_numeric_scale")
    public static Integer scale(UTF8String a) {
        return parse(a) instanceof Finite x ? x.scale() : null;
    }

    /** min_scale. */
    @SqlFunction("pg_numeric_min_scale")
    public static Integer minScale(UTF8String a) {
        return parse(a) instanceof Finite x ? Math.max(x.value().stripTrailingZeros().scale(), 0) : null;
    }

    /** trim_scale. */
    @SqlFunction("pg_numeric_trim_scale")
    public static UTF8String trimScale(UTF8String a) {
        PgNumeric number = parse(a);
        return text(number instanceof Finite x ? PgNumeric.of(x.value().stripTrailingZeros()) : number);
    }

    /** Returns the same text for equal values, so that they can be compared and grouped as text. */
    @SqlFunction("pg_numeric_key")
    public static UTF8String key(UTF8String a) {
        return trimScale(a);
    }

    /** Returns a text that is the same only for equal numbers and sorts as they do. */
    @SqlFunction("pg_numeric_sortable")
    public static UTF8String sortable(UTF8String a) {
        return UTF8String.fromString(parse(a).sortable());
    }

    /** Returns -1, 0 or 1 for less, equal or greater; NaN equals itself and is the largest. */
    @SqlFunction("pg_numeric_cmp")
    public static int compare(UTF8String a, UTF8String b) {
        return parse(a).compare(parse(b));
    }

    /** Returns the larger value, or the first of two equal ones. */
    @SqlFunction("pg_numeric_greatest")
    public static UTF8String greatest(UTF8String a, UTF8String b) {
        return compare(a, b) >= 0 ? a : b;
    }

    /** Returns the smaller value, or the first of two equal ones. */
    @SqlFunction("pg_numeric_least")
    public static UTF8String least(UTF8String a, UTF8String b) {
        return compare(a, b) <= 0 ? a : b;
    }

    /** width_bucket. */
    @SqlFunction("pg_numeric_width_bucket")
    public static int widthBucket(UTF8String value, UTF8String low, UTF8String high, int count) {
        PgNumeric operand = parse(value);
        PgNumeric lower = parse(low);
        PgNumeric upper = parse(high);
        if (count <= 0) throw new PgError("count must be greater than zero");
        if (operand == Special.NAN || lower == Special.NAN || upper == Special.NAN) {
            throw new PgError("operand, lower bound, and upper bound cannot be NaN");
        }
        if (!(lower instanceof Finite from && upper instanceof Finite to)) {
            throw new PgError("lower and upper bounds must be finite");
        }
        int order = from.compare(to);
        if (order == 0) throw new PgError("lower bound cannot equal upper bound");
        if (order < 0 ? operand.compare(from) < 0 : operand.compare(from) > 0) return 0;
        if (order < 0 ? operand.compare(to) >= 0 : operand.compare(to) <= 0) {
            if (count == Integer.MAX_VALUE) throw new PgError("integer out of range");
            return count + 1;
        }
        // The operand lies between the bounds, so it is finite.
        BigDecimal distance = ((Finite) operand).value().subtract(from.value()).multiply(BigDecimal.valueOf(count));
        return distance.divide(to.value().subtract(from.value()), 0, RoundingMode.DOWN).intValueExact() + 1;
    }
}
