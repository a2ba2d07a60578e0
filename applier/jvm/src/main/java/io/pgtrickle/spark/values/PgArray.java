package io.pgtrickle.spark.values;

import java.util.ArrayList;
import java.util.List;

/** One-dimensional arrays in PostgreSQL's text; elements are the texts of their output functions, null for NULL. */
public final class PgArray {
    private PgArray() {}

    /** Reads the text of array_out. */
    public static List<String> parse(String array) {
        requireLowerBoundOne(array);
        var elements = new ArrayList<String>();
        if (array.equals("{}")) return elements;
        var word = new StringBuilder();
        for (int at = 1; ; at++) {
            word.setLength(0);
            if (array.charAt(at) == '{') throw new PgError.NotComputed("arrays of arrays are not computed with here");
            boolean isQuoted = array.charAt(at) == '"';
            if (isQuoted) at++;
            while (isQuoted ? array.charAt(at) != '"' : array.charAt(at) != ',' && array.charAt(at) != '}') {
                if (array.charAt(at) == '\\') at++;
                word.append(array.charAt(at++));
            }
            if (isQuoted) at++;
            String element = word.toString();
            elements.add(!isQuoted && element.equals("NULL") ? null : element);
            if (array.charAt(at) == '}') return elements;
        }
    }

    private static void requireLowerBoundOne(String array) {
        if (!array.startsWith("{")) {
            throw new PgError.NotComputed("arrays that do not begin at 1 are not held here");
        }
    }

    /** Returns the text of array_out. */
    public static String print(Iterable<String> elements) {
        var out = new StringBuilder("{");
        for (String element : elements) {
            if (out.length() > 1) out.append(',');
            if (element == null) {
                out.append("NULL");
            } else if (needsQuotes(element)) {
                out.append('"').append(element.replace("\\", "\\\\").replace("\"", "\\\"")).append('"');
            } else {
                out.append(element);
            }
        }
        return out.append('}').toString();
    }

    private static boolean needsQuotes(String element) {
        return element.isEmpty() || element.equalsIgnoreCase("NULL")
            || CharacterClass.hasSpaceOr("\"\\{},", element);
    }

    /** Returns the number of elements in each dimension of an array's text, outermost dimension first. */
    public static List<Integer> dimensions(String array) {
        requireLowerBoundOne(array);
        var sizes = new ArrayList<Integer>();
        int depth = 0;
        for (int at = 0; at < array.length(); at++) {
            switch (array.charAt(at)) {
                case '"' -> {
                    for (at++; array.charAt(at) != '"'; at++) if (array.charAt(at) == '\\') at++;
                }
                case '\\' -> at++;
                case '{' -> {
                    if (++depth > sizes.size()) sizes.add(1);
                    else sizes.set(depth - 1, 1);
                }
                case '}' -> depth--;
                case ',' -> sizes.set(depth - 1, sizes.get(depth - 1) + 1);
                default -> { }
            }
        }
        return sizes;
    }
}
