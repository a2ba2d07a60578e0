package io.pgtrickle.spark.values;

import java.util.Comparator;
import org.apache.spark.unsafe.types.UTF8String;

/** The order of the elements of an array, given as the texts of their type. */
public enum ElementOrder implements Comparator<String> {
    /** int2, int4 and int8. */
    INTEGER {
        @Override
        int compareTexts(String a, String b) {
            return Long.compare(Long.parseLong(a), Long.parseLong(b));
        }
    },
    /** numeric: 1 equals 1.0. */
    NUMERIC {
        @Override
        int compareTexts(String a, String b) {
            return PgNumeric.parse(a).compare(PgNumeric.parse(b));
        }
    },
    /** float4 and float8: 0 equals -0. */
    FLOAT {
        @Override
        int compareTexts(String a, String b) {
            double x = Double.parseDouble(a);
            double y = Double.parseDouble(b);
            return x == y ? 0 : Double.compare(x, y);
        }
    },
    /** text and bool, whose texts sort by their bytes. */
    BYTES {
        @Override
        int compareTexts(String a, String b) {
            return UTF8String.fromString(a).compareTo(UTF8String.fromString(b));
        }
    },
    /** uuid, and ISO dates and times: with four-digit years their texts sort by their bytes. */
    ISO_BYTES {
        @Override
        int compareTexts(String a, String b) {
            if (a.endsWith(" BC") || b.endsWith(" BC")) {
                throw new PgError.NotComputed("years before 1 are not held here");
            }
            return BYTES.compareTexts(a, b);
        }
    };

    /** Returns the order of a type. */
    public static ElementOrder of(UTF8String type) {
        return switch (type.toString()) {
            case "int2", "int4", "int8" -> INTEGER;
            case "numeric" -> NUMERIC;
            case "float4", "float8" -> FLOAT;
            case "bool", "text" -> BYTES;
            default -> ISO_BYTES;
        };
    }

    abstract int compareTexts(String a, String b);

    /** Compares two elements; NULL is the largest and equal to NULL. */
    @Override
    public int compare(String a, String b) {
        if (a == null || b == null) return a == null ? b == null ? 0 : 1 : -1;
        return compareTexts(a, b);
    }
}
