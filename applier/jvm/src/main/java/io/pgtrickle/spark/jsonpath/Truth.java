package io.pgtrickle.spark.jsonpath;

/** The result of a predicate of a jsonpath. */
enum Truth {
    /** The predicate is false. */
    FALSE,
    /** The predicate is true. */
    TRUE,
    /** The operands cannot be compared, or their evaluation failed. */
    UNKNOWN;

    static Truth of(boolean value) {
        return value ? TRUE : FALSE;
    }

    Truth and(Truth other) {
        if (this == FALSE || other == FALSE) return FALSE;
        return other == TRUE ? this : other;
    }

    Truth or(Truth other) {
        if (this == TRUE || other == TRUE) return TRUE;
        return other == FALSE ? this : other;
    }

    Truth not() {
        return switch (this) {
            case FALSE -> TRUE;
            case TRUE -> FALSE;
            case UNKNOWN -> UNKNOWN;
        };
    }
}
