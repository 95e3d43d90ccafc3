import { execFile, spawn } from 'node:child_process'
import { once } from 'node:events'
import { closeSync, existsSync, openSync } from 'node:fs'
import path from 'node:path'
import { pathToFileURL } from 'node:url'
import { stripVTControlCharacters } from 'node:util'
import t from 'tap'
import { root } from '../support/root.ts'

const log = pathToFileURL(path.join(root, 'dist/process/log.js')).href

/** Runs a program that has such a log, with a pipe for its standard output, and returns its lines. */
function linesOf(program: string): Promise<{ code: unknown; lines: string[] }> {
  const source = `import { openLog } from ${JSON.stringify(log)}; const log = await openLog('info'); ${program}`
  return new Promise((resolve) => {
    execFile(
      process.execPath,
      ['--input-type=module', '--eval', source],
      { cwd: root, maxBuffer: 1e8 },
      (error, stdout) => resolve({ code: error?.code ?? 0, lines: stdout.trimEnd().split('\n') }),
    )
  })
}

t.test('a process that ends on its own has written the lines of its last event-loop iteration', async (t) => {
  const many = `for (let n = 1; n <= 100; n++) log.info({ n }, 'one of many');`
  for (const [end, expected] of [
    ['', 0],
    ['process.exit(3)', 3],
    [`throw new Error('a bug')`, 1],
    [`Promise.reject(new Error('a bug'))`, 1],
  ] as const) {
    const { code, lines } = await linesOf(many + end)
    t.equal(code, expected)
    t.equal(lines.length, 100, end)
    t.match(JSON.parse(lines.at(-1) ?? ''), { n: 100, msg: 'one of many' })
  }
})

t.test('lines on a terminal are readable', async (t) => {
  const { lines } = await linesOf(`
    process.stdout.isTTY = true
    const terminal = await openLog('info')
    terminal.info({ n: 1 }, 'a line')`)
  const text = stripVTControlCharacters(lines.join('\n'))
  t.match(text, /^\[\d\d:\d\d:\d\d\.\d{3}\] INFO: a line\n {4}n: 1$/)
})

t.test('lines keep their order and do not wait for others', async (t) => {
  const { lines } = await linesOf(`
    log.info('first'); log.info('second')
    setTimeout(() => { log.info('third'); setTimeout(() => process.kill(process.pid, 'SIGKILL'), 200) }, 20)`)
  t.strictSame(
    lines.map((line) => JSON.parse(line).msg),
    ['first', 'second', 'third'],
  )
})

t.test(
  'a log that nobody reads takes bounded memory, and dropped lines are counted and reported',
  async (t) => {
    const total = 300_000
    const source = `
    import { setImmediate } from 'node:timers/promises'
    import { droppedLogLines, openLog } from ${JSON.stringify(log)}
    const log = await openLog('info')
    const text = 'x'.repeat(100)
    for (let n = 1; n <= ${total}; n++) {
      log.info({ n }, text)
      if (n % 1000 === 0) await setImmediate()
    }
    const { heapUsed, external } = process.memoryUsage()
    process.send({ used: heapUsed + external, dropped: droppedLogLines() })
    process.once('message', () => process.disconnect())`
    const child = spawn(process.execPath, ['--input-type=module', '--eval', source], {
      cwd: root,
      stdio: ['ignore', 'pipe', 'inherit', 'ipc'],
    })
    t.teardown(() => child.kill('SIGKILL'))
    const [{ used, dropped }] = await once(child, 'message')
    t.ok(used < 100e6, `${Math.round(used / 1e6)} MB are in use; all lines have 45 MB, in two forms`)
    t.ok(dropped > total / 4, `${dropped} lines were dropped`)
    const { stdout } = child
    if (stdout === null) throw new Error('standard output is no pipe')
    let output = ''
    stdout.setEncoding('utf8')
    for await (const chunk of stdout) {
      output += chunk
      if (child.connected && output.includes('were dropped')) child.send('stop')
    }
    const lines = output
      .trimEnd()
      .split('\n')
      .map((line) => JSON.parse(line))
    const report = lines.at(-1)
    t.match(report, { level: 40, lines: dropped, msg: /^log lines were dropped/ })
    t.equal(lines.length - 1 + dropped, total, 'every line was either written or counted')
  },
)

t.test('a stop waits for the lines that are being read', async (t) => {
  const source = `
    import { openLog } from ${JSON.stringify(log)}
    import { closeOnSignals } from ${JSON.stringify(new URL('signals.js', log).href)}
    const log = await openLog('info')
    closeOnSignals(log, 5000, async () => process.send('closing'))
    for (let n = 1; n <= 5000; n++) log.info({ n }, 'x'.repeat(400))
    process.once('message', () => process.disconnect())
    process.send('written')`
  const child = spawn(process.execPath, ['--input-type=module', '--eval', source], {
    cwd: root,
    stdio: ['ignore', 'pipe', 'inherit', 'ipc'],
  })
  t.teardown(() => child.kill('SIGKILL'))
  const { stdout } = child
  if (stdout === null) throw new Error('standard output is no pipe')
  await once(child, 'message')
  child.kill('SIGTERM')
  await once(child, 'message')
  let output = ''
  stdout.setEncoding('utf8')
  for await (const chunk of stdout) output += chunk
  const lines = output.trimEnd().split('\n')
  t.match(JSON.parse(lines.at(-1) ?? ''), { msg: 'stopped' })
  t.equal(lines.length, 5002)
})

const noFullDisk = !existsSync('/dev/full') && 'there is no /dev/full'
t.test(
  'on a full disk each line counts as dropped, and the process ends',
  { skip: noFullDisk },
  async (t) => {
    const full = openSync('/dev/full', 'w')
    t.teardown(() => closeSync(full))
    const source = `
    import { setTimeout } from 'node:timers/promises'
    import { droppedLogLines, openLog } from ${JSON.stringify(log)}
    const log = await openLog('info')
    for (let n = 0; n < 3; n++) log.info('lost')
    await setTimeout(20)
    log.info('lost')
    await setTimeout(20)
    process.send(droppedLogLines(), () => { log.info('lost'); process.exit(0) })`
    const child = spawn(process.execPath, ['--input-type=module', '--eval', source], {
      cwd: root,
      stdio: ['ignore', full, 'inherit', 'ipc'],
    })
    t.teardown(() => child.kill('SIGKILL'))
    const ended = once(child, 'exit')
    const [dropped] = await once(child, 'message')
    t.equal(dropped, 4)
    t.strictSame(await ended, [0, null])
  },
)
