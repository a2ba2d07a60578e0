package io.pgtrickle.spark.values;

/** Classes of characters in the C locale, which PostgreSQL's input and output functions use. */
public final class CharacterClass {
    private CharacterClass() {}

    /** Returns whether isspace() is true. */
    public static boolean isSpace(char c) {
        return c == ' ' || (c >= '\t' && c <= '\r');
    }

    /** Returns the text without the white space around it, which input functions skip. */
    public static String trimSpace(String text) {
        int from = 0;
        int to = text.length();
        while (from < to && isSpace(text.charAt(from))) from++;
        while (to > from && isSpace(text.charAt(to - 1))) to--;
        return text.substring(from, to);
    }

    /** Returns whether a text contains white space or one of the special characters. */
    static boolean hasSpaceOr(String special, String text) {
        for (int i = 0; i < text.length(); i++) {
            char c = text.charAt(i);
            if (isSpace(c) || special.indexOf(c) >= 0) return true;
        }
        return false;
    }

    /** Returns the character in upper case if it is an ASCII letter. */
    public static int toUpper(int c) {
        return c >= 'a' && c <= 'z' ? c - 32 : c;
    }

    /** Returns the character in lower case if it is an ASCII letter. */
    public static int toLower(int c) {
        return c >= 'A' && c <= 'Z' ? c + 32 : c;
    }

    /** Returns whether the character is an ASCII letter or digit. */
    public static boolean isAlphanumeric(int c) {
        return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    }
}
