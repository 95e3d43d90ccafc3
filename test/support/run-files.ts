/**
 * Runs test files, each in a process of its own, and prints their results as TAP. The arguments are how many to run at the same time,
 * and the compiled files.
 *
 * tap has each process, and every program of Node that this starts, load a module for coverage by `NODE_OPTIONS`, which takes more
 * processor time than most files: here, they run without.
 */
import t from 'tap'

const [jobs, ...files] = process.argv.slice(2)
const { TAP_TIMEOUT, NODE_OPTIONS = '' } = process.env
// That is the limit of each file, not of all.
t.setTimeout(0)
t.jobs = Number(jobs)
for (const file of files) {
  const node = ['-u', '_TAPJS_PROCESSINFO_EXCLUDE_', `NODE_OPTIONS=${NODE_OPTIONS}`, process.execPath]
  const options = { buffered: true, stdio: 'inherit', timeout: Number(TAP_TIMEOUT) * 1000, at: null } as const
  // Node 20 warns of the mocked timers.
  const flags = ['--enable-source-maps', '--disable-warning=ExperimentalWarning']
  void t.spawn('/usr/bin/env', [...node, ...flags, file], options, file)
}
