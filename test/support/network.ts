import { spawn } from 'node:child_process'
import { once } from 'node:events'
import type { Test } from 'tap'
import { freePort } from './ports.ts'

/** Inserts a rule, and removes it when standard input ends: also if the test is killed. */
const SCRIPT = `rule="INPUT -i lo -p tcp --dport $1 -j DROP"
  iptables -w -I $rule && echo cut && read end
  iptables -w -D $rule`

/**
 * Drops what is sent to a port of this machine and tells nobody, as a broken network does. The kernel sends it again, at longer and
 * longer intervals. Returns the function that restores the network.
 */
export async function cutNetwork(t: Pick<Test, 'teardown'>, port: number): Promise<() => Promise<void>> {
  // A process group of its own, because the runner kills that of a test.
  const shell = spawn('sh', ['-c', SCRIPT, 'sh', String(port)], { stdio: 'pipe', detached: true })
  let errors = ''
  shell.stderr.on('data', (chunk) => (errors += chunk))
  const ended = once(shell, 'close')
  const restore = async (): Promise<void> => {
    shell.stdin.end()
    await ended
  }
  t.teardown(restore)
  const isCut = once(shell.stdout, 'data').then(() => true)
  if (await Promise.race([isCut, ended.then(() => false)])) return restore
  throw new Error(`The network was not cut: ${errors.trim()}`)
}

/** Returns why `cutNetwork` cannot be used; false if it can. */
export async function reasonNotToCut(t: Pick<Test, 'teardown'>): Promise<string | false> {
  try {
    await (await cutNetwork(t, await freePort()))()
    return false
  } catch (error) {
    return `iptables, as root, is needed: ${error instanceof Error ? error.message : error}`
  }
}
