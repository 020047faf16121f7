import java.io.IOException;
import java.lang.management.ManagementFactory;
import java.net.InetSocketAddress;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.SynchronousQueue;
import java.util.concurrent.TimeUnit;

/**
 * A job in Java that computes and waits in turn, beside what the JVM's options start.
 *
 * <p>java Idle BYSTANDER WORK SECONDS COMPUTE WAIT. It writes its phases as tests/programs/phases.py does.
 */
public final class Idle {
    private static final List<String> WRITTEN = new ArrayList<>();

    interface Action {
        void run() throws Exception;
    }

    private static long waitedNs() throws IOException {
        return Long.parseLong(Files.readString(Path.of("/proc/thread-self/schedstat")).split(" ")[1]);
    }

    private static long usedNs() {
        return ManagementFactory.getThreadMXBean().getCurrentThreadCpuTime();
    }

    private static void phase(String kind, Action action) throws Exception {
        long began = System.nanoTime(), used = usedNs(), waited = waitedNs();
        action.run();
        WRITTEN.add(
                String.format(
                        "[\"%s\", %d, %d, %d, %d]",
                        kind, began, System.nanoTime(), usedNs() - used, waitedNs() - waited));
    }

    private static void compute(double seconds) {
        long end = usedNs() + (long) (1e9 * seconds);
        while (usedNs() < end) {
            for (int number = 0; number < 10000; number++) Math.sqrt(number);
        }
    }

    private static void runChild(double seconds) throws Exception {
        new ProcessBuilder("sleep", String.valueOf(seconds)).start().waitFor();
    }

    private static void receive(double seconds) throws Exception {
        SynchronousQueue<Object> queue = new SynchronousQueue<>();
        Thread sender =
                new Thread(
                        () -> {
                            try {
                                Thread.sleep((long) (1000 * seconds));
                                queue.put("");
                            } catch (InterruptedException error) {
                                Thread.currentThread().interrupt();
                            }
                        });
        sender.start();
        queue.take();
    }

    public static void main(String[] arguments) throws Exception {
        double seconds = Double.parseDouble(arguments[2]);
        double computeSeconds = Double.parseDouble(arguments[3]);
        double waitSeconds = Double.parseDouble(arguments[4]);
        if (arguments[0].equals("server")) {
            com.sun.net.httpserver.HttpServer.create(new InetSocketAddress("127.0.0.1", 0), 0).start();
        }
        Action work =
                switch (arguments[1]) {
                    case "sleep" -> () -> Thread.sleep((long) (1000 * waitSeconds));
                    case "child" -> () -> runChild(waitSeconds);
                    case "queue" -> () -> receive(waitSeconds);
                    default -> throw new IllegalArgumentException(arguments[1]);
                };
        long end = System.nanoTime() + (long) (1e9 * seconds);
        while (System.nanoTime() < end) {
            phase("any", () -> compute(computeSeconds));
            phase("sleep", work);
        }
        Path folder = Path.of(System.getenv("TIMED_PHASES"));
        long pid = ProcessHandle.current().pid();
        Files.writeString(folder.resolve(pid + ".json"), "[" + String.join(",", WRITTEN) + "]");
        System.exit(0);
    }
}
