package io.pgtrickle.spark.values;

import java.util.Comparator;
import java.util.List;
import java.util.TreeMap;
import org.apache.spark.unsafe.types.UTF8String;

/** One value of jsonb. A missing value is Java's null, which is not JSON's null. */
public sealed interface JsonValue {
    /** jsonb sorts keys by length in bytes, then by bytes. */
    Comparator<String> KEY_ORDER = (a, b) -> {
        UTF8String x = UTF8String.fromString(a);
        UTF8String y = UTF8String.fromString(b);
        return x.numBytes() != y.numBytes() ? Integer.compare(x.numBytes(), y.numBytes()) : x.compareTo(y);
    };

    /** Returns the name that jsonb_typeof gives. */
    String typeName();

    /** Returns whether this is an object or an array. */
    default boolean isContainer() {
        return false;
    }

    /** An object; its members are in jsonb's order. */
    record JsonObject(TreeMap<String, JsonValue> members) implements JsonValue {
        /** Returns an object without members, to be filled. */
        public static JsonObject create() {
            return new JsonObject(new TreeMap<>(KEY_ORDER));
        }

        /** Returns the member with this key, or null. */
        public JsonValue get(String key) {
            return members.get(key);
        }

        @Override
        public String typeName() {
            return "object";
        }

        @Override
        public boolean isContainer() {
            return true;
        }
    }

    /** An array. */
    record JsonArray(List<JsonValue> elements) implements JsonValue {
        /** Returns the element at an index, counted from the end if it is negative, or null. */
        public JsonValue get(long index) {
            long place = index < 0 ? elements.size() + index : index;
            return place < 0 || place >= elements.size() ? null : elements.get((int) place);
        }

        @Override
        public String typeName() {
            return "array";
        }

        @Override
        public boolean isContainer() {
            return true;
        }
    }

    /** A string, without quotes and escapes. */
    record JsonString(String text) implements JsonValue {
        @Override
        public String typeName() {
            return "string";
        }
    }

    /** A number; it keeps its scale. */
    record JsonNumber(PgNumeric.Finite value) implements JsonValue {
        @Override
        public String typeName() {
            return "number";
        }
    }

    /** true or false. */
    enum JsonBoolean implements JsonValue {
        /** false; the smaller of the two. */
        FALSE,
        /** true. */
        TRUE;

        /** Returns JSON's form of a Java boolean. */
        public static JsonBoolean of(boolean value) {
            return value ? TRUE : FALSE;
        }

        @Override
        public String typeName() {
            return "boolean";
        }
    }

    /** JSON's null. */
    enum JsonNull implements JsonValue {
        /** The only value. */
        NULL;

        @Override
        public String typeName() {
            return "null";
        }
    }
}
