package io.pgtrickle.spark.functions;

import static io.pgtrickle.spark.functions.ArrayFunctions.parse;
import static io.pgtrickle.spark.functions.ArrayFunctions.stringOf;
import static io.pgtrickle.spark.functions.ArrayFunctions.text;

import io.pgtrickle.spark.values.ElementOrder;
import java.util.List;
import org.apache.spark.sql.catalyst.util.ArrayData;
import org.apache.spark.unsafe.types.UTF8String;

/** Functions that compare elements of arrays, by the order of the element type, which is the first argument. */
public final class ArrayComparisons {
    private ArrayComparisons() {}

    /** Returns -1, 0 or 1: the first elements that differ decide, then the lengths. */
    @SqlFunction("pg_arrays_cmp")
    public static int compare(UTF8String type, UTF8String first, UTF8String second) {
        List<String> a = parse(first);
        List<String> b = parse(second);
        ElementOrder order = ElementOrder.of(type);
        for (int i = 0; i < a.size() && i < b.size(); i++) {
            int found = order.compare(a.get(i), b.get(i));
            if (found != 0) return found < 0 ? -1 : 1;
        }
        return Integer.compare(a.size(), b.size());
    }

    /** min and max: returns the first of the smallest arrays, or of the largest. */
    @SqlFunction("pg_arrays_extreme")
    public static UTF8String extreme(UTF8String type, ArrayData arrays, boolean largest) {
        UTF8String best = arrays.getUTF8String(0);
        for (int i = 1; i < arrays.numElements(); i++) {
            int order = compare(type, arrays.getUTF8String(i), best);
            if (largest ? order > 0 : order < 0) best = arrays.getUTF8String(i);
        }
        return best;
    }

    /** NULL matches nothing. */
    private static boolean has(List<String> elements, String wanted, ElementOrder order) {
        if (wanted == null) return false;
        for (String element : elements) {
            if (element != null && order.compare(element, wanted) == 0) return true;
        }
        return false;
    }

    /** first @> second. */
    @SqlFunction("pg_arrays_contains")
    public static boolean contains(UTF8String type, UTF8String first, UTF8String second) {
        List<String> elements = parse(first);
        ElementOrder order = ElementOrder.of(type);
        for (String wanted : parse(second)) {
            if (!has(elements, wanted, order)) return false;
        }
        return true;
    }

    /** first && second. */
    @SqlFunction("pg_arrays_overlap")
    public static boolean overlap(UTF8String type, UTF8String first, UTF8String second) {
        List<String> elements = parse(first);
        ElementOrder order = ElementOrder.of(type);
        for (String wanted : parse(second)) {
            if (has(elements, wanted, order)) return true;
        }
        return false;
    }

    /** array_remove; NULL is equal to NULL. */
    @SqlFunction(value = "pg_nullaware_array_remove", acceptsNull = true)
    public static UTF8String remove(UTF8String type, UTF8String array, UTF8String element) {
        if (array == null) return null;
        String unwanted = stringOf(element);
        ElementOrder order = ElementOrder.of(type);
        List<String> elements = parse(array);
        elements.removeIf(own -> order.compare(own, unwanted) == 0);
        return text(elements);
    }

    /** array_replace; NULL is equal to NULL. */
    @SqlFunction(value = "pg_nullaware_array_replace", acceptsNull = true)
    public static UTF8String replace(UTF8String type, UTF8String array, UTF8String from, UTF8String to) {
        if (array == null) return null;
        String before = stringOf(from);
        String after = stringOf(to);
        ElementOrder order = ElementOrder.of(type);
        List<String> elements = parse(array);
        elements.replaceAll(own -> order.compare(own, before) == 0 ? after : own);
        return text(elements);
    }

    /** array_position; NULL is equal to NULL. */
    @SqlFunction(value = "pg_nullaware_array_position", acceptsNull = true)
    public static Integer position(UTF8String type, UTF8String array, UTF8String element) {
        if (array == null) return null;
        String wanted = stringOf(element);
        ElementOrder order = ElementOrder.of(type);
        List<String> elements = parse(array);
        for (int i = 0; i < elements.size(); i++) {
            if (order.compare(elements.get(i), wanted) == 0) return i + 1;
        }
        return null;
    }

    /** The operator `element op ANY (array)` or ALL for =, <>, <, <=, >, >=; SQL's three-valued result. */
    @SqlFunction(value = "pg_nullaware_compare_all", acceptsNull = true)
    public static Boolean compareAll(
        UTF8String type, UTF8String operator, UTF8String element, UTF8String array, boolean all) {
        if (array == null) return null;
        List<String> elements = parse(array);
        if (elements.isEmpty()) return all;
        if (element == null) return null;
        String wanted = element.toString();
        ElementOrder order = ElementOrder.of(type);
        boolean isUnknown = false;
        for (String own : elements) {
            if (own == null) isUnknown = true;
            else if (holds(operator.toString(), order.compare(wanted, own)) != all) return !all;
        }
        return isUnknown ? null : (Boolean) all;
    }

    private static boolean holds(String operator, int order) {
        return switch (operator) {
            case "=" -> order == 0;
            case "<>" -> order != 0;
            case "<" -> order < 0;
            case "<=" -> order <= 0;
            case ">" -> order > 0;
            default -> order >= 0;
        };
    }
}
