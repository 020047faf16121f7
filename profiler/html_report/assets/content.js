// The data of the page, unpacked: see profiler/html_report/packed_runs.py.

const content = JSON.parse(byId("task-data").textContent);
const shared = new Set(content.shared);
const textAt = (index) => (Array.isArray(index) ? index.map(textAt) : content.texts[index]);
content.runs = content.runs.map((values, row) => {
  const run = { row, packed: content.series[row] };
  values.forEach((value, column) => {
    const field = content.fields[column];
    if (isKnown(value)) run[field] = shared.has(field) ? textAt(value) : value;
  });
  if (run.logStream) run.logStream = run.logStream.replace("{id}", () => run.id);
  return run;
});
