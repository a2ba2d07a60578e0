package pgtrickle;

import java.util.concurrent.ConcurrentHashMap;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * Regular expressions that are already in Java's dialect (see applier.functions.text.regex).
 *
 * If the extent of a match matters, it is the leftmost longest match, as in PostgreSQL for greedy quantifiers.
 */
public final class Regex {
    private static final ConcurrentHashMap PATTERNS = new ConcurrentHashMap();

    private static Matcher matcher(UTF8String pattern, String subject) {
        String p = pattern.toString();
        Pattern found = (Pattern) PATTERNS.get(p);
        if (found == null) {
            found = Pattern.compile(p, Pattern.DOTALL);
            if (PATTERNS.size() < 1000) PATTERNS.put(p, found);
        }
        Matcher m = found.matcher(subject);
        m.useTransparentBounds(true);
        m.useAnchoringBounds(false);
        return m;
    }

    public static boolean matches(UTF8String s, UTF8String pattern) {
        return matcher(pattern, s.toString()).find();
    }

    /** Finds the leftmost longest match at or after a position; then the matcher has its groups. */
    private static boolean longest(Matcher m, String s, int from) {
        m.region(from, s.length());
        if (!m.find()) return false;
        int start = m.start();
        for (int end = s.length(); end > m.end(); end--) {
            if (end < s.length() && Character.isLowSurrogate(s.charAt(end))) continue;
            m.region(start, end);
            if (m.matches()) return true;
            m.region(start, s.length());
            m.find();
        }
        m.region(start, m.end());
        return m.matches();
    }

    public static UTF8String substring(UTF8String subject, UTF8String pattern) {
        String s = subject.toString();
        Matcher m = matcher(pattern, s);
        if (!longest(m, s, 0)) return null;
        String found = m.groupCount() > 0 ? m.group(1) : m.group();
        return found == null ? null : UTF8String.fromString(found);
    }

    private static String groups(Matcher m) {
        java.util.ArrayList found = new java.util.ArrayList();
        if (m.groupCount() == 0) found.add(m.group());
        for (int i = 1; i <= m.groupCount(); i++) found.add(m.group(i));
        return Arrays.print(found);
    }

    public static UTF8String match(UTF8String subject, UTF8String pattern) {
        String s = subject.toString();
        Matcher m = matcher(pattern, s);
        return longest(m, s, 0) ? UTF8String.fromString(groups(m)) : null;
    }

    /** Returns an array of the results of `match` for the first match, or for all. */
    public static UTF8String match_list(UTF8String subject, UTF8String pattern, boolean all) {
        String s = subject.toString();
        Matcher m = matcher(pattern, s);
        java.util.ArrayList found = new java.util.ArrayList();
        int from = 0;
        while (from <= s.length() && longest(m, s, from)) {
            found.add(groups(m));
            if (!all) break;
            int end = m.end();
            from = end == m.start() ? (end < s.length() ? s.offsetByCodePoints(end, 1) : end + 1) : end;
        }
        return UTF8String.fromString(Arrays.print(found));
    }

    /** Replaces the first match, or all. In the replacement \1 is a group, \& the match, \\ a backslash. */
    public static UTF8String replace(UTF8String subject, UTF8String pattern, UTF8String with, boolean all) {
        String s = subject.toString();
        Matcher m = matcher(pattern, s);
        StringBuilder out = new StringBuilder();
        int done = 0;
        int from = 0;
        while (from <= s.length() && longest(m, s, from)) {
            int start = m.start();
            int end = m.end();
            out.append(s, done, start);
            substitute(out, with.toString(), m);
            done = end;
            if (!all) break;
            from = end == start ? (end < s.length() ? s.offsetByCodePoints(end, 1) : end + 1) : end;
        }
        return UTF8String.fromString(out.append(s.substring(done)).toString());
    }

    private static void substitute(StringBuilder out, String with, Matcher m) {
        for (int i = 0; i < with.length(); i++) {
            char c = with.charAt(i);
            if (c != '\\' || i + 1 >= with.length()) {
                out.append(c);
                continue;
            }
            char next = with.charAt(++i);
            if (next >= '1' && next <= '9') {
                int group = next - '0';
                if (group <= m.groupCount() && m.group(group) != null) out.append(m.group(group));
            } else if (next == '&') {
                out.append(m.group());
            } else if (next == '\\') {
                out.append('\\');
            } else {
                out.append('\\');
                i--;
            }
        }
    }

    public static UTF8String split(UTF8String subject, UTF8String pattern) {
        String s = subject.toString();
        Matcher m = matcher(pattern, s);
        java.util.ArrayList parts = new java.util.ArrayList();
        int done = 0;
        int from = 0;
        while (from <= s.length() && longest(m, s, from)) {
            int start = m.start();
            int end = m.end();
            // An empty match at the end or directly after the last match does not split.
            if (end == start && (start >= s.length() || start == done)) {
                if (start >= s.length()) break;
                from = s.offsetByCodePoints(end, 1);
                if (start == done) continue;
            }
            parts.add(s.substring(done, start));
            done = end;
            from = end == start ? (end < s.length() ? s.offsetByCodePoints(end, 1) : end + 1) : end;
        }
        parts.add(s.substring(done));
        return UTF8String.fromString(Arrays.print(parts));
    }

    public static int count(UTF8String subject, UTF8String pattern) {
        String s = subject.toString();
        Matcher m = matcher(pattern, s);
        int found = 0;
        int from = 0;
        while (from <= s.length() && longest(m, s, from)) {
            found++;
            int end = m.end();
            from = end == m.start() ? (end < s.length() ? s.offsetByCodePoints(end, 1) : end + 1) : end;
        }
        return found;
    }
}
