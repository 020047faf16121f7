// How a program in Node tells its phases, as tests/programs/phases.py does: by the counters of its thread.

import { readFileSync, writeFileSync } from 'node:fs'
import process from 'node:process'
import { threadId } from 'node:worker_threads'

const written = []

function counters() {
  const [used, waited] = readFileSync('/proc/thread-self/schedstat', 'utf8').split(' ')
  return [Number(process.hrtime.bigint()), Number(used), Number(waited)]
}

export async function phase(kind, action) {
  const before = counters()
  await action()
  const after = counters()
  written.push([kind, before[0], after[0], after[1] - before[1], after[2] - before[2]])
}

export function compute(usedNs) {
  const end = counters()[1] + usedNs
  while (counters()[1] < end) {
    for (let number = 0; number < 100000; number++) Math.sqrt(number)
  }
}

export function writeDown() {
  writeFileSync(`${process.env.TIMED_PHASES}/${process.pid}-${threadId}.json`, JSON.stringify(written))
}
