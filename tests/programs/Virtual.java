import java.io.IOException;
import java.net.Socket;
import java.nio.file.DirectoryStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.locks.ReentrantLock;

/**
 * Virtual threads that compute and wait in turn, each beside a connection of its own.
 *
 * <p>java Virtual ask|reconnect|sleep SECONDS COMPUTE WAIT PORT. It writes its phases as
 * tests/programs/phases.py does.
 */
public final class Virtual {
    private static final int THREADS = 4;
    private static final List<String> WRITTEN = new ArrayList<>();
    private static final ReentrantLock TURN = new ReentrantLock();

    /** What the carrier has used, and waited for a CPU. */
    private static long[] schedule() throws IOException {
        String[] words = Files.readString(Path.of("/proc/thread-self/schedstat")).split(" ");
        return new long[] {Long.parseLong(words[0]), Long.parseLong(words[1])};
    }

    /** What all threads that live have used, and waited for a CPU: compilers, carriers, pollers. */
    private static long[] scheduleOfAll() throws IOException {
        long[] sum = new long[2];
        try (DirectoryStream<Path> tasks = Files.newDirectoryStream(Path.of("/proc/self/task"))) {
            for (Path task : tasks) {
                String[] words = Files.readString(task.resolve("schedstat")).split(" ");
                for (int place = 0; place < 2; place++) sum[place] += Long.parseLong(words[place]);
            }
        }
        return sum;
    }

    private static void write(String kind, long began, long used, long waited) {
        WRITTEN.add(String.format("[\"%s\", %d, %d, %d, %d]", kind, began, System.nanoTime(), used, waited));
    }

    private static void compute(double seconds) throws IOException {
        long began = System.nanoTime();
        long[] before = schedule();
        while (schedule()[0] < before[0] + (long) (1e9 * seconds)) {
            for (int number = 0; number < 1000000; number++) Math.sqrt(number);
        }
        long[] after = schedule();
        write("any", began, after[0] - before[0], after[1] - before[1]);
    }

    private static void ask(Socket server, double seconds) throws IOException {
        server.getOutputStream().write((seconds + "\n").getBytes());
        if (server.getInputStream().read() < 0) throw new IOException("no answer");
    }

    private static Void work(String[] arguments, long end) throws Exception {
        double waitSeconds = Double.parseDouble(arguments[3]);
        int port = Integer.parseInt(arguments[4]);
        try (Socket kept = new Socket("127.0.0.1", port)) {
            ask(kept, 0);
            while (System.nanoTime() < end) {
                TURN.lock();
                try {
                    compute(Double.parseDouble(arguments[2]));
                    long began = System.nanoTime();
                    long[] before = scheduleOfAll();
                    switch (arguments[0]) {
                        case "ask" -> ask(kept, waitSeconds);
                        case "reconnect" -> {
                            try (Socket server = new Socket("127.0.0.1", port)) {
                                ask(server, waitSeconds);
                            }
                        }
                        case "sleep" -> Thread.sleep((long) (1000 * waitSeconds));
                        default -> throw new IllegalArgumentException(arguments[0]);
                    }
                    long[] after = scheduleOfAll();
                    String kind = arguments[0].equals("sleep") ? "sleep" : "network";
                    write(kind, began, after[0] - before[0], after[1] - before[1]);
                } finally {
                    TURN.unlock();
                }
            }
        }
        return null;
    }

    public static void main(String[] arguments) throws Exception {
        long end = System.nanoTime() + (long) (1e9 * Double.parseDouble(arguments[1]));
        try (ExecutorService threads = Executors.newVirtualThreadPerTaskExecutor()) {
            for (int number = 0; number < THREADS; number++) threads.submit(() -> work(arguments, end));
        }
        Path folder = Path.of(System.getenv("TIMED_PHASES"));
        long pid = ProcessHandle.current().pid();
        Files.writeString(folder.resolve(pid + ".json"), "[" + String.join(",", WRITTEN) + "]");
        System.exit(0);
    }
}
