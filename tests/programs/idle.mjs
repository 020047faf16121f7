// A job in Node that computes and waits in turn, beside a connection that is kept for later.
//
//     node idle.mjs BYSTANDER WORK SECONDS COMPUTE WAIT PORT
//
// It writes its phases as tests/programs/phases.py does.

import { spawn } from 'node:child_process'
import { readFileSync, writeFileSync } from 'node:fs'
import http from 'node:http'
import net from 'node:net'
import process from 'node:process'
import { setTimeout as sleep } from 'node:timers/promises'

const [bystander, work, ...numbers] = process.argv.slice(2)
const [seconds, computeSeconds, waitSeconds, port] = numbers.map(Number)
const written = []

function waitedNs() {
  return Number(readFileSync('/proc/thread-self/schedstat', 'utf8').split(' ')[1])
}

function usedNs() {
  const { user, system } = process.cpuUsage()
  return 1000 * (user + system)
}

async function phase(kind, action) {
  const before = [process.hrtime.bigint(), usedNs(), waitedNs()]
  await action()
  const after = [process.hrtime.bigint(), usedNs(), waitedNs()]
  written.push([kind, Number(before[0]), Number(after[0]), after[1] - before[1], after[2] - before[2]])
}

function compute() {
  const end = usedNs() + 1e9 * computeSeconds
  while (usedNs() < end) {
    for (let number = 0; number < 10000; number++) Math.sqrt(number)
  }
}

function runChild() {
  return new Promise((resolve) => spawn('sleep', [String(waitSeconds)]).on('exit', resolve))
}

function askByAgent() {
  const agent = new http.Agent({ keepAlive: true })
  return new Promise((resolve) => {
    http.get({ port, host: '127.0.0.1', agent }, (answer) => answer.resume().on('end', resolve))
  })
}

function readRows() {
  const connection = net.connect({ port, host: '127.0.0.1' })
  connection.write('ROWS 0.37\n')
  connection.resume()
}

const bystanders = {
  nothing: () => undefined,
  fetch: async () => (await fetch(`http://127.0.0.1:${port}/`)).text(),
  agent: askByAgent,
  rows: readRows,
  server: () => http.createServer().listen(0, '127.0.0.1')
}
const works = { sleep: () => sleep(1000 * waitSeconds), child: runChild }

await bystanders[bystander]()
const end = process.hrtime.bigint() + BigInt(1e9 * seconds)
while (process.hrtime.bigint() < end) {
  await phase('any', compute)
  await phase('sleep', works[work])
}
writeFileSync(`${process.env.TIMED_PHASES}/${process.pid}.json`, JSON.stringify(written))
process.exit(0)
