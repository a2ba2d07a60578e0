package pgtrickle;

import java.util.ArrayList;
import java.util.Iterator;
import java.util.TreeMap;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * Applies a jsonpath to one document, by PostgreSQL's rules.
 *
 * `found` collects the items. If it is null, the run only tests whether there is an item and ends with the first. An
 * error is thrown, or with `silent` ERROR is returned.
 */
final class PathRun {
    static final int SOME = 0;
    static final int NONE = 1;
    static final int ERROR = 2;

    private static final int FALSE = 0;
    private static final int TRUE = 1;
    private static final int UNKNOWN = 2;
    private static final long ENDLESS = 4294967295L;

    private final Object root;
    private final TreeMap variables;
    private final boolean lax;
    private boolean forgiving;
    private boolean silent;
    private Object current;
    private int size = -1;

    private PathRun(Object root, TreeMap variables, boolean lax, boolean silent) {
        this.root = root;
        this.current = root;
        this.variables = variables;
        this.lax = lax;
        this.forgiving = lax;
        this.silent = silent;
    }

    /** Returns SOME or NONE, or ERROR; a strict path is evaluated to its end. */
    static int run(boolean lax, PathItem path, Object json, TreeMap variables, boolean silent, ArrayList found) {
        PathRun own = new PathRun(json, variables, lax, silent);
        if (lax || found != null) return own.item(path, json, found);
        ArrayList all = new ArrayList();
        int result = own.item(path, json, all);
        return result == ERROR ? ERROR : all.isEmpty() ? NONE : SOME;
    }

    private int error(String message) {
        if (silent) return ERROR;
        throw new PgError(message);
    }

    private int item(PathItem path, Object json, ArrayList found) {
        return item(path, json, found, lax);
    }

    private int after(PathItem path, Object value, ArrayList found) {
        if (path.next != null) return item(path.next, value, found);
        if (found != null) found.add(value);
        return SOME;
    }

    /** Evaluates one item; with `unwrap` an array is replaced by its elements. */
    private int item(PathItem path, Object json, ArrayList found, boolean unwrap) {
        String kind = path.kind;
        boolean ends = path.next == null && found == null;
        if (kind.equals("value")) return ends ? SOME : after(path, path.value, found);
        if (kind.equals("variable")) return after(path, variable((String) path.value), found);
        if (kind.equals("root")) return after(path, root, found);
        if (kind.equals("current")) return after(path, current, found);
        if (kind.equals("key")) return key(path, json, found, unwrap);
        if (kind.equals("any_key")) return anyKey(path, json, found, unwrap);
        if (kind.equals("any_element")) return anyElement(path, json, found);
        if (kind.equals("elements")) return elements(path, json, found);
        if (kind.equals("any")) return any(path, json, found);
        if (kind.equals("last")) return ends ? SOME : after(path, Num.of(size - 1), found);
        if (kind.equals("type")) return after(path, Json.typeName(json), found);
        if (kind.equals("size")) {
            if (!(json instanceof ArrayList) && !lax) {
                return forgiving ? NONE : error("jsonpath item method .size() can only be applied to an array");
            }
            return after(path, Num.of(json instanceof ArrayList ? ((ArrayList) json).size() : 1), found);
        }
        if (kind.equals("filter")) {
            if (unwrap && json instanceof ArrayList) return unwrapped(path, (ArrayList) json, found, false);
            Object before = current;
            current = json;
            int kept = truth(path.left, json);
            current = before;
            return kept == TRUE ? after(path, json, found) : NONE;
        }
        if (kind.equals("abs") || kind.equals("floor") || kind.equals("ceiling")) {
            if (unwrap && json instanceof ArrayList) return unwrapped(path, (ArrayList) json, found, false);
            if (!(json instanceof Num)) {
                return error("jsonpath item method ." + kind + "() can only be applied to a numeric value");
            }
            return ends ? SOME : after(path, method(kind, (Num) json), found);
        }
        if (kind.equals("plus") || kind.equals("minus")) return sign(path, json, found);
        if (kind.length() == 1 && "+-*/%".contains(kind)) return arithmetic(path, json, found);
        int truth = truth(path, json);
        if (ends) return SOME;
        return after(path, truth == UNKNOWN ? JsonTree.NULL : Boolean.valueOf(truth == TRUE), found);
    }

    private Object variable(String name) {
        Object found = variables.get(name);
        if (found == null) throw new PgError("could not find jsonpath variable \"" + name + "\"");
        return found;
    }

    private int key(PathItem path, Object json, ArrayList found, boolean unwrap) {
        if (json instanceof TreeMap) {
            Object value = ((TreeMap) json).get(path.value);
            if (value != null) return after(path, value, found);
            return forgiving ? NONE : error("JSON object does not contain key \"" + path.value + "\"");
        }
        if (unwrap && json instanceof ArrayList) return unwrapped(path, (ArrayList) json, found, false);
        return forgiving ? NONE : error("jsonpath member accessor can only be applied to an object");
    }

    private int anyKey(PathItem path, Object json, ArrayList found, boolean unwrap) {
        if (json instanceof TreeMap) return members(path.next, json, found, 1, 1, 1, false, lax);
        if (unwrap && json instanceof ArrayList) return unwrapped(path, (ArrayList) json, found, false);
        return forgiving ? NONE : error("jsonpath wildcard member accessor can only be applied to an object");
    }

    private int anyElement(PathItem path, Object json, ArrayList found) {
        if (json instanceof ArrayList) return unwrapped(path.next, (ArrayList) json, found, lax);
        if (lax) return after(path, json, found);
        return forgiving ? NONE : error("jsonpath wildcard array accessor can only be applied to an array");
    }

    private int unwrapped(PathItem path, ArrayList json, ArrayList found, boolean unwrap) {
        return members(path, json, found, 1, 1, 1, false, unwrap);
    }

    private int elements(PathItem path, Object json, ArrayList found) {
        boolean single = !(json instanceof ArrayList);
        if (single && !lax) return forgiving ? NONE : error("jsonpath array accessor can only be applied to an array");
        int before = size;
        size = single ? 1 : ((ArrayList) json).size();
        int own = size;
        int result = NONE;
        for (int i = 0; i < path.places.length; i += 2) {
            long[] bounds = new long[2];
            result = place(path.places[i], json, bounds, 0);
            if (result == ERROR) break;
            bounds[1] = bounds[0];
            if (path.places[i + 1] != null) {
                result = place(path.places[i + 1], json, bounds, 1);
                if (result == ERROR) break;
            }
            if (!forgiving && (bounds[0] < 0 || bounds[0] > bounds[1] || bounds[1] >= own)) {
                return error("jsonpath array subscript is out of bounds");
            }
            result = NONE;
            for (long at = Math.max(bounds[0], 0); at <= Math.min(bounds[1], own - 1); at++) {
                Object value = single ? json : ((ArrayList) json).get((int) at);
                if (path.next == null && found == null) return SOME;
                result = after(path, value, found);
                if (result == ERROR || (result == SOME && found == null)) break;
            }
            if (result == ERROR || (result == SOME && found == null)) break;
        }
        size = before;
        return result;
    }

    private int place(PathItem path, Object json, long[] into, int index) {
        ArrayList found = new ArrayList();
        if (item(path, json, found) == ERROR) return ERROR;
        if (found.size() != 1 || !(found.get(0) instanceof Num)) {
            return error("jsonpath array subscript is not a single numeric value");
        }
        java.math.BigDecimal whole = ((Num) found.get(0)).value.setScale(0, java.math.RoundingMode.DOWN);
        if (whole.precision() > 10 || whole.longValue() != whole.intValue()) {
            return error("jsonpath array subscript is out of integer range");
        }
        into[index] = whole.longValue();
        return SOME;
    }

    private int any(PathItem path, Object json, ArrayList found) {
        int result = NONE;
        if (path.first == 0) {
            boolean before = forgiving;
            forgiving = true;
            result = after(path, json, found);
            forgiving = before;
            if (result == SOME && found == null) return SOME;
        }
        if (!contains(json)) return result;
        return members(path.next, json, found, 1, path.first, path.last, true, lax);
    }

    private static boolean contains(Object json) {
        return json instanceof TreeMap || json instanceof ArrayList;
    }

    /** Applies a path to the members of an array or object, and recursively to their members, down to a depth. */
    private int members(
        PathItem path, Object json, ArrayList found, long level, long first, long last, boolean forgive, boolean unwrap) {
        int result = NONE;
        if (level > last) return result;
        Iterator all = json instanceof TreeMap ? ((TreeMap) json).values().iterator() : ((ArrayList) json).iterator();
        while (all.hasNext()) {
            Object value = all.next();
            if (level >= first || (first == ENDLESS && last == ENDLESS && !contains(value))) {
                if (path != null) {
                    boolean before = forgiving;
                    if (forgive) forgiving = true;
                    result = item(path, value, found, unwrap);
                    forgiving = before;
                    if (result == ERROR || (result == SOME && found == null)) return result;
                } else if (found != null) found.add(value);
                else return SOME;
            }
            if (level < last && contains(value)) {
                result = members(path, value, found, level + 1, first, last, forgive, unwrap);
                if (result == ERROR || (result == SOME && found == null)) return result;
            }
        }
        return result;
    }

    /** Returns the items of an operand; in lax mode arrays are replaced by their elements. */
    private int operand(PathItem path, Object json, boolean unwrap, ArrayList found) {
        if (!unwrap || !lax) return item(path, json, found);
        ArrayList whole = new ArrayList();
        if (item(path, json, whole) == ERROR) return ERROR;
        for (int i = 0; i < whole.size(); i++) {
            if (whole.get(i) instanceof ArrayList) found.addAll((ArrayList) whole.get(i));
            else found.add(whole.get(i));
        }
        return SOME;
    }

    private int quietly(PathItem path, Object json, boolean unwrap, ArrayList found) {
        boolean before = silent;
        silent = true;
        int result = operand(path, json, unwrap, found);
        silent = before;
        return result;
    }

    private int arithmetic(PathItem path, Object json, ArrayList found) {
        ArrayList left = new ArrayList();
        ArrayList right = new ArrayList();
        if (operand(path.left, json, true, left) == ERROR) return ERROR;
        if (operand(path.right, json, true, right) == ERROR) return ERROR;
        if (left.size() != 1 || !(left.get(0) instanceof Num)) {
            return error("left operand of jsonpath operator " + path.kind + " is not a single numeric value");
        }
        if (right.size() != 1 || !(right.get(0) instanceof Num)) {
            return error("right operand of jsonpath operator " + path.kind + " is not a single numeric value");
        }
        Num result;
        try {
            result = computed(path.kind, (Num) left.get(0), (Num) right.get(0));
        } catch (PgError e) {
            if (silent) return ERROR;
            throw e;
        }
        return path.next == null && found == null ? SOME : after(path, result, found);
    }

    private static Num computed(String sign, Num a, Num b) {
        if (sign.equals("+")) return Numeric.sum(a, b);
        if (sign.equals("-")) return Numeric.sum(a, b.negate());
        if (sign.equals("*")) return Numeric.product(a, b);
        if (sign.equals("/")) return Numeric.quotient(a, b);
        return num(Numeric.mod(text(a), text(b)));
    }

    private static Num method(String kind, Num a) {
        UTF8String text = text(a);
        return num(
            kind.equals("abs") ? Numeric.abs(text) : kind.equals("floor") ? Numeric.floor(text) : Numeric.ceil(text));
    }

    private static UTF8String text(Num a) {
        return UTF8String.fromString(a.toString());
    }

    private static Num num(UTF8String a) {
        return Num.parse(a.toString());
    }

    private int sign(PathItem path, Object json, ArrayList found) {
        ArrayList all = new ArrayList();
        if (operand(path.left, json, true, all) == ERROR) return ERROR;
        boolean ends = path.next == null && found == null;
        int result = NONE;
        for (int i = 0; i < all.size(); i++) {
            if (!(all.get(i) instanceof Num)) {
                if (ends) continue;
                return error("operand of unary jsonpath operator is not a numeric value");
            }
            if (ends) return SOME;
            Num value = (Num) all.get(i);
            int own = after(path, path.kind.equals("minus") ? value.negate() : value, found);
            if (own == ERROR) return ERROR;
            if (own == SOME) {
                if (found == null) return SOME;
                result = SOME;
            }
        }
        return result;
    }

    private int truth(PathItem path, Object json) {
        String kind = path.kind;
        if (kind.equals("and")) {
            int first = truth(path.left, json);
            if (first == FALSE) return FALSE;
            int second = truth(path.right, json);
            return second == TRUE ? first : second;
        }
        if (kind.equals("or")) {
            int first = truth(path.left, json);
            if (first == TRUE) return TRUE;
            int second = truth(path.right, json);
            return second == FALSE ? first : second;
        }
        if (kind.equals("not")) {
            int own = truth(path.left, json);
            return own == UNKNOWN ? UNKNOWN : own == TRUE ? FALSE : TRUE;
        }
        if (kind.equals("is_unknown")) return truth(path.left, json) == UNKNOWN ? TRUE : FALSE;
        if (kind.equals("exists")) {
            ArrayList all = lax ? null : new ArrayList();
            int result = quietly(path.left, json, false, all);
            if (result == ERROR) return UNKNOWN;
            return (lax ? result == SOME : !all.isEmpty()) ? TRUE : FALSE;
        }
        return predicate(path, json);
    }

    /** Returns whether any pair of items satisfies the comparison. */
    private int predicate(PathItem path, Object json) {
        ArrayList left = new ArrayList();
        ArrayList right = new ArrayList();
        if (quietly(path.left, json, true, left) == ERROR) return UNKNOWN;
        if (path.right == null) right.add(path.value);
        else if (quietly(path.right, json, !path.kind.equals("starts_with"), right) == ERROR) return UNKNOWN;
        boolean failed = false;
        boolean met = false;
        for (int i = 0; i < left.size(); i++) {
            for (int j = 0; j < right.size(); j++) {
                int own = pair(path.kind, left.get(i), right.get(j));
                if (own == UNKNOWN) {
                    if (!lax) return UNKNOWN;
                    failed = true;
                } else if (own == TRUE) {
                    if (lax) return TRUE;
                    met = true;
                }
            }
        }
        return met ? TRUE : failed ? UNKNOWN : FALSE;
    }

    private static int pair(String kind, Object a, Object b) {
        if (kind.equals("starts_with") || kind.equals("like_regex")) {
            if (!(a instanceof String) || !(b instanceof String)) return UNKNOWN;
            boolean met = kind.equals("starts_with") ? ((String) a).startsWith((String) b)
                : Regex.matches(UTF8String.fromString((String) a), UTF8String.fromString((String) b));
            return met ? TRUE : FALSE;
        }
        if (contains(a) || contains(b)) {
            if (a == JsonTree.NULL || b == JsonTree.NULL) return kind.equals("<>") ? TRUE : FALSE;
            return UNKNOWN;
        }
        int order;
        if (a instanceof Num && b instanceof Num) order = ((Num) a).compare((Num) b);
        else if (a instanceof String && b instanceof String) {
            order = UTF8String.fromString((String) a).compareTo(UTF8String.fromString((String) b));
        } else if (a instanceof Boolean && b instanceof Boolean) {
            order = a.equals(b) ? 0 : ((Boolean) a).booleanValue() ? 1 : -1;
        } else if (a == JsonTree.NULL && b == JsonTree.NULL) order = 0;
        else if (a == JsonTree.NULL || b == JsonTree.NULL) return kind.equals("<>") ? TRUE : FALSE;
        else return UNKNOWN;
        boolean met = kind.equals("==") ? order == 0 : kind.equals("<>") ? order != 0 : kind.equals("<") ? order < 0
            : kind.equals(">") ? order > 0 : kind.equals("<=") ? order <= 0 : order >= 0;
        return met ? TRUE : FALSE;
    }
}
