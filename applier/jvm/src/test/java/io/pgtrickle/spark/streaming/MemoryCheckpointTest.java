package io.pgtrickle.spark.streaming;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.FileNotFoundException;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.List;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileAlreadyExistsException;
import org.apache.hadoop.fs.Path;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

/** Files that exist once they are closed, and are seen by every instance. */
class MemoryCheckpointTest {
    private static final Path ROOT = new Path("/checkpoint");

    private final MemoryCheckpoint files = new MemoryCheckpoint(ROOT, new Configuration(false));

    @BeforeEach
    void empty() {
        MemoryCheckpoint.drop("/checkpoint");
    }

    private void write(String name, String text, boolean overwrites) throws IOException {
        try (var out = files.createAtomic(new Path(ROOT, name), overwrites)) {
            out.write(text.getBytes(StandardCharsets.UTF_8));
        }
    }

    private String read(String name) throws IOException {
        try (var in = new MemoryCheckpoint(ROOT, new Configuration(false)).open(new Path(ROOT, name))) {
            return new String(in.readAllBytes(), StandardCharsets.UTF_8);
        }
    }

    private List<String> list(Path folder) throws IOException {
        return Arrays.stream(files.list(folder, path -> true)).map(status -> status.getPath().getName()).toList();
    }

    @Test
    void aFileIsSeenByAllAndOnlyWhenItIsClosed() throws IOException {
        files.mkdirs(new Path(ROOT, "offsets"));
        var out = files.createAtomic(new Path(ROOT, "offsets/1"), false);
        out.write(1);
        assertFalse(files.exists(new Path(ROOT, "offsets/1")));
        out.close();
        assertTrue(files.exists(new Path("file:/checkpoint/offsets/1")));
        write("offsets/1", "again", true);
        assertEquals("again", read("offsets/1"));
        assertThrows(FileAlreadyExistsException.class, () -> write("offsets/1", "once more", false));
        assertEquals("again", read("offsets/1"));
        assertThrows(FileNotFoundException.class, () -> read("offsets/2"));
    }

    @Test
    void whatIsCancelledIsNeverThere() throws IOException {
        var out = files.createAtomic(new Path(ROOT, "metadata"), true);
        out.write(1);
        out.cancel();
        out.close();
        assertFalse(files.exists(new Path(ROOT, "metadata")));
    }

    @Test
    void aFolderListsItsOwnFilesOnly() throws IOException {
        assertEquals(ROOT, files.createCheckpointDirectory());
        files.mkdirs(new Path(ROOT, "offsets/deeper"));
        write("offsets/0", "", true);
        write("offsets/1", "1", true);
        write("offsets2", "2", true);
        assertEquals(List.of("0", "1", "deeper"), list(new Path(ROOT, "offsets")));
        assertFalse(files.list(new Path(ROOT, "offsets"), path -> path.getName().equals("0"))[0].isDirectory());
        assertTrue(files.list(ROOT, path -> path.getName().equals("offsets"))[0].isDirectory());
        assertThrows(FileNotFoundException.class, () -> list(new Path(ROOT, "commits")));
        files.delete(new Path(ROOT, "offsets"));
        assertEquals(List.of("offsets2"), list(ROOT));
    }

    @Test
    void aFileIsReadFromAnyPosition() throws IOException {
        write("offsets", "0123456789", true);
        try (var in = files.open(new Path(ROOT, "offsets"))) {
            in.seek(4);
            assertEquals('4', in.read());
            byte[] three = new byte[3];
            in.readFully(7, three);
            assertArrayEquals("789".getBytes(StandardCharsets.UTF_8), three);
            assertEquals(5, in.getPos());
            assertEquals(-1, in.read(10, three, 0, 3));
            assertThrows(IOException.class, () -> in.readFully(8, three));
            assertThrows(IOException.class, () -> in.seek(11));
        }
    }
}
