package io.pgtrickle.spark.values;

import java.util.Comparator;
import java.util.Locale;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * A range of int4, int8 or date, from `low` up to but without `high`. A null bound means that there is no bound; an
 * empty range has two null bounds when it is read. The texts are canonical: [a,b), (,b), [a,) or empty.
 */
public record DiscreteRange(Long low, Long high, boolean isEmpty) {
    /** Sorts by the lower bound; a range without one is the first. */
    public static final Comparator<DiscreteRange> BY_LOW =
        Comparator.comparing(DiscreteRange::low, Comparator.nullsFirst(Comparator.naturalOrder()));

    private static final DiscreteRange EMPTY = new DiscreteRange(null, null, true);

    /** Bounds that leave no value between them make the range empty. */
    public DiscreteRange {
        isEmpty = isEmpty || (low != null && high != null && low >= high);
    }

    /** The type of the bounds. */
    public enum Kind {
        /** int4range. */
        INT4(Integer.MAX_VALUE),
        /** int8range. */
        INT8(Long.MAX_VALUE),
        /** daterange; a date is its number of days since 1970. */
        DATE(Long.MAX_VALUE);

        private final long largest;

        Kind(long largest) {
            this.largest = largest;
        }

        /** Returns the kind with this name in a call: int4, int8 or date. */
        public static Kind of(UTF8String name) {
            return switch (name.toString()) {
                case "int4" -> INT4;
                case "date" -> DATE;
                default -> INT8;
            };
        }

        /** Reads a bound. */
        public long parse(String text) {
            return this == DATE ? IsoDate.parse(text, "date").toDate() : Long.parseLong(text);
        }

        /** Returns the text of a bound. */
        public String print(long value) {
            return this == DATE ? PgTimestamp.printDate((int) value) : Long.toString(value);
        }

        private long next(long value) {
            if (value == largest) throw new PgError(name().toLowerCase(Locale.ROOT) + " out of range");
            return value + 1;
        }
    }

    /** Returns the range between two bounds, null for no bound, whose ends are inclusive or exclusive, such as `[)`. */
    public static DiscreteRange of(Kind kind, String lowText, String highText, String ends) {
        switch (ends) {
            case "[)", "[]", "()", "(]" -> { }
            default -> throw new PgError("invalid range bound flags");
        }
        Long low = lowText == null ? null : (Long) kind.parse(lowText);
        Long high = highText == null ? null : (Long) kind.parse(highText);
        if (low != null && high != null && low > high) {
            throw new PgError("range lower bound must be less than or equal to range upper bound");
        }
        if (low != null && low.equals(high) && !ends.equals("[]")) return EMPTY;
        Long first = low != null && ends.startsWith("(") ? (Long) kind.next(low) : low;
        Long end = high != null && ends.endsWith("]") ? (Long) kind.next(high) : high;
        return new DiscreteRange(first, end, false);
    }

    /** Reads a canonical text. */
    public static DiscreteRange parse(Kind kind, String text) {
        if (text.equals("empty")) return EMPTY;
        int comma = text.indexOf(',');
        return new DiscreteRange(
            parseBound(kind, text.substring(1, comma)), parseBound(kind, text.substring(comma + 1, text.length() - 1)),
            false);
    }

    private static Long parseBound(Kind kind, String text) {
        return text.isEmpty() ? null : (Long) kind.parse(text);
    }

    /** Returns the canonical text. */
    public String print(Kind kind) {
        if (isEmpty) return "empty";
        String first = low == null ? "(" : "[" + kind.print(low);
        return first + "," + (high == null ? "" : kind.print(high)) + ")";
    }

    /** Returns whether a value is inside. */
    public boolean contains(long value) {
        return !isEmpty && (low == null || low <= value) && (high == null || value < high);
    }

    /** Returns the values that both ranges contain. */
    public DiscreteRange intersect(DiscreteRange other) {
        Long first = low == null || (other.low != null && other.low > low) ? other.low : low;
        Long end = high == null || (other.high != null && other.high < high) ? other.high : high;
        return new DiscreteRange(first, end, isEmpty || other.isEmpty);
    }

    /** Returns whether a range that does not begin before this one overlaps it or follows without a gap. */
    public boolean isContinuedBy(DiscreteRange next) {
        return high == null || next.low == null || next.low <= high;
    }

    /** Returns this range up to the end of the other if that is further. */
    public DiscreteRange extendTo(DiscreteRange next) {
        boolean isFurther = high != null && (next.high == null || next.high > high);
        return isFurther ? new DiscreteRange(low, next.high, false) : this;
    }
}
