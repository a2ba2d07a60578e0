package pgtrickle;

/** An error that PostgreSQL would report for the statement, with PostgreSQL's message. */
public class PgError extends RuntimeException {
    public PgError(String message) {
        super("PostgreSQL would report: " + message);
    }
}
