import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;
import nextflow.config.parser.v1.ConfigParserV1;
import nextflow.util.MemoryUnit;

/** Prints the selectors of a configuration's processes, their vCPUs and their memory in MiB, a line each. */
public class ReadConfig {
  public static void main(String[] names) throws Exception {
    String text = Files.readString(Path.of(names[0]));
    Map<?, ?> processes = (Map<?, ?>) new ConfigParserV1().parse(text).get("process");
    for (Map.Entry<?, ?> entry : processes.entrySet()) {
      Map<?, ?> process = (Map<?, ?>) entry.getValue();
      long memory = new MemoryUnit(process.get("memory").toString()).toMega();
      System.out.println(entry.getKey() + "\t" + process.get("cpus") + "\t" + memory);
    }
  }
}
