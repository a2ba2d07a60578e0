package io.pgtrickle.spark.values;

/** An error that PostgreSQL would report for the statement, with PostgreSQL's message. */
public class PgError extends RuntimeException {
    private static final long serialVersionUID = 1L;

    /** Takes PostgreSQL's message; the applier shows it with the words in front of it. */
    public PgError(String message) {
        super("PostgreSQL would report: " + message);
    }

    /** Returns the error of an input function that cannot read its text. */
    public static PgError invalidInput(String type, Object input) {
        return new PgError("invalid input syntax for type " + type + ": \"" + input + "\"");
    }

    /** A value or an operation that PostgreSQL has and that cannot be computed exactly here. */
    public static final class NotComputed extends PgError {
        private static final long serialVersionUID = 1L;

        /** Takes the reason, which follows "PostgreSQL would report: nothing; but". */
        public NotComputed(String reason) {
            super("nothing; but " + reason);
        }
    }

    /** A text that is not an ISO date or time: PostgreSQL may know it as another form of date. */
    public static final class NotIsoDate extends PgError {
        private static final long serialVersionUID = 1L;

        /** Takes the type that was asked for and the text. */
        public NotIsoDate(String type, Object input) {
            super("invalid input syntax for type " + type + ": \"" + input + "\" (or not an ISO date)");
        }
    }
}
