package pgtrickle;

import java.util.ArrayList;
import java.util.TreeMap;
import org.apache.spark.unsafe.types.UTF8String;

/** Functions of jsonb over its text. */
public final class Json {
    private static Object tree(UTF8String json) {
        return JsonTree.parse(json.toString());
    }

    private static UTF8String text(Object value) {
        return value == null ? null : UTF8String.fromString(JsonTree.print(value));
    }

    /** ->>: a string without its quotes, SQL's NULL for JSON's null. */
    private static UTF8String plain(Object value) {
        if (value == null || value == JsonTree.NULL) return null;
        return value instanceof String ? UTF8String.fromString((String) value) : text(value);
    }

    private static Object field(UTF8String json, UTF8String key) {
        Object t = tree(json);
        return t instanceof TreeMap ? ((TreeMap) t).get(key.toString()) : null;
    }

    private static Object element(Object t, long index) {
        if (!(t instanceof ArrayList)) return null;
        ArrayList list = (ArrayList) t;
        long i = index < 0 ? list.size() + index : index;
        return i < 0 || i >= list.size() ? null : list.get((int) i);
    }

    public static UTF8String in(UTF8String input) {
        return text(tree(input));
    }

    public static UTF8String get(UTF8String json, UTF8String key) {
        return text(field(json, key));
    }

    public static UTF8String get_text(UTF8String json, UTF8String key) {
        return plain(field(json, key));
    }

    public static UTF8String get(UTF8String json, int index) {
        return text(rootElement(json, index));
    }

    public static UTF8String get_text(UTF8String json, int index) {
        return plain(rootElement(json, index));
    }

    /** jsonb stores a scalar at the root as an array of one element, and -> sees that array. */
    private static Object rootElement(UTF8String json, int index) {
        Object t = tree(json);
        if (t instanceof ArrayList || t instanceof TreeMap) return element(t, index);
        return index == 0 || index == -1 ? t : null;
    }

    private static final java.util.regex.Pattern INDEX = java.util.regex.Pattern.compile("\\s*[+-]?\\d{1,10}");

    private static Object path(UTF8String json, UTF8String path) {
        Object t = tree(json);
        ArrayList steps = Arrays.parse(path);
        for (int i = 0; i < steps.size(); i++) {
            String step = (String) steps.get(i);
            if (step == null) return null;
            if (t instanceof TreeMap) t = ((TreeMap) t).get(step);
            else if (t instanceof ArrayList && INDEX.matcher(step).matches()) {
                String digits = step.trim();
                long index = Long.parseLong(digits.startsWith("+") ? digits.substring(1) : digits);
                if (index != (int) index) return null;
                t = element(t, index);
            } else return null;
            if (t == null) return null;
        }
        return t;
    }

    public static UTF8String path_get(UTF8String json, UTF8String path) {
        return text(path(json, path));
    }

    public static UTF8String path_text(UTF8String json, UTF8String path) {
        return plain(path(json, path));
    }

    public static boolean contains(UTF8String a, UTF8String b) {
        return JsonTree.contains(tree(a), tree(b));
    }

    public static boolean eq(UTF8String a, UTF8String b) {
        return a.equals(b) || JsonTree.same(tree(a), tree(b));
    }

    /** Returns the same text for equal values. */
    public static UTF8String key(UTF8String json) {
        return text(JsonTree.normal(tree(json)));
    }

    private static boolean has(Object t, String key) {
        if (t instanceof TreeMap) return ((TreeMap) t).containsKey(key);
        if (t instanceof ArrayList) return ((ArrayList) t).contains(key);
        return t.equals(key);
    }

    public static boolean exists(UTF8String json, UTF8String key) {
        return has(tree(json), key.toString());
    }

    public static boolean exists_any(UTF8String json, UTF8String keys) {
        Object t = tree(json);
        ArrayList wanted = Arrays.parse(keys);
        for (int i = 0; i < wanted.size(); i++) {
            if (wanted.get(i) != null && has(t, (String) wanted.get(i))) return true;
        }
        return false;
    }

    public static boolean exists_all(UTF8String json, UTF8String keys) {
        Object t = tree(json);
        ArrayList wanted = Arrays.parse(keys);
        for (int i = 0; i < wanted.size(); i++) {
            if (wanted.get(i) != null && !has(t, (String) wanted.get(i))) return false;
        }
        return true;
    }

    public static UTF8String type(UTF8String json) {
        return UTF8String.fromString(typeName(tree(json)));
    }

    static String typeName(Object t) {
        return t instanceof TreeMap ? "object" : t instanceof ArrayList ? "array" : t instanceof String ? "string"
            : t instanceof Num ? "number" : t instanceof Boolean ? "boolean" : "null";
    }

    public static int array_length(UTF8String json) {
        Object t = tree(json);
        if (t instanceof ArrayList) return ((ArrayList) t).size();
        throw new PgError("cannot get array length of " + (t instanceof TreeMap ? "a non-array" : "a scalar"));
    }

    private static TreeMap members(UTF8String json) {
        Object t = tree(json);
        if (t instanceof TreeMap) return (TreeMap) t;
        throw new PgError("cannot list the keys of " + (t instanceof ArrayList ? "an array" : "a scalar"));
    }

    private static UTF8String listed(java.util.Collection of, boolean plain) {
        ArrayList out = new ArrayList();
        for (java.util.Iterator i = of.iterator(); i.hasNext(); ) {
            Object value = i.next();
            UTF8String shown = plain ? plain(value) : text(value);
            out.add(shown == null ? null : shown.toString());
        }
        return UTF8String.fromString(Arrays.print(out));
    }

    /** Returns an array of the keys of an object, in jsonb's order. */
    public static UTF8String keys(UTF8String json) {
        return listed(members(json).keySet(), true);
    }

    public static UTF8String values(UTF8String json) {
        return listed(members(json).values(), false);
    }

    public static UTF8String value_texts(UTF8String json) {
        return listed(members(json).values(), true);
    }

    /** Returns an array of the elements of a JSON array, each as ->> returns it. */
    public static UTF8String element_texts(UTF8String json) {
        Object t = tree(json);
        if (t instanceof ArrayList) return listed((ArrayList) t, true);
        throw new PgError("cannot extract elements from " + (t instanceof TreeMap ? "an object" : "a scalar"));
    }

    public static UTF8String concat(UTF8String first, UTF8String second) {
        Object a = tree(first);
        Object b = tree(second);
        if (a instanceof TreeMap && b instanceof TreeMap) {
            ((TreeMap) a).putAll((TreeMap) b);
            return text(a);
        }
        ArrayList out = new ArrayList();
        if (a instanceof ArrayList) out.addAll((ArrayList) a);
        else out.add(a);
        if (b instanceof ArrayList) out.addAll((ArrayList) b);
        else out.add(b);
        return text(out);
    }

    public static UTF8String delete(UTF8String json, UTF8String key) {
        Object t = tree(json);
        if (t instanceof TreeMap) ((TreeMap) t).remove(key.toString());
        else if (t instanceof ArrayList) {
            while (((ArrayList) t).remove(key.toString())) {
                continue;
            }
        } else throw new PgError("cannot delete from scalar");
        return text(t);
    }

    public static UTF8String delete(UTF8String json, int index) {
        Object t = tree(json);
        if (t instanceof TreeMap) throw new PgError("cannot delete from object using integer index");
        if (!(t instanceof ArrayList)) throw new PgError("cannot delete from scalar");
        ArrayList list = (ArrayList) t;
        long i = index < 0 ? (long) list.size() + index : index;
        if (i >= 0 && i < list.size()) list.remove((int) i);
        return text(list);
    }

    /** to_jsonb of the text of an output function; for the kinds see JsonText. */
    public static UTF8String of(UTF8String kind, UTF8String value) {
        String text = value.toString();
        // A number stays as it is, but without an exponent.
        return kind.toString().equals("n") && JsonTree.isNumber(text)
            ? text(Num.parse(text)) : text(tree(JsonText.of(kind, value)));
    }

    /** Returns an object from alternating keys and JSON values; later keys win. */
    public static UTF8String object(org.apache.spark.sql.catalyst.util.ArrayData parts) {
        TreeMap out = new TreeMap(JsonTree.KEYS);
        for (int i = 0; i + 1 < parts.numElements(); i += 2) {
            if (parts.isNullAt(i)) throw new PgError("argument " + (i + 1) + ": key must not be null");
            Object value = parts.isNullAt(i + 1) ? JsonTree.NULL : tree(parts.getUTF8String(i + 1));
            out.put(parts.getUTF8String(i).toString(), value);
        }
        return text(out);
    }

    public static UTF8String array(org.apache.spark.sql.catalyst.util.ArrayData parts) {
        ArrayList out = new ArrayList();
        for (int i = 0; i < parts.numElements(); i++) {
            out.add(parts.isNullAt(i) ? JsonTree.NULL : tree(parts.getUTF8String(i)));
        }
        return text(out);
    }

    /** jsonb_object_agg: with `decided` the last value of a key wins, else all values of a key must be equal. */
    public static UTF8String object_agg(
        org.apache.spark.sql.catalyst.util.ArrayData keys, org.apache.spark.sql.catalyst.util.ArrayData values,
        boolean decided, UTF8String undecided) {
        TreeMap out = new TreeMap(JsonTree.KEYS);
        for (int i = 0; i < keys.numElements(); i++) {
            if (keys.isNullAt(i)) throw new PgError("field name must not be null");
            Object value = values.isNullAt(i) ? JsonTree.NULL : tree(values.getUTF8String(i));
            Object before = out.put(keys.getUTF8String(i).toString(), value);
            if (before != null && !decided && !JsonTree.print(before).equals(JsonTree.print(value))) {
                throw new RuntimeException(undecided.toString());
            }
        }
        return text(out);
    }

    public static UTF8String strip_nulls(UTF8String json) {
        return text(stripped(tree(json)));
    }

    private static Object stripped(Object value) {
        if (value instanceof ArrayList) {
            ArrayList out = new ArrayList();
            for (int i = 0; i < ((ArrayList) value).size(); i++) out.add(stripped(((ArrayList) value).get(i)));
            return out;
        }
        if (!(value instanceof TreeMap)) return value;
        TreeMap out = new TreeMap(JsonTree.KEYS);
        for (java.util.Iterator i = ((TreeMap) value).entrySet().iterator(); i.hasNext();) {
            java.util.Map.Entry entry = (java.util.Map.Entry) i.next();
            if (entry.getValue() != JsonTree.NULL) out.put(entry.getKey(), stripped(entry.getValue()));
        }
        return out;
    }
}
