import { execFile } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import t from 'tap'

const log = new URL('../dist/log.js', import.meta.url).href

/** Runs a program that has such a log, with a pipe for its standard output, and returns its lines. */
function linesOf(program: string): Promise<{ code: unknown; lines: string[] }> {
  const source = `import { openLog } from ${JSON.stringify(log)}; const log = openLog('info'); ${program}`
  return new Promise((resolve) => {
    execFile(
      process.execPath,
      ['--input-type=module', '--eval', source],
      { cwd: fileURLToPath(new URL('..', import.meta.url)), maxBuffer: 1e8 },
      (error, stdout) => resolve({ code: error?.code ?? 0, lines: stdout.trimEnd().split('\n') }),
    )
  })
}

t.test('a process that ends by itself has written the lines of its last turn', async (t) => {
  const many = `for (let n = 1; n <= 100; n++) log.info({ n }, 'one of many');`
  for (const [end, expected] of [
    ['', 0],
    ['process.exit(3)', 3],
    [`throw new Error('a fault')`, 1],
    [`Promise.reject(new Error('a fault'))`, 1],
  ] as const) {
    const { code, lines } = await linesOf(many + end)
    t.equal(code, expected)
    t.equal(lines.length, 100, end)
    t.match(JSON.parse(lines.at(-1) ?? ''), { n: 100, msg: 'one of many' })
  }
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
