package pgtrickle;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.OpenOption;
import java.nio.file.Paths;
import org.apache.spark.sql.catalyst.plans.logical.LocalLimit;
import org.apache.spark.sql.catalyst.plans.logical.LocalRelation;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Union;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.sql.execution.arrow.ArrowConverters$;
import org.apache.spark.sql.types.StructType;
import scala.collection.Iterator;
import scala.collection.mutable.ArrayBuffer;

/** Handles queries that need no Spark job: the optimizer computes projections and filters of rows on the driver. */
public final class Planned {
    /**
     * Writes the rows of such a query to a file, as an Arrow stream; returns false if the query needs a job or reads
     * more than `most` rows. It uses a file because py4j returns bytes in pieces, with 40 ms between the first two.
     */
    public static boolean write(Dataset frame, String zone, int most, String file) throws IOException {
        // Test the plan before it is optimized: the optimizer is slow with many rows, and its work would be wasted.
        if (!isFew(frame.queryExecution().analyzed(), most)) return false;
        ArrayBuffer found = new ArrayBuffer();
        if (!gathered(frame.queryExecution().optimizedPlan(), found)) return false;
        StructType schema = frame.schema();
        byte[] stream = found.isEmpty()
            ? ArrowConverters$.MODULE$.createEmptyArrowBatch(schema, zone, true, false)
            : (byte[]) ArrowConverters$.MODULE$.toBatchWithSchemaIterator(
                found.iterator(), schema, most, Integer.MAX_VALUE, zone, true, false).next();
        Files.write(Paths.get(file, new String[0]), stream, new OpenOption[0]);
        return true;
    }

    private static boolean isFew(LogicalPlan plan, int most) {
        int rows = 0;
        Iterator leaves = plan.collectLeaves().iterator();
        while (leaves.hasNext()) {
            Object leaf = leaves.next();
            if (!(leaf instanceof LocalRelation)) return false;
            rows += ((LocalRelation) leaf).data().size();
        }
        return rows <= most;
    }

    private static boolean gathered(LogicalPlan plan, ArrayBuffer into) {
        if (plan instanceof LocalRelation) {
            into.addAll(((LocalRelation) plan).data());
            return true;
        }
        // A LocalLimit without a GlobalLimit comes only from `collect_at_most`, which counts the rows that it gets.
        if (plan instanceof LocalLimit) return gathered(((LocalLimit) plan).child(), into);
        if (!(plan instanceof Union)) return false;
        Iterator children = ((Union) plan).children().iterator();
        while (children.hasNext()) {
            if (!gathered((LogicalPlan) children.next(), into)) return false;
        }
        return true;
    }
}
