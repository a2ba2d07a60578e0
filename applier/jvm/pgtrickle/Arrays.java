package pgtrickle;

import java.util.ArrayList;
import org.apache.spark.unsafe.types.UTF8String;

/** One-dimensional arrays over PostgreSQL's text; elements are texts, null for NULL. */
public final class Arrays {
    static ArrayList parse(UTF8String array) {
        String s = array.toString();
        if (!s.startsWith("{")) throw new PgError("nothing; but arrays that do not begin at 1 are not held here");
        ArrayList out = new ArrayList();
        if (s.equals("{}")) return out;
        int i = 1;
        StringBuilder word = new StringBuilder();
        while (true) {
            word.setLength(0);
            boolean quoted = false;
            if (s.charAt(i) == '{') throw new PgError("nothing; but arrays of arrays are not computed with here");
            if (s.charAt(i) == '"') {
                quoted = true;
                i++;
                while (s.charAt(i) != '"') {
                    if (s.charAt(i) == '\\') i++;
                    word.append(s.charAt(i++));
                }
                i++;
            } else {
                while (s.charAt(i) != ',' && s.charAt(i) != '}') {
                    if (s.charAt(i) == '\\') i++;
                    word.append(s.charAt(i++));
                }
            }
            String found = word.toString();
            out.add(!quoted && found.equals("NULL") ? null : found);
            if (s.charAt(i) == '}') return out;
            i++;
        }
    }

    /** array_out */
    static String print(ArrayList elements) {
        StringBuilder out = new StringBuilder("{");
        for (int i = 0; i < elements.size(); i++) {
            if (i > 0) out.append(',');
            String e = (String) elements.get(i);
            if (e == null) {
                out.append("NULL");
            } else if (quoted(e)) {
                out.append('"').append(e.replace("\\", "\\\\").replace("\"", "\\\"")).append('"');
            } else {
                out.append(e);
            }
        }
        return out.append('}').toString();
    }

    private static boolean quoted(String e) {
        if (e.isEmpty() || e.equalsIgnoreCase("NULL")) return true;
        for (int i = 0; i < e.length(); i++) {
            char c = e.charAt(i);
            if (c == '"' || c == '\\' || c == '{' || c == '}' || c == ',' || Text.isSpace(c)) return true;
        }
        return false;
    }

    private static UTF8String text(ArrayList elements) {
        return UTF8String.fromString(print(elements));
    }

    private static UTF8String text(String s) {
        return s == null ? null : UTF8String.fromString(s);
    }

    /** Returns the array of these elements; each is the output text of its type. */
    public static UTF8String make(org.apache.spark.sql.catalyst.util.ArrayData elements) {
        ArrayList out = new ArrayList();
        for (int i = 0; i < elements.numElements(); i++) {
            out.add(elements.isNullAt(i) ? null : elements.getUTF8String(i).toString());
        }
        return text(out);
    }

    /** Returns the number of elements in each dimension of an array text, outermost dimension first. */
    private static ArrayList dimensions(String s) {
        if (!s.startsWith("{")) throw new PgError("nothing; but arrays that do not begin at 1 are not held here");
        ArrayList sizes = new ArrayList();
        int depth = 0;
        for (int i = 0; i < s.length(); i++) {
            char c = s.charAt(i);
            if (c == '"') {
                for (i++; s.charAt(i) != '"'; i++) if (s.charAt(i) == '\\') i++;
            } else if (c == '\\') {
                i++;
            } else if (c == '{') {
                if (++depth > sizes.size()) sizes.add(Integer.valueOf(1));
                else sizes.set(depth - 1, Integer.valueOf(1));
            } else if (c == '}') {
                depth--;
            } else if (c == ',') {
                sizes.set(depth - 1, Integer.valueOf(((Integer) sizes.get(depth - 1)).intValue() + 1));
            }
        }
        return sizes;
    }

    /** array_agg of arrays: adds one dimension. */
    public static UTF8String stack(org.apache.spark.sql.catalyst.util.ArrayData arrays) {
        StringBuilder out = new StringBuilder("{");
        ArrayList sizes = null;
        for (int i = 0; i < arrays.numElements(); i++) {
            if (arrays.isNullAt(i)) throw new PgError("cannot accumulate null arrays");
            String next = arrays.getUTF8String(i).toString();
            if (next.equals("{}")) throw new PgError("cannot accumulate empty arrays");
            ArrayList own = dimensions(next);
            if (sizes != null && !own.equals(sizes)) {
                throw new PgError("cannot accumulate arrays of different dimensionality");
            }
            sizes = own;
            out.append(i > 0 ? "," : "").append(next);
        }
        return text(out.append('}').toString());
    }

    /** Returns the first of the smallest arrays, or of the largest. */
    public static UTF8String extreme(
        UTF8String type, org.apache.spark.sql.catalyst.util.ArrayData arrays, boolean largest) {
        UTF8String best = arrays.getUTF8String(0);
        for (int i = 1; i < arrays.numElements(); i++) {
            int order = cmp(type, arrays.getUTF8String(i), best);
            if (largest ? order > 0 : order < 0) best = arrays.getUTF8String(i);
        }
        return best;
    }

    public static UTF8String get(UTF8String array, int index) {
        ArrayList e = parse(array);
        return index < 1 || index > e.size() ? null : text((String) e.get(index - 1));
    }

    public static UTF8String slice(UTF8String array, int from, int to) {
        ArrayList e = parse(array);
        ArrayList out = new ArrayList();
        for (int i = Math.max(from, 1); i <= to && i <= e.size(); i++) out.add(e.get(i - 1));
        return text(out);
    }

    public static Integer length(UTF8String array, int dimension) {
        int n = parse(array).size();
        return dimension == 1 && n > 0 ? Integer.valueOf(n) : null;
    }

    public static Integer lower(UTF8String array, int dimension) {
        return dimension == 1 && !parse(array).isEmpty() ? Integer.valueOf(1) : null;
    }

    public static int cardinality(UTF8String array) {
        return parse(array).size();
    }

    public static UTF8String cat(UTF8String a, UTF8String b) {
        ArrayList out = parse(a);
        out.addAll(parse(b));
        return text(out);
    }

    /** Compares two elements by the order of their type; byte order for texts. NULL is the largest, equal to NULL. */
    static int compare(String type, String a, String b) {
        if (a == null || b == null) return a == null ? (b == null ? 0 : 1) : -1;
        if (type.equals("int2") || type.equals("int4") || type.equals("int8")) {
            return Long.compare(Long.parseLong(a), Long.parseLong(b));
        }
        if (type.equals("numeric")) return Num.parse(a).compare(Num.parse(b));
        if (type.equals("float4") || type.equals("float8")) {
            double x = Double.parseDouble(a);
            double y = Double.parseDouble(b);
            return x == y ? 0 : Double.compare(x, y);
        }
        if (type.equals("bool")) return a.compareTo(b);
        if (a.endsWith(" BC") || b.endsWith(" BC")) {
            if (!type.equals("text")) throw new PgError("nothing; but years before 1 are not held here");
        }
        // text, uuid, and ISO dates and times with four-digit years sort by their bytes.
        return UTF8String.fromString(a).compareTo(UTF8String.fromString(b));
    }

    public static int cmp(UTF8String type, UTF8String first, UTF8String second) {
        ArrayList a = parse(first);
        ArrayList b = parse(second);
        String t = type.toString();
        for (int i = 0; i < a.size() && i < b.size(); i++) {
            int order = compare(t, (String) a.get(i), (String) b.get(i));
            if (order != 0) return order < 0 ? -1 : 1;
        }
        return Integer.compare(a.size(), b.size());
    }

    private static boolean has(ArrayList in, String element, String type) {
        for (int i = 0; i < in.size(); i++) {
            if (in.get(i) != null && compare(type, (String) in.get(i), element) == 0) return true;
        }
        return false;
    }

    /** NULL matches nothing. */
    public static boolean contains(UTF8String type, UTF8String first, UTF8String second) {
        ArrayList a = parse(first);
        ArrayList b = parse(second);
        for (int i = 0; i < b.size(); i++) {
            if (b.get(i) == null || !has(a, (String) b.get(i), type.toString())) return false;
        }
        return true;
    }

    public static boolean overlap(UTF8String type, UTF8String first, UTF8String second) {
        ArrayList a = parse(first);
        ArrayList b = parse(second);
        for (int i = 0; i < b.size(); i++) {
            if (b.get(i) != null && has(a, (String) b.get(i), type.toString())) return true;
        }
        return false;
    }

    public static UTF8String to_string(UTF8String array, UTF8String delimiter) {
        ArrayList e = parse(array);
        StringBuilder out = new StringBuilder();
        boolean first = true;
        for (int i = 0; i < e.size(); i++) {
            if (e.get(i) == null) continue;
            if (!first) out.append(delimiter);
            first = false;
            out.append((String) e.get(i));
        }
        return text(out.toString());
    }
}
