// A job in Node whose workers ask a server, each over a connection of its own.
//
//     node workers.mjs HOW SECONDS WORKERS PORT
//
// It writes its phases as tests/programs/phases.py does.

import cluster from 'node:cluster'
import { fork } from 'node:child_process'
import net from 'node:net'
import process from 'node:process'
import { isMainThread, parentPort, Worker } from 'node:worker_threads'
import { compute, phase, writeDown } from './phases.mjs'

const [how, ...numbers] = process.argv.slice(2)
const [seconds, workers, port] = numbers.map(Number)

function ask(wait) {
  return new Promise((resolve) => {
    const connection = net.connect(port, '127.0.0.1', () => connection.write(`${wait}\n`))
    connection.once('data', () => {
      connection.destroy()
      resolve()
    })
  })
}

async function work(number) {
  await phase('network', () => ask(0.4 + 0.4 * number / workers))
  await phase('any', () => compute(50e6))
}

// The next answer of each worker.
function answers(all) {
  return Promise.all(all.map((worker) => new Promise((resolve) => worker.once('message', resolve))))
}

async function lead(all, send) {
  await answers(all)
  const end = process.hrtime.bigint() + BigInt(1e9 * seconds)
  while (process.hrtime.bigint() < end) {
    const answered = answers(all)
    all.forEach((worker, number) => send(worker, number))
    await answered
  }
  const answered = answers(all)
  all.forEach((worker) => send(worker, 'end'))
  await answered
  process.exit(0)
}

function serve(receiver, send) {
  receiver.on('message', async (number) => {
    if (number === 'end') {
      writeDown()
    } else {
      await work(number)
    }
    send('done')
  })
  send('ready')
}

const numbered = [...Array(workers).keys()]
if (how === 'threads') {
  if (isMainThread) {
    const file = new URL(import.meta.url)
    lead(numbered.map(() => new Worker(file, { argv: process.argv.slice(2) })), (worker, word) => worker.postMessage(word))
  } else {
    serve(parentPort, (word) => parentPort.postMessage(word))
  }
} else if (how === 'cluster' && cluster.isPrimary) {
  lead(numbered.map(() => cluster.fork()), (worker, word) => worker.send(word))
} else if (how === 'fork' && process.send === undefined) {
  lead(numbered.map(() => fork(process.argv[1], process.argv.slice(2))), (worker, word) => worker.send(word))
} else {
  serve(process, (word) => process.send(word))
}
