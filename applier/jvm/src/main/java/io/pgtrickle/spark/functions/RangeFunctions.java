package io.pgtrickle.spark.functions;

import static org.apache.spark.unsafe.types.UTF8String.fromString;

import io.pgtrickle.spark.values.DiscreteRange;
import io.pgtrickle.spark.values.DiscreteRange.Kind;
import io.pgtrickle.spark.values.PgError;
import java.util.ArrayList;
import org.apache.spark.sql.catalyst.util.ArrayData;
import org.apache.spark.unsafe.types.UTF8String;

/** Functions of int4range, int8range and daterange. A range is PostgreSQL's text of it; the first argument is its kind. */
public final class RangeFunctions {
    private RangeFunctions() {}

    private static DiscreteRange parse(Kind kind, UTF8String range) {
        return DiscreteRange.parse(kind, range.toString());
    }

    /** Returns a range; a NULL bound means that there is no bound. */
    @SqlFunction(value = "pg_nullaware_range", acceptsNull = true)
    public static UTF8String make(UTF8String kindName, UTF8String low, UTF8String high, UTF8String ends) {
        if (ends == null) throw new PgError("range constructor flags argument must not be null");
        Kind kind = Kind.of(kindName);
        DiscreteRange range = DiscreteRange.of(
            kind, ArrayFunctions.stringOf(low), ArrayFunctions.stringOf(high), ends.toString());
        return fromString(range.print(kind));
    }

    /** lower. */
    @SqlFunction("pg_ranges_lower")
    public static UTF8String lower(UTF8String kindName, UTF8String range) {
        Kind kind = Kind.of(kindName);
        Long low = parse(kind, range).low();
        return low == null ? null : fromString(kind.print(low));
    }

    /** upper. */
    @SqlFunction("pg_ranges_upper")
    public static UTF8String upper(UTF8String kindName, UTF8String range) {
        Kind kind = Kind.of(kindName);
        DiscreteRange own = parse(kind, range);
        return own.high() == null || own.isEmpty() ? null : fromString(kind.print(own.high()));
    }

    /** range @> value. */
    @SqlFunction("pg_ranges_contains")
    public static boolean contains(UTF8String kindName, UTF8String range, UTF8String value) {
        Kind kind = Kind.of(kindName);
        return parse(kind, range).contains(kind.parse(value.toString()));
    }

    /** a && b. */
    @SqlFunction("pg_ranges_overlaps")
    public static boolean overlaps(UTF8String kindName, UTF8String a, UTF8String b) {
        Kind kind = Kind.of(kindName);
        return !parse(kind, a).intersect(parse(kind, b)).isEmpty();
    }

    /** range_intersect_agg. */
    @SqlFunction("pg_ranges_intersection")
    public static UTF8String intersection(UTF8String kindName, ArrayData ranges) {
        Kind kind = Kind.of(kindName);
        DiscreteRange found = parse(kind, ranges.getUTF8String(0));
        for (int i = 1; i < ranges.numElements(); i++) found = found.intersect(parse(kind, ranges.getUTF8String(i)));
        return fromString(found.print(kind));
    }

    /** range_agg: returns a multirange of all ranges; overlapping and adjacent ranges become one. */
    @SqlFunction("pg_ranges_union")
    public static UTF8String union(UTF8String kindName, ArrayData ranges) {
        Kind kind = Kind.of(kindName);
        var sorted = new ArrayList<DiscreteRange>();
        for (int i = 0; i < ranges.numElements(); i++) {
            DiscreteRange range = parse(kind, ranges.getUTF8String(i));
            if (!range.isEmpty()) sorted.add(range);
        }
        sorted.sort(DiscreteRange.BY_LOW);
        var parts = new ArrayList<String>();
        DiscreteRange open = null;
        for (DiscreteRange next : sorted) {
            if (open != null && open.isContinuedBy(next)) {
                open = open.extendTo(next);
            } else {
                if (open != null) parts.add(open.print(kind));
                open = next;
            }
        }
        if (open != null) parts.add(open.print(kind));
        return fromString("{" + String.join(",", parts) + "}");
    }
}
