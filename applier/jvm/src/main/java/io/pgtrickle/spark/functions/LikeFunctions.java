package io.pgtrickle.spark.functions;

import static io.pgtrickle.spark.functions.TextFunctions.pointsOf;
import static org.apache.spark.unsafe.types.UTF8String.fromString;

import io.pgtrickle.spark.values.PgError;
import org.apache.spark.unsafe.types.UTF8String;

/** LIKE. The escape is always a backslash, even if the query uses another one. */
public final class LikeFunctions {
    private LikeFunctions() {}

    /** How a comparison of a text with a pattern ended. */
    private enum Match {
        TRUE,
        FALSE,
        /** The text ended before the pattern did: no later start can match. */
        ABORT
    }

    /** text LIKE pattern. */
    @SqlFunction("pg_text_like")
    public static boolean like(UTF8String text, UTF8String pattern) {
        return match(pointsOf(text), 0, pointsOf(pattern), 0) == Match.TRUE;
    }

    /** MatchText of like_match.c, over code points. */
    private static Match match(int[] text, int textStart, int[] pattern, int patternStart) {
        int t = textStart;
        int p = patternStart;
        if (p == pattern.length - 1 && pattern[p] == '%') return Match.TRUE;
        for (; t < text.length && p < pattern.length; t++, p++) {
            if (pattern[p] == '%') return matchAfterPercent(text, t, pattern, p + 1);
            if (pattern[p] == '_') continue;
            if (pattern[p] == '\\') escapedPoint(pattern, p++);
            if (pattern[p] != text[t]) return Match.FALSE;
        }
        if (t < text.length) return Match.FALSE;
        while (p < pattern.length && pattern[p] == '%') p++;
        return p >= pattern.length ? Match.TRUE : Match.ABORT;
    }

    /** Tries each place of the text where the next character of the pattern is. */
    private static Match matchAfterPercent(int[] text, int textStart, int[] pattern, int patternStart) {
        int t = textStart;
        int p = patternStart;
        for (; p < pattern.length && (pattern[p] == '%' || pattern[p] == '_'); p++) {
            if (pattern[p] == '%') continue;
            if (t >= text.length) return Match.ABORT;
            t++;
        }
        if (p >= pattern.length) return Match.TRUE;
        int first = pattern[p] == '\\' ? escapedPoint(pattern, p) : pattern[p];
        for (; t < text.length; t++) {
            if (text[t] != first) continue;
            Match found = match(text, t, pattern, p);
            if (found != Match.FALSE) return found;
        }
        return Match.ABORT;
    }

    private static int escapedPoint(int[] pattern, int escape) {
        if (escape + 1 >= pattern.length) throw new PgError("LIKE pattern must not end with escape character");
        return pattern[escape + 1];
    }

    /** Returns the same pattern with a backslash as escape character; without any escape if that is empty. */
    @SqlFunction("pg_text_like_escape")
    public static UTF8String withBackslash(UTF8String pattern, UTF8String escape) {
        int[] escapes = pointsOf(escape);
        if (escapes.length > 1) throw new PgError("invalid escape string");
        if (escapes.length == 1 && escapes[0] == '\\') return pattern;
        var out = new StringBuilder();
        boolean isEscaped = false;
        for (int point : pointsOf(pattern)) {
            if (escapes.length == 1 && point == escapes[0] && !isEscaped) {
                out.append('\\');
                isEscaped = true;
                continue;
            }
            if (point == '\\' && !isEscaped) out.append('\\');
            out.appendCodePoint(point);
            isEscaped = false;
        }
        return fromString(out.toString());
    }
}
