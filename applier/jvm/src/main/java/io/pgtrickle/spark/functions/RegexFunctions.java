package io.pgtrickle.spark.functions;

import static org.apache.spark.unsafe.types.UTF8String.fromString;

import io.pgtrickle.spark.values.PatternCache;
import io.pgtrickle.spark.values.PgArray;
import java.util.ArrayList;
import java.util.List;
import java.util.regex.Matcher;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * Regular expressions that are already in Java's dialect (see applier.functions.text.regex).
 *
 * If the extent of a match matters, it is the leftmost longest match, as in PostgreSQL for greedy quantifiers.
 */
public final class RegexFunctions {
    private RegexFunctions() {}

    /** Finds one leftmost longest match after the other. */
    private static final class LongestMatches {
        private final String subject;
        private final Matcher matcher;
        private int from;

        LongestMatches(UTF8String subject, UTF8String pattern) {
            this.subject = subject.toString();
            this.matcher = PatternCache.matcher(pattern.toString(), this.subject);
        }

        /** Finds the next match; then the matcher has its groups. */
        boolean findNext() {
            if (from > subject.length() || !findLongest()) return false;
            from = matcher.end();
            // After an empty match the next one begins at least one character later.
            if (matcher.end() == matcher.start()) {
                from = from < subject.length() ? subject.offsetByCodePoints(from, 1) : from + 1;
            }
            return true;
        }

        private boolean findLongest() {
            matcher.region(from, subject.length());
            if (!matcher.find()) return false;
            int start = matcher.start();
            for (int end = subject.length(); end > matcher.end(); end--) {
                if (end < subject.length() && Character.isLowSurrogate(subject.charAt(end))) continue;
                matcher.region(start, end);
                if (matcher.matches()) return true;
                matcher.region(start, subject.length());
                matcher.find();
            }
            matcher.region(start, matcher.end());
            return matcher.matches();
        }
    }

    /** subject ~ pattern. */
    @SqlFunction("pg_regex_matches")
    public static boolean matches(UTF8String subject, UTF8String pattern) {
        return PatternCache.matcher(pattern.toString(), subject.toString()).find();
    }

    /** substring(subject FROM pattern): the first group, or the match. */
    @SqlFunction("pg_regex_substring")
    public static UTF8String substring(UTF8String subject, UTF8String pattern) {
        var matches = new LongestMatches(subject, pattern);
        if (!matches.findNext()) return null;
        return fromString(matches.matcher.groupCount() > 0 ? matches.matcher.group(1) : matches.matcher.group());
    }

    /** Returns an array of the groups, or of the match if there are none. */
    private static String groups(Matcher matcher) {
        var groups = new ArrayList<String>();
        if (matcher.groupCount() == 0) groups.add(matcher.group());
        for (int i = 1; i <= matcher.groupCount(); i++) groups.add(matcher.group(i));
        return PgArray.print(groups);
    }

    /** regexp_match. */
    @SqlFunction("pg_regex_match")
    public static UTF8String match(UTF8String subject, UTF8String pattern) {
        var matches = new LongestMatches(subject, pattern);
        return matches.findNext() ? fromString(groups(matches.matcher)) : null;
    }

    /** regexp_matches: returns an array of the results of `match` for the first match, or for all. */
    @SqlFunction("pg_regex_match_list")
    public static UTF8String matchList(UTF8String subject, UTF8String pattern, boolean all) {
        var matches = new LongestMatches(subject, pattern);
        var found = new ArrayList<String>();
        while ((all || found.isEmpty()) && matches.findNext()) found.add(groups(matches.matcher));
        return fromString(PgArray.print(found));
    }

    /** regexp_count. */
    @SqlFunction("pg_regex_count")
    public static int count(UTF8String subject, UTF8String pattern) {
        var matches = new LongestMatches(subject, pattern);
        int found = 0;
        while (matches.findNext()) found++;
        return found;
    }

    /** regexp_replace of the first match, or of all. In the replacement \1 is a group, \& the match, \\ a backslash. */
    @SqlFunction("pg_regex_replace")
    public static UTF8String replace(UTF8String subject, UTF8String pattern, UTF8String with, boolean all) {
        var matches = new LongestMatches(subject, pattern);
        var out = new StringBuilder();
        int copied = 0;
        while (matches.findNext()) {
            out.append(matches.subject, copied, matches.matcher.start());
            appendReplacement(out, with.toString(), matches.matcher);
            copied = matches.matcher.end();
            if (!all) break;
        }
        return fromString(out.append(matches.subject, copied, matches.subject.length()).toString());
    }

    private static void appendReplacement(StringBuilder out, String with, Matcher matcher) {
        for (int i = 0; i < with.length(); i++) {
            char c = with.charAt(i);
            if (c != '\\' || i + 1 >= with.length()) {
                out.append(c);
                continue;
            }
            char next = with.charAt(++i);
            if (next >= '1' && next <= '9') {
                int group = next - '0';
                if (group <= matcher.groupCount() && matcher.group(group) != null) out.append(matcher.group(group));
            } else if (next == '&') {
                out.append(matcher.group());
            } else {
                out.append('\\');
                if (next != '\\') i--;
            }
        }
    }

    /** regexp_split_to_array. */
    @SqlFunction("pg_regex_split")
    public static UTF8String split(UTF8String subject, UTF8String pattern) {
        var matches = new LongestMatches(subject, pattern);
        List<String> parts = new ArrayList<>();
        int copied = 0;
        while (matches.findNext()) {
            int start = matches.matcher.start();
            int end = matches.matcher.end();
            // An empty match at the end or directly after the last match does not split.
            if (end == start && (start >= matches.subject.length() || start == copied)) continue;
            parts.add(matches.subject.substring(copied, start));
            copied = end;
        }
        parts.add(matches.subject.substring(copied));
        return fromString(PgArray.print(parts));
    }
}
