package io.pgtrickle.spark.functions;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.plans.logical.LocalLimit;
import org.apache.spark.sql.catalyst.plans.logical.LocalRelation;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Union;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.sql.execution.arrow.ArrowConverters$;
import org.apache.spark.sql.types.StructType;
import scala.collection.Iterator;
import scala.collection.mutable.ArrayBuffer;

/** Collects queries that need no Spark job: the optimizer computes projections and filters of rows on the driver. */
public final class LocalRows {
    private LocalRows() {}

    /**
     * Writes the rows of such a query to a file, as an Arrow stream; returns false if the query needs a job or reads
     * more than `most` rows. It uses a file because py4j returns bytes in pieces, with 40 ms between the first two.
     */
    public static boolean write(Dataset<?> frame, String zone, int most, String file) throws IOException {
        // Test the plan before it is optimized: the optimizer is slow with many rows, and its work would be wasted.
        if (!readsAtMost(frame.queryExecution().analyzed(), most)) return false;
        var rows = new ArrayBuffer<InternalRow>();
        if (!collect(frame.queryExecution().optimizedPlan(), rows)) return false;
        StructType schema = frame.schema();
        ArrowConverters$ arrow = ArrowConverters$.MODULE$;
        byte[] stream = rows.isEmpty()
            ? arrow.createEmptyArrowBatch(schema, zone, true, false)
            : arrow.toBatchWithSchemaIterator(rows.iterator(), schema, most, Integer.MAX_VALUE, zone, true, false).next();
        Files.write(Path.of(file), stream);
        return true;
    }

    private static boolean readsAtMost(LogicalPlan plan, int most) {
        long rows = 0;
        Iterator<LogicalPlan> leaves = plan.collectLeaves().iterator();
        while (leaves.hasNext()) {
            if (!(leaves.next() instanceof LocalRelation relation)) return false;
            rows += (Long) relation.maxRows().get();
        }
        return rows <= most;
    }

    /** Adds the rows of a plan that is computed already; returns false for any other plan. */
    private static boolean collect(LogicalPlan plan, ArrayBuffer<InternalRow> rows) {
        if (plan instanceof LocalRelation relation) {
            rows.addAll(relation.data());
            return true;
        }
        // A LocalLimit without a GlobalLimit comes only from `collect_at_most`, which counts the rows that it gets.
        if (plan instanceof LocalLimit limit) return collect(limit.child(), rows);
        if (!(plan instanceof Union union)) return false;
        Iterator<LogicalPlan> children = union.children().iterator();
        while (children.hasNext()) {
            if (!collect(children.next(), rows)) return false;
        }
        return true;
    }
}
