package pgtrickle;

import java.util.ArrayList;
import java.util.Collections;
import java.util.Comparator;
import org.apache.spark.sql.catalyst.util.ArrayData;
import org.apache.spark.unsafe.types.UTF8String;

/** Discrete ranges: int4, int8 and date. Their texts are canonical: [a,b), (,b), [a,) or empty. */
public final class Ranges {
    /** A null bound means that there is no bound; an empty range has two null bounds. */
    private static final class Range {
        final Long low;
        final Long high;
        final boolean empty;

        Range(Long low, Long high, boolean empty) {
            this.low = low;
            this.high = high;
            this.empty = empty || (low != null && high != null && low.longValue() >= high.longValue());
        }
    }

    private static final class ByLow implements Comparator {
        public int compare(Object a, Object b) {
            Long x = ((Range) a).low;
            Long y = ((Range) b).low;
            return x == null || y == null ? (x == y ? 0 : x == null ? -1 : 1) : x.compareTo(y);
        }
    }

    private static Long bound(String kind, String text) {
        if (text.isEmpty()) return null;
        UTF8String value = UTF8String.fromString(text);
        return Long.valueOf(kind.equals("date") ? Dates.in_date(value) : Long.parseLong(text));
    }

    private static Range read(String kind, UTF8String text) {
        String t = text.toString();
        if (t.equals("empty")) return new Range(null, null, true);
        int comma = t.indexOf(',');
        return new Range(bound(kind, t.substring(1, comma)), bound(kind, t.substring(comma + 1, t.length() - 1)), false);
    }

    private static String shown(String kind, Long value) {
        if (value == null) return "";
        return kind.equals("date") ? Dates.out_date(value.intValue()).toString() : value.toString();
    }

    private static String print(String kind, Range range) {
        if (range.empty) return "empty";
        return (range.low == null ? "(" : "[") + shown(kind, range.low) + "," + shown(kind, range.high) + ")";
    }

    /** Returns the canonical bound: one further for an exclusive lower bound or an inclusive upper bound. */
    private static Long kept(String kind, UTF8String value, boolean further) {
        if (value == null) return null;
        long found = bound(kind, value.toString()).longValue();
        if (!further) return Long.valueOf(found);
        if (found == (kind.equals("int4") ? Integer.MAX_VALUE : Long.MAX_VALUE)) throw new PgError(kind + " out of range");
        return Long.valueOf(found + 1);
    }

    /** The constructor; `low` and `high` may be null. */
    static UTF8String make(String kind, UTF8String low, UTF8String high, String bounds) {
        if (!bounds.equals("[)") && !bounds.equals("[]") && !bounds.equals("()") && !bounds.equals("(]")) {
            throw new PgError("invalid range bound flags");
        }
        Long first = kept(kind, low, false);
        Long last = kept(kind, high, false);
        if (first != null && last != null && first.longValue() > last.longValue()) {
            throw new PgError("range lower bound must be less than or equal to range upper bound");
        }
        if (first != null && first.equals(last) && !bounds.equals("[]")) return UTF8String.fromString("empty");
        Range made = new Range(
            kept(kind, low, bounds.charAt(0) == '('), kept(kind, high, bounds.charAt(1) == ']'), false);
        return UTF8String.fromString(print(kind, made));
    }

    public static UTF8String lower(UTF8String kind, UTF8String range) {
        Range own = read(kind.toString(), range);
        return own.low == null ? null : UTF8String.fromString(shown(kind.toString(), own.low));
    }

    public static UTF8String upper(UTF8String kind, UTF8String range) {
        Range own = read(kind.toString(), range);
        return own.high == null || own.empty ? null : UTF8String.fromString(shown(kind.toString(), own.high));
    }

    public static boolean contains(UTF8String kind, UTF8String range, UTF8String value) {
        Range own = read(kind.toString(), range);
        long found = bound(kind.toString(), value.toString()).longValue();
        return !own.empty && (own.low == null || own.low.longValue() <= found)
            && (own.high == null || found < own.high.longValue());
    }

    private static Range common(Range a, Range b) {
        Long low = a.low == null || (b.low != null && b.low.longValue() > a.low.longValue()) ? b.low : a.low;
        Long high = a.high == null || (b.high != null && b.high.longValue() < a.high.longValue()) ? b.high : a.high;
        return new Range(low, high, a.empty || b.empty);
    }

    public static boolean overlaps(UTF8String kind, UTF8String a, UTF8String b) {
        return !common(read(kind.toString(), a), read(kind.toString(), b)).empty;
    }

    public static UTF8String intersection(UTF8String kind, ArrayData ranges) {
        Range found = read(kind.toString(), ranges.getUTF8String(0));
        for (int i = 1; i < ranges.numElements(); i++) {
            found = common(found, read(kind.toString(), ranges.getUTF8String(i)));
        }
        return UTF8String.fromString(print(kind.toString(), found));
    }

    /** Returns a multirange of all ranges; overlapping and adjacent ranges become one. */
    public static UTF8String union(UTF8String kind, ArrayData ranges) {
        ArrayList all = new ArrayList();
        for (int i = 0; i < ranges.numElements(); i++) {
            Range range = read(kind.toString(), ranges.getUTF8String(i));
            if (!range.empty) all.add(range);
        }
        Collections.sort(all, new ByLow());
        StringBuilder out = new StringBuilder("{");
        Range open = null;
        for (int i = 0; i < all.size(); i++) {
            Range next = (Range) all.get(i);
            boolean meets = open != null
                && (open.high == null || next.low == null || next.low.longValue() <= open.high.longValue());
            if (open != null && !meets) out.append(print(kind.toString(), open)).append(',');
            if (!meets) open = next;
            else if (open.high != null && (next.high == null || next.high.longValue() > open.high.longValue())) {
                open = new Range(open.low, next.high, false);
            }
        }
        if (open != null) out.append(print(kind.toString(), open));
        return UTF8String.fromString(out.append('}').toString());
    }
}
