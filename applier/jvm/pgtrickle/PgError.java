package pgtrickle;

/** What PostgreSQL would report as an error of the statement; the message is its own. */
public class PgError extends RuntimeException {
    public PgError(String message) {
        super("PostgreSQL would report: " + message);
    }
}
