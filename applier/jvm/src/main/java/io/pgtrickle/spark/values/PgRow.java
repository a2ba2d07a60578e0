package io.pgtrickle.spark.values;

import java.util.ArrayList;
import java.util.List;

/** Composite values in PostgreSQL's text; fields are the texts of their output functions, null for NULL. */
public final class PgRow {
    private PgRow() {}

    /** Returns the text of record_out. */
    public static String print(List<String> fields) {
        var out = new StringBuilder("(");
        for (int i = 0; i < fields.size(); i++) {
            if (i > 0) out.append(',');
            String field = fields.get(i);
            if (field == null) continue;
            if (!needsQuotes(field)) out.append(field);
            else out.append('"').append(field.replace("\\", "\\\\").replace("\"", "\"\"")).append('"');
        }
        return out.append(')').toString();
    }

    private static boolean needsQuotes(String field) {
        return field.isEmpty() || CharacterClass.hasSpaceOr("\"\\(),", field);
    }

    /** Reads the text of record_out; `()` is a row of one NULL. */
    public static List<String> parse(String row) {
        var fields = new ArrayList<String>();
        var word = new StringBuilder();
        int at = 1;
        while (true) {
            word.setLength(0);
            boolean isGiven = row.charAt(at) != ',' && row.charAt(at) != ')';
            if (isGiven && row.charAt(at) == '"') {
                at++;
                while (row.charAt(at) != '"' || row.charAt(at + 1) == '"') {
                    if (row.charAt(at) == '"' || row.charAt(at) == '\\') at++;
                    word.append(row.charAt(at++));
                }
                at++;
            } else {
                while (row.charAt(at) != ',' && row.charAt(at) != ')') word.append(row.charAt(at++));
            }
            fields.add(isGiven ? word.toString() : null);
            if (row.charAt(at++) == ')') return fields;
        }
    }
}
