package io.pgtrickle.spark.functions;

import static org.apache.spark.unsafe.types.UTF8String.fromString;

import io.pgtrickle.spark.values.PgArray;
import io.pgtrickle.spark.values.PgError;
import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.catalyst.util.ArrayData;
import org.apache.spark.unsafe.types.UTF8String;

/** Functions that make arrays, take them apart and join them. An array is PostgreSQL's text of it. */
public final class ArrayFunctions {
    private ArrayFunctions() {}

    static List<String> parse(UTF8String array) {
        return PgArray.parse(array.toString());
    }

    static UTF8String text(List<String> elements) {
        return fromString(PgArray.print(elements));
    }

    /** Returns the Java text of Spark's, null for null. */
    static String stringOf(UTF8String text) {
        return text == null ? null : text.toString();
    }

    /** Returns the texts of Spark's array, null for NULL. */
    static List<String> stringsOf(ArrayData values) {
        var out = new ArrayList<String>();
        for (int i = 0; i < values.numElements(); i++) {
            out.add(values.isNullAt(i) ? null : values.getUTF8String(i).toString());
        }
        return out;
    }

    /** Returns the array of these elements; each is the output text of its type. */
    @SqlFunction("pg_arrays_make")
    public static UTF8String make(ArrayData elements) {
        return text(stringsOf(elements));
    }

    /** array_agg of arrays: adds one dimension. */
    @SqlFunction("pg_arrays_stack")
    public static UTF8String stack(ArrayData arrays) {
        var out = new StringBuilder("{");
        List<Integer> dimensions = null;
        for (int i = 0; i < arrays.numElements(); i++) {
            if (arrays.isNullAt(i)) throw new PgError("cannot accumulate null arrays");
            String next = arrays.getUTF8String(i).toString();
            if (next.equals("{}")) throw new PgError("cannot accumulate empty arrays");
            List<Integer> own = PgArray.dimensions(next);
            if (dimensions != null && !own.equals(dimensions)) {
                throw new PgError("cannot accumulate arrays of different dimensionality");
            }
            dimensions = own;
            out.append(i > 0 ? "," : "").append(next);
        }
        return fromString(out.append('}').toString());
    }

    /** array[index]. */
    @SqlFunction("pg_arrays_get")
    public static UTF8String get(UTF8String array, int index) {
        List<String> elements = parse(array);
        return index < 1 || index > elements.size() ? null : fromString(elements.get(index - 1));
    }

    /** array[from:to]. */
    @SqlFunction("pg_arrays_slice")
    public static UTF8String slice(UTF8String array, int from, int to) {
        List<String> elements = parse(array);
        int first = Math.max(from, 1);
        int last = Math.min(to, elements.size());
        return text(first > last ? List.of() : elements.subList(first - 1, last));
    }

    /** array_length, and array_upper as arrays begin at 1. */
    @SqlFunction("pg_arrays_length")
    public static Integer length(UTF8String array, int dimension) {
        int length = parse(array).size();
        return dimension == 1 && length > 0 ? length : null;
    }

    /** array_lower. */
    @SqlFunction("pg_arrays_lower")
    public static Integer lower(UTF8String array, int dimension) {
        return dimension == 1 && !parse(array).isEmpty() ? 1 : null;
    }

    /** cardinality. */
    @SqlFunction("pg_arrays_cardinality")
    public static int cardinality(UTF8String array) {
        return parse(array).size();
    }

    /** array || array, none of them NULL. */
    @SqlFunction("pg_arrays_cat")
    public static UTF8String concatenate(UTF8String a, UTF8String b) {
        List<String> elements = parse(a);
        elements.addAll(parse(b));
        return text(elements);
    }

    /** array_cat; NULL is no array. */
    @SqlFunction(value = "pg_nullaware_array_cat", acceptsNull = true)
    public static UTF8String concatenateNullable(UTF8String a, UTF8String b) {
        return a == null ? b : b == null ? a : concatenate(a, b);
    }

    private static List<String> parseNullable(UTF8String array) {
        return array == null ? new ArrayList<>() : parse(array);
    }

    /** array_append; NULL is an empty array. */
    @SqlFunction(value = "pg_nullaware_array_append", acceptsNull = true)
    public static UTF8String append(UTF8String array, UTF8String element) {
        List<String> elements = parseNullable(array);
        elements.add(stringOf(element));
        return text(elements);
    }

    /** array_prepend; NULL is an empty array. */
    @SqlFunction(value = "pg_nullaware_array_prepend", acceptsNull = true)
    public static UTF8String prepend(UTF8String element, UTF8String array) {
        List<String> elements = parseNullable(array);
        elements.add(0, stringOf(element));
        return text(elements);
    }

    /** array_to_string without a text for NULL: elements that are NULL are left out. */
    @SqlFunction("pg_arrays_to_string")
    public static UTF8String join(UTF8String array, UTF8String delimiter) {
        return joinNullable(array, delimiter, null);
    }

    /** array_to_string; elements that are NULL are left out if there is no text for them. */
    @SqlFunction(value = "pg_nullaware_array_to_string", acceptsNull = true)
    public static UTF8String joinNullable(UTF8String array, UTF8String delimiter, UTF8String forNull) {
        if (array == null || delimiter == null) return null;
        var shown = new ArrayList<String>();
        for (String element : parse(array)) {
            if (element != null) shown.add(element);
            else if (forNull != null) shown.add(forNull.toString());
        }
        return fromString(String.join(delimiter.toString(), shown));
    }

    /** Splits at a delimiter, or into characters if it is NULL; an element equal to `forNull` becomes NULL. */
    @SqlFunction(value = "pg_nullaware_string_to_array", acceptsNull = true)
    public static UTF8String split(UTF8String string, UTF8String delimiter, UTF8String forNull) {
        if (string == null) return null;
        List<String> elements = split(string.toString(), stringOf(delimiter));
        if (forNull != null) {
            String nullText = forNull.toString();
            elements.replaceAll(element -> element.equals(nullText) ? null : element);
        }
        return text(elements);
    }

    private static List<String> split(String string, String delimiter) {
        var out = new ArrayList<String>();
        if (string.isEmpty()) return out;
        if (delimiter == null) {
            string.codePoints().forEach(point -> out.add(Character.toString(point)));
            return out;
        }
        int from = 0;
        if (!delimiter.isEmpty()) {
            for (int at = string.indexOf(delimiter); at >= 0; at = string.indexOf(delimiter, from)) {
                out.add(string.substring(from, at));
                from = at + delimiter.length();
            }
        }
        out.add(string.substring(from));
        return out;
    }
}
