package pgtrickle;

import org.apache.spark.unsafe.types.UTF8String;

/** Text functions. Positions count code points. */
public final class Text {
    /** Removes the white space that PostgreSQL's input functions skip: isspace() in the C locale. */
    static String trimSpace(String text) {
        int from = 0;
        int to = text.length();
        while (from < to && isSpace(text.charAt(from))) from++;
        while (to > from && isSpace(text.charAt(to - 1))) to--;
        return text.substring(from, to);
    }

    static boolean isSpace(char c) {
        return c == ' ' || (c >= '\t' && c <= '\r');
    }

    static UTF8String text(String s) {
        return UTF8String.fromString(s);
    }

    static int[] points(UTF8String s) {
        return s.toString().codePoints().toArray();
    }

    // Case, in the C locale: ASCII letters only.

    private static int up(int c) {
        return c >= 'a' && c <= 'z' ? c - 32 : c;
    }

    private static int down(int c) {
        return c >= 'A' && c <= 'Z' ? c + 32 : c;
    }

    private static boolean alnum(int c) {
        return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    }

    public static UTF8String upper(UTF8String s) {
        int[] p = points(s);
        for (int i = 0; i < p.length; i++) p[i] = up(p[i]);
        return text(new String(p, 0, p.length));
    }

    public static UTF8String lower(UTF8String s) {
        int[] p = points(s);
        for (int i = 0; i < p.length; i++) p[i] = down(p[i]);
        return text(new String(p, 0, p.length));
    }

    public static UTF8String initcap(UTF8String s) {
        int[] p = points(s);
        boolean inside = false;
        for (int i = 0; i < p.length; i++) {
            p[i] = inside ? down(p[i]) : up(p[i]);
            inside = alnum(p[i]);
        }
        return text(new String(p, 0, p.length));
    }

    // Padding, repetition.

    private static final int LONGEST = 100000000;

    public static UTF8String lpad(UTF8String s, int length, UTF8String fill) {
        return pad(s, length, fill, true);
    }

    public static UTF8String rpad(UTF8String s, int length, UTF8String fill) {
        return pad(s, length, fill, false);
    }

    private static UTF8String pad(UTF8String s, int length, UTF8String fill, boolean left) {
        int[] p = points(s);
        int[] f = points(fill);
        int n = Math.max(length, 0);
        int kept = Math.min(p.length, n);
        if (f.length == 0) n = kept;
        if (n > LONGEST) throw new PgError("requested length too large");
        StringBuilder out = new StringBuilder();
        if (!left) out.append(new String(p, 0, kept));
        for (int i = 0; i < n - kept; i++) out.appendCodePoint(f[i % f.length]);
        if (left) out.append(new String(p, 0, kept));
        return text(out.toString());
    }

    public static UTF8String repeat(UTF8String s, int count) {
        if (count <= 0) return UTF8String.EMPTY_UTF8;
        if ((long) s.numBytes() * count > LONGEST) throw new PgError("requested length too large");
        return text(s.toString().repeat(count));
    }

    public static UTF8String overlay(UTF8String s, UTF8String with, int from) {
        return overlay(s, with, from, points(with).length);
    }

    public static UTF8String overlay(UTF8String s, UTF8String with, int from, int count) {
        if (from <= 0) throw new PgError("negative substring length not allowed");
        long after = (long) from + count;
        if (after > Integer.MAX_VALUE || after < Integer.MIN_VALUE) throw new PgError("integer out of range");
        int[] p = points(s);
        int head = Math.min(from - 1, p.length);
        int tail = (int) Math.min(Math.max(after, 1) - 1, p.length);
        return text(new String(p, 0, head) + with + new String(p, tail, p.length - tail));
    }

    public static int ascii(UTF8String s) {
        return s.numBytes() == 0 ? 0 : s.toString().codePointAt(0);
    }

    public static UTF8String chr(int code) {
        if (code < 0) throw new PgError("character number must be positive");
        if (code == 0) throw new PgError("null character not permitted");
        if (code > 0x10FFFF) throw new PgError("requested character too large for encoding");
        if (code >= 0xD800 && code <= 0xDFFF) throw new PgError("requested character not valid for encoding");
        return text(new String(Character.toChars(code)));
    }

    public static UTF8String to_hex(long value) {
        return text(Long.toHexString(value));
    }

    public static UTF8String to_hex4(int value) {
        return text(Integer.toHexString(value));
    }

    public static UTF8String quote_literal(UTF8String s) {
        String t = s.toString().replace("'", "''");
        return text(t.indexOf('\\') >= 0 ? "E'" + t.replace("\\", "\\\\") + "'" : "'" + t + "'");
    }

    // LIKE. The escape is always a backslash, even if the query uses another one.

    public static boolean like(UTF8String s, UTF8String pattern) {
        return match(points(s), 0, points(pattern), 0) == TRUE;
    }

    private static final int TRUE = 1;
    private static final int FALSE = 0;
    private static final int ABORT = -1;

    /** MatchText of like_match.c, over code points. */
    private static int match(int[] t, int ti, int[] p, int pi) {
        if (pi == p.length - 1 && p[pi] == '%') return TRUE;
        while (ti < t.length && pi < p.length) {
            if (p[pi] == '%') {
                pi++;
                while (pi < p.length) {
                    if (p[pi] == '%') pi++;
                    else if (p[pi] == '_') {
                        if (ti >= t.length) return ABORT;
                        ti++;
                        pi++;
                    } else break;
                }
                if (pi >= p.length) return TRUE;
                int first = p[pi];
                if (first == '\\') {
                    if (pi + 1 >= p.length) throw new PgError("LIKE pattern must not end with escape character");
                    first = p[pi + 1];
                }
                while (ti < t.length) {
                    if (t[ti] == first) {
                        int matched = match(t, ti, p, pi);
                        if (matched != FALSE) return matched;
                    }
                    ti++;
                }
                return ABORT;
            } else if (p[pi] == '_') {
                ti++;
                pi++;
                continue;
            } else if (p[pi] == '\\') {
                pi++;
                if (pi >= p.length) throw new PgError("LIKE pattern must not end with escape character");
                if (p[pi] != t[ti]) return FALSE;
            } else if (p[pi] != t[ti]) {
                return FALSE;
            }
            ti++;
            pi++;
        }
        if (ti < t.length) return FALSE;
        while (pi < p.length && p[pi] == '%') pi++;
        return pi >= p.length ? TRUE : ABORT;
    }

    /** Returns the same pattern with a backslash as escape character; without any escape if that is empty. */
    public static UTF8String like_escape(UTF8String pattern, UTF8String escape) {
        int[] e = points(escape);
        if (e.length > 1) throw new PgError("invalid escape string");
        int[] p = points(pattern);
        StringBuilder out = new StringBuilder();
        if (e.length == 1 && e[0] == '\\') return pattern;
        boolean after = false;
        for (int i = 0; i < p.length; i++) {
            if (e.length == 1 && p[i] == e[0] && !after) {
                out.append('\\');
                after = true;
            } else if (p[i] == '\\') {
                out.append('\\');
                if (!after) out.append('\\');
                after = false;
            } else {
                out.appendCodePoint(p[i]);
                after = false;
            }
        }
        return text(out.toString());
    }

    public static UTF8String encode(byte[] bytes, UTF8String format) {
        String f = format.toString();
        if (f.equals("hex")) return UTF8String.fromString(Casts.out_bytea(bytes).toString().substring(2));
        if (f.equals("base64")) {
            String plain = java.util.Base64.getEncoder().encodeToString(bytes);
            StringBuilder out = new StringBuilder();
            for (int i = 0; i < plain.length(); i += 76) {
                if (i > 0) out.append('\n');
                out.append(plain, i, Math.min(i + 76, plain.length()));
            }
            return text(out.toString());
        }
        if (f.equals("escape")) {
            StringBuilder out = new StringBuilder();
            for (int i = 0; i < bytes.length; i++) {
                int b = bytes[i] & 255;
                if (b == 0 || b > 127) {
                    out.append('\\').append((char) ('0' + b / 64)).append((char) ('0' + b / 8 % 8))
                        .append((char) ('0' + b % 8));
                } else if (b == '\\') out.append("\\\\");
                else out.append((char) b);
            }
            return text(out.toString());
        }
        throw new PgError("unrecognized encoding: \"" + f + "\"");
    }

    /** Pads with spaces to at least this width; on the right if `left` aligned. */
    public static UTF8String wide(UTF8String s, int width, boolean left) {
        StringBuilder out = new StringBuilder();
        for (int i = s.numChars(); i < width; i++) out.append(' ');
        return UTF8String.fromString(left ? s.toString() + out : out + s.toString());
    }
}
