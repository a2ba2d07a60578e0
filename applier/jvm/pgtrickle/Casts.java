package pgtrickle;

import java.util.regex.Pattern;
import org.apache.spark.unsafe.types.UTF8String;

/** Input functions of simple types: take a text, return the value, raise PostgreSQL's errors. */
public final class Casts {
    private static final Pattern INTEGER = Pattern.compile("[+-]?\\d(_?\\d)*");
    private static final Pattern UUID = Pattern.compile("[0-9a-fA-F]{4}(-?[0-9a-fA-F]{4}){7}");

    public static long in_int(UTF8String input, long low, long high) {
        String t = Text.trimSpace(input.toString());
        if (!INTEGER.matcher(t).matches()) {
            throw new PgError("invalid input syntax for type integer: \"" + input + "\"");
        }
        java.math.BigInteger found = new java.math.BigInteger(t.replace("_", "").replace("+", ""));
        if (found.bitLength() > 63 || found.longValue() < low || found.longValue() > high) {
            throw new PgError("value \"" + input + "\" is out of range for type integer");
        }
        return found.longValue();
    }

    public static boolean in_bool(UTF8String input) {
        String t = Text.trimSpace(input.toString()).toLowerCase(java.util.Locale.ROOT);
        if (!t.isEmpty()) {
            if ("true".startsWith(t) || "yes".startsWith(t) || t.equals("on") || t.equals("1")) return true;
            if ("false".startsWith(t) || "no".startsWith(t) || t.equals("of") || t.equals("off") || t.equals("0")) {
                return false;
            }
        }
        throw new PgError("invalid input syntax for type boolean: \"" + input + "\"");
    }

    public static UTF8String in_uuid(UTF8String input) {
        String t = input.toString();
        if (t.startsWith("{") && t.endsWith("}")) t = t.substring(1, t.length() - 1);
        if (!UUID.matcher(t).matches()) {
            throw new PgError("invalid input syntax for type uuid: \"" + input + "\"");
        }
        String hex = t.replace("-", "").toLowerCase(java.util.Locale.ROOT);
        return UTF8String.fromString(hex.substring(0, 8) + "-" + hex.substring(8, 12) + "-" + hex.substring(12, 16)
            + "-" + hex.substring(16, 20) + "-" + hex.substring(20));
    }

    /** Returns the position of a label among the labels of its enum, which are separated by NUL. */
    public static int place(UTF8String label, UTF8String labels) {
        String[] all = labels.toString().split("\u0000", -1);
        String wanted = label.toString();
        for (int i = 0; i < all.length; i++) {
            if (all[i].equals(wanted)) return i;
        }
        throw new PgError("nothing; but the label \"" + wanted + "\" was added after the stream table was defined");
    }

    public static UTF8String out_bytea(byte[] bytes) {
        StringBuilder out = new StringBuilder("\\x");
        for (int i = 0; i < bytes.length; i++) {
            out.append(Character.forDigit((bytes[i] >> 4) & 15, 16)).append(Character.forDigit(bytes[i] & 15, 16));
        }
        return UTF8String.fromString(out.toString());
    }

    public static byte[] in_bytea(UTF8String input) {
        String t = input.toString();
        java.io.ByteArrayOutputStream out = new java.io.ByteArrayOutputStream();
        if (t.startsWith("\\x")) {
            int i = 2;
            while (i < t.length()) {
                char c = t.charAt(i);
                if (c == ' ' || c == '\n' || c == '\t' || c == '\r') {
                    i++;
                    continue;
                }
                int high = hex(c);
                if (i + 1 >= t.length()) throw new PgError("invalid hexadecimal data: odd number of digits");
                out.write(high * 16 + hex(t.charAt(i + 1)));
                i += 2;
            }
            return out.toByteArray();
        }
        byte[] raw = input.getBytes();
        for (int i = 0; i < raw.length; i++) {
            if (raw[i] != '\\') {
                out.write(raw[i]);
            } else if (i + 1 < raw.length && raw[i + 1] == '\\') {
                out.write('\\');
                i++;
            } else if (i + 3 < raw.length && raw[i + 1] >= '0' && raw[i + 1] <= '3' && octal(raw[i + 2]) && octal(raw[i + 3])) {
                out.write((raw[i + 1] - '0') * 64 + (raw[i + 2] - '0') * 8 + raw[i + 3] - '0');
                i += 3;
            } else {
                throw new PgError("invalid input syntax for type bytea");
            }
        }
        return out.toByteArray();
    }

    private static boolean octal(byte b) {
        return b >= '0' && b <= '7';
    }

    private static int hex(char c) {
        int found = c < 128 ? Character.digit(c, 16) : -1;
        if (found < 0) throw new PgError("invalid hexadecimal digit: \"" + c + "\"");
        return found;
    }
}
