package io.pgtrickle.spark.functions;

import java.util.concurrent.atomic.AtomicLong;
import org.apache.spark.unsafe.types.UTF8String;

/** Limits the bytes of messages that one micro-batch brings to the driver. */
public final class MessageBudget {
    private static volatile MessageBudget current = new MessageBudget(UTF8String.EMPTY_UTF8);

    private final UTF8String batch;
    private final AtomicLong used = new AtomicLong();

    private MessageBudget(UTF8String batch) {
        this.batch = batch;
    }

    /**
     * Returns whether a message of a micro-batch still fits: true until those before it have `most` bytes.
     *
     * All tasks of a process share the budget. Once it is used up, no later message of any partition fits, so that what
     * a partition brings has no gap. The first message always fits, however large it is.
     */
    @SqlFunction(value = "pg_within_budget", deterministic = false)
    public static boolean isWithin(UTF8String batch, long most, int bytes) {
        return of(batch).used.getAndAdd(bytes) < most;
    }

    private static MessageBudget of(UTF8String batch) {
        MessageBudget known = current;
        return known.batch.equals(batch) ? known : begin(batch);
    }

    /** Only one micro-batch runs at a time, so that only its budget is kept. */
    private static synchronized MessageBudget begin(UTF8String batch) {
        // The text belongs to a row that Spark may reuse.
        if (!current.batch.equals(batch)) current = new MessageBudget(batch.copy());
        return current;
    }
}
