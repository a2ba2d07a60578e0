package pgtrickle;

import java.math.BigDecimal;
import java.math.BigInteger;
import java.math.RoundingMode;
import org.apache.spark.sql.catalyst.util.ArrayData;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * Aggregates over all values of a group, none of them NULL, in the order in which PostgreSQL would read them. The steps
 * are those of its own transition functions: floats are added in this order; sums of squares use Youngs and Cramer.
 */
public final class Aggregates {
    private static Num numeric(ArrayData values, int i) {
        return Num.parse(values.getUTF8String(i).toString());
    }

    public static UTF8String numeric_sum(ArrayData values) {
        return UTF8String.fromString(sum(values).toString());
    }

    private static Num sum(ArrayData values) {
        Num total = numeric(values, 0);
        for (int i = 1; i < values.numElements(); i++) total = Numeric.sum(total, numeric(values, i));
        return total;
    }

    private static final BigInteger LIMB = BigInteger.TEN.pow(15);

    /** Returns one 15-digit part, 0 for the lowest, of a finite value times 10^scale; the part has the value's sign. */
    public static long limb(UTF8String value, int scale, int place) {
        BigInteger rest = Num.parse(value.toString()).value.setScale(scale).unscaledValue();
        for (int i = 0; i < place; i++) rest = rest.divide(LIMB);
        if (place == 3 && rest.abs().compareTo(LIMB) >= 0) throw new PgError("numeric with more digits than expected");
        return rest.remainder(LIMB).longValue();
    }

    /** Returns the value that has these parts; each part may have any size. */
    public static UTF8String of_limbs(int scale, UTF8String a, UTF8String b, UTF8String c, UTF8String d) {
        UTF8String[] limbs = {d, c, b, a};
        BigInteger total = BigInteger.ZERO;
        for (int i = 0; i < limbs.length; i++) total = total.multiply(LIMB).add(new BigInteger(limbs[i].toString()));
        return UTF8String.fromString(Num.of(new BigDecimal(total, scale)).toString());
    }

    public static UTF8String numeric_avg(ArrayData values) {
        Num count = Num.of((long) values.numElements());
        return UTF8String.fromString(Numeric.quotient(sum(values), count).toString());
    }

    public static UTF8String numeric_extreme(ArrayData values, boolean largest) {
        Num best = numeric(values, 0);
        for (int i = 1; i < values.numElements(); i++) {
            Num next = numeric(values, i);
            int order = next.compare(best);
            if (largest ? order > 0 : order < 0) best = next;
        }
        return UTF8String.fromString(best.toString());
    }

    /** Returns the variance, or with root the standard deviation; of the sample or of the population. */
    public static UTF8String numeric_variance(ArrayData values, boolean sample, boolean root) {
        int n = values.numElements();
        if (n <= (sample ? 1 : 0)) return null;
        BigDecimal sum = BigDecimal.ZERO;
        BigDecimal squares = BigDecimal.ZERO;
        for (int i = 0; i < n; i++) {
            Num next = numeric(values, i);
            if (!next.isFinite()) return UTF8String.fromString("NaN");
            sum = sum.add(next.value);
            squares = squares.add(next.value.multiply(next.value));
        }
        BigDecimal count = BigDecimal.valueOf((long) n);
        BigDecimal numerator = count.multiply(squares).subtract(sum.multiply(sum));
        if (numerator.signum() <= 0) return UTF8String.fromString("0");
        BigDecimal others = BigDecimal.valueOf(sample ? (long) n - 1 : (long) n);
        Num variance = Numeric.quotient(Num.of(numerator), Num.of(count.multiply(others)));
        return UTF8String.fromString((root ? rootOf(variance) : variance).toString());
    }

    /** Returns the square root with the scale of the number, halves rounded away from zero. */
    private static Num rootOf(Num number) {
        int scale = number.scale();
        // One digit more than the scale decides the rounding: a root is never exactly between two such numbers.
        BigInteger shifted = number.value.setScale(2 * scale + 2, RoundingMode.UNNECESSARY).unscaledValue();
        return Num.of(new BigDecimal(shifted.sqrt(), scale + 1).setScale(scale, RoundingMode.HALF_UP));
    }

    public static UTF8String interval_sum(ArrayData values) {
        return UTF8String.fromString(span(values).toString());
    }

    public static UTF8String interval_avg(ArrayData values) {
        return UTF8String.fromString(span(values).over((double) values.numElements()).toString());
    }

    private static Span span(ArrayData values) {
        Span total = Span.parse(values.getUTF8String(0).toString());
        for (int i = 1; i < values.numElements(); i++) {
            total = total.plus(Span.parse(values.getUTF8String(i).toString()));
        }
        return total;
    }

    private static double added(double sum, double value) {
        double total = sum + value;
        if (Double.isInfinite(total) && !Double.isInfinite(sum) && !Double.isInfinite(value)) {
            throw new PgError("value out of range: overflow");
        }
        return total;
    }

    public static double float8_sum(ArrayData values) {
        double total = values.getDouble(0);
        for (int i = 1; i < values.numElements(); i++) total = added(total, values.getDouble(i));
        return total;
    }

    public static float float4_sum(ArrayData values) {
        float total = values.getFloat(0);
        for (int i = 1; i < values.numElements(); i++) {
            float before = total;
            float value = values.getFloat(i);
            total = before + value;
            if (Float.isInfinite(total) && !Float.isInfinite(before) && !Float.isInfinite(value)) {
                throw new PgError("value out of range: overflow");
            }
        }
        return total;
    }

    /** Returns N, the sum, and the sum of squared distances from the mean. */
    private static double[] moments(ArrayData values) {
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
                if (Double.isInfinite(sum) || Double.isInfinite(squares)) {
                    if (!Double.isInfinite(before) && !Double.isInfinite(value)) {
                        throw new PgError("value out of range: overflow");
                    }
                    squares = Double.NaN;
                }
            } else if (Double.isNaN(value) || Double.isInfinite(value)) {
                squares = Double.NaN;
            }
        }
        return new double[] {n, sum, squares};
    }

    public static double float8_avg(ArrayData values) {
        double[] found = moments(values);
        return found[1] / found[0];
    }

    public static Double float8_variance(ArrayData values, boolean sample, boolean root) {
        if (values.numElements() <= (sample ? 1 : 0)) return null;
        double[] found = moments(values);
        double variance = found[2] / (sample ? found[0] - 1 : found[0]);
        return Double.valueOf(root ? Math.sqrt(variance) : variance);
    }

    /** Returns the inputs of the functions of two variables: N, Sx, Sxx, Sy, Syy, Sxy. */
    private static double[] comoments(ArrayData ys, ArrayData xs) {
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
                boolean finiteX = !Double.isInfinite(oldX) && !Double.isInfinite(x);
                boolean finiteY = !Double.isInfinite(oldY) && !Double.isInfinite(y);
                boolean overX = Double.isInfinite(sx) || Double.isInfinite(sxx);
                boolean overY = Double.isInfinite(sy) || Double.isInfinite(syy);
                if ((overX && finiteX) || (overY && finiteY) || (Double.isInfinite(sxy) && finiteX && finiteY)) {
                    throw new PgError("value out of range: overflow");
                }
                if (Double.isInfinite(sxx)) sxx = Double.NaN;
                if (Double.isInfinite(syy)) syy = Double.NaN;
                if (Double.isInfinite(sxy)) sxy = Double.NaN;
            } else {
                if (Double.isNaN(x) || Double.isInfinite(x)) {
                    sxx = Double.NaN;
                    sxy = Double.NaN;
                }
                if (Double.isNaN(y) || Double.isInfinite(y)) {
                    syy = Double.NaN;
                    sxy = Double.NaN;
                }
            }
        }
        return new double[] {n, sx, sxx, sy, syy, sxy};
    }

    public static Double regression(UTF8String asked, ArrayData ys, ArrayData xs) {
        double[] m = comoments(ys, xs);
        double n = m[0], sx = m[1], sxx = m[2], sy = m[3], syy = m[4], sxy = m[5];
        String name = asked.toString();
        if (name.equals("covar_pop")) return Double.valueOf(sxy / n);
        if (name.equals("covar_samp")) return n < 2 ? null : Double.valueOf(sxy / (n - 1));
        if (name.equals("regr_avgx")) return Double.valueOf(sx / n);
        if (name.equals("regr_avgy")) return Double.valueOf(sy / n);
        if (name.equals("regr_sxx")) return Double.valueOf(sxx);
        if (name.equals("regr_syy")) return Double.valueOf(syy);
        if (name.equals("regr_sxy")) return Double.valueOf(sxy);
        if (name.equals("corr")) return sxx == 0 || syy == 0 ? null : Double.valueOf(sxy / Math.sqrt(sxx * syy));
        if (sxx == 0) return null;
        if (name.equals("regr_r2")) return Double.valueOf(syy == 0 ? 1.0 : (sxy * sxy) / (sxx * syy));
        if (name.equals("regr_slope")) return Double.valueOf(sxy / sxx);
        if (name.equals("regr_intercept")) return Double.valueOf((sy - sx * sxy / sxx) / n);
        throw new PgError("no such regression: " + name);
    }
}
