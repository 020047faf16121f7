import java.io.IOException;
import java.net.Socket;
import java.nio.file.DirectoryStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.concurrent.locks.ReentrantLock;

/**
 * A job in Java whose main thread needs a lock that another thread holds while it asks a server,
 * beside a thread that nobody waits for: it sleeps until the end.
 *
 * <p>java Locks synchronized|reentrant SECONDS PORT. It writes its phases as
 * tests/programs/phases.py does.
 */
public final class Locks {
    private static final List<String> WRITTEN = Collections.synchronizedList(new ArrayList<>());
    private static final Object MONITOR = new Object();
    private static final ReentrantLock LOCK = new ReentrantLock();
    private static final double ASK_SECONDS = 0.18, COMPUTE_SECONDS = 0.05;
    private static final int PIECES = 5;

    interface Action {
        void run() throws Exception;
    }

    private static long[] schedule() throws IOException {
        return schedule(Path.of("/proc/thread-self"));
    }

    private static long[] schedule(Path task) throws IOException {
        String[] words = Files.readString(task.resolve("schedstat")).split(" ");
        return new long[] {Long.parseLong(words[0]), Long.parseLong(words[1])};
    }

    /** What all threads that live have used, and waited for a CPU, also the virtual machine's. */
    private static long[] scheduleOfAll() throws IOException {
        long[] sum = new long[2];
        try (DirectoryStream<Path> tasks = Files.newDirectoryStream(Path.of("/proc/self/task"))) {
            for (Path task : tasks) {
                long[] one = schedule(task);
                for (int place = 0; place < 2; place++) sum[place] += one[place];
            }
        }
        return sum;
    }

    private static void phase(String kind, Action action) throws Exception {
        long began = System.nanoTime();
        long[] before = scheduleOfAll();
        action.run();
        long[] after = scheduleOfAll();
        WRITTEN.add(
                String.format(
                        "[\"%s\", %d, %d, %d, %d]",
                        kind, began, System.nanoTime(), after[0] - before[0], after[1] - before[1]));
    }

    private static void withLock(boolean isMonitor, Action action) throws Exception {
        if (isMonitor) {
            synchronized (MONITOR) {
                action.run();
            }
            return;
        }
        LOCK.lock();
        try {
            action.run();
        } finally {
            LOCK.unlock();
        }
    }

    private static void ask(int port) throws Exception {
        try (Socket server = new Socket("127.0.0.1", port)) {
            server.getOutputStream().write((ASK_SECONDS + "\n").getBytes());
            if (server.getInputStream().read() < 0) throw new IOException("no answer");
        }
    }

    /** It runs between two pieces, and so while it is waited for. */
    private static void download(int port) throws Exception {
        for (int piece = 0; piece < PIECES; piece++) phase("network", () -> ask(port));
    }

    private static void compute() throws IOException {
        long end = schedule()[0] + (long) (1e9 * COMPUTE_SECONDS);
        while (schedule()[0] < end) {
            for (int number = 0; number < 100000; number++) Math.sqrt(number);
        }
    }

    private static Void hold(boolean isMonitor, long end, int port) throws Exception {
        while (System.nanoTime() < end) {
            withLock(isMonitor, () -> download(port));
            // Else it would take the lock again before the thread that waits for it.
            phase("sleep", () -> Thread.sleep(10));
        }
        return null;
    }

    private static Thread start(Action action) {
        Thread thread =
                new Thread(
                        () -> {
                            try {
                                action.run();
                            } catch (Exception error) {
                                throw new IllegalStateException(error);
                            }
                        });
        thread.setDaemon(true);
        thread.start();
        return thread;
    }

    public static void main(String[] arguments) throws Exception {
        boolean isMonitor = arguments[0].equals("synchronized");
        long end = System.nanoTime() + (long) (1e9 * Double.parseDouble(arguments[1]));
        int port = Integer.parseInt(arguments[2]);
        start(() -> Thread.sleep(600_000));
        Thread holder = start(() -> hold(isMonitor, end, port));
        while (System.nanoTime() < end) {
            withLock(isMonitor, () -> phase("any", Locks::compute));
            phase("sleep", () -> Thread.sleep(10));
        }
        holder.join();
        Path folder = Path.of(System.getenv("TIMED_PHASES"));
        long pid = ProcessHandle.current().pid();
        Files.writeString(folder.resolve(pid + ".json"), "[" + String.join(",", WRITTEN) + "]");
    }
}
