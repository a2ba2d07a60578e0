package pgtrickle;

import java.util.ArrayList;
import java.util.TreeMap;

/** One item of a jsonpath in the JSON form of the plan (applier.sql.typing.json_paths), and the item after it. */
final class PathItem {
    final String kind;
    final PathItem next;
    final PathItem left;
    final PathItem right;
    /** A literal, a key, the name of a variable, or a pattern in Java's dialect. */
    final Object value;
    /** Subscripts, alternating from and to; `to` is null for a single subscript. */
    final PathItem[] places;
    final long first;
    final long last;

    private PathItem(TreeMap from) {
        kind = (String) from.get("kind");
        next = child(from, "next");
        left = child(from, "left");
        right = child(from, "right");
        value = from.get("value");
        first = number(from, "first");
        last = number(from, "last");
        ArrayList listed = (ArrayList) from.get("places");
        places = new PathItem[listed == null ? 0 : listed.size()];
        for (int i = 0; i < places.length; i++) {
            places[i] = listed.get(i) == JsonTree.NULL ? null : new PathItem((TreeMap) listed.get(i));
        }
    }

    private static PathItem child(TreeMap from, String name) {
        Object found = from.get(name);
        return found == null ? null : new PathItem((TreeMap) found);
    }

    private static long number(TreeMap from, String name) {
        Object found = from.get(name);
        return found == null ? 0 : ((Num) found).value.longValueExact();
    }

    static PathItem of(Object tree) {
        return new PathItem((TreeMap) tree);
    }
}
