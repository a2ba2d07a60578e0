package io.pgtrickle.spark.functions;

import static org.apache.spark.unsafe.types.UTF8String.fromString;

import io.pgtrickle.spark.values.CharacterClass;
import io.pgtrickle.spark.values.PgError;
import org.apache.spark.unsafe.types.UTF8String;

/** Text functions. Positions count code points; letters have case in the C locale, where only ASCII letters do. */
public final class TextFunctions {
    private static final int LONGEST = 100000000;

    private TextFunctions() {}

    static int[] pointsOf(UTF8String text) {
        return text.toString().codePoints().toArray();
    }

    private static UTF8String textOf(int[] points) {
        return fromString(new String(points, 0, points.length));
    }

    /** upper. */
    @SqlFunction("pg_text_upper")
    public static UTF8String upper(UTF8String text) {
        int[] points = pointsOf(text);
        for (int i = 0; i < points.length; i++) points[i] = CharacterClass.toUpper(points[i]);
        return textOf(points);
    }

    /** lower. */
    @SqlFunction("pg_text_lower")
    public static UTF8String lower(UTF8String text) {
        int[] points = pointsOf(text);
        for (int i = 0; i < points.length; i++) points[i] = CharacterClass.toLower(points[i]);
        return textOf(points);
    }

    /** initcap. */
    @SqlFunction("pg_text_initcap")
    public static UTF8String capitalize(UTF8String text) {
        int[] points = pointsOf(text);
        boolean isInside = false;
        for (int i = 0; i < points.length; i++) {
            points[i] = isInside ? CharacterClass.toLower(points[i]) : CharacterClass.toUpper(points[i]);
            isInside = CharacterClass.isAlphanumeric(points[i]);
        }
        return textOf(points);
    }

    /** lpad. */
    @SqlFunction("pg_text_lpad")
    public static UTF8String padLeft(UTF8String text, int length, UTF8String fill) {
        int[] points = pointsOf(text);
        return fromString(padding(points, length, fill) + truncate(points, length));
    }

    /** rpad. */
    @SqlFunction("pg_text_rpad")
    public static UTF8String padRight(UTF8String text, int length, UTF8String fill) {
        int[] points = pointsOf(text);
        return fromString(truncate(points, length) + padding(points, length, fill));
    }

    private static String truncate(int[] points, int length) {
        return new String(points, 0, Math.min(points.length, Math.max(length, 0)));
    }

    private static String padding(int[] points, int length, UTF8String fill) {
        int[] fillPoints = pointsOf(fill);
        // Without a fill the text can only become shorter.
        int wanted = Math.max(length, 0);
        int shown = fillPoints.length == 0 ? Math.min(points.length, wanted) : wanted;
        if (shown > LONGEST) throw new PgError("requested length too large");
        var out = new StringBuilder();
        for (int i = 0; i < shown - points.length; i++) out.appendCodePoint(fillPoints[i % fillPoints.length]);
        return out.toString();
    }

    /** repeat. */
    @SqlFunction("pg_text_repeat")
    public static UTF8String repeat(UTF8String text, int count) {
        if (count <= 0) return UTF8String.EMPTY_UTF8;
        if ((long) text.numBytes() * count > LONGEST) throw new PgError("requested length too large");
        return fromString(text.toString().repeat(count));
    }

    /** overlay(text PLACING with FROM from). */
    @SqlFunction("pg_text_overlay")
    public static UTF8String overlay(UTF8String text, UTF8String with, int from) {
        return overlay(text, with, from, pointsOf(with).length);
    }

    /** overlay(text PLACING with FROM from FOR count). */
    @SqlFunction("pg_text_overlay")
    public static UTF8String overlay(UTF8String text, UTF8String with, int from, int count) {
        if (from <= 0) throw new PgError("negative substring length not allowed");
        long after = (long) from + count;
        if (after > Integer.MAX_VALUE || after < Integer.MIN_VALUE) throw new PgError("integer out of range");
        int[] points = pointsOf(text);
        int head = Math.min(from - 1, points.length);
        int tail = (int) Math.min(Math.max(after, 1) - 1, points.length);
        return fromString(new String(points, 0, head) + with + new String(points, tail, points.length - tail));
    }

    /** ascii: the first code point. */
    @SqlFunction("pg_text_ascii")
    public static int firstPoint(UTF8String text) {
        return text.numBytes() == 0 ? 0 : text.toString().codePointAt(0);
    }

    /** chr. */
    @SqlFunction("pg_text_chr")
    public static UTF8String ofPoint(int code) {
        if (code < 0) throw new PgError("character number must be positive");
        if (code == 0) throw new PgError("null character not permitted");
        if (code > 0x10FFFF) throw new PgError("requested character too large for encoding");
        if (code >= 0xD800 && code <= 0xDFFF) throw new PgError("requested character not valid for encoding");
        return fromString(Character.toString(code));
    }

    /** to_hex(int8). */
    @SqlFunction("pg_text_to_hex")
    public static UTF8String toHex(long value) {
        return fromString(Long.toHexString(value));
    }

    /** to_hex(int4). */
    @SqlFunction("pg_text_to_hex4")
    public static UTF8String toHex4(int value) {
        return fromString(Integer.toHexString(value));
    }

    /** quote_literal. */
    @SqlFunction("pg_text_quote_literal")
    public static UTF8String quoteLiteral(UTF8String text) {
        String doubled = text.toString().replace("'", "''");
        return fromString(doubled.indexOf('\\') >= 0
            ? "E'" + doubled.replace("\\", "\\\\") + "'" : "'" + doubled + "'");
    }

    /** A field of format(): pads with spaces to at least this width; on the right if `left` aligned. */
    @SqlFunction("pg_text_wide")
    public static UTF8String align(UTF8String text, int width, boolean left) {
        String spaces = " ".repeat(Math.max(Math.max(width, 0) - text.numChars(), 0));
        return fromString(left ? text + spaces : spaces + text);
    }
}
