package io.pgtrickle.spark.functions;

import static java.lang.Double.isInfinite;

import io.pgtrickle.spark.values.PgError;
import org.apache.spark.sql.catalyst.util.ArrayData;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * Aggregates of floats over all values of a group, none of them NULL, in the order in which PostgreSQL would read them.
 * The steps are those of its own transition functions: sums of squares use Youngs and Cramer.
 */
public final class FloatAggregates {
    private FloatAggregates() {}

    private static PgError overflow() {
        return new PgError("value out of range: overflow");
    }

    private static boolean isNotFinite(double value) {
        return Double.isNaN(value) || isInfinite(value);
    }

    /** sum(float8). */
    @SqlFunction("pg_aggregates_float8_sum")
    public static double sum(ArrayData values) {
        double total = values.getDouble(0);
        for (int i = 1; i < values.numElements(); i++) {
            double before = total;
            total += values.getDouble(i);
            if (isInfinite(total) && !isInfinite(before) && !isInfinite(values.getDouble(i))) throw overflow();
        }
        return total;
    }

    /** sum(float4). */
    @SqlFunction("pg_aggregates_float4_sum")
    public static float sum4(ArrayData values) {
        float total = values.getFloat(0);
        for (int i = 1; i < values.numElements(); i++) {
            float before = total;
            total += values.getFloat(i);
            if (isInfinite(total) && !isInfinite(before) && !isInfinite(values.getFloat(i))) throw overflow();
        }
        return total;
    }

    /** The number of values, their sum, and the sum of squared distances from the mean. */
    private record Moments(double count, double sum, double squares) {
        static Moments of(ArrayData values) {
            double n = 0;
            double sum = 0;
            double squares = 0;
            for (int i = 0; i < values.numElements(); i++) {
                double value = values.getDouble(i);
                double before = sum;
                n += 1;
                sum += value;
                if (n > 1) {
                    double distance = value * n - sum;
                    squares += distance * distance / (n * (n - 1));
                    if (isInfinite(sum) || isInfinite(squares)) {
                        if (!isInfinite(before) && !isInfinite(value)) throw overflow();
                        squares = Double.NaN;
                    }
                } else if (isNotFinite(value)) {
                    squares = Double.NaN;
                }
            }
            return new Moments(n, sum, squares);
        }
    }

    /** avg(float8). */
    @SqlFunction("pg_aggregates_float8_avg")
    public static double average(ArrayData values) {
        Moments moments = Moments.of(values);
        return moments.sum / moments.count;
    }

    /** Returns the variance, or with root the standard deviation; of the sample or of the population. */
    @SqlFunction("pg_aggregates_float8_variance")
    public static Double variance(ArrayData values, boolean sample, boolean root) {
        if (values.numElements() <= (sample ? 1 : 0)) return null;
        Moments moments = Moments.of(values);
        double variance = moments.squares / (sample ? moments.count - 1 : moments.count);
        return root ? Math.sqrt(variance) : variance;
    }

    /** The count, the sums of x and y, and the sums of squared and multiplied distances from the means. */
    private record Comoments(double n, double sx, double sxx, double sy, double syy, double sxy) {
        static Comoments of(ArrayData ys, ArrayData xs) {
            double n = 0, sx = 0, sxx = 0, sy = 0, syy = 0, sxy = 0;
            for (int i = 0; i < xs.numElements(); i++) {
                double x = xs.getDouble(i), y = ys.getDouble(i);
                double oldX = sx, oldY = sy;
                n += 1;
                sx += x;
                sy += y;
                if (n > 1) {
                    double dx = x * n - sx, dy = y * n - sy;
                    double scale = 1.0 / (n * (n - 1));
                    sxx += dx * dx * scale;
                    syy += dy * dy * scale;
                    sxy += dx * dy * scale;
                    boolean finiteX = !isInfinite(oldX) && !isInfinite(x);
                    boolean finiteY = !isInfinite(oldY) && !isInfinite(y);
                    boolean overX = isInfinite(sx) || isInfinite(sxx);
                    boolean overY = isInfinite(sy) || isInfinite(syy);
                    if ((overX && finiteX) || (overY && finiteY) || (isInfinite(sxy) && finiteX && finiteY)) {
                        throw overflow();
                    }
                    if (isInfinite(sxx)) sxx = Double.NaN;
                    if (isInfinite(syy)) syy = Double.NaN;
                    if (isInfinite(sxy)) sxy = Double.NaN;
                } else {
                    if (isNotFinite(x)) sxx = sxy = Double.NaN;
                    if (isNotFinite(y)) syy = sxy = Double.NaN;
                }
            }
            return new Comoments(n, sx, sxx, sy, syy, sxy);
        }
    }

    /** The aggregates of two variables, by their names. */
    @SqlFunction("pg_aggregates_regression")
    public static Double regression(UTF8String name, ArrayData ys, ArrayData xs) {
        Comoments m = Comoments.of(ys, xs);
        return switch (name.toString()) {
            case "covar_pop" -> m.sxy / m.n;
            case "covar_samp" -> m.n < 2 ? null : (Double) (m.sxy / (m.n - 1));
            case "regr_avgx" -> m.sx / m.n;
            case "regr_avgy" -> m.sy / m.n;
            case "regr_sxx" -> m.sxx;
            case "regr_syy" -> m.syy;
            case "regr_sxy" -> m.sxy;
            case "corr" -> m.sxx == 0 || m.syy == 0 ? null : (Double) (m.sxy / Math.sqrt(m.sxx * m.syy));
            case "regr_r2" -> m.sxx == 0 ? null
                : (Double) (m.syy == 0 ? 1.0 : (m.sxy * m.sxy) / (m.sxx * m.syy));
            case "regr_slope" -> m.sxx == 0 ? null : (Double) (m.sxy / m.sxx);
            case "regr_intercept" -> m.sxx == 0 ? null : (Double) ((m.sy - m.sx * m.sxy / m.sxx) / m.n);
            default -> throw new PgError("no such regression: " + name);
        };
    }
}
