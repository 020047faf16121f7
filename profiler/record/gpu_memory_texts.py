"""The texts with which programs report that a GPU's memory was not enough, in their own log.

Only the lines of the run's own stream count.
"""

import re
from collections.abc import Sequence
from itertools import islice

from msgspec.structs import replace

from profiler.core.redaction import redact
from profiler.record.hardware import may_lack_gpu_memory
from profiler.record.record_model import GpuMemoryEvidence, Record

# So many of the newest lines of a run are searched.
SEARCHED_LINES = 100
_MAX_LENGTH = 300
# PyTorch (also before 2.0), XLA with JAX and TensorFlow, CUDA's driver and runtime, CuPy, RAPIDS
# (RMM, Spark), ONNX Runtime, TensorRT, NCCL, vLLM, SGLang, TGI, MXNet, Paddle, LightGBM, XGBoost,
# CatBoost, PyCUDA, CUDA.jl, MATLAB, faiss, DGL, DALI, llama.cpp and others on cudaMalloc, Amber,
# NAMD, Kokkos, Blender, ffmpeg's NVENC and hashcat. An exception's name counts with its message:
# source text ("except torch.OutOfMemoryError: pass") and a docstring ("torch.OutOfMemoryError: If
# the batch is too large") lack the message. XLA says "Out of memory allocating", and TensorFlow
# "device:CPU", of the host's memory. NVENC's OpenEncodeSessionEx says "out of memory" of its number
# of sessions, and Triton's OutOfResources is of the shared memory of a multiprocessor. A line may
# be anything, and 1 MB long: each repetition has a bound, so that a search takes time in proportion
# to the length, and not to its square.
_TEXTS = re.compile(
    r"torch\.(?:cuda\.)?OutOfMemoryError: (?:\w{1,20} out of memory|Allocation on device)"
    r"|CUDA out of memory\. Tried to allocate \d"
    r"|CUDA out of memory occurred when warming up"
    r"|RESOURCE_EXHAUSTED: Failed to allocate request for \d"
    r"|RESOURCE_EXHAUSTED: Out of memory .{0,100}trying to allocate \d"
    r"|INTERNAL: Failed to allocate \d{1,20} bytes for new constant"
    r"|OOM when allocating tensor(?!.{0,300}device:CPU)"
    r"|device:GPU:\d.{0,100}(?: failed to allocate memory|: Dst tensor is not initialized)"
    r"|(?i:\bcuda error in file '[^']{1,200}' in line \d{1,6} ?: out of memory)"
    r"|cuda runtime error \(2\) ?: out of memory"
    r"|Cuda Runtime \(out of memory\)"
    r"|cudaSuccess \(2 vs\. 0\) {1,3}out of memory"
    r"|CUDA runtime implicit initialization on GPU:\d{1,3} failed\. Status: out of memory"
    r"|\[CUDA\] out of memory"
    r"|\bCUDA: out of memory"
    r"|\bCUDA allocation failed\b"
    r"|CUDA error cuda\w{1,60}\(.{0,250}: out of memory"
    r"|cu(?:da)?M(?:em|alloc)\w{0,60}(?: retry)? failed: out of memory"
    r"|cu(?:da)?M(?:em|alloc)\w{0,60}\(\): out of memory"
    r"|cudaSafeCall\(\) failed at .{0,200}: out of memory"
    r"|GPUassert: out of memory"
    r"|GpuBuffer::Allocate failed out of memory"
    r"|\(error 2 out of memory\)"
    r"|\(cudaMalloc error out of memory \[2\]\)"
    r"|Out of memory error on GPU \d"
    r"|Out of GPU memory trying to allocate"
    r"|Out of memory on device\. To view more detail about available memory on the GPU"
    r"|System is out of GPU (?:and shared host )?memory"
    r"|cupy\.cuda\.memory\.OutOfMemoryError: [Oo]ut of memory (?:allocating|to allocate) \d"
    r"|rmm::(?:out_of_memory|bad_alloc)"
    r"|std::bad_alloc: (?:out_of_memory: )?(?:CUDA error|RMM failure)"
    r"|rapids\.jni\.Gpu(?:SplitAnd)?RetryOOM: GPU OutOfMemory"
    r"|catboost/cuda/\S{1,200} Error: Out of memory\. Requested \d"
    r"|\.cuh?:\d{1,6}: Memory allocation error on worker \d"
    r"|Error Code 2: OutOfMemory \("
    r"|nvenc @ \w{1,20}\] Create\w{1,60} failed: out of memory"
    r"|MemorySpace named \"Cuda\" failed .{0,200}insufficient memory"
    r"|Can't allocate \d{1,20} bytes on device \d"
    r"|No available memory for the cache blocks"
    r"|larger than the maximum number of tokens that can be stored in KV cache"
    r"|KV cache is needed, which is larger than the available KV cache memory"
    r"|Free memory on device .{0,80} is less than desired GPU memory utilization"
    r"|Not enough memory\. Please try to increase --mem-fraction-static"
    r"|Not enough memory to handle [1-9]\d{0,11} prefill tokens"
)
# The error's short message, and its names in CUDA, HIP, cuBLAS, cuDNN, OptiX and Vulkan. They stand
# in options, settings, tables and sentences about the case, too. They report at the beginning of a
# line or of a message, or after a word for a failed call; a name only with its message, or at the
# end.
_SHORT_MESSAGE = re.compile(
    r"(?i)\b(?:cuda|hip) (?:driver |runtime )?(?:error|failure)(?: \d{1,6})?"
    r"(?: (?:in|at) \S{1,200})?:? (?:\d{1,6} )?['(]?out of memory"
)
_NAME = re.compile(
    r"\b(?:CUDA_ERROR_OUT_OF_MEMORY|cudaErrorMemoryAllocation|hipErrorOutOfMemory"
    r"|(?:CUBLAS|CUDNN|CUSOLVER|CUSPARSE)_STATUS_ALLOC_FAILED|CUFFT_ALLOC_FAILED"
    r"|OPTIX_ERROR_DEVICE_OUT_OF_MEMORY|VK_ERROR_OUT_OF_DEVICE_MEMORY|ErrorOutOfDeviceMemory)\b"
)
_BEFORE_REPORT = re.compile(
    r"(?i)(?:^\W{0,20}"
    r"|[\])>:;.|-] {1,2}[\"'(]?|:|->|[(.]|(?:error|exception)\([\"']"
    r"|\b(?:msg|message|err|error|exc|exception|text|log|reason|detail|event)[\"']? ?[:=] ?[\"']"
    r"|\b(?:error|failure|fatal|critical|warning|warn|warp|failed|with|by|of|on|to|got|is|in|an?"
    r"|status|code|result|reported|returned|returns|raised|threw|met|hit"
    r"|(?:failed|aborted|died) after)(?: \d{1,6})? ?[ =] ?[\"'(]?)$"
)
_AFTER_NAME = re.compile(
    r"[\"')\]]{0,3}(?:[.;!]?\s{0,20}$|(?<=\")(?:\}{1,2}$|, ?\"\w)|[.;] [A-Z]|,? \("
    r"| \"| \[repeated \d"
    r"|[:,]? ?(?:\(\d{1,6}\))?[:,]? ?[(\"]{0,2}out of memory"
    r"|[:,]? (?:at|in|from|while|during|when calling) )"
)
# By what comes before and after, a mention: an option or a setting, what the program does in the
# case, a search, a kind of error, a counter, an item of a list. TensorFlow says "from device" when
# it asks for less next.
_MENTION = re.compile(
    r"(?i)(?:--[a-z][\w-]{0,60}[ =][\"']?"
    r"|\b(?:re-?try|re-?tries|re-?tried|retryable|continues?|skips?|restarts?|alerts?|warns?|exits?"
    r"|stops?|fails?|policy:?)[ _-](?:on|if|when|for)\b.{0,20}"
    r"|\b(?:errors|exceptions|rules|patterns|texts|types|codes|words|policy|pattern|regex|match"
    r"|fix(?:e[sd])?|known|ignored)[\"']? ?[:=] ?.{0,40}"
    r"|\b(?:handl|catch|ignor|treat|detect|simulat|inject|surviv|avoid|prevent|expect|fix|reproduc"
    r"|match|mention|mean|meet)(?:e|es|ed|s|ing)?"
    r"(?: (?:an?|the|any|every|each|of|on|all))? [\"'`(]?"
    r"|\b(?:caught|recover(?:s|ed|ing)? from|(?<!failed )(?<!aborted )(?<!died )after|such as|like"
    r"|about|number of|counts?|kinds? of) (?:an? |the |any )?[\"'`(]?"
    r"|handling: |from device: .{0,30})$"
)
_MENTION_AFTER = re.compile(
    r"(?i)[\"'`)\]}]{0,3}(?: (?:is|are|errors?|counts?|counters?|occurrences?|handlers?|handling"
    r"|retries|means|happens|occurs)\b"
    r"| ?[=:] ?[\"']?(?:\d{1,9}|none|null|nil|no|yes|true|false|enabled|disabled|on|off|ok|never"
    r"|ignored|retry)\b| - retry\b| ->|[|])"
)
# What says of the text itself that it is none, directly before or after it.
_NOT_MEANT_BEFORE = re.compile(
    r"(?i)(?:\bthis is (?:only |just )?an? (?:test|drill|example|exercise)\b[^\w\s]{0,3}"
    r"|\b(?:for )?example[:,]|\be\.g\.,?)\s{1,3}(?:[\w.]{1,60}(?:error|exception): ?)?$"
)
_NOT_MEANT_AFTER = re.compile(
    r"(?i)[^-(#;,\u2013\u2014]{0,80}[-(#;,\u2013\u2014]{1,2} ?"
    r"(?:this is (?:only |just )?an? (?:test|drill|example|exercise)"
    r"|(?:only|just) (?:an? )?(?:test|drill|example|exercise)(?:ing)?"
    r"|(?:an )?example\)|please ignore|not an? (?:real )?error)"
)
# No report: a test that did not fail, whose name or parameter may be such a text; source text
# ("return code 2" and "case 17:" are none, and "#12" is a step of a build); the help of an option;
# advice.
_NOT_FAILED = re.compile(
    r"^\s*(?:\[gw\d{1,4}\] \[ {0,2}\d{1,3}%\] )?(?:PASSED|SKIPPED|XFAIL|XPASS) "
    r"|^\[\W{0,10}(?:OK|RUN|PASSED|SKIPPED) {0,10}\]|^\s*(?:--- (?:PASS|SKIP): |ok \d|[✓✔√])"
)
_RESULT = re.compile(r" (?:PASSED|SKIPPED|XFAIL|XPASS)\b")
_SOURCE = re.compile(
    r"^\s*(?:#(?!\d)|//|/?\* |(?:-\w, )?--[a-z]|\.\. |(?:if|elif|raise|assert)\b"
    r"|except (?:\(|\w[\w.]{0,80}(?: as \w{1,40})?:)|return\b(?! (?:code|value|status)\b)"
    r"|case [^:]{1,80}: ?(?:return\b|$)|(?:print|log\w{0,5}\.\w{1,20}|with \w[\w.]{0,40})\()"
)
_ADVICE = re.compile(r"(?i)\b(?:(?:if|when) you|to avoid|in case of|hint:)")
# The program goes on: with the same line, or with a later one that names less work.
_GOES_ON = re.compile(
    r"(?i)\b(?:retrying|will (?:re)?try|trying (?:again|batch|a smaller|with)|retry with"
    r"|recovered from|falling back|fell back|skipping (?:the |this )?(?:batch|sample|step))\b"
)
_LESS_WORK = re.compile(
    r"(?i)\b(?:(?:will (?:re)?try|(?:re)?trying|retry) (?:again )?(?:with )?(?:a )?"
    r"(?:smaller |lower |half )?(?:the )?batch"
    r"|(?:halv|reduc|lower|decreas)(?:ed|es|ing) (?:the )?(?:micro-?)?batch"
    r"|(?:falling|fell) back to (?:the )?cpu|recovered from (?:an? )?(?:oom|out.of.memory|cuda))\b"
)
# It does not: the words are advice to a person ("Try reducing the batch size.").
_ADVISED = re.compile(
    r"(?i)\b(?:try|consider|by|suggest\w{0,5}|recommend\w{0,5}|advise\w{0,2}|please|hint|tip|you"
    r"|if|may|might|could|can|should|need|instead of|without)\b[^.!;]{0,40}$"
)
_ADVISED_AFTER = re.compile(
    r"(?i)[^.!;]{0,40}\b(?:may|might|could|can|should|would|usually|often) (?:help|fix|solve|work)"
)
_COLOURS = re.compile(r"\x1b\[[0-9;]{0,20}[mK]")  # of a log that is written as for a terminal
_BEFORE_LENGTH = 120
_MAX_MATCHES = 20


def gpu_memory_error_line(lines: Sequence[str]) -> str | None:
    """The last of the lines that reports a lack of GPU memory, cut and without secrets; None if
    none does, or if the program then went on with less work.
    """
    for coloured in reversed(lines):
        line = _COLOURS.sub("", coloured)
        if _reports_lack_of_memory(line):
            return redact(line.split())[:_MAX_LENGTH]
        if _says_whether_program_goes_on(line, _LESS_WORK):
            return None
    return None


def _reports_lack_of_memory(line: str) -> bool:
    found = [
        match
        for texts in (_TEXTS, _SHORT_MESSAGE, _NAME)
        for match in islice(texts.finditer(line), _MAX_MATCHES)
    ]
    if not found or _ADVICE.search(line, 0, found[0].start()):
        return False
    if _SOURCE.search(line) or _NOT_FAILED.search(line):
        return False
    if _says_whether_program_goes_on(line, _GOES_ON) or _says_whether_program_goes_on(
        line, _LESS_WORK
    ):
        return False
    if "::" in line and _RESULT.search(line):
        return False
    return any(_is_in_place_of_report(line, match) for match in found)


def _says_whether_program_goes_on(line: str, goes_on: re.Pattern[str]) -> bool:
    """Whether a line says that the program goes on, and does not only advise it."""
    for match in islice(goes_on.finditer(line), _MAX_MATCHES):
        before = line[max(match.start() - _BEFORE_LENGTH, 0) : match.start()]
        if not _ADVISED.search(before) and not _ADVISED_AFTER.match(line, match.end()):
            return True
    return False


def _is_in_place_of_report(line: str, match: re.Match[str]) -> bool:
    """Whether a text is in the place of a report, by what comes before and after it."""
    before = line[max(match.start() - _BEFORE_LENGTH, 0) : match.start()]
    if _NOT_MEANT_BEFORE.search(before) or _NOT_MEANT_AFTER.match(line, match.end()):
        return False
    if match.re is _TEXTS:
        return True
    if _MENTION.search(before) or _MENTION_AFTER.match(line, match.end()):
        return False
    if not _BEFORE_REPORT.search(before):
        return False
    return match.re is not _NAME or _AFTER_NAME.match(line, match.end()) is not None


def with_gpu_memory_error(record: Record, error: str | None) -> Record:
    """Add what the log says of a lack of GPU memory to the record of a run that failed by itself.
    What the numbers say stays.
    """
    if error is None or record.likely_out_of_gpu_memory:
        return record
    if not may_lack_gpu_memory(record, record.gpus):
        return record
    evidence = GpuMemoryEvidence(kind="log", text=error)
    return replace(record, likely_out_of_gpu_memory=True, gpu_memory_evidence=evidence)
