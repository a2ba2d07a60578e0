package io.pgtrickle.spark.values;

import java.util.concurrent.ConcurrentHashMap;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/** Compiled regular expressions in Java's dialect (see applier.functions.text.regex); a query has few of them. */
public final class PatternCache {
    private static final int MOST = 1000;
    private static final ConcurrentHashMap<String, Pattern> PATTERNS = new ConcurrentHashMap<>();

    private PatternCache() {}

    /** Returns a matcher whose regions neither hide the text around them nor match anchors at their ends. */
    public static Matcher matcher(String pattern, String subject) {
        Pattern compiled = PATTERNS.get(pattern);
        if (compiled == null) {
            compiled = Pattern.compile(pattern, Pattern.DOTALL);
            if (PATTERNS.size() < MOST) PATTERNS.put(pattern, compiled);
        }
        Matcher matcher = compiled.matcher(subject);
        matcher.useTransparentBounds(true);
        matcher.useAnchoringBounds(false);
        return matcher;
    }
}
