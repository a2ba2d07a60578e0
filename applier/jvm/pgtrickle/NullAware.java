package pgtrickle;

import java.util.ArrayList;
import org.apache.spark.unsafe.types.UTF8String;

/** Functions that accept NULL arguments. */
public final class NullAware {
    private static UTF8String text(ArrayList elements) {
        return UTF8String.fromString(Arrays.print(elements));
    }

    private static String word(UTF8String s) {
        return s == null ? null : s.toString();
    }

    public static UTF8String array_append(UTF8String array, UTF8String element) {
        ArrayList out = array == null ? new ArrayList() : Arrays.parse(array);
        out.add(word(element));
        return text(out);
    }

    public static UTF8String array_prepend(UTF8String element, UTF8String array) {
        ArrayList out = array == null ? new ArrayList() : Arrays.parse(array);
        out.add(0, word(element));
        return text(out);
    }

    public static UTF8String array_cat(UTF8String a, UTF8String b) {
        return a == null ? b : (b == null ? a : Arrays.cat(a, b));
    }

    public static UTF8String array_remove(UTF8String type, UTF8String array, UTF8String element) {
        return array_replace(type, array, element, null, true);
    }

    public static UTF8String array_replace(UTF8String type, UTF8String array, UTF8String from, UTF8String to) {
        return array_replace(type, array, from, to, false);
    }

    private static UTF8String array_replace(UTF8String type, UTF8String array, UTF8String from, UTF8String to, boolean drop) {
        if (array == null) return null;
        ArrayList e = Arrays.parse(array);
        ArrayList out = new ArrayList();
        for (int i = 0; i < e.size(); i++) {
            boolean same = Arrays.compare(type.toString(), (String) e.get(i), word(from)) == 0;
            if (!same) out.add(e.get(i));
            else if (!drop) out.add(word(to));
        }
        return text(out);
    }

    public static Integer array_position(UTF8String type, UTF8String array, UTF8String element) {
        if (array == null) return null;
        ArrayList e = Arrays.parse(array);
        for (int i = 0; i < e.size(); i++) {
            if (Arrays.compare(type.toString(), (String) e.get(i), word(element)) == 0) return Integer.valueOf(i + 1);
        }
        return null;
    }

    public static UTF8String array_to_string(UTF8String array, UTF8String delimiter, UTF8String forNull) {
        if (array == null || delimiter == null) return null;
        ArrayList e = Arrays.parse(array);
        StringBuilder out = new StringBuilder();
        boolean first = true;
        for (int i = 0; i < e.size(); i++) {
            if (e.get(i) == null && forNull == null) continue;
            if (!first) out.append(delimiter);
            first = false;
            out.append(e.get(i) == null ? forNull.toString() : (String) e.get(i));
        }
        return UTF8String.fromString(out.toString());
    }

    /** Splits at a delimiter, or into characters if it is NULL; an element equal to `forNull` becomes NULL. */
    public static UTF8String string_to_array(UTF8String string, UTF8String delimiter, UTF8String forNull) {
        if (string == null) return null;
        ArrayList out = new ArrayList();
        String s = string.toString();
        if (s.isEmpty()) return text(out);
        if (delimiter == null) {
            int[] points = s.codePoints().toArray();
            for (int i = 0; i < points.length; i++) out.add(new String(points, i, 1));
        } else if (delimiter.numBytes() == 0) {
            out.add(s);
        } else {
            String d = delimiter.toString();
            int from = 0;
            for (int at = s.indexOf(d); at >= 0; at = s.indexOf(d, from)) {
                out.add(s.substring(from, at));
                from = at + d.length();
            }
            out.add(s.substring(from));
        }
        if (forNull != null) {
            for (int i = 0; i < out.size(); i++) {
                if (out.get(i).equals(forNull.toString())) out.set(i, null);
            }
        }
        return text(out);
    }

    /** The operator `element op ANY (array)` or ALL for =, <>, <, <=, >, >=; SQL's three-valued result. */
    public static Boolean compare_all(UTF8String type, UTF8String operator, UTF8String element, UTF8String array,
        boolean all) {
        if (array == null) return null;
        ArrayList e = Arrays.parse(array);
        String op = operator.toString();
        if (e.isEmpty()) return Boolean.valueOf(all);
        if (element == null) return null;
        boolean unknown = false;
        for (int i = 0; i < e.size(); i++) {
            if (e.get(i) == null) {
                unknown = true;
                continue;
            }
            int order = Arrays.compare(type.toString(), element.toString(), (String) e.get(i));
            boolean holds = op.equals("=") ? order == 0 : op.equals("<>") ? order != 0 : op.equals("<") ? order < 0
                : op.equals("<=") ? order <= 0 : op.equals(">") ? order > 0 : order >= 0;
            if (holds != all) return Boolean.valueOf(!all);
        }
        return unknown ? null : Boolean.valueOf(all);
    }

    /** Returns a range; a NULL bound means that there is no bound. */
    public static UTF8String range(UTF8String kind, UTF8String low, UTF8String high, UTF8String bounds) {
        if (bounds == null) throw new PgError("range constructor flags argument must not be null");
        return Ranges.make(kind.toString(), low, high, bounds.toString());
    }
}
