import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import org.apache.kafka.common.utils.Exit;

/**
 * Runs many of Kafka's command-line tools in one process, one after the other: a line of standard input is a class
 * and its arguments, separated by tabs; the answer is the exit code, the size of what it printed, and that.
 */
public class Tools {
    private static class Ended extends Error {
        Ended() {
            super(null, null, false, false);
        }
    }

    /** The first exit code that a tool ended with: some catch what ends them, and end again. */
    private static Integer ended;

    public static void main(String[] none) throws Exception {
        Exit.Procedure end = (code, message) -> {
            ended = ended == null ? code : ended;
            throw new Ended();
        };
        Exit.setExitProcedure(end);
        Exit.setHaltProcedure(end);
        PrintStream answers = System.out;
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.split("\t", -1);
            ByteArrayOutputStream said = new ByteArrayOutputStream();
            PrintStream to = new PrintStream(said, true, StandardCharsets.UTF_8);
            System.setOut(to);
            System.setErr(to);
            int code = 0;
            ended = null;
            try {
                Class.forName(words[0]).getMethod("main", String[].class)
                    .invoke(null, (Object) Arrays.copyOfRange(words, 1, words.length));
            } catch (InvocationTargetException error) {
                code = 1;
                if (!(error.getCause() instanceof Ended)) {
                    error.getCause().printStackTrace(to);
                }
            }
            code = ended == null ? code : ended;
            to.flush();
            answers.println(code + " " + said.size());
            said.writeTo(answers);
            answers.flush();
        }
    }
}
