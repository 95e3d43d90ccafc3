import { spawnSync } from 'node:child_process'
import t, { type Test } from 'tap'
import { testDatabase } from '../support/database.ts'
import { programFile, run, temporaryFolder } from '../support/program.ts'

/** Runs a command with standard error on a terminal of its own, and passes on what the terminal gets, and SIGINT. */
const TERMINAL = `import os, signal, subprocess, sys
master, slave = os.openpty()
command = subprocess.Popen(sys.argv[1:], stderr=slave)
os.close(slave)
signal.signal(signal.SIGINT, lambda *_: command.send_signal(signal.SIGINT))
try:
  while (text := os.read(master, 4096)): os.write(2, text)
except OSError: pass
sys.exit(command.wait())`

const skip = spawnSync('python3', ['--version']).status !== 0 && 'there is no python3'

/** The output of a terminal with a sign for each command to it. */
const readable = (text: string): string =>
  text.replaceAll('\u001b[K', '<erase>').replaceAll('\r\n', '\n').replaceAll('\r', '<begin>')

/** Starts a command on a terminal. Its standard input stays open. */
async function start(t: Test, url: string, words: string, env: Record<string, string> = {}) {
  const args = ['-c', TERMINAL, process.execPath, programFile('cli'), ...words.split(' ')]
  const cwd = await temporaryFolder(t, { 'stock.csv': 'petId,quantity\n1,5\n' })
  return run(t, 'python3', args, {
    cwd,
    env: { PATH: process.env['PATH'], DATABASE_URL: url, TERM: 'xterm', ...env },
    input: null,
  })
}

t.test('an import on a terminal says how far it is, in a line that goes at the end', { skip }, async (t) => {
  const { url } = await testDatabase(t)
  const program = await start(t, url, 'import - --rows 2')
  program.process.stdin.write('petId,quantity\n1,5\n')
  await program.output(/\rReading standard input: 1 rows, \d+ s/)
  program.process.stdin.end('2,5\n')
  const { code, stdout, stderr } = await program.ended
  t.strictSame([code, stdout], [0, '2 added, 0 changed, 0 unchanged\n'])
  const lines =
    /^(<begin>Reading [^<\n]+<erase>)+<begin><erase>(<begin>Changing [^<\n]+<erase>|<begin><erase>)*$/
  t.match(readable(stderr), lines)
  t.match(readable(stderr), /<begin><erase>$/)
})

t.test('a notice and an interruption take the place of the line', { skip }, async (t) => {
  const database = await testDatabase(t, { entries: ['1,1,sold'] })
  await database.hold('LOCK TABLE inventory')
  for (const command of ['import stock.csv', 'export', 'history prune --keep 1d']) {
    if (command.startsWith('history')) await database.hold('LOCK TABLE inventory_history')
    const program = await start(t, database.url, command)
    await program.output(/\r(Changing the inventory: 1 rows|Exporting .* MB|0 changes deleted), \d+ s/)
    await program.output(/inventory: waiting/i)
    program.process.kill('SIGINT')
    const { code, stderr } = await program.ended
    t.equal(code, 130, command)
    for (const line of readable(stderr).trim().split('\n'))
      t.match(line, /^((<begin>[^<]+<erase>)*<begin><erase>)?inventory: (waiting|interrupted)/i, command)
  }
})

t.test('where nobody watches the terminal, nothing is printed but notices', { skip }, async (t) => {
  const database = await testDatabase(t, { entries: ['1,1,sold'] })
  const release = await database.hold('SELECT FROM inventory FOR UPDATE')
  const program = await start(t, database.url, 'import stock.csv', { CI: 'true' })
  // It comes later than the first line of progress.
  await program.output(/waiting/)
  await release()
  t.match((await program.ended).stderr, /^inventory: waiting for .*\r?\n$/)
})
