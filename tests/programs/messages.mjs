// A job in Node that computes, and waits in turn until its worker tells it that it has waited.
//
//     node messages.mjs HOW WORK SECONDS COMPUTE WAIT PORT
//
// HOW is message, channel or atomics, WORK of the worker fetch or timer. It writes its phases as
// tests/programs/phases.py does.

import process from 'node:process'
import { setTimeout as sleep } from 'node:timers/promises'
import { isMainThread, MessageChannel, parentPort, Worker } from 'node:worker_threads'
import { compute, phase, writeDown } from './phases.mjs'

const [how, work, ...numbers] = process.argv.slice(2)
const [seconds, computeSeconds, waitSeconds, port] = numbers.map(Number)

const works = {
  fetch: async () => (await fetch(`http://127.0.0.1:${port}/${waitSeconds}`)).text(),
  timer: () => sleep(1000 * waitSeconds)
}

function serve(receiver) {
  receiver.on('message', async ({ channel, shared }) => {
    if (channel !== undefined) {
      serve(channel)
      return
    }
    await works[work]()
    if (shared === undefined) {
      receiver.postMessage({})
    } else {
      Atomics.store(shared, 0, 1)
      Atomics.notify(shared, 0)
    }
  })
}

function waitForMessage(peer) {
  peer.postMessage({})
  return new Promise((resolve) => peer.once('message', resolve))
}

function waitForMemory(peer) {
  const shared = new Int32Array(new SharedArrayBuffer(4))
  peer.postMessage({ shared })
  Atomics.wait(shared, 0, 0)
}

async function lead(worker) {
  let peer = worker
  if (how === 'channel') {
    const { port1, port2 } = new MessageChannel()
    worker.postMessage({ channel: port2 }, [port2])
    peer = port1
  }
  const wait = how === 'atomics' ? waitForMemory : waitForMessage
  const end = process.hrtime.bigint() + BigInt(1e9 * seconds)
  while (process.hrtime.bigint() < end) {
    await phase('any', () => compute(1e9 * computeSeconds))
    await phase(work === 'timer' ? 'sleep' : 'network', () => wait(peer))
  }
  writeDown()
  process.exit(0)
}

if (isMainThread) {
  lead(new Worker(new URL(import.meta.url), { argv: process.argv.slice(2) }))
} else {
  serve(parentPort)
}
