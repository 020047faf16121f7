// Written by `make page-types` from profiler/report_page/page_rows.py.

/** One GPU: ``percent`` and ``top`` are the texts of its mean and largest utilization, ``sm`` of
 * how active its multiprocessors were;
 * ``memory`` says how much of its ``size`` in MB the run was seen to hold. ``whose`` names the
 * programs of these numbers, if they may not be the run's alone.
 */
export interface PageGpu {
  name: string;
  percent?: string;
  top?: string;
  sm?: string;
  idle?: string;
  whose?: string;
  memory?: string;
  size?: number;
  watts?: number;
  celsius?: number;
  xids?: Array<number>;
}

/** The NeuronCores, each with its index, its mean and its largest utilization; the devices'
 * memory, and the executions.
 */
export interface PageNeuron {
  cores?: Array<[number, number | null, number | null]>;
  mb?: number;
  size?: number;
  completed?: number;
  failed?: number;
}

/** The sentence of the last night, and its bounds, also as times of ``zone``, in which it was
 * made.
 */
export interface PageNight {
  texts: Array<PageNightText>;
  start: number;
  end: number;
  begins: string;
  ends: string;
  zone: string;
}

/** A piece of the sentence of the last night. ``run`` is the row of the run that it opens.
 */
export interface PageNightText {
  text: string;
  isNumber?: boolean;
  run?: number;
}

/** A notice of a schedule, with the names of a run's fields, so that filters select both.
 *
 * ``came_late``: the missed task started later.
 */
export interface PageNotice {
  family: string;
  account?: string;
  region?: string;
  cluster?: string;
  outcome: string;
  began?: number;
  cameLate?: boolean;
  text: string;
}

/** What tables and overview charts show of a run.
 *
 * ``family`` is a label that only this family has; ``name`` is the family itself where the label
 * differs. ``began`` is milliseconds since 1970, of the first line if ``start_unknown``. ``cpu``
 * and ``memory`` are the averages in percent of the size, ``vcpu_avg``, ``vcpu_p95`` and
 * ``vcpu_max`` are in vCPU, ``vcpu_size`` as well: if ``vcpu_asked``, it is what a job asked for,
 * and no limit. ``size``, ``memory_avg`` and ``peak`` are the container's memory, which may
 * include mapped files if ``counts_files``.
 * ``task_size`` is vCPU and memory. ``read``, ``written``, ``received`` and ``sent`` are bytes.
 * ``gpu``, ``gpu_sm`` and ``gpu_peak`` are of all GPUs together, ``gpu_word`` stands in place of
 * their use, ``gpu_idle`` and ``gpu_between`` are shares of the run, and ``gpu_size`` is the
 * memory of the GPU with the largest peak.
 * ``course`` has the memory peaks of 24 equal parts as digits to the base 36. ``ending`` stands in
 * place of ``outcome`` where that says too little, and ``why`` says why the run ended in a few
 * words. ``at_least`` has the fields of the numbers that may have been larger,
 * ``estimated`` those of estimates.
 */
export interface PageRun {
  id: string;
  family: string;
  name?: string;
  revision?: string;
  container: string;
  outcome: string;
  ending?: string;
  why?: string;
  exit?: number;
  began?: number;
  startUnknown?: boolean;
  ms?: number;
  init?: number;
  billed?: number;
  cpu?: number;
  memory?: number;
  vcpuSize?: number;
  vcpuAsked?: boolean;
  vcpuAvg?: number;
  vcpuP95?: number;
  vcpuMax?: number;
  saturated?: number;
  cpuSeconds?: number;
  size?: number;
  memoryAvg?: number;
  peak?: number;
  peakBy?: string;
  countsFiles?: boolean;
  usd?: number;
  account?: string;
  cluster?: string;
  launch?: string;
  region?: string;
  taskSize?: [number | null, number | null];
  read?: number;
  written?: number;
  received?: number;
  sent?: number;
  pids?: number;
  gpu?: number;
  gpuWord?: string;
  gpuSm?: number;
  gpuIdle?: number;
  gpuBetween?: number;
  gpuPeak?: number;
  gpuSize?: number;
  atLeast?: Array<string>;
  estimated?: Array<string>;
  course?: string;
}

/** Where the time of a run went.
 *
 * ``time`` has the parts in the order of the record's time breakdown, ``targets`` kind, name and
 * percent of what it waited for. ``cpu_wait`` is a sentence. ``has_activity``: the run may have
 * processes over time, or call stacks.
 */
export interface RunActivity {
  time?: Array<number | null>;
  targets?: Array<[string, string, number | null]>;
  covered?: number;
  cpuWait?: string;
  cpuWaitPartial?: boolean;
  processor?: string;
  hasActivity?: boolean;
  stackSource?: string;
  samples?: number;
  functions?: Array<[string, string | null, number | null, number | null, number | null]>;
}

/** What only an opened run shows, with its activity.
 *
 * ``verdict`` is a tone, a sentence and perhaps its evidence. ``moments`` are kind, start and end
 * after the start of the run, and text. ``files`` and
 * ``huge_pages`` say what the memory used lacks. ``peak_at`` is also after the start. ``kills`` is
 * a sentence on kills for memory, and the processes. ``usual`` are the fields of the compared
 * numbers that are within the spread of the family's earlier successes, ``unusual`` those
 * that are not; a number of fewer than five runs is in neither. ``device_use`` says in a line
 * what the GPUs or NeuronCores did, ``beside`` which of them a size of vCPU and memory leaves out.
 */
export interface RunDetails {
  time?: Array<number | null>;
  targets?: Array<[string, string, number | null]>;
  covered?: number;
  cpuWait?: string;
  cpuWaitPartial?: boolean;
  processor?: string;
  hasActivity?: boolean;
  stackSource?: string;
  samples?: number;
  functions?: Array<[string, string | null, number | null, number | null, number | null]>;
  verdict: Array<string>;
  moments?: Array<[string, number, number, string]>;
  files?: string;
  hugePages?: string;
  peakAt?: number;
  command?: string;
  image?: string;
  logGroup?: string;
  logStream?: string;
  processes?: Array<[string, string | null, number | null, number | null, number | null, number | null, boolean, boolean]>;
  kills?: [string, Array<[string, string | null, number | null, number | null, number | null, number | null, boolean, boolean]>];
  usual?: Array<string>;
  unusual?: Array<string>;
  unmeasured?: string;
  runAdvice?: Array<string>;
  deviceUse?: string;
  beside?: string;
  gpus?: Array<PageGpu>;
  gpuNotes?: Array<string>;
  neuron?: PageNeuron;
  labels?: Array<string>;
  job?: string;
  tags?: Array<string>;
  warnings?: Array<string>;
  notices?: Array<string>;
}
