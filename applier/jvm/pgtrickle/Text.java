package pgtrickle;

import org.apache.spark.unsafe.types.UTF8String;

/** Text functions. Positions count code points. */
public final class Text {
    /** Without the white space that PostgreSQL's input functions skip: isspace() in the C locale. */
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
}
