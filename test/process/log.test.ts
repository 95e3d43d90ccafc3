import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { Readable } from 'node:stream'
import { text } from 'node:stream/consumers'
import { stripVTControlCharacters } from 'node:util'
import t, { type Test } from 'tap'

const log = new URL('../../src/process/log.js', import.meta.url).href

/** Starts a program that has such a log, with a pipe for its standard output and a channel to this process. */
function startLogging(t: Test, program: string) {
  const source = `
    import { droppedLogLines, openLog } from ${JSON.stringify(log)}
    import { closeOnSignals } from ${JSON.stringify(new URL('signals.js', log).href)}
    import { setImmediate } from 'node:timers/promises'
    const log = await openLog('info')
    ${program}`
  const child = spawn(process.execPath, ['--input-type=module', '--eval', source], {
    stdio: ['ignore', 'pipe', 'ignore', 'ipc'],
  })
  t.teardown(() => child.kill('SIGKILL'))
  return child
}

/** Reads the log of a program to its end. */
const readLog = async ({ stdout }: ChildProcess): Promise<string[]> =>
  (await text(stdout ?? Readable.from([]))).trimEnd().split('\n')

t.test('a process that ends on its own has written the lines of its last event-loop iteration', async (t) => {
  const many = `process.disconnect(); for (let n = 1; n <= 100; n++) log.info({ n }, 'one of many');`
  const ends = { '': 0, 'process.exit(3)': 3, "throw new Error('')": 1 }
  for (const [end, expected] of Object.entries(ends)) {
    const child = startLogging(t, many + end)
    const ended = once(child, 'exit')
    const lines = await readLog(child)
    t.strictSame(await ended, [expected, null], end)
    const numbers = lines.map((line) => JSON.parse(line).n)
    t.strictSame(numbers, [...Array(101).keys()].slice(1), end)
  }
})

t.test('lines on a terminal are readable', async (t) => {
  const program = `
    process.stdout.isTTY = true
    const terminal = await openLog('info')
    terminal.info({ n: 1 }, 'a line')
    process.disconnect()`
  const child = startLogging(t, program)
  const text = stripVTControlCharacters((await readLog(child)).join('\n'))
  t.match(text, /^\[\d\d:\d\d:\d\d\.\d{3}\] INFO: a line\n {4}n: 1$/)
})

t.test('a log that nobody reads takes bounded memory, and dropped lines are counted', async (t) => {
  const total = 300_000
  const program = `
    const text = 'x'.repeat(100)
    for (let n = 1; n <= ${total}; n++) {
      log.info({ n }, text)
      if (n % 1000 === 0) await setImmediate()
    }
    const { heapUsed, external } = process.memoryUsage()
    process.send({ used: heapUsed + external, dropped: droppedLogLines() })
    process.disconnect()`
  const child = startLogging(t, program)
  const [{ used, dropped }] = await once(child, 'message')
  t.ok(used < 100e6, `${Math.round(used / 1e6)} MB are in use; all lines have 45 MB, in two forms`)
  t.ok(dropped > total / 4, `${dropped} lines were dropped`)
  t.equal((await readLog(child)).length + dropped, total, 'every line was either written or counted')
})

t.test('a stop waits for the lines that are being read', async (t) => {
  const program = `
    closeOnSignals(log, 5000, async () => process.send('closing'))
    for (let n = 1; n <= 5000; n++) log.info({ n }, 'x'.repeat(400))
    process.once('message', () => process.disconnect())
    process.send('written')`
  const child = startLogging(t, program)
  await once(child, 'message')
  child.kill('SIGTERM')
  await once(child, 'message')
  const lines = await readLog(child)
  t.match(JSON.parse(lines.at(-1) ?? ''), { msg: 'stopped' })
  t.equal(lines.length, 5002)
})
